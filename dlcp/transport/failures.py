"""The exception for a failed operation: its text says what happened and what to do next.

Every text names the operation and its number, the group, and this rank's own address and interface. It names the rank
to blame with its address, host and process, and says when that rank was last heard. It says what is missing and what to
check. An unknown fact is left out, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlcp import errors
from dlcp.transport.rank_card import RankCard
from dlcp.transport.signature import arithmetic_of, operation_of

if TYPE_CHECKING:
    from dlcp._native import CollectiveResult

_MIXED = "The memory that it was to fill may hold partial sums, or old and new values mixed."


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the group, as far as this rank knows it."""

    rank: int
    """In the job."""
    card: RankCard | None = None
    """None: it has not been needed yet."""
    connected: bool = True
    """Whether this rank has a session with it."""
    silent_s: float | None = None
    """Time since it was last heard; None: not known."""

    @property
    def name(self) -> str:
        """Rank, address, host and process."""
        return f"rank {self.rank}" if self.card is None else self.card.describe()

    @property
    def short_name(self) -> str:
        """What it is, without where."""
        return (self.card and self.card.role) or f"rank {self.rank}"

    @property
    def heard(self) -> str:
        """When it was last heard, as a clause after a comma; "" if that is not known."""
        last = "" if self.silent_s is None else f", last heard of {self.silent_s:.2g} s ago"
        if self.connected:
            return last
        return f"{last}, and the connection with it has ended" if last else ", there is no connection with it"

    @property
    def process(self) -> str:
        """Its process, to be looked for."""
        return "its process" if self.card is None else f"process {self.card.pid} on host {self.card.host}"


@dataclass(frozen=True, slots=True)
class FailureContext:
    """What is known around a failure. Group ranks are the keys."""

    group: str
    own: int
    members: Mapping[int, Member]
    peer_timeout_s: float
    max_messages_per_peer: int
    own_words: str | None = None
    """What this rank called under the number that failed; None: it has not."""
    accounts: Mapping[int, str] = field(default_factory=dict)
    """What other ranks report that they called under it."""
    reason: str = ""
    """The reason that was given to abort() or close()."""

    def member(self, group_rank: int) -> Member:
        """A member by its rank in the group."""
        return self.members.get(group_rank, Member(group_rank))


def is_of_the_group(result: CollectiveResult, *, single: bool) -> bool:
    """Whether the whole group has failed, not one message alone (native/collective/failure.cpp, fail_by_peer)."""
    if not single or result.error in ("group_failed", "aborted"):
        return True
    return result.error == "peer_failed" and result.engine_error in ("peer_timeout", "peer_gone")


def explain(
    result: CollectiveResult, operation: str, words: str, sequence: int | None, context: FailureContext
) -> errors.CollectiveError:
    """The exception for a result with an error.

    `words`: the operation with its arguments; `sequence`: its number in the group, None for a single message.
    """
    what = _what(words, sequence, context)
    # A failure that another rank announced has its cause's class: every rank raises the same.
    kind = result.error if result.error != "group_failed" else result.cause
    told = result.error == "group_failed"
    match kind:
        case "timeout":
            error: errors.CollectiveError = errors.CollectiveTimeoutError(
                _timeout(what, result, context, told)
            )
        case "peer_failed" if result.engine_error == "too_many_messages":
            error = errors.CollectiveLimitError(_limit(what, result, context, told))
        case "peer_failed":
            error = errors.PeerFailedError(_peer_failed(what, result, context, told))
        case "mismatch":
            error = errors.MismatchError(_mismatch(what, result, context, told, single=sequence is None))
        case "aborted":
            error = errors.CollectiveAbortedError(_aborted(what, result, context, told))
        case _:
            error = errors.GroupFailedError(f"{what} failed with its group. {_MIXED}")
    culprit = result.culprit
    error.operation = operation
    error.sequence = sequence
    error.group = context.group
    error.culprit = None if culprit is None else context.member(culprit).rank
    error.waited_s = result.waited_s
    return error


def group_failed(operation: str, words: str, group: str, first: errors.DlcpError) -> errors.GroupFailedError:
    """The exception for a call on a group that has failed."""
    error = errors.GroupFailedError(
        f"{words} was not started: group {group} failed before. Open another group, or start the job again. The first"
        f" failure: {first}"
    )
    error.operation = operation
    error.group = group
    error.culprit = getattr(first, "culprit", None)
    return error


