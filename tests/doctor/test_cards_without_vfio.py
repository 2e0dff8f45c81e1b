"""Cards that other modules than vfio-pci hand to DPDK."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.doctor.cards import look_at_iommu
from dlcp.doctor.finding import Verdict
from dlcp.doctor.pci import NetworkDevice


@pytest.mark.parametrize(
    ("driver", "verdict"), [("ena", Verdict.FAIL), ("igb_uio", Verdict.OK), ("uio_pci_generic", Verdict.OK)]
)
def test_card_of_another_module_needs_neither_vfio_nor_an_iommu(
    driver: str, verdict: Verdict, tmp_path: Path
) -> None:
    card = NetworkDevice("0000:00:06.0", driver, ())
    assert {one.verdict for one in look_at_iommu([card], tmp_path)} == {verdict}
