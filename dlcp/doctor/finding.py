"""What the doctor found: one sentence, how bad it is, and the command that mends it.

ok: nothing to do (a remedy then only makes it better). warn: dlcp works, but slower or not for all. fail: it does not
work. A sentence names the thing and its value, so that it can be read without its neighbours.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass


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

    def to_json(self) -> dict[str, str | None]:
        """As `--json` prints it."""
        return {"topic": self.topic, "verdict": str(self.verdict), "text": self.text, "remedy": self.remedy}

    @classmethod
    def from_json(cls, values: dict[str, str | None]) -> Finding:
        """As another rank sent it."""
        return cls(
            str(values["topic"]), Verdict(str(values["verdict"])), str(values["text"]), values.get("remedy")
        )


def ok(topic: str, text: str, better: str | None = None) -> Finding:
    """Nothing to do."""
    return Finding(topic, Verdict.OK, text, better)


def warn(topic: str, text: str, remedy: str | None = None) -> Finding:
    """It works, but not as it should."""
    return Finding(topic, Verdict.WARN, text, remedy)


def fail(topic: str, text: str, remedy: str | None = None) -> Finding:
    """It does not work."""
    return Finding(topic, Verdict.FAIL, text, remedy)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The worst verdict of all; ok if there are none."""
    order = list(Verdict)
    return max((one.verdict for one in findings), key=order.index, default=Verdict.OK)
