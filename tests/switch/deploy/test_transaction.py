"""Deployment over real gRPC: all switches or none, whatever fails at whichever write.

The switches are P4Runtime servers of the tests over the compiled program. The property that everything here comes down
to: after a deployment that raised, every switch holds exactly what it held before.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from finsy.proto import p4i, p4r

from dlcp.errors import DlcpError
from dlcp.switch import SwitchTarget, programs
from dlcp.switch.deploy.errors import (
    DeployError,
    OtherPipelineError,
    OtherPrimaryError,
    RollbackError,
    SwitchRefusedError,
    SwitchTimeoutError,
    UnreachableError,
    VerifyError,
    several,
)
from dlcp.switch.deploy.grpc_session import GrpcSession
from dlcp.switch.deploy.pipeline import Pipeline, Schema
from dlcp.switch.deploy.session import Session
from dlcp.switch.deploy.transaction import Comparison, DesiredState, Settings, compare, deploy, refusals
from dlcp.switch.deploy.update import Update
from dlcp.switch.entries import TableEntry
from tests.support.deployment import PIPELINE, TIMEOUT_S, desired, open_session, state
from tests.support.p4runtime import P4RuntimeServer

PLAIN = Settings(undo_s=10.0)
Two = tuple[P4RuntimeServer, P4RuntimeServer]


@pytest.fixture
def server() -> Iterator[P4RuntimeServer]:
    with P4RuntimeServer(device_id=3) as one:
        yield one


@pytest.fixture
def two() -> Iterator[Two]:
    """Two switches that hold the old policy."""
    with P4RuntimeServer(device_id=1) as first, P4RuntimeServer(device_id=9) as second:
        deploy(olds((first, second)), open_session, PLAIN)
        yield first, second


def olds(two: Two) -> list[DesiredState]:
    return [desired(two[0], "s1"), desired(two[1], "s2")]


def news(two: Two) -> list[DesiredState]:
    return [desired(two[0], "s1", new=True), desired(two[1], "s2", new=True)]


def fails(two: Two, kind: type[DeployError], opener: Callable[[SwitchTarget], Session] = open_session) -> str:
    """Deploys the new policy to both, which has to fail and change nothing; what was said."""
    before = [state(one) for one in two]
    with pytest.raises(kind) as raised:
        deploy(news(two), opener, PLAIN)
    assert isinstance(raised.value, DlcpError)
    assert [state(one) for one in two] == before, f"half deployed after: {raised.value}"
    return str(raised.value)


def holds_old(two: Two) -> bool:
    return not any(seen.changes for seen in compare(olds(two), open_session))


# --- what goes well -------------------------------------------------------------------------------------------


def test_fresh_switch_takes_pipeline_and_entries_and_forwards(server: P4RuntimeServer) -> None:
    assert state(server) is None
    deploy([desired(server)], open_session, PLAIN)
    frame = bytes.fromhex("02000000000a 020000000099 0806") + bytes(46)
    assert server.process(frame, 2) == [(1, frame)]
    held = state(server)
    assert held is not None
    assert held.cookie == PIPELINE.cookie


def test_second_deployment_writes_nothing_and_claims_nothing(server: P4RuntimeServer) -> None:
    deploy([desired(server)], open_session, PLAIN)
    writes, pushes = server.writes, server.pushes
    somebody = server.occupy(1000)  # who is primary does not matter when there is nothing to do
    (seen,) = deploy([desired(server)], open_session, PLAIN)
    assert not seen.changes
    assert (server.writes, server.pushes) == (writes, pushes)
    assert somebody.is_primary
    assert len(somebody.heard) == 1


def test_new_policy_and_back_again(two: Two) -> None:
    before = [state(one) for one in two]
    pushes = [one.pushes for one in two]
    deploy(news(two), open_session, PLAIN)
    assert [state(one) for one in two] != before
    assert not any(seen.changes for seen in compare(news(two), open_session))
    deploy(olds(two), open_session, PLAIN)
    assert [state(one) for one in two] == before
    assert [one.pushes for one in two] == pushes, "the pipeline was pushed where it already ran"


def test_look_writes_nothing_and_takes_nothing(two: Two) -> None:
    somebody = two[0].occupy(50)
    before = [(one.writes, one.pushes, state(one)) for one in two]
    seen = compare(news(two), open_session)
    assert [(one.writes, one.pushes, state(one)) for one in two] == before
    assert [s.primary for s in seen] == [50, None]
    assert somebody.is_primary
    assert [type(error) for error in refusals(seen, PLAIN)] == [OtherPrimaryError]


def test_differences_are_shown_before_the_first_write(two: Two) -> None:
    before = [one.writes for one in two]
    shown: list[int] = []

    def show(comparisons: list[Comparison]) -> None:
        assert [one.writes for one in two] == before
        shown.extend(len(seen.updates) for seen in comparisons)

    deploy(news(two), open_session, PLAIN, show)
    assert len(shown) == 2
    assert min(shown) > 25


def test_entry_of_somebody_else_in_our_tables_is_found_and_goes(server: P4RuntimeServer) -> None:
    deploy([desired(server)], open_session, PLAIN)
    with server.lock:
        server.program.insert("bridge", {"dst_mac": 0x020000000077}, "to_port", [2])
    (seen,) = compare([desired(server)], open_session)
    assert [str(update) for update in seen.updates] == [
        "delete bridge dst_mac 02:00:00:00:00:77: to_port(port=2)"
    ]


def test_multicast_group_beyond_ours_is_left_alone(server: P4RuntimeServer) -> None:
    deploy([desired(server)], open_session, PLAIN)
    with server.lock:
        server.program.set_group(500, [1, 2])
    deploy([desired(server, new=True)], open_session, PLAIN)
    assert server.program.model.groups[500]


# --- a failure at each write ----------------------------------------------------------------------------------


def count(two: Two) -> list[int]:
    return [len(seen.updates) for seen in compare(news(two), open_session)]


def test_refused_update_at_any_place_changes_nothing(two: Two) -> None:
    total = count(two)[1]
    before = [state(one) for one in two]
    for n in (1, 2, *range(5, total, 5), total):
        two[1].faults.fail_update(n, message=f"fault {n}")
        with pytest.raises(SwitchRefusedError) as raised:
            deploy(news(two), open_session, PLAIN)
        said = str(raised.value)
        assert [state(one) for one in two] == before, f"half deployed after a fault at update {n}"
        assert said.startswith(f"s2 ({two[1].address}) refuses to "), f"update {n}: {said}"
        assert said.endswith(f"INTERNAL: fault {n}"), f"update {n}: {said}"
    assert holds_old(two)


def test_update_that_is_not_done_at_any_place_is_found_by_reading_back(two: Two) -> None:
    total = count(two)[0]
    for n in (1, *range(4, total, 7), total):
        two[0].faults.ignore_update(n)
        said = fails(two, VerifyError)
        assert f"s1 ({two[0].address}) does not hold what was written: it lacks " in said, (
            f"update {n}: {said}"
        )


def test_connection_lost_at_any_place_changes_nothing(two: Two) -> None:
    total = count(two)[0]
    for n in (1, total // 2, total):
        two[0].faults.drop_at_update(n)
        said = fails(two, DeployError)
        assert f"s1 ({two[0].address})" in said, f"update {n}: {said}"


class Hurried(GrpcSession):
    """A session that waits briefly for its first write, which hangs; the switch goes on before the next, the undo's."""

    server: P4RuntimeServer
    is_first: bool

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        if not self.is_first:
            self.server.faults.release()
            super().write(updates, schema)
            return
        Hurried.is_first, self.timeout_s = False, 0.5
        try:
            super().write(updates, schema)
        finally:
            self.timeout_s = TIMEOUT_S


