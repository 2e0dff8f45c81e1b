"""What a transport is to a scenario: a frozen dataclass of its settings, in a user's units.

The settings stand once, in the table of the native transport (sim/core/transports/NAME.cpp). `native` makes the
dataclass from it: fields with defaults, checks of ranges, a docstring that lists them. A Python class adds what the
native side does not have: the policy that switches get if a scenario does not name one.

    @native
    class Ndp(Transport):
        '''NDP: receivers pull, switches trim (Handley et al., SIGCOMM 2017).'''

        name = "ndp"

        def policy(self, fabric: Fabric) -> Policy:
            return switches.ndp(...)

Times are seconds here, named `_s`, and whole picoseconds there, named `_ps`; a flag is True or False here and 1 or 0
there, a choice its name here and its place there. A field that is None follows from the fabric or from other fields.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S
from dlcp_sim.plain import table_of

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim import _core
    from dlcp_sim.fabrics import Fabric
    from dlcp_sim.workloads.load import Load

TRANSPORTS: dict[str, type[Transport]] = {}
"""By name, those that `native` made."""

Value = TypeVar("Value")
Kind = TypeVar("Kind", bound="Transport")


def setting(
    default: Value,
    *,
    help: str = "",  # noqa: A002 - as argparse has it
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Mapping[str, int] | None = None,
    whole: bool | None = None,
    flag: bool | None = None,
) -> Value:
    """A field of a transport: its default, the range it accepts (ends included), what it is for.

    `choices`: the names that the field accepts, each with its native number. `whole`, `flag`: whether
    numbers must be whole, and whether it is True or False, if the default does not show it.
    """
    if whole is None:
        whole = isinstance(default, int)
    if flag is None:
        flag = isinstance(default, bool)
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices, "whole": whole}
    metadata["flag"] = flag
    field: Value = dataclasses.field(default=default, metadata=metadata)
    return field


def native(kind: type[Kind]) -> type[Kind]:
    """The class as a frozen dataclass of the settings in its native transport's table, and one of TRANSPORTS."""
    from dlcp_sim import _core

    rows = [_field_of(row) for row in _core.transport_settings(kind.name)]
    for name, annotation, field in rows:
        setattr(kind, name, field)
        kind.__annotations__[name] = annotation
    made = dataclass(frozen=True)(kind)
    made.__doc__ = "\n".join([(kind.__doc__ or "").rstrip(), "", *setting_lines(made)])
    TRANSPORTS[kind.name] = made
    return made


def setting_lines(kind: type[Transport]) -> list[str]:
    """One line per setting: name, default, range and what it is for."""
    lines = []
    for field in dataclasses.fields(kind):
        metadata = field.metadata
        choices = ", ".join(metadata["choices"]) if metadata["choices"] else ""
        spread = "" if metadata["flag"] else f"; {choices or accepted(metadata)}"
        lines.append(f"    {field.name}: {metadata['help']} (default {field.default!r}{spread}).")
    return lines


def _field_of(row: _core.TransportSetting) -> tuple[str, str, Any]:
    """Name, annotation and field of a native row, in a user's units."""
    default: Any = row.default
    optional = "" if default is not None else " | None"
    if row.kind == "flag":
        flag = None if default is None else bool(default)
        return row.name, "bool" + optional, setting(flag, help=row.sentence, flag=True)
    if row.kind == "choice":
        numbers = {name: number for number, name in enumerate(row.choices)}
        return row.name, "str", setting(row.choices[int(default)], choices=numbers, help=row.sentence)
    is_time = row.name.endswith("_ps")
    unit = PS_PER_S if is_time else 1
    whole = row.kind == "whole" and not is_time
    if default is not None:
        default = int(default) if whole else default / unit
    minimum, maximum = row.minimum / unit, row.maximum / unit
    field = setting(
        default,
        minimum=minimum,
        maximum=maximum if math.isfinite(maximum) else None,
        whole=whole,
        help=row.sentence,
    )
    name = f"{row.name.removesuffix('_ps')}_s" if is_time else row.name
    return name, ("int" if whole else "float") + optional, field


