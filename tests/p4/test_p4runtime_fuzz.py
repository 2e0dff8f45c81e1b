"""Whatever a client writes, the P4Runtime server takes it or refuses it with a code, and can say what it holds.

Messages are drawn from a seed, half of them nearly right. Invariants: nothing but Refused is raised; what is read back
is in its shortest form, is refused as already there when it is inserted again, and is gone when all of it is deleted.
"""

from __future__ import annotations

import random

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from finsy.proto import p4r

from tests.support.p4runtime import Faults, Refused
from tests.support.p4runtime.device import Device
from tests.support.p4runtime.sample import (
    COUNTER_ID,
    EXACT_ID,
    FIXED_ID,
    KEYLESS_ID,
    LPM_ID,
    OPTIONAL_ID,
    RANGE_ID,
    REGISTER_ID,
    ROUTE_ID,
    SET_ID,
    TERNARY_ID,
    config,
)
from tests.support.p4runtime.status import ALREADY_EXISTS

UPDATES = 4000
TABLES = (EXACT_ID, TERNARY_ID, RANGE_ID, LPM_ID, OPTIONAL_ID, FIXED_ID, KEYLESS_ID, 0, 77)
KINDS = {EXACT_ID: "exact", TERNARY_ID: "ternary", RANGE_ID: "range", LPM_ID: "lpm", OPTIONAL_ID: "optional"}


class Messages:
    """Updates from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def likely(self) -> bool:
        return self.draw.random() < 0.9

    def value(self) -> bytes:
        size = self.draw.choice((0, 1, 1, 1, 1, 1, 2, 4, 5))
        return self.draw.choice(
            (self.draw.randbytes(size), bytes(size), bytes([self.draw.randrange(4)] * size))
        )

    def match(self, field: p4r.FieldMatch, kind: str) -> None:
        match kind:
            case "exact" | "optional":
                getattr(field, kind).value = self.value()
            case "lpm":
                field.lpm.value, field.lpm.prefix_len = self.value(), self.draw.choice((-1, 0, 1, 8, 32, 33))
            case "ternary":
                field.ternary.value, field.ternary.mask = (
                    self.value(),
                    self.draw.choice((b"\xff", self.value())),
                )
            case "range":
                field.range.low, field.range.high = self.value(), self.value()

    def table_entry(self, entry: p4r.TableEntry) -> None:
        draw = self.draw
        entry.table_id = draw.choice(TABLES)
        ordered = entry.table_id in (TERNARY_ID, RANGE_ID, OPTIONAL_ID)
        entry.priority = (
            draw.choice((1, 2, 3) if ordered else (0,)) if self.likely() else draw.choice((-1, 0, 1))
        )
        likely = KINDS.get(entry.table_id, "exact")
        fields = (1, 2) if entry.table_id == TERNARY_ID else (1,)
        for field_id in fields if self.likely() else draw.choice(((1,), (1, 2), (2,), (), (1, 1), (9,))):
            kind = "exact" if field_id == 2 else likely
            if not self.likely():
                kind = draw.choice((*KINDS.values(), "none"))
            self.match(entry.match.add(field_id=field_id), kind)
        entry.is_default_action = not self.likely()
        entry.is_const = draw.random() < 0.02
        if self.likely():
            entry.action.action.action_id = draw.choice((SET_ID, SET_ID, SET_ID, ROUTE_ID, 5))
            for param_id in (1,) if self.likely() else draw.choice(((), (1, 1), (2,))):
                entry.action.action.params.add(param_id=param_id, value=self.value())
        if draw.random() < 0.05:
            entry.counter_data.packet_count = 5

    def update(self) -> p4r.Update:
        draw = self.draw
        made = p4r.Update(type=draw.choice((1, 1, 1, 1, 1, 1, 1, 1, 2, 3, 0)))
        entity = made.entity
        match draw.randrange(12):
            case 0:
                entity.counter_entry.counter_id = draw.choice((COUNTER_ID, 0, 3))
                entity.counter_entry.index.index = draw.choice((-1, 0, 3, 4))
            case 1:
                self.table_entry(entity.direct_counter_entry.table_entry)
            case 2:
                group = entity.packet_replication_engine_entry.multicast_group_entry
                group.multicast_group_id = draw.choice((0, 1, 2, 65535, 65536))
                for _ in range(draw.randrange(3)):
                    replica = group.replicas.add(instance=draw.choice((0, 1, 70000)))
                    if draw.random() < 0.5:
                        replica.port = self.value()
                    else:
                        replica.egress_port = draw.choice((0, 1, 511, 512))
            case 3:
                session = entity.packet_replication_engine_entry.clone_session_entry
                session.session_id = draw.choice((0, 1, 2, 1 << 15))
                session.replicas.add(egress_port=draw.randrange(3))
            case 4:
                entity.register_entry.register_id = REGISTER_ID
            case 5 if draw.random() < 0.3:
                entity.SetInParent()
            case _:
                self.table_entry(entity.table_entry)
        return made


def everything(device: Device) -> list[p4r.Entity]:
    wanted = [p4r.Entity(table_entry=p4r.TableEntry()), p4r.Entity(), p4r.Entity()]
    wanted[1].packet_replication_engine_entry.multicast_group_entry.SetInParent()
    wanted[2].packet_replication_engine_entry.clone_session_entry.SetInParent()
    return device.read(wanted)


@pytest.mark.parametrize("seed", range(3))
def test_any_update_is_taken_or_refused(seed: int) -> None:
    device = Device(Faults())
    device.set_pipeline(p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config())
    messages = Messages(seed)
    taken = 0
    for number in range(UPDATES):
        update = messages.update()
        try:
            (result,) = device.write([update])
            taken += result is None
            device.read([update.entity])
        except Refused:
            pass  # of the read
        except Exception as error:
            raise AssertionError(f"Messages({seed}), update {number}: {update}") from error
    held = everything(device)
    assert taken > UPDATES / 50
    assert len(held) > 20
    for entity in held:
        for match in entity.table_entry.match:
            kind = getattr(match, match.WhichOneof("field_match_type"))
            values = [getattr(kind, name) for name in ("value", "mask", "low", "high") if hasattr(kind, name)]
            assert all(value == b"\0" or value[0] for value in values), entity
        (again,) = device.write([p4r.Update(type=p4r.Update.INSERT, entity=entity)])
        assert again is not None
        assert again.code == ALREADY_EXISTS, (entity, again)
    assert device.write([p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in held]) == [
        None
    ] * len(held)
    assert everything(device) == []
