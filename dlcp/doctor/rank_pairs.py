"""What the rank pairs say together: who cannot reach whom and why, which pair is worse than the others.

Pure: ranks and measurements in, findings out.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlcp.doctor.finding import Finding, Topic, listed
from dlcp.doctor.probe import RankPair, split_address
from dlcp.doctor.software import version_of
from dlcp.transport.driver_events import OVERSIZED_CAUSE, OVERSIZED_REMEDY
from dlcp.transport.rank_card import RankCard

VERSIONS, REACH, MTU, SPEED = map(Topic, ("versions", "reach", "mtu", "speed"))
LOSS, CLOCK, HOST = map(Topic, ("loss", "clock", "host"))
# Beyond this share of lost packets something is wrong in between; dlcp copes, but pays.
LOSS_RATIO_MAX = 1e-3
# A pair this much worse than the median of all is named.
_ODD_FACTOR = 3.0
_RTT_S_NAMED = 1e-3
_CLOCK_OFFSET_S_MAX = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairMember:
    """One endpoint among those that are measured pairwise."""

    name: str
    """What the report calls it: rank 3, or an address."""
    host: str
    address: str
    """Its endpoint's."""
    interface: str
    where: str
    """Equal for members that reach each other over loopback."""
    version: str
    wire_version: int
    torch: str = ""

    @classmethod
    def of(cls, name: str, card: RankCard) -> PairMember:
        """The member with this card, which is of this process."""
        return cls(
            name=name,
            host=card.host,
            address=card.address,
            interface=card.interface,
            where=card.where,
            version=card.version,
            wire_version=card.wire_version,
            torch=version_of("torch"),
        )

    def describe(self) -> str:
        """Name, host, interface and address."""
        on = f", {self.interface}" if self.interface else ""
        return f"{self.name} ({self.host}{on}, {self.address.partition('+')[0]})"


@listed
def look_at_rank_pairs(
    members: Sequence[PairMember], pairs: Sequence[RankPair], *, keys_agree: bool = True
) -> Iterator[Finding]:
    """Findings about the pairs of members; pairs refer to places in `members`.

    `keys_agree`: all members are known to have one job key, as the ranks of a job do.
    """
    yield from _look_at_versions(members)
    yield from _look_at_reach(members, pairs, keys_agree)
    for look in (_look_at_datagrams, _look_at_speed, _look_at_loss, _look_at_clocks):
        yield from look(members, pairs)
    yield from _look_at_hosts(members)


def _look_at_versions(members: Sequence[PairMember]) -> Iterator[Finding]:
    first = members[0]
    differing = [
        one for one in members if (one.version, one.wire_version) != (first.version, first.wire_version)
    ]
    for one in differing:
        yield VERSIONS.fail(
            f"{one.name} on {one.host} runs dlcp {one.version} (wire version {one.wire_version}), {first.name} on"
            f" {first.host} runs dlcp {first.version} (wire version {first.wire_version})",
            f"on {one.host}: in a checkout of dlcp {first.version}, pip install .",
        )
    torches = sorted({one.torch for one in members})
    if len(torches) > 1:
        text = f"ranks run different torch: {', '.join(torches)}"
        yield VERSIONS.warn(text, "install one version everywhere")
    if not differing:
        yield VERSIONS.ok(f"all run dlcp {first.version}, wire version {first.wire_version}")


def _look_at_reach(
    members: Sequence[PairMember], pairs: Sequence[RankPair], keys_agree: bool
) -> Iterator[Finding]:
    closed = [pair for pair in pairs if pair.error is not None]
    open_ = len(pairs) - len(closed)
    if not closed:
        yield REACH.ok(f"all {open_} pairs of {len(members)} are open" if open_ != 1 else "the pair is open")
        return
    ends = [(pair.source, pair.target) for pair in closed]
    for place, pair in enumerate(closed):
        back = (pair.target, pair.source)
        if back not in ends[:place]:
            source, target = members[pair.source], members[pair.target]
            yield _closed_pair(source, target, pair, both=back in ends, keys_agree=keys_agree)
    if open_:
        yield REACH.ok(f"{open_} of {len(pairs)} pairs are open")


