"""Short runs to the interpreter's very end, in every way a program ends.

    python -m tests.torch.exit_soak --runs 200

Each run is a world of two ranks. They are forked from this process, which has imported torch and done nothing else, and
end as programs do, through the interpreter's own shutdown: threads, atexit, module teardown. A run is wrong if a rank
does not end in time, ends otherwise than its scenario says, or leaves a word on standard error that it should not.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

import dlcp.torch.process_group  # loaded once, before the forks

RUN_LIMIT_S = 60.0
# What nobody may see. A scenario's own words on standard error are allowed.
FORBIDDEN = (
    "terminate called",
    "Fatal Python error",
    "Segmentation",
    "Exception ignored",
    "dlcp-callback",
    "a callback of a collective failed",
)


@dataclass(frozen=True)
class Scenario:
    run: Callable[[], Any]
    # Of each rank, as os.waitstatus_to_exitcode has it: below 0 is a signal's number.
    ends_with: tuple[int, int] = (0, 0)
    # What each rank's standard error must hold.
    words: tuple[str, str] = ("", "")


def init() -> None:
    dist.init_process_group("dlcp")
    dist.all_reduce(torch.ones(1000))


def destroyed() -> None:
    init()
    dist.destroy_process_group()


def left_open() -> None:
    init()


def twice() -> None:
    for _ in range(2):
        init()
        dist.barrier()
        dist.destroy_process_group()


def subgroups_left_open() -> None:
    init()
    groups = [dist.new_group([0, 1]) for _ in range(3)]
    for group in groups:
        dist.all_reduce(torch.ones(10), group=group)


def works_nobody_waits_for() -> None:
    init()
    for _ in range(20):
        dist.all_reduce(torch.ones(10_000), async_op=True)


def futures_nobody_waits_for() -> None:
    init()
    for _ in range(20):
        future = dist.all_reduce(torch.ones(10_000), async_op=True).get_future()
        future.then(lambda done: done.value()[0] * 2)


def callback_that_still_runs() -> None:
    init()
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    future.then(lambda _: time.sleep(0.3))


def callback_that_starts_a_collective() -> None:
    init()
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    future.then(lambda _: dist.all_reduce(torch.ones(10))).wait()


def receive_that_never_comes() -> None:
    init()
    dist.irecv(torch.ones(10), 1 - dist.get_rank())


def data_cache_left_open() -> None:
    # Its receive for other ranks' requests never ends, and nobody closes it.
    init()
    cache = dlcp.torch.DataCache(range(100))
    assert cache.__getitems__(range(100)) == list(range(100))
    dist.barrier()


def data_cache_destroyed_with_the_group() -> None:
    data_cache_left_open()
    dist.destroy_process_group()


def uncaught() -> None:
    init()
    raise ZeroDivisionError("on purpose")


def ctrl_c() -> None:
    init()
    if dist.get_rank() == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    dist.recv(torch.ones(10), 1 - dist.get_rank())


def exit_call() -> NoReturn:
    init()
    sys.exit(7)


SCENARIOS = {
    scenario.run.__name__: scenario
    for scenario in (
        Scenario(destroyed),
        Scenario(left_open),
        Scenario(twice),
        Scenario(subgroups_left_open),
        Scenario(works_nobody_waits_for),
        Scenario(futures_nobody_waits_for),
        Scenario(callback_that_still_runs),
        Scenario(callback_that_starts_a_collective),
        Scenario(receive_that_never_comes),
        Scenario(data_cache_left_open),
        Scenario(data_cache_destroyed_with_the_group),
        Scenario(uncaught, (1, 1), ("ZeroDivisionError: on purpose", "ZeroDivisionError: on purpose")),
        # The other rank hears of it: there is nothing to wait for any more.
        Scenario(ctrl_c, (-signal.SIGINT, 1), ("KeyboardInterrupt", "CollectiveAbortedError")),
        Scenario(exit_call, (7, 7)),
    )
}


class Finished(Exception):  # noqa: N818  # not an error: how a forked rank leaves the loop that forked it
    """A rank has done its part; the interpreter may end with this status."""


class World:
    """Two ranks of a scenario. In the ranks themselves the constructor does not return."""

    def __init__(self, number: int, name: str) -> None:
        self.title = f"run {number}, {name}"
        self._scenario = SCENARIOS[name]
        self._folder = Path(tempfile.mkdtemp(prefix="dlcp-exit-"))
        self._end_s = time.monotonic() + RUN_LIMIT_S
        self._pids: list[int] = []
        # By rank, as os.waitpid has it; None: killed, for it did not end.
        self._ended: dict[int, int | None] = {}
        for rank in range(2):
            pid = os.fork()
            if pid == 0:
                be_rank(rank, self._scenario, self._folder)
                raise Finished
            self._pids.append(pid)

    def is_over(self) -> bool:
        """Whether both ranks have ended; those that should have are killed."""
        late = time.monotonic() > self._end_s
        for rank, pid in enumerate(self._pids):
            if rank in self._ended:
                continue
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended[rank] = status
            elif late:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                self._ended[rank] = None
        return len(self._ended) == len(self._pids)

    def complaints(self) -> list[str]:
        """What was wrong with each rank, of a world that is over."""
        found = [judge(rank, self._ended[rank], self._scenario, self._folder) for rank in range(2)]
        shutil.rmtree(self._folder)
        return [complaint for complaint in found if complaint]


def be_rank(rank: int, scenario: Scenario, folder: Path) -> None:
    with (folder / f"{rank}.err").open("wb") as file:
        os.dup2(file.fileno(), 2)
    init_process_group = dist.init_process_group

    def of_this_run(backend: str) -> None:
        of_this_run.count += 1
        where = f"file://{folder}/store{of_this_run.count}"
        init_process_group(backend, init_method=where, rank=rank, world_size=2)

    of_this_run.count = 0
    dist.init_process_group = of_this_run
    scenario.run()


def judge(rank: int, status: int | None, scenario: Scenario, folder: Path) -> str:
    text = (folder / f"{rank}.err").read_text(errors="replace")
    wrong = []
    if status is None:
        wrong.append(f"did not end within {RUN_LIMIT_S:g} s")
    elif (code := os.waitstatus_to_exitcode(status)) != scenario.ends_with[rank]:
        wrong.append(f"ended with {code} instead of {scenario.ends_with[rank]}")
    wrong += [f"said {word!r}" for word in FORBIDDEN if word in text]
    words = scenario.words[rank]
    if words not in text:
        wrong.append(f"did not say {words!r}")
    if not words and "Traceback" in text:
        wrong.append("said 'Traceback'")
    return f"rank {rank} {', '.join(wrong)}:\n{text}" if wrong else ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=2 * len(SCENARIOS))
    parser.add_argument("--only", choices=SCENARIOS, action="append", help="may be given several times")
    parser.add_argument("--at-once", type=int, default=1, help="worlds beside each other; default: 1")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.only or list(SCENARIOS)
    bad = 0
    worlds: list[World] = []
    number = 0
    while number < arguments.runs or worlds:
        if number < arguments.runs and len(worlds) < arguments.at_once:
            worlds.append(World(number, names[number % len(names)]))
            number += 1
            continue
        over = [world for world in worlds if world.is_over()]
        worlds = [world for world in worlds if world not in over]
        for world in over:
            if wrong := world.complaints():
                bad += 1
                print(f"{world.title}:", *wrong, sep="\n", flush=True)
        if not over:
            time.sleep(0.01)
    print(f"{arguments.runs} runs, {bad} wrong", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        status = main()
    except Finished:
        status = 0
    if status:
        sys.exit(status)
