"""A headless Chromium, driven by the DevTools protocol over a pipe."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--no-first-run", "--disable-background-networking", "--remote-debugging-pipe")  # fmt: skip


class Browser:
    """One tab. ``events`` holds what the browser reported: console messages, requests, errors."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        read, self.write = os.pipe()
        self.read, write = os.pipe()
        words = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        script = f'exec "$@" 3<&{read} 4>&{write}'  # the browser uses these two for the protocol
        self.process = subprocess.Popen(
            ["bash", "-c", script, "-", *words], pass_fds=(read, write), stderr=subprocess.DEVNULL
        )
        os.close(read)
        os.close(write)
        self.rest, self.number, self.events = b"", 0, list[dict[str, Any]]()
        self.session: str | None = None
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; events that arrive before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            piece = os.read(self.read, 1 << 20)
            assert piece, "the browser has exited"
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def wait_for(self, event: str) -> None:
        while not any(e["method"] == event for e in self.events):
            self._next()

    def open(self, page: Path, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        self.look(dark)
        self.size(width, height)
        self.events.clear()
        self.send("Page.navigate", url=page.resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def look(self, dark: bool) -> None:
        """Switch between light and dark mode."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def size(self, width: int, height: int) -> None:
        phone = width < 500
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def hover(self, x: float, y: float) -> None:
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x - 3, y=y)
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, whole: bool = True) -> None:
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[str]:
        """Return errors and warnings on the console, exceptions and blocked requests."""
        found = []
        for e in self.events:
            p = e["params"]
            if (e["method"] == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert")) or e[
                "method"
            ] == "Runtime.exceptionThrown":
                found.append(str(p))
            if e["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                found.append(p["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]
