"""Interfaces, the one that dlcp would use and why, its MTU and offloads, and what else can lead packets astray.

Looks at the network namespace of the thread that asks. Sends nothing.
"""

from __future__ import annotations

import ipaddress
import itertools
import shlex
import socket
from collections.abc import Sequence

from dlcp.doctor.ethtool import Card, read_card
from dlcp.doctor.finding import Finding, fail, ok, warn
from dlcp.errors import AddressError, InterfaceError
from dlcp.transport import Settings
from dlcp.transport.interfaces import Chosen, Interface, choose_bind_host, list_interfaces

# The smallest UDP payload that dlcp's packets need (wire format), behind 28 bytes of IPv4 and UDP headers.
_MTU_BYTES_MIN = 576 + 28
_MTU_BYTES_ETHERNET = 1500
_MTU_BYTES_JUMBO = 9000
_HEADER_BYTES = {4: 28, 6: 48}
# Without these the kernel handles packets one by one, at 3.4 µs each (measured on loopback and virtual Ethernet).
_OFFLOADS = {
    "tx-generic-segmentation": ("gso", "sending costs several times more CPU per packet"),
    "rx-gro": ("gro", "receiving costs several times more CPU per packet"),
}


def look_at_network(settings: Settings, toward: str | None, why_toward: str) -> list[Finding]:
    """Findings about interfaces. `toward`: a host of the job, if known, and `why_toward` where it comes from."""
    interfaces = list_interfaces()
    chosen, findings = _look_at_choice(settings, toward, why_toward, interfaces)
    used = next((one for one in interfaces if chosen is not None and one.name == chosen.interface), None)
    if used is not None and not used.loopback:
        findings += look_at_interface(used, read_card(used.name))
    others = [one for one in interfaces if one != used and not one.loopback]
    if others:
        findings.append(ok("interface", f"also there: {', '.join(map(_describe, others))}"))
    return [*findings, *look_at_overlaps(interfaces), *_look_at_own_name()]


def _look_at_choice(
    settings: Settings, toward: str | None, why_toward: str, interfaces: Sequence[Interface]
) -> tuple[Chosen | None, list[Finding]]:
    """What dlcp would bind, and why."""
    if settings.below_kernel:
        where = f"dlcp has {settings.own_address or 'no address yet'} below the kernel"
        return None, [ok("interface", f"{where}, on a port of {settings.network_driver} (see there)")]
    usable = [one for one in interfaces if one.usable and not one.loopback]
    try:
        chosen = choose_place(settings, toward, interfaces)
    except InterfaceError as error:
        remedy = f"export DLCP_INTERFACE={usable[0].name}" if usable else None
        return None, [fail("interface", str(error), remedy)]
    except AddressError as error:
        return None, [fail("route", str(error), _see_route(settings.bind_host or toward))]
    if settings.bind_host is not None and settings.interface is None:
        return chosen, [ok("interface", f"dlcp is to bind {settings.bind_host}, as bind_host says")]
    goal = settings.bind_host or toward
    where = f"dlcp binds {chosen.host} on {chosen.interface}"
    if not usable:
        down = next((one.name for one in interfaces if not one.up and not one.loopback), None)
        text = f"{where}, and no other interface is up with an address: only ranks of this host can take part"
        return chosen, [warn("interface", text, f"ip link set {down} up" if down else None)]
    if settings.interface is not None:
        return chosen, [ok("interface", f"{where}, as DLCP_INTERFACE={settings.interface} says")]
    if goal is not None:
        return chosen, [ok("interface", f"{where}, which leads to {goal} ({why_toward})")]
    text = f"{where}, by the default route; a job takes the interface that leads to its MASTER_ADDR"
    return chosen, [ok("interface", text, "export DLCP_INTERFACE=NAME (to take another)")]


def choose_place(settings: Settings, toward: str | None, interfaces: Sequence[Interface]) -> Chosen:
    """What a job binds over the kernel's sockets, as far as it is known without one.

    Raises InterfaceError: no interface is as the settings say; AddressError: a name has no address, or no route.
    """
    goal = settings.bind_host or toward
    if goal is None and any(one.usable and not one.loopback for one in interfaces):
        goal = "0.0.0.0"  # what other hosts would take this one for
    return choose_bind_host(settings.interface, goal)


