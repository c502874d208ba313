import random
import time

import numpy as np
import pytest
import torch

from fastfeed.auditor.record import SampleRecord
from fastfeed.auditor.running.subject import Stages, one_thread, other_draws


def test_stages_add_up_and_do_not_overlap():
    record = SampleRecord(0)
    stages = Stages(record)
    with stages.span("decode", 0):
        for _ in range(2):
            with stages.span("read", 0):
                time.sleep(0.03)
    assert record.times["read"].wall >= 0.06
    assert record.times["decode"].wall < 0.03
    assert record.times["read"].blocked is None or record.times["read"].blocked > 0.03


def test_a_stage_that_raises_has_a_time():
    record = SampleRecord(0)
    with pytest.raises(ValueError, match="mine"), Stages(record).span("decode", 0):
        raise ValueError("mine")
    assert set(record.times) == {"decode"}


def test_draws_are_other_ones():
    def draws():
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    kept = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    try:
        found = []
        for _ in range(2):
            random.seed(1)
            np.random.seed(1)
            torch.manual_seed(1)
            other_draws()
            found.append(draws())
        assert all(a != b for a, b in zip(*found, strict=True))
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.random.set_rng_state(kept[2])


def test_one_thread():
    before = torch.get_num_threads()
    try:
        one_thread()
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
