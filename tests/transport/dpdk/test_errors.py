"""What is refused when a rank on DPDK opens: a named error whose sentence says what to do.

Most need a process each, since DPDK starts, or fails to, once per process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dlcp
from dlcp import _native, errors
from tests.support import dpdk
from tests.support import station_ranks as rank
from tests.support.stations import PATIENCE_S, Station

NULL = f"{dpdk.NO_HUGE} --vdev=net_null0 --vdev=net_null1"
PLACE = {"driver": "dpdk", "bind_host": "10.77.0.1/24"}


@pytest.fixture
def fresh() -> Iterator[Station]:
    """A process without an EAL."""
    with Station("fresh") as station:
        yield station


@pytest.fixture(scope="module")
def started() -> Iterator[Station]:
    """A process whose EAL has two ports that lead nowhere."""
    with Station("started") as station:
        station.call(rank.open_endpoint, 0, **PLACE, driver_options="port=net_null0", eal_arguments=NULL)
        yield station


def refused(station: Station, kind: type[errors.DlcpError], **settings: Any) -> str:
    """The sentence of the error that opening rank 1 there raises."""
    with pytest.raises(kind) as caught:
        station.call(rank.open_endpoint, 1, **(PLACE | settings))
    return str(caught.value)


# --- what is not there --------------------------------------------------------------------------------------


def test_port_that_dpdk_does_not_have_is_named_with_those_it_has(started: Station) -> None:
    words = refused(started, errors.InterfaceError, driver_options="port=net_memif7")
    assert "'net_memif7'" in words
    assert "net_null0 (0, net_null)" in words
    assert "net_null1 (1, net_null)" in words


def test_two_ports_and_none_named_is_a_question(started: Station) -> None:
    words = refused(started, errors.InterfaceError)
    assert "port=" in words
    assert "net_null1" in words


def test_pci_address_that_is_not_there_is_named(started: Station) -> None:
    assert "no PCI device 0000:ff:1f.7" in refused(
        started, errors.InterfaceError, driver_options="port=ff:1f.7"
    )


def test_device_that_the_kernel_has_names_its_driver_and_the_command(started: Station) -> None:
    """Only looked at: DPDK itself is told to leave PCI alone."""
    for device in sorted(Path("/sys/bus/pci/devices").glob("*")):
        if (device / "driver").exists() and (driver := (device / "driver").resolve().name).startswith(
            "virtio"
        ):
            break
    else:
        pytest.skip("no PCI device here is bound to a virtio driver")
    words = refused(started, errors.InterfaceError, driver_options=f"port={device.name}")
    assert driver in words
    assert f"dpdk-devbind.py --bind=vfio-pci {device.name}" in words


@pytest.mark.parametrize("allow", ["-a ff:1f.7", "-aff:1f.7", "--allow=0000:ff:1f.7,args=1"])
def test_card_of_eal_arguments_that_is_not_there_is_named(fresh: Station, allow: str) -> None:
    # A list of what is allowed keeps DPDK off all other cards.
    words = refused(fresh, errors.InterfaceError, eal_arguments=f"--no-huge -m 64 {allow}")
    assert "this host has no PCI device 0000:ff:1f.7" in words


def test_no_port_at_all_says_how_to_have_one(fresh: Station) -> None:
    words = refused(fresh, errors.InterfaceError, eal_arguments=dpdk.NO_HUGE)
    assert "--vdev" in words
    assert "-a " in words


def test_interface_that_a_device_needs_is_named(fresh: Station) -> None:
    words = refused(
        fresh,
        errors.DlcpError,
        driver_options="port=net_af_packet0",
        eal_arguments=f"{dpdk.NO_HUGE} --vdev=net_af_packet0,iface=absent0",
    )
    assert "absent0" in words


def test_address_that_is_not_said_is_asked_for(started: Station) -> None:
    words = refused(started, errors.SettingsError, bind_host=None, driver_options="port=net_null1")
    assert "bind_host" in words


def test_absent_huge_pages_are_named_with_the_command(fresh: Station) -> None:
    with dpdk.huge_pages(0):  # nobody else reserves any meanwhile
        if dpdk.free_huge_pages() > 0:
            pytest.skip("the machine has free huge pages")
        words = refused(fresh, errors.ResourceError, eal_arguments="--no-pci --vdev=net_null0")
    assert "hugepages" in words
    assert "nr_hugepages" in words
    assert "--no-huge" in words
    # DPDK was not asked, so it can be still.
    fresh.call(rank.open_endpoint, 1, **PLACE, driver_options="port=net_null0", eal_arguments=NULL)
    fresh.call(rank.close_endpoint, 1)


def test_memory_that_does_not_suffice_is_named(fresh: Station) -> None:
    words = refused(fresh, errors.ResourceError, eal_arguments="--no-huge -m 4 --no-pci --vdev=net_null0")
    assert "-m" in words


def test_interface_names_the_port_as_a_word_does(started: Station) -> None:
    words = refused(started, errors.InterfaceError, interface="net_memif7")
    assert "'net_memif7'" in words
    assert "net_null1" in words


def test_peer_at_the_address_of_our_own_port_is_named(started: Station) -> None:
    with pytest.raises(
        errors.AddressError, match=r"is the address of our own port net_null0: give each rank"
    ):
        started.call(rank.connect, 0, 1, f"{PLACE['bind_host'].partition('/')[0]}:7000")


# --- what is taken ------------------------------------------------------------------------------------------


def test_port_of_another_endpoint_is_taken(started: Station) -> None:
    words = refused(started, errors.InterfaceError, driver_options="port=net_null0")
    assert "net_null0" in words


def test_other_eal_arguments_are_refused_and_the_same_accepted(started: Station) -> None:
    words = refused(started, errors.DriverError, eal_arguments=NULL + " --vdev=net_null2")
    assert "once per process" in words
    for arguments in (NULL, ""):
        settings = PLACE | {"driver_options": "port=net_null1", "eal_arguments": arguments}
        started.call(rank.open_endpoint, 1, **settings)
        started.call(rank.close_endpoint, 1)


# --- what is not understood ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("prot=net_null1", "port"),
        ("port=net_null1 queues=900", "queues=900"),
        ("port=net_null1 poll=often", "spin, yield, sleep"),
        ("port=net_null1 neighbour=10.77.0.2", "neighbour=10.77.0.2"),
        ("port=net_null1@10.77.0.1/99", "prefix"),
        ("port=net_null1 gateway=10.78.0.1", "10.78.0.1"),
        ("port=net_null1 vlan=5000", "vlan=5000"),
        ("port=net_null1 mtu=60000", "mtu=60000"),
        ("port=net_null1 checksum=card", "checksum=card"),
        ("port=net_null1 flow_isolation=on", "flow_isolation=on"),
    ],
)
def test_word_that_is_wrong_is_named(started: Station, options: str, wanted: str) -> None:
    words = refused(started, errors.SettingsError, driver_options=options)
    assert wanted in words


@pytest.mark.parametrize(
    ("arguments", "kind", "wanted"),
    [
        ("--no-huge --no-such-option", errors.SettingsError, "no-such-option"),
        (f"{dpdk.NO_HUGE} --lcores 'x", errors.SettingsError, "lcores"),
        (f"{dpdk.NO_HUGE} --vdev=net_nothing_like_it0", errors.InterfaceError, "net_nothing_like_it0"),
        (f"{dpdk.NO_HUGE} -l 4000 --vdev=net_null0", errors.SettingsError, "4000"),
    ],
)
def test_eal_arguments_that_are_wrong_are_named(
    fresh: Station, arguments: str, kind: type[errors.DlcpError], wanted: str
) -> None:
    words = refused(fresh, kind, eal_arguments=arguments)
    assert wanted in words


def test_eal_that_failed_says_so_the_second_time(fresh: Station) -> None:
    refused(fresh, errors.DlcpError, eal_arguments=f"{dpdk.NO_HUGE} -l 4000 --vdev=net_null0")
    words = refused(fresh, errors.DlcpError, eal_arguments=NULL, driver_options="port=net_null0")
    # Found before DPDK was started, or not: then the process cannot try again.
    assert "failed to start before in this process" in words


# --- no plugin ----------------------------------------------------------------------------------------------


def test_plugin_that_is_not_there_is_named(fresh: Station) -> None:
    words = refused(fresh, errors.DriverError, driver="/nowhere/libdlcp_io_dpdk.so")
    assert "/nowhere/libdlcp_io_dpdk.so" in words


def test_package_without_its_plugin_works_otherwise_and_says_what_to_install(tmp_path: Path) -> None:
    """As installed where there was no DPDK: a copy of the package with its module and nothing beside it."""
    shutil.copytree(
        Path(dlcp.__file__).parent, tmp_path / "dlcp", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(_native.__file__, tmp_path / "dlcp")
    script = """
        import sys
        sys.path[:0] = sys.argv[1:]
        from dlcp import errors
        from dlcp.transport import Endpoint
        try:
            Endpoint(0)
        except errors.DriverError as error:
            print(error)
        with Endpoint(0, driver="udp", bind_host="127.0.0.1"):
            print("udp opens")
    """
    # Without site: an editable install would lead back to the tree.
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-P",
            "-c",
            textwrap.dedent(script),
            str(tmp_path),
            sysconfig.get_path("purelib"),
        ],
        env={**os.environ, "DLCP_DRIVER": "dpdk", "DLCP_BIND_HOST": "10.77.0.1/24"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "driver 'dpdk'" in done.stdout
    assert "libdlcp_io_dpdk.so" in done.stdout
    assert done.stdout.endswith("udp opens\n")
