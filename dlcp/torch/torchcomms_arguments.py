"""What torchcomms gives a backend, in dlcp's terms: hints, reductions, rank, size, store. Does not load torchcomms."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from dlcp import checks
from dlcp.errors import ArgumentError
from dlcp.torch.gradient.options import GradientOptions
from dlcp.torch.options import TRAFFIC_CLASS_MAX, Options
from dlcp.transport.coded import codec_traits

PREFIX = "dlcp."
HINTS = ("algorithm", "async", "class", "loss_budget", "patience_s", "precision")
"""After the prefix: Options' algorithm and traffic_class, GradientOptions' loss_budget and patience_s, and what is
`precision` in dlcp.torch.all_reduce and reduce_scatter. "async" is "true" or "false": see torchcomms.py."""
# Rank and size as launchers give them, in the order in which torchcomms' own backends look.
_LAUNCHERS = (
    ("TORCHCOMM_RANK", "TORCHCOMM_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)


def read_hints(hints: Mapping[str, str]) -> tuple[Options, str | None, bool]:
    """A group's options, the precision of its sums, and "async". Hints without the prefix are left to other backends.

    Raises ArgumentError: an unknown name, with the accepted ones; a value that the option of that name refuses.
    """
    given = {name.removeprefix(PREFIX): value for name, value in hints.items() if name.startswith(PREFIX)}
    checks.known("hint", [PREFIX + name for name in given], [PREFIX + name for name in HINTS])
    gradients: dict[str, Any] = {}
    if (budget := given.get("loss_budget")) is not None:
        gradients["loss_budget"] = _number("loss_budget", budget)
    if (patience := given.get("patience_s")) is not None:
        gradients["patience_s"] = patience if patience == "auto" else _number("patience_s", patience)
    coded = given.get("precision")
    if coded is not None and gradients:
        raise ArgumentError(
            f"{PREFIX}precision and {PREFIX}{next(iter(gradients))} are both given; accepted: one"
        )
    if coded is not None:
        codec_traits(coded, f"{PREFIX}precision")
    options = Options(
        algorithm=given.get("algorithm"),
        traffic_class=None if "class" not in given else _class(given["class"]),
        gradients=GradientOptions(**gradients) if gradients else None,
    )
    is_async = checks.choice(f"{PREFIX}async", given.get("async", "false"), ("true", "false")) == "true"
    return options, coded, is_async


def reduce_op(op: Any, operation: str) -> Any:
    """The reduction of torch for one of torchcomms. Raises ArgumentError: PREMUL_SUM, or one that torch has not."""
    name = op.type.name
    if name == "PREMUL_SUM":
        raise ArgumentError(
            f"{operation}: op is PREMUL_SUM, and torchcomms does not give a backend in Python its factor; accepted:"
            " SUM of a tensor that is multiplied before"
        )
    kind = getattr(dist.ReduceOp, name, None)
    if kind is None:
        raise ArgumentError(
            checks.refusal(f"op of {operation}", name, "SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR")
        )
    return kind


def rank_and_size() -> tuple[int, int]:
    """This process's rank and the number of them, from the environment. Raises ArgumentError: no launcher set them."""
    for pair in _LAUNCHERS:
        rank, size = (os.environ.get(name, "").strip() for name in pair)
        if rank and size:
            return int(rank), int(size)
    listed = ", ".join(" and ".join(pair) for pair in _LAUNCHERS)
    raise ArgumentError(f"rank and size are not in the environment; accepted: {listed}")


def served_by_rank_0(bootstrap: Store, rank: int, timeout: timedelta) -> Store:
    """A store on a free port of rank 0, at MASTER_ADDR. `bootstrap` tells the others the port, and may go then."""
    host = os.environ["MASTER_ADDR"]
    if rank == 0:
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        bootstrap.set("port", str(store.port))
        return store
    port = int(bootstrap.get("port"))
    return TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=timeout)


def _class(text: str) -> int:
    if not text.isdecimal() or int(text) > TRAFFIC_CLASS_MAX:
        raise ArgumentError(
            checks.refusal(f"{PREFIX}class", text, f"an integer from 0 to {TRAFFIC_CLASS_MAX}")
        )
    return int(text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(checks.refusal(PREFIX + name, text, "a number")) from None
