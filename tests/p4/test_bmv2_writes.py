"""The P4Runtime server against BMv2's: what one takes the other takes, and both then hold the same.

Thousands of writes, each a good one with something changed.

Three things are left out, in which ours keeps to the specification and BMv2 (PI, 2026-06) does not: it
takes an empty bytestring for 0, ignores a negative priority where there is none, and refuses to MODIFY an
entry without an action.
Codes are not compared: PI has UNKNOWN for much.
"""

from __future__ import annotations

import random

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

import grpc
from finsy.proto import p4r

from tests.support.bmv2 import bed
from tests.support.bmv2.bed import Bed
from tests.support.bmv2.shipped import canonical, config, everything, install
from tests.support.p4runtime import P4RuntimeServer
from tests.support.p4runtime.client import DEVICE, Client

REASON = bed.missing()
pytestmark = [pytest.mark.needs_root, pytest.mark.skipif(REASON is not None, reason=REASON or "")]

SEED = 3
WRITES = 4000
VALUES = (b"\0", b"\x01", b"\0\x05", b"\xff\xff", b"\xff" * 20)


class Changes:
    """Good entries, and something about them changed."""

    def __init__(self, seed: int, entries: list[p4r.Entity]) -> None:
        self._draw = random.Random(seed)
        self._entries = entries
        info = config().p4info
        self._actions = [action.preamble.id for action in info.actions]
        self._tables = [table.preamble.id for table in info.tables]

    def update(self) -> p4r.Update:
        draw = self._draw
        kind = draw.choice((p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.MODIFY, p4r.Update.DELETE))
        made = p4r.Update(type=kind, entity=draw.choice(self._entries))
        self._change(made.entity.table_entry, kind)
        return made

    def _change(self, entry: p4r.TableEntry, kind: int) -> None:
        draw, action = self._draw, entry.action.action
        match draw.randrange(13):
            case 0:
                entry.priority = draw.choice((0, 1, 5))
            case 1 if entry.match:
                self._change_match(draw.choice(entry.match))
            case 2 if entry.match:
                entry.match.remove(draw.choice(entry.match))
            case 3 if entry.match:
                entry.match.append(draw.choice(entry.match))
            case 4:
                action.action_id = draw.choice([*self._actions, 1])
            case 5 if action.params:
                draw.choice(action.params).value = draw.choice(VALUES)
            case 6 if action.params:
                action.params.append(draw.choice(action.params))
            case 7 if action.params:
                action.params.remove(draw.choice(action.params))
            case 8 if kind != p4r.Update.MODIFY:
                entry.ClearField("action")
            case 9:
                entry.is_default_action = True
            case 10:
                entry.table_id = draw.choice([*self._tables, 0, 5])
            case 11 if entry.match:
                draw.choice(entry.match).field_id = draw.choice((0, 1, 2, 3, 9))

    def _change_match(self, match: p4r.FieldMatch) -> None:
        one = getattr(match, match.WhichOneof("field_match_type"))
        part = self._draw.choice([field.name for field in one.DESCRIPTOR.fields])
        if part == "prefix_len":
            one.prefix_len = self._draw.choice((-1, 0, 1, 7, 16, 33, 129))
        else:
            setattr(one, part, self._draw.choice((*VALUES, self._draw.randbytes(2))))


def takes(client: Client, update: p4r.Update) -> bool:
    try:
        client.write(update)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNKNOWN:  # not the update, but the call
            raise
        return False
    return True


def test_both_take_and_refuse_alike() -> None:
    with Bed(2) as real, P4RuntimeServer(DEVICE) as server:
        ours, theirs = Client(server.address), Client(real.switch.address)
        for one in (ours, theirs):
            one.claim(1)
            one.push("VERIFY_AND_COMMIT", config())
        with server.lock:
            install(server.program)
        entries = everything(ours)
        theirs.write(*(p4r.Update(type=p4r.Update.INSERT, entity=entry) for entry in entries))
        changes = Changes(SEED, entries)
        taken = 0
        for number in range(WRITES):
            update = changes.update()
            both = takes(ours, update), takes(theirs, update)
            assert both[0] == both[1], (
                f"Changes({SEED}), write {number}: ours, BMv2 takes it: {both}\n{update}"
            )
            taken += both[0]
        assert WRITES / 10 < taken < WRITES * 9 / 10
        assert canonical(everything(theirs)) == canonical(everything(ours))
        ours.close()
        theirs.close()
