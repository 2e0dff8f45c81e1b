"""`dlcp switch apply`: a policy onto interfaces by tc, all or none.

In network namespaces, as root. What needs sch_prio and sch_red skips where the kernel lacks them (`modprobe sch_prio
sch_red cls_u32` un-skips it); the HTB alternative and every way to be refused run without them.
"""

from __future__ import annotations

import functools
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp.errors import InterfaceError
from dlcp.switch import Policy, Port, Thresholds, TrafficClass
from dlcp.switch.command import main
from dlcp.switch.render import RenderError, apply
from tests.support import namespaces
from tests.support.namespaces import Namespace

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.skipif(namespaces.missing() is not None, reason=str(namespaces.missing())),
]

RATE_BPS = 4_000_000
PACKET_BYTES = 1000


def policy(*ports: str, drop: int = 30_000) -> Policy:
    return Policy(
        "test",
        (
            TrafficClass(6, dscp=(48,)),
            TrafficClass(
                4, dscp=(32,), critical=Thresholds(10_000), droppable=(Thresholds(drop_above_bytes=drop),)
            ),
            TrafficClass(1, dscp=(8,)),
        ),
        ports=tuple(Port(name, RATE_BPS) for name in ports),
        port_bytes=200_000,
    )


@functools.cache
def lacks(kind: str) -> str | None:
    """Why the kernel has no such queue, or None."""
    with Namespace() as here:
        here.ip("link add probe0 type veth peer name probe1")
        done = subprocess.run(
            here.command(*f"tc qdisc add dev probe0 root {kind}".split()), capture_output=True, text=True
        )
    return None if done.returncode == 0 else f"tc qdisc add … {kind}: {' '.join(done.stderr.split())}"


def need_red() -> None:
    for kind in ("prio", "red limit 9000 min 1000 max 2000 avpkt 1000 burst 1 bandwidth 1mbit"):
        if (reason := lacks(kind)) is not None:
            pytest.skip(f"{reason} (modprobe sch_prio sch_red cls_u32)")


@pytest.fixture
def host() -> Iterator[Namespace]:
    """Two cables, all four ends in one namespace."""
    with Namespace() as here:
        here.ip("link add va type veth peer name vb")
        here.ip("link add vc type veth peer name vd")
        yield here


def shown(host: Namespace, interface: str) -> str:
    done = subprocess.run(
        host.command("tc", "qdisc", "show", "dev", interface), capture_output=True, text=True, check=True
    )
    return "\n".join(sorted(done.stdout.splitlines()))


def links(host: Namespace) -> str:
    return subprocess.run(host.command("ip", "link"), capture_output=True, text=True, check=True).stdout


def put(host: Namespace, state: Path, *ports: str, qdisc: str = "htb", **more: int) -> list[apply.Change]:
    return host.run(lambda: apply.apply(policy(*ports, **more), ports, qdisc, state=state))


# ---- what holds of both kinds of queue ----


@pytest.mark.parametrize("qdisc", apply.QDISCS)
def test_same_policy_again_changes_nothing_and_remove_takes_it_away(
    host: Namespace, tmp_path: Path, qdisc: str
) -> None:
    if qdisc == "red":
        need_red()
    default = shown(host, "va")
    assert [c.before for c in put(host, tmp_path, "va", "vc", qdisc=qdisc)] == ["none", "none"]
    first = shown(host, "va")
    assert f"qdisc htb {apply.tc.ROOT}:" in first
    assert [c.before for c in put(host, tmp_path, "va", "vc", qdisc=qdisc)] == ["same", "same"]
    assert shown(host, "va") == first
    assert [c.before for c in put(host, tmp_path, "va", qdisc=qdisc, drop=20_000)] == [
        "ours" if qdisc == "red" else "same"  # HTB has no thresholds to change
    ]
    host.run(lambda: apply.remove(["va", "vb"], state=tmp_path))
    assert shown(host, "va") == default
    assert "htb" in shown(host, "vc")
    assert "dlcp" not in links(host)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("qdisc", apply.QDISCS)
