"""Where settings come from, which wins, and what is refused."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import AuthenticationError, PortInUseError, SettingsError
from dlcp.transport import Endpoint, Settings, plugins
from dlcp.transport.endpoint import native_values
from dlcp.transport.logger import RankLogger
from dlcp.transport.settings import read_key_file
from tests.support.ports import free_ports

KEY = bytes(range(32))


@pytest.fixture
def config(tmp_path: Path) -> Any:
    def write(text: str) -> dict[str, str]:
        path = tmp_path / "dlcp.toml"
        path.write_text(text)
        return {"DLCP_CONFIG": str(path)}

    return write


def test_default_is_loopback_without_a_key() -> None:
    settings = Settings.load(environ={})
    assert settings == Settings()
    assert settings.bind_host is None
    assert settings.job_key() is None


def test_precedence_is_argument_environment_file_default(config: Any) -> None:
    environ = config("[transport]\npaths = 2\nport = 7001\njob = 5\n") | {
        "DLCP_PATHS": "3",
        "DLCP_PORT": "7002",
    }
    settings = Settings.load(environ=environ, paths=4)
    assert (settings.paths, settings.port, settings.job, settings.run_packets) == (4, 7002, 5, None)


def test_environment_reads_every_type() -> None:
    settings = Settings.load(
        environ={
            "DLCP_PEER_TIMEOUT_S": "2.5",
            "DLCP_INJECT_LOSS_RATIO": "5%",
            "DLCP_ENCRYPT": "no",
            "DLCP_INTERFACE": "0000:3b:00.0",
            "DLCP_MAX_DATAGRAM_BYTES": "auto",
            "DLCP_DSCP": "0,8,16,24,32,40,48,46",
            "DLCP_SEGMENTATION_OFFLOAD": "0",
            "DLCP_LINE_RATE_BPS": "25000000000",
            "DLCP_SHM": "0",
            "DLCP_DRIVER": "dpdk",
            "DLCP_DRIVER_OPTIONS": "port=@10.0.0.1/24 queues=2",
            "DLCP_EAL_ARGUMENTS": "-a 0000:3b:00.0 --lcores '2,3'",
            "DLCP_PORT_RANGE": "7000-7063",
            "DLCP_LOG_LEVEL": "INFO",
            "DLCP_ALGORITHM": "ring",
            "DLCP_TIMEOUT_S": "90",
            "DLCP_METRICS_PORT": "9400",
            "DLCP_METRICS_HOST": "10.0.0.1",
            "DLCP_FLIGHT_RECORDER_ENTRIES": "0",
            "DLCP_FLIGHT_RECORDER_DIR": "/var/log/dlcp",
        }
    )
    assert (settings.peer_timeout_s, settings.inject_loss_ratio) == (2.5, 0.05)
    assert settings.interface == "0000:3b:00.0"
    assert settings.max_datagram_bytes is None
    assert settings.dscp[7] == 46
    assert not settings.segmentation_offload
    assert settings.line_rate_bps == 25_000_000_000
    assert not settings.shm
    assert (settings.driver, settings.driver_options) == ("dpdk", "port=@10.0.0.1/24 queues=2")
    assert settings.eal_arguments == "-a 0000:3b:00.0 --lcores '2,3'"
    assert settings.ports == range(7000, 7064)
    assert settings.log_level == "info"
    assert settings.algorithm == "ring"
    assert settings.timeout_s == 90
    assert (settings.metrics_port, settings.metrics_host) == (9400, "10.0.0.1")
    assert (settings.flight_recorder_entries, settings.flight_recorder_dir) == (0, "/var/log/dlcp")


def test_file_reads_every_type(config: Any) -> None:
    environ = config(
        "[transport]\npeer_timeout_s = 3\nmax_datagram_bytes = 'auto'\ndscp = [0,0,0,0,0,0,0,46]\nencrypt = false\n"
        "interface = '^docker,lo'\nshm = false\nport_range = '7000'\nlog_level = 'warning'\nalgorithm = 'auto'\n"
        "timeout_s = 'auto'\nmetrics_port = 'off'\nflight_recorder_entries = 64\nflight_recorder_dir = 'auto'\n"
        "[torch]\nother = 1\n"
    )
    settings = Settings.load(environ=environ)
    assert (settings.interface, settings.shm, settings.ports) == ("^docker,lo", False, range(7000, 7001))
    assert (settings.log_level, settings.algorithm, settings.timeout_s) == ("warning", None, None)
    assert (settings.metrics_port, settings.flight_recorder_entries) == (None, 64)
    assert settings.flight_recorder_dir is None
    assert settings.peer_timeout_s == 3
    assert settings.dscp == (0, 0, 0, 0, 0, 0, 0, 46)


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"DLCP_PATH": "3"}, "'DLCP_PATH'; did you mean DLCP_PATHS?"),
        ({"DLCP_PEER_TIMEOUT": "3"}, "did you mean DLCP_PEER_TIMEOUT_S?"),
        ({"DLCP_DRIVR": "dpdk"}, "'DLCP_DRIVR'; did you mean DLCP_DRIVER?"),
        ({"DLCP_EAL": "-a"}, "did you mean DLCP_EAL_ARGUMENTS?"),
        ({"DLCP_PATHS": "many"}, "DLCP_PATHS is 'many'; accepted: an integer from 1 to 64"),
        ({"DLCP_PATHS": "65"}, "DLCP_PATHS is 65; accepted: an integer from 1 to 64"),
        ({"DLCP_MIN_RUN_PACKETS": ""}, "DLCP_MIN_RUN_PACKETS is ''; accepted"),
        ({"DLCP_ENCRYPT": "maybe"}, "DLCP_ENCRYPT is 'maybe'; accepted: true or false"),
        ({"DLCP_PEER_TIMEOUT_S": "nan"}, "DLCP_PEER_TIMEOUT_S is nan; accepted"),
        (
            {"DLCP_INJECT_LOSS_RATIO": "5"},
            "is 5.0; accepted: a number from 0 to 1 (in the environment also 0% to",
        ),
        ({"DLCP_INJECT_LOSS_RATIO": "a%"}, "DLCP_INJECT_LOSS_RATIO is 'a%'; accepted: a number from 0 to 1"),
        ({"DLCP_CONGESTION": "cubic"}, "'cubic'; accepted: one of auto, window, line_rate"),
        ({"DLCP_SHM": "2"}, "DLCP_SHM is '2'; accepted: true or false"),
        ({"DLCP_SOCKET_IFNAME": "eth0"}, "unknown environment variable 'DLCP_SOCKET_IFNAME'"),
        ({"DLCP_INTERFACE": "eth0,"}, "DLCP_INTERFACE is 'eth0,'; accepted: names of interfaces"),
        ({"DLCP_PORT_RANGE": "7100-7000"}, "'7100-7000'; accepted: ports from 1 to 65535, such as 7000-7063"),
        ({"DLCP_PORT_RANGE": "0-9"}, "DLCP_PORT_RANGE is '0-9'; accepted"),
        ({"DLCP_PORT_RANGE": "http"}, "DLCP_PORT_RANGE is 'http'; accepted"),
        ({"DLCP_LOG_LEVEL": "loud"}, "'loud'; accepted: one of debug, info, warning, error, or auto"),
        ({"DLCP_TIMEOUT_S": "0"}, "DLCP_TIMEOUT_S is 0.0; accepted: a number above 0"),
        ({"DLCP_METRICS_PORT": "auto"}, "'auto'; accepted: an integer from 0 to 65 535, or off"),
        ({"DLCP_FLIGHT_RECORDER_ENTRIES": "-1"}, "DLCP_FLIGHT_RECORDER_ENTRIES is -1; accepted"),
        ({"DLCP_PORT": "7000", "DLCP_PORT_RANGE": "7000-7009"}, "port is 7000 and port_range is 7000-7009"),
        (
            {"DLCP_LINE_RATE_BPS": "25"},
            "line_rate_bps is 25, which is bits a second; accepted: 0, or at least",
        ),
        ({"DLCP_KEY": "00" * 32}, "use DLCP_KEY_FILE"),
        ({"DLCP_CONFIG": "/nowhere/dlcp.toml"}, "DLCP_CONFIG names /nowhere/dlcp.toml: No such file"),
    ],
)
def test_environment_mistakes_are_named(environ: dict[str, str], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ=environ)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[transport]\npathz = 1", "'pathz'; did you mean paths?"),
        ("[transprot]\npaths = 1", "'transprot'; did you mean [transport]?"),
        ("paths = 1", "unknown table or key 'paths'"),
        ("transport = 1", "accepted: a table [transport]"),
        ("[transport]\npaths = 'x'", "paths is 'x'; accepted: an integer from 1 to 64"),
        ("[transport]\npaths = true", "paths is True; accepted"),
        ("[transport]\nkey = 'x'", "use key_file"),
        ("[transport", "is not TOML"),
    ],
)
def test_file_mistakes_are_named(config: Any, text: str, words: str) -> None:
    environ = config(text)
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ=environ)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"peer_timeouts": 1}, "unknown argument 'peer_timeouts'; did you mean peer_timeout_s?"),
        ({"paths": 0}, "setting paths is 0; accepted: an integer from 1 to 64"),
        ({"port": 65536}, "setting port is 65536"),
        ({"max_datagram_bytes": 100}, "accepted: an integer from 576 to 9 152, or auto"),
        ({"dscp": (0, 1)}, "8 integers from 0 to 63"),
        ({"key": b"short"}, "setting key is a secret of 5 bytes; accepted: 32 bytes"),
        ({"key": b"s"}, "setting key is a secret of 1 byte; accepted: 32 bytes"),
        ({"key": "short"}, "setting key is a str; accepted: 32 bytes"),
        ({"key": KEY, "key_file": "k"}, "give one of them"),
        ({"congestion": "line_rate"}, "set it to the rate of this host's link"),
        ({"min_rto_s": 2.0}, "less than min_rto_s"),
        ({"bind_host": 7}, "setting bind_host is 7"),
        ({"interface": "^"}, "setting interface is '^'; accepted: names of interfaces or their beginnings"),
        ({"interface": 0}, "setting interface is 0; accepted"),
        ({"port_range": (7, 65536)}, "setting port_range is '7-65536'; accepted: ports from 1 to 65535"),
        ({"port_range": 7000}, "setting port_range is 7000; accepted"),
        ({"shm": 0}, "setting shm is 0; accepted: true or false"),
        ({"metrics_port": -1}, "setting metrics_port is -1; accepted: an integer from 0 to 65 535, or off"),
        ({"drivr": "dpdk"}, "unknown argument 'drivr'; did you mean driver?"),
        ({"eal_arguments": "--no-huge"}, "eal_arguments is set, and driver is 'udp'; set driver to dpdk"),
        ({"eal_arguments": "-m 64", "driver": "xdp"}, "driver is 'xdp'; set driver to dpdk"),
        (
            {"driver": "dpdk", "driver_options": "queues=2 -- -m 64", "eal_arguments": "-m 64"},
            "give them in one place",
        ),
        ({"driver": "dpdk", "bind_host": "node1"}, "an address of the port's own"),
        ({"driver": "xdp", "bind_host": "10.0.0.1/33"}, "such as 10.0.0.1/24"),
        ({"driver": "local+dpdk", "bind_host": "0.0.0.0"}, "with driver local+dpdk: an address"),
        ({"driver": "xdp", "interface": "^docker"}, "accepted with driver xdp: the name of one device"),
        ({"driver": "dpdk", "interface": "eth0,eth1"}, "the name of one device"),
        ({"driver": "dpdk", "bind_host": "10.0.0.0/24"}, "the address of the whole network 10.0.0.0/24"),
        (
            {"driver": "xdp", "bind_host": "10.0.0.255/24"},
            "the broadcast address of the network 10.0.0.0/24",
        ),
        ({"driver": "xdp", "bind_host": "10.0.0.3/30"}, "the broadcast address of the network 10.0.0.0/30"),
        ({"driver": "dpdk", "bind_host": "10.0.0.1/255.255.255.0"}, "the length of its prefix"),
        ({"driver": "dpdk", "bind_host": "fe80::1%eth0"}, "the length of its prefix"),
        ({"driver": "dpdk", "bind_host": "127.0.0.1"}, "this host's loopback"),
        ({"driver": "dpdk", "bind_host": "0.0.0.1"}, "the address of no one station"),
        ({"driver": "dpdk", "bind_host": "255.255.255.255"}, "the address of all stations"),
        (
            {"driver": "dpdk", "bind_host": "10.0.0.1", "driver_options": "port=net_x@10.0.0.2/24"},
            "bind_host is '10.0.0.1', and driver_options has port=net_x@10.0.0.2/24, another address",
        ),
        (
            {"driver": "dpdk", "bind_host": "10.0.0.1/24", "driver_options": "port=net_x@10.0.0.1"},
            "give it in one place",
        ),
        (
            {"driver_options": "\udcff"},
            "setting driver_options is '\\udcff'; accepted: options of the driver",
        ),
        ({"interface": "\udcff"}, "setting interface is '\\udcff'; accepted: names of interfaces"),
        ({"driver": "\0"}, "setting driver is '\\x00'; accepted: udp, local"),
        (
            {"driver": "dpdk", "interface": "net_x", "driver_options": "port=net_y"},
            "interface is 'net_x', and driver_options has port=net_y",
        ),
        (
            {"driver": "dpdk", "driver_options": "--no-huge --vdev=net_x"},
            "driver_options begins with --no-huge, an argument of DPDK's; give these as eal_arguments",
        ),
        (
            {"driver": "dpdk", "eal_arguments": "port=net_x"},
            "eal_arguments begins with port=net_x, which is none of DPDK's",
        ),
        (
            {"driver": "dpkd"},
            "driver is 'dpkd'; did you mean dpdk? accepted: udp, local, dpdk, xdp, the name",
        ),
        ({"driver": "DPDK"}, "driver is 'DPDK'; did you mean dpdk?"),
        ({"driver": "local+xpd"}, "driver is 'local+xpd'; did you mean local+xdp?"),
        ({"driver": "LOCAL+DPDK"}, "driver is 'LOCAL+DPDK'; did you mean local+dpdk?"),
        ({"driver": "libmine.so"}, "driver is 'libmine.so'; accepted: udp, local, dpdk, xdp"),
        ({"driver": ""}, "driver is ''; accepted: udp, local, dpdk, xdp"),
        (
            {"driver": "dpkd", "interface": "0000:3b:00.0", "eal_arguments": "-a 0000:3b:00.0"},
            "did you mean dpdk?",
        ),
        ({"algorithm": 1}, "setting algorithm is 1; accepted: the name of a schedule, or auto"),
    ],
)
def test_argument_mistakes_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ={}, **arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("driver", "network", "below_kernel"),
    [
        ("udp", "udp", False),
        ("local", "udp", False),
        ("dpdk", "dpdk", True),
        ("local+dpdk", "dpdk", True),
        ("xdp", "xdp", True),
        ("local+xdp", "xdp", True),
        ("./libdlcp_io_mine.so", "./libdlcp_io_mine.so", False),
    ],
)
def test_driver_says_what_leads_out_of_the_host(driver: str, network: str, below_kernel: bool) -> None:
    settings = Settings(driver=driver)
    assert (settings.network_driver, settings.below_kernel) == (network, below_kernel)


@pytest.mark.parametrize("driver", ["mine", "local+mine", "other", "./DPKD.so", "a/dpkd"])
def test_name_that_is_like_none_of_ours_is_for_the_loader_to_find(driver: str) -> None:
    assert Settings(driver=driver).driver == driver


def test_plugin_that_is_there_may_have_a_name_like_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(plugins, "path", lambda name: tmp_path / f"libdlcp_io_{name}.so")
    (tmp_path / "libdlcp_io_dpdk2.so").touch()
    assert Settings(driver="dpdk2").driver == "dpdk2"
    assert Settings(driver="local+dpdk2").driver == "local+dpdk2"
    with pytest.raises(SettingsError, match="did you mean dpdk?"):
        Settings(driver="dpdk3")


def test_path_of_a_driver_takes_arguments_of_dpdk() -> None:
    assert Settings(driver="./libdlcp_io_dpdk.so", eal_arguments="-m 64").eal_arguments == "-m 64"
    assert Settings(driver="local+dpdk", eal_arguments="-m 64").eal_arguments == "-m 64"


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"bind_host": "10.0.0.1"}, "10.0.0.1"),
        ({"bind_host": "fd00::1/64"}, "fd00::1"),
        ({"driver_options": "queues=2 port=0000:3b:00.0@10.0.0.1/24 port=1@10.1.0.1"}, "10.0.0.1"),
        ({"driver_options": "port=1", "bind_host": "10.0.0.2/8"}, "10.0.0.2"),
        ({"driver_options": "port=1 -- port=x@10.0.0.1"}, None),
        ({"driver_options": "-- -m 64 port=x@10.0.0.1"}, None),
        ({"interface": "0000:3b:00.0"}, None),
    ],
)
def test_own_address_below_the_kernel_is_what_the_settings_name(
    changes: dict[str, str], address: str | None
) -> None:
    settings = Settings(driver="dpdk", **changes)  # type: ignore[arg-type]
    assert settings.own_address == address
    if address is None:
        with pytest.raises(SettingsError, match="the kernel gives no address to .*: set bind_host"):
            settings.need_own_address()


@pytest.mark.parametrize(
    "bind_host", ["10.0.0.0/31", "10.0.0.1/31", "10.0.0.0/32", "10.0.0.0", "10.0.0.4/29"]
)
def test_address_that_a_station_can_have_is_accepted(bind_host: str) -> None:
    assert Settings(driver="dpdk", bind_host=bind_host).own_address == bind_host.partition("/")[0]


@pytest.mark.parametrize(
    ("bind_host", "words"),
    [
        ("10.0.0.1", "port=net_x@10.0.0.1/24"),
        ("10.0.0.1/24", "port=net_x@10.0.0.1/24"),
        ("fd00::1/64", "port=net_x@fd00:0::1/64"),
        ("10.0.0.1/24", "port=net_x port=net_y@10.1.0.1/24"),
    ],
)
def test_own_address_given_twice_is_accepted_if_it_is_one(bind_host: str, words: str) -> None:
    settings = Settings(driver="dpdk", bind_host=bind_host, driver_options=words)
    assert settings.own_address == bind_host.partition("/")[0]


def test_devices_and_arguments_of_dpdk_are_those_named_anywhere() -> None:
    words = "port=0000:3b:00.0@10.0.0.1/24 queues=2 port=1"
    given = Settings(driver="dpdk", driver_options=f"{words} -- --no-huge  -m 64 --vdev 'net_x,a=b c'")
    assert given.devices == ("0000:3b:00.0", "1")
    assert given.dpdk_arguments == "--no-huge  -m 64 --vdev 'net_x,a=b c'"
    apart = Settings(driver="dpdk", interface="net_x", eal_arguments="-m 64")
    assert (apart.devices, apart.dpdk_arguments) == (("net_x",), "-m 64")
    xdp = Settings(driver="xdp", driver_options="queues=1 interface=eth1 port=x")
    assert (xdp.devices, xdp.own_address) == (("eth1",), None)
    no_device = Settings(driver="dpdk", interface="net_x", driver_options="port=@10.0.0.1/24 -- -m 64")
    assert (no_device.devices, no_device.own_address) == (("net_x",), "10.0.0.1")
    neither = Settings(driver="dpdk", driver_options="a=-- b=--")
    assert (neither.devices, neither.dpdk_arguments) == ((), "")


def test_driver_is_given_device_address_and_arguments() -> None:
    values = native_values(
        Settings(
            driver="dpdk",
            driver_options="queues=2",
            eal_arguments="--no-huge -m 64",
            interface="=0000:3b:00.0",
            bind_host="10.0.0.1/24",
        )
    )
    assert (values["driver"], values["driver_options"]) == ("dpdk", "queues=2 -- --no-huge -m 64")
    assert (values["interface"], values["bind_host"]) == ("0000:3b:00.0", "10.0.0.1/24")
    plain = native_values(Settings(driver="udp", driver_options="a=b"))
    assert (plain["driver"], plain["driver_options"], plain["interface"]) == ("udp", "a=b", None)


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ("udp", "driver_options is 'x=1'; the udp driver takes none"),
        ("local+udp", "driver_options is 'x=1'; the udp driver takes none"),
        ("local", "driver_options is 'x=1'; the local driver takes ring_bytes=N"),
    ],
)
def test_words_that_a_driver_does_not_take_are_named_with_their_setting(driver: str, words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        Endpoint(0, settings=Settings(driver=driver, driver_options="x=1"))


def test_engine_has_the_last_word() -> None:
    with pytest.raises(SettingsError, match="initial_window"):
        Endpoint(0, settings=Settings(initial_window_bytes=20_000, max_window_bytes=10_000))


def test_replace_checks_again() -> None:
    assert Settings(paths=2).replace(port=9).paths == 2
    with pytest.raises(SettingsError, match="did you mean paths"):
        Settings().replace(path=2)


def test_variables_of_other_parts_are_left_alone() -> None:
    assert Settings.load(environ={"DLCP_TORCH_BUCKET": "1", "DLCP_TEST_SEED": "2", "HOME": "/"}) == Settings()


@pytest.mark.parametrize("content", [KEY, KEY.hex().encode(), KEY.hex().upper().encode() + b"\n"])
def test_key_file_is_raw_or_hexadecimal(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    assert read_key_file(path) == KEY
    assert Settings.load(environ={"DLCP_KEY_FILE": str(path)}).job_key() == KEY


@pytest.mark.parametrize("content", [b"", KEY[:31], KEY + b"\n", b"zz" * 32, KEY.hex()[:-2].encode()])
def test_key_file_of_another_length_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"has {len(content)} bytes?; accepted: exactly 32 bytes, or 64"):
        read_key_file(path)


def test_argument_port_takes_the_place_of_a_configured_range() -> None:
    assert list(Settings.load(environ={"DLCP_PORT_RANGE": "7000-7009"}, port=7100).ports) == [7100]
    assert list(Settings.load(environ={"DLCP_PORT": "7100"}, port_range=(7000, 7001)).ports) == [7000, 7001]
    assert list(Settings().ports) == [0]


def test_each_process_takes_the_first_free_port_of_a_range() -> None:
    with contextlib.ExitStack() as stack:
        found = list(free_ports(3))
        settings = Settings(port_range=(found[0], found[-1]))
        opened = [stack.enter_context(Endpoint(rank, settings=settings)) for rank in range(3)]
        assert [int(one.address.rpartition(":")[2]) for one in opened] == found
        with pytest.raises(PortInUseError) as caught:
            Endpoint(3, settings=settings)
        assert str(caught.value).startswith(
            f"port_range is {found[0]}-{found[-1]}, and every one of these UDP ports is in use on 127.0.0.1"
        )


def test_log_level_writes_to_standard_error_with_the_rank() -> None:
    """In a process of its own, as logging is the process's; there nobody has set it up."""
    code = (
        "from dlcp.transport import Endpoint\n"
        "Endpoint(3, bind_host='0.0.0.0', allow_unauthenticated=True, log_level='{}').close()\n"
        "{}"
    )
    later = "import logging; logging.basicConfig(); logging.getLogger('dlcp').warning('once')"

    def lines(level: str, rest: str = "") -> list[str]:
        words = [sys.executable, "-c", code.format(level, rest)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        return [line for line in done.stderr.splitlines() if "buffer of" not in line]

    (line,) = lines("warning")
    assert re.fullmatch(r"\S+ \S+ dlcp WARNING rank 3: no job key: .*", line)
    assert lines("error") == []
    # A program that sets up logging later has its own lines, and only those.
    assert lines("error", later.replace("warning", "error")) == ["ERROR:dlcp:once"]


def test_lines_of_a_group_name_it(caplog: pytest.LogCaptureFixture) -> None:
    RankLogger(5, "grads").warning("waits for rank %d", 7)
    assert caplog.messages == ["rank 5, group grads: waits for rank 7"]


def test_lists_and_paths_are_taken(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(KEY)
    settings = Settings(
        dscp=[0, 0, 0, 0, 0, 0, 0, 46],  # type: ignore[arg-type]
        key_file=tmp_path / "key",  # type: ignore[arg-type]
        port_range=[7000, 7001],  # type: ignore[arg-type]
        flight_recorder_dir=tmp_path,  # type: ignore[arg-type]
        log_level="Debug",
    )
    assert (settings.port_range, settings.flight_recorder_dir) == ("7000-7001", str(tmp_path))
    assert settings.log_level == "debug"
    assert settings.dscp == (0, 0, 0, 0, 0, 0, 0, 46)
    assert settings.key_file == str(tmp_path / "key")
    assert settings.job_key() == KEY


def test_directory_is_no_key_file(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="is a directory; accepted: a file"):
        read_key_file(tmp_path)


def test_absent_key_file_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file or directory; write 32 random bytes there"):
        Endpoint(0, key_file=str(tmp_path / "absent"))


def test_key_is_never_shown() -> None:
    assert KEY.hex() not in repr(Settings(key=KEY))
    assert repr(KEY) not in repr(Settings(key=KEY))


def test_argument_key_takes_the_place_of_a_configured_file() -> None:
    assert Settings.load(environ={"DLCP_KEY_FILE": "/nowhere"}, key=KEY).job_key() == KEY


def test_reachable_address_without_a_key_is_refused() -> None:
    with pytest.raises(AuthenticationError, match="no job key, and other hosts can reach 0.0.0.0"):
        Endpoint(0, bind_host="0.0.0.0")
    with Endpoint(0, bind_host="0.0.0.0", key=KEY) as endpoint:
        assert endpoint.address.startswith("0.0.0.0:")


def test_insisting_without_a_key_is_said_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with Endpoint(0, bind_host="0.0.0.0", allow_unauthenticated=True) as endpoint:
        assert any("can forge" in line for line in endpoint.warnings)
    assert "no job key" in caplog.text
