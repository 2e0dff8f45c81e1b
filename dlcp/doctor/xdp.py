"""XDP on this host: whether dlcp has its driver, the interface, and the privileges that it takes.

Where the driver is xdp, what is missing fails; otherwise these are only facts. Changes nothing, and opens no socket.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlcp.doctor.driver import XDP, look_at_driver
from dlcp.doctor.files import lines, output
from dlcp.doctor.finding import Finding, listed
from dlcp.errors import SettingsError
from dlcp.transport import Settings, plugins
from dlcp.transport.interfaces import Interface, describe, list_interfaces

# linux/capability.h: sockets of whole frames, programs on an interface, loading programs.
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_BPF": 39}
_CAP_SYS_ADMIN = 21  # stands in for CAP_BPF, which Linux 5.8 split from it
# As the driver has them (native/io/xdp): a frame lies in one page, and the name of its program.
_MTU_BYTES_MAX = 3498
_OWN_PROGRAM = "dlcp_xdp"
_IPV4_UDP_BYTES, _IPV6_UDP_BYTES = 28, 48


@listed
def look_at_xdp(settings: Settings, root: Path = Path("/")) -> Iterator[Finding]:
    """Findings about XDP. `root`: where /proc is."""
    asked = settings.network_driver == "xdp"
    lack = plugins.why_not("xdp")
    yield look_at_driver(XDP, settings, lack, "XDP")
    if lack is not None or not asked:
        return
    try:
        settings.need_own_address()
    except SettingsError as error:
        yield XDP.fail(str(error), "export DLCP_BIND_HOST=10.0.0.1/24")
    interfaces = list_interfaces()
    yield from look_at_named_interfaces(settings.devices, interfaces)
    links = _read_links()
    for one in interfaces:
        if one.name in settings.devices:
            yield from look_at_limits(settings, one, links.get(one.name, {}))
    yield look_at_privileges(root)


@listed
def look_at_named_interfaces(named: Sequence[str], interfaces: Sequence[Interface]) -> Iterator[Finding]:
    """Findings about the interfaces that the settings name, against those that there are."""
    others = [one for one in interfaces if not one.loopback]
    if not named:
        name = next((one.name for one in others if one.usable), "eth0")
        text = f"the settings name no interface: there are {describe(others)}"
        yield XDP.fail(text, f"export DLCP_INTERFACE={name}")
    for name in named:
        found = next((one for one in interfaces if one.name == name), None)
        if found is None:
            text = f"the settings name the interface {name}, which is not here: there are {describe(others)}"
            yield XDP.fail(text, "ip link show")
        elif not found.up:
            yield XDP.fail(f"{name} is down", f"ip link set {name} up")
        elif not found.carrier:
            yield XDP.warn(f"{name} has no carrier", "see the cable and the other end")
        else:
            yield XDP.ok(f"{name} is up, MTU {found.mtu_bytes}")


@listed
def look_at_limits(settings: Settings, interface: Interface, link: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about what the driver does not open on. `link`: as `ip -json link` shows the interface."""
    name = interface.name
    kind = "loopback" if interface.loopback else link.get("link_type", "ether")
    if kind != "ether":
        text = f"{name} carries no Ethernet frames (it is of type {kind})"
        yield XDP.fail(text, "export DLCP_INTERFACE=NAME, one that `ip link show` calls link/ether")
        return
    is_v6 = ":" in str(settings.own_address or "")
    largest = _MTU_BYTES_MAX - (_IPV6_UDP_BYTES if is_v6 else _IPV4_UDP_BYTES)
    asked = settings.max_datagram_bytes
    if interface.mtu_bytes > _MTU_BYTES_MAX and (asked is None or asked > largest):
        text = f"{name} has an MTU of {interface.mtu_bytes}, and xdp carries frames of an MTU of {_MTU_BYTES_MAX}"
        yield XDP.fail(text, f"export DLCP_MAX_DATAGRAM_BYTES={largest}")
    if "xdp" in link:
        yield _look_at_program(name, link["xdp"])


def _look_at_program(name: str, shown: Mapping[str, Any]) -> Finding:
    remedy = f"see whose it is: ip -details link show dev {name}"
    # Without privileges ip does not see it.
    program = shown.get("prog", {}).get("name")
    if program == _OWN_PROGRAM:
        text = f"a process with driver xdp has {name}: another one needs an interface of its own"
        return XDP.ok(text, f"ip link add NAME link {name} type macvlan mode bridge")
    if program is None:
        return XDP.warn(f"{name} has an XDP program; if it is not a running job's, xdp does not open", remedy)
    return XDP.fail(f"{name} has another XDP program, {program}, beside which xdp does not open", remedy)


def _read_links() -> dict[str, Mapping[str, Any]]:
    """Interfaces of this network namespace, by name; none where there is no ip, or one that knows no JSON."""
    try:
        links = json.loads(output("ip", "-json", "link", "show") or "[]")
    except ValueError:
        return {}
    return {one["ifname"]: one for one in links if "ifname" in one}


def look_at_privileges(root: Path = Path("/")) -> Finding:
    """Whether this process may load a program and open a socket of whole frames."""
    held = _capabilities(root)
    missing = [name for name, bit in _CAPABILITIES.items() if not held >> bit & 1]
    if held >> _CAP_SYS_ADMIN & 1:
        missing = [name for name in missing if name != "CAP_BPF"]
    if not missing:
        return XDP.ok(f"this process may use XDP: it has {', '.join(_CAPABILITIES)}")
    words = ",".join(name.lower() for name in _CAPABILITIES)
    return XDP.fail(
        f"this process may not use XDP: it lacks {', '.join(missing)}",
        f"run as root, or: setcap {words}+ep {os.path.realpath(sys.executable)}",
    )


def _capabilities(root: Path) -> int:
    """This process's effective capabilities, a bit each."""
    status = {words[0]: words[1:] for words in lines(root / "proc/self/status") if words}
    return int(status.get("CapEff:", ["0"])[0], 16)
