"""control.h and the start of EAL: what a process keeps when DPDK starts in it, and when it does not start.

Each test has a process of its own, since DPDK starts, or fails to, once per process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support import dpdk

EAL = "--no-huge -m 64 --no-pci"

# What the child has: control.h by hand, so that a layout that drifts from dlcp.transport.dpdk shows too.
PRELUDE = """
import ctypes, json, os, sys, threading
from ctypes import c_char, c_int32, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64

class Port(ctypes.Structure):
    _fields_ = [("id", c_uint16), ("link_up", c_uint8), ("full_duplex", c_uint8), ("claimed", c_uint8),
                ("mac", c_uint8 * 6), ("numa_node", c_int32), ("mtu_bytes", c_uint32), ("speed_mbps", c_uint32),
                ("rx_queues_max", c_uint16), ("tx_queues_max", c_uint16), ("name", c_char * 64),
                ("driver", c_char * 32)]

class Statistic(ctypes.Structure):
    _fields_ = [("name", c_char * 56), ("value", c_uint64)]

control = ctypes.CDLL(sys.argv[1])
control.dlcp_dpdk_version.restype = ctypes.c_char_p
error = ctypes.create_string_buffer(2048)
out = {}

def start(arguments):
    error.value = b""
    code = control.dlcp_dpdk_start(arguments.encode(), error, c_size_t(len(error)))
    return [code, error.value.decode()]

def text(what):
    function = getattr(control, "dlcp_dpdk_" + what)
    function.restype = c_size_t
    buffer = ctypes.create_string_buffer(function(None, c_size_t(0)) + 1)
    assert function(buffer, c_size_t(len(buffer))) == len(buffer.value)
    return buffer.value.decode()

def ports():
    found = (Port * 32)()
    count = control.dlcp_dpdk_ports(found, 32, error, c_size_t(len(error)))
    return [found[i].name.decode() for i in range(count)] if count >= 0 else [count, error.value.decode()]
"""


def child(code: str, *, said: str = "", command: tuple[str, ...] = ()) -> dict[str, Any]:
    """`out` after the code, in a process of its own that prints nothing else but `said` to standard error."""
    program = PRELUDE + textwrap.dedent(code) + "\nprint('out=' + json.dumps(out))"
    # From Python 3.12 on who forks a process with threads is warned.
    done = subprocess.run(
        [*command, sys.executable, "-W", "ignore::DeprecationWarning", "-c", program, str(dpdk.PLUGIN)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert said in done.stderr
    assert said or done.stderr == ""
    assert done.stdout.startswith("out="), done.stdout
    result: dict[str, Any] = json.loads(done.stdout.removeprefix("out="))
    return result


# --- a start that succeeds ----------------------------------------------------------------------------------


def test_start_tells_what_it_added_and_its_ports() -> None:
    found = child(f"""
        out["before"] = [control.dlcp_dpdk_started(), text("arguments"), text("log"), ports()]
        out["version"] = [control.dlcp_dpdk_control_version(), control.dlcp_dpdk_version().decode()]
        out["start"] = start("{EAL} --vdev=net_null0 --vdev 'net_ring0'")
        out["after"] = [control.dlcp_dpdk_started(), text("arguments"), ports()]
        one = (Port * 1)()
        out["count"] = control.dlcp_dpdk_ports(one, 1, error, c_size_t(len(error)))
        port = one[0]
        out["port"] = [port.id, port.claimed, port.mtu_bytes, port.driver.decode(), port.tx_queues_max]
        statistics = (Statistic * 4)()
        out["statistics"] = [control.dlcp_dpdk_statistics(0, statistics, 4, error, c_size_t(len(error))),
                             [one.name.decode() for one in statistics]]
        out["none"] = [control.dlcp_dpdk_statistics(9, statistics, 4, error, c_size_t(len(error))),
                       error.value.decode()]
    """)
    assert found["before"][:3] == [0, "", ""]
    assert "not been started" in found["before"][3][1]
    assert found["version"][0] == 1
    assert found["version"][1].startswith("DPDK ")
    assert found["start"] == [0, ""]
    started, arguments, ports = found["after"]
    assert started == 1
    assert arguments.startswith(f"{EAL} --vdev=net_null0 --vdev net_ring0 --lcores=0@(")
    assert arguments.endswith(" --no-shconf --no-telemetry")
    assert ports == ["net_null0", "net_ring0"]
    assert found["count"] == 2
    assert found["port"][:4] == [0, 0, 1500, "net_null"]
    assert found["port"][4] > 0
    count, names = found["statistics"]
    assert count >= 8
    assert names == [
        "port0_rx_packets",
        "port0_rx_bytes",
        "port0_rx_missed_packets",
        "port0_rx_error_packets",
    ]
    assert found["none"][0] < 0
    assert "no port 9" in found["none"][1]


def test_threads_keep_their_cpus_and_dpdk_takes_no_signals() -> None:
    found = child(f"""
        out["before"] = sorted(os.sched_getaffinity(0))
        known = set(os.listdir("/proc/self/task"))
        out["start"] = start("{EAL} -l {min(os.sched_getaffinity(0))}")
        out["after"] = sorted(os.sched_getaffinity(0))
        masks = []
        for task in set(os.listdir("/proc/self/task")) - known:
            lines = open(f"/proc/self/task/{{task}}/status").read().splitlines()
            masks.append(int(dict(line.split(":", 1) for line in lines)["SigBlk"], 16))
        out["masks"] = masks
        later = threading.Thread(target=lambda: out.update(later=sorted(os.sched_getaffinity(0))))
        later.start()
        later.join()
    """)
    assert found["start"] == [0, ""]
    assert found["before"] == found["after"] == found["later"]
    assert found["masks"]
    for mask in found["masks"]:
        for number in (2, 10, 12, 14, 15, 17):  # INT, USR1, USR2, ALRM, TERM, CHLD
            assert mask >> (number - 1) & 1


def test_lcore_floats_over_the_cpus_that_the_caller_may_use() -> None:
    cpu = max(os.sched_getaffinity(0))
    found = child(f"""
        os.sched_setaffinity(0, [{cpu}])
        out["start"] = start("{EAL}")
        out["arguments"] = text("arguments")
    """)
    assert found["start"] == [0, ""]
    assert f"--lcores=0@({cpu})" in found["arguments"]


def test_second_start_is_the_same_or_refused() -> None:
    found = child(f"""
        out["first"] = start("{EAL}")
        out["same"] = [start("{EAL}"), start(" {EAL.replace("64", "'64'")} "), start("")]
        out["other"] = start("--no-huge -m 65")
    """)
    assert found["first"] == [0, ""]
    assert found["same"] == [[0, ""]] * 3
    code, words = found["other"]
    assert code < 0
    assert "--no-huge -m 65" in words
    assert "once per process" in words


def test_child_of_a_fork_is_told_to_spawn() -> None:
    found = child(f"""
        start("{EAL}")
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, json.dumps([control.dlcp_dpdk_started(), start("{EAL}")]).encode())
            os._exit(0)
        os.close(writing)
        os.wait()
        out["forked"] = json.loads(os.read(reading, 4096))
    """)
    assert found["forked"][0] == 0
    assert "spawn" in found["forked"][1][1]


def test_log_goes_to_the_terminal_only_if_asked_for() -> None:
    silent = child(f'out["start"] = start("{EAL}")')
    assert silent["start"] == [0, ""]
    child(
        f'out["start"] = start("{EAL} --log-level=debug"); out["log"] = text("log")',
        said="EAL: Detected CPU lcores",
    )


def test_two_processes_do_not_meet() -> None:
    """Without hugepages DPDK would lock one file for all of a user's processes."""
    found = child(f"""
        import subprocess
        out["start"] = start("{EAL}")
        if len(sys.argv) == 2:
            other = subprocess.run([sys.executable, "-c", {PRELUDE!r} + "print(start('{EAL}'))", sys.argv[1]],
                                   capture_output=True, text=True)
            out["other"] = other.stdout.strip()
    """)
    assert found["start"] == [0, ""]
    assert found["other"] == "[0, '']"


