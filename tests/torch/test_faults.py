"""A few blows of each kind of bench/faults.py, which deals many: what is left must raise in time, in full, and end.

Timeouts are what is tested here, so these tests wait for them: three seconds each.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import faults
from bench.collectives.world import DLCP, DLCP_SHM, Backend, Place, Ranks
from bench.faults import Fault
from dlcp.lab import Lab, missing
from tests.torch import ranks as torch_ranks

COUNT = 2
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    torch_ranks.start_server()
    with Ranks() as made:
        yield made


def all_is_well(trials: list[faults.Trial], errors: int) -> None:
    assert len(trials) == COUNT
    for trial in trials:
        assert not trial.complaints, f"{trial.complaints}\n{trial.words}"
        assert len(trial.raised) == errors


@pytest.mark.parametrize("backend", [DLCP, DLCP_SHM], ids=["network", "shared_memory"])
@pytest.mark.parametrize("kind", ["killed", "frozen"])
def test_a_rank_struck_in_an_all_reduce_is_named_by_all_others(
    ranks: Ranks, kind: str, backend: Backend
) -> None:
    fault = Fault(f"{kind}, {backend.label}", kind, backend)
    all_is_well(faults.campaign(ranks, Place.loopback(faults.WORLD), fault, COUNT), faults.WORLD - 1)


@pytest.mark.needs_root
@pytest.mark.skipif((reason := missing()) is not None, reason=reason or "")
def test_a_rank_cut_off_in_an_all_reduce_is_named_by_all_others_and_raises_too(ranks: Ranks) -> None:
    with Lab(hosts=faults.WORLD) as lab:
        place = Place.of_lab(lab, faults.WORLD)
        trials = faults.campaign(ranks, place, Fault("cut off", "cut", DLCP), COUNT, lab)
    all_is_well(trials, faults.WORLD)
