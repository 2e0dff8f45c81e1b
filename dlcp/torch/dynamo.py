"""Keeps torch.compile out of the backend's own frames.

Dynamo traces Python frames that C++ calls too (DDP's buffer broadcast, for one), and a process group is an opaque
object to it: torch.compile(DDP(...)) would stop with an internal error. Hooks on a user's modules it would inline, and
compile with them whatever they call.

The marks go on the functions and their code objects, as torch.compiler.disable would put them, but without importing
the Python half of dynamo: that takes 1.5 s, which a program that never compiles should not pay, and one that compiles
later is protected all the same.
"""

from __future__ import annotations

import types


def skip(*modules: types.ModuleType) -> None:
    """Marks every function and method that these modules define, and what they call, as not to be compiled."""
    from torch._C._dynamo import eval_frame

    skip = eval_frame._FrameAction.SKIP
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    for module in modules:
        for function in _functions(module):
            # The first for a frame that is about to run, the second for a call that is about to be inlined.
            eval_frame.set_code_exec_strategy(function.__code__, strategy)
            function._torchdynamo_disable = True  # type: ignore[attr-defined]


def _functions(module: types.ModuleType) -> list[types.FunctionType]:
    found = []
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        for function in [thing, *vars(thing).values()] if isinstance(thing, type) else [thing]:
            # Properties, class and static methods hold their function under these names.
            function = getattr(function, "fget", None) or getattr(function, "__func__", function)
            if isinstance(function, types.FunctionType):
                found.append(function)
    return found
