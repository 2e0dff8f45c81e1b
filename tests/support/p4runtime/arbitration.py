"""Who may write: the election among controllers, per role (specification: Client Arbitration).

The highest election id that was ever seen wins; it stays the mark to reach when its holder goes, so that there may be
no primary at all. Pure state: what is to be said to whom goes into each controller's `send`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from finsy.proto import U128, p4r

from .status import (
    ALREADY_EXISTS,
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    NOT_FOUND,
    OK,
    RESOURCE_EXHAUSTED,
    Refused,
)

MOST_CONTROLLERS = 16  # per role, as BMv2


@dataclass(eq=False)
class Controller:
    """One open stream."""

    send: Callable[[p4r.StreamMessageResponse], None]
    device_id: int | None = None  # None until its first arbitration message
    role: str = ""
    election_id: int | None = None


@dataclass
class _Role:
    controllers: list[Controller] = field(default_factory=list)
    primary: Controller | None = None
    highest: int | None = None


class Arbitration:
    """The controllers of one device."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._roles: dict[str, _Role] = {}

    def update(self, controller: Controller, message: p4r.MasterArbitrationUpdate) -> None:
        """A controller says who it is, or changes its election id. Refused ends its stream."""
        name = message.role.name if message.HasField("role") else ""
        if controller.device_id is None:
            if message.device_id != self._device_id:
                raise Refused(NOT_FOUND, f"no device {message.device_id}")
        elif message.device_id != controller.device_id:
            raise Refused(FAILED_PRECONDITION, "a stream stays with its device")
        elif name != controller.role:
            raise Refused(FAILED_PRECONDITION, "a stream stays with its role")
        if message.HasField("role") and message.role.HasField("config"):
            raise Refused(INVALID_ARGUMENT, "no scheme of role configurations has been agreed upon")
        role = self._roles.setdefault(name, _Role())
        election_id = U128.decode(message.election_id) if message.HasField("election_id") else None
        others = [each for each in role.controllers if each is not controller]
        if election_id is not None and any(each.election_id == election_id for each in others):
            raise Refused(INVALID_ARGUMENT, f"election id {election_id} is another controller's")
        if controller.device_id is None:
            if len(others) >= MOST_CONTROLLERS:
                raise Refused(RESOURCE_EXHAUSTED, f"{MOST_CONTROLLERS} controllers are connected")
            controller.device_id, controller.role = message.device_id, name
            role.controllers.append(controller)
        controller.election_id = election_id
        self._elect(role, controller)

    def leave(self, controller: Controller) -> None:
        """A stream is gone; a primary's leaves the role without one, whoever waits."""
        role = self._roles.get(controller.role)
        if role is None or controller not in role.controllers:
            return
        role.controllers.remove(controller)
        if role.primary is controller:
            role.primary = None
            self._notify(role, role.controllers)

    def is_primary(self, role: str, election_id: int | None) -> bool:
        """Whether a request that bears these comes from the primary."""
        known = self._roles.get(role)
        return (
            election_id is not None
            and known is not None
            and known.primary is not None
            and known.primary.election_id == election_id
        )

    def owns(self, controller: Controller) -> bool:
        """Whether this stream is the primary's."""
        role = self._roles.get(controller.role)
        return role is not None and role.primary is controller

    def knows(self, role: str) -> bool:
        """Whether a controller of this role was ever here; the default role always is."""
        return role == "" or role in self._roles

    def highest(self, role: str = "") -> int | None:
        """The highest election id ever seen."""
        return self._roles[role].highest if role in self._roles else None

    def _elect(self, role: _Role, controller: Controller) -> None:
        election_id = controller.election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            role.primary = controller
            # All others first: the new primary hears of it when nobody else may write any more.
            self._notify(role, [each for each in role.controllers if each is not controller] + [controller])
        elif role.primary is controller:
            role.primary = None
            self._notify(role, role.controllers)
        else:
            self._notify(role, [controller])

    def _notify(self, role: _Role, controllers: list[Controller]) -> None:
        for controller in controllers:
            update = p4r.MasterArbitrationUpdate(device_id=self._device_id)
            if controller.role:
                update.role.name = controller.role
            if role.highest is not None:
                update.election_id.CopyFrom(U128.encode(role.highest))
            if role.primary is None:
                update.status.code, update.status.message = NOT_FOUND, "there is no primary"
            elif role.primary is controller:
                update.status.code, update.status.message = OK, "is primary"
            else:
                update.status.code, update.status.message = ALREADY_EXISTS, "is backup"
            controller.send(p4r.StreamMessageResponse(arbitration=update))
