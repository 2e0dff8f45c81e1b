"""Gradients that are coded and chosen on their device: the bits of the host's way, and only what has to crosses.

The device's way is plain torch operations, so the host can go it too: its bits are held against those of the native
kernels without a device. The tests on CUDA only add the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dlcp.torch
from dlcp.torch.gradient.buffer import crossing
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout, Segment
from dlcp.transport.coded import CODECS
from tests.torch import ranks
from tests.torch.gradient.recipes.test_low_bit import kept, whole_numbers
from tests.torch.gradient.test_exchange import LOSSY, WHOLE, same_on_all_ranks, total

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs a CUDA device and torch with CUDA"
)
DEVICES = ["cpu", pytest.param("cuda:0", marks=needs_cuda)]
LOW: dict[str, Any] = {"recipe": "low_bit", "small_numel": 100, "warmup_steps": 1}
# By name: options, and whether gradients are whole numbers, of which sums are exact in any order.
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    **{f"low_bit {codec}": (LOW | {"codec": codec}, False) for codec in CODECS},
    "mstopk": ({"recipe": "mstopk", "density": 0.1, "selector": "largest", "small_numel": 100}, False),
    "mstopk, dense": ({"recipe": "mstopk", "density": 1.0, "small_numel": 100}, False),
    "redsync": (
        {
            "recipe": "redsync",
            "density": 0.05,
            "small_numel": 100,
            "momentum": 0.5,
            "dense_if_cheaper": False,
        },
        True,
    ),
}
DTYPES = (torch.float32, torch.bfloat16)
NUMEL = 9000
STEPS = 4


class Scaler:
    """A loss scale that grows in steps whose ratios are no powers of two."""

    scale = 1.0

    def get_scale(self) -> float:
        return self.scale


def layout_of(numel: int) -> Layout:
    """Two large parameters, a small one between them, and padding."""
    first, small = numel // 3, 60
    rest = numel - first - small - 16
    return Layout(
        (
            Segment("first", 0, 0, first),
            Segment("small", 0, first + 5, small),
            Segment("second", 0, first + small + 9, rest),
        ),
        numel,
    )


def gradients(whole: bool, dtype: torch.dtype, generator_rank: int) -> Iterator[torch.Tensor]:
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(100 * step + generator_rank)
        values = torch.randn(NUMEL, generator=generator) * 10.0 ** (step - 1)
        if whole:
            values = torch.randint(-100, 100, (NUMEL,), generator=generator).float()
        yield values.to(dtype)


def exchanged(
    case: str, dtype: torch.dtype, scatter: bool, device: str, on_device: bool
) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """What a recipe makes of gradients in some steps, on the host; and what it keeps."""
    options, whole = CASES[case]
    crossing._forced = on_device
    scaler = Scaler()
    state = dlcp.torch.GradientState(scaler=scaler, **options)
    exchange, layout, results = exchange_of(state), layout_of(NUMEL), []
    for step, gradient in enumerate(gradients(whole, dtype, dist.get_rank())):
        scaler.scale = 1.0 if whole else 3.0**step
        values = gradient.to(device, copy=True)
        call = BufferCall(average=True, factor=0.3 if step == 2 else None)
        start = exchange.start_reduce_scatter if scatter else exchange.start_all_reduce
        pending = start(values, layout, call)
        pending.wait()
        pending.prepared.back.make_streams_wait()
        assert pending.result.device == values.device
        if not scatter:
            same_on_all_ranks(pending.result.cpu())
        results.append(pending.result.cpu().clone())
        state.end_step(applied=step != 1)
    return results, state.state_dict()["residual"]


def differences(case: str, dtype: torch.dtype, scatter: bool, device: str) -> Iterator[str]:
    """Where the device's way gives other bits than the host's."""
    by_host, kept_by_host = exchanged(case, dtype, scatter, "cpu", False)
    there, kept_there = exchanged(case, dtype, scatter, device, True)
    for step, (one, other) in enumerate(zip(by_host, there, strict=True)):
        if not torch.equal(one, other):
            yield f"step {step}: {int((one != other).sum())} of {one.numel()} elements"
    assert kept_by_host.keys() == kept_there.keys()
    for side in kept_by_host:
        here, other = (each[side]["batches"] for each in (kept_by_host, kept_there))
        for a, b in zip(here, other, strict=True):
            assert a["names"] == b["names"]
            if not torch.equal(a["values"], b["values"]):
                yield f"kept by {side}: {int((a['values'] != b['values']).sum())} elements"
    # Gradients of 16 bits may be coded as they are.
    kept_any = any(one["values"].any() for one in kept_there["sender"]["batches"])
    if dtype == torch.float32 and not scatter and "dense" not in case and not kept_any:
        yield "nothing is kept"


def on_host_and_device(device: str) -> None:
    found = []
    for case in CASES:
        for dtype in DTYPES:
            for scatter in (False, True):
                words = differences(case, dtype, scatter, device)
                found += [f"{case}, {dtype}, scatter {scatter}, {each}" for each in words]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("device", DEVICES)
def test_the_device_gives_the_bits_of_the_host(device: str) -> None:
    ranks.run(on_host_and_device, 3, device=device, environment=WHOLE)


def scattered_to_exact_parts(device: str) -> None:
    """Of a layout of which only the first rank's part is coded."""
    numel = 3 * 600
    layout = Layout(
        (Segment("coded", 0, 0, 600), *(Segment(f"{n}", 0, 60 * n, 60) for n in range(10, 30))), numel
    )
    results = []
    for where, way in (("cpu", False), (device, True)):
        crossing._forced = way
        state = dlcp.torch.GradientState(**LOW | {"warmup_steps": 0})
        pending = exchange_of(state).start_reduce_scatter(
            torch.full((numel,), 7.0).to(where), layout, BufferCall(average=False)
        )
        pending.wait()
        pending.prepared.back.make_streams_wait()
        results.append(pending.result.cpu().clone())
    assert torch.equal(*results)
    assert torch.equal(results[0], torch.full((600,), 7.0 * dist.get_world_size()))


