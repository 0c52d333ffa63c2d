"""A real browser, Chromium without a window, steered over a pipe: what it loads, says, asks for and shows.

Nothing is downloaded: where there is no Chromium, there is no browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE_S = 60.0


def chromium() -> str | None:
    """The program, where it is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page in a fresh profile; `said` is its console, `asked` every address that it requested."""

    def __init__(self, program: str, profile: Path) -> None:
        self.said: list[str] = []
        self.asked: list[str] = []
        self._number = 0
        self._rest = b""
        self._events: list[dict[str, Any]] = []
        commands, self._to = os.pipe()
        self._from, answers = os.pipe()
        options = (
            "--headless --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run --disable-sync "
            "--disable-extensions --disable-background-networking --disable-component-update "
            f"--hide-scrollbars --user-data-dir={profile} about:blank"
        )
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" {options} 3<&{commands} 4>&{answers}', program],
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._session: str | None = None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        self._process.kill()
        self._process.wait()
        os.close(self._from)

    def open(self, page: Path) -> float:
        """Load a file; the seconds until it is there."""
        began = time.monotonic()
        self.send("Page.navigate", url=page.as_uri())
        self._until("Page.loadEventFired")
        return time.monotonic() - began

    def value(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def window(self, width: int, height: int, *, dark: bool = False, printed: bool = False) -> None:
        """How large the window is, and what the reader prefers."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.send(
            "Emulation.setEmulatedMedia",
            media="print" if printed else "",
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def picture(self, path: Path) -> None:
        """What the window shows, as PNG."""
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while True:
            message = self._next()
            if message.get("id") == self._number:
                assert "error" not in message, message
                answer: dict[str, Any] = message["result"]
                return answer
            self._events.append(message)

    def _until(self, event: str) -> None:
        for message in self._events:
            if message.get("method") == event:
                self._events.clear()
                return
        while self._next().get("method") != event:
            pass
        self._events.clear()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], _PATIENCE_S)
            assert ready, "the browser says nothing"
            read = os.read(self._from, 1 << 20)
            assert read, "the browser is gone"
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.said.append(f"console: {params['args']}")
            case "Runtime.exceptionThrown":
                self.said.append(f"exception: {params['exceptionDetails']}")
            case "Log.entryAdded":
                self.said.append(f"{params['entry']['level']}: {params['entry']['text']}")
            case "Network.requestWillBeSent":
                self.asked.append(params["request"]["url"])
            case _:
                pass
