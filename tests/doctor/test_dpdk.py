"""What the doctor says of DPDK: of made-up machines, and of this one where dlcp has the driver."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dlcp.doctor import dpdk as doctor
from dlcp.doctor import eal
from dlcp.doctor.dpdk import look_at_dpdk, look_at_own_address, look_at_ports
from dlcp.doctor.finding import Finding, Verdict
from dlcp.doctor.host import look_at_host
from dlcp.doctor.huge_pages import look_at_huge_pages
from dlcp.doctor.pci import NetworkDevice
from dlcp.doctor.probe import probe
from dlcp.errors import PeerTimeoutError
from dlcp.transport import LogEntry, Settings, dpdk, plugins
from dlcp.transport.interfaces import Interface
from tests.doctor.conftest import Machine

MLX5 = NetworkDevice("0000:3b:00.0", "mlx5_core", ("eth2",))
ICE = NetworkDevice("0000:18:00.0", "ice", ("eth0",))
ENA = NetworkDevice("0000:00:05.0", "ena", ("ens5",))
VFIO = NetworkDevice("0000:18:00.1", "vfio-pci", ())


@pytest.fixture
def with_driver(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], list[str]]:
    """As if dlcp had the driver; DPDK's start finds this. Returns the arguments that it is started with, in turn."""
    started: list[str] = []
    monkeypatch.setattr(plugins, "why_not", {}.get)
    monkeypatch.setattr(dpdk, "why_not", lambda: None)
    monkeypatch.setattr(dpdk, "version", lambda: "DPDK 22.11.11")
    monkeypatch.setattr(doctor, "list_interfaces", list)

    def answer(found: dict[str, Any]) -> list[str]:
        def ask(arguments: str) -> dict[str, Any]:
            started.append(arguments)
            return found

        monkeypatch.setattr(doctor, "ask_eal", ask)
        return started

    return answer


def port(number: int = 0, name: str = "0000:3b:00.0", **more: Any) -> dpdk.Port:
    known: dict[str, Any] = {
        "id": number,
        "name": name,
        "driver": "mlx5_pci",
        "mac": "b8:ce:f6:00:00:01",
        "mtu_bytes": 9000,
        "link_up": True,
        "speed_bps": 100_000_000_000,
        "full_duplex": True,
        "numa_node": 1,
        "rx_queues_max": 1024,
        "tx_queues_max": 1024,
        "claimed": False,
    }
    return dpdk.Port(**(known | more))


def told(findings: list[Finding]) -> list[tuple[str, str, str | None]]:
    return [(str(one.verdict), one.text, one.remedy) for one in findings]


def only(findings: list[Finding], words: str) -> Finding:
    (found,) = [one for one in findings if words in one.text]
    return found


# --- the whole ------------------------------------------------------------------------------------------------


def test_without_the_driver_only_its_driver_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lack = plugins.Lack("dlcp was built without DPDK", "apt-get install libdpdk-dev")
    monkeypatch.setattr(plugins, "why_not", {"dpdk": lack}.get)
    assert told(look_at_dpdk(Settings(), tmp_path)) == [
        ("ok", f"{lack.text}; only driver dpdk needs it", lack.remedy)
    ]
    assert told(look_at_dpdk(Settings(driver="local+dpdk"), tmp_path)) == [
        ("fail", f"driver is local+dpdk, and {lack.text}", lack.remedy)
    ]


def test_driver_of_another_version_is_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(plugins, "why_not", {}.get)
    monkeypatch.setattr(dpdk, "why_not", lambda: "it was built for another version of dlcp: pip install dlcp")
    assert told(look_at_dpdk(Settings(), tmp_path)) == [
        ("ok", "it was built for another version of dlcp; only driver dpdk needs it", "pip install dlcp")
    ]


def test_unless_asked_for_dpdk_is_not_started_and_nothing_fails(
    machine: Machine, with_driver: Callable[..., list[str]]
) -> None:
    started = with_driver({"ports": []})
    findings = look_at_dpdk(Settings(), machine(ICE, huge_pages={2048: (0, 0)}))
    assert started == []
    assert {one.verdict for one in findings} == {Verdict.OK}
    # Nobody who does without DPDK is told to give it memory, cards or rights.
    assert not any(one.remedy for one in findings)
    assert findings[0].text == "dlcp has its driver for DPDK 22.11.11; DLCP_DRIVER=dpdk would use it"