def test_dry_run_rehearses_and_leaves_nothing(host: Namespace, tmp_path: Path, qdisc: str) -> None:
    if qdisc == "red":
        need_red()
    before = shown(host, "va"), links(host)
    changes = host.run(lambda: apply.apply(policy("va"), ["va"], qdisc, dry_run=True, state=tmp_path))
    assert changes[0].commands
    assert (shown(host, "va"), links(host)) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (apply.KernelError("as if the driver had refused"), apply.ApplyError),
        (KeyboardInterrupt("as if the driver had refused"), KeyboardInterrupt),
    ],
    ids=["refused", "interrupted"],
)
def test_failure_at_the_second_interface_takes_the_first_one_back(
    host: Namespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: BaseException,
    raised: type[BaseException],
) -> None:
    put(host, tmp_path, "va")
    before = shown(host, "va"), shown(host, "vc")
    replace = apply._replace

    def fails_at_vc(name: str, commands: list[str]) -> None:
        replace(name, commands)
        if name == "vc" and commands:
            raise failure

    monkeypatch.setattr(apply, "_replace", fails_at_vc)
    other = Policy("other", ports=(Port("va", 2 * RATE_BPS), Port("vc", RATE_BPS)))
    with pytest.raises(raised, match="(taken back: )?as if the driver had refused$"):
        host.run(lambda: apply.apply(other, ["va", "vc"], "htb", state=tmp_path))
    assert (shown(host, "va"), shown(host, "vc")) == before
    assert "dlcp" not in links(host)
    monkeypatch.setattr(apply, "_replace", replace)
    assert [c.before for c in put(host, tmp_path, "va")] == ["same"]