_COMPARE_KEYS = 'on both hosts: sha256sum "$DLCP_KEY_FILE" (or the file of --key-file); echo "$DLCP_JOB"'
_LET_IN = (
    "on {target}: nft insert rule inet filter input {family} saddr {from_host} meta l4proto udp accept (or: iptables -I"
    " INPUT -s {from_host} -p udp -j ACCEPT), and the same between them; routes: ip route get {to_host}"
)
# By what came back from there (RankPair.silence): what that means, and what mends it.
_CLOSED = {
    "refused": (
        "the host is there, but nobody has UDP port {to_port}, or a firewall there rejects it",
        "see that it runs at that address, on {target}: ss -ulpn 'sport = :{to_port}'",
    ),
    "no neighbour": (
        "no host answers at {to_host} on that network",
        "see cable, VLAN and interface, on {target}: ip -br address; on {source}: ip neighbour show {to_host}",
    ),
    "unreachable": (
        "the network answers that {to_host} cannot be reached",
        "see the route, on {source}: ip route get {to_host}; tracepath -n {to_host}",
    ),
    "unanswered": (
        "UDP reaches the host, and what has port {to_port} does not answer: another job key or job number at one of the"
        " two, or another program",
        f"{_COMPARE_KEYS}; on {{target}}: ss -ulpn 'sport = :{{to_port}}'",
    ),
    "silent": (
        "nothing comes back, as when a firewall drops UDP or the network does not route between them",
        _LET_IN,
    ),
    "silent, keys may differ": (
        "nothing comes back, as when the job keys or job numbers differ, a firewall drops UDP or the network does not"
        " route between them",
        f"first compare the keys, {_COMPARE_KEYS}; if they are equal, {_LET_IN}",
    ),
}


def _closed_pair(
    source: PairMember, target: PairMember, pair: RankPair, *, both: bool, keys_agree: bool
) -> Finding:
    ends = source.describe(), target.describe()
    text = "{} and {} do not reach each other" if both else "{} cannot reach {}"
    silence = pair.silence
    if silence == "silent" and not keys_agree:
        silence = "silent, keys may differ"
    if silence not in _CLOSED:
        return REACH.fail(f"{text.format(*ends)}: {pair.error}")
    from_host, _ = split_address(source.address)
    to_host, to_port = split_address(target.address)
    facts = {
        "source": source.host,
        "target": target.host,
        "from_host": from_host,
        "to_host": to_host,
        "to_port": to_port,
        "family": "ip6" if ":" in from_host else "ip",
    }
    cause, remedy = _CLOSED[silence]
    return REACH.fail(f"{text.format(*ends)}: {cause.format(**facts)}", remedy.format(**facts))


def _look_at_datagrams(members: Sequence[PairMember], pairs: Sequence[RankPair]) -> Iterator[Finding]:
    sizes = {pair.datagram_bytes for pair in pairs if pair.datagram_bytes is not None}
    carried = {(pair.source, pair.target): pair.datagram_bytes_own for pair in pairs}
    narrow: list[RankPair] = []
    for pair in pairs:
        if pair.datagram_bytes is not None and (own_bytes := pair.datagram_bytes_own) is not None:
            target_bytes = carried.get((pair.target, pair.source)) or own_bytes
            if pair.datagram_bytes < min(own_bytes, target_bytes):
                narrow.append(pair)
    for pair in narrow:
        source, target = members[pair.source], members[pair.target]
        find = f"tracepath -n {split_address(target.address)[0]}"
        text = (
            f"from {source.name} to {target.name} datagrams of {pair.datagram_bytes} bytes get through, though the"
            f" interfaces carry {pair.datagram_bytes_own}: something in between has"
        )
        if pair.path_mtu_bytes is None:
            yield MTU.warn(f"{text} a smaller MTU and does not say which", find)
        else:
            mend = f"ip link set dev {source.interface or 'NAME'} mtu {pair.path_mtu_bytes}"
            yield MTU.warn(f"{text} MTU {pair.path_mtu_bytes}", f"{find}; or, on both hosts: {mend}")
    own = {pair.source: pair.datagram_bytes_own for pair in pairs if pair.datagram_bytes_own is not None}
    if len(set(own.values())) > 1:
        each = ", ".join(f"{members[source].name} {size}" for source, size in sorted(own.items()))
        yield MTU.warn(
            f"interfaces carry datagrams of different sizes: {each} bytes",
            "give all the same MTU: ip link set dev NAME mtu BYTES",
        )
    elif sizes and not narrow:
        yield MTU.ok(f"every pair carries datagrams of {', '.join(map(str, sorted(sizes)))} bytes")


