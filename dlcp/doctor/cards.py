"""Network cards for DPDK: which driver of the kernel each is bound to, and what hands them over.

No command here takes a card from the kernel that has an address of this host or its pair out: who follows it over the
network would be cut off.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dlcp.doctor.driver import DPDK
from dlcp.doctor.eal_arguments import EalArguments
from dlcp.doctor.files import lines, read
from dlcp.doctor.finding import Finding, listed
from dlcp.doctor.pci import FOR_PROGRAMS, NetworkDevice
from dlcp.transport.interfaces import Interface

# Drivers of the kernel beside which DPDK uses a card (DPDK, "Network Interface Controller Drivers": mlx4, mlx5, mana),
# and what DPDK's reach it by: the module that gives verbs, and rdma-core's library for it.
_BESIDE_THE_KERNEL = {
    "mlx4_core": ("mlx4_ib", "libmlx4.so.1"),
    "mlx5_core": ("mlx5_ib", "libmlx5.so.1"),
    "mana": ("mana_ib", "libmana.so.1"),
}
# Drivers for programs that ask neither vfio-pci nor the IOMMU.
_WITHOUT_VFIO = FOR_PROGRAMS - {"vfio-pci"}
# Drivers of the kernel for cards that DPDK drives itself, in place of the kernel (same guide, 22.11).
_CARDS_OF_THE_KERNEL = (
    "amd-xgbe atlantic bnx2x bnxt_en cxgb4 cxgb4vf e1000 e1000e ena enic fm10k gve hinic hns3 i40e iavf ice idpf igb "
    "igbvf igc ionic ixgbe ixgbevf nfp ngbe nicvf qede sfc txgbe virtio-pci vmxnet3"
)
_IN_PLACE_OF_THE_KERNEL = frozenset(_CARDS_OF_THE_KERNEL.split())


@listed
def look_at_iommu(named: Sequence[NetworkDevice], root: Path = Path("/")) -> Iterator[Finding]:
    """Findings about vfio-pci and the IOMMU. `named`: the devices that the settings name, which may need them."""
    needed = any(one.driver not in {*_BESIDE_THE_KERNEL, *_WITHOUT_VFIO} for one in named)
    groups = any((root / "sys/kernel/iommu_groups").glob("*"))
    loaded = (root / "sys/bus/pci/drivers/vfio-pci").exists()
    unsafe = root / "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
    is_unsafe = read(unsafe) in ("Y", "1")

    if not loaded:
        text = "vfio-pci, which hands cards to DPDK (not mlx5), is not loaded"
        yield DPDK.lack(needed, text, "modprobe vfio-pci" if needed else None)
    if not groups and not is_unsafe:
        text = "there is no IOMMU, so vfio-pci hands over no card"
        remedy = (
            "boot with intel_iommu=on iommu=pt, or, where cards may write to all memory: modprobe vfio && echo 1 >"
            " /sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
        )
        yield DPDK.lack(needed, text, remedy if needed else None)

    if loaded and (groups or is_unsafe):
        how = "behind an IOMMU" if groups else "without an IOMMU (unsafe mode: DPDK may write to all memory)"
        yield DPDK.ok(f"vfio-pci is loaded, and hands cards to DPDK {how}")


@listed
def look_at_devices(
    devices: Sequence[NetworkDevice],
    named: set[str],
    root: Path = Path("/"),
    interfaces: Sequence[Interface] = (),
    *,
    isolates: bool = False,
) -> Iterator[Finding]:
    """Findings about network cards, those of one driver together.

    `named`: PCI addresses that the settings name. `interfaces`: the kernel's. `isolates`: a card that the kernel has as
    well gives dlcp its own flows alone.
    """
    if not devices:
        yield DPDK.ok("no network card is on the PCI bus; DPDK has virtual devices (--vdev)")
    for driver in sorted({one.driver or "" for one in devices}):
        of_driver = [one for one in devices if (one.driver or "") == driver]
        wanted = [one for one in of_driver if one.address in named]
        others = [one for one in of_driver if one.address not in named]
        if driver in _BESIDE_THE_KERNEL:
            yield _beside_the_kernel(driver, of_driver, bool(wanted), root)
            if driver == "mlx5_core" and not isolates:
                for one in wanted:
                    yield from _deaf_kernel(one, interfaces, root)
        elif driver in FOR_PROGRAMS:
            yield DPDK.ok(f"{_list(of_driver)}: bound to {driver}, ready for DPDK")
        else:
            for one in wanted:
                yield _bound_to_kernel(driver, one, _uses(one.interfaces, interfaces, root))
            if others:
                yield _not_yet_bound(driver, others)


def _beside_the_kernel(driver: str, devices: Sequence[NetworkDevice], wanted: bool, root: Path) -> Finding:
    text = f"{_list(devices)}: {driver}, beside which DPDK uses the card as it is; do not bind it to vfio-pci"
    module, library = _BESIDE_THE_KERNEL[driver]
    if not any((root / "sys/class/infiniband_verbs").glob("uverbs*")):
        text += "; but the kernel gives no verbs (/sys/class/infiniband_verbs is empty), which it needs"
        remedy = f"apt-get install rdma-core && modprobe -a ib_uverbs {module}"
        return DPDK.warn(text, remedy) if wanted else DPDK.ok(text)
    missing = [name for name in ("libibverbs.so.1", library) if not _loads(name)] if wanted else []
    if missing:
        return DPDK.warn(
            f"{text}; but it needs rdma-core's {' and '.join(missing)}, which cannot be loaded",
            "apt-get install rdma-core ibverbs-providers",
        )
    return DPDK.ok(text)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _bound_to_kernel(driver: str, device: NetworkDevice, uses: Sequence[str]) -> Finding:
    """Of a device that the settings name. `uses`: what this host would lose with it."""
    bound = f"bound to {driver}" if driver else "bound to no driver"
    lost = f"; the kernel then has no {', '.join(device.interfaces)}" if device.interfaces else ""
    text = f"{device.describe()}, which the settings name, is {bound}: DPDK takes it when it is bound to vfio-pci{lost}"
    if uses:
        return DPDK.fail(
            f"{text}, and this host uses that: {'; '.join(uses)}",
            "name another card, or first move what this host uses it for to another interface (else it may no longer be"
            " reached)",
        )
    if driver and not device.interfaces:
        # No advice to take what a container may be using.
        return DPDK.fail(
            f"{text}. No interface of it is seen here; another network namespace may have one",
            "dpdk-devbind.py --status",
        )
    down = "".join(f"ip link set {name} down && " for name in device.interfaces)
    return DPDK.fail(text, f"{down}dpdk-devbind.py --bind=vfio-pci {device.address}")


def _deaf_kernel(device: NetworkDevice, interfaces: Sequence[Interface], root: Path) -> Iterator[Finding]:
    """A finding if this host uses a card of whose frames the kernel gets none for its own address meanwhile.

    (DPDK, NIC guide, mlx5, "Bifurcated Driver": what a flow of the program's takes does not reach the kernel.)
    """
    if uses := _uses(device.interfaces, interfaces, root):
        yield DPDK.warn(
            f"while dlcp has {device.describe()}, the kernel gets no more unicast from it, and this host uses that:"
            f" {'; '.join(uses)}",
            "flow_isolation=on in DLCP_DRIVER_OPTIONS, or name another card or a virtual function",
        )


@listed
def look_at_virtual(
    arguments: EalArguments, interfaces: Sequence[Interface], root: Path = Path("/")
) -> Iterator[Finding]:
    """Findings about virtual devices that take frames from an interface of the kernel's. `interfaces`: these."""
    for device, options in arguments.virtual:
        names = [word.removeprefix("iface=") for word in options.split(",") if word.startswith("iface=")]
        if device.startswith("net_af_xdp") and (uses := _uses(names, interfaces, root)):
            yield DPDK.warn(
                f"{device} takes all frames of a queue from the kernel, and this host uses that: {'; '.join(uses)}",
                "name another interface, or take DLCP_DRIVER=xdp, which leaves the kernel its own",
            )


def _uses(names: Sequence[str], interfaces: Sequence[Interface], root: Path) -> list[str]:
    """What this host uses interfaces for, each in words."""
    routes = _default_routes(root)
    found = []
    for name in names:
        addresses = [
            str(address.ip)
            for one in interfaces
            if one.name == name
            for address in one.addresses
            if not address.is_link_local
        ]
        if name in routes:
            found.append(f"the default route goes by {name}")
        if addresses:
            found.append(f"{name} has {', '.join(addresses)}")
        above = sorted(
            one.name.removeprefix("upper_") for one in (root / "sys/class/net" / name).glob("upper_*")
        )
        if above:
            found.append(f"{name} carries {', '.join(above)}")
    return found


def _default_routes(root: Path) -> set[str]:
    """The interfaces by which this network namespace's default routes go (proc(5), Linux's net/ipv6/route.c)."""
    found = set()
    for words in lines(root / "proc/self/net/route"):
        if len(words) > 7 and words[1] == words[7] == "00000000":  # destination and mask
            found.add(words[0])
    for words in lines(root / "proc/self/net/ipv6_route"):
        if len(words) > 9 and words[:2] == ["0" * 32, "00"]:  # destination and length of its prefix
            found.add(words[-1])
    return found - {"lo"}


def _not_yet_bound(driver: str, devices: Sequence[NetworkDevice]) -> Finding:
    """Of devices that nobody has named: no command that takes them from the kernel, which may be reached by them."""
    text = f"{_list(devices)}: {f'driver {driver}' if driver else 'no driver'}; "
    if not driver:
        bind = f"dpdk-devbind.py --bind=vfio-pci {devices[0].address}"
        return DPDK.ok(f"{text}DPDK takes it when it is bound to vfio-pci", bind)
    if driver not in _IN_PLACE_OF_THE_KERNEL:
        return DPDK.ok(f"{text}DPDK is not known to have one for it; its device af_packet works over any")
    lost = [name for one in devices for name in one.interfaces]
    but = f", and the kernel then has no {', '.join(lost)}" if lost else ""
    return DPDK.ok(f"{text}DPDK takes it when it is bound to vfio-pci{but}")


def _list(devices: Iterable[NetworkDevice]) -> str:
    return ", ".join(one.describe() for one in devices)
