"""Network cards on the PCI bus, whoever drives them: the kernel, or, through vfio-pci, a program.

Read from /sys, so it is the machine's whole bus: also what another network namespace has, or nobody.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path

from dlcp.doctor.files import read

# PCI class 02: network controllers (Ethernet, InfiniBand, others).
_NETWORK_CLASS = 0x02
# Drivers of the kernel that hand a device to programs.
FOR_PROGRAMS = {"vfio-pci", "uio_pci_generic", "igb_uio"}
_ADDRESS = re.compile(r"(?:[0-9a-f]{4,}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NetworkDevice:
    """One function of a card."""

    address: str
    """"0000:3b:00.0"."""
    driver: str | None
    """The kernel's driver that it is bound to; None: to none."""
    interfaces: tuple[str, ...]
    """The kernel's interfaces of it; those of another network namespace are not there."""
    model: str = ""
    """Vendor and device, in hexadecimal: "8086:1592"; "": not known."""

    def describe(self) -> str:
        """Address and interfaces: 0000:3b:00.0 (eth0)."""
        return f"{self.address} ({', '.join(self.interfaces)})" if self.interfaces else self.address


def list_network_devices(root: Path = Path("/")) -> list[NetworkDevice]:
    """All network devices of the bus, by address; [] where there is no PCI bus. `root`: where /sys is."""
    found = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        if int(read(folder / "class") or "0", 16) >> 16 != _NETWORK_CLASS:
            continue
        driver = (folder / "driver").resolve().name if (folder / "driver").exists() else None
        # Below a bus of its own with virtio.
        names = {one.name for pattern in ("net/*", "virtio*/net/*") for one in folder.glob(pattern)}
        vendor, model = ((read(folder / name) or "").removeprefix("0x") for name in ("vendor", "device"))
        whole = f"{vendor}:{model}" if vendor and model else ""
        found.append(NetworkDevice(folder.name, driver, tuple(sorted(names)), whole))
    return found


def is_address(name: str) -> bool:
    """Whether it is a PCI address, with its domain or without."""
    return _ADDRESS.fullmatch(name) is not None


def full_address(name: str) -> str:
    """A PCI address as /sys has it, "0000:3b:00.0" for "3B:00.0"; any other name as it is."""
    if not is_address(name):
        return name
    return f"0000:{name}".lower() if name.count(":") == 1 else name.lower()


def holder_of(device: NetworkDevice, root: Path = Path("/")) -> str | None:
    """The process that has a device which is bound to a driver for programs: "process 7 (python)"; None: none is seen.

    Those of other users are seen by root alone.
    """
    folder = root / "sys/bus/pci/devices" / device.address
    files = {f"/dev/{one.name}" for one in folder.glob("uio/uio*")}
    files |= {f"/dev/vfio/devices/{one.name}" for one in folder.glob("vfio-dev/vfio*")}
    if (folder / "iommu_group").exists():
        group = (folder / "iommu_group").resolve().name
        files |= {f"/dev/vfio/{group}", f"/dev/vfio/noiommu-{group}"}
    if not files:
        return None
    for process in (root / "proc").glob("[0-9]*"):
        if files.isdisjoint(_open_files(process)):
            continue
        if (name := read(process / "comm")) is not None:  # else it has ended
            return f"process {process.name} ({name})"
    return None


def _open_files(process: Path) -> set[str]:
    """What a process has open, as far as it is to be seen; it may end meanwhile."""
    found = set()
    with contextlib.suppress(OSError):
        for link in list((process / "fd").iterdir()):
            with contextlib.suppress(OSError):
                found.add(str(link.readlink()))
    return found
