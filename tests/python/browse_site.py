"""Open the list of jobs (`expctl site`) in a headless Chromium and use it as a reader would; ends with an error at the first thing that is wrong.

    browse_site.py CHROMIUM INDEX [FOLDER]

The ledger is that of tests/integration/site.rs: jobs 1 (slow) and 2 (quick) that completed, and job 3 (never). Screenshots go into FOLDER.
"""

import base64
import json
import signal
import sys
import tempfile
from pathlib import Path

from browse_page import LONGEST, check, load, silent, too_long
from browser import Browser, attach


def main(program, page, folder):
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            use(browser, Path(page).resolve().as_uri(), folder)
        finally:
            browser.process.kill()
            browser.process.wait()


def use(browser, address, folder):
    attach(browser)

    def size(width, height):
        browser("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def shot(name):
        if folder:
            data = browser("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
            Path(folder, f"site_{name}.png").write_bytes(base64.b64decode(data))

    def numbers():
        return browser.js("[...document.querySelectorAll('#jobs tbody tr')].map((row) => Number(row.cells[1].textContent)).join()")

    def put(field, value):
        browser.js(f"(() => {{ const at = document.getElementById({json.dumps(field)}); at.value = {json.dumps(value)}; "
                   "at.dispatchEvent(new Event('input', { bubbles: true })); })()")

    size(1100, 800)
    load(browser, address)
    check(numbers() == "3,2,1", "the newest job is first", numbers())
    check(browser.js("document.getElementById('count').textContent") == "3 of 3 jobs", "jobs are counted")
    check(browser.js("document.images.length") == 0, "a title is no markup")
    browser.js("document.querySelector('#jobs th[data-key=config] button').click()")
    check(numbers() == "3,2,1", "sorted by config: never, quick, slow", numbers())
    browser.js("document.querySelector('#jobs th[data-key=job] button').click()")
    browser.js("document.querySelector('#jobs th[data-key=job] button').click()")
    check(numbers() == "1,2,3", "sorted by number, ascending", numbers())
    put("words", "quick IDS")
    check(numbers() == "2", "all words are searched for, in any case", numbers())
    put("words", "")
    put("state", "incomplete")
    check(numbers() == "3", "a state is chosen", numbers())
    put("state", "")
    put("config", "slow")
    check(numbers() == "1", "a config is chosen", numbers())
    put("config", "")
    browser.js("[...document.querySelectorAll('#jobs tbody input')].slice(0, 2).forEach((box) => box.click())")
    said = browser.js("document.getElementById('command').textContent")
    check(said == "expctl compare 1 2", "ticked jobs are compared", said)
    lines = browser.js("document.querySelectorAll('#compared tbody tr').length")
    check(lines == 4, "each variant has a line", lines)
    widths = json.loads(browser.js("JSON.stringify([...document.querySelectorAll('#compared rect')].map((bar) => Number(bar.getAttribute('width'))))"))
    check(len(widths) == 4 and max(widths) == widths[3] <= 100, "the fastest has the longest bar", widths)
    for name, width in (("narrow", 390), ("middle", 1100), ("wide", 1800)):
        size(width, 900)
        over = browser.js("document.documentElement.scrollWidth - innerWidth")
        check(over <= 0, f"the page fits {width} px", over)
        for scheme in ("light", "dark"):
            browser("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            shot(f"{name}_{scheme}")
    # A view is in the address.
    view = browser.js("location.href")
    check(view.endswith("#compare=1%2C2"), "the address has what is compared", view)
    silent(browser, address)
    browser.js("window.left = true")
    browser("Page.reload")
    # The page from before says the same until it is left.
    said = browser.until("window.left !== true && document.readyState === 'complete' && document.getElementById('command').textContent", 30)
    check(said == "expctl compare 1 2", "a reload keeps what is compared", said)
    browser.js("document.querySelector('#jobs tbody tr td a').click()")
    led = browser.until("location.pathname.includes('/jobs/')", 30)
    check(led, "a number leads to the page of its job", led)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
