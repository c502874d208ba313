"""install() and uninstall(): our loader in the place of torch's."""

import abc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
import torch
from helpers import ROOT
from loading import Numbers, equal, indices, remains, seed_all
from torch.utils.data import DataLoader as Held  # install() exchanges this name

import fastfeed
from fastfeed.errors import UsageError
from fastfeed.feed import standin
from fastfeed.feed.loader import DataLoader

PLAIN: Any = (Held,)
DATA: Any = torch.utils.data
OURS: Any = DataLoader
"""torch's class, where install() does not look."""
T = TypeVar("T")


@pytest.fixture
def installed() -> Iterator[Any]:
    """What install() said."""
    yield fastfeed.install()
    fastfeed.uninstall()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that has imported torch's loader under a name of its own."""
    made: Any = types.ModuleType("somebodys")
    made.TheirLoader = PLAIN[0]
    monkeypatch.setitem(sys.modules, "somebodys", made)
    return made


def in_a_process(code: str, **environment: str) -> list[str]:
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


# ---------------------------------------------------------------------------------------------------- places
def test_it_stands_where_torchs_stood_and_is_taken_away(module: Any):
    before = {name: dict(vars(sys.modules[name])) for name in ("torch.utils.data", "torch.utils.data.dataloader")}
    done = fastfeed.install()
    try:
        assert DATA.DataLoader is torch.utils.data.dataloader.DataLoader is module.TheirLoader is Held is standin.DataLoader
        assert {"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader", "somebodys.TheirLoader"} <= {
            *done.places
        }
        assert f"{__name__}.Held" in done.places
        assert not any(place.startswith("fastfeed") for place in done.places)
    finally:
        back = fastfeed.uninstall()
    assert back.places == done.places
    assert {name: dict(vars(sys.modules[name])) for name in before} == before
    assert module.TheirLoader is Held is PLAIN[0]


def test_twice_is_as_once_and_finds_what_came_since(installed: Any, module: Any):
    assert "somebodys.TheirLoader" in fastfeed.install().places
    module.another = PLAIN[0]
    again = fastfeed.install()
    assert {*again.places} - {*installed.places} == {"somebodys.TheirLoader", "somebodys.another"}
    assert fastfeed.uninstall().places == again.places
    assert fastfeed.uninstall().places == ()
    assert DATA.DataLoader is PLAIN[0]


def test_modules_that_came_went_or_changed_are_right_afterwards(module: Any, monkeypatch: pytest.MonkeyPatch):
    fastfeed.install()
    late: Any = types.ModuleType("late")
    exec("from torch.utils.data import DataLoader as Late", vars(late))
    monkeypatch.setitem(sys.modules, "late", late)
    monkeypatch.setitem(sys.modules, "somebodys", types.ModuleType("somebodys"))  # loaded anew; the old one is still in use
    DATA.dataloader.DataLoader = str  # somebody else replaced it
    try:
        back = fastfeed.uninstall()
        assert DATA.dataloader.DataLoader is str
    finally:
        DATA.dataloader.DataLoader = PLAIN[0]
    assert late.Late is module.TheirLoader is DATA.DataLoader is PLAIN[0]
    assert {"late.Late", "somebodys.TheirLoader"} < {*back.places}
    assert "torch.utils.data.dataloader.DataLoader" not in back.places


def test_what_is_in_sys_modules_may_be_anything(monkeypatch: pytest.MonkeyPatch):
    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            pytest.fail(f"{name} was looked up")

    for name, value in (("lazy", Lazy("lazy")), ("nothing", None), ("number", 3)):
        monkeypatch.setitem(sys.modules, name, value)
    assert "lazy" not in str(fastfeed.install())
    fastfeed.uninstall()


