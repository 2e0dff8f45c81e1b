"""A policy onto this host's interfaces by tc: all of them, or none.

Before it touches an interface, `apply` builds everything on a scratch interface and reads it back. A kernel without
sch_red, or a number that it does not take, thus fails where it does no harm. Afterwards the real interface has to show
what the scratch one showed. If an interface fails nevertheless, all go back to what they had. Applying the same policy
again changes nothing. `apply` replaces the system's default queues and its own, and refuses an interface with anybody
else's. It writes what it applied last to /run/dlcp/switch, one file per interface. Root of `unshare -Urn` often may not
write there; after a failure such an interface then gets the system's default.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlcp.errors import DlcpError, InterfaceError, ResourceError
from dlcp.switch.policy import Policy
from dlcp.switch.render import htb, tc
from dlcp.switch.render.caveat import Caveat, RenderError, differs

STATE = Path("/run/dlcp/switch")
QDISCS = ("red", "htb")
_VARYING = {"direct_qlen", "direct_packets_stat"}
"""Of HTB: how long the device's own queue is, and a counter."""
_DEFAULTS = {"noqueue", "mq", "pfifo_fast", "fq_codel", "pfifo", "fq", "cake"}
"""Root queues that the kernel makes by itself; with handle 0, or else a person made them."""


class KernelError(DlcpError):
    """This kernel, or its tc, refuses the queues. No interface was changed."""


class ApplyError(DlcpError):
    """An interface refused what the scratch one took. All are as before, except those that the text names."""


@dataclass(frozen=True)
class Change:
    """What applying does to one interface."""

    interface: str
    before: str
    """`none` (the system's default), `same`, or `ours`: another policy of ours."""
    commands: tuple[str, ...]
    """Lines for `tc -batch`."""


def commands_for(policy: Policy, interface: str, qdisc: str = "red") -> list[str]:
    """The commands of tc for one interface, without the word tc."""
    if qdisc not in QDISCS:
        raise RenderError(f"no qdisc {qdisc!r}; accepted: {', '.join(QDISCS)}")
    if qdisc == "red":
        return tc.commands(policy, interface, shape=True)
    port = policy.port(interface)
    if port is None:
        raise RenderError(
            f"HTB wants the rate of {interface!r}: a [[port]] of the policy with that name and its rate_bps"
        )
    return htb.commands(policy, port)


def caveats_for(policy: Policy, interfaces: Sequence[str], qdisc: str) -> list[Caveat]:
    """What HTB lacks; RED's own are the renderer's."""
    if qdisc != "htb":
        return []
    asks = any(
        limit is not None
        for traffic_class in policy.every_class()
        for at in traffic_class.levels
        for limit in (at.drop_above_bytes, at.mark_from_bytes, at.trim_above_bytes)
    )
    return [differs("class", "thresholds", htb.LACKS)] if asks else []


def apply(
    policy: Policy,
    interfaces: Sequence[str],
    qdisc: str = "red",
    *,
    dry_run: bool = False,
    state: Path | None = None,
) -> list[Change]:
    """Puts the policy onto interfaces of the calling thread's network namespace; returns what changed.

    `dry_run`: only rehearses on the scratch interface. InterfaceError: an interface does not exist, or has somebody
    else's queues. KernelError: nothing can be applied here. ApplyError: it was taken back.
    """
    state = STATE if state is None else state
    _check_host(interfaces)
    wanted = {name: commands_for(policy, name, qdisc) for name in interfaces}
    changes, expected = [], {}
    for name in interfaces:
        before = _before(name)
        expected[name] = _rehearse(name, wanted[name])
        if before == "ours" and _shown(name) == expected[name]:
            before = "same"
        changes.append(Change(name, before, tuple(wanted[name])))
    if dry_run:
        return changes
    done: list[Change] = []
    try:
        for change in changes:
            if change.before == "same":
                continue
            done.append(change)
            _replace(change.interface, change.commands)
            if _shown(change.interface) != expected[change.interface]:
                raise KernelError(f"{change.interface} shows other queues than the scratch interface did")
    except BaseException as error:  # Ctrl-C as well: all or none
        failed = [change.interface for change in done if not _undone(change, state)]
        if not isinstance(error, KernelError):
            raise
        rest = f"; {', '.join(failed)} could not be restored and has the system's default" if failed else ""
        raise ApplyError(f"taken back: {error}{rest}") from None
    for change in changes:
        _remember(change, state)
    return changes


def remove(interfaces: Sequence[str], *, dry_run: bool = False, state: Path | None = None) -> list[Change]:
    """Gives interfaces the system's default queues back. Interfaces without queues of ours stay as they are."""
    state = STATE if state is None else state
    _check_host(interfaces)
    changes = [Change(name, _before(name), ()) for name in interfaces]
    if not dry_run:
        for change in changes:
            if change.before == "ours":
                _replace(change.interface, ())
            with contextlib.suppress(OSError):
                _file(change.interface, state).unlink()
    return changes


# ---- what is there ----


