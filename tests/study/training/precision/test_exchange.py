"""The arithmetic of coded exchanges: nothing is lost, bytes are what formulas say, and refinement is chosen as told."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402

from dlcp.study.training.precision.arm import CAPACITIES, DENSE, Arm, Scale, bits_of  # noqa: E402
from dlcp.study.training.precision.capacity import Shares  # noqa: E402
from dlcp.study.training.precision.exchange import TURN, Exchange  # noqa: E402
from dlcp.study.training.precision.rounding import rounded  # noqa: E402
from dlcp.torch import codec  # noqa: E402
from dlcp.transport.coded import CODECS, GROUP_VALUES  # noqa: E402
from dlcp_sim.cosimulation.tasks import WORKERS  # noqa: E402
from tests.support.seeds import for_each_seed  # noqa: E402

GROUPS = 24
LAYERED = Arm("int2", refinement="int4", layers=1, share=0.5, block_groups=2)
ARMS = (
    *(Arm(name) for name in CODECS),
    LAYERED,
    replace(LAYERED, order="random"),
    replace(LAYERED, capacity="log-normal"),
    Arm("int4", returned="int8"),
    Arm("int4", scale_values=32),
    Arm("int4", warmup_steps=3),
    Arm("int2", wider=("int4", "int8"), wider_bits=4.25, capacity="log-normal"),
    Arm("int4", refinement="int2", layers=2, share=0.3, block_groups=5),
)


def integers(seed: int, steps: int, size: int = 1) -> Tensor:
    """float32[steps, trainings, WORKERS, GROUPS, 64]: whole numbers times 2^-10, of which few are large."""
    draw = torch.Generator().manual_seed(seed)
    whole = torch.randn(steps, size, WORKERS, GROUPS, GROUP_VALUES, generator=draw) * 20
    return whole.round() * 2.0**-10


def exchange_of(arm: Arm, size: int = 1) -> Exchange:
    return Exchange(arm, GROUPS, list(range(size)), torch.arange(size))


@pytest.mark.parametrize("name", CODECS)
@for_each_seed(range(3))
def test_rounding_is_what_the_codec_decodes(name: str, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(3, 5, 64, generator=draw) * torch.exp2(
        torch.randint(-30, 30, (3, 5, 1), generator=draw)
    )
    values[0, 0], values[1, 1] = 0.0, values[1, 1] * 1e-38
    coded = codec.encode(values.flatten(), name)
    assert torch.equal(rounded(values, name).flatten(), codec.decode(coded, name, values.numel()))


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_what_is_put_in_is_applied_or_kept(arm: Arm) -> None:
    steps = 6
    gradients = integers(1, steps)
    exchange = exchange_of(arm)
    applied = torch.stack([exchange.mean(step) for step in gradients])
    kept = exchange.sender_kept.double().mean(1) + exchange.owner_kept.double()
    put_in = gradients.double().mean(2).sum(0)
    if arm.codec.startswith("fp8"):
        # Its codes span 18 bits and a scale has 8, so that sums of four round.
        torch.testing.assert_close(applied.double().sum(0) + kept, put_in, rtol=0, atol=1e-8)
    else:
        # An equality: sums of these numbers are exact.
        assert torch.equal(applied.double().sum(0) + kept, put_in)


def test_without_a_code_the_mean_comes_back() -> None:
    gradients = integers(2, 1)[0]
    exchange = exchange_of(Arm(DENSE))
    assert torch.equal(exchange.mean(gradients), gradients.mean(1))
    assert exchange.bits().tolist() == [32.0]


def test_who_keeps_nothing_loses_it() -> None:
    gradients = integers(3, 1)[0]
    for feedback, sender, owner in (("both", True, True), ("sender", True, False), ("none", False, False)):
        exchange = exchange_of(Arm("int4", feedback))  # type: ignore[arg-type]
        exchange.mean(gradients)
        assert bool(exchange.sender_kept.any()) is sender
        assert bool(exchange.owner_kept.any()) is owner


def test_a_refinement_that_does_not_arrive_is_a_flat_code() -> None:
    gradients = integers(4, 3)
    flat, layered = exchange_of(Arm("int2")), exchange_of(replace(LAYERED, share=0.0))
    for step in gradients:
        assert torch.equal(flat.mean(step), layered.mean(step))
    assert torch.equal(flat.bits(), layered.bits())


@pytest.mark.parametrize("order", ["importance", "random"])
def test_a_refinement_that_arrives_whole_is_both_codes_after_one_another(order: str) -> None:
    gradients = integers(5, 1)[0]
    exchange = exchange_of(replace(LAYERED, share=1.0, order=order))  # type: ignore[arg-type]
    result = exchange.mean(gradients)

    def both(values: Tensor) -> Tensor:
        base = rounded(values, "int2")
        return base + rounded(values - base, "int4")

    assert torch.equal(result, both(both(gradients).mean(1)))
    assert exchange.bits().item() == bits_of("int2") + bits_of("int4")


@pytest.mark.parametrize("arm", [LAYERED, ARMS[-1]], ids=lambda arm: arm.name)
def test_bits_are_as_the_formula_says(arm: Arm) -> None:
    exchange = exchange_of(replace(arm, block_groups=1))
    for step in integers(6, 40):
        exchange.mean(step)
    assert exchange.bits().item() == pytest.approx(arm.bits, rel=0.01)


def test_the_most_important_blocks_come_first() -> None:
    gradients = torch.zeros(1, WORKERS, GROUPS, 64)
    # Of what two bits leave: the base is exact but where values differ within a group.
    gradients[..., 0] = 1.0
    gradients[0, :, 6:8, 1] = 0.3
    gradients[0, :, 20, 1] = 0.4
    exchange = exchange_of(replace(LAYERED, share=2 / 12))
    exchange.mean(gradients)
    assert not exchange.sender_kept[:, :, 8:19].any()
    blocks = exchange.sender_kept.abs().amax(-1).view(1, WORKERS, -1, 2).amax(-1)
    # Both were refined to within half a scale of four bits.
    assert blocks.max() < 0.4 / 7
    assert exchange.bits().item() < arm_bits_max(2 / 12)


def arm_bits_max(share: float) -> float:
    return bits_of("int2") + (share + 1e-6) * bits_of("int4") + 1 / 12 * bits_of("int4")


def test_a_training_is_the_same_alone_and_among_others() -> None:
    gradients = integers(7, 3, size=2)
    for arm in ARMS[-3:]:
        among = exchange_of(arm, 2)
        alone = Exchange(arm, GROUPS, [1], torch.tensor([0]))
        for step in gradients:
            assert torch.equal(among.mean(step)[1:], alone.mean(step[1:]))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_shares_have_the_mean_that_was_asked_for(capacity: str) -> None:
    arm = Arm("int2", refinement="int4", layers=1, share=0.4, capacity=capacity)  # type: ignore[arg-type]
    shares = Shares(arm, [torch.Generator().manual_seed(seed) for seed in range(20)])
    drawn = torch.stack([shares.draw() for _ in range(300)])
    assert drawn.mean().item() == pytest.approx(0.4, abs=0.02)
    assert 0 <= drawn.min().item() <= drawn.max().item() <= 1
    if capacity == "slow rank":
        assert not drawn[..., 0].any()
    # The same whoever else runs.
    again = Shares(arm, [torch.Generator().manual_seed(3)])
    assert torch.equal(torch.stack([again.draw()[0] for _ in range(300)]), drawn[:, 3])


@pytest.mark.parametrize("wider", [("int4",), ("int4", "int8")])
def test_wider_codes_send_as_many_bits_as_were_asked_for(wider: tuple[str, ...]) -> None:
    arm = Arm("int2", wider=wider, wider_bits=3.75, capacity="log-normal")
    exchange = exchange_of(arm, 8)
    for step in integers(8, 60, size=8):
        exchange.mean(step)
    assert exchange.bits().mean().item() == pytest.approx(3.75, rel=0.02)


def test_a_slow_rank_uses_the_narrow_code_for_what_it_sends_and_what_it_owns() -> None:
    arm = Arm("int2", wider=("int4",), wider_bits=3.75, capacity="slow rank", block_groups=1)
    gradients = integers(9, 1)[0]
    exchange = exchange_of(arm)
    result = exchange.mean(gradients)
    sent = torch.cat((rounded(gradients[:, :1], "int2"), rounded(gradients[:, 1:], "int4")), 1).mean(1)
    owned = GROUPS // WORKERS
    expected = torch.cat((rounded(sent[:, :owned], "int2"), rounded(sent[:, owned:], "int4")), 1)
    assert torch.equal(result, expected)
    assert exchange.bits().item() == 3.75


def test_contributions_and_sums_have_codes_of_their_own() -> None:
    gradients = integers(10, 1)[0]
    result = exchange_of(Arm("int4", returned="int8")).mean(gradients)
    assert torch.equal(result, rounded(rounded(gradients, "int4").mean(1), "int8"))


def test_the_first_steps_have_eight_bits() -> None:
    first, wide = exchange_of(Arm("int4", warmup_steps=2)), exchange_of(Arm("int8"))
    narrow = exchange_of(Arm("int4"))
    for step, gradients in enumerate(integers(11, 3)):
        if step == 2:
            narrow.sender_kept, narrow.owner_kept = wide.sender_kept, wide.owner_kept
        assert torch.equal(first.mean(gradients), (wide if step < 2 else narrow).mean(gradients))
    assert first.bits().item() == pytest.approx((2 * 8.25 + 4.25) / 3)


def test_smaller_groups_and_fitted_scales_leave_less_and_a_turn_no_outliers() -> None:
    draw = torch.Generator().manual_seed(12)
    values = torch.randn(50, 64, generator=draw)

    def left(scale_values: int = 64, scale: Scale = "largest") -> float:
        return float((values - rounded(values, "int4", scale_values, scale)).square().mean())

    assert left(32) < left()
    assert left(64, "least squares") < left()
    assert torch.equal(rounded(values, "int4", 32).view(-1, 32)[0], rounded(values[:1, :32], "int4", 32)[0])
    torch.testing.assert_close(TURN @ TURN, torch.eye(64))
    outlier = torch.zeros(1, WORKERS, GROUPS, 64)
    outlier[..., 0], outlier[..., 1:] = 1.0, 0.02
    plain = exchange_of(Arm("int4")).mean(outlier)
    turned = exchange_of(Arm("int4", turned=True)).mean(outlier)
    assert not plain[..., 1:].any()
    assert (turned - outlier[:, 0]).square().sum() < (plain - outlier[:, 0]).square().sum()
