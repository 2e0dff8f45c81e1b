"""`dlcp switch`: its words, exit statuses, what is printed, and that signals undo, in processes of their own."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.switch import Policy
from dlcp.switch.command import WORDS
from dlcp.switch.policy import Thresholds
from dlcp.switch.starting_policy import separate_dscp, starting_policy, starting_text
from dlcp.transport import Settings as TransportSettings

pytest.importorskip("finsy", reason="needs the packages of the extra p4")

from dlcp.switch.deploy.transaction import Settings, deploy
from tests.support.deployment import NEW, OLD, desired, open_session, state, topology_text
from tests.support.p4runtime import P4RuntimeServer

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def server() -> Iterator[P4RuntimeServer]:
    """A switch that holds the old policy."""
    with P4RuntimeServer(device_id=2) as one:
        deploy([desired(one)], open_session, Settings())
        yield one


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with old.toml and new.toml."""
    OLD.save(tmp_path / "old.toml")
    NEW.save(tmp_path / "new.toml")
    return tmp_path


def fabric(files: Path, *servers: P4RuntimeServer) -> list[str]:
    """The words that name the switches."""
    path = files / "topology.toml"
    path.write_text(topology_text(*servers))
    return ["--target", str(path)]


def dlcp(*words: str) -> int:
    """`dlcp switch …` in this process."""
    try:
        return main(["switch", *words])
    except SystemExit as end:  # argparse
        return int(end.code or 0)


# --- the door -------------------------------------------------------------------------------------------------


def test_every_word_has_a_help(capsys: Printed) -> None:
    assert dlcp("--help") == 0
    listed = capsys.readouterr().out
    for word in WORDS:
        assert f"\n  {word}" in listed
        assert dlcp(word, "--help") == 0
        assert f"usage: dlcp switch {word}" in capsys.readouterr().out


def test_unknown_word_is_one_line_with_a_hint(capsys: Printed) -> None:
    assert dlcp("deplay") == 2
    assert capsys.readouterr().err == (
        "dlcp switch: 'deplay' is unknown; did you mean deploy? `dlcp switch --help` lists them\n"
    )
    assert dlcp("x") == 2
    assert "accepted: policy, show, deploy" in capsys.readouterr().err


def test_no_word_is_bad_input(capsys: Printed) -> None:
    assert dlcp() == 2
    assert "usage: dlcp switch WORD" in capsys.readouterr().out


# --- policy and show ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    ["", "--rate 100G", "--no-trim", "--separate", "--rate 25gbps --rtt-us 200", "--rate 100M --ports 4"],
)
def test_starting_policy_is_one_that_can_be_shown(words: str, tmp_path: Path, capsys: Printed) -> None:
    assert dlcp("policy", *words.split()) == 0
    path = tmp_path / "policy.toml"
    path.write_text(capsys.readouterr().out)
    Policy.load(path)
    assert dlcp("show", str(path)) == 0
    shown = capsys.readouterr().out
    assert "control" in shown
    assert "critical" in shown


def test_starting_policys_file_is_the_policy() -> None:
    for separate, trim in itertools.product((False, True), repeat=2):
        policy = starting_policy(10**10, separate=separate, trim=trim)
        text = starting_text(policy, 10**10)
        assert Policy.from_toml(text) == policy
        assert max(map(len, text.splitlines())) <= 120


def test_policy_says_which_rates_are_alike() -> None:
    said = "from 10 Gbit/s to 25.6 Gbit/s: these rates have one policy"
    for rate_bps in (10**10, 25 * 10**9, 25_600_000_000):
        policy = starting_policy(rate_bps)
        assert policy == starting_policy(10**10)
        assert said in starting_text(policy, rate_bps)
    for rate_bps in (9 * 10**9, 26 * 10**9):
        policy = starting_policy(rate_bps)
        assert policy != starting_policy(10**10)
        assert said not in starting_text(policy, rate_bps)


