"""Open a page in a headless Chromium and use it as a reader would; ends with an error at the first thing that is wrong.

    browse_page.py CHROMIUM PAGE use|glance|batches [FOLDER]

glance only looks at what every page must have, batches at what a pointer tells of batch timings. Speaks the DevTools protocol through pipes; the standard library does. Screenshots go into FOLDER.
"""

import base64
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

from browser import Browser, attach

# Seconds for the page to load, and for all of it: a browser that says nothing more would be waited for without end.
LIMIT, LONGEST = 60, 300


def too_long(*_):
    raise SystemExit(f"FAILED: not done after {LONGEST} s")


def main(program, page, how, folder):
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST)
    address = Path(page).resolve().as_uri()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        try:
            {"use": use, "glance": glance, "batches": batches}[how](browser, address, folder)
        finally:
            browser.process.kill()
            browser.process.wait()


def check(true, what, seen=""):
    if not true:
        raise SystemExit(f"FAILED: {what}: {seen!r}")
    print(f"ok: {what}")


def load(browser, address):
    browser("Page.navigate", url=address)
    if not browser.until('document.readyState === "complete" && location.protocol === "file:"', LIMIT):
        raise SystemExit("FAILED: the page does not load")


def silent(browser, address):
    """Nothing went wrong on the way, and nothing was asked for."""
    bad, asked = [], []
    for event in browser.events:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown" or method == "Log.entryAdded":
            bad.append(params)
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            bad.append(params)
        if method == "Network.requestWillBeSent" and params["request"]["url"] != address:
            asked.append(params["request"]["url"])
    check(not bad, "the console is silent", bad)
    check(not asked, "nothing was requested", asked)


