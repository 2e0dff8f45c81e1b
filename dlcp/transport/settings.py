"""Settings of an endpoint: what they are called, what they may be, and where they come from.

A value comes from the first of: an argument, the environment (`DLCP_` and the field's name in capitals), the
`[transport]` table of the TOML file that `DLCP_CONFIG` names, the default. Units are in the names. An unknown name
is an error that names the nearest known one, in all three places. None stands for "found out when opening"; in the
environment and in TOML it is written `auto`, or `off` where it means that.

What these fields do is the engine's and the driver's; here is only what a person may write.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from dlcp.errors import InterfaceError, SettingsError
from dlcp.transport import logger
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
from dlcp.transport.interfaces import Pattern

# Variables of other parts of dlcp and of its tests; every other DLCP_* must be a setting.
OTHER_VARIABLES = re.compile(
    r"DLCP_(CONFIG|TNA_INCLUDE|(LAB|TEST|BENCH|TORCH|SWITCH|SIM|HYPOTHESIS|NATIVE)(_.*|$))"
)
# Tables that the file may have besides [transport], for other parts of dlcp.
OTHER_TABLES = {"torch", "switch", "sim"}
KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class _Rule:
    """What one field may be: how to read it from text, a check, and the accepted values in words."""

    read: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    words: str


def _number(kind: type[int] | type[float], low: float, high: float, *, above: bool = False) -> _Rule:
    types = (int,) if kind is int else (int, float)

    def accepts(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, types):
            return False
        return bool(low < value <= high if above else low <= value <= high)

    unit = "an integer" if kind is int else "a number"
    words = (
        f"{unit} above {low:g} up to {high:g}"
        if above
        else f"{unit} from {low:,} to {high:,}".replace(",", " ")
    )
    return _Rule(kind, accepts, words)


def _is_text(value: Any) -> bool:
    """Whether the engine and the drivers can be given it: they take UTF-8 that a NUL ends."""
    try:
        return isinstance(value, str) and b"\0" not in value.encode()
    except UnicodeEncodeError:
        return False


def _text(words: str = "a text") -> _Rule:
    return _Rule(str, _is_text, words)


def _path(words: str) -> _Rule:
    """Of files, whose names may be other bytes than UTF-8's."""
    return _Rule(str, lambda value: isinstance(value, str) and "\0" not in value, words)


def _choice(*names: str) -> _Rule:
    return _Rule(str, lambda value: value in names, "one of " + ", ".join(names))


def _read_bool(text: str) -> bool:
    return {
        "1": True,
        "true": True,
        "yes": True,
        "on": True,
        "0": False,
        "false": False,
        "no": False,
        "off": False,
    }[text.lower()]


_BOOL = _Rule(
    _read_bool, lambda value: isinstance(value, bool), "true or false (in the environment also 1 or 0)"
)


def _is_dscp(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 8
        and all(isinstance(code, int) and not isinstance(code, bool) and 0 <= code <= 63 for code in value)
    )


_DSCP = _Rule(
    lambda text: tuple(int(word) for word in text.split(",")),
    _is_dscp,
    "8 integers from 0 to 63, one per traffic class",
)
_KEY = _Rule(
    bytes.fromhex, lambda value: isinstance(value, bytes) and len(value) == KEY_BYTES, f"{KEY_BYTES} bytes"
)


def _is_pattern(value: Any) -> bool:
    try:
        return _is_text(value) and Pattern.parse(value) is not None
    except InterfaceError:
        return False


_PATTERN = _Rule(
    str, _is_pattern, "names of interfaces or their beginnings, such as eth0, eth,ib, =eth0 or ^docker,lo"
)


def _read_ports(text: str) -> range:
    """The ports of "low-high" or of one number. Raises ValueError."""
    low, dash, high = (word.strip() for word in text.partition("-"))
    first, last = int(low), int(high if dash else low)
    if not 1 <= first <= last <= 65535:
        raise ValueError(text)
    return range(first, last + 1)


