"""DataCache: every level in turn, real ranks that read each other's memory, DataLoaders and their workers."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

import dlcp.torch
from dlcp.errors import ArgumentError, ClosedError, MismatchError
from dlcp.torch import DataCache
from dlcp.torch.data import exchange as exchange_module
from dlcp.torch.data.ownership import owner_of
from dlcp.transport import membership
from tests.torch import ranks
from tests.torch.data.cases import FarDataset, halved, reads_of

ROOM = 1 << 20


def indices_of(loader: DataLoader[Any]) -> list[int]:
    """The indices of an epoch; its values are right."""
    seen: list[int] = []
    for batch in loader:
        assert torch.equal(batch["values"], batch["index"][:, None].expand(-1, 8) / 2)
        seen += batch["index"].tolist()
    return seen


# --- one rank -----------------------------------------------------------------------------------------------


def test_each_level_answers_before_the_next(tmp_path: Path) -> None:
    dataset = FarDataset(10, tmp_path / "reads")
    cache = DataCache(dataset, folder=tmp_path / "disk", memory_bytes=ROOM, decode=halved)
    assert [cache[index]["index"] for index in (3, -1, 3)] == [3, 9, 3]
    assert reads_of(tmp_path / "reads") == [3, 9]
    later = DataCache(dataset, folder=tmp_path / "disk", memory_bytes=ROOM, decode=halved)
    assert torch.equal(later.__getitems__([9, 3, 9])[0]["values"], torch.full((8,), 4.5))
    assert {name: count for name, count in later.counts.items() if count} == {"disk": 2}
    assert reads_of(tmp_path / "reads") == [3, 9]


def test_samples_that_are_views_are_kept_without_the_rest_of_their_storage(tmp_path: Path) -> None:
    pixels = torch.randint(0, 256, (500, 3, 32, 32), dtype=torch.uint8)
    arrays = pixels.numpy()

    class Views(Dataset[Any]):
        def __len__(self) -> int:
            return 500

        def __getitem__(self, index: int) -> Any:
            weights = torch.ones(500, 2, requires_grad=True)[index]
            cuts = (
                pixels[index].permute(1, 2, 0),
                pixels[:, 0, 0, index % 32],
                pixels[index, 0].expand(9, 32, 32),
            )
            return {"cuts": cuts, "array": arrays[index], "weights": weights, "whole": torch.arange(3)}

    cache = DataCache(Views(), folder=tmp_path)
    there = cache[499]
    for found, cut in zip(there["cuts"], Views()[499]["cuts"], strict=True):
        assert torch.equal(found, cut)
    assert (there["array"] == arrays[499]).all()
    assert there["weights"].requires_grad
    shown = 2 * pixels[0].nbytes + 500 + 9 * 1024 + 8 + 24
    (entry,) = tmp_path.rglob("*.sample")
    assert entry.stat().st_size < shown + 4000


def test_the_memory_level_ends_at_its_bound(tmp_path: Path) -> None:
    def plain(sample: tuple[int, torch.Tensor]) -> list[float]:
        return sample[
            1
        ].tolist()  # of one size: a pickled tensor has its storage's address in it, of some digits

    dataset = FarDataset(10, tmp_path / "reads")
    whole = DataCache(dataset, decode=plain)
    whole.__getitems__(range(10))
    half = DataCache(dataset, memory_bytes=whole.memory_used_bytes // 2, decode=plain)
    for _ in range(2):
        half.__getitems__(range(10))
    assert half.counts["memory"] == 5
    assert half.memory_used_bytes == whole.memory_used_bytes // 2


def test_a_transform_is_drawn_anew_and_may_change_its_sample(tmp_path: Path) -> None:
    number = itertools.count()

    def numbered(sample: tuple[int, torch.Tensor]) -> torch.Tensor:
        return sample[1].add_(next(number))

    cache = DataCache(FarDataset(3, tmp_path / "reads"), transform=numbered)
    assert [float(cache[1][0]) for _ in range(3)] == [1.0, 2.0, 3.0]


def test_a_torn_entry_is_read_again(tmp_path: Path) -> None:
    dataset = FarDataset(4, tmp_path / "reads")
    DataCache(dataset, folder=tmp_path / "disk").__getitems__(range(4))
    (path,) = (tmp_path / "disk").rglob("2.sample")
    path.write_bytes(path.read_bytes()[:-1])
    for torn in (1, 0):
        cache = DataCache(dataset, folder=tmp_path / "disk", decode=halved)
        assert cache[2]["index"] == 2
        assert cache.counts["torn"] == torn
    assert reads_of(tmp_path / "reads") == [0, 1, 2, 3, 2]


def test_a_full_disk_leaves_the_data_set(tmp_path: Path) -> None:
    cache = DataCache(
        FarDataset(4, tmp_path / "reads"), folder=tmp_path / "disk", disk_bytes=1000, memory_bytes=0
    )
    for _ in range(2):
        assert [index for index, _ in cache.__getitems__(range(4))] == [0, 1, 2, 3]
    assert 0 < cache.counts["disk"] < 4
    assert cache.counts["remote"] == 8 - cache.counts["disk"]
    assert 0 < cache.disk_used_bytes <= 1000


def test_forked_workers_read_memory_and_disk_and_are_counted(tmp_path: Path) -> None:
    cache = DataCache(FarDataset(20, tmp_path / "reads"), folder=tmp_path / "disk", decode=halved)
    cache.__getitems__(range(5))
    sampler = cache.sampler(seed=1)
    loader: DataLoader[Any] = DataLoader(
        cache, batch_size=3, sampler=sampler, num_workers=2, multiprocessing_context="fork"
    )
    for epoch in range(2):
        sampler.set_epoch(epoch)
        assert sorted(indices_of(loader)) == list(range(20))
    assert sorted(reads_of(tmp_path / "reads")) == list(range(20))
    counts = cache.counts
    assert (counts["remote"], counts["memory"], counts["disk"]) == (20, 10, 15)


def test_a_cache_goes_to_a_spawned_worker_without_its_memory(tmp_path: Path) -> None:
    cache = DataCache(FarDataset(20, tmp_path / "reads"), folder=tmp_path / "disk", decode=halved)
    cache.__getitems__(range(5))
    there = pickle.loads(ForkingPickler.dumps(cache))
    assert [sample["index"] for sample in there.__getitems__([4, 7, 4])] == [4, 7, 4]
    assert there.memory_used_bytes == 0
    counts = cache.counts
    assert (counts["remote"], counts["memory"], counts["disk"]) == (6, 0, 1)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda dataset: DataCache(iter([])), "dataset is .*accepted: a map-style data set"),
        (lambda dataset: DataCache("text"), "dataset is 'text'; accepted: a map-style data set"),
        (lambda dataset: DataCache(dataset, folder=""), "folder is ''; accepted: the path of a folder"),
        (lambda dataset: DataCache(dataset, folder=5), "folder is 5; accepted: the path of a folder"),
        (lambda dataset: DataCache(dataset, memory_bytes=-1), "memory_bytes is -1"),
        (lambda dataset: DataCache(dataset, decode=3), "decode is 3; accepted: something to call"),
        (lambda dataset: DataCache(dataset, read_threads=0), "read_threads is 0"),
        (lambda dataset: DataCache(dataset)[4], "index is 4; accepted: -4 to 3"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path: Path, call: Callable[[Any], Any], complaint: str) -> None:
    with pytest.raises((ArgumentError, IndexError), match=complaint):
        call(FarDataset(4, tmp_path / "reads"))


# --- ranks --------------------------------------------------------------------------------------------------


def epochs(folder: Path, length: int, begin: dict[str, Any] | None, steps: int | None) -> Any:
    """Two epochs, or one from a state, or `steps` batches of the first; each epoch's indices and reads."""
    rank = dist.get_rank()
    dataset = FarDataset(length, folder / "reads")
    results = []
    with DataCache(dataset, folder=folder / f"disk{rank}", memory_bytes=ROOM, decode=halved) as cache:
        sampler = cache.sampler(seed=5)
        if begin is not None:
            sampler.load_state_dict(begin)
        loader: DataLoader[Any] = DataLoader(cache, batch_size=7, sampler=sampler)
        for epoch in (0, 1):
            sampler.set_epoch(epoch)
            indices: list[int] = []
            for step, batch in enumerate(loader):
                if step == steps:
                    return indices, sampler.state_dict(len(indices))
                indices += batch["index"].tolist()
            dist.barrier()
            results.append((indices, len(reads_of(folder / "reads"))))
            dist.barrier()
        counts = cache.counts
        assert counts["peer"] > 0
        assert counts["peer_failed"] == 0
        # One receive of a request at most is open, and nothing of the training's group.
        assert dist.group.WORLD.communicator.under_way == 0  # type: ignore[union-attr]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dlcp-data")]
    with pytest.raises(ClosedError):
        cache[0]
    return results


