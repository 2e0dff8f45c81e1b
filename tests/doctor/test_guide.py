"""What docs/dpdk.md lets the doctor say of three cards, once all its commands are done, is what it says."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dlcp.doctor import cards
from dlcp.doctor import dpdk as doctor
from dlcp.doctor.finding import Verdict
from dlcp.doctor.pci import NetworkDevice
from dlcp.doctor.report import finding_lines
from dlcp.transport import Settings, dpdk, plugins
from tests.doctor.conftest import Machine

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "dpdk.md").read_text()
IOMMU = "sys/kernel/iommu_groups/7"


def port(name: str, driver: str, **more: Any) -> dpdk.Port:
    known: dict[str, Any] = {
        "id": 0,
        "name": name,
        "driver": driver,
        "mac": "02:00:00:00:00:01",
        "mtu_bytes": 1500,
    }
    known |= {"rx_queues_max": 8, "tx_queues_max": 8, "claimed": False, "full_duplex": True}
    return dpdk.Port(**(known | more))


CARDS: dict[str, tuple[NetworkDevice, dpdk.Port, dict[str, Any]]] = {
    "mlx5: ConnectX-4 Lx and later": (
        NetworkDevice("0000:3b:00.0", "mlx5_core", ("eth1",)),
        port("0000:3b:00.0", "mlx5_pci", link_up=True, speed_bps=100_000_000_000, numa_node=0),
        {"files": {"sys/class/infiniband_verbs/uverbs0": ""}, "folders": (IOMMU,)},
    ),
    "ice: Intel E810": (
        NetworkDevice("0000:3b:00.0", "vfio-pci", (), "8086:1592"),
        port("0000:3b:00.0", "net_ice", link_up=False, speed_bps=None, numa_node=0),
        {"files": {"lib/firmware/intel/ice/ddp/ice.pkg": ""}, "folders": (IOMMU,)},
    ),
    "ena: AWS": (
        NetworkDevice("0000:00:06.0", "igb_uio", (), "1d0f:ec20"),
        port("0000:00:06.0", "net_ena", link_up=False, speed_bps=None, numa_node=None),
        {},
    ),
}


@pytest.mark.parametrize("title", CARDS)
def test_lines_of_the_guide(title: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    card, found, more = CARDS[title]
    section = GUIDE.partition(f"\n### {title}\n")[2].partition("\n##")[0]
    exports = re.findall(r"^ {4}export (.*)", section, re.MULTILINE)
    environ = {
        name: value.strip('"') for name, value in re.findall(r'(DLCP_\w+)=("[^"]*"|\S+)', " ".join(exports))
    }
    monkeypatch.setattr(plugins, "why_not", lambda name: None)
    monkeypatch.setattr(dpdk, "why_not", lambda: None)
    monkeypatch.setattr(dpdk, "version", lambda: "DPDK 22.11.11")
    monkeypatch.setattr(doctor, "list_interfaces", list)
    monkeypatch.setattr(cards, "_loads", lambda library: True)
    monkeypatch.setattr(doctor, "ask_eal", lambda arguments: {"ports": [asdict(found)]})

    findings = doctor.look_at_dpdk(
        Settings.load(environ=environ), machine(card, huge_pages={2048: (512, 512)}, **more)
    )

    assert [one.text for one in findings if one.verdict != Verdict.OK] == []
    said = [" ".join(line.split()) for line in finding_lines(findings)]
    quoted = [" ".join(line.split()) for line in re.findall(r"^ {6}ok .*", section, re.MULTILINE)]
    assert len(quoted) >= 4
    for line in quoted:
        begin = line.removesuffix("…")
        assert any(one.startswith(begin) if line.endswith("…") else one == line for one in said), (line, said)
