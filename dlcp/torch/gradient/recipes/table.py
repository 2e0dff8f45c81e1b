"""The recipes: which stages make a pipeline, and which options each of them reads.

| recipe       | memory                         | selector                    | codec        | exchange            |
|--------------|--------------------------------|-----------------------------|--------------|---------------------|
| exact        | none                           | all                         | none         | all-reduce          |
| dlcp         | a fill: residual, rescale, ... | importance, within a budget | none         | bounded, direct     |
| low_bit      | feedback at sender and owner   | all; a budget may be lost   | int4, int8,… | coded, direct, hub  |
| mstopk       | feedback at sender             | MSTopK: k of a buffer       | none         | all-gather          |
| hitopk       | feedback of a host's shard     | MSTopK: k of a shard        | none         | by hosts            |
| redsync      | feedback, momentum correction  | RedSync's, by parameter     | same sign    | lengths, all-gather |
| gradientflow | feedback, momentum correction  | chunks, agreed by all ranks | fp16, int8,… | coded, direct       |

"auto" is exact or low_bit in int8, whichever is quicker here. (Under reduce-scatter, as of FSDP2, the exchange is the
half of it. By hosts: by_hosts.py.) A recipe is a class with the methods of Pipeline (buffer/pipeline.py), and a row.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from dlcp import checks
from dlcp.errors import ArgumentError
from dlcp.torch.gradient.buffer.account import Account
from dlcp.torch.gradient.buffer.pipeline import Pipeline
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.recipes.auto import AutoPipeline, reshard_auto
from dlcp.torch.gradient.recipes.bounded import BoundedPipeline, reshard_bounded
from dlcp.torch.gradient.recipes.by_hosts import ByHosts
from dlcp.torch.gradient.recipes.exact import ExactPipeline
from dlcp.torch.gradient.recipes.gradientflow import FlowPipeline, reshard_flow
from dlcp.torch.gradient.recipes.low_bit import CodedPipeline, reshard_coded
from dlcp.torch.gradient.recipes.mstopk import MSTopKPipeline
from dlcp.torch.gradient.recipes.redsync import RedSyncPipeline, reshard_redsync
from dlcp.torch.gradient.residual.saved import Reshard
from dlcp.torch.gradient.sparse.pipeline import reshard_sparse

logger = logging.getLogger("dlcp")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A composition that has a name."""

    summary: str
    build: Callable[[Account], Pipeline]
    options: frozenset[str]
    """The fields of GradientOptions that it reads, besides `recipe`."""
    reshard: Reshard | None = None
    """Its states for another number of ranks; None: they keep nothing of a rank."""


def _low_bit(account: Account) -> Pipeline:
    coded = CodedPipeline(account)
    return ByHosts.of_coded(account, coded) if account.options.by_hosts else coded


_BUDGET = {"loss_budget", "budget_scope", "loss_cap", "critical", "small_numel", "critical_share"}
_ANY = {"layer_classes"}
_SPARSE = {"critical", "small_numel", "density", "warmup_steps"}

RECIPES: Mapping[str, Recipe] = MappingProxyType(
    {
        "auto": Recipe(
            "exact or 8 bits, as is quicker here",
            AutoPipeline,
            frozenset(_ANY | {"small_numel"}),
            reshard_auto,
        ),
        "exact": Recipe("every bit arrives", ExactPipeline, frozenset(_ANY | {"deadline_s"})),
        "dlcp": Recipe(
            "the least important blocks may be lost, within a budget",
            BoundedPipeline,
            frozenset(
                _ANY
                | _BUDGET
                | {"importance", "fill", "residual", "phase", "deadline_s", "patience_s", "seed"}
            ),
            reshard_bounded,
        ),
        "low_bit": Recipe(
            "few bits for every value, and what they leave is sent a step later",
            _low_bit,
            frozenset(_ANY | _BUDGET | {"codec", "owners", "warmup_steps", "by_hosts"}),
            reshard_coded,
        ),
        "mstopk": Recipe(
            "the largest values of a buffer, and the rest waits",
            MSTopKPipeline,
            frozenset(_ANY | _SPARSE | {"selector", "seed"}),
            reshard_sparse,
        ),
        "hitopk": Recipe(
            "the largest values of what each host has summed, and the rest waits",
            lambda account: ByHosts(account, MSTopKPipeline(account)),
            frozenset(_ANY | _SPARSE | {"selector", "seed"}),
            reshard_sparse,
        ),
        "redsync": Recipe(
            "the largest values of each parameter, of one sign, as one value, and the rest waits",
            RedSyncPipeline,
            frozenset(
                _ANY | _SPARSE | {"selector", "codec", "momentum", "clip", "warmup", "dense_if_cheaper"}
            ),
            reshard_redsync,
        ),
        "gradientflow": Recipe(
            "the most important chunks, which all ranks choose alike, and the rest waits",
            FlowPipeline,
            frozenset(_ANY | _SPARSE | {"codec", "momentum", "chunk_numel", "age_max", "theta_bytes"}),
            reshard_flow,
        ),
    }
)
"""By the name that GradientState takes."""


def checked(options: GradientOptions) -> GradientOptions:
    """The options, with a recipe. Raises ArgumentError: no such recipe, or an option that it does not read."""
    given = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if field.name != "recipe" and getattr(options, field.name) != _default(field)
    }
    name = options.recipe
    if name is None:
        name = "auto"
        if strange := sorted(given.keys() - RECIPES["auto"].options):
            name = "dlcp"
            logger.info(
                "gradients: recipe dlcp, since %s is given, which auto does not read", ", ".join(strange)
            )
    checks.choice("recipe", name, RECIPES)
    recipe = RECIPES[name]
    for option, value in given.items():
        if option not in recipe.options:
            raise ArgumentError(
                f"{option} is {value!r} under recipe {name!r}, which does not read it; accepted with it: "
                f"{', '.join(sorted(recipe.options))}"
                + ("; or the name of another recipe, since none is given" if options.recipe is None else "")
            )
    return dataclasses.replace(options, recipe=name)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default
