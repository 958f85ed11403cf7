"""A real browser with one page, driven through its pipe (the Chrome DevTools Protocol)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from time import monotonic
from typing import Any

SECONDS = 60.0
"""Longest wait for an answer of the browser."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


WIRED = """
import fcntl, os, sys
# Above both first: one of them may stand where the other one goes.
ours = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
for place, number in enumerate(ours, 3):
    os.dup2(number, place)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The protocol's pipes are the file descriptors 3 and 4 of the browser."""


def browser_path() -> str | None:
    """Path of an installed browser that speaks the protocol."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """A page in a browser; `heard` is all that the browser reported unasked."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self.heard: list[dict[str, Any]] = []
        self._to_browser = to_browser
        self._from_browser = from_browser
        self._session = ""
        self._last = 0
        self._rest = b""

    def open(self, path: Path, *, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        """Show a file, and wait until it is loaded; forgets earlier messages."""
        self._session = ""
        self.heard.clear()
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=path.as_uri())
        self._read_until(lambda told: told.get("method") == "Page.loadEventFired")

    def run(self, script: str) -> Any:
        """The value of a script."""
        done = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait(self, script: str) -> None:
        """Return when a script is true."""
        deadline = monotonic() + SECONDS
        while not self.run(script):
            assert monotonic() < deadline, f"waited in vain for {script}"

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self.ask("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False, text: str = "") -> None:
        """Press a key and let it go."""
        about = {"key": key, "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown", text=text, **about)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **about)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Save a screenshot of the page as a PNG file."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self) -> list[str]:
        """Errors, and violations of the page's own policy."""
        return [
            str(told["params"])
            for told in self.heard
            if told["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")
        ]

    def loaded(self) -> list[str]:
        """Every address that the browser asked for."""
        return [
            told["params"]["request"]["url"]
            for told in self.heard
            if told["method"] == "Network.requestWillBeSent"
        ]

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """The answer to a command."""
        self._last += 1
        number = self._last
        command: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(command).encode() + b"\0")
        answer = self._read_until(lambda told: told.get("id") == number)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def _read_until(self, wanted: Any) -> dict[str, Any]:
        deadline = monotonic() + SECONDS
        while True:
            while b"\0" in self._rest:
                raw, _, self._rest = self._rest.partition(b"\0")
                told: dict[str, Any] = json.loads(raw)
                if "method" in told:
                    self.heard.append(told)
                if wanted(told):
                    return told
            ready, _, _ = select([self._from_browser], [], [], max(0.0, deadline - monotonic()))
            assert ready, "the browser does not answer"
            piece = os.read(self._from_browser, 1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A browser without a window for the block; its profile is in `folder`."""
    program = browser_path()
    assert program is not None, "no browser: install chromium, as .ci/run does"
    to_browser, from_us = os.pipe(), os.pipe()
    command = [
        *(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", WIRED, str(to_browser[0]), str(from_us[1]), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_browser[0], from_us[1]),
        env={**os.environ, "HOME": str(folder)},
    )
    os.close(to_browser[0])
    os.close(from_us[1])
    try:
        yield Page(to_browser[1], from_us[0])
    finally:
        process.kill()
        process.wait(SECONDS)
        os.close(to_browser[1])
        os.close(from_us[0])
