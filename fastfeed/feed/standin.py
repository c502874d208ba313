"""fastfeed.install(): our DataLoader in torch's place, under code that cannot be edited; uninstall() takes it away.

What stands there is a class of its own, which is ours and answers for torch's: isinstance and issubclass say of it what
they said before, so checks for a DataLoader go on, whoever made the loader, before or after. Only names of modules are
exchanged. A subclass that was made before keeps torch's class as its base: it is listed, since only an earlier install()
helps.
"""

import copyreg
import functools
import logging
import sys
import threading
from abc import ABCMeta
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from torch.utils.data.dataloader import DataLoader as TorchDataLoader

from fastfeed.environment import is_disabled
from fastfeed.feed.loader import DataLoader as OurDataLoader
from fastfeed.units import format_count

LOG = logging.getLogger("fastfeed.loader")
_DOORS = frozenset({"torch.utils.data", "torch.utils.data.dataloader"})
"""Where torch hands its class out. Other modules of torch, and ours, mean torch's class and keep it."""


class DataLoader(OurDataLoader, metaclass=ABCMeta):
    """fastfeed.DataLoader in the place of torch's: to isinstance and issubclass, every loader of torch's is one."""

    @functools.wraps(OurDataLoader.__init__)  # type: ignore[misc]  # a constructor all the same
    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as ours
        # A method of its own, because Lightning wraps the constructor of the class that it finds, not those of its bases.
        super().__init__(*args, **options)

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:  # noqa: ANN401 - a truth value, or NotImplemented
        return issubclass(other, TorchDataLoader) if cls is DataLoader else NotImplemented

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Of ours; or of a loader that was pickled by torch's name while torch's class stood there: it is torch's again."""
        if "_plan" in state or type(self) is not DataLoader:
            super().__setstate__(state)
        else:
            self.__dict__.update(state)
            object.__setattr__(self, "__class__", TorchDataLoader)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What install() or uninstall() has done. ``print`` tells it."""

    places: tuple[str, ...]
    """Names that were exchanged: "timm.data.loader.DataLoader"."""
    left: tuple[str, ...]
    """Subclasses that were made before, which stay what they are."""
    why: str
    """A sentence."""

    def __str__(self) -> str:
        left = [f"  left as it was made: {name}" for name in self.left]
        return "\n".join([self.why, *(f"  {name}" for name in self.places), *left])


class _State:
    """What is installed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.places: dict[tuple[int, str], ModuleType] = {}
        """(id of the module, attribute) -> the module."""
        self.reducer: Any = None
        """What pickled torch's loaders before."""


_STATE = _State()


def install() -> Replaced:
    """Put fastfeed.DataLoader in the place of torch.utils.data.DataLoader, everywhere; again is as once.

    It is exchanged where torch hands it out, so that modules imported later get ours, and in each module that has it under
    any name already. Explicit arguments still win (FASTFEED_OVERRIDE names those that shall not); loaders that exist stay
    what they are. Copies elsewhere (in a class, a closure, a default argument) are not found. New processes that do not
    call it have torch's.

    Returns:
        Which names were exchanged so far, and which subclasses were made before and therefore stay torch's: import the
        modules that define them after install(). With FASTFEED_DISABLE=1 nothing is exchanged.

    Raises:
        UsageError: FASTFEED_DISABLE or FASTFEED_OVERRIDE does not say what it should.
    """
    if is_disabled():
        return _logged(Replaced((), (), "FASTFEED_DISABLE=1: torch's DataLoader stays in its place"))
    with _STATE.lock:
        if not _STATE.places:
            _STATE.reducer = copyreg.dispatch_table.get(TorchDataLoader)
            copyreg.pickle(TorchDataLoader, _reduced)
        for module, name in list(_holders(TorchDataLoader)):
            vars(module)[name] = DataLoader
            _STATE.places[id(module), name] = module
        places = tuple(sorted(f"{module.__name__}.{name}" for (_, name), module in _STATE.places.items()))
    left = tuple(sorted(_names(_made_before(TorchDataLoader))))
    return _logged(Replaced(places, left, f"fastfeed.DataLoader stands for torch's in {format_count(len(places), 'place')}"))


def uninstall() -> Replaced:
    """Put torch's DataLoader back wherever ours stands for it, also in modules that were imported since.

    Returns:
        Which names were exchanged back, and which subclasses were made of ours in between: they stay so.
    """
    with _STATE.lock:
        known = [(module, name) for (_, name), module in _STATE.places.items()]
        back = {(id(module), name): module for module, name in [*known, *_holders(DataLoader)]}
        back = {place: module for place, module in back.items() if vars(module).get(place[1]) is DataLoader}
        for (_, name), module in back.items():
            vars(module)[name] = TorchDataLoader
        if _STATE.places:
            copyreg.dispatch_table.pop(TorchDataLoader, None)
            if _STATE.reducer is not None:
                copyreg.dispatch_table[TorchDataLoader] = _STATE.reducer
        _STATE.places.clear()
    places = tuple(sorted(f"{module.__name__}.{name}" for (_, name), module in back.items()))
    left = tuple(sorted(_names(DataLoader.__subclasses__())))
    return _logged(Replaced(places, left, f"torch's DataLoader is back in {format_count(len(places), 'place')}"))


def _logged(done: Replaced) -> Replaced:
    LOG.info("%s", done)
    return done


def _holders(cls: type) -> Iterator[tuple[ModuleType, str]]:
    """Attributes of modules that are a class. The modules' dicts are read, so that lazy modules stay unloaded."""
    modules: list[tuple[str, object]] = list(sys.modules.items())  # some programs put other things there
    for module_name, module in modules:
        root = module_name.partition(".")[0]
        if isinstance(module, ModuleType) and (root not in {"torch", "fastfeed"} or module_name in _DOORS):
            yield from ((module, name) for name, value in list(vars(module).items()) if value is cls)


def _made_before(cls: Any) -> Iterator[Any]:  # noqa: ANN401 - a class
    """Subclasses of torch's class that are neither torch's nor ours."""
    for sub in cls.__subclasses__():
        if not issubclass(sub, OurDataLoader):
            yield sub
            yield from _made_before(sub)


def _names(classes: Any) -> Iterator[str]:  # noqa: ANN401 - an iterable of classes
    for cls in classes:
        if cls.__module__.partition(".")[0] not in {"torch", "fastfeed"}:
            yield f"{cls.__module__}.{cls.__qualname__}"


def _reduced(loader: TorchDataLoader[Any]) -> tuple[Any, ...]:
    """Pickles a loader of torch's own: its class cannot be found by name while ours stands there."""
    return _empty, (), loader.__dict__


def _empty() -> TorchDataLoader[Any]:
    return TorchDataLoader.__new__(TorchDataLoader)
