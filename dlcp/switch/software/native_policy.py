"""A policy as the compiled switch takes it: per port, by number, with `never` for thresholds that are not met.

Pure: nothing is opened. What a policy asks and this switch cannot do is refused here, by its field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlcp import _native
from dlcp.switch.policy import DROPPABLE_LEVELS, TRAFFIC_CLASSES, Policy, PolicyError, Thresholds
from dlcp.switch.software.errors import PortNameError

NEVER: int = _native.SWITCH_NEVER


def check(policy: Policy, ports: Sequence[str]) -> None:
    """PolicyError or PortNameError for what this switch cannot do with these ports."""
    if policy.pause_above_bytes is not None:
        raise PolicyError(
            f"pause_above_bytes is {policy.pause_above_bytes}; accepted: none, a software switch cannot pause who sends"
            " into an interface (IEEE 802.1Qbb)"
        )
    for name, fields in policy.named_ports().items():
        if name not in ports:
            raise PortNameError(
                f"the policy names port {name!r} ({', '.join(fields)}), which is not among --ports "
                f"{','.join(ports)}: add it as INTERFACE={name}, or take it out of the policy"
            )


def trimmed_dscp(policy: Policy) -> int | None:
    """What is written into trimmed packets: the first DSCP of the class that they go on in. None: theirs stays."""
    values = policy.traffic_class(policy.trimmed_class).dscp
    return values[0] if values else None


def port_rate(policy: Policy, port: str, rate_bps: int) -> int:
    """The port's own rate, or `rate_bps` if the policy does not name the port."""
    return next((p.rate_bps for p in policy.ports if p.name == port), rate_bps)


def to_native(
    policy: Policy, ports: Sequence[str], rate_bps: int, addresses: Mapping[str, str]
) -> _native.SwitchConfiguration:
    """The whole configuration. `addresses`: MAC address → port or group, told for good."""
    check(policy, ports)
    out = _native.SwitchConfiguration()
    for dscp, traffic_class in policy.class_of_dscp().items():
        out.set_class(dscp, traffic_class)
    out.set_foreign_class(policy.foreign_class)
    written = trimmed_dscp(policy)
    if written is not None:
        out.set_trimmed_dscp(written)
    for port in ports:
        out.add_port(_port(policy, port, port_rate(policy, port, rate_bps)))
    groups = list(policy.path_groups)
    for members in policy.path_groups.values():
        out.add_group([ports.index(member) for member in members])
    for mac, target in addresses.items():
        if target not in ports and target not in groups:
            accepted = ", ".join([*ports, *groups])
            raise PortNameError(f"address {mac} lies behind {target!r}; accepted: {accepted}")
        is_group = target not in ports
        out.add_address(parse_mac(mac), groups.index(target) if is_group else ports.index(target), is_group)
    return out


def parse_mac(text: str) -> int:
    """02:00:00:00:00:01 as a number. PortNameError: it is none."""
    parts = text.split(":")
    try:
        values = [int(part, 16) for part in parts]
    except ValueError:
        values = []
    if len(values) != 6 or any(not 0 <= value <= 255 for value in values):
        raise PortNameError(f"MAC address {text!r}; accepted: six bytes in hex, as 02:00:00:00:00:01")
    return int.from_bytes(bytes(values))


def format_mac(mac: int) -> str:
    """The number as people write it."""
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6))


def _port(policy: Policy, port: str, rate_bps: int) -> _native.SwitchPort:
    out = _native.SwitchPort()
    out.rate_bps = rate_bps
    for number in range(TRAFFIC_CLASSES):
        traffic_class = policy.traffic_class(number, port)
        for level in range(DROPPABLE_LEVELS + 1):
            _set_thresholds(out, number, level, traffic_class.level(level))
    out.set_buffer(_bytes(policy.port_bytes), policy.shared_bytes or 0, policy.shared_alpha_log2)
    out.set_trimmed(policy.trimmed_class, policy.trimmed_run_packets)
    out.set_path_choice(policy.path_choice)
    return out


def _set_thresholds(out: _native.SwitchPort, number: int, level: int, at: Thresholds) -> None:
    out.set_thresholds(
        number,
        level,
        _bytes(at.mark_from_bytes),
        _bytes(at.mark_full),
        # Of 65536; sixteen bits come as near to always as 65535.
        min(round(at.mark_ratio * 65536), 65535),
        _bytes(at.trim_above_bytes),
        _bytes(at.drop_above_bytes),
    )


def _bytes(value: int | None) -> int:
    return NEVER if value is None else value
