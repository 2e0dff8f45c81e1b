"""What dlcp raises: one tree under DlcpError, so that one `except` catches all of it.

Two kinds of leaves. A caller's mistake (ArgumentError and the errors of opening) is raised at once, names the value,
what is accepted and what to do, and has changed nothing. What became of a message (TransferError) is raised by the
blocking call or by the future's `result`, names the peer, the operation and the time waited, and carries the outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlcp.transport.outcome import Outcome


class DlcpError(Exception):
    """Everything that dlcp raises on purpose."""


# ---- opening ----


class SettingsError(DlcpError, ValueError):
    """A setting is unknown, malformed, out of range, or contradicts another."""


class AddressError(DlcpError, ValueError):
    """An address cannot be resolved, bound or used."""


class PortInUseError(DlcpError, OSError):
    """Another process has the port."""


class InterfaceError(DlcpError, ValueError):
    """The network interface is not there."""


class DriverError(DlcpError):
    """A driver is not there, or was built for another version."""


class AuthenticationError(DlcpError):
    """There is no job key, and other hosts could reach the endpoint."""


class ResourceError(DlcpError, OSError):
    """The system refuses something: privilege, memory, threads, descriptors."""


# ---- use ----


class ClosedError(DlcpError):
    """The endpoint is closed."""


class ForkError(DlcpError):
    """The endpoint was opened, or DPDK started, by the parent process; a forked child opens its own, where it can."""


class LimitError(DlcpError):
    """A bound on peers or messages is reached."""


class ArgumentError(DlcpError, ValueError):
    """An argument of a call is out of range."""


class MessageTooLongError(ArgumentError):
    """A message or buffer of 4 GiB or more."""


class ShapeError(ArgumentError):
    """Memory that no message fits: not contiguous, not writable, not numbers; or importance of another length."""


class TrafficClassError(ArgumentError):
    """A traffic class outside 0 to 6."""


class BudgetError(ArgumentError):
    """A loss ratio outside [0, 1), or one that the kind of delivery cannot use."""


class DeadlineError(ArgumentError):
    """A deadline that is not positive, or one that the kind of delivery cannot use."""


class KeyEpochError(DlcpError):
    """The key epoch cannot advance: there is no job key."""


class UnknownPeerError(ArgumentError):
    """A rank that is not connected."""


class DuplicateRankError(ArgumentError):
    """A rank that is taken: by another address, or by this endpoint."""


class NotEstablishedError(DlcpError):
    """The handshake with the peer is not over, so its block size is not known yet."""


# ---- what became of a message ----


class TransferError(DlcpError):
    """A message that was not delivered; `outcome` says how much of it was, if anything is known."""

    outcome: Outcome | None = None


class PeerTimeoutError(TransferError):
    """Nothing was heard from the peer for `peer_timeout_s`, or it did not answer the handshake in time."""


class PeerRestartedError(TransferError):
    """The peer came back as another process; its messages are gone."""


class PeerClosedError(TransferError):
    """The peer closed its endpoint."""


class TransferCancelledError(TransferError):
    """This side gave the message up."""


class PeerCancelledError(TransferError):
    """The peer gave the message up."""


class ReceiveTooSmallError(TransferError):
    """The message is longer than the receive buffer."""


class RefusedError(TransferError):
    """The peer refused the message: its receive buffer was too small."""


class TransferClosedError(TransferError, ClosedError):
    """This side closed its endpoint while the message was under way."""


class TransferTimeoutError(TransferError, TimeoutError):
    """The caller's own timeout passed. A blocking call has cancelled the message; a future's goes on."""


# ---- what became of a job and its collectives ----


class JobError(DlcpError, RuntimeError):
    """The ranks of a job do not go together (version, key, addresses), or one of them did not come in time."""


class StoreTimeoutError(JobError, TimeoutError):
    """A key of the store was not set in time."""


class StoreGoneError(JobError):
    """The job's store does not answer."""


class HubError(JobError):
    """A hub cannot be reached, has another key or none for the job, refuses it, or has no room."""


class CollectiveError(DlcpError, RuntimeError):
    """A collective, or a message between two ranks of a group, that failed.

    The memory that it was to fill, or worked on in place, may hold partial sums, or old and new values mixed: take
    the inputs anew before you try again.
    """

    operation: str = ""
    """all_reduce, send, …"""
    sequence: int | None = None
    """Of the operation in its group, counted from 0; None: not one operation's failure."""
    group: str = ""
    culprit: int | None = None
    """Rank in the job of whom the failure is owed to, if it is known."""
    waited_s: float = 0.0


class CollectiveTimeoutError(CollectiveError, TimeoutError):
    """It was not over within its time; it and its group are given up."""


class PeerFailedError(CollectiveError):
    """A rank that it needs is gone: silent for `peer_timeout_s`, closed, or started again."""


class CollectiveLimitError(CollectiveError, LimitError):
    """A rank had `max_messages_per_peer` messages under way with another, and started one more."""


class MismatchError(CollectiveError):
    """Ranks called different things as the same operation of a group: another kind, type, root or size."""


class GroupFailedError(CollectiveError):
    """The group had failed before; the text names the first failure. Open another one."""


class CollectiveAbortedError(CollectiveError):
    """Given up by abort() or close(), of this rank or another."""


class WaitTimeoutError(CollectiveError, TimeoutError):
    """The time that was given to wait() has passed; the operation goes on."""
