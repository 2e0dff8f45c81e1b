"""The file of jobs as it is written: from a topology, and of every job that can be."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.errors import SettingsError
from dlcp.switch import BridgeEntry, SwitchTarget, Topology
from dlcp.switch.aggregation.entries import MAX_WORKERS, NO_PORT, JobRequest, UpperSwitch, in_a_row
from dlcp.switch.aggregation.job_command import UDP_PORT
from dlcp.switch.aggregation.job_file import job_tables, job_text
from dlcp.transport.aggregation.address import SwitchAddress
from tests.support.aggregation_packet import participant

PORTS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4}
NAMES = {number: name for name, number in PORTS.items()}


@pytest.fixture(name="topology")
def fixture_topology(tmp_path: Path) -> str:
    """A file: MAC addresses of one host at h1 and h2 each, of two at h3, of none at h4."""
    macs = {"02:00:00:00:00:01": "h1", "02:00:00:00:00:02": "h2", "02:00:00:00:00:03": "h3"}
    bridge = tuple(BridgeEntry(mac, port) for mac, port in [*macs.items(), ("02:00:00:00:00:13", "h3")])
    target = SwitchTarget("rack", "127.0.0.1:1", PORTS, device_id=1, bridge=bridge)
    Topology((target, replace(target, name="other", address="127.0.0.1:2"))).save(tmp_path / "topology.toml")
    return str(tmp_path / "topology.toml")


def words(topology: str, *more: str) -> list[str]:
    return ["switch", "jobs", "write", "--target", topology, *more]


RACK = ("--switch", "rack", "--hosts", "h1=10.0.0.1", "h2=10.0.0.2")


def test_default_ports_are_none_that_other_sockets_of_a_host_are_given() -> None:
    """A rank's own socket had the port of the host's next rank: once in some thousand starts."""
    lowest_given = 32768  # net.ipv4.ip_local_port_range, as Linux has it
    assert lowest_given > UDP_PORT + MAX_WORKERS


def test_file_is_of_the_hosts_in_their_order(topology: str, capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--hub", "h4=10.0.0.9,02:00:00:00:00:09", "--job", "7", "--generation", "3", "--generations", "2"]
    assert main(words(topology, *RACK, *more, "--ranks-per-host", "2", "--udp-port", "9000")) == 0
    text = capsys.readouterr().out
    (table,) = job_tables(text)
    assert table.pop("switch") == "rack"
    job = JobRequest.from_table(table, port_numbers=PORTS)
    places = [(worker.port, worker.mac[-2:], worker.ip, worker.udp_port) for worker in job.workers]
    assert places == [
        (1, "01", "10.0.0.1", 9000),
        (1, "01", "10.0.0.1", 9001),
        (2, "02", "10.0.0.2", 9000),
        (2, "02", "10.0.0.2", 9001),
    ]
    assert (job.hub.port, job.hub.ip, job.hub.udp_port) == (4, "10.0.0.9", 9000)
    told = re.match(r"# On every rank: DLCP_AGGREGATION='(.*)'\n", text)
    assert told is not None
    address = SwitchAddress.parse(told[1])
    assert (address.host, address.job, address.slots, address.lanes) == ("10.0.0.9", 7, 128, 32)
    assert (address.generation, address.generations) == (3, 2)
    assert [address.port_of(place) for place in range(2)] == [9000, 9001]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--hosts", "h1=10.0.0.1"), "--switch is None; accepted: a switch of the topology: rack, other"),
        (("--switch", "roof", "--hosts", "h1=10.0.0.1"), "--switch is 'roof'; accepted: a switch of the"),
        (
            ("--switch", "rack", "--hosts", "h7=10.0.0.1"),
            "--hosts has 'h7=10.0.0.1'; accepted: PORT=IP, with a",
        ),
        (
            ("--switch", "rack", "--hosts", "h1"),
            "--hosts has 'h1'; accepted: PORT=IP, with a port of rack: h1, h2",
        ),
        (("--switch", "rack", "--hosts", "h1=::1"), "--hosts h1=::1.ip is '::1'; accepted: an IPv4 address"),
        (("--switch", "rack", "--hosts", "h1=10.0.0.1,02:00"), "mac is '02:00'; accepted: six pairs"),
        (
            ("--switch", "rack", "--hosts", "h3=10.0.0.3"),
            "has 02:00:00:00:00:03, 02:00:00:00:00:13 behind h3; accepted: PORT=IP,MAC",
        ),
        (
            (*RACK, "--hub", "h4=10.0.0.9"),
            "--hub has 'h4=10.0.0.9', and the topology has no MAC address behind h4; accepted: PORT=IP,MAC",
        ),
        (
            (*RACK, "--hub", "h2=10.0.0.2"),
            "job[0]: 10.0.0.2:23701 is there twice; accepted: once",
        ),
        ((*RACK, "--slots", "4096"), "job[0].slots is 4096; accepted: an integer from 2 to 2048"),
        ((*RACK, "--ranks-per-host", "0"), "--ranks-per-host is 0; accepted: 1 or more"),
        ((*RACK, "--ranks-per-host", "17"), "job[0].worker has 34 entries; accepted: 1 to 32"),
        ((*RACK, "--udp-port", "70000"), "udp_port is 70000; accepted: an integer from 1 to 65535"),
        (
            (*RACK, "--udp-port", "65535", "--ranks-per-host", "2"),
            "worker[1].udp_port is 65536; accepted: an",
        ),
    ],
)
def test_what_cannot_be_is_named(
    topology: str, more: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hub = () if "--hub" in more else ("--hub", "h4=10.0.0.9,02:00:00:00:00:09")
    assert main(words(topology, *more, *hub)) == 2
    told = capsys.readouterr()
    assert text in told.err
    assert told.err.startswith("dlcp switch: ")
    assert told.out == ""


def test_what_is_written_is_read_as_the_same_job() -> None:
    workers = in_a_row([participant(1), participant(2), participant(2)])
    plain = JobRequest(7, workers, participant(3), slots=64, generation=2, generations=3)
    here = replace(plain, job=8, hub=replace(participant(3), port=NO_PORT), lanes=352)
    upper = UpperSwitch(1, participant(4), replace(participant(5), port=4))
    lower = replace(here, job=9, upper=upper)
    jobs = [plain, here, lower]
    tables = job_tables(job_text(job.to_table(NAMES) for job in jobs))
    assert [JobRequest.from_table(table, port_numbers=PORTS) for table in tables] == jobs
    assert "workers" not in here.ranks_setting
    assert SwitchAddress.parse(lower.ranks_setting).workers == 3


def test_ranks_of_one_host_have_ports_in_a_row() -> None:
    first, second = participant(1), participant(2)
    ports = [worker.udp_port - first.udp_port for worker in in_a_row([first, second, first, second, second])]
    assert ports == [0, 0, 1, 1, 2]
    with pytest.raises(SettingsError, match="udp_port is 65536"):
        JobRequest(1, in_a_row([participant(1, 65535)] * 2), participant(3)).validate("job")
