"""Huge pages: what this host has of them for DPDK."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dlcp.doctor.driver import DPDK
from dlcp.doctor.files import lines, read
from dlcp.doctor.finding import Finding, listed

# EAL arguments with which its memory is files of a mounted hugetlbfs (native/io/dpdk/eal_arguments.cpp adds
# --in-memory to all others).
_WANT_FILES = {"--file-prefix", "--huge-dir", "--huge-unlink", "--proc-type", "--no-shconf", "--legacy-mem"}


@dataclass(frozen=True, slots=True)
class _HugePages:
    """The pages of one size."""

    page_bytes: int
    free: int
    """Nobody has them, or has a right to them."""
    total: int
    reserve: str
    """The file that says how many there are to be."""

    def describe(self) -> str:
        size = (
            f"{self.page_bytes >> 30} GiB" if self.page_bytes >= 1 << 30 else f"{self.page_bytes >> 20} MiB"
        )
        return f"{self.free} of {self.total} of {size}"


@listed
def look_at_huge_pages(asked: bool, arguments: set[str], root: Path = Path("/")) -> Iterator[Finding]:
    """Findings about huge pages. `arguments`: names of EAL's options."""
    if "--no-huge" in arguments:
        yield DPDK.ok("no huge pages are used, as --no-huge says: virtual devices only")
        return
    sizes = _list_huge_pages(root)
    if not sizes:
        text = "this kernel has no huge pages (no /sys/kernel/mm/hugepages)"
        remedy = "eal_arguments --no-huge -m 256 (virtual devices only), or a kernel with CONFIG_HUGETLBFS"
        yield DPDK.lack(asked, text, remedy)
        return
    words = f"huge pages free: {', '.join(one.describe() for one in sizes)}"
    if any(one.free for one in sizes):
        yield DPDK.ok(words)
    else:
        reserve = f"echo 512 > {sizes[0].reserve}"
        yield DPDK.lack(asked, f"{words}; DPDK needs some, 1 GiB is plenty", reserve if asked else None)
    files = sorted(arguments & _WANT_FILES)
    if asked and files and "--in-memory" not in arguments and not _hugetlbfs_is_mounted(root):
        text = f"eal_arguments have {files[0]}, so huge pages are files, and no hugetlbfs is mounted"
        remedy = "mkdir -p /dev/hugepages && mount -t hugetlbfs nodev /dev/hugepages"
        yield DPDK.fail(text, f"{remedy} (or add --in-memory)")


def _list_huge_pages(root: Path) -> list[_HugePages]:
    """Every size, the smallest first."""
    place = "sys/kernel/mm/hugepages"
    found = []
    for folder in (root / place).glob("hugepages-*kB"):
        names = ("nr", "free", "resv", "nr_overcommit", "surplus")
        total, free, reserved, more, surplus = (
            int(read(folder / f"{name}_hugepages") or 0) for name in names
        )
        left = max(0, free - reserved) + max(0, more - surplus)
        kibibytes = int(folder.name.removeprefix("hugepages-").removesuffix("kB"))
        found.append(
            _HugePages(kibibytes << 10, left, max(total, left), f"/{place}/{folder.name}/nr_hugepages")
        )
    return sorted(found, key=lambda one: one.page_bytes)


def _hugetlbfs_is_mounted(root: Path) -> bool:
    return any(words[2:3] == ["hugetlbfs"] for words in lines(root / "proc/self/mounts"))
