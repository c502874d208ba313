"""Samples of others' datasets, fetched in parts that can be timed: same calls, same values, same errors.

Known by their exact functions: torch's Subset, and torchvision's DatasetFolder (ImageFolder). torchvision is not imported
here: who has a dataset of its has loaded it. A function whose code is not the known one is called, and is one stage.
"""

import io
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from types import ModuleType
from typing import Any

from torch.utils.data import Subset

from fastfeed.trace import Recorder

Fetch = Callable[[Any], Any]
"""From an index to its sample."""
_FOLDER = "torchvision.datasets.folder"
_SAMPLE_CODE = ("samples", "loader", "transform", "target_transform")
_PIL_CODE = ("open", "Image", "convert")
_DEFAULT_CODE = ("torchvision", "get_image_backend", "accimage_loader", "pil_loader")


def behind_views(dataset: Any, index: Any = None) -> tuple[Any, Any]:  # noqa: ANN401 - any dataset and index
    """The dataset behind Subsets, and the index there."""
    while type(dataset) is Subset and not isinstance(index, list):  # a list asks for several, which Subset sees to itself
        dataset, index = dataset.dataset, None if index is None else dataset.indices[index]
    return dataset, index


def whole_of(dataset: Any, indices: Any) -> tuple[Any, Any]:  # noqa: ANN401 - any dataset and indices
    """The dataset behind Subsets, and the indices there."""
    while type(dataset) is Subset:
        inner = dataset.indices
        dataset, indices = dataset.dataset, [inner[index] for index in indices]
    return dataset, indices


def wanted_of(dataset: Any, view: Any) -> Sequence[int]:  # noqa: ANN401 - any map-style dataset
    """Which samples of a dataset are wanted, rising, each once.

    Args:
        dataset: It.
        view: It, or Subsets of it.
    """
    size = len(dataset)
    if view is dataset:
        return range(size)
    return sorted({int(number) % size for number in whole_of(view, range(len(view)))[1]})


def fetch_of(dataset: Any, recorder: Recorder) -> Fetch:  # noqa: ANN401 - any dataset
    """What gives the samples of a dataset, and tells a recorder of the parts that are known."""
    base, _ = behind_views(dataset)
    module = _folder_module(base)
    if module is None:
        return partial(getitem, dataset)
    return partial(_folder_sample, dataset, module if _opens_alike(base.loader, module) else None, recorder)


def makes_samples_singly(dataset: Any) -> bool:  # noqa: ANN401 - any dataset
    """Whether its __getitems__ is Subset's, which asks a dataset that has none for one sample after another."""
    base, _ = behind_views(dataset)
    return base is not dataset and not callable(getattr(base, "__getitems__", None))


# ------------------------------------------------------------------------------------------------ torchvision's folders
def _folder_module(dataset: Any) -> ModuleType | None:  # noqa: ANN401
    """The module, where the dataset's samples come from its DatasetFolder as we know it."""
    module = sys.modules.get(_FOLDER)
    kind = getattr(module, "DatasetFolder", None)
    if kind is None or getattr(type(dataset), "__getitem__", None) is not getattr(kind, "__getitem__", dataset):
        return None
    return module if _is_known(kind.__getitem__, _SAMPLE_CODE) else None


def path_of(dataset: Any, index: Any) -> str | None:  # noqa: ANN401 - any dataset and index
    """The file of a sample of a folder of torchvision's; None for any other dataset."""
    base, index = behind_views(dataset, index)
    return None if _folder_module(base) is None else str(base.samples[index][0])


def folder_of(dataset: Any) -> str | None:  # noqa: ANN401 - any dataset
    """The folder of which a dataset of torchvision's makes a class of each folder in it; None for any other dataset."""
    base, _ = behind_views(dataset)
    return None if _folder_module(base) is None else os.fspath(base.root)


def _is_known(function: Any, names: tuple[str, ...]) -> bool:  # noqa: ANN401
    """Whether a function still uses the names that it used when its parts were written down here."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_names == names


def _opens_alike(loader: Any, module: ModuleType) -> bool:  # noqa: ANN401
    """Whether a loader of a folder does what _opened does: open the file, let Pillow read it, convert to RGB."""
    if loader is getattr(module, "default_loader", None) and _is_known(loader, _DEFAULT_CODE):
        backend = sys.modules["torchvision"].get_image_backend()
        loader = module.accimage_loader if backend == "accimage" else module.pil_loader
    return loader is getattr(module, "pil_loader", None) and _is_known(loader, _PIL_CODE)


def _folder_sample(dataset: Any, module: ModuleType | None, recorder: Recorder, index: Any) -> Any:  # noqa: ANN401
    """What DatasetFolder.__getitem__ gives; the module where its loader is Pillow's."""
    folder, index = behind_views(dataset, index)
    if type(folder) is Subset:
        return folder[index]
    path, target = folder.samples[index]
    if module is not None:
        sample = _opened(path, module, recorder)
    else:
        with recorder.span("load", index):
            sample = folder.loader(path)
    with recorder.span("transform", index):
        if folder.transform is not None:
            sample = folder.transform(sample)
        if folder.target_transform is not None:
            target = folder.target_transform(target)
    return sample, target


def _opened(path: Any, module: ModuleType, recorder: Recorder) -> Any:  # noqa: ANN401
    """What torchvision's pil_loader gives; Pillow sees a file as open() makes it, so names, messages and pixels are equal."""
    with recorder.span("read", 0):
        raw = _TimedFile(path, recorder)
    with io.BufferedReader(raw) as file, recorder.span("decode", 0):
        return module.Image.open(file).convert("RGB")


class _TimedFile(io.FileIO):
    """A file whose reads are a stage of their own, within whatever else is going on."""

    def __init__(self, path: Any, recorder: Recorder) -> None:  # noqa: ANN401
        super().__init__(path, "rb")
        self._recorder = recorder

    def readinto(self, buffer: Any, /) -> int | None:  # noqa: ANN401
        """As a file's."""
        with self._recorder.span("read", 0):
            return super().readinto(buffer)

    def readall(self) -> bytes:
        """As a file's."""
        with self._recorder.span("read", 0):
            return super().readall()
