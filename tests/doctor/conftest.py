"""Made-up machines for the doctor to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dlcp.doctor.pci import NetworkDevice

Machine = Callable[..., Path]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Makes a tree of /sys and /proc: devices, huge pages by kB (free, total), files with their content, and links."""

    def make(
        *devices: NetworkDevice,
        huge_pages: dict[int, tuple[int, int]] | None = None,
        files: dict[str, str] | None = None,
        folders: tuple[str, ...] = (),
        links: dict[str, str] | None = None,
    ) -> Path:
        bus = tmp_path / "sys/bus/pci"
        for device in devices:
            folder = bus / "devices" / device.address
            folder.mkdir(parents=True)
            (folder / "class").write_text("0x020000\n")
            for name, number in zip(("vendor", "device"), device.model.split(":"), strict=False):
                (folder / name).write_text(f"0x{number}\n")
            if device.driver is not None:
                (bus / "drivers" / device.driver).mkdir(parents=True, exist_ok=True)
                (folder / "driver").symlink_to(bus / "drivers" / device.driver)
            for name in device.interfaces:
                below = "virtio3/net" if device.driver == "virtio-pci" else "net"
                (folder / below / name).mkdir(parents=True)
        for kibibytes, (free, total) in (huge_pages or {}).items():
            folder = tmp_path / f"sys/kernel/mm/hugepages/hugepages-{kibibytes}kB"
            folder.mkdir(parents=True)
            (folder / "free_hugepages").write_text(f"{free}\n")
            (folder / "nr_hugepages").write_text(f"{total}\n")
        for name, content in (files or {}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)
        for name in folders:
            (tmp_path / name).mkdir(parents=True)
        for name, target in (links or {}).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).symlink_to(target)
        return tmp_path

    return make
