"""What the doctor says of one host: of this one as it is, and of made-up facts where no host can be had."""

from __future__ import annotations

import ipaddress
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp import _native
from dlcp.doctor import software
from dlcp.doctor.ethtool import Card, read_card
from dlcp.doctor.finding import Finding, Verdict
from dlcp.doctor.firewall import look_at_firewall, ports_of
from dlcp.doctor.host import look_at_engine, look_at_host
from dlcp.doctor.launcher import look_at_launcher
from dlcp.doctor.machine import look_at_machine, look_at_memory, look_at_shared_memory
from dlcp.doctor.network import look_at_interface, look_at_network, look_at_overlaps
from dlcp.doctor.sockets import look_at_counters, look_at_sockets
from dlcp.doctor.software import look_at_settings, look_at_software
from dlcp.requirements import OLDEST_TORCH
from dlcp.transport import Settings
from dlcp.transport.interfaces import Interface, list_interfaces
from tests.support.namespaces import Namespace, missing

needs_namespaces = pytest.mark.skipif((why := missing()) is not None, reason=why or "")


def only(findings: list[Finding], topic: str) -> Finding:
    (found,) = [one for one in findings if one.topic == topic]
    return found


def interface(name: str, *addresses: str, mtu: int = 1500, index: int = 2) -> Interface:
    return Interface(
        name, index, True, True, False, mtu, tuple(ipaddress.ip_interface(one) for one in addresses)
    )


# --- the whole ------------------------------------------------------------------------------------------------


def test_this_host_is_looked_at_in_every_respect() -> None:
    findings = look_at_host(environ={})
    topics = {one.topic for one in findings}
    assert topics >= {
        *("versions", "crypto", "settings", "key", "interface", "buffers", "kernel", "drops", "firewall"),
        *("processors", "clock", "timers", "shared memory", "engine"),
    }
    assert [one for one in findings if one.verdict == Verdict.FAIL] == []
    for one in findings:
        assert one.text
        assert "\n" not in one.text
        assert one.verdict == Verdict.OK or one.remedy, one


def test_engine_exchanges_authenticated_messages() -> None:
    found = look_at_engine()
    assert found.verdict == Verdict.OK, found
    assert found.text.startswith("two endpoints exchange authenticated messages over loopback: ")


# --- software and settings ------------------------------------------------------------------------------------


def test_versions_are_those_of_this_environment() -> None:
    text = only(look_at_software(), "versions").text
    assert f"Python {sys.version.split()[0]}" in text
    assert f"wire version {_native.WIRE_VERSION}" in text


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        (OLDEST_TORCH, Verdict.OK),
        ("2.100.1+cpu", Verdict.OK),
        ("2.4.1", Verdict.FAIL),
        ("2.10.0+cpu", Verdict.FAIL),
    ],
)
def test_a_torch_that_the_backend_refuses_fails(
    version: str, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "version_of", {"torch": version, "numpy": "2"}.__getitem__)
    found = [one for one in look_at_software() if one.topic == "versions"][-1]
    assert found.verdict == verdict
    if verdict == Verdict.FAIL:
        assert (found.text, found.remedy) == (
            f"torch is {version}; dlcp needs {OLDEST_TORCH} or later",
            "pip install -U torch",
        )


def test_set_variables_are_listed() -> None:
    settings, findings = look_at_settings({"DLCP_PATHS": "4", "DLCP_SHM": "0", "HOME": "/"})
    assert (settings.paths, settings.shm) == (4, False)
    assert only(findings, "settings").text == "DLCP_PATHS=4, DLCP_SHM=0"


def test_misspelt_variable_fails_with_the_near_name() -> None:
    settings, findings = look_at_settings({"DLCP_INTERFACES": "eth0"})
    found = only(findings, "settings")
    assert settings == Settings()
    assert (found.verdict, found.remedy) == (Verdict.FAIL, "unset DLCP_INTERFACES")
    assert "did you mean DLCP_INTERFACE?" in found.text


