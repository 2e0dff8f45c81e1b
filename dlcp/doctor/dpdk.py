"""DPDK on this host: whether dlcp has its driver, and what it needs of memory, of the IOMMU and of network cards.

Where the datapath is dpdk, what is missing fails, and DPDK is started as an endpoint would start it, in a process of
its own, to see which ports it has. Otherwise these are only facts. Changes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlcp.doctor.eal import ask_eal
from dlcp.doctor.finding import Finding, fail, ok, warn
from dlcp.doctor.pci import FOR_PROGRAMS, NetworkDevice, full_address, list_network_devices
from dlcp.errors import SettingsError
from dlcp.transport import Settings, dpdk
from dlcp.transport.interfaces import Interface, list_interfaces

# Drivers of the kernel beside which DPDK uses a card (DPDK, "Network Interface Controller Drivers": mlx4, mlx5, mana).
_BESIDE_THE_KERNEL = {"mlx4_core", "mlx5_core", "mana"}
# Drivers of the kernel for cards that DPDK drives itself, in place of the kernel (same guide, 22.11).
_IN_PLACE_OF_THE_KERNEL = {
    *("amd-xgbe", "atlantic", "bnx2x", "bnxt_en", "cxgb4", "cxgb4vf", "e1000", "e1000e", "ena", "enic"),
    *(
        "fm10k",
        "gve",
        "hinic",
        "hns3",
        "i40e",
        "iavf",
        "ice",
        "idpf",
        "igb",
        "igbvf",
        "igc",
        "ionic",
        "ixgbe",
    ),
    *("ixgbevf", "nfp", "ngbe", "nicvf", "qede", "sfc", "txgbe", "virtio-pci", "vmxnet3"),
}
# DPDK's drivers that ask the kernel's for the link, so that they know it of a port that is not started.
_LINK_BEFORE_START = {"mlx5_pci", "net_mlx4"}
# EAL arguments with which its memory is files of a mounted hugetlbfs (native/io/dpdk/eal_arguments.cpp adds
# --in-memory to all others).
_WANT_FILES = {"--file-prefix", "--huge-dir", "--huge-unlink", "--proc-type", "--no-shconf", "--legacy-mem"}
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)
# Lines of DPDK's log that say why a device is not there; its levels are not in the text.
_COMPLAINT = re.compile(r"fail|error|could not|cannot|unable|no such|denied", re.IGNORECASE)


def look_at_dpdk(settings: Settings, root: Path = Path("/")) -> list[Finding]:
    """Findings about DPDK. `root`: where /sys and /proc are. With datapath dpdk it takes DPDK's start."""
    asked = settings.network_datapath == "dpdk"
    why_not = dpdk.why_not()
    if why_not is not None:
        text, _, remedy = why_not.rpartition(": ")
        if asked:
            return [fail("dpdk", f"datapath is {settings.datapath}, and {text}", remedy)]
        return [ok("dpdk", f"{text}; only datapath dpdk needs it", remedy)]
    how = f"datapath is {settings.datapath}" if asked else "DLCP_DATAPATH=dpdk would use it"
    findings = [ok("dpdk", f"dlcp has its driver for {dpdk.version()}; {how}")]
    arguments = _option_names(settings.dpdk_arguments)
    devices = list_network_devices(root)
    named = {full_address(name) for name in [*settings.devices, *_allowed(settings)]} if asked else set()
    absent = sorted(name for name in named - {one.address for one in devices} if _PCI_ADDRESS.fullmatch(name))
    findings += [
        *(fail("dpdk", f"there is no network card {name}", "dpdk-devbind.py --status") for name in absent),
        *look_at_huge_pages(asked, arguments, root),
        *(look_at_iommu([one for one in devices if one.address in named], root) if devices else []),
        *look_at_devices(devices, named, root),
    ]
    return [*findings, *_look_at_ports(settings, findings)] if asked else findings


def _allowed(settings: Settings) -> list[str]:
    """The devices that EAL arguments name with -a."""
    found = re.findall(r"(?:^|\s)(?:-a\s*|--allow[=\s])([^\s,]+)", settings.dpdk_arguments)
    return [str(name) for name in found]


