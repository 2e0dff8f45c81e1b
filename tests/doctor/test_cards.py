"""What the doctor says of network cards for DPDK: which driver has them, who uses them, and what they want besides."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from dlcp.doctor import cards
from dlcp.doctor.card_needs import look_at_needs
from dlcp.doctor.cards import look_at_devices, look_at_iommu, look_at_virtual
from dlcp.doctor.dpdk import look_at_holders
from dlcp.doctor.eal_arguments import EalArguments
from dlcp.doctor.finding import Finding, Verdict
from dlcp.doctor.pci import NetworkDevice, full_address, is_address, list_network_devices
from dlcp.transport.interfaces import Interface
from tests.doctor.conftest import Machine

MLX5 = NetworkDevice("0000:3b:00.0", "mlx5_core", ("eth2",))
ICE = NetworkDevice("0000:18:00.0", "ice", ("eth0",))
ENA = NetworkDevice("0000:00:05.0", "ena", ("ens5",))
VFIO = NetworkDevice("0000:18:00.1", "vfio-pci", ())


# Of AWS and Intel, in programs' hands.
ENA_UIO = NetworkDevice("0000:00:06.0", "igb_uio", (), "1d0f:ec20")
ICE_VFIO = NetworkDevice("0000:18:00.0", "vfio-pci", (), "8086:1592")


def told(findings: list[Finding]) -> list[tuple[str, str, str | None]]:
    return [(str(one.verdict), one.text, one.remedy) for one in findings]


def test_devices_are_read_with_drivers_and_interfaces(machine: Machine) -> None:
    virtio = NetworkDevice("0000:00:03.0", "virtio-pci", ("eth9",))
    nobody = NetworkDevice("0000:af:00.0", None, ())
    root = machine(MLX5, ICE, ENA, VFIO, virtio, nobody, ENA_UIO)
    disk = root / "sys/bus/pci/devices/0000:00:01.0"
    disk.mkdir()
    (disk / "class").write_text("0x010000\n")
    assert list_network_devices(root) == [virtio, ENA, ENA_UIO, ICE, VFIO, MLX5, nobody]
    assert list_network_devices(root / "nowhere") == []


def test_short_addresses_mean_the_first_domain() -> None:
    assert full_address("3b:00.0") == "0000:3b:00.0"
    assert full_address("0001:3b:00.0") == "0001:3b:00.0"
    assert full_address("3B:00.0") == "0000:3b:00.0"
    assert full_address("net_memif0") == "net_memif0"
    assert not is_address("net_memif0")


def test_cards_of_a_driver_are_told_together(tmp_path: Path) -> None:
    second = NetworkDevice("0000:18:00.1", "ice", ("eth1",))
    unknown = NetworkDevice("0000:99:00.0", "acme", ())
    unbound = NetworkDevice("0000:98:00.0", None, ())
    bind = "dpdk-devbind.py --bind=vfio-pci"
    assert told(look_at_devices([ICE, second, ENA, unknown, unbound], set(), tmp_path)) == [
        ("ok", "0000:98:00.0: no driver; DPDK takes it when it is bound to vfio-pci", f"{bind} 0000:98:00.0"),
        (
            "ok",
            "0000:99:00.0: driver acme; DPDK is not known to have one for it; its device af_packet works over any",
            None,
        ),
        (
            "ok",
            "0000:00:05.0 (ens5): driver ena; DPDK takes it when it is bound to vfio-pci, and the kernel then has no"
            " ens5",
            None,
        ),
        (
            "ok",
            "0000:18:00.0 (eth0), 0000:18:00.1 (eth1): driver ice; DPDK takes it when it is bound to vfio-pci, and the"
            " kernel then has no eth0, eth1",
            None,
        ),
    ]


def test_card_that_the_settings_name_must_be_bound(tmp_path: Path) -> None:
    named = {ENA.address, VFIO.address}
    ena, vfio = look_at_devices([ENA, VFIO], named, tmp_path)
    assert (ena.verdict, ena.remedy) == (
        Verdict.FAIL,
        "ip link set ens5 down && dpdk-devbind.py --bind=vfio-pci 0000:00:05.0",
    )
    assert (str(vfio.verdict), vfio.text) == ("ok", "0000:18:00.1: bound to vfio-pci, ready for DPDK")


def interface(name: str, *addresses: str) -> Interface:
    return Interface(name, 2, True, True, False, 1500, tuple(map(ipaddress.ip_interface, addresses)))


ROUTES = """Iface	Destination	Gateway	Flags	RefCnt	Use	Metric	Mask
{0}	00000000	010200C0	0003	0	0	0	00000000
eth1	000200C0	00000000	0001	0	0	0	00FFFFFF
"""
NOWHERE = "0" * 32
VERBS = "sys/class/infiniband_verbs/uverbs0"


@pytest.mark.parametrize(
    ("files", "folders", "addresses", "use"),
    [
        ({"route": ROUTES.format("eth0")}, (), (), "the default route goes by eth0"),
        (
            {"ipv6_route": f"{NOWHERE} 00 {NOWHERE} 00 {NOWHERE} 00000400 00000003 00000000 00000003 eth0\n"},
            (),
            (),
            "the default route goes by eth0",
        ),
        ({}, (), ("192.0.2.2/24", "fe80::1/64"), "eth0 has 192.0.2.2"),
        ({}, ("sys/class/net/eth0/upper_bond0",), (), "eth0 carries bond0"),
    ],
)
def test_no_command_takes_a_card_that_this_host_uses(
    files: dict[str, str], folders: tuple[str, ...], addresses: tuple[str, ...], use: str, machine: Machine
) -> None:
    root = machine(
        ICE, files={f"proc/self/net/{name}": text for name, text in files.items()}, folders=folders
    )
    (found,) = look_at_devices([ICE], {ICE.address}, root, [interface("eth0", *addresses)])
    assert found.verdict == Verdict.FAIL
    assert found.text.endswith(f"the kernel then has no eth0, and this host uses that: {use}")
    assert found.remedy is not None
    assert found.remedy.startswith("name another card, or first move ")
    assert "dpdk-devbind" not in found.remedy


def test_card_that_nobody_uses_may_be_taken(machine: Machine) -> None:
    ipv6 = f"{NOWHERE} 00 {NOWHERE} 00 {NOWHERE} ffffffff 00000001 00000000 00200200 lo\n"
    root = machine(
        ICE, files={"proc/self/net/route": ROUTES.format("eth9"), "proc/self/net/ipv6_route": ipv6}
    )
    there = [interface("eth0", "fe80::1/64"), interface("eth9", "192.0.2.2/24")]
    (found,) = look_at_devices([ICE], {ICE.address}, root, there)
    assert found.remedy == "ip link set eth0 down && dpdk-devbind.py --bind=vfio-pci 0000:18:00.0"


def test_kernel_that_would_hear_no_more_is_a_warning(machine: Machine) -> None:
    root = machine(MLX5, files={"proc/self/net/route": ROUTES.format("eth2")}, folders=(VERBS,))
    there = [interface("eth2", "192.0.2.2/24")]
    warned = [
        one for one in look_at_devices([MLX5], {MLX5.address}, root, there) if "no more unicast" in one.text
    ]
    assert [(one.verdict, one.text) for one in warned] == [
        (
            Verdict.WARN,
            "while dlcp has 0000:3b:00.0 (eth2), the kernel gets no more unicast from it, and this host uses that: the"
            " default route goes by eth2; eth2 has 192.0.2.2",
        )
    ]
    for named, isolates in ((set(), False), ({MLX5.address}, True)):
        findings = look_at_devices([MLX5], named, root, there, isolates=isolates)
        assert not any("no more unicast" in one.text for one in findings)


def test_virtual_device_that_takes_an_interface_is_a_warning(tmp_path: Path) -> None:
    there = [interface("eth2", "192.0.2.2/24"), interface("eth3")]
    text = "--vdev=net_af_xdp0,iface={0},start_queue=0 --vdev net_af_packet0,iface=eth2"
    (found,) = look_at_virtual(EalArguments.read(text.format("eth2")), there, tmp_path)
    assert found.verdict == Verdict.WARN
    assert found.text.endswith("this host uses that: eth2 has 192.0.2.2")
    assert look_at_virtual(EalArguments.read(text.format("eth3")), there, tmp_path) == []


@pytest.mark.parametrize(
    ("driver", "module"), [("mlx4_core", "mlx4_ib"), ("mlx5_core", "mlx5_ib"), ("mana", "mana_ib")]
)
def test_card_beside_the_kernel_needs_verbs(driver: str, module: str, machine: Machine) -> None:
    card = NetworkDevice("0000:3b:00.0", driver, ())
    root = machine(card)
    (found,) = look_at_devices([card], {card.address}, root)
    assert (found.verdict, found.remedy) == (
        Verdict.WARN,
        f"apt-get install rdma-core && modprobe -a ib_uverbs {module}",
    )
    # Nobody who has not named it is told to install anything.
    (found,) = look_at_devices([card], set(), root)
    assert (found.verdict, found.remedy) == (Verdict.OK, None)


def test_card_beside_the_kernel_needs_the_libraries_of_its_verbs(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(MLX5, files={"sys/class/infiniband_verbs/uverbs0": ""})
    there = {"libibverbs.so.1"}
    monkeypatch.setattr(cards, "_loads", there.__contains__)
    (found,) = look_at_devices([MLX5], {MLX5.address}, root)
    assert (found.verdict, found.remedy) == (
        Verdict.WARN,
        "apt-get install rdma-core ibverbs-providers",
    )
    assert found.text.endswith("it needs rdma-core's libmlx5.so.1, which cannot be loaded")
    there.add("libmlx5.so.1")
    (found,) = look_at_devices([MLX5], {MLX5.address}, root)
    assert found.verdict == Verdict.OK


def test_library_loads_or_not() -> None:
    assert cards._loads("libc.so.6")
    assert not cards._loads("libnowhere.so.1")


def test_machine_without_cards_has_virtual_devices(tmp_path: Path) -> None:
    (found,) = look_at_devices([], set(), tmp_path)
    assert found.verdict == Verdict.OK
    assert "--vdev" in found.text


@pytest.mark.parametrize(
    ("named", "verdict"), [([ICE], Verdict.FAIL), ([MLX5], Verdict.OK), ([], Verdict.OK)]
)
def test_iommu_is_needed_by_cards_in_place_of_the_kernel(
    named: list[NetworkDevice], verdict: Verdict, tmp_path: Path
) -> None:
    assert {one.verdict for one in look_at_iommu(named, tmp_path)} == {verdict}


def test_unsafe_mode_does_without_an_iommu(machine: Machine) -> None:
    root = machine(
        files={"sys/module/vfio/parameters/enable_unsafe_noiommu_mode": "Y\n"},
        folders=("sys/bus/pci/drivers/vfio-pci",),
    )
    (found,) = look_at_iommu([ICE], root)
    assert found.verdict == Verdict.OK
    assert "unsafe mode" in found.text


# --- who has a card already -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "file"), [(VFIO, "/dev/vfio/17"), (VFIO, "/dev/vfio/noiommu-17"), (ENA_UIO, "/dev/uio0")]
)
def test_card_that_a_process_has_is_named_with_it(device: NetworkDevice, file: str, machine: Machine) -> None:
    folder = f"sys/bus/pci/devices/{device.address}"
    root = machine(
        device,
        files={"proc/7/comm": "python\n", "proc/8/comm": "sh\n"},
        folders=("sys/kernel/iommu_groups/17", *([f"{folder}/uio/uio0"] if device == ENA_UIO else [])),
        links={
            **({} if device == ENA_UIO else {f"{folder}/iommu_group": "../../../../kernel/iommu_groups/17"}),
            "proc/8/fd/1": "/dev/null",
            "proc/7/fd/1": "/dev/null",
            "proc/7/fd/9": file,
        },
    )
    named = EalArguments.read(f"-a {device.address}")
    (found,) = look_at_holders([device], named, root)
    assert found.verdict == Verdict.WARN
    assert found.text == (
        f"{device.address} is in use by process 7 (python): DPDK is not started, so as not to disturb it"
    )
    (found,) = look_at_holders([device], EalArguments(), root)
    assert found.text.endswith("-a ADDRESS in DLCP_EAL_ARGUMENTS would keep it to one card")
    for text in ("--no-pci", "-a 0000:99:00.0", f"-b {device.address}", f"--block={device.address}"):
        assert look_at_holders([device], EalArguments.read(text), root) == []
    (root / "proc/7/fd/9").unlink()
    assert look_at_holders([device], named, root) == []


# --- EAL arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *("-a 3b:00.0", '-a "0000:3b:00.0"', "-a0000:3B:00.0", "--allow=3b:00.0", "--allow='3b:00.0'"),
        *("--allow 3b:00.0", "-a pci:0000:3b:00.0", '--lcores "0@(1,2)" -a 3b:00.0'),
    ],
)
def test_card_is_allowed_however_it_is_quoted(text: str) -> None:
    assert EalArguments.read(text).allowed == (("0000:3b:00.0", ""),)


def test_eal_arguments_are_split_as_a_shell_does() -> None:
    found = EalArguments.read(
        "--no-huge -m 64 --vdev='net_null0,a=-a 1:00.0' -a 3b:00.0,x=1,y=2 --file-prefix=a"
    )
    assert found.options == {"--no-huge", "--vdev", "--file-prefix"}
    assert found.allowed == (("0000:3b:00.0", "x=1,y=2"),)
    assert found.virtual == (("net_null0", "a=-a 1:00.0"),)
    for empty in ("", "   ", "-a"):
        assert EalArguments.read(empty) == EalArguments()
    # What can be known of them is, so that nothing else is blamed.
    assert EalArguments.read("--no-huge --vdev='net_null0").options == {"--no-huge", "--vdev"}


# --- what kinds of cards want besides -------------------------------------------------------------------------


@pytest.mark.parametrize("device", [ICE, ICE_VFIO])
def test_ice_needs_its_package(device: NetworkDevice, machine: Machine) -> None:
    root = machine(device)
    (listed,) = list_network_devices(root)
    named = f"-a {device.address}"
    (found,) = look_at_needs([listed], EalArguments.read(named), root)
    assert found.verdict == Verdict.WARN
    assert "/lib/firmware/updates/intel/ice/ddp or /lib/firmware/intel/ice/ddp" in found.text
    assert look_at_needs([listed], EalArguments.read(f"{named},safe-mode-support=1"), root) == []
    machine(files={"lib/firmware/intel/ice/ddp/ice.pkg.xz": ""})
    assert look_at_needs([listed], EalArguments.read(named), root) == []


@pytest.mark.parametrize("device", [ENA, ENA_UIO])
def test_ena_wants_write_combining(device: NetworkDevice, tmp_path: Path) -> None:
    (found,) = look_at_needs([device], EalArguments(), tmp_path)
    assert found.verdict == Verdict.OK
    assert "igb_uio with wc_activate=1" in found.text


def test_other_cards_want_nothing(tmp_path: Path) -> None:
    assert look_at_needs([MLX5, VFIO], EalArguments(), tmp_path) == []
