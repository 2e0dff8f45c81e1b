"""What a transport is to a scenario: a frozen dataclass of its settings, in a user's units.

A field is declared with `setting`, which names its range and says what it is for; the base class checks values when
the object is made, and turns them into what the native transport takes. A name's suffix decides how: `_s` becomes
`_ps` (whole picoseconds), everything else keeps its name; True and False become 1 and 0, a word of `choices` its
number, and None is left out, so that the native default holds. `native=` overrides the name.

The native transport is found by `name`; it refuses what it does not know, so that the two cannot drift apart.

    @dataclass(frozen=True)
    class Ndp(Transport):
        '''NDP: receivers pull, switches trim (Handley et al., SIGCOMM 2017).'''

        name = "ndp"
        window_packets: int = setting(30, minimum=1, help="packets sent before the first pull")

        def policy(self, fabric: Fabric) -> Policy:
            return switches.ndp(...)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dlcp.errors import ArgumentError
from dlcp_sim.units import PS_PER_S

if TYPE_CHECKING:
    from dlcp.switch.policy import Policy
    from dlcp_sim.fabrics import Fabric

Value = TypeVar("Value")


def setting(
    default: Value,
    *,
    help: str = "",  # noqa: A002 - as argparse has it
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Mapping[str, int] | None = None,
    native: str | None = None,
) -> Value:
    """A field of a transport: its default, the range it accepts (ends included), what it is for.

    `choices`: the field is one of these words, each with the number that the native side knows it by. `native`: its
    name there, if the rule of the suffixes does not give it.
    """
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices, "native": native}
    field: Value = dataclasses.field(default=default, metadata=metadata)
    return field


@dataclass(frozen=True)
class Transport:
    """How hosts send: the base of every transport's settings. A concrete one has a `name` and a `policy`."""

    name: ClassVar[str] = ""
    """Of the native transport, of the TOML table and on the command line."""
    discipline: ClassVar[str] = "strict_priority"
    """How ports choose the next packet; "least_rank" for pFabric."""

    def __post_init__(self) -> None:
        """Checks every field, then what `check` adds."""
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, checked(type(self).name, field, getattr(self, field.name)))
        self.check()

    def check(self) -> None:
        """Raises ArgumentError if fields contradict each other. Concrete transports override it as they need."""

    def policy(self, fabric: Fabric) -> Policy:
        """What the switches of `fabric` are told if a scenario does not say: as this transport's authors would."""
        raise NotImplementedError(f"{type(self).__name__} has no switch policy of its own")

    def parameters(self) -> dict[str, float]:
        """What the native transport is given, by its names and in its units."""
        values: dict[str, float] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            name = field.metadata.get("native") or field.name
            choices = field.metadata.get("choices")
            if choices:
                values[name] = float(choices[value])
            elif field.name.endswith("_s"):
                native = field.metadata.get("native") or f"{field.name.removesuffix('_s')}_ps"
                values[native] = float(round(value * PS_PER_S))
            else:
                values[name] = float(value)
        return values

    @classmethod
    def setting_names(cls) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(field.name for field in dataclasses.fields(cls))

    def as_dict(self) -> dict[str, Any]:
        """Kind and settings as a scenario's file has them; what is None is left out."""
        settings = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"kind": self.name} | {name: value for name, value in settings.items() if value is not None}


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
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise ArgumentError(f"{name} is {value!r}; accepted: true or false")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise ArgumentError(f"{name} is {value!r}; accepted: text")
        return value
    # A field that is None by default says by its annotation whether it is whole.
    whole = isinstance(default, int) or (default is None and "int" in str(field.type))
    if not in_range(value, whole, metadata.get("minimum"), metadata.get("maximum")):
        raise ArgumentError(f"{name} is {value!r}; accepted: {accepted(metadata, whole=whole)}")
    # NumPy's numbers are welcome; what is kept is Python's, so that scenarios compare and print alike.
    return int(value) if whole else float(value)


def in_range(value: Any, whole: bool, minimum: float | None, maximum: float | None) -> bool:
    """Whether a value is a finite number, whole if it has to be, within its ends."""
    if isinstance(value, bool) or not hasattr(value, "__float__") or not math.isfinite(value):
        return False
    if whole and value != math.floor(value):
        return False
    return (minimum is None or value >= minimum) and (maximum is None or value <= maximum)


def accepted(metadata: Mapping[str, Any], *, whole: bool = False) -> str:
    """The range of a field in words."""
    kind = "whole numbers" if whole else "numbers"
    minimum, maximum = metadata.get("minimum"), metadata.get("maximum")
    if minimum is not None and maximum is not None:
        return f"{kind} from {minimum:g} to {maximum:g}"
    if minimum is not None:
        return f"{kind} from {minimum:g}"
    if maximum is not None:
        return f"{kind} up to {maximum:g}"
    return kind