def _option_names(arguments: str) -> set[str]:
    """The words of EAL arguments that are options, without values."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        return set()  # DPDK's start says what is wrong
    return {word.partition("=")[0] for word in words if word.startswith("--")}


# --- memory ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HugePages:
    """The pages of one size."""

    page_bytes: int
    free: int
    """Nobody has them, or has a right to them."""
    total: int
    reserve: str
    """The file that says how many there are to be."""

    def describe(self) -> str:
        size = (
            f"{self.page_bytes >> 30} GiB" if self.page_bytes >= 1 << 30 else f"{self.page_bytes >> 20} MiB"
        )
        return f"{self.free} of {self.total} of {size}"


def look_at_huge_pages(asked: bool, arguments: set[str], root: Path = Path("/")) -> list[Finding]:
    """Findings about huge pages. `arguments`: names of EAL's options."""
    if "--no-huge" in arguments:
        return [ok("dpdk", "no huge pages are used, as --no-huge says: virtual devices only")]
    sizes = _list_huge_pages(root)
    if not sizes:
        text = "this kernel has no huge pages (no /sys/kernel/mm/hugepages)"
        remedy = "eal_arguments --no-huge -m 256 (virtual devices only), or a kernel with CONFIG_HUGETLBFS"
        return [fail("dpdk", text, remedy) if asked else ok("dpdk", text, remedy)]
    words = f"huge pages free: {', '.join(one.describe() for one in sizes)}"
    if any(one.free for one in sizes):
        findings = [ok("dpdk", words)]
    else:
        reserve = f"echo 512 > {sizes[0].reserve}"
        text = f"{words}; DPDK needs some, 1 GiB is plenty"
        findings = [fail("dpdk", text, reserve) if asked else ok("dpdk", text)]
    files = sorted(arguments & _WANT_FILES)
    if asked and files and "--in-memory" not in arguments and not _hugetlbfs_is_mounted(root):
        text = f"eal_arguments have {files[0]}, so huge pages are files, and no hugetlbfs is mounted"
        remedy = "mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages"
        findings.append(fail("dpdk", text, f"{remedy} (or add --in-memory)"))
    return findings


def _list_huge_pages(root: Path) -> list[_HugePages]:
    """Every size, the smallest first."""
    place = "sys/kernel/mm/hugepages"
    found = []
    for folder in (root / place).glob("hugepages-*kB"):
        counts = [
            _number(folder / f"{name}_hugepages")
            for name in ("nr", "free", "resv", "nr_overcommit", "surplus")
        ]
        total, free, reserved, more, surplus = counts
        left = max(0, free - reserved) + max(0, more - surplus)
        kibibytes = int(folder.name.removeprefix("hugepages-").removesuffix("kB"))
        found.append(
            _HugePages(kibibytes << 10, left, max(total, left), f"/{place}/{folder.name}/nr_hugepages")
        )
    return sorted(found, key=lambda one: one.page_bytes)


