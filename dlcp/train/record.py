"""The record of a call: everything its report shows, as plain values that go to JSON and back.

A report is drawn from a record alone, so a stored one can be drawn again. Times are in seconds; what is counted per
rank is a list with one entry per rank.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from dlcp.train.errors import TrainError
from dlcp.train.plan import Run

# Raised when a field changes its meaning: an old record is then refused rather than misread.
VERSION = 1
LOOPBACK = "loopback"
"""How the words about the network begin where all ranks were on one host, without a lab."""


@dataclass(slots=True)
class Epoch:
    """How good a model was after an epoch."""

    epoch: int
    """From 1; 0 is before the first step."""
    train_loss: float | None
    """Mean over the epoch's steps and ranks; None before the first."""
    loss: float
    """Of what was kept out of the training."""
    accuracy: float
    wall_s: float
    """Since the run's first step began."""


@dataclass(slots=True)
class Network:
    """What one rank's endpoint counted over a run."""

    sent_packets: int = 0
    sent_bytes: int = 0
    """UDP payload: gradients, headers, tags, control."""
    gradient_bytes: int = 0
    """Of it, gradients, sent for the first time."""
    repair_packets: int = 0
    repair_bytes: int = 0
    received_packets: int = 0
    injected_packets: int = 0
    """Arrived and dropped on purpose."""
    lost_packets: int = 0
    """Declared lost by this sender, less those that came late."""
    marked_packets: int = 0
    """Arrived with the network's congestion mark."""
    refused_packets: int = 0
    """Foreign, forged, replayed or damaged."""
    abandoned_bytes: int = 0
    """Of gradients, abandoned on purpose: 0 for plain collectives."""
    rtt_s: float = 0.0
    """Smallest round-trip time to a peer; the median of the peers."""


def together(counted: Sequence[Network]) -> Network:
    """What several endpoints counted, as one; the round-trip time is the median one's."""
    columns = {f.name: [getattr(one, f.name) for one in counted] for f in fields(Network)}
    times = sorted(columns.pop("rtt_s"))
    return Network(**{name: sum(column) for name, column in columns.items()}, rtt_s=times[len(times) // 2])


@dataclass(slots=True)
class Gradients:
    """What one rank abandoned of its gradients over a run, on purpose and within its budget."""

    sent_bytes: int
    """Of gradients, to the ranks that add them; the budget is a share of this."""
    abandoned_bytes: int
    """Of it, abandoned."""
    residual_bytes: int
    """Given up, kept, and not sent yet when the run ended."""
    written_off_bytes: int
    """Given up for good."""


@dataclass(slots=True)
class LinkCounts:
    """What the links of the lab counted over a run, all of them together, whatever the backend."""

    packets: int
    """That arrived at a host, dropped ones included."""
    dropped_packets: int

    @property
    def loss_ratio(self) -> float:
        return self.dropped_packets / max(1, self.packets)


@dataclass(slots=True)
class RunRecord:
    """One training, from its first step to its last."""

    run: Run
    parameters: int = 0
    steps: int = 0
    wall_s: float = 0.0
    epochs: list[Epoch] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    """Of rank 0: batch, forward, backward with its all-reduce, optimizer."""
    communication_s: list[float] = field(default_factory=list)
    """Of rank 0, per step: from the first all-reduce's start to the last one's end; it waits for other ranks too."""
    cpu_s: list[float] = field(default_factory=list)
    """Per rank: user and system time of the run."""
    digests: list[str] = field(default_factory=list)
    """Per rank: SHA-256 of the final weights."""
    network: list[Network] = field(default_factory=list)
    """Per rank; empty for a backend that does not say."""
    sent_bytes: list[int] = field(default_factory=list)
    """Per rank, from the first step to the last: payload of UDP or TCP, what was sent again included. Of an exchange
    its share of what its host's interface sent, with all headers. Empty: nobody counted."""
    sums: dict[str, int] | None = None
    """Of rank 0: all-reduces that a switch was asked for, by who added them: "switch", or why the ring did. None: no
    switch was."""
    gradients: list[Gradients] = field(default_factory=list)
    """Per rank; empty if all gradients had to arrive."""
    links: LinkCounts | None = None
    """None: not in the lab."""
    sample: str = ""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunRecord:
        """The run that asdict() describes."""
        parts = {
            "run": Run.from_dict(values["run"]),
            "epochs": [Epoch(**one) for one in values["epochs"]],
            "network": [Network(**one) for one in values["network"]],
            # Not in records from before gradients could be abandoned.
            "gradients": [Gradients(**one) for one in values.get("gradients", ())],
            "links": LinkCounts(**values["links"]) if values["links"] is not None else None,
        }
        return cls(**(values | parts))

    @property
    def replicas_agree(self) -> bool:
        """Whether all ranks ended with the same bits."""
        return len(set(self.digests)) == 1

    @property
    def is_over(self) -> bool:
        """Whether all ranks have ended it."""
        return bool(self.digests)

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]

    def totals(self) -> Network | None:
        """All ranks together; None if nothing was counted."""
        return together(self.network) if self.network else None

    @property
    def step_bytes(self) -> float | None:
        """What a rank sends in a step, the mean of all; None: nobody counted."""
        return sum(self.sent_bytes) / len(self.sent_bytes) / max(1, self.steps) if self.sent_bytes else None

    @property
    def abandoned_ratio(self) -> float:
        """The share of all ranks' gradient bytes that was abandoned."""
        abandoned = sum(rank.abandoned_bytes for rank in self.gradients)
        return abandoned / max(1, sum(rank.sent_bytes for rank in self.gradients))

    def lost(self) -> LinkCounts | None:
        """Packets that arrived and how many of them were dropped, by the links or on purpose; None: nobody counted."""
        if self.links is not None or (total := self.totals()) is None:
            return self.links
        return LinkCounts(total.received_packets + total.injected_packets, total.injected_packets)


@dataclass(slots=True)
class Record:
    """One call: where it ran, and its runs."""

    world_size: int
    host: dict[str, str] = field(default_factory=dict)
    """Facts about the machine, in words."""
    network: str = ""
    """What the packets went through, in words."""
    started: str = ""
    """Date and time."""
    wall_s: float = 0.0
    runs: list[RunRecord] = field(default_factory=list)

    @property
    def models(self) -> list[str]:
        """In the order of their first run."""
        return list(dict.fromkeys(one.run.model for one in self.runs))

    @property
    def exchanges(self) -> list[str]:
        """In the order of their first run; none: they were not compared."""
        named = (one.run.configuration.exchange for one in self.runs)
        return list(dict.fromkeys(filter(None, named)))

    def of_model(self, model: str) -> list[RunRecord]:
        """The runs of one model, in order."""
        return [one for one in self.runs if one.run.model == model]

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    def save(self, path: Path) -> None:
        path.write_text(self.text() + "\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        """What save() wrote. Raises TrainError: it cannot be read, or is of another version."""
        try:
            values: dict[str, Any] = json.loads(path.read_text())
            version = values.pop("version")
        except OSError as error:
            raise TrainError(f"{path}: {error.strerror}; give the record.json of a training") from error
        except (ValueError, KeyError, AttributeError) as error:
            raise TrainError(f"{path} is no record of a training: {type(error).__name__}: {error}") from error
        if version != VERSION:
            raise TrainError(f"{path} is a record of version {version}; this program reads version {VERSION}")
        try:
            return cls(**(values | {"runs": [RunRecord.from_dict(one) for one in values["runs"]]}))
        except (KeyError, TypeError) as error:
            raise TrainError(f"{path} is no record of a training: {type(error).__name__}: {error}") from error
