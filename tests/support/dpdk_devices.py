"""What a DPDK driver of a card tells, raised in a station for a device that has nothing to tell."""

from __future__ import annotations

import ctypes
import enum

from tests.support.dpdk import PLUGIN


class Event(enum.IntEnum):
    """Of enum rte_eth_event_type (rte_ethdev.h)."""

    INTR_RESET = 3
    INTR_RMV = 6


def tell(device: str, event: Event) -> None:
    """As the device's driver would, to whoever listens in this process."""
    library = ctypes.CDLL(str(PLUGIN))  # loaded already; it brings DPDK's functions
    library.rte_eth_dev_allocated.restype = ctypes.c_void_p
    found = library.rte_eth_dev_allocated(device.encode())
    assert found is not None, f"DPDK has no device {device}"
    library.rte_eth_dev_callback_process.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    library.rte_eth_dev_callback_process(found, int(event), None)
