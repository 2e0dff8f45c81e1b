"""The software switch adds, live: workers in namespaces, jobs from a file, a hub that is the switch itself."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from dlcp import _native
from dlcp.errors import SettingsError
from dlcp.switch.policy import Policy
from dlcp.switch.software import SwitchError
from dlcp.switch.software.native_jobs import check_unchanged, read_jobs
from tests.support.namespaces import missing
from tests.support.switched_hosts import bed

HOSTS = 3
LANES = 352
HUB = (0x0A000063, 23701)


def jobs(generation: int = 1) -> str:
    lines = ["[[job]]", "job = 7", f"lanes = {LANES}", "slots = 64", f"generation = {generation}"]
    lines += ['hub = {mac = "02:00:00:00:00:63", ip = "10.0.0.99", udp_port = 23701}']
    for host in range(HOSTS):
        lines += ["[[job.worker]]", f'port = "eth{host}"', f'mac = "02:00:00:00:00:{host + 1:02x}"']
        lines += [f'ip = "10.0.0.{host + 1}"', "udp_port = 23701"]
    return "\n".join(lines) + "\n"


def test_jobs_that_cannot_be_are_refused() -> None:
    with pytest.raises(SettingsError, match="port is 'eth2'; accepted: a port of the switch: eth0, eth1"):
        read_jobs(jobs(), ["eth0", "eth1"])
    with pytest.raises(SettingsError, match="not TOML"):
        read_jobs("[[job", [])
    with pytest.raises(SettingsError, match="hub is missing"):
        read_jobs("[[job]]\njob = 1", [])


def test_a_job_keeps_its_workers_and_its_upper_switch_for_a_generation() -> None:
    ports = ["eth0", "eth1", "eth2"]
    held = read_jobs(jobs(), ports)
    check_unchanged(held, held)
    moved = jobs().replace("10.0.0.3", "10.0.0.4")
    place = '{port = "eth0", mac = "02:00:00:00:00:f0", ip = "10.0.1.1", udp_port = 9}'
    own = place.replace('port = "eth0", ', "").replace("10.0.1.1", "10.0.1.2")
    upper = f"{jobs()}[job.upper]\nworker = 0\nhub = {place}\nown = {own}\n"
    for text, words in ((moved, "its workers are others"), (upper, "its upper is another")):
        with pytest.raises(
            SettingsError, match=f"job 7: {words}; accepted with generations that it has not, from 2"
        ):
            check_unchanged(held, read_jobs(text, ports))
        check_unchanged(held, read_jobs(text.replace("generation = 1", "generation = 2"), ports))


@pytest.mark.needs_root
@pytest.mark.skipif((why := missing()) is not None, reason=why or "")
def test_workers_in_namespaces_get_the_sum(tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(jobs())
    ports = [f"eth{host}" for host in range(HOSTS)]
    with bed(HOSTS) as at:
        for host, namespace in enumerate(at.hosts):
            namespace.ip(f"link set eth0 address 02:00:00:00:00:{host + 1:02x}")
            namespace.ip(f"addr add 10.0.0.{host + 1}/24 dev eth0")
        with at.start(Policy("plain"), ports, arguments=["--jobs", str(file)]) as switch:

            def all_reduce(generation: int) -> list[tuple[str, np.ndarray]]:
                """How each worker's probe and sum ended, and the sum."""
                found: list[tuple[str, np.ndarray]] = [("", np.zeros(0))] * HOSTS

                def work(host: int) -> None:
                    make = _native.AggregationEndpoint
                    worker = at.hosts[host].run(
                        lambda: make(
                            7, generation, host, HOSTS, host, HOSTS, 64, LANES, 0.01, (0, 23701), HUB
                        )
                    )
                    values = np.arange(100_000, dtype=np.float32) * (host + 1)
                    out = np.zeros_like(values)
                    codes = np.full(-(-values.size // LANES), 126 + 19, np.uint8)  # below 2^19
                    end = worker.probe(5, 1, 0, 2.0)
                    if end == "done":
                        end = worker.all_reduce(
                            values.ctypes.data,
                            values.size,
                            codes.ctypes.data,
                            out.ctypes.data,
                            32,
                            1.0,
                            1,
                            64,
                            5.0,
                        )
                    found[host] = end, out

                threads = [threading.Thread(target=work, args=(host,)) for host in range(HOSTS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                return found

            wanted = np.arange(100_000, dtype=np.float32) * 6
            first = all_reduce(1)
            assert [end for end, _ in first] == ["done"] * HOSTS, switch.log
            assert all((out == wanted).all() for _, out in first)
            # The next run begins with the same keys, and gets slots that are empty.
            switch.control.set_jobs(jobs(2))
            assert [end for end, _ in all_reduce(2)] == ["done"] * HOSTS
            with pytest.raises(SwitchError, match="lanes is 33"):
                switch.control.set_jobs(jobs().replace("lanes = 352", "lanes = 33"))
            (told,) = switch.control.status()["aggregation"]
            assert (told["job"], told["generation"]) == (7, 2)
            assert told["outcomes"]["completed"] >= 2 * (64 + -(-100_000 // LANES))
