"""Settings of an endpoint: where their values come from, and which of them contradict each other.

A value comes from the first of: an argument, the environment (`DLCP_` and the field's name in capitals), the
`[transport]` table of the TOML file that `DLCP_CONFIG` names, the default. Units are in the names. An unknown name
is an error that names the nearest known one, in all three places. None stands for "found out when opening"; in the
environment and in TOML it is written `auto`, or `off` where it means that.

Which settings there are, with defaults and ranges, is said in the engine's table alone; `dlcp settings` prints it.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from dlcp import _native
from dlcp.checks import shown
from dlcp.errors import SettingsError
from dlcp.transport.aggregation.address import SwitchAddress
from dlcp.transport.driver import (
    BELOW_KERNEL,
    NAMES,
    NamedPort,
    arguments_below,
    ends_words,
    is_same_address,
    may_be_driver,
    named_ports,
    nearest_driver,
    network_driver,
    why_not_own_address,
)
from dlcp.transport.setting_rules import KEY_BYTES, plain, read_ports, rules
from dlcp.transport.settings_fields import SettingsFields

# Variables of other parts of dlcp and of its tests; every other DLCP_* must be a setting.
OTHER_VARIABLES = re.compile(
    r"DLCP_(CONFIG|TNA_INCLUDE|(LAB|TEST|BENCH|TORCH|SWITCH|SIM|HYPOTHESIS|NATIVE)(_.*|$))"
)
# Tables that the file may have besides [transport], for other parts of dlcp.
OTHER_TABLES = {"torch", "switch", "sim"}
# A smaller one was meant in Mbit/s or Gbit/s.
LINE_RATE_BPS_MIN = 1_000_000


def _without_key(value: Any) -> str:
    """What may be shown of a job key."""
    if not isinstance(value, bytes):
        return f"a {type(value).__name__}"
    return f"a secret of {_count_bytes(value)}"


def _count_bytes(content: bytes) -> str:
    return f"{len(content)} byte{'' if len(content) == 1 else 's'}"


@dataclass(frozen=True, kw_only=True)
class Settings(SettingsFields):
    """Every setting of an endpoint, checked. Make one with `Settings(...)` or `Settings.load(...)`.

    Raises SettingsError: a value outside its range, named with the range.
    """

    def __post_init__(self) -> None:
        for item in fields(self):
            value = plain(item.name, getattr(self, item.name))
            _check(item.name, value, f"setting {item.name}")
            object.__setattr__(self, item.name, value)
        if self.key is not None and self.key_file is not None:
            raise SettingsError("key and key_file are both set; give one of them")
        if self.port != 0 and self.port_range is not None:
            raise SettingsError(f"port is {self.port} and port_range is {self.port_range}; give one of them")
        self._check_driver()
        if self.congestion in _native.LINE_RATE_CONTROLLERS and self.line_rate_bps == 0:
            raise SettingsError(
                f"congestion is {self.congestion!r} and line_rate_bps is 0; set it to the rate of this host's link"
            )
        if 0 < self.line_rate_bps < LINE_RATE_BPS_MIN:
            raise SettingsError(
                f"line_rate_bps is {self.line_rate_bps}, which is bits a second; accepted: 0, or at least"
                f" {LINE_RATE_BPS_MIN} (25 Gbit/s are 25000000000)"
            )
        if self.max_rto_s < self.min_rto_s:
            raise SettingsError(
                f"max_rto_s is {self.max_rto_s:g}, less than min_rto_s, {self.min_rto_s:g}; accepted: at least that"
            )

        if self.aggregation is not None:
            SwitchAddress.parse(self.aggregation)

    def _check_driver(self) -> None:
        """Raises SettingsError: there is none of this name, or what only some can have goes with another one."""
        if not may_be_driver(self.driver):
            near = nearest_driver(self.driver)
            raise SettingsError(
                f"driver is {self.driver!r}{f'; did you mean {near}?' if near else ';'} accepted:"
                f" {', '.join(NAMES)}, the name of a plugin that is there (lower-case letters, digits, _), or its path"
            )
        if self.eal_arguments and not self._is_dpdk and "/" not in self.driver:
            raise SettingsError(
                f"eal_arguments is set, and driver is {self.driver!r}; set driver to dpdk, or leave them out"
            )
        if self.eal_arguments and ends_words(self.driver_options):
            raise SettingsError(
                "eal_arguments is set, and driver_options has a word -- with others behind it; give them in one place"
            )
        if self._is_dpdk:
            self._check_dpdk_words()
        if not self.below_kernel:
            return
        if self.bind_host is not None and (why_not := why_not_own_address(self.bind_host)) is not None:
            raise SettingsError(
                f"bind_host is {self.bind_host!r}, {why_not}; accepted with driver {self.driver}: an address of the"
                " port's own, with or without its prefix, such as 10.0.0.1/24"
            )
        if self.interface is not None and (self.interface.startswith("^") or "," in self.interface):
            raise SettingsError(
                f"interface is {self.interface!r}; accepted with driver {self.driver}: the name of one device"
            )

    def _check_dpdk_words(self) -> None:
        """Raises SettingsError: words of dlcp's and arguments of DPDK's are each in the other's place."""
        for word in self.driver_options.split()[:1]:
            if word.startswith("-") and word != "--":
                raise SettingsError(
                    f"driver_options begins with {word}, an argument of DPDK's; give these as eal_arguments"
                    " (DLCP_EAL_ARGUMENTS)"
                )
        for word in self.eal_arguments.split()[:1]:
            if not word.startswith(("-", "'", '"')):
                raise SettingsError(
                    f"eal_arguments begins with {word}, which is none of DPDK's; words for dlcp's driver are"
                    " driver_options (DLCP_DRIVER_OPTIONS)"
                )
        named = [port.device for port in self._named_ports if port.device]
        if self.interface is not None and named:
            raise SettingsError(
                f"interface is {self.interface!r}, and driver_options has port={named[0]}; name ports in one place"
            )
        first = next(iter(self._named_ports), NamedPort("", None))
        if self.bind_host is None or first.address is None:
            return
        if not is_same_address(self.bind_host, first.address):
            raise SettingsError(
                f"bind_host is {self.bind_host!r}, and driver_options has port={first.device}@{first.address},"
                " another address of the same port; give it in one place"
            )

    @classmethod
    def load(cls, *, environ: Mapping[str, str] | None = None, **arguments: Any) -> Self:
        """Settings from arguments, the environment, the TOML file and the defaults, in this order.

        `environ`: in place of os.environ. Reads the file that DLCP_CONFIG names, if set.
        Raises SettingsError: an unknown name, a malformed value, a file that cannot be read.
        """
        environ = os.environ if environ is None else environ
        for name in arguments:
            _known(name, "argument")
        values: dict[str, Any] = {}
        if environ.get("DLCP_CONFIG"):
            values |= _from_file(Path(environ["DLCP_CONFIG"]))
        values |= _from_environment(environ)
        values |= arguments
        # An argument takes the place of what it would contradict, if that was named elsewhere.
        for name, other in (("key", "key_file"), ("port", "port_range"), ("port_range", "port")):
            if arguments.get(name) and other not in arguments:
                values.pop(other, None)
        return cls(**values)

    def replace(self, **changes: Any) -> Self:
        """A copy with some settings changed. Raises SettingsError."""
        for name in changes:
            _known(name, "argument")
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return type(self)(**(values | changes))

    @property
    def ports(self) -> Sequence[int]:
        """The UDP ports to try in turn; 0 is any free one."""
        return (self.port,) if self.port_range is None else read_ports(self.port_range)

    @property
    def network_driver(self) -> str:
        """What leads out of this host: `driver` without the shared memory around it."""
        return network_driver(self.driver)

    @property
    def below_kernel(self) -> bool:
        """Whether the driver sends frames past the kernel, which then knows neither its address nor its routes."""
        return self.network_driver in BELOW_KERNEL

    @property
    def device(self) -> str | None:
        """Below the kernel: the one device that `interface` names; None: it is not set."""
        return None if self.interface is None else self.interface.removeprefix("=").strip()

    @property
    def own_address(self) -> str | None:
        """Below the kernel: a port's own address, without its prefix; None: the settings name none.

        That is bind_host, or of the first word port=DEVICE@ADDRESS that has one.
        """
        named = [] if self.bind_host is None else [self.bind_host]
        named += [port.address for port in self._named_ports if port.address is not None]
        return named[0].partition("/")[0] if named else None

    @property
    def devices(self) -> tuple[str, ...]:
        """Below the kernel: the devices that the settings name, first the one that has bind_host; (): none."""
        named = tuple(port.device for port in self._named_ports if port.device)
        return named or (() if self.device is None else (self.device,))

    @property
    def _is_dpdk(self) -> bool:
        return self.network_driver == "dpdk"

    @property
    def _named_ports(self) -> list[NamedPort]:
        return named_ports(self.driver_options, "port" if self._is_dpdk else "interface")

    @property
    def driver_words(self) -> str:
        """What the driver is given: driver_options and behind a word -- eal_arguments."""
        return f"{self.driver_options} -- {self.eal_arguments}" if self.eal_arguments else self.driver_options

    @property
    def dpdk_arguments(self) -> str:
        """The arguments of DPDK's EAL, wherever they are given; "": none."""
        return self.eal_arguments or arguments_below(self.driver_options)

    def need_own_address(self) -> str:
        """own_address. Raises SettingsError: there is none."""
        address = self.own_address
        if address is None:
            device = next(iter(self.devices), "a port")
            words = ", or a word port=DEVICE@ADDRESS/PREFIX in driver_options"
            raise SettingsError(
                f"driver is {self.driver!r}, where the kernel gives no address to {device}: set bind_host"
                f" (DLCP_BIND_HOST=10.0.0.1/24, another one for each rank){words if self._is_dpdk else ''}"
            )
        return address

    def job_key(self) -> bytes | None:
        """The 32 bytes of the job key, read from key_file if that is set; None: no key.

        Raises SettingsError: the file cannot be read, or holds something else.
        """
        return self.key if self.key_file is None else read_key_file(Path(self.key_file))

    def hub_key(self) -> bytes | None:
        """The 32 bytes of the key that admits to the hub; None: hub_key_file is not set. Raises as job_key."""
        return None if self.hub_key_file is None else read_key_file(Path(self.hub_key_file))


