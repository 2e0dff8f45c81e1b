"""Optimizers in native code leave the bits that torch's leave: weights and states, after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dlcp import _native as native
from dlcp.torch.vml import vml_square_root

STEPS = 100
# A vector, rests of all lengths of it, and more than a tile of square roots.
SHAPES = ((1,), (37,), (8, 16), (1213,))
Rule = Callable[[dict[str, Any]], Any]

needs_fma = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"),
    reason="torch has no fused multiply-add on this processor",
)


def sgd(options: dict[str, Any]) -> native.Sgd:
    return native.Sgd(
        options["lr"],
        **{name: options[name] for name in ("momentum", "dampening", "weight_decay", "nesterov", "maximize")},
    )


def adam(options: dict[str, Any]) -> native.Adam:
    beta1, beta2 = options["betas"]
    return native.Adam(
        options["lr"],
        beta1=beta1,
        beta2=beta2,
        epsilon=options["eps"],
        decoupled=options["decoupled_weight_decay"],
        **{name: options[name] for name in ("weight_decay", "amsgrad", "maximize")},
    )


SGD, ADAM, ADAM_W = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
# The optimizer, its rule here, and options of two parameter groups.
CASES: dict[str, tuple[Any, Rule, dict[str, Any], dict[str, Any]]] = {
    "sgd": (SGD, sgd, {}, {"weight_decay": 0.01}),
    "momentum": (SGD, sgd, {"momentum": 0.9}, {"momentum": 0.8, "dampening": 0.3, "weight_decay": 1e-4}),
    "nesterov": (SGD, sgd, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.7, "weight_decay": 5e-4}),
    "ascent": (SGD, sgd, {"momentum": 0.9, "maximize": True}, {"maximize": True, "weight_decay": 0.1}),
    "adam": (ADAM, adam, {}, {"betas": (0.3, 0.99), "weight_decay": 0.01, "eps": 1e-6}),
    "adam amsgrad": (ADAM, adam, {"amsgrad": True}, {"amsgrad": True, "maximize": True, "weight_decay": 0.1}),
    "adamw": (ADAM_W, adam, {}, {"weight_decay": 0.2, "betas": (0.85, 0.9)}),
    "adamw amsgrad": (ADAM_W, adam, {"amsgrad": True}, {"amsgrad": True, "lr": 0.03}),
}


class Twin:
    """Parameters of one torch optimizer, and as many optimizers here."""

    def __init__(self, name: str, seed: int) -> None:
        make, self.rule, *groups = CASES[name]
        draw = torch.Generator().manual_seed(seed)
        self.params = [torch.randn(shape, generator=draw).requires_grad_() for shape in SHAPES]
        options = [{"params": self.params[place::2], **one} for place, one in enumerate(groups)]
        self.optimizer = make(options, lr=0.05, foreach=False, fused=False)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 30)
        self.weights = [param.detach().clone() for param in self.params]
        self.native: dict[int, native.Optimizer] = {}
        self.draw = draw

    def step(self, contributions: list[list[Tensor]], divisor: int, **named: Any) -> None:
        """Of each parameter its contributions: for torch their sum, in order, over the divisor."""
        for param, parts in zip(self.params, contributions, strict=True):
            param.grad = parts[0].clone()
            for part in parts[1:]:
                param.grad += part
            param.grad /= divisor
        self.optimizer.step()
        for options in self.optimizer.param_groups:
            for param in options["params"]:
                place = next(i for i, one in enumerate(self.params) if one is param)
                rule, weights = self.rule(options), self.weights[place]
                if place not in self.native:
                    self.native[place] = native.Optimizer(rule, weights.numel())
                self.native[place].set_rule(rule)
                addresses = [part.data_ptr() for part in contributions[place]]
                self.native[place].step(addresses, weights.data_ptr(), divisor=divisor, **named)
        self.schedule.step()

    def differing(self) -> int:
        """Weights that differ in their bits."""
        pairs = zip(self.params, self.weights, strict=True)
        return sum(int((_bits(param.detach()) != _bits(weights)).sum()) for param, weights in pairs)

    def check_states(self) -> None:
        for place, param in enumerate(self.params):
            names = ("momentum_buffer", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
            state = self.optimizer.state[param]
            wanted = [state[name] for name in names if state.get(name) is not None]
            found = self.native[place].states
            assert len(found) == len(wanted)
            for one, other in zip(found, wanted, strict=True):
                assert np.array_equal(one.view(np.int32), _bits(other).flatten().numpy())

    def integers(self, parts: int) -> Iterator[list[Tensor]]:
        for param in self.params:
            yield [torch.randint(-500, 501, param.shape, generator=self.draw).float() for _ in range(parts)]

    def reals(self, parts: int) -> Iterator[list[Tensor]]:
        for param in self.params:
            yield [torch.randn(param.shape, generator=self.draw) * 10 ** (part - 2) for part in range(parts)]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.int32)


@needs_fma
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["integers", "reals"])
def test_bits_are_torchs_over_100_steps_of_a_schedule(name: str, kind: str) -> None:
    twin = Twin(name, seed=1)
    root = vml_square_root()
    sample = torch.linspace(1, 4, 999)
    if root is None and "adam" in name and not torch.equal(sample.sqrt(), sample.double().sqrt().float()):
        pytest.skip("torch's square root is neither rounded to nearest nor found in libtorch")
    for step in range(STEPS):
        # One worker, some, and more than have loops of their own; powers of two and others.
        parts = (1, 2, 3, 8)[step % 4]
        twin.step(list(getattr(twin, kind)(parts)), parts, vml_square_root_address=root)
        assert twin.differing() == 0, f"step {step + 1}"
    twin.check_states()


@needs_fma
@pytest.mark.parametrize("name", ["adam", "adamw", "adam amsgrad"])
def test_adam_has_torchs_bits_where_roots_are_rounded_to_nearest(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "sqrt", lambda tensor: tensor.double().sqrt_().float())
    twin = Twin(name, seed=2)
    for _ in range(STEPS):
        twin.step(list(twin.reals(2)), 2)
        assert twin.differing() == 0
    twin.check_states()


@pytest.mark.parametrize("name", CASES)
def test_variants_agree_and_read_weights_from_elsewhere(name: str) -> None:
    """Also on what fused multiply-adds are hard to imitate for: cancellation, subnormal results, infinity."""
    draw = np.random.default_rng(4)
    count, parts = 777, 5
    exponents = draw.integers(-140, 120, (parts + 1, count)).astype(np.float32)
    values = (
        draw.choice([-1, 1], exponents.shape) * draw.random(exponents.shape) * np.exp2(exponents)
    ).astype(np.float32)
    values[:, :40] = np.float32(2) ** -149 * draw.integers(-9, 9, (parts + 1, 40))
    values[1, 50], values[2, 51], values[0, 52] = np.inf, -np.inf, 0.0
    _, make_rule, first, _ = CASES[name]
    options = {**CASES[name][0]([torch.zeros(1)], lr=0.1, **first).defaults}
    results = []
    for variant in native.reduce_variants():
        optimizer = native.Optimizer(make_rule(options), count)
        weights, next_weights = values[parts].copy(), np.empty(count, np.float32)
        for _ in range(3):
            optimizer.step(
                [one.ctypes.data for one in values[:parts]],
                weights.ctypes.data,
                next_weights.ctypes.data,
                divisor=3,
                variant=variant,
            )
            weights[:] = next_weights
        arrays = np.stack([weights, *optimizer.states])
        results.append(np.where(np.isnan(arrays), np.float32(np.nan), arrays).view(np.int32))
    for other in results[1:]:
        assert np.array_equal(results[0], other)


def test_a_restart_goes_on_where_the_states_were_taken() -> None:
    rule = native.Adam(0.1, amsgrad=True)
    draw = np.random.default_rng(5)
    weights, gradients = draw.standard_normal((2, 50), np.float32)
    whole, before = native.Optimizer(rule, 50), native.Optimizer(rule, 50)
    expected = weights.copy()
    for _ in range(4):
        whole.step([gradients.ctypes.data], expected.ctypes.data)
    for _ in range(2):
        before.step([gradients.ctypes.data], weights.ctypes.data)
    after = native.Optimizer(rule, 50)
    after.steps = before.steps
    for to, one in zip(after.states, before.states, strict=True):
        to[:] = one
    for _ in range(2):
        after.step([gradients.ctypes.data], weights.ctypes.data)
    assert np.array_equal(weights, expected)


def test_bad_hyperparameters_are_named() -> None:
    with pytest.raises(ValueError, match=r"beta2 is 1\.0+; accepted: 0"):
        native.Adam(0.1, beta2=1.0)
    with pytest.raises(ValueError, match="nesterov without a momentum"):
        native.Sgd(0.1, nesterov=True)
    with pytest.raises(ValueError, match="learning_rate is nan"):
        native.Sgd(float("nan"))
    optimizer = native.Optimizer(native.Sgd(0.1), 4)
    with pytest.raises(ValueError, match="other states"):
        optimizer.set_rule(native.Sgd(0.1, momentum=0.9))
    with pytest.raises(ValueError, match="no contributions"):
        optimizer.step([], 0)
