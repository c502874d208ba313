"""The border to CUDA: the few things that moving batches asks of a device. Tests have a card of their own here."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

_PORTABLE = 1
"""cudaHostRegisterPortable: for all devices of this process."""


class Card(Protocol):
    """A device with a side stream."""

    device: torch.device

    def side(self) -> AbstractContextManager[Any]:
        """What is done within goes to the side stream."""

    def event(self) -> Any:  # noqa: ANN401 - the device's own
        """An event behind what was given to the side stream so far."""

    def done(self, event: Any) -> bool:  # noqa: ANN401
        """Whether an event has come; without waiting."""

    def wait(self, event: Any) -> None:  # noqa: ANN401
        """What the user's current stream is given from now on comes behind an event."""

    def used(self, tensor: torch.Tensor) -> None:
        """The user's current stream uses a tensor of the side stream: its memory waits for both before it is used again."""

    def is_locked(self, host: torch.Tensor) -> bool:
        """Whether memory is page-locked, so that the device reads it by itself."""

    def staging(self, host: torch.Tensor) -> torch.Tensor:
        """Page-locked memory for a tensor; its values are undefined."""

    def copied(self, host: torch.Tensor) -> torch.Tensor:
        """Begin to copy page-locked memory; the side stream has the tensor."""

    def register(self, address: int, size_bytes: int) -> str | None:
        """Lock pages of this process; why it was refused, or None."""

    def unregister(self, address: int) -> None:
        """Unlock them."""

    def free_bytes(self) -> int:
        """Free memory of the device."""

    def finish(self) -> None:
        """Wait for the side stream."""


class Cuda:
    """A GPU. CUDA is in use from here on.

    Args:
        device: With its number.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def side(self) -> AbstractContextManager[Any]:
        """As Card."""
        found: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return found

    def event(self) -> Any:  # noqa: ANN401
        """As Card."""
        return self._stream.record_event()

    @staticmethod
    def done(event: Any) -> bool:  # noqa: ANN401
        """As Card."""
        return bool(event.query())

    def wait(self, event: Any) -> None:  # noqa: ANN401
        """As Card."""
        torch.cuda.current_stream(self.device).wait_event(event)

    def used(self, tensor: torch.Tensor) -> None:
        """As Card."""
        tensor.record_stream(torch.cuda.current_stream(self.device))

    @staticmethod
    def is_locked(host: torch.Tensor) -> bool:
        """As Card."""
        return host.is_pinned()

    @staticmethod
    def staging(host: torch.Tensor) -> torch.Tensor:
        """As Card: from torch's pool, which gives such memory to others when it was read."""
        return torch.empty_like(host, pin_memory=True)

    def copied(self, host: torch.Tensor) -> torch.Tensor:
        """As Card."""
        return host.to(self.device, non_blocking=True)

    def register(self, address: int, size_bytes: int) -> str | None:
        """As Card."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.device):
            code = int(runtime.cudaHostRegister(address, size_bytes, _PORTABLE))
            if not code:
                return None
            try:  # the runtime keeps an error until somebody asks, which would be the user's next kernel
                torch.ones(1, device=self.device)  # a kernel: memory alone may be set without one
            except RuntimeError as error:
                return f"cudaHostRegister gave error {code}: {str(error).partition(chr(10))[0]}"
        return f"cudaHostRegister gave error {code}"

    def unregister(self, address: int) -> None:
        """As Card."""
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with torch.cuda.device(self.device):
            runtime.cudaHostUnregister(address)

    def free_bytes(self) -> int:
        """As Card."""
        return int(torch.cuda.mem_get_info(self.device)[0])

    def finish(self) -> None:
        """As Card."""
        self._stream.synchronize()


class Here:
    """The processor in the place of a device: nothing is copied, everything is done at once."""

    device = torch.device("cpu")

    @staticmethod
    def side() -> AbstractContextManager[Any]:
        """As Card."""
        return nullcontext()

    @staticmethod
    def event() -> None:
        """As Card: there is none."""

    @staticmethod
    def done(event: None) -> bool:  # noqa: ARG004
        """As Card."""
        return True

    @staticmethod
    def wait(event: None) -> None:
        """As Card: there is nothing to wait for."""

    @staticmethod
    def used(tensor: torch.Tensor) -> None:
        """As Card: there is one stream."""

    @staticmethod
    def is_locked(host: torch.Tensor) -> bool:  # noqa: ARG004
        """As Card: it reads all memory."""
        return True

    @staticmethod
    def staging(host: torch.Tensor) -> torch.Tensor:
        """As Card."""
        return torch.empty_like(host)

    @staticmethod
    def copied(host: torch.Tensor) -> torch.Tensor:
        """As Card: it is there."""
        return host

    @staticmethod
    def register(address: int, size_bytes: int) -> None:
        """As Card: there is nothing to do."""

    @staticmethod
    def unregister(address: int) -> None:
        """As Card."""

    @staticmethod
    def free_bytes() -> int:
        """As Card: none, because what lies here ahead of its turn is memory that workers wait for."""
        return 0

    @staticmethod
    def finish() -> None:
        """As Card."""
