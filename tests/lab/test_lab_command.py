"""`dlcp lab` as people use it: up and down, ranks and their exit status, faults, and what is left after a kill."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.lab import state
from dlcp.lab.fabric import Fabric
from dlcp.lab.fault import FabricError, Fault
from dlcp.lab.namespaces import NETNS, processes, started_at
from dlcp.lab.policies import usual
from dlcp.lab.switched_lab import SwitchedLab, missing
from tests.lab.switched import namespaces_of

LAB = [sys.executable, "-m", "dlcp", "lab"]
# No switch processes: what is tested here is not theirs.
PLAIN = ["star", "--switch", "none"]
PATIENCE_S = 200.0  # ends what would hang; far above what anything here takes

needs_lab = pytest.mark.skipif((reason := missing()) is not None, reason=reason or "")
pytestmark = [pytest.mark.needs_root, needs_lab]


def dlcp(*words: object, timeout_s: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAB, *map(str, words)], capture_output=True, text=True, timeout=timeout_s)


@pytest.fixture
def name() -> Iterator[str]:
    """Of a lab that no other run has; taken down afterwards."""
    own = f"t{os.getpid()}"
    yield own
    dlcp("down", "--name", own)
    assert not (state.root() / own).exists()
    assert not [one for one in namespaces_of("dlcp-") if f"-{own}-" in one]


def await_namespaces(lab: str) -> list[str]:
    """The namespaces of a lab, once its ranks run."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        names = [one for one in namespaces_of("dlcp-") if f"-{lab}-" in one]
        inside = processes([one for one in names if "-h" in one])
        if len(names) == 5 and sum(program(pid) == "sleep" for pid in inside) >= 4:
            return names
        time.sleep(0.02)
    raise AssertionError(f"{lab} did not come up")


def program(pid: int) -> str:
    """What a process runs; empty: it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def await_gone(names: list[str], pids: list[int], lab: str | None = None) -> None:
    """Until there are no such namespaces and processes any more, nor what is kept of the lab, which goes last."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        left = [one for one in names if (NETNS / one).exists()]
        if lab is not None and (state.root() / lab).exists():
            left.append(lab)
        # One that nobody has waited for yet has no start any more.
        alive = [pid for pid in pids if started_at(pid)]
        if not left and not alive:
            return
        time.sleep(0.02)
    raise AssertionError(f"left: {left}, {alive}")


def test_up_stands_can_be_used_and_goes_down(name: str) -> None:
    up = dlcp("up", *PLAIN, "--name", name)
    assert up.returncode == 0, up.stderr
    assert f"lab {name} is up: 4 hosts at 100 Mbit/s" in up.stdout
    assert f"at the end: dlcp lab down --name {name}\n" in up.stdout
    again = dlcp("up", *PLAIN, "--name", name)
    assert again.returncode == 2
    assert f"lab '{name}' is up already" in again.stderr

    ping = dlcp("exec", "h0", "--name", name, "--", "ping", "-c", "1", "-W", "2", "10.78.0.4")
    assert ping.returncode == 0, ping.stdout
    assert dlcp("exec", "h1", "--name", name, "--", "sh", "-c", "exit 7").returncode == 7
    assert dlcp("exec", "l0", "--name", name, "--", "true").returncode == 0
    wrong = dlcp("exec", "s9", "--name", name, "--", "true")
    assert wrong.returncode == 2
    assert "no host 's9'; accepted: h0, h1, h2, h3, l0" in wrong.stderr

    cut = dlcp("fault", "h3-l0", "--down", "--name", name)
    assert cut.stdout == "h3-l0: down\n"
    assert dlcp("exec", "h0", "--name", name, "--", "ping", "-c", "1", "-W", "1", "10.78.0.4").returncode == 1
    told = json.loads(dlcp("status", "--json", "--name", name).stdout)
    assert {one["name"]: one["fault"] for one in told["links"]}["h3-l0"] == {"down": True}
    assert told["ports"]["l0"]["h3"]["up"] is False
    rows = [line.split() for line in dlcp("status", "--name", name).stdout.splitlines() if "→" in line]
    assert [(row[:4]) for row in rows] == [["l0", "→", "h3", "down"]]
    assert dlcp("fault", "h3-l0", "--up", "--name", name).stdout == "h3-l0: none\n"
    ping = dlcp("exec", "h0", "--name", name, "--", "ping", "-6", "-c", "1", "-W", "2", "fd78::4")
    assert ping.returncode == 0, ping.stdout
    status = dlcp("status", "--name", name).stdout
    assert "h3-l0  100 Mbit/s  none" in status

    assert dlcp("down", "--name", name).stdout == f"lab {name} is down\n"
    assert dlcp("status", "--name", name).returncode == 2


