"""The loader's door: torch's signature, attributes, errors and warnings; extras that survive being made again."""

import copy
import inspect
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from helpers import pack_photos
from loading import Calls, Numbers, equal, indices, seed_all
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler, Subset
from torch.utils.data import DataLoader as TorchDataLoader

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.feed.drawing import EveryRank
from fastfeed.feed.faults import ErrorCaps
from fastfeed.feed.indexed import Indexed
from fastfeed.feed.loader import DataLoader
from fastfeed.feed.order import FeedSampler, OrderSampler

DECIDED = {"num_workers", "pin_memory", "persistent_workers"}
"""torch's defaults that are None here: left out, they are decided, and an explicit value stays what it is."""


class Endless(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(5))


def parameters(cls: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(cls.__init__).parameters)
    del found["self"]
    return found


def test_the_signature_is_torchs_and_more():
    theirs, ours = parameters(TorchDataLoader), parameters(DataLoader)
    assert list(ours)[: len(theirs)] == list(theirs)
    for name, parameter in theirs.items():
        assert ours[name].kind == parameter.kind, name
        assert ours[name].default == (None if name in DECIDED else parameter.default), name
    extras = [parameter for name, parameter in ours.items() if name not in theirs]
    assert extras
    assert all(extra.kind is inspect.Parameter.KEYWORD_ONLY and extra.default is not extra.empty for extra in extras)


def test_it_is_a_torch_loader():
    loader = DataLoader(Numbers(), num_workers=0)
    assert isinstance(loader, TorchDataLoader)
    assert DataLoader.__name__ == TorchDataLoader.__name__


@pytest.mark.parametrize(
    "options",
    [
        {}, {"batch_size": 4, "shuffle": True, "drop_last": True}, {"batch_size": None},
        {"num_workers": 1, "timeout": 3, "prefetch_factor": 3, "persistent_workers": True, "in_order": False},
        {"num_workers": 1, "multiprocessing_context": "spawn", "pin_memory": True, "pin_memory_device": "cuda"},
        {"batch_sampler": [[1], [2, 3]]}, {"sampler": [1, 2]}, {"collate_fn": list}, {"worker_init_fn": print},
    ],
    ids=str,
)  # fmt: skip
def test_attributes_are_torchs(options):
    given = {"num_workers": 0, "pin_memory": False, **options}  # left out, it is decided: True where there is a GPU
    theirs, ours = (cls(Numbers(), **given) for cls in (TorchDataLoader, DataLoader))
    names = [name for name in vars(theirs) if not name.startswith("_")] + ["multiprocessing_context"]
    for name in names:
        one, other = getattr(theirs, name), getattr(ours, name)
        assert type(one) is type(other), name
        if not isinstance(one, Numbers | RandomSampler | SequentialSampler | BatchSampler):
            assert one == other, name
    assert len(theirs) == len(ours)


WRONG: list[tuple[Any, dict[str, Any]]] = [
    (Numbers(), {"num_workers": -1}),
    (Numbers(), {"num_workers": "2"}),
    (Numbers(), {"timeout": -1}),
    (Numbers(), {"num_workers": 0, "prefetch_factor": 2}),
    (Numbers(), {"num_workers": 1, "prefetch_factor": -1}),
    (Numbers(), {"num_workers": 0, "persistent_workers": True}),
    (Numbers(), {"batch_size": 0}),
    (Numbers(), {"batch_size": -3}),
    (Numbers(), {"batch_size": 2.5}),
    (Numbers(), {"batch_size": "2"}),
    (Numbers(), {"batch_size": None, "drop_last": True}),
    (Numbers(), {"drop_last": 1}),
    (Numbers(), {"sampler": [1], "shuffle": True}),
    (Numbers(), {"batch_sampler": [[1]], "batch_size": 2}),
    (Numbers(), {"batch_sampler": [[1]], "shuffle": True}),
    (Numbers(), {"batch_sampler": [[1]], "sampler": [1]}),
    (Numbers(), {"batch_sampler": [[1]], "drop_last": True}),
    (Numbers(), {"num_workers": 1, "multiprocessing_context": "threads"}),
    (Numbers(), {"num_workers": 1, "multiprocessing_context": 3}),
    (Numbers(), {"num_workers": 0, "multiprocessing_context": "fork"}),
    (Numbers(0), {"shuffle": True}),
    (iter(()), {"shuffle": True}),
    (Endless(), {"shuffle": True}),
    (Endless(), {"sampler": [1]}),
    (Endless(), {"batch_sampler": [[1]]}),
    (Endless(), {"batch_size": 0}),
]


