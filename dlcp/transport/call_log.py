"""The last calls of a rank in a group, so that an error can say who called what.

The transport finds by the signature in a tag (signature.py) that a rank called something else, or nothing. What it
called stands here, on the rank that called it. When a group fails, each rank leaves its own account in the group's
store and reads those of the ranks concerned; an account that does not come in time is left out of the error.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable

from dlcp.errors import StoreTimeoutError
from dlcp.transport.store import Store, wait_for

# A tag has this many bits of the sequence number (native/collective/tag.hpp).
SEQUENCE_MASK = (1 << 20) - 1
# Calls remembered per group; a power of two. A rank that far behind has its timeout to tell it.
_CALLS = 256


class CallLog:
    """The last collectives that this rank called in a group."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, str]] = [(-1, "")] * _CALLS
        """Number and words of each, at its number modulo the length; -1: none. Native code writes here, too."""

    def note(self, sequence: int, words: str) -> None:
        """This rank calls operation `sequence`, which is `words`. Called in any order of the last few."""
        self.calls[sequence % _CALLS] = (sequence, words)

    def words_of(self, sequence: int) -> str | None:
        """What this rank called under a number, of which the lower 20 bits count; None: it has not, or long ago."""
        for known, words in self.calls:
            if known >= 0 and (known ^ sequence) & SEQUENCE_MASK == 0:
                return words
        return None

    def account_of(self, sequence: int) -> str:
        """This rank's account of an operation, as the end of a sentence that begins with the rank."""
        words = self.words_of(sequence)
        if words is not None:
            return f"called {words}"
        number, last = max(self.calls)
        if number < 0:
            return "has called no operation of this group yet"
        return f"has called {number + 1} operations of this group so far, the last one {last}"


def exchange_accounts(
    store: Store, sequence: int, own_rank: int, own_account: str, of_ranks: Iterable[int], bound_s: float
) -> dict[int, str]:
    """Leaves this rank's account in the store and returns those of other ranks that came within `bound_s`.

    Never raises and never blocks for longer: the store's server may be what has died, so a thread of its own asks it.
    """
    accounts: dict[int, str] = {}

    def ask() -> None:
        with contextlib.suppress(Exception):
            store.set(f"called/{sequence & SEQUENCE_MASK}/{own_rank}", own_account)
            for rank in of_ranks:
                with contextlib.suppress(StoreTimeoutError):
                    text = wait_for(store, f"called/{sequence & SEQUENCE_MASK}/{rank}", bound_s, "an account")
                    accounts[rank] = text.decode(errors="replace")

    thread = threading.Thread(target=ask, name="dlcp-accounts", daemon=True)
    thread.start()
    thread.join(bound_s)
    return dict(accounts)
