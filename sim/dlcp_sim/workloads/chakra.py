"""Chakra execution traces (MLCommons) as a workload: what each rank of a real or planned job computed and sent.

A trace is a file per rank: a graph of nodes, each with what it waits for. Computations take the time that the trace
says, one after the other on a rank if `serial`; sends and receives are paired by ranks and tag, collectives by process
group and order, and run as graphs of messages (collectives.py) of a chosen algorithm. Both forms are read: the protobuf
stream (`.et`: each message behind its length, the first is metadata) and the JSON that Chakra's tools print of it. The
few fields that matter are decoded here, so nothing needs to be installed; memory and metadata nodes only pass on order.
What a node needs and does not say is refused, never assumed, except that of broadcasts and the like Chakra's converter
names no root: a note says so. Field numbers: mlcommons/chakra, schema/protobuf/et_def.proto.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import mode
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlcp.errors import ArgumentError
from dlcp.units import PS_PER_S
from dlcp_sim.workloads.collectives import Delivery, lay
from dlcp_sim.workloads.graphs import template
from dlcp_sim.workloads.load import NONE, Load, When, Workload, host_numbers

if TYPE_CHECKING:
    from dlcp_sim.fabrics import Fabric


class NodeType(IntEnum):
    """What a node is."""

    INVALID_NODE = 0
    METADATA_NODE = 1
    MEM_LOAD_NODE = 2
    MEM_STORE_NODE = 3
    COMP_NODE = 4
    COMM_SEND_NODE = 5
    COMM_RECV_NODE = 6
    COMM_COLL_NODE = 7


COLLECTIVES: Mapping[str, tuple[str, str]] = {
    "ALL_REDUCE": ("all_reduce", "ring"),
    "REDUCE": ("reduce", "tree"),
    "ALL_GATHER": ("all_gather", "ring"),
    "GATHER": ("gather", "direct"),
    "SCATTER": ("scatter", "direct"),
    "BROADCAST": ("broadcast", "tree"),
    "ALL_TO_ALL": ("all_to_all", "pairwise"),
    "REDUCE_SCATTER": ("reduce_scatter", "ring"),
    "REDUCE_SCATTER_BLOCK": ("reduce_scatter", "ring"),
    "BARRIER": ("all_reduce", "tree"),  # of nothing
}
"""Collectives by Chakra's comm_type, in the order of its numbers, each with its algorithm if a workload names none."""
COMM_TYPES = {name: number for number, name in enumerate(COLLECTIVES)}
PS_PER_US = PS_PER_S // 10**6
ROOTED = [COMM_TYPES[name] for name in ("REDUCE", "GATHER", "SCATTER", "BROADCAST")]
NEEDED: Mapping[int, set[str]] = {
    NodeType.COMM_SEND_NODE: {"comm_dst", "comm_size", "comm_tag"},
    NodeType.COMM_RECV_NODE: {"comm_src", "comm_tag"},
    NodeType.COMM_COLL_NODE: {"comm_type", "comm_size"},
}
"""Attributes without which a node means something else; a barrier has no size."""


_NO_TRACE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    struct.error,
)
"""What reading something else raises."""


class TraceError(ArgumentError):
    """A trace that cannot be read, or whose ranks contradict each other."""


@dataclass(frozen=True)
class Node:
    """One node of a rank's trace."""

    id: int
    name: str = ""
    type: int = NodeType.INVALID_NODE
    after: tuple[int, ...] = ()
    """Control and data dependencies."""
    duration_us: int = 0
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def checked(self) -> Node:
        """Itself, the collective as a number. Raises TraceError for what is missing or out of range."""
        if self.type not in list(NodeType)[1:]:
            raise TraceError(f"node {self.id}: type is {self.type}; accepted: 1 to {max(NodeType)}")
        values = dict(self.attributes)
        needed = NEEDED.get(self.type, set()) | {"comm_root"} & values.keys()
        if "comm_type" in needed:
            values["comm_type"] = COMM_TYPES.get(str(values.get("comm_type")), values.get("comm_type"))
            needed -= {"comm_size"} if values["comm_type"] == COMM_TYPES["BARRIER"] else set()
        found = {name: values.get(name) for name in sorted(needed, reverse=True)}
        timeless = self.type == NodeType.COMP_NODE and not self.duration_us and "num_ops" in values
        found["duration_micros"] = None if timeless else self.duration_us
        for name, value in found.items():
            limit = len(COLLECTIVES) if name == "comm_type" else 2**63 // PS_PER_US
            if type(value) is not int or not 0 <= value < limit:
                said = "missing" if value is None else value
                names = f" or {', '.join(COLLECTIVES)}" if name == "comm_type" else ""
                raise TraceError(f"node {self.id}: {name} is {said}; accepted: 0 to {limit - 1}{names}")
        return replace(self, attributes=values)


