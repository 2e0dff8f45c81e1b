"""What a driver's name and words say before there is one: where it leads, its own address, its devices.

The driver itself parses its options when it opens (native/io/dpdk/options.cpp, native/io/xdp/options.cpp,
native/ipstack/interface_options.cpp) and decides. This module knows what jobs and `dlcp doctor` need earlier, and refuses
early what cannot be meant. Pure, except for a look at which plugins are installed.
"""

from __future__ import annotations

import ctypes
import difflib
import ipaddress
import re
from dataclasses import dataclass

from dlcp.transport import plugins

BELOW_KERNEL = ("dpdk", "xdp")
"""Drivers that send and receive frames past the kernel's network stack."""
NAMES = ("udp", "local", *BELOW_KERNEL)
"""Drivers of dlcp's own."""
# Shared memory around another driver: "local+dpdk".
_AROUND = "local+"
_PLUGIN_NAME = re.compile(r"[a-z0-9_]+")
# In driver_options: what follows is for a library below the driver.
_END_OF_WORDS = re.compile(r"(?:^|\s)--(?:\s+|$)")


@dataclass(frozen=True, slots=True)
class NamedPort:
    """A word of driver_options that names a device: port=DEVICE@ADDRESS for dpdk, interface=DEVICE for xdp."""

    device: str
    """"": the only one there is."""
    address: str | None
    """Its own, perhaps with the length of its prefix; None: the word has none."""


# ---- names ----


def network_driver(driver: str) -> str:
    """What leads out of this host: without the shared memory around it."""
    return "udp" if driver == "local" else driver.removeprefix(_AROUND)


def may_be_driver(driver: str) -> bool:
    """False: no driver can have this name, or none has and one of dlcp's is near.

    A plugin of somebody else's may have any name of lower-case letters, digits and _; whether there is one of a name
    that is like none of dlcp's, is found when it is loaded.
    """
    name = driver.removeprefix(_AROUND)
    if name in NAMES or "/" in name:
        return True
    return _PLUGIN_NAME.fullmatch(name) is not None and (nearest_driver(driver) is None or _is_plugin(name))


def nearest_driver(driver: str) -> str | None:
    """The one of dlcp's own that is meant, if it is a slip; None: it is like none of them."""
    meant = driver.strip().lower()
    around = _AROUND if meant.startswith(_AROUND) else ""
    names = [name for name in NAMES if not around or name != "local"]
    near = difflib.get_close_matches(meant.removeprefix(around), names, n=1)
    return f"{around}{near[0]}" if near else None


def _is_plugin(name: str) -> bool:
    file = plugins.path(name)
    if file.exists():
        return True
    try:
        ctypes.CDLL(file.name)
    except OSError:
        return False
    return True


# ---- words ----


def ends_words(options: str) -> bool:
    """Whether driver_options have a word --, behind which a library below the driver has its arguments."""
    return _END_OF_WORDS.search(options) is not None


def arguments_below(options: str) -> str:
    """What follows the word --; "": nothing."""
    return "".join(_END_OF_WORDS.split(options, 1)[1:])


def named_ports(options: str, key: str) -> list[NamedPort]:
    """The devices that words like `key`=DEVICE@ADDRESS name, in turn."""
    words = _END_OF_WORDS.split(options, 1)[0].split()
    values = [word.removeprefix(f"{key}=").partition("@") for word in words if word.startswith(f"{key}=")]
    return [NamedPort(device, address if at else None) for device, at, address in values]


# ---- a port's own address ----


def why_not_own_address(text: str) -> str | None:
    """Why no station can have this as its own address, perhaps with a prefix's length; None: one can."""
    host, slash, prefix = text.partition("/")
    try:
        own = ipaddress.ip_interface(text)
    except ValueError:
        return "no IP address"
    if "%" in host or (slash and not prefix.isdecimal()):
        return "not an address and the length of its prefix"
    if own.ip.is_loopback:
        return "this host's loopback"
    # RFC 1122, 3.2.1.3: "this network" is 0/8.
    if own.ip.is_multicast or own.ip.is_unspecified or (own.version == 4 and own.ip.packed[0] == 0):
        return "the address of no one station"
    if own.version == 6:
        return None
    if own.ip == ipaddress.IPv4Address("255.255.255.255"):
        return "the address of all stations"
    # From /31 on all addresses of a network are stations' (RFC 3021).
    if 0 < own.network.prefixlen <= 30:
        if own.ip == own.network.network_address:
            return f"the address of the whole network {own.network}"
        if own.ip == own.network.broadcast_address:
            return f"the broadcast address of the network {own.network}"
    return None


def is_same_address(bind_host: str, word: str) -> bool:
    """Whether a port's address given twice is one: the word may add a prefix's length, and must not leave one out."""
    prefix, other_prefix = bind_host.partition("/")[2], word.partition("/")[2]
    try:
        same = ipaddress.ip_interface(bind_host).ip == ipaddress.ip_interface(word).ip
    except ValueError:
        return True  # no address: the driver says so
    return same and prefix in ("", other_prefix)
