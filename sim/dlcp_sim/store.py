"""Results of a sweep in one SQLite file, point by point, so that a sweep goes on where it was stopped.

Three tables, for whoever wants to ask them without us:

    points(key, state, varied, scenario, metadata, error, seconds)   a row per point that was tried
        key       sha-256 of dlcp's version and the scenario without its number of threads, in hex
        state     'done' or 'failed'; a failed point is tried again by the next sweep
        varied    JSON: the settings that differ between points, {"seed": 3, "transport.window_packets": 30}
        scenario  JSON: the whole scenario, as its TOML file says it
        metadata  JSON: Result.metadata; NULL if failed
        error     what went wrong; NULL if done
        seconds   of real time
    figures(key, name, value)                one number per row: completion_p99_s, packets_dropped, …
    arrays(key, name, dtype, shape, data)    NumPy arrays: dtype and JSON shape as NumPy says them, C order, zlib

A point is written in one transaction: it is there whole, or not at all. One process writes; any number may read.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from dlcp import __version__
from dlcp.errors import ArgumentError
from dlcp_sim.result import Result

SCHEMA = 1
"""Kept in user_version; a file of another one is refused."""

_TABLES = """
CREATE TABLE points (
    key TEXT PRIMARY KEY, state TEXT NOT NULL CHECK (state IN ('done', 'failed')), varied TEXT NOT NULL,
    scenario TEXT NOT NULL, metadata TEXT, error TEXT, seconds REAL NOT NULL
);
CREATE TABLE figures (
    key TEXT NOT NULL REFERENCES points ON DELETE CASCADE, name TEXT NOT NULL, value REAL, PRIMARY KEY (key, name)
);
CREATE TABLE arrays (
    key TEXT NOT NULL REFERENCES points ON DELETE CASCADE, name TEXT NOT NULL, dtype TEXT NOT NULL,
    shape TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (key, name)
);
"""


def key_of(scenario: Mapping[str, Any]) -> str:
    """What a scenario, in tables, is known by. Threads change no result, so they do not count."""
    content = {name: value for name, value in scenario.items() if name != "threads"}
    text = json.dumps([__version__, content], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """A point that was tried."""

    key: str
    state: str
    varied: Mapping[str, Any]
    error: str | None
    seconds: float


class Store:
    """The file. Use it in a `with` statement, or `close` it."""

    def __init__(self, path: Path | str, *, create: bool = True) -> None:
        """Opens `path`; makes it if it is not there and `create` is true. Raises ArgumentError."""
        self.path = Path(path)
        if not self.path.exists() and not create:
            raise ArgumentError(f"{path}: No such file or directory")
        if not self.path.parent.is_dir():
            raise ArgumentError(f"{path}: there is no folder {self.path.parent}")
        try:
            self._connection = sqlite3.connect(self.path, timeout=30)
        except sqlite3.Error as error:
            raise ArgumentError(f"{path}: {error}") from None
        try:
            self._prepare()
        except (sqlite3.Error, ArgumentError) as error:
            self.close()
            raise ArgumentError(f"{path}: {error}") from None

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA foreign_keys = ON")
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (tables,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables == 0:
            with self._connection:
                self._connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;")
        elif version != SCHEMA:
            raise ArgumentError("not a store of a sweep, or of another version of dlcp")

    def close(self) -> None:
        """Closes the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file."""
        self.close()

    # ---- writing ----

    def add(self, key: str, varied: Mapping[str, Any], result: Result, seconds: float) -> None:
        """A point that is done."""
        with self._connection:
            self._put(key, "done", varied, result.scenario, json.dumps(dict(result.metadata)), None, seconds)
            self._connection.executemany(
                "INSERT INTO figures VALUES (?, ?, ?)",
                [(key, n, v if math.isfinite(v) else None) for n, v in result.figures().items()],
            )
            self._connection.executemany(
                "INSERT INTO arrays VALUES (?, ?, ?, ?, ?)",
                [(key, name, *_packed(array)) for name, array in result.arrays.items()],
            )

    def add_failure(
        self, key: str, varied: Mapping[str, Any], scenario: Mapping[str, Any], error: str, seconds: float
    ) -> None:
        """A point that went wrong."""
        with self._connection:
            self._put(key, "failed", varied, scenario, None, error, seconds)

    def _put(
        self,
        key: str,
        state: str,
        varied: Mapping[str, Any],
        scenario: Mapping[str, Any],
        metadata: str | None,
        error: str | None,
        seconds: float,
    ) -> None:
        self._connection.execute("DELETE FROM points WHERE key = ?", (key,))
        self._connection.execute(
            "INSERT INTO points VALUES (?, ?, ?, ?, ?, ?, ?)",
            (key, state, json.dumps(dict(varied)), json.dumps(dict(scenario)), metadata, error, seconds),
        )

    # ---- reading ----

    def done(self) -> set[str]:
        """Keys of the points that are done."""
        return {key for (key,) in self._connection.execute("SELECT key FROM points WHERE state = 'done'")}

    def rows(self) -> list[Row]:
        """All points that were tried, in the order in which they came in."""
        found = self._connection.execute(
            "SELECT key, state, varied, error, seconds FROM points ORDER BY rowid"
        )
        return [Row(key, state, json.loads(varied), error, s) for key, state, varied, error, s in found]

    def result(self, key: str) -> Result:
        """What a point found. Raises ArgumentError if it is not there or failed."""
        row = self._connection.execute("SELECT metadata FROM points WHERE key = ?", (key,)).fetchone()
        if row is None or row[0] is None:
            raise ArgumentError(f"{self.path} holds no result {key!r}")
        found = self._connection.execute("SELECT name, dtype, shape, data FROM arrays WHERE key = ?", (key,))
        arrays = {
            name: np.frombuffer(zlib.decompress(data), dtype).reshape(json.loads(shape))
            for name, dtype, shape, data in found
        }
        return Result(json.loads(row[0]), arrays)

    def results(self) -> Iterator[Result]:
        """What all points found, one after the other."""
        for row in self.rows():
            if row.state == "done":
                yield self.result(row.key)

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Columns and rows of all points that are done: what was varied, then every figure."""
        rows = [row for row in self.rows() if row.state == "done"]
        figures: dict[str, dict[str, float | None]] = {row.key: {} for row in rows}
        for key, name, value in self._connection.execute(
            "SELECT key, name, value FROM figures ORDER BY rowid"
        ):
            if key in figures:
                figures[key][name] = value
        varied = list(dict.fromkeys(name for row in rows for name in row.varied))
        names = list(dict.fromkeys(name for values in figures.values() for name in values))
        body = [[*map(row.varied.get, varied), *map(figures[row.key].get, names)] for row in rows]
        return [*varied, *names], body

    def write_parquet(self, path: Path | str) -> None:
        """`table` as a Parquet file; needs pyarrow."""
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise ArgumentError(f"Parquet needs pyarrow ({error}); pip install pyarrow") from None
        columns, body = self.table()
        values = {name: _one_type([row[index] for row in body]) for index, name in enumerate(columns)}
        pyarrow.parquet.write_table(pyarrow.table(values), path)

    def write_csv(self, path: Path | str) -> None:
        """`table` as comma-separated values."""
        import csv

        columns, body = self.table()
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([columns, *body])


def _packed(array: np.ndarray[Any, Any]) -> tuple[str, str, bytes]:
    """dtype, shape and content of an array as the table `arrays` has them."""
    array = np.ascontiguousarray(array)
    return array.dtype.str, json.dumps(array.shape), zlib.compress(array.tobytes(), 1)


def _one_type(values: Sequence[Any]) -> list[Any]:
    """A column of one type, as Parquet wants it: text if the values differ in kind."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return list(values)
    return [None if value is None else str(value) for value in values]
