"""Whether an endpoint would open with these settings, tried as far as nobody else notices.

The kernel's sockets are opened, and closed. A driver below the kernel would take its card and tell the network that its
address is here, which sends a running job's packets astray; so of dpdk and xdp only the words and the address are
tried, with a device that cannot be: they are read first, and opening ends there. A plugin of the user's own is loaded.
"""

from __future__ import annotations

import ctypes
import itertools
import secrets
from collections.abc import Iterator, Sequence

from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.doctor.network import choose_place, kernel_owner
from dlcp.errors import AddressError, DlcpError, DriverError, InterfaceError, PortInUseError, ResourceError
from dlcp.transport import Endpoint, Settings, plugins
from dlcp.transport.driver import BELOW_KERNEL, NAMES, nearest_driver
from dlcp.transport.interfaces import Interface, list_interfaces

START = Topic("start")
_OVER_SOCKETS = set(NAMES) - set(BELOW_KERNEL)
# From here on ports need no privilege (ip_unprivileged_port_start), and one that is as good as any.
_PORT_MIN, _PORT = 1024, 7000
# Longer than the name of any interface (IFNAMSIZ), so there is none.
_NOWHERE = "-doctor-s-nowhere"


@listed
def look_at_opening(
    settings: Settings,
    toward: str | None,
    *,
    opens: bool = True,
    interfaces: Sequence[Interface] | None = None,
) -> Iterator[Finding]:
    """Findings about opening. `toward`: a host of the job, if known. `opens`: False leaves sockets alone.

    `interfaces`: the kernel's, in place of those of this host.
    """
    interfaces = list_interfaces() if interfaces is None else interfaces
    name = settings.network_driver
    # Of a job the ranks draw one: what is missing is looked at elsewhere.
    settings = settings.replace(key=secrets.token_bytes(32), key_file=None)
    if settings.below_kernel:
        yield from _look_at_words(settings, interfaces)
    elif name not in _OVER_SOCKETS:
        yield _look_at_plugin(settings)
    elif opens:
        yield from _open(settings, toward, interfaces)


# --- over the kernel's sockets --------------------------------------------------------------------------------


def _open(settings: Settings, toward: str | None, interfaces: Sequence[Interface]) -> Iterator[Finding]:
    try:
        chosen = choose_place(settings, toward, interfaces)
    except (InterfaceError, AddressError):
        return  # what is said of the interface
    try:
        with Endpoint(0, settings=settings, bind_host=settings.bind_host or chosen.host) as endpoint:
            yield START.ok(f"an endpoint opens with these settings, here at {endpoint.address}")
    except PortInUseError as error:
        yield START.warn(f"{error}; it may be a running job's", "ss -ulpn")
    except AddressError as error:
        remedy = "unset DLCP_BIND_HOST; dlcp then takes the interface that leads to the others"
        yield START.fail(str(error), remedy)
    except DlcpError as error:
        words = settings.driver_options
        remedy = "see what it names"
        if words and words in str(error):
            remedy = "unset DLCP_DRIVER_OPTIONS"
        elif isinstance(error, ResourceError) and 0 < settings.ports[0] < _PORT_MIN:
            remedy = f"export DLCP_PORT={_PORT}"
        yield START.fail(str(error), remedy)


# --- below the kernel -----------------------------------------------------------------------------------------


def _look_at_words(settings: Settings, interfaces: Sequence[Interface]) -> Iterator[Finding]:
    """A finding if the driver does not take its words, or the address."""
    if plugins.why_not(settings.network_driver) is not None or settings.own_address is None:
        return  # what is said of the driver
    if settings.network_driver == "xdp":
        owner = kernel_owner(settings.own_address, interfaces)
        if owner is not None:
            text = f"the kernel has {settings.own_address} on {owner}, and xdp takes no address that it has"
            yield START.fail(text, "export DLCP_BIND_HOST=ADDRESS/PREFIX, one that no host's kernel has")
            return
    try:
        Endpoint(0, settings=_to_nowhere(settings)).close()
    except InterfaceError:
        pass  # xdp looks for the interface when all else is right
    except DlcpError as error:
        if _NOWHERE in str(error) and settings.network_driver == "dpdk":
            return  # and dpdk for an end of EAL's arguments
        remedy = "see the options in DLCP_DRIVER_OPTIONS"
        if isinstance(error, DriverError):
            remedy = plugins.install(settings.network_driver)
        elif isinstance(error, AddressError):
            remedy = "export DLCP_BIND_HOST=10.0.0.1/24, an address of the port's own"
        yield START.fail(str(error).replace(_NOWHERE, ""), remedy)


def _to_nowhere(settings: Settings) -> Settings:
    """The settings with EAL arguments that cannot be, a quote being open, or with an interface that cannot be."""
    words = settings.driver_options.split()
    if settings.network_driver == "dpdk":
        own = itertools.takewhile(lambda word: word != "--", words)
        return settings.replace(driver_options=" ".join(own), eal_arguments=f"'{_NOWHERE}")
    return settings.replace(
        driver_options=" ".join(f"{word}{_NOWHERE * word.startswith('interface=')}" for word in words),
        interface=f"{settings.device or next(iter(settings.devices), '')}{_NOWHERE}",
    )


# --- plugins of the user's own --------------------------------------------------------------------------------


def _look_at_plugin(settings: Settings) -> Finding:
    if _is_driver(settings.network_driver):
        return START.ok(f"driver {settings.driver} is a plugin that loads; only a job opens it")
    try:
        Endpoint(0, settings=settings).close()  # ends at the loading, and says what a job would
    except DlcpError as error:
        near = nearest_driver(settings.driver) or "udp"
        return START.fail(str(error), f"export DLCP_DRIVER={near}")
    return START.ok(f"an endpoint opens with driver {settings.driver}")


def _is_driver(name: str) -> bool:
    """Whether the driver's library loads and is one (native/io/driver_registry.cpp)."""
    beside = plugins.path(name)
    try:
        library = ctypes.CDLL(name if "/" in name else str(beside) if beside.exists() else beside.name)
    except OSError:
        return False
    return hasattr(library, "dlcp_io_driver")
