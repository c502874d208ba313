"""DaliOptions: what the plan says of them, and which cannot be."""

import pytest
import torch

from fastfeed.errors import UsageError
from fastfeed.feed.dalioptions import DaliOptions

CPU = torch.device("cpu")


def test_options_say_why():
    options = DaliOptions(threads=3)
    assert options.num_threads == 3 and 1 <= DaliOptions().num_threads <= 8
    assert options.told(CPU) == ("DALI decodes by its own code for CPUs, since device is cpu: 3 threads",)
    assert "8 or this rank's processors" in DaliOptions().told(CPU)[0]
    assert "3 threads; 2 batches at a time" in options.told(torch.device("cuda", 0))[0]


@pytest.mark.parametrize(("fancy", "word"), [(False, "repeated"), (True, "interpolated")])
def test_the_plan_says_how_colours_are_made_on_a_gpu(fancy, word):
    told = DaliOptions(fancy_upsampling=fancy).told(torch.device("cuda", 0))
    assert f"are {word} (fancy_upsampling)" in " ".join(told)


def test_the_plan_says_what_a_batch_takes_of_the_gpu_at_most():
    told = DaliOptions(in_flight=3, batch_bytes=5 << 20).told(torch.device("cuda", 0))
    assert "3 largest batches" in told[-2] and "5.0 MiB of pixels of a batch at most (batch_bytes)" in told[-1]


@pytest.mark.parametrize("wrong", [{"hw_decoder_load": 2}, {"threads": 0}, {"in_flight": 0}, {"batch_bytes": 0}], ids=str)
def test_options_that_nobody_can_mean(wrong):
    with pytest.raises(UsageError, match="DaliOptions"):
        DaliOptions(**wrong)
