"""Gradients by recipe: what is done with them between the backward pass and the optimizer.

    state = dlcp.torch.GradientState(model)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)

Five doors bring a flat buffer and its `layout`, which says which parameter lies where: `hook` for
DistributedDataParallel, `fsdp` for FSDP2, `context` for hand-written loops, the option of a process group, and
LayerwiseOptimizer. Behind each is one `exchange`, which gives the buffer to the recipe's `pipeline`; `recipes` is the
table of these. `state` is the account: steps, names, the `ledger`; it knows no exchange.

State that outlives a step is keyed by parameter name and offset, never by buffer: torch rebuilds its buckets.
"""
