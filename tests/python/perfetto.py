"""Ask Perfetto's own trace processor about a trace: it reads it in a headless Chromium. Prints the rows of each query, as JSON.

    perfetto.py CHROMIUM VIEWER TRACE [SCREENSHOT] < QUERIES

VIEWER is what scripts/perfetto.sh prints; QUERIES is a list of SQL texts in JSON. With SCREENSHOT the trace is opened in the viewer
itself, too.
"""

import base64
import functools
import http.server
import json
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from browser import Browser, attach

LONGEST = 300


class Handler(http.server.SimpleHTTPRequestHandler):
    """The viewer, the page that drives its processor, and the trace."""

    extra = {}

    def translate_path(self, path):
        name = path.split("?")[0].lstrip("/")
        return str(self.extra[name]) if name in self.extra else super().translate_path(path)

    def log_message(self, *_):
        pass


def too_long(*_):
    raise SystemExit(f"not done after {LONGEST} s")


def screenshot(browser, site, version, trace, path):
    size = {"width": 1600, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser("Emulation.setDeviceMetricsOverride", **size)
    browser("Page.navigate", url=f"{site}/{version}/index.html#!/?url={site}/{trace}")
    # Until the tracks are there: the viewer names each process in the page.
    if not browser.until("document.body !== null && document.body.innerText.includes('rank 1')", 60):
        raise SystemExit("the viewer does not show the trace: " + str(browser.js("document.body.innerText"))[:500])
    # The menu away, the tracks of both ranks open, nearer to what was recorded.
    browser.js("document.querySelector('button').click()")
    title = "[...document.querySelectorAll('.pf-track__title')].find(e => e.innerText.startsWith('rank %d'))"
    for rank in (1, 0):
        box = browser.js(f"(e => [e.getBoundingClientRect().x, e.getBoundingClientRect().y])({title % rank})")
        for kind in ("mousePressed", "mouseReleased"):
            browser("Input.dispatchMouseEvent", type=kind, x=box[0] + 5, y=box[1] + 5, button="left", clickCount=1)
        time.sleep(1)
    browser("Input.dispatchMouseEvent", type="mouseMoved", x=1100, y=300)
    for kind in ("rawKeyDown", "keyUp"):
        browser("Input.dispatchKeyEvent", type=kind, key="w", code="KeyW", windowsVirtualKeyCode=87)
        time.sleep(1.5)
    browser("Input.dispatchMouseEvent", type="mouseMoved", x=1100, y=900)
    time.sleep(3)
    Path(path).write_bytes(base64.b64decode(browser("Page.captureScreenshot", format="png")["data"]))


def main(program, viewer, trace, picture=None):
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST)
    queries = json.load(sys.stdin)
    version = next(folder.name for folder in Path(viewer).iterdir() if (folder / "engine_bundle.js").exists())
    name = Path(trace).name
    # Beside the worker, which looks for its WebAssembly where the page lies.
    page = f"{version}/expctl.html"
    Handler.extra = {page: Path(__file__).with_name("perfetto.html"), name: Path(trace)}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=viewer))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{server.server_address[1]}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            attach(browser)
            browser("Page.navigate", url=f"{site}/{page}")
            browser.until('document.readyState === "complete" && typeof looked === "function"', LONGEST)
            rows = browser.js(f"looked('engine_bundle.js', '/{name}', {json.dumps(queries)})")
            if picture:
                screenshot(browser, site, version, name, picture)
        finally:
            browser.process.kill()
            browser.process.wait()
    print(json.dumps(rows))


main(*sys.argv[1:])
