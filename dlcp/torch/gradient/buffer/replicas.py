"""Whether all ranks hold the same bits: a check for debugging, on top of a guarantee.

Bounded collectives end with the same result on all ranks by construction. With verify=True a step's results are hashed
and the hashes compared over the group, so that a fault, in memory or in the code, is found in the step where it
happens.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import torch

from dlcp.errors import DlcpError
from dlcp.torch.tensors import span

if TYPE_CHECKING:
    from dlcp.transport.communicator import Communicator

_DIGEST_BYTES = 16


class ReplicaError(DlcpError, RuntimeError):
    """Ranks that should hold the same values do not."""


def digest(result: torch.Tensor) -> bytes:
    """A hash of a result's bits. `result`: contiguous, CPU."""
    memory = result.view(torch.uint8).numpy()
    return hashlib.blake2b(memory.data, digest_size=_DIGEST_BYTES).digest()


def compare(communicator: Communicator, step: int, digests: list[bytes]) -> None:
    """All ranks call it at the same place. Blocks. Raises ReplicaError on all, naming the ranks that differ.

    `communicator`: for nothing else.
    """
    own = torch.frombuffer(
        bytearray(hashlib.blake2b(b"".join(digests), digest_size=_DIGEST_BYTES).digest()), dtype=torch.uint8
    )
    everybody = torch.empty(communicator.size, _DIGEST_BYTES, dtype=torch.uint8)
    communicator.all_gather(span(everybody), span(own), keep=(everybody, own)).wait()
    ranks_by_hash: dict[bytes, list[int]] = {}
    for rank, row in enumerate(everybody):
        ranks_by_hash.setdefault(row.numpy().tobytes(), []).append(rank)
    if len(ranks_by_hash) == 1:
        return
    largest = max(ranks_by_hash.values(), key=len)
    others = [rank for ranks in ranks_by_hash.values() if ranks is not largest for rank in ranks]
    raise ReplicaError(
        f"step {step}: the gradients of group ranks {_listed(others)} differ from those of ranks {_listed(largest)}"
    )


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(str(rank) for rank in sorted(ranks)[:8])
    return f"{shown} and {len(ranks) - 8} more" if len(ranks) > 8 else shown