def read_key_file(path: Path) -> bytes:
    """The 32 bytes of a job key: the file holds them, or 64 hexadecimal digits.

    Raises SettingsError: it cannot be read, or holds something else.
    """
    try:
        content = path.read_bytes()
    except IsADirectoryError as error:
        raise SettingsError(
            f"key file {path} is a directory; accepted: a file of {KEY_BYTES} bytes"
        ) from error
    except OSError as error:
        raise SettingsError(
            f"key file {path}: {error.strerror}; write 32 random bytes there: head -c 32 /dev/urandom > {path}"
        ) from error
    if len(content) == KEY_BYTES:
        return content
    try:
        key = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"key file {path} has {_count_bytes(content)}; accepted: exactly {KEY_BYTES} bytes, or {2 * KEY_BYTES} "
            "hexadecimal digits"
        )
    return key


def _known(name: str, where: str, written: str | None = None, *, prefix: str = "") -> None:
    """Raises SettingsError if there is no such setting."""
    names = list(rules())
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise SettingsError(
        f"unknown {where} {written or name!r}; did you mean {prefix}{near.upper() if prefix else near}?"
    )


def _check(name: str, value: Any, where: str) -> None:
    """Raises SettingsError if the setting may not have this value."""
    rule = rules()[name]
    if value is None and rule.none:
        return
    if not rule.accepts(value):
        given = _without_key(value) if name == "key" else shown(value)
        raise SettingsError(f"{where} is {given}; accepted: {rule.accepted_or_none}")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith("DLCP_") or OTHER_VARIABLES.fullmatch(variable):
            continue
        name = variable.removeprefix("DLCP_").lower()
        _known(name, "environment variable", variable, prefix="DLCP_")
        if name == "key":
            raise SettingsError("DLCP_KEY is not read: an environment is seen by others; use DLCP_KEY_FILE")
        rule = rules()[name]
        value: Any = None
        if not (rule.none and text.strip().lower() in {"", rule.none}):
            try:
                value = plain(name, rule.read(text.strip()))
            except (ValueError, KeyError):
                value = text
        _check(name, value, f"environment variable {variable}")
        values[name] = value
    return values


def _from_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"DLCP_CONFIG names {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for table in content:
        if table != "transport" and table not in OTHER_TABLES:
            known = sorted({"transport", *OTHER_TABLES})
            near = difflib.get_close_matches(table, known, n=1, cutoff=0.0)
            raise SettingsError(f"{path}: unknown table or key {table!r}; did you mean [{near[0]}]?")
    table = content.get("transport", {})
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: transport is {table!r}; accepted: a table [transport]")
    values: dict[str, Any] = {}
    for name, given in table.items():
        _known(name, f"key in [transport] of {path}:")
        if name == "key":
            raise SettingsError(f"{path}: key is not read from a file that others may read; use key_file")
        none = rules()[name].none
        value = plain(name, tuple(given) if isinstance(given, list) else given)
        if none and value == none:
            value = None
        _check(name, value, f"{path}: {name}")
        values[name] = value
    return values