# --- protobuf: the little of its wire format that is in these files --------------------------------------------

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise TraceError(f"byte {at}: a number without an end; accepted: Chakra's protobuf stream")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Every field of a message: its number, wire type and value."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: Any
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32, _BYTES):
            if kind == _BYTES:
                size, at = _varint(data, at)
            else:
                size = 8 if kind == _FIXED64 else 4
            value, at = data[at : at + size], at + size
            if at > len(data):
                raise TraceError(
                    f"field {number} ends behind its message; accepted: Chakra's protobuf stream"
                )
        else:
            raise TraceError(f"field {number} has wire type {kind}; accepted: 0, 1, 2, 5")
        yield number, kind, value


def _signed(value: int, bits: int = 64) -> int:
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _zigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)


def _unpacked(layout: str) -> Callable[[bytes], Any]:
    return lambda value: struct.unpack(layout, value)[0]


_VALUES: Mapping[int, Callable[[Any], Any]] = {
    3: _unpacked("<d"),
    5: _unpacked("<f"),
    **dict.fromkeys((7, 9), _signed),
    **dict.fromkeys((11, 13), int),
    **dict.fromkeys((15, 17), _zigzag),
    19: _unpacked("<I"),
    21: _unpacked("<Q"),
    23: _unpacked("<i"),
    25: _unpacked("<q"),
    27: bool,
    29: bytes.decode,
}
"""How an attribute's value is read, by its field; lists are left out."""


def _attribute(data: bytes) -> tuple[str, Any]:
    """The name and value of an AttributeProto."""
    name, found = "", None
    for number, _, value in _fields(data):
        if number == 1:
            name = value.decode()
        elif number in _VALUES:
            found = _VALUES[number](value)
    return name, found


def _numbers(kind: int, value: Any) -> Iterator[int]:
    """A repeated number, packed or not."""
    if kind == _VARINT:
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _node(data: bytes) -> Node:
    identity = kind_of = duration = 0
    name = ""
    after: list[int] = []
    attributes: dict[str, Any] = {}
    for number, kind, value in _fields(data):
        match number:
            case 1:
                identity = value
            case 2:
                name = value.decode()
            case 3:
                kind_of = value
            case 4 | 5:
                after.extend(_numbers(kind, value))
            case 7:
                duration = value
            case 10:
                key, found = _attribute(value)
                attributes[key] = found
    return Node(identity, name, kind_of, tuple(dict.fromkeys(after)), duration, attributes)


def read_protobuf(data: bytes) -> list[Node]:
    """The nodes of a `.et` file. Raises TraceError."""
    nodes, at, first = [], 0, True
    while at < len(data):
        size, at = _varint(data, at)
        if at + size > len(data):
            raise TraceError(
                f"byte {at}: a message of {size} bytes, {len(data) - at} are left; accepted: whole ones"
            )
        if not first:  # the first is GlobalMetadata
            nodes.append(_node(data[at : at + size]))
        at, first = at + size, False
    return nodes


# --- JSON ------------------------------------------------------------------------------------------------------


