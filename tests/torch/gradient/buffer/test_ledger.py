"""The account of gradients: sums, history, lines, and what Prometheus gets of it."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from dlcp.torch.gradient.buffer.ledger import Ledger, Traffic
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.residual.memory import ResidualMemory
from dlcp.torch.gradient.residual.report import ResidualReport
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp.transport.bounded import Abandoned, CollectiveOutcome
from dlcp.transport.job import Job
from dlcp.transport.metrics import PACKET_OVERHEAD_BYTES
from dlcp.transport.prometheus import render
from dlcp.transport.store import MemoryStore

BLOCK_BYTES = 1400


def _abandoned(peer: int, nbytes: int) -> Abandoned:
    return Abandoned(peer, 0, 10 * BLOCK_BYTES, BLOCK_BYTES, nbytes, np.ones(1, np.uint64))


def _outcome(
    sent: int = 0, received: int = 0, again: int = 0, gone: int = 0, missing: int = 0
) -> CollectiveOutcome:
    return CollectiveOutcome(
        sent=(_abandoned(1, gone),) if gone else (),
        missing=(_abandoned(2, missing),) if missing else (),
        sent_bytes=sent,
        received_bytes=received,
        retransmitted_bytes=again,
    )


def _report() -> ResidualReport:
    """Of a memory that keeps 2 of 4 values and has decayed them once."""
    memory, layout = ResidualMemory(ResidualRule(decay=0.5)), Layout.of([("weight", 4)])
    buffer = torch.tensor([1.0, 6.0, 8.0, 2.0])
    memory.add_to(buffer, layout)
    memory.keep(buffer, layout, [(1, 3)])
    memory.end_step()
    return memory.report()


def test_a_step_is_the_sum_of_its_buffers_and_the_total_of_its_steps() -> None:
    rng = np.random.default_rng(4)
    ledger, all_steps = Ledger(), Traffic()
    for step in range(5):
        for buffer in ("front", "back", "front"):
            sent = int(rng.integers(1, 10**6))
            ledger.enter(
                buffer,
                _outcome(sent, sent // 2, sent // 7, sent // 9, sent // 11),
                critical_bytes=sent // 3,
                budget_bytes=sent // 5,
                block_bytes=BLOCK_BYTES,
            )
        ended = ledger.end_step(applied=step != 2)
        assert (ended.step, ended.applied, list(ended.buffers)) == (step, step != 2, ["front", "back"])
        of_buffers = Traffic()
        for traffic in ended.buffers.values():
            of_buffers += traffic
        assert ended.total == of_buffers
        all_steps += ended.total
    report = ledger.report()
    assert (report["steps"], report["skipped"]) == (5, 1)
    ratios = {name: report["total"].pop(name) for name in ("abandoned_ratio", "budget_ratio")}
    assert Traffic(**report["total"]) == all_steps
    assert ratios["abandoned_ratio"] == pytest.approx(1 / 9, rel=1e-3)
    assert ratios["budget_ratio"] == pytest.approx(1 / 5, rel=1e-3)


def test_what_an_outcome_says_is_entered() -> None:
    ledger = Ledger()
    ledger.enter(
        "bucket",
        _outcome(sent=3 * BLOCK_BYTES + 1, received=77, again=BLOCK_BYTES, gone=20, missing=30),
        critical_bytes=40,
        budget_bytes=50,
        block_bytes=BLOCK_BYTES,
        contributed_bytes=2 * BLOCK_BYTES,
    )
    assert ledger.end_step().total == Traffic(
        value_bytes=3 * BLOCK_BYTES + 1,
        contributed_bytes=2 * BLOCK_BYTES,
        # Four packets, and one again.
        header_bytes=5 * PACKET_OVERHEAD_BYTES,
        retransmitted_bytes=BLOCK_BYTES,
        received_bytes=77,
        critical_bytes=40,
        budget_bytes=50,
        abandoned_bytes=20,
        missing_bytes=30,
    )


def test_history_is_bounded_and_a_report_is_plain() -> None:
    ledger = Ledger(history=3)
    assert ledger.report()["last"] is None
    for _ in range(7):
        ledger.enter("one", _outcome(sent=5), critical_bytes=0, budget_bytes=0, block_bytes=0)
        ledger.end_step(_report())
    assert [step.step for step in ledger.history] == [4, 5, 6]
    report = json.loads(json.dumps(ledger.report()))
    assert report["last"]["step"] == 6
    assert report["last"]["buffers"]["one"]["value_bytes"] == 5
    assert report["residual"]["nbytes"] == 8
    assert report["residual"]["norm"] == pytest.approx(5.0)
    assert report["residual"]["total"]["decayed_norm"] == pytest.approx(5.0)
    assert "last" not in ledger.snapshot()


def test_a_line_is_logged_each_interval(caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger(3, "workers", log_interval_steps=2)
    with caplog.at_level(logging.INFO, "dlcp"):
        for step in range(5):
            mib = 2**20
            ledger.enter(
                "all",
                _outcome(sent=(step + 1) * mib, gone=(step + 1) * mib // 20),
                critical_bytes=0,
                budget_bytes=(step + 1) * mib // 10,
                block_bytes=BLOCK_BYTES,
            )
            ledger.end_step(_report(), applied=step != 3)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith(
        "rank 3, group workers: gradients, 2 steps: of the last 3.0 MiB were abandoned 5.00% "
    )
    # Of the interval alone: steps 2 and 3.
    assert "4 steps: of the last 7.0 MiB were abandoned 5.00% (allowed 10.00%)" in lines[1]
    assert "norm 5" in lines[1]
    assert lines[1].endswith("1 steps skipped")


@pytest.mark.parametrize("wrong", [{"history": 0}, {"log_interval_steps": 0}])
def test_what_is_no_number_of_steps_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is 0; accepted"):
        Ledger(**wrong)


# --- metrics ------------------------------------------------------------------------------------------------


def test_metrics_have_the_account_as_long_as_it_lives() -> None:
    with Job(MemoryStore(), 0, 1, shm=False) as job:
        ledger, other = Ledger(), Ledger()
        assert job.metrics.include("model", ledger) == "model"
        assert job.metrics.include("model", ledger) == "model"
        assert job.metrics.include("model", other) == "model #2"
        ledger.enter(
            "a",
            _outcome(sent=1000, gone=70, missing=5),
            critical_bytes=1,
            budget_bytes=2,
            block_bytes=BLOCK_BYTES,
        )
        ledger.end_step(_report())
        snapshot = job.metrics.snapshot()
        assert snapshot["gradients"]["model"] == ledger.snapshot()
        text = render(snapshot)
        samples = dict(re.findall(r'^(dlcp_gradient_\w+)\{rank="0",gradients="model"\} (\S+)$', text, re.M))
        assert samples == {
            "dlcp_gradient_steps_total": "1",
            "dlcp_gradient_steps_skipped_total": "0",
            "dlcp_gradient_value_bytes_total": "1000",
            "dlcp_gradient_contributed_bytes_total": "1000",
            "dlcp_gradient_header_bytes_total": str(PACKET_OVERHEAD_BYTES),
            "dlcp_gradient_retransmitted_bytes_total": "0",
            "dlcp_gradient_received_bytes_total": "0",
            "dlcp_gradient_critical_bytes_total": "1",
            "dlcp_gradient_budget_bytes_total": "2",
            "dlcp_gradient_abandoned_bytes_total": "70",
            "dlcp_gradient_missing_bytes_total": "5",
            "dlcp_gradient_written_off_bytes_total": "0",
            "dlcp_gradient_residual_bytes": "8",
            "dlcp_gradient_residual_norm": "5",
            "dlcp_gradient_residual_age_steps": "1",
        }
        # Nothing is kept under another fill.
        assert 'dlcp_gradient_residual_bytes{rank="0",gradients="model #2"}' not in text
        assert 'dlcp_gradient_steps_total{rank="0",gradients="model #2"} 0' in text
        # Some recipes do not count the norm of what waits.
        other.end_step(replace(_report(), norm=None))
        text = render(job.metrics.snapshot())
        assert 'dlcp_gradient_residual_bytes{rank="0",gradients="model #2"} 8' in text
        assert 'dlcp_gradient_residual_norm{rank="0",gradients="model #2"}' not in text
        del ledger, other
        assert job.metrics.snapshot()["gradients"] == {}