def test_port_address_and_memory_in_order(machine: Machine, with_driver: Callable[..., list[str]]) -> None:
    started = with_driver({"ports": [asdict(port())]})
    root = machine(
        MLX5,
        huge_pages={2048: (500, 512), 1048576: (0, 0)},
        files={"sys/class/infiniband_verbs/uverbs0": ""},
        folders=("sys/kernel/iommu_groups/7", "sys/bus/pci/drivers/vfio-pci"),
    )
    settings = Settings(
        driver="dpdk", driver_options="port=3b:00.0@10.0.0.1/24", eal_arguments="-a 3b:00.0 --lcores 2"
    )
    findings = look_at_dpdk(settings, root)
    assert started == ["-a 3b:00.0 --lcores 2"]
    assert told(findings) == [
        ("ok", "dlcp has its driver for DPDK 22.11.11; driver is dpdk", None),
        ("ok", "huge pages free: 500 of 512 of 2 MiB, 0 of 0 of 1 GiB", None),
        ("ok", "vfio-pci is loaded, and hands cards to DPDK behind an IOMMU", None),
        (
            "ok",
            "0000:3b:00.0 (eth2): mlx5_core, beside which DPDK uses the card as it is; do not bind it to vfio-pci",
            None,
        ),
        (
            "ok",
            "port 0, 0000:3b:00.0 (mlx5_pci): link up, 100 Gbit/s, MTU 9000, near NUMA node 1",
            None,
        ),
    ]


def test_everything_that_is_missing_is_said_at_once(
    machine: Machine, with_driver: Callable[..., list[str]]
) -> None:
    with_driver({"error": "DPDK needs hugepages\nand none is free"})
    root = machine(ICE, huge_pages={2048: (0, 0)})
    findings = look_at_dpdk(Settings(driver="dpdk", interface="18:00.0"), root)
    failed = [(one.text, one.remedy) for one in findings if one.verdict == Verdict.FAIL]
    reserve = "echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    assert failed == [
        ("huge pages free: 0 of 0 of 2 MiB; DPDK needs some, 1 GiB is plenty", reserve),
        ("vfio-pci, which hands cards to DPDK (not mlx5), is not loaded", "modprobe vfio-pci"),
        (
            "there is no IOMMU, so vfio-pci hands over no card",
            "boot with intel_iommu=on iommu=pt, or, where cards may write to all memory: modprobe vfio && echo 1 >"
            " /sys/module/vfio/parameters/enable_unsafe_noiommu_mode",
        ),
        (
            "0000:18:00.0 (eth0), which the settings name, is bound to ice: DPDK takes it when it is bound to vfio-pci;"
            " the kernel then has no eth0",
            "ip link set eth0 down && dpdk-devbind.py --bind=vfio-pci 0000:18:00.0",
        ),
        (
            "driver is 'dpdk', where the kernel gives no address to 18:00.0: set bind_host"
            " (DLCP_BIND_HOST=10.0.0.1/24, another one for each rank), or a word port=DEVICE@ADDRESS/PREFIX in"
            " driver_options",
            "export DLCP_BIND_HOST=10.0.0.1/24",
        ),
        ("DPDK needs hugepages and none is free", reserve),
    ]


# --- memory ---------------------------------------------------------------------------------------------------


def test_huge_pages_count_what_is_free_and_what_the_kernel_would_make(machine: Machine) -> None:
    place = "sys/kernel/mm/hugepages/hugepages-2048kB"
    root = machine(
        huge_pages={2048: (10, 64)},
        files={
            f"{place}/resv_hugepages": "10",
            f"{place}/nr_overcommit_hugepages": "100",
            f"{place}/surplus_hugepages": "4",
        },
    )
    assert told(look_at_huge_pages(True, set(), root)) == [("ok", "huge pages free: 96 of 96 of 2 MiB", None)]


def test_virtual_devices_may_do_without_huge_pages(machine: Machine) -> None:
    (found,) = look_at_huge_pages(True, {"--no-huge"}, machine(huge_pages={2048: (0, 0)}))
    assert (found.verdict, "as --no-huge says" in found.text) == (Verdict.OK, True)


def test_kernel_without_huge_pages_is_named(machine: Machine) -> None:
    (found,) = look_at_huge_pages(True, set(), machine())
    assert found.verdict == Verdict.FAIL
    assert found.remedy is not None
    assert "--no-huge -m 256" in found.remedy


@pytest.mark.parametrize(
    ("arguments", "mounts", "fails"),
    [
        (set(), "", False),
        ({"--file-prefix"}, "", True),
        ({"--file-prefix"}, "nodev /dev/hugepages hugetlbfs rw 0 0\n", False),
        ({"--file-prefix", "--in-memory"}, "", False),
        ({"--huge-dir"}, "tmpfs /mnt/hugetlbfs tmpfs rw 0 0\n", True),
    ],
)
def test_files_of_huge_pages_need_a_mount(
    arguments: set[str], mounts: str, fails: bool, machine: Machine
) -> None:
    root = machine(huge_pages={2048: (9, 9)}, files={"proc/self/mounts": mounts})
    failed = [one.text for one in look_at_huge_pages(True, arguments, root) if one.verdict == Verdict.FAIL]
    assert [("no hugetlbfs is mounted" in text) for text in failed] == [True] * fails


