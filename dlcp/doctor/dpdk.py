"""DPDK on this host: whether dlcp has its driver, and what it needs of memory, of the IOMMU and of network cards.

Where the driver is dpdk, what is missing fails, and DPDK is started as an endpoint would start it, in a process of
its own, to see which ports it has. Otherwise these are only facts. Changes nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlcp.doctor.card_needs import look_at_needs
from dlcp.doctor.cards import look_at_devices, look_at_iommu, look_at_virtual
from dlcp.doctor.driver import DPDK, look_at_driver
from dlcp.doctor.eal import ask_eal
from dlcp.doctor.eal_arguments import EalArguments
from dlcp.doctor.finding import Finding, Verdict, listed
from dlcp.doctor.huge_pages import look_at_huge_pages
from dlcp.doctor.network import kernel_owner
from dlcp.doctor.pci import (
    FOR_PROGRAMS,
    NetworkDevice,
    full_address,
    holder_of,
    is_address,
    list_network_devices,
)
from dlcp.errors import SettingsError
from dlcp.transport import Settings, dpdk, plugins
from dlcp.transport.interfaces import Interface, list_interfaces

# DPDK's drivers that ask the kernel's for the link, so that they know it of a port that is not started.
_LINK_BEFORE_START = {"mlx5_pci", "net_mlx4"}
# Lines of DPDK's log that say why a device is not there; its levels are not in the text.
_COMPLAINT = re.compile(r"fail|error|could not|cannot|unable|no such|denied", re.IGNORECASE)


@listed
def look_at_dpdk(settings: Settings, root: Path = Path("/")) -> Iterator[Finding]:
    """Findings about DPDK. `root`: where /sys and /proc are. With driver dpdk it takes DPDK's start."""
    asked = settings.network_driver == "dpdk"
    lack = _lack()
    yield look_at_driver(DPDK, settings, lack, dpdk.version() if lack is None else "")
    if lack is not None:
        return
    arguments = EalArguments.read(settings.dpdk_arguments)
    devices = list_network_devices(root)
    named = _named(settings, arguments) if asked else set()
    wanted = [one for one in devices if one.address in named]
    interfaces = list_interfaces()
    isolates = _isolates_flows(settings)
    absent = sorted(named - {one.address for one in devices})
    for name in absent:
        yield DPDK.fail(f"there is no network card {name}", "dpdk-devbind.py --status")
    memory = look_at_huge_pages(asked, set(arguments.options), root)
    yield from memory
    yield from look_at_iommu(wanted, root) if devices else ()
    yield from look_at_devices(devices, named, root, interfaces, isolates=isolates)
    yield from look_at_needs(wanted, arguments, root)
    if asked:
        yield from look_at_virtual(arguments, interfaces, root)
        yield from _look_at_address(settings, interfaces, isolates)
        held = [] if dpdk.started() else look_at_holders(devices, arguments, root)
        yield from held or _look_at_ports(settings, memory)


def _lack() -> plugins.Lack | None:
    """Why the driver cannot be used; None: it can."""
    lack = plugins.why_not("dpdk")
    if lack is not None:
        return lack
    # It loads, and may be of another version of dlcp.
    text, _, remedy = (dpdk.why_not() or "").partition(": ")
    return plugins.Lack(text, remedy) if text else None


def _named(settings: Settings, arguments: EalArguments) -> set[str]:
    """The PCI addresses of the cards that the settings name."""
    names = {*map(full_address, settings.devices), *(device for device, _ in arguments.allowed)}
    return {name for name in names if is_address(name)}


@listed
def look_at_holders(
    devices: Sequence[NetworkDevice], arguments: EalArguments, root: Path = Path("/")
) -> Iterator[Finding]:
    """Findings about cards that a process has already, of those that DPDK's start would take.

    A driver that starts a card resets it, which with igb_uio and uio_pci_generic nothing prevents.
    """
    for device in devices:
        if device.driver not in FOR_PROGRAMS or not arguments.probes(device.address):
            continue
        if (holder := holder_of(device, root)) is not None:
            text = f"{device.address} is in use by {holder}: DPDK is not started, so as not to disturb it"
            more = ", and its ports are not known; -a ADDRESS in DLCP_EAL_ARGUMENTS would keep it to one card"
            yield DPDK.warn(
                text if arguments.allowed else text + more, "dlcp doctor, when that process has ended"
            )


# --- ports ----------------------------------------------------------------------------------------------------


