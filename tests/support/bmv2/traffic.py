"""Random frames for switches, the same from the same seed.

Every DSCP and ECN value, both versions of IP, wrong checksums and lengths, dying packets, dlcp of every kind, VLAN
tags, options, fragments, and what is not IP at all.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.support import frame_builder as build
from tests.support import wire_twin
from tests.support.frame_twin import AUTHENTICATED

LONGEST_PAYLOAD = 1300


class Traffic:
    """Frames to some MAC addresses, from a seed; `dscp`: values that most of them have."""

    def __init__(self, seed: int, destinations: Sequence[bytes], dscp: Sequence[int]) -> None:
        self._random = random.Random(seed)
        self._destinations = destinations
        self._dscp = dscp

    def frame(self, destination: bytes | None = None) -> bytes:
        """One frame."""
        draw = self._random
        to = draw.choice(self._destinations) if destination is None else destination
        source = bytes([2, 0, 0, 0, 1, draw.randrange(256)])
        if draw.random() < 0.06:
            return self._foreign(to, source)
        if draw.random() < 0.65:
            packet, kind = self._ipv4(), build.IPV4
        else:
            packet, kind = self._ipv6(), build.IPV6
        padding = bytes(draw.choice((0, 0, 0, 1, 18)))
        return build.ethernet(packet + padding, kind, to, source)

    def _foreign(self, to: bytes, source: bytes) -> bytes:
        draw = self._random
        match draw.randrange(4):
            case 0:
                return build.ethernet(draw.randbytes(draw.randrange(0, 60)), build.ARP, to, source)
            case 1:
                tagged = bytes([draw.randrange(16), draw.randrange(256)]) + b"\x08\x00" + self._ipv4()
                return build.ethernet(tagged, build.VLAN, to, source)
            case 2:  # an IP packet that ends too early
                return build.ethernet(self._ipv4()[: draw.randrange(0, 28)], build.IPV4, to, source)
            case _:
                return build.ethernet(self._ipv6()[: draw.randrange(0, 48)], build.IPV6, to, source)

    def _tos(self) -> int:
        draw = self._random
        if draw.random() < 0.25:
            return draw.randrange(256)
        return draw.choice(self._dscp) << 2 | draw.choice((0, 0, 1, 2, 3))

    def _transport(self) -> tuple[bytes, int]:
        draw = self._random
        ports = {"source": draw.randrange(1, 65536), "destination": draw.choice((4791, 443, 65535))}
        if draw.random() < 0.08:
            return build.tcp(draw.randbytes(draw.randrange(40)), **ports), 6
        if draw.random() < 0.05:
            return draw.randbytes(draw.randrange(40)), draw.choice((1, 47, 58))
        size = draw.choice((0, 1, 64, 500, LONGEST_PAYLOAD))
        content = build.dlcp(
            size,
            type=draw.choice(
                (wire_twin.DATA, wire_twin.DATA, wire_twin.DATA, wire_twin.CONTROL, wire_twin.HELLO)
            ),
            flags=draw.choice((0, AUTHENTICATED)),
            importance=draw.randrange(256),
            path=draw.randrange(65536),
            trimmed=draw.random() < 0.1,
            cut=draw.choice((0, 0, 0, 0, 0, 0, 1)) if size else 0,
        )
        if draw.random() < 0.1:
            content = draw.randbytes(draw.randrange(100))
        wrong = draw.random() < 0.03
        return build.udp(
            content, udp_bytes=draw.randrange(0, 2 * len(content) + 9) if wrong else None, **ports
        ), 17

    def _ipv4(self) -> bytes:
        draw = self._random
        content, protocol = self._transport()
        odd = draw.random()
        return build.ipv4(
            content,
            protocol,
            tos=self._tos(),
            addresses=draw.randbytes(4) + bytes([10, 0, draw.randrange(4), draw.randrange(256)]),
            fragment=draw.choice((0x2000, 0x0010, 0x2010)) if odd < 0.03 else 0x4000,
            options=bytes([1, 1, 1, 0]) if 0.03 < odd < 0.06 else b"",
            ttl=draw.choice((0, 1, 2, 64, 255)),
            identification=draw.randrange(65536),
            first_byte=draw.randrange(256) if 0.06 < odd < 0.08 else None,
            total_bytes=draw.randrange(2 * len(content)) if 0.08 < odd < 0.11 and content else None,
            check=draw.randbytes(2) if 0.11 < odd < 0.17 else None,
        )

    def _ipv6(self) -> bytes:
        draw = self._random
        content, protocol = self._transport()
        odd = draw.random()
        prefix = bytes.fromhex("20010db8") + bytes([0, draw.randrange(4)])
        return build.ipv6(
            content,
            protocol,
            tos=self._tos(),
            addresses=draw.randbytes(16) + prefix + draw.randbytes(10),
            flow_label=draw.randrange(1 << 20),
            hop_limit=draw.choice((0, 1, 2, 64)),
            version=draw.randrange(16) if odd < 0.03 else 6,
            payload_bytes=draw.randrange(2 * len(content)) if 0.03 < odd < 0.06 and content else None,
        )
