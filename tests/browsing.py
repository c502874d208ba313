"""A headless Chromium for tests of pages, spoken to over a pipe in its own protocol; without one such tests are skipped."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One tab.

    Args:
        orders: Descriptor that takes messages.
        answers: Descriptor that gives them.
    """

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers, self._numbers = orders, answers, itertools.count(1)
        self._unread, self._session = b"", {}
        self.events: list[dict[str, Any]] = []
        """What the browser told of itself: requests, console messages, errors."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            data = os.read(self._answers, 1 << 20)
            assert data, "the browser has ended"
            self._unread += data
        message, _, self._unread = self._unread.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the DevTools protocol; its result."""
        number = next(self._numbers)
        message = json.dumps({"id": number, "method": method, "params": parameters, **self._session}).encode() + b"\0"
        while message:
            message = message[os.write(self._orders, message) :]
        while True:
            told = self._next()
            if told.get("id") == number:
                assert "error" not in told, told
                found: dict[str, Any] = told["result"]
                return found
            self.events.append(told)

    def open(self, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        """Show a file."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        told = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def complaints(self) -> list[Any]:
        """Errors and console messages since the page was opened."""
        methods = {"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"}
        return [event["params"] for event in self.events if event["method"] in methods]

    def requests(self) -> list[str]:
        """What the page has loaded, but for images that are in it."""
        urls = [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]

    def picture(self, path: Path) -> None:
        """A PNG of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A fresh Chromium; the test skips where there is none."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"no Chromium here ({', '.join(_NAMES)})")
    takes, orders = os.pipe()
    answers, gives = os.pipe()
    with tempfile.TemporaryDirectory(prefix="fastfeed-browser-") as profile:
        # The protocol's pipe is descriptors 3 and 4.
        command = ["bash", "-c", f'exec "$0" "$@" 3<&{takes} 4>&{gives}', program, *_OPTIONS, f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            command, pass_fds=(takes, gives), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "HOME": profile},
        )  # fmt: skip
        os.close(takes)
        os.close(gives)
        try:
            yield Browser(orders, answers)
        finally:
            os.close(orders)
            os.close(answers)
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
