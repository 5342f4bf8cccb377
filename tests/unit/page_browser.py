"""A browser for tests of pages: Chromium without a window, driven over its DevTools pipe."""
from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
          "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
          "--remote-debugging-pipe", "--disable-dev-shm-usage")


class Browser:
    """One page in one browser.

    Attributes
    ----------
    problems : list of str
        What the page wrote to the console, threw, or was refused, and every request for something other than a file.
    """

    def __init__(self, sender: int, receiver: int):
        self.sender, self.receiver = sender, receiver
        self.problems: list[str] = []
        self.unread = b""
        self.number = 0
        target = self.ask("Target.createTarget", {"url": "about:blank"}, root=True)["targetId"]
        self.session = self.ask("Target.attachToTarget", {"targetId": target, "flatten": True}, root=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, params: dict | None = None, root: bool = False) -> dict:
        """The answer to one command; events that arrive before it are looked at."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if not root:
            message["sessionId"] = self.session
        os.write(self.sender, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.look_at(answer)

    def receive(self, seconds: float = 60) -> dict:
        end = time.monotonic() + seconds
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.receiver], [], [], max(end - time.monotonic(), 0))
            assert ready, "the browser does not answer"
            data = os.read(self.receiver, 1 << 20)
            assert data, "the browser has ended"
            self.unread += data
        text, _, self.unread = self.unread.partition(b"\0")
        return json.loads(text)

    def look_at(self, event: dict) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.problems.append(f"console: {params['args']}")
        elif method == "Runtime.exceptionThrown":
            self.problems.append(f"exception: {params['exceptionDetails']}")
        elif method == "Log.entryAdded":
            self.problems.append(f"log: {params['entry']}")
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "about:")):
            self.problems.append(f"request: {params['request']['url']}")

    def run(self, script: str):
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.ask("Runtime.evaluate", {"expression": script, "returnByValue": True, "awaitPromise": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def open(self, url: str, seconds: float = 60) -> None:
        """Go to a page and wait until its script is ready."""
        self.ask("Page.navigate", {"url": "about:blank"})
        self.ask("Page.navigate", {"url": url})
        end = time.monotonic() + seconds
        while not self.run("'ready' in (document.documentElement?.dataset ?? {})"):
            assert time.monotonic() < end, "the page did not become ready"
            time.sleep(0.02)

    def size(self, width: int, height: int, dark: bool = False) -> None:
        self.ask("Emulation.setDeviceMetricsOverride",
                 {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        self.ask("Emulation.setEmulatedMedia",
                 {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def key(self, key: str) -> None:
        """Press a key as a user does."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", {"type": kind, "key": key, "text": text if kind == "keyDown" else "",
                                                "windowsVirtualKeyCode": 13 if key == "Enter" else 0})

    def click(self, selector: str) -> None:
        """Click in the middle of the first part of an element that can be seen."""
        x, y = self.run(f"(() => {{ const b = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
                        "return [b.left + Math.min(b.width / 2, 60), b.top + Math.min(b.height / 2, 9)]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1})

    def picture(self, path: str | Path) -> None:
        Path(path).write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    """A running browser."""
    to_browser, sender = os.pipe()
    receiver, from_browser = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = (f'exec "$@" --user-data-dir="{profile}" about:blank 3<&{to_browser} 4>&{from_browser}')
        process = subprocess.Popen(["bash", "-c", command, "bash", CHROMIUM, *_FLAGS], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, pass_fds=(to_browser, from_browser))
        os.close(to_browser)
        os.close(from_browser)
        try:
            yield Browser(sender, receiver)
        finally:
            os.close(sender)
            os.close(receiver)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
