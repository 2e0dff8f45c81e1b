"""Hints of a firewall: whether something on this host filters what comes in.

Rules can only be read by root and only by the programs that write them, and other firewalls stand between hosts; so
this says what to look at and never that the pair is free. That is what the tests between ranks are for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

from dlcp.doctor.files import output
from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.transport import Settings

FIREWALL = Topic("firewall")


@listed
def look_at_firewall(settings: Settings) -> Iterator[Finding]:
    """Findings about filters of this host. Runs nft and iptables, if they are there, to read."""
    if os.geteuid() != 0:
        yield FIREWALL.ok("not looked at: only root can read the rules", "sudo dlcp doctor")
        return
    chains = _nft_chains()
    legacy = output("iptables", "-S", "INPUT")
    if chains is None and legacy is None:
        yield FIREWALL.ok("not looked at: neither nft nor iptables is here to read the rules")
        return
    ports = ports_of(settings)
    for chain in chains or []:
        yield FIREWALL.warn(
            f"nft's chain {chain['table']} {chain['name']} drops what no rule accepts; see that UDP comes in",
            f"nft insert rule {chain['family']} {chain['table']} {chain['name']} udp dport {ports} accept",
        )
    legacy_drops = legacy is not None and "-P INPUT DROP" in legacy
    if legacy_drops and not chains:
        yield FIREWALL.warn(
            "iptables drops incoming packets that no rule accepts; see that UDP comes in",
            f"iptables -I INPUT -p udp --dport {ports.replace('-', ':')} -j ACCEPT",
        )
    if not chains and not legacy_drops:
        yield FIREWALL.ok("nothing on this host drops incoming packets by default")


def ports_of(settings: Settings) -> str:
    """The UDP ports that peers send to, as nft writes them."""
    ports = settings.ports
    if ports[0] == 0:
        return "1024-65535"
    return f"{ports[0]}-{ports[-1]}" if len(ports) > 1 else str(ports[0])


def _nft_chains() -> list[dict[str, Any]] | None:
    """Base chains of nft that filter input and drop by default; None: not known."""
    text = output("nft", "-j", "list", "chains")
    if text is None:
        return None
    try:
        found = json.loads(text)["nftables"]
    except (ValueError, KeyError, TypeError):
        return None
    chains = [one["chain"] for one in found if "chain" in one]
    return [one for one in chains if one.get("hook") == "input" and one.get("policy") == "drop"]
