"""What a deployment needs of any P4Runtime client: who is primary, what a switch holds, what to write.

`grpc_session.py` is our client; `shell_session.py` lets p4runtime-shell do the talking. Arbitration, reading and errors
are the same for both. A session asks who is primary with an id that outranks no controller before it claims to be.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from finsy.proto import p4r

from dlcp.switch.deploy.codec import decode
from dlcp.switch.deploy.errors import (
    DeployError,
    ElectionIdTakenError,
    NotOfferedError,
    OtherPrimaryError,
    ProgramError,
    SwitchRefusedError,
    SwitchTimeoutError,
    UnreachableError,
    other_primary,
)
from dlcp.switch.deploy.pipeline import Pipeline, Schema
from dlcp.switch.deploy.reads import all_of, everything_of, restoring
from dlcp.switch.deploy.update import Update
from dlcp.switch.entries import Entry
from dlcp.switch.topology import MAX_ELECTION_ID, SwitchTarget

BATCH_UPDATES = 100  # per Write, so that a stop is heard of and an answer stays short
BACKUP_ELECTION_ID = 0  # outranks nobody: P4Runtime 1.3, 5.2
CLAIMS = 3  # others may come meanwhile
PROBE_S, PROBE_PAUSE_S = 2.0, 0.03  # for another asker to be done
OK, NOT_FOUND = 0, 5  # of google.rpc.Code


@dataclass(frozen=True)
class Primacy:
    """What a switch answers to an arbitration request."""

    is_managed: bool
    election_id: int
    """Of the primary, or if there is none, the highest that was ever seen, as far as the switch says."""
    has_primary: bool


def primacy(code: int, election_id: int) -> Primacy:
    """P4Runtime 1.3, 5.3: status OK to the primary, ALREADY_EXISTS to others, NOT_FOUND if there is none."""
    return Primacy(code == OK, election_id, code != NOT_FOUND)


class Session(ABC):
    """One conversation with one switch. Every request ends within `timeout_s`. All methods raise DeployError."""

    def __init__(self, target: SwitchTarget, timeout_s: float) -> None:
        self.target = target
        self.timeout_s = timeout_s
        self.election_id = BACKUP_ELECTION_ID

    # ---- what a client does ----

    @abstractmethod
    def arbitrate(self, election_id: int) -> Primacy:
        """The switch's answer to a new stream with this election id. The stream stays open."""

    @abstractmethod
    def end_stream(self) -> None:
        """Ends the stream, if there is one, and primacy with it."""

    @abstractmethod
    def pipeline(self) -> Pipeline | None:
        """What the switch runs; None if nothing was pushed yet."""

    @abstractmethod
    def set_pipeline(self, pipeline: Pipeline) -> None:
        """Pushes a pipeline. The switch then has no entries."""

    @abstractmethod
    def read_entities(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """What the switch answers to a read of these."""

    @abstractmethod
    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        """Carries the updates out, in this order. What came before one that fails is done."""

    @abstractmethod
    def write_messages(self, updates: Sequence[p4r.Update]) -> None:
        """As `write`, of entities that another program's pipeline had."""

    @abstractmethod
    def close(self) -> None:
        """Ends the session, and primacy with it. Never raises."""

    # ---- who is primary ----

    def primary(self) -> int | None:
        """Election id of a live primary other than this session; None if there is none. Takes primacy from nobody."""
        answer = self._probe()
        return answer.election_id if answer.has_primary and not answer.is_managed else None

    def _probe(self) -> Primacy:
        """The present primary, asked without a claim."""
        answer = self.open_stream()
        self.end_stream()
        return answer

    def open_stream(self) -> Primacy:
        """A stream that claims nothing. BMv2 serves one such at a time, and may not have seen the last one end."""
        end_s = time.monotonic() + PROBE_S
        while True:
            try:
                return self.arbitrate(BACKUP_ELECTION_ID)
            except ElectionIdTakenError:
                if time.monotonic() > end_s:
                    raise
                time.sleep(PROBE_PAUSE_S)

    def become_primary(self, take_over: bool = False, own: int | None = None) -> int:
        """The election id under which this session is primary. OtherPrimaryError: another controller is.

        `take_over`: replace a live primary. `own`: the id of an earlier session of ours, which the switch may not have
        seen end.
        """
        asked = self._probe()
        take_over = take_over or (own is not None and asked.election_id == own)
        if asked.has_primary and not asked.is_managed and not take_over:
            raise other_primary(self.target.where, asked.election_id)
        # If an earlier primary has left, the id must be at least the highest that was ever seen (5.3).
        least = 0 if asked.is_managed else asked.election_id + asked.has_primary
        for _ in range(CLAIMS):
            wish = max(self.target.election_id, least)
            if wish > MAX_ELECTION_ID:
                break
            answer = self.arbitrate(wish)
            if answer.is_managed:
                self.election_id = wish
                return wish
            self.end_stream()
            if answer.has_primary and not take_over:
                raise other_primary(self.target.where, answer.election_id)
            least = answer.election_id + answer.has_primary
        raise other_primary(self.target.where, least)

    # ---- reading ----

    def read(self, schema: Schema) -> list[Entry]:
        """All entries, default actions and multicast groups of the pipeline."""
        try:
            entries = [decode(entity, schema) for entity in self.read_entities(all_of(schema))]
        except ProgramError as error:
            raise SwitchRefusedError(f"{self.target.where}, read: {error}") from None
        return [entry for entry in entries if entry is not None]

    def counters(
        self, schema: Schema, name: str, places: Collection[int] | None = None
    ) -> dict[int, tuple[int, int]]:
        """Index → packets and bytes, of what has counted anything. `places`: only these."""
        number = schema.counters[name]
        entries = [p4r.CounterEntry(counter_id=number)]
        if places is not None:
            entries = [p4r.CounterEntry(counter_id=number, index=p4r.Index(index=i)) for i in places]
        found = [e.counter_entry for e in self.read_entities([p4r.Entity(counter_entry=e) for e in entries])]
        return {
            e.index.index: (e.data.packet_count, e.data.byte_count)
            for e in found
            if e.data.packet_count or e.data.byte_count
        }

    def read_all(self) -> list[bytes]:
        """All that can be read of whatever pipeline, as serialised entities: to put it back.

        What a switch does not offer to read cannot have been written to it over P4Runtime either.
        """
        pipeline = self.pipeline()
        entities: list[p4r.Entity] = []
        for wish in [] if pipeline is None else everything_of(pipeline.schema):
            with contextlib.suppress(NotOfferedError):
                entities += self.read_entities([wish])
        return [entity.SerializeToString(deterministic=True) for entity in entities]

    def restore(self, entities: Iterable[bytes], fresh: Iterable[bytes]) -> None:
        """Writes what `read_all` gave before, after `set_pipeline`, when it gives `fresh`."""
        self.write_messages(restoring(entities, fresh))

    # ---- errors ----

    def taken(self, election_id: int, details: str) -> ElectionIdTakenError:
        """The switch does not let two controllers have one election id."""
        return ElectionIdTakenError(
            f"{self.target.where}: another controller has the election id {election_id} ({details}); give the switch "
            "another election_id in the topology"
        )

    def late(self, what: str) -> DeployError:
        """No answer in time."""
        return SwitchTimeoutError(
            f"{self.target.where} does not answer within {self.timeout_s:g} s, {what}; look whether it is up and "
            "reachable, or give it more time with --timeout"
        )

    def named_error(self, code: str, details: str, what: str, primary: int | None = None) -> DeployError:
        """The error of dlcp for a status of gRPC, by the status' name. `primary`: who is, as far as we heard."""
        where = self.target.where
        details = " ".join(details.split()) or code
        match code:
            case "DEADLINE_EXCEEDED":
                return self.late(what)
            case "UNAVAILABLE" | "CANCELLED":
                # gRPC: "failed to connect to all addresses; last error: UNKNOWN: ipv4:…: … : Connection refused".
                details = details.rpartition(": ")[2] if "failed to connect" in details else details
                return UnreachableError(
                    f"{where} cannot be reached when {what}: {details}; look at the address, and whether its "
                    "P4Runtime server runs"
                )
            case "PERMISSION_DENIED":
                who = "" if primary in (None, self.election_id) else f", with election id {primary}"
                return OtherPrimaryError(
                    f"{where}: another controller has become primary{who}; deploy again when it is done"
                )
            case "UNIMPLEMENTED":
                return NotOfferedError(f"{where} does not offer to be {what}: {details}", code)
            case "NOT_FOUND":
                return SwitchRefusedError(
                    f"{where}, {what}: {details}; is device_id {self.target.device_id} right?", code
                )
        if "assign device" in details:  # BMv2's own words, with status UNKNOWN
            number = self.target.device_id
            details += (
                f"; the server has no device {number} (BMv2: --device-id, without it 0): look at device_id in "
                "the topology"
            )
        said = f"{code}: {details}" if code else details
        return SwitchRefusedError(f"{where}, {what}: {said}", code)
