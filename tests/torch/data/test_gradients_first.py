"""What the lowest traffic class is worth: steps of gradients beside samples that fill every link, in simulated time.

The hosts run the engine that ships, and the switch serves classes strictly.
"""

from __future__ import annotations

import numpy as np

import dlcp_sim as ds
from dlcp_sim.workloads import together

HOSTS = 4
RATE_BPS = 10e9
STEPS = 60
GRADIENT_BYTES = 1_000_000
# Twice the time that the link needs for the gradients: half of it is free for samples.
PERIOD_S = 2 * GRADIENT_BYTES * 2 * (HOSTS - 1) / HOSTS * 8 / RATE_BPS
# More than fits beside the gradients: the link is never idle.
SAMPLES_BYTES = int(STEPS * PERIOD_S * RATE_BPS / 8 / (HOSTS - 1))


def step_s_p99(gradient_class: int, sample_class: int | None) -> float:
    gradients = [
        ds.collective(
            bytes=GRADIENT_BYTES, executor=True, traffic_class=gradient_class, start_s=1e-3 + step * PERIOD_S
        )
        for step in range(STEPS)
    ]
    samples = [] if sample_class is None else [ds.all_to_all(bytes=SAMPLES_BYTES, traffic_class=sample_class)]
    run = ds.Scenario(
        fabric=ds.Star(HOSTS, rate_bps=RATE_BPS, delay_s=10e-6),
        transport=ds.Dlcp(),
        workload=together(*gradients, *samples),
    ).run()
    ended = run.collectives
    assert ended is not None
    # The samples outlast the gradients.
    assert sample_class is None or run.simulated_s > ended.finish_s.max()
    return float(np.percentile((ended.finish_s - ended.start_s).reshape(STEPS, HOSTS).max(axis=1), 99))


def test_samples_in_the_lowest_class_lengthen_steps_by_less_than_a_twentieth() -> None:
    from dlcp.torch.data.exchange import TRAFFIC_CLASS

    alone = step_s_p99(TRAFFIC_CLASS + 1, None)
    assert step_s_p99(TRAFFIC_CLASS + 1, TRAFFIC_CLASS) <= 1.05 * alone
    # In one class the samples would take their share.
    assert step_s_p99(TRAFFIC_CLASS, TRAFFIC_CLASS) > 2 * alone
