"""What rank 0 decides for a job, as it stands in the store.

Every other rank reads it before it opens its endpoint, takes over the numbers and the key that were drawn, and refuses
by name what does not go together with its own settings.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, fields
from typing import Self

from dlcp.errors import JobError
from dlcp.transport.rank_card import RankCard, key_check_value
from dlcp.transport.settings import Settings

# Where the job key comes from, as an error says it of a rank.
_MODES = {
    "own": "a job key of its own (DLCP_KEY_FILE)",
    "none": "allow_unauthenticated and no job key",
    "drawn": "no job key of its own",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """The record. `draw` makes it on rank 0, `from_json` reads it on the others."""

    size: int
    """How many ranks the job has."""
    job: int
    """The job number, which every packet carries: 1 to 2^32 - 1."""
    incarnation: int
    """Drawn anew at each start, 64 bits, not 0. It enters all keys, so a rank of an earlier start is a stranger."""
    mode: str
    """Where the job key comes from: `own`, a file; `drawn` by rank 0; or there is `none`."""
    key: str
    """The drawn key in hexadecimal digits; "" unless mode is `drawn`."""
    check: str
    """Equal if two ranks have the same key of their own (key_check_value)."""
    encrypt: bool
    """Whether rank 0 encrypts what it sends."""
    hub_bytes_min: int
    """From how many bytes on all-reduces go over a hub; 0: rank 0 names none."""
    card: str
    """Rank 0's card in JSON, without an address: its version and host."""

    @classmethod
    def draw(cls, settings: Settings, size: int) -> Self:
        """Rank 0's decisions. Raises SettingsError: its key file."""
        key = settings.job_key()
        job = settings.job or secrets.randbelow(2**32 - 1) + 1
        mode = _mode(settings)
        return cls(
            size=size,
            job=job,
            incarnation=secrets.randbelow(2**64 - 1) + 1,
            mode=mode,
            key=secrets.token_hex(32) if mode == "drawn" else "",
            check=key_check_value(key, job),
            encrypt=settings.encrypt,
            hub_bytes_min=_hub_bytes_min(settings),
            card=RankCard.of_this_process(0, "", "").to_json(),
        )

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """The record in the store. Raises JobError: rank 0 refused to start, or is another program or version."""
        try:
            values = json.loads(text)
            if "refusal" in values:
                raise JobError(f"rank 0 did not start: {values['refusal']}")
            if values["mode"] not in _MODES:
                raise ValueError(values["mode"])
            return cls(**{item.name: values[item.name] for item in fields(cls)})
        except (ValueError, TypeError, KeyError) as error:
            raise JobError(
                "what rank 0 left in the store is not this dlcp's; see that all ranks run one version, and that the"
                f" store is theirs alone ({error!r})"
            ) from error

    def to_json(self) -> str:
        """As it stands in the store."""
        return json.dumps(asdict(self))

    def apply(self, settings: Settings) -> Settings:
        """A rank's settings with what rank 0 decided: job number and drawn key."""
        if self.mode != "drawn":
            return settings.replace(job=self.job)
        return settings.replace(job=self.job, key=bytes.fromhex(self.key), key_file=None)

    def check_rank(self, settings: Settings, rank: int, size: int) -> None:
        """Raises JobError if a rank with these settings cannot join; SettingsError: its key file."""
        if self.size != size:
            raise JobError(
                f"rank 0 began a job of {self.size} ranks, rank {rank} one of {size}; start all with the same size"
            )
        if settings.job not in (0, self.job):
            raise JobError(
                f"rank 0 has job number {self.job}, rank {rank} has {settings.job}; set the same DLCP_JOB everywhere,"
                " or none"
            )
        mode = _mode(settings)
        if mode != self.mode:
            raise JobError(
                f"rank 0 has {_MODES[self.mode]}, rank {rank} has {_MODES[mode]}; give all ranks the same key file, or"
                " none"
            )
        if self.check != key_check_value(settings.job_key(), self.job):
            raise JobError(
                f"rank 0 and rank {rank} have different job keys; copy the same key file to all hosts (DLCP_KEY_FILE)"
            )
        if self.encrypt != settings.encrypt:
            does, does_not = (0, rank) if self.encrypt else (rank, 0)
            raise JobError(
                f"rank {does} encrypts what it sends and rank {does_not} does not: set encrypt (DLCP_ENCRYPT) on all"
                " ranks, or on none"
            )
        if self.hub_bytes_min != (own := _hub_bytes_min(settings)):
            raise JobError(
                f"{_over_hub(self.hub_bytes_min, 0)}, {_over_hub(own, rank)}; set hub (DLCP_HUB) on all ranks or on"
                " none, and hub_bytes_min alike"
            )


def _over_hub(nbytes: int, rank: int) -> str:
    return f"rank {rank} has a hub for {nbytes} bytes and more" if nbytes else f"rank {rank} has no hub"


def _hub_bytes_min(settings: Settings) -> int:
    return settings.hub_bytes_min if settings.hub is not None else 0


def _mode(settings: Settings) -> str:
    if settings.key is not None or settings.key_file is not None:
        return "own"
    return "none" if settings.allow_unauthenticated else "drawn"
