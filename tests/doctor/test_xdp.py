"""What the doctor says of XDP: of its driver, the interface and the privileges, all made up."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from dlcp.doctor.finding import Finding, Verdict
from dlcp.doctor.xdp import look_at_limits, look_at_named_interfaces, look_at_privileges, look_at_xdp
from dlcp.transport import Settings, plugins
from dlcp.transport.interfaces import Interface


def told(findings: list[Finding]) -> list[tuple[str, str, str | None]]:
    return [(str(one.verdict), one.text, one.remedy) for one in findings]


def test_without_its_driver_only_the_driver_xdp_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    lack = plugins.Lack("the XDP driver needs the library libxdp.so.1", "apt-get install libxdp1")
    monkeypatch.setattr(plugins, "why_not", {"xdp": lack}.get)
    assert told(look_at_xdp(Settings())) == [
        ("ok", f"{lack.text}; only driver xdp needs it", "apt-get install libxdp1")
    ]
    assert told(look_at_xdp(Settings(driver="xdp"))) == [
        ("fail", f"driver is xdp, and {lack.text}", "apt-get install libxdp1")
    ]


def test_interface_that_xdp_is_to_use_must_be_there_and_up() -> None:
    def one(name: str, *, up: bool = True, carrier: bool = True) -> Interface:
        return Interface(name, 2, up, carrier, False, 1500, (ipaddress.ip_interface("10.0.0.1/24"),))

    there = [one("eth0"), one("eth1", up=False), one("eth2", carrier=False)]
    findings = look_at_named_interfaces(["eth0", "eth1", "eth2", "eth9"], there)
    assert told(findings) == [
        ("ok", "eth0 is up, MTU 1500", None),
        ("fail", "eth1 is down", "ip link set eth1 up"),
        ("warn", "eth2 has no carrier", "see the cable and the other end"),
        (
            "fail",
            "the settings name the interface eth9, which is not here: there are eth0 (10.0.0.1), eth1 (down), eth2 (no"
            " carrier)",
            "ip link show",
        ),
    ]
    (none,) = look_at_named_interfaces([], there)
    assert (none.verdict, none.remedy) == (Verdict.FAIL, "export DLCP_INTERFACE=eth0")


def limits(
    settings: dict[str, Any], link: dict[str, Any], *, mtu_bytes: int = 1500, loopback: bool = False
) -> list[tuple[str, str, str | None]]:
    interface = Interface("eth0", 2, True, True, loopback, mtu_bytes, ())
    return told(look_at_limits(Settings(driver="xdp", **settings), interface, link))


@pytest.mark.parametrize(
    ("settings", "mtu_bytes", "datagram_bytes"),
    [
        ({}, 3498, None),
        ({}, 3499, 3470),
        ({"bind_host": "10.0.0.1/24"}, 9000, 3470),
        ({"bind_host": "fd00::1/64"}, 9000, 3450),
        ({"bind_host": "10.0.0.1", "max_datagram_bytes": 3471}, 9000, 3470),
        ({"bind_host": "10.0.0.1", "max_datagram_bytes": 3470}, 9000, None),
    ],
)
def test_mtu_that_no_page_holds_fails_unless_datagrams_are_smaller(
    settings: dict[str, Any], mtu_bytes: int, datagram_bytes: int | None
) -> None:
    expected = []
    if datagram_bytes is not None:
        text = f"eth0 has an MTU of {mtu_bytes}, and xdp carries frames of an MTU of 3498"
        expected = [("fail", text, f"export DLCP_MAX_DATAGRAM_BYTES={datagram_bytes}")]
    # With and without an ip that tells of it.
    assert limits(settings, {}, mtu_bytes=mtu_bytes) == expected
    assert limits(settings, {"link_type": "ether"}, mtu_bytes=mtu_bytes) == expected


def test_interface_without_ethernet_fails() -> None:
    for found in (
        limits({}, {"link_type": "none"}, mtu_bytes=9000),
        limits({}, {}, mtu_bytes=65536, loopback=True),
    ):
        ((verdict, text, remedy),) = found
        assert verdict == "fail"
        assert text.startswith("eth0 carries no Ethernet frames (it is of type ")
        assert remedy is not None
        assert remedy.startswith("export DLCP_INTERFACE=")


@pytest.mark.parametrize(
    ("program", "verdict", "text"),
    [
        (
            {"prog": {"id": 7, "name": "xdp_dispatcher"}},
            "fail",
            "eth0 has another XDP program, xdp_dispatcher, ",
        ),
        ({"prog": {"id": 7}}, "warn", "eth0 has an XDP program; "),
        # A running job's, or of this command itself.
        ({"prog": {"id": 7, "name": "dlcp_xdp"}}, "ok", "a process with driver xdp has eth0"),
    ],
)
def test_program_on_the_interface_is_told(program: dict[str, Any], verdict: str, text: str) -> None:
    ((found, said, remedy),) = limits({}, {"link_type": "ether", "xdp": {"mode": 1, **program}})
    assert found == verdict
    assert said.startswith(text)
    assert remedy is not None


@pytest.mark.parametrize(
    ("bits", "lacks"),
    [
        ([12, 13, 39], None),
        ([12, 13, 21], None),
        ([12, 13], "it lacks CAP_BPF"),
        ([], "it lacks CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF"),
    ],
)
def test_privileges_that_xdp_takes_are_named(bits: list[int], lacks: str | None, tmp_path: Path) -> None:
    held = sum(1 << bit for bit in bits)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/status").write_text(f"Name:\tpython\nCapEff:\t{held:016x}\n")
    found = look_at_privileges(tmp_path)
    assert (found.verdict == Verdict.FAIL) == (lacks is not None)
    assert lacks is None or found.text.endswith(lacks)