def kernel_owner(address: str, interfaces: Sequence[Interface]) -> str | None:
    """The kernel's interface that has an address; None: none, or it is no address."""
    try:
        own = ipaddress.ip_address(address)
    except ValueError:
        return None
    return next((one.name for one in interfaces if own in [each.ip for each in one.addresses]), None)


def _see_route(goal: str | None) -> str:
    """What shows why a host is not reached."""
    if goal is None:
        return "ip route"
    try:
        ipaddress.ip_address(goal.strip("[]").partition("%")[0])
    except ValueError:
        return f"getent ahosts {shlex.quote(goal)} (a name has to be in DNS or /etc/hosts)"
    return f"ip route get {goal}"


def look_at_interface(used: Interface, card: Card) -> list[Finding]:
    """Findings about the interface that dlcp uses."""
    speed = f", {card.speed_bps / 1e9:g} Gbit/s" if card.speed_bps else ""
    driver = f", driver {card.driver}" if card.driver else ""
    findings = [ok("interface", f"{used.name} is up with {used.state}{speed}{driver}")]
    if card.speed_bps is not None and card.speed_bps < 10**9:
        findings.append(
            warn(
                "interface",
                f"{used.name} runs at {card.speed_bps / 1e6:g} Mbit/s",
                f"see cable and port: ethtool {used.name}",
            )
        )
    return [*findings, _look_at_mtu(used), *_look_at_offloads(used.name, card)]


def _look_at_mtu(used: Interface) -> Finding:
    payload = used.mtu_bytes - _HEADER_BYTES[used.addresses[0].version]
    text = f"{used.name} has MTU {used.mtu_bytes}, so a datagram carries {payload} bytes"
    if used.mtu_bytes < _MTU_BYTES_MIN:
        return fail(
            "mtu", f"{text}; dlcp needs 576", f"ip link set dev {used.name} mtu {_MTU_BYTES_ETHERNET}"
        )
    if used.mtu_bytes < 1280:
        return warn(
            "mtu",
            f"{text}, less than any usual network's",
            f"ip link set dev {used.name} mtu {_MTU_BYTES_ETHERNET}",
        )
    if used.mtu_bytes < _MTU_BYTES_JUMBO:
        better = f"ip link set dev {used.name} mtu 9000 (if every switch in between carries it)"
        return ok("mtu", text, better)
    return ok("mtu", text)


def _look_at_offloads(name: str, card: Card) -> list[Finding]:
    if not card.features:
        return [ok("offloads", f"{name} does not say what its offloads are")]
    off = {feature: words for feature, words in _OFFLOADS.items() if not card.features.get(feature, False)}
    findings = [
        warn("offloads", f"{word} is off on {name}: {cost}", f"ethtool -K {name} {word} on")
        for word, cost in off.values()
    ]
    on = ", ".join(word for feature, (word, _) in _OFFLOADS.items() if feature not in off)
    if on:
        by_card = (
            "and by the card itself"
            if card.features.get("tx-udp-segmentation")
            else "in the kernel, not the card"
        )
        findings.append(ok("offloads", f"{on} on {name}; UDP is segmented {by_card}"))
    return findings


def look_at_overlaps(interfaces: Sequence[Interface]) -> list[Finding]:
    """Two interfaces in one network: the kernel may answer for the one through the other."""
    networks = [
        (one.name, address.network)
        for one in interfaces
        if one.usable and not one.loopback
        for address in one.addresses
        if address.version == 4 and address.network.prefixlen < 32
    ]
    return [
        warn(
            "route",
            f"{a} and {b} are both in {net}: packets for one may come and go through the other",
            "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
        )
        for (a, net), (b, other) in itertools.combinations(networks, 2)
        if a != b and net == other
    ]


def _look_at_own_name() -> list[Finding]:
    """A host whose name means loopback to itself: as MASTER_ADDR it would lead rank 0 astray in other software."""
    name = socket.gethostname()
    try:
        addresses = {one[4][0] for one in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}
    except OSError:
        return [
            warn(
                "name",
                f"this host's name, {name}, has no address; launchers use it as MASTER_ADDR",
                f"echo ADDRESS {name} >> /etc/hosts",
            )
        ]
    if any(not str(one).startswith("127.") and one != "::1" for one in addresses):
        return []
    return [
        ok(
            "name",
            f"this host's name, {name}, means loopback here (/etc/hosts); dlcp then takes the default route's address",
            "give launchers an address as MASTER_ADDR (not this name)",
        )
    ]


def _describe(one: Interface) -> str:
    return f"{one.name} ({one.state})"
