"""What tests of the DPDK driver share: whether there can be any, and hosts on a bridge with a station each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import dpdk
from tests.support.dpdk import Bed


@pytest.fixture(autouse=True)
def _driver() -> None:
    """Skips where there is no driver."""
    if (reason := dpdk.missing()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    """Three hosts: station 0 is for a rank on sockets, 1 and 2 are for ranks on DPDK."""
    if (reason := dpdk.missing_bed()) is not None:
        pytest.skip(reason)
    with dpdk.bed(3) as made:
        yield made
