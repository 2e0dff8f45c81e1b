"""Endpoints as their process forks, ends, is interrupted or drops them."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.support.children import run
from tests.support.endpoints import open_endpoint


@pytest.mark.loopback("a process of its own")
def test_forked_child_is_told_and_the_parent_goes_on() -> None:
    result = run(
        """
        import os, warnings
        import numpy as np
        from dlcp import errors
        from dlcp.transport import Endpoint
        warnings.simplefilter("ignore", DeprecationWarning)  # that is what is tested here
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        got = np.zeros(1000)
        future = b.ireceive(0, got)
        pid = os.fork()
        if pid == 0:
            refused = 0
            for call in (lambda: a.send(1, b"x"), a.stats, lambda: future.result(), lambda: future.cancel(),
                         lambda: a.connect(1, b.address), a.drain_log, lambda: a.peers,
                         lambda: future.add_done_callback(print)):
                try:
                    call()
                except errors.ForkError:
                    refused += 1
            assert a.closed
            a.close()
            with Endpoint(5) as own:
                own.connect(0, a.address)
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 8
        a.send(1, np.ones(1000))
        future.result()
        assert got.all()
        print("parent done")
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "parent done", "")


@pytest.mark.loopback("a process of its own")
def test_forked_child_ends_quietly() -> None:
    result = run(
        """
        import os, sys, warnings
        from dlcp.transport import Endpoint
        warnings.simplefilter("ignore", DeprecationWarning)
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        future = a.ireceive(1, bytearray(9))
        pid = os.fork()
        if pid == 0:
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        a.close()
        """
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.loopback("a process of its own")
def test_interpreter_ends_with_everything_outstanding() -> None:
    result = run(
        """
        import threading
        import numpy as np
        from dlcp.transport import Endpoint
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        futures = [a.ireceive(1, np.zeros(1000), tag=i) for i in range(10)]
        futures += [a.isend(1, np.zeros(100_000), tag=100 + i) for i in range(10)]
        futures[0].add_done_callback(lambda future: None)
        started = threading.Barrier(4)
        def wait():
            started.wait()
            a.receive(1, np.zeros(10), tag=77)
        for _ in range(3):
            threading.Thread(target=wait, daemon=True).start()
        threading.excepthook = lambda args: None  # they end with TransferClosedError
        started.wait()
        print("end")
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "end", "")


@pytest.mark.loopback("a process of its own")
def test_ctrl_c_ends_a_blocking_call() -> None:
    result = run(
        """
        import os, signal, threading
        from dlcp.transport import Endpoint
        a, b = Endpoint(0), Endpoint(1)
        a.connect(1, b.address)
        wait = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
        wait.start()
        try:
            a.receive(1, bytearray(1))
        except KeyboardInterrupt:
            print("interrupted", a.stats().outstanding_operations)
        """
    )
    assert (result.returncode, result.stdout.strip(), result.stderr) == (0, "interrupted 0", "")


def test_dropped_endpoint_closes() -> None:
    a = open_endpoint(0)
    address = a.address.partition("+")[0]
    host = weakref.ref(a)
    a.ireceive(None, bytearray(1)).add_done_callback(lambda _: None)
    del a
    gc.collect()
    assert host() is None
    with open_endpoint(0, port=int(address.rsplit(":", 1)[1])) as again:
        assert again.address.partition("+")[0] == address
