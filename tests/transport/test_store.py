"""The stores that come with dlcp: what is set is read, by threads and by processes, whole and once."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dlcp.errors import ArgumentError, ResourceError, StoreGoneError, StoreTimeoutError
from dlcp.transport.store import FileStore, MemoryStore, PrefixStore, Store, wait_for

PATIENCE_S = 60.0


@pytest.fixture(params=["memory", "file", "prefix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    match request.param:
        case "memory":
            return MemoryStore(PATIENCE_S)
        case "file":
            return FileStore(tmp_path / "store", PATIENCE_S)
    return PrefixStore("part", MemoryStore(PATIENCE_S))


def test_value_is_read_as_it_was_set(store: Store) -> None:
    store.set("text/with a slash", "ä")
    store.set("bytes", bytes(range(256)))
    store.set("bytes", b"later")
    assert store.get("text/with a slash") == "ä".encode()
    assert store.get("bytes") == b"later"


def test_check_wants_all_keys(store: Store) -> None:
    store.set("a", "")
    assert store.check(["a"])
    assert not store.check(["a", "b"])
    assert store.check([])


def test_long_keys_do_not_meet(store: Store) -> None:
    store.set("x" * 300, "1")
    store.set("x" * 301, "2")
    assert store.get("x" * 300) == b"1"
    assert store.get("x" * 301) == b"2"


def test_get_waits_for_the_value(store: Store) -> None:
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(store.get, "late")
        store.set("late", "here")
        assert reading.result(PATIENCE_S) == b"here"


def test_a_store_whose_host_has_left_is_said_to_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(PATIENCE_S)

    def gone(_: object) -> bool:
        raise RuntimeError("connection closed")

    monkeypatch.setattr(store, "check", gone)
    with pytest.raises(StoreGoneError, match=r"^rank 3's word is not known: .* \(connection closed\)"):
        wait_for(store, "k", PATIENCE_S, "rank 3's word")


def test_wait_for_is_bounded_and_says_what_is_missing(store: Store) -> None:
    with pytest.raises(
        StoreTimeoutError, match=r"rank 3's word was not in the store after 0.01 s \(key 'k'\)"
    ):
        wait_for(store, "k", 0.01, "rank 3's word")
    store.set("k", "v")
    assert wait_for(store, "k", 0.0, "rank 3's word") == b"v"


def test_add_counts_every_thread_once(store: Store) -> None:
    def count() -> list[int]:
        return [store.add("n", 1) for _ in range(50)]

    with ThreadPoolExecutor(4) as pool:
        totals = sorted(total for part in pool.map(lambda _: count(), range(4)) for total in part)
    assert totals == list(range(1, 201))
    assert store.add("n", -200) == 0


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_get_gives_up_after_the_stores_timeout(kind: str, tmp_path: Path) -> None:
    store: Store = MemoryStore(0.01) if kind == "memory" else FileStore(tmp_path, 0.01)
    with pytest.raises(StoreTimeoutError, match="'absent' was not set"):
        store.get("absent")


def test_prefixes_keep_apart() -> None:
    whole = MemoryStore()
    one, other = PrefixStore("one", whole), PrefixStore("other", whole)
    one.set("k", "1")
    assert not other.check(["k"])
    assert whole.get("one/k") == b"1"
    assert other.add("n", 2) == 2
    assert one.add("n", 1) == 1


def test_file_store_of_two_processes_adds_up(tmp_path: Path) -> None:
    script = f"""
from dlcp.transport.store import FileStore
store = FileStore({str(tmp_path)!r})
for _ in range(100):
    store.add("n", 1)
"""
    children = [subprocess.Popen([sys.executable, "-P", "-c", script]) for _ in range(2)]
    assert [child.wait(PATIENCE_S) for child in children] == [0, 0]
    assert FileStore(tmp_path).get("n") == b"200"


def test_file_store_is_its_owners_alone(tmp_path: Path) -> None:
    FileStore(tmp_path / "store").set("job", "secret")
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0


def test_reader_never_sees_half_a_value(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.set("k", b"0" * 100_000)
    done = threading.Event()

    def write() -> None:
        for digit in b"123456789":
            store.set("k", bytes([digit]) * 100_000)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    while not done.is_set():
        value = store.get("k")
        assert len(value) == 100_000
        assert len(set(value)) == 1
    writer.join()


@pytest.mark.parametrize("path", ["", None, 5], ids=str)
def test_folder_needs_a_path(path: object) -> None:
    with pytest.raises(ArgumentError, match=r"path is .*; accepted: the path of a folder"):
        FileStore(path)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", ["/dev/null", "/proc/store"])
def test_folder_that_cannot_be_made_is_named(path: str) -> None:
    with pytest.raises(
        ResourceError, match=f"path is '{path}': .*; accepted: a folder, or where one can be made"
    ):
        FileStore(path)
