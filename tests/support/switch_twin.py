"""The switch's decision a second time: slow, obvious, in exact fractions, from the comments of native/switch.

It is the oracle for the golden vectors in `switch_*.txt`, which hold the C++ model and the P4 programs together. It
reads the policy object that all targets are rendered from, and shares no code with any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

from dlcp.switch.policy import Policy, Thresholds

CRITICAL_LEVEL = 8
MARK_STEPS = 16
NEVER = math.inf


@dataclass(frozen=True)
class Packet:
    """What a switch reads of a packet."""

    traffic_class: int = 0
    importance: int = 0
    ecn_capable: bool = False
    trimmable: bool = False
    bytes: int = 1500
    foreign: bool = False


@dataclass(frozen=True)
class Depths:
    """What waits where it is to go."""

    queue_bytes: int = 0
    port_bytes: int = 0
    shared_free_bytes: int = 0


def level_of(packet: Packet) -> int:
    """Critical packets have their own; the others one of eight, 32 values of importance each."""
    return CRITICAL_LEVEL if packet.ecn_capable else packet.importance // 32


def thresholds_of(policy: Policy, packet: Packet) -> Thresholds:
    """Of the packet's class and level; none at all if the policy does not name the class."""
    return policy.traffic_class(packet.traffic_class).level(level_of(packet))


def has_room(policy: Policy, packet: Packet, depths: Depths) -> bool:
    """Whether the buffer can hold the packet."""
    if policy.shared_bytes is not None:
        alpha = Fraction(2) ** policy.shared_alpha_log2
        most = math.floor(alpha * depths.shared_free_bytes)
        return packet.bytes <= depths.shared_free_bytes and depths.queue_bytes + packet.bytes <= most
    return policy.port_bytes is None or depths.port_bytes + packet.bytes <= policy.port_bytes


def ratio_of(mark_ratio: float) -> int:
    """Of 65536; 65535 is as near to always as sixteen bits come."""
    return min(round(mark_ratio * 65536), 65535)


def marked(at: Thresholds, depth_bytes: int, random: int) -> bool:
    """Whether a critical packet is marked that finds `depth_bytes` in its queue."""
    if at.mark_from_bytes is None or depth_bytes <= at.mark_from_bytes:
        return False
    full = at.mark_full
    assert full is not None
    if depth_bytes >= full:
        return True
    # Sixteen equal steps between; in each the probability of its middle.
    width = Fraction(full - at.mark_from_bytes, MARK_STEPS)
    step = next(i for i in range(MARK_STEPS) if depth_bytes < at.mark_from_bytes + (i + 1) * width)
    ratio = ratio_of(at.mark_ratio) * (step + Fraction(1, 2)) / MARK_STEPS
    return random % 65536 < math.floor(ratio)


def decide(policy: Policy, packet: Packet, depths: Depths, random: int) -> str:
    """keep, mark, trim or drop."""

    def above(limit: int | None) -> bool:
        return depths.queue_bytes > (NEVER if limit is None else limit)

    room = has_room(policy, packet, depths)
    if packet.foreign:
        return "keep" if room else "drop"
    at = thresholds_of(policy, packet)
    if above(at.drop_above_bytes):
        return "drop"
    if packet.trimmable and at.trim_above_bytes is not None and (above(at.trim_above_bytes) or not room):
        return "trim"
    if not room:
        return "drop"
    return "mark" if packet.ecn_capable and marked(at, depths.queue_bytes, random) else "keep"


def admit(
    policy: Policy, packet: Packet, depths: Depths, random: int, trimmed_bytes: int, trimmed_depths: Depths
) -> str:
    """As `decide`; what is trimmed has to find room once more, cut, in trimmed packets' class: trim, or trim drop."""
    action = decide(policy, packet, depths, random)
    if action != "trim":
        return action
    cut = replace(packet, traffic_class=policy.trimmed_class, trimmable=False, bytes=trimmed_bytes)
    return "trim drop" if decide(policy, cut, trimmed_depths, 0) == "drop" else "trim"


# --- paths ---------------------------------------------------------------------------------------------------


def mix(value: int, salt: int) -> int:
    """MurmurHash3's finaliser of a value, told apart by a switch's salt."""
    h = value ^ (salt * 0x9E3779B9 % 2**32)
    h ^= h >> 16
    h = h * 0x85EBCA6B % 2**32
    h ^= h >> 13
    h = h * 0xC2B2AE35 % 2**32
    h ^= h >> 16
    return h


def pick(word: int, paths: int) -> int:
    """Which of `paths` equal parts of [0, 2^32) a word lies in."""
    return math.floor(Fraction(word, 2**32) * paths)


@dataclass(frozen=True)
class PathInputs:
    """What a path is chosen by."""

    flow: int = 0
    path: int = 0
    salt: int = 0
    turn: int = 0
    random: int = 0


def choose_path(choice: str, given: PathInputs, paths: int) -> tuple[int, int]:
    """The two paths to look at; but for `adaptive` they are the same."""
    low, high = given.random % 2**32, given.random // 2**32
    match choice:
        case "flow_hash":
            index = pick(mix(given.flow, given.salt), paths)
        case "path_id":
            word = mix(given.flow, 0) ^ (given.path * 0x01000193 % 2**32)
            index = pick(mix(word, given.salt), paths)
        case "random":
            index = pick(low, paths)
        case "round_robin":
            index = given.turn % paths
        case "adaptive":
            return pick(low, paths), pick(high, paths)
        case _:
            raise ValueError(choice)
    return index, index
