"""Interfaces, the one that dlcp would use and why, its MTU and offloads, and what else can lead packets astray.

Looks at the network namespace of the thread that asks. Sends nothing.
"""

from __future__ import annotations

import ipaddress
import itertools
import shlex
import socket
from collections.abc import Iterator, Sequence

from dlcp.doctor.ethtool import Card, read_card
from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.errors import AddressError, InterfaceError
from dlcp.transport import Settings
from dlcp.transport.interfaces import Chosen, Interface, choose_bind_host, list_interfaces
from dlcp.transport.rank_card import describe_line_rate

INTERFACE, ROUTE, MTU, OFFLOADS, NAME = map(Topic, ("interface", "route", "mtu", "offloads", "name"))
# The smallest UDP payload that dlcp's packets need (wire format), behind 28 bytes of IPv4 and UDP headers.
_MTU_BYTES_MIN = 576 + 28
_MTU_BYTES_IPV6_MIN, _MTU_BYTES_ETHERNET, _MTU_BYTES_JUMBO = 1280, 1500, 9000
_HEADER_BYTES = {4: 28, 6: 48}
# Without these the kernel handles packets one by one, at 3.4 µs each (measured on loopback and virtual Ethernet).
_OFFLOADS = {
    "tx-generic-segmentation": ("gso", "sending costs several times more CPU per packet"),
    "rx-gro": ("gro", "receiving costs several times more CPU per packet"),
}


@listed
def look_at_network(settings: Settings, toward: str | None, why_toward: str) -> Iterator[Finding]:
    """Findings about interfaces. `toward`: a host of the job, if known, and `why_toward` where it comes from."""
    interfaces = list_interfaces()
    chosen, finding = _look_at_choice(settings, toward, why_toward, interfaces)
    yield finding
    used = next((one for one in interfaces if chosen is not None and one.name == chosen.interface), None)
    if used is not None and not used.loopback:
        yield from look_at_interface(used, read_card(used.name), settings.line_rate_bps)
    others = [one for one in interfaces if one != used and not one.loopback]
    if others:
        yield INTERFACE.ok(f"also there: {', '.join(map(_describe, others))}")
    yield from look_at_overlaps(interfaces)
    yield from _look_at_own_name()


def _look_at_choice(
    settings: Settings, toward: str | None, why_toward: str, interfaces: Sequence[Interface]
) -> tuple[Chosen | None, Finding]:
    """What dlcp would bind, and why."""
    if settings.below_kernel:
        where = f"dlcp has {settings.own_address or 'no address yet'} below the kernel"
        return None, INTERFACE.ok(f"{where}, on a port of {settings.network_driver} (see there)")
    usable = [one for one in interfaces if one.usable and not one.loopback]
    try:
        chosen = choose_place(settings, toward, interfaces)
    except InterfaceError as error:
        remedy = f"export DLCP_INTERFACE={usable[0].name}" if usable else None
        return None, INTERFACE.fail(str(error), remedy)
    except AddressError as error:
        return None, ROUTE.fail(str(error), _see_route(settings.bind_host or toward))
    if settings.bind_host is not None and settings.interface is None:
        return chosen, INTERFACE.ok(f"dlcp is to bind {settings.bind_host}, as bind_host says")
    goal = settings.bind_host or toward
    where = f"dlcp binds {chosen.host} on {chosen.interface}"
    if not usable:
        down = next((one.name for one in interfaces if not one.up and not one.loopback), None)
        text = f"{where}, and no other interface is up with an address: only ranks of this host can take part"
        return chosen, INTERFACE.warn(text, f"ip link set {down} up" if down else None)
    if settings.interface is not None:
        return chosen, INTERFACE.ok(f"{where}, as DLCP_INTERFACE={settings.interface} says")
    if goal is not None:
        return chosen, INTERFACE.ok(f"{where}, which leads to {goal} ({why_toward})")
    text = f"{where}, by the default route; a job takes the interface that leads to its MASTER_ADDR"
    return chosen, INTERFACE.ok(text, "export DLCP_INTERFACE=NAME (to take another)")


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


