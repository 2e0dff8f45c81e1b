"""A rank without sessions, for switches that only real hosts reach: `python -m tests.support.aggregation_rank …`.

It probes, then sums values that it can predict of all ranks, and prints an account. What ranks agree on over their
sessions otherwise follows here from the numbers: codes, the run, positions.
"""

from __future__ import annotations

import argparse
import ipaddress

import numpy as np

from dlcp import _native
from tests.support.aggregation_values import fixed_point_sum

LANES = 32
RUN = 1
GIVE_UP_S = 20.0


def values_of(rank: int, elements: int, turn: int) -> np.ndarray:
    """What a rank contributes."""
    return np.random.default_rng([rank, turn]).standard_normal(elements).astype(np.float32)


def address(text: str) -> tuple[int, int]:
    """IP:PORT."""
    host, _, port = text.partition(":")
    return int(ipaddress.IPv4Address(host)), int(port)


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("rank", "ranks", "job", "slots", "elements", "repeat"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--bind", type=address, required=True)
    parser.add_argument("--hub", type=address, required=True)
    parser.add_argument("--probe-s", type=float, default=GIVE_UP_S)
    told = parser.parse_args()
    place = (told.rank, told.ranks)
    worker = _native.AggregationEndpoint(
        told.job, 1, *place, *place, told.slots, LANES, 0.01, told.bind, told.hub
    )
    end = worker.probe(99, RUN, 0, told.probe_s)
    print(f"probe: {end}")
    if end != "done":
        return
    position, wrong = told.slots, 0
    for turn in range(told.repeat):
        inputs = [values_of(rank, told.elements, turn) for rank in range(told.ranks)]
        codes = np.zeros((told.ranks, -(-told.elements // LANES)), np.uint8)
        for row, each in zip(codes, inputs, strict=True):
            _native.aggregation_exponent_codes(each.ctypes.data, each.size, LANES, row.ctypes.data)
        agreed = codes.max(axis=0)
        out = np.full(told.elements, np.nan, np.float32)
        end = worker.all_reduce(
            *(inputs[told.rank].ctypes.data, told.elements, agreed.ctypes.data, out.ctypes.data),
            *(32, 1.0, RUN, position, GIVE_UP_S),
        )
        position += agreed.size
        wrong += end != "done" or out.tobytes() != fixed_point_sum(inputs, LANES).tobytes()
    print(f"wrong: {wrong}; {worker.counters()}")


if __name__ == "__main__":
    main()
