"""The compiled v1model program against all golden vectors of a switch: decisions, verdicts, paths, frames.

Every vector is applied. Those of decisions and paths name headers that no frame has (a trimmable packet of 64 bytes,
any hash of a flow). So there the fields that the blocks read are set just before they are read. Verdicts and frames are
whole frames, from the wire to the queue. `shared_free_bytes` may be more than the policy's buffer: the program is told
a larger one, since what is free is all that the decision sees.
"""

from __future__ import annotations

import functools

import pytest

from dlcp.switch.policy import DROPPABLE_LEVELS, Policy, Thresholds, TrafficClass
from dlcp.switch.programs import FOREIGN_LEVEL, Arrival, Decision, PathChoice
from dlcp.switch.resolved import NEVER_BYTES
from tests.support import frame_builder as build
from tests.support import frame_twin, v1model, vectors
from tests.support.bmv2 import Program, Words
from tests.support.bmv2.packet import Packet
from tests.vectors import switch

PORT_IN, PORT_OUT = 1, 5
KINDS = ("malformed", "other", "ipv4", "ipv6")
DESTINATION = int.from_bytes(build.DESTINATION, "big")
POLICIES = {policy.name: v1model.with_dscp(policy) for policy in switch.POLICIES}

Vector = dict[str, str]


@functools.cache
def under(policy: str) -> Program:
    """The program under a policy, with one address behind PORT_OUT; what is free of a shared buffer can be anything."""
    program = v1model.load()
    v1model.install(program, POLICIES[policy])
    program.insert("bridge", {"dst_mac": DESTINATION}, "to_port", [PORT_OUT])
    if POLICIES[policy].shared_bytes is not None:
        alpha = POLICIES[policy].shared_alpha_log2
        program.set_default("buffer", "set_buffer", [NEVER_BYTES, NEVER_BYTES, max(alpha, 0), max(-alpha, 0)])
    return program


def set_depths(program: Program, vector: Vector, trimmed_class: int) -> None:
    """As the vector has them; where it does not tell, nothing waits in the queue of trimmed packets."""
    queues = {trimmed_class: int(vector.get("trimmed_queue_bytes", 0))}
    queues[int(vector["traffic_class"])] = int(vector["queue_bytes"])
    used = NEVER_BYTES - int(vector["shared_free_bytes"])
    v1model.set_depths(program, PORT_OUT, queues, int(vector["port_bytes"]), used)


ACTIONS = {
    Decision.KEPT: "keep",
    Decision.MARKED: "mark",
    Decision.TRIMMED: "trim",
    Decision.DROPPED_THRESHOLD: "drop",
    Decision.DROPPED_BUFFER: "drop",
    Decision.DROPPED_TRIMMED: "trim drop",
}


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_are_those_of_the_golden_vectors(policy: str) -> None:
    program = under(policy)
    carrier = build.ethernet(build.ipv4(build.udp(build.dlcp(40)), tos=1), build.IPV4)
    seen: list[Packet] = []

    def set_headers(packet: Packet) -> None:
        critical = vector["ecn_capable"] == "1"
        packet["metadata_t.traffic_class"] = int(vector["traffic_class"])
        packet["metadata_t.level"] = DROPPABLE_LEVELS if critical else int(vector["importance"]) >> 5
        packet["metadata_t.trimmable"] = int(vector["trimmable"])
        packet["metadata_t.foreign"] = 0
        packet["metadata_t.frame_bytes"] = int(vector["bytes"])
        seen.append(packet)

    for vector in vectors.load("switch_decisions.txt"):
        if vector["policy"] != policy:
            continue
        set_depths(program, vector, POLICIES[policy].trimmed_class)
        program.random = Words([int(vector["random"]) & 0xFFFF])
        with v1model.before_table(program, "buffer", set_headers):
            program.ingress(carrier, PORT_IN)
        decision = ACTIONS[Decision(seen.pop()["metadata_t.decision"])]
        assert decision.removesuffix(" drop") == vector["expect"], vector


def frame_of(vector: Vector, policy: Policy) -> bytes:
    """A frame with the vector's headers: of a foreign one a DSCP value that no class has."""
    foreign = vector["foreign"] == "1"
    taken = policy.class_of_dscp()
    dscp = (
        next(value for value in range(64) if value not in taken)
        if foreign
        else policy.traffic_class(int(vector["traffic_class"])).dscp[0]
    )
    tos = dscp << 2 | int(vector["ecn_capable"])
    around = int(vector["trimmed_bytes"])  # all headers
    trimmable = vector["trimmable"] == "1"
    # A block that says it was trimmed, and was not, keeps its importance and cannot be cut any more.
    flags = 0 if trimmable else frame_twin.TRIMMED
    content = build.dlcp(int(vector["bytes"]) - around, importance=int(vector["importance"]), flags=flags)
    packet = {"ipv4": build.ipv4, "ipv6": build.ipv6}[vector["ip"]](build.udp(content), tos=tos)
    return build.ethernet(packet, {"ipv4": build.IPV4, "ipv6": build.IPV6}[vector["ip"]])


