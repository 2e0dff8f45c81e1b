"""Everything about this host alone, in the order in which a person would look."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from dlcp.doctor.dpdk import look_at_dpdk
from dlcp.doctor.finding import Finding, Topic, Verdict, listed
from dlcp.doctor.firewall import look_at_firewall
from dlcp.doctor.loopback import loopback_pair
from dlcp.doctor.machine import look_at_machine
from dlcp.doctor.network import look_at_network
from dlcp.doctor.opening import look_at_opening
from dlcp.doctor.sockets import look_at_sockets
from dlcp.doctor.software import look_at_settings, look_at_software
from dlcp.doctor.xdp import look_at_xdp
from dlcp.errors import DlcpError


@listed
def look_at_host(
    toward: str | None = None, environ: Mapping[str, str] = os.environ, *, opens: bool = True
) -> Iterator[Finding]:
    """Findings about this host. `toward`: a host of the job, if it is known.

    `opens`: tries to open an endpoint; False where one with these settings is opened anyway, and has the port. Takes
    about half a second; with driver dpdk DPDK's start as well.
    """
    toward = toward or environ.get("MASTER_ADDR") or None
    why_toward = "MASTER_ADDR" if toward == environ.get("MASTER_ADDR") else "a host of the job"
    settings, findings = look_at_settings(environ)
    yield from look_at_software()
    yield from findings
    yield from look_at_network(settings, toward, why_toward)
    # What is wrong is said by then.
    if not any(one.topic == "settings" and one.verdict == Verdict.FAIL for one in findings):
        yield from look_at_opening(settings, toward, opens=opens)
    # Below the kernel its sockets and filters do not see its packets.
    if not settings.below_kernel:
        yield from look_at_sockets(settings)
        yield from look_at_firewall(settings)
    yield from look_at_dpdk(settings)
    yield from look_at_xdp(settings)
    yield from look_at_machine(settings, environ)
    yield look_at_engine()


def look_at_engine() -> Finding:
    """Whether two endpoints of this process reach each other over loopback, and how fast."""
    engine = Topic("engine")
    try:
        pair = loopback_pair()
    except DlcpError as error:
        return engine.fail(f"no endpoint opens on loopback: {error}")
    if pair.rtt_s is None or pair.goodput_bps is None:
        text = f"two endpoints of this process do not reach each other over loopback: {pair.error}"
        return engine.fail(text)
    return engine.ok(
        f"two endpoints exchange authenticated messages over loopback: {pair.goodput_bps / 1e9:.1f} Gbit/s, round trip"
        f" {pair.rtt_s * 1e6:.0f} µs"
    )