def glance(browser, address, folder):
    attach(browser)
    for width, mobile in ((1800, False), (1200, False), (1100, False), (390, True)):
        browser("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=mobile)
        load(browser, address)
        wide = browser.js("[document.documentElement.scrollWidth, innerWidth]")
        check(wide == [width, width], f"a page of {width} points does not scroll sideways", wide)
    aligned = "[...document.querySelectorAll('td.right')].map(e => getComputedStyle(e).textAlign)"
    seen = browser.js(aligned)
    check(seen and set(seen) == {"right"}, "columns of numbers are aligned to the right", seen)
    check(browser.js("document.querySelectorAll('[style]').length") == 0, "nothing has a style of its own")
    silent(browser, address)


def batches(browser, address, folder):
    attach(browser)
    browser("Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False)
    load(browser, address)

    def tip(figure, point):
        """What is said where the pointer is: at a point of a picture that a script finds in it, in the picture's own units."""
        x, y = browser.js(
            f"""(() => {{ const figure = document.querySelector({json.dumps(figure)}); figure.scrollIntoView({{block: "start"}});
            const [mark, x, y] = ({point})(figure);
            const p = new DOMPoint(x, y).matrixTransform(mark.getScreenCTM()); return [p.x, p.y]; }})()"""
        )
        browser("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return browser.js(f"(() => {{ const t = document.querySelector({json.dumps(figure + ' .tip')}); return t.hidden ? '' : t.textContent; }})()")

    dot = """(figure) => { const mark = figure.querySelector('.marks path.dots:not(.rim)');
        return [mark, ...mark.getAttribute('d').match(/[\\d.]+/g).slice(0, 2).map(Number)]; }"""
    said = tip("figure[id*=_batches_mod]", dot).split("\n")
    check(
        len(said) == 4 and said[0].endswith(" mod 10") and said[1] == "epoch 0" and said[2].startswith("batch: ") and said[3].startswith("time (s): "),
        "a dot tells batch, epoch and time",
        said,
    )
    # Beside the dot at the mean.
    box = """(figure) => { const mark = figure.querySelector('.marks rect.bar');
        const [x, y, width, height] = ['x', 'y', 'width', 'height'].map((key) => Number(mark.getAttribute(key)));
        return [mark, x + width / 8, y + height / 2]; }"""
    said = tip("#plot-boxplot", box)
    check("median: " in said and "25 % to 75 %: " in said and "1 % to 99 %: " in said, "a box tells its quantiles", said)
    silent(browser, address)


def use(browser, address, folder):
    attach(browser)

    def size(width, height, mobile=False):
        browser("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(name, media=""):
        features = [{"name": "prefers-color-scheme", "value": name}]
        browser("Emulation.setEmulatedMedia", media=media, features=features)

    def mouse(kind, x, y, **more):
        browser("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(x, y, count=1):
        mouse("mousePressed", x, y, button="left", buttons=1, clickCount=count)
        mouse("mouseReleased", x, y, button="left", clickCount=count)

    def key(name, text=None):
        more = {"text": text} if text else {}
        browser("Input.dispatchKeyEvent", type="keyDown", key=name, **more)
        browser("Input.dispatchKeyEvent", type="keyUp", key=name)

    def middle(selector):
        """Scroll to the middle of an element and give back where that is."""
        return browser.js(
            f"""(() => {{ const e = document.querySelector({json.dumps(selector)});
            e.scrollIntoView({{block: "center"}}); const b = e.getBoundingClientRect();
            return [b.x + b.width / 2, b.y + b.height / 2]; }})()"""
        )

    def shot(name, whole=True):
        if folder:
            if whole:
                browser.js("scrollTo(0, 0)")
                box = browser("Page.getLayoutMetrics")["cssContentSize"]
                clip = {"x": 0, "y": 0, "width": box["width"], "height": box["height"], "scale": 1}
                picture = browser("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
            else:
                picture = browser("Page.captureScreenshot")["data"]
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{name}.png").write_bytes(base64.b64decode(picture))

    size(1200, 900)
    scheme("light")
    load(browser, address)
    ground = "getComputedStyle(document.body).backgroundColor"
    marks = "getComputedStyle(document.querySelector('.chart .f0')).fill"
    light = browser.js(ground), browser.js(marks)
    check(light == ("rgb(255, 255, 255)", "rgb(0, 114, 178)"), "light colours", light)
    shot("light")

    # The answer first, and all that the table has at a width of 1,100 points, its bottleneck first; the rest is folded.
    size(1100, 900)
    seen = browser.js("document.querySelector('.answer > p strong').getBoundingClientRect().bottom")
    check(0 < seen < 300, "the answer is at the top", seen)
    results = "document.querySelector('.answer ~ section table')"
    fits = browser.js(f"(() => {{ const b = {results}.closest('.scroll'); return [b.scrollWidth, b.clientWidth]; }})()")
    check(fits[0] <= fits[1], "the table fits 1,100 points", fits)
    waits = browser.js(f"[...{results}.tHead.rows[0].cells].find(c => c.textContent.includes('waits most')).getBoundingClientRect().right")
    check(0 < waits < 1000, "the bottleneck is in sight", waits)
    folded = browser.js("[document.querySelectorAll('details.fold').length, document.querySelectorAll('details.fold[open]').length]")
    check(folded[0] > 4 and folded[1] == 0, "all other sections are folded", folded)
    anchor = browser.js("[...document.querySelectorAll('nav a')].pop().getAttribute('href')")
    browser.js(f"location.hash = {json.dumps(anchor)}")
    time.sleep(0.2)
    check(browser.js("document.querySelectorAll('details.fold[open]').length") == 1, "a link unfolds its section")
    browser.js("document.querySelectorAll('main details').forEach(d => { d.open = true; })")
    size(1200, 900)
    shot("open")

    # What came from a config is words.
    check(browser.js("window.stolen === undefined && !document.querySelector('img, iframe, main b')"), "no markup from outside")
    check(browser.js("document.body.textContent.includes('<img src=x onerror=')"), "names from outside are shown")

    # Tables.
    table = "[...document.querySelectorAll('main table')].find(t => t.textContent.includes('samples/s') && t.tBodies[0].rows.length > 3)"
    column = f"[...{table}.tHead.rows[0].cells].findIndex(c => c.textContent.startsWith('samples/s'))"
    browser.js(f"{table}.tHead.rows[0].cells[{column}].id = 'by-rate'")
    rates = f"[...{table}.tBodies[0].rows].map(r => parseFloat(r.cells[{column}].textContent.replace(/,/g, '')))"
    before = browser.js(rates)
    click(*middle("#by-rate button"))
    check(browser.js(rates) == sorted(before) != before, "a click sorts by value", browser.js(rates))
    check(browser.js("document.querySelector('#by-rate').getAttribute('aria-sort')") == "ascending", "the order is announced")
    browser.js("document.querySelector('#by-rate button').focus()")
    key("Enter", "\r")
    check(browser.js(rates) == sorted(before, reverse=True), "the keyboard sorts, the other way round", browser.js(rates))
    click(*middle("#by-rate button"))
    check(browser.js(rates) == before, "a third click brings the order of the note back", browser.js(rates))

    # Pictures: a dot of the scaling picture, and the wheel over it.
    zoomed = "document.querySelector('#plot-times .panel').dataset.zoomed"
    x, y = middle("#plot-times .marks path")
    bend = browser.js(
        """(() => { const path = document.querySelector('#plot-times .marks path.line');
        const p = path.getPointAtLength(path.getTotalLength() / 2).matrixTransform(path.getScreenCTM()); return [p.x, p.y]; })()"""
    )
    mouse("mouseMoved", *bend)
    tip = browser.js("(() => { const t = document.querySelector('#plot-times .tip'); return t.hidden ? '' : t.textContent; })()")
    check("lazy" in tip and "step time (ms): " in tip and "share of steps: " in tip, "hovering tells what is there", tip)
    shot("hover", whole=False)
    frame = browser.js(
        """(() => { const p = document.querySelector('#plot-times .panel'); p.scrollIntoView({block: "center"});
        const [x, y, w, h] = p.dataset.frame.split(" ").map(Number);
        const at = (a, b) => { const q = new DOMPoint(a, b).matrixTransform(p.getScreenCTM()); return [q.x, q.y]; };
        return [at(x + w * 0.3, y + h * 0.3), at(x + w * 0.7, y + h * 0.7)]; })()"""
    )
    (ax, ay), (bx, by) = frame
    place = browser.js("scrollY")
    mouse("mouseWheel", ax, ay, deltaX=0, deltaY=60)
    time.sleep(0.4)
    check(browser.js("scrollY") > place and browser.js(zoomed) == "no", "the wheel over an untouched picture moves the page")
    browser.js(f"scrollTo(0, {place})")
    time.sleep(0.2)
    click(ax, ay)
    numbers = "[...document.querySelectorAll('#plot-times .panel .below text')].map(t => t.textContent).join(' ')"
    whole = browser.js(numbers)
    mouse("mouseWheel", ax, ay, deltaX=0, deltaY=-400)
    time.sleep(0.4)
    check(browser.js(zoomed) == "yes" and browser.js(numbers) not in ("", whole), "the wheel zooms, numbers follow", browser.js(numbers))
    key("0", "0")
    check(browser.js(zoomed) == "no" and browser.js(numbers) == whole, "0 shows all of it again")
    mouse("mousePressed", ax, ay, button="left", buttons=1, clickCount=1)
    mouse("mouseMoved", (ax + bx) / 2, (ay + by) / 2, button="left", buttons=1)
    mouse("mouseMoved", bx, by, button="left", buttons=1)
    mouse("mouseReleased", bx, by, button="left", clickCount=1)
    scale = browser.js("Number(document.querySelector('#plot-times .marks').getAttribute('transform').match(/matrix\\(([\\d.]+)/)[1])")
    check(2.3 < scale < 2.7, "dragging shows what was framed", scale)
    click(ax, ay, 1)
    click(ax, ay, 2)
    check(browser.js(zoomed) == "no", "a double click shows all of it again")
    browser.js("document.querySelector('#plot-times').focus()")
    key("+", "+")
    check(browser.js(zoomed) == "yes", "the keyboard zooms")
    click(*middle("#plot-times [data-do=reset]"))
    check(browser.js(zoomed) == "no", "the button shows all of it again")
    entry = "document.querySelector('#plot-times .entry').getAttribute('aria-pressed')"
    click(*middle("#plot-times .entry text"))
    check(browser.js(entry) == "false", "the legend hides a series")
    click(*middle("#plot-times .entry text"))
    check(browser.js(entry) == "true", "and shows it again")

    # Colours.
    scheme("dark")
    dark = browser.js(ground), browser.js(marks)
    check(dark == ("rgb(13, 17, 23)", "rgb(86, 180, 233)"), "dark colours by the system", dark)
    shot("dark")
    click(*middle("#theme"))
    check((browser.js(ground), browser.js(marks)) == light, "the button chooses light")
    click(*middle("#theme"))
    scheme("light")
    check((browser.js(ground), browser.js(marks)) == dark, "and dark")
    click(*middle("#theme"))
    check((browser.js(ground), browser.js(marks)) == light, "and the system's again")
    scheme("light", media="print")
    check(browser.js("getComputedStyle(document.querySelector('.tools')).display") == "none", "paper has no buttons")

    # Narrow.
    scheme("light")
    size(390, 800, mobile=True)
    wide = browser.js("[document.documentElement.scrollWidth, innerWidth]")
    check(wide == [390, 390], "a narrow page does not scroll sideways", wide)
    inner = "[...document.querySelectorAll('.scroll')].some(b => b.scrollWidth > b.clientWidth)"
    check(browser.js(inner), "wide tables scroll in their own box")
    shot("narrow")

    silent(browser, address)
    hurt = browser.js(
        """(async () => { const seen = []; addEventListener('securitypolicyviolation', e => seen.push(e.effectiveDirective));
        const add = (tag, set) => { const e = document.createElement(tag); set(e); document.body.append(e); };
        add('img', e => e.src = 'http://127.0.0.1:9/x.png'); add('script', e => e.textContent = 'window.stolen = 1');
        try { await fetch('http://127.0.0.1:9/'); } catch { }
        await new Promise(done => setTimeout(done, 200)); return [seen.map(d => d.split('-')[0]).sort(), window.stolen]; })()"""
    )
    check(hurt == [["connect", "img", "script"], None] or hurt == [["connect", "img", "script"]], "the policy stops images, scripts and calls", hurt)


if __name__ == "__main__":
    main(*sys.argv[1:4], sys.argv[4] if len(sys.argv) > 4 else None)