@dataclass(frozen=True)
class Transport:
    """How hosts send: the base of every transport's settings. A concrete one has a `name` and a `policy`."""

    name: ClassVar[str] = ""
    """Of the native transport, of the TOML table and on the command line."""
    discipline: ClassVar[str] = "strict_priority"
    """How ports choose the next packet; "least_rank" for pFabric."""
    may_lose: ClassVar[bool] = False
    """Whether it may abandon a flow's `loss_ratio` of its bytes."""
    serves_classes: ClassVar[bool] = True
    """Whether hosts prefer flows of a higher traffic class where switches do."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Fields come from the native table: their types are in `dlcp_sim/transports/__init__.pyi`."""

    def __post_init__(self) -> None:
        """Checks every field, then what `check` adds."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked(type(self).name, field, getattr(self, field.name)))
        self.check()

    def check(self) -> None:
        """Raises ArgumentError if fields contradict each other: here, if the native transport refuses them together."""
        from dlcp_sim import _core

        if self.name in _core.transport_names():
            try:
                _core.check_transport(self.name, self.parameters())
            except ValueError as error:
                raise ArgumentError(str(error)) from None

    def policy(self, fabric: Fabric) -> Policy:
        """The policy of the fabric's switches if a scenario names none: as this transport's authors would set it."""
        raise NotImplementedError(f"{type(self).__name__} has no switch policy of its own")

    def connections(self, load: Load) -> str:
        """Whether flows of the same two hosts go on with one window, in a word or two: for comparisons."""
        return "new"

    def notes(self, load: Load) -> Iterator[str]:
        """Sentences on what has no effect in a load, or not over this transport."""
        yield from load.notes
        asked = {
            name: np.concatenate([load.flows[name], [getattr(one, name) for one in load.collectives]])
            for name in ("loss_ratio", "critical_ratio", "traffic_class")
        }
        bounded = asked["loss_ratio"] > 0
        if bounded.any() and not self.may_lose:
            yield f"{self.name} delivers all bytes: loss_ratio has no effect"
        elif (bounded & (asked["critical_ratio"] >= 1)).any() and not (
            bounded & (asked["critical_ratio"] < 1)
        ).any():
            yield "loss_ratio has no effect while critical_ratio is 1: every block is critical, so none may be lost"
        if not self.serves_classes and len(np.unique(asked["traffic_class"])) > 1:
            yield f"receivers of {self.name} pull flows of all traffic classes in turn"

    def parameters(self) -> dict[str, float]:
        """The settings by the native transport's names and in its units."""
        values: dict[str, float] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            choices = field.metadata.get("choices")
            if choices:
                values[field.name] = float(choices[value])
            elif field.name.endswith("_s"):
                values[f"{field.name.removesuffix('_s')}_ps"] = float(round(value * PS_PER_S))
            else:
                values[field.name] = float(value)
        return values

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(field.name for field in dataclasses.fields(cls))

    def as_dict(self) -> dict[str, Any]:
        """Kind and settings as a scenario's file has them; what is None is left out."""
        return table_of(self.name, self)


def checked(owner: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """The value of a field in the type of its default, or ArgumentError that names it and what is accepted."""
    name, default, metadata = f"{owner}.{field.name}", field.default, field.metadata
    if value is None and default is None:
        return None
    choices = metadata.get("choices")
    if choices:
        if not isinstance(value, str) or value not in choices:
            raise ArgumentError(f"{name} is {value!r}; accepted: {', '.join(choices)}")
        return value
    if metadata["flag"]:
        if not isinstance(value, bool):
            raise ArgumentError(f"{name} is {value!r}; accepted: true or false")
        return value
    whole = metadata["whole"]
    if not in_range(value, whole, metadata.get("minimum"), metadata.get("maximum")):
        raise ArgumentError(f"{name} is {value!r}; accepted: {accepted(metadata)}")
    # NumPy's numbers are welcome; what is kept is Python's, so that scenarios compare and print alike.
    return int(value) if whole else float(value)


def in_range(value: Any, whole: bool, minimum: float | None, maximum: float | None) -> bool:
    """Whether a value is a finite number, whole if it has to be, within its ends."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or not math.isfinite(value):
        return False
    if whole and value != math.floor(value):
        return False
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def accepted(metadata: Mapping[str, Any]) -> str:
    """The range of a field, as an error says it."""
    kind = "whole numbers" if metadata["whole"] else "numbers"
    minimum, maximum = metadata.get("minimum"), metadata.get("maximum")
    if minimum is not None and maximum is not None:
        return f"{kind} from {minimum:g} to {maximum:g}"
    if minimum is not None:
        return f"{kind} from {minimum:g}"
    if maximum is not None:
        return f"{kind} up to {maximum:g}"
    return kind
