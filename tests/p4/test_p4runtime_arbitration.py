"""Who may write, by the P4Runtime specification's rules of arbitration: one case each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

from finsy.proto import U128, p4r

from tests.support.p4runtime import P4RuntimeServer
from tests.support.p4runtime.client import DEVICE, Client, code_of
from tests.support.p4runtime.sample import EXACT_ID, FIVE, config, entry, insert
from tests.support.p4runtime.status import (
    ALREADY_EXISTS as EXISTS,
)
from tests.support.p4runtime.status import (
    NOT_FOUND,
    OK,
    UNIMPLEMENTED,
)
from tests.support.p4runtime.status import (
    PERMISSION_DENIED as DENIED,
)

# ---- arbitration ----


def test_the_highest_election_id_is_primary_and_all_hear_of_it(connect: Callable[[], Client]) -> None:
    low, high = connect(), connect()
    heard = low.claim(2**64 + 5)
    assert (heard.status.code, U128.decode(heard.election_id), heard.device_id) == (OK, 2**64 + 5, DEVICE)
    heard = high.claim(2**65)
    assert (heard.status.code, U128.decode(heard.election_id)) == (OK, 2**65)
    heard = low.hear()
    assert (heard.status.code, U128.decode(heard.election_id)) == (EXISTS, 2**65)
    heard = low.claim(2**64)
    assert (heard.status.code, U128.decode(heard.election_id)) == (EXISTS, 2**65)


def test_a_primary_that_goes_leaves_none_until_its_mark_is_reached(connect: Callable[[], Client]) -> None:
    first, second = connect(), connect()
    first.claim(10)
    second.claim(5)
    first.close()
    heard = second.hear()
    assert (heard.status.code, U128.decode(heard.election_id)) == (NOT_FOUND, 10)
    assert second.claim(9).status.code == NOT_FOUND
    assert second.claim(10).status.code == OK


def test_a_primary_may_step_down(connect: Callable[[], Client]) -> None:
    first, second = connect(), connect()
    first.claim(10)
    second.claim(5)
    assert first.claim(3).status.code == NOT_FOUND
    assert second.hear().status.code == NOT_FOUND


def test_a_controller_without_an_election_id_is_a_backup(connect: Callable[[], Client]) -> None:
    one = connect()
    heard = one.claim(None)
    assert heard.status.code == NOT_FOUND
    assert not heard.HasField("election_id")
    assert code_of(lambda: one.push("VERIFY_AND_COMMIT", config())) == "PERMISSION_DENIED"


def test_an_election_id_is_one_controllers(connect: Callable[[], Client]) -> None:
    first, second, third = connect(), connect(), connect()
    first.claim(10)
    assert code_of(lambda: second.claim(10)) == "INVALID_ARGUMENT"
    third.claim(9)
    assert code_of(lambda: third.claim(10)) == "INVALID_ARGUMENT"
    assert first.claim(10).status.code == OK  # its own again


def test_a_stream_stays_with_its_device_and_its_role(connect: Callable[[], Client]) -> None:
    assert code_of(lambda: connect().claim(1, device_id=2)) == "NOT_FOUND"
    for change in ({"device_id": 2}, {"role": "other"}):
        one = connect()
        one.claim(20)
        assert code_of(lambda: one.claim(20, **change)) == "FAILED_PRECONDITION"  # noqa: B023
        one.close()


def test_roles_elect_each_their_own(connect: Callable[[], Client]) -> None:
    plain, other = connect(), connect()
    assert plain.claim(10).status.code == OK
    heard = other.claim(10, role="other")
    assert (heard.status.code, heard.role.name) == (OK, "other")
    other.role = "unheard-of"
    assert code_of(lambda: other.push("VERIFY_AND_COMMIT", config())) == "NOT_FOUND"


def test_only_the_primary_writes(
    server: P4RuntimeServer, client: Client, connect: Callable[[], Client]
) -> None:
    other = connect()
    other.claim(9)
    assert code_of(lambda: other.write(insert(entry(EXACT_ID, FIVE)))) == "PERMISSION_DENIED"
    other.claim(11)
    assert client.hear().status.code == EXISTS
    assert code_of(lambda: client.write(insert(entry(EXACT_ID, FIVE)))) == "PERMISSION_DENIED"
    assert code_of(lambda: client.push("VERIFY_AND_COMMIT", config())) == "PERMISSION_DENIED"
    other.write(insert(entry(EXACT_ID, FIVE)))
    assert server.writes == 1
    assert len(client.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 1  # anybody reads


def test_packets_out_have_nowhere_to_go(client: Client, connect: Callable[[], Client]) -> None:
    packet = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x"))
    client.send(packet)
    assert client.hear_any().error.canonical_code == UNIMPLEMENTED
    backup = connect()
    backup.claim(1)
    backup.send(packet)
    answer = backup.hear_any().error
    assert (answer.canonical_code, answer.packet_out.packet_out.payload) == (DENIED, b"x")
