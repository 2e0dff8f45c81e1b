"""What the participants of one job agree on before they send; checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.checks import integer
from dlcp.errors import SettingsError
from dlcp.switch.aggregation.packet import MAX_WORKERS

_MAX_NS = 3600 * 10**9


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """The same at all workers and the hub of a job, except the times, which each may have of its own."""

    job: int
    workers: int
    slots: int
    """Of the switch, in the job's range. Half of them are in flight at most, so that a result is still there when the
    last worker asks for it again."""
    trust_switch: bool
    """Must be True: the switch may write any values, and so may any sender behind a participant's port."""
    generation: int = 1
    """Of the job, as the switch has it; +1 for each run, else results of the last one are taken for this one's."""
    deadline_ns: int | None = None
    """From the first transmission of a block: then its result is what is in. None: exact, all are waited for."""
    quorum: int = 1
    """With a deadline: no result of fewer workers."""
    retransmit_ns: int = 10_000_000
    """Least wait before a block is sent again; doubles up to sixteenfold (send_window.py). SwitchML: 10 ms."""
    fallback_after_ns: int = 200_000_000
    """From the first transmission of a block: then the hub takes it."""
    peer_timeout_ns: int = 5_000_000_000
    """The hub gives a message up when a worker does not answer for so long."""
    timeout_ns: int = 30_000_000_000
    """A worker gives a message up so long after it may send its first block."""
    open_messages: int = 4
    """Messages that are sent, and kept for later requests, at a time."""

    def __post_init__(self) -> None:
        if self.trust_switch is not True:
            raise SettingsError(
                f"trust_switch is {self.trust_switch!r}; accepted: True, which says that this network and its "
                "switch may read and falsify the values"
            )
        integer("job", self.job, 0, 2**32 - 1, error=SettingsError)
        integer("workers", self.workers, 1, MAX_WORKERS, error=SettingsError)
        integer("slots", self.slots, 2, 2**16 - 1, error=SettingsError)
        integer("generation", self.generation, 0, 2**16 - 1, error=SettingsError)
        integer("quorum", self.quorum, 1, self.workers, error=SettingsError)
        integer("open_messages", self.open_messages, 1, 1024, error=SettingsError)
        if self.deadline_ns is not None:
            integer("deadline_ns", self.deadline_ns, 1, _MAX_NS, error=SettingsError)
        elif self.quorum != 1:
            raise SettingsError(f"quorum is {self.quorum}; accepted: 1, unless deadline_ns is set")
        for name in ("retransmit_ns", "fallback_after_ns", "peer_timeout_ns", "timeout_ns"):
            integer(name, getattr(self, name), 1, _MAX_NS, error=SettingsError)

    @property
    def everyone(self) -> int:
        """Bits of all workers."""
        return (1 << self.workers) - 1

    @property
    def window(self) -> int:
        """Blocks in flight at most."""
        return self.slots // 2
