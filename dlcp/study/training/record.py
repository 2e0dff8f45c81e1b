"""The record of a study of tolerance: its runs and what they came to, as lines of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlcp.study.training.arm import Arm
from dlcp.study.training.results import RunRecord
from dlcp.study.training.tolerance import Results
from dlcp.study.training.training import Result, Run


class Record(RunRecord[Run, Result, Results]):
    """The runs of a folder; what is added is written at once."""

    name = "runs.csv"
    columns = (
        *("task", "fill", "who", "process", "loss", "rate", "seed", "rounds"),
        *("decay", "critical_share", "pressure", "again", "held_out", "abandoned"),
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Results())

    def line_of(self, run: Run, result: Result) -> Mapping[str, object]:
        found = {"held_out": f"{result.held_out:.6g}", "abandoned": f"{result.abandoned:.5g}"}
        return asdict(run) | asdict(run.arm) | found

    def run_of(self, line: Mapping[str, Any]) -> tuple[Run, Result]:
        loss, rate, rounds, decay, critical_share, pressure, held_out, abandoned = (
            float(line[name])
            for name in (
                "loss",
                "rate",
                "rounds",
                "decay",
                "critical_share",
                "pressure",
                "held_out",
                "abandoned",
            )
        )
        arm = Arm(line["who"], line["fill"], decay, line["process"], critical_share, pressure)
        run = Run(line["task"], arm, loss, rate, int(line["seed"]), rounds, int(line["again"]))
        return run, Result(held_out, abandoned)
