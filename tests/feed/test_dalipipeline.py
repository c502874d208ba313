"""A pipeline of DALI's, and its views of memory: what it is fed with, and what it gives when asked too often."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from fusing import jpeg

from fastfeed.feed import dalipipeline as module
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.dalipipeline import Pipeline, is_installed, table_of

EDGE = 16


@pytest.fixture
def pipeline():
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    return Pipeline(3, (EDGE, EDGE), torch.device("cpu"), DaliOptions(hw_decoder_load=0.5, threads=1))


def test_it_cuts_files_out_of_memory_and_reads_corners_from_the_bits_of_a_table(pipeline):
    files = [jpeg((40, 30), seed=number) for number in range(3)]
    starts = [0, *np.cumsum([len(file) for file in files])[:-1].tolist()]
    rows = [[start, len(file), 3, 4, 20, 24, 1 << 40] for start, file in zip(starts, files, strict=True)]
    corners = np.array([[0.0, 0.0, 20.0, 24.0], [0.5, 0.25, 16.5, 20.75], [20.0, 24.0, 0.0, 0.0]], dtype=np.float32)
    table = table_of(np.array(rows, dtype=np.int64), corners)
    assert table.dtype == np.int32 and table.shape == (3, 11) and np.array_equal(table[:, 7:].copy().view(np.float32), corners)
    data = torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8)
    pipeline.begin(data, table)
    found = pipeline.end().clone()
    assert found.shape == (3, EDGE, EDGE, 3) and found.dtype is torch.uint8
    mirrored = table.copy()
    mirrored[:, 7:] = np.array(
        [[20.0, 24.0, 0.0, 0.0], [16.5, 20.75, 0.5, 0.25], [0.0, 0.0, 20.0, 24.0]], dtype=np.float32
    ).view(np.int32)
    pipeline.begin(data, mirrored)
    apart = (pipeline.end().flip(1, 2).int() - found.int()).abs()
    assert int(apart.max()) <= 1


def test_batches_of_so_many_images_and_that_size_fit(pipeline):
    assert pipeline.fits(3, (EDGE, EDGE)) and pipeline.fits(1, (EDGE, EDGE)) and pipeline.engine == 0.5
    assert not pipeline.fits(4, (EDGE, EDGE)) and not pipeline.fits(3, (EDGE, 8))


def test_what_was_given_away_already_is_an_error_and_no_end_of_an_iteration(pipeline):
    pipeline.drop()
    with pytest.raises(RuntimeError, match="no results of a batch"):
        pipeline.end()


def test_views_of_memory_are_of_all_of_it_and_some_are_kept(monkeypatch):
    pytest.importorskip("nvidia.dali", reason="NVIDIA DALI is not installed (pip install 'fastfeed[dali]')")
    monkeypatch.setattr(module, "_MOST_MEMORIES", 2)
    memories, whole = module.Memories(), torch.arange(100, dtype=torch.uint8)

    def shapes(data, count):
        return [np.asarray(one).tolist() for one in memories.of(data, count)]

    assert shapes(whole[8:], 3) == [list(range(8, 100))] * 3
    assert shapes(whole[8:20], 2) == [list(range(8, 100))] * 2
    small = torch.from_numpy(whole.numpy()[8:18])  # from the same address on
    assert shapes(small, 2) == [list(range(8, 18))] * 2
    first = memories.of(whole[8:], 2)
    assert memories.of(whole[8:20], 2) is first and len(memories._known) == 2
    memories.of(whole, 5)
    assert memories.of(whole[8:], 2) is first and len(memories._known) == 2


def test_it_is_known_whether_it_is_installed():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", "import nvidia.dali"], capture_output=True, check=False)
    assert is_installed() == (done.returncode == 0)