def test_each_sample_is_read_from_afar_once_by_all_ranks_together(tmp_path: Path) -> None:
    results = ranks.run(epochs, 3, folder=tmp_path, length=100, begin=None, steps=None)
    for epoch in range(2):
        indices, reads = zip(*(result[epoch] for result in results), strict=True)
        assert sorted(itertools.chain(*indices)) == list(range(100))
        assert set(reads) == {100}
    assert len(set(reads_of(tmp_path / "reads"))) == 100


def test_a_restart_in_mid_epoch_with_more_ranks_goes_on_exactly(tmp_path: Path) -> None:
    first = ranks.run(epochs, 2, folder=tmp_path, length=100, begin=None, steps=3)
    read = reads_of(tmp_path / "reads")
    results = ranks.run(epochs, 3, folder=tmp_path, length=100, begin=first[0][1], steps=None)
    before = [index for indices, _ in first for index in indices]
    after = [index for result in results for index in result[0][0]]
    assert sorted(before + after) == list(range(100))
    assert sorted(index for result in results for index in result[1][0]) == list(range(100))
    # The third rank's disk is new: it reads what it owns now and another rank's disk has. The others find theirs.
    moved = [index for index in read if owner_of(index, 3) == 2]
    assert sorted(reads_of(tmp_path / "reads")) == sorted([*range(100), *moved])