@pytest.mark.parametrize("name", POLICIES)
def test_verdicts_are_those_of_the_golden_vectors(name: str) -> None:
    """Frames in, frames out, with what they add to the depths and to the counters."""
    program, policy = under(name), POLICIES[name]
    by = frame_twin.Classification(
        policy.class_of_dscp(), policy.foreign_class, policy.traffic_class(policy.trimmed_class).dscp[0]
    )
    for vector in vectors.load("switch_verdicts.txt"):
        if vector["policy"] != name:
            continue
        frame = frame_of(vector, policy)
        read = frame_twin.read_frame(frame, by)
        foreign, critical = vector["foreign"] == "1", vector["ecn_capable"] == "1"
        assert len(frame) == int(vector["bytes"])
        set_depths(program, vector, policy.trimmed_class)
        waiting = sum(program.register("queue_bytes"))
        counted = v1model.decisions(program)
        program.random = Words([int(vector["random"]) & 0xFFFF])
        queued = program.ingress(frame, PORT_IN)

        (cell,) = (k for k, n in v1model.decisions(program).items() if n != counted.get(k, 0))
        level = DROPPABLE_LEVELS if critical else int(vector["importance"]) >> 5
        assert cell[:3] == (PORT_OUT, int(vector["traffic_class"]), FOREIGN_LEVEL if foreign else level)
        assert ACTIONS[cell[3]] == vector["expect"], vector
        if vector["expect"] in ("drop", "trim drop"):
            assert queued == [], vector
            assert sum(program.register("queue_bytes")) == waiting
            continue
        expected = frame
        if vector["expect"] == "mark":
            expected = frame_twin.mark(frame, read)
        elif vector["expect"] == "trim":
            expected = frame_twin.trim(frame, read, by)
        (copy,) = queued
        in_class = policy.trimmed_class if vector["expect"] == "trim" else int(vector["traffic_class"])
        assert (copy.port, copy.priority) == (PORT_OUT, in_class)
        assert sum(program.register("queue_bytes")) == waiting + len(expected)
        assert program.egress(copy) == (PORT_OUT, expected), vector
        assert sum(program.register("queue_bytes")) == waiting


@functools.cache
def group_of(size: int, choice: PathChoice, salt: int) -> Program:
    """The program with one path group; member `index` is behind port index % 64."""
    program = v1model.load()
    program.insert("classify", {"dscp": 0}, "set_class", [0])
    program.insert("bridge", {"dst_mac": DESTINATION}, "to_group", [1])
    program.insert("path_group", {"group": 1}, "choose", [size, choice, salt])
    for table in ("member", "member_other"):
        for index in range(size):
            program.insert(table, {"group": 1, "index": index}, "member_port", [index % 64])
    return program


@pytest.mark.parametrize("choice", [choice.name.lower() for choice in PathChoice])
def test_paths_are_those_of_the_golden_vectors(choice: str) -> None:
    frame = build.ethernet(build.ipv4(build.udp(b"")), build.IPV4)
    seen: list[Packet] = []

    def set_inputs(packet: Packet) -> None:
        packet["metadata_t.flow"] = int(vector["flow"])
        packet["metadata_t.path"] = int(vector["path"])
        seen.append(packet)

    applied = 0
    for vector in vectors.load("switch_paths.txt"):
        if vector["choice"] != choice:
            continue
        program = group_of(int(vector["paths"]), PathChoice[choice.upper()], int(vector["salt"]))
        program.register("turn")[1] = int(vector["turn"])
        first, second = int(vector["first"]), int(vector["second"])
        for behind_first, behind_second in ((0, 0), (0, 1), (1, 0)):
            waiting = program.register("port_bytes")
            waiting[:] = [0] * len(waiting)
            waiting[second % 64] = behind_second
            waiting[first % 64] = behind_first
            words = {"random": 1, "adaptive": 2}.get(choice, 0)
            drawn = int(vector["random"])
            program.random = Words([drawn & 0xFFFFFFFF, drawn >> 32][:words])
            with v1model.before_table(program, "path_group", set_inputs):
                (queued,) = program.ingress(frame, 63 if first % 64 != 63 else 62)
            packet = seen.pop()
            assert packet["path_select_index"] == first, vector
            if choice == "adaptive":
                assert packet["path_select_other_index"] == second, vector
            shorter = second if waiting_before(first, second, behind_first, behind_second) else first
            assert queued.port == shorter % 64, (vector, behind_first, behind_second)
            program.egress(queued)
            program.register("turn")[1] = int(vector["turn"])
        applied += 1
    assert applied == 35


def waiting_before(first: int, second: int, behind_first: int, behind_second: int) -> bool:
    """Whether the second of two ways is the shorter one; behind one port there is one depth."""
    return first % 64 != second % 64 and behind_second < behind_first


# --- frames ----------------------------------------------------------------------------------------------------


