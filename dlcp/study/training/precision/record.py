"""The record of a study of precision: its runs and what they came to, as lines of a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dlcp.study.training.precision.arm import Arm
from dlcp.study.training.precision.quality import Results
from dlcp.study.training.precision.training import Result, Run
from dlcp.study.training.results import RunRecord


class Record(RunRecord[Run, Result, Results]):
    """The runs of a folder; what is added is written at once."""

    name = "precision-runs.csv"
    columns = (
        *("problem", "codec", "feedback", "refinement", "layers", "share", "wider", "wider_bits", "order"),
        *("capacity", "block_groups", "rate", "seed", "rounds", "again", "held_out", "bits"),
        *("returned", "warmup_steps", "scale_values", "scale", "turned", "curve"),
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, Results())

    def line_of(self, run: Run, result: Result) -> Mapping[str, object]:
        found = {"held_out": f"{result.held_out:.6g}", "bits": f"{result.bits:.5g}"}
        found["curve"] = " ".join(f"{loss:.6g}" for loss in result.curve)
        return asdict(run) | asdict(run.arm) | {"wider": " ".join(run.arm.wider)} | found

    def run_of(self, line: Mapping[str, Any]) -> tuple[Run, Result]:
        arm = Arm(
            line["codec"],
            line["feedback"],
            line["refinement"],
            int(line["layers"]),
            float(line["share"]),
            tuple(line["wider"].split()),
            float(line["wider_bits"]),
            line["order"],
            line["capacity"],
            int(line["block_groups"]),
            line["returned"],
            int(line["warmup_steps"]),
            int(line["scale_values"]),
            line["scale"],
            line["turned"] == "True",
        )
        rate, rounds = float(line["rate"]), float(line["rounds"])
        run = Run(line["problem"], arm, rate, int(line["seed"]), rounds, int(line["again"]))
        curve = tuple(map(float, line["curve"].split()))
        return run, Result(float(line["held_out"]), float(line["bits"]), curve)
