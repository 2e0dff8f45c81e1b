"""The options of gradients that follow a recipe. Everything here must be the same on all ranks.

Checked when made: a wrong value raises ArgumentError (a ValueError), naming what is accepted.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import torch

from dlcp import checks
from dlcp.errors import ArgumentError
from dlcp.torch.gradient.fills import FILLS
from dlcp.torch.gradient.loss.patience import PatienceRule
from dlcp.torch.gradient.loss.phase import PhaseRule
from dlcp.torch.gradient.residual.rule import ResidualRule
from dlcp.torch.selectors import SELECTORS
from dlcp.transport.coded import codec_traits
from dlcp.transport.communicator import DEADLINE_S_MAX, DEADLINE_S_MIN

DLCP_BUDGET = 0.05
"""The loss budget of the recipe "dlcp", if none is given."""

SPARSE_CODECS = ("same_sign", "fp32")
"""Of chosen elements."""

CriticalRule = Callable[[str, torch.nn.Parameter], bool]


@dataclass(frozen=True, slots=True)
class GradientOptions:
    """What is done with gradients."""

    recipe: str | None = None
    """What is done with gradients: a recipe of docs/gradients.md. recipes/table.py says which other options each reads.
    None: "auto", or "dlcp" where an option that "auto" does not read has a value of its own, such as a loss budget.
    "auto": exact or 8 bits, as is quicker in the first steps."""
    codec: str | None = None
    """Of "low_bit": "bf16", "fp16", "int8", "int4", "int2", "fp8_e4m3", "fp8_e5m2"; None: "int4". Of "gradientflow":
    these; None: "fp16". Of "redsync": "same_sign", one value for all that is sent of a parameter, or "fp32"; None:
    "same_sign"."""
    owners: Literal["even", "by_link"] = "even"
    """Who adds how much under "low_bit": ranks behind slow links less, so that they send less (owner_shares.py), or all
    alike. Of all-reduces, not of reduce-scatters."""
    density: float | None = None
    """Fraction of the values that travels, above 0, up to 1; None: as the recipe has it: 0.01 under "mstopk" and
    "hitopk", 0.001 under "redsync", 0.15 under "gradientflow". What does not travel waits."""
    selector: str | None = None
    """Which values travel: a name in dlcp.torch.selectors.SELECTORS; None: as the recipe was published."""
    warmup_steps: int | None = None
    """In so many first steps more travels: under "low_bit" 8 bits a value, under recipes that read `density` more
    values, see `warmup`. None: 20 under "low_bit", 0 under the others."""
    warmup: Literal["dense", "density"] = "dense"
    """In the first steps all values travel, or a fraction that falls by quarters: 0.25, 0.0625, 0.015625, 0.004."""
    momentum: float | None = None
    """Momentum that the sender accumulates in what waits, and clears where it was sent (momentum correction, factor
    masking), for an optimizer that has none; None: only the gradients wait. 0.9 in papers."""
    clip: float | None = None
    """A parameter's gradient of a larger L2 norm than clip / sqrt(ranks) is scaled down to it before anything is added,
    as 5 in RedSync's prototype; None: no clipping here."""
    by_hosts: bool = True
    """Where several hosts have several ranks each, those of one are summed exactly first, and few bits travel between
    hosts alone (by_hosts.py)."""
    dense_if_cheaper: bool = True
    """All values travel where the transport's estimators say that this takes less time (network_costs.py)."""
    chunk_numel: int = 1024
    """Values of a chunk, a multiple of 64, under "gradientflow": 32768 in the paper."""
    age_max: int | None = 32
    """No chunk waits longer than so many steps, however unimportant it is; None: some may."""
    theta_bytes: int = 0
    """Sums of several buffers of a step start together, when so many coded bytes are there or no more are to come; 0:
    each by itself. GradientFlow's lazy all-reduce."""
    loss_budget: float | Mapping[str, float] | None = None
    """Fraction of gradient bytes that a rank may abandon, 0 (nothing) up to 1, 1 excluded; None: 0.05 under "dlcp", 0
    under other recipes. A mapping: by parameter name, where a name with a star at its end stands for all that begin so,
    the longest that fits counts, and "" for the rest."""
    budget_scope: Literal["step", "buffer"] = "step"
    """"buffer": each buffer has its fraction. "step": what early buffers leave of the budget, later ones may spend:
    they are what the end of the step waits for."""
    loss_cap: float = 0.5
    """The most that one buffer may lose, whatever budget the step has left."""
    critical: CriticalRule | Collection[str] | None = None
    """Parameters that lose nothing: names, or a rule of name and parameter. None: those of at most one dimension, small
    ones, and the output layer (critical.py)."""
    small_numel: int = 4096
    """A parameter of fewer elements is small."""
    critical_share: float = 0.3
    """Of the remaining bytes, the share that is critical by importance: the highest quantile of the step before."""
    importance: Literal["rms", "sampled", "uniform"] | Callable[..., Any] = "rms"
    """"rms": the RMS of a block over the running RMS of its parameter. "sampled": the same of some of its values, on
    the CPU, in half the time; what is not finite elsewhere is not seen and may be lost. "uniform": all blocks
    alike, so that chance decides whom the network drops, as in the papers. Or a function, see importance/marker.py."""
    fill: str = "residual"
    """What replaces an abandoned contribution: a name in fills.FILLS, which says what each one does."""
    residual: ResidualRule = field(default_factory=ResidualRule)
    phase: PhaseRule | None = None
    """Narrows the budget in phases of the training that bear less; None: the budget is constant."""
    layer_classes: bool = False
    """Buffers leave by the order in which forward needs their parameters, front layers first; else all alike. For loops
    that go on when the front layers are in: LayerwiseOptimizer has its own. Where a step waits for all of its buffers
    the sums of one that overtake the contributions to others only hold those up: DDP's steps over a bad network took
    427 ms in place of 311 (bench gradient_lab)."""
    deadline_s: float | None = None
    """A message ends so long after its first packet whatever the budget, when its critical blocks are there. Of
    "exact", over one hub: a buffer is summed so long after the first rank started it, without ranks that are late."""
    patience_s: PatienceRule = None
    """A message that takes longer than this has met a network short of capacity: its blocks that have not left yet, the
    least important, are abandoned unsent, as far as the budget goes. "auto": 1.5 times what the fastest messages of all
    ranks took in recent steps; where one link is slow, only what crosses that link is abandoned. None: only blocks that
    the network lost are abandoned."""
    seed: int = 0
    """Of the Hadamard transform's signs, and of what "mstopk" draws."""

    def __post_init__(self) -> None:
        if self.recipe is not None:
            checks.text("recipe", self.recipe, "the name of a recipe")
        if self.codec is not None and self.codec not in SPARSE_CODECS:
            codec_traits(self.codec)
        checks.choice("owners", self.owners, ("even", "by_link"))
        if self.density is not None:
            checks.number("density", self.density, 0, 1, above=True)
        if self.selector is not None:
            checks.choice("selector", self.selector, SELECTORS)
        if self.momentum is not None:
            checks.number("momentum", self.momentum, 0, 1, below=True)
        if self.clip is not None:
            checks.number("clip", self.clip, 0, above=True)
        checks.boolean("by_hosts", self.by_hosts)
        checks.boolean("dense_if_cheaper", self.dense_if_cheaper)
        checks.integer("chunk_numel", self.chunk_numel, 64, 2**40)
        if self.chunk_numel % 64:
            raise ArgumentError(checks.refusal("chunk_numel", self.chunk_numel, "a multiple of 64"))
        if self.age_max is not None:
            checks.integer("age_max", self.age_max, 1)
        checks.integer("theta_bytes", self.theta_bytes, 0)
        if self.warmup_steps is not None:
            checks.integer("warmup_steps", self.warmup_steps, 0)
        checks.choice("warmup", self.warmup, ("dense", "density"))
        self._check_budget()
        checks.choice("budget_scope", self.budget_scope, ("step", "buffer"))
        checks.number("loss_cap", self.loss_cap, 0, 1, below=True)
        self._check_critical()
        checks.integer("small_numel", self.small_numel, 0)
        checks.number("critical_share", self.critical_share, 0, 1)
        if not callable(self.importance):
            checks.choice("importance", self.importance, ("rms", "sampled", "uniform", "a function"))
        checks.choice("fill", self.fill, FILLS)
        if not isinstance(self.residual, ResidualRule):
            raise ArgumentError(checks.refusal("residual", self.residual, "a ResidualRule"))
        if not isinstance(self.phase, PhaseRule | None):
            raise ArgumentError(checks.refusal("phase", self.phase, "a PhaseRule, or None"))
        checks.boolean("layer_classes", self.layer_classes)
        if self.deadline_s is not None:
            checks.number("deadline_s", self.deadline_s, DEADLINE_S_MIN, DEADLINE_S_MAX, unit="seconds")
        if isinstance(self.patience_s, str) and self.patience_s != "auto":
            raise ArgumentError(
                checks.refusal("patience_s", self.patience_s, "'auto', or a number of seconds from 0")
            )
        if self.patience_s is not None and self.patience_s != "auto":
            checks.number("patience_s", self.patience_s, 0, unit="seconds")
        checks.integer("seed", self.seed, -(2**63))
        if self.patience_s is not None and self.deadline_s is not None:
            raise ArgumentError("patience_s and deadline_s are both given; accepted: one of them")

    def _check_budget(self) -> None:
        budgets = self.loss_budget
        if budgets is None:
            return
        if not isinstance(budgets, Mapping):
            checks.number("loss_budget", budgets, 0, 1, below=True)
            return
        for name, budget in budgets.items():
            checks.text("a name in loss_budget", name)
            checks.number(f"loss_budget[{name!r}]", budget, 0, 1, below=True)

    def _check_critical(self) -> None:
        if self.critical is None or callable(self.critical):
            return
        names = self.critical
        if isinstance(names, str) or not isinstance(names, Collection):
            raise ArgumentError(checks.refusal("critical", names, "names, a function, or None"))
        for name in names:
            checks.text("a name in critical", name)

    def budget_of(self, name: str) -> float:
        """The loss budget of one parameter."""
        if self.loss_budget is None:
            return DLCP_BUDGET if self.recipe == "dlcp" else 0.0
        if not isinstance(self.loss_budget, Mapping):
            return self.loss_budget
        if name in self.loss_budget:
            return self.loss_budget[name]
        fitting = [
            key
            for key in self.loss_budget
            if (key == "" or key.endswith("*")) and name.startswith(key.rstrip("*"))
        ]
        return self.loss_budget[max(fitting, key=len)] if fitting else 0.0

    def agree(self) -> str:
        """The recipe, and a checksum of the other options: what collectives compare over ranks. Functions are one."""

        def plain(value: object) -> str:
            if callable(value):
                return "a function"
            if isinstance(value, Mapping):
                return repr(sorted(value.items()))
            return repr(sorted(value)) if isinstance(value, set | frozenset) else repr(value)

        words = [f"{each.name}={plain(getattr(self, each.name))}" for each in fields(self)]
        return f"recipe {self.recipe}, options {zlib.crc32('; '.join(words).encode()):08x}"

    @property
    def may_lose(self) -> bool:
        """Whether anything has a budget."""
        budgets = self.loss_budget.values() if isinstance(self.loss_budget, Mapping) else [self.budget_of("")]
        return any(budgets)

    def check_names(self, parameters: Collection[str]) -> None:
        """Raises ArgumentError: loss_budget names a parameter that a model of these parameters does not have."""
        if not isinstance(self.loss_budget, Mapping):
            return
        for key in self.loss_budget:
            begin = key.rstrip("*")
            if (
                key
                and key not in parameters
                and not (key != begin and any(name.startswith(begin) for name in parameters))
            ):
                raise ArgumentError(
                    f"loss_budget names {key!r}; {checks.did_you_mean(key, parameters)}accepted: parameters of the "
                    f'model, such as {", ".join(map(repr, list(parameters)[:3]))}; a beginning with a star; or ""'
                )
