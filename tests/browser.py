"""A headless Chromium for tests of pages: what it asks for, says, and shows.

It speaks the DevTools protocol. Debian's package is called chromium.
"""

import asyncio
import base64
import os
import shutil
import subprocess
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

NAMES = ("chromium", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--no-first-run",
    "--disable-extensions",
    "--disable-component-update",
    "--disable-background-networking",
    "--remote-debugging-port=0",
)


class Tab:
    """One page, and what has happened in it."""

    def __init__(self, socket):
        self.socket = socket
        self.n_sent = 0
        self.events = []

    async def send(self, method, **params):
        self.n_sent += 1
        await self.socket.send_json(
            {"id": self.n_sent, "method": method, "params": params}
        )
        while True:
            answer = await self.socket.receive_json(timeout=30)
            if answer.get("id") == self.n_sent:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    async def open(self, path, *, width=1280, height=900, scheme="light"):
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.send(f"{domain}.enable")
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)
        self.events.clear()
        await self.send("Page.navigate", url=Path(path).resolve().as_uri())
        for _ in range(200):
            if await self.run("document.readyState") == "complete":
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)
        await self.run("0")

    async def run(self, code):
        result = await self.send(
            "Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def press(self, key, code=0, text=None):
        for kind in ("keyDown", "keyUp"):
            params = {"type": kind, "key": key, "windowsVirtualKeyCode": code}
            if text and kind == "keyDown":
                params["text"] = text
            await self.send("Input.dispatchKeyEvent", **params)

    async def picture(self, path):
        size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {**size, "scale": 1}
        shot = await self.send(
            "Page.captureScreenshot", captureBeyondViewport=True, clip=clip
        )
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def asked_for(self):
        """Addresses of all requests."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def said(self):
        """Messages of the console, errors, dialogs."""
        kinds = {
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        }
        return [event for event in self.events if event.get("method") in kinds]


@asynccontextmanager
async def tab():
    """A new Chromium with one tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        sandbox = ["--no-sandbox"] if os.getuid() == 0 else []
        process = subprocess.Popen(
            [CHROMIUM, *FLAGS, *sandbox, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            port = Path(folder, "DevToolsActivePort")
            for _ in range(600):
                if port.exists() and port.read_text().count("\n"):
                    break
                await asyncio.sleep(0.05)
            number = port.read_text().split()[0]
            async with aiohttp.ClientSession() as session:
                async with session.get(
                    f"http://127.0.0.1:{number}/json/list"
                ) as answer:
                    pages = [p for p in await answer.json() if p["type"] == "page"]
                address = pages[0]["webSocketDebuggerUrl"]
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    yield Tab(socket)
        finally:
            process.terminate()
            process.wait(20)
