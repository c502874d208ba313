"""The random numbers of crops and flips: torchvision's, from any state of the generator."""

import random

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import equal, seed_all, states

from fastfeed.feed.decode.box import Box
from fastfeed.feed.decode.draws import RandomBox, States, asked, below, chance, drawn_box, stand_in

GET = v1.RandomResizedCrop.get_params
SIZES = st.integers(1, 5000)
SCALES = st.tuples(st.floats(0.001, 1), st.floats(0.001, 2)).map(sorted)
RATIOS = st.tuples(st.floats(0.05, 20), st.floats(0.05, 20)).map(sorted)


@settings(max_examples=300, deadline=None)
@given(SIZES, SIZES, SCALES, RATIOS, st.integers(0, 2**63 - 1))
def test_boxes_are_torchvisions(height, width, scale, ratio, seed):
    torch.manual_seed(seed)
    one, after = RandomBox(scale, ratio)(height, width), torch.get_rng_state()
    torch.manual_seed(seed)
    assert one == Box(*GET(stand_in(height, width), scale, ratio))
    assert torch.equal(after, torch.get_rng_state())
    assert 0 <= one.top <= one.top + one.height <= height and 0 <= one.left <= one.left + one.width <= width


@given(st.integers(0, 2**63 - 1), st.integers(1, 10_000), st.floats(0, 1))
@settings(deadline=None)
def test_single_numbers_are_torchs(seed, stop, probability):
    torch.manual_seed(seed)
    ours = below(stop), chance(float(np.float32(probability))), torch.get_rng_state()
    torch.manual_seed(seed)
    theirs = torch.randint(0, stop, size=(1,)).item(), bool(torch.rand(1) < probability), torch.get_rng_state()
    assert equal(ours, theirs)


def test_a_picture_without_pixels_has_a_size():
    image = stand_in(3, 5)
    assert (image.size, image.mode) == ((5, 3), "RGB")
    assert v1.functional.get_dimensions(image) == [3, 3, 5]


def test_ours_is_taken_where_it_draws_the_same_and_no_number_is_used_up():
    before = states()
    assert isinstance(drawn_box(asked(GET, (0.08, 1.0), (0.75, 4 / 3)), (0.08, 1.0), (0.75, 4 / 3)), RandomBox)
    assert equal(states(), before)


def test_theirs_is_taken_where_it_draws_otherwise():
    def other(image, scale, ratio):
        return 0, 0, 1, 1

    draw = drawn_box(asked(other, (0.08, 1.0), (0.75, 4 / 3)), (0.08, 1.0), (0.75, 4 / 3))
    assert draw(50, 50) == Box(0, 0, 1, 1)
    assert not isinstance(draw, RandomBox)


def test_what_the_step_itself_refuses_is_refused():
    with pytest.raises(RuntimeError):
        drawn_box(asked(GET, (1.0, 0.5), (0.75, 4 / 3)), (1.0, 0.5), (0.75, 4 / 3))


@pytest.mark.parametrize("python", [True, False])
def test_states_go_back(python):
    seed_all(3)
    before, kept = states(), States(python=python)
    torch.rand(1)
    if python:
        random.random()
    kept.restore()
    assert equal(states(), before)
