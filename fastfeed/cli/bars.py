"""How far a long job is, on stderr: a bar on a terminal, a line a minute in a log."""

import sys
import time
from typing import TYPE_CHECKING

from fastfeed.cli.render import console
from fastfeed.trace import Progress
from fastfeed.units import format_seconds, format_size

if TYPE_CHECKING:
    from rich.progress import TaskID

_PLAIN_SECONDS = 60.0


def progress() -> Progress:
    """A bar where stderr is a terminal, else a plain line a minute."""
    return _Bar() if sys.stderr.isatty() else _Plain()


class _Bar:
    """Items/s, bytes/s and time left, redrawn in place."""

    def __init__(self) -> None:
        from rich import progress as bars  # noqa: PLC0415

        items, size = "{task.fields[items]:>10} {task.fields[rate]:>9}/s", "{task.fields[size]:>17} {task.fields[speed]:>12}"
        columns = (bars.TextColumn("{task.description:<7}"), bars.BarColumn(), bars.TextColumn(items), bars.TextColumn(size),
                   bars.TimeRemainingColumn())  # fmt: skip
        self._progress = bars.Progress(*columns, console=console(to_stderr=True), transient=True)
        self._items = self._bytes = 0
        self._began = 0.0
        self._task: TaskID | None = None

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        """Begin a stage."""
        self._items = self._bytes = 0
        self._began, self._of, self._of_bytes = time.monotonic(), items, size_bytes
        total = items if size_bytes is None else size_bytes  # rows have no sizes before they are read
        self._task = self._progress.add_task(stage, total=total, items="0", rate="0", size=self._size(), speed="")
        self._progress.start()

    def advance(self, items: int, size_bytes: int) -> None:
        """More is done."""
        self._items, self._bytes = self._items + items, self._bytes + size_bytes
        passed = max(1e-9, time.monotonic() - self._began)
        shown = f"{self._items:,}" + (f"/{self._of:,}" if self._of is not None else "")
        facts = {
            "rate": f"{self._items / passed:,.0f}",
            "size": self._size(),
            "speed": f"{format_size(self._bytes / passed)}/s" if self._bytes else "",
        }
        if self._task is not None:
            done = items if self._of_bytes is None else size_bytes
            self._progress.update(self._task, advance=done, items=shown, **facts)  # type: ignore[arg-type]

    def _size(self) -> str:
        if self._of_bytes is None and not self._bytes:
            return ""
        return format_size(self._bytes) + (f"/{format_size(self._of_bytes)}" if self._of_bytes is not None else "")

    def finish(self) -> None:
        """End a stage: the bar goes, the result stays."""
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._progress.stop()
            self._task = None


class _Plain:
    """One line a minute, for logs."""

    def start(self, stage: str, items: int | None, size_bytes: int | None) -> None:
        """Begin a stage."""
        self._stage, self._of, self._of_bytes = stage, items, size_bytes
        self._items = self._bytes = 0
        self._began = self._last = time.monotonic()

    def advance(self, items: int, size_bytes: int) -> None:
        """More is done; a line if the last one is a minute old."""
        self._items, self._bytes = self._items + items, self._bytes + size_bytes
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS:
            self._last, passed = now, now - self._began
            left = ""
            done, all_of = (self._items, self._of) if self._of_bytes is None else (self._bytes, self._of_bytes)
            if all_of and done:
                left = f", {format_seconds(passed * max(0, all_of - done) / done)} left"
            noun = (
                "samples"
                if self._stage in {"audit", "measure"} or (self._stage == "pack" and self._of_bytes is None)
                else "files"
            )
            of = f" of {self._of:,}" if self._of is not None else ""
            rates = f"{self._items / passed:,.0f}/s, {format_size(self._bytes / passed)}/s"
            print(
                f"fastfeed {self._stage}: {self._items:,}{of} {noun}, {format_size(self._bytes)}, {rates}{left}",
                file=sys.stderr,
                flush=True,
            )

    def finish(self) -> None:
        """End a stage."""