def _check_host(interfaces: Sequence[str]) -> None:
    if shutil.which("tc") is None or shutil.which("ip") is None:
        raise KernelError("there is no tc or no ip here (Debian: iproute2)")
    if os.geteuid() != 0:
        raise ResourceError("queues of interfaces are root's: run it as root, or in `unshare -Urn`")
    if not interfaces:
        raise InterfaceError("no interface: give --dev IFACE, or [[port]]s in the policy")
    present = [link["ifname"] for link in json.loads(_run("ip", "-j", "link", "show"))]
    for name in interfaces:
        if name not in present:
            raise InterfaceError(f"there is no interface {name!r}; there are: {', '.join(present)}")


def _before(name: str) -> str:
    """Whose the root queue of an interface is."""
    roots = [q for q in _qdiscs(name) if q.get("root")]
    if not roots or (roots[0]["handle"] == "0:" and roots[0]["kind"] in _DEFAULTS):
        return "none"
    if roots[0]["handle"].rstrip(":") in (tc.ROOT, tc.PRIO):
        return "ours"
    kind, handle = roots[0]["kind"], roots[0]["handle"]
    raise InterfaceError(
        f"{name} has queues of somebody else ({kind} {handle}); remove them first: tc qdisc del dev {name} root"
    )


def _qdiscs(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(_run("tc", "-j", "-d", "qdisc", "show", "dev", name) or "[]")
    return [q for q in found if q["kind"] not in ("ingress", "clsact")]


def _shown(name: str) -> tuple[object, ...]:
    """All that tc shows of the queues, classes and filters of an interface, less what differs between interfaces."""
    qdiscs = []
    for qdisc in _qdiscs(name):
        options = {key: value for key, value in qdisc.get("options", {}).items() if key not in _VARYING}
        entry = {key: value for key, value in qdisc.items() if key not in ("refcnt", "options", "dev")}
        qdiscs.append(json.dumps([entry, options], sort_keys=True))
    classes = sorted(_run("tc", "class", "show", "dev", name).splitlines())
    filters = []
    for handle in (tc.ROOT, tc.PRIO):
        if any(q["handle"] == f"{handle}:" for q in _qdiscs(name)):
            filters += _run("tc", "filter", "show", "dev", name, "parent", f"{handle}:").splitlines()
    return sorted(qdiscs), classes, filters


# ---- changing it ----


def _rehearse(name: str, commands: Sequence[str]) -> tuple[object, ...]:
    """What the kernel shows when the queues of `name` are on a scratch interface. KernelError if it cannot."""
    with _scratch() as scratch:
        _replace(scratch, [_renamed(line, name, scratch) for line in commands])
        return _shown(scratch)


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """An interface for nothing: one end of a cable, both ends down."""
    name = f"dlcp{os.getpid()}"[:14]
    _run("ip", "link", "add", f"{name}a", "type", "veth", "peer", "name", f"{name}b")
    try:
        yield f"{name}a"
    finally:
        subprocess.run(["ip", "link", "del", f"{name}a"], capture_output=True)


def _renamed(line: str, name: str, other: str) -> str:
    return line.replace(f" dev {name} ", f" dev {other} ", 1)


def _replace(name: str, commands: Sequence[str]) -> None:
    """Removes the root queue, if one was made, and builds another."""
    if any(q.get("root") and q["handle"] != "0:" for q in _qdiscs(name)):
        _run("tc", "qdisc", "del", "dev", name, "root")
    if commands:
        _run("tc", "-batch", "-", text="\n".join(commands) + "\n")


def _undone(change: Change, state: Path) -> bool:
    """Takes an interface back to what it had. False: that failed, or the file that says what it had is gone."""
    try:
        _replace(change.interface, ())
        if change.before == "ours":
            _replace(change.interface, _file(change.interface, state).read_text().splitlines())
    except (KernelError, OSError):
        return False
    return True


def _file(name: str, state: Path) -> Path:
    """The lines for tc that were applied last to an interface, by namespace, since names repeat in namespaces."""
    return state / f"{Path('/proc/thread-self/ns/net').stat().st_ino}-{name}.tc"


def _remember(change: Change, state: Path) -> None:
    with contextlib.suppress(OSError):
        state.mkdir(parents=True, exist_ok=True)
        _file(change.interface, state).write_text("".join(f"{line}\n" for line in change.commands))


_UNKNOWN = re.compile(r"qdisc kind is unknown|Unknown qdisc \"(\w+)\"", re.IGNORECASE)


def _run(*words: str, text: str | None = None) -> str:
    """Runs a command; KernelError says what it complained about, and of which line."""
    done = subprocess.run(words, input=text, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    complaint = " ".join(done.stderr.split())
    line = ""
    if text is not None and (at := re.search(r"Command failed -:(\d+)", done.stderr)):
        line = text.splitlines()[int(at.group(1)) - 1]
    kind = re.search(r": (\w+) ", line)
    if _UNKNOWN.search(complaint) and kind is not None:
        raise KernelError(
            f"this kernel has no {kind.group(1)} queue (sch_{kind.group(1)}); no interface was changed. "
            "`--qdisc htb` gives strict priority without marks and selective drops"
        )
    raise KernelError(f"{' '.join(words)}: {complaint}" + (f" (at: tc {line})" if line else ""))