def watched(folder: Path) -> Any:
    """The traffic class of every operation, by whether it is of the cache's group."""
    classes: set[tuple[bool, str, int]] = set()

    def options(self: Any, how: Any, traffic_class: int = 0) -> Any:
        kind = "message" if how.get("label") == "data cache" else "collective"
        made = plain(self, how, traffic_class)
        classes.add((".data" in self.name, kind, made.traffic_class))
        return made

    plain = membership.Membership._options
    membership.Membership._options = options  # type: ignore[method-assign]
    with DataCache(FarDataset(30, folder / "reads"), memory_bytes=ROOM) as cache:
        for index in range(30):
            dist.all_reduce(torch.ones(3))
            cache[index]
        group = dist.new_group([0, 1])
        dist.all_reduce(torch.ones(3), group=group)
        group.communicator.barrier(traffic_class=0).wait()
        assert cache.counts["peer"] > 0
    dist.barrier()
    return classes


def test_samples_alone_travel_in_the_lowest_traffic_class(tmp_path: Path) -> None:
    lowest = exchange_module.TRAFFIC_CLASS
    assert lowest == 0
    for classes in ranks.run(watched, 2, folder=tmp_path):
        assert {of for is_data, kind, of in classes if is_data and kind == "message"} == {lowest}
        others = {of for is_data, _, of in classes if not is_data}
        assert 1 in others
        assert min(others) > lowest


