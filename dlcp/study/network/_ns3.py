"""A run's links and routes as the project's ns-3 program reads them (tests/sim/ns3/fixed_routes.cc), and its answer.

One route per flow: that of its first packet. The program is built in build/ns3, where ns-3 is installed (Debian:
libns3-dev) and this is a checkout; DLCP_NS3 names another.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlcp.study.network._reference import SOURCES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlcp_sim.result import Result

SOURCE = SOURCES / "tests" / "sim" / "ns3" / "fixed_routes.cc"
LIBRARIES = ("internet", "point-to-point", "network", "core")
HEADER_BYTES = 30
"""UDP, IPv4 and PPP: what ns-3's point-to-point links carry beside the payload (RFC 768, RFC 791, RFC 1661)."""
SENT = 1
"""Of the events of packet records: the first bit leaves a port."""


class Ns3Error(RuntimeError):
    """ns-3 is not here, or the program does not compile; the text says what would help."""


def program() -> Path:
    """The compiled program, built if that is needed. Raises Ns3Error."""
    if given := os.environ.get("DLCP_NS3"):
        return Path(given)
    if not Path("/usr/include/ns3").is_dir():
        raise Ns3Error("ns-3 is not installed (Debian: apt-get install libns3-dev)")
    if not SOURCE.exists() or shutil.which("g++") is None:
        raise Ns3Error("the ns-3 program needs g++ and a checkout of dlcp")
    built = SOURCES / "build" / "ns3" / SOURCE.stem
    if not built.exists() or built.stat().st_mtime < SOURCE.stat().st_mtime:
        built.parent.mkdir(parents=True, exist_ok=True)
        # Whoever looks meanwhile finds the old one or none.
        unfinished = built.with_name(f"{built.name}.{os.getpid()}")
        # The headers of ns-3 3.48 (Debian 14) need C++20.
        line = ["g++", "-std=c++20", "-O2", "-o", str(unfinished), str(SOURCE)]
        line += [f"-lns3-{name}" for name in LIBRARIES]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Ns3Error(f"the ns-3 program does not compile:\n{done.stderr[-3000:]}")
        unfinished.replace(built)
    return built


def sent_packets(result: Result) -> dict[str, NDArray[np.int64]]:
    """Of a run that was traced: the records of packets that began to leave a port."""
    trace = result.trace
    assert trace is not None
    chosen = trace["event"] == SENT
    return {name: column[chosen] for name, column in trace.items()}


def work(result: Result, payload_bytes: int, size: int | None = None) -> str:
    """The input of ns-3: links, flows, and of each flow the ports that its first packet took. `size`: of all flows."""
    ports, flows, sent = result.ports, result.flows, sent_packets(result)
    where = {(int(a), int(b)): i for i, (a, b) in enumerate(zip(ports.sender, ports.receiver, strict=True))}
    lines = [f"ports {len(ports)}"]
    for i in range(len(ports)):
        a, b = int(ports.sender[i]), int(ports.receiver[i])
        delay_ps = round(float(ports.delay_s[i]) * 1e12)
        lines.append(f"{a} {b} {int(ports.rate_bps[i])} {delay_ps} {where[b, a]}")
    lines.append(f"flows {len(flows)}")
    for flow in range(len(flows)):
        path = sent["port"][(sent["flow"] == flow) & (sent["number"] == 0)]
        count = int(flows.bytes[flow]) if size is None else size
        packets = -(-count // payload_bytes)
        numbers = [flows.source[flow], flows.destination[flow], packets, payload_bytes]
        numbers += [count - (packets - 1) * payload_bytes, round(float(flows.start_s[flow]) * 1e12)]
        lines.append(" ".join(str(int(number)) for number in [*numbers, len(path), *path]))
    return "\n".join(lines) + "\n"


def run(built: Path, text: str, *options: str) -> str:
    """What the program answers. Raises CalledProcessError if it fails."""
    return subprocess.run([built, *options], input=text, capture_output=True, text=True, check=True).stdout


def totals(answer: str) -> dict[str, float]:
    """The last line of an answer by name: hops, events, setup_s, cpu_s, rss_kb and more."""
    words = answer.splitlines()[-1].split()[1:]
    return {name: float(value) for name, value in zip(words[::2], words[1::2], strict=True)}
