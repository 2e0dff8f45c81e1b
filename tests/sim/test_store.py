"""The store of a sweep: what goes in comes out, whole or not at all, and SQL finds it."""

from __future__ import annotations

import csv
import json
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("dlcp_sim._core", reason="the extension module is not built")

import dlcp_sim as ds
from dlcp.errors import ArgumentError
from dlcp_sim.store import SCHEMA, key_of


@pytest.fixture(scope="module")
def result() -> ds.Result:
    return ds.Scenario(
        fabric=ds.Star(4), transport=ds.LineRate(), workload=ds.permutation(bytes=10_000)
    ).run()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweep.sqlite"


def test_a_result_comes_back_as_it_went_in(path: Path, result: ds.Result) -> None:
    with ds.Store(path) as store:
        store.add("a", {"seed": 1}, result, 0.5)
    with ds.Store(path, create=False) as store:
        again = store.result("a")
        assert again.metadata == result.metadata
        assert again.summary() == result.summary()
        assert again.arrays.keys() == result.arrays.keys()
        for name, array in result.arrays.items():
            assert again.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(again.arrays[name], array)
        assert store.done() == {"a"}
        assert [one.metadata for one in store.results()] == [result.metadata]


def test_a_failure_is_kept_and_is_not_done(path: Path, result: ds.Result) -> None:
    with ds.Store(path) as store:
        store.add_failure("a", {"seed": 1}, result.scenario, "its process was ended by signal 9", 2.0)
        (row,) = store.rows()
        assert (row.state, row.varied, row.seconds) == ("failed", {"seed": 1}, 2.0)
        assert row.error == "its process was ended by signal 9"
        assert store.done() == set()
        with pytest.raises(ArgumentError, match="holds no result 'a'"):
            store.result("a")
        # Tried again, it takes the failure's place.
        store.add("a", {"seed": 1}, result, 1.0)
        (row,) = store.rows()
        assert (row.state, row.error) == ("done", None)


def test_the_schema_is_as_documented(path: Path, result: ds.Result) -> None:
    with ds.Store(path) as store:
        store.add("a", {"seed": 1}, result, 0.5)
    with sqlite3.connect(path) as connection:
        columns = {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in ("points", "figures", "arrays")
        }
        assert columns == {
            "points": ["key", "state", "varied", "scenario", "metadata", "error", "seconds"],
            "figures": ["key", "name", "value"],
            "arrays": ["key", "name", "dtype", "shape", "data"],
        }
        (mean,) = connection.execute("SELECT value FROM figures WHERE name = 'completion_mean_s'").fetchone()
        assert mean == pytest.approx(result.flows.completion_s.mean())
        (scenario,) = connection.execute("SELECT scenario FROM points").fetchone()
        assert json.loads(scenario) == result.scenario
        dtype, shape, data = connection.execute(
            "SELECT dtype, shape, data FROM arrays WHERE name = 'flow.delivered_ps'"
        ).fetchone()
        array = np.frombuffer(zlib.decompress(data), dtype).reshape(json.loads(shape))
        np.testing.assert_array_equal(array, result.arrays["flow.delivered_ps"])
    connection.close()


def test_a_point_is_there_whole_or_not_at_all(
    path: Path, result: ds.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ds.Store(path) as store:
        store.add("a", {}, result, 0.5)
        monkeypatch.setattr("dlcp_sim.store._packed", lambda array: 1 / 0)
        for key in ("a", "b"):
            with pytest.raises(ZeroDivisionError):
                store.add(key, {}, result, 0.5)
        # The old point is still there, the new one is not.
        assert store.done() == {"a"}
        assert store.result("a").arrays.keys() == result.arrays.keys()


def test_a_key_knows_every_setting_but_threads() -> None:
    scenario = ds.Scenario(fabric=ds.Star(4), transport=ds.LineRate(), workload=ds.permutation())
    tables = scenario.as_dict()
    assert key_of(tables) == key_of(tables | {"threads": 8})
    assert key_of(tables) == key_of(dict(reversed(tables.items())))
    assert key_of(tables) != key_of(tables | {"seed": 2})
    assert key_of(tables) != key_of(tables | {"transport": tables["transport"] | {"header_bytes": 65}})


def test_points_as_tables_for_others(path: Path, tmp_path: Path, result: ds.Result) -> None:
    with ds.Store(path) as store:
        store.add("a", {"seed": 1, "transport.kind": "ndp"}, result, 0.5)
        store.add("b", {"seed": 2, "transport.kind": "uet"}, result, 0.5)
        store.add_failure("c", {"seed": 3}, result.scenario, "no", 0.5)
        columns, body = store.table()
        store.write_csv(tmp_path / "points.csv")
    assert columns[:4] == ["seed", "transport.kind", "flows", "finished"]
    assert [row[:4] for row in body] == [[1, "ndp", 4.0, 4.0], [2, "uet", 4.0, 4.0]]
    with (tmp_path / "points.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == columns
    assert [row[1] for row in rows[1:]] == ["ndp", "uet"]


def test_parquet(path: Path, tmp_path: Path, result: ds.Result) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    with ds.Store(path) as store:
        store.add("a", {"seed": 1, "x": "one"}, result, 0.5)
        store.add("b", {"seed": 2, "x": 2}, result, 0.5)
        store.write_parquet(tmp_path / "points.parquet")
        columns, _ = store.table()
    table = parquet.read_table(tmp_path / "points.parquet")
    assert table.column_names == columns
    assert table["seed"].to_pylist() == [1, 2]
    assert table["x"].to_pylist() == ["one", "2"], "a column has one type"
    assert table["completion_mean_s"].to_pylist()[0] == pytest.approx(result.flows.completion_s.mean())


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="there is no folder"):
        ds.Store(tmp_path / "none" / "sweep.sqlite")
    with pytest.raises(ArgumentError, match="No such file"):
        ds.Store(tmp_path / "sweep.sqlite", create=False)
    (tmp_path / "text").write_text("seed = 1\n" * 1000)
    with pytest.raises(ArgumentError, match="text: file is not a database"):
        ds.Store(tmp_path / "text")
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.execute("CREATE TABLE points (x)")
    other.commit()
    other.close()
    with pytest.raises(ArgumentError, match="not a store of a sweep"):
        ds.Store(tmp_path / "other.sqlite")
    newer = sqlite3.connect(tmp_path / "newer.sqlite")
    newer.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    newer.commit()
    newer.close()
    with pytest.raises(ArgumentError, match="another version of dlcp"):
        ds.Store(tmp_path / "newer.sqlite")
