"""The file in which a flight recorder leaves its operations: the format of torch's own, for torch's trace tool.

`torchfrtrace FOLDER` compares the files of all ranks and names the first operation that differs. The tool accepts
torch's own backends only, and takes a message within a group for a collective of all its members. So operations carry
the prefix of torch's backend for CPUs. Each direction between two ranks is written as a group of its own, in which the
i-th send belongs to the i-th receive.

The tool unpickles the files: whoever can write to the folder can run code as its reader. The default folder is
therefore readable and writable by this user only.
"""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlcp import __version__, _native
from dlcp.own_files import folder_fault
from dlcp.transport.recorder_entry import Entry, RecordedGroup, element_name

# The format that this writes: version_val in torch's FlightRecorder.hpp. The tool refuses to mix versions.
TRACE_VERSION = "2.10"
# The prefix of operations that the tool accepts for tensors of a CPU; it accepts no unknown one.
_TRACE_BACKEND = "gloo"
# torch's names of element types, and their sizes in bytes, by ours.
_ELEMENTS = {each.type.name: (each.recorder_name, each.nbytes) for each in _native.DATA_TYPES}
# Operations whose input and output are as large on all ranks, though some ranks bring only one of them.
_ONE_SIZE = frozenset({"all_reduce", "broadcast", "reduce", "all_gather_v", "reduce_scatter_v"})


def trace_of(groups: Sequence[RecordedGroup], entries: Sequence[Entry]) -> dict[str, Any]:
    """Open groups and operations as torch's flight recorder has them; JSON-able."""
    pg_config = {group.name: _group_config(group.name, group.description, group.members) for group in groups}
    traced_entries = []
    for entry in entries:
        traced, members = _trace_entry(entry)
        traced_entries.append(traced)
        name, description = traced["process_group"]
        pg_config.setdefault(name, _group_config(name, description, members))
    return {
        "version": TRACE_VERSION,
        "comm_lib_version": f"dlcp {__version__}",
        "nccl_comm_state": {},
        "pg_config": pg_config,
        "pg_status": {
            str(group.id): {
                "last_enqueued_collective": str(group.enqueued),
                "last_started_collective": str(group.enqueued),
                "last_completed_collective": str(group.completed),
            }
            for group in groups
        },
        "failures": {group.name: group.failure for group in groups if group.failure is not None},
        "entries": traced_entries,
    }


def write_trace(trace: dict[str, Any], target: Path) -> None:
    """Writes the file, replacing an old one; folders are made as needed, for this user alone. Raises OSError."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Whole or not at all: the tool may look at any time. The name must not look like a dump.
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            pickle.dump(trace, file)
        Path(temporary).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise


def dump_path(rank: int, directory: str | None, job: int) -> tuple[Path, bool]:
    """Where a rank writes, and whether nobody chose that folder, so that it must be this user's alone.

    All ranks of a host that ask with the same values write to one folder. `directory`: as set; None: where
    TORCH_FR_DUMP_TEMP_FILE says (a path that the rank is appended to), else a folder of this user and job among
    temporary files.
    """
    if directory is not None:
        return Path(directory) / f"rank_{rank}", False
    prefix = os.environ.get("TORCH_FR_DUMP_TEMP_FILE")
    if prefix:
        return Path(f"{prefix}{rank}"), False
    return Path(tempfile.gettempdir()) / f"dlcp-{os.getuid()}-{job:08x}" / f"rank_{rank}", True


def own_folder(folder: Path) -> Path:
    """`folder`, made if need be, if it is this user's and nobody else can write to it; else a fresh one beside it.

    Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if folder_fault(folder) is None:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{folder.name}-", dir=folder.parent))


def _group_config(name: str, description: str, members: Sequence[int]) -> dict[str, str]:
    return {"name": name, "desc": description, "ranks": str(list(members))}


def _trace_entry(entry: Entry) -> tuple[dict[str, Any], Sequence[int]]:
    """An operation as torch writes it, and the members of the group that it is written under."""
    group = entry.group
    type_name, item_bytes = _ELEMENTS.get(element_name(entry.dtype) or "u8", ("Byte", 1))
    input_nbytes, output_nbytes = entry.input_nbytes, entry.output_nbytes
    name, description = group.name, group.description
    members: Sequence[int] = group.members
    sequence = max(entry.sequence, 0)
    operation = entry.operation
    if entry.message:
        name, members, operation = _direction(entry)
        description = "messages"
        input_nbytes = output_nbytes = max(input_nbytes, output_nbytes)
    elif operation in _ONE_SIZE:
        input_nbytes = output_nbytes = max(input_nbytes, output_nbytes)
    has_data = operation != "barrier"
    traced = {
        "record_id": entry.id,
        "pg_id": group.id,
        "process_group": (name, description),
        "collective_seq_id": sequence,
        "p2p_seq_id": sequence if entry.message else 0,
        "op_id": entry.id,
        "is_p2p": entry.message,
        "profiling_name": f"{_TRACE_BACKEND}:{operation}",
        "input_sizes": [[input_nbytes // item_bytes]] if has_data else [],
        "output_sizes": [[output_nbytes // item_bytes]] if has_data else [],
        "input_dtypes": [type_name] if has_data else [],
        "output_dtypes": [type_name] if has_data else [],
        "time_created_ns": entry.created_ns,
        "time_discovered_started_ns": entry.started_ns or None,
        "time_discovered_completed_ns": entry.completed_ns or None,
        "timeout_ms": _milliseconds(entry.timeout_s),
        # torch knows no failure: what has ended without being completed has failed.
        "state": "started" if entry.state == "failed" else entry.state,
        "retired": entry.completed_ns != 0,
        "frames": [],
        "label": entry.label,
        "failure": entry.failure,
        "culprit": entry.culprit,
        "waiting_for": list(entry.waiting_for),
    }
    if entry.state == "completed":
        traced["duration_ms"] = (entry.completed_ns - (entry.started_ns or entry.created_ns)) / 1e6
    return traced, members


def _direction(entry: Entry) -> tuple[str, list[int], str]:
    """The group of two that stands for one direction between two ranks: its name, its members, the operation in it."""
    group = entry.group
    own = group.members[group.own]
    if entry.peer is None:
        # Nobody has answered yet, so nobody else has this operation.
        return f"{group.name} anyone->{own}", [own], "recv 0<-0"
    peer = group.members[entry.peer]
    source, destination = (own, peer) if entry.operation == "send" else (peer, own)
    members = sorted((source, destination))
    s, d = members.index(source), members.index(destination)
    operation = f"send {s}->{d}" if entry.operation == "send" else f"recv {d}<-{s}"
    return f"{group.name} {source}->{destination}", members, operation


def _milliseconds(timeout_s: float | None) -> int:
    """0: no limit, as which infinity and what is no number count too."""
    return int(1000 * timeout_s) if timeout_s is not None and math.isfinite(timeout_s) else 0