def wait_timeout(
    operation: str, words: str, sequence: int | None, context: FailureContext, waited_s: float
) -> errors.WaitTimeoutError:
    """The exception for a wait() whose time is up."""
    error = errors.WaitTimeoutError(
        f"{_what(words, sequence, context)} is not over after a wait of {waited_s:.3g} s (timeout). It goes on: wait"
        " again, or abort() the group"
    )
    error.operation = operation
    error.sequence = sequence
    error.group = context.group
    error.waited_s = waited_s
    return error


# ---- sentences ----


def _what(words: str, sequence: int | None, context: FailureContext) -> str:
    number = "" if sequence is None else f", operation {sequence}"
    return f"{words}{number} of group {context.group}, on {context.member(context.own).name},"


def _by(result: CollectiveResult, context: FailureContext, told: bool) -> str:
    """The reporting rank, if it is another one; as the beginning of a sentence."""
    reporter = result.reporter
    if not told or reporter is None or reporter == context.own:
        return ""
    return f"{context.member(reporter).name} says: "


def _waiting(result: CollectiveResult, context: FailureContext) -> str:
    parts = []
    for each in result.waiting_for:
        member = context.member(each.peer)
        missing = (
            f"{each.missing_bytes} bytes have not come from it"
            if each.for_arrival
            else f"it has not taken {each.missing_bytes} bytes"
        )
        account = context.accounts.get(each.peer)
        says = f"; it says that it {account}" if account else ""
        parts.append(f"{member.name}: {missing}{member.heard}{says}")
    return "; ".join(parts)


def _timeout(what: str, result: CollectiveResult, context: FailureContext, told: bool) -> str:
    culprit = result.culprit
    if told:
        whom = (
            ""
            if culprit is None or culprit == context.own
            else f" while it waited for {context.member(culprit).name}"
        )
        if culprit == context.own:
            whom = " while it waited for this rank"
        text = f"{what} failed with its group: {_by(result, context, told)}"
        text += f"operation {result.sequence} was not over in its time (timeout){whom}."
    else:
        text = f"{what} was not over after {result.waited_s:.3g} s, and its timeout is over."
        if waiting := _waiting(result, context):
            text += f" It waited for {waiting}."
    if culprit == context.own:
        if waiting := _waiting(result, context):
            text += f" This rank waited for {waiting}."
        return (
            f"{text} Look at what kept this rank, and that all ranks call the same operations in the same order."
            f" {_MIXED}"
        )
    if culprit is None:
        return f"{text} {_MIXED}"
    member = context.member(culprit)
    # In full at its first mention: the rank that it waited for may itself have waited for another.
    is_named = told or any(each.peer == culprit for each in result.waiting_for)
    who = member.short_name if is_named else member.name
    who = f"{who[0].upper()}{who[1:]}"
    if result.engine_error == "peer_timeout":
        return f"{text} {who} did not answer when asked. {_look_at_network(member, context)} {_MIXED}"
    answers = "" if told else "answers, but "
    return (
        f"{text} {who} {answers}has not come to this operation, or waits itself: see where it is"
        f" (py-spy dump --pid {_pid(member)}{_on(member)}), and that all ranks call the same operations in the same"
        f" order; if it is only slow, give the group a longer timeout. {_MIXED}"
    )


def _peer_failed(what: str, result: CollectiveResult, context: FailureContext, told: bool) -> str:
    culprit = result.culprit
    by = _by(result, context, told)
    if culprit is None:
        return f"{what} failed: {by}a rank of the group is gone{_in_brackets(result.engine_error)}. {_MIXED}"
    member = context.member(culprit)
    match result.engine_error:
        case "peer_closed":
            reason = (
                f"{member.name} has closed its endpoint: it ended, or left the group, before this operation was over."
                " Look at the end of its log for the first error"
            )
        case "peer_gone":
            reason = (
                f"{member.name}'s process ended without leaving the group: killed, or crashed. Look at the end of its"
                " log, and at the kernel's for a lack of memory"
            )
        case "peer_restarted":
            reason = (
                f"{member.name} has come back as another process: the first one is gone. Look at the end of its log for"
                " the first error; all ranks must start again together"
            )
        case "peer_timeout":
            silent = f"nothing was heard of it for {context.peer_timeout_s:g} s (peer_timeout_s), though it was asked"
            reason = f"{member.name} is gone: {silent}. {_look_at_network(member, context)}"
        case "peer_cancelled":
            reason = f"{member.name} gave its part of it up. Look at the end of its log for the reason"
        case other:
            reason = (
                f"{member.name} is lost to it{_in_brackets(other)}. Look at the end of its log, and run `dlcp doctor`"
                " on both hosts"
            )
    return f"{what} failed: {by}{reason.rstrip('.')}. {_MIXED}"


