"""What the kernel says of a network card: driver, speed and offloads, by the ethtool ioctl (linux/ethtool.h).

Asked of the kernel rather than of the program, which is often not installed, and rather than of /sys, which may show
another network namespace. Needs no privilege. What a driver does not say is None; nothing here changes anything.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import socket
import struct
from dataclasses import dataclass

_SIOCETHTOOL = 0x8946
_GDRVINFO, _GSTRINGS, _GSSET_INFO, _GFEATURES, _GLINKSETTINGS = 0x03, 0x1B, 0x37, 0x3A, 0x4C
_FEATURE_STRINGS = 4  # ETH_SS_FEATURES
_STRING_BYTES = 32
_SPEED_UNKNOWN = 0xFFFFFFFF
# struct ethtool_drvinfo: cmd, driver, version, firmware, bus, erom, reserved, five counts.
_DRVINFO_BYTES = 196
# struct ethtool_link_settings without its masks, and room for the masks of three times 127 words.
_LINK_SETTINGS_BYTES = 48 + 3 * 127 * 4


@dataclass(frozen=True, slots=True)
class Card:
    """One interface as its driver describes it."""

    driver: str | None
    speed_bps: int | None
    features: dict[str, bool]
    """Offloads by ethtool's names (`ethtool -k`), and whether they are on. Empty: not known."""


def read_card(interface: str) -> Card:
    """What the driver says of an interface; what it does not say is None or absent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        return Card(
            _driver(channel, interface), _speed_bps(channel, interface), _features(channel, interface)
        )


def _ask(channel: socket.socket, interface: str, request: array.array[int]) -> bool:
    """Fills the request; False: the driver does not answer it."""
    # struct ifreq: a name of 16 bytes, then a union of 24, here a pointer.
    ifreq = struct.pack("16sP16x", interface.encode()[:15], request.buffer_info()[0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(channel, _SIOCETHTOOL, ifreq)
        return True
    return False


def _driver(channel: socket.socket, interface: str) -> str | None:
    request = array.array("B", struct.pack("=I", _GDRVINFO) + bytes(_DRVINFO_BYTES - 4))
    if not _ask(channel, interface, request):
        return None
    return request.tobytes()[4:36].split(b"\0")[0].decode(errors="replace") or None


def _speed_bps(channel: socket.socket, interface: str) -> int | None:
    # First the kernel says how long its masks are, as a negative number; then the same question with that length.
    words = 0
    for _ in range(2):
        request = array.array("B", struct.pack("=I", _GLINKSETTINGS) + bytes(_LINK_SETTINGS_BYTES - 4))
        struct.pack_into("=b", request, 15, words)
        if not _ask(channel, interface, request):
            return None
        words = -struct.unpack_from("=b", request, 15)[0]
    speed_mbps: int = struct.unpack_from("=I", request, 4)[0]
    return None if speed_mbps in (0, _SPEED_UNKNOWN) else speed_mbps * 1_000_000


def _features(channel: socket.socket, interface: str) -> dict[str, bool]:
    request = array.array("B", struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _FEATURE_STRINGS, 0))
    if not _ask(channel, interface, request):
        return {}
    count: int = struct.unpack_from("=I", request, 16)[0]
    strings = array.array(
        "B", struct.pack("=III", _GSTRINGS, _FEATURE_STRINGS, count) + bytes(count * _STRING_BYTES)
    )
    blocks = (count + 31) // 32
    # Per 32 features: available, requested, active, never changed.
    states = array.array("B", struct.pack("=II", _GFEATURES, blocks) + bytes(blocks * 16))
    if not (_ask(channel, interface, strings) and _ask(channel, interface, states)):
        return {}
    found = {}
    for number in range(count):
        name = strings.tobytes()[12 + number * _STRING_BYTES :][:_STRING_BYTES].split(b"\0")[0].decode()
        active = struct.unpack_from("=I", states, 8 + (number // 32) * 16 + 8)[0]
        if name:
            found[name] = bool(active >> (number % 32) & 1)
    return found
