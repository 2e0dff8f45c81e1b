"""Processors, memory, clocks, timers and shared memory of this host, as far as a transport feels them.

Limits of containers (cgroups) count as the machine's: they are what a rank gets.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from dlcp.doctor.files import lines, read
from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.transport import Settings

PROCESSORS, MEMORY = Topic("processors"), Topic("memory")
CLOCK, TIMERS = Topic("clock"), Topic("timers")
SHARED_MEMORY = Topic("shared memory")
# Clocks that are read without a system call.
_FAST_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "riscv_clocksource"}
_TIME_ERROR = 5
# Timers later than this make pacing and repair coarse: above the engine's own allowance (timer_granularity_s).
_LATENESS_S_MAX = 1e-3
_GIB = 1 << 30
HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"


@listed
def look_at_machine(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about this machine. Takes about 10 ms, in which it waits for timers."""
    yield from _look_at_processors(environ)
    yield from look_at_memory(settings, read(HUGE_PAGES))
    yield from _look_at_clock()
    yield _look_at_timers()
    yield look_at_shared_memory(settings)


# --- processors and memory ------------------------------------------------------------------------------------


def _look_at_processors(environ: Mapping[str, str]) -> Iterator[Finding]:
    allowed = len(os.sched_getaffinity(0))
    quota = _processor_quota()
    usable = allowed if quota is None else min(allowed, quota)
    words = f"{usable:g} of {os.cpu_count()} processors"
    if quota is not None and quota < allowed:
        words += " (the rest is not given to this container)"
    memory = _memory_bytes()
    if memory is not None:
        words += f" and {memory / _GIB:.1f} GiB of memory"
    ranks = environ.get("LOCAL_WORLD_SIZE", "")
    if ranks.isdecimal() and int(ranks) > usable:
        yield PROCESSORS.warn(
            f"{ranks} ranks of this host share {words}: they wait for each other's turn",
            f"torchrun --nproc-per-node {max(1, int(usable))}",
        )
    else:
        yield PROCESSORS.ok(f"a rank may use {words}")
    governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    driver = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver") or ""
    # Where the hardware chooses, `powersave` is the ordinary governor and no brake.
    if governor == "powersave" and "pstate" not in driver:
        yield PROCESSORS.warn(
            "the frequency governor is powersave: packets wait for a slow processor",
            "cpupower frequency-set -g performance",
        )


def _own_cgroup() -> Path | None:
    """The folder of this process's cgroup (version 2)."""
    for line in (read("/proc/self/cgroup") or "").splitlines():
        if line.startswith("0::"):
            return Path("/sys/fs/cgroup") / line[3:].lstrip("/")
    return None


def _processor_quota() -> float | None:
    """Processors that the cgroup's quota allows; None: no limit known."""
    group = _own_cgroup()
    words = (read(group / "cpu.max") or "").split() if group is not None else []
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota, period = (read(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))
    if quota and period and int(quota) > 0:
        return int(quota) / int(period)
    return None


def _memory_bytes() -> int | None:
    """Memory that this process may have; None: not known."""
    limits = []
    for name, *words in lines("/proc/meminfo"):
        if name == "MemTotal:":
            limits.append(int(words[0]) * 1024)
    group = _own_cgroup()
    limit = read(group / "memory.max") if group is not None else None
    if limit and limit != "max":
        limits.append(int(limit))
    return min(limits, default=None)


def look_at_memory(settings: Settings, huge_pages: str | None) -> Iterator[Finding]:
    """Whether large buffers come to lie in huge pages.

    `huge_pages`: how the kernel gives them, such as `always [madvise] never`; None: it does not say.
    """
    mode = re.search(r"\[(\w+)\]", huge_pages or "")
    if mode is None:
        return
    slower = "large buffers lie in pages of 4 KiB, where sums take longer"
    if mode[1] == "never":
        yield MEMORY.ok(slower, f"echo madvise > {HUGE_PAGES}")
    elif mode[1] == "madvise" and not settings.huge_pages:
        yield MEMORY.ok(slower, "unset DLCP_HUGE_PAGES")
    else:
        yield MEMORY.ok("large buffers that are used again come to lie in huge pages")


# --- clocks and timers ----------------------------------------------------------------------------------------


