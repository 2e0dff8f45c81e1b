"""What a target cannot do of a policy: which line of it, and what would be done instead.

A *refused* limit would break the policy; the user may accept it by the name of its line. A *noted* limit leaves the
rest of the policy intact. Nothing here knows a target.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from dlcp.errors import SettingsError
from dlcp.switch.toml_lines import toml_lines


class UnsupportedError(SettingsError):
    """The target cannot do what a line of the policy asks; the text names the line and what would be done instead."""


@dataclass(frozen=True)
class Limit:
    """One line of a policy that a target cannot carry out as it stands."""

    line: str
    """The field, as the policy's TOML names it: `pause_above_bytes`, `port.rate_bps`."""
    value: object
    why: str
    instead: str
    """What happens, if one goes on."""
    refused: bool = True

    def text(self, policy_text: str | None = None, path: str = "the policy") -> str:
        """A sentence; with the policy's TOML text the number of the line is in it too."""
        number = None if policy_text is None else line_number(policy_text, self.line)
        where = path if number is None else f"{path}:{number}"
        return f"{where}: {self.line} = {self.value}: {self.why}; instead: {self.instead}"


def refuse(limits: Iterable[Limit], accepted: Collection[str], policy_text: str | None, path: str) -> None:
    """UnsupportedError for the limits that are refused and whose lines are not in `accepted`."""
    refused = [limit for limit in limits if limit.refused and limit.line not in accepted]
    if refused:
        lines = list(dict.fromkeys(limit.line for limit in refused))
        words = " ".join(f"--accept {line}" for line in lines)
        reasons = "; and ".join(limit.text(policy_text, path) for limit in refused)
        raise UnsupportedError(f"{reasons}. To go on all the same: {words}")


def line_number(policy_text: str, line: str) -> int | None:
    """Where a field of a policy stands in its TOML text, counted from 1: the first place. None: nowhere."""
    lines = toml_lines(policy_text).items()
    return min((number for path, number in lines if re.sub(r"\[\d+\]", "", path) == line), default=None)
