"""torchft: replicas that come and go. dlcp.torch.create makes the group of each quorum.

    python examples/with_torchft.py

Replica 1 is killed in mid-training, and its successor gets the state of replica 0. BACKEND=gloo: the same over Gloo.
"""

import os
import signal
from multiprocessing import get_context

import torch
import torchft.coordination
from torch import nn
from torchft.process_group import ProcessGroupGloo, ProcessGroupWrapper

from dlcp.torch import create

REPLICAS, STEPS, DEATH = 2, 30, 15


class ProcessGroupDlcp(ProcessGroupWrapper):
    def _create_pg(self, store, rank, size):
        return create(store, rank, size, self._timeout)


def train(lighthouse: str, life: int) -> None:
    # A replica may itself be several ranks, which share this store. Here it is one.
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    place = {"rank": 0, "world_size": 1, "store_addr": "localhost", "store_port": store.port}
    place |= {"lighthouse_addr": lighthouse, "replica_id": str(number := min(life, 1))}
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 1))
    group = (ProcessGroupGloo if os.environ.get("BACKEND") == "gloo" else ProcessGroupDlcp)()
    manager = torchft.Manager(group, None, None, REPLICAS, **place)
    optimizer = torchft.Optimizer(manager, torch.optim.Adam(model.parameters(), lr=1e-3))
    # What a replica that comes late or comes back gets from another one.
    for name, part in (("model", model), ("optimizer", optimizer)):
        manager.register_state_dict_fn(name, part.load_state_dict, part.state_dict)
    while (step := manager.current_step()) < STEPS:
        inputs = torch.randn(64, 32, generator=torch.Generator().manual_seed(REPLICAS * step + number))
        optimizer.zero_grad()  # asks the lighthouse who takes part
        loss = nn.functional.mse_loss(model(inputs), inputs[:, :1].sin())
        loss.backward()
        for parameter in model.parameters():
            manager.allreduce(parameter.grad).wait()
            if life == 1 and step == DEATH:
                os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()  # if all have the gradients
    manager.shutdown()
    print(f"loss {loss.item():.9g}\n" if number == 0 else "", end="", flush=True)


if __name__ == "__main__":
    lighthouse = torchft.coordination.LighthouseServer("[::]:0", REPLICAS, heartbeat_timeout_ms=1000)
    new, address = get_context("spawn").Process, lighthouse.address()
    first, killed, successor = (new(target=train, args=(address, life)) for life in range(3))
    first.start(), killed.start()
    killed.join()
    successor.start()
