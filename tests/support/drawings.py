"""Writes docs/states.md, the state machines drawn from the stored tables: `python -m tests.support.drawings`.

The C++ tests hold tests/tables/states.txt to the tables in the code (native/engine/state_machine.hpp). A line is
`machine from event to`; the first `from` of a machine is its initial state. The drawings are in Mermaid's language.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "tests" / "tables" / "states.txt"
DOCUMENT = ROOT / "docs" / "states.md"
HEAD = """# State machines

`make drawings` writes this page from the transition tables in the code, and a test compares them. The tables stand in
`native/engine/*_states.hpp` and `native/collective/states.hpp`; each event is explained there.

"""


def page(table: str) -> str:
    """The page for a table: a heading and a Mermaid state diagram for each machine."""
    machines: dict[str, list[tuple[str, str, str]]] = {}
    for line in table.splitlines():
        machine, source, event, target = line.split()
        machines.setdefault(machine, []).append((source, event, target))
    return HEAD + "\n".join(_drawing(name, transitions) for name, transitions in machines.items())


def _drawing(machine: str, transitions: list[tuple[str, str, str]]) -> str:
    lines = [f"## {machine.replace('_', ' ').capitalize()}", "", "```mermaid", "stateDiagram-v2"]
    lines.append(f"    [*] --> {transitions[0][0]}")
    merged: dict[tuple[str, str], list[str]] = {}
    for source, event, target in transitions:
        merged.setdefault((source, target), []).append(event)
    lines += [
        f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in merged.items()
    ]
    return "\n".join([*lines, "```", ""])


if __name__ == "__main__":
    DOCUMENT.write_text(page(TABLES.read_text()))
