"""dlcp.transport.dpdk: what it answers of a real DPDK, in child processes, and what it says where there is none."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcp import _native
from dlcp.errors import ArgumentError, DriverError
from dlcp.transport import dpdk, plugins

needs_dpdk = pytest.mark.skipif((why := dpdk.why_not()) is not None, reason=why or "")
NULL = "--no-huge -m 64 --no-pci --vdev=net_null0"


@pytest.fixture(autouse=True)
def _driver() -> None:
    """In place of the folder's, which skips: some tests here are of a dlcp without the driver."""


def child(code: str) -> Any:
    """What the code prints last, as JSON, in a process of its own: DPDK starts once per process."""
    code = f"import json\nfrom dlcp.transport import dpdk\n{textwrap.dedent(code)}"
    # From Python 3.12 on who forks a process with threads is warned.
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout.splitlines()[-1])


# --- where DPDK is --------------------------------------------------------------------------------------------


@needs_dpdk
def test_nothing_is_started_by_asking() -> None:
    found = child("""
        said = []
        for ask in (dpdk.ports, lambda: dpdk.statistics(0)):
            try:
                ask()
            except dpdk.DriverError as error:
                said.append(str(error))
        print(json.dumps([dpdk.is_available(), dpdk.version(), dpdk.started(), dpdk.arguments(), said]))
    """)
    assert found[0] is True
    assert re.fullmatch(r"DPDK \d+\.\d+\.\d+\S*", found[1])
    assert found[2:4] == [False, ""]
    assert len(found[4]) == 2
    assert all("DPDK is not started in this process: call" in one for one in found[4])


@needs_dpdk
def test_started_dpdk_tells_of_its_ports() -> None:
    found = child(f"""
        dpdk.start({NULL!r})
        (port,) = dpdk.ports()
        try:
            dpdk.statistics(7)
        except dpdk.InterfaceError as error:
            refusal = str(error)
        from dataclasses import asdict
        print(json.dumps({{
            "started": dpdk.started(), "arguments": dpdk.arguments(), "log": dpdk.log(), "port": asdict(port),
            "statistics": dpdk.statistics(port.id), "refusal": refusal,
        }}))
    """)
    assert found["started"] is True
    assert found["arguments"].startswith(NULL)
    assert found["arguments"] != NULL
    assert isinstance(found["log"], str)
    port = found["port"]
    assert (port["id"], port["name"], port["driver"]) == (0, "net_null0", "net_null")
    assert re.fullmatch(r"([0-9a-f]{2}:){5}[0-9a-f]{2}", port["mac"])
    assert port["mtu_bytes"] >= 1500
    assert port["rx_queues_max"] >= 1
    assert port["tx_queues_max"] >= 1
    assert port["claimed"] is False
    assert port["speed_bps"] is None or port["speed_bps"] >= 10**6
    assert found["statistics"]
    for name, value in found["statistics"].items():
        assert re.fullmatch(r"[a-z0-9_]+", name)
        assert value >= 0
    assert "7" in found["refusal"]


@needs_dpdk
def test_counters_of_every_port_have_the_same_names() -> None:
    found = child(f"""
        dpdk.start({NULL!r} + " --vdev=net_null1")
        print(json.dumps([dpdk.statistics(port.id) for port in dpdk.ports()]))
    """)
    first, second = found
    assert list(first) == list(second)
    assert {"rx_packets", "rx_missed_packets", "tx_bytes"} <= first.keys()


@needs_dpdk
def test_port_that_has_gone_is_no_port() -> None:
    found = child(f"""
        import ctypes, re
        dpdk.start({NULL!r} + " --vdev=net_null1")
        before = len(dpdk.statistics(1))
        with open("/proc/self/maps") as maps:
            (eal,) = set(re.findall(r"/\\S*/librte_eal\\.so\\S*", maps.read()))
        removed = ctypes.CDLL(eal).rte_eal_hotplug_remove(b"vdev", b"net_null1")
        try:
            dpdk.statistics(1)
        except dpdk.InterfaceError as error:
            print(json.dumps([before > 0, removed, [port.id for port in dpdk.ports()], str(error)]))
    """)
    assert found == [True, 0, [0], "DPDK has no port 1"]


@needs_dpdk
def test_second_start_must_be_the_same() -> None:
    found = child(f"""
        dpdk.start({NULL!r})
        dpdk.start({NULL!r})
        dpdk.start()
        try:
            dpdk.start("--no-huge -m 65")
        except dpdk.DriverError as error:
            print(json.dumps(str(error)))
    """)
    assert "--no-huge -m 65" in found


@needs_dpdk
@pytest.mark.parametrize(
    ("arguments", "words"),
    [("--no-huge -m 64 'open", "a quote"), ("-m 64 stray", "stray"), ("--help", "--help")],
)
def test_arguments_that_make_no_sense_are_named(arguments: str, words: str) -> None:
    found = child(f"""
        try:
            dpdk.start({arguments!r})
        except dpdk.SettingsError as error:
            print(json.dumps([str(error), dpdk.started()]))
    """)
    assert words in found[0]
    assert found[1] is False


