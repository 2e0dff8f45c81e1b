"""Residuals outside of a memory: as plain names, numbers and tensors, for checkpoints and for other sets of ranks.

A state is one rank's:

    {"version": 1, "batches": [{
        "names": [str, …],                                  # parameters, each once
        "parameter", "offset", "count", "age": int64 [runs],  # index in names; first element; elements; steps waited
        "values": float32 or float64 [sum of count],        # run after run; kept is factor · values, unscaled
        "factor": float,
        "velocities": as values, or None,                   # of momentum correction, without factor
        "element_bytes": int}]}

Batches of one state may overlap; what they keep of an element adds up. Nothing else of a rule, a layout or a rank is in
it, so what is loaded goes on under the rule of the memory that loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from dlcp.torch.gradient.element_runs import Indices
from dlcp.torch.gradient.residual.store import OFFSET_BITS, Batch, Names, ResidualStore, renumbered, square_of

VERSION = 1

Rename = Callable[[str], str | None]
"""A parameter's new name; None: it is gone."""
Reshard = Callable[[Sequence[Mapping[str, Any]], int, bool, Rename], list[dict[str, Any]]]
"""A recipe's part of gradient/reshard.py: states, the new number of ranks, whether gradients are averaged, names."""


def save(store: ResidualStore, names: Names) -> dict[str, Any]:
    """The state of what a store keeps. Tensors are copies."""
    return {"version": VERSION, "batches": [_save(batch, names) for batch in store]}


def load(state: Mapping[str, Any], names: Names, device: torch.device | str | None = None) -> list[Batch]:
    """The contents of a state, copied to a device; None: on the state's device. Raises ValueError."""
    if state.get("version") != VERSION:
        raise ValueError(f"version of residuals is {state.get('version')}; accepted: {VERSION}")
    return [_load(saved, names, device) for saved in state["batches"]]


def reshard(
    states: Sequence[Mapping[str, Any]],
    size: int,
    *,
    average: bool = True,
    rename: Callable[[str], str | None] | None = None,
) -> list[dict[str, Any]]:
    """The states of `size` ranks made from those of len(states) ranks, in the order of ranks.

    What rank i kept goes to rank i mod `size`, where it adds up with what others left there; ranks beyond the old
    number begin with nothing. With `average` gradients are divided by the number of ranks, so values are multiplied by
    new number / old: whatever arrives then has the weight in an average of `size` that it would have had before. Sums
    stay as they are. Saved are tensors of their own.

    `rename`: the name that a parameter has now; None of a name: it is gone, and what was kept of it is left out,
    uncounted. How buffers or shards of parameters are cut plays no part: states know parameters and offsets alone.

    Raises ValueError.
    """
    if size < 1 or not states:
        raise ValueError(f"{len(states)} states for {size} ranks; accepted: 1 or more of each")
    factor = size / len(states) if average else 1.0
    made: list[dict[str, Any]] = [{"version": VERSION, "batches": []} for _ in range(size)]
    for rank, state in enumerate(states):
        names = Names()
        batches = load(state, names)
        for batch in batches:
            store = ResidualStore([batch])
            if rename is not None:
                store = _renamed(batch, names, rename)
            for saved in save(store, names)["batches"]:
                saved["factor"] *= factor
                if saved["velocities"] is not None:
                    saved["velocities"] *= factor
                made[rank % size]["batches"].append(saved)
    return made


def _renamed(batch: Batch, names: Names, rename: Callable[[str], str | None]) -> ResidualStore:
    numbers: dict[int, int] = {}
    for number in batch.names().tolist():
        new = rename(names.name(number))
        if new is not None:
            numbers[number] = names.number(new)
    if len(set(numbers.values())) < len(numbers):
        raise ValueError("rename gives two parameters one name; accepted: a name of its own for each")
    store = ResidualStore()
    store.put(renumbered(batch, numbers))
    return store


def _save(batch: Batch, names: Names) -> dict[str, Any]:
    numbers, parameter = np.unique(batch.begin >> OFFSET_BITS, return_inverse=True)
    return {
        "names": [names.name(number) for number in numbers.tolist()],
        "parameter": torch.from_numpy(parameter.astype(np.int64)),
        "offset": torch.from_numpy(batch.begin & ((1 << OFFSET_BITS) - 1)),
        "count": torch.from_numpy(batch.count.copy()),
        "age": torch.from_numpy(batch.age.copy()),
        "values": batch.values.clone(),
        "factor": batch.factor,
        "velocities": None if batch.velocities is None else batch.velocities.clone(),
        "element_bytes": batch.element_bytes,
    }


def _load(saved: Mapping[str, Any], names: Names, device: torch.device | str | None) -> Batch:
    runs = [_numbers(saved, key) for key in ("parameter", "offset", "count", "age")]
    parameter, offset, count, age = runs
    values, velocities = saved["values"], saved["velocities"]
    if len({len(each) for each in runs}) != 1 or not len(parameter) or count.min() < 1 or offset.min() < 0:
        raise ValueError("runs of residuals disagree, or one is empty; accepted: what state_dict() gave")
    if parameter.min() < 0 or parameter.max() >= len(saved["names"]):
        raise ValueError(f"a run is of parameter {parameter.max()}; accepted: {len(saved['names'])} names")
    if len(set(saved["names"])) != len(saved["names"]):
        raise ValueError(f"names are {saved['names']}; accepted: each once")
    for tensor in (values, velocities):
        if tensor is not None and (tensor.dim() != 1 or tensor.numel() != int(count.sum())):
            raise ValueError(
                f"values of shape {tuple(tensor.shape)}; accepted: {int(count.sum())}, as runs say"
            )
    if values.dtype not in (torch.float32, torch.float64) or not bool(torch.isfinite(values).all()):
        raise ValueError(f"values of {values.dtype}; accepted: float32 or float64, all finite")
    values = values.detach().to(device, copy=True)
    # The runs ascend by the names of the memory that saved them; here the names may have other numbers.
    own = np.arange(len(saved["names"]), dtype=np.int64) << OFFSET_BITS
    batch = Batch(
        own[parameter] + offset,
        count,
        age,
        values,
        None if velocities is None else velocities.detach().to(device, copy=True),
        float(saved["factor"]),
        int(saved["element_bytes"]),
        square_of(values),
    )
    if (batch.begin[1:] < batch.end[:-1]).any():
        raise ValueError("runs of residuals overlap or are out of order; accepted: what state_dict() gave")
    numbered = renumbered(batch, {index: names.number(name) for index, name in enumerate(saved["names"])})
    assert numbered is not None
    return numbered


def _numbers(saved: Mapping[str, Any], key: str) -> Indices:
    numbers: Indices = saved[key].detach().cpu().to(torch.int64).numpy().copy()
    return numbers
