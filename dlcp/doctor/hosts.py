"""The doctor without a launcher: `--listen` waits on each host, `--peers` names all and asks each about the others.

The one who asks measures its own pairs, then has every listener measure its pairs to the others, one at a time. A
listener's rank is a number made of its address, which both sides know; so it listens on one address, not on all.
"""

from __future__ import annotations

import os
import secrets
import socket
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dlcp.doctor.finding import Finding
from dlcp.doctor.host import look_at_host
from dlcp.doctor.probe import RankPair, Responder, ask, probe, split_address
from dlcp.doctor.rank_pairs import PairMember, look_at_rank_pairs
from dlcp.doctor.report import Examination, Host
from dlcp.errors import AddressError, DlcpError
from dlcp.transport import Endpoint, Settings
from dlcp.transport.interfaces import choose_bind_host
from dlcp.transport.rank_card import RankCard

PORT = 7010
# To measure one pair, which takes longest when it is closed.
_ORDER_TIMEOUT_S = 30.0


def rank_of(address: str) -> int:
    """The rank of a listener at an address in numbers."""
    return zlib.crc32(address.encode())


def resolve(text: str) -> str:
    """A peer's address in numbers, IPv4 first. Raises AddressError."""
    try:
        host, port = split_address(text)
    except ValueError:
        raise AddressError(f"peer is {text!r}; accepted: host:port, such as node1:{PORT}") from None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as error:
        raise AddressError(
            f"peer is {text!r}: {error.strerror}; accepted: host:port, such as node1:{PORT}"
        ) from error
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return join(str(found[0][4][0]), port)


def join(host: str, port: int) -> str:
    """An address as endpoints write it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Listener:
    """Answers probes and orders on this host, from `with` to its end.

    `settings`: with `bind_host`, or the pair out of this host decides. Raises what Endpoint raises.
    """

    def __init__(self, settings: Settings) -> None:
        settings, host, self._interface = _choose_place(settings, "0.0.0.0")
        port = settings.port or PORT
        # Over the network, whoever asks: shared memory is for the ranks of a job.
        self._endpoint = Endpoint(
            rank_of(join(host, port)),
            settings=settings.replace(port=port, port_range=None, shm=False),
        )
        self._responder = Responder(self._endpoint, self._obey)

    def __enter__(self) -> Listener:
        self._responder.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._responder.__exit__()

    @property
    def address(self) -> str:
        """What `--peers` takes."""
        return self._endpoint.address

    def join(self) -> None:
        """Blocks until the endpoint is closed."""
        self._responder.join()

    def _obey(self, rank: int, request: dict[str, Any]) -> dict[str, Any]:
        if request.get("order") == "card":
            settings = self._endpoint.settings
            toward = None if settings.below_kernel else settings.bind_host
            return {
                "member": asdict(_member("", self._endpoint, self._interface)),
                "findings": [asdict(one) for one in look_at_host(toward, opens=False)],
            }
        if request.get("order") == "probe":
            address = str(request["address"])
            pair = probe(self._endpoint, 0, 0, rank_of(address), address, float(request["timeout_s"]))
            return {"pair": asdict(pair)}
        return {"error": f"no order {request.get('order')!r}; run one version of dlcp on all hosts"}


def examine_hosts(
    peers: Sequence[str], settings: Settings, timeout_s: float, environ: Mapping[str, str] = os.environ
) -> Examination:
    """Every pair of this host and listeners. `peers`: their addresses, host:port.

    Blocks a third of a second per pair that is open, `timeout_s` per one that is not. Raises AddressError and what
    Endpoint raises.
    """
    addresses = list(dict.fromkeys(resolve(peer) for peer in peers))
    toward = split_address(addresses[0])[0]
    settings, _, interface = _choose_place(settings, toward)
    settings = settings.replace(shm=False)
    if not settings.below_kernel:
        settings = settings.replace(interface=None)
    hosts = [Host(socket.gethostname(), look_at_host(toward, environ, opens=False))]
    with Endpoint(secrets.randbits(32), settings=settings) as endpoint, Responder(endpoint):
        members = [_member("here", endpoint, interface)]
        pairs = [
            probe(endpoint, 0, place, rank_of(address), address, timeout_s)
            for place, address in enumerate(addresses, 1)
        ]
        known: list[int] = []
        for place, (peer, address) in enumerate(zip(peers, addresses, strict=False), 1):
            card = _order(endpoint, address, {"order": "card"}) if pairs[place - 1].error is None else {}
            if "member" in card:
                known.append(place)
                members.append(PairMember(**(card["member"] | {"name": peer, "address": address})))
                hosts.append(Host(members[-1].host, list(map(Finding.from_json, card["findings"]))))
            else:
                # Nothing is known of it but its address.
                host = split_address(peer)[0]
                stranger = replace(
                    members[0], name=peer, host=host, address=address, interface="", where=address
                )
                members.append(stranger)
        for source in known:
            for target, address in enumerate(addresses, 1):
                if target == source:
                    continue
                order = {"order": "probe", "address": address, "timeout_s": timeout_s}
                answer = _order(endpoint, addresses[source - 1], order)
                found = answer.get("pair") or {"error": answer.get("error", "no answer")}
                pairs.append(RankPair(**(found | {"source": source, "target": target})))
    findings_between = look_at_rank_pairs(members, pairs, keys_agree=False)
    return Examination([one.name for one in members], hosts, findings_between, pairs)


def _choose_place(settings: Settings, toward: str) -> tuple[Settings, str, str]:
    """The settings with an address to bind, that address, and its interface or device. Raises what Endpoint raises."""
    if settings.below_kernel:
        return settings, settings.need_own_address(), next(iter(settings.devices), "")
    chosen = choose_bind_host(settings.interface, settings.bind_host or toward)
    host = settings.bind_host or chosen.host
    return settings.replace(bind_host=host), host, chosen.interface or ""


def _order(endpoint: Endpoint, address: str, order: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(endpoint, rank_of(address), order, _ORDER_TIMEOUT_S)
    except DlcpError as error:
        return {"error": str(error)}


def _member(name: str, endpoint: Endpoint, interface: str) -> PairMember:
    return PairMember.of(name, RankCard.of_this_process(0, endpoint.address, interface))
