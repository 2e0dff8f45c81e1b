"""The rules for a buffer: which of its parameters are critical, its loss budget, its traffic class.

They follow from the options and the model, and are the same for every buffer of one layout: each layout's are computed
once. The first is asked for after the first forward has been traced; from then on nothing changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from dlcp.kept import keep
from dlcp.torch.gradient.layout import Layout
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.gradient.rules.critical import critical_names
from dlcp.torch.gradient.rules.forward_order import ForwardOrder
from dlcp.torch.gradient.rules.names import ParameterNames


class BufferRules(NamedTuple):
    """The rules for buffers of one layout."""

    critical: frozenset[str]
    """Its parameters that lose nothing."""
    loss_ratio: float
    """The budget of the buffer as a fraction of its bytes: that of its parameters, each by its size."""
    traffic_class: int | None
    """That of the parameter in it that forward needs first; None: no matter."""


class LayoutRules:
    """The rules by layout."""

    def __init__(self, options: GradientOptions, names: ParameterNames, order: ForwardOrder) -> None:
        self._options = options
        self._names = names
        self._order = order
        self._critical: frozenset[str] | None = None
        self._classes: Mapping[str, int] | None = None
        self._known: dict[Layout, BufferRules] = {}

    def of(self, layout: Layout) -> BufferRules:
        """The rules for buffers of a layout. Raises ValueError: `critical` names no parameter of the model."""
        rules = self._known.get(layout)
        if rules is None:
            critical = self._critical_of(layout)
            made = BufferRules(critical, self._loss_ratio_of(layout, critical), self._class_of(layout))
            rules = keep(self._known, layout, made)
        return rules

    def output_layer(self) -> frozenset[str]:
        """The parameters of the model's output layer; nothing without a model."""
        return self._order.output_layer()

    def _critical_of(self, layout: Layout) -> frozenset[str]:
        if self._critical is None:
            self._critical = self._find_critical()
        known = self._names.parameters
        # Of a buffer that is no parameter's the shape says nothing: it is critical if it is small or has no budget.
        found = {
            segment.name
            for segment in layout.segments
            if segment.name not in known
            and (segment.count < self._options.small_numel or self._options.budget_of(segment.name) == 0.0)
        }
        if self._names.model is None:
            # Parameters are known as they come.
            named = {name: known[name] for name in layout.names() if name in known}
            found |= critical_names(named, self._options_without_names(), ())
        return self._critical.union(found).intersection(layout.names())

    def _loss_ratio_of(self, layout: Layout, critical: frozenset[str]) -> float:
        allowed = sum(
            segment.count * self._options.budget_of(segment.name)
            for segment in layout.segments
            if segment.name not in critical
        )
        return allowed / max(1, layout.numel)

    def _class_of(self, layout: Layout) -> int | None:
        if not self._options.layer_classes:
            return None
        if self._classes is None:
            self._classes = self._order.classes()
        return max((self._classes[name] for name in layout.names() if name in self._classes), default=None)

    def _find_critical(self) -> frozenset[str]:
        if self._names.model is not None:
            return critical_names(self._names.parameters, self._options, self._order.output_layer())
        rule = self._options.critical
        return frozenset() if rule is None or callable(rule) else frozenset(rule)

    def _options_without_names(self) -> GradientOptions:
        rule = self._options.critical
        if rule is None or callable(rule):
            return self._options
        return dataclasses.replace(self._options, critical=())