# --- a start that fails -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (f"{EAL} -l 4000", "CPUs that this process may run on"),
        (f"{EAL} --lcores=0@1000", "CPUs that this process may run on"),
        (f"{EAL} --vdev=net_nothing0", "net_nothing0"),
        (f"{EAL} -d /nowhere.so", "/nowhere.so"),
        # "--socket-mem", since 25.11 "numa-mem".
        ("--no-huge --socket-mem 64", "-mem"),
    ],
)
def test_failure_is_named_and_final(arguments: str, words: str) -> None:
    """DPDK keeps what it read of the arguments, so that a second start in the process would not be the first."""
    found = child(f"""
        out["first"] = start({arguments!r})
        out["second"] = start("{EAL}")
        out["started"] = control.dlcp_dpdk_started()
        out["affinity"] = len(os.sched_getaffinity(0))
    """)
    code, first = found["first"]
    assert code < 0
    assert words in first
    assert f"(EAL arguments: {arguments}" in first
    code, second = found["second"]
    assert code < 0
    assert "failed to start before in this process" in second
    assert words in second
    assert "start the process anew" in second
    assert found["started"] == 0
    assert found["affinity"] == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--help", "--help would end the process"),
        ("-h", "-h would end the process"),
        ("--log-level help", "--log-level would end the process"),
        (f"{EAL} stray", "'stray' belongs to no option"),
        (f"{EAL} --vdev 'net_null0", "a quote ' is not closed"),
        ("--no-huge -m", "-m needs a value"),
        ("--no-huge -m 64M", "megabytes"),
    ],
)
def test_what_is_refused_before_dpdk_sees_it_can_be_put_right(arguments: str, words: str) -> None:
    found = child(f"""
        out["first"] = start({arguments!r})
        out["second"] = start("{EAL}")
    """)
    code, first = found["first"]
    assert code < 0
    assert words in first
    assert found["second"] == [0, ""]


def test_prefix_of_another_process_is_taken(tmp_path: Path) -> None:
    prefix = f"dlcp{os.getpid()}"
    found = child(f"""
        import subprocess
        os.environ["XDG_RUNTIME_DIR"] = {str(tmp_path)!r}
        out["start"] = start("{EAL} --file-prefix={prefix}")
        other = subprocess.run(
            [sys.executable, "-c", {PRELUDE!r} + "print(json.dumps(start('{EAL} --file-prefix={prefix}')))",
             sys.argv[1]], capture_output=True, text=True)
        out["other"] = json.loads(other.stdout)
    """)
    # Where root's DPDK keeps a prefix's files; everybody else's goes by XDG_RUNTIME_DIR.
    shutil.rmtree(Path("/var/run/dpdk") / prefix, ignore_errors=True)
    assert found["start"] == [0, ""]
    code, words = found["other"]
    assert code < 0
    assert "the same --file-prefix" in words


def test_device_that_cannot_be_made_leaves_the_others() -> None:
    """DPDK starts without it, and says why in its log."""
    found = child(f"""
        out["start"] = start("{EAL} --vdev=net_null0 --vdev=net_af_packet0,iface=absent0")
        out["ports"] = ports()
        out["log"] = text("log")
    """)
    assert found["start"] == [0, ""]
    assert found["ports"] == ["net_null0"]
    assert "failed to initialize net_af_packet0" in found["log"]