def odd_ends(folder: Path) -> Any:
    """Data sets that differ; an owner that cannot read; a rank that leaves without a goodbye."""
    rank = dist.get_rank()
    with pytest.raises(MismatchError, match="data cache of 1[01] samples"):
        DataCache(FarDataset(10 + rank, folder / "other"))

    dataset: Any = FarDataset(40, folder / "reads")
    owned = [index for index in range(40) if owner_of(index, 2) == 1]

    class Broken(FarDataset):
        def __getitem__(self, index: int) -> Any:
            if index == owned[0]:
                raise OSError(f"sample {index} is broken on rank {rank}")
            return super().__getitem__(index)

    with DataCache(Broken(40, folder / "broken")) as cache:
        if rank == 0:
            # The exception of the data set, here, where training can see it.
            with pytest.raises(OSError, match="is broken on rank 0"):
                cache.__getitems__(owned[:3])
            assert cache[owned[1]][0] == owned[1]

    cache = DataCache(dataset, memory_bytes=ROOM)
    assert cache[owned[0]][0] == owned[0]
    dist.barrier()
    if rank == 1:
        cache._leave(linger=False)
    dist.barrier()
    assert rank == 1 or [index for index, _ in cache.__getitems__(owned)] == owned
    dist.barrier()
    # Left open on rank 0: destroy_process_group closes it.
    return cache.counts


def test_ranks_that_fail_or_leave_cost_reads_and_nothing_else(tmp_path: Path) -> None:
    here, _ = ranks.run(odd_ends, folder=tmp_path)
    assert here["peer"] == 1
    assert here["peer_failed"] >= 1


def until_killed(folder: Path) -> None:
    rank = dist.get_rank()
    cache = DataCache(
        FarDataset(40, folder / "reads"), folder=folder / "disk", memory_bytes=ROOM, reply_timeout_s=20.0
    )
    cache.__getitems__(range(0, 40, 2) if rank else range(1, 40, 2))
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    indices = [index for index, _ in cache.__getitems__(range(40))]
    (folder / "survivor").write_text(f"{indices == list(range(40))} {cache.counts['remote']}")


def test_a_killed_rank_stops_nobody(tmp_path: Path) -> None:
    with pytest.raises(ranks.RanksError, match="rank 1 ---\ndied with -9"):
        ranks.run(until_killed, folder=tmp_path, environment={"DLCP_PEER_TIMEOUT_S": "1"})
    right, _ = (tmp_path / "survivor").read_text().split()
    assert right == "True"
    # One folder for both ranks: nothing was read from afar again.
    assert sorted(reads_of(tmp_path / "reads")) == list(range(40))


def with_workers(folder: Path) -> Any:
    # The test's ranks are daemons, which multiprocessing lets have no children.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    cache = DataCache(FarDataset(40, folder / "reads"), folder=folder / "disk", decode=halved)
    sampler = cache.sampler()
    loader: DataLoader[Any] = DataLoader(
        cache, batch_size=4, sampler=sampler, num_workers=1, multiprocessing_context="fork"
    )
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        seen.append(indices_of(loader))
        dist.barrier()
    cache.close()
    return seen, cache.counts


def test_forked_workers_ask_no_other_rank(tmp_path: Path) -> None:
    results = ranks.run(with_workers, folder=tmp_path)
    for epoch in range(2):
        assert sorted(results[0][0][epoch] + results[1][0][epoch]) == list(range(40))
    assert all(counts["peer"] == counts["served"] == 0 for _, counts in results)
    assert sorted(reads_of(tmp_path / "reads")) == list(range(40))


def beside_gloo(folder: Path) -> Any:
    with pytest.raises(TypeError, match="accepted: a group of the backend dlcp"):
        DataCache(range(5), group=dist.group.WORLD)
    with DataCache(FarDataset(5, folder / "reads"), memory_bytes=ROOM) as cache:
        return list(cache.sampler(shuffle=False)), [index for index, _ in cache.__getitems__(range(5))]


def test_under_another_backend_each_rank_caches_for_itself(tmp_path: Path) -> None:
    everything = [0, 1, 2, 3, 4]
    assert ranks.run(beside_gloo, backend="gloo", folder=tmp_path) == [
        ([0, 2, 4], everything),
        ([1, 3], everything),
    ]
    assert sorted(reads_of(tmp_path / "reads")) == sorted(2 * everything)


def test_the_public_names() -> None:
    assert dlcp.torch.DataCache is DataCache
    assert "EpochSampler" in dlcp.torch.__all__