def read_json(text: str) -> list[Node]:
    """The nodes of a trace as JSON: an array, an object with "nodes", or objects one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    text = text.strip()
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found.append(value)
            while at < len(text) and text[at].isspace():
                at += 1
    except json.JSONDecodeError as error:
        raise TraceError(f"{error}; accepted: JSON") from error
    flat: list[Any] = []
    for value in found:
        if isinstance(value, list):
            flat.extend(value)
        elif "schema" in value:
            raise TraceError("PyTorch's own execution trace; accepted: what chakra_converter makes of it")
        else:
            flat.extend(value.get("nodes", value.get("node", [value])))
    # Protobuf's JSON leaves out what is 0, an id too; what has no type either is metadata.
    nodes = []
    for value in (value for value in flat if "id" in value or "type" in value):
        try:
            nodes.append(_json_node(value))
        except _NO_TRACE as error:
            raise TraceError(f"node {value.get('id', 0)}: not as Chakra writes it: {error!r}") from error
    return nodes


def _json_node(value: Mapping[str, Any]) -> Node:
    def get(name: str, otherwise: Any) -> Any:
        head, *words = name.split("_")
        return value.get(name, value.get(head + "".join(word.title() for word in words), otherwise))

    kind = get("type", 0)
    attributes = {}
    for attribute in get("attr", []):
        values = [one for key, one in attribute.items() if key.endswith(("_val", "Val"))]
        number = values[0] if values else None
        if isinstance(number, str) and number.lstrip("-").isdigit():
            number = int(number)  # 64-bit numbers are text in protobuf's JSON
        attributes[attribute["name"]] = number
    after = [int(one) for name in ("ctrl_deps", "data_deps") for one in get(name, [])]
    return Node(
        int(get("id", 0)),
        str(get("name", "")),
        int(NodeType[kind]) if isinstance(kind, str) and kind in NodeType.__members__ else int(kind),
        tuple(dict.fromkeys(after)),
        int(get("duration_micros", 0)),
        attributes,
    )


def read_trace(path: Path) -> list[Node]:
    """The nodes of one rank's file, in either form. Raises TraceError that names the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from error
    try:
        nodes = read_json(data.decode()) if path.suffix == ".json" else read_protobuf(data)
        nodes = [node.checked() for node in nodes]
    except _NO_TRACE as error:
        what = error if isinstance(error, TraceError) else f"not as Chakra writes it: {error!r}"
        raise TraceError(f"{path}: rank {path.stem.rpartition('.')[2]}, {what}") from error
    ids = [node.id for node in nodes]
    if len(set(ids)) != len(ids):
        raise TraceError(f"{path}: two nodes have the same id, {mode(ids)}")
    return nodes


# --- the workload ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ChakraTrace(Workload):
    """A job from its traces: rank i's is PREFIX.i.et or PREFIX.i.json."""

    kind: ClassVar[str] = "chakra"
    prefix: str = ""
    ranks: int | None = None
    """None: as many as there are files."""
    hosts: tuple[int, ...] | None = None
    """Of the ranks; None: the fabric's first ones."""
    algorithms: Mapping[str, str] = field(default_factory=dict)
    """Of collectives, by name, where not as COLLECTIVES has it."""
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Ranks of process groups (attribute pg_name); one that is not named is all ranks."""
    pipeline_bytes: int | None = None
    serial: bool = True
    """A rank computes one thing at a time."""
    traffic_class: int = 0

    def __post_init__(self) -> None:
        """Makes of a file's lists what they stand for."""
        object.__setattr__(self, "groups", {name: tuple(ranks) for name, ranks in self.groups.items()})

    def paths(self) -> list[Path]:
        """All ranks' files."""
        paths: list[Path] = []
        while self.ranks is None or len(paths) < self.ranks:
            choices = [Path(f"{self.prefix}.{len(paths)}{suffix}") for suffix in (".et", ".json")]
            found = next((path for path in choices if path.exists()), None)
            if found is None:
                break
            paths.append(found)
        if not paths or (self.ranks is not None and len(paths) < self.ranks):
            raise TraceError(
                f"{self.prefix}.{len(paths)}.et is not there; accepted: a file per rank, from 0 on"
            )
        return paths

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """Nodes as tasks; each has one that begins it and one that ends it."""
        _Import(self, load, fabric, self.paths()).run()