def test_threads_may_do_it_at_once():
    threads = [threading.Thread(target=call) for call in [fastfeed.install, fastfeed.uninstall] * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    fastfeed.uninstall()
    assert DATA.DataLoader is torch.utils.data.dataloader.DataLoader is Held is PLAIN[0]


def test_it_is_logged_and_printed(module: Any, caplog: pytest.LogCaptureFixture):
    class Before(PLAIN[0]):
        pass

    with caplog.at_level("INFO", logger="fastfeed.loader"):
        done = fastfeed.install()
        fastfeed.uninstall()
    first, second = caplog.messages
    assert first == str(done)
    assert first.startswith(f"fastfeed.DataLoader stands for torch's in {len(done.places)} places\n  ")
    assert "\n  somebodys.TheirLoader" in first
    assert f"\n  left as it was made: {__name__}.test_it_is_logged_and_printed.<locals>.Before" in first
    assert second.startswith("torch's DataLoader is back in ")
    assert issubclass(Before, Held)


# ---------------------------------------------------------------------------------------------------- what it is
@pytest.mark.usefixtures("installed")
def test_it_makes_loaders_of_ours():
    loader: Any = DATA.DataLoader(Numbers(), 4, num_workers=0, seed=3)
    assert isinstance(loader, DataLoader) and isinstance(loader, PLAIN[0]) and type(loader) is DATA.DataLoader
    assert DATA.DataLoader.__name__ == "DataLoader"
    assert inspect.signature(DATA.DataLoader) == inspect.signature(DataLoader)
    assert indices(loader) == indices(DataLoader(Numbers(), 4, num_workers=0, seed=3))
    assert "num_workers was given" in str(loader.plan)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_torchs_where_workers_are_given(workers, installed: Any):
    def epochs(cls: Any) -> Any:
        seed_all(7)
        loader = cls(Numbers(), 4, shuffle=True, num_workers=workers)
        return [list(loader) for _ in range(2)]

    assert equal(epochs(DATA.DataLoader), epochs(PLAIN[0]))


def test_explicit_values_win_unless_they_are_overridden(installed: Any, monkeypatch: pytest.MonkeyPatch):
    one: Any = DATA.DataLoader(Numbers(), 4, num_workers=0)
    assert (one.num_workers, one.rng) == (0, "torch")
    monkeypatch.setenv("FASTFEED_OVERRIDE", "num_workers")
    other: Any = DATA.DataLoader(Numbers(), 4, num_workers=0)
    assert (other.rng, other.autotune) == ("sample", True)
    assert "num_workers=0 was given and gives way to ours" in str(other.plan)


def test_checks_for_a_loader_say_what_they_said():
    class Before(PLAIN[0]):
        pass

    loaders = PLAIN[0]([1]), Before([1]), OURS([1])
    fastfeed.install()
    try:
        for loader in (*loaders, DATA.DataLoader([1])):
            assert isinstance(loader, DATA.DataLoader)
            assert issubclass(type(loader), DATA.DataLoader)
            assert isinstance(loader, (list, DATA.DataLoader))
        assert not isinstance([1], DATA.DataLoader)
        assert not issubclass(list, DATA.DataLoader)
        assert not isinstance(loaders[0], DataLoader)  # only the stand-in answers for torch's
    finally:
        fastfeed.uninstall()
    assert isinstance(standin.DataLoader([1]), DATA.DataLoader)


@pytest.mark.usefixtures("installed")
def test_subclasses_are_as_any_others():
    base: Any = DATA.DataLoader

    class Mine(base):
        pass

    class Abstract(base, abc.ABC):
        pass

    class Boxed(base[T], Generic[T]):
        pass

    for cls in (Mine, Abstract, Boxed):
        loader: Any = cls([1, 2, 3], 2, num_workers=0)
        assert [batch.tolist() for batch in loader] == [[1, 2], [3]]
        assert isinstance(loader, cls) and isinstance(loader, base) and isinstance(loader, DataLoader)
    assert not isinstance(base([1]), Mine)
    assert not isinstance(PLAIN[0]([1]), Mine)
    assert not issubclass(PLAIN[0], Mine)


@pytest.mark.usefixtures("installed")
def test_it_is_a_generic_type_as_torchs():
    def loop(loader: DATA.DataLoader[int]) -> None:
        """An annotation that is evaluated."""

    assert loop.__annotations__["loader"].__args__ == (int,)
    assert OURS[int].__origin__ is OURS


# ---------------------------------------------------------------------------------------------------- pickles, processes
@pytest.mark.filterwarnings("ignore")
def test_loaders_can_be_pickled_before_and_after():
    before: Any = PLAIN[0]([1, 2, 3], 2)
    stored = pickle.dumps(before)
    fastfeed.install()
    try:
        made: Any = DATA.DataLoader([1, 2, 3], 2, num_workers=0)
        mine = pickle.dumps(made)
        for again in (pickle.loads(pickle.dumps(before)), pickle.loads(stored)):
            assert type(again) is PLAIN[0]
            assert [batch.tolist() for batch in again] == [[1, 2], [3]]
        assert type(pickle.loads(mine)) is standin.DataLoader
    finally:
        fastfeed.uninstall()
    for raw, cls in ((pickle.dumps(before), PLAIN[0]), (stored, PLAIN[0]), (mine, standin.DataLoader)):
        again = pickle.loads(raw)
        assert type(again) is cls
        assert [batch.tolist() for batch in again] == [[1, 2], [3]]


@pytest.mark.long
def test_spawned_workers_do_not_mind(installed: Any):
    loader: Any = DATA.DataLoader(Numbers(5), 2, num_workers=1, multiprocessing_context="spawn")
    assert indices(loader) == [[0, 1], [2, 3], [4]]


@pytest.mark.long
def test_the_door_stays_cold_and_opens():
    assert in_a_process(
        "import fastfeed, sys\n"
        "assert 'torch' not in sys.modules\n"
        "fastfeed.install()\n"
        "from torch.utils.data import DataLoader\n"
        "print(issubclass(DataLoader, fastfeed.DataLoader))\n"
        "fastfeed.uninstall()\n"
        "from torch.utils.data import DataLoader\n"
        "print(issubclass(DataLoader, fastfeed.DataLoader))\n"
    ) == ["True", "False"]


@pytest.mark.long
def test_the_main_module_is_a_module_too():
    code = "from torch.utils.data import DataLoader\nimport fastfeed\nfastfeed.install()\nprint(DataLoader([1]).plan.decided)"
    assert in_a_process(code) == ["True"]


def test_disabled_nothing_is_exchanged(module: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FASTFEED_DISABLE", "1")
    done = fastfeed.install()
    assert (done.places, done.left) == ((), ())
    assert str(done) == "FASTFEED_DISABLE=1: torch's DataLoader stays in its place"
    assert module.TheirLoader is DATA.DataLoader is PLAIN[0]
    monkeypatch.setenv("FASTFEED_DISABLE", "perhaps")
    with pytest.raises(UsageError, match="FASTFEED_DISABLE is a switch"):
        fastfeed.install()


# ---------------------------------------------------------------------------------------------------- endless loaders
class Repeated:
    """A batch sampler without an end."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self.inner


def endless(base: Any) -> Any:
    """As ultralytics' loader: one pass that is begun by the constructor and never ends; an epoch is a part of it."""

    class Endless(base):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            object.__setattr__(self, "batch_sampler", Repeated(self.batch_sampler))
            self.passing = super().__iter__()

        def __len__(self) -> int:
            return len(self.batch_sampler.inner)

        def __iter__(self) -> Iterator[Any]:
            for _ in range(len(self)):
                yield next(self.passing)

        def reset(self) -> None:
            self.passing = self._get_iterator()

    return Endless


@pytest.mark.parametrize("workers", [0, 2])
def test_an_endless_loader_gives_torchs_batches(workers, installed: Any):
    def epochs(base: Any) -> Any:
        seed_all(11)
        loader = endless(base)(Numbers(), 4, shuffle=True, num_workers=workers)
        found = [list(loader) for _ in range(3)]
        loader.reset()
        return [*found, list(loader)]

    before = remains()
    found = epochs(DATA.DataLoader)
    assert equal(found, epochs(PLAIN[0]))
    assert [sorted(i for batch in indices(epoch) for i in batch) for epoch in found] == [list(range(23))] * 4
    assert remains()["children"] == before["children"]


@pytest.mark.parametrize("workers", [0, 2])
def test_its_epochs_have_random_numbers_of_their_own(workers, installed: Any):
    """In sample mode these follow from (base, epoch, index), and an endless pass goes through many epochs."""
    loader = endless(DATA.DataLoader)(Numbers(7), 3, num_workers=workers, rng="sample")
    epochs = [[round(float(value), 12) for batch in loader for value in batch[2]] for _ in range(3)]
    assert len({value for epoch in epochs for value in epoch}) == 21


def test_an_endless_loader_that_was_reset_is_ours(installed: Any):
    loader = endless(DATA.DataLoader)(Numbers(7), 3, num_workers=0)
    kind = type(loader.passing)
    loader.reset()
    assert kind is type(loader.passing) is type(iter(DataLoader(Numbers(7), 3, num_workers=0)))


@pytest.mark.long
def test_the_class_is_torchs_before_and_after(tmp_path: Path):
    """A script that installs it before its imports, as the README has it."""
    (tmp_path / "library.py").write_text(
        "from torch.utils.data import DataLoader, dataloader\n"
        "class Kept(dataloader.DataLoader): pass\n"
        "def make(data): return DataLoader(data, 2, num_workers=0), Kept(data, 2, num_workers=0)\n"
    )
    late = (
        "import fastfeed, library; print(fastfeed.install()); print(*(type(x).__mro__[1].__name__ for x in library.make([1])))"
    )
    early = (
        "import fastfeed; print(fastfeed.install()); import library; print(*(hasattr(x, 'plan') for x in library.make([1])))"
    )
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    lines = in_a_process(late, PYTHONPATH=path)
    assert "  library.DataLoader" in lines and "  left as it was made: library.Kept" in lines
    assert in_a_process(early, PYTHONPATH=path)[-1] == "True True"
