"""DPDK on this host: whether dlcp has its driver, and what it needs of memory, of the IOMMU and of network cards.

Where the driver is dpdk, what is missing fails, and DPDK is started as an endpoint would start it, in a process of
its own, to see which ports it has. Otherwise these are only facts. Changes nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from dlcp.doctor.card_needs import look_at_needs
from dlcp.doctor.cards import look_at_devices, look_at_iommu, look_at_virtual
from dlcp.doctor.eal import ask_eal
from dlcp.doctor.eal_arguments import EalArguments
from dlcp.doctor.finding import Finding, fail, ok, warn
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


def look_at_dpdk(settings: Settings, root: Path = Path("/")) -> list[Finding]:
    """Findings about DPDK. `root`: where /sys and /proc are. With driver dpdk it takes DPDK's start."""
    asked = settings.network_driver == "dpdk"
    lack = _lack()
    if lack is not None:
        if asked:
            return [fail("dpdk", f"driver is {settings.driver}, and {lack.text}", lack.remedy)]
        return [ok("dpdk", f"{lack.text}; only driver dpdk needs it", lack.remedy)]
    how = f"driver is {settings.driver}" if asked else "DLCP_DRIVER=dpdk would use it"
    findings = [ok("dpdk", f"dlcp has its driver for {dpdk.version()}; {how}")]
    arguments = EalArguments.read(settings.dpdk_arguments)
    devices = list_network_devices(root)
    named = _named(settings, arguments) if asked else set()
    wanted = [one for one in devices if one.address in named]
    interfaces = list_interfaces()
    isolates = _isolates_flows(settings)
    absent = sorted(named - {one.address for one in devices})
    findings += [
        *(fail("dpdk", f"there is no network card {name}", "dpdk-devbind.py --status") for name in absent),
        *look_at_huge_pages(asked, set(arguments.options), root),
        *(look_at_iommu(wanted, root) if devices else []),
        *look_at_devices(devices, named, root, interfaces, isolates=isolates),
        *look_at_needs(wanted, arguments, root),
    ]
    if not asked:
        return findings
    findings += [
        *look_at_virtual(arguments, interfaces, root),
        *_look_at_address(settings, interfaces, isolates),
    ]
    held = [] if dpdk.started() else look_at_holders(devices, arguments, root)
    return [*findings, *(held or _look_at_ports(settings, findings))]


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


def look_at_holders(
    devices: Sequence[NetworkDevice], arguments: EalArguments, root: Path = Path("/")
) -> list[Finding]:
    """Findings about cards that a process has already, of those that DPDK's start would take.

    A driver that starts a card resets it, which with igb_uio and uio_pci_generic nothing prevents.
    """
    findings = []
    for device in devices:
        if device.driver not in FOR_PROGRAMS or not arguments.probes(device.address):
            continue
        holder = holder_of(device, root)
        if holder is None:
            continue
        text = f"{device.address} is in use by {holder}: DPDK is not started, so as not to disturb it"
        if not arguments.allowed:
            text += (
                ", and its ports are not known; -a ADDRESS in DLCP_EAL_ARGUMENTS would keep it to one card"
            )
        findings.append(warn("dpdk", text, "dlcp doctor, when that process has ended"))
    return findings


# --- ports ----------------------------------------------------------------------------------------------------


def _look_at_ports(settings: Settings, before: Sequence[Finding]) -> list[Finding]:
    """What DPDK finds when it is started as an endpoint starts it."""
    found = ask_eal(settings.dpdk_arguments)
    if "error" in found:
        text = " ".join(found["error"].split())
        # Behind the reason stand the arguments.
        is_memory = "hugepages" in text.partition("EAL arguments")[0]
        failed = next(
            (one.remedy for one in before if one.verdict == "fail" and "huge pages" in one.text), None
        )
        remedy = failed if is_memory else None
        return [fail("dpdk", text, remedy or 'see DLCP_EAL_ARGUMENTS, and "EAL parameters" in DPDK\'s guide')]
    return look_at_ports(settings.devices, [dpdk.Port(**one) for one in found["ports"]], found.get("log", ""))


def _isolates_flows(settings: Settings) -> bool:
    """Whether the card is to give the kernel what is not for dlcp, so that both may have one address."""
    words = itertools.takewhile(lambda word: word != "--", settings.driver_options.split())
    return "flow_isolation=on" in words


def _look_at_address(settings: Settings, interfaces: Sequence[Interface], isolates: bool) -> list[Finding]:
    try:
        address = settings.need_own_address()
    except SettingsError as error:
        return [fail("dpdk", str(error), "export DLCP_BIND_HOST=10.0.0.1/24")]
    return [] if isolates else look_at_own_address(address, interfaces)


def look_at_own_address(address: str, interfaces: Sequence[Interface]) -> list[Finding]:
    """A finding if the kernel has the port's address as well. `interfaces`: the kernel's."""
    owner = kernel_owner(address, interfaces)
    if owner is None:
        return []
    text = f"the kernel has {address} on {owner} as well: it answers for it, and refuses what is for dlcp"
    return [warn("dpdk", text, "export DLCP_BIND_HOST=ADDRESS/PREFIX, one that no host's kernel has")]


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
