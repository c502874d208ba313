"""What speaks against workers; and that a loader whose workers are ours to decide then reads on without any."""

import importlib.util
import json
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from loading import Calls, Numbers, printed
from torch.utils.data import Dataset

from fastfeed.feed.loader import DataLoader
from fastfeed.feed.obstacles import against_sending, imports_unguarded, is_guarded, tensors_on

SPAWN: Any = {"multiprocessing_context": "spawn"}


class Holds(Dataset[Any]):
    """Has attributes, as a dataset or a transform does."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


# ---------------------------------------------------------------------------------------------------- tensors on a device
def test_tensors_are_found_wherever_a_dataset_keeps_them():
    there = torch.empty(2, device="meta")
    assert tensors_on(there, "meta") == "dataset"
    assert tensors_on([torch.zeros(2), there], "meta") == "dataset[1]"
    nested = Holds(transform=Holds(steps=[1, {"mean": there}]), images=torch.zeros(2))
    assert tensors_on(nested, "meta") == "dataset.transform.steps[1]['mean']"
    assert tensors_on(Holds(images=torch.zeros(2), names=["a"], rows=np.zeros(3)), "meta") is None


ON_A_GPU = """
import json, torch
from fastfeed.feed.loader import DataLoader
from test_obstacles import Holds
loader = DataLoader(Holds(mean=torch.zeros(2, device="cuda")), 3)
print(json.dumps([[batch.tolist() for batch in loader], loader.num_workers, loader.plan.gate]))
"""


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_tensors_on_a_gpu_are_read_in_the_main_process():
    """In a process of its own: once CUDA is in use, memory is pinned by default."""
    assert printed([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{ON_A_GPU}"]) == [
        [[0, 1, 2]], 0, "cuda",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- pickles
def test_what_can_be_sent_and_how_large_it_is():
    why, size_bytes = against_sending({"dataset": Numbers(), "collate_fn": None})
    assert why is None and 50 < size_bytes < 1000
    rows = Holds(rows=np.zeros(100_000, np.uint8), tensor=torch.zeros(1_000_000))
    why, size_bytes = against_sending({"dataset": rows})
    assert why is None and 100_000 < size_bytes < 110_000  # tensors are shared


def test_what_only_a_start_can_give_is_no_obstacle():
    context = multiprocessing.get_context("spawn")
    given = Holds(lock=context.Lock(), queue=context.Queue(), count=context.Value("i", 0), raw=context.RawArray("i", 3))
    assert against_sending({"dataset": given})[0] is None


def test_what_cannot_be_sent_is_named():
    why, _ = against_sending({"dataset": Numbers(), "collate_fn": lambda samples: samples})
    assert why is not None and why.startswith("of collate_fn there is none: a function cannot be pickled (")


@pytest.mark.parametrize("options", [{"collate_fn": lambda samples: samples}, {}], ids=["collate", "dataset"])
def test_a_loader_that_cannot_spawn_reads_on_without_workers(options):
    class Local(Numbers):
        """Of a function: no other process finds it."""

    dataset = Numbers(7) if options else Local(7)
    loader = DataLoader(dataset, 4, seed=1, **SPAWN, **options)
    assert loader.num_workers > 0
    wanted = list(DataLoader(dataset, 4, seed=1, num_workers=0, **options))
    found = list(loader)
    assert [len(batch[0]) if not options else len(batch) for batch in found] == [4, 3]
    assert str(found) == str(wanted)
    assert (loader.num_workers, loader.plan.num_workers, loader.plan.gate) == (0, 0, "pickle")
    assert loader.plan.why[0].startswith("no workers: spawn gives each worker a pickle of what it needs, and of ")
    assert str(list(loader)) != str(wanted) and loader.num_workers == 0  # another epoch


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_where_the_number_is_given_it_fails_as_in_torch():
    with pytest.raises((AttributeError, TypeError), match=r"pickle|local object"):
        iter(DataLoader(Numbers(7), num_workers=1, collate_fn=lambda samples: samples, **SPAWN))


def test_a_lock_is_no_obstacle_to_forked_workers():
    """And nothing is pickled for them."""

    class Unpicklable(Calls):
        def __reduce__(self) -> Any:
            pytest.fail("it was pickled")

    loader = DataLoader(Unpicklable(int, 4), 2, multiprocessing_context="fork")
    loader.dataset.lock = threading.Lock()  # type: ignore[attr-defined]
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]] and loader.num_workers > 0


SESSION = """
import json, multiprocessing
from fastfeed.feed.loader import DataLoader
class Mine:
    def __len__(self): return 4
    def __getitem__(self, index): return index
