"""What the network loses is as much as was asked for, and who gives way is the least important."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from dlcp.study.training.network import (  # noqa: E402
    BURST_BLOCKS,
    PROCESSES,
    UNEVEN_LOSS_MAX,
    Luck,
    Process,
    choose,
    network_losses,
    uneven_rates,
)
from dlcp_sim.cosimulation.tasks import WORKERS  # noqa: E402


def draw_luck(seed: int, rows: int, blocks: int) -> Luck:
    return Luck.draw([torch.Generator().manual_seed(seed + row) for row in range(rows)], blocks)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("rate", [0.003, 0.03, 0.3, 0.7, 0.95])
def test_share_lost_is_the_rate(process: Process, rate: float) -> None:
    luck = draw_luck(1, 20, 20_000)
    lost = network_losses(process, torch.full((20,), rate), luck).float().mean().item()
    # Of as many events as were drawn: a burst is one, of geometric length.
    count = 20 * WORKERS * 20_000 * rate * (1 - rate)
    deviation = (2 * BURST_BLOCKS / count if process == "bursty" else 1 / count) ** 0.5
    assert lost == pytest.approx(rate, rel=4 * deviation)


def test_bursts_are_as_long_as_said() -> None:
    lost = network_losses("bursty", torch.full((20,), 0.2), draw_luck(2, 20, 20_000)).int()
    begins = (lost.diff(dim=-1) == 1).sum() + lost[..., 0].sum()
    assert (lost.sum() / begins).item() == pytest.approx(BURST_BLOCKS, rel=0.1)


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.24, 0.5, 0.9, 0.97])
def test_uneven_rates_fill_one_link_after_another(rate: float) -> None:
    (rates,) = uneven_rates(torch.tensor([rate]))
    assert rates.mean().item() == pytest.approx(rate)
    assert (rates.diff() <= 1e-6).all()
    if rate < UNEVEN_LOSS_MAX / WORKERS:
        assert (rates[1:] == 0).all()


@pytest.mark.parametrize("process", ["independent", "uneven"])
def test_more_loss_loses_the_same_and_more(process: Process) -> None:
    luck = draw_luck(3, 1, 500)
    less, more = (network_losses(process, torch.tensor([rate]), luck) for rate in (0.1, 0.4))
    assert (less <= more).all()
    assert less.sum() < more.sum()


def test_same_seed_same_luck_whoever_else_runs() -> None:
    alone, together = draw_luck(7, 1, 100), draw_luck(7, 5, 100)
    torch.testing.assert_close(alone.blocks, together.blocks[:1])


@pytest.mark.parametrize("seed", range(30))
def test_who_gives_way(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    shape = (3, WORKERS, 40)
    hit = torch.rand(shape, generator=draw) < torch.rand(3, 1, 1, generator=draw)
    codes = torch.randint(100, 140, shape, generator=draw, dtype=torch.int32)
    critical = codes >= 130
    budget = torch.randint(41, (3,), generator=draw)
    assert (choose("random", hit, codes, critical, budget) == hit).all()

    least = choose("least", hit, codes, critical, budget)
    assert (least.sum(-1) == hit.sum(-1)).all()
    for run in range(3):
        for worker in range(WORKERS):
            gone, stays = codes[run, worker][least[run, worker]], codes[run, worker][~least[run, worker]]
            assert not len(gone) or not len(stays) or gone.max() <= stays.min()

    given_up = choose("transport", hit, codes, critical, budget)
    candidates = hit & ~critical
    assert (given_up <= candidates).all()
    assert (given_up.sum(-1) == torch.minimum(candidates.sum(-1), budget[:, None])).all()
    for run in range(3):
        for worker in range(WORKERS):
            gone = codes[run, worker][given_up[run, worker]]
            repaired = codes[run, worker][(candidates & ~given_up)[run, worker]]
            assert not len(gone) or not len(repaired) or gone.max() <= repaired.min()
