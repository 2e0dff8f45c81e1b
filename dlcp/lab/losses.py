"""Losses on arrival where the kernel does the switching: fault.bpf.c at both ends of a link, filled and read here."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

from dlcp.lab import bpf_map
from dlcp.lab.fabric import Link
from dlcp.lab.fault import FabricError, Fault
from dlcp.lab.network import Network, bpf_source

_LAYOUT = struct.Struct("=7Q")  # struct fault of fault.bpf.c
_WHOLE = 2**32


class Losses:
    """Of all links of a network. `directory`: where the compiled program lies."""

    def __init__(self, network: Network, directory: Path) -> None:
        self._network = network
        self._program = directory / "fault.o"

    def set(self, link: Link, fault: Fault) -> None:
        """Loses what the fault says, and counts from zero. FabricError: the system does not let it."""
        wanted = bool(fault.loss_ratio or fault.burst)
        if wanted and (reason := missing()) is not None:
            raise FabricError(f"link {link.name}: no losses here: {reason}")
        for node, peer in link.ends:
            namespace, interface = self._network.namespace(node), self._network.interface(node, peer)
            if not wanted:
                subprocess.run(
                    ["tc", "-n", namespace, "filter", "del", "dev", interface, "ingress"], capture_output=True
                )
                continue
            if not self._program.exists():
                bpf_map.compile_program(bpf_source("fault"), self._program)
            burst = fault.burst
            ratios = (
                fault.loss_ratio,
                *((burst.enter_ratio, burst.leave_ratio, burst.loss_ratio) if burst else (0, 0, 0)),
            )
            program = bpf_map.attach(namespace, interface, "ingress", self._program)
            with bpf_map.Map(program, "fault") as values:
                values.write(_LAYOUT.pack(*(round(ratio * _WHOLE) for ratio in ratios), 0, 0, 0))

    def lost(self, node: str, peer: str) -> int:
        """Packets lost on arrival at that node from `peer`, since the fault was set."""
        namespace, interface = self._network.namespace(node), self._network.interface(node, peer)
        program = bpf_map.attached(namespace, interface, "ingress")
        if program is None:
            return 0
        with bpf_map.Map(program, "fault") as values:
            return int(_LAYOUT.unpack(values.read())[5])


def missing() -> str | None:
    """Why there can be no BPF programs here, or None."""
    if shutil.which("clang") is None:
        return "clang compiles the BPF program (Debian: clang)"
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        return "the BPF program needs bpf/bpf_helpers.h (Debian: libbpf-dev)"
    return bpf_map.refused()