class _Import:
    """Traces being added to a load."""

    def __init__(self, workload: ChakraTrace, load: Load, fabric: Fabric, paths: list[Path]) -> None:
        self.workload, self.load, self.paths = workload, load, paths
        self.traces = traces = [read_trace(path) for path in paths]
        wanted = len(traces) if workload.hosts is None else workload.hosts
        self.hosts = host_numbers(fabric, wanted, "hosts")
        if len(self.hosts) != len(traces):
            raise TraceError(f"hosts are {len(self.hosts)}; accepted: {len(traces)}, one per rank")
        self.begin: list[dict[int, int]] = [{} for _ in traces]
        self.end: list[dict[int, int]] = [{} for _ in traces]
        self.sends: list[set[int]] = [set() for _ in traces]
        self.first_tasks: dict[int, int] = {}
        """Of a collective, by each task of its own that a node begins or ends with."""

    def _where(self, rank: int, node: int) -> str:
        return f"{self.paths[rank]}: rank {rank}, node {node}"

    def run(self) -> None:
        """All nodes, then what they wait for."""
        channels = np.full(len(self.traces), NONE)
        if self.workload.serial:
            channels = self.load.channels.append(credit_bytes=np.zeros(len(self.traces), np.int64))
        for rank, node in self._nodes():
            if node.type in (NodeType.COMM_SEND_NODE, NodeType.COMM_COLL_NODE):
                continue
            computes = node.type == NodeType.COMP_NODE
            task = self.load.add_computations(
                int(self.hosts[rank]),
                node.duration_us * PS_PER_US if computes else 0,
                channel=channels[rank] if computes else NONE,
                channel_bytes=1,
            )
            self.begin[rank][node.id] = self.end[rank][node.id] = int(task)
        marks = [len(self.load.edges)]
        for step in (self._messages, self._collectives, self._edges):
            step()
            marks.append(len(self.load.edges))
        self._check_order(np.r_[marks[0] : marks[1], marks[2] : marks[3]])

    def _nodes(self, kind: NodeType | None = None) -> Iterator[tuple[int, Node]]:
        """All nodes, or those of a kind, each with its rank."""
        for rank, nodes in enumerate(self.traces):
            yield from ((rank, node) for node in nodes if kind is None or node.type == kind)

    def _messages(self) -> None:
        label = self.load.label("send")
        waiting: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        for rank, node in self._nodes(NodeType.COMM_RECV_NODE):
            waiting[node.attributes["comm_src"], rank, node.attributes["comm_tag"]].append((rank, node.id))
        for rank, node in self._nodes(NodeType.COMM_SEND_NODE):
            where = self._where(rank, node.id)
            peer = node.attributes["comm_dst"]
            if not 0 <= peer < len(self.traces) or peer == rank:
                raise TraceError(f"{where}: comm_dst is {peer}; accepted: another rank")
            task = self.load.add_flow_tasks(
                int(self.hosts[rank]),
                int(self.hosts[peer]),
                node.attributes["comm_size"],
                label=label,
                traffic_class=self.workload.traffic_class,
            )
            self.begin[rank][node.id] = self.end[rank][node.id] = int(task)
            self.sends[rank].add(node.id)
            receives = waiting[rank, peer, node.attributes["comm_tag"]]
            if not receives:
                raise TraceError(f"{where}: rank {peer} does not receive what it sends")
            receiver, number = receives.pop(0)
            self.load.add_edges(task, self.begin[receiver][number])
        for (source, rank, _), left in waiting.items():
            if left:
                raise TraceError(
                    f"{self._where(rank, left[0][1])}: rank {source} does not send what it receives"
                )

    def _collectives(self) -> None:
        """The i-th of a process group on one rank is the i-th of it on the others."""
        order: dict[str, dict[int, list[Node]]] = defaultdict(lambda: defaultdict(list))
        for rank, node in self._nodes(NodeType.COMM_COLL_NODE):
            order[str(node.attributes.get("pg_name") or "")][rank].append(node)
        for group, by_rank in order.items():
            members = list(self.workload.groups.get(group, range(len(self.traces))))
            counts = {rank: len(by_rank.get(rank, [])) for rank in members}
            if set(by_rank) - set(members) or len(set(counts.values())) != 1:
                raise TraceError(
                    f"{self.workload.prefix}: process group {group!r} has {counts} collectives; accepted: as many each"
                )
            for number in range(counts[members[0]]):
                self._collective(members, [by_rank[rank][number] for rank in members])

    def _collective(self, members: list[int], nodes: list[Node]) -> None:
        where = self._where(members[0], nodes[0].id)
        kinds = {
            (one["comm_type"], one.get("comm_size", 0), one.get("comm_root", 0))
            for one in (node.attributes for node in nodes)
        }
        if len(kinds) != 1:
            raise TraceError(f"{where}: ranks disagree about type, size and root: {sorted(kinds, key=str)}")
        kind, nbytes, root = next(iter(kinds))
        collective, algorithm = list(COLLECTIVES.values())[kind]
        algorithm = self.workload.algorithms.get(collective, algorithm)
        if kind in ROOTED and "comm_root" not in nodes[0].attributes:
            self.load.note(
                f"no comm_root of a {collective} in {self.workload.prefix}: rank 0 of its group is taken"
            )
        if root not in range(len(members)):
            raise TraceError(f"{where}: comm_root is {root}; accepted: 0 to {len(members) - 1}")
        hosts = self.hosts[members]
        gates = self.load.add_computations(hosts, 0)
        if len(members) > 1:
            done = lay(
                self.load,
                template(collective, algorithm, len(members), root),
                hosts,
                1 if kind == COMM_TYPES["BARRIER"] else nbytes,
                gates=gates[None, :],
                pipeline_bytes=self.workload.pipeline_bytes,
                delivery=Delivery(
                    traffic_class=self.workload.traffic_class, label=self.load.label(collective)
                ),
            )[0]
        else:
            done = gates
        for place, (rank, node) in enumerate(zip(members, nodes, strict=True)):
            self.begin[rank][node.id], self.end[rank][node.id] = int(gates[place]), int(done[place])
            self.first_tasks |= dict.fromkeys((int(gates[place]), int(done[place])), int(gates[0]))

    def _edges(self) -> None:
        for rank, nodes in enumerate(self.traces):
            before, after, when = [], [], []
            for node in nodes:
                for dependency in node.after:
                    if dependency not in self.end[rank]:
                        raise TraceError(
                            f"{self._where(rank, node.id)}: waits for node {dependency}, which is not there"
                        )
                    before.append(self.end[rank][dependency])
                    after.append(self.begin[rank][node.id])
                    sent = dependency in self.sends[rank]
                    when.append(When.ACKNOWLEDGED if sent else When.FINISHED)
            self.load.add_edges(
                np.array(before, np.int64), np.array(after, np.int64), np.array(when, np.int64)
            )

    def _check_order(self, between_nodes: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Raises TraceError for a circle; looks first, which is quick, for one of collectives as wholes."""
        before, after = self.load.edges["before"], self.load.edges["after"]
        one = self.first_tasks
        pairs = zip(before[between_nodes].tolist(), after[between_nodes].tolist(), strict=True)
        if not _circle((one.get(a, a), one.get(b, b)) for a, b in pairs):
            return
        circle = _circle(zip(before.tolist(), after.tolist(), strict=True))
        names = {
            task: f"node {node} of rank {rank}"
            for rank, tasks in [*enumerate(self.begin), *enumerate(self.end)]
            for node, task in tasks.items()
        }
        found = list(dict.fromkeys(names[task] for task in circle if task in names))
        if found:
            files, nodes = self.workload.prefix, ", ".join(found[:8])
            raise TraceError(f"{files}.*: {nodes} wait for one another; accepted: an order")


def _circle(edges: Iterable[tuple[int, int]]) -> list[int]:
    """Tasks of which each waits for the one before it, in a circle; none if there is no such circle."""
    waits: dict[int, set[int]] = defaultdict(set)
    for before, after in edges:
        waits[after].add(before)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []
