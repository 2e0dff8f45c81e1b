"""Backends in turn, in one run (A B A B …), and what comes of it: samples, tables, paired ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.collectives import kernel_floor, mpi
from bench.collectives.timing import Timing, time_all_reduce
from bench.collectives.world import GLOO, Backend, Place, Ranks
from bench.report import Figure, Report, in_turn, percentile, ratios, slowest, spread

KIB, MIB = 1 << 10, 1 << 20
# The engine's counters that are worth a note.
TROUBLE = (
    *("lost_packets", "spurious_losses", "probes_sent", "held_packets"),
    *("bad_tag", "tx_dropped_packets", "rx_dropped_datagrams"),
)


@dataclass(frozen=True)
class Sample:
    """All ranks' accounts of one size in one world. An iteration takes as long as its slowest rank."""

    nbytes: int
    ranks: list[Timing]

    @property
    def times_s(self) -> list[float]:
        return slowest(rank.times_s for rank in self.ranks)

    def time_s(self, percent: float) -> float:
        return percentile(self.times_s, percent)

    @property
    def bandwidth_bps(self) -> float:
        """Bytes of the tensor per median time, in bits: the algorithm bandwidth."""
        return 8 * self.nbytes / self.time_s(50)

    @property
    def cpu_s_per_gb(self) -> float:
        """Processor time per rank and 10^9 bytes of the tensor, without the refilling of the buffer."""
        used = sum(rank.cpu_s for rank in self.ranks) / len(self.ranks)
        return used / (self.nbytes * len(self.times_s) / 1e9)

    @property
    def wire_ratio(self) -> float:
        """Bytes that left the first rank's namespace, by its interface's counter, per byte of the tensor."""
        return self.ranks[0].wire_bytes / (self.nbytes * len(self.times_s))

    def engine(self, name: str) -> int:
        """A counter of dlcp's engines, of all ranks together."""
        return sum(rank.engine.get(name, 0) for rank in self.ranks)

    @property
    def repair_ratio(self) -> float:
        """Data packets that were sent again, of all; 0 for other backends."""
        return self.engine("repair_packets_sent") / max(1, self.engine("data_packets_sent"))

    @property
    def header_share(self) -> float:
        """Headers and tags of all that dlcp's datagrams carried."""
        headers = self.engine("header_bytes_sent")
        return headers / (headers + self.engine("data_bytes_sent") + self.engine("control_bytes_sent"))

    @property
    def kernel(self) -> dict[str, int]:
        """Kernel counters that grew, of all ranks' namespaces; ranks that share one count it twice."""
        names = sorted({name for rank in self.ranks for name in rank.kernel})
        return {name: sum(rank.kernel.get(name, 0) for rank in self.ranks) for name in names}