def _limit(what: str, result: CollectiveResult, context: FailureContext, told: bool) -> str:
    culprit = result.culprit
    whom = "one rank" if culprit is None else context.member(culprit).name
    limit = "" if told else f"{context.max_messages_per_peer} "
    return (
        f"{what} failed: {_by(result, context, told)}{limit}messages with {whom} were under way, as many as"
        " max_messages_per_peer allows. Wait for some of them before more are started, or raise max_messages_per_peer."
        f" {_MIXED}"
    )


def _mismatch(
    what: str, result: CollectiveResult, context: FailureContext, told: bool, *, single: bool
) -> str:
    culprit = result.culprit
    if single:
        whom = "the other side" if culprit is None else context.member(culprit).name
        if result.foreign_bytes:
            sizes = f"{whom} sent {result.foreign_bytes} bytes, {result.expected_bytes} were expected"
        else:
            sizes = f"{whom} expects another length than the {result.expected_bytes} bytes of this rank"
        return f"{what} failed: {sizes}. Give both sides the same shape and type."
    number = f"operation {result.sequence} of the group"
    own = f"this rank called {context.own_words}" if context.own_words else "this rank has not called it yet"
    if culprit == context.own and result.reporter is not None:
        other = result.reporter
        account = context.accounts.get(other, "called something else")
    elif culprit is not None:
        other = culprit
        account = context.accounts.get(other) or _foreign(result, context, told)
    else:
        return f"{what} failed: ranks called different things as {number}. {_MIXED}"
    by = _by(result, context, told) if culprit != context.own else ""
    return (
        f"{what} failed: {by}as {number}, {context.member(other).name} {account}, but {own}. All ranks of a group call"
        f" the same operations in the same order, with the same types, sizes and roots. {_MIXED}"
    )


def _foreign(result: CollectiveResult, context: FailureContext, told: bool) -> str:
    """What the other rank called, from its message alone."""
    if told:
        return "called something else than others"
    if result.expected_bytes and result.foreign_bytes:
        return (
            f"called it with another size (a message of {result.foreign_bytes} bytes came where"
            f" {result.expected_bytes} were expected)"
        )
    operation = operation_of(result.foreign_signature)
    size = f" (in messages of {result.foreign_bytes} bytes)" if result.foreign_bytes else ""
    if operation is None:
        return f"called something else{size}"
    arithmetic = arithmetic_of(result.foreign_signature)
    if arithmetic is not None:
        operation = f"{operation} of {arithmetic}"
    if context.own_words and context.own_words.split("(")[0] == operation.split(" ")[0]:
        return f"called {operation} with another type, reduction, root or size{size}"
    return f"called {operation}{size}"


def _aborted(what: str, result: CollectiveResult, context: FailureContext, told: bool) -> str:
    culprit = result.culprit
    reason = f": {context.reason}" if context.reason else ""
    if told and culprit is not None and culprit != context.own:
        who = context.member(culprit).name
        return f"{what} was given up: {who} aborted the group. Look at its log for the reason. {_MIXED}"
    return f"{what} was given up by this rank{reason}. {_MIXED}"


def _look_at_network(member: Member, context: FailureContext) -> str:
    """What to check when a rank is silent."""
    own = context.member(context.own).card
    way = ""
    if own is not None and member.card is not None:
        way = f" from {own.place}{f' ({own.interface})' if own.interface else ''} to {member.card.place} and back"
    return (
        f"See whether {member.process} is alive (killed for memory: dmesg; stopped: ps), and whether UDP passes{way}"
        " (firewall, interface: dlcp doctor)."
    )


def _in_brackets(engine_error: str | None) -> str:
    return "" if engine_error is None else f" ({engine_error})"


def _pid(member: Member) -> str:
    return "PID" if member.card is None else str(member.card.pid)


def _on(member: Member) -> str:
    return "" if member.card is None else f" on host {member.card.host}"
