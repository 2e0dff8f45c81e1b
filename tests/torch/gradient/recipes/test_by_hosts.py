"""A recipe between hosts: the bits of a twin, the bytes of the formula, mass, and buffers in any order.

Four ranks believe that they are on two hosts, in turn; in truth they are on one.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import dlcp.torch
from dlcp.torch.gradient.buffer.gradient_buffer import BufferCall
from dlcp.torch.gradient.exchange import exchange_of
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.recipes.by_hosts import SHARD_NUMEL_MIN
from dlcp.torch.gradient.sparse.density import count_of
from dlcp.torch.selectors import Largest
from tests.support.hosts import on_hosts
from tests.torch import ranks

HOSTS = (0, 1, 0, 1)
NUMEL = 4 * SHARD_NUMEL_MIN
DENSITY = 0.05


def gradients(step: int, *, numel: int = NUMEL) -> list[Tensor]:
    """Of all ranks: whole numbers, so that sums have no rounding to agree on."""
    size = dist.get_world_size()
    generators = [torch.Generator().manual_seed(100 * step + rank) for rank in range(size)]
    return [torch.randint(-1000, 1000, (numel,), generator=one).float() for one in generators]


def mean(state: Any, values: Tensor, name: str = "weight", **call: Any) -> Tensor:
    layout = Layout.of([(name, len(values))])
    return (
        exchange_of(state).all_reduce(values.clone(), layout, BufferCall(average=True, **call)).wait().clone()
    )


def as_the_twin() -> None:
    """Each host's sum, one shard a place, chosen from with what the shard has kept."""
    shard, count = NUMEL // 2, count_of(DENSITY, NUMEL // 2)
    with on_hosts(HOSTS):
        state = dlcp.torch.GradientState(recipe="hitopk", selector="largest", density=DENSITY, small_numel=0)
        kept = torch.zeros(2, NUMEL)
        for step in range(4):
            given = gradients(step)
            expected = torch.zeros(NUMEL)
            for host in range(2):
                kept[host] += given[host] + given[host + 2]
                for place in range(2):
                    values = kept[host][place * shard : (place + 1) * shard]
                    chosen = Largest().select(values, count)
                    expected[place * shard + chosen] += values[chosen]
                    values[chosen] = 0.0
            assert torch.equal(mean(state, given[dist.get_rank()]), expected / 4), step
        state.end_step()
        # Values and indices of the other host's shard, 8 bytes an element; headers and small print are not in it.
        assert state.report()["total"]["contributed_bytes"] == 4 * (2 - 1) * count * 8


def dense_is_the_plain_sum() -> None:
    with on_hosts(HOSTS):
        state = dlcp.torch.GradientState(recipe="hitopk", density=1.0, small_numel=0)
        given = gradients(1)[dist.get_rank()]
        plain = given.clone()
        dist.all_reduce(plain, op=dist.ReduceOp.AVG)
        assert torch.equal(mean(state, given), plain)


def low_bit_keeps_the_mass() -> None:
    """Over steps, the sum of results and what hosts keep is the sum of gradients; replicas are equal in each."""
    with on_hosts(HOSTS):
        state = dlcp.torch.GradientState(recipe="low_bit", small_numel=0, verify=True)
        applied, given = torch.zeros(NUMEL), torch.zeros(NUMEL)
        for step in range(4):
            mine = gradients(step)
            given += sum(mine) / 4  # type: ignore[arg-type]
            applied += mean(state, mine[dist.get_rank()])
            state.end_step()
        # What is kept is at most half a quantum of the last step's values, at the sender and at the owner.
        assert (applied - given).abs().max() < 2000
        for _ in range(30):
            applied += mean(state, torch.zeros(NUMEL))
            state.end_step()
        torch.testing.assert_close(applied, given, atol=1e-2, rtol=0)


def buffers_start_in_any_order() -> None:
    with on_hosts(HOSTS):
        state = dlcp.torch.GradientState(recipe="hitopk", selector="largest", density=DENSITY, small_numel=0)
        exchange = exchange_of(state)
        given = {name: gradients(place)[dist.get_rank()] for place, name in enumerate("abc")}
        for _ in range(3):
            first = exchange.communicator.reserve(3 * exchange.sequences)
            order = "abc" if dist.get_rank() % 3 else "cab"
            futures = {}
            for name in order:
                call = BufferCall(average=True, sequence=first + "abc".index(name) * exchange.sequences)
                futures[name] = exchange.all_reduce(given[name].clone(), Layout.of([(name, NUMEL)]), call)
            results = {name: futures[name].wait().clone() for name in "abc"}
            state.end_step()
            for name in "abc":
                gathered = [torch.empty(NUMEL) for _ in range(4)]
                dist.all_gather(gathered, results[name])
                assert all(torch.equal(one, gathered[0]) for one in gathered)


