"""What adds gradients in a lab: who is on which host, the hub's service, the switch's job, and what ranks are told.

All exchanges of a call have one network, so that they compare. Its hosts hang on a bridge; on a software switch if one
of the exchanges is a switch's. With a hub there is one host more, whose link is as fast as those of all ranks together,
as hubs are built (PHub, arXiv 1805.07891).
"""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlcp.lab import Lab
    from dlcp.lab.switched_lab import SwitchedLab
    from dlcp.train.plan import LabLinks, TrainingPlan

HUB_PORT = 7100


def open_lab(plan: TrainingPlan, links: LabLinks) -> Lab | SwitchedLab:
    """The network of a plan's exchanges, to be entered. Raises ValueError and LabError as labs do."""
    hosts, hub_rate_bps = plan.hosts + ("hub" in plan.exchanges), plan.world_size * links.rate_bps
    if "switch" not in plan.exchanges:
        from dlcp.lab import Lab, Link

        own = {plan.hosts: Link(rate_bps=hub_rate_bps)} if hosts > plan.hosts else None
        return Lab(hosts=hosts, rate_bps=links.rate_bps, delay_s=links.delay_s, links=own)
    from dlcp.lab.fabric import Difference, Fabric
    from dlcp.lab.switched_lab import SwitchedLab

    differences = {f"h{plan.hosts}-l0": Difference(hub_rate_bps)} if hosts > plan.hosts else {}
    fabric = Fabric(leaves=1, spines=0, hosts_per_leaf=hosts, host_rate_bps=links.rate_bps, links=differences)
    return SwitchedLab(fabric)


class Exchanges:
    """Those of a call, ready to be used. switch: what ranks are told of it."""

    def __init__(
        self, world_size: int, ranks_per_host: int, hub: str | None, key: Path | None, switch: str | None
    ) -> None:
        self._world_size, self._ranks_per_host = world_size, ranks_per_host
        self._hub, self._key, self._switch = hub, key, switch

    def options(self, exchange: str) -> list[dict[str, Any]]:
        """By rank: settings of its dlcp group for a run by this exchange; empty: as for any run."""
        # What is below 256 KiB would go another way; here all of the gradients are to.
        by_exchange: dict[str, dict[str, Any]] = {
            "": {},
            "ring": {"algorithm": "ring"},
            "hierarchical": {"algorithm": "hierarchical"},
            "hub": {"hub": self._hub, "key_file": str(self._key), "hub_bytes_min": 1},
            "switch": {"aggregation": f"{self._switch}&min_bytes=4"},
        }
        shared = by_exchange[exchange]
        if exchange:
            shared["shm"] = self._ranks_per_host > 1
        return [dict(shared) for _ in range(self._world_size)]


@contextlib.contextmanager
def open_exchanges(
    plan: TrainingPlan, lab: Lab | SwitchedLab, host_of: Sequence[int], folder: Path
) -> Iterator[Exchanges]:
    """Starts what a plan's exchanges need in its lab; ends it. `folder`: for logs. LabError: it does not start."""
    hub = key = switch = None
    with contextlib.ExitStack() as stack:
        if "switch" in plan.exchanges:
            from dlcp.lab.switch_jobs import add_for

            switch = add_for(lab, host_of)  # type: ignore[arg-type]
        if "hub" in plan.exchanges:
            hub, key = stack.enter_context(_hub(lab, plan.hosts, folder))
        yield Exchanges(len(host_of), plan.ranks_per_host, hub, key, switch)


@contextlib.contextmanager
def _hub(lab: Lab | SwitchedLab, host: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """`dlcp hub` on that host: its address, and the file with the job's key."""
    from dlcp.lab.namespaces import launch

    address, log = f"{lab.addresses[host]}:{HUB_PORT}", folder / "hub.log"
    folder.mkdir(parents=True, exist_ok=True)
    secret = secrets.token_hex(32)
    with contextlib.ExitStack() as stack:
        job_key, keys = folder / "job.key", folder / "hub.keys"
        for path, text in ((job_key, secret), (keys, f"job {secret}\n")):
            path.unlink(missing_ok=True)
            path.touch(0o600)
            stack.callback(path.unlink, missing_ok=True)
            path.write_text(text)
        words = [sys.executable, "-m", "dlcp", "hub", "--bind", address, "--keys", str(keys)]
        process = launch("the hub", lab.command(host, words), log, lambda _: b"ready:" in log.read_bytes())
        try:
            yield address, job_key
        finally:
            process.kill()
            process.wait()
