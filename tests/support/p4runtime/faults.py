"""What can be made to go wrong on order, so that a deployment's rollback is tried: all of it once, then it is over.

Updates are counted over all writes from the moment the fault is armed, the first is 1.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from .status import INTERNAL, Refused


class Dropped(Exception):  # noqa: N818 - it is an event
    """The connection is to break here."""


@dataclass
class Faults:
    """Armed by a test, met by the server."""

    _fail: dict[int, Refused] = field(default_factory=dict)
    _ignore: set[int] = field(default_factory=set)
    _drop: int | None = None
    _hang: int | None = None
    _seen: int = 0
    _pipeline: Refused | None = None
    _read: Refused | None = None
    _dropped: bool = False
    _go_on: threading.Event = field(default_factory=threading.Event)
    hanging: threading.Event = field(default_factory=threading.Event)  # set while a write hangs

    def fail_update(self, number: int, code: int = INTERNAL, message: str = "told to fail") -> None:
        """The update of this number fails; the others of its batch go on."""
        self._start()
        self._fail[number] = Refused(code, message)

    def ignore_update(self, number: int) -> None:
        """The update of this number is answered with OK, and not done: what reading back is for."""
        self._start()
        self._ignore.add(number)

    def drop_at_update(self, number: int) -> None:
        """When this update has been done, the connection breaks: the write and all streams end UNAVAILABLE."""
        self._start()
        self._drop = number

    def hang_at_update(self, number: int) -> None:
        """This update, and so its write, is not answered until `release`, or the server's end."""
        self._start()
        self._go_on.clear()
        self._hang = number

    def release(self) -> None:
        """Whatever hangs goes on."""
        self._hang = None
        self._go_on.set()

    def fail_pipeline(self, code: int = INTERNAL, message: str = "told to fail") -> None:
        """The next SetForwardingPipelineConfig fails, and changes nothing."""
        self._pipeline = Refused(code, message)

    def fail_read(self, code: int = INTERNAL, message: str = "told to fail") -> None:
        """The next Read fails."""
        self._read = Refused(code, message)

    # ---- met by the server ----

    def meet_update(self) -> bool:
        """Called before each update: whether it is to be done. Raises what is to go wrong."""
        self._seen += 1
        if self._seen in self._fail:
            raise self._fail.pop(self._seen)
        if self._seen in self._ignore:
            self._ignore.discard(self._seen)
            return False
        return True

    def wants_hang(self) -> bool:
        """Whether the next update is the one to hang at."""
        return self._hang == self._seen + 1

    def hang(self) -> None:
        """Waits until it is released."""
        self.hanging.set()
        self._go_on.wait()
        self.hanging.clear()
        self._hang = None

    def meet_drop(self) -> None:
        """Called after each update."""
        if self._drop == self._seen:
            self._drop = None
            raise Dropped

    def meet_pipeline(self) -> None:
        """Called before a pipeline is looked at."""
        if self._pipeline is not None:
            fault, self._pipeline = self._pipeline, None
            raise fault

    def meet_read(self) -> None:
        """Called before anything is read."""
        if self._read is not None:
            fault, self._read = self._read, None
            raise fault

    def _start(self) -> None:
        if not self._fail and not self._ignore and self._drop is None and self._hang is None:
            self._seen = 0
