"""A record as text: a table per model, what the network did, and what follows from both.

Compared are runs of one model; several seeds become a mean and a spread. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, stdev

from dlcp.train.plan import GLOO, Configuration, percent
from dlcp.train.record import LOOPBACK, Record, RunRecord
from dlcp.units import aligned, fitted, grouped, plural


def lines(record: Record) -> Iterator[str]:
    """The whole report as plain lines."""
    for model in record.models:
        yield from _model_lines(record, model)
        yield ""
    yield from _network_lines(record)
    yield from findings(record)
    yield f"It took {record.wall_s:.0f} s on {record.host.get('processor', 'this machine')}."


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of one model with one configuration: a run per seed."""

    configuration: Configuration
    runs: Sequence[RunRecord]

    def cells(self) -> list[str]:
        """As COLUMNS names them."""
        return [
            spread([run.last.loss for run in self.runs], "{:.4f}"),
            spread([run.last.accuracy * 100 for run in self.runs], "{:.1f}", " %"),
            "" if self.step_bytes is None else data_size(self.step_bytes),
            f"{self.step_s * 1e3:.1f} ms",
            f"{quantile([t for run in self.runs for t in run.step_s], 0.99) * 1e3:.1f} ms",
            percent(self.communication_ratio),
            f"{mean(sum(run.cpu_s) for run in self.runs):.1f} s",
            f"{mean(run.wall_s for run in self.runs):.1f} s",
            self.abandoned or "",
        ]

    @property
    def step_s(self) -> float:
        """The median step of rank 0."""
        return median(t for run in self.runs for t in run.step_s)

    @property
    def step_bytes(self) -> float | None:
        """What a rank sends in a step, the mean of ranks and runs; None: not counted in all of them."""
        counts = [run.step_bytes for run in self.runs]
        known = [count for count in counts if count is not None]
        return mean(known) if len(known) == len(counts) else None

    @property
    def communication_ratio(self) -> float:
        """The share of rank 0's time in steps that all-reduce took."""
        return sum(sum(run.communication_s) for run in self.runs) / total_step_s(self.runs)

    @property
    def abandoned(self) -> str | None:
        """The share of the gradients' bytes that was abandoned, and the bytes; None if all had to arrive."""
        if not (runs := [run for run in self.runs if run.gradients]):
            return None
        abandoned = mean(sum(rank.abandoned_bytes for rank in run.gradients) for run in runs)
        return f"{percent(mean(run.abandoned_ratio for run in runs))} ({data_size(abandoned)})"


_TIMES = ("step p50", "step p99", "all-reduce", "CPU", "time")
COLUMNS = ("", "loss", "accuracy", "bytes/step", *_TIMES, "abandoned")


def model_table(found: Sequence[Row]) -> tuple[Sequence[str], list[list[str]]]:
    """The columns that say something of these rows, and the cells of each row without its name."""
    body = [row.cells() for row in found]
    said = [place for place in range(len(COLUMNS) - 1) if any(cells[place] for cells in body)]
    names = [COLUMNS[0], *(COLUMNS[1 + place] for place in said)]
    return names, [[cells[place] for place in said] for cells in body]


def rows(record: Record, model: str) -> list[Row]:
    """A row per configuration, in the order of the runs."""
    runs = record.of_model(model)
    return [
        Row(configuration, [run for run in runs if run.run.configuration == configuration])
        for configuration in dict.fromkeys(run.run.configuration for run in runs)
    ]


def title(model: str) -> str:
    """What a model is, in a few words."""
    return {"digits": "Handwritten digits", "language": "Python's library, byte by byte"}[model]


def circumstances(record: Record, model: str) -> str:
    """What was trained how, in a line."""
    first = record.of_model(model)[0]
    seeds = len({run.run.seed for run in record.of_model(model)})
    words = (
        f"{grouped(first.parameters)} parameters, {first.steps} steps, {plural(record.world_size, 'rank')}"
    )
    return f"{words}, {seeds} seeds" if seeds > 1 else words


def network_rows(record: Record) -> list[list[str]]:
    """What the network did to each run that somebody counted, as NETWORK_COLUMNS names it."""
    several = len({one.run.seed for one in record.runs}) > 1
    return [
        [one.run.name if several else one.run.name.rpartition(",")[0], *_network_cells(one)]
        for one in record.runs
        # What a hub or a switch does is not in the endpoints' counts.
        if one.lost() is not None and not record.exchanges
    ]


