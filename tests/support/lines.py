"""How long each room is: `python -m tests.support.lines` (make lines) writes tests/tables/lines.txt.

A room is a folder of native, dlcp, sim or tests, or another folder of the project; what lies beside folders is of
their parent. Lines of code and of prose are rounded up to hundreds, other files to 10 KB: a small change alters
nothing, and a room that grows is a line of a diff that somebody chose.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests" / "tables" / "lines.txt"
TREES = ("bench", "dlcp", "docs", "examples", "native", "p4", "sim", "tests")
DIVIDED = ("dlcp", "native", "sim", "tests")
CODE = {".c", ".cpp", ".h", ".hpp", ".p4", ".py", ".pyi", ".sh"}
# Made by builds and runs, and ignored by git.
MADE = {".pyc", ".pyo", ".pyd", ".so"}
LINES, KILOBYTES = 100, 10


def table(root: Path = ROOT) -> str:
    """A line per room: its name, hundreds of lines of code and of prose, and tens of KB of anything else."""
    sizes: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            parts = path.relative_to(root).parts
            if (
                not path.is_file()
                or path.suffix in MADE
                or any(part.startswith((".", "__pyc")) for part in parts)
            ):
                continue
            if path == TABLE:
                continue
            room = "/".join(parts[: 2 if tree in DIVIDED and len(parts) > 2 else 1])
            kind = 0 if path.suffix in CODE else 1 if path.suffix == ".md" else 2
            text = path.read_bytes()
            sizes[room][kind] += len(text) if kind == 2 else text.count(b"\n")
    heading = f"{'room':24}{'code':>8}{'prose':>8}{'data KB':>9}\n"
    return heading + "".join(
        f"{room:24}{_up(code, LINES):8}{_up(prose, LINES):8}{_up(-(-data // 1000), KILOBYTES):9}\n"
        for room, (code, prose, data) in sorted(sizes.items())
    )


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


if __name__ == "__main__":
    TABLE.write_text(table())
