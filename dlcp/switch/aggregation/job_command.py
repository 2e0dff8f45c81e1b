"""`dlcp switch jobs write`: writes the file of jobs for one switch of a topology to standard output.

The topology has the switch's ports and the MAC addresses behind them; IP addresses it has not, so they are given. The
first line is a comment with what the job's ranks are told. `dlcp lab jobs` is the same for a lab, which has them all.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dlcp.errors import SettingsError
from dlcp.switch.aggregation.deployment import wanted_jobs
from dlcp.switch.aggregation.entries import MAX_GENERATIONS, SLOTS, JobRequest, Participant, in_a_row
from dlcp.switch.aggregation.job_file import job_text
from dlcp.switch.topology import SwitchTarget, Topology

UDP_PORT = 23701
"""Below the ports that Linux gives to sockets which ask for none: another socket of the host may have one of those."""
NUMBERS = ("job", "slots", "generation", "generations")


def add_numbers(parser: argparse.ArgumentParser, slots: int) -> None:
    """The words for what a job has besides its hosts. Ranges are JobRequest's to check."""
    parser.add_argument("--job", type=int, default=1, metavar="N", help="number of the job (%(default)s)")
    parser.add_argument(
        "--slots", type=int, default=slots, metavar="N", help=f"of the switch's {SLOTS} (%(default)s)"
    )
    parser.add_argument("--generation", type=int, default=1, metavar="N", help="the first that is admitted")
    parser.add_argument(
        "--generations",
        type=int,
        default=1,
        metavar="N",
        help=f"that are admitted, up to {MAX_GENERATIONS} (1)",
    )
    parser.add_argument(
        "--udp-port",
        type=int,
        default=UDP_PORT,
        metavar="PORT",
        help="the hub's and first rank's (%(default)s); not of net.ipv4.ip_local_port_range",
    )
    parser.add_argument(
        "--ranks-per-host", type=int, default=1, metavar="N", help="in the order of the hosts (%(default)s)"
    )


def add_parser(roles: Any) -> None:
    part = roles.add_parser("write", help="write the file of jobs for a switch of a topology")
    part.add_argument(
        "--target", metavar="TOPOLOGY", type=Path, required=True, help="the switches, as of deploy"
    )
    part.add_argument("--switch", metavar="NAME", help="of the topology; default: its only one")
    places = "port and IPv4 address"
    part.add_argument(
        "--hosts",
        nargs="+",
        required=True,
        metavar="PORT=IP[,MAC]",
        help=f"{places} of each, in order of rank",
    )
    part.add_argument(
        "--hub", required=True, metavar="PORT=IP[,MAC]", help=f"{places} that no rank has; nothing runs there"
    )
    add_numbers(part, slots=128)


def run(options: argparse.Namespace) -> int:
    """Prints the file. SettingsError: the switch, a place or a number cannot be."""
    target = _switch(Topology.load(options.target), options.switch)
    if options.ranks_per_host < 1:
        raise SettingsError(f"--ranks-per-host is {options.ranks_per_host}; accepted: 1 or more")
    hosts = [_place("--hosts", target, words, options.udp_port) for words in options.hosts]
    workers = in_a_row(host for host in hosts for _ in range(options.ranks_per_host))
    numbers = {name: getattr(options, name) for name in NUMBERS}
    request = JobRequest(
        workers=workers, hub=_place("--hub", target, options.hub, options.udp_port), **numbers
    )
    wanted_jobs(target, [request])  # all that the P4 program cannot do is refused here already
    names = {number: name for name, number in target.ports.items()}
    print(f"# On every rank: DLCP_AGGREGATION='{request.ranks_setting}'")
    print(job_text([{"switch": target.name, **request.to_table(names)}]), end="")
    return 0


def _switch(topology: Topology, name: str | None) -> SwitchTarget:
    known = {target.name: target for target in topology.switches}
    if name is None and len(known) == 1:
        return topology.switches[0]
    if name not in known:
        raise SettingsError(f"--switch is {name!r}; accepted: a switch of the topology: {', '.join(known)}")
    return known[name]


def _place(option: str, target: SwitchTarget, words: str, udp_port: int) -> Participant:
    port, equals, address = words.partition("=")
    ip, _, mac = address.partition(",")
    if not equals or port not in target.ports:
        ports = ", ".join(target.ports)
        raise SettingsError(
            f"{option} has {words!r}; accepted: PORT=IP, with a port of {target.name}: {ports}"
        )
    if not mac:
        behind = [entry.mac for entry in target.bridge if entry.port == port]
        if len(behind) != 1:
            what = ", ".join(behind) or "no MAC address"
            raise SettingsError(
                f"{option} has {words!r}, and the topology has {what} behind {port}; accepted: PORT=IP,MAC"
            )
        mac = behind[0]
    place = Participant(target.ports[port], mac, ip, udp_port)
    place.validate(f"{option} {words}")
    return place
