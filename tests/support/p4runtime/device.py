"""The device behind the server: its pipeline, committed or only saved, and what requests do to it.

No gRPC here: requests in, answers or Refused out. A configuration that is saved but not committed takes all reads and
writes, while packets still meet the old one (specification: SetForwardingPipelineConfig).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from finsy.proto import p4r

from . import counters, replication, table_entries
from .faults import Faults
from .pipeline import Pipeline
from .status import FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, UNIMPLEMENTED, Refused

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest


class Device:
    """One switch."""

    def __init__(self, faults: Faults, seed: int = 0) -> None:
        self.running: Pipeline | None = None
        self._saved: Pipeline | None = None
        self._faults = faults
        self._seed = seed

    @property
    def pipeline(self) -> Pipeline:
        """What requests refer to."""
        pipeline = self._saved or self.running
        if pipeline is None:
            raise Refused(FAILED_PRECONDITION, "no forwarding pipeline has been set")
        return pipeline

    # ---- the pipeline ----

    def set_pipeline(self, action: int, config: p4r.ForwardingPipelineConfig | None) -> None:
        """One SetForwardingPipelineConfig of a primary."""
        self._faults.meet_pipeline()
        if action == _Set.COMMIT:
            if config is not None:
                raise Refused(INVALID_ARGUMENT, "COMMIT takes no configuration")
            if self._saved is None:
                raise Refused(NOT_FOUND, "no configuration has been saved")
            self.running, self._saved = self._saved, None
            return
        if action not in (
            _Set.VERIFY,
            _Set.VERIFY_AND_SAVE,
            _Set.VERIFY_AND_COMMIT,
            _Set.RECONCILE_AND_COMMIT,
        ):
            raise Refused(INVALID_ARGUMENT, f"no action {action}")
        if config is None:
            raise Refused(INVALID_ARGUMENT, "no configuration")
        pipeline = Pipeline(config, self._seed)
        if action == _Set.VERIFY_AND_SAVE:
            self._saved = pipeline
        elif action == _Set.VERIFY_AND_COMMIT:
            self.running, self._saved = pipeline, None
        elif action == _Set.RECONCILE_AND_COMMIT:
            if self._saved is not None or self.running is not None:
                self._carry_over(self.pipeline, pipeline)
            self.running, self._saved = pipeline, None

    def get_pipeline(self, response_type: int) -> p4r.ForwardingPipelineConfig | None:
        """What is asked for of the configuration; None if there is none."""
        pipeline = self._saved or self.running
        if pipeline is None:
            return None
        answer = p4r.ForwardingPipelineConfig()
        answer.CopyFrom(pipeline.config)
        if response_type not in (
            _Get.ALL,
            _Get.COOKIE_ONLY,
            _Get.P4INFO_AND_COOKIE,
            _Get.DEVICE_CONFIG_AND_COOKIE,
        ):
            raise Refused(INVALID_ARGUMENT, f"no response type {response_type}")
        if response_type in (_Get.COOKIE_ONLY, _Get.DEVICE_CONFIG_AND_COOKIE):
            answer.ClearField("p4info")
        if response_type in (_Get.COOKIE_ONLY, _Get.P4INFO_AND_COOKIE):
            answer.ClearField("p4_device_config")
        return answer

    @staticmethod
    def _carry_over(old: Pipeline, new: Pipeline) -> None:
        # As BMv2: all that can be read of the old one is inserted into the new one, and all of it must go.
        wanted = [p4r.Entity(table_entry=p4r.TableEntry())]
        group = p4r.Entity()
        group.packet_replication_engine_entry.multicast_group_entry.SetInParent()
        session = p4r.Entity()
        session.packet_replication_engine_entry.clone_session_entry.SetInParent()
        for entity in _read(old, [*wanted, group, session]):
            if entity.HasField("table_entry") and entity.table_entry.is_const:
                continue
            try:
                _write(new, p4r.Update.INSERT, entity)
            except Refused as refusal:
                raise Refused(INVALID_ARGUMENT, f"the state cannot be kept: {refusal.message}") from refusal

    # ---- entities ----

    def write(self, updates: Iterable[p4r.Update]) -> list[Refused | None]:
        """Each update in turn; what became of each. Raises Dropped if a fault says so."""
        pipeline = self.pipeline
        results: list[Refused | None] = []
        for update in updates:
            try:
                if self._faults.meet_update():
                    _write(pipeline, update.type, update.entity)
                results.append(None)
            except Refused as refusal:
                results.append(refusal)
            self._faults.meet_drop()
        return results

    def read(self, entities: Iterable[p4r.Entity]) -> list[p4r.Entity]:
        """All that the request's entities mean."""
        pipeline = self.pipeline
        self._faults.meet_read()
        return list(_read(pipeline, entities))


def _write(pipeline: Pipeline, kind: int, entity: p4r.Entity) -> None:
    if kind not in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
        raise Refused(INVALID_ARGUMENT, "an update without a type")
    match entity.WhichOneof("entity"):
        case "table_entry":
            table_entries.write(pipeline, kind, entity.table_entry)
        case "counter_entry":
            counters.write(pipeline, kind, entity.counter_entry)
        case "direct_counter_entry":
            counters.write_direct(pipeline, kind, entity.direct_counter_entry)
        case "packet_replication_engine_entry":
            replication.write(pipeline, kind, entity.packet_replication_engine_entry)
        case None:
            raise Refused(INVALID_ARGUMENT, "an update without an entity")
        case other:  # registers as BMv2; the rest our programs do not have
            raise Refused(UNIMPLEMENTED, f"{other} cannot be written")


def _read(pipeline: Pipeline, entities: Iterable[p4r.Entity]) -> Iterator[p4r.Entity]:
    for entity in entities:
        match entity.WhichOneof("entity"):
            case "table_entry":
                yield from table_entries.read(pipeline, entity.table_entry)
            case "counter_entry":
                yield from counters.read(pipeline, entity.counter_entry)
            case "direct_counter_entry":
                yield from counters.read_direct(pipeline, entity.direct_counter_entry)
            case "packet_replication_engine_entry":
                yield from replication.read(pipeline, entity.packet_replication_engine_entry)
            case None:
                raise Refused(INVALID_ARGUMENT, "a read without an entity")
            case other:
                raise Refused(UNIMPLEMENTED, f"{other} cannot be read")
