"""What can be wrong with a link of the lab, as values: packets lost one by one or in bursts, a lower rate, a cut cable.

A fault is of a link, so of both its directions. Who carries it out, and whether it can, is the switches' business.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from dlcp.checks import integer, is_number, refusal
from dlcp.errors import SettingsError

RATE_BPS_MIN, RATE_BPS_MAX = 10**5, 10**11


class FabricError(SettingsError):
    """A fabric or a fault that cannot be made; the text names the field, its value and what is accepted."""


def refuse(name: str, value: object, accepted: str) -> NoReturn:
    """Raises FabricError with all three."""
    raise FabricError(refusal(name, value, accepted))


def check_ratio(name: str, value: object) -> None:
    """FabricError unless it is from 0 to 1."""
    if not is_number(value, 0, 1):
        refuse(name, value, "0 to 1")


@dataclass(frozen=True)
class Burst:
    """Losses that come together: a link is good or bad, and only a bad one loses (Gilbert, BSTJ 1960)."""

    enter_ratio: float
    """With what probability a packet makes a good link bad …"""
    leave_ratio: float
    """… and a bad one good again: a burst is 1/leave_ratio packets long on average."""
    loss_ratio: float = 1.0
    """Of the packets that meet a bad link."""

    def __post_init__(self) -> None:
        for name in ("enter_ratio", "leave_ratio", "loss_ratio"):
            check_ratio(f"burst.{name}", getattr(self, name))
        if self.enter_ratio > 0 and self.leave_ratio == 0:
            refuse("burst.leave_ratio", self.leave_ratio, "more than 0: a bad link would stay bad")

    @property
    def mean_ratio(self) -> float:
        """Of all packets, in the long run."""
        both = self.enter_ratio + self.leave_ratio
        return self.loss_ratio * self.enter_ratio / both if both else 0.0


@dataclass(frozen=True)
class Fault:
    """What is wrong with a link. Without arguments: nothing."""

    loss_ratio: float = 0.0
    """Of the packets of each direction, each on its own."""
    burst: Burst | None = None
    rate_bps: int | None = None
    """In place of the link's own, where that is more."""
    down: bool = False

    def __post_init__(self) -> None:
        check_ratio("loss_ratio", self.loss_ratio)
        if self.rate_bps is not None:
            integer("rate_bps", self.rate_bps, RATE_BPS_MIN, RATE_BPS_MAX, error=FabricError)

    def __bool__(self) -> bool:
        return self != NO_FAULT

    def __str__(self) -> str:
        words = []
        if self.down:
            words.append("down")
        if self.loss_ratio:
            words.append(f"loses {self.loss_ratio:.4g}")
        if self.burst is not None:
            b = self.burst
            words.append(f"bursts {b.enter_ratio:g},{b.leave_ratio:g},{b.loss_ratio:g}")
        if self.rate_bps is not None:
            words.append(f"slow, {rate_words(self.rate_bps)}")
        return ", ".join(words) or "none"

    def to_table(self) -> dict[str, Any]:
        """What `from_table` takes, without what has its default."""
        table = {key: value for key, value in asdict(self).items() if value}
        if self.burst is not None:
            table["burst"] = [self.burst.enter_ratio, self.burst.leave_ratio, self.burst.loss_ratio]
        return table

    @classmethod
    def from_table(cls, table: dict[str, Any], where: str = "fault") -> Fault:
        """The fault that a TOML table tells; `burst` is [enter, leave, loss]."""
        values = dict(table)
        for key in values:
            if key not in ("loss_ratio", "burst", "rate_bps", "down"):
                raise FabricError(f"{where}.{key} is unknown; accepted: loss_ratio, burst, rate_bps, down")
        if "burst" in values:
            burst = values["burst"]
            if not isinstance(burst, list) or len(burst) not in (2, 3):
                refuse(f"{where}.burst", burst, "[enter, leave, loss]")
            values["burst"] = Burst(*burst)
        if not isinstance(values.get("down", False), bool):
            refuse(f"{where}.down", values["down"], "true or false")
        return cls(**values)


NO_FAULT = Fault()


def rate_words(rate_bps: int) -> str:
    """For people: "100 Mbit/s"."""
    for scale, unit in ((10**9, "Gbit/s"), (10**6, "Mbit/s"), (10**3, "kbit/s")):
        if rate_bps >= scale:
            return f"{rate_bps / scale:g} {unit}"
    return f"{rate_bps} bit/s"