@pytest.mark.parametrize(
    ("environ", "remedy"),
    [
        ({"DLCP_DRIVER": "dpkd"}, "export DLCP_DRIVER=dpdk"),
        ({"DLCP_DRIVER": "local+DPDK"}, "export DLCP_DRIVER=local+dpdk"),
        (
            {"DLCP_DRIVER": "dpdk", "DLCP_BIND_HOST": "127.0.0.1"},
            "export DLCP_BIND_HOST=10.0.0.1/24, an address of the port's own",
        ),
        ({"DLCP_EAL_ARGUMENTS": "-a 3b:00.0"}, "unset DLCP_EAL_ARGUMENTS"),
        ({"DLCP_PORT": "7000", "DLCP_PORT_RANGE": "7000-7007"}, "unset DLCP_PORT"),
    ],
)
def test_wrong_setting_fails_with_what_mends_it(environ: dict[str, str], remedy: str) -> None:
    settings, findings = look_at_settings(environ)
    found = only(findings, "settings")
    assert settings == Settings()
    assert (found.verdict, found.remedy) == (Verdict.FAIL, remedy)
    assert found.text.endswith("(what follows is of the defaults)")


def test_wrong_setting_of_a_file_fails_with_the_file(tmp_path: Path) -> None:
    for name, mistake in (("dlcp.toml", "paths = 99"), ("config.toml", "pths = 4")):
        path = tmp_path / name
        path.write_text(f"[transport]\n{mistake}\n")
        found = only(look_at_settings({"DLCP_CONFIG": str(path)})[1], "settings")
        assert (found.verdict, found.remedy) == (Verdict.FAIL, f"see {path}")


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        ("RANK WORLD_SIZE MASTER_ADDR", "MASTER_PORT"),
        ("WORLD_SIZE", "RANK, MASTER_ADDR, MASTER_PORT"),
        ("RANK WORLD_SIZE MASTER_ADDR MASTER_PORT", None),
        ("MASTER_ADDR MASTER_PORT", None),
        ("", None),
    ],
)
def test_launchers_variables_that_are_half_set_are_a_warning(names: str, missing: str | None) -> None:
    findings = look_at_launcher({**dict.fromkeys(names.split(), "2"), "MASTER_PORT_OF_ANOTHER": "1"})
    assert [one.text.partition(" not: ")[0].partition(" set, ")[2] for one in findings] == (
        [] if missing is None else [missing]
    )
    assert look_at_launcher({"WORLD_SIZE": "1", "RANK": "0"}) == []