def test_software_switches_outlive_the_command_that_started_them(name: str, tmp_path: Path) -> None:
    pytest.importorskip("dlcp._native", reason="the extension module is not built")
    assert dlcp("up", "star", "--name", name).returncode == 0
    (switch,) = processes([one for one in namespaces_of("dlcp-") if f"-{name}-l0" in one])
    ping = dlcp("exec", "h0", "--name", name, "--", "ping", "-c", "2", "-i", "0.2", "-W", "2", "10.78.0.4")
    assert ping.returncode == 0, ping.stdout
    assert dlcp("fault", "h0-l0", "--loss", "0.5", "--rate", "5M", "--name", name).returncode == 0
    refused = dlcp("fault", "h0-l0", "--burst", "0.1,0.2", "--name", name)
    assert (
        "h0-l0 already loses 0.5, and bursts beside that only kernel switches can; add --clear"
        in refused.stderr
    )
    fast = dlcp("fault", "h0-l0", "--rate", "200M", "--name", name)
    assert "rate is 200 Mbit/s; accepted: less than the 100 Mbit/s that h0-l0 has" in fast.stderr
    bursts = dlcp("fault", "l0-h0", "--burst", "0.1,0.2", "--rate", "5M", "--clear", "--name", name)
    assert bursts.stdout == "h0-l0: bursts 0.1,0.2,1, slow, 5 Mbit/s\n"
    again = dlcp("fault", "h0-l0", "--loss", "0.5", "--rate", "5M", "--clear", "--name", name)
    assert again.returncode == 0
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[[class]]\nnumber = 3\ndscp = [0]\n')
    assert dlcp("policy", path, "--name", name).stdout == f"lab {name}: policy mine\n"
    status = dlcp("status", "--name", name).stdout
    assert "switches: software, policy mine" in status
    assert "h0-l0  100 Mbit/s  loses 0.5, slow, 5 Mbit/s" in status
    assert dlcp("fault", "h0-l0", "--clear", "--name", name).stdout == "h0-l0: none\n"
    assert dlcp("down", "--name", name).returncode == 0
    await_gone([], [switch])  # it may still be on its way out of its namespaces


def test_run_is_a_job_and_its_status_is_the_first_failure(name: str) -> None:
    script = (
        "echo $RANK of $WORLD_SIZE at $MASTER_ADDR on $DLCP_INTERFACE; [ $RANK != 2 ] || exit 5; sleep 1000"
    )
    # If the others were waited for, this would not end within the test's time.
    done = dlcp("run", *PLAIN, "--name", name, "--", "sh", "-c", script)
    assert done.returncode == 5, done.stderr
    assert "[2] 2 of 4 at 10.78.0.1 on eth-lab" in done.stdout.splitlines()
    assert "rank 2 on h2 ended with status 5; the others are ended" in done.stderr


def test_run_on_some_hosts_succeeds_and_shows_status(name: str) -> None:
    words = ("run", *PLAIN, "--hosts", "1,3", "--status", "--name", name, "--", "sh", "-c")
    done = dlcp(*words, "echo $RANK of $WORLD_SIZE at $MASTER_ADDR; hostname -I")
    assert done.returncode == 0, done.stderr
    assert "[0] 0 of 2 at 10.78.0.2" in done.stdout
    assert "[1] 10.78.0.4" in done.stdout
    assert f"lab {name}: 4 hosts, one switch, switches: none" in done.stdout


