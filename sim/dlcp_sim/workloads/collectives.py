"""Collectives as graphs of messages, for any transport: from the schedules that the shipping backend runs.

A schedule (dlcp.transport.schedule) says what each rank sends, receives and adds. Here every message becomes a flow
that starts when the messages whose values it carries have been delivered. A collective is over at a rank when all that
makes up its result has been delivered. Adding costs no time. With `pipeline_bytes` messages are cut into pieces that go
on one by one, as NCCL's slices and dlcp's packets do; without it a message is passed on as a whole.

A graph of one algorithm and world size is made once (graphs.py) and laid down for any number of tensors at a time.
The hub as a server of whole tensors, which is no schedule of the backend, is built here from the same parts. Over dlcp
a collective can also be handed whole to the executor that ships (`executor=True`); the hub then has keys, cores and
racks, as `dlcp hub` has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dlcp.errors import ArgumentError
from dlcp.transport.aggregation.address import LEAST_BITS
from dlcp.transport.schedule import PLACED, ROOTED, Hosts
from dlcp.transport.schedule.choose import choose
from dlcp.transport.schedule.estimate import Network
from dlcp.units import PS_PER_S
from dlcp_sim.workloads.executor import Collective, SwitchJob
from dlcp_sim.workloads.graphs import Template, coarse_ring, template
from dlcp_sim.workloads.load import (
    NONE,
    Array,
    Kind,
    Load,
    Rows,
    Workload,
    host_numbers,
    picoseconds,
)

if TYPE_CHECKING:
    from dlcp_sim.fabrics import Fabric

_PACKET_BYTES = 500
_AT_ONCE_BPS = 1e18
_VERDICT_BYTES = 32
"""Four int64: the end of a sum, how far it came, and its checksum twice (dlcp/transport/aggregation/reducer.py)."""
PIPELINE_DEPTH = 4
"""Pieces of one tensor in flight from one rank to another; more wait, so that pieces arrive one by one."""


def split(total: ArrayLike, count: int) -> Array:
    """`total` in so many parts that differ by one at most; a new last axis."""
    total = np.asarray(total, np.int64)[..., None]
    ends = (np.arange(1, count + 1) * total) // count
    parts: Array = np.diff(ends, axis=-1, prepend=0)
    return parts


@dataclass(frozen=True)
class Delivery:
    """How messages of a collective travel."""

    traffic_class: ArrayLike = 0
    """A number, or one per tensor."""
    label: ArrayLike = 0
    loss_ratio: ArrayLike = 0.0
    """Of messages that may lose, a number or one per tensor; the others are reliable."""
    critical_ratio: float = 1.0
    patience_ps: int = -1
    everything_lossy: bool = False
    """Whether all messages are bounded, as the papers' rings are; else those that the schedule says."""