def _look_at_ports(settings: Settings, memory: Sequence[Finding]) -> list[Finding]:
    """What DPDK finds when it is started as an endpoint starts it. `memory`: the findings about huge pages."""
    found = ask_eal(settings.dpdk_arguments)
    if "error" in found:
        text = " ".join(found["error"].split())
        # Behind the reason stand the arguments.
        is_memory = "hugepages" in text.partition("EAL arguments")[0]
        failed = (one.remedy for one in memory if one.verdict == Verdict.FAIL)
        remedy = next(failed, None) if is_memory else None
        return [DPDK.fail(text, remedy or 'see DLCP_EAL_ARGUMENTS, and "EAL parameters" in DPDK\'s guide')]
    return look_at_ports(settings.devices, [dpdk.Port(**one) for one in found["ports"]], found.get("log", ""))


def _isolates_flows(settings: Settings) -> bool:
    """Whether the card is to give the kernel what is not for dlcp, so that both may have one address."""
    words = itertools.takewhile(lambda word: word != "--", settings.driver_options.split())
    return "flow_isolation=on" in words


def _look_at_address(settings: Settings, interfaces: Sequence[Interface], isolates: bool) -> list[Finding]:
    try:
        address = settings.need_own_address()
    except SettingsError as error:
        return [DPDK.fail(str(error), "export DLCP_BIND_HOST=10.0.0.1/24")]
    return [] if isolates else look_at_own_address(address, interfaces)


def look_at_own_address(address: str, interfaces: Sequence[Interface]) -> list[Finding]:
    """A finding if the kernel has the port's address as well. `interfaces`: the kernel's."""
    owner = kernel_owner(address, interfaces)
    if owner is None:
        return []
    text = f"the kernel has {address} on {owner} as well: it answers for it, and refuses what is for dlcp"
    return [DPDK.warn(text, "export DLCP_BIND_HOST=ADDRESS/PREFIX, one that no host's kernel has")]


@listed
def look_at_ports(named: Sequence[str], ports: Sequence[dpdk.Port], log: str = "") -> Iterator[Finding]:
    """Findings about DPDK's ports. `named`: those that the settings name. `log`: DPDK's own."""
    there = ", ".join(f"{one.name} ({one.driver})" for one in ports) or "none"
    if not ports:
        remedy = "bind a card to vfio-pci (dpdk-devbind.py --status), or give DLCP_EAL_ARGUMENTS a --vdev"
        said = "; ".join(line for line in log.splitlines() if _COMPLAINT.search(line))
        if said:
            remedy = "what the log says: a name in DLCP_EAL_ARGUMENTS, or a permission (as root it has all)"
        yield DPDK.fail(f"DPDK starts, and has no port{f'; its log: {said}' if said else ''}", remedy)
        return
    if not named:
        yield from map(_describe_port, ports)
        if len(ports) > 1:
            text = f"DPDK has {len(ports)} ports, {there}, and the settings name none"
            yield DPDK.fail(text, f"export DLCP_INTERFACE={ports[0].name}")
    for name in named:
        port = next((one for one in ports if name == str(one.id) or full_address(name) == one.name), None)
        if port is not None:
            yield _describe_port(port)
        else:
            text = f"the settings name the port {name}, which DPDK does not have: there are {there}"
            yield DPDK.fail(text, "see dpdk-devbind.py --status, and -a or --vdev in DLCP_EAL_ARGUMENTS")


def _describe_port(port: dpdk.Port) -> Finding:
    speed = f"{port.speed_bps / 1e9:g} Gbit/s" if port.speed_bps is not None else "speed not known"
    duplex = "" if port.full_duplex or not port.link_up else ", half duplex"
    node = f", near NUMA node {port.numa_node}" if port.numa_node is not None else ""
    text = f"port {port.id}, {port.name} ({port.driver}): link {'up' if port.link_up else 'down'}, {speed}{duplex}"
    text += f", MTU {port.mtu_bytes}{node}"
    if not port.link_up and port.driver not in _LINK_BEFORE_START and not port.claimed:
        return DPDK.ok(f"{text}; this driver may see the link only once an endpoint has the port")
    if not port.link_up:
        return DPDK.warn(text, "see the cable and the other end, and that the switch's port is on")
    if port.speed_bps is not None and port.speed_bps < 10**9:
        return DPDK.warn(text, "see the cable and the switch's port")
    return DPDK.ok(text)