def test_worked_example_is_what_the_command_prints_and_a_path_group(
    repository: Path, capsys: Printed
) -> None:
    assert dlcp("policy", "--rate", "10G", "--separate") == 0
    printed = capsys.readouterr().out
    group = '[path_groups]\nuplinks = ["up1", "up2"]\n\n'
    expected = printed.replace("[thresholds.data]", f"{group}[thresholds.data]", 1)
    text = (repository / "docs" / "switch" / "policy.toml").read_text()
    assert text.split("\n#\n", 1)[1] == expected


def test_starting_thresholds_follow_their_rule() -> None:
    policy = starting_policy(100 * 10**9, rtt_s=100e-6, packet_bytes=1500)
    data = policy.traffic_class(3)
    assert policy.port_bytes is None
    assert (policy.shared_bytes, policy.shared_alpha_log2) == (32 * 500_000, -1)
    assert data.critical.mark_from_bytes == round(100e9 * 100e-6 / 8 / 7)  # above 65 packets
    # Critical packets are cut above the share, droppable ones from three quarters of it on.
    assert data.critical == Thresholds(data.critical.mark_from_bytes, trim_above_bytes=500_000)
    assert (data.level(0).trim_above_bytes, data.level(7).trim_above_bytes) == (375_000, 437_500)
    dropping = starting_policy(100 * 10**9, rtt_s=100e-6, trim=False).traffic_class(3)
    assert dropping.critical == Thresholds(data.critical.mark_from_bytes, drop_above_bytes=500_000)
    # Half to three quarters of the share; above it there is room for critical ones.
    assert (dropping.level(0).drop_above_bytes, dropping.level(7).drop_above_bytes) == (250_000, 375_000)
    assert starting_policy(10**9).traffic_class(3).critical.mark_from_bytes == 20 * 1500


@pytest.mark.parametrize("rate_bps", [10**6, 10**9, 10**10, 10**13])
@pytest.mark.parametrize("packet_bytes", [256, 1500, 65535])
@pytest.mark.parametrize("ports", [1, 8, 32, 4096])
def test_starting_buffer_leaves_room_for_the_class_served_first(
    rate_bps: int, packet_bytes: int, ports: int
) -> None:
    policy = starting_policy(rate_bps, packet_bytes=packet_bytes, ports=ports)
    assert policy.shared_bytes is not None
    # The last queues of a port hold as much as they may, and so do foreign packets.
    full = [policy.shared_bytes / (2 + n) for n in range(1, 8)]  # of n queues, each: half of what is free
    assert policy.shared_bytes - 7 * full[-1] > 2 * packet_bytes
    # By right: a queue alone meets its thresholds; and so do six, all that a port has.
    for level in (level for c in policy.classes for level in c.levels):
        assert (level.trim_above_bytes or level.drop_above_bytes or 0) <= full[5]


def test_separate_policy_leaves_queue_0_to_others_and_says_how_jobs_keep_out() -> None:
    policy = starting_policy(10**10, separate=True)
    values = [int(word) for word in separate_dscp().split(",")]
    assert policy.foreign_class == 0
    assert 0 not in policy.class_of_dscp()
    assert [policy.class_of_dscp()[value] for value in values] == [1, 1, 2, 3, 4, 5, 6, 7]
    assert values == [11, 11, 19, 27, 35, 43, 51, 59]
    assert TransportSettings(dscp=tuple(values)).dscp == tuple(values)
    # Pool 2, and what routing protocols have, which is not to starve.
    assert {value for value in policy.class_of_dscp() if value % 4 != 3} == {48, 56}
    assert policy.traffic_class(7).dscp == (59, 48, 56), "the first is written into trimmed packets"
    assert policy.traffic_class(7).critical == Thresholds()


@pytest.mark.parametrize(
    "words",
    [
        ["--rate", "10"],
        ["--rate", "0.1M"],
        ["--packet-bytes", "9"],
        ["--rtt-us", "0"],
        ["--ports", "0"],
        ["--rate", "25GB"],
    ],
)
def test_policy_out_of_range_is_one_line(words: list[str], capsys: Printed) -> None:
    assert dlcp("policy", *words) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "accepted" in said


