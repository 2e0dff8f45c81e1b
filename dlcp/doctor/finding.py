"""What the doctor found: one sentence, how bad it is, and the command that mends it.

ok: nothing to do (a remedy then only makes it better). warn: dlcp works, but slower or not for all. fail: it does not
work. A sentence names the thing and its value, so that it can be read without its neighbours.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ParamSpec

P = ParamSpec("P")


class Verdict(enum.StrEnum):
    """How bad it is; the later, the worse."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    topic: str
    """A word to sort by: interface, buffers, clock, …"""
    verdict: Verdict
    text: str
    """One sentence."""
    remedy: str | None = None
    """A command, or what else to do."""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Finding:
        """As another rank sent it; `asdict` makes what is sent and printed."""
        return cls(values["topic"], Verdict(values["verdict"]), values["text"], values.get("remedy"))


@dataclass(frozen=True, slots=True)
class Topic:
    """Makes the findings about one thing."""

    name: str

    def ok(self, text: str, better: str | None = None) -> Finding:
        """Nothing to do."""
        return Finding(self.name, Verdict.OK, text, better)

    def warn(self, text: str, remedy: str | None = None) -> Finding:
        """It works, but not as it should."""
        return Finding(self.name, Verdict.WARN, text, remedy)

    def fail(self, text: str, remedy: str | None = None) -> Finding:
        """It does not work."""
        return Finding(self.name, Verdict.FAIL, text, remedy)

    def lack(self, needed: bool, text: str, remedy: str | None = None) -> Finding:
        """Something is not there: a failure if it is needed, else only a fact."""
        return self.fail(text, remedy) if needed else self.ok(text, remedy)


def listed(look: Callable[P, Iterable[Finding]]) -> Callable[P, list[Finding]]:
    """A check that yields its findings, as one that returns them in a list."""

    @functools.wraps(look)
    def whole(*values: P.args, **named: P.kwargs) -> list[Finding]:
        return list(look(*values, **named))

    return whole


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict of all; ok if there are none."""
    order = list(Verdict)
    return max((one.verdict for one in findings), key=order.index, default=Verdict.OK)
