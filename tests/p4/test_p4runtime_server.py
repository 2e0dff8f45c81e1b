"""The P4Runtime server that deployment is tested against: pipelines, and what it does wrong on order.

finsy, a client by other hands, shows that the whole is P4Runtime as others understand it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("finsy", reason="P4Runtime needs finsy: pip install '.[p4]'")

import finsy
from finsy.proto import p4r

from tests.support.p4runtime import P4RuntimeServer
from tests.support.p4runtime.client import Client, code_of, update_codes
from tests.support.p4runtime.sample import (
    EXACT_ID,
    FIVE,
    INFO,
    KEYLESS_ID,
    config,
    default,
    entry,
    group,
    insert,
    modify,
)
from tests.support.p4runtime.status import ALREADY_EXISTS as EXISTS
from tests.support.p4runtime.status import NOT_FOUND, OK

# ---- the pipeline ----


def test_nothing_before_a_pipeline(connect: Callable[[], Client]) -> None:
    one = connect()
    one.claim(1)
    assert code_of(lambda: one.write(insert(entry(EXACT_ID, FIVE)))) == "FAILED_PRECONDITION"
    assert code_of(lambda: one.read(p4r.Entity(table_entry=p4r.TableEntry()))) == "FAILED_PRECONDITION"
    assert not one.get().HasField("config")


def test_verify_changes_nothing(connect: Callable[[], Client]) -> None:
    one = connect()
    one.claim(1)
    one.push("VERIFY", config())
    assert not one.get().HasField("config")


def test_pipeline_comes_back_as_asked(client: Client) -> None:
    pushed = config()
    assert client.get().config == pushed
    for kind, p4info, blob in [
        ("COOKIE_ONLY", False, False),
        ("P4INFO_AND_COOKIE", True, False),
        ("DEVICE_CONFIG_AND_COOKIE", False, True),
    ]:
        got = client.get(kind).config
        assert got.cookie.cookie == 77
        assert (got.HasField("p4info"), bool(got.p4_device_config)) == (p4info, blob)


def test_a_pipeline_that_cannot_be_is_refused_and_the_old_one_stays(client: Client) -> None:
    client.write(insert(entry(EXACT_ID, FIVE)))

    def broken(change: Callable[[p4r.ForwardingPipelineConfig], object]) -> p4r.ForwardingPipelineConfig:
        made = config()
        change(made)
        return made

    def other_width(made: p4r.ForwardingPipelineConfig) -> None:
        made.p4info.tables[0].match_fields[0].bitwidth = 31

    def other_parameter(made: p4r.ForwardingPipelineConfig) -> None:
        made.p4info.actions[0].params[0].bitwidth = 9

    def other_name(made: p4r.ForwardingPipelineConfig) -> None:
        made.p4info.tables[0].preamble.name = "exacter"

    def not_json(made: p4r.ForwardingPipelineConfig) -> None:
        made.p4_device_config = b"{"

    def meters(made: p4r.ForwardingPipelineConfig) -> None:
        made.p4_device_config = config(meter_arrays=[{"name": "m"}]).p4_device_config

    for change in (other_width, other_parameter, other_name, not_json, meters):
        assert code_of(lambda: client.push("VERIFY_AND_COMMIT", broken(change))) == "INVALID_ARGUMENT", change  # noqa: B023
    assert code_of(lambda: client.push("VERIFY_AND_COMMIT", None)) == "INVALID_ARGUMENT"
    assert len(client.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 1


def test_commit_starts_empty_and_reconcile_keeps(client: Client) -> None:
    client.write(insert(entry(EXACT_ID, FIVE)), insert(group(3, p4r.Replica(egress_port=1))))
    everything = [p4r.Entity(table_entry=p4r.TableEntry()), group(0)]
    before = client.read(*everything)
    assert len(before) == 2
    client.push("RECONCILE_AND_COMMIT", config(cookie=78))
    assert client.read(*everything) == before
    assert client.get("COOKIE_ONLY").config.cookie.cookie == 78
    client.push("VERIFY_AND_COMMIT", config())
    assert client.read(*everything) == []


def test_a_saved_pipeline_takes_writes_and_packets_meet_it_when_it_is_committed(
    server: P4RuntimeServer, client: Client
) -> None:
    frame = bytes.fromhex("08 0020 00000005")
    assert code_of(lambda: client.push("COMMIT", None)) == "NOT_FOUND"
    client.push("VERIFY_AND_SAVE", config())
    client.write(modify(default(KEYLESS_ID, b"\x07")))
    assert server.process(frame, 0) == [(1, frame)]
    assert code_of(lambda: client.push("COMMIT", config())) == "INVALID_ARGUMENT"
    client.push("COMMIT", None)
    assert server.process(frame, 0) == [(7, frame)]


def test_capabilities_and_devices(client: Client) -> None:
    assert client.stub.Capabilities(p4r.CapabilitiesRequest()).p4runtime_api_version.startswith("1.")
    assert code_of(lambda: client.read(device_id=2)) == "NOT_FOUND"


# ---- faults on order ----


def test_update_that_is_told_to_fail(server: P4RuntimeServer, client: Client) -> None:
    keys = [{1: {"exact": {"value": bytes([i])}}} for i in range(2)]
    server.faults.fail_update(2)
    assert update_codes(lambda: client.write(*(insert(entry(EXACT_ID, key)) for key in keys))) == [OK, 13]
    client.write(insert(entry(EXACT_ID, keys[1])))  # once


def test_update_that_is_told_to_be_ignored(server: P4RuntimeServer, client: Client) -> None:
    server.faults.ignore_update(1)
    client.write(insert(entry(EXACT_ID, FIVE)))
    assert client.read(entry(EXACT_ID, {}, action_id=0)) == []


def test_connection_that_is_told_to_drop(server: P4RuntimeServer, client: Client) -> None:
    keys = [{1: {"exact": {"value": bytes([i])}}} for i in range(2)]
    server.faults.drop_at_update(1)
    assert code_of(lambda: client.write(*(insert(entry(EXACT_ID, key)) for key in keys))) == "UNAVAILABLE"
    assert code_of(client.hear) == "UNAVAILABLE"
    assert len(client.read(entry(EXACT_ID, {}, action_id=0))) == 1


def test_write_that_hangs(server: P4RuntimeServer, client: Client) -> None:
    server.faults.hang_at_update(1)
    one = insert(entry(EXACT_ID, FIVE))
    assert code_of(lambda: client.write(one, timeout_s=0.2)) == "DEADLINE_EXCEEDED"
    assert server.faults.hanging.is_set()
    assert client.read(entry(EXACT_ID, {}, action_id=0)) == []  # the device itself is well
    server.faults.release()
    client.write(one)  # what hung was given up, not done late


def test_pipeline_and_read_that_fail(server: P4RuntimeServer, client: Client) -> None:
    server.faults.fail_pipeline()
    assert code_of(lambda: client.push("VERIFY_AND_COMMIT", config())) == "INTERNAL"
    server.faults.fail_read()
    assert code_of(lambda: client.read(entry(EXACT_ID, {}, action_id=0))) == "INTERNAL"
    assert client.read(entry(EXACT_ID, {}, action_id=0)) == []


def test_another_master_and_another_pipeline(server: P4RuntimeServer, connect: Callable[[], Client]) -> None:
    server.hold(config(cookie=1))
    other = server.occupy(2**64)
    assert other.is_primary
    one = connect()
    assert one.claim(5).status.code == EXISTS
    assert one.get("COOKIE_ONLY").config.cookie.cookie == 1
    other.leave()
    assert one.hear().status.code == NOT_FOUND
    assert one.claim(2**64).status.code == OK


def test_server_comes_back_where_it_was(
    server: P4RuntimeServer, client: Client, connect: Callable[[], Client]
) -> None:
    client.write(insert(entry(EXACT_ID, FIVE)))
    address = server.address
    server.stop()
    assert code_of(client.hear) == "UNAVAILABLE"
    server.start()
    assert server.address == address
    again = connect()
    assert again.claim(1).status.code == OK  # an agent that restarts forgets elections
    assert len(again.read(entry(EXACT_ID, {}, action_id=0))) == 1


# ---- a client by other hands ----


def test_finsy_deploys_and_reads_back(server: P4RuntimeServer, tmp_path: Path) -> None:
    info, blob = tmp_path / "p4info.txt", tmp_path / "program.json"
    info.write_text(INFO)
    blob.write_bytes(config().p4_device_config)

    async def deploy() -> tuple[list[Any], finsy.P4ClientError]:
        options = finsy.SwitchOptions(p4info=info, p4blob=blob, initial_election_id=5)
        async with finsy.Switch("test", server.address, options) as switch:
            assert switch.is_primary
            wanted = finsy.P4TableEntry(
                "ternary",
                match=finsy.P4TableMatch({"h.word": (0x10, 0xF0), "h.kind": 8}),
                action=finsy.P4TableAction("route", p0=300),
                priority=7,
            )
            await switch.insert([wanted, finsy.P4MulticastGroupEntry(2, replicas=[1, 2])])
            found = [e async for e in switch.read([finsy.P4TableEntry(), finsy.P4MulticastGroupEntry()])]  # type: ignore[attr-defined]
            with pytest.raises(finsy.P4ClientError) as caught:
                await switch.insert([wanted])
            return found, caught.value

    found, refused = asyncio.run(deploy())
    assert (found[0].match, found[0].action.args) == ({"word": (0x10, 0xF0), "kind": 8}, {"p0": 300})
    assert found[1].replicas == (1, 2)
    assert refused.details[0].canonical_code == finsy.GRPCStatusCode.ALREADY_EXISTS
