import logging
import pickle
from typing import Any

import pytest
import torch
from loading import At, Calls, Eager, Numbers, Raise, Raises, equal
from packing import tree
from rowsets import photos
from torch.utils.data import DistributedSampler, IterableDataset

import fastfeed
from fastfeed.errors import DecodeError, UsageError
from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.indexed import Indexed
from fastfeed.feed.loader import DataLoader

RANDOM: Any = {"batch_size": 4, "shuffle": True, "seed": 3}


@pytest.mark.parametrize("options", [{"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "prefetch_factor": 5}], ids=str)
def test_with_a_seed_nothing_depends_on_workers(options):
    def drawn(**given):
        loader = DataLoader(Numbers(), **RANDOM, **given)
        return [[batch[:4] for batch in loader] for _ in range(2)]

    expected = drawn(num_workers=0)
    assert equal(drawn(**options), expected)
    assert not equal(expected[0], expected[1])


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"shuffle_mode": "block"}, {"distributed": (1, 3)},
                                     {"distributed": "exact"}], ids=str)  # fmt: skip
def test_it_goes_on_behind_each_batch(options):
    def made(workers):
        return DataLoader(Numbers(), **RANDOM, num_workers=workers, with_index=True, **options)

    whole = [[item.index.tolist() for item in loader] for loader in [made(0)] for _ in range(2)]
    first = made(0)
    for stop in range(len(whole[0]) + 1):
        first = made(0)
        batches = iter(first)
        for _ in range(stop):
            next(batches)
        second = made(0 if stop % 3 else 1)
        second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
        rest = [item.index.tolist() for item in second]
        if stop < len(whole[0]):
            assert rest == whole[0][stop:]
        else:
            assert rest in (whole[1], [])
    assert first.epoch == 0


def test_an_epoch_may_be_set():
    loader = DataLoader(Numbers(), **RANDOM, num_workers=0)
    epochs = [[batch[0].tolist() for batch in loader] for _ in range(3)]
    loader.set_epoch(1)
    assert [batch[0].tolist() for batch in loader] == epochs[1] and loader.epoch == 1


def test_no_position_without_an_order_of_its_own():
    for loader in (DataLoader(Numbers(), num_workers=0), DataLoader(Numbers(), sampler=Eager(23), seed=1, num_workers=0)):
        with Raises(UsageError, match="only an order of the loader's own"):
            loader.state_dict()
    with Raises(UsageError, match=r"no state of a fastfeed.DataLoader"):
        DataLoader(Numbers(), **RANDOM, num_workers=0).load_state_dict({"version": 0})


def test_a_loader_that_had_no_position_when_it_was_made_has_none():
    """Its options were changed since: it is asked for one, and has it or has it not."""
    loader = DataLoader(Numbers(), 4, seed=1, num_workers=1, in_order=False)
    assert not hasattr(loader, "state_dict")
    loader.num_workers = 0
    assert not hasattr(loader, "state_dict")


def test_ranks_have_disjoint_parts_and_each_sample_counts_once():
    seen = []
    for rank in range(3):
        loader = DataLoader(Numbers(23), 4, shuffle=True, seed=1, distributed=(rank, 3), num_workers=0)
        seen += [index for batch in loader for index in batch[0].tolist()]
    assert set(seen) == set(range(23))


def test_index_key_and_validity(tmp_path):
    tree(tmp_path / "src", {f"{name}/{at}.jpg": photo for name in "ab" for at, photo in enumerate(photos(3))})
    fastfeed.pack(tmp_path / "src", tmp_path / "out")
    data = fastfeed.open(tmp_path / "out", transform=lambda image: torch.tensor(image.size))
    for workers in (0, 2):
        items = list(DataLoader(data, 4, num_workers=workers, with_index=True))
        assert all(isinstance(item, Indexed) for item in items)
        assert [item.index.tolist() for item in items] == [[0, 1, 2, 3], [4, 5]]
        assert items[0].key == ["a/0", "a/1", "a/2", "b/0"] and items[1].valid.tolist() == [True, True]