# --- ports ----------------------------------------------------------------------------------------------------


def test_port_that_is_not_there_is_named_with_those_that_are() -> None:
    findings = look_at_ports(["net_memif0", "0"], [port()])
    assert told(findings)[0][:2] == (
        "fail",
        "the settings name the port net_memif0, which DPDK does not have: there are 0000:3b:00.0 (mlx5_pci)",
    )
    assert findings[1].text.startswith("port 0, 0000:3b:00.0 (mlx5_pci): link up")


def test_one_of_several_ports_must_be_named() -> None:
    ports = [port(), port(1, "net_null0", driver="net_null")]
    failed = [one for one in look_at_ports([], ports) if one.verdict == Verdict.FAIL]
    assert [one.remedy for one in failed] == ["export DLCP_INTERFACE=0000:3b:00.0"]
    assert all(one.verdict == Verdict.OK for one in look_at_ports([], ports[:1]))


def test_no_port_at_all_is_told_with_what_dpdks_log_says_of_it() -> None:
    log = "EAL: Selected IOVA mode 'VA'\nnet_af_packet0: Could not open AF_PACKET socket\nEAL: Bus (vdev) probe failed."
    assert [one.text for one in look_at_ports([], [], log)] == [
        "DPDK starts, and has no port; its log: net_af_packet0: Could not open AF_PACKET socket; EAL: Bus (vdev) probe"
        " failed."
    ]
    assert [one.text for one in look_at_ports([], [])] == ["DPDK starts, and has no port"]


def test_card_that_eal_arguments_name_must_be_there(
    machine: Machine, with_driver: Callable[..., list[str]]
) -> None:
    with_driver({"ports": []})
    settings = Settings(
        driver="dpdk", bind_host="10.0.0.1/24", eal_arguments="--no-huge -a 3b:00.7,x=1 -aee:00.1"
    )
    failed = [one.text for one in look_at_dpdk(settings, machine(ICE)) if one.verdict == Verdict.FAIL]
    assert failed[:2] == ["there is no network card 0000:3b:00.7", "there is no network card 0000:ee:00.1"]


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name, 2, True, True, name == "lo", 1500, tuple(map(ipaddress.ip_interface, addresses)))


def test_address_that_the_kernel_has_as_well_is_a_warning_and_not_to_be_deleted() -> None:
    there = [interface("lo", "127.0.0.1/8"), interface("eth0", "192.0.2.1/24", "fd00::1/64")]
    (found,) = look_at_own_address("192.0.2.1", there)
    assert (found.verdict, found.text) == (
        Verdict.WARN,
        "the kernel has 192.0.2.1 on eth0 as well: it answers for it, and refuses what is for dlcp",
    )
    assert found.remedy is not None
    assert "del" not in found.remedy
    assert len(look_at_own_address("fd00:0::1", there)) == 1
    assert look_at_own_address("192.0.2.2", there) + look_at_own_address("no address", there) == []


def test_link_that_is_down_or_slow_is_a_warning() -> None:
    down = port(link_up=False, speed_bps=None, numa_node=None)
    slow = port(speed_bps=100_000_000, full_duplex=False, numa_node=None)
    unknown = port(link_up=False, driver="net_ice", numa_node=None)
    findings = look_at_ports(["0000:3b:00.0"], [down])
    findings += look_at_ports([], [slow]) + look_at_ports([], [unknown])
    assert [(str(one.verdict), one.text) for one in findings] == [
        ("warn", "port 0, 0000:3b:00.0 (mlx5_pci): link down, speed not known, MTU 9000"),
        ("warn", "port 0, 0000:3b:00.0 (mlx5_pci): link up, 0.1 Gbit/s, half duplex, MTU 9000"),
        (
            "ok",
            "port 0, 0000:3b:00.0 (net_ice): link down, 100 Gbit/s, MTU 9000; this driver may see the link only once an"
            " endpoint has the port",
        ),
    ]