multiprocessing.set_start_method("{method}")
loader = DataLoader(Mine(), 2)
print(json.dumps([[batch.tolist() for batch in loader], loader.plan.gate, loader.plan.why[0]]))
"""


@pytest.mark.long
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_dataset_of_an_interactive_session_is_read_without_workers(method):
    """As in a notebook: other processes find no such class."""
    found, gate, why = printed([sys.executable, "-c", SESSION.format(method=method)])
    assert (found, gate) == ([[0, 1], [2, 3]], "pickle")
    assert "Mine is of this session, of which there is no file that a worker could import" in why


# ---------------------------------------------------------------------------------------------------- daemons
def read(pipe: Any) -> None:
    loader = DataLoader(Numbers(4), 2)
    pipe.send(([batch[0].tolist() for batch in loader], loader.plan.gate))


def test_a_daemonic_process_reads_without_workers():
    """It may have no children; with num_workers given, torch's error says so."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=read, args=(there,), daemon=True)
    process.start()
    assert here.recv() == ([[0, 1], [2, 3]], "daemonic")
    process.join()


# ---------------------------------------------------------------------------------------------------- the main module
UNGUARDED = """
import json, multiprocessing, torch
from torch.utils.data import Dataset
from fastfeed.feed.loader import DataLoader
class Mine(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return index
multiprocessing.set_start_method("spawn", force=True)
loader = DataLoader(Mine(), 2)
print(json.dumps([[batch.tolist() for batch in loader], loader.plan.gate, loader.plan.why[0]]))
"""


@pytest.mark.long
def test_a_script_without_a_guard_is_read_without_workers(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(UNGUARDED)
    command = [sys.executable, str(script)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=Path(__file__).parents[2])
    found, gate, why = json.loads(ended.stdout)
    assert (found, gate) == ([[0, 1], [2, 3]], "main") and "spawn imports the main module anew" in why


WITH_WORKERS = """
import sys
from fastfeed.feed.loader import DataLoader
from loading import Flow, Numbers
list(DataLoader({dataset}, 4, num_workers=1, multiprocessing_context="{method}"))
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("dataset", "method"), [("Numbers(7)", "spawn"), ("Numbers(7)", "forkserver"), ("Flow(4, 0.1)", "spawn")]
)
def test_a_script_without_a_guard_is_told_what_to_do(tmp_path, dataset, method):
    """By each worker, and by the loop that waits for it."""
    script = tmp_path / "train.py"
    script.write_text(WITH_WORKERS.format(dataset=dataset, method=method))
    path = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2])])
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.returncode == 1
    assert "UsageError: this process is being started as a worker, and the script that it imports" in ended.stderr
    assert "bootstrapping phase" not in ended.stderr
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("fastfeed.feed.crew.WorkerLost: ")]
    assert said.endswith(
        f'. {method} imports train.py anew in each worker: what it does has to be under if __name__ == "__main__":'
    )


def test_of_forked_workers_no_guard_is_asked(monkeypatch, tmp_path):
    script = ModuleType("__main__")
    script.__file__ = str(tmp_path / "train.py")
    (tmp_path / "train.py").write_text("main()\n")
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert imports_unguarded("fork") is None and imports_unguarded(multiprocessing.get_context("fork")) is None
    why = imports_unguarded("spawn")
    assert why is not None and why.startswith("spawn imports train.py anew")


def module(path: Path, text: str, name: str = "main") -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('if __name__ == "__main__":\n    main()\n', True), ('if "__main__" != __name__:\n    raise SystemExit\n', True),
        ('try:\n    if __name__ == "__main__": main()\nfinally:\n    pass\n', True), ("main()\n", False),
        ("if other == 1:\n    main(__name__)\n", False), ("this is no Python", None), ("x = '\\0'\0", None),
    ],
)  # fmt: skip
def test_a_guard_is_looked_for(tmp_path, text, wanted):
    assert is_guarded(module(tmp_path / "train.py", text)) is wanted


def test_what_is_not_imported_again_needs_no_guard(tmp_path):
    """An interactive session, and the __main__ of a package: multiprocessing leaves them alone."""
    assert is_guarded(None) is True and is_guarded(ModuleType("__main__")) is True
    assert is_guarded(module(tmp_path / "__main__.py", "main()\n", "package.__main__")) is True
    gone = module(tmp_path / "gone.py", "main()\n")
    (tmp_path / "gone.py").unlink()
    assert is_guarded(gone) is None