def _hugetlbfs_is_mounted(root: Path) -> bool:
    try:
        lines = (root / "proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    return any(line.split()[2:3] == ["hugetlbfs"] for line in lines)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return 0


# --- devices --------------------------------------------------------------------------------------------------


def look_at_iommu(named: Sequence[NetworkDevice], root: Path = Path("/")) -> list[Finding]:
    """Findings about vfio-pci and the IOMMU. `named`: the devices that the settings name, which may need them."""
    needed = [one for one in named if one.driver not in _BESIDE_THE_KERNEL]
    groups = any((root / "sys/kernel/iommu_groups").glob("*"))
    loaded = (root / "sys/bus/pci/drivers/vfio-pci").exists()
    unsafe = root / "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
    is_unsafe = unsafe.exists() and unsafe.read_text().strip() in ("Y", "1")

    def say(text: str, remedy: str) -> Finding:
        return fail("dpdk", text, remedy) if needed else ok("dpdk", text)

    findings = []
    if not loaded:
        text = "vfio-pci, which hands cards to DPDK (not mlx5), is not loaded"
        findings.append(say(text, "modprobe vfio-pci"))
    if not groups and not is_unsafe:
        text = "there is no IOMMU, so vfio-pci hands over no card"
        remedy = "boot with intel_iommu=on iommu=pt, or in a virtual machine: modprobe vfio"
        findings.append(
            say(text, f"{remedy} && echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
        )
    if not findings:
        how = "behind an IOMMU" if groups else "without an IOMMU (unsafe mode: DPDK may write to all memory)"
        findings.append(ok("dpdk", f"vfio-pci is loaded, and hands cards to DPDK {how}"))
    return findings


def look_at_devices(
    devices: Sequence[NetworkDevice], named: set[str], root: Path = Path("/")
) -> list[Finding]:
    """Findings about network cards, those of one driver together. `named`: PCI addresses that the settings name."""
    if not devices:
        return [ok("dpdk", "no network card is on the PCI bus; DPDK has virtual devices (--vdev)")]
    findings = []
    for driver in sorted({one.driver or "" for one in devices}):
        of_driver = [one for one in devices if (one.driver or "") == driver]
        wanted = [one for one in of_driver if one.address in named]
        others = [one for one in of_driver if one.address not in named]
        if driver in _BESIDE_THE_KERNEL:
            findings.append(_beside_the_kernel(driver, of_driver, root))
        elif driver in FOR_PROGRAMS:
            findings.append(ok("dpdk", f"{_list(of_driver)}: bound to {driver}, ready for DPDK"))
        else:
            findings += [_bound_to_kernel(driver, one) for one in wanted]
            if others:
                findings.append(_not_yet_bound(driver, others))
    return findings


def _beside_the_kernel(driver: str, devices: Sequence[NetworkDevice], root: Path) -> Finding:
    text = f"{_list(devices)}: {driver}, beside which DPDK uses the card as it is; do not bind it to vfio-pci"
    if any((root / "sys/class/infiniband_verbs").glob("uverbs*")):
        return ok("dpdk", text)
    return warn(
        "dpdk",
        f"{text}; but the kernel gives no verbs (/sys/class/infiniband_verbs is empty), which it needs",
        f"apt-get install rdma-core && modprobe -a ib_uverbs {driver.replace('_core', '_ib')}",
    )


def _bound_to_kernel(driver: str, device: NetworkDevice) -> Finding:
    """Of a device that the settings name."""
    bound = f"bound to {driver}" if driver else "bound to no driver"
    lost = f"; the kernel then has no {', '.join(device.interfaces)}" if device.interfaces else ""
    down = "".join(f"ip link set {name} down && " for name in device.interfaces)
    return fail(
        "dpdk",
        f"{device.describe()}, which the settings name, is {bound}: DPDK takes it when it is bound to vfio-pci{lost}",
        f"{down}dpdk-devbind.py --bind=vfio-pci {device.address}",
    )


def _not_yet_bound(driver: str, devices: Sequence[NetworkDevice]) -> Finding:
    """Of devices that nobody has named: no command that takes them from the kernel, which may be reached by them."""
    text = f"{_list(devices)}: {f'driver {driver}' if driver else 'no driver'}; "
    if not driver:
        bind = f"dpdk-devbind.py --bind=vfio-pci {devices[0].address}"
        return ok("dpdk", f"{text}DPDK takes it when it is bound to vfio-pci", bind)
    if driver not in _IN_PLACE_OF_THE_KERNEL:
        return ok("dpdk", f"{text}DPDK is not known to have one for it; its device af_packet works over any")
    lost = [name for one in devices for name in one.interfaces]
    but = f", and the kernel then has no {', '.join(lost)}" if lost else ""
    return ok("dpdk", f"{text}DPDK takes it when it is bound to vfio-pci{but}")


def _list(devices: Iterable[NetworkDevice]) -> str:
    return ", ".join(one.describe() for one in devices)


# --- ports ----------------------------------------------------------------------------------------------------


def _look_at_ports(settings: Settings, before: Sequence[Finding]) -> list[Finding]:
    """What DPDK finds when it is started as an endpoint starts it."""
    findings = []
    try:
        settings.need_own_address()
    except SettingsError as error:
        findings.append(fail("dpdk", str(error), "export DLCP_BIND_HOST=10.0.0.1/24"))
    found = ask_eal(settings.dpdk_arguments)
    if "error" in found:
        failed = next((one.remedy for one in before if one.verdict == "fail"), None)
        remedy = failed or "export DLCP_EAL_ARGUMENTS=… (see DPDK's guide, EAL parameters)"
        return [*findings, fail("dpdk", " ".join(found["error"].split()), remedy)]
    ports = [dpdk.Port(**one) for one in found["ports"]]
    if "flow_isolation=on" not in settings.datapath_options:
        findings += look_at_own_address(settings.own_address, list_interfaces())
    return [*findings, *look_at_ports(settings.devices, ports, found.get("log", ""))]


def look_at_own_address(address: str | None, interfaces: Sequence[Interface]) -> list[Finding]:
    """A finding if the kernel has the port's address as well. `interfaces`: the kernel's."""
    for one in interfaces:
        if address in [str(network.ip) for network in one.addresses]:
            text = f"the kernel has {address} on {one.name} as well: it answers for it, and refuses what is for dlcp"
            return [
                warn("dpdk", text, f"ip address del {address} dev {one.name}, or take another DLCP_BIND_HOST")
            ]
    return []


def look_at_ports(named: Sequence[str], ports: Sequence[dpdk.Port], log: str = "") -> list[Finding]:
    """Findings about DPDK's ports. `named`: those that the settings name. `log`: DPDK's own."""
    there = ", ".join(f"{one.name} ({one.driver})" for one in ports) or "none"
    if not ports:
        remedy = "bind a card to vfio-pci (dpdk-devbind.py --status), or give DLCP_EAL_ARGUMENTS a --vdev"
        said = "; ".join(line for line in log.splitlines() if _COMPLAINT.search(line))
        if said:
            remedy = "what the log says: a name in DLCP_EAL_ARGUMENTS, or a permission (as root it has all)"
            return [fail("dpdk", f"DPDK starts, and has no port; its log: {said}", remedy)]
        return [fail("dpdk", "DPDK starts, and has no port", remedy)]
    if not named:
        findings = [_describe_port(one) for one in ports]
        if len(ports) > 1:
            text = f"DPDK has {len(ports)} ports, {there}, and the settings name none"
            findings.append(fail("dpdk", text, f"export DLCP_INTERFACE={ports[0].name}"))
        return findings
    findings = []
    for name in named:
        port = next((one for one in ports if name == str(one.id) or full_address(name) == one.name), None)
        if port is not None:
            findings.append(_describe_port(port))
            continue
        text = f"the settings name the port {name}, which DPDK does not have: there are {there}"
        remedy = "see dpdk-devbind.py --status, and -a or --vdev in DLCP_EAL_ARGUMENTS"
        findings.append(fail("dpdk", text, remedy))
    return findings


def _describe_port(port: dpdk.Port) -> Finding:
    speed = f"{port.speed_bps / 1e9:g} Gbit/s" if port.speed_bps is not None else "speed not known"
    duplex = "" if port.full_duplex or not port.link_up else ", half duplex"
    node = f", near NUMA node {port.numa_node}" if port.numa_node is not None else ""
    text = f"port {port.id}, {port.name} ({port.driver}): link {'up' if port.link_up else 'down'}, {speed}{duplex}"
    text += f", MTU {port.mtu_bytes}{node}"
    if not port.link_up and port.driver not in _LINK_BEFORE_START and not port.claimed:
        return ok("dpdk", f"{text}; this driver may see the link only once an endpoint has the port")
    if not port.link_up:
        return warn("dpdk", text, "see the cable and the other end, and that the switch's port is on")
    if port.speed_bps is not None and port.speed_bps < 10**9:
        return warn("dpdk", text, "see the cable and the switch's port")
    return ok("dpdk", text)
