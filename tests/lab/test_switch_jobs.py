"""The file of jobs of a lab: what is in it, what is refused, and ranks whose switches add, one level and two."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.errors import SettingsError
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError
from dlcp.lab.switch_jobs import file_text, jobs_of, lanes_of, setting_of
from dlcp.lab.switched_lab import missing
from dlcp.switch.aggregation.entries import NO_PORT, JobRequest
from dlcp.switch.aggregation.job_file import job_tables
from dlcp.transport.aggregation.address import SwitchAddress

STAR, LEAF_SPINE = Fabric.preset("star"), Fabric.preset("leaf-spine")
LAB = [sys.executable, "-m", "dlcp", "lab"]


@pytest.mark.parametrize(("mtu", "lanes"), [(1500, 352), (9000, 2208), (1280, 288)])
def test_packets_fill_frames(mtu: int, lanes: int) -> None:
    assert lanes_of(mtu) == lanes
    assert jobs_of(replace(STAR, mtu=mtu), range(4))["l0"].lanes == lanes


@pytest.mark.parametrize(
    ("fabric", "host_of"),
    [
        (STAR, [0, 1, 2, 3]),
        (STAR, [2, 0, 2, 0, 3]),
        (LEAF_SPINE, [0, 0, 1, 1, 2, 2, 3, 3]),
        (LEAF_SPINE, [3, 1]),
        (LEAF_SPINE, [2, 3]),
        (Fabric(leaves=16, spines=2, hosts_per_leaf=4), range(64)),
    ],
)
def test_every_rank_is_the_worker_that_its_setting_says(fabric: Fabric, host_of: list[int]) -> None:
    jobs = jobs_of(fabric, host_of, job=9, generation=4)
    address = SwitchAddress.parse(setting_of(jobs))
    assert (address.job, address.generation, address.lanes) == (9, 4, 352)
    macs: list[str] = []
    for rank, host in enumerate(host_of):
        leaf = fabric.leaf_of(host)
        number, count = address.place_of(rank, len(host_of))
        own = jobs[leaf]
        assert count == len(own.workers)
        worker = own.workers[number]
        assert list(fabric.ports(leaf))[worker.port] == f"h{host}"
        place = list(host_of[:rank]).count(host)
        assert (worker.ip, worker.udp_port) == (fabric.address(host), address.port_of(place))
        assert (own.hub.port, own.hub.ip, own.hub.udp_port) == (NO_PORT, address.host, address.hub_port)
        macs.append(own.hub.mac)
    assert len(set(macs)) == 1, "whichever leaf answers"
    leaves = {fabric.leaf_of(host) for host in host_of}
    assert set(jobs) == leaves | ({"s0"} if len(leaves) > 1 else set())
    for leaf in leaves if len(leaves) > 1 else ():
        upper, at_spine = jobs[leaf].upper, jobs["s0"]
        assert upper is not None
        known = at_spine.workers[upper.worker]
        assert list(fabric.ports("s0"))[known.port] == leaf
        assert list(fabric.ports(leaf))[upper.hub.port] == "s0"
        assert (upper.own.mac, upper.own.ip) == (known.mac, known.ip)
        assert (upper.hub.mac, upper.hub.ip) == (at_spine.hub.mac, at_spine.hub.ip)


def test_file_has_the_jobs_of_every_switch() -> None:
    jobs = jobs_of(LEAF_SPINE, range(4))
    read = {}
    for table in job_tables(file_text(LEAF_SPINE, jobs)):
        switch = table.pop("switch")
        ports = {name: number for number, name in enumerate(LEAF_SPINE.ports(switch))}
        read[switch] = JobRequest.from_table(table, port_numbers=ports)
    assert read == jobs


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(FabricError, match="switch is 'kernel'; accepted where switches add: 'software'"):
        jobs_of(replace(STAR, switch="kernel"), range(4))
    with pytest.raises(FabricError, match="ranks are on l0, l1, l0; accepted: leaf by leaf, as many on each"):
        jobs_of(LEAF_SPINE, [0, 2, 1])
    with pytest.raises(FabricError, match="ranks are on l0, l0, l1; accepted"):
        jobs_of(LEAF_SPINE, [0, 1, 2])
    with pytest.raises(SettingsError, match="l0: job.slots is 1; accepted: an integer from 2"):
        jobs_of(STAR, range(4), slots=1)
    with pytest.raises(FabricError, match="ranks are on no leaf"):
        jobs_of(STAR, [])


SUM = """
import torch, torch.distributed as dist
import dlcp.torch

dist.init_process_group("dlcp")
rank, size = dist.get_rank(), dist.get_world_size()
tensor = torch.full((1 << 19,), rank + 1.0)
dist.all_reduce(tensor)
metrics = dist.group.WORLD.communicator.job.metrics.snapshot()["aggregation"]
print(bool((tensor == size * (size + 1) / 2).all()), metrics["by_switch"], metrics["by_ring"])
dist.destroy_process_group()
"""


def lab(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAB, *map(str, words)], capture_output=True, text=True, timeout=120)


@pytest.mark.needs_root
@pytest.mark.skipif((reason := missing()) is not None, reason=reason or "")
@pytest.mark.parametrize("fabric", ["star", "leaf-spine"])
def test_ranks_of_a_lab_are_added_by_its_switches(fabric: str, tmp_path: Path) -> None:
    """Two commands: the file, and the ranks, who are told by the lab."""
    written = lab("jobs", fabric)
    assert written.returncode == 0, written.stderr
    (tmp_path / "jobs.toml").write_text(written.stdout)
    (tmp_path / "sum.py").write_text(SUM)
    done = lab("run", fabric, "--jobs", tmp_path / "jobs.toml", "--", sys.executable, tmp_path / "sum.py")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[{rank}] True 1 {{}}" for rank in range(4)]


@pytest.mark.needs_root
@pytest.mark.skipif((reason := missing()) is not None, reason=reason or "")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "No such file"),
        ("", "no job in the file"),
        ("[[job", "not TOML"),
        ('[[job]]\nswitch = "l7"\njob = 1\n', "job[0].switch is 'l7'; accepted: l0"),
        ('[[job]]\nswitch = "l0"\njob = 1\n', "job[0].hub is missing"),
    ],
)
def test_file_that_is_wrong_ends_the_lab(text: str | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    if text is not None:
        file.write_text(text)
    done = lab("run", "star", "--jobs", file, "--", "true")
    assert done.returncode == 2
    assert f"{file}: " in done.stderr
    assert words in done.stderr
