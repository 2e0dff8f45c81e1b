"""Random policies for the renderers: any that the policy object takes, with ports named as a system names them."""

from __future__ import annotations

from hypothesis import strategies as st

from dlcp.switch import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.policy import DROPPABLE_LEVELS, PATH_CHOICES
from tests.support.render_golden import PORTS

_MOST = 2**32 - 2
limits = st.none() | st.integers(0, _MOST) | st.integers(0, 300_000)


@st.composite
def thresholds(draw: st.DrawFn, trim: int | None = None, drop: int | None = None) -> Thresholds:
    """Marks below the given trim and drop thresholds."""
    mark_from = draw(st.none() | st.integers(0, _MOST if drop is None else drop))
    mark_full = None if mark_from is None else draw(st.none() | st.integers(mark_from, _MOST))
    ratio = draw(st.floats(0, 1))
    if trim is not None and drop is not None:
        trim = min(trim, drop)
    return Thresholds(mark_from, mark_full, ratio, trim, drop)


@st.composite
def classes(draw: st.DrawFn, number: int, dscp: tuple[int, ...] = ()) -> TrafficClass:
    """One class; levels in order, so that none is dropped or trimmed before a less important one."""
    count = draw(st.sampled_from((1, 1, DROPPABLE_LEVELS)))

    def rising() -> list[int | None]:
        values = draw(st.lists(limits, min_size=count, max_size=count))
        return sorted(values, key=lambda v: (v is None, v or 0))

    drops, trims = rising(), rising()
    droppable = tuple(
        Thresholds(
            trim_above_bytes=None
            if trim is None or (drop is not None and drops[0] is not None and trim > drop)
            else trim,
            drop_above_bytes=drop,
        )
        for trim, drop in zip(trims, drops, strict=True)
    )
    # A trim threshold that was taken away must not be followed by one that is there.
    if any(level.trim_above_bytes is None for level in droppable):
        droppable = tuple(Thresholds(drop_above_bytes=level.drop_above_bytes) for level in droppable)
    critical = draw(thresholds(draw(limits), draw(limits)))
    return TrafficClass(number, draw(st.text(max_size=4)), dscp, critical, droppable)


@st.composite
def policies(draw: st.DrawFn, system: str) -> Policy:
    """A policy for a system, with up to three ports, some with thresholds of their own."""
    values = draw(st.permutations(range(64)))
    numbers = draw(st.lists(st.integers(0, 7), unique=True, max_size=4))
    made = tuple(
        draw(classes(n, tuple(values[8 * i : 8 * i + draw(st.integers(0, 8))])))
        for i, n in enumerate(numbers)
    )
    names = PORTS[system][: draw(st.integers(1, 3))]
    ports = []
    for name in names:
        own = draw(st.lists(st.sampled_from(numbers), unique=True, max_size=2)) if numbers else []
        rate = draw(st.integers(1, 10**13))
        ports.append(Port(name, rate, tuple(draw(classes(n)) for n in own)))
    shared = draw(st.none() | st.integers(1, _MOST))
    return Policy(
        draw(st.text(max_size=8)),
        made,
        draw(st.sampled_from(PATH_CHOICES)),
        {"up": names} if draw(st.booleans()) else {},
        tuple(ports),
        draw(st.integers(0, 7)),
        port_bytes=None if shared is not None else draw(st.none() | st.integers(1, _MOST)),
        shared_bytes=shared,
        shared_alpha_log2=draw(st.integers(-10, 10)),
        trimmed_class=draw(st.integers(0, 7)),
        trimmed_run_packets=draw(st.integers(0, 255)),
        pause_above_bytes=draw(st.none() | st.integers(0, _MOST)),
    )
