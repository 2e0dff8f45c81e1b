"""Layer order across steps: each layer is updated when its gradient is in, and forward waits for one layer at a time.

    optimizer = dlcp.torch.LayerwiseOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)

`optimizer` is what the loop sees; a `bucket` is what travels together; the `sender` follows a layer order of
dlcp.transport.layer_order and lets a `slice_reducer` average; the `forward_trace` knows which module needs which
bucket; `deferred` updates some of an optimizer's parameters with the settings of an earlier time; `listeners` are its
hooks on the model; `group` is what it needs of its process group at the start.
"""

from __future__ import annotations

from dlcp.torch.layerwise.optimizer import LayerwiseOptimizer

__all__ = ["LayerwiseOptimizer"]
