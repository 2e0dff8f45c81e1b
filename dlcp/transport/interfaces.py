"""Network interfaces of this host, and which address of theirs to bind.

Interfaces are asked of the kernel through rtnetlink (RFC 3549), which answers for the network namespace that this
process is in; /sys may show another's. A pattern says which interfaces may be used, as NCCL_SOCKET_IFNAME does:

    eth,ib       names that begin with eth or ib; a name that is spelled out wins
    =eth0,eth1   these names
    ^docker,lo   any that do not begin so
    ^=eth3       any but this one

Nothing here opens a socket for traffic or changes an interface. Only a name in `toward` may block, for its lookup.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dlcp.errors import AddressError, InterfaceError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
AddressWithNetwork = ipaddress.IPv4Interface | ipaddress.IPv6Interface
# Where a socket can be connected to: its family, and what that calls an address.
Goal = tuple[int, tuple[Any, ...]]


class Chosen(NamedTuple):
    """What to bind: an address of this host, and the interface that has it."""

    host: str
    """An address as text; link-local IPv6 carries its zone, as in fe80::1%eth0."""
    interface: str | None
    """None: the address belongs to no interface by name."""


@dataclass(frozen=True, slots=True)
class Interface:
    """One network interface, as it was when asked."""

    name: str
    index: int
    up: bool
    """Somebody has switched it on."""
    carrier: bool
    """The cable leads somewhere. Unlike the flag RUNNING, which the kernel may set a second later."""
    loopback: bool
    mtu_bytes: int
    addresses: tuple[AddressWithNetwork, ...]
    """IPv4 first, link-local last. Addresses that the kernel has not yet found to be unique are not there."""

    @property
    def state(self) -> str:
        """In words: its addresses, or what keeps it from being used."""
        if not self.up:
            return "down"
        if not self.carrier:
            return "no carrier"
        return ", ".join(str(one.ip) for one in self.addresses) if self.addresses else "no address"

    @property
    def usable(self) -> bool:
        """Whether packets can leave and come through it."""
        return self.up and self.carrier and bool(self.addresses)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Which interfaces may be used, by name."""

    words: tuple[str, ...]
    exact: bool = False
    exclude: bool = False

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """A pattern as people write it. Raises InterfaceError: no name in it."""
        rest = text.strip()
        exclude = rest.startswith("^")
        rest = rest.removeprefix("^")
        exact = rest.startswith("=")
        words = tuple(word.strip() for word in rest.removeprefix("=").split(","))
        if not all(words) or any(sign in word for word in words for sign in "^= \0"):
            raise InterfaceError(
                f"interface is {text!r}; accepted: names or their beginnings, such as eth0 or eth,ib; exact names, such"
                " as =eth0,eth1; or any but some, such as ^docker,lo"
            )
        return cls(words, exact, exclude)

    def place(self, name: str) -> int | None:
        """How early the pattern names an interface, 0 first; None: it may not be used."""
        if self.exclude:
            return None if any(self._fits(word, name) for word in self.words) else 0
        if name in self.words:
            return self.words.index(name)
        for place, word in enumerate(self.words):
            if self._fits(word, name):
                return len(self.words) + place
        return None

    def _fits(self, word: str, name: str) -> bool:
        return name == word if self.exact else name.startswith(word)


def choose_bind_host(pattern: str | None, toward: str | None = None) -> Chosen:
    """The address of this host to bind, by a pattern of interface names or by the route to another host.

    With a pattern: of the matching interfaces that are up and have an address, the one on the route to `toward`, then
    the one named first; loopback only if it is named, or leads to `toward`, or nothing else is there and no `toward` is
    given. Without: the source address of the route
    to `toward`, so loopback for loopback and an own address for itself; with neither, 127.0.0.1.
    `toward`: an address or a name; a host whose own name means loopback (Debian's 127.0.1.1) is taken for its address
    on the default route, since that is what other hosts take it for.

    May block for a name lookup. Raises InterfaceError: the pattern is malformed, or no interface of it can be used;
    AddressError: `toward` has no address or no route.
    """
    interfaces = list_interfaces()
    if pattern is not None:
        return _choose_by_pattern(pattern, toward, interfaces)
    source = ipaddress.ip_address("127.0.0.1") if toward is None else source_toward(toward)
    owner = owner_of(source, interfaces)
    return Chosen(_as_host(source, owner), None if owner is None else owner.name)