@functools.cache
def classifying(classes: str, foreign_class: int, trimmed_dscp: str, marks: bool) -> Program:
    """The program with the vector's classification. Above depth 0, what can be is marked, or else trimmed."""
    owner = {int(dscp): int(number) for dscp, number in (pair.split("=") for pair in classes.split())}
    fate = Thresholds(0) if marks else Thresholds(trim_above_bytes=0)
    policy = Policy(
        classes=tuple(
            TrafficClass(n, dscp=tuple(d for d in owner if owner[d] == n), critical=fate, droppable=(fate,))
            for n in range(8)
        ),
        foreign_class=foreign_class,
        trimmed_class=7,
    )
    program = v1model.load()
    v1model.install(program, policy)
    dscp = 255 if trimmed_dscp == "none" else int(trimmed_dscp)
    program.set_default("trimmed", "set_trimmed", [7, dscp])
    program.random = Words([0] * 10_000)
    return program


def pass_through(
    program: Program, frame: bytes, depth_bytes: int, own: bool = False
) -> tuple[list[bytes], Packet | None]:
    """What leaves by PORT_OUT, and the packet as `buffer` saw it. `own`: foreign packets are taken for the policy's."""
    seen: list[Packet] = []

    def look(packet: Packet) -> None:
        twin = packet.copy()
        if own:
            packet["metadata_t.foreign"] = 0
            critical = packet["metadata_t.ecn"] != 0
            packet["metadata_t.level"] = (
                DROPPABLE_LEVELS if critical else packet["metadata_t.importance"] >> 5
            )
        seen.append(twin)

    v1model.set_depths(program, PORT_OUT, dict.fromkeys(range(8), depth_bytes), depth_bytes)
    match = {"dst_mac": int.from_bytes(frame[:6].ljust(6, b"\0"), "big")}
    program.insert("bridge", match, "to_port", [PORT_OUT])
    with v1model.before_table(program, "buffer", look):
        left = program.process(frame, PORT_IN)
    program.delete("bridge", match)
    assert {port for port, _ in left} <= {PORT_OUT}
    return [data for _, data in left], seen[0] if seen else None


FRAMES = vectors.load("switch_frames.txt")


@pytest.mark.parametrize("part", range(4))
def test_frames_are_read_marked_and_trimmed_as_in_the_golden_vectors(part: int) -> None:
    for vector in FRAMES[part::4]:
        frame = bytes.fromhex(vector["frame"])
        by = (vector["classes"], int(vector["foreign_class"]), vector["trimmed_dscp"])
        program = classifying(*by, False)
        before = v1model.arrivals(program)
        sent, packet = pass_through(program, frame, 0)
        fate = Arrival.MALFORMED if vector["kind"] == "malformed" else Arrival.FORWARDED
        assert v1model.arrivals(program) == before | {(PORT_IN, fate): before.get((PORT_IN, fate), 0) + 1}, (
            vector
        )
        if vector["kind"] == "malformed":
            assert (sent, packet) == ([], None), vector
            continue

        # Untouched, and read as the vector says. (dlcp_offset shows where a packet is cut, below.)
        assert sent == [frame], vector
        assert packet is not None
        dscp = 255 if vector["kind"] == "other" else int(vector["dscp"])
        expected = {
            key: int(vector[key])
            for key in ("ecn", "path", "flow", "traffic_class", "foreign", "importance", "trimmable")
        }
        found = {key: packet[f"metadata_t.{key}"] for key in expected}
        assert found == expected, vector
        assert (KINDS[packet["metadata_t.kind"]], packet["metadata_t.dscp"]) == (vector["kind"], dscp), vector
        assert packet["metadata_t.frame_bytes"] == len(frame)
        level = DROPPABLE_LEVELS if vector["ecn_capable"] == "1" else int(vector["importance"]) >> 5
        assert packet["metadata_t.level"] == (FOREIGN_LEVEL if vector["foreign"] == "1" else level)

        # Marked where that can be, and not otherwise; the same of trimming.
        marked = bytes.fromhex(vector.get("marked", vector["frame"]))
        assert pass_through(classifying(*by, True), frame, 1, own=True)[0] == [marked], vector
        trimmed = bytes.fromhex(vector.get("trimmed", vector["frame"]))
        assert pass_through(program, frame, 1, own=True)[0] == [trimmed], vector


def test_foreign_frames_are_neither_marked_nor_trimmed() -> None:
    met = 0
    for vector in FRAMES:
        if vector.get("foreign") != "1":
            continue
        frame = bytes.fromhex(vector["frame"])
        by = (vector["classes"], int(vector["foreign_class"]), vector["trimmed_dscp"])
        for marks in (True, False):
            assert pass_through(classifying(*by, marks), frame, 1)[0] == [frame], vector
        met += "marked" in vector or "trimmed" in vector
    assert met > 5


def test_every_kind_of_decision_and_frame_is_met() -> None:
    assert {v["expect"] for v in vectors.load("switch_verdicts.txt")} == set(ACTIONS.values())
    assert {v["kind"] for v in FRAMES} == set(KINDS)
