"""What the participants of a job agree on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dlcp.errors import ArgumentError, SettingsError
from dlcp.switch.aggregation import JobSettings, Worker


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"trust_switch": False}, "trust_switch is False; accepted: True"),
        ({"job": -1}, "job is -1; accepted: an integer from 0 to 4294967295"),
        ({"workers": 33}, "workers is 33; accepted: an integer from 1 to 32"),
        ({"slots": 1}, "slots is 1; accepted: an integer from 2 to 65535"),
        ({"generation": 65536}, "generation is 65536"),
        ({"quorum": 5, "deadline_ns": 1}, "quorum is 5; accepted: an integer from 1 to 4"),
        ({"quorum": 2}, "quorum is 2; accepted: 1, unless deadline_ns is set"),
        ({"deadline_ns": 0}, "deadline_ns is 0"),
        ({"retransmit_ns": True}, "retransmit_ns is True"),
    ],
)
def test_settings_out_of_range(changes: dict[str, object], text: str) -> None:
    values: dict[str, Any] = {"job": 7, "workers": 4, "slots": 16, "trust_switch": True, **changes}
    with pytest.raises(SettingsError, match=re.escape(text)):
        JobSettings(**values)


def test_messages_end_with_their_numbers() -> None:
    worker = Worker(JobSettings(job=1, workers=2, slots=4, trust_switch=True), 0)
    worker._newest = 2**32 - 1
    with pytest.raises(ArgumentError, match="4294967295 messages were started.*next generation"):
        worker.start(np.ones(4, np.float32), 0)


def test_values_that_are_no_gradients() -> None:
    worker = Worker(JobSettings(job=1, workers=2, slots=4, trust_switch=True), 1)
    with pytest.raises(ArgumentError, match="values are float64; accepted: float32, int32"):
        worker.start(np.ones(4), 0)
    with pytest.raises(ArgumentError, match="values have 0 elements"):
        worker.start(np.ones(0, np.float32), 0)
    with pytest.raises(SettingsError, match="worker is 2; accepted: an integer from 0 to 1"):
        Worker(worker.settings, 2)
