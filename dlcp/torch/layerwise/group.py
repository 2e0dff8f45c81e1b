"""What the optimizer needs of its process group at the start."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from dlcp.errors import DlcpError
from dlcp.torch.failures import for_torch
from dlcp.torch.process_group import ProcessGroup
from dlcp.transport.communicator import Communicator, Span


def communicator_of(group: ProcessGroup) -> Communicator:
    """A communicator for one optimizer alone, so that nothing comes between its numbers. Blocks for the store."""
    taken = sum(name.startswith("layerwise") for name in group._private)
    try:
        return group.private_communicator(f"layerwise{taken}")
    except DlcpError as error:
        raise for_torch(error) from None


def agree_on(places: list[int], communicator: Communicator) -> list[int]:
    """Rank 0's places, on all ranks. Blocks."""
    shared = torch.tensor(places, dtype=torch.int32)
    try:
        communicator.broadcast(Span(shared.data_ptr(), shared.nbytes), keep=shared, wait_follows=True).wait()
    except DlcpError as error:
        raise for_torch(error) from None
    return [int(place) for place in shared]


def spread(model: nn.Module, group: ProcessGroup) -> None:
    """Gives every rank rank 0's parameters and buffers. Blocks."""
    source = dist.get_global_rank(group, 0)
    with torch.no_grad():
        works = [
            dist.broadcast(tensor.detach(), source, group=group, async_op=True)
            for tensor in [*model.parameters(), *model.buffers()]
        ]
    for work in works:
        assert work is not None
        work.wait()
