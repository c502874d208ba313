"""Where a loader is in its order: what is saved, and gone on from."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from fastfeed.errors import NotResumable, UsageError
from fastfeed.feed.drawing import drawn_from
from fastfeed.feed.engine import EpochIterator, Handed
from fastfeed.feed.order import OrderSampler

_VERSION = 1
RESUMPTION = ("state_dict", "load_state_dict")


class Position:
    """Of one loader with an order of ours, which has the two methods as attributes.

    It does not know its loader: a circle would keep the workers of a dropped loader until it is collected.

    Args:
        order: What is drawn from.
        batch_sampler: Of the loader.
    """

    def __init__(self, order: OrderSampler, batch_sampler: Any) -> None:  # noqa: ANN401 - any batch sampler
        self.order, self._batch_sampler = order, batch_sampler
        self.handed: Handed | None = None
        """Of the pass that was begun last, unless a position was loaded since."""
        self._sorted = True

    def __copy__(self) -> "Position":
        found = Position(self.order, self._batch_sampler)
        found.handed, found._sorted = copy.copy(self.handed), self._sorted
        return found

    def begin(self, begun: EpochIterator) -> None:
        """A pass was begun; it is not kept: when its user drops it, its workers shall end."""
        self.handed, options = begun.handed, begun.made.options
        self._sorted = options.sorts or not options.num_workers

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch is, by the batches that were handed out: a few numbers, the same on every rank.

        Raises:
            UsageError: Batches were handed out as they came.
        """
        if not self._sorted:
            msg = "with in_order=False the batches that were handed out are no beginning of the order: there is no position"
            raise UsageError(msg, hint="Leave in_order out.")
        own, handed = self.order, self.handed
        if handed is None:
            return {"version": _VERSION, "order": dict(own.state(0))}
        left, batch = own.share.length - handed.samples, self._batch_sampler
        ends = getattr(batch, "drop_last", False) and left < getattr(batch, "batch_size", 1)  # what is left makes no batch
        return {"version": _VERSION, "order": dict(own.state(handed.samples + left if ends else handed.samples))}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The next iteration goes on behind the last batch that was handed out; workers and ranks may be others by then.

        Raises:
            UsageError: The state is of another order, or no state.
        """
        if state_dict.get("version") != _VERSION or not isinstance(state_dict.get("order"), Mapping):
            msg = "this is no state of a fastfeed.DataLoader"
            raise UsageError(msg, expected=f"version {_VERSION}", got=repr(state_dict.get("version")))
        self.order.load(state_dict["order"])
        self.handed = None


def why_none(order: OrderSampler | None, *, disabled: bool, sorts: bool) -> NotResumable | None:
    """Why a loader has no positions; None where it has.

    Args:
        order: Of ours that is drawn from.
        disabled: Whether it is torch's loader alone.
        sorts: Whether batches come in their order.
    """
    if disabled:
        msg = "FASTFEED_DISABLE=1 leaves torch's own loader, which has no position to save or to go on from"
        return NotResumable(msg)
    if order is None:
        msg = "only an order of the loader's own can be gone on with"
        return NotResumable(msg, hint="Give seed= (or distributed=), and no sampler or batch_sampler.")
    if not sorts:
        msg = "with in_order=False the batches that are handed out are no beginning of the order: there is no position"
        return NotResumable(msg, hint="Leave in_order out.")
    return None


class PositionedLoader:
    """What a loader knows of its position: the part of DataLoader that can be saved and gone on from."""

    sampler: Any
    batch_sampler: Any
    disabled: bool
    in_order: bool
    num_workers: int
    _position: Position | None

    @property
    def _own(self) -> OrderSampler | None:
        """The order of ours that is drawn from: the sampler, or what a batch sampler draws from."""
        given = drawn_from(self.sampler, self.batch_sampler)
        return given if isinstance(given, OrderSampler) else None

    @property
    def valid(self) -> torch.Tensor:
        """Which samples of the batch that was handed out last are no padding; bool, shape (samples,). See distributed."""
        handed = None if self._position is None else self._position.handed
        if self._position is None or handed is None or not handed.batches:
            msg = "valid is of the last batch of a loader with an order of its own (seed= or distributed=)"
            raise UsageError(msg)
        return torch.from_numpy(self._position.order.share.valid(handed.start, handed.start + handed.count))

    if TYPE_CHECKING:

        def state_dict(self) -> dict[str, Any]:
            """As Position.state_dict, which it is where there are positions."""

        def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
            """As Position.load_state_dict."""

    else:  # the class has no such methods: by typing's rules each of its instances would have them

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401
            """An attribute that is not there; of the two above it is said why."""
            why = self._unresumable() if name in RESUMPTION and "sampler" in self.__dict__ else None
            if why is not None:
                raise why
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg, name=name, obj=self)

    def _show_position(self) -> None:
        """Have state_dict and load_state_dict where there are positions; those of a subclass are its own business."""
        if self._position is not None and self._unresumable() is None:
            own = {name: getattr(self._position, name) for name in RESUMPTION if not hasattr(type(self), name)}
            self.__dict__.update(own)

    def _unresumable(self) -> NotResumable | None:
        """Why there are no positions; None where there are."""
        return why_none(self._own, disabled=self.disabled, sorts=self.in_order or not self.num_workers)
