"""Fetch one wheel from the configured Python package index into a folder.

Usage: fetch_wheel.py PROJECT FILENAME SHA256 FOLDER

Resumes a broken download, verifies the checksum, and leaves nothing but the complete file under its
final name. The index is pip's own: PIP_INDEX_URL, pip's configuration, or pip's built-in default.
"""

import hashlib
import html.parser
import http.client
import os
import pathlib
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

TRIES = 8
CHUNK = 1 << 20


def say(text):
    print(f"    {text}", file=sys.stderr, flush=True)


def pip_setting(name):
    """A setting of pip (environment first, then its configuration files), or None."""
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    if value:
        return value
    for scope in ("global", "install", "download"):
        answer = subprocess.run(
            [sys.executable, "-m", "pip", "config", "get", f"{scope}.{name}"], capture_output=True, text=True
        )
        if answer.returncode == 0 and answer.stdout.strip():
            return answer.stdout.strip()
    return None


def index_url():
    url = pip_setting("index-url")
    if url:
        return url.rstrip("/")
    from pip._internal.models.index import PyPI

    return PyPI.simple_url.rstrip("/")


def ssl_context():
    return ssl.create_default_context(cafile=pip_setting("cert"))


class Links(html.parser.HTMLParser):
    """Collects the href of every anchor of an index page (PEP 503)."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found.append(dict(attrs).get("href", ""))


def wheel_url(project, filename, context):
    page = f"{index_url()}/{project}/"
    with urllib.request.urlopen(page, timeout=120, context=context) as answer:
        links = Links()
        links.feed(answer.read().decode())
    for link in links.found:
        url = urllib.parse.urljoin(page, link.split("#")[0])
        if urllib.parse.unquote(url.rsplit("/", 1)[-1]) == filename:
            return url
    sys.exit(f"fetch_wheel: the package index has no {filename}\n  hint: is this machine's platform Linux x86-64?")


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(CHUNK):
            h.update(block)
    return h.hexdigest()


def fetch(url, part, context):
    """Append what is missing of `url` to `part`; the server may answer with the whole file instead."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=120, context=context)
    except urllib.error.HTTPError as e:
        if e.code == 416:  # nothing is missing
            return
        raise
    with answer:
        resumed = have > 0 and answer.status == 206
        if resumed:
            say(f"resuming at {have / 1e6:.0f} MB")
        total = int(answer.headers.get("Content-Length", 0)) + (have if resumed else 0)
        done, shown = (have if resumed else 0), time.monotonic()
        with open(part, "ab" if resumed else "wb") as out:
            while block := answer.read(CHUNK):
                out.write(block)
                done += len(block)
                if time.monotonic() - shown > 5:
                    shown = time.monotonic()
                    say(f"{done / 1e6:.0f} of {total / 1e6:.0f} MB")
        if total and done < total:
            raise OSError(f"connection ended at {done} of {total} bytes")


def is_final(error):
    """Whether the server refuses for good: trying again would get the same answer."""
    return isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500 and error.code not in (408, 425, 429)


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    project, filename, sha256, folder = sys.argv[1:]
    target = pathlib.Path(folder) / filename
    if target.exists():
        if digest(target) == sha256:
            return
        say(f"{filename} is damaged: fetching it again")
        target.unlink()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".part")
    context = ssl_context()
    url = None
    for attempt in range(1, TRIES + 1):
        try:
            url = url or wheel_url(project, filename, context)
            fetch(url, part, context)
        # HTTPException: the connection ended in the middle of an answer (IncompleteRead, BadStatusLine).
        except (OSError, http.client.HTTPException) as e:
            if is_final(e):
                sys.exit(f"fetch_wheel: {filename}: {e} ({e.url})\n  hint: PIP_INDEX_URL names another package index")
            if attempt == TRIES:
                sys.exit(f"fetch_wheel: {filename}: {e}\n  hint: run the same command again, it goes on where it stopped")
            say(f"{type(e).__name__}: {e}; trying again ({attempt} of {TRIES})")
            time.sleep(min(2**attempt, 30))
            continue
        if digest(part) == sha256:
            os.replace(part, target)
            return
        say(f"{filename} has a wrong checksum: starting over")
        part.unlink()
    sys.exit(f"fetch_wheel: {filename} never arrived with the expected checksum {sha256}")


if __name__ == "__main__":
    main()
