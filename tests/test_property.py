"""Random worlds of messages, collectives and gradients, and one seed, one trace. `make soak` runs many more seeds."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(native_build: Path) -> Run:
    """Runs dlcp_property with some words."""
    program = native_build / "dlcp_property"
    assert program.is_file(), f"{program} is not built: run `make native`"

    def run_program(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *words], capture_output=True, text=True, check=False)

    return run_program


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("first", "last"),
    # Seed 366 is left to `make soak`: its world takes six times as long as all these together.
    [(1, 365), (367, 1000)],
)
def test_property_random_worlds_hold(run: Run, first: int, last: int) -> None:
    result = run("--first", str(first), "--seeds", str(last - first + 1))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_property_random_collectives_hold(run: Run) -> None:
    result = run("--collectives", "--seeds", "500")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.timeout(300)
def test_property_random_gradients_hold(run: Run) -> None:
    """Mass, budgets and equal bits of bounded collectives, in random worlds that lose."""
    result = run("--gradients", "--seeds", "300")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "mode", [[], ["--collectives"], ["--gradients"]], ids=["messages", "collectives", "gradients"]
)
def test_property_same_seeds_same_trace(run: Run, mode: list[str]) -> None:
    once, twice = (run(*mode, "--seeds", "100", "--first", "20001", "--hash") for _ in range(2))
    assert once.returncode == 0, once.stdout
    assert "hash" in once.stdout
    assert once.stdout == twice.stdout


def test_property_number_of_jobs_does_not_matter(run: Run) -> None:
    one, three = (run("--seeds", "60", "--first", "30001", "--hash", "--jobs", jobs) for jobs in ("1", "3"))
    assert one.returncode == 0, one.stdout
    assert one.stdout == three.stdout


def test_property_bad_words_are_refused(run: Run) -> None:
    assert run("--seeds", "many").returncode == 2
    assert run("--no-such-word").returncode == 2
