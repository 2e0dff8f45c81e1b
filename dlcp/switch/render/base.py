"""The front of the renderers: a policy and the name of an operating system in, a configuration and its caveats out.

The same policy gives the same text, byte for byte: no time, no host, no order of a set. Nothing is rendered while there
is an error, or a caveat under `strict`. Nothing here writes a file or talks to a switch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dlcp import __version__
from dlcp.checks import did_you_mean
from dlcp.switch.policy import Policy
from dlcp.switch.render import cumulus, eos, nvue, nxos, sonic, tc
from dlcp.switch.render.caveat import Caveat, RenderError, Weight, sentences
from dlcp.switch.render.check import check
from dlcp.switch.render.system import System
from dlcp.switch.toml_lines import toml_lines


class Renderer(Protocol):
    """A module or object that writes one language. It may also have `own_caveats(policy, ports)`."""

    SYSTEM: System

    def body(self, policy: Policy, ports: Sequence[str], shape: bool) -> list[str]:
        """The configuration's lines, without notes."""


RENDERERS: dict[str, Renderer] = {
    module.SYSTEM.name: module for module in (tc, sonic, cumulus, nvue, eos, nxos)
}
"""By name. A program may add its own."""


@dataclass(frozen=True)
class Rendered:
    """A configuration, what is to be known about it, and where they differ from the policy."""

    system: System
    text: str
    """The configuration; begins with the notes, as comments, if the language has any."""
    notes: str
    """What to type, what to look at, what differs, and what was not verified."""
    caveats: tuple[Caveat, ...]
    lines: Mapping[str, int]
    """Lines of the policy's file by field, if it came from one."""

    def complaints(self) -> Iterator[str]:
        """A sentence for each caveat; what several classes have in common is said once."""
        caveats = [caveat for caveat in self.caveats if caveat.weight is Weight.CAVEAT]
        yield from (f"{Weight.CAVEAT}: {text}" for text in sentences(caveats, self.lines))


def renderer(name: str) -> Renderer:
    """The renderer of an operating system; RenderError names the nearest if there is none."""
    if name in RENDERERS:
        return RENDERERS[name]
    names = (*RENDERERS, "tofino")  # which command.py renders itself
    hint = did_you_mean(name.lower(), names, cutoff=0.7)
    raise RenderError(f"no operating system {name!r}; {hint}accepted: {', '.join(names)}")


def render(
    policy: Policy,
    name: str,
    ports: Sequence[str] | None = None,
    *,
    source: str | None = None,
    shape: bool | None = None,
    strict: bool = False,
) -> Rendered:
    """The policy in the language of operating system `name`.

    `ports`: which ports are configured; None: the policy's. `source`: the TOML text that the policy came from, so that
    caveats have lines. `shape`: hold ports at the policy's rates; None: as is usual for the system, which is yes for
    Linux, whose queues are in front of the hardware's. `strict`: caveats are errors. RenderError: nothing is rendered.
    """
    module = renderer(name)
    system = module.SYSTEM
    chosen = tuple(dict.fromkeys(p.name for p in policy.ports) if ports is None else dict.fromkeys(ports))
    if not chosen and system.needs_ports:
        raise RenderError(
            f"{system.title} wants ports by name, and the policy has no [[port]]; give them: "
            f"--ports {system.port_example.split()[0]},…"
        )
    shaped = name == "tc" if shape is None else shape
    caveats = check(policy, system, chosen, shaped)
    own = getattr(module, "own_caveats", None)
    if own is not None:
        caveats += own(policy, chosen)
    lines = toml_lines(source) if source is not None else {}
    refuse(caveats, system, lines, strict)
    notes = "\n".join(_notes(policy, system, caveats, lines)) + "\n"
    body = "\n".join(module.body(policy, chosen, shaped)) + "\n"
    if system.comment is not None:
        head = [f"{system.comment} {line}".rstrip() for line in notes.splitlines()]
        if name == "tc":
            head.insert(0, "#!/bin/sh")
        body = "\n".join([*head, system.comment, body])
    return Rendered(system, body, notes, tuple(caveats), lines)


def refuse(caveats: Sequence[Caveat], system: System, lines: Mapping[str, int], strict: bool) -> None:
    """RenderError if one of the caveats is an error, or under `strict` a caveat."""
    grave = [f for f in caveats if f.weight is Weight.ERROR or (strict and f.weight is Weight.CAVEAT)]
    if not grave:
        return
    rest = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
    raise RenderError(f"{system.title}: {grave[0].text(lines)}{rest}", grave)


def _notes(
    policy: Policy, system: System, caveats: Sequence[Caveat], lines: Mapping[str, int]
) -> Iterator[str]:
    # A name may hold anything; as JSON it is one line of printable characters.
    yield f"Generated by dlcp {__version__} from policy {json.dumps(policy.name)} for {system.title}."
    for title, entries in (
        ("Put it there", system.install),
        ("Then look", system.look),
        ("Otherwise than the policy asks", _texts(caveats, lines, Weight.CAVEAT)),
        ("To be known", _texts(caveats, lines, Weight.NOTE)),
        ("Where these lines come from", system.sources),
    ):
        if entries:
            yield ""
            yield f"{title}:"
            for entry in entries:
                yield f"  {entry}"


def _texts(caveats: Sequence[Caveat], lines: Mapping[str, int], weight: Weight) -> tuple[str, ...]:
    return tuple(f"- {text}" for text in sentences([f for f in caveats if f.weight is weight], lines))