def lay(
    load: Load,
    graph: Template,
    hosts: Array,
    total_bytes: ArrayLike,
    *,
    gates: Rows | None = None,
    pipeline_bytes: int | None = None,
    delivery: Delivery | None = None,
    join_ps: ArrayLike = 0,
) -> Rows:
    """Collectives, one per tensor, rank i on hosts[i]; per tensor and rank the task that ends it there.

    `gates`: per tensor and rank a task that the rank waits for before it takes part. `pipeline_bytes`: the most of a
    piece. `join_ps`: how long joins take, a number or one per tensor.
    """
    delivery = delivery or Delivery()
    totals = np.atleast_1d(np.asarray(total_bytes, np.int64))
    if len(hosts) != graph.world_size:
        raise ArgumentError(f"hosts are {len(hosts)}; accepted: {graph.world_size}")
    largest = -(-totals // graph.parts)
    pieces = np.ones_like(totals)
    if pipeline_bytes is not None:
        if pipeline_bytes < 1:
            raise ArgumentError(f"pipeline_bytes is {pipeline_bytes}; accepted: 1 or more")
        pieces = np.maximum(1, -(-largest // pipeline_bytes))
    done = load.add_computations(np.broadcast_to(hosts, (len(totals), graph.world_size)), 0)
    for count in np.unique(pieces):
        chosen = np.flatnonzero(pieces == count)
        _lay_pieces(
            load, graph, hosts, totals[chosen], int(count), chosen, done[chosen], gates, delivery, join_ps
        )
    return done


def _lay_pieces(
    load: Load,
    graph: Template,
    hosts: Array,
    totals: Array,
    count: int,
    chosen: Array,
    done: Rows,
    gates: Rows | None,
    delivery: Delivery,
    join_ps: ArrayLike,
) -> None:
    """Those tensors whose messages are cut into `count` pieces. Shapes: tensor, piece, node."""

    def of_tensor(value: ArrayLike) -> Array:
        array = np.asarray(value)
        return (array if array.ndim == 0 else array[chosen])[..., None, None]

    part_bytes = split(totals, graph.parts)  # tensor, part
    piece_bytes = split(part_bytes, count).transpose(0, 2, 1)  # tensor, piece, part
    lossy = np.full(graph.messages, True) if delivery.everything_lossy else graph.lossy
    turn: dict[str, ArrayLike] = {}
    if count > 1:
        # One channel per tensor and pair of ranks; what is ready first leaves first, of a message its first piece.
        pairs, pair = np.unique(graph.source * graph.world_size + graph.destination, return_inverse=True)
        credit = PIPELINE_DEPTH * piece_bytes.max(axis=(1, 2))
        channels = load.channels.append(
            credit_bytes=np.broadcast_to(credit[:, None], (len(totals), len(pairs)))
        )
        turn = {
            "channel": channels[:, None, pair],
            "channel_bytes": piece_bytes[:, :, graph.part],
        }
    flows = load.add_flow_tasks(
        np.broadcast_to(hosts[graph.source], (len(totals), count, graph.messages)),
        hosts[graph.destination],
        piece_bytes[:, :, graph.part],
        traffic_class=of_tensor(delivery.traffic_class),
        label=of_tensor(delivery.label),
        loss_ratio=np.where(lossy, of_tensor(delivery.loss_ratio), 0),
        critical_ratio=np.where(lossy, delivery.critical_ratio, 1),
        patience_ps=np.where(lossy, delivery.patience_ps, -1),
        **turn,
    )
    joins = load.add_computations(
        np.broadcast_to(hosts[graph.join_rank], (len(totals), count, len(graph.join_rank))),
        of_tensor(join_ps).astype(np.int64),
    )
    nodes = np.concatenate([flows, joins], axis=2)
    load.add_edges(nodes[:, :, graph.before], nodes[:, :, graph.after])
    load.add_edges(nodes[:, :, graph.done_before], done[:, None, graph.done_rank], graph.done_when)
    if gates is not None:
        gate = gates[chosen]
        load.add_edges(gate[:, None, graph.source], flows)
        load.add_edges(gate, done)


def in_groups(world_size: int, group_size: int) -> Hosts:
    """Per rank the number of its group, of so many ranks in a row. Raises ArgumentError: they do not divide."""
    if group_size < 1 or world_size % group_size:
        raise ArgumentError(f"group_size is {group_size}; accepted: divisors of {world_size}")
    return tuple(rank // group_size for rank in range(world_size))


def network_of(fabric: Fabric, hosts: Array, group_size: int) -> Network:
    """What is between ranks on these hosts, as the library's ranks would know it of machines of `group_size` ranks.

    0: each rank has a machine of its own. A machine's link is what the switch of its first rank has to other switches,
    but not more than its ranks' own links. Nothing here takes a processor's time.
    """
    columns = fabric.core.columns()
    source, target, rates = (np.asarray(columns[name]) for name in ("source", "target", "rate_bps"))
    rate_bps = float(rates[np.isin(source, hosts)].min())
    ranks_hop_ns = fabric.base_rtt_s(_PACKET_BYTES) / 2 * 1e9
    if not group_size:
        return Network(
            tuple(range(len(hosts))), rate_bps, ranks_hop_ns, rate_bps, ranks_hop_ns, 0.0, _AT_ONCE_BPS
        )
    path = fabric.path()
    switch = target[source == hosts[0]][0]
    uplinks_bps = float(rates[(source == switch) & (target >= fabric.hosts)].sum())
    return Network(
        in_groups(len(hosts), group_size),
        link_bps=min(uplinks_bps or np.inf, group_size * rate_bps),
        hop_ns=ranks_hop_ns,
        inside_bps=rate_bps,
        inside_hop_ns=sum(h.delay_s + 8 * _PACKET_BYTES / h.rate_bps for h in (path[0], path[-1])) * 1e9,
        message_ns=0.0,
        adding_bps=_AT_ONCE_BPS,
    )


@dataclass(frozen=True)
class CoarseRing:
    """A ring all-reduce in fewer steps, for worlds whose 2 (n - 1) steps of n messages would be too many to simulate.

    Each of `steps` carries what 2 (n - 1) / steps of the ring's do, so links carry the same. What the steps left out
    cost beside their bytes is latency, and is waited between the others. That holds where ranks are alike and in step.
    """

    steps: int
    delay_s: float
    """What a message without bytes takes from one rank to the next: of links and headers."""
    forward_bps: float
    """What the first packet pays at the links after the first, as a rate: of one such link the link's own."""
    packet_bytes: int
    """Payload of a full packet."""

    def lay(self, load: Load, hosts: Array, total_bytes: ArrayLike, **options: Any) -> Rows:
        """As `lay` of a ring all-reduce."""
        totals = np.atleast_1d(np.asarray(total_bytes, np.int64))
        world = len(hosts)
        link_bytes = totals * 2 * (world - 1) // world
        # What all steps of the ring pay, less what the messages here pay themselves.
        owed_s = 2 * (world - 1) * self._latency_s(-(-totals // world))
        owed_s -= self.steps * self._latency_s(-(-link_bytes // self.steps))
        wait_ps = np.round(np.maximum(0, owed_s) / max(1, self.steps - 1) * PS_PER_S)
        return lay(load, coarse_ring(world, self.steps), hosts, link_bytes, join_ps=wait_ps, **options)

    def _latency_s(self, message_bytes: Array) -> Array:
        """What a message takes beside its bytes on the first link."""
        return self.delay_s + np.minimum(message_bytes, self.packet_bytes) * 8 / self.forward_bps


@dataclass(frozen=True)
class Turns:
    """Channels (tasks.hpp) in which a hub's messages wait for their turn."""

    push: Array
    """Per worker."""
    pull: Array
    """Per server and worker."""
    priority: Array
    """Per tensor; the lowest first."""

    @classmethod
    def make(cls, load: Load, workers: int, servers: int, credit_bytes: int, priority: Array) -> Turns:
        """Channels of one credit each: a worker's connections to all servers share one, a server has one per worker."""
        push = load.channels.append(credit_bytes=np.full(workers, credit_bytes))
        pull = load.channels.append(credit_bytes=np.full((servers, workers), credit_bytes))
        return cls(push, pull, priority)


def hub(
    load: Load,
    workers: Array,
    servers: Array,
    total_bytes: ArrayLike,
    server_of: ArrayLike,
    *,
    gates: Rows | None = None,
    turns: Turns | None = None,
    delivery: Delivery | None = None,
) -> tuple[Rows, Rows]:
    """Push and pull: tensors go to their servers, which add and send the sum back. By tensor and worker: pushes, ends.

    `server_of`: per tensor an index into `servers`. A server sends a tensor back as soon as the last worker's has come.
    Where worker and server are one host, nothing travels. What is pushed may lose, what is pulled is reliable.
    """
    delivery = delivery or Delivery()
    totals = np.atleast_1d(np.asarray(total_bytes, np.int64))
    server = np.broadcast_to(np.asarray(server_of, np.int64), totals.shape)
    shape = (len(totals), len(workers))
    at = np.broadcast_to(servers[server][:, None], shape)
    worker = np.broadcast_to(workers[None, :], shape)
    size = np.broadcast_to(totals[:, None], shape)
    remote = at != worker
    added = load.add_computations(servers[server], 0)
    done = load.add_computations(worker, 0)

    def of_tensor(value: ArrayLike) -> Array:
        array = np.asarray(value)
        spread: Array = np.broadcast_to(array if array.ndim == 0 else array[:, None], shape)[remote]
        return spread

    def turn(channel: Array) -> dict[str, ArrayLike]:
        return {
            "channel": np.broadcast_to(channel, shape)[remote],
            "priority": of_tensor(turns.priority) if turns else 0,
            "channel_bytes": size[remote],
        }

    pushes = np.zeros(shape, np.int64)
    pushes[remote] = load.add_flow_tasks(
        worker[remote],
        at[remote],
        size[remote],
        traffic_class=of_tensor(delivery.traffic_class),
        label=of_tensor(delivery.label),
        loss_ratio=of_tensor(delivery.loss_ratio),
        critical_ratio=delivery.critical_ratio,
        patience_ps=delivery.patience_ps,
        **(turn(turns.push[None, :]) if turns else {}),
    )
    pushes[~remote] = load.add_computations(worker[~remote], 0)
    pulls = np.zeros(shape, np.int64)
    pulls[remote] = load.add_flow_tasks(
        at[remote],
        worker[remote],
        size[remote],
        traffic_class=of_tensor(delivery.traffic_class),
        label=of_tensor(delivery.label),
        **(turn(turns.pull[server]) if turns else {}),
    )
    pulls[~remote] = load.add_computations(worker[~remote], 0)
    if gates is not None:
        load.add_edges(gates, pushes)
        load.add_edges(gates, done)
    load.add_edges(pushes, np.broadcast_to(added[:, None], shape))
    load.add_edges(np.broadcast_to(added[:, None], shape), pulls)
    load.add_edges(pulls, done)
    return pushes, done


def balanced(total_bytes: ArrayLike, servers: int) -> Array:
    """A server for each tensor: the largest first, each to the server with the least."""
    totals = np.atleast_1d(np.asarray(total_bytes, np.int64))
    given = np.zeros(servers, np.int64)
    chosen = np.zeros(len(totals), np.int64)
    for index in np.argsort(-totals, kind="stable"):
        chosen[index] = int(np.argmin(given))
        given[chosen[index]] += totals[index]
    return chosen


# --- as workloads --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CollectiveRun(Workload):
    """One collective, or several one after the other, of all hosts or some.

    `algorithm`: "auto": what the library would take, with `group_size` ranks on a machine; or one of
    dlcp.transport.schedule's ("hierarchical" with `group_size`); or "hub" (with `servers`); or "switch", over dlcp: the
    switches that hosts are at add, and one above them where they are several.
    """

    kind: ClassVar[str] = "collective"
    collective: str = "all_reduce"
    algorithm: str = "auto"
    bytes: int = 10_000_000
    """Of the whole tensor at a rank."""
    hosts: tuple[int, ...] | int | None = None
    """Rank i is on the i-th of these."""
    times: int = 1
    pipeline_bytes: int | None = None
    executor: bool = False
    """Handed whole to the executor that ships; dlcp only."""
    group_size: int = 0
    """Hierarchical, auto: hosts in a row form groups of so many."""
    servers: tuple[int, ...] | int = 1
    """Hub: which hosts, or how many of the fabric's last ones. Each takes an equal share of the tensor. With `executor`
    each is a core of the hub of its rack; workers in a row form racks of `group_size`, servers as many racks."""
    slots: int = 128
    """Switch: how many blocks a switch adds at a time; 2 to 2048. A rank has half of them in flight."""
    lanes: int = 1024
    """Switch: values of 32 bits in a packet, a multiple of 32 up to 2208. 1024: 4132 bytes of UDP payload."""
    bits: int = 32
    """Switch: of a value. 16 and 8 put two and four into a lane."""
    root: int = 0
    traffic_class: int = 0
    loss_ratio: float = 0.0
    critical_ratio: float = 1.0
    start_s: float = 0.0

    def add_to(self, load: Load, fabric: Fabric, seed: int) -> None:
        """All its messages, or what the executor needs."""
        if self.times < 1 or self.bytes < 0:
            raise ArgumentError(
                f"times is {self.times}, bytes is {self.bytes}; accepted: 1 or more, 0 or more"
            )
        for name in ("loss_ratio", "critical_ratio"):
            if not 0 <= getattr(self, name) <= 1:
                raise ArgumentError(f"{name} is {getattr(self, name)!r}; accepted: 0 to 1")
        servers = np.empty(0, np.int64)
        if self.algorithm == "hub":
            wanted = self.servers
            if isinstance(wanted, int):
                wanted = tuple(range(fabric.hosts - wanted, fabric.hosts))
            servers = host_numbers(fabric, wanted, "servers")
        hosts = host_numbers(fabric, self.hosts)
        if self.hosts is None:
            hosts = hosts[~np.isin(hosts, servers)]
        gates = None
        if self.start_s:
            gates = load.add_computations(hosts, picoseconds(self.start_s, "start_s"))[None, :]
        if self.algorithm == "switch":
            self._add_over_switches(load, fabric, hosts, gates)
            return
        one = self._chosen(load, fabric, hosts)
        if one.loss_ratio and one.algorithm != "hub" and not one.collective.startswith("bounded_"):
            load.note(
                f"all messages of {one.collective} {one.algorithm} are reliable: loss_ratio has no effect"
            )
        for _ in range(self.times):
            gates = one._add_one(load, hosts, servers, gates)

    def _chosen(self, load: Load, fabric: Fabric, hosts: Array) -> CollectiveRun:
        """With the algorithm that is run."""
        if self.algorithm != "auto":
            return self
        between = network_of(fabric, hosts, self.group_size)
        name = choose(self.collective, len(hosts), self.bytes, network=lambda: between)
        load.note(
            f"{self.collective} of {self.bytes} bytes runs by {name}, the quickest by the library's estimate"
        )
        return replace(self, algorithm=name)

    def _add_one(self, load: Load, hosts: Array, servers: Array, gates: Rows | None) -> Rows:
        delivery = Delivery(
            traffic_class=self.traffic_class,
            label=load.label(f"{self.collective} {self.algorithm}"),
            loss_ratio=self.loss_ratio,
            critical_ratio=self.critical_ratio,
        )
        placement = in_groups(len(hosts), self.group_size) if self.algorithm in PLACED else None
        if self.executor and self.algorithm == "hub":
            return self._add_over_hub(load, hosts, servers, gates)
        if self.executor:
            one = Collective(
                collective=self.collective,
                algorithm=self.algorithm,
                hosts=tuple(int(host) for host in hosts),
                bytes=self.bytes,
                traffic_class=self.traffic_class,
                loss_ratio=self.loss_ratio,
                critical_ratio=self.critical_ratio,
                root=self.root,
                placement=placement,
            )
            return hand_over(load, [one], gates)
        if self.algorithm == "hub":
            shares = split(self.bytes, len(servers))
            spread = None if gates is None else np.repeat(gates, len(servers), axis=0)
            _, done = hub(
                load, hosts, servers, shares, np.arange(len(servers)), gates=spread, delivery=delivery
            )
            whole = load.add_computations(hosts, 0)[None, :]
            load.add_edges(done, np.broadcast_to(whole, done.shape))
            return whole
        options: dict[str, Any] = {"pipeline_bytes": self.pipeline_bytes, "delivery": delivery}
        if self.collective in ROOTED and not 0 <= self.root < len(hosts):
            raise ArgumentError(f"root is {self.root}; accepted: 0 to {len(hosts) - 1}")
        graph = template(self.collective, self.algorithm, len(hosts), self.root, placement)
        return lay(load, graph, hosts, self.bytes, gates=gates, **options)

    def _add_over_hub(self, load: Load, hosts: Array, servers: Array, gates: Rows | None) -> Rows:
        """The backend's own schedule over a hub. Cores wait for contributions from the start."""
        if self.collective != "all_reduce":
            raise ArgumentError(f"collective is {self.collective!r} over a hub; accepted: all_reduce")
        one = Collective(
            collective=self.collective,
            algorithm=self.algorithm,
            hosts=tuple(int(host) for host in (*hosts, *servers)),
            bytes=self.bytes,
            traffic_class=self.traffic_class,
            racks=in_groups(len(hosts), self.group_size or len(hosts)),
        )
        tasks = hand_over(load, [one], None)[:, : len(hosts)]
        if gates is not None:
            load.add_edges(gates, tasks)
        return tasks

    def _add_over_switches(self, load: Load, fabric: Fabric, hosts: Array, gates: Rows | None) -> None:
        """The steps of dlcp/transport/aggregation/reducer.py: exponents, the switches' sum, the verdict."""
        self._check_for_switches(len(hosts))
        between = network_of(fabric, hosts, 0)
        job = SwitchJob(slots=self.slots, lanes=self.lanes, bits=self.bits)
        values = -(-self.bytes // 4)
        codes = -(-values // (self.lanes * (32 // self.bits)))
        members = tuple(int(host) for host in hosts)

        def agreement(size: int) -> Collective:
            algorithm = choose("all_reduce", len(members), size, network=lambda: between)
            return Collective("all_reduce", algorithm, members, size)

        by_switches = Collective("all_reduce", "switch", members, self.bytes, by_switches=job)
        for _ in range(self.times):
            for step in (agreement(codes), by_switches, agreement(_VERDICT_BYTES)):
                gates = hand_over(load, [step], gates)

    def _check_for_switches(self, ranks: int) -> None:
        """Raises ArgumentError for what switches do not add."""
        least_bits = (ranks - 1).bit_length() + 1 + LEAST_BITS
        for name, is_right, accepted in (
            ("collective", self.collective == "all_reduce", "all_reduce"),
            ("traffic_class", self.traffic_class == 0, "0, the worker's packets have no other"),
            ("loss_ratio", self.loss_ratio == 0, "0, a sum has all values or none"),
            ("slots", 2 <= self.slots <= 2048, "2 to 2048"),
            ("lanes", 32 <= self.lanes <= 2208 and self.lanes % 32 == 0, "multiples of 32 up to 2208"),
            ("bits", self.bits in (8, 16, 32), "32, 16, 8"),
            ("bits", self.bits >= least_bits, f"at least {least_bits} for {ranks} ranks"),
            ("hosts", 2 <= ranks <= 1024, "2 to 1024 of them"),
        ):
            if not is_right:
                found = ranks if name == "hosts" else getattr(self, name)
                raise ArgumentError(f"{name} is {found!r} where switches add; accepted: {accepted}")


def hand_over(load: Load, collectives: Sequence[Collective], gates: Rows | None) -> Rows:
    """Collectives of the same hosts for the transport's executor; per collective and rank the task that is its part."""
    first = len(load.collectives)
    load.collectives.extend(collectives)
    number = first + np.arange(len(collectives))
    hosts = np.array([one.hosts for one in collectives], np.int64)
    ranks = np.arange(hosts.shape[1])
    tasks = load.tasks.append(
        kind=Kind.COLLECTIVE, host=hosts, value=(number[:, None] << 32) | ranks[None, :], channel=NONE
    )
    if gates is not None:
        load.add_edges(gates, tasks)
    return tasks