def _look_at_speed(members: Sequence[PairMember], pairs: Sequence[RankPair]) -> Iterator[Finding]:
    rates = [pair.goodput_bps for pair in pairs if pair.goodput_bps is not None]
    trips = [pair.rtt_s for pair in pairs if pair.rtt_s is not None]
    if not rates or not trips:
        return
    rate, trip = statistics.median(rates), statistics.median(trips)
    yield SPEED.ok(
        f"goodput {min(rates) / 1e9:.2f} to {max(rates) / 1e9:.2f} Gbit/s, least round trip {min(trips) * 1e6:.0f} to"
        f" {max(trips) * 1e6:.0f} µs"
    )
    for pair in pairs:
        names = f"from {members[pair.source].name} to {members[pair.target].name}"
        if pair.goodput_bps is not None and pair.goodput_bps * _ODD_FACTOR < rate:
            yield SPEED.warn(
                f"{names} goodput is {pair.goodput_bps / 1e9:.2f} Gbit/s, the median {rate / 1e9:.2f}",
                f"see link and load of {members[pair.target].host}: ethtool {members[pair.target].interface or 'NAME'}",
            )
        if pair.rtt_s is not None and pair.rtt_s > max(_ODD_FACTOR * trip, _RTT_S_NAMED):
            yield SPEED.warn(
                f"{names} a round trip takes {pair.rtt_s * 1e3:.1f} ms, the median {trip * 1e3:.2f}",
                f"see the route: tracepath -n {split_address(members[pair.target].address)[0]}",
            )


def _look_at_loss(members: Sequence[PairMember], pairs: Sequence[RankPair]) -> Iterator[Finding]:
    measured = [pair for pair in pairs if pair.goodput_bps is not None and pair.sent_packets > 0]
    lossy = [pair for pair in measured if pair.lost_packets > LOSS_RATIO_MAX * pair.sent_packets]
    for pair in lossy:
        target = members[pair.target]
        text = (
            f"from {members[pair.source].name} to {target.name} {pair.lost_packets} of {pair.sent_packets} packets were"
            f" lost ({100 * pair.lost_packets / pair.sent_packets:.2f} %)"
        )
        if pair.oversized_frames:
            text += f"; {target.name} dropped {pair.oversized_frames} frames that are longer than its MTU"
            yield LOSS.warn(f"{text}, {OVERSIZED_CAUSE}", OVERSIZED_REMEDY)
            continue
        yield LOSS.warn(
            text,
            f"see where, on {target.host}: nstat -az UdpRcvbufErrors; ethtool -S {target.interface or 'NAME'} |"
            " grep -iE 'drop|err|discard'",
        )
    if measured and not lossy:
        yield LOSS.ok(f"at most {100 * LOSS_RATIO_MAX:g} % of packets were lost on any pair, at full speed")


def _look_at_clocks(members: Sequence[PairMember], pairs: Sequence[RankPair]) -> Iterator[Finding]:
    offsets = [(abs(pair.clock_offset_s), pair) for pair in pairs if pair.clock_offset_s is not None]
    if not offsets:
        return
    far, pair = max(offsets, key=lambda one: one[0])
    if far > _CLOCK_OFFSET_S_MAX:
        ahead = (pair.clock_offset_s or 0) > 0
        late, early = (pair.source, pair.target) if ahead else (pair.target, pair.source)
        yield CLOCK.warn(
            f"the time of day of {members[early].name} is {far:.1f} s ahead of {members[late].name}'s; dlcp needs no"
            " common time, but logs and certificates do",
            "timedatectl set-ntp true",
        )
        return
    yield CLOCK.ok(f"times of day differ by at most {far * 1e3:.1f} ms")


def _look_at_hosts(members: Sequence[PairMember]) -> Iterator[Finding]:
    places: dict[str, list[PairMember]] = {}
    for one in members:
        places.setdefault(one.where, []).append(one)
    for group in places.values():
        if len(group) < 2:
            continue
        names = ", ".join(one.name for one in group)
        shared = all("+shm:" in one.address for one in group)
        how = "talk through shared memory" if shared else "talk through the network's loopback"
        yield HOST.ok(f"{names} are on one host, {group[0].host}, and {how}")