@pytest.mark.skipif((why := dpdk.why_not()) is not None, reason=why or "")
def test_dpdk_is_started_in_a_process_of_its_own() -> None:
    settings = Settings(
        driver="dpdk",
        interface="net_null0",
        bind_host="10.0.0.1/24",
        eal_arguments="--no-huge -m 64 --no-pci --vdev=net_null0",
    )
    findings = look_at_dpdk(settings)
    assert [one for one in findings if one.verdict == Verdict.FAIL] == []
    assert only(findings, "port 0, net_null0 (net_null): link ").text
    assert not dpdk.started()
    absent = look_at_dpdk(settings.replace(interface="net_null1"))
    assert "which DPDK does not have: there are net_null0 (net_null)" in absent[-1].text
    wrong = look_at_dpdk(settings.replace(eal_arguments="--no-hug3"))
    assert wrong[-1].verdict == Verdict.FAIL


def test_process_that_dpdk_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert eal.ask_eal("") == {
        "error": "DPDK ends the process that starts it, with status 1: it says nothing"
    }


# --- what the rest of the doctor leaves out -------------------------------------------------------------------


class SilentEndpoint:
    """Below the kernel, with a peer that never answers."""

    settings = Settings(driver="dpdk", bind_host="10.0.0.1/24")

    def connect(self, rank: int, address: str, *, timeout_s: float) -> None:
        raise PeerTimeoutError(f"rank {rank} did not answer")

    def drain_log(self) -> tuple[LogEntry, ...]:
        events = [("link_up", "port 0 has a link")] + [("neighbour_lost", "10.0.0.9 is silent")] * 2
        return tuple(LogEntry(0.0, kind, None, None, 0, 0.0, text) for kind, text in events)


def test_closed_way_below_the_kernel_is_explained_by_the_driver() -> None:
    pair = probe(SilentEndpoint(), 0, 1, 7, "127.0.0.1:9", 1.0)  # type: ignore[arg-type]
    assert (pair.error, pair.silence) == ("rank 7 did not answer; 10.0.0.9 is silent", None)


def test_kernel_sockets_and_filters_are_left_out_below_the_kernel(
    with_driver: Callable[..., list[str]],
) -> None:
    with_driver({"ports": [asdict(port())]})
    findings = look_at_host(environ={"DLCP_DRIVER": "dpdk", "DLCP_BIND_HOST": "10.0.0.1/24"})
    assert {"buffers", "kernel", "drops", "firewall"}.isdisjoint({one.topic for one in findings})
    first = next(one for one in findings if one.topic == "interface")
    assert first.text == "dlcp has 10.0.0.1 below the kernel, on a port of dpdk (see there)"
    for one in findings:
        assert "\n" not in one.text
        assert one.verdict == Verdict.OK or one.remedy, one


@pytest.mark.parametrize(
    ("words", "warns"),
    [
        ("flow_isolation=on", False),
        ("queues=2  flow_isolation=on -- -a 3b:00.0", False),
        ("-- --vdev=net_null0,flow_isolation=on", True),
        ("", True),
    ],
)
def test_address_may_be_the_kernels_too_where_the_card_keeps_flows_apart(
    words: str,
    warns: bool,
    machine: Machine,
    with_driver: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_driver({"ports": [asdict(port())]})
    monkeypatch.setattr(doctor, "list_interfaces", lambda: [interface("eth2", "10.0.0.1/24")])
    findings = look_at_dpdk(Settings(driver="dpdk", bind_host="10.0.0.1/24", driver_options=words), machine())
    assert ["as well" in one.text for one in findings if one.verdict == Verdict.WARN] == [True] * warns


def test_card_that_a_job_has_is_left_to_it(machine: Machine, with_driver: Callable[..., list[str]]) -> None:
    started = with_driver({"ports": []})
    root = machine(
        VFIO,
        huge_pages={2048: (9, 9)},
        files={"proc/7/comm": "python\n"},
        folders=("sys/kernel/iommu_groups/17",),
        links={
            f"sys/bus/pci/devices/{VFIO.address}/iommu_group": "../../../../kernel/iommu_groups/17",
            "proc/7/fd/9": "/dev/vfio/17",
        },
    )
    settings = Settings(driver="dpdk", bind_host="10.0.0.1/24", eal_arguments="-a 18:00.1")
    findings = look_at_dpdk(settings, root)
    assert started == []
    assert "is in use by process 7 (python)" in findings[-1].text
    assert [one for one in findings if one.verdict == Verdict.FAIL] == []


def test_remedy_of_a_start_that_fails_is_for_what_failed(
    machine: Machine, with_driver: Callable[..., list[str]]
) -> None:
    with_driver({"error": "DPDK does not start: --no-hug3: unrecognized option"})
    settings = Settings(driver="dpdk", bind_host="10.0.0.1/24", eal_arguments="--no-hug3 -a 99:00.0")
    *_, found = look_at_dpdk(settings, machine(huge_pages={2048: (0, 0)}))
    assert found.remedy == 'see DLCP_EAL_ARGUMENTS, and "EAL parameters" in DPDK\'s guide'
