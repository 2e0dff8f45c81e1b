"""One test over many seeds: thousands of items of pytest cost more than what they test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable


def for_each_seed(seeds: Iterable[int]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls the test once for each seed, as its argument `seed`. A failure names the seed."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*arguments: object, **named: object) -> None:
            for seed in seeds:
                try:
                    test(*arguments, seed=seed, **named)
                except BaseException as error:
                    error.add_note(f"seed={seed}")
                    raise

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name != "seed"]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate
