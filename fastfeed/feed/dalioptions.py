"""DaliOptions: how NVIDIA DALI works for a loader, and what of that the plan says."""

from dataclasses import dataclass

import torch

from fastfeed.errors import UsageError
from fastfeed.machine import survey
from fastfeed.units import format_count, format_size

_MOST_THREADS = 8


@dataclass(frozen=True, slots=True)
class DaliOptions:
    """How DALI works. The defaults were measured on an H200 while ResNet-50 trained there."""

    hw_decoder_load: float | None = None
    """The part of images that the GPU's JPEG engine decodes; of the others threads of DALI's decode the Huffman codes, and the
    GPU's other cores the rest. None begins without the engine, which leaves most to training, and tries it where the loop waits
    for DALI (feed/engineload.py); 0.9 loads fastest."""
    threads: int | None = None
    """Threads that read headers, decode what the JPEG engine does not, and feed the GPU; None for 8, or this rank's part of the
    processors where that is less. Without the engine 8 of them decode 5,200 photos a second, 7,600 packed with --jpeg-rows."""
    fancy_upsampling: bool = False
    """Whether the GPU interpolates colours that a JPEG has for every other pixel alone, as decoders on the CPU do; else it
    repeats them. Pixels of such JPEGs are 0.2 levels of 255 from those of the CPU on average with it, 1.2 without. With nvJPEG
    older than 13.2 (torch for CUDA 13.0 brings 13.0) nvImageCodec leaves these images to the CPU, and warns of each."""
    in_flight: int = 2
    """Batches that DALI works at. More hide longer hitches and take more memory of the GPU."""
    batch_bytes: int = 4 << 30
    """Bytes of pixels, before they are resized, that DALI decodes of one batch at most: a bound for the memory of the GPU.
    Workers decode the images beyond. 256 crops of photos of 12 megapixels have 4.6 GB, of ImageNet's 0.1."""

    def __post_init__(self) -> None:
        """Raises UsageError for what nobody can mean."""
        counts = self.in_flight, self.batch_bytes, 1 if self.threads is None else self.threads
        right = 0 <= (self.hw_decoder_load or 0) <= 1 and min(counts) > 0
        if not right:
            msg = "DaliOptions that cannot be"
            raise UsageError(
                msg,
                expected="hw_decoder_load from 0 to 1 or None; threads, in_flight and batch_bytes from 1 on",
                got=repr(self),
            )

    @property
    def num_threads(self) -> int:
        """Threads, settled."""
        return self.threads or max(1, min(_MOST_THREADS, int(survey().share.processors)))

    def told(self, device: torch.device) -> tuple[str, ...]:
        """What was chosen, and why; sentences for the plan."""
        why = "" if self.threads else f", {_MOST_THREADS} or this rank's processors where those are fewer"
        threads = f"{format_count(self.num_threads, 'thread')}{why}"
        if device.type == "cpu":
            return (f"DALI decodes by its own code for CPUs, since device is {device}: {threads}",)
        colours = "interpolated" if self.fancy_upsampling else "repeated"
        return (
            f"DALI decodes on {device}: {threads}; {self.in_flight} batches at a time",
            f"DALI: colours that a JPEG has for every other pixel alone are {colours} (fancy_upsampling)",
            f"DALI keeps memory of the GPU for the {self.in_flight} largest batches it has seen, of which torch does not know",
            f"DALI decodes {format_size(self.batch_bytes)} of pixels of a batch at most (batch_bytes); workers decode the rest",
        )
