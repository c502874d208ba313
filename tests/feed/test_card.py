"""fastfeed/feed/card.py where there is no GPU; with one, tests/gpu is about it."""

import torch
from fakecuda import LateCard

from fastfeed.feed.card import Card, Cuda, Here


def test_all_cards_have_what_is_asked_of_one():
    asked = {name for name in vars(Card) if not name.startswith("_")}
    for card in (Cuda, Here, LateCard):
        assert asked <= set(dir(card)), card


def test_the_processor_copies_nothing():
    card, host = Here(), torch.ones(3)
    with card.side():
        assert card.copied(host) is host
    assert card.is_locked(host) and card.register(0, 1) is None and card.done(card.event())
    assert card.staging(host).shape == host.shape and card.free_bytes() == 0


def test_the_fake_is_late():
    card, host = LateCard(), torch.ones(3)
    made = card.copied(host)
    event = card.event()
    assert not card.done(event) and made.tolist() == [127.0] * 3
    card.wait(event)
    assert card.done(event) and made.tolist() == [1.0] * 3
