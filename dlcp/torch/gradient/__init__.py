"""Gradients that follow a recipe, by which they may lose something: marking, exchange, residuals, the account.

    state = dlcp.torch.GradientState(model, loss_budget=0.05)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)

One mechanism, three entries: `hook` for DistributedDataParallel, `fsdp` for FSDP2, `context` for hand-written loops.
Behind each is one `exchange` of a flat buffer whose `layout` says which parameter lies where: the `fill` changes the
buffer, the marker (`importance`) scores its blocks, a bounded collective sums it, the fill gets what was abandoned, and
the `ledger` counts. What outlives a buffer is in the `state`.

State that outlives a step is keyed by parameter name and offset, never by buffer: torch rebuilds its buckets.
"""
