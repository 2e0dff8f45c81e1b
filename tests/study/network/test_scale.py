"""The study of large worlds: its rings against full ones, its derived speeds, its tables and picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dlcp.study.network import scale
from dlcp.study.network.scale import (
    Case,
    HostCase,
    check_table,
    host_iteration,
    hosts_table,
    ring_time,
    speedup,
    speedup_table,
)


def test_one_gpus_speed_follows_from_the_paper() -> None:
    assert scale.GPU_IMAGES_PER_S["alexnet"] == pytest.approx(3297, rel=0.001)
    assert scale.GPU_IMAGES_PER_S["resnet50"] == pytest.approx(606.5, rel=0.001)


@pytest.mark.parametrize("nbytes", [100_000, 4_000_000])
def test_fewer_steps_take_a_rings_time(nbytes: int) -> None:
    """64 workers on four leaves: within two per cent of every message packet by packet."""
    full = ring_time((64, nbytes, None))
    assert ring_time((64, nbytes, scale.STEPS)) == pytest.approx(full, rel=0.02)
    bytes_s = 2 * 63 / 64 * nbytes * 8 / scale.RATE_BPS
    assert full > bytes_s + 126 * 2 * scale.DELAY_S


def test_sparsity_and_fusion_speed_up_and_jitter_slows_down() -> None:
    case = Case("alexnet", 32, 4 << 20, True)
    sparse, dense, noisy = (
        speedup((one, 1, 1)) for one in (case, replace(case, sparse=False), replace(case, jitter=0.05))
    )
    assert dense < sparse <= 32
    assert noisy < 0.97 * sparse


def test_sparse_gradients_help_hosts_of_many_gpus() -> None:
    dense = HostCase("resnet50", "dense 2-D")
    got = {case: host_iteration((case, 1, 1)) for case in (dense, HostCase("resnet50", "sparse"))}
    table = hosts_table(got)
    assert len(table.rows) == 1
    gain = table.numbers[0][4]
    assert isinstance(gain, float)
    assert 0.1 < gain < 0.4


def test_tables_and_picture(tmp_path: Path) -> None:
    got = dict.fromkeys(scale.cases(False), 400.0)
    rows = speedup_table(got).rows
    assert sum(row[-1] == "410.2" for row in rows) == 4  # three of jitter, one of another threshold
    table = check_table({(16, 100, None): 2.0, (16, 100, 4): 2.1})
    assert table.rows[0][-1] == "+5.0 %"
    assert "published 434.1" in scale._notes(got)[1]
    pytest.importorskip("matplotlib")
    scale.draw(got, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5000
