"""What a launcher such as torchrun sets for every rank, and whether it is all there."""

from __future__ import annotations

from collections.abc import Mapping

from dlcp.doctor.finding import Finding, Topic
from dlcp.rank_processes import LAUNCHER


def look_at_launcher(environ: Mapping[str, str]) -> list[Finding]:
    """A finding if the variables of a launcher are half set: the other ranks are then not looked at.

    MASTER_ADDR alone only says where the job's first rank is.
    """
    there = [name for name in LAUNCHER if environ.get(name)]
    missing = [name for name in LAUNCHER if name not in there]
    if not missing or not {"RANK", "WORLD_SIZE"}.intersection(there) or environ.get("WORLD_SIZE") == "1":
        return []
    text = f"{', '.join(there)} set, {', '.join(missing)} not: only this host is checked, no pairs of ranks"
    return [
        Topic("launcher").warn(text, "run it by torchrun, as `dlcp doctor --help` shows, or with --alone")
    ]
