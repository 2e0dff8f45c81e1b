"""The callback for Lightning: what it says without Lightning or DDP. examples/with_lightning.py trains with it."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from torch import nn


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """dlcp.torch.lightning over a Lightning that has nothing but the class."""
    package = ModuleType("lightning")
    package.Callback = type("Callback", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.delitem(sys.modules, "dlcp.torch.lightning", raising=False)
    yield importlib.import_module("dlcp.torch.lightning")
    sys.modules.pop("dlcp.torch.lightning", None)


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.delitem(sys.modules, "dlcp.torch.lightning", raising=False)
    with pytest.raises(ImportError, match="needs Lightning: pip install lightning"):
        importlib.import_module("dlcp.torch.lightning")


def test_a_strategy_without_ddp_is_named(stand_in: Any) -> None:
    model = nn.Linear(2, 2)
    # As FSDP1's wrapper has it, which gives the hook a tensor.
    model.register_comm_hook = lambda state, hook: None  # type: ignore[assignment]
    trainer = SimpleNamespace(strategy=SimpleNamespace(model=model))
    with pytest.raises(TypeError, match="the trainer's strategy is a SimpleNamespace; accepted: DDPStrategy"):
        stand_in.GradientCallback().on_train_start(trainer, model)


def test_the_hook_gets_a_state_with_the_options(stand_in: Any) -> None:
    model, registered = nn.Linear(2, 2), list[Any]()

    class Replica(nn.parallel.DistributedDataParallel):
        def __init__(self) -> None:
            pass  # without a process group

        def register_comm_hook(self, state: object, hook: object) -> None:
            registered.append((state, hook))

    replica = Replica()
    callback = stand_in.GradientCallback(recipe="low_bit")
    callback.on_train_start(SimpleNamespace(strategy=SimpleNamespace(model=replica)), model)
    assert registered == [(callback.state, stand_in.gradient_hook)]
    assert callback.state.options.recipe == "low_bit"
