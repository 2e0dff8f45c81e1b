"""Gradients that may lose part of what they carry: marking, bounded exchange, residuals, the account.

    state = dlcp.torch.GradientState(model, loss_budget=0.05)
    model.register_comm_hook(state, dlcp.torch.gradient_hook)

One mechanism, three ways in: `hook` for DistributedDataParallel, `fsdp` for FSDP2, `context` for hand-written loops.
Behind each is one `exchange`: a flat buffer whose `layout` says which parameter lies where. It adds what the `residual`
memory kept, asks the marker (`importance`) what each block is worth, hands the buffer to a bounded collective, keeps
what was given up, and enters it all in the `ledger`.

State that outlives a step is keyed by parameter name and offset, never by buffer: torch rebuilds its buckets.
"""
