"""A policy as the compiled switch takes it: per port, by number, with `never` for thresholds that are not met.

Pure: nothing is opened. A field that this switch cannot carry out is refused here, by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlcp import _native
from dlcp.switch.policy import Policy, PolicyError
from dlcp.switch.software.errors import PortNameError


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


def port_rate(policy: Policy, port: str, rate_bps: int) -> int:
    """The port's own rate, or `rate_bps` if the policy does not name the port."""
    described = policy.port(port)
    return rate_bps if described is None else described.rate_bps


def to_native(
    policy: Policy, ports: Sequence[str], rate_bps: int, addresses: Mapping[str, str]
) -> _native.SwitchConfiguration:
    """The whole configuration. `addresses`: MAC address → port or group; the switch never learns these anew."""
    check(policy, ports)
    out = _native.SwitchConfiguration()
    for dscp, traffic_class in policy.class_of_dscp().items():
        out.set_class(dscp, traffic_class)
    out.set_foreign_class(policy.foreign_class)
    written = policy.resolved().trimmed_dscp
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
    return ":".join(f"{byte:02x}" for byte in mac.to_bytes(6))


def _port(policy: Policy, port: str, rate_bps: int) -> _native.SwitchPort:
    numbers = policy.resolved(port)
    out = _native.SwitchPort()
    out.rate_bps = rate_bps
    for traffic_class, levels in enumerate(numbers.thresholds):
        for level, thresholds in enumerate(levels):
            out.set_thresholds(traffic_class, level, *thresholds)
    out.set_buffer(numbers.port_bytes, numbers.shared_bytes, policy.shared_alpha_log2)
    out.set_trimmed(policy.trimmed_class, policy.trimmed_run_packets)
    out.set_path_choice(policy.path_choice)
    return out
