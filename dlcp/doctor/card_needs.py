"""What DPDK's drivers for some kinds of cards want besides the card: only what can be seen before they start.

A card that is bound to vfio-pci no longer says whose it is; its model does (vendor and device of the PCI bus).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from dlcp.doctor.driver import DPDK
from dlcp.doctor.eal_arguments import EalArguments
from dlcp.doctor.finding import Finding, listed
from dlcp.doctor.pci import NetworkDevice

# E810-C and E810-XXV (linux/drivers/net/ethernet/intel/ice/ice_devids.h).
_ICE = {f"8086:{device}" for device in ("1591", "1592", "1593", "1599", "159a", "159b")}
# Amazon's (DPDK, drivers/net/ena/ena_ethdev.c).
_ENA = {"1d0f:ec20", "1d0f:ec21"}
# Where DPDK's ice driver looks for its package, in turn (NIC guide, ice, "DDP package loading"); it may be packed, and
# one for a single card has that card's number in its name.
_DDP_FOLDERS = ("lib/firmware/updates/intel/ice/ddp", "lib/firmware/intel/ice/ddp")
# Device arguments of ice with which that package is not needed, or is elsewhere.
_DDP_ELSEWHERE = ("safe-mode-support=1", "ddp_pkg_file=")


@listed
def look_at_needs(
    named: Sequence[NetworkDevice], arguments: EalArguments, root: Path = Path("/")
) -> Iterator[Finding]:
    """Findings about what is beside cards. `named`: the devices that the settings name."""
    options = dict(arguments.allowed)
    for device in named:
        if device.driver == "ice" or device.model in _ICE:
            yield from _look_at_ddp(device, options.get(device.address, ""), root)
        elif device.driver == "ena" or device.model in _ENA:
            yield _say_write_combining(device)


def _look_at_ddp(device: NetworkDevice, options: str, root: Path) -> Iterator[Finding]:
    if any(word in options for word in _DDP_ELSEWHERE):
        return
    # For all cards, or for the one of a serial number (DPDK, NIC guide, ice); perhaps compressed.
    names = ("ice.pkg*", f"ice-{'[0-9a-f]' * 16}.pkg*")
    if any(any((root / folder).glob(name)) for folder in _DDP_FOLDERS for name in names):
        return
    yield DPDK.warn(
        f"{device.describe()} is of Intel's E810, whose DPDK driver does not start without a DDP package, and there"
        f" is none in {' or '.join(f'/{folder}' for folder in _DDP_FOLDERS)}",
        "apt-get install firmware-misc-nonfree (Debian 13: firmware-intel-misc), or do without: -a"
        f" {device.address},safe-mode-support=1 in DLCP_EAL_ARGUMENTS (no checksums by the card, one queue)",
    )


def _say_write_combining(device: NetworkDevice) -> Finding:
    """Neither igb_uio (its parameter is not in /sys) nor a patched vfio-pci says beforehand whether it does it."""
    return DPDK.ok(
        f"{device.describe()} is of AWS's ena, which from the sixth generation of instances on sends very slowly"
        " without write combining: vfio-pci does it when patched, igb_uio with wc_activate=1",
        "grep write-combining /sys/kernel/debug/x86/pat_memtype_list (while dlcp runs it names the card's memory)",
    )