def test_rank_that_a_signal_kills_is_told_as_shells_do(name: str) -> None:
    done = dlcp("run", *PLAIN, "--name", name, "--hosts", "0", "--", "sh", "-c", "kill -SEGV $$")
    assert done.returncode == 128 + signal.SIGSEGV


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_run_takes_the_lab_down(name: str, number: int, status: int) -> None:
    words = [*LAB, "run", *PLAIN, "--name", name, "--", "sleep", "1000"]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as run:
        names = await_namespaces(name)
        pids = processes(names)
        run.send_signal(number)
        assert run.wait(PATIENCE_S) == status
        assert run.stderr is not None
        assert b"dlcp lab: interrupted; the lab is taken down" in run.stderr.read()
    await_gone(names, pids)


@pytest.mark.parametrize("kind", ["none", "software"])
def test_killed_run_leaves_nothing(name: str, kind: str) -> None:
    # A child in a session of its own, as daemons have.
    ranks = ["--", "sh", "-c", "setsid sleep 61 & sleep 60"]
    words = [*LAB, "run", "star", "--switch", kind, "--name", name, *ranks]
    with subprocess.Popen(words) as run:
        names = await_namespaces(name)
        pids = processes(names)
        switches = processes([one for one in names if one.endswith("-l0")])
        assert len(switches) == (kind == "software")
        run.kill()
    await_gone(names, pids, lab=name)


def test_killed_run_whose_reaper_died_too_is_cleared_away_by_the_next_command(name: str) -> None:
    words = [*LAB, "run", *PLAIN, "--name", name, "--", "sleep", "1000"]
    with subprocess.Popen(words) as run:
        names = await_namespaces(name)
        pids = processes(names)
        for reaper in reapers(names[0].rpartition("-")[0]):
            os.kill(reaper, signal.SIGKILL)
        run.kill()
    held = dlcp("fault", "h0-l0", "--down", "--name", name)
    assert held.returncode == 2
    assert f"lab '{name}' lost the process that held it" in held.stderr
    # Any lab does that comes up.
    assert dlcp("run", *PLAIN, "--", "true").returncode == 0
    await_gone(names, pids)


