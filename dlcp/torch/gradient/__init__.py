"""Gradients by recipe: what is done with them between the backward pass and the optimizer.

    state = dlcp.torch.GradientState(model)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)

Five doors bring a flat buffer and its `layout`, which says which parameter lies where: `hook` for
DistributedDataParallel, `fsdp` for FSDP2, `context` for hand-written loops, the option of a process group, and
LayerwiseOptimizer. Behind each is one `exchange`, which gives the buffer to the recipe's pipeline. `state` is the
account: steps, names, the ledger; it knows no exchange.

| folder       | what it holds                                                                    |
|--------------|----------------------------------------------------------------------------------|
| `recipes`    | one or two files a recipe, and the table of them                                 |
| `buffer`     | what every recipe stands on: its interface, a buffer on its way, peers, account  |
| `coding`     | values in few bits                                                               |
| `sparse`     | few of many values                                                               |
| `flow`       | chunks, for gradientflow                                                         |
| `loss`       | how much a buffer may lose                                                       |
| `importance` | what its blocks are worth                                                        |
| `fills`      | what replaces what was lost                                                      |
| `residual`   | what waits for the next step                                                     |
| `rules`      | names, order and critical parameters of a model                                  |
| `fsdp`       | FSDP2                                                                            |

State that outlives a step is keyed by parameter name and offset, never by buffer: torch rebuilds its buckets.
"""
