"""Which module needs which parameters, and in which order: traced in the first forward, not guessed from names.

A parameter is needed by every module that has it. A module whose forward is not called cannot say when: its parameters
are used by a module above it (as torch's MultiheadAttention uses those of its out_proj), or not at all. They count as
needed by the nearest module above whose forward is called. If there is no such module, no forward can wait for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from dlcp.torch.layerwise.bucket import Bucket


class ForwardTrace:
    """The modules of a model in the order in which their forward was first called."""

    def __init__(self, model: nn.Module) -> None:
        # Under all of its names, of which a shared module or parameter has several.
        self._modules: dict[str, nn.Module] = dict(model.named_modules(remove_duplicate=False))
        self._names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            self._names.setdefault(parameter, []).append(name)
        self._places: dict[nn.Module, int] = {}

    def note(self, module: nn.Module) -> None:
        """The forward of a module begins."""
        self._places.setdefault(module, len(self._places))

    def needs(self, buckets: Iterable[Bucket]) -> Mapping[nn.Module, Sequence[Bucket]]:
        """The buckets that must be updated before a module's forward, by module."""
        needed: dict[nn.Module, list[Bucket]] = {}
        for bucket in buckets:
            for module in self._users(bucket):
                needed.setdefault(module, []).append(bucket)
        return needed

    def in_order(self, buckets: Sequence[Bucket]) -> list[int]:
        """Places of the buckets in the order in which forward needs them; first those that no forward can wait for."""

        def first_use(place: int) -> int:
            return min((self._places[module] for module in self._users(buckets[place])), default=-1)

        return sorted(range(len(buckets)), key=first_use)

    def _users(self, bucket: Bucket) -> list[nn.Module]:
        users: dict[nn.Module, None] = {}
        for parameter in bucket.parameters:
            for name in self._names[parameter]:
                module = self._caller(name)
                if module is not None:
                    users[module] = None
        return list(users)

    def _caller(self, name: str) -> nn.Module | None:
        """The module that has the parameter of this name, or the nearest above it, whose forward was called."""
        while name:
            name = name.rpartition(".")[0]
            module = self._modules[name]
            if module in self._places:
                return module
        return None