def reapers(prefix: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"dlcp.lab.reaper" in words and prefix.encode() in words:
                found.append(int(entry.name))
    assert found
    return found


def test_lab_that_stands_is_not_an_orphan(name: str) -> None:
    assert dlcp("up", *PLAIN, "--name", name).returncode == 0
    with SwitchedLab(Fabric(leaves=1, spines=0, hosts_per_leaf=2, switch="none")):
        assert SwitchedLab.find(name).hosts == 4
    assert SwitchedLab.find(name).hosts == 4


def test_lab_that_cannot_be_made_leaves_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise FabricError("no")

    bed = SwitchedLab(Fabric(leaves=1, spines=0, hosts_per_leaf=2, switch="none"), name=name)
    monkeypatch.setattr("dlcp.lab.plain.PlainSwitches.start", fail)
    with pytest.raises(FabricError, match="no"):
        bed.__enter__()
    assert not bed.directory.exists()
    assert not namespaces_of(bed.network.prefix)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["run", "star"], "no command; give one behind --"),
        (["run", "python", "train.py"], "behind --, such as: dlcp lab run SPEC -- python train.py"),
        (["exec", "h0", "ping", "-c", "1"], "behind --, such as: dlcp lab exec h0 -- ping"),
        (
            ["fault", "x", "--down", "--converge", "soon"],
            "'soon' is not accepted; accepted: 0 to 3600 seconds, or never",
        ),
        (["up", "ring"], "no fabric 'ring'; accepted: leaf-spine, star, or a TOML file"),
        (["up", "star", "--name", "Bad-Name"], "name is 'Bad-Name'; accepted: a small letter"),
        (["up", "star", "--rate", "fast"], "argument --rate: 'fast' is not a rate"),
        (["up", "star", "--switch", "none", "--leaves", "2"], "spines is 0; accepted: 1 to 16"),
        (["down", "--name", "nowhere"], "lab 'nowhere' is not up"),
        (["fault", "x", "--down", "--name", "nowhere"], "lab 'nowhere' is not up"),
        (["fault", "x", "--loss", "7"], "'7' is no fraction; if it is meant in percent, give 7% or 0.07"),
        (["fault", "x", "--loss", "101%"], "'101%' is not accepted; accepted: 0 to 1, or 0% to 100%"),
        (["fault", "x", "--burst", "1"], "is not ENTER,LEAVE[,LOSS]"),
        (["run", "star", "--switch", "none", "--hosts", "7", "--", "true"], "hosts has 7; accepted: 0 to 3"),
        (["status", "--", "true"], "status runs no command"),
    ],
)
def test_bad_words_are_one_line_and_status_2(words: list[str], complaint: str) -> None:
    done = dlcp(*words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_command_that_is_not_there_ends_as_in_a_shell(tmp_path: Path) -> None:
    """Before a lab is made for it."""
    for words in (("run", "star"), ("exec", "h0", "--name", "nowhere")):
        done = dlcp(*words, "--", "nosuchcmd")
        assert (done.returncode, done.stderr) == (127, "dlcp lab: nosuchcmd: command not found\n")
    plain = tmp_path / "plain.txt"
    plain.touch()
    done = dlcp("run", "star", "--", str(plain))
    assert (done.returncode, done.stderr) == (126, f"dlcp lab: {plain}: Permission denied\n")


def test_fault_without_a_wish_and_unknown_link_are_refused(name: str) -> None:
    assert dlcp("up", *PLAIN, "--name", name).returncode == 0
    assert "no fault; accepted: --loss" in dlcp("fault", "h0-l0", "--name", name).stderr
    assert (
        "link 'h0-s0' is not there; accepted: h0-l0"
        in dlcp("fault", "h0-s0", "--down", "--name", name).stderr
    )
    bed = SwitchedLab.find(name)
    with pytest.raises(FabricError, match="it obeys no policy"):
        bed.set_policy(usual(10**8))
    bed.set_fault("h0-l0", Fault(rate_bps=10**6))
    assert "slow, 1 Mbit/s" in dlcp("status", "--name", name).stdout


UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
PING = "ping -c 1 -W 2 10.78.0.1 > /dev/null && echo $RANK reached"
REACHED = ["", *(f"[{rank}] {rank} reached" for rank in range(4))]


def without(*tools: str) -> str | None:
    """Why this cannot be tried here, or None."""
    for tool in tools:
        if shutil.which(tool) is None:
            return f"needs {tool} (Debian: util-linux)"
    probe = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    return f"no user namespaces here: {probe.stderr.strip()}" if probe.returncode else None


@pytest.mark.skipif((why := without("unshare")) is not None, reason=why or "")
def test_run_works_in_a_user_namespace_and_kernel_switches_say_why_not() -> None:
    """What `run` does of itself without root: the same words, in namespaces where the user is root."""
    inside = [*UNSHARE, "env", "DLCP_LAB_INSIDE=1", *LAB]
    done = subprocess.run([*inside, "run", *PLAIN, "--", "sh", "-c", PING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == REACHED
    done = subprocess.run([*inside, "run", "star", "--", "sh", "-c", PING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == REACHED
    refused = subprocess.run(
        [*inside, "run", "star", "--switch", "kernel", "--", "true"], capture_output=True, text=True
    )
    assert refused.returncode == 2
    assert "switch is 'kernel': the system refuses BPF" in refused.stderr


@pytest.mark.skipif((why := without("unshare", "setpriv")) is not None, reason=why or "")
def test_run_needs_no_root(repository: Path) -> None:
    python = next(
        (p for p in (sys.executable, "/usr/bin/python3") if readable_by_nobody(p, repository)), None
    )
    if python is None:
        pytest.skip("an unprivileged user can read no Python 3.11 or not this source tree")
    words = [*NOBODY, "env", f"PYTHONPATH={repository}", python, "-m", "dlcp", "lab"]
    done = subprocess.run([*words, "run", *PLAIN, "--", "sh", "-c", PING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == REACHED
    up = subprocess.run([*words, "up", *PLAIN], capture_output=True, text=True)
    assert up.returncode == 2
    assert "the lab needs root" in up.stderr


def readable_by_nobody(python: str, repository: Path) -> bool:
    code = "import sys, dlcp.lab; sys.exit(sys.version_info < (3, 11))"
    shell = f"exec env PYTHONPATH={repository} {python} -c '{code}'"
    return subprocess.run([*NOBODY, "sh", "-c", shell], capture_output=True).returncode == 0
