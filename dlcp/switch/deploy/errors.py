"""What goes wrong between a policy and P4Runtime switches. Each text names the switch, its address and what to do.

A text is one line, those of several switches one line each. All are DlcpError. Unless it is a RollbackError, every
switch holds what it held before.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlcp.errors import DlcpError
from dlcp.switch.printable import printable

MAX_TOLD = 8  # errors of different switches in one


class DeployError(DlcpError):
    """A deployment that did not come about."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class UnreachableError(DeployError, ConnectionError):
    """Nothing answers at the address, or not P4Runtime, or the connection broke."""


class SwitchTimeoutError(DeployError, TimeoutError):
    """The switch did not answer within the time that it was given."""


class OtherPipelineError(DeployError):
    """The switch holds the pipeline of another program."""


class OtherPrimaryError(DeployError):
    """Another controller is the primary of the switch."""


class ElectionIdTakenError(OtherPrimaryError):
    """Another controller has the very election id that was asked with."""


class SwitchRefusedError(DeployError):
    """The switch refused a request: an entry, a pipeline, its device id. `code`: name of the status, or empty."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class NotOfferedError(SwitchRefusedError):
    """The switch does not implement a request."""


class ProgramError(DeployError):
    """The program's P4Info has not what its entries name: program and dlcp are of different versions."""


class VerifyError(DeployError):
    """The switch took everything, but does not hold what was written."""


class ShellError(DeployError):
    """The Python with p4runtime-shell cannot be started, or ended without an answer."""


class RollbackError(DeployError):
    """A deployment failed, and some switches could not be brought back to what they held: they need a person."""


def other_primary(where: str, election_id: int) -> OtherPrimaryError:
    """The error that names the primary of a switch, and what to do."""
    return OtherPrimaryError(
        f"{where}: another controller is connected and primary, with election id {election_id}; nothing is taken "
        "from it. Disconnect it, or say --take-over"
    )


def several(errors: Iterable[DeployError]) -> DeployError:
    """One error for all: itself if it is alone, else of the first one's kind with the first few texts, a line each."""
    first, *others = errors
    told = list(
        dict.fromkeys(str(error) for error in (first, *others))
    )  # a mistake of the caller's is that of all
    if len(told) == 1:
        return first
    more = len(told) - MAX_TOLD
    lines = [f"{len(told)} switches:", *told[:MAX_TOLD], *([f"and {more} switches more"] if more > 0 else [])]
    error = type(first)(str(first))
    error.args = ("\n  ".join(lines),)  # each text is of one line already
    return error
