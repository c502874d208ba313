"""Which epoch the next iteration draws, and where in it it begins."""

from dataclasses import dataclass


@dataclass(slots=True)
class Cursor:
    """Epochs go on by themselves unless set_epoch() says which; a loaded position is used once.

    A begun iteration makes its epoch count as begun, however far it comes: the next one is the next epoch.
    """

    epoch: int = 0
    """The epoch that was begun last; or, after set_epoch and load, the one that they name."""
    start: int = 0
    """Samples, over all ranks, that the next iteration of this epoch leaves out."""
    begun: bool = False
    """Nothing of this epoch is to come: the next iteration is the next epoch."""
    loaded: bool = False
    """The start comes from load() and was not used yet."""

    def set_epoch(self, epoch: int) -> int:
        """The next iteration is this epoch: from a position that was loaded for it, else from its beginning.

        Returns:
            The samples into another epoch that a loaded position was, which is dropped; else 0.
        """
        kept = self.loaded and epoch == self.epoch
        dropped = self.start if self.loaded and not kept and not self.begun else 0
        self.epoch, self.start, self.begun, self.loaded = epoch, self.start if kept else 0, False, kept
        return dropped

    def load(self, epoch: int, start: int, *, finished: bool) -> None:
        """The next iteration goes on from a position; if its epoch is finished, it is the next epoch."""
        self.epoch, self.start, self.begun, self.loaded = epoch, start, finished, True

    def coming(self) -> tuple[int, int]:
        """(epoch, start) of the next iteration."""
        return (self.epoch + 1, 0) if self.begun else (self.epoch, self.start)

    def begin(self) -> tuple[int, int]:
        """(epoch, start) of an iteration that begins now."""
        self.epoch, start = self.coming()
        self.start, self.begun, self.loaded = 0, True, False
        return self.epoch, start
