"""torchft: replicas that come and go. dlcp.torch.create makes the group of each quorum.

    python examples/with_torchft.py

BACKEND=gloo: the same over Gloo.
"""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
import torch.distributed as dist
import torchft
from torch import nn
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroupGloo, ProcessGroupWrapper

import dlcp.torch

REPLICAS, STEPS = 2, 30


class ProcessGroupDlcp(ProcessGroupWrapper):
    def _create_pg(self, store: dist.Store, rank: int, size: int) -> dist.ProcessGroup:
        return dlcp.torch.create(store, rank, size, self._timeout)


def train(lighthouse: str, number: int) -> float:
    # A replica may itself be several ranks, which share this store. Here it is one.
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    place = {"rank": 0, "world_size": 1, "store_addr": "localhost", "store_port": store.port}
    place |= {"lighthouse_addr": lighthouse, "replica_id": str(number)}
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    group = (ProcessGroupGloo if os.environ.get("BACKEND") == "gloo" else ProcessGroupDlcp)()
    manager = torchft.Manager(group, None, None, REPLICAS, **place)
    # What a replica that comes late or comes back gets from another one.
    for name, part in (("model", model), ("optimizer", optimizer)):
        manager.register_state_dict_fn(name, part.load_state_dict, part.state_dict)
    replica = torchft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, optimizer)
    while (step := manager.current_step()) < STEPS:
        inputs = torch.randn(64, 32, generator=torch.Generator().manual_seed(REPLICAS * step + number))
        optimizer.zero_grad()  # asks the lighthouse who takes part
        loss = nn.functional.mse_loss(replica(inputs), inputs[:, :1].sin())
        loss.backward()
        optimizer.step()  # if all have the gradients
    manager.shutdown()
    return loss.item()


if __name__ == "__main__":
    lighthouse = LighthouseServer("[::]:0", REPLICAS)
    with ProcessPoolExecutor(REPLICAS, get_context("spawn")) as pool:
        losses = list(pool.map(train, [lighthouse.address()] * REPLICAS, range(REPLICAS)))
    print(f"loss {losses[0]:.9g}")