@pytest.mark.parametrize(("dataset", "options"), WRONG, ids=[f"{type(d).__name__} {o}{n}" for n, (d, o) in enumerate(WRONG)])
def test_wrong_use_is_told_in_torchs_words(dataset, options):
    with pytest.raises(Exception) as theirs:  # noqa: PT011 - compared below
        TorchDataLoader(dataset, **options)
    with pytest.raises(type(theirs.value)) as ours:
        DataLoader(dataset, **{"num_workers": 0, **options})
    assert type(ours.value) is type(theirs.value)
    assert str(ours.value) == str(theirs.value)


def test_an_error_of_the_first_batch_is_torchs():
    texts = []
    for cls in (TorchDataLoader, DataLoader):
        with pytest.raises(AssertionError) as caught:
            iter(cls(Numbers(), timeout=3, num_workers=0))
        texts.append(str(caught.value))
    assert texts[0] == texts[1] == "_SingleProcessDataLoaderIter requires timeout == 0"


@pytest.mark.parametrize("name", ["batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"])
def test_attributes_that_torch_freezes_are_frozen(name):
    texts = []
    for cls in (TorchDataLoader, DataLoader):
        loader: Any = cls(Numbers(), num_workers=0)
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is initialized") as caught:
            setattr(loader, name, getattr(loader, name))
        texts.append(str(caught.value))
        loader.num_workers, loader.collate_fn, loader.pin_memory = 1, list, False
    assert texts[0] == texts[1]


class Touched:
    """Tells what is done to it."""

    def __init__(self) -> None:
        object.__setattr__(self, "touched", [])

    def __len__(self) -> int:
        self.touched.append("len")  # type: ignore[attr-defined]
        return 5

    def __getitem__(self, index: int) -> int:
        self.touched.append("item")  # type: ignore[attr-defined]
        return index

    def __setattr__(self, name: str, value: object) -> None:
        raise AssertionError(name)


@pytest.mark.parametrize("options", [{"num_workers": 2}, {"seed": 3, "shuffle": True}, {"distributed": (1, 2)}, {}], ids=str)
def test_the_constructor_touches_nothing_but_the_length(options):
    dataset: Any = Touched()
    DataLoader(dataset, 2, **options)
    assert set(dataset.touched) <= {"len"}


# ---------------------------------------------------------------------------------------------------- ours
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rng": "numpy"}, "rng is 'torch' or 'sample': got 'numpy'"),
        ({"on_error": "ignore"}, "on_error is one of raise, skip, replace: got 'ignore'"),
        ({"on_error": "skip"}, "on_error='skip' without shuffle would change what an evaluation is over"),
        ({"shuffle_mode": "blocks", "shuffle": True}, "shuffle_mode is 'full' or 'block': got 'blocks'"),
        ({"shuffle_mode": "block"}, "shuffle_mode='block' says how to shuffle, and shuffle is not asked for"),
        ({"distributed": "all"}, "distributed is True, False, None, 'exact', a process group or"),
        ({"distributed": (3, 2)}, "Invalid rank 3"),
        ({"distributed": "exact", "drop_last": True}, "exact draws each sample, and drop_last leaves some out"),
        ({"distributed": True, "sampler": [1]}, "distributed=True needs the loader's own order, and a sampler or"),
        ({"seed": 1, "shuffle_mode": "block", "batch_sampler": [[1]]}, "seed=1, shuffle_mode='block' needs the loader's own"),
    ],
    ids=str,
)
def test_wrong_options_of_ours_are_named(options, message):
    with pytest.raises(UsageError, match=message.replace("(", r"\(")):
        DataLoader(Numbers(), num_workers=0, **options)


@pytest.mark.parametrize(
    "options", [{"seed": 1}, {"distributed": True}, {"rng": "sample"}, {"with_index": True}, {"on_error": "skip"}], ids=str
)
def test_what_needs_indices_is_refused_for_a_stream(options):
    with pytest.raises(UsageError, match=r"IterableDataset has another|IterableDataset have none"):
        DataLoader(Endless(), num_workers=0, force_on_error=True, **options)


