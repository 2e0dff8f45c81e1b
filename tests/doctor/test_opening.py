"""What the doctor says of whether an endpoint would open: tried so that nobody else notices."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.doctor import opening
from dlcp.doctor.finding import Finding, Verdict
from dlcp.doctor.host import look_at_host
from dlcp.doctor.network import choose_place
from dlcp.doctor.opening import look_at_opening
from dlcp.errors import ResourceError
from dlcp.transport import Settings, dpdk, plugins
from dlcp.transport.interfaces import Interface, list_interfaces


def needs(name: str) -> pytest.MarkDecorator:
    lack = plugins.why_not(name)
    return pytest.mark.skipif(lack is not None, reason=str(lack))


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def look(**settings: object) -> Finding:
    (found,) = look_at_opening(Settings(**settings), None)  # type: ignore[arg-type]
    return found


# --- over the kernel's sockets --------------------------------------------------------------------------------


def test_endpoint_over_sockets_opens() -> None:
    found = look(bind_host="127.0.0.1")
    assert found.verdict == Verdict.OK
    assert found.text.startswith("an endpoint opens with these settings, here at 127.0.0.1:")
    # Where a job would: not at loopback, unless there is nothing else.
    host = choose_place(Settings(), None, list_interfaces()).host
    assert f" {host}:" in look().text.replace("[", "").replace("]", "")


@pytest.mark.parametrize("driver", ["udp", "local"])
def test_words_that_sockets_do_not_take_fail(driver: str) -> None:
    found = look(driver=driver, driver_options="x=1")
    assert (found.verdict, found.remedy) == (Verdict.FAIL, "unset DLCP_DRIVER_OPTIONS")
    assert "x=1" in found.text


def test_address_of_somebody_else_fails() -> None:
    found = look(bind_host="192.0.2.77")
    assert found.verdict == Verdict.FAIL
    assert "192.0.2.77 is not an address of this host" in found.text
    assert found.remedy == "unset DLCP_BIND_HOST; dlcp then takes the interface that leads to the others"


def test_port_that_a_process_has_is_a_warning(taken_port: int) -> None:
    for settings in ({"port": taken_port}, {"port_range": f"{taken_port}-{taken_port}"}):
        found = look(bind_host="127.0.0.1", **settings)
        assert found.verdict == Verdict.WARN
        assert str(taken_port) in found.text
        assert found.text.endswith("it may be a running job's")


def test_port_that_needs_a_privilege_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ResourceError("not allowed to bind 127.0.0.1:80")

    monkeypatch.setattr(opening, "Endpoint", refuse)
    assert look(port=80).remedy == "export DLCP_PORT=7000"
    assert look(port=8000).remedy == "see what it names"


def test_sockets_are_left_alone_where_an_endpoint_has_them(taken_port: int) -> None:
    assert look_at_opening(Settings(port=taken_port), None, opens=False) == []
    findings = look_at_host(environ={"DLCP_PORT": str(taken_port)}, opens=False)
    assert "start" not in {one.topic for one in findings}


def test_defaults_are_not_tried_in_place_of_wrong_settings() -> None:
    findings = look_at_host(environ={"DLCP_DRIVER": "dpkd"})
    assert "start" not in {one.topic for one in findings}


def test_key_that_is_missing_is_not_asked_for() -> None:
    """A job's ranks draw it; a file that cannot be read is told elsewhere."""
    findings = look_at_opening(Settings(bind_host="0.0.0.0", key_file="/nowhere/key"), None)
    assert [one.verdict for one in findings] == [Verdict.OK]


# --- below the kernel -----------------------------------------------------------------------------------------


@needs("dpdk")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("prt=net_null0", "'prt' is not an option of dpdk"),
        ("port=net_null0 mtu=abc", "mtu=abc: it is 576 to 16000"),
        ("gateway=10.9.0.1", "gateway=10.9.0.1"),
        ("queues=2 queues=3", "it was given before"),
    ],
)
@pytest.mark.parametrize("driver", ["dpdk", "local+dpdk"])
def test_words_that_dpdk_does_not_take_fail(driver: str, words: str, complaint: str) -> None:
    for arguments in ("", "--no-huge -m 64"):
        found = look(driver=driver, driver_options=words, eal_arguments=arguments, bind_host="10.0.0.1/24")
        assert found.verdict == Verdict.FAIL
        assert complaint in found.text


@needs("dpdk")
@pytest.mark.parametrize(
    "words",
    ["", "port=net_null0 mtu=9000 gateway=10.0.0.9", "queues=2 -- --no-huge -m 64", "-- -a '3b:00.0'"],
)
def test_words_that_dpdk_takes_are_tried_without_starting_it(words: str) -> None:
    settings = Settings(driver="dpdk", driver_options=words, bind_host="10.0.0.1/24")
    assert look_at_opening(settings, None) == []
    assert not dpdk.started()


@needs("xdp")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("mood=native", "'mood' is not an option of xdp"),
        ("interface=lo mode=1", "mode=1: it is one of"),
        ("interface=eth0 interface=eth1", "interface=eth1: interface eth0 is named already"),
    ],
)
def test_words_that_xdp_does_not_take_fail(words: str, complaint: str) -> None:
    found = look(driver="xdp", driver_options=words, bind_host="10.0.0.1/24")
    assert found.verdict == Verdict.FAIL
    assert complaint in found.text
    assert "nowhere" not in found.text


@needs("xdp")
@pytest.mark.parametrize(
    "settings", [{}, {"interface": "=lo"}, {"driver_options": "interface=lo mode=generic queues=1"}]
)
def test_words_that_xdp_takes_are_tried_without_an_interface(settings: dict[str, str]) -> None:
    assert look_at_opening(Settings(driver="xdp", bind_host="10.0.0.1/24", **settings), None) == []  # type: ignore[arg-type]


@needs("xdp")
def test_address_that_the_kernel_has_is_none_for_xdp() -> None:
    settings = Settings(driver="xdp", driver_options="interface=lo", bind_host="192.0.2.9")
    there = Interface("eth0", 2, True, True, False, 1500, (ipaddress.ip_interface("192.0.2.9/24"),))
    (found,) = look_at_opening(settings, None, interfaces=[there])
    assert found.verdict == Verdict.FAIL
    assert found.text == "the kernel has 192.0.2.9 on eth0, and xdp takes no address that it has"


@pytest.mark.parametrize("driver", ["dpdk", "xdp"])
def test_driver_that_is_missing_is_said_elsewhere(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "why_not", lambda _: plugins.Lack("it is missing", "install it"))
    settings = Settings(driver=driver, driver_options="x=1", bind_host="10.0.0.1/24")
    assert look_at_opening(settings, None) == []


# --- plugins of the user's own --------------------------------------------------------------------------------


def test_plugin_that_does_not_load_fails(tmp_path: Path) -> None:
    found = look(driver=str(tmp_path / "libmine.so"))
    assert (found.verdict, found.remedy) == (Verdict.FAIL, "export DLCP_DRIVER=udp")
    assert "cannot load the plugin" in found.text


@pytest.mark.parametrize("name", ["dpdk", "xdp"])
def test_plugin_that_is_named_by_its_path_is_loaded_and_not_opened(name: str) -> None:
    if not plugins.path(name).exists():
        pytest.skip(f"dlcp was built without its {name} driver")
    found = look(driver=str(plugins.path(name)))
    assert found.verdict == Verdict.OK
    assert found.text.endswith("is a plugin that loads; only a job opens it")
