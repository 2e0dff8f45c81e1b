"""The plug-in for NCCL, driven through its table as NCCL drives it. NCCL itself needs a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest

from tests.support import children
from tests.support.seeds import for_each_seed
from tests.transport.nccl import caller as nccl

# Of every script: loopback, and a peer that is gone is found out soon.
PLACE = "DLCP_INTERFACE=lo DLCP_PEER_TIMEOUT_S=1"
SIZES = [0, 1, 3, 1448, 4096, 70_001, 1 << 20]


@pytest.fixture(scope="module")
def net() -> nccl.Net:
    """This process's: what it reads of the environment is as the first one finds it."""
    with pytest.MonkeyPatch.context() as patch:
        for word in PLACE.split():
            patch.setenv(*word.split("="))
        return nccl.Net()


def test_a_device_says_what_nccl_asks(net: nccl.Net) -> None:
    assert net.table.name == b"dlcp"
    assert net.devices() == 1
    lo = net.properties(0)
    assert (lo.name, lo.pci_path, lo.pointers, lo.max_grouped_receives) == (b"lo", None, 1, 1)
    assert lo.speed_mbps > 0
    assert net.log[0] == f"NET/dlcp: lo 127.0.0.1, {lo.speed_mbps} Mbit/s"
    with pytest.raises(nccl.NetError, match=r"result 3; .*there is no device 1"):
        net.properties(1)


@for_each_seed(range(4))
def test_messages_match_in_the_order_posted(net: nccl.Net, seed: int) -> None:
    random = np.random.default_rng(seed)
    sender, receiver = net.connection()
    sizes = [SIZES[i] for i in random.integers(len(SIZES), size=64)]
    sent = [random.integers(256, size=size, dtype=np.uint8) for size in sizes]
    # A receive has room for more than comes, as NCCL's have.
    got = [np.zeros(size + 1000, np.uint8) for size in sizes]
    sends, receives = [], []
    for data, room in zip(sent, got, strict=True):
        # Whichever side is first.
        if random.random() < 0.5:
            sends.append(net.send(sender, data))
            receives.append(net.receive(receiver, room))
        else:
            receives.append(net.receive(receiver, room))
            sends.append(net.send(sender, data))
        if len(sends) - sum(one.bytes >= 0 for one in sends) >= 16:
            nccl.until(next(one for one in sends if one.bytes < 0).test)
    for one in sends + receives:
        if one.bytes < 0:
            nccl.until(one.test)
    assert [one.bytes for one in sends] == sizes
    assert [one.bytes for one in receives] == sizes
    for data, room in zip(sent, got, strict=True):
        assert (room[: data.size] == data).all()
        assert not room[data.size :].any()
    net.call("close_sender", sender)
    net.call("close_receiver", receiver)


def sockets() -> set[str]:
    """UDP sockets of this process; other tests' worlds may have some.

    By the descriptors alone: /proc/net/udp leaves some out while other processes open and close theirs.
    """
    mine = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            name = str(descriptor.readlink())
            if name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(descriptor.name))) as one:
                    if one.type == socket.SOCK_DGRAM and one.family in (socket.AF_INET, socket.AF_INET6):
                        mine.add(name)
    return mine


def test_connections_between_two_processes_share_their_sockets(net: nccl.Net) -> None:
    before = sockets()
    first = net.connection()
    opened = sockets() - before
    others = [net.connection() for _ in range(20)]
    assert sockets() - before == opened != set()
    data, room = np.arange(1000, dtype=np.uint8), [np.zeros(1000, np.uint8) for _ in others]
    receives = [net.receive(other[1], buffer) for other, buffer in zip(others, room, strict=True)]
    for other in others[::-1]:
        nccl.until(net.send(other[0], data).test)
    for each in receives:
        nccl.until(each.test)
    assert all((buffer == data).all() for buffer in room)
    for sender, receiver in [first, *others]:
        net.call("close_sender", sender)
        net.call("close_receiver", receiver)
    assert not sockets() & opened


def test_a_listener_that_nobody_connects_to_closes(net: nccl.Net) -> None:
    listener, _ = net.listen()
    assert not net.accept(listener)
    net.call("close_listener", listener)