def numbers_are_apart_where_communicators_are() -> None:
    """Two callers that number from 0 on communicators of their own, as layer-by-layer optimizers do; and a callback."""
    size = dist.get_world_size()
    with on_hosts(HOSTS):
        pairs = []
        for name in ("one", "other"):
            state = dlcp.torch.GradientState(recipe="hitopk", density=1.0, small_numel=0)
            pairs.append(
                (exchange_of(state, communicator=dist.group.WORLD.private_communicator(name)), state)
            )
        for step in range(3):
            layout = Layout.of([("weight", NUMEL)])
            futures = [
                exchange.all_reduce(
                    gradients(step + 10 * place)[dist.get_rank()], layout, BufferCall(average=False)
                )
                for place, (exchange, _) in enumerate(pairs)
            ]
            for place, future in enumerate(futures):
                assert torch.equal(future.wait(), sum(gradients(step + 10 * place))), (step, place)
            for _, state in pairs:
                state.end_step()
        exchange = exchange_of(dlcp.torch.GradientState(recipe="hitopk", density=1.0, small_numel=0))

        def second(_: Any) -> Tensor:
            values = torch.ones(NUMEL)
            return exchange.all_reduce(values, layout, BufferCall(average=False)).wait().clone()

        chained = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(second)
        dist.all_reduce(torch.ones(3))
        assert torch.equal(chained.wait(), torch.full((NUMEL,), float(size)))


def replicas_are_compared_as_wholes() -> None:
    """A large buffer by hosts, and a small one among all, which end in any order."""
    with on_hosts(HOSTS):
        state = dlcp.torch.GradientState(recipe="hitopk", density=DENSITY, small_numel=0, verify=True)
        exchange = exchange_of(state)
        for step in range(4):
            futures = [
                exchange.all_reduce(
                    gradients(step, numel=numel)[dist.get_rank()],
                    Layout.of([(name, numel)]),
                    BufferCall(average=True),
                )
                for name, numel in (("large", NUMEL), ("small", 100))
            ]
            for future in futures:
                future.wait()
            state.end_step()


def a_dead_rank_ends_the_buffer_on_all() -> None:
    with on_hosts(HOSTS):
        state = dlcp.torch.GradientState(recipe="hitopk", density=DENSITY, small_numel=0)
        mean(state, gradients(0)[dist.get_rank()])
        state.end_step()
        dist.barrier()
        if dist.get_rank() == 3:
            os._exit(7)
        values = gradients(1)[dist.get_rank()]
        with pytest.raises(dist.DistBackendError):
            mean(state, values)
    os._exit(0)


def unequal_hosts_and_small_buffers_are_flat() -> None:
    for hosts, numel in (((0, 0, 0, 1), NUMEL), (HOSTS, 2 * SHARD_NUMEL_MIN - 1)):
        with on_hosts(hosts):
            found = []
            for recipe in ("hitopk", "mstopk"):
                state = dlcp.torch.GradientState(
                    recipe=recipe, selector="largest", density=DENSITY, small_numel=0
                )
                found.append(mean(state, gradients(0, numel=numel)[dist.get_rank()]))
            assert torch.equal(*found)


@pytest.mark.parametrize(
    "case",
    [
        as_the_twin,
        dense_is_the_plain_sum,
        low_bit_keeps_the_mass,
        buffers_start_in_any_order,
        numbers_are_apart_where_communicators_are,
        replicas_are_compared_as_wholes,
        unequal_hosts_and_small_buffers_are_flat,
    ],
)
def test_by_hosts(case: Any) -> None:
    ranks.run(case, 4)


def test_a_dead_rank_ends_a_buffer_on_all_ranks() -> None:
    """Also on those that talk to none of the dead one's host or place in this step: rank 0 of hosts 0, 1, 0, 1."""
    with pytest.raises(ranks.RanksError) as raised:
        ranks.run(a_dead_rank_ends_the_buffer_on_all, 4, timeout_s=30)
    # They leave by themselves when they have seen the error; one that waits on is "not back in time".
    for rank, status in enumerate((0, 0, 0, 7)):
        assert f"--- rank {rank} ---\ndied with {status} and no word" in str(raised.value)
