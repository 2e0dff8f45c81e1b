"""What is to be run: which models over which backends, from which seeds, on how many ranks. Values only.

A *run* is one training of one model from one seed. A *configuration* is what carries its gradients: a backend, the
share of packets that the network loses, the recipe of the gradients, the share of them that may be abandoned, and the
exchange that adds them. A report compares runs that differ only in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlcp.lab.fabric import Fabric

MODELS = ("digits", "language")
# Epochs that bring a model to where its curve bends; three configurations of both models together take about a minute.
EPOCHS = {"digits": 20, "language": 8}
EPOCH_S = {"digits": 0.2, "language": 2.2}
"""What an epoch of 4 ranks takes on two cores without other work, over loopback."""
START_S = 6.0
"""Until the ranks have loaded torch."""
MODES = ("compare", "single", "study")
RECIPES = {"exact": "", "low_bit": "low bits", "dlcp": "bounded"}
"""What is done with gradients, by the names of dlcp.torch.GradientState, and how reports call it."""
CODEC = "int4"
"""Of the recipe "low_bit"."""
EXCHANGES = ("ring", "hierarchical", "hub", "switch")
"""Who adds gradients: the ranks, round a ring or by hosts; a hub; a switch."""
EXCHANGE_EPOCHS = {"digits": 5, "language": 2}
"""Of runs that compare exchanges: enough for their steps, on links that are slow."""
WORLD_SIZE_MAX = 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """What carries the gradients."""

    backend: str
    loss_ratio: float = 0.0
    """Of the packets on their way, 0 to 1."""
    loss_budget: float = 0.0
    """Of the bytes of gradients that a rank sends, the share it may abandon, 0 to 1; 0: all of them arrive."""
    recipe: str = "exact"
    """A name in RECIPES."""
    exchange: str = ""
    """A name in EXCHANGES. Empty: as dlcp chooses."""

    @property
    def name(self) -> str:
        """For people: "dlcp, 1 % loss", "dlcp low bits, 1 % loss", "dlcp ring, no loss"."""
        backend = "Gloo" if self.backend == "gloo" else self.backend
        shown = " ".join(filter(None, (backend, self.exchange, RECIPES[self.recipe])))
        return f"{shown}, {percent(self.loss_ratio) if self.loss_ratio else 'no'} loss"

    @property
    def is_exact(self) -> bool:
        """Whether the weights depend on nothing but the sums of gradients."""
        return self.recipe == "exact"


GLOO = Configuration("gloo")
"""What all others are compared with."""


@dataclass(frozen=True, slots=True)
class Run:
    """One training of one model."""

    model: str
    configuration: Configuration
    seed: int
    epochs: int

    @property
    def name(self) -> str:
        """For people: "digits over dlcp, 1 % loss, seed 0"."""
        return f"{self.model} over {self.configuration.name}, seed {self.seed}"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Run:
        """The run that asdict() describes."""
        values = dict(values)
        # Records of earlier versions say "way".
        configuration = dict(values.pop("way", None) or values.pop("configuration"))
        # Records from before there were recipes: a budget meant bounded gradients.
        configuration.setdefault("recipe", "dlcp" if configuration.get("loss_budget") else "exact")
        return cls(**values, configuration=Configuration(**configuration))


@dataclass(frozen=True, slots=True)
class LabLinks:
    """The network of --lab: a namespace per rank, and what each one's interface carries."""

    rate_bps: int
    delay_s: float = 0.0
    """From each host on, one way."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Everything one call of the program does, in order."""

    runs: tuple[Run, ...]
    world_size: int
    output: Path
    links: LabLinks | Fabric | None = None
    """A hub's links, or a fabric of switches. None: all ranks on loopback, and dlcp's own driver drops packets."""
    ranks_per_host: int = 1
    """At least; in a plan of exchanges."""
    step_timeout_s: float = 60.0
    """After which a collective that does not end fails."""

    @property
    def models(self) -> tuple[str, ...]:
        """In the order of their first run."""
        return tuple(dict.fromkeys(run.model for run in self.runs))

    @property
    def exchanges(self) -> tuple[str, ...]:
        """In the order of their first run."""
        named = (run.configuration.exchange for run in self.runs)
        return tuple(dict.fromkeys(filter(None, named)))

    @property
    def hosts(self) -> int:
        """That have ranks, in a lab; without switches between them."""
        return self.world_size // self.ranks_per_host

    @property
    def estimate_s(self) -> float:
        """How long all of it takes on two cores without other work, roughly; longer where a network is slow."""
        return START_S + sum(run.epochs * EPOCH_S[run.model] for run in self.runs)


def plan_runs(
    mode: str,
    models: Sequence[str],
    backend: str,
    loss_ratio: float,
    seeds: Sequence[int],
    epochs: int | None,
    *,
    gloo_with_loss: bool = False,
    recipe: str = "exact",
    loss_budget: float = 0.0,
    exchanges: Sequence[str] = (),
) -> tuple[Run, ...]:
    """The runs of a mode. `epochs` None: as many as the model wants.

    compare: Gloo without loss, also with it if `gloo_with_loss`, then `backend` with it. single: only that. study: for
    each seed Gloo, and `backend` without and with loss. With a `recipe` other than exact, the two that compare end with
    a run of it, of that `loss_budget`, and the single run is one. `exchanges`: a run of each takes the place of those
    of `backend`. Models come one after another; no run comes twice.
    """
    if exchanges:
        compared = tuple(Configuration(backend, loss_ratio, exchange=exchange) for exchange in exchanges)
        return _each_run(
            models, seeds, compared if mode == "single" else (GLOO, *compared), epochs, EXCHANGE_EPOCHS
        )
    lossy = Configuration(backend, loss_ratio)
    also = (Configuration("gloo", loss_ratio),) if gloo_with_loss else ()
    inexact = (Configuration(backend, loss_ratio, loss_budget, recipe),) if recipe != "exact" else ()
    configurations = {
        "compare": (GLOO, *also, lossy, *inexact),
        "single": inexact or (lossy,),
        "study": (GLOO, Configuration(backend), lossy, *inexact),
    }[mode]
    return _each_run(models, seeds, configurations, epochs, EPOCHS)


def _each_run(
    models: Sequence[str],
    seeds: Sequence[int],
    configurations: Sequence[Configuration],
    epochs: int | None,
    usual_epochs: Mapping[str, int],
) -> tuple[Run, ...]:
    return tuple(
        Run(model, configuration, seed, usual_epochs[model] if epochs is None else epochs)
        for model in models
        for seed in seeds
        for configuration in dict.fromkeys(configurations)
    )


def percent(ratio: float) -> str:
    """A ratio for people: "1 %"."""
    return f"{ratio * 100:.3g} %"
