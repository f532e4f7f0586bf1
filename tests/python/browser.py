"""A headless Chromium, spoken to by the DevTools protocol through pipes; the standard library does."""

import json
import os
import subprocess
import time


class Left(Exception):
    """The page was left before it answered."""


class Browser:
    def __init__(self, program, profile):
        to_browser, ours_out = os.pipe()
        ours_in, from_browser = os.pipe()
        flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars --remote-debugging-pipe"
        command = f'exec "$0" {flags} --user-data-dir="$1" 3<&{to_browser} 4>&{from_browser}'
        self.process = subprocess.Popen(
            ["bash", "-c", command, program, profile],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.out, self.into = ours_out, os.fdopen(ours_in, "rb", buffering=0)
        self.number, self.events, self.rest, self.session = 0, [], b"", None

    def read(self):
        while b"\0" not in self.rest:
            part = self.into.read(65536)
            if not part:
                raise SystemExit("the browser is gone")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def __call__(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    # The page of the question gave way to the next one.
                    kind = Left if method == "Runtime.evaluate" and answer["error"].get("code") == -32000 else SystemExit
                    raise kind(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def js(self, expression):
        result = self("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise SystemExit(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression, limit):
        """The value of an expression once it is true, or its last one after so many seconds. A page may be left meanwhile."""
        end = time.monotonic() + limit
        while True:
            try:
                value = self.js(expression)
            except Left:
                value = None
            if value or time.monotonic() > end:
                return value
            time.sleep(0.1)


def attach(browser):
    target = browser("Target.createTarget", url="about:blank")["targetId"]
    browser.session = browser("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    for domain in ("Page", "Runtime", "Network", "Log"):
        browser(f"{domain}.enable")