def _look_at_clock() -> Iterator[Finding]:
    place = "/sys/devices/system/clocksource/clocksource0"
    source = read(f"{place}/current_clocksource")
    resolution_s = time.clock_getres(time.CLOCK_MONOTONIC)
    others = (read(f"{place}/available_clocksource") or "").split()
    if source is not None and source not in _FAST_CLOCKS:
        better = next((one for one in others if one in _FAST_CLOCKS), None)
        set_it = f"echo {better} > {place}/current_clocksource"
        yield CLOCK.warn(
            f"the kernel reads time from {source}, a system call and a slow device per packet burst",
            set_it if better else "boot with clocksource=tsc if the processor allows it",
        )
    elif resolution_s > 1e-6:
        yield CLOCK.warn(
            f"CLOCK_MONOTONIC advances in steps of {resolution_s * 1e3:g} ms: no high-resolution timers",
            "boot without highres=off, with a kernel that has CONFIG_HIGH_RES_TIMERS",
        )
    else:
        source_words = f", read from {source}" if source else ""
        yield CLOCK.ok(f"CLOCK_MONOTONIC resolves {resolution_s * 1e9:g} ns{source_words}")
    is_kept = _clock_is_synchronised()
    if is_kept is not None:
        text = f"the time of day is {'' if is_kept else 'not '}kept by NTP"
        remedy = None if is_kept else "timedatectl set-ntp true"
        yield CLOCK.ok(f"{text}; dlcp needs no common time, but logs of several hosts do", remedy)


def _clock_is_synchronised() -> bool | None:
    """Whether something keeps the clock (adjtimex); None: the kernel does not tell."""
    # struct timex is 208 bytes on every 64-bit Linux; modes 0 only reads.
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
    return None if state < 0 else state != _TIME_ERROR


def _look_at_timers() -> Finding:
    late_s = []
    for _ in range(40):
        begin = time.monotonic()
        time.sleep(100e-6)
        late_s.append(time.monotonic() - begin - 100e-6)
    median = statistics.median(late_s)
    ticks = _kernel_ticks()
    words = f"timers are {median * 1e6:.0f} µs late (median){ticks}"
    if median <= _LATENESS_S_MAX:
        return TIMERS.ok(words)
    return TIMERS.warn(
        f"{words}: repairs and pacing are as coarse",
        "leave processors to the ranks: fewer per host, or taskset",
    )


def _kernel_ticks() -> str:
    """`, HZ is 250`, if the kernel's configuration is there to read."""
    for line in (read(f"/boot/config-{os.uname().release}") or "").splitlines():
        if line.startswith("CONFIG_HZ="):
            return f", HZ is {line.removeprefix('CONFIG_HZ=')}"
    return ""


# --- shared memory --------------------------------------------------------------------------------------------


def look_at_shared_memory(settings: Settings) -> Finding:
    """Whether ranks of this host can share memory: a memory file handed over a socket in a folder of /tmp."""
    if not settings.shm:
        return SHARED_MEMORY.ok("ranks of this host use the network, as DLCP_SHM=0 says", "unset DLCP_SHM")
    try:
        _hand_over_memory()
    except OSError as error:
        return SHARED_MEMORY.warn(
            f"ranks of this host cannot share memory: {error.strerror or error}; they use the network",
            "allow memfd_create and sockets under /tmp (seccomp or AppArmor profile of the container)",
        )
    place = ""
    with contextlib.suppress(OSError):
        free = os.statvfs("/dev/shm")
        place = f"; /dev/shm, which data loaders use, has {free.f_bavail * free.f_frsize / _GIB:.1f} GiB free"
    return SHARED_MEMORY.ok(f"ranks of this host and user can share memory{place}")


def _hand_over_memory() -> None:
    """What the driver does between two processes, within one. Raises OSError: the system refuses."""
    with (
        tempfile.TemporaryDirectory(prefix="dlcp-doctor-", dir="/tmp") as folder,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as door,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC) as opener,
    ):
        door.bind(f"{folder}/socket")
        door.listen(1)
        opener.connect(f"{folder}/socket")
        with door.accept()[0] as taker:
            memory = os.memfd_create("dlcp-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            received: list[int] = []
            try:
                os.ftruncate(memory, 1 << 16)
                socket.send_fds(opener, [b"memory"], [memory])
                received = socket.recv_fds(taker, 16, 1)[1]
                if not received or os.fstat(received[0]).st_size != 1 << 16:
                    raise OSError("a memory file does not come through")
            finally:
                for descriptor in (memory, *received):
                    os.close(descriptor)