def test_faults_are_tolerated_and_logged_and_capped(caplog):
    dataset = Calls(At({3, 9}, Raise(ValueError("broken"))), 16)
    with caplog.at_level(logging.WARNING, "fastfeed.loader"):
        for workers in (0, 2):
            loader = DataLoader(dataset, 4, shuffle=True, seed=0, num_workers=workers, on_error="skip")
            assert sorted(index for batch in loader for index in batch.tolist()) == sorted(set(range(16)) - {3, 9})
    assert sum("sample 3 was left out: ValueError: broken" in record.getMessage() for record in caplog.records) == 2
    replaced = DataLoader(dataset, 4, shuffle=True, seed=0, num_workers=0, on_error="replace")
    first, again = ([batch.tolist() for batch in replaced] for _ in range(2))
    assert all(len(batch) == 4 for batch in first) and not {3, 9} & {index for batch in first for index in batch}
    assert again != first
    every = Calls(At(set(range(64)), Raise(ValueError("broken"))))
    strict = DataLoader(every, 1, shuffle=True, num_workers=0, on_error="replace", error_caps=ErrorCaps(consecutive=3))
    with Raises((DecodeError, ValueError), match="broken"):
        list(strict)


def test_the_plan_says_what_was_decided_and_why():
    given: list[tuple[dict[str, Any], int | None]] = [({}, None), ({"num_workers": 0}, 0), ({"num_workers": 2}, 2)]
    for options, workers in given:
        loader = DataLoader(Numbers(), 4, **options)
        assert loader.plan.num_workers == loader.num_workers and loader.plan.why
        assert loader.autotune is (workers is None)
        assert workers is None or loader.num_workers == workers


def test_options_that_contradict_each_other():
    class Stream(IterableDataset[int]):
        """Has no indices."""

        def __iter__(self):
            return iter(range(3))

    cases: list[tuple[dict[str, Any], str]] = [
        ({"rng": "numpy"}, "rng is 'torch' or 'sample'"),
        ({"shuffle_mode": "block"}, "shuffle is not asked for"),
        ({"shuffle_mode": "blocks", "shuffle": True}, "shuffle_mode is 'full' or 'block'"),
        ({"sampler": DistributedSampler(Numbers(), 2, 0), "distributed": (0, 2)}, "needs the loader's own order"),
        ({"on_error": "skip"}, "would change what an evaluation is over"),
        ({"batch_size": 0}, "batch_size"),
        ({"num_workers": -1}, "num_workers"),
    ]
    for options, text in cases:
        with Raises(ValueError, match=text):
            DataLoader(Numbers(), **{"num_workers": 0, **options})
    with Raises(ValueError, match="those of an IterableDataset have none"):
        DataLoader(Stream(), on_error="skip", shuffle=None, force_on_error=True, num_workers=0)
    with Raises(UsageError, match="valid is of the last batch"):
        _ = DataLoader(Numbers(), num_workers=0).valid


def test_a_dataset_with_a_generator_of_its_own_is_told():
    class Own(Numbers):
        """Each worker has a copy of its generator."""

    dataset = Own()
    dataset.generator = torch.Generator()
    with pytest.warns(UserWarning, match="keeps random generators of its own"):
        list(DataLoader(dataset, num_workers=1))


def test_it_pickles_without_its_workers():
    loader = DataLoader(Numbers(), **RANDOM, num_workers=1, persistent_workers=True)
    next(iter(loader))
    assert equal([batch[0] for batch in pickle.loads(pickle.dumps(loader))], [batch[0] for batch in loader])
    again = pickle.loads(pickle.dumps(DataLoader(Numbers(), **RANDOM, num_workers=0)))
    assert equal([batch[0] for batch in again], [batch[0] for batch in DataLoader(Numbers(), **RANDOM, num_workers=0)])
