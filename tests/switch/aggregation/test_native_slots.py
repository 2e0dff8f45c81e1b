"""The compiled slots of the software switch beside the twin: random frames, and what a program has to answer itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from dlcp import _native
from dlcp.switch.aggregation.entries import NO_PORT
from dlcp.switch.software.native_jobs import to_native
from tests.support.aggregation_frames import random_frame
from tests.support.aggregation_twin import AggregatingSwitch
from tests.vectors import aggregation


@pytest.mark.parametrize("seed", range(3))
def test_slots_do_what_the_twin_does(seed: int) -> None:
    rng = random.Random(seed)
    twin = AggregatingSwitch()
    twin.write(aggregation.entries())
    slots = _native.AggregationSlots(to_native(aggregation.REQUESTS))
    for index in range(3000):
        port, frame = random_frame(rng)
        expected = twin.process(frame, port)
        whom, got = slots.process(frame, port)
        if whom in ("ordinary", "forward"):  # where to is the bridge's business
            assert {raw for _, raw in expected} <= {got[0][1]}, (seed, index, frame.hex())
        else:
            assert sorted(got) == sorted(expected), (seed, index, frame.hex())
    rows = {
        (row + 1, name): n for row, job in enumerate(slots.counts()) for name, n in job["outcomes"].items()
    }
    assert rows == {key: count for key, count in twin.outcomes.items() if key[0]}
    assert len(rows) > 20, "the frames reach most outcomes of both jobs"


def test_hub_address_without_a_host_is_the_switchs_own() -> None:
    first = aggregation.REQUESTS[0]
    job = replace(first, hub=replace(first.hub, port=NO_PORT))
    slots = _native.AggregationSlots(to_native([job]))
    asker = first.workers[1]
    mac, ip = asker.mac_number.to_bytes(6, "big"), asker.ip_number.to_bytes(4, "big")
    hub_mac, hub_ip = job.hub.mac_number.to_bytes(6, "big"), job.hub.ip_number.to_bytes(4, "big")
    head = b"\x08\x06" + bytes([0, 1, 8, 0, 6, 4, 0])
    question = b"\xff" * 6 + mac + head + b"\1" + mac + ip + bytes(6) + hub_ip
    answer = mac + hub_mac + head + b"\2" + hub_mac + hub_ip + mac + ip
    assert slots.process(question, asker.port) == ("asker", [(asker.port, answer)])
    # Not for another address, and not at a port without a worker of the job.
    assert slots.process(question[:-1] + b"\x63", asker.port)[0] == "ordinary"
    assert slots.process(question, 9)[0] == "ordinary"