def test_too_small_a_receive_is_the_users_mistake(net: nccl.Net) -> None:
    sender, receiver = net.connection()
    small = net.receive(receiver, np.zeros(10, np.uint8))
    large = net.send(sender, np.zeros(1000, np.uint8))
    for one in (small, large):
        with pytest.raises(nccl.NetError) as caught:
            nccl.until(one.test)
        assert caught.value.result == nccl.INVALID_USAGE
    assert "NET/dlcp: a receive ended with receive_too_small" in net.log
    net.call("close_sender", sender)
    net.call("close_receiver", receiver)


def test_the_handle_of_another_network_is_refused(net: nccl.Net) -> None:
    handle = ctypes.create_string_buffer(b"another network's", nccl.HANDLE_BYTES)
    with pytest.raises(nccl.NetError, match="the peer's network is not dlcp of this version"):
        net.connect(handle)


RECEIVER = f"""
import os
os.environ.update(word.split("=") for word in "{PLACE}".split())
from tests.transport.nccl import caller as nccl
net = nccl.Net()
listener, handle = net.listen()
print(handle.raw.hex(), flush=True)
receiver = nccl.until(lambda: net.accept(listener))
print("here", flush=True)
input()
"""


def test_a_peer_that_is_killed_ends_what_is_under_way(net: nccl.Net) -> None:
    child = children.Child(RECEIVER)
    handle = ctypes.create_string_buffer(bytes.fromhex(child.line()), nccl.HANDLE_BYTES)
    sender = nccl.until(lambda: net.connect(handle))
    assert child.line() == "here"
    # More than a receiver keeps of what nobody has asked for: a shorter one may have arrived before the kill.
    unwanted = net.send(sender, np.zeros((64 << 20) + 1, np.uint8))
    assert not unwanted.test()
    child.kill()
    with pytest.raises(nccl.NetError, match=r"a send ended with peer_\w+") as caught:
        nccl.until(unwanted.test)
    assert caught.value.result == nccl.REMOTE_ERROR
    net.call("close_sender", sender)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            "DLCP_INTERFACE=nosuch",
            r"no interface that DLCP_INTERFACE or NCCL_SOCKET_IFNAME names can be used; here",
        ),
        ("NCCL_SOCKET_IFNAME==l", r"no interface that"),
        (f"NCCL_SOCKET_IFNAME=^={','.join(name for _, name in socket.if_nameindex())}", r"no interface that"),
        ("DLCP_PEER_TIMEOUT_S=soon", r"DLCP_PEER_TIMEOUT_S is soon; accepted: above 0 to "),
        ("DLCP_RUN_PACKETS=0", r"DLCP_RUN_PACKETS is 0; accepted: 1 to "),
        (
            "DLCP_SEGMENTATION_OFFLOAD=perhaps",
            r"DLCP_SEGMENTATION_OFFLOAD is perhaps; accepted: true or false",
        ),
        ("DLCP_INJECT_LOSS_RATIO=101%", r"DLCP_INJECT_LOSS_RATIO is 101%; accepted: 0 to "),
        ("DLCP_CONGESTION=hope", r"DLCP_CONGESTION is hope; accepted: "),
        ("DLCP_DSCP=1,2,3", r"DLCP_DSCP is 1,2,3; accepted: 8 integers from 0 to 63"),
    ],
)
def test_a_bad_setting_keeps_nccl_from_the_plugin(variables: str, said: str) -> None:
    script = f"""
    import os
    name, _, value = {variables!r}.partition("=")
    os.environ[name] = value
    from tests.transport.nccl import caller as nccl
    try:
        nccl.Net()
    except nccl.NetError as error:
        print(error)
    """
    printed = children.run(script).stdout
    assert re.search(f"result {nccl.INVALID_USAGE}; NET/dlcp: {said}", printed), printed


def test_settings_come_from_the_environment() -> None:
    script = """
    import os
    os.environ |= {"NCCL_SOCKET_IFNAME": "=lo", "DLCP_CONGESTION": "WINDOW", "DLCP_RUN_PACKETS": "auto",
                   "DLCP_MAX_DATAGRAM_BYTES": "1200", "DLCP_SEGMENTATION_OFFLOAD": "Off",
                   "DLCP_INJECT_LOSS_RATIO": "5%", "DLCP_KEY_FILE": "/none"}
    import numpy as np
    from tests.transport.nccl import caller as nccl
    net = nccl.Net()
    sender, receiver = net.connection()
    data = np.zeros(5000, np.uint8)
    receive = net.receive(receiver, data)
    nccl.until(net.send(sender, data).test)
    nccl.until(receive.test)
    print(receive.bytes)
    """
    done = children.run(script)
    assert done.stdout == "5000\n", done.stderr
