"""The measured errors are those of theory where theory knows them, and ours are no larger."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from dlcp.study.training import mse_report  # noqa: E402
from dlcp.study.training.mse import KINDS, OURS, RATES, RING, SERVER, TAR, Found, measure  # noqa: E402

RANKS = 8


@pytest.fixture(scope="module")
def found() -> Found:
    torch.set_num_threads(1)
    return measure(entries=2_000_000, ranks=RANKS)


def test_flat_errors_are_theorys(found: Found) -> None:
    """In units of the sum's variance N: a contribution lost costs 1 / N, a result lost 1 (and its own error not)."""
    rate, others = 0.1, RANKS - 1
    flat = found.mse["flat"]
    pushed, pulled = rate * others / RANKS, rate * others / RANKS
    assert flat[TAR][rate] == pytest.approx(pushed + (1 - pushed) * pulled, rel=0.03)
    assert flat["ours, zero"][rate] == pytest.approx(pushed, rel=0.03)
    assert flat["ours, Hadamard"][rate] == pytest.approx(pushed, rel=0.03)
    assert flat[SERVER][rate] == pytest.approx(rate + (1 - rate) * rate, rel=0.03)
    # In a ring the k-th contribution meets k hops, and so does the result on its way to the k-th rank.
    missing = 1 - sum((1 - rate) ** hops for hops in range(RANKS)) / RANKS
    assert flat[RING][rate] == pytest.approx(missing + (1 - missing) * missing, rel=0.03)


def test_ours_is_no_worse(found: Found) -> None:
    for kind in KINDS:
        for rate in RATES[1:]:
            ways = found.mse[kind]
            assert all(ways[way][rate] < ways[TAR][rate] for way in OURS)
            assert ways["ours, least important, zero"][rate] < ways["ours, zero"][rate]
            steps = found.steps[kind]
            assert steps["residual 1"][rate] < steps["residual 0.5"][rate] < steps["zero"][rate]


def test_same_seed_same_numbers() -> None:
    first, again, other = (measure(entries=300_000, ranks=4, seed=seed) for seed in (1, 1, 2))
    assert first.mse == again.mse
    assert first.mse != other.mse


def test_report_and_picture(found: Found, tmp_path: Path) -> None:
    assert any(line.strip().startswith("ring, zero") for line in mse_report.text(found).splitlines())
    assert any(part.startswith("| method |") for part in mse_report.markdown(found))
    pytest.importorskip("matplotlib")
    from dlcp.study.training.mse_figure import draw

    draw(found, tmp_path / "mse.png")
    assert (tmp_path / "mse.png").stat().st_size > 10_000
