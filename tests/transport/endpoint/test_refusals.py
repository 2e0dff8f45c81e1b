"""What an endpoint refuses at once, and the words for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp import errors
from dlcp.transport import Endpoint
from tests.support.endpoints import KEY


@pytest.mark.parametrize(
    "address",
    [
        "",
        "nowhere",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:70000",
        "[::1:5",
        "no.such.invalid:1",
    ],
)
def test_bad_address_is_refused(pair: tuple[Endpoint, Endpoint], address: str) -> None:
    with pytest.raises(errors.AddressError, match="rank 5") as caught:
        pair[0].connect(5, address)
    assert repr(address) in str(caught.value)
    assert pair[0].peers == (1,)


def test_address_must_be_text(pair: tuple[Endpoint, Endpoint]) -> None:
    with pytest.raises(errors.AddressError, match="accepted: a text"):
        pair[0].connect(5, 7000)  # type: ignore[arg-type]


@pytest.mark.loopback("the kernel knows its addresses")
def test_bad_bind_host_is_refused() -> None:
    with pytest.raises(errors.AddressError, match="192.0.2.1"):
        Endpoint(0, bind_host="192.0.2.1", key=KEY)


@pytest.mark.loopback("three on one network")
def test_port_in_use_is_named(pair: tuple[Endpoint, Endpoint]) -> None:
    port = int(pair[0].address.rsplit(":", 1)[1])
    with pytest.raises(errors.PortInUseError, match=str(port)):
        Endpoint(2, port=port)


@pytest.mark.loopback("the kernel knows its interfaces")
def test_absent_interface_is_named() -> None:
    with pytest.raises(errors.InterfaceError, match="'absent0'.*lo"):
        Endpoint(0, interface="absent0")


@pytest.mark.loopback("no driver is opened")
def test_absent_driver_is_named() -> None:
    with pytest.raises(errors.DriverError, match="'absent'.*libdlcp_io_absent.so"):
        Endpoint(0, driver="absent")
    with pytest.raises(errors.SettingsError, match="lower-case letters"):
        Endpoint(0, driver="No Such")


@pytest.mark.loopback("no driver is opened")
def test_library_that_is_no_driver_is_named() -> None:
    from dlcp import _native

    with pytest.raises(errors.DriverError, match="not a dlcp driver"):
        Endpoint(0, driver=str(Path(_native.__file__).resolve()))


def test_own_and_taken_ranks_are_refused(pair: tuple[Endpoint, Endpoint]) -> None:
    a, b = pair
    with pytest.raises(errors.DuplicateRankError, match="own rank"):
        a.connect(0, b.address)
    with pytest.raises(errors.DuplicateRankError, match="rank 1 is a peer already"):
        a.connect(1, b.address.partition("+")[0].rpartition(":")[0] + ":9")
    a.connect(1, b.address)  # the same again is fine


@pytest.mark.parametrize("value", ["x", 1, None])
def test_has_groups_must_be_a_boolean(value: object) -> None:
    with pytest.raises(errors.ArgumentError, match="has_groups is .*; accepted: True or False"):
        Endpoint(0, has_groups=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("deadline_s", [True, 1e300, float("nan"), float("inf"), 0, "x"])
def test_deadline_out_of_range_is_refused(pair: tuple[Endpoint, Endpoint], deadline_s: float) -> None:
    with pytest.raises(errors.DeadlineError, match="deadline_s is .*; accepted: more than 0 seconds, up to"):
        pair[0].isend(1, b"x", delivery="deadline", deadline_s=deadline_s)


@pytest.mark.parametrize("loss_ratio", [True, 1.0, -0.1, float("nan"), "x", None])
def test_loss_ratio_out_of_range_is_refused(pair: tuple[Endpoint, Endpoint], loss_ratio: float) -> None:
    with pytest.raises(errors.BudgetError, match="loss_ratio is .*; accepted: 0 to less than 1"):
        pair[0].isend(1, b"x", delivery="bounded", loss_ratio=loss_ratio)
