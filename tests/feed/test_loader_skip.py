"""DataLoader(skip=...): samples go before anything is sharded, and every index is still one of the whole dataset."""

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import make_photos, packed
from loading import At, Numbers, Raise, equal, indices, seed_all, states
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler, Subset
from torch.utils.data import DataLoader as TorchDataLoader
from torchvision.datasets import ImageFolder

import fastfeed
from fastfeed.errors import FastfeedWarning, UsageError
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import FeedSampler
from fastfeed.sample import SampleId, SkipEntry, SkipList

SIZE = 23
BAD = [3, 7, 22]
KEPT = [index for index in range(SIZE) if index not in BAD]


class Named(Numbers):
    """Knows what its samples are called; see Numbers."""

    def identity(self, index: int) -> SampleId:
        return SampleId(index, f"s{index}", None)


class Picky(Named):
    """Cannot be read at some positions."""

    def __init__(self, bad: set[int]) -> None:
        super().__init__(SIZE)
        self.get = At(bad, Raise(ValueError("unreadable")))

    def __getitem__(self, index: int) -> Any:
        return self.get(index)


def keys(*positions: int) -> SkipList:
    return SkipList([SkipEntry(key=f"s{position}") for position in positions])


def loader(**options: Any) -> DataLoader:
    return DataLoader(Named(SIZE), **{"batch_size": 4, "num_workers": 0, "skip": keys(*BAD), **options})


# ---------------------------------------------------------------------------------------------------- torch mode
@pytest.mark.long
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True, "batch_size": 3}, {"shuffle": True, "batch_size": None},
     {"shuffle": True, "generator": 8}, {"shuffle": True, "distributed": False}],
    ids=str,
)  # fmt: skip
def test_torchs_numbers_over_a_subset(options, workers):
    def epochs(cls: Any, dataset: Any, given: dict[str, Any]) -> Any:
        seed_all(5)
        generator = torch.Generator().manual_seed(8) if "generator" in given else None
        made = cls(dataset, **{"batch_size": 4, "num_workers": workers, **given, "generator": generator})
        return [list(made) for _ in range(3)], states(), len(made)

    theirs = {name: value for name, value in options.items() if name != "distributed"}
    wanted = epochs(TorchDataLoader, Subset(Named(SIZE), KEPT), theirs)
    assert equal(wanted, epochs(DataLoader, Named(SIZE), {**options, "skip": keys(*BAD)}))


def test_positions_are_those_of_the_whole_dataset():
    found = list(loader(shuffle=True, with_index=True))
    assert sorted(index for batch in found for index in batch.index.tolist()) == KEPT
    for batch in found:
        assert batch.batch[0].tolist() == batch.index.tolist()
        assert batch.key == [f"s{index}" for index in batch.index.tolist()]


# ---------------------------------------------------------------------------------------------------- datasets
def test_an_image_folder_and_the_same_packed(tmp_path: Path):
    source = make_photos(tmp_path / "src", each=4)
    packed(source, tmp_path / "packed")
    SkipList.write(str(tmp_path / "skip.jsonl"), [SkipEntry(source="cat/003.jpg"), SkipEntry(source="dog/001.jpg")])
    kept = [0, 1, 2, 4, 6, 7]

    def pixels(image: Any) -> int:
        return sum(image.tobytes())

    folder, archive = ImageFolder(str(source), pixels), fastfeed.open(tmp_path / "packed", transform=pixels)
    part = Subset(folder, [5, 4, 3, 2])
    for dataset, positions in ((folder, kept), (archive, kept), (archive.select([7, 3, 5]), [0]), (part, [1, 3])):
        made: Any = DataLoader(dataset, 4, num_workers=0, skip=tmp_path / "skip.jsonl", with_index=True)
        batches = list(made)
        assert [index for batch in batches for index in batch.index.tolist()] == positions
        assert [value for batch in batches for value in batch.batch[0].tolist()] == [dataset[at][0] for at in positions]
        assert len(made.sampler) == len(positions)


def test_by_position_only_with_the_digest(tmp_path: Path):
    packed(make_photos(tmp_path / "src"), tmp_path / "packed")
    dataset = fastfeed.open(tmp_path / "packed", transform=lambda image: image.size)
    right, wrong = (SkipList([SkipEntry(index=4, dataset_digest=digest)]) for digest in (dataset.digest, "0" * 64))
    assert list(DataLoader(dataset, num_workers=0, skip=right).sampler) == [0, 1, 2, 3, 5]
    with pytest.raises(UsageError, match="matches no sample"):
        DataLoader(dataset, skip=wrong)


# ---------------------------------------------------------------------------------------------------- ranks and seeds
@pytest.mark.parametrize("mode", ["full", "block"])
def test_samples_go_before_sharding(mode):
    parts = [loader(distributed=(rank, 3), shuffle=True, seed=4, shuffle_mode=mode, with_index=True) for rank in range(3)]
    drawn = [list(part) for part in parts]
    assert {len(part) for part in parts} == {len(batches) for batches in drawn} == {2}  # 20 samples, 7 a rank
    flat = [[i for batch in batches for i in batch.index.tolist()] for batches in drawn]
    assert [len(part) for part in flat] == [7, 7, 7]
    assert sorted({i for part in flat for i in part}) == KEPT


def test_each_kept_sample_counts_once():
    counted = []
    for rank in range(3):
        made = loader(distributed=(rank, 3), with_index=True, seed=1)
        exact = DataLoader(Named(SIZE), 4, num_workers=0, sampler=FeedSampler(
            SIZE, distributed=(rank, 3), exact=True, shuffle=False, skip=BAD,
        ), with_index=True)  # fmt: skip
        for one in (made, exact):
            counted += [
                i for batch in one for i, valid in zip(batch.index.tolist(), batch.valid.tolist(), strict=True) if valid
            ]
    assert sorted(counted) == sorted(KEPT * 2)