def test_samplers_may_be_arrays():
    for sampler in (np.array([3, 1]), torch.tensor([3, 1])):
        assert indices(DataLoader(Numbers(), 2, sampler=sampler, num_workers=0, seed=3)) == [[3, 1]]


def test_an_order_of_ours_is_taken_only_where_it_is_asked_for():
    assert type(DataLoader(Numbers(), num_workers=0, shuffle=True).sampler) is RandomSampler
    assert type(DataLoader(Numbers(), num_workers=0, shuffle=True, distributed=False).sampler) is EveryRank
    assert type(DataLoader(Numbers(), num_workers=0, seed=0).sampler) is OrderSampler
    assert type(DataLoader(Numbers(), num_workers=0, distributed=(0, 2)).sampler) is FeedSampler
    assert type(DataLoader(Numbers(), num_workers=0, seed=0, sampler=[1]).sampler) is list


def test_modes_follow_from_what_is_given():
    assert DataLoader(Numbers(), num_workers=0).rng == "torch"
    assert DataLoader(Numbers(), num_workers=2).rng == "torch"
    assert DataLoader(Numbers()).rng == "sample"
    assert DataLoader(Numbers(), num_workers=0, seed=0).rng == "sample"
    assert DataLoader(Numbers(), num_workers=0, seed=0, rng="torch").rng == "torch"


def test_an_explicit_zero_stays_zero():
    loader = DataLoader(Numbers(), num_workers=0, pin_memory=False, persistent_workers=False)
    assert (loader.num_workers, loader.pin_memory, loader.persistent_workers) == (0, False, False)


# ---------------------------------------------------------------------------------------------------- made again
def made_again(loader: Any, **changes: Any) -> Any:
    """As Lightning does it: arguments are public attributes with a parameter's name that are not the default."""
    attributes = {name: value for name, value in vars(loader).items() if not name.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    known = parameters(type(loader))
    arguments = {name: attributes[name] for name in known if name in attributes and known[name].default is not attributes[name]}
    batched = {"sampler": loader.sampler, "shuffle": False, "batch_sampler": None}
    return type(loader)(**{**arguments, **batched, **changes})


EXTRAS: dict[str, Any] = {
    "seed": 5, "rng": "torch", "distributed": (0, 1), "on_error": "skip", "force_on_error": True,
    "error_caps": ErrorCaps(3, 0.5), "with_index": True, "hang_seconds": 7.0,
}  # fmt: skip


def test_extras_are_public_attributes_of_the_same_name():
    extras = set(parameters(DataLoader)) - set(parameters(TorchDataLoader))
    loader = DataLoader(Numbers(), 4, shuffle=True, num_workers=0, **EXTRAS)
    assert {name: getattr(loader, name) for name in EXTRAS} == EXTRAS
    assert {name for name in extras if not hasattr(loader, name)} == set()


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 5, "shuffle": True}, {"seed": 5, "shuffle": True, "shuffle_mode": "block"}, EXTRAS | {"shuffle": True},
        {"distributed": "exact", "batch_size": 5}, {"distributed": (1, 3), "shuffle": True}, {"seed": 3, "rng": "torch"},
        {"distributed": False, "shuffle": True}, {"shuffle": True, "with_index": True},
    ],
    ids=str,
)  # fmt: skip
def test_a_loader_that_is_made_again_is_the_same(options):
    def batches(loader: Any) -> Any:
        seed_all(1)
        return [list(loader) for _ in range(2)]

    # What is decided becomes an argument when a loader is made again, so pinning, which waits for CUDA, is said here.
    first = DataLoader(Numbers(), **{"batch_size": 4, "num_workers": 0, "pin_memory": False, **options})
    again = made_again(DataLoader(Numbers(), **{"batch_size": 4, "num_workers": 0, "pin_memory": False, **options}))
    assert equal([list(map(tuple, epoch)) for epoch in batches(first)], [list(map(tuple, epoch)) for epoch in batches(again)])
    names = set(parameters(DataLoader)) - {"dataset", "sampler", "batch_sampler", "shuffle"}
    assert {name: getattr(first, name) for name in names} == {name: getattr(again, name) for name in names}


