"""What a link of the lab does to packets: how fast it carries them, how many it loses, how many were counted.

Values only; netlab makes links of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Loss:
    """What share of arriving packets is dropped, in [0, 1]."""

    ratio: float = 0.0
    bad_path: int | None = None  # a dlcp path id that loses `bad_path_ratio` instead
    bad_path_ratio: float = 0.0

    def __post_init__(self) -> None:
        for name in ("ratio", "bad_path_ratio"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; accepted: 0 to 1")

    def __bool__(self) -> bool:
        return self.ratio > 0 or (self.bad_path is not None and self.bad_path_ratio > 0)

    def defines(self) -> list[str]:
        """What loss.bpf.c is to be compiled with."""
        words = [f"-DLOSS_PPM={round(self.ratio * 1e6)}"]
        if self.bad_path is not None:
            words += [
                f"-DBAD_PATH={self.bad_path}",
                f"-DBAD_PATH_LOSS_PPM={round(self.bad_path_ratio * 1e6)}",
            ]
        return words


NO_LOSS = Loss()


@dataclass(frozen=True)
class Link:
    """One host's cable to the hub, where it differs from the others; None: as the lab's."""

    rate_bps: int | None = None
    """Of each direction."""
    loss: Loss | None = None
    """Of each direction: a bad cable loses what goes and what comes. The lab's own loss is on arrival at hosts."""

    def __post_init__(self) -> None:
        if self.rate_bps is not None and self.rate_bps < 1:
            raise ValueError(f"rate_bps is {self.rate_bps}; accepted: 1 or more")


@dataclass(frozen=True)
class Arrivals:
    """Packets that the loss programs of one host's link have seen since `set_loss`."""

    packets: int
    dropped: int

    @property
    def loss_ratio(self) -> float:
        return self.dropped / self.packets if self.packets else 0.0