NETWORK_COLUMNS = ("", "packets", "sent", "lost", "sent again", "marked", "refused", "overhead")


def findings(record: Record) -> list[str]:
    """Sentences that say what the numbers show. A comparison that was not made is not mentioned."""
    found = []
    if record.runs and all(one.replicas_agree for one in record.runs):
        found.append(f"In every run all {record.world_size} ranks ended with the same weights, bit for bit.")
    for one in record.runs:
        if not one.replicas_agree:
            found.append(f"WRONG: the ranks of {one.run.name} ended with different weights.")
    found += _identity(record)
    for model in record.models:
        found += _comparison(record, model)
        found += _fewer_bytes(record, model)
        found += _giving_up(record, model)
        found += _slowdown(record, model)
        found += _by_exchange(record, model)
    if record.network.startswith(LOOPBACK) and any(
        one.run.configuration.recipe == "low_bit" for one in record.runs
    ):
        found.append(
            "On loopback bytes cost next to nothing, so fewer bits save little or no time here;"
            " --lab shows a network, as root."
        )
    return found


def spread(values: Sequence[float], form: str, unit: str = "") -> str:
    """One value, or the mean of several and their standard deviation."""
    if len(values) == 1:
        return form.format(values[0]) + unit
    return f"{form.format(mean(values))} ± {form.format(stdev(values))}{unit}"


def quantile(values: Sequence[float], share: float) -> float:
    """The value that this share of all is not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def total_step_s(runs: Sequence[RunRecord]) -> float:
    """Time in steps, of rank 0."""
    return sum(sum(run.step_s) for run in runs)


def data_size(count: float) -> str:
    """Bytes for people: "12.3 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    raise AssertionError("not reached")


# --- parts ----------------------------------------------------------------------------------------------------


def _model_lines(record: Record, model: str) -> Iterator[str]:
    yield f"{title(model)}: {circumstances(record, model)}"
    found = rows(record, model)
    names, body = model_table(found)
    named = ([row.configuration.name, *cells] for row, cells in zip(found, body, strict=True))
    yield from _indented([names, *named])


def _network_lines(record: Record) -> Iterator[str]:
    if found := network_rows(record):
        yield f"network: {record.network}"
        yield from _indented([NETWORK_COLUMNS, *found])
        yield ""


def _indented(table: Sequence[Sequence[str]]) -> Iterator[str]:
    return (f"  {line}" for line in aligned(fitted(table, gap="     "), gap="   "))


def _network_cells(one: RunRecord) -> list[str]:
    lost, total = one.lost(), one.totals()
    assert lost is not None
    losses = f"{grouped(lost.dropped_packets)} ({percent(lost.loss_ratio)})"
    if total is None:  # Gloo: the links counted, TCP does not say
        return [grouped(lost.packets), "", losses, "", "", "", ""]
    carried = total.gradient_bytes
    return [
        grouped(total.sent_packets),
        data_size(total.sent_bytes),
        losses,
        f"{grouped(total.repair_packets)} ({data_size(total.repair_bytes)})",
        grouped(total.marked_packets),
        grouped(total.refused_packets),
        percent((total.sent_bytes - carried) / max(1, carried)),
    ]


def _identity(record: Record) -> Iterator[str]:
    """Whether exact runs that differ in nothing but the loss ended with the same bits, for each backend."""
    exact = [one for one in record.runs if one.run.configuration.is_exact]
    same_weights: dict[str, list[bool]] = {}
    for clean in exact:
        for lossy in exact:
            without_loss = replace(lossy.run, configuration=replace(lossy.run.configuration, loss_ratio=0.0))
            if lossy.run.configuration.loss_ratio and clean.run == without_loss:
                of_backend = same_weights.setdefault(clean.run.configuration.backend, [])
                of_backend.append(clean.digests == lossy.digests)
    for backend, equal in same_weights.items():
        name = Configuration(backend).name.partition(",")[0]
        if all(equal):
            yield f"Over {name} loss changed no bit of the final weights ({len(equal)} of {len(equal)} runs)."
        else:
            yield f"WRONG: over {name} loss changed the final weights in {equal.count(False)} of {len(equal)} runs."


def _reference(record: Record, model: str) -> tuple[Row | None, list[Row]]:
    """The runs that all others of a model are compared with, and those others."""
    found = rows(record, model)
    reference = next((row for row in found if row.configuration == GLOO), None)
    return reference, [row for row in found if row is not reference]


