"""The report of a deployment, its findings and writes: lines for people, JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dlcp.switch.deploy.transaction import Comparison, Pipelines
from dlcp.switch.deploy.update import Update, UpdateKind, described, was


def text(comparisons: Sequence[Comparison]) -> str:
    """The differences of each switch, `+` for what comes, `~` for what changes, `-` for what goes."""
    return "\n".join(line for seen in comparisons for line in _lines(seen))


def _lines(seen: Comparison) -> Iterator[str]:
    target = seen.desired.target
    where = target.where
    if not seen.changes:
        yield f"{where}: holds it already"
        return
    count = len(seen.updates)
    yield f"{where}: {count} {'change' if count == 1 else 'changes'}"
    if seen.holds is Pipelines.none:
        yield f"  + pipeline {target.program}, where nothing ran"
    elif seen.holds is Pipelines.other:
        yield f"  ~ pipeline {target.program} INSTEAD OF another one ({seen.title}) and all its entries"
    for update in seen.updates:
        yield f"  {_line(update)}"


def _line(update: Update) -> str:
    if update.kind is UpdateKind.modify and update.before is not None:
        return f"~ {described(update.entry)}   (was {was(update.entry, update.before)})"
    return f"{update.kind.value} {described(update.entry)}"


def document(
    comparisons: Sequence[Comparison], refused: Sequence[str], notes: Sequence[str], deployed: bool
) -> dict[str, Any]:
    """The same as plain data."""
    return {
        "deployed": deployed,
        "refused": list(refused),
        "notes": list(notes),
        "switches": [
            {
                "name": seen.desired.target.name,
                "address": seen.desired.target.address,
                "device_id": seen.desired.target.device_id,
                "program": seen.desired.target.program,
                "pipeline": seen.holds.name,
                "pipeline_title": seen.title,
                "other_primary": seen.primary,
                "changes": [
                    {
                        "kind": update.kind.name,
                        "entry": described(update.entry),
                        "before": None if update.before is None else described(update.before),
                    }
                    for update in seen.updates
                ],
            }
            for seen in comparisons
        ],
    }