@listed
def look_at_interface(used: Interface, card: Card, set_bps: int = 0) -> Iterator[Finding]:
    """Findings about the interface that dlcp uses. `set_bps`: the setting line_rate_bps."""
    speed = describe_line_rate(set_bps or card.speed_bps or 0, is_set=bool(set_bps))
    driver = f", driver {card.driver}" if card.driver else ""
    yield INTERFACE.ok(f"{used.name} is up with {used.state}, {speed}{driver}")
    if card.speed_bps is not None and card.speed_bps < 10**9:
        yield INTERFACE.warn(
            f"{used.name} runs at {card.speed_bps / 1e6:g} Mbit/s", f"see cable and port: ethtool {used.name}"
        )
    yield _look_at_mtu(used)
    yield from _look_at_offloads(used.name, card)


def _look_at_mtu(used: Interface) -> Finding:
    payload = used.mtu_bytes - _HEADER_BYTES[used.addresses[0].version]
    text = f"{used.name} has MTU {used.mtu_bytes}, so a datagram carries {payload} bytes"
    change = f"ip link set dev {used.name} mtu"
    if used.mtu_bytes < _MTU_BYTES_MIN:
        return MTU.fail(f"{text}; dlcp needs 576", f"{change} {_MTU_BYTES_ETHERNET}")
    if used.mtu_bytes < _MTU_BYTES_IPV6_MIN:
        return MTU.warn(f"{text}, less than any usual network's", f"{change} {_MTU_BYTES_ETHERNET}")
    better = f"{change} {_MTU_BYTES_JUMBO} (if every switch in between carries it)"
    return MTU.ok(text, better if used.mtu_bytes < _MTU_BYTES_JUMBO else None)


def _look_at_offloads(name: str, card: Card) -> Iterator[Finding]:
    if not card.features:
        yield OFFLOADS.ok(f"{name} does not say what its offloads are")
        return
    on = []
    for feature, (word, cost) in _OFFLOADS.items():
        if card.features.get(feature):
            on.append(word)
        else:
            yield OFFLOADS.warn(f"{word} is off on {name}: {cost}", f"ethtool -K {name} {word} on")
    if on:
        by_card = card.features.get("tx-udp-segmentation")
        where = "and by the card itself" if by_card else "in the kernel, not the card"
        yield OFFLOADS.ok(f"{', '.join(on)} on {name}; UDP is segmented {where}")


@listed
def look_at_overlaps(interfaces: Sequence[Interface]) -> Iterator[Finding]:
    """Two interfaces in one network: the kernel may answer for the one through the other."""
    networks = [
        (one.name, address.network)
        for one in interfaces
        if one.usable and not one.loopback
        for address in one.addresses
        if address.version == 4 and address.network.prefixlen < 32
    ]
    for (a, net), (b, other) in itertools.combinations(networks, 2):
        if a != b and net == other:
            yield ROUTE.warn(
                f"{a} and {b} are both in {net}: packets for one may come and go through the other",
                "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2",
            )


def _look_at_own_name() -> Iterator[Finding]:
    """A host whose name means loopback to itself: as MASTER_ADDR it would lead rank 0 astray in other software."""
    name = socket.gethostname()
    try:
        addresses = {one[4][0] for one in socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM)}
    except OSError:
        yield NAME.warn(
            f"this host's name, {name}, has no address; launchers use it as MASTER_ADDR",
            f"echo ADDRESS {name} >> /etc/hosts",
        )
        return
    if all(str(one).startswith("127.") or one == "::1" for one in addresses):
        yield NAME.ok(
            f"this host's name, {name}, means loopback here (/etc/hosts); dlcp then takes the default route's address",
            "give launchers an address as MASTER_ADDR (not this name)",
        )


def _describe(one: Interface) -> str:
    return f"{one.name} ({one.state})"