def test_switch_that_hangs_is_not_waited_for_and_is_brought_back(two: Two) -> None:
    Hurried.server, Hurried.is_first = two[1], True
    two[1].faults.hang_at_update(7)

    def opener(place: SwitchTarget) -> Session:
        return Hurried(place, TIMEOUT_S) if place.name == "s2" else open_session(place)

    said = fails(two, SwitchTimeoutError, opener)
    assert "does not answer within 0.5 s, written to" in said
    assert not Hurried.is_first


def test_what_a_switch_says_stays_on_one_line(two: Two) -> None:
    two[1].faults.fail_update(2, message="no\nroom \x1b[2J here")
    said = fails(two, SwitchRefusedError)
    assert said.endswith("INTERNAL: no room \\x1b[2J here")
    config = v1model_of_somebody_else()
    config.p4info.pkg_info.name = "some\nbody"
    with P4RuntimeServer(device_id=5) as other:
        other.hold(config)
        (seen,) = compare([desired(other)], open_session)
    assert seen.title == "some\\nbody 7"


class Strange(GrpcSession):
    """A session with a switch whose entries have a key that the program has not."""

    def read_entities(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        found = super().read_entities(entities)
        for entity in found:
            for match in entity.table_entry.match:
                match.field_id = 999
        return found


def test_entry_with_a_key_of_another_program_is_an_error_that_names_the_switch(two: Two) -> None:
    with pytest.raises(
        SwitchRefusedError, match=r"s1 .*read: the switch has an entry in table '\w+' with a key"
    ):
        compare(news(two)[:1], lambda place: Strange(place, TIMEOUT_S))


def test_both_fail_and_both_are_named(two: Two) -> None:
    for one in two:
        one.faults.fail_update(3)
    said = fails(two, SwitchRefusedError)
    # The second one may have been stopped before its third update was tried.
    assert "refuses to" in said


def test_push_that_is_refused_leaves_a_fresh_switch_as_it_was(two: Two) -> None:
    with P4RuntimeServer(device_id=5) as fresh:
        fresh.faults.fail_pipeline(13)
        before = [state(one) for one in two]
        with pytest.raises(SwitchRefusedError, match=r"s3 .*given its pipeline: INTERNAL"):
            deploy([*news(two), desired(fresh, "s3")], open_session, PLAIN)
        assert state(fresh) is None
        assert [state(one) for one in two] == before


def test_fresh_switch_is_left_without_entries_when_another_fails(two: Two) -> None:
    with P4RuntimeServer(device_id=5) as fresh:
        two[0].faults.fail_update(1)
        before = [state(one) for one in two]
        with pytest.raises(SwitchRefusedError):
            deploy([*news(two), desired(fresh, "s3")], open_session, PLAIN)
        assert [state(one) for one in two] == before
        # P4Runtime takes no pipeline away: it holds nothing, or the pipeline and not one entry.
        held = state(fresh)
        if held is not None:
            tables = [p4r.Entity.FromString(entity) for entity in held.entities]
            assert all(e.table_entry.is_default_action for e in tables)


def test_read_that_fails_before_the_first_write_changes_nothing(two: Two) -> None:
    before = [state(one) for one in two]
    two[1].faults.fail_read(13)
    with pytest.raises(SwitchRefusedError, match="s2 .*read: INTERNAL"):
        deploy(news(two), open_session, PLAIN)
    assert [state(one) for one in two] == before


# --- interrupts -----------------------------------------------------------------------------------------------


def interrupt() -> None:
    """What Ctrl-C does to this process."""
    os.kill(os.getpid(), signal.SIGINT)


class Slow(GrpcSession):
    """A session that is interrupted twice while it writes, and then goes on writing for a while."""

    steps: list[str]

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        if self.steps:
            self.steps.append("undo")
            super().write(updates, schema)
            return
        self.steps.append("write")
        super().write(updates[:5], schema)
        for _ in range(2):
            interrupt()
            time.sleep(0.15)  # an undo that did not wait would begin here
        super().write(updates[5:], schema)
        self.steps.append("written")


def test_second_interrupt_does_not_let_the_undo_begin_beside_a_write(two: Two) -> None:
    Slow.steps = []
    before = [state(one) for one in two]

    def opener(place: SwitchTarget) -> Session:
        return Slow(place, TIMEOUT_S) if place.name == "s2" else GrpcSession(place, TIMEOUT_S)

    with pytest.raises(KeyboardInterrupt):
        deploy(news(two), opener, PLAIN)
    assert Slow.steps == ["write", "written", "undo"]
    assert [state(one) for one in two] == before


class Asked(GrpcSession):
    """A session that is counted when it asks, and interrupts the first time."""

    asked = 0

    def primary(self) -> int | None:
        Asked.asked += 1
        if Asked.asked == 1:
            time.sleep(0.1)  # until all are under way or wait
            interrupt()
        return super().primary()


def test_interrupted_look_begins_with_no_further_switch() -> None:
    Asked.asked = 0
    gc.collect()  # Python drops what a signal's handler raises in a weak reference's callback
    with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
        desired_states = [at(f"127.0.0.1:{silent.getsockname()[1]}")] * 100
        with pytest.raises(KeyboardInterrupt):
            compare(desired_states, lambda place: Asked(place, 0.4))
    assert 1 <= Asked.asked < 50


class Closing(GrpcSession):
    """A session that is interrupted when it is closed."""

    def close(self) -> None:
        interrupt()
        super().close()


def test_interrupt_when_all_is_done_does_not_say_that_nothing_is(two: Two) -> None:
    seen = deploy(news(two), lambda place: Closing(place, TIMEOUT_S), PLAIN)
    assert all(one.changes for one in seen)
    assert not any(one.changes for one in compare(news(two), open_session))


# --- undo that fails ------------------------------------------------------------------------------------------


class Cut(GrpcSession):
    """A session whose switch is gone for good after some updates."""

    server: P4RuntimeServer

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        super().write(updates[:5], schema)
        self.server.stop()
        super().write(updates[5:], schema)


def test_undo_that_fails_is_said_loudly_and_the_others_are_brought_back(two: Two) -> None:
    Cut.server = two[1]
    before = state(two[0])

    def opener(place: SwitchTarget) -> Session:
        return Cut(place, TIMEOUT_S) if place.name == "s2" else GrpcSession(place, TIMEOUT_S)

    with pytest.raises(RollbackError) as raised:
        deploy(news(two), opener, Settings(undo_s=0.7))
    said = str(raised.value)
    assert said.startswith(f"NOT BROUGHT BACK, and half deployed: s2 ({two[1].address}): s2")
    assert "s1" not in said.partition("The deployment had failed since")[0]
    assert state(two[0]) == before
    # What the line says to do does it.
    two[1].start()
    deploy(olds(two), open_session, PLAIN)
    assert holds_old(two)


def test_switch_that_restarts_in_the_middle_is_brought_back(two: Two) -> None:
    Cut.server = two[1]
    before = [state(one) for one in two]
    back: list[threading.Timer] = []

    def opener(place: SwitchTarget) -> Session:
        if place.name != "s2" or back:
            return GrpcSession(place, TIMEOUT_S)
        back.append(threading.Timer(0.8, two[1].start))
        return Cut(place, TIMEOUT_S)

    with pytest.raises(UnreachableError, match="s2"):
        deploy(news(two), opener, PLAIN, show=lambda _: back[0].start())
    back[0].join()
    assert [state(one) for one in two] == before


class Taken(GrpcSession):
    """A session that loses primacy after some updates."""

    server: P4RuntimeServer

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        super().write(updates[:5], schema)
        self.server.occupy(5000)
        super().write(updates[5:], schema)


def test_primacy_taken_after_some_writes_is_not_taken_back(two: Two) -> None:
    Taken.server = two[1]
    before = state(two[0])

    def opener(place: SwitchTarget) -> Session:
        return Taken(place, TIMEOUT_S) if place.name == "s2" else GrpcSession(place, TIMEOUT_S)

    with pytest.raises(
        RollbackError, match="s2 .*another controller is connected and primary, with election id 5000"
    ):
        deploy(news(two), opener, PLAIN)
    assert state(two[0]) == before


class Elsewhere(GrpcSession):
    """A session that loses its connection after some updates; before it is back, another deployment is done."""

    server: P4RuntimeServer
    other: DesiredState
    lost: bool

    def write(self, updates: Sequence[Update], schema: Schema) -> None:
        if self.lost:
            super().write(updates, schema)
            return
        Elsewhere.lost = True
        super().write(updates[:5], schema)
        self.server.drop_connections()
        deploy(
            [self.other], open_session, Settings(take_over=True)
        )  # we may not have been noticed to be gone
        super().write(updates[5:], schema)


def test_deployment_of_somebody_else_meanwhile_is_not_undone(two: Two) -> None:
    theirs = desired(two[1], "s2", new=True)
    entries = [e for e in theirs.entries if not (isinstance(e, TableEntry) and e.table == "route_ipv4")]
    Elsewhere.server, Elsewhere.lost = two[1], False
    Elsewhere.other = DesiredState(theirs.target, theirs.pipeline, tuple(entries))
    before = state(two[0])

    def opener(place: SwitchTarget) -> Session:
        return Elsewhere(place, TIMEOUT_S) if place.name == "s2" else GrpcSession(place, TIMEOUT_S)

    with pytest.raises(
        RollbackError, match=r"s2 .*another controller has written meanwhile \(see route_ipv4 "
    ):
        deploy(news(two), opener, PLAIN)
    assert state(two[0]) == before
    (seen,) = compare([Elsewhere.other], open_session)
    assert not seen.changes


# --- another pipeline -----------------------------------------------------------------------------------------


def foreign_config(program: str = "aggregation") -> p4r.ForwardingPipelineConfig:
    """A pipeline that is not the switch's own, with a cookie of somebody else."""
    other = Pipeline.of(programs.load(program))
    info = p4i.P4Info.FromString(other.p4info)
    return p4r.ForwardingPipelineConfig(
        p4info=info,
        p4_device_config=other.device_config,
        cookie=p4r.ForwardingPipelineConfig.Cookie(cookie=77),
    )


def v1model_of_somebody_else() -> p4r.ForwardingPipelineConfig:
    """The same tables under another name: what it holds can be written with our own entries."""
    config = foreign_config("v1model")
    config.p4_device_config += b"\n"
    config.p4info.pkg_info.name = "somebody.p4"
    config.p4info.pkg_info.version = "7"
    return config


def occupied(server: P4RuntimeServer) -> None:
    """Somebody else's pipeline runs, and holds entries."""
    config = v1model_of_somebody_else()
    server.hold(config)
    theirs = Pipeline(config.p4info.SerializeToString(deterministic=True), config.p4_device_config, 77)
    place = desired(server)
    deploy([DesiredState(place.target, theirs, place.entries)], open_session, PLAIN)


def test_other_pipeline_is_refused_and_named(server: P4RuntimeServer) -> None:
    server.hold(foreign_config())
    before = state(server)
    with pytest.raises(OtherPipelineError) as raised:
        deploy([desired(server)], open_session, PLAIN)
    said = str(raised.value)
    assert said.startswith(f"s1 ({server.address}) runs another pipeline (a program with the tables ")
    assert "--replace-pipeline" in said
    assert state(server) == before


def test_other_pipelines_own_name_is_said(server: P4RuntimeServer) -> None:
    occupied(server)
    with pytest.raises(OtherPipelineError, match=r"runs another pipeline \(somebody.p4 7\)"):
        deploy([desired(server)], open_session, PLAIN)


def test_other_pipeline_is_replaced_when_told_to(server: P4RuntimeServer) -> None:
    server.hold(foreign_config())
    deploy([desired(server)], open_session, Settings(replace_pipeline=True))
    assert not compare([desired(server)], open_session)[0].changes


def test_pipeline_of_equal_content_is_ours_whatever_its_cookie(server: P4RuntimeServer) -> None:
    server.hold(foreign_config("v1model"))
    (seen,) = compare([desired(server)], open_session)
    assert seen.holds.name == "same"


@pytest.mark.parametrize("n", [1, 10, 40])
def test_replaced_pipeline_comes_back_with_all_its_entries(server: P4RuntimeServer, n: int) -> None:
    occupied(server)
    before = state(server)
    assert before is not None
    assert before.cookie == 77
    server.faults.fail_update(n)
    with pytest.raises(SwitchRefusedError):
        deploy([desired(server, new=True)], open_session, Settings(replace_pipeline=True))
    assert state(server) == before


def test_replaced_pipeline_comes_back_when_another_switch_fails(two: Two, server: P4RuntimeServer) -> None:
    occupied(server)
    before = [state(one) for one in (*two, server)]
    two[0].faults.ignore_update(4)
    with pytest.raises(VerifyError):
        deploy([*news(two), desired(server, "s3", new=True)], open_session, Settings(replace_pipeline=True))
    assert [state(one) for one in (*two, server)] == before


# --- another primary ------------------------------------------------------------------------------------------


def test_other_primary_is_left_alone_and_named(two: Two) -> None:
    somebody = two[1].occupy(2**70)
    said = fails(two, OtherPrimaryError)
    assert said == (
        f"s2 ({two[1].address}): another controller is connected and primary, with election id {2**70}; nothing is "
        "taken from it. Disconnect it, or say --take-over"
    )
    assert somebody.is_primary
    assert len(somebody.heard) == 1, "it was disturbed"


def test_other_primary_of_a_lower_id_than_ours_is_left_alone_too(two: Two) -> None:
    # In the topology our id may be high; that does not make it right to use it.
    somebody = two[0].occupy(1)
    high = [
        DesiredState(SwitchTarget(**{**vars(o.target), "election_id": 900}), o.pipeline, o.entries)
        for o in news(two)
    ]
    with pytest.raises(OtherPrimaryError, match="with election id 1"):
        deploy(high, open_session, PLAIN)
    assert somebody.is_primary


def test_other_primary_is_taken_over_when_told_to(two: Two) -> None:
    somebody = two[1].occupy(2**70)
    deploy(news(two), open_session, Settings(take_over=True))
    assert not somebody.is_primary
    assert not any(seen.changes for seen in compare(news(two), open_session))


def test_primary_that_cannot_be_outbid_is_named(two: Two) -> None:
    two[0].occupy(2**128 - 1)
    with pytest.raises(OtherPrimaryError, match="s1"):
        deploy(news(two), open_session, Settings(take_over=True))
    assert holds_old(two)


def test_primary_that_has_gone_is_followed_politely(two: Two) -> None:
    two[0].occupy(40).leave()
    deploy(news(two), open_session, PLAIN)
    assert not any(seen.changes for seen in compare(news(two), open_session))


def test_primacy_taken_in_the_middle_is_named_and_nothing_has_changed(two: Two) -> None:
    before = [state(one) for one in two]
    with pytest.raises(DeployError) as raised:
        deploy(news(two), open_session, PLAIN, show=lambda _: two[0].occupy(5000) and None)
    assert f"s1 ({two[0].address}): another controller has become primary, with election id 5000" in str(
        raised.value
    )
    assert [state(one) for one in two] == before


def test_primacy_ends_with_the_deployment(server: P4RuntimeServer) -> None:
    deploy([desired(server)], open_session, PLAIN)
    assert server.occupy(1).is_primary


# --- switches that are not there ------------------------------------------------------------------------------


def at(address: str) -> DesiredState:
    """The desired state of a switch at an address."""
    target = SwitchTarget("far", address, {"a": 1})
    return DesiredState.of(target, PIPELINE, [])


def test_nothing_listens_there(two: Two) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        before = [state(one) for one in two]
        with pytest.raises(
            UnreachableError, match=f"far \\({address}\\) cannot be reached when asked who is primary"
        ):
            deploy([*news(two), at(address)], open_session, PLAIN)
        assert [state(one) for one in two] == before


def test_who_accepts_and_says_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SwitchTimeoutError, match=r"does not answer within 0.4 s.*--timeout"):
            deploy([at(address)], lambda place: GrpcSession(place, 0.4), PLAIN)