@pytest.mark.parametrize("name", ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"])
def test_interface_of_another_backend_is_translated(name: str) -> None:
    findings = look_at_settings({name: "^docker,lo"})[1]
    warned = [one for one in findings if one.verdict == Verdict.WARN]
    assert [one.remedy for one in warned] == ["export DLCP_INTERFACE='^docker,lo'"]
    both = look_at_settings({name: "eth0", "DLCP_INTERFACE": "eth1"})[1]
    assert [one for one in both if one.verdict != Verdict.OK] == []


def test_key_file_is_opened_and_its_mode_judged(tmp_path: Path) -> None:
    path = tmp_path / "key"
    environ = {"DLCP_KEY_FILE": str(path)}
    assert only(look_at_settings(environ)[1], "key").verdict == Verdict.FAIL
    path.write_bytes(bytes(32))
    path.chmod(0o640)
    found = only(look_at_settings(environ)[1], "key")
    assert (found.verdict, found.remedy) == (Verdict.WARN, f"chmod 600 {path}")
    path.chmod(stat.S_IRUSR)
    assert only(look_at_settings(environ)[1], "key").verdict == Verdict.OK


def test_doing_without_a_key_is_a_warning() -> None:
    found = only(look_at_settings({"DLCP_ALLOW_UNAUTHENTICATED": "1"})[1], "key")
    assert (found.verdict, found.remedy) == (Verdict.WARN, "unset DLCP_ALLOW_UNAUTHENTICATED")


# --- sockets --------------------------------------------------------------------------------------------------


def test_drops_are_judged_by_their_share() -> None:
    def verdicts(arrived: int, full: int, backlog: int) -> list[Verdict]:
        return [
            one.verdict for one in look_at_counters({"InDatagrams": arrived, "RcvbufErrors": full}, backlog)
        ]

    assert verdicts(0, 0, 0) == [Verdict.OK]
    assert verdicts(1_000_000, 100, 0) == [Verdict.OK]
    assert verdicts(1_000_000, 101, 0) == [Verdict.WARN]
    assert verdicts(0, 1, 3) == [Verdict.WARN, Verdict.WARN]


@pytest.mark.needs_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (Debian: util-linux)")
def test_small_buffer_is_found_and_mended() -> None:
    """Without the privilege that passes the limit, and asking for twice the limit."""
    limit = int(Path("/proc/sys/net/core/rmem_max").read_text())
    code = (
        "from dlcp.doctor.sockets import look_at_sockets; from dlcp.transport import Settings\n"
        f"for one in look_at_sockets(Settings(socket_buffer_bytes={2 * limit})):\n"
        "    if one.topic == 'buffers': print(one.verdict, one.remedy)"
    )
    command = ["setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == f"warn sysctl -w net.core.rmem_max={2 * limit}"
    assert lines[1].endswith(f"sysctl -w net.core.wmem_max={2 * limit}") or lines[1] == "ok None"


def test_small_wish_is_granted_to_anybody() -> None:
    found = [one for one in look_at_sockets(Settings(socket_buffer_bytes=4096)) if one.topic == "buffers"]
    assert [one.verdict for one in found] == [Verdict.OK, Verdict.OK]


# --- machine --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "asks", "text", "remedy"),
    [
        ("always [madvise] never", True, "in huge pages", None),
        ("[always] madvise never", False, "in huge pages", None),
        ("always [madvise] never", False, "pages of 4 KiB", "unset DLCP_HUGE_PAGES"),
        ("always madvise [never]", True, "pages of 4 KiB", "echo madvise > "),
    ],
)
def test_pages_of_buffers_are_told(kernel: str, asks: bool, text: str, remedy: str | None) -> None:
    (found,) = look_at_memory(Settings(huge_pages=asks), kernel)
    assert text in found.text
    assert (found.remedy or "").startswith(remedy or "")
    assert (found.remedy is None) == (remedy is None)


def test_a_kernel_that_does_not_tell_of_huge_pages_is_no_finding() -> None:
    assert list(look_at_memory(Settings(), None)) == []


def test_more_ranks_than_processors_are_named() -> None:
    found = look_at_machine(Settings(), {"LOCAL_WORLD_SIZE": "4096"})[0]
    assert found.verdict == Verdict.WARN
    assert found.text.startswith("4096 ranks of this host share ")
    assert look_at_machine(Settings(), {"LOCAL_WORLD_SIZE": "1"})[0].verdict == Verdict.OK


def test_shared_memory_works_or_is_switched_off() -> None:
    assert look_at_shared_memory(Settings()).text.startswith("ranks of this host and user can share memory")
    assert look_at_shared_memory(Settings(shm=False)).remedy == "unset DLCP_SHM"


def test_firewall_names_the_ports_that_peers_send_to() -> None:
    assert ports_of(Settings()) == "1024-65535"
    assert ports_of(Settings(port=7000)) == "7000"
    assert ports_of(Settings(port_range="7000-7063")) == "7000-7063"
    assert {one.topic for one in look_at_firewall(Settings())} == {"firewall"}


@pytest.mark.needs_root
@needs_namespaces
@pytest.mark.skipif(shutil.which("nft") is None, reason="needs nft (Debian: nftables)")
def test_filter_that_drops_by_default_is_found_and_mended() -> None:
    def run(*words: str) -> None:
        subprocess.run(host.command("nft", *words), check=True)

    def look() -> list[Finding]:
        return look_at_firewall(Settings(port_range="7000-7063"))

    with Namespace() as host:
        assert [one.verdict for one in host.run(look)] == [Verdict.OK]
        run("add", "table", "inet", "guard")
        run("add", "chain", "inet", "guard", "entry", "{ type filter hook input priority 0; policy drop; }")
        (found,) = host.run(look)
        assert found.verdict == Verdict.WARN
        assert found.remedy == "nft insert rule inet guard entry udp dport 7000-7063 accept"
        run(*str(found.remedy).split()[1:])


# --- interfaces -----------------------------------------------------------------------------------------------

GOOD = {"tx-generic-segmentation": True, "rx-gro": True, "tx-udp-segmentation": True}


def test_good_interface_is_all_in_order() -> None:
    found = look_at_interface(
        interface("eth0", "10.0.0.1/24", mtu=9000), Card("mlx5_core", 100_000_000_000, GOOD)
    )
    assert [(one.verdict, one.text) for one in found] == [
        (Verdict.OK, "eth0 is up with 10.0.0.1, 100 Gbit/s by its driver, driver mlx5_core"),
        (Verdict.OK, "eth0 has MTU 9000, so a datagram carries 8972 bytes"),
        (Verdict.OK, "gso, gro on eth0; UDP is segmented and by the card itself"),
    ]


def test_a_rate_that_is_set_counts_and_one_that_nobody_says_is_named() -> None:
    eth0 = interface("eth0", "10.0.0.1/24")
    as_set, *_ = look_at_interface(eth0, Card(None, 10**9, GOOD), 25 * 10**9)
    assert as_set.text == "eth0 is up with 10.0.0.1, 25 Gbit/s as set"
    unknown, *_ = look_at_interface(eth0, Card(None, None, GOOD))
    assert "unknown rate (10 Gbit/s assumed; line_rate_bps sets it)" in unknown.text


@pytest.mark.parametrize(
    ("address", "mtu", "verdict", "payload"),
    [
        ("10.0.0.1/24", 1500, Verdict.OK, 1472),
        ("fd00::1/64", 1500, Verdict.OK, 1452),
        ("10.0.0.1/24", 1280, Verdict.OK, 1252),
        ("10.0.0.1/24", 1279, Verdict.WARN, 1251),
        ("10.0.0.1/24", 604, Verdict.WARN, 576),
        ("10.0.0.1/24", 603, Verdict.FAIL, 575),
    ],
)
def test_mtu_is_judged_by_what_a_datagram_carries(
    address: str, mtu: int, verdict: Verdict, payload: int
) -> None:
    found = only(look_at_interface(interface("eth0", address, mtu=mtu), Card(None, None, GOOD)), "mtu")
    assert found.verdict == verdict
    assert f"carries {payload} bytes" in found.text


def test_offloads_that_are_off_are_mended_by_ethtool() -> None:
    card = Card(None, 10**8, {"tx-generic-segmentation": False, "rx-gro": False})
    found = look_at_interface(interface("eth0", "10.0.0.1/24"), card)
    assert [one.remedy for one in found if one.verdict == Verdict.WARN] == [
        "see cable and port: ethtool eth0",
        "ethtool -K eth0 gso on",
        "ethtool -K eth0 gro on",
    ]


def test_interfaces_of_one_network_are_named() -> None:
    one, two = interface("eth0", "10.0.0.1/24"), interface("eth1", "10.0.0.2/24", index=3)
    (found,) = look_at_overlaps([one, two])
    assert found.text.startswith("eth0 and eth1 are both in 10.0.0.0/24")
    assert look_at_overlaps([one, interface("eth1", "10.0.1.2/24", index=3)]) == []
    assert look_at_overlaps([interface("eth0", "10.0.0.1/24", "10.0.0.2/24")]) == []


def test_every_interface_has_a_card_to_read() -> None:
    for one in list_interfaces():
        assert isinstance(read_card(one.name).features, dict)
    assert read_card("no-such-card") == Card(None, None, {})


@pytest.fixture(scope="module")
def host() -> Iterator[Namespace]:
    """eth0 leads out, eth1 is down, docker0 is a bridge."""
    with Namespace() as wire, Namespace() as host:
        for name, address in (
            ("docker0", "172.17.0.1/16"),
            ("eth0", "10.9.0.1/24"),
            ("eth1", "10.9.1.1/24"),
        ):
            host.join(wire, name, name)
            host.ip(f"address add {address} dev {name}")
            wire.ip(f"link set {name} up")
            if name != "eth1":
                host.ip(f"link set {name} up")
        host.ip("route add default via 10.9.0.254")
        yield host


@pytest.mark.needs_root
@needs_namespaces
def test_card_of_a_virtual_interface_is_read(host: Namespace) -> None:
    card = host.run(lambda: read_card("eth0"))
    assert (card.driver, card.speed_bps) == ("veth", 10_000_000_000)
    assert card.features["tx-generic-segmentation"]


@pytest.mark.needs_root
@needs_namespaces
@pytest.mark.skipif(shutil.which("ethtool") is None, reason="needs ethtool")
def test_offload_switched_off_is_seen(host: Namespace) -> None:
    def features() -> tuple[bool, bool]:
        found = host.run(lambda: read_card("docker0")).features
        return found["tx-generic-segmentation"], found["rx-gro"]

    for word in ("on", "off"):
        subprocess.run(host.command("ethtool", "-K", "docker0", "gso", word, "gro", word), check=True)
        assert features() == (word == "on", word == "on")


@pytest.mark.parametrize(
    ("settings", "toward", "verdict", "words"),
    [
        ({}, None, Verdict.OK, "dlcp binds 10.9.0.1 on eth0, by the default route"),
        (
            {},
            "172.17.0.9",
            Verdict.OK,
            "dlcp binds 172.17.0.1 on docker0, which leads to 172.17.0.9 (MASTER_ADDR)",
        ),
        ({"interface": "^lo,dock"}, None, Verdict.OK, "10.9.0.1 on eth0, as DLCP_INTERFACE=^lo,dock says"),
        ({"bind_host": "172.17.0.1"}, None, Verdict.OK, "dlcp is to bind 172.17.0.1, as bind_host says"),
        ({"interface": "eth1"}, None, Verdict.FAIL, "none that matches can be used: eth1 (down)"),
    ],
)
@pytest.mark.needs_root
@needs_namespaces
def test_choice_is_explained(
    host: Namespace, settings: dict[str, str], toward: str | None, verdict: Verdict, words: str
) -> None:
    found = host.run(lambda: look_at_network(Settings(**settings), toward, "MASTER_ADDR"))[0]
    assert found.verdict == verdict
    assert words in found.text


@pytest.mark.needs_root
@needs_namespaces
def test_failed_choice_is_mended_by_a_usable_interface(host: Namespace) -> None:
    found = host.run(lambda: look_at_network(Settings(interface="eth1"), None, ""))[0]
    assert found.remedy == "export DLCP_INTERFACE=docker0"


@pytest.mark.needs_root
@needs_namespaces
def test_host_without_a_network_is_for_itself_alone() -> None:
    def look() -> Finding:
        return look_at_network(Settings(), None, "")[0]

    with Namespace() as alone:
        found = alone.run(look)
    assert (found.verdict, found.remedy) == (Verdict.WARN, None)
    assert found.text == (
        "dlcp binds 127.0.0.1 on lo, and no other interface is up with an address: only ranks of this host can take"
        " part"
    )


def test_counters_of_the_kernel_are_read() -> None:
    """A datagram to a full socket shows in what the doctor reads."""
    from dlcp.doctor.sockets import _udp_counters

    before = _udp_counters()["RcvbufErrors"]
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as full,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        full.bind(("127.0.0.1", 0))
        for _ in range(100):
            sender.sendto(bytes(1400), full.getsockname())
    assert _udp_counters()["RcvbufErrors"] > before


@pytest.mark.parametrize(
    ("settings", "toward", "remedy"),
    [
        (
            {"bind_host": "nohost.invalid"},
            None,
            "getent ahosts nohost.invalid (a name has to be in DNS or /etc/hosts)",
        ),
        ({}, "nohost.invalid", "getent ahosts nohost.invalid (a name has to be in DNS or /etc/hosts)"),
        ({}, "no host", "getent ahosts 'no host' (a name has to be in DNS or /etc/hosts)"),
    ],
)
def test_name_that_has_no_address_fails_with_how_to_look_it_up(
    settings: dict[str, str], toward: str | None, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    failed = [
        one
        for one in look_at_network(Settings(**settings), toward, "MASTER_ADDR")
        if one.verdict == Verdict.FAIL
    ]
    assert [(one.topic, one.remedy) for one in failed] == [("route", remedy)]