def test_what_was_before_is_not_known_any_more(
    host: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(host, tmp_path, "va")
    for file in tmp_path.iterdir():
        file.unlink()
    monkeypatch.setattr(apply, "_shown", lambda name: ([name], [], []))
    other = Policy("other", ports=(Port("va", 2 * RATE_BPS),))
    with pytest.raises(apply.ApplyError, match="va could not be restored and has the system's default"):
        host.run(lambda: apply.apply(other, ["va"], "htb", state=tmp_path))
    assert "htb" not in shown(host, "va")


# ---- refused, with nothing changed ----


def test_queues_of_somebody_else_are_left_alone(host: Namespace, tmp_path: Path) -> None:
    done = subprocess.run(
        host.command("tc", "qdisc", "add", "dev", "va", "root", "handle", "1:", "bfifo", "limit", 9000),
        capture_output=True,
    )
    assert done.returncode == 0
    before = shown(host, "va")
    with pytest.raises(
        InterfaceError, match=r"va has queues of somebody else \(bfifo 1:\); remove them first"
    ):
        put(host, tmp_path, "vc", "va")
    with pytest.raises(InterfaceError, match="somebody else"):
        host.run(lambda: apply.remove(["va"], state=tmp_path))
    assert shown(host, "va") == before
    assert "htb" not in shown(host, "vc")


def test_kernel_without_red_is_named_and_nothing_is_half_applied(host: Namespace, tmp_path: Path) -> None:
    if lacks("prio") is None:
        pytest.skip("this kernel has sch_prio")
    with pytest.raises(apply.KernelError, match=r"no prio queue \(sch_prio\); no interface was changed"):
        put(host, tmp_path, "va", "vc", qdisc="red")
    assert "htb" not in shown(host, "va")
    assert "dlcp" not in links(host)
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_named(host: Namespace, tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match=r"there is no interface 'vx'; there are: .*va"):
        put(host, tmp_path, "vx")
    with pytest.raises(RenderError, match="no qdisc 'fq'; accepted: red, htb"):
        put(host, tmp_path, "va", qdisc="fq")
    with pytest.raises(RenderError, match="HTB wants the rate of 'va'"):
        host.run(lambda: apply.apply(policy(), ["va"], "htb", state=tmp_path))
    with pytest.raises(InterfaceError, match="no interface: give --dev"):
        put(host, tmp_path)


def test_where_nothing_can_be_remembered_queues_come_and_go(host: Namespace, tmp_path: Path) -> None:
    # As root of `unshare -Urn` finds /run: not its own.
    (tmp_path / "file").touch()
    put(host, tmp_path / "file" / "state", "va")
    assert "htb" in shown(host, "va")
    host.run(lambda: apply.remove(["va"], state=tmp_path / "file" / "state"))
    assert "htb" not in shown(host, "va")


def test_command_applies_and_removes(
    host: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apply, "STATE", tmp_path)
    file = tmp_path / "policy.toml"
    policy("va").save(file)
    assert host.run(lambda: main(["apply", str(file), "--qdisc", "htb", "--dry-run"])) == 0
    said = capsys.readouterr()
    assert "va: would be: " in said.out
    assert "  tc qdisc add dev va root" in said.out
    assert "neither marks nor drops by importance" in said.err
    assert host.run(lambda: main(["apply", str(file), "--qdisc", "htb"])) == 0
    assert "new" in capsys.readouterr().out
    with pytest.raises(RenderError, match="port_bytes"):
        host.run(lambda: main(["apply", str(file), "--qdisc", "htb", "--strict"]))
    assert host.run(lambda: main(["apply", "--remove", "--dev", "va"])) == 0
    assert "default queues" in capsys.readouterr().out
    policy("up1").save(file)
    words = ["apply", str(file), "--qdisc", "htb", "--dry-run", "--dev"]
    assert host.run(lambda: main([*words, "va=up1"])) == 0
    said = capsys.readouterr()
    assert "  tc qdisc add dev va root" in said.out
    assert "not among" not in said.err
    with pytest.raises(InterfaceError, match="there is no interface 'vx'"):
        host.run(lambda: main([*words, "va=up1,vx"]))
    assert "htb" not in shown(host, "va")
    with pytest.raises(RenderError, match="give a POLICY"):
        main(["apply"])


# ---- what the queues do ----


@pytest.fixture
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    """Two hosts and a cable, addresses 10.9.0.1 and 10.9.0.2, whose nearer end is called va."""
    with Namespace() as near, Namespace() as far:
        near.join(far, "va", "vb")
        near.ip("addr add 10.9.0.1/24 dev va")
        far.ip("addr add 10.9.0.2/24 dev vb")
        near.ip("link set va up")
        far.ip("link set vb up")
        yield near, far


def share(
    pair: tuple[Namespace, Namespace], flows: dict[str, int], load: float, seconds: float = 2.0
) -> dict[str, tuple[float, int]]:
    """Flows, by name their TOS byte, at `load` times the rate in equal parts → by name: share that came; CE."""
    near, far = pair
    port_of = {name: 7000 + index for index, name in enumerate(flows)}

    def listeners() -> dict[str, socket.socket]:
        made = {}
        for name, port in port_of.items():
            made[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            made[name].setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
            made[name].setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
            made[name].bind(("10.9.0.2", port))
            made[name].setblocking(False)
        return made

    sockets = far.run(listeners)
    packets_per_s = load * RATE_BPS / 8 / PACKET_BYTES / len(flows)

    def send() -> int:
        senders = []
        for name, tos in flows.items():
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sender.setsockopt(
                socket.SOL_SOCKET, 32, 1 << 24
            )  # SO_SNDBUFFORCE: full queues must not hold it up
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
            sender.connect(("10.9.0.2", port_of[name]))
            senders.append(sender)
        body = bytes(PACKET_BYTES - 42)
        begin = time.monotonic()
        sent = 0
        while (now := time.monotonic() - begin) < seconds:
            while sent < now * packets_per_s:
                for sender in senders:
                    sender.send(body)
                sent += 1
            time.sleep(0.002)
        for sender in senders:
            sender.close()
        return sent

    sent = near.run(send)
    time.sleep(0.6)  # 200 KB of queue at 4 Mbit/s, for what is in a lower class
    result = {}
    for name, listener in sockets.items():
        came = marked = 0
        while True:
            try:
                _, ancillary, _, _ = listener.recvmsg(2048, 64)
            except BlockingIOError:
                break
            came += 1
            marked += ancillary[0][2][0] & 3 == 3
        listener.close()
        result[name] = (came / sent, marked)
    return result


def ect(dscp: int) -> int:
    return dscp << 2 | 2


@pytest.mark.parametrize("qdisc", apply.QDISCS)
def test_higher_classes_are_served_first_at_twice_the_rate(
    pair: tuple[Namespace, Namespace], tmp_path: Path, qdisc: str
) -> None:
    if qdisc == "red":
        need_red()
    near, _ = pair
    classes = (TrafficClass(7, dscp=(56,)), *policy().classes)
    near.run(
        lambda: apply.apply(
            Policy(classes=classes, ports=(Port("va", RATE_BPS),), port_bytes=20_000),
            ["va"],
            qdisc,
            state=tmp_path,
        )
    )
    got = share(pair, {name: ect(dscp) for name, dscp in (("7", 56), ("6", 48), ("4", 32), ("1", 8))}, 1.9)
    assert got["7"][0] > 0.97, got
    assert got["6"][0] > 0.97, got
    # Two classes ask for more than the link; the others get what their queues hold in the end.
    assert got["4"][0] < 0.3, got
    assert got["1"][0] < 0.2, got


def test_critical_packets_stay_and_droppable_ones_take_the_whole_loss(
    pair: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    need_red()
    near, _ = pair
    near.run(lambda: apply.apply(policy("va"), ["va"], state=tmp_path))
    got = share(pair, {"critical": ect(32), "droppable": 32 << 2}, 1.3, seconds=3.0)
    assert got["critical"][0] >= 0.999, got
    assert 0.4 < got["droppable"][0] < 0.75, got  # 0.54 and the queue
    assert got["critical"][1] > 100, got
    assert got["droppable"][1] == 0, got
