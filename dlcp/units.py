"""Units: rates as people write them on a command line, and numbers as people read them.

Python's surface has seconds, bytes and bits per second; the simulator's core has whole picoseconds.
"""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
from collections.abc import Iterator, Sequence

PS_PER_S = 10**12
TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"), (1e-12, "ps"))
RATE_UNITS = ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s"), (1.0, "b/s"))
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SHIFTS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_rate(text: str) -> int:
    """Bits per second, of 25G as of 25g, 25Gbit, 25Gbit/s and 25gbps. ArgumentTypeError says what is accepted.

    A capital B would be bytes, and is refused.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([kKmMgGtT]?)(?:bit(?:/s|ps)?|b/s|bps)?", text)
    if found is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a rate; accepted: such as 500k, 100M, 25G, 25Gbit/s"
        )
    return round(float(found[1]) * _FACTORS[found[2].lower()])


def parse_size(text: str) -> int:
    """Bytes, of 64K as of 64k, 64KB and 64KiB: 1024 each. ArgumentTypeError says what is accepted."""
    found = re.fullmatch(r"([0-9]+) ?([kKmMgGtT]?)(?:i?[bB])?", text)
    if found is None or int(found[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; accepted: such as 512M, 8G (1024 each)")
    return int(found[1]) << _SHIFTS[found[2].lower()]


def parse_fraction(text: str) -> float:
    """A share, of 0.05 as of 5%. Raises ValueError; what range is accepted is the caller's."""
    number = float(text.removesuffix("%"))
    return number / 100 if text.endswith("%") else number


def size(nbytes: int) -> str:
    """Bytes as `parse_size` takes them: 64K, or 4092 if they are no multiple of a unit."""
    unit = next(
        (unit for unit, shift in reversed(_SHIFTS.items()) if nbytes and not nbytes % (1 << shift)), ""
    )
    return f"{nbytes >> _SHIFTS[unit]}{unit.upper()}"


def duration(seconds: float) -> str:
    """A time in a unit that suits it: 198 µs."""
    return _with_unit(seconds, TIME_UNITS)


def rate(bps: float) -> str:
    """A rate in a unit that suits it: 81.3 Gb/s."""
    return _with_unit(bps, RATE_UNITS)


def grouped(number: float) -> str:
    """A whole number with thin groups: 941 320."""
    return f"{number:,.0f}".replace(",", " ")


def plural(count: int, word: str) -> str:
    """How many of what, by its singular: "1 rank", "4 switches"."""
    ending = "" if count == 1 else "es" if word.endswith("ch") else "s"
    return f"{count} {word}{ending}"


def unit_of(value: float, units: Sequence[tuple[float, str]]) -> tuple[float, str]:
    """The largest unit of which there is at least one, or else the smallest; `units` begin with the largest."""
    return next(((size, word) for size, word in units if abs(value) >= size), units[-1])


def _with_unit(value: float, units: Sequence[tuple[float, str]]) -> str:
    """Four digits at most, in the largest unit of which there is at least one."""
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return f"0 {next(unit for size, unit in units if size == 1)}"
    size, unit = unit_of(value, units)
    number = value / size
    digits = len(str(int(abs(number))))
    return f"{number:.{max(0, 4 - digits)}f} {unit}"


def fitted(rows: Sequence[Sequence[str]], gap: str = "  ") -> Sequence[Sequence[str]]:
    """The rows of a table; its columns in their place, where a terminal shows them and is too narrow for the rows."""
    if not sys.stdout.isatty() or _width(rows, gap) <= shutil.get_terminal_size().columns:
        return rows
    turned = list(zip(*rows, strict=True))
    return turned if _width(turned, gap) < _width(rows, gap) else rows


def _width(rows: Sequence[Sequence[str]], gap: str) -> int:
    columns = zip(*rows, strict=True)
    return sum(len(gap) + max(map(len, column)) for column in columns) - len(gap)


def aligned(rows: Sequence[Sequence[str]], left: int = 1, gap: str = "  ") -> Iterator[str]:
    """Rows as lines of text: the first `left` columns to the left, the others to the right, `gap` between."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:left], widths, strict=False)]
        cells += [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        yield gap.join(cells).rstrip()
