"""A policy for a switch that runs p4/tofino.p4: a script for bfshell, and what it does otherwise than the policy.

On a Tofino the traffic manager drops, before the queue, by three limits per queue: green, which is the queue's end, and
yellow and red in eighths of it. So the eight droppable levels of a class become two: `colour_queue` looks for the split
and the eighths that are nearest to the thresholds. Marks are entries of the program, in cells of depth.

Names of tables and fields are those of `bf_rt_tm_tf1.json` in open-p4studio and of our program; how bfrt_python calls
its arguments was read in public scripts. **Nothing of this was run on a Tofino or its model.** Pure: nothing here talks
to a switch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dlcp.checks import integer
from dlcp.switch.policy import (
    DROPPABLE_LEVELS,
    MAX_BYTES,
    TRAFFIC_CLASSES,
    Policy,
    PolicyError,
    Thresholds,
    TrafficClass,
)
from dlcp.switch.render.caveat import Caveat, differs
from dlcp.switch.resolved import MARK_STEPS, NEVER_BYTES, RATIO_MAX

CELL_BYTES = 80  # of a Tofino 1's packet buffer
MAX_CELLS = 2**19 - 1  # enq_qdepth has 19 bits
EIGHTHS = ("12.5%", "25%", "37.5%", "50%", "62.5%", "75%", "87.5%", "100%")  # choices of tm.queue.color
GREEN, YELLOW, RED = 0, 1, 3  # MeterColor_t of tna.p4
CRITICAL_LEVEL = DROPPABLE_LEVELS
PATH_ACTIONS = {
    "flow_hash": "by_flow",
    "path_id": "by_path_id",
    "random": "by_random",
    "round_robin": "by_turn",
    "adaptive": "by_random",
}


class TofinoError(PolicyError):
    """A policy that a Tofino cannot carry out at all; the text names the field, and what is accepted."""


@dataclass(frozen=True)
class QueueColours:
    """The limits of one queue, and which levels fall under which."""

    cells: int
    """Where the queue ends: green."""
    red_levels: int
    """Droppable levels below this one are red, the others yellow."""
    red_eighths: int
    """1 … 8: above so many eighths of the queue red packets are dropped; 8: only at its end."""
    yellow_eighths: int

    def limit_bytes(self, level: int) -> int:
        """From what depth on packets of a level are dropped."""
        eighths = self.red_eighths if level < self.red_levels else self.yellow_eighths
        if level == CRITICAL_LEVEL:
            eighths = 8
        return self.cells * eighths // 8 * CELL_BYTES


@dataclass(frozen=True)
class TofinoConfiguration:
    """The script and what a person should know of it."""

    text: str
    differences: tuple[Caveat, ...]
    """Caveats: where it does not do what the policy says, and what happens instead."""


def queue_bytes(policy: Policy, traffic_class: TrafficClass) -> int:
    """Where the queue of a class ends."""
    ends = [traffic_class.critical.drop_above_bytes, policy.queue_end_bytes]
    known = [end for end in ends if end is not None]
    if not known:
        raise TofinoError(
            "port_bytes is None; accepted: a number, shared_bytes, or critical.drop_above_bytes in every class: a "
            "Tofino's limits by colour are shares of the queue's own"
        )
    return min([*known, MAX_CELLS * CELL_BYTES])


def _drop_bytes(thresholds: Thresholds) -> int | None:
    """From what depth a packet is not sent whole."""
    limits = [b for b in (thresholds.trim_above_bytes, thresholds.drop_above_bytes) if b is not None]
    return min(limits, default=None)


def colour_queue(traffic_class: TrafficClass, end_bytes: int) -> QueueColours:
    """The limits whose sum of distances to the class's eight thresholds is least; of equal ones, the lower limits."""
    cells = max(end_bytes // CELL_BYTES, 8)
    end = cells * CELL_BYTES
    wanted = [
        end if (limit := _drop_bytes(level)) is None else min(limit, end)
        for level in traffic_class.levels[:-1]
    ]

    def distance(levels: list[int], eighths: int) -> int:
        return sum(abs(limit - cells * eighths // 8 * CELL_BYTES) for limit in levels)

    best: tuple[int, int, int, int] | None = None
    for split in range(DROPPABLE_LEVELS + 1):
        red = min(range(1, 9), key=lambda e: (distance(wanted[:split], e), e)) if split else 1
        if split == DROPPABLE_LEVELS:
            yellow = red
        else:
            yellow = min(range(1, 9), key=lambda e: (distance(wanted[split:], e), e))
            red = red if split else yellow
        total = distance(wanted[:split], red) + distance(wanted[split:], yellow)
        if best is None or total < best[0]:
            best = (total, split, red, yellow)
    assert best is not None, "there is a split"
    return QueueColours(cells, *best[1:])


def mark_ranges(thresholds: Thresholds, end_cells: int) -> Iterator[tuple[int, int, int | None]]:
    """First and last depth in cells, and the ratio of 65536 between them; None: always."""
    start, full, whole, *_ = thresholds.resolved()
    if start == NEVER_BYTES or whole == 0:
        return
    last = max(end_cells, full // CELL_BYTES + 1)
    for step in range(MARK_STEPS if full > start else 0):
        low, high = (start + (full - start) * s // MARK_STEPS for s in (step, step + 1))
        first_cell, next_cell = low // CELL_BYTES + 1, high // CELL_BYTES + 1
        ratio = whole * (2 * step + 1) // (2 * MARK_STEPS)
        if first_cell < next_cell and ratio:
            yield first_cell, next_cell - 1, ratio
    yield full // CELL_BYTES + 1, min(last, MAX_CELLS), None if whole == RATIO_MAX else whole


def render_tofino(policy: Policy, dev_ports: Mapping[str, int]) -> TofinoConfiguration:
    """The script for these ports: name in the policy (or any) → device port.

    TofinoError: what a Tofino cannot do at all. What it does otherwise is in `differences`, and in the script's
    head.
    """
    if not dev_ports:
        raise TofinoError("dev_ports is empty; accepted: a device port for each port of the switch")
    for port in policy.ports:
        if port.name not in dev_ports:
            raise TofinoError(
                f"port.name is {port.name!r}; accepted: a port with a device port: {', '.join(dev_ports)}"
            )
    for name, number in dev_ports.items():
        integer(f"dev_ports.{name}", number, 0, 511, error=TofinoError)
    differences = tuple(_differences(policy))
    lines = [
        "# Written by dlcp for p4/tofino.p4. Run it with: run_bfshell.sh -b THIS_FILE",
        "# Not tried on a switch. Bridge, flood and members of path groups are your topology's, and not written here.",
        *(f"# Other than the policy: {difference.text()}" for difference in differences),
        "",
        "ingress = bfrt.tofino.pipe.TofinoIngress",
        "egress = bfrt.tofino.pipe.TofinoEgress",
        "",
        *_program_lines(policy, dev_ports),
        "",
        *_manager_lines(policy, dev_ports),
        "bfrt.complete_operations()",
    ]
    return TofinoConfiguration("\n".join(lines) + "\n", differences)


def _program_lines(policy: Policy, dev_ports: Mapping[str, int]) -> Iterator[str]:
    yield f"ingress.classify.classify.set_default_with_foreign(traffic_class={policy.foreign_class})"
    for dscp, number in sorted(policy.class_of_dscp().items()):
        yield f"ingress.classify.classify.add_with_set_class(is_ip=1, dscp={dscp}, traffic_class={number})"
    yield f"ingress.forward.path_group.set_default_with_{PATH_ACTIONS[policy.path_choice]}()"
    # Colours are by class, for the whole switch; limits are by port.
    for traffic_class in sorted(policy.classes, key=lambda c: c.number):
        colours = colour_queue(traffic_class, queue_bytes(policy, traffic_class))
        for level in range(DROPPABLE_LEVELS):
            colour = RED if level < colours.red_levels else YELLOW
            yield (
                f"ingress.colour.colour.add_with_set_colour(foreign=0, traffic_class={traffic_class.number}, "
                f"level={level}, colour={colour})"
            )
    own = {port.name: {c.number for c in port.classes} for port in policy.ports if port.classes}
    for traffic_class in sorted(policy.classes, key=lambda c: c.number):
        yield from _mark_lines(policy, traffic_class, None)
        for name in sorted(own, key=lambda n: dev_ports[n]):
            if traffic_class.number in own[name]:
                yield from _mark_lines(policy, traffic_class, (name, dev_ports[name]))


def _mark_lines(policy: Policy, traffic_class: TrafficClass, port: tuple[str, int] | None) -> Iterator[str]:
    """`port`: name and device port, for thresholds of its own, which hide those of all ports."""
    at = traffic_class if port is None else policy.traffic_class(traffic_class.number, port[0])
    number, mask = (0, 0) if port is None else (port[1], 0x1FF)
    priority = 3 if port is None else 1  # the smaller number wins
    end_cells = queue_bytes(policy, at) // CELL_BYTES
    ranges = [(priority, *found) for found in mark_ranges(at.critical, end_cells)]
    if port is not None:
        ranges.append((2, 0, MAX_CELLS, 0))
    for dscp in traffic_class.dscp:
        for rank, first, last, ratio in ranges:
            action = "mark_all(" if ratio is None else "set_mark_ratio("
            yield (
                f"egress.mark.mark_ramp.add_with_{action}port={number}, port_mask={mask:#x}, dscp={dscp}, "
                f"depth_cells_start={first}, depth_cells_end={last}, match_priority={rank}"
                f"{'' if ratio is None else f', ratio={ratio}'})"
            )


def _manager_lines(policy: Policy, dev_ports: Mapping[str, int]) -> Iterator[str]:
    yield "# device port: queue: (cells of the queue, drop_limit_yellow, drop_limit_red)"
    yield "QUEUES = {"
    for name, number in sorted(dev_ports.items(), key=lambda item: item[1]):
        yield f"    {number}: {{  # {name}"
        for queue in range(TRAFFIC_CLASSES):
            at = policy.traffic_class(queue, name)
            known = any(c.number == queue for c in policy.classes)
            end = queue_bytes(policy, at) if known else policy.queue_end_bytes
            if end is None:
                continue  # of no class and without a limit: as the driver set it
            colours = colour_queue(at, end)
            # Which levels are red is the same at all ports.
            yellow, red = (EIGHTHS[e - 1] for e in (colours.yellow_eighths, colours.red_eighths))
            yield f'        {queue}: ({colours.cells}, "{yellow}", "{red}"),'
        yield "    },"
    yield "}"
    yield "for dev_port, queues in QUEUES.items():"
    yield "    pipe = dev_port >> 7"
    yield "    port = bfrt.tf1.tm.port.cfg.get(pipe=pipe, dev_port=dev_port, print_ents=False).data"
    yield "    for queue, (cells, yellow, red) in queues.items():"
    yield '        at = dict(pipe=pipe, pg_id=port[b"pg_id"], pg_queue=port[b"egress_qid_queues"][queue])'
    yield "        bfrt.tf1.tm.queue.sched_cfg.mod(**at, min_priority=str(queue), max_priority=str(queue))"
    yield "        bfrt.tf1.tm.queue.buffer.mod_with_shared_pool("
    yield '            **at, guaranteed_cells=0, tail_drop_enable=True, pool_id="EG_APP_POOL_0",'
    yield '            pool_max_cells=cells, dynamic_baf="DISABLE")'
    yield "        bfrt.tf1.tm.queue.color.mod("
    yield "            **at, drop_enable=True, drop_limit_yellow=yellow, drop_limit_red=red)"


def _differences(policy: Policy) -> Iterator[Caveat]:
    for index, traffic_class in enumerate(policy.classes):
        yield from _class_differences(policy, traffic_class, f"class[{index}]")
    for place, port in enumerate(policy.ports):
        for index, at in enumerate(port.classes):
            where = f"port[{place}].class[{index}]"
            yield from _class_differences(policy, at, where)
            at_all = policy.traffic_class(at.number)
            common = colour_queue(at_all, queue_bytes(policy, at_all)).red_levels
            own = colour_queue(at, queue_bytes(policy, at)).red_levels
            if own != common:
                yield _caveat(
                    f"{where}.droppable",
                    f"levels below {common} are red, as at all ports; by its own thresholds it would be {own}",
                )
    if policy.path_choice == "adaptive":
        yield _caveat("path_choice", "adaptive becomes random: a Tofino 1 knows no queue's depth at ingress")
    elif policy.path_groups:
        yield _caveat(
            "path_choice", "the chip's selector takes other members than other switches of this policy do"
        )
    if policy.port_bytes is not None:
        yield _caveat("port_bytes", "holds for each queue, not for all of a port's together")
    if policy.shared_bytes is not None:
        yield _caveat(
            "shared_bytes",
            "a queue ends at a fixed limit, at most at what it may take while others are empty; of one that moves, "
            "the limits by colour would be shares",
        )
    if policy.pause_above_bytes is not None:
        yield _caveat("pause_above_bytes", "not set; see tf1.tm.ppg.cfg and tf1.tm.port.flowcontrol")
    if policy.trimmed_run_packets:
        yield _caveat("trimmed_run_packets", "nothing is trimmed")


def _caveat(field: str, instead: str) -> Caveat:
    return differs(field, "", instead)


def _class_differences(policy: Policy, traffic_class: TrafficClass, where: str) -> Iterator[Caveat]:
    end = queue_bytes(policy, traffic_class)
    colours = colour_queue(traffic_class, end)
    moved: list[str] = []
    for level, thresholds in enumerate(traffic_class.levels[:-1]):
        wanted = _drop_bytes(thresholds)
        got = colours.limit_bytes(level)
        if min(MAX_BYTES if wanted is None else wanted, end) // CELL_BYTES != got // CELL_BYTES:
            moved.append(f"{level} above {got} instead of {'the end' if wanted is None else wanted}")
    if moved:
        whole = colours.cells * CELL_BYTES
        yield _caveat(
            f"{where}.droppable", f"levels are dropped at eighths of {whole} bytes: {', '.join(moved)}"
        )
    for name, instead in (
        ("trim_above_bytes", "nothing is trimmed; droppable packets are dropped there"),
        ("mark_from_bytes", "packets that are not ECN-capable are not marked"),
    ):
        if any(getattr(level, name) is not None for level in traffic_class.levels[:-1]):
            yield _caveat(f"{where}.droppable[0].{name}", instead)
    if traffic_class.critical.trim_above_bytes is not None:
        yield _caveat(
            f"{where}.critical.trim_above_bytes", "nothing is trimmed; critical packets are kept whole"
        )


def dev_ports_from(text: str | None) -> dict[str, int]:
    """Ports as a person types them: NAME=DEVICE PORT, with commas between."""
    found: dict[str, int] = {}
    for part in (text or "").split(","):
        name, equals, number = part.rpartition("=")
        if not equals or not name or not re.fullmatch(r"[0-9]{1,4}", number):
            raise TofinoError(f"--ports is {text!r}; accepted: NAME=DEVICE_PORT,… as 1/0=132,2/0=140")
        found[name] = int(number)
    return found