class Comparison:
    """Samples by backend, place and size, one per repetition."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str, int], list[Sample]] = {}

    def add(self, backend: Backend, place: str, timings: Sequence[Sequence[Timing]]) -> None:
        """What one world said: per rank a list of timings."""
        for of_one_size in zip(*timings, strict=True):
            nbytes = of_one_size[0].nbytes
            key = (backend.label, place, nbytes)
            self._samples.setdefault(key, []).append(Sample(nbytes, list(of_one_size)))

    def samples(self, backend: Backend, place: str, nbytes: int) -> list[Sample]:
        return self._samples[backend.label, place, nbytes]

    def figure(self, backend: Backend, place: str, nbytes: int, of: Callable[[Sample], float]) -> Figure:
        return Figure.of(map(of, self.samples(backend, place, nbytes)))

    def ratio(
        self, over: Backend, under: Backend, place: str, nbytes: int, of: Callable[[Sample], float]
    ) -> Figure:
        """A quantity of one backend over that of another, each repetition by itself."""
        return ratios(map(of, self.samples(over, place, nbytes)), map(of, self.samples(under, place, nbytes)))

    def report(self, name: str, settings: dict[str, object], title: str, *, own_wire: bool = True) -> Report:
        """Table and notes; what is judged is to be added."""
        report = Report(name, settings, notes=self.notes())
        columns = ["", "size", "times", "p50 ms", "p99 ms", "longest", "GB/s", "CPU s/GB", "wire", "repaired"]
        table = report.table(title, columns)
        for (backend, place, nbytes), samples in sorted(self._samples.items(), key=lambda item: item[0][1:]):
            table.add(
                f"{place}, {backend}",
                size_words(nbytes),
                str(sum(len(sample.times_s) for sample in samples)),
                *(spread((sample.time_s(percent) * 1e3 for sample in samples), 2) for percent in (50, 99)),
                f"{max(max(sample.times_s) for sample in samples) * 1e3:.1f}",
                spread((sample.bandwidth_bps / 8e9 for sample in samples), 3),
                spread((sample.cpu_s_per_gb for sample in samples), 2),
                # The loopback interface counts everybody's.
                spread((sample.wire_ratio for sample in samples), 2) if own_wire else "",
                spread((sample.repair_ratio for sample in samples), 4),
            )
        return report

    def judge_speed(
        self,
        report: Report,
        own: Backend,
        place: str,
        nbytes: int,
        at_least: float | None = None,
        cpu_at_most: float = 1.0,
    ) -> None:
        """Bars of dlcp beside Gloo: bandwidth, if `at_least` says what is asked, and processor time."""
        what = f"{place}, {size_words(nbytes)}"
        if at_least is not None:
            faster = self.ratio(own, GLOO, place, nbytes, lambda sample: sample.bandwidth_bps)
            report.at_least(at_least, f"{what}: bandwidth, dlcp / Gloo", faster)
        cost = self.ratio(own, GLOO, place, nbytes, lambda sample: sample.cpu_s_per_gb)
        report.at_most(cpu_at_most, f"{what}: CPU seconds per GB, dlcp / Gloo", cost)

    def judge_mpi(
        self,
        report: Report,
        own: Backend,
        other: Backend,
        place: str,
        sizes: Sequence[int],
        allowed: mpi.Allowed,
    ) -> None:
        """Bars of dlcp beside Open MPI: median times."""
        for nbytes in sizes:
            ours, theirs = (self.samples(each, place, nbytes) for each in (own, other))
            slower = ratios(
                (sample.time_s(50) for sample in ours),
                (allowed.times * sample.time_s(50) + allowed.plus_s for sample in theirs),
            )
            report.at_most(1.0, f"{place}, {size_words(nbytes)}: p50, dlcp / ({allowed})", slower)

    def note_floor(self, report: Report, own: Backend, place: str, nbytes: int) -> None:
        """Adds what a backend costs beside the kernel alone."""
        for floor in kernel_floor.BACKENDS:
            cost = self.ratio(own, floor, place, nbytes, lambda sample: sample.cpu_s_per_gb)
            report.notes.append(
                f"{place}, {size_words(nbytes)}: CPU seconds per GB, {own.label} / {floor.label}: {cost.show(2)}"
            )

    def notes(self) -> list[str]:
        """Wrong results, loudly; and what dlcp's engines and the kernel counted of trouble."""
        notes = []
        for (backend, place, nbytes), samples in self._samples.items():
            wrong = sum(rank.wrong for sample in samples for rank in sample.ranks)
            if wrong:
                notes.append(f"WRONG: {place}, {backend}, {size_words(nbytes)}: {wrong} elements")
            trouble = {name: sum(sample.engine(name) for sample in samples) for name in TROUBLE}
            dropped = sum(sample.kernel.get("RcvbufErrors", 0) for sample in samples)
            trouble |= {"dropped at full sockets": dropped if "dlcp" in backend else 0}
            if any(trouble.values()):
                said = ", ".join(f"{name} {count}" for name, count in trouble.items() if count)
                state = samples[-1].ranks[0].path
                window = f"; window {state['window_bytes'] / 1024:.0f} KiB" if "window_bytes" in state else ""
                notes.append(f"{place}, {backend}, {size_words(nbytes)}: {said}{window}")
        return notes


def alternate(
    into: Comparison,
    ranks: Ranks,
    places: dict[str, Place],
    backends: Sequence[Backend],
    sizes: Sequence[int],
    *,
    repeats: int,
    seconds: float,
    iterations_max: int = 2000,
) -> Comparison:
    """Times all-reduces of `sizes` at every place, backend after backend, `repeats` times. Raises WorldError.

    The kernel alone takes part where two ranks are, with the largest of the sizes.
    """
    cases = {
        (name, backend.label): (place, backend)
        for name, place in places.items()
        for backend in backends
        if place.world == 2 or backend not in kernel_floor.BACKENDS
    }
    if any(backend in kernel_floor.BACKENDS for backend in backends):
        kernel_floor.build()

    def measure(case: tuple[Place, Backend]) -> list[list[Timing]]:
        place, backend = case
        if backend.name == mpi.NAME:
            return mpi.time_all_reduce(backend, place.world, sizes, seconds, iterations_max)
        if backend.name == kernel_floor.NAME:
            return kernel_floor.time_exchange(backend, place, max(sizes), seconds)
        arguments = list(sizes), seconds, place.interface, iterations_max, backend.precision, backend.device
        return ranks.run(time_all_reduce, place, backend, *arguments)

    for (name, label), worlds in in_turn(repeats, cases, measure).items():
        for timings in worlds:
            into.add(cases[name, label][1], name, timings)
    return into


def size_words(nbytes: int) -> str:
    """A size as people write it: 64 MB for 64 · 2^20 bytes."""
    return f"{nbytes // MIB} MB" if nbytes >= MIB else f"{nbytes // KIB} KB"