@pytest.mark.parametrize("device", DEVICES)
def test_a_part_may_have_no_coded_value(device: str) -> None:
    ranks.run(scattered_to_exact_parts, 3, device=device, environment=WHOLE)


def not_finite(device: str) -> None:
    values = whole_numbers(640, 0)
    values[3], values[70], values[130] = torch.inf, torch.nan, -torch.inf
    results = []
    for where, way in (("cpu", False), (device, True)):
        crossing._forced = way
        state = dlcp.torch.GradientState(**LOW | {"warmup_steps": 0})
        gradient = values.to(where, copy=True) if dist.get_rank() == 0 else torch.ones(640, device=where)
        result = exchange_of(state).all_reduce(gradient, Layout.of([("a", 640)]), BufferCall(average=True))
        results.append((result.wait().cpu().clone(), kept(state, Layout.of([("a", 640)]), "sender")))
    assert torch.equal(results[0][0].isnan(), results[1][0].isnan())
    assert torch.equal(results[0][0].nan_to_num(), results[1][0].nan_to_num())
    assert torch.equal(results[0][1], results[1][1])
    assert not results[1][0].isfinite().all()


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_finite_is_seen_by_all(device: str) -> None:
    ranks.run(not_finite, 2, device=device, environment=WHOLE)


def lossy(device: str, scatter: bool) -> int:
    """Inputs = applied + kept, of each element, though blocks were lost; how many bytes were."""
    crossing._forced = True
    numel, size = 96_000, dist.get_world_size()
    options: dict[str, Any] = {"small_numel": 0, "warmup_steps": 0, "loss_budget": 0.4, "critical_share": 0.0}
    state = dlcp.torch.GradientState(recipe="low_bit", **options)
    exchange, layout = exchange_of(state), Layout.of([("a", numel)])
    given, applied = (torch.zeros(numel, dtype=torch.float64) for _ in range(2))
    for step in range(4):
        gradient = whole_numbers(numel, step)
        given += total(gradient.double())
        start = exchange.start_reduce_scatter if scatter else exchange.start_all_reduce
        pending = start(gradient.to(device), layout, BufferCall(average=False))
        pending.wait()
        pending.prepared.back.make_streams_wait()
        if scatter:
            own = torch.zeros(numel, dtype=torch.float64)
            begin = dist.get_rank() * (numel // size)
            own[begin : begin + numel // size] = pending.result.cpu().double()
            applied += total(own)
        else:
            applied += pending.result.cpu().double()
    assert torch.equal(
        given, applied + total(kept(state, layout, "sender")) + total(kept(state, layout, "owner"))
    )
    return int(state.report()["total"]["abandoned_bytes"])


@pytest.mark.parametrize("scatter", [False, True], ids=["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("device", DEVICES)
def test_what_the_network_lost_is_kept_on_the_device(device: str, scatter: bool) -> None:
    assert sum(ranks.run(lossy, 4, device=device, scatter=scatter, environment=LOSSY)) > 0


def bytes_down(device: str) -> None:
    crossing._forced = True
    seen: list[int] = []
    down = crossing.Crossing.down

    def watched(self: Any, tensor: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        seen.append(tensor.nbytes)
        return down(self, tensor, memory)

    crossing.Crossing.down = watched  # type: ignore[method-assign]
    layout = layout_of(NUMEL)
    large = [segment.count for segment in layout.segments if segment.name != "small"]
    exact_bytes = 4 * (NUMEL - sum(large))
    for options, chosen_bytes in (
        (LOW | {"codec": "int4", "warmup_steps": 0}, sum(-(-count // 64) for count in large) * 34),
        (CASES["mstopk"][0], 8 * round(0.1 * sum(large))),
    ):
        seen.clear()
        state = dlcp.torch.GradientState(**options)
        gradient = whole_numbers(NUMEL, 0).to(device)
        exchange_of(state).all_reduce(gradient, layout, BufferCall(average=True)).wait()
        assert abs(sum(seen) - exact_bytes - chosen_bytes) <= 8, options


@pytest.mark.parametrize("device", DEVICES)
def test_only_codes_and_chosen_values_cross(device: str) -> None:
    ranks.run(bytes_down, 2, device=device)


def moved(device: str) -> None:
    """What was kept on the host is added on a device from then on, and the other way round."""
    layout, finals = Layout.of([("a", 640)]), []
    for places in (("cpu",) * 4, ("cpu", device, device, "cpu")):
        state = dlcp.torch.GradientState(**LOW | {"warmup_steps": 0})
        for step, place in enumerate(places):
            crossing._forced = place != "cpu" or (device == "cpu" and step in (1, 2) and bool(finals))
            gradient = whole_numbers(640, step).to(place)
            result = exchange_of(state).all_reduce(gradient, layout, BufferCall(average=True)).wait().cpu()
        finals.append((result.clone(), kept(state, layout, "sender")))
    assert torch.equal(finals[0][0], finals[1][0])
    assert torch.equal(finals[0][1], finals[1][1])


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_kept_follows_the_gradients(device: str) -> None:
    ranks.run(moved, 2, device=device)


# --- on CUDA alone ----------------------------------------------------------------------------------------------


def order_of_streams(recipe: dict[str, Any]) -> None:
    layout, device = Layout.of([("a", 64_000)]), torch.device("cuda:0")
    state = dlcp.torch.GradientState(**recipe)
    exchange, stream = exchange_of(state), torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        for step in range(3):
            # Long enough for an exchange that does not wait for it to read something else.
            torch.cuda._sleep(100_000_000)
            gradient = torch.full((64_000,), float(step + 1), device=device)
            result = exchange.all_reduce(gradient, layout, BufferCall(average=False)).wait()
            doubled = result * 2
            assert torch.equal(doubled.cpu(), torch.full((64_000,), 4.0 * (step + 1)))


@needs_cuda
@pytest.mark.parametrize("name", ["low_bit", "mstopk"])
def test_order_of_streams(name: str) -> None:
    recipe = {"low_bit": LOW | {"codec": "bf16"}, "mstopk": {"recipe": "mstopk", "density": 1.0}}[name]
    ranks.run(order_of_streams, recipe=recipe | {"small_numel": 0})


def ddp(recipe: dict[str, Any]) -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)).to("cuda:0")
    model = DistributedDataParallel(net, bucket_cap_mb=0.03)
    state = dlcp.torch.GradientState(model, **recipe)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(20):
        optimizer.zero_grad()
        torch.manual_seed(step * 10 + dist.get_rank())
        inputs = torch.randn(32, 64, device="cuda:0")
        loss = (model(inputs) - inputs[:, :8]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    state.end_step()
    assert sum(losses[-5:]) < sum(losses[:5])
    same_on_all_ranks(torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()]).cpu())


@needs_cuda
@pytest.mark.parametrize("name", ["low_bit int4", "low_bit fp8_e4m3", "mstopk", "redsync"])
def test_ddp(name: str) -> None:
    ranks.run(ddp, recipe=CASES[name][0])
