"""Which parameters lose nothing, whatever their blocks score.

By default those of at most one dimension (biases, norms: few bytes, and each element scales or shifts a whole channel),
small ones, and the output layer, as DLCP and MLT have it. What a user names takes the place of all these; a
parameter whose budget is 0 is critical in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from dlcp import checks
from dlcp.torch.gradient.options import GradientOptions


def critical_names(
    parameters: Mapping[str, torch.Tensor], options: GradientOptions, output_layer: Collection[str]
) -> frozenset[str]:
    """Of these parameters, the names of those that lose nothing.

    `output_layer`: names of its parameters (forward_order.py). Raises ValueError: the options name a parameter that is
    not among them.
    """
    without_budget = {name for name in parameters if options.budget_of(name) == 0.0}
    return frozenset(without_budget | _ruled(parameters, options, output_layer))


def _ruled(
    parameters: Mapping[str, torch.Tensor], options: GradientOptions, output_layer: Collection[str]
) -> set[str]:
    rule = options.critical
    if rule is None:
        return {
            name
            for name, parameter in parameters.items()
            if parameter.dim() <= 1 or parameter.numel() < options.small_numel or name in output_layer
        }
    if callable(rule):
        return {
            name
            for name, parameter in parameters.items()
            if checks.boolean(f"what the rule `critical` returned for {name!r}", rule(name, parameter))  # type: ignore[arg-type]
        }
    unknown = [name for name in rule if name not in parameters]
    if unknown:
        raise ValueError(
            f"critical names {', '.join(map(repr, unknown[:3]))}; accepted: parameters of the model, such as "
            f"{', '.join(map(repr, list(parameters)[:3]))}"
        )
    return set(rule)