def _is_port_range(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(_read_ports(value)) > 0
    except ValueError:
        return False


_PORT_RANGE = _Rule(str, _is_port_range, "ports from 1 to 65535, such as 7000-7063, or one of them")


def _without_key(value: Any) -> str:
    """What may be shown of a job key."""
    if not isinstance(value, bytes):
        return f"a {type(value).__name__}"
    return f"a secret of {_count_bytes(value)}"


def _count_bytes(content: bytes) -> str:
    return f"{len(content)} byte{'' if len(content) == 1 else 's'}"


def _plain(name: str, value: Any) -> Any:
    """The value as it is kept: lists and paths are as good as tuples and texts."""
    if name == "dscp" and isinstance(value, list):
        return tuple(value)
    if name in ("key_file", "flight_recorder_dir") and isinstance(value, os.PathLike):
        return os.fspath(value)
    if name == "port_range" and isinstance(value, tuple | list) and len(value) == 2:
        return f"{value[0]}-{value[1]}"
    if name == "log_level" and isinstance(value, str):
        return value.lower()
    return value


def _setting(
    default: Any, rule: _Rule, *, auto: bool = False, off: bool = False, secret: bool = False
) -> Any:
    """A field; `auto` and `off`: None is accepted, and that is its word in the environment and in TOML."""
    none = "auto" if auto else "off" if off else None
    return field(default=default, repr=not secret, metadata={"rule": rule, "none": none})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every setting of an endpoint, checked. Make one with `Settings(...)` or `Settings.load(...)`.

    Raises SettingsError: a value outside its range, named with the range.
    """

    # ---- where ----
    driver: str = _setting("udp", _text("udp, local, dpdk, xdp, the name of a plugin, or its path"))
    """What moves packets. "udp": the kernel's sockets; "local": these, and shared memory between ranks of one host, as
    jobs have it anyway (`shm`); "dpdk", "xdp": whole frames, below the kernel; a plugin: a driver of one's own."""
    driver_options: str = _setting("", _text("words for the driver, by spaces"))
    """For the driver that `driver` names, such as "port=0000:3b:00.0@10.0.0.1/24 queues=2" for dpdk."""
    eal_arguments: str = _setting("", _text("arguments of DPDK's EAL, such as --lcores 2 -a 0000:3b:00.0"))
    """For driver dpdk: with what DPDK is started in this process, quoted as in a shell."""
    bind_host: str | None = _setting(None, _text("an address or a name of this host"), auto=True)
    """None: loopback, or the interface's own address if `interface` is set. Below the kernel (dpdk, xdp): the port's
    own address, which may carry the length of its network's prefix: 10.0.0.1/24."""
    port: int = _setting(0, _number(int, 0, 65535))
    """UDP port that peers send to; 0: any free one."""
    port_range: str | None = _setting(None, _PORT_RANGE, auto=True)
    """In place of `port`: "low-high", of which each process takes the first free one, so that a firewall can let them
    in. Packets come from any free ports still, one per path."""
    interface: str | None = _setting(None, _PATTERN, auto=True)
    """Send and receive through this interface only. A pattern as in NCCL_SOCKET_IFNAME: beginnings of names (eth,ib),
    exact names (=eth0,eth1) or any but some (^docker,lo); see dlcp.transport.interfaces. Below the kernel one device:
    for xdp the interface's name, for dpdk DPDK's name of it, such as 0000:3b:00.0."""
    shm: bool = _setting(True, _BOOL)
    """Ranks of one host talk through shared memory; False: through the network, as if they were on two."""
    job: int = _setting(0, _number(int, 0, 2**32 - 1))
    """Packets of another job are counted and dropped."""
    inject_loss_ratio: float = _setting(0.0, _number(float, 0, 1))
    """Share of arriving packets that is dropped on purpose, for demonstrations and tests. Logged and counted."""

    # ---- packet protection ----
    key: bytes | None = _setting(None, _KEY, auto=True, secret=True)
    """The job key. Not read from the environment or TOML, where it would be seen: use key_file."""
    key_file: str | None = _setting(None, _path("the path of a file"), auto=True)
    """A file with the job key: 32 bytes, or 64 hexadecimal digits."""
    encrypt: bool = _setting(False, _BOOL)
    crypto_library: str = _setting("fastest", _choice("fastest", "openssl", "ipsec_mb"))
    allow_unauthenticated: bool = _setting(False, _BOOL)
    """Accept, without a key, an address that other hosts can reach."""

    # ---- datagrams and buffers ----
    max_datagram_bytes: int | None = _setting(None, _number(int, 576, 9152), auto=True)
    """Largest UDP payload; None: what the interface carries in one piece. The handshake lowers it to the path."""
    socket_buffer_bytes: int | None = _setting(None, _number(int, 4096, 2**31 - 1), auto=True)
    """Asked of the kernel, or of DPDK as queues that hold so much, for receiving and for sending; None: as it is."""
    receive_buffer_bytes: int | None = _setting(None, _number(int, 65536, 2**40), auto=True)
    """Offered to all senders together as credit; None: what the sockets hold."""
    segmentation_offload: bool = _setting(True, _BOOL)
    receive_offload: bool = _setting(True, _BOOL)

    # ---- spraying ----
    paths: int | None = _setting(None, _number(int, 1, 64), auto=True)
    """Source ports to spray over; None: 8, on loopback 1, where there is only one way."""
    run_packets: int = _setting(16, _number(int, 1, 1024))
    """Packets of one path in a row; 1 sprays packet by packet."""
    dscp: tuple[int, ...] = _setting((0, 8, 16, 24, 32, 40, 48, 56), _DSCP)
    """DSCP per traffic class, control last."""

    # ---- congestion control ----
    congestion: str = _setting("window", _choice("window", "line_rate", "credit"))
    line_rate_bps: int = _setting(0, _number(int, 0, 10**13))
    """Of this host's link; 0: unknown. Congestion control `line_rate` and `credit` need it."""
    target_delay_s: float = _setting(1e-3, _number(float, 0, 10, above=True))
    initial_window_bytes: int = _setting(64 * 1024, _number(int, 576, 2**40))
    max_window_bytes: int = _setting(16 * 1024 * 1024, _number(int, 576, 2**40))

    # ---- timers ----
    connect_timeout_s: float = _setting(30.0, _number(float, 0, 1e9, above=True))
    """How long connect() waits for the handshake unless told otherwise."""
    peer_timeout_s: float = _setting(10.0, _number(float, 0, 86400, above=True))
    """Silence after which a peer with work outstanding is dead."""
    initial_rtt_s: float = _setting(10e-3, _number(float, 0, 10, above=True))
    min_rto_s: float = _setting(200e-6, _number(float, 0, 3600, above=True))
    max_rto_s: float = _setting(1.0, _number(float, 0, 3600, above=True))
    max_ack_delay_s: float = _setting(500e-6, _number(float, 0, 1))
    timer_granularity_s: float = _setting(100e-6, _number(float, 0, 1))
    """How late this host's timers may be: pacing allows this much of its rate at once."""
    linger_s: float = _setting(100e-6, _number(float, 0, 1))
    """After a blocking call the I/O thread stays away for this long, so that the next one finds the way free."""

    # ---- bounds ----
    max_peers: int = _setting(4096, _number(int, 1, 65535))
    max_messages_per_peer: int = _setting(16384, _number(int, 1, 2**20))
    max_unexpected_bytes: int = _setting(64 * 1024 * 1024, _number(int, 0, 2**40))
    """Payload kept for messages that nobody has asked for yet.

    Beyond it packets are discarded and senders told to hold.
    """
    max_unexpected_message_bytes: int = _setting(64 * 1024 * 1024, _number(int, 0, 2**40))
    """Longer messages that nobody has asked for yet are held at once: keeping and copying them costs more."""

    # ---- collectives ----
    algorithm: str | None = _setting(None, _text("the name of a schedule"), auto=True)
    """Schedule of collectives, as dlcp.transport.schedule names it; None: by size and number of ranks."""
    timeout_s: float | None = _setting(None, _number(float, 0, 1e9, above=True), auto=True)
    """After which a collective fails on every rank; None: what the group is opened with (torch: its `timeout`)."""

    # ---- what one can see ----
    log_level: str | None = _setting(None, _choice(*logger.LEVELS), auto=True)
    """Lines of the logger `dlcp` from this level on, to standard error unless the program has set up logging; None: as
    the program has it."""
    metrics_port: int | None = _setting(None, _number(int, 0, 65535), off=True)
    """TCP port of the Prometheus endpoint, 0: any free one; None: there is none."""
    metrics_host: str = _setting("127.0.0.1", _text("an address of this host"))
    """Address of the Prometheus endpoint. Whoever reaches it can read it."""
    flight_recorder_entries: int = _setting(2048, _number(int, 0, 2**20))
    """Operations that the flight recorder remembers per process; 0: it is off."""
    flight_recorder_dir: str | None = _setting(None, _path("the path of a folder"), auto=True)
    """Where the flight recorder writes when an operation fails; None: in the folder for temporary files."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = _plain(item.name, getattr(self, item.name))
            _check(item.name, value, f"setting {item.name}")
            object.__setattr__(self, item.name, value)
        if self.key is not None and self.key_file is not None:
            raise SettingsError("key and key_file are both set; give one of them")
        if self.port != 0 and self.port_range is not None:
            raise SettingsError(f"port is {self.port} and port_range is {self.port_range}; give one of them")
        self._check_driver()
        if self.encrypt and self.key is None and self.key_file is None:
            raise SettingsError("encrypt is set, but there is no job key; set key_file")
        if self.congestion != "window" and self.line_rate_bps == 0:
            raise SettingsError(
                f"congestion is {self.congestion!r} and line_rate_bps is 0; set it to the rate of this host's link"
            )
        if self.max_rto_s < self.min_rto_s:
            raise SettingsError(
                f"max_rto_s is {self.max_rto_s:g}, less than min_rto_s, {self.min_rto_s:g}; accepted: at least that"
            )

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
        return (self.port,) if self.port_range is None else _read_ports(self.port_range)

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


def _rules() -> dict[str, tuple[_Rule, str | None]]:
    """Per setting what it may be, and the word for None if that is accepted."""
    return {item.name: (item.metadata["rule"], item.metadata["none"]) for item in fields(Settings)}


def _known(name: str, where: str, shown: str | None = None, *, prefix: str = "") -> None:
    """Raises SettingsError if there is no such setting."""
    names = list(_rules())
    if name in names:
        return
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    raise SettingsError(f"unknown {where} {shown or name!r}; did you mean {prefix}{_shown(near, prefix)}?")


def _shown(name: str, prefix: str) -> str:
    return name.upper() if prefix else name


def _check(name: str, value: Any, where: str) -> None:
    """Raises SettingsError if the setting may not have this value."""
    rule, none = _rules()[name]
    if value is None and none:
        return
    if not rule.accepts(value):
        shown = _without_key(value) if name == "key" else repr(value)
        raise SettingsError(f"{where} is {shown}; accepted: {rule.words}{f', or {none}' if none else ''}")


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith("DLCP_") or OTHER_VARIABLES.fullmatch(variable):
            continue
        name = variable.removeprefix("DLCP_").lower()
        _known(name, "environment variable", variable, prefix="DLCP_")
        if name == "key":
            raise SettingsError("DLCP_KEY is not read: an environment is seen by others; use DLCP_KEY_FILE")
        rule, none = _rules()[name]
        value: Any = None
        if not (none and text.strip().lower() in {"", none}):
            try:
                value = _plain(name, rule.read(text.strip()))
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
        none = _rules()[name][1]
        value = _plain(name, tuple(given) if isinstance(given, list) else given)
        if none and value == none:
            value = None
        _check(name, value, f"{path}: {name}")
        values[name] = value
    return values