def source_toward(toward: str) -> Address:
    """The address that packets to a host would carry as their source. Sends nothing; may block for a name lookup.

    Raises AddressError: no such host, or no route to it.
    """
    try:
        found = socket.getaddrinfo(toward.strip("[]"), 9, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a host name"
        raise AddressError(
            f"cannot find an address of {toward!r}: {reason}; accepted: a host name or address"
        ) from error
    goals: list[Goal] = sorted(
        ((family, address) for family, _, _, _, address in found), key=lambda one: one[0] != socket.AF_INET
    )
    address = goals[0][1][0]
    if _means_this_host_to_others(toward, address):
        goals = [*_ANYWHERE, *goals]
    for goal in goals:
        source = _source(goal)
        if source is not None:
            return source
    raise AddressError(
        f"no route to {toward} ({address}); see `ip route get {address}`, and that its interface is up"
    )


def list_interfaces() -> list[Interface]:
    """Every interface of this process's network namespace, in the kernel's order."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE) as channel:
        addresses: dict[int, list[AddressWithNetwork]] = {}
        for payload in _dump(channel, _RTM_GETADDR):
            found = _read_address(payload)
            if found is not None:
                addresses.setdefault(found[0], []).append(found[1])
        interfaces = [
            _read_link(payload, addresses.get(_IFINFOMSG.unpack_from(payload)[2], []))
            for payload in _dump(channel, _RTM_GETLINK)
        ]
    return sorted(interfaces, key=lambda one: one.index)


def owner_of(address: Address, interfaces: list[Interface]) -> Interface | None:
    """The interface that has an address; all of 127.0.0.0/8 is the loopback interface's."""
    plain = ipaddress.ip_address(str(address).partition("%")[0])
    for one in interfaces:
        if any(plain == own.ip for own in one.addresses) or (one.loopback and plain.is_loopback):
            return one
    return None


def describe(interfaces: list[Interface]) -> str:
    """For error sentences: "lo (127.0.0.1, ::1), eth0 (down)"."""
    return ", ".join(f"{one.name} ({one.state})" for one in interfaces) or "none"


# --- by pattern ------------------------------------------------------------------------------------------------


def _choose_by_pattern(pattern: str, toward: str | None, interfaces: list[Interface]) -> Chosen:
    parsed = Pattern.parse(pattern)
    places = {one.name: place for one in interfaces if (place := parsed.place(one.name)) is not None}
    matching = [one for one in interfaces if one.name in places]
    usable = [one for one in matching if one.usable]
    source: Address | None = None
    if toward is not None:
        # The pattern is what the user asked for; that nothing leads there is said when connecting.
        with contextlib.suppress(AddressError):
            source = source_toward(toward)
    on_the_way = None if source is None else owner_of(source, interfaces)
    if parsed.exclude and toward is not None:
        # Nobody asked for loopback, and who binds it cannot be reached.
        usable = [one for one in usable if not one.loopback or one == on_the_way]
    if not usable:
        raise InterfaceError(_why_none(pattern, matching, interfaces))
    chosen = min(
        usable,
        key=lambda one: (one != on_the_way, parsed.exclude and one.loopback, places[one.name], one.index),
    )
    if source is not None and chosen == on_the_way:
        return Chosen(_as_host(source, chosen), chosen.name)
    version = 4 if source is None else source.version
    address = min((one.ip for one in chosen.addresses), key=lambda one: one.version != version)
    return Chosen(_as_host(address, chosen), chosen.name)


def _why_none(pattern: str, matching: list[Interface], interfaces: list[Interface]) -> str:
    """Why no interface can be used, with what mends it."""
    parsed = Pattern.parse(pattern)
    if parsed.exclude:
        matching = [one for one in matching if not one.loopback]
        if not matching:
            return f"interface is {pattern!r}, which leaves none of this host's: {describe(interfaces)}"
    elif not matching:
        what = "interface" if len(parsed.words) == 1 else "interface that matches"
        return f"this host has no {what} {pattern!r}: choose one of {describe(interfaces)}"
    first = matching[0]
    if not first.up:
        remedy = f"ip link set {first.name} up"
    elif not first.carrier:
        remedy = f"see the cable and the other end: ip -details link show {first.name}"
    else:
        remedy = f"ip address add ADDRESS/PREFIX dev {first.name}"
    others = [one for one in interfaces if one not in matching]
    return (
        f"interface is {pattern!r}, and none that matches can be used: {describe(matching)}; {remedy}; or choose among"
        f" {describe(others)}"
    )


# --- routes ---------------------------------------------------------------------------------------------------

# Addresses that lead out by the default route: documentation's own (RFC 5737, RFC 3849), so nobody's. Connecting a UDP
# socket looks up the route and sends nothing.
_ANYWHERE: tuple[Goal, ...] = (
    (socket.AF_INET, ("198.51.100.1", 9)),
    (socket.AF_INET6, ("2001:db8::1", 9)),
)


def _source(goal: Goal) -> Address | None:
    """The source of packets to an address; None: no route, or no such family here."""
    family, address = goal
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.connect(address)
            host = probe.getsockname()[0]
    except OSError:
        return None
    return ipaddress.ip_address(host)


def _means_this_host_to_others(toward: str, found: object) -> bool:
    """Whether a name leads to loopback only because this host says so of itself in /etc/hosts."""
    address = ipaddress.ip_address(str(found).partition("%")[0])
    if address.is_unspecified:
        return True
    if not address.is_loopback or toward == "localhost" or toward.endswith((".localhost", "localdomain")):
        return False
    try:
        ipaddress.ip_address(toward.strip("[]").partition("%")[0])
    except ValueError:
        return True
    return False


def _as_host(address: Address, owner: Interface | None) -> str:
    text = str(address)
    if address.is_link_local and address.version == 6 and owner is not None and "%" not in text:
        return f"{text}%{owner.name}"
    return text


# --- rtnetlink (linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h) ----------------------------

_NETLINK_ROUTE = 0
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_GETLINK, _RTM_GETADDR = 18, 22
_REQUEST_DUMP = 0x1 | 0x300
_NLMSGHDR = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_IFINFOMSG = struct.Struct("=BxHiII")  # family, type, index, flags, change
_IFADDRMSG = struct.Struct("=BBBBI")  # family, prefix length, flags, scope, index
_IFLA_IFNAME, _IFLA_MTU = 3, 4
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_IFF_UP, _IFF_LOOPBACK, _IFF_LOWER_UP = 0x1, 0x8, 0x10000
# Not known to be unique: binding to one fails.
_IFA_F_DADFAILED, _IFA_F_TENTATIVE = 0x08, 0x40
# The kernel fills a dump's datagram up to 32 KiB when the reader offers as much.
_RECEIVE_BYTES = 1 << 16


def _dump(channel: socket.socket, kind: int) -> Iterator[bytes]:
    """The payload of every message of a dump."""
    body = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    channel.send(_NLMSGHDR.pack(_NLMSGHDR.size + len(body), kind, _REQUEST_DUMP, kind, 0) + body)
    while True:
        datagram = channel.recv(_RECEIVE_BYTES)
        offset = 0
        while offset + _NLMSGHDR.size <= len(datagram):
            length, message, _, sequence, _ = _NLMSGHDR.unpack_from(datagram, offset)
            payload = datagram[offset + _NLMSGHDR.size : offset + length]
            offset += length + 3 & ~3
            if message == _NLMSG_DONE:
                return
            if message == _NLMSG_ERROR:
                number = -struct.unpack_from("=i", payload)[0]
                raise InterfaceError(
                    f"the kernel does not list network interfaces: error {number} of rtnetlink"
                )
            if sequence == kind:
                yield payload


def _attributes(payload: bytes, offset: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while offset + 4 <= len(payload):
        length, kind = struct.unpack_from("=HH", payload, offset)
        if length < 4:
            break
        found[kind] = payload[offset + 4 : offset + length]
        offset += length + 3 & ~3
    return found


def _read_link(payload: bytes, addresses: list[AddressWithNetwork]) -> Interface:
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(payload)
    attributes = _attributes(payload, _IFINFOMSG.size)
    return Interface(
        name=attributes[_IFLA_IFNAME].rstrip(b"\0").decode(errors="replace"),
        index=index,
        up=bool(flags & _IFF_UP),
        carrier=bool(flags & _IFF_LOWER_UP),
        loopback=bool(flags & _IFF_LOOPBACK),
        mtu_bytes=struct.unpack("=I", attributes[_IFLA_MTU])[0],
        addresses=tuple(sorted(addresses, key=lambda one: (one.version, one.ip.is_link_local))),
    )


def _read_address(payload: bytes) -> tuple[int, AddressWithNetwork] | None:
    """Interface index and address; None: of another family, or not usable yet."""
    family, prefix, flags, _, index = _IFADDRMSG.unpack_from(payload)
    if family not in (socket.AF_INET, socket.AF_INET6) or flags & (_IFA_F_DADFAILED | _IFA_F_TENTATIVE):
        return None
    attributes = _attributes(payload, _IFADDRMSG.size)
    # On a point-to-point link ADDRESS is the other end's, LOCAL this one's; IPv6 mostly has ADDRESS alone.
    raw = attributes.get(_IFA_LOCAL, attributes.get(_IFA_ADDRESS))
    if raw is None:
        return None
    return index, ipaddress.ip_interface((ipaddress.ip_address(raw), prefix))