def _comparison(record: Record, model: str) -> Iterator[str]:
    reference, others = _reference(record, model)
    if reference is None:
        return
    # The exact configurations tell the same story: one sentence for the last of them.
    exact = [row for row in others if row.configuration.is_exact]
    told = exact if record.exchanges else exact[-1:]
    tested = told + [row for row in others if not row.configuration.is_exact]
    theirs = [run.last.accuracy for run in reference.runs]
    for row in tested:
        difference = (mean(run.last.accuracy for run in row.runs) - mean(theirs)) * 100
        over = f"{title(model)}: over {row.configuration.name}"
        words = f"{over}, accuracy differs from Gloo's by {difference:+.2f} points"
        if len(theirs) > 1:
            width = (max(theirs) - min(theirs)) * 100
            inside = "within" if abs(difference) <= width else "OUTSIDE"
            words += f"; Gloo's own seeds are {width:.2f} points apart, so it is {inside} them"
        yield words + "."


def _fewer_bytes(record: Record, model: str) -> Iterator[str]:
    """What runs of few bits send and how long their steps are, against Gloo's without loss."""
    reference, others = _reference(record, model)
    if reference is None or not reference.step_bytes:  # not counted; or a rank alone, which sends nothing
        return
    for row in others:
        if row.configuration.recipe != "low_bit" or row.step_bytes is None:
            continue
        sent, theirs = row.step_bytes, reference.step_bytes
        yield (
            f"{title(model)}: over {row.configuration.name}, a rank sends {data_size(sent)} per step "
            f"({sent / theirs:.2f} of Gloo's {data_size(theirs)}), and the median step takes "
            f"{row.step_s / reference.step_s:.2f} of the time of Gloo's without loss."
        )


def _giving_up(record: Record, model: str) -> Iterator[str]:
    """What bounded runs abandoned, kept and wrote off."""
    for row in rows(record, model):
        if row.abandoned is None:
            continue
        kept, gone = (
            mean(sum(getattr(rank, name) for rank in run.gradients) for run in row.runs)
            for name in ("residual_bytes", "written_off_bytes")
        )
        words = (
            f"{title(model)}: over {row.configuration.name}, {row.abandoned} of the gradients were abandoned "
            f"(budget {percent(row.configuration.loss_budget)})"
        )
        if row.configuration.recipe == "dlcp":  # low bits keep what codes leave as well, in one sum
            words += f"; {data_size(kept)} of it were still kept at the end, {data_size(gone)} written off"
        yield words + "."


def _slowdown(record: Record, model: str) -> Iterator[str]:
    """How much longer steps take with loss than Gloo's without, where Gloo met the loss too."""
    reference, others = _reference(record, model)
    lossy = [row for row in others if row.configuration.loss_ratio]
    if reference is None or not any(row.configuration.backend == "gloo" for row in lossy):
        return

    def mean_step_s(row: Row) -> float:
        return total_step_s(row.runs) / sum(len(run.step_s) for run in row.runs)

    times = [
        f"{mean_step_s(row) / mean_step_s(reference):.2f} times over {row.configuration.name}"
        for row in lossy
    ]
    yield f"{title(model)}: the mean step takes, against Gloo's without loss, {' and '.join(times)}."


def _by_exchange(record: Record, model: str) -> Iterator[str]:
    """What a rank sends and how long steps take by each exchange, against the ring's; and what the switch added."""
    found = [row for row in rows(record, model) if row.configuration.exchange]
    ring = next((row for row in found if row.configuration.exchange == "ring"), None)
    for row in found:
        if ring is not None and row is not ring and row.step_bytes is not None and ring.step_bytes:
            yield (
                f"{title(model)}: over {row.configuration.name}, a rank sends {data_size(row.step_bytes)} per step on "
                f"its host's link ({row.step_bytes / ring.step_bytes:.2f} of the ring's), and the median step takes "
                f"{row.step_s / ring.step_s:.2f} of the ring's time."
            )
        if row.configuration.exchange == "switch":
            yield from _by_switch(row)


def _by_switch(row: Row) -> Iterator[str]:
    """Ranks fall back to the ring where the switch fails: how often."""
    for one in row.runs:
        sums = dict(one.sums or {})
        added = sums.pop("switch", 0)
        words = f"of {added + sum(sums.values())} all-reduces of {one.run.name} the switch added {added}"
        if sums:
            words += "; the ring took " + ", ".join(f"{count} ({why})" for why, count in sums.items())
        yield f"{words[0].upper()}{words[1:]}." if added else f"WRONG: {words}."
