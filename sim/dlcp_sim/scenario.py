"""What is simulated: a fabric, a transport, a workload, and what else is said about a run.

A scenario is a value: it can be compared, changed with `replace`, written as TOML and read again. Nothing is simulated
until `run`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dlcp_sim.scenario_fields import Sample, ScenarioFields, Trace

if TYPE_CHECKING:
    from dlcp_sim.progress import Progress
    from dlcp_sim.result import Result

__all__ = ["Sample", "Scenario", "Trace"]


class Scenario(ScenarioFields):
    """A run, before it is run. Same scenario, same result, byte for byte, with any number of threads."""

    # ---- running ----

    def run(self, progress: Progress | Literal[True] | None = None) -> Result:
        """Simulates it, and returns what was found.

        `progress`: called with a Moment some times a second; True: a line on standard error. Ctrl-C raises
        `Interrupted`, a KeyboardInterrupt whose `result` is what was found until then. Errors: ArgumentError for what
        fabric, workload and faults do not allow; InvariantError if the simulator contradicts itself, as by a flow that
        is faster than it can be.
        """
        from dlcp_sim.run import run

        return run(self, progress)

    # ---- as data ----

    def as_dict(self) -> dict[str, Any]:
        """The scenario as the tables of a file; `from_dict` makes an equal one of it."""
        from dlcp_sim.toml import tables_of

        return tables_of(self)

    @classmethod
    def from_dict(cls, tables: Mapping[str, Any], folder: Path | None = None) -> Scenario:
        """The scenario that tables describe. `folder`: where files that they name are looked for."""
        from dlcp_sim.toml import values_from

        return cls(**values_from(tables, folder))

    @classmethod
    def load(cls, path: Path | str) -> Scenario:
        """The scenario in a TOML file. Raises ArgumentError, which names what is unknown and what is near."""
        from dlcp_sim.toml import read_file

        return cls.from_dict(read_file(path), Path(path).parent)

    def to_toml(self) -> str:
        """A TOML text of which `load` makes an equal scenario."""
        from dlcp_sim.toml import to_text

        return to_text(self.as_dict())
