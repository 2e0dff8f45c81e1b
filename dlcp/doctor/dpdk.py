"""DPDK on this host: whether dlcp has its driver, and what it needs of memory, of the IOMMU and of network cards.

Where the datapath is dpdk, what is missing fails, and DPDK is started as an endpoint would start it, in a process of
its own, to see which ports it has. Otherwise these are only facts. Changes nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from dlcp.doctor.cards import look_at_devices, look_at_iommu
from dlcp.doctor.eal import ask_eal
from dlcp.doctor.finding import Finding, fail, ok, warn
from dlcp.doctor.huge_pages import look_at_huge_pages
from dlcp.doctor.pci import full_address, list_network_devices
from dlcp.errors import SettingsError
from dlcp.transport import Settings, dpdk
from dlcp.transport.interfaces import Interface, list_interfaces

# DPDK's drivers that ask the kernel's for the link, so that they know it of a port that is not started.
_LINK_BEFORE_START = {"mlx5_pci", "net_mlx4"}
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