def test_name_that_cannot_be_resolved_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="far"):
        deploy([at("no-such-host.invalid:9559")], open_session, PLAIN)


def test_wrong_device_id_is_named(server: P4RuntimeServer) -> None:
    place = desired(server).target
    wrong = SwitchTarget(**{**vars(place), "device_id": 4})
    with pytest.raises(SwitchRefusedError, match="is device_id 4 right"):
        deploy([DesiredState.of(wrong, PIPELINE, [])], open_session, PLAIN)


def test_words_of_bmv2_for_another_device_id_are_explained() -> None:
    place = SwitchTarget("s", "127.0.0.1:1", {"a": 1}, device_id=3)
    error = GrpcSession(place).named_error("UNKNOWN", "Error when trying to assign device", "asked")
    assert "the server has no device 3 (BMv2: --device-id" in str(error)


def test_several_that_fail_are_all_named() -> None:
    addresses = []
    for _ in "ab":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            addresses.append(f"127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(UnreachableError) as raised:
        deploy([at(address) for address in addresses], open_session, PLAIN)
    assert all(address in str(raised.value) for address in addresses)


def test_of_very_many_that_fail_the_first_are_named_and_the_others_counted() -> None:
    error = several([UnreachableError(f"s{n} cannot be reached") for n in range(200)])
    assert isinstance(error, UnreachableError)
    lines = str(error).split("\n")
    assert lines[:2] == ["200 switches:", "  s0 cannot be reached"]
    assert lines[8:] == ["  s7 cannot be reached", "  and 192 switches more"]
    assert str(several([UnreachableError("no such program")] * 3)) == "no such program"