def test_a_batch_sampler_around_an_order_of_ours_keeps_its_powers():
    """Lightning's loop for predictions wraps the batch sampler."""
    loader = DataLoader(Numbers(), 4, num_workers=0, seed=5, distributed=(1, 2), shuffle=True)
    again = made_again(
        loader, sampler=None, batch_size=1, drop_last=False, batch_sampler=BatchSampler(loader.sampler, 4, drop_last=False)
    )
    assert indices(again) == indices(DataLoader(Numbers(), 4, num_workers=0, seed=5, distributed=(1, 2), shuffle=True))
    assert again.valid.tolist() == [True, True, True, False]  # 23 samples, 12 a rank
    assert again.state_dict()["order"]["consumed"] == 23


# ---------------------------------------------------------------------------------------------------- pickles and copies
@pytest.mark.parametrize("options", [{}, {"seed": 3, "shuffle": True}])
def test_a_used_loader_can_be_pickled_and_copied(options):
    loader = DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True, **options)
    wanted = [list(loader) for _ in range(1)]
    for again in (copy.copy(loader), pickle.loads(pickle.dumps(loader)), copy.deepcopy(loader)):
        assert len(list(again)) == len(wanted[0])


# ---------------------------------------------------------------------------------------------------- index and key
def test_with_index_gives_positions_and_keys(tmp_path):
    dataset = fastfeed.open(pack_photos(tmp_path, each=3), transform=np.array)
    keys = [dataset.identity(i).key for i in range(6)]
    for given in (dataset, Subset(dataset, [5, 3, 1])):
        base = [5, 3, 1] if given is not dataset else list(range(6))
        for batch in DataLoader(given, 2, shuffle=True, num_workers=0, with_index=True):
            assert isinstance(batch, Indexed)
            assert batch.key == [keys[base[i]] for i in batch.index.tolist()]
            assert batch.batch[0].shape == (len(batch.index), 12, 16, 3)
            assert batch.valid.tolist() == [True] * len(batch.index)


def test_with_index_of_a_foreign_dataset_has_no_keys():
    found = list(DataLoader(Numbers(5), 2, num_workers=1, with_index=True))
    assert [batch.index.tolist() for batch in found] == [[0, 1], [2, 3], [4]]
    assert [batch.key for batch in found] == [None] * 3
    assert [batch.batch[0].tolist() for batch in found] == [[0, 1], [2, 3], [4]]
    unbatched = list(DataLoader(Numbers(2), None, num_workers=0, with_index=True))
    assert [batch.index.tolist() for batch in unbatched] == [[0], [1]]


def test_with_index_and_other_keys_is_told():
    data: Any = {"a": 1}
    with pytest.raises(UsageError, match=r"with_index gives whole numbers, and the sampler draws something else: got \[a\]"):
        list(DataLoader(data, sampler=["a"], num_workers=0, with_index=True))


# ---------------------------------------------------------------------------------------------------- generators
class Stored(Numbers):
    """Draws from a generator of its own: pytorch issue 5059."""

    def __init__(self) -> None:
        super().__init__(8)
        self.rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Any:
        return int(self.rng.integers(10**6))


def test_a_generator_that_workers_would_duplicate_is_told_once():
    loader = DataLoader(Stored(), 1, num_workers=2)
    with pytest.warns(UserWarning, match=r"the dataset keeps random generators of its own \(rng \(numpy.*Generator\)\)"):
        first = [batch.item() for batch in loader]
    assert len(set(first)) == 4  # which is what the warning is about
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(loader)
        list(DataLoader(Stored(), 1, num_workers=0))
        list(DataLoader(Numbers(8), 1, num_workers=1))


def test_the_first_batch_of_a_loader_that_nobody_keeps():
    """The epoch is known without the loader: `next(iter(DataLoader(...)))` has no other reference to it."""
    first = [next(iter(DataLoader(Numbers(), 4, num_workers=w, seed=3))) for w in (0, 1)]
    assert equal(first[0][:4], first[1][:4])


class Unmeasured(Numbers):
    def __len__(self) -> int:
        raise NotImplementedError


def test_with_a_sampler_a_dataset_needs_no_length():
    for cls in (TorchDataLoader, DataLoader):
        assert indices(cls(Unmeasured(), 2, sampler=[4, 1], num_workers=0)) == [[4, 1]]


def test_calls_of_any_length_are_allowed():
    assert len(DataLoader(Calls(int, 0), num_workers=0)) == 0
    assert list(DataLoader(Calls(int, 0), num_workers=0)) == list(DataLoader(Calls(int, 0), 3, seed=1, num_workers=0)) == []
