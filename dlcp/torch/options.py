"""What `pg_options` takes: how a group chooses its algorithm, its traffic class and its transport's settings.

Everything here is the group's own choice and must be the same on all of its ranks, but for addresses and interfaces.
Settings come, as everywhere, from the first of: here, DLCP_* in the environment, the file that DLCP_CONFIG names,
the defaults. What a transport's setting means is dlcp.transport.settings' business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlcp import checks
from dlcp.errors import ArgumentError, TrafficClassError
from dlcp.transport.schedule import ALGORITHMS, algorithms
from dlcp.transport.schedule.choose import parse_algorithms
from dlcp.transport.settings import Settings

if TYPE_CHECKING:
    from dlcp.torch.gradient.options import GradientOptions
    from dlcp.torch.gradient.state import GradientState

# Class 7 is the engine's own, for control.
TRAFFIC_CLASS_MAX = 6


class Options:
    """Options of a process group: `init_process_group("dlcp", pg_options=Options(algorithm="ring"))`.

    `algorithm`: as the setting of that name: one for whatever it serves, or some by collective, as
    "all_reduce=ring,broadcast=tree"; None: the setting's.
    `traffic_class`: 0 (first to wait) to 6; None: the transport's default.
    `gradients`: makes all_reduce and reduce_scatter of floating point on this group follow a recipe, as
    dlcp.torch.gradients does: GradientOptions, or a GradientState; None: every collective is exact.
    `settings`: the transport's, checked; or single ones by name, as `Options(interface="eth0")`.
    Raises SettingsError, ArgumentError, TrafficClassError: unknown, or out of range.
    """

    def __init__(
        self,
        *,
        algorithm: str | None = None,
        traffic_class: int | None = None,
        gradients: GradientOptions | GradientState | None = None,
        settings: Settings | None = None,
        **changes: Any,
    ) -> None:
        if traffic_class is not None:
            checks.integer("traffic_class", traffic_class, 0, TRAFFIC_CLASS_MAX, error=TrafficClassError)
        if not isinstance(settings, Settings | None):
            raise ArgumentError(checks.refusal("settings", settings, "a dlcp.transport.Settings, or None"))
        if gradients is not None:
            # Here: options without gradients need not load what they take.
            from dlcp.torch.gradient.options import GradientOptions
            from dlcp.torch.gradient.state import GradientState

            if not isinstance(gradients, GradientOptions | GradientState):
                accepted = "GradientOptions, a GradientState, or None"
                raise ArgumentError(checks.refusal("gradients", gradients, accepted))
        self.algorithms = algorithms_of(algorithm)
        self.traffic_class = traffic_class
        self.gradients = gradients
        if changes:
            settings = settings.replace(**changes) if settings is not None else Settings.load(**changes)
        self.settings = settings

    @classmethod
    def of(cls, pg_options: Any) -> Options:
        """The options that were passed as pg_options: None, Options, Settings, or a mapping of names to values.

        Raises TypeError: something else.
        """
        match pg_options:
            case None:
                return cls()
            case Options():
                return pg_options
            case Settings():
                return cls(settings=pg_options)
            case Mapping():
                return cls(**pg_options)
            case _:
                raise TypeError(
                    f"pg_options is a {type(pg_options).__name__}; accepted: dlcp.torch.Options, "
                    "dlcp.transport.Settings, a mapping of names to values, or None"
                )

    def __repr__(self) -> str:
        shown = [f"{name}={value!r}" for name, value in vars(self).items() if value]
        return f"Options({', '.join(shown)})"


def algorithms_of(text: str | None) -> dict[str, str]:
    """Algorithms by collective. Raises ArgumentError: no such algorithm, or no such collective."""
    if text is None or "=" in text:
        return parse_algorithms(text or "")
    served = {collective: text for collective in ALGORITHMS if text in algorithms(collective)}
    if not served:
        names = sorted({name for collective in ALGORITHMS for name in algorithms(collective)})
        raise ArgumentError(f"algorithm is {text!r}; accepted: {', '.join(names)}")
    return served
