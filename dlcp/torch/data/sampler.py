"""The order of an epoch: one permutation for all ranks, each of which takes every world_size-th sample of it.

The permutation depends on seed and epoch alone. Over all ranks an epoch has every sample exactly once, whatever the
number of ranks: where it does not divide the samples, some ranks have one sample more. Training that needs equal
numbers of steps (DDP without `join()`) takes `remainder="drop"`.

A restart goes on in the middle of an epoch, also with another number of ranks: the state is how much of the
permutation all ranks have taken, and what is left is dealt out anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch.distributed as dist
from torch.utils.data import Sampler

from dlcp import checks
from dlcp.errors import ArgumentError

Remainder = Literal["uneven", "drop"]


class EpochSampler(Sampler[int]):
    """This rank's part of each epoch's permutation, for the `sampler` of a DataLoader.

    `length`: samples of the data set. `rank`, `world_size`: None, those of the default group, or 0 of 1 without one.
    `remainder`: of samples that ranks cannot share evenly. "uneven": the first ranks take one more. "drop": nobody
    takes them in this epoch. As with torch's DistributedSampler, call set_epoch() before each epoch, or every epoch has
    the same order.
    """

    def __init__(
        self,
        length: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        remainder: Remainder = "uneven",
    ) -> None:
        super().__init__()
        grouped = dist.is_available() and dist.is_initialized()
        if world_size is None:
            world_size = dist.get_world_size() if grouped else 1
        if rank is None:
            rank = dist.get_rank() if grouped else 0
        self.length = checks.integer("length", length, 0)
        self.world_size = checks.integer("world_size", world_size, 1)
        self.rank = checks.integer("rank", rank, 0, self.world_size - 1)
        self.seed = checks.integer("seed", seed, 0)
        self.shuffle = checks.boolean("shuffle", shuffle)
        self.remainder = checks.choice("remainder", remainder, ("uneven", "drop"))
        self.epoch = 0
        """The epoch whose order it gives."""
        self.start = 0
        """How many samples of the epoch's order all ranks together took before a restart."""

    def set_epoch(self, epoch: int) -> None:
        """Goes to an epoch. The epoch that load_state_dict() restored goes on where it was; any other begins."""
        epoch = checks.integer("epoch", epoch, 0)
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def __len__(self) -> int:
        return len(self._positions())

    def __iter__(self) -> Iterator[int]:
        order = self._order()
        # Python's ints: some data sets take no others.
        return iter([int(order[position]) for position in self._positions()])

    def state_dict(self, taken: int) -> dict[str, Any]:
        """What load_state_dict() needs, on any number of ranks, to go on after `taken` samples of this rank.

        `taken`: since the epoch began, or since the restart in it, as training counts them: steps times batch size. A
        DataLoader asks ahead for its workers, so the sampler cannot know. All ranks have taken equally many, but for an
        uneven last sample, which rank 0 takes if anyone does: save rank 0's state.
        """
        share = len(self)
        taken = checks.integer("taken", taken, 0, share)
        at = self.length if taken == share else self.start + taken * self.world_size
        return {"seed": self.seed, "epoch": self.epoch, "length": self.length, "start": min(at, self.length)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where state_dict() was taken. Raises ArgumentError: it is of another seed or another length."""
        keys = ("seed", "epoch", "length", "start")
        checks.known("key of the sampler's state", state, keys)
        if missing := [key for key in keys if key not in state]:
            raise ArgumentError(
                f"the sampler's state lacks {', '.join(missing)}; accepted: what state_dict() gave"
            )
        for name in ("seed", "length"):
            if state[name] != getattr(self, name):
                raise ArgumentError(
                    f"the state has {name} {state[name]}; accepted: {getattr(self, name)}, as this sampler"
                )
        self.epoch = checks.integer("epoch", state["epoch"], 0)
        self.start = checks.integer("start", state["start"], 0, self.length)

    def _order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        if not self.shuffle:
            return np.arange(self.length)
        return np.random.Generator(np.random.PCG64([self.seed, self.epoch])).permutation(self.length)

    def _positions(self) -> range:
        end = self.length
        if self.remainder == "drop":
            end -= (end - self.start) % self.world_size
        return range(self.start + self.rank, end, self.world_size)