def test_batches_do_not_depend_on_workers_and_positions_in_the_epoch_on_nothing_else():
    def epochs(workers: int) -> Any:
        made = loader(shuffle=True, seed=3, num_workers=workers)
        return [[batch[:4] for batch in made] for _ in range(2)]

    assert equal(epochs(0), epochs(2))


def test_it_goes_on_where_it_was():
    reference = loader(shuffle=True, seed=3)
    steps = [(batch, json.loads(json.dumps(reference.state_dict()))) for batch in reference]
    assert len(steps) == len(reference) == 5
    for stop, (_, state) in enumerate(steps[:-1], 1):
        again = loader(shuffle=True, seed=3)
        again.load_state_dict(state)
        assert equal([batch[:4] for batch in again], [batch[:4] for batch, _ in steps[stop:]])


@pytest.mark.parametrize("other", [None, keys(3, 7), keys(3, 7, 21)], ids=["none", "fewer", "others"])
def test_a_position_under_another_list_is_refused(other):
    state = loader(shuffle=True, seed=3).state_dict()
    with pytest.raises(UsageError, match="belongs to another order, by skip"):
        loader(shuffle=True, seed=3, skip=other).load_state_dict(state)
    with pytest.raises(UsageError, match="belongs to another order, by skip"):
        loader(shuffle=True, seed=3).load_state_dict(loader(shuffle=True, seed=3, skip=other).state_dict())


def test_the_same_samples_by_other_names_are_the_same_list():
    both = SkipList([*keys(22, 7).entries, *keys(3).entries])
    loader(shuffle=True, seed=3, skip=both).load_state_dict(loader(shuffle=True, seed=3).state_dict())


# ---------------------------------------------------------------------------------------------------- faults
def test_no_skipped_sample_stands_in_for_another():
    bad = set(range(0, SIZE, 2))
    for options in ({"seed": 3}, {}):
        made = DataLoader(
            Picky({*bad, 5}),
            4,
            shuffle=True,
            num_workers=0,
            on_error="replace",
            skip=keys(*bad, 9),
            **options,  # type: ignore[arg-type]
        )
        drawn = [index for batch in made for index in batch.tolist()]
        assert len(drawn) == SIZE - len(bad) - 1
        assert set(drawn) <= set(range(1, SIZE, 2)) - {5, 9}


# ---------------------------------------------------------------------------------------------------- refusals
def test_another_order_cannot_be_skipped_in():
    batches = BatchSampler(SequentialSampler(range(SIZE)), 4, drop_last=False)
    for given in ({"sampler": [1, 2, 3]}, {"sampler": RandomSampler(range(SIZE))}, {"batch_sampler": batches, "batch_size": 1}):
        with pytest.raises(
            UsageError, match=r"^skip needs the loader's own order, and a sampler or batch_sampler of one's own"
        ):
            loader(**given)

    class Stream(IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(UsageError, match=r"^skip needs the loader's own order, and an IterableDataset has another"):
        DataLoader(Stream(), skip=keys(1))


def test_what_names_nothing_is_told_where_the_loader_is_made():
    with pytest.warns(FastfeedWarning, match=r"^1 entry of the skip list matches no sample \(s99\)$") as caught:
        loader(skip=keys(1, 99))
    assert caught[0].filename == __file__
    with pytest.raises(UsageError, match=r"the skip list \(2 entries\) matches no sample of this dataset"):
        loader(skip=keys(98, 99))
    with pytest.raises(UsageError, match="those of Numbers have none"):
        DataLoader(Numbers(), skip=keys(1))


def test_all_may_be_skipped():
    nothing = loader(skip=keys(*range(SIZE)))
    assert (len(nothing), list(nothing)) == (0, [])
    assert list(loader(skip=SkipList()).sampler) == list(range(SIZE))


# ---------------------------------------------------------------------------------------------------- made again
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"shuffle": True, "seed": 3}, {"distributed": (1, 2)}], ids=str)
def test_a_loader_that_is_made_again_reads_no_list_again(options, tmp_path: Path):
    path = tmp_path / "skip.jsonl"
    SkipList.write(str(path), keys(*BAD).entries)
    first = loader(skip=path, **options)
    assert first.skip == path
    path.unlink()
    around: Any = BatchSampler(first.sampler, 4, drop_last=False)
    for given in ({"sampler": first.sampler}, {"batch_sampler": around, "batch_size": 1}):
        more = {name: value for name, value in options.items() if name != "shuffle"}
        again = loader(skip=first.skip, **more, **given)
        drawn = sorted(index for batch in indices(again) for index in batch)
        assert drawn == (KEPT[1::2] if "distributed" in options else KEPT)


def test_the_order_of_storage_in_other_words():
    """Lightning's overfit_batches replaces whatever shuffles by a sampler of the whole."""
    again = loader(sampler=SequentialSampler(Named(SIZE)))
    assert [index for batch in indices(again) for index in batch] == KEPT


def test_ranks_that_read_everything_are_told(monkeypatch: pytest.MonkeyPatch):
    dist = torch.distributed
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda *group: 2)
    monkeypatch.setattr(dist, "get_rank", lambda *group: 0)
    with pytest.warns(UserWarning, match="each of them will read every sample"):
        list(loader(shuffle=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader(shuffle=True, distributed=False))


def test_orders_differ_from_epoch_to_epoch():
    for options in ({}, {"seed": 3}):
        made = loader(shuffle=True, **options)
        epochs = [indices(made) for _ in range(3)]
        assert all(one != other for one, other in pairwise(epochs))
