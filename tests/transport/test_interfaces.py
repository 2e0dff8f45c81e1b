"""Which interface and address are chosen: by pattern, by route, and what is said when none can be."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from dlcp.errors import AddressError, InterfaceError
from dlcp.transport import Endpoint
from dlcp.transport.interfaces import (
    Chosen,
    Pattern,
    choose_bind_host,
    list_interfaces,
    owner_of,
    source_toward,
)
from tests.support.namespaces import Namespace, missing

NAMES = ("lo", "eth0", "eth1", "eth10", "ib0", "docker0")


def allowed(text: str) -> list[str]:
    """Of NAMES those that a pattern allows, the first choice first."""
    pattern = Pattern.parse(text)
    places = {name: place for name in NAMES if (place := pattern.place(name)) is not None}
    return sorted(places, key=lambda name: places[name])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("ib,eth", ["ib0", "eth0", "eth1", "eth10"]),
        ("eth,ib0", ["ib0", "eth0", "eth1", "eth10"]),
        ("=eth1,eth0", ["eth1", "eth0"]),
        ("=eth", []),
        ("^docker,lo", ["eth0", "eth1", "eth10", "ib0"]),
        ("^=eth1", ["lo", "eth0", "eth10", "ib0", "docker0"]),
        (" eth0 , ib ", ["eth0", "ib0"]),
        ("wlan", []),
    ],
)
def test_pattern_allows_names_in_order(text: str, names: list[str]) -> None:
    assert allowed(text) == names


@pytest.mark.parametrize("text", ["", "^", "=", "^=", "eth0,", ",", "eth0,,ib0", "^^eth0", "eth 0", "==eth0"])
def test_pattern_without_sense_is_refused(text: str) -> None:
    with pytest.raises(InterfaceError, match="accepted: names or their beginnings"):
        Pattern.parse(text)


def test_loopback_is_there_with_its_addresses() -> None:
    loopback = next(one for one in list_interfaces() if one.loopback)
    assert ipaddress.ip_interface("127.0.0.1/8") in loopback.addresses
    assert loopback.usable
    assert owner_of(ipaddress.ip_address("127.7.7.7"), list_interfaces()) == loopback


def test_without_pattern_and_goal_it_is_loopback() -> None:
    assert choose_bind_host(None) == Chosen("127.0.0.1", "lo")


@pytest.mark.parametrize("toward", ["127.0.0.1", "localhost", "127.8.8.8"])
def test_toward_loopback_it_is_loopback(toward: str) -> None:
    assert choose_bind_host(None, toward) == Chosen("127.0.0.1", "lo")


def test_a_name_that_nobody_has_is_said() -> None:
    with pytest.raises(AddressError, match="cannot find an address of 'no-host.invalid'"):
        choose_bind_host(None, "no-host.invalid")


# --- hosts with several interfaces ----------------------------------------------------------------------------

needs_namespaces = pytest.mark.skipif((why := missing()) is not None, reason=why or "")


@pytest.fixture(scope="module")
def host() -> Iterator[Namespace]:
    """Interfaces of every state: two that lead out, a container bridge, one down, one bare, one without a carrier."""
    with Namespace() as wire, Namespace() as host:
        for name in ("docker0", "eth0", "eth1", "eth2", "eth3", "eth4"):
            host.join(wire, name, name)
        for name, address in (
            ("docker0", "172.17.0.1/16"),
            ("eth0", "10.9.0.1/24"),
            ("eth1", "10.9.1.1/24"),
            ("eth4", "10.9.4.1/24"),
        ):
            host.ip(f"address add {address} dev {name}")
        host.ip("address add fd09:1::1/64 dev eth1 nodad")
        host.ip("address add fe80::1/64 dev eth1 nodad")
        for name in ("docker0", "eth0", "eth1", "eth3", "eth4"):
            host.ip(f"link set {name} up")
            if name != "eth4":
                wire.ip(f"link set {name} up")
        host.ip("route add default via 10.9.0.254")
        yield host


def on(host: Namespace, pattern: str | None, toward: str | None = None) -> Chosen:
    return host.run(lambda: choose_bind_host(pattern, toward))


@pytest.mark.parametrize(
    ("pattern", "toward", "chosen"),
    [
        # By route.
        (None, "10.9.1.7", Chosen("10.9.1.1", "eth1")),
        (None, "8.8.8.8", Chosen("10.9.0.1", "eth0")),
        (None, "10.9.1.1", Chosen("10.9.1.1", "eth1")),
        (None, "172.17.0.9", Chosen("172.17.0.1", "docker0")),
        (None, "fd09:1::5", Chosen("fd09:1::1", "eth1")),
        (None, "[fd09:1::5]", Chosen("fd09:1::1", "eth1")),
        (None, "fe80::5%eth1", Chosen("fe80::1%eth1", "eth1")),
        (None, "0.0.0.0", Chosen("10.9.0.1", "eth0")),
        # By pattern.
        ("eth", None, Chosen("10.9.0.1", "eth0")),
        ("eth1", None, Chosen("10.9.1.1", "eth1")),
        ("eth1,eth0", None, Chosen("10.9.1.1", "eth1")),
        ("=docker0", None, Chosen("172.17.0.1", "docker0")),
        ("^docker", None, Chosen("10.9.0.1", "eth0")),
        ("^docker,eth0", None, Chosen("10.9.1.1", "eth1")),
        ("^docker,eth", None, Chosen("127.0.0.1", "lo")),
        ("lo", None, Chosen("127.0.0.1", "lo")),
        # By both: of what matches, the one on the way; otherwise what the pattern says.
        ("eth", "10.9.1.7", Chosen("10.9.1.1", "eth1")),
        ("eth0", "10.9.1.7", Chosen("10.9.0.1", "eth0")),
        ("eth1", "fd09:1::5", Chosen("fd09:1::1", "eth1")),
        ("^docker", "127.0.0.1", Chosen("127.0.0.1", "lo")),
        ("^lo", "127.0.0.1", Chosen("172.17.0.1", "docker0")),
        ("eth2,eth3,eth4,eth1", "8.8.8.8", Chosen("10.9.1.1", "eth1")),
    ],
)
@pytest.mark.needs_root
@needs_namespaces
def test_choice(host: Namespace, pattern: str | None, toward: str | None, chosen: Chosen) -> None:
    assert on(host, pattern, toward) == chosen


@pytest.mark.parametrize(
    ("pattern", "toward", "words"),
    [
        (
            "eth2",
            None,
            "interface is 'eth2', and none that matches can be used: eth2 (down); ip link set eth2 up;",
        ),
        ("eth3", None, "eth3 (no address); ip address add ADDRESS/PREFIX dev eth3;"),
        ("eth4", None, "eth4 (no carrier); see the cable and the other end: ip -details link show eth4;"),
        ("eth4,eth2", None, "eth2 (down), eth4 (no carrier)"),
        ("eth9", None, "this host has no interface 'eth9': choose one of lo (127.0.0.1, ::1), "),
        ("eth9,ib", None, "this host has no interface that matches 'eth9,ib': choose one of lo"),
        ("=eth", None, "this host has no interface '=eth': choose one of lo"),
        # Never loopback in silence when others are to be reached.
        ("^docker,eth", "8.8.8.8", "interface is '^docker,eth', which leaves none of this host's"),
    ],
)
@pytest.mark.needs_root
@needs_namespaces
def test_refusal_names_pattern_and_state(
    host: Namespace, pattern: str, toward: str | None, words: str
) -> None:
    with pytest.raises(InterfaceError) as caught:
        on(host, pattern, toward)
    assert words in str(caught.value)


@pytest.mark.needs_root
@needs_namespaces
def test_no_route_is_said() -> None:
    with Namespace() as alone, pytest.raises(AddressError) as caught:
        alone.run(lambda: source_toward("10.1.2.3"))
    assert str(caught.value) == (
        "no route to 10.1.2.3 (10.1.2.3); see `ip route get 10.1.2.3`, and that its interface is up"
    )


@pytest.mark.needs_root
@needs_namespaces
def test_endpoint_takes_a_pattern(host: Namespace) -> None:
    def address(**settings: object) -> str:
        with Endpoint(0, allow_unauthenticated=True, **settings) as endpoint:
            return endpoint.address.rpartition(":")[0]

    assert host.run(lambda: address(interface="^docker,eth0")) == "10.9.1.1"
    assert host.run(lambda: address(interface="eth", bind_host="10.9.1.1")) == "10.9.1.1"
    assert host.run(lambda: address(interface="eth1", bind_host="0.0.0.0")) == "0.0.0.0"
    with pytest.raises(InterfaceError, match="eth2 \\(down\\)"):
        host.run(lambda: address(interface="eth2"))


@pytest.mark.needs_root
@needs_namespaces
def test_endpoints_of_one_interface_reach_each_other(host: Namespace) -> None:
    """Both bound to the device, at one address: the kernel's way between them is loopback."""

    def exchange() -> bytes:
        how = {"interface": "eth1", "allow_unauthenticated": True}
        with Endpoint(0, **how) as a, Endpoint(1, **how) as b:
            a.connect(1, b.address, timeout_s=20)
            buffer = bytearray(5)
            arriving = b.ireceive(0, buffer)
            a.send(1, b"hello", timeout_s=20)
            arriving.result(20)
            return bytes(buffer)

    assert host.run(exchange) == b"hello"
