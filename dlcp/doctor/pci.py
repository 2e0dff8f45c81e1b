"""Network cards on the PCI bus, whoever drives them: the kernel, or, through vfio-pci, a program.

Read from /sys, so it is the machine's whole bus: also what another network namespace has, or nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# PCI class 02: network controllers (Ethernet, InfiniBand, others).
_NETWORK_CLASS = 0x02
# Drivers of the kernel that hand a device to programs.
FOR_PROGRAMS = {"vfio-pci", "uio_pci_generic", "igb_uio"}


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    """One function of a card."""

    address: str
    """"0000:3b:00.0"."""
    driver: str | None
    """The kernel's driver that it is bound to; None: to none."""
    interfaces: tuple[str, ...]
    """The kernel's interfaces of it; those of another network namespace are not there."""

    def describe(self) -> str:
        """Address and interfaces: 0000:3b:00.0 (eth0)."""
        return f"{self.address} ({', '.join(self.interfaces)})" if self.interfaces else self.address


def list_network_devices(root: Path = Path("/")) -> list[NetworkDevice]:
    """All network devices of the bus, by address; [] where there is no PCI bus. `root`: where /sys is."""
    found = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            kind = int((folder / "class").read_text(), 16) >> 16
        except (OSError, ValueError):
            continue
        if kind != _NETWORK_CLASS:
            continue
        driver = (folder / "driver").resolve().name if (folder / "driver").exists() else None
        # Below a bus of its own with virtio.
        names = {one.name for pattern in ("net/*", "virtio*/net/*") for one in folder.glob(pattern)}
        found.append(NetworkDevice(folder.name, driver, tuple(sorted(names))))
    return found


def full_address(name: str) -> str:
    """A PCI address with its domain, "0000:3b:00.0" for "3b:00.0"; any other name as it is."""
    return f"0000:{name}" if name.count(":") == 1 and name.count(".") == 1 else name
