"""The words of errors: every text names the operation, its number, the group, ranks, addresses, and what to do next."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from dlcp import errors
from dlcp.transport.call_log import SEQUENCE_MASK, CallLog, exchange_accounts
from dlcp.transport.failures import (
    FailureContext,
    Member,
    explain,
    group_failed,
    is_of_the_group,
    wait_timeout,
)
from dlcp.transport.rank_card import RankCard
from dlcp.transport.signature import OPERATIONS
from dlcp.transport.store import MemoryStore

WORDS = "all_reduce(f32, 4096 elements, sum)"
MIXED = "may hold partial sums, or old and new values mixed"


def member(group_rank: int, **more: Any) -> Member:
    """Ranks 0, 1, 2 of the group are 10, 11, 12 of the job."""
    rank = 10 + group_rank
    card = RankCard(
        rank=rank,
        address=f"10.0.0.{rank}:4000",
        host=f"node{rank}",
        where=f"node{rank}",
        interface="eth0",
        pid=1000 + rank,
        version="1",
        wire_version=1,
    )
    return Member(rank, card, **more)


SCENE = FailureContext("dp", 0, {rank: member(rank) for rank in range(3)}, 10.0, 16384, WORDS)


def result(**values: Any) -> Any:
    """As native code says how a collective ended; `waiting_for`: (peer, for_arrival, missing_bytes) each."""
    given = {
        "error": None,
        "cause": None,
        "engine_error": None,
        "culprit": None,
        "reporter": None,
        "sequence": 17,
        "waited_s": 30.25,
        "waiting_for": [],
        "foreign_signature": 0,
        "foreign_bytes": 0,
        "expected_bytes": 0,
    } | values
    given["waiting_for"] = [
        SimpleNamespace(peer=peer, for_arrival=for_arrival, missing_bytes=missing_bytes)
        for peer, for_arrival, missing_bytes in given["waiting_for"]
    ]
    return SimpleNamespace(**given)


def text_of(context: FailureContext = SCENE, **values: Any) -> str:
    return str(explain(result(**values), "all_reduce", WORDS, 17, context))


# --- classes and attributes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "cause", "kind"),
    [
        ("timeout", None, errors.CollectiveTimeoutError),
        ("peer_failed", None, errors.PeerFailedError),
        ("mismatch", None, errors.MismatchError),
        ("aborted", None, errors.CollectiveAbortedError),
        ("group_failed", "timeout", errors.CollectiveTimeoutError),
        ("group_failed", "peer_failed", errors.PeerFailedError),
        ("group_failed", "mismatch", errors.MismatchError),
        ("group_failed", "aborted", errors.CollectiveAbortedError),
        ("group_failed", None, errors.GroupFailedError),
    ],
)
def test_every_result_has_its_class_and_says_where(
    error: str, cause: str | None, kind: type[errors.CollectiveError]
) -> None:
    """Whatever is known or not, there is a sentence with the operation, its number, the group and this rank."""
    engine_errors = [None, "peer_timeout", "peer_closed", "peer_restarted", "no_memory"]
    for culprit, reporter, engine_error in itertools.product([None, 0, 1], [None, 0, 2], engine_errors):
        known = result(
            error=error, cause=cause, culprit=culprit, reporter=reporter, engine_error=engine_error
        )
        found = explain(known, "all_reduce", WORDS, 17, SCENE)
        assert type(found) is kind
        assert isinstance(found, RuntimeError)
        where = f"{WORDS}, operation 17 of group dp, on rank 10 at 10.0.0.10:4000 (host node10, eth0"
        assert where in str(found)
        assert "None" not in str(found), known
        assert MIXED in str(found)
        assert (found.operation, found.sequence, found.group, found.waited_s) == (
            "all_reduce",
            17,
            "dp",
            30.25,
        )
        assert found.culprit == (None if culprit is None else 10 + culprit)


def test_members_without_cards_have_their_rank() -> None:
    context = FailureContext("dp", 0, {0: Member(10), 1: Member(11)}, 10.0, 16384)
    text = text_of(context, error="peer_failed", engine_error="peer_timeout", culprit=1)
    assert "rank 11 is gone" in text
    assert "See whether its process is alive" in text


# --- what each says -----------------------------------------------------------------------------------------


def test_timeout_of_a_rank_that_answers() -> None:
    context = replace(
        SCENE,
        members={**SCENE.members, 1: member(1, silent_s=0.25), 2: member(2, connected=False)},
        accounts={1: "has called 16 operations of this group so far, the last one barrier()"},
    )
    text = text_of(context, error="timeout", culprit=1, waiting_for=[(1, True, 65536), (2, False, 100)])
    assert "was not over after 30.2 s, and its timeout is over" in text
    assert (
        "It waited for rank 11 at 10.0.0.11:4000 (host node11, eth0, process 1011): 65536 bytes have not come from it,"
        " last heard of 0.25 s ago; it says that it has called 16 operations of this group so far, the last one"
        " barrier(); rank 12 at 10.0.0.12:4000 (host node12, eth0, process 1012): it has not taken 100 bytes, there is"
        " no connection with it."
    ) in text
    assert "Rank 11 answers, but has not come to this operation" in text
    assert "py-spy dump --pid 1011 on host node11" in text


@pytest.mark.parametrize(
    ("missing", "said"), [(64, "The hub's core 3 answers"), (0, "The hub's core 3 at 10.0.0.11:4000")]
)
def test_a_member_that_is_no_rank_is_named_by_its_role(missing: int, said: str) -> None:
    card = member(1).card
    assert card is not None
    core = Member(11, replace(card, role="the hub's core 3"))
    scene = replace(SCENE, members={**SCENE.members, 1: core})
    waiting = [(1, True, missing)] if missing else []
    assert said in text_of(scene, error="timeout", culprit=1, waiting_for=waiting)


def test_timeout_of_a_rank_that_does_not_answer() -> None:
    text = text_of(error="timeout", culprit=1, engine_error="peer_timeout", waiting_for=[(1, True, 1)])
    assert "Rank 11 did not answer when asked." in text
    assert "See whether process 1011 on host node11 is alive" in text
    assert "UDP passes from 10.0.0.10:4000 (eth0) to 10.0.0.11:4000 and back" in text
    assert "dlcp doctor" in text


def test_timeout_of_a_rank_that_others_waited_for_says_where_it_is() -> None:
    """This rank waited for rank 12, which had heard of rank 11."""
    context = replace(SCENE, members={**SCENE.members, 2: member(2, connected=False, silent_s=0.25)})
    text = text_of(
        context, error="timeout", culprit=1, engine_error="peer_timeout", waiting_for=[(2, True, 1)]
    )
    assert "last heard of 0.25 s ago, and the connection with it has ended" in text
    assert "Rank 11 at 10.0.0.11:4000 (host node11, eth0, process 1011) did not answer when asked." in text


def test_timeout_that_this_rank_is_to_blame_for_says_what_it_waited_for() -> None:
    text = text_of(
        error="group_failed", cause="timeout", culprit=0, reporter=2, waiting_for=[(1, True, 65536)]
    )
    assert "while it waited for this rank" in text
    assert "This rank waited for rank 11 at 10.0.0.11:4000" in text
    assert "Look at what kept this rank" in text


def test_timeout_that_another_rank_tells_of() -> None:
    text = text_of(error="group_failed", cause="timeout", culprit=1, reporter=2)
    assert "rank 12 at 10.0.0.12:4000 (host node12, eth0, process 1012) says: operation 17 was not" in text
    assert "in its time (timeout)" in text
    assert "while it waited for rank 11 at 10.0.0.11:4000" in text
    text = text_of(error="group_failed", cause="timeout", culprit=0, reporter=2)
    assert "while it waited for this rank" in text


@pytest.mark.parametrize(
    ("engine_error", "words"),
    [
        ("peer_timeout", "is gone: nothing was heard of it for 10 s (peer_timeout_s), though it was asked"),
        ("peer_closed", "has closed its endpoint: it ended, or left the group"),
        ("peer_restarted", "has come back as another process"),
        ("peer_cancelled", "gave its part of it up"),
        ("too_many", "is lost to it (too_many)"),
    ],
)
def test_peer_that_failed(engine_error: str, words: str) -> None:
    own = text_of(error="peer_failed", engine_error=engine_error, culprit=1)
    assert f"rank 11 at 10.0.0.11:4000 (host node11, eth0, process 1011) {words}" in own
    told = text_of(
        error="group_failed", cause="peer_failed", engine_error=engine_error, culprit=1, reporter=2
    )
    assert (
        "rank 12 at 10.0.0.12:4000 (host node12, eth0, process 1012) says: rank 11 at 10.0.0.11:4000" in told
    )
    assert words in told


def test_mismatch_names_both_calls() -> None:
    context = replace(SCENE, accounts={1: "called barrier()"})
    text = text_of(context, error="mismatch", culprit=1)
    assert (
        "as operation 17 of the group, rank 11 at 10.0.0.11:4000 (host node11, eth0, process 1011) called barrier()"
        in text
    )
    assert f"but this rank called {WORDS}" in text


def test_mismatch_without_an_account_says_what_the_message_said() -> None:
    other = (OPERATIONS.index("all_gather") + 1) << 12
    text = text_of(error="mismatch", culprit=1, foreign_signature=other, foreign_bytes=96)
    assert "process 1011) called all_gather (in messages of 96 bytes)" in text
    same = 0x1123
    text = text_of(error="mismatch", culprit=1, foreign_signature=same)
    assert "called all_reduce of f32, product with another type, reduction, root or size" in text
    text = text_of(error="mismatch", culprit=1, foreign_signature=0xFFFF)
    assert "called something else" in text
    text = text_of(error="mismatch", culprit=1, foreign_signature=same, foreign_bytes=8, expected_bytes=16)
    assert "a message of 8 bytes came where 16 were expected" in text


def test_mismatch_that_another_rank_tells_of() -> None:
    told = {"error": "group_failed", "cause": "mismatch", "culprit": 1, "reporter": 2}
    assert "rank 12 at 10.0.0.12:4000 (host node12, eth0, process 1012) says: as operation 17" in text_of(
        **told
    )
    blamed = text_of(**(told | {"culprit": 0}))
    assert "rank 12 at 10.0.0.12:4000 (host node12, eth0, process 1012) called something else" in blamed
    assert f"but this rank called {WORDS}" in blamed
    behind = text_of(replace(SCENE, own_words=None), **told)
    assert "but this rank has not called it yet" in behind


def test_message_of_another_length() -> None:
    values: dict[str, Any] = {"error": "mismatch", "culprit": 1, "foreign_bytes": 10, "expected_bytes": 20}
    error = explain(result(**values), "receive", "receive(20 bytes from rank 11, tag 0)", None, SCENE)
    assert (
        "rank 11 at 10.0.0.11:4000 (host node11, eth0, process 1011) sent 10 bytes, 20 were expected"
        in str(error)
    )
    assert error.sequence is None
    assert ", operation" not in str(error)
    values["foreign_bytes"] = 0
    error = explain(result(**values), "send", "send(20 bytes to rank 11, tag 0)", None, SCENE)
    assert "expects another length than the 20 bytes of this rank" in str(error)


def test_abort_gives_its_reason() -> None:
    assert "given up by this rank: overheated" in text_of(
        replace(SCENE, reason="overheated"), error="aborted"
    )
    told = text_of(error="group_failed", cause="aborted", culprit=2, reporter=2)
    assert "rank 12 at 10.0.0.12:4000 (host node12, eth0, process 1012) aborted the group" in told


def test_call_on_a_failed_group_names_the_first_failure() -> None:
    first = explain(
        result(error="peer_failed", engine_error="peer_closed", culprit=1), "barrier", "barrier()", 3, SCENE
    )
    error = group_failed("all_reduce", WORDS, "dp", first)
    assert f"{WORDS} was not started: group dp failed before" in str(error)
    assert f"The first failure: {first}" in str(error)
    assert (error.operation, error.group, error.culprit) == ("all_reduce", "dp", 11)


def test_wait_that_has_had_its_time_says_that_the_operation_goes_on() -> None:
    error = wait_timeout("all_reduce", WORDS, 17, SCENE, 2.0)
    assert "operation 17 of group dp" in str(error)
    assert "not over after a wait of 2 s (timeout). It goes on" in str(error)
    assert isinstance(error, TimeoutError)


@pytest.mark.parametrize(
    ("error", "engine_error", "single", "whole"),
    [
        ("timeout", None, False, True),
        ("timeout", None, True, False),
        ("mismatch", "wrong_size", True, False),
        ("peer_failed", "peer_closed", True, False),
        ("peer_failed", "peer_timeout", True, True),
        ("group_failed", None, True, True),
        ("aborted", None, True, True),
    ],
)
def test_single_messages_may_fail_alone(
    error: str, engine_error: str | None, single: bool, whole: bool
) -> None:
    assert is_of_the_group(result(error=error, engine_error=engine_error), single=single) == whole


# --- calls and accounts of them -----------------------------------------------------------------------------


def test_log_remembers_the_last_calls() -> None:
    log = CallLog()
    assert log.account_of(0) == "has called no operation of this group yet"
    for sequence in range(1000):
        log.note(sequence, f"call {sequence}")
    assert log.account_of(999) == "called call 999"
    assert log.account_of(800) == "called call 800"
    assert log.words_of(5) is None
    assert log.account_of(1000) == "has called 1000 operations of this group so far, the last one call 999"


def test_log_knows_calls_by_the_bits_that_a_tag_has() -> None:
    log = CallLog()
    sequence = (7 << 20) + 3
    log.note(sequence, "late")
    assert log.words_of(sequence & SEQUENCE_MASK) == "late"
    assert log.words_of(4) is None


def test_accounts_are_exchanged_through_the_store() -> None:
    store = MemoryStore()
    assert exchange_accounts(store, 5, 0, "called a", [1], 0.01) == {}
    assert exchange_accounts(store, 5, 1, "called b", [0], 10.0) == {0: "called a"}
    assert exchange_accounts(store, 5, 0, "called a", [1], 10.0) == {1: "called b"}


def test_store_that_fails_or_hangs_leaves_accounts_out() -> None:
    class Broken(MemoryStore):
        def check(self, keys: list[str]) -> bool:
            raise ConnectionError("the server is gone")

    class Stuck(MemoryStore):
        def set(self, key: str, value: str | bytes) -> None:
            MemoryStore(60.0).get("never")

    assert exchange_accounts(Broken(), 0, 0, "", [1], 10.0) == {}
    assert exchange_accounts(Stuck(), 0, 0, "", [1], 0.01) == {}
