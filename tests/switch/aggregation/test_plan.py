"""How an array is cut into blocks and messages."""

from __future__ import annotations

import pytest

from dlcp.switch.aggregation.packet import (
    LANES,
)
from dlcp.switch.aggregation.plan import plan
from dlcp.switch.aggregation.quantise import (
    block_count,
)


@pytest.mark.parametrize("elements", [1, 32, 33, 1024, 1025, 5000])
def test_plan_has_every_row_once_behind_its_codes(elements: int) -> None:
    blocks = plan(elements, True)
    rows = [block.row for block in blocks if not block.is_codes]
    assert rows == list(range(block_count(elements)))
    groups = [block.row for block in blocks if block.is_codes]
    assert groups == list(range(block_count(block_count(elements))))
    for index, block in enumerate(blocks):
        if not block.is_codes:
            assert block.needs is not None
            assert block.needs < index
            codes = blocks[block.needs]
            assert codes.is_codes
            assert codes.row == block.row // LANES
    assert [block.row for block in plan(elements, False)] == rows
