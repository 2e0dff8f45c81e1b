"""A whole switch made of the twins: frames in, frames out, with what waits in between. Slow and obvious.

It reads the same policy and topology as the product and is what programs are compared with, packet by packet. It knows
no tables and no P4: forwarding is told here once more in plain Python.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, field, replace

from dlcp.switch.policy import Policy
from dlcp.switch.topology import BridgeEntry, Route, SwitchTarget
from tests.support import frame_twin, switch_twin
from tests.support.frame_twin import Classification, Frame


@dataclass
class Words:
    """Random words of one packet: for its path, and for its mark."""

    path: tuple[int, int] = (0, 0)
    mark: int = 0


@dataclass(frozen=True)
class Copy:
    """A frame that joins a queue."""

    port: int
    traffic_class: int
    frame: bytes
    counted: bool = True
    """Whether it adds to the depths; what is flooded does not."""


@dataclass(frozen=True)
class Hop:
    """Where a routed packet goes: port and next hop."""

    port: str
    mac: str


@dataclass
class Pipeline:
    """One switch. `arrive` answers what joins queues; `leave` is told when it goes."""

    policy: Policy
    target: SwitchTarget
    queues: Counter[tuple[int, int]] = field(default_factory=Counter)
    turns: Counter[object] = field(default_factory=Counter)

    def waiting(self, port: int) -> int:
        """Bytes at a port."""
        return sum(size for (at, _), size in self.queues.items() if at == port)

    def arrive(self, frame: bytes, port: int, words: Words) -> list[Copy]:
        """What becomes of a frame that comes in at a port."""
        trimmed = self.policy.traffic_class(self.policy.trimmed_class).dscp
        by = Classification(
            self.policy.class_of_dscp(), self.policy.foreign_class, trimmed[0] if trimmed else None
        )
        read = frame_twin.read_frame(frame, by)
        if read.kind == "malformed":
            return []
        macs = [_mac(mac) for mac in self.target.router_macs]
        if frame[:6] in macs:
            hop = self._route(frame, read, words)
            return [] if hop is None else self._admit(frame, read, by, hop.port, words, hop)
        name = {number: name for name, number in self.target.ports.items()}[port]
        groups = self.target.groups_under(self.policy)
        own = next((group for group, members in groups.items() if name in members), None)
        entry = next((entry for entry in self.target.bridge if _mac(entry.mac) == frame[:6]), None)
        if entry is None:
            return self._flood(frame, read, name, own)
        # What is not forwarded takes no turn in its group.
        if entry.port == name or (own is not None and entry.group == own):
            return []
        out = self._way(entry, read, words)
        return self._admit(frame, read, by, out, words, None)

    def leave(self, copy: Copy) -> None:
        """Its transmission begins."""
        if copy.counted:
            self.queues[copy.port, copy.traffic_class] -= len(copy.frame)

    # ---- where to ----

    def _way(self, to: BridgeEntry | Route, read: Frame, words: Words) -> str:
        """The port behind which an address lies."""
        if to.group is None:
            assert to.port is not None
            return to.port
        members = self.target.groups_under(self.policy)[to.group]
        key = (to.group, isinstance(to, Route) and tuple(to.next_hops[port] for port in members))
        given = switch_twin.PathInputs(
            read.flow, read.path, self.target.path_salt, self.turns[key], words.path[1] << 32 | words.path[0]
        )
        self.turns[key] += 1
        first, second = switch_twin.choose_path(self.policy.path_choice, given, len(members))
        behind = [self.waiting(self.target.ports[members[index]]) for index in (first, second)]
        return members[second if behind[1] < behind[0] else first]

    def _route(self, frame: bytes, read: Frame, words: Words) -> Hop | None:
        if read.kind not in ("ipv4", "ipv6"):
            return None
        at, size, ttl = {"ipv4": (30, 4, 22), "ipv6": (38, 16, 21)}[read.kind]
        if frame[ttl] <= 1:
            return None
        address = ipaddress.ip_address(frame[at : at + size])
        fitting = [route for route in self.target.routes if address in route.network]
        if not fitting:
            return None
        best = max(fitting, key=lambda route: route.network.prefixlen)
        port = self._way(best, read, words)
        mac = best.next_hop if best.group is None else best.next_hops[port]
        assert mac is not None
        return Hop(port, mac)

    def _flood(self, frame: bytes, read: Frame, name: str, own: str | None) -> list[Copy]:
        groups = self.target.groups_under(self.policy)
        grouped = {port for members in groups.values() for port in members}
        ports = [port for port in self.target.ports if port not in grouped and port != name]
        ports += [members[0] for group, members in groups.items() if group != own]
        numbers = sorted(self.target.ports[port] for port in ports)
        return [Copy(number, read.packet.traffic_class, frame, counted=False) for number in numbers]

    # ---- whether ----

    def _admit(
        self, frame: bytes, read: Frame, by: Classification, out: str, words: Words, hop: Hop | None
    ) -> list[Copy]:
        port = self.target.ports[out]
        classes = tuple(self.policy.traffic_class(number, out) for number in range(8))
        policy = replace(self.policy, classes=tuple(replace(c, dscp=()) for c in classes), ports=())
        used = sum(self.queues.values())
        free = 0 if policy.shared_bytes is None else policy.shared_bytes - used

        def depths(traffic_class: int) -> switch_twin.Depths:
            return switch_twin.Depths(self.queues[port, traffic_class], self.waiting(port), free)

        left = frame_twin.trimmed_bytes(read)
        packet = read.packet
        verdict = switch_twin.admit(
            policy, packet, depths(packet.traffic_class), words.mark, left, depths(policy.trimmed_class)
        )
        if "drop" in verdict:
            return []
        traffic_class = packet.traffic_class
        if verdict == "mark":
            frame = frame_twin.mark(frame, read)
        elif verdict == "trim":
            frame = frame_twin.trim(frame, read, by)
            traffic_class = policy.trimmed_class
        if hop is not None:
            frame = self._routed(frame, read, hop)
        self.queues[port, traffic_class] += len(frame)
        return [Copy(port, traffic_class, frame)]

    def _routed(self, frame: bytes, read: Frame, hop: Hop) -> bytes:
        """With the addresses of the hop, and a hop less to live."""
        frame = _mac(hop.mac) + _mac(self.target.router_macs[0]) + frame[12:]
        ttl = {"ipv4": 22, "ipv6": 21}[read.kind]
        frame = frame[:ttl] + bytes([frame[ttl] - 1]) + frame[ttl + 1 :]
        return frame_twin.with_ipv4_checksum(frame) if read.kind == "ipv4" else frame


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