@needs_dpdk
def test_what_dlcp_refuses_leaves_the_process_free_to_start() -> None:
    found = child(f"""
        said = []
        for arguments in ("-m 64 'open", "-m 64 stray", "--help", "--no-huge --no-such-option", chr(0xdcff)):
            try:
                dpdk.start(arguments)
            except ValueError as error:
                said.append(type(error).__name__)
        dpdk.start({NULL!r})
        print(json.dumps([said, dpdk.started()]))
    """)
    assert found == [["SettingsError"] * 4 + ["ArgumentError"], True]


@needs_dpdk
def test_what_dpdk_refuses_is_final() -> None:
    found = child(f"""
        said = []
        for arguments in ("--no-huge -m 64 --no-pci -l 4000", {NULL!r}):
            try:
                dpdk.start(arguments)
            except dpdk.DlcpError as error:
                said.append([type(error).__name__, str(error)])
        print(json.dumps(said))
    """)
    assert [kind for kind, _ in found] == ["SettingsError", "DriverError"]
    assert "failed to start before in this process" in found[1][1]
    assert "4000" in found[1][1]


@needs_dpdk
def test_device_that_is_not_there_is_an_absent_interface() -> None:
    found = child("""
        try:
            dpdk.start("--no-huge -m 64 --no-pci --vdev=net_nothing_like_it0")
        except dpdk.InterfaceError as error:
            print(json.dumps(str(error)))
    """)
    assert "net_nothing_like_it0" in found


@needs_dpdk
def test_threads_that_start_at_once_start_one_dpdk() -> None:
    found = child(f"""
        import threading
        said = []
        together = threading.Barrier(4)

        def start(arguments):
            together.wait()
            try:
                dpdk.start(arguments)
                said.append("runs")
            except dpdk.DriverError:
                said.append("other arguments")

        given = [{NULL!r}] * 3 + ["--no-huge -m 65 --no-pci"]
        threads = [threading.Thread(target=start, args=(one,)) for one in given]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps([sorted(said), dpdk.arguments()]))
    """)
    # Whoever was first; the others agree with it or are told.
    said, arguments = found
    if arguments.startswith(NULL):
        assert said == ["other arguments", "runs", "runs", "runs"]
    else:
        assert said == ["other arguments", "other arguments", "other arguments", "runs"]


@needs_dpdk
def test_forked_child_has_no_dpdk() -> None:
    found = child(f"""
        import os
        dpdk.start({NULL!r})
        out, into = os.pipe()
        pid = os.fork()
        if pid == 0:
            said = [dpdk.started(), dpdk.arguments()]
            for ask in (dpdk.ports, lambda: dpdk.statistics(0), dpdk.start, lambda: dpdk.start({NULL!r})):
                try:
                    ask()
                except dpdk.ForkError as error:
                    said.append("spawn instead of fork" in str(error))
            os.write(into, json.dumps(said).encode())
            os._exit(0)
        os.close(into)
        with open(out) as told:
            said = json.load(told)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said, dpdk.started()]))
    """)
    assert found == [0, [False, "", True, True, True, True], True]


# --- where it is not ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where the plugin is looked for: there is none."""
    monkeypatch.setattr(plugins, "_FOLDER", tmp_path)
    dpdk._library.cache_clear()
    yield tmp_path
    dpdk._library.cache_clear()


@pytest.mark.usefixtures("folder")
def test_absent_plugin_says_what_to_install() -> None:
    lack = str(plugins.why_not("dpdk"))
    assert lack.startswith("dlcp was built without DPDK: apt-get install libdpdk-dev")
    assert dpdk.why_not() == lack
    assert not dpdk.is_available()
    assert not dpdk.started()
    for ask in (dpdk.version, dpdk.start, dpdk.arguments, dpdk.log, dpdk.ports, lambda: dpdk.statistics(0)):
        with pytest.raises(DriverError, match=re.escape(lack)):
            ask()


def test_plugin_of_another_version_is_named(folder: Path) -> None:
    plugins.path("dpdk").symlink_to(Path(_native.__file__).resolve())
    assert dpdk.why_not() == (
        f"the DPDK driver {plugins.path('dpdk')} was built for another version of dlcp: {plugins.REBUILD}"
    )


@pytest.mark.parametrize("port", [-1, 65536, "0", None, True])
def test_number_of_a_port_is_checked(port: Any) -> None:
    with pytest.raises(ArgumentError, match="accepted: the number of a port"):
        dpdk.statistics(port)


@pytest.mark.parametrize("arguments", [None, b"-m 64", ["-m", "64"], "-m\x0064", "-m 64 \udcff"])
def test_arguments_are_a_text(arguments: Any) -> None:
    with pytest.raises(ArgumentError, match="accepted: a text like"):
        dpdk.start(arguments)
