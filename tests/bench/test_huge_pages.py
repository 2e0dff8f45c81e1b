"""Huge pages that are there for a while: what is made, and that it is given back. A tree of files is the kernel."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from bench import huge_pages


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """8 pages, of which 2 are free. The kernel is not here to change the free ones with the others."""
    tell(tmp_path, total=8, free=2)
    return tmp_path


def tell(place: Path, **counts: int) -> None:
    for name, count in counts.items():
        (place / f"{'nr' if name == 'total' else name}_hugepages").write_text(f"{count}\n")


def total(place: Path) -> int:
    return int((place / "nr_hugepages").read_text())


def reserve(count: int, place: Path) -> contextlib.AbstractContextManager[str | None]:
    return huge_pages.reserve(count, place=place, lock=place / "lock")


def test_only_missing_pages_are_made_and_given_back(place: Path) -> None:
    with reserve(5, place):
        assert total(place) == 11
    assert total(place) == 8
    with reserve(2, place) as reason:
        assert (reason, total(place)) == (None, 8)


def test_pages_that_others_made_meanwhile_stay(place: Path) -> None:
    with reserve(5, place):
        tell(place, total=total(place) + 100)
    assert total(place) == 108


def test_pages_go_back_after_an_error(place: Path) -> None:
    with pytest.raises(ZeroDivisionError), reserve(5, place):
        raise ZeroDivisionError
    assert total(place) == 8


def test_too_few_pages_are_told(place: Path) -> None:
    with reserve(5, place) as reason:
        assert reason == "no pages of 2 MB: 2 of 5 are free"


def test_kernel_without_pages_of_this_size_is_told(tmp_path: Path) -> None:
    with reserve(5, tmp_path) as reason:
        assert reason is not None
        assert "nr_hugepages" in reason
    with reserve(0, tmp_path) as reason:
        assert reason is None


def test_whoever_comes_second_waits(place: Path) -> None:
    second = threading.Event()

    def take() -> None:
        with reserve(5, place):
            second.set()

    thread = threading.Thread(target=take)
    with reserve(5, place):
        thread.start()
        assert not second.is_set()
        assert total(place) == 11
    assert second.wait(60)
    thread.join()
    assert total(place) == 8


def test_wait_for_others_ends(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huge_pages, "PATIENCE_S", 0.0)
    with reserve(5, place), reserve(9, place) as reason:
        assert reason is not None
        assert "another process" in reason
        assert total(place) == 11