def test_show_names_what_is_wrong(files: Path, capsys: Printed) -> None:
    (files / "bad.toml").write_text("port_bytes = 0\n")
    assert dlcp("show", str(files / "bad.toml")) == 2
    assert capsys.readouterr().err == (
        f"dlcp switch: {files}/bad.toml:1: port_bytes is 0; accepted: an integer from 1 to 4294967294\n"
    )
    assert dlcp("show", str(files / "none.toml")) == 2
    assert "none.toml: No such file" in capsys.readouterr().err


def test_show_with_a_topology_shows_the_switches(repository: Path, capsys: Printed) -> None:
    docs = repository / "docs" / "switch"
    assert dlcp("show", str(docs / "policy.toml"), "--target", str(docs / "topology.toml")) == 0
    assert "leaf1   192.0.2.11:9559  host1, host2, up1, up2  uplinks: up1, up2" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--rate", "-5G"), ("--rate=-5G",)])
def test_policy_for_a_negative_rate_says_what_is_accepted(words: tuple[str, ...], capsys: Printed) -> None:
    assert dlcp("policy", *words) == 2
    assert "argument --rate: '-5G' is not a rate; accepted: such as 500k" in capsys.readouterr().err


# --- deploy ---------------------------------------------------------------------------------------------------


def test_dry_run_shows_the_differences_and_writes_nothing(
    files: Path, server: P4RuntimeServer, capsys: Printed
) -> None:
    before = (server.writes, server.pushes, state(server))
    assert dlcp("deploy", str(files / "new.toml"), *fabric(files, server), "--dry-run") == 0
    shown = capsys.readouterr().out
    assert f"\ns1 ({server.address}): " in shown
    assert "\n  + classify dscp 10: set_class(traffic_class=1)\n" in shown
    assert "\n  ~ classify dscp 8: set_class(traffic_class=2)   (was traffic_class=1)\n" in shown
    assert "\n  - classify dscp 56: set_class(traffic_class=7)\n" in shown
    assert shown.startswith(f"note: {files}/new.toml:")
    assert "P4Runtime sets no rates" in shown
    assert (server.writes, server.pushes, state(server)) == before


def test_deployed_twice_the_second_time_says_so(
    files: Path, server: P4RuntimeServer, capsys: Printed
) -> None:
    words = ["deploy", str(files / "new.toml"), *fabric(files, server)]
    assert dlcp(*words) == 0
    assert capsys.readouterr().out.endswith("1 switch holds the policy now, read back and verified\n")
    writes = server.writes
    assert dlcp(*words) == 0
    assert capsys.readouterr().out.endswith(f"s1 ({server.address}): holds it already\n")
    assert server.writes == writes


def test_json_is_one_document(files: Path, server: P4RuntimeServer, capsys: Printed) -> None:
    words = ["deploy", str(files / "new.toml"), *fabric(files, server), "--json"]
    assert dlcp(*words, "--dry-run") == 0
    plan = json.loads(capsys.readouterr().out)
    assert not plan["deployed"]
    assert plan["switches"][0]["pipeline"] == "same"
    kinds = {change["kind"] for change in plan["switches"][0]["changes"]}
    assert kinds == {"insert", "modify", "delete"}
    assert dlcp(*words) == 0
    assert json.loads(capsys.readouterr().out)["deployed"]


def test_dry_run_that_would_be_refused_shows_and_refuses(
    files: Path, server: P4RuntimeServer, capsys: Printed
) -> None:
    somebody = server.occupy(70)
    assert dlcp("deploy", str(files / "new.toml"), *fabric(files, server), "--dry-run") == 2
    out, err = capsys.readouterr()
    assert "+ classify dscp 10" in out
    assert "another controller is connected and primary, with election id 70" in err
    assert err.count("\n") == 1
    assert somebody.is_primary


def test_only_some_switches(files: Path, server: P4RuntimeServer, capsys: Printed) -> None:
    with P4RuntimeServer(device_id=2) as other:
        words = ["deploy", str(files / "old.toml"), *fabric(files, server, other), "--only"]
        assert dlcp(*words, "s2") == 0
        assert f"s1 ({server.address})" not in capsys.readouterr().out
        assert other.pushes == 1
        assert dlcp(*words, "s3") == 2
        assert "--only is 's3'; accepted: a switch of the topology: s1, s2" in capsys.readouterr().err


