"""SONiC: tables of CONFIG_DB as JSON, every value a text.

Table and leaf names are those of sonic-buildimage's YANG models, in which strict queues, WRED profiles and the binding
of both to queues are separate tables. JSON has no comments: what is to be said stands in the notes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from dlcp.switch.policy import MAX_BYTES, TRAFFIC_CLASSES, Policy
from dlcp.switch.render.caveat import Caveat, differs, refused
from dlcp.switch.render.check import clamped_alpha
from dlcp.switch.render.queue import Queue, dscp_of_queues, queues_of
from dlcp.switch.render.system import System

# The pool that vendors' own profiles of lossy queues take from; the file refers to it and does not make it.
_POOL = "egress_lossy_pool"

SYSTEM = System(
    name="sonic",
    title="SONiC",
    comment=None,
    suffix="json",
    port_pattern=r"Ethernet\d{1,4}",
    port_example="Ethernet0",
    needs_ports=True,
    trims=True,
    alpha_log2=range(-7, 4),
    shapes=True,
    threshold_bytes=range(MAX_BYTES + 1),
    hashing="SWITCH_HASH below names the UDP ports, so a host's source port chooses the next hop.",
    spraying="ARS_OBJECT with assign_mode per_packet_quality (YANG sonic-ars of 2025-10) is not rendered.",
    pausing="It needs lossless priority groups and headroom: BUFFER_PG, pfc_enable and the switch's own profiles.",
    install=(
        "sudo cp /etc/sonic/config_db.json ~/before-dlcp.json    # to return: sudo config reload -y that file",
        f"sonic-db-cli CONFIG_DB EXISTS 'BUFFER_POOL|{_POOL}'    # must be there if FILE has BUFFER_PROFILE",
        "for table in QUEUE $(grep -om1 BUFFER_QUEUE FILE); do for port in PORT ...; do "
        'sonic-db-cli CONFIG_DB KEYS "$table|$port|*"; done; done | xargs -rn1 sudo sonic-db-cli CONFIG_DB DEL'
        "    # the vendor's queues of these ports, also ranges such as PORT|0-2, which FILE replaces",
        "sudo config load -y FILE    # adds to what is there",
        "sudo config save -y",
        "never `config qos clear`: it deletes the buffer pools and all ports' buffers too",
    ),
    look=(
        "show ecn    # wred_green_enable must be true: `ecnconfig` cannot set it (sonic-buildimage issue 4545)",
        "show queue counters PORT; show queue watermark unicast",
        "show dropcounters counts; show switch-trimming global; show mmu",
        "send both kinds of packet through a full queue: some chips treat what is not ECN-capable differently "
        "(sonic-buildimage issue 27606)",
    ),
    sources=(
        "names, types and ranges: YANG models sonic-wred-profile, -scheduler, -queue, -port-qos-map, -dscp-tc-map, "
        "-tc-queue-map, -trimming, -hash, -buffer-queue of sonic-buildimage (2026);",
        "shape of the tables: its qos_config.j2; packet_discard_action: SONiC's packet trimming design 0.3;",
        "thresholds with min = max: Arista-7050-QX-32S/qos.json there; range of dynamic_th: assumed 1/128 to 8;",
        "nothing here was loaded into a SONiC or tried on hardware",
    ),
    notes=(
        "thresholds of their own for marks (ecn_green_min_threshold and the like: YANG sonic-wred-profile of 2026-06, "
        "sonic-swss pull request 4719) are too new for most switches and are not rendered",
        "on averaged depths: the chip's averaging is not in CONFIG_DB",
        "strict priority with ECN on one queue: Juniper advises against it for its own switches, SONiC says nothing",
        "a marked packet no longer tells ECT(0) from ECT(1)",
    ),
)

NAME = "DLCP"
HEADER_BYTES = 14 + 40 + 8 + 64
"""Ethernet, IPv6, UDP and dlcp."""
_Table = dict[str, dict[str, object]]


def body(policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
    """The tables, as `config load` reads them."""
    tables: dict[str, _Table] = {
        "DSCP_TO_TC_MAP": {NAME: {str(d): str(q) for d, q in dscp_of_queues(policy).items()}},
        "TC_TO_QUEUE_MAP": {NAME: {str(n): str(n) for n in range(TRAFFIC_CLASSES)}},
        "SCHEDULER": {f"{NAME}_STRICT": {"type": "STRICT"}},
        "WRED_PROFILE": {},
        "BUFFER_PROFILE": {},
        "PORT_QOS_MAP": {},
        "QUEUE": {},
        "BUFFER_QUEUE": {},
        "SWITCH_TRIMMING": {},
        "SWITCH_HASH": {},
    }
    if policy.pause_above_bytes is None:
        # Or the vendor's map sends classes 3 and 4 into lossless groups, which pause instead of dropping.
        tables["TC_TO_PRIORITY_GROUP_MAP"] = {NAME: {str(n): "0" for n in range(TRAFFIC_CLASSES)}}
    base = queues_of(policy, None, trims=True)
    # Of all queues or of none: the rows replace ranges of the vendor's, which may hold several queues.
    buffers = policy.shared_bytes is not None or any(
        queue.trim_bytes is not None for port in ports for queue in queues_of(policy, port, trims=True)
    )
    trims = False
    for port in ports:
        tables["PORT_QOS_MAP"][port] = _binding(policy, port, shape, tables)
        for queue in queues_of(policy, port, trims=True):
            name = f"{NAME}_Q{queue.number}"
            if queue != base[queue.number]:
                name += f"_{port}"
            entry: dict[str, object] = {"scheduler": f"{NAME}_STRICT"}
            if queue.curve is not None:
                tables["WRED_PROFILE"][name] = _wred(queue)
                entry["wred_profile"] = name
            tables["QUEUE"][f"{port}|{queue.number}"] = entry
            if buffers:
                tables["BUFFER_PROFILE"][name] = _buffer(policy, queue)
                tables["BUFFER_QUEUE"][f"{port}|{queue.number}"] = {"profile": name}
            trims = trims or queue.trim_bytes is not None
    if trims:
        tables["SWITCH_TRIMMING"]["GLOBAL"] = {
            "size": str(policy.trimmed_bytes),
            "dscp_value": str(policy.traffic_class(policy.trimmed_class).dscp[0]),
            "queue_index": str(policy.trimmed_class),
        }
    if policy.path_groups:
        fields = ["DST_IP", "SRC_IP", "IP_PROTOCOL", "L4_DST_PORT", "L4_SRC_PORT"]
        tables["SWITCH_HASH"]["GLOBAL"] = {"ecmp_hash": fields, "lag_hash": fields}
    return json.dumps({k: v for k, v in tables.items() if v}, indent=2).splitlines()


def _binding(policy: Policy, port: str, shape: bool, tables: dict[str, _Table]) -> dict[str, object]:
    """The row of a port in PORT_QOS_MAP; adds its shaper to the tables."""
    row: dict[str, object] = {"dscp_to_tc_map": NAME, "tc_to_queue_map": NAME}
    if policy.pause_above_bytes is None:
        row["tc_to_pg_map"] = NAME
        row["pfc_enable"] = ""  # the vendor's default is 3,4
    described = policy.port(port)
    if shape and described is not None:
        scheduler = f"{NAME}_{port}"
        pir = str(max(1, described.rate_bps // 8))
        tables["SCHEDULER"][scheduler] = {"type": "STRICT", "meter_type": "bytes", "pir": pir}
        row["scheduler"] = scheduler
    return row


def _wred(queue: Queue) -> dict[str, object]:
    assert queue.curve is not None
    curve = queue.curve
    profile: dict[str, object] = {"ecn": "ecn_all"}
    # Packets are green unless something colours them; the others get the same thresholds.
    for colour in ("green", "yellow", "red"):
        profile |= {
            f"wred_{colour}_enable": "true",
            f"{colour}_min_threshold": str(curve.min_bytes),
            f"{colour}_max_threshold": str(curve.max_bytes),
            f"{colour}_drop_probability": str(curve.percent),
        }
    return profile


def _buffer(policy: Policy, queue: Queue) -> dict[str, object]:
    """Where the queue ends in the shared buffer, and whether what finds no room is trimmed."""
    profile: dict[str, object] = {"pool": _POOL, "size": "0"}
    if policy.shared_bytes is not None:
        profile["dynamic_th"] = str(clamped_alpha(policy, SYSTEM))
    else:  # of a queue that does not trim: more than any pool has, so that the pool alone is its end
        profile["static_th"] = str(MAX_BYTES if queue.trim_bytes is None else queue.trim_bytes)
    profile["packet_discard_action"] = "drop" if queue.trim_bytes is None else "trim"
    return profile


def own_caveats(policy: Policy, ports: Sequence[str]) -> Iterator[Caveat]:
    """What only trimming by SONiC needs."""
    queues = [queue for port in ports for queue in queues_of(policy, port, trims=True)]
    if all(queue.trim_bytes is None for queue in queues):
        return
    if not policy.traffic_class(policy.trimmed_class).dscp:
        yield refused(
            "trimmed_class",
            f"trimmed packets go on in class {policy.trimmed_class}",
            "that class has no DSCP value, and SWITCH_TRIMMING wants one to write; give it one",
        )
    if policy.trimmed_bytes < HEADER_BYTES:
        yield differs(
            "trimmed_bytes",
            f"{policy.trimmed_bytes} bytes are left of a trimmed packet",
            f"that many are, but a receiver reads nothing of it: dlcp's header ends at {HEADER_BYTES} over IPv6",
        )
    if policy.shared_bytes is None:
        yield differs(
            "shared_bytes",
            "a trim threshold in bytes is a static_th",
            f"`show mmu` must say mode static for {_POOL}; it is dynamic by default, and takes shared_alpha_log2",
        )
