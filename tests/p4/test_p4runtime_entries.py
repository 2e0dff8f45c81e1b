"""Entries, counters and groups of the P4Runtime server: what is taken, and the code for what is not."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from finsy.proto import p4r

from tests.support.p4runtime import P4RuntimeServer
from tests.support.p4runtime.client import Client, code_of, update_codes
from tests.support.p4runtime.sample import (
    EXACT_ID,
    FIVE,
    FIXED_ID,
    KEYLESS_ID,
    LPM_ID,
    RANGE_ID,
    REGISTER_ID,
    ROUTE_ID,
    SET_ID,
    TERNARY_ID,
    counter,
    default,
    delete,
    entry,
    group,
    insert,
    modify,
)
from tests.support.p4runtime.status import (
    ALREADY_EXISTS as EXISTS,
)
from tests.support.p4runtime.status import (
    INVALID_ARGUMENT as INVALID,
)
from tests.support.p4runtime.status import (
    NOT_FOUND,
    OK,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
)
from tests.support.p4runtime.status import (
    PERMISSION_DENIED as DENIED,
)
from tests.support.p4runtime.status import (
    RESOURCE_EXHAUSTED as EXHAUSTED,
)

# ---- entries ----


def test_entry_is_inserted_modified_and_deleted_once(client: Client) -> None:
    one = entry(EXACT_ID, FIVE)
    assert update_codes(lambda: client.write(modify(one))) == [NOT_FOUND]
    assert update_codes(lambda: client.write(delete(one))) == [NOT_FOUND]
    client.write(insert(one))
    assert update_codes(lambda: client.write(insert(one))) == [EXISTS]
    client.write(modify(entry(EXACT_ID, FIVE, b"\x09")))
    assert client.read(entry(EXACT_ID, FIVE, action_id=0)) == [entry(EXACT_ID, FIVE, b"\x09")]
    client.write(delete(entry(EXACT_ID, FIVE, b"", action_id=999)))  # only the key counts
    assert client.read(entry(EXACT_ID, {}, action_id=0)) == []


def test_each_update_of_a_batch_is_tried_and_answered(client: Client) -> None:
    one, two = entry(EXACT_ID, FIVE), entry(EXACT_ID, {1: {"exact": {"value": b"\x06"}}})
    assert update_codes(
        lambda: client.write(insert(one), insert(one), insert(two), delete(entry(99, FIVE)))
    ) == [
        OK,
        EXISTS,
        OK,
        INVALID,
    ]
    assert len(client.read(entry(EXACT_ID, {}, action_id=0))) == 2


def test_full_table(client: Client) -> None:
    keys = [{1: {"exact": {"value": bytes([i])}}} for i in range(3)]
    updates = [insert(entry(EXACT_ID, key)) for key in keys]
    assert update_codes(lambda: client.write(*updates)) == [OK, OK, EXHAUSTED]


@pytest.mark.parametrize(
    ("value", "code"),
    [(b"", OUT_OF_RANGE), (b"\x01\x00\x00\x00\x00", OUT_OF_RANGE), (b"\x00\x00\x00\x00\x00\x05", OK)],
)
def test_width_of_a_match(client: Client, value: bytes, code: int) -> None:
    update = insert(entry(EXACT_ID, {1: {"exact": {"value": value}}}))
    if code != OK:
        assert update_codes(lambda: client.write(update)) == [code]
    else:
        client.write(update)
        (read,) = client.read(entry(EXACT_ID, {}, action_id=0))
        assert read.table_entry.match[0].exact.value == b"\x05"  # the shortest form


@pytest.mark.parametrize("value", [b"", b"\x01\x00"])
def test_width_of_a_parameter(client: Client, value: bytes) -> None:
    assert update_codes(lambda: client.write(insert(entry(EXACT_ID, FIVE, value)))) == [OUT_OF_RANGE]


KIND = {2: {"exact": {"value": b"\x08"}}}
SOME = {1: {"range": {"low": b"\1", "high": b"\2"}}}
ODD = {1: {"ternary": {"value": b"\x01", "mask": b"\x0f"}}}


@pytest.mark.parametrize(
    ("what", "entity"),
    [
        ("no such table", entry(99, FIVE)),
        ("no such field", entry(EXACT_ID, {9: {"exact": {"value": b"\x05"}}})),
        ("a field missing", entry(TERNARY_ID, {1: {"ternary": {"value": b"\x01", "mask": b"\x01"}}}, priority=1)),
        ("another kind of match", entry(EXACT_ID, {1: {"lpm": {"value": b"\x05", "prefix_len": 32}}})),
        ("no match in a field", entry(EXACT_ID, {1: {}})),
        ("priority where there is none", entry(EXACT_ID, FIVE, priority=1)),
        ("no priority", entry(TERNARY_ID, KIND)),
        ("a negative priority", entry(TERNARY_ID, KIND, priority=-1)),
        ("a mask of nothing", entry(TERNARY_ID, {1: {"ternary": {"value": b"\0", "mask": b"\0"}}, **KIND}, priority=1)),
        ("unmasked bits", entry(TERNARY_ID, {1: {"ternary": {"value": b"\3", "mask": b"\1"}}, **KIND}, priority=1)),
        ("the whole range", entry(RANGE_ID, {1: {"range": {"low": b"\0", "high": b"\xff\xff"}}}, priority=1)),
        ("a range upside down", entry(RANGE_ID, {1: {"range": {"low": b"\5", "high": b"\4"}}}, priority=1)),
        ("a prefix of nothing", entry(LPM_ID, {1: {"lpm": {"value": b"\0", "prefix_len": 0}}})),
        ("too long a prefix", entry(LPM_ID, {1: {"lpm": {"value": b"\0", "prefix_len": 33}}})),
        ("bits behind the prefix", entry(LPM_ID, {1: {"lpm": {"value": b"\x0a\0\0\1", "prefix_len": 8}}})),
        ("no action", entry(EXACT_ID, FIVE, action_id=0)),
        ("another table's action", entry(RANGE_ID, SOME, priority=1, action_id=ROUTE_ID)),
        ("is_const", entry(EXACT_ID, FIVE, is_const=True)),
        ("idle timeout", entry(EXACT_ID, FIVE, idle_timeout_ns=5)),
        ("a counter it does not have", entry(RANGE_ID, SOME, priority=1, counter_data=p4r.CounterData(packet_count=1))),
        ("an entry without a key", entry(KEYLESS_ID, {}, action_id=ROUTE_ID)),
        ("a default entry inserted", default(EXACT_ID)),
        ("nothing", p4r.Entity()),
    ],
)  # fmt: skip
def test_malformed_entry(client: Client, what: str, entity: p4r.Entity) -> None:
    assert update_codes(lambda: client.write(insert(entity))) == [INVALID], what


def test_malformed_parameters(client: Client) -> None:
    none, twice, extra = entry(EXACT_ID, FIVE), entry(EXACT_ID, FIVE), entry(EXACT_ID, FIVE)
    del none.table_entry.action.action.params[:]
    twice.table_entry.action.action.params.add(param_id=1, value=b"\x01")
    extra.table_entry.action.action.params.add(param_id=2, value=b"\x01")
    field_twice = entry(EXACT_ID, FIVE)
    field_twice.table_entry.match.append(field_twice.table_entry.match[0])
    member = entry(EXACT_ID, FIVE, action_id=0)
    member.table_entry.action.action_profile_member_id = 1
    updates = [insert(e) for e in (none, twice, extra, field_twice, member)] + [
        p4r.Update(entity=entry(EXACT_ID, FIVE))
    ]
    assert update_codes(lambda: client.write(*updates)) == [INVALID] * 6


def test_scope_of_an_action(client: Client) -> None:
    assert update_codes(lambda: client.write(insert(entry(EXACT_ID, FIVE, action_id=ROUTE_ID)))) == [DENIED]
    assert update_codes(lambda: client.write(modify(default(TERNARY_ID, action_id=SET_ID)))) == [DENIED]


def test_default_entry(server: P4RuntimeServer, client: Client) -> None:
    client.write(modify(default(EXACT_ID, b"\x03")))
    (read,) = client.read(default(EXACT_ID, None))
    assert read == default(EXACT_ID, b"\x03")
    client.write(modify(default(EXACT_ID, None)))  # back to the program's
    assert client.read(default(EXACT_ID, None)) == [default(EXACT_ID, b"\x01")]
    refused = [
        delete(default(EXACT_ID)),
        modify(default(EXACT_ID, priority=1)),
        modify(default(FIXED_ID, action_id=SET_ID)),
    ]
    assert update_codes(lambda: client.write(*refused)) == [INVALID, INVALID, DENIED]


def test_reads_filter(client: Client) -> None:
    ternaries = [
        entry(
            TERNARY_ID,
            {1: {"ternary": {"value": b"\x01", "mask": b"\x0f"}}, **KIND},
            priority=5,
            metadata=b"m",
        ),
        entry(TERNARY_ID, KIND, priority=5, action_id=ROUTE_ID),
        entry(TERNARY_ID, KIND, priority=6, controller_metadata=9),
    ]
    client.write(*(insert(e) for e in ternaries), insert(entry(EXACT_ID, FIVE)))
    asked = p4r.TableEntry(table_id=TERNARY_ID)

    def read(**more: Any) -> list[p4r.Entity]:
        wanted = p4r.TableEntry()
        wanted.CopyFrom(asked)
        for name, value in more.items():
            setattr(wanted, name, value)
        return client.read(p4r.Entity(table_entry=wanted))

    assert read() == ternaries
    assert read(priority=5) == ternaries[:2]
    assert read(metadata=b"m") == ternaries[:1]
    assert read(controller_metadata=9) == ternaries[2:]
    asked.match.append(p4r.FieldMatch(field_id=2, exact=p4r.FieldMatch.Exact(value=b"\x08")))
    assert read() == ternaries[1:]
    assert len(client.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 4
    assert code_of(lambda: client.read(entry(99, {}))) == "INVALID_ARGUMENT"


def test_entries_do_to_packets_what_they_say(server: P4RuntimeServer, client: Client) -> None:
    # The last table sends to its default's port; the ones before only show in what they hit.
    client.write(
        insert(entry(TERNARY_ID, {**ODD, **KIND}, b"\x02", ROUTE_ID, priority=5)),
        insert(entry(TERNARY_ID, KIND, b"\x03", ROUTE_ID, priority=4)),
        modify(default(KEYLESS_ID, b"\x04")),
    )
    for word, hit in [(1, [2]), (2, [3])]:
        frame = bytes.fromhex("08 0020") + word.to_bytes(4, "big")
        assert server.process(frame, 0) == [(4, frame)]
        with server.lock:
            (queued,) = server.program.ingress(frame, 0)
            found = server.program.table("ternary").lookup(queued.packet)
        assert found is not None
        assert found.data == hit


# ---- counters, groups, the rest ----


def test_direct_counter(server: P4RuntimeServer, client: Client) -> None:
    client.write(insert(entry(EXACT_ID, FIVE)))
    for _ in range(3):
        server.process(bytes.fromhex("08 0020 00000005"), 0)
    asked = entry(EXACT_ID, FIVE, action_id=0)
    asked.table_entry.counter_data.SetInParent()
    (read,) = client.read(asked)
    assert (read.table_entry.counter_data.packet_count, read.table_entry.counter_data.byte_count) == (3, 21)
    direct = p4r.Entity(
        direct_counter_entry=p4r.DirectCounterEntry(
            table_entry=entry(EXACT_ID, FIVE, action_id=0).table_entry
        )
    )
    (read,) = client.read(direct)
    assert read.direct_counter_entry.data.packet_count == 3
    assert update_codes(lambda: client.write(insert(direct))) == [INVALID]
    direct.direct_counter_entry.data.packet_count = 100
    client.write(modify(direct))
    (read,) = client.read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry()))
    assert (read.direct_counter_entry.data.packet_count, read.direct_counter_entry.data.byte_count) == (
        100,
        0,
    )
    direct.direct_counter_entry.table_entry.match[0].exact.value = b"\x07"
    assert code_of(lambda: client.read(direct)) == "NOT_FOUND"


def test_counter_array(server: P4RuntimeServer, client: Client) -> None:
    with server.lock:
        server.program.counter("packets")[2].packets = 9
        server.program.counter("packets")[2].bytes = 900
    (read,) = client.read(counter(2))
    assert (read.counter_entry.data.packet_count, read.counter_entry.data.byte_count) == (
        9,
        0,
    )  # its unit is packets
    assert [e.counter_entry.data.packet_count for e in client.read(counter(None))] == [0, 0, 9, 0]
    assert len(client.read(p4r.Entity(counter_entry=p4r.CounterEntry()))) == 4
    client.write(modify(counter(1, packets=5)))
    client.write(modify(counter(None)))  # without data nothing changes
    assert [e.counter_entry.data.packet_count for e in client.read(counter(None))] == [0, 5, 9, 0]
    assert update_codes(lambda: client.write(insert(counter(1)), delete(counter(1)), modify(counter(4)))) == [
        INVALID,
        INVALID,
        OUT_OF_RANGE,
    ]
    assert code_of(lambda: client.read(counter(-1))) == "INVALID_ARGUMENT"
    assert code_of(lambda: client.read(counter(1, counter_id=99))) == "INVALID_ARGUMENT"


def test_multicast_group(server: P4RuntimeServer, client: Client) -> None:
    two = group(3, p4r.Replica(egress_port=1), p4r.Replica(port=b"\x02", instance=4))
    client.write(insert(two))
    assert client.read(group(3)) == [two] == client.read(group(0))
    with server.lock:
        assert [(r.port, r.instance) for r in server.program.model.groups[3]] == [(1, 0), (2, 4)]
    refused = [
        insert(two),
        modify(group(4)),
        delete(group(4)),
        insert(group(0)),
        insert(group(5, p4r.Replica(egress_port=1), p4r.Replica(port=b"\x01"))),
        insert(group(5, p4r.Replica(egress_port=512))),
        insert(group(5, p4r.Replica(port=b""))),
    ]
    codes = update_codes(lambda: client.write(*refused))
    assert codes == [EXISTS, NOT_FOUND, NOT_FOUND, INVALID, INVALID, OUT_OF_RANGE, OUT_OF_RANGE]
    client.write(modify(group(3, p4r.Replica(egress_port=9))))
    client.write(delete(group(3)))
    assert client.read(group(0)) == []
    assert code_of(lambda: client.read(group(3))) == "NOT_FOUND"


def test_clone_session(server: P4RuntimeServer, client: Client) -> None:
    session = p4r.Entity()
    made = session.packet_replication_engine_entry.clone_session_entry
    made.session_id = 5
    made.replicas.add(egress_port=4)
    client.write(insert(session))
    assert client.read(session) == [session]
    assert update_codes(lambda: client.write(insert(session))) == [EXISTS]
    client.write(delete(session))
    assert code_of(lambda: client.read(session)) == "NOT_FOUND"


def test_what_bmv2_has_not_either(client: Client) -> None:
    register = p4r.Entity(register_entry=p4r.RegisterEntry(register_id=REGISTER_ID))
    assert update_codes(lambda: client.write(modify(register))) == [UNIMPLEMENTED]
    assert code_of(lambda: client.read(register)) == "UNIMPLEMENTED"
    atomic = p4r.WriteRequest.DATAPLANE_ATOMIC
    assert code_of(lambda: client.write(insert(entry(EXACT_ID, FIVE)), atomicity=atomic)) == "UNIMPLEMENTED"
