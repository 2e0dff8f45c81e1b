"""What `dlcp doctor` does: alone, between listeners, as every rank of a launcher, and of a host that is to be a hub."""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
from typing import Any

from dlcp.doctor.finding import Verdict, worst
from dlcp.doctor.host import look_at_host
from dlcp.doctor.hosts import Listener, examine_hosts
from dlcp.doctor.hub import look_at_hub
from dlcp.doctor.launcher import look_at_launcher
from dlcp.doctor.ranks import examine_ranks
from dlcp.doctor.report import Examination, Host, terminal_columns, wants_colour
from dlcp.doctor.software import describe_host
from dlcp.errors import JobError
from dlcp.rank_processes import launched
from dlcp.transport import Settings
from dlcp.transport.store import Store

# Options that are settings.
_SETTINGS = ("bind_host", "port", "interface", "key_file", "allow_unauthenticated")


def run(options: argparse.Namespace) -> int:
    """Does what the options say. Returns the exit status. Raises DlcpError: it cannot look."""
    # What endpoints warn of is among the findings; DLCP_LOG_LEVEL shows it still.
    logging.getLogger("dlcp").addHandler(logging.NullHandler())
    if options.listen:
        return _listen(options)
    found: Examination | None
    if options.hub:
        found = _examine_hub(options)
    elif options.peers:
        found = examine_hosts(options.peers, Settings.load(**_changes(options)), options.timeout)
    elif not options.alone and launched() and os.environ["WORLD_SIZE"] != "1":
        found = _examine_ranks(options)
    else:
        findings = [] if options.alone else look_at_launcher(os.environ)
        findings += look_at_host(options.toward, _environ(options))
        found = Examination([], [Host(describe_host(), findings)], [], [])
    if found is None:
        return 0  # rank 0 prints
    if options.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        for line in found.lines(verbose=options.verbose, colour=wants_colour(), columns=terminal_columns()):
            print(line)
    return 1 if worst(found.everything) == Verdict.FAIL else 0


def _examine_hub(options: argparse.Namespace) -> Examination:
    hub_bps = None if options.hub_gbps is None else options.hub_gbps * 1e9
    settings = Settings.load(**_changes(options))
    findings = look_at_hub(settings, options.workers, options.worker_gbps * 1e9, hub_bps, options.toward)
    return Examination([], [Host(describe_host(), findings)], [], [])


def _listen(options: argparse.Namespace) -> int:
    try:
        with Listener(Settings.load(**_changes(options))) as listener:
            asking = f"dlcp doctor --peers {listener.address}"
            print(f"listening on {listener.address}; on one host: {asking}", flush=True)
            listener.join()
    except KeyboardInterrupt:
        pass
    return 0


def _examine_ranks(options: argparse.Namespace) -> Examination | None:
    store, rank, size = _rendezvous()
    # Loaded by now.
    from torch.distributed import DistError

    try:
        return examine_ranks(
            store,
            rank,
            size,
            toward=os.environ["MASTER_ADDR"],
            environ=_environ(options),
            timeout_s=options.timeout,
            changes=_changes(options),
        )
    except DistError as error:
        reason = str(error).partition("\n")[0]
        text = f"rank {rank} lost the launcher's store: {reason}; see whether rank 0 has died"
        raise JobError(text) from error


def _rendezvous() -> tuple[Store, int, int]:
    """The launcher's store, as torch.distributed would find it, rank and size. Raises JobError: it is not there."""
    # Its own lines would stand between the findings; what fails is said below.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
    from torch.distributed import DistNetworkError
    from torch.distributed.rendezvous import rendezvous

    host, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    try:
        store, rank, size = next(rendezvous("env://", timeout=datetime.timedelta(seconds=60)))
    except (DistNetworkError, OSError, ValueError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise JobError(
            f"rank {os.environ['RANK']} does not reach the launcher's store at {host}:{port} (TCP): {reason}; see that"
            f" MASTER_ADDR is rank 0's address and TCP port {port} is let in: nc -vz {host} {port}"
        ) from error
    return store, rank, size


def _changes(options: argparse.Namespace) -> dict[str, Any]:
    given = {name: getattr(options, name) for name in _SETTINGS}
    return {name: value for name, value in given.items() if value is not None}


def _environ(options: argparse.Namespace) -> dict[str, str]:
    """The environment as if the options had been in it, for findings about settings."""
    changed = {f"DLCP_{name.upper()}": str(value) for name, value in _changes(options).items()}
    return {**os.environ, **changed}
