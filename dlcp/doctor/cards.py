"""Network cards for DPDK: which driver of the kernel each is bound to, and what hands them over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dlcp.doctor.finding import Finding, fail, ok, warn
from dlcp.doctor.pci import FOR_PROGRAMS, NetworkDevice

# Drivers of the kernel beside which DPDK uses a card (DPDK, "Network Interface Controller Drivers": mlx4, mlx5, mana).
_BESIDE_THE_KERNEL = {"mlx4_core", "mlx5_core", "mana"}
# Drivers of the kernel for cards that DPDK drives itself, in place of the kernel (same guide, 22.11).
_IN_PLACE_OF_THE_KERNEL = {
    *("amd-xgbe", "atlantic", "bnx2x", "bnxt_en", "cxgb4", "cxgb4vf", "e1000", "e1000e", "ena", "enic"),
    *(
        "fm10k",
        "gve",
        "hinic",
        "hns3",
        "i40e",
        "iavf",
        "ice",
        "idpf",
        "igb",
        "igbvf",
        "igc",
        "ionic",
        "ixgbe",
    ),
    *("ixgbevf", "nfp", "ngbe", "nicvf", "qede", "sfc", "txgbe", "virtio-pci", "vmxnet3"),
}


def look_at_iommu(named: Sequence[NetworkDevice], root: Path = Path("/")) -> list[Finding]:
    """Findings about vfio-pci and the IOMMU. `named`: the devices that the settings name, which may need them."""
    needed = [one for one in named if one.driver not in _BESIDE_THE_KERNEL]
    groups = any((root / "sys/kernel/iommu_groups").glob("*"))
    loaded = (root / "sys/bus/pci/drivers/vfio-pci").exists()
    unsafe = root / "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
    is_unsafe = unsafe.exists() and unsafe.read_text().strip() in ("Y", "1")

    def say(text: str, remedy: str) -> Finding:
        return fail("dpdk", text, remedy) if needed else ok("dpdk", text)

    findings = []
    if not loaded:
        text = "vfio-pci, which hands cards to DPDK (not mlx5), is not loaded"
        findings.append(say(text, "modprobe vfio-pci"))
    if not groups and not is_unsafe:
        text = "there is no IOMMU, so vfio-pci hands over no card"
        remedy = "boot with intel_iommu=on iommu=pt, or in a virtual machine: modprobe vfio"
        findings.append(
            say(text, f"{remedy} && echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
        )
    if not findings:
        how = "behind an IOMMU" if groups else "without an IOMMU (unsafe mode: DPDK may write to all memory)"
        findings.append(ok("dpdk", f"vfio-pci is loaded, and hands cards to DPDK {how}"))
    return findings


def look_at_devices(
    devices: Sequence[NetworkDevice], named: set[str], root: Path = Path("/")
) -> list[Finding]:
    """Findings about network cards, those of one driver together. `named`: PCI addresses that the settings name."""
    if not devices:
        return [ok("dpdk", "no network card is on the PCI bus; DPDK has virtual devices (--vdev)")]
    findings = []
    for driver in sorted({one.driver or "" for one in devices}):
        of_driver = [one for one in devices if (one.driver or "") == driver]
        wanted = [one for one in of_driver if one.address in named]
        others = [one for one in of_driver if one.address not in named]
        if driver in _BESIDE_THE_KERNEL:
            findings.append(_beside_the_kernel(driver, of_driver, root))
        elif driver in FOR_PROGRAMS:
            findings.append(ok("dpdk", f"{_list(of_driver)}: bound to {driver}, ready for DPDK"))
        else:
            findings += [_bound_to_kernel(driver, one) for one in wanted]
            if others:
                findings.append(_not_yet_bound(driver, others))
    return findings


def _beside_the_kernel(driver: str, devices: Sequence[NetworkDevice], root: Path) -> Finding:
    text = f"{_list(devices)}: {driver}, beside which DPDK uses the card as it is; do not bind it to vfio-pci"
    if any((root / "sys/class/infiniband_verbs").glob("uverbs*")):
        return ok("dpdk", text)
    return warn(
        "dpdk",
        f"{text}; but the kernel gives no verbs (/sys/class/infiniband_verbs is empty), which it needs",
        f"apt-get install rdma-core && modprobe -a ib_uverbs {driver.replace('_core', '_ib')}",
    )


def _bound_to_kernel(driver: str, device: NetworkDevice) -> Finding:
    """Of a device that the settings name."""
    bound = f"bound to {driver}" if driver else "bound to no driver"
    lost = f"; the kernel then has no {', '.join(device.interfaces)}" if device.interfaces else ""
    down = "".join(f"ip link set {name} down && " for name in device.interfaces)
    return fail(
        "dpdk",
        f"{device.describe()}, which the settings name, is {bound}: DPDK takes it when it is bound to vfio-pci{lost}",
        f"{down}dpdk-devbind.py --bind=vfio-pci {device.address}",
    )


def _not_yet_bound(driver: str, devices: Sequence[NetworkDevice]) -> Finding:
    """Of devices that nobody has named: no command that takes them from the kernel, which may be reached by them."""
    text = f"{_list(devices)}: {f'driver {driver}' if driver else 'no driver'}; "
    if not driver:
        bind = f"dpdk-devbind.py --bind=vfio-pci {devices[0].address}"
        return ok("dpdk", f"{text}DPDK takes it when it is bound to vfio-pci", bind)
    if driver not in _IN_PLACE_OF_THE_KERNEL:
        return ok("dpdk", f"{text}DPDK is not known to have one for it; its device af_packet works over any")
    lost = [name for one in devices for name in one.interfaces]
    but = f", and the kernel then has no {', '.join(lost)}" if lost else ""
    return ok("dpdk", f"{text}DPDK takes it when it is bound to vfio-pci{but}")


def _list(devices: Iterable[NetworkDevice]) -> str:
    return ", ".join(one.describe() for one in devices)
