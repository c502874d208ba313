"""The way onto a device of batches whose images are decoded there: Encoded goes to the decoder, everything else as usual.

A decoder works at several batches, begun in the order in which they will be handed out. Its results become part of a batch
when that is handed out, on the side stream, so that what is still to be made of their bytes runs beside the step before.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from fastfeed.feed.dali import Begun, DaliDecoder
from fastfeed.feed.dalioptions import DaliOptions
from fastfeed.feed.decode.encoded import Encoded
from fastfeed.feed.decode.whole import Unfinished
from fastfeed.feed.engineload import EngineLoad, engine_load
from fastfeed.feed.lane import Lane, Moved

_CHANNELS = 3
_REST = "DALI gets baseline JPEGs of which headers tell nothing odd; workers decode the others on the CPU, as told above"
_BROKEN = "batches decoded on the CPU: DALI's pipeline broke"


class Decoding(NamedTuple):
    """A batch on its way, its images in the decoder."""

    moved: Moved
    """The batch without its images."""
    image: str | int
    """Which part of it they are: a name in a dict, else a number."""
    begun: Begun
    """What the decoder knows them by."""
    unfinished: Unfinished | None
    """What is still to be made of them."""
    size_bytes: int
    """Memory of the device."""


class DecodingLane:
    """A lane for the batches of one pass.

    Args:
        lane: For everything that is not Encoded.
        decoder: Nobody else uses it meanwhile.
        last: Whether images shall have their channels last in memory.
    """

    def __init__(self, lane: Lane, decoder: DaliDecoder, *, last: bool) -> None:
        self._lane, self.decoder, self._last = lane, decoder, last
        self.over = False
        """Whether all batches of the pass were handed out: somebody may hold it still, such as a traceback."""

    @property
    def ahead_bytes(self) -> int:
        """As Lane's."""
        return self._lane.ahead_bytes

    def release(self) -> None:
        """As Lane's."""
        self._lane.release()

    def ended(self) -> None:
        """As Lane's: the decoder is free for the next pass."""
        self.over = True

    def move(self, data: Any, unfinished: Unfinished | None = None) -> "Moved | Decoding":  # noqa: ANN401 - any batch
        """Begin to move a batch, and to decode its images; otherwise as Lane's."""
        image = _place_of_encoded(data)
        if image is None:
            return self._lane.move(data, unfinished)
        encoded = data[image]
        rest = data.copy()
        rest[image] = None
        moved = self._lane.move(rest)
        begun = self.decoder.begin(encoded)
        height, width = encoded.size
        return Decoding(moved, image, begun, unfinished, moved.size_bytes + encoded.images * height * width * _CHANNELS)

    def hand(self, moved: "Moved | Decoding") -> Any:  # noqa: ANN401 - the batch
        """A batch for the user's current stream, which waits until it is there.

        Raises:
            DecodeError: An image is damaged.
            RuntimeError: DALI's.
            Exception: What objects raise that move themselves.
        """
        if isinstance(moved, Moved):
            return self._lane.hand(moved)
        card = self._lane.card
        with card.side(), torch.inference_mode(mode=False):  # as Lane.move
            images = self.decoder.take(moved.begun).permute(0, 3, 1, 2)
            images = images if self._last else images.contiguous()
            if moved.unfinished is not None:
                images = moved.unfinished.levels.applied(images)
            event = card.event()
        data = self._lane.hand(moved.moved)
        card.wait(event)
        card.used(images)
        data[moved.image] = images
        return data


def _place_of_encoded(data: Any) -> str | int | None:  # noqa: ANN401 - any batch
    """Which part of a batch is Encoded; None where there is none."""
    parts = data.items() if type(data) is dict else enumerate(data) if type(data) is list else ()
    return next((name for name, part in parts if type(part) is Encoded), None)


class Decoders:
    """The decoder of a loader: kept for the next pass, where the pass before is over.

    Args:
        options: How DALI works.
        last: Whether images shall have their channels last in memory.
    """

    def __init__(self, options: DaliOptions, *, last: bool) -> None:
        self.options, self._last = options, last
        self._decoder: DaliDecoder | None = None
        self._user: weakref.ref[DecodingLane] | None = None
        self._engine: EngineLoad | None = None
        """What was found about the GPU's JPEG engine, by all passes."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_decoder": None, "_user": None, "_engine": None}

    def told(self, device: torch.device | None) -> tuple[str, ...]:
        """How they are decoded; sentences for the plan.

        Args:
            device: Where; None before that is settled.
        """
        if device is None:
            return (_REST,)
        engine = () if device.type == "cpu" or self._engine is None else (self._engine.told,)
        return (*self.options.told(device), *engine, _REST)

    def counted(self) -> dict[str, int]:
        """Pipelines that broke since this was asked last, by the counter's name; nothing where none did."""
        decoder = self._decoder
        if decoder is None or not decoder.broken:
            return {}
        broken, decoder.broken = decoder.broken, 0
        return {_BROKEN: broken}

    def lane(self, lane: Lane) -> DecodingLane:
        """For the batches of a pass.

        Args:
            lane: The way onto the device.
        """
        decoder, device = self._decoder, lane.card.device
        user = None if self._user is None else self._user()
        if decoder is None or decoder.device != device:
            self._engine = engine_load(device, self.options)
        if decoder is None or decoder.device != device or (user is not None and not user.over):
            decoder = DaliDecoder(device, self.options, self._engine)  # two passes at once need one each
        decoder.forget()
        self._decoder, found = decoder, DecodingLane(lane, decoder, last=self._last)
        self._user = weakref.ref(found)
        return found

    def lanes(self, lane_of: Callable[[], Lane]) -> Callable[[], DecodingLane]:
        """What gives the lane of one pass, always the same one.

        Args:
            lane_of: Gives the way onto the device.
        """
        found: list[DecodingLane] = []

        def lane() -> DecodingLane:
            if not found:
                found.append(self.lane(lane_of()))
            return found[0]

        return lane