def test_policy_that_bmv2_cannot_do_is_refused_before_anything_is_connected(
    files: Path, server: P4RuntimeServer, capsys: Printed
) -> None:
    path = files / "pfc.toml"
    path.write_text("port_bytes = 100\npause_above_bytes = 90\n")
    writes = server.writes
    words = ["deploy", str(path), *fabric(files, server)]
    assert dlcp(*words) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"dlcp switch: {path}:2: pause_above_bytes = 90: BMv2 sends no pause frames")
    assert said.endswith("--accept pause_above_bytes\n")
    assert server.writes == writes
    assert dlcp(*words, "--accept", "pause_above_bytes") == 0
    assert "note: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--timeout", "0"], "argument --timeout: '0': accepted: a number above 0"),
        (["--timeout", "nan"], "argument --timeout"),
        (["--via", "ssh"], "argument --via"),
        (
            ["--via", "shell"],
            "--via shell needs --shell-python, a Python with p4runtime-shell; make one: python3 -m",
        ),
        (
            ["--via", "shell", "--shell-python", "/no/python"],
            "--shell-python is '/no/python', which is no program",
        ),
    ],
)
def test_bad_words_are_one_line(
    words: list[str], said: str, files: Path, server: P4RuntimeServer, capsys: Printed
) -> None:
    assert dlcp("deploy", str(files / "new.toml"), *fabric(files, server), *words) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_port_that_no_switch_has_is_named(files: Path, server: P4RuntimeServer, capsys: Printed) -> None:
    (files / "ports.toml").write_text('port_bytes = 1000\n[[port]]\nname = "swp9"\nrate_bps = 1000\n')
    assert dlcp("deploy", str(files / "ports.toml"), *fabric(files, server)) == 2
    said = capsys.readouterr().err
    assert "the policy's port[0].name is 'swp9', which no switch has; accepted: a, b, c, d, e" in said


def test_missing_package_is_named_with_what_to_install(
    files: Path, server: P4RuntimeServer, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for word in (["deploy", str(files / "new.toml")], ["status"]):
        assert dlcp(*word, *fabric(files, server)) == 2
        assert capsys.readouterr().err == (
            "dlcp switch: P4Runtime needs the package finsy: pip install '.[p4]' in a checkout of dlcp\n"
        )


# --- signals --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def in_the_middle(
    files: Path, server: P4RuntimeServer, other: P4RuntimeServer
) -> Iterator[subprocess.Popen[str]]:
    """A deployment of the new policy, in a process, that waits for the ninth update of `other`."""
    other.faults.hang_at_update(9)
    words = ["deploy", str(files / "new.toml"), *fabric(files, server, other), "--timeout", "30"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dlcp", "switch", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert other.faults.hanging.wait(100), process.communicate(timeout=5)
        yield process
    finally:
        other.faults.release()
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_in_the_middle_undoes_what_was_written(
    number: signal.Signals, files: Path, server: P4RuntimeServer
) -> None:
    with P4RuntimeServer(device_id=2) as other:
        deploy([desired(other, "s2")], open_session, Settings())
        before = [state(server), state(other)]
        with in_the_middle(files, server, other) as process:
            process.send_signal(number)
            time.sleep(0.2)
            process.send_signal(number)  # impatience changes nothing
            other.faults.release()
            _, err = process.communicate(timeout=100)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert "every switch holds what it held" in err
        assert [state(server), state(other)] == before


def test_process_that_is_killed_leaves_what_the_next_deployment_finds(
    files: Path, server: P4RuntimeServer
) -> None:
    with P4RuntimeServer(device_id=2) as other:
        deploy([desired(other, "s2")], open_session, Settings())
        before = [state(server), state(other)]
        with in_the_middle(files, server, other) as process:
            process.kill()
        assert state(other) != before[1], "nothing was written yet, so nothing is shown"
        deploy([desired(server), desired(other, "s2")], open_session, Settings(take_over=True))
        assert [state(server), state(other)] == before
