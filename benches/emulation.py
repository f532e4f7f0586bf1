#!/usr/bin/env python3
"""Whether the accelerator utilisation (AU) of eight ranks beside loaders of constant speed is that of arithmetic.

    benches/emulation.py
    EXPCTL_BENCH_RECORD=FILE   write the figures there, as scripts/reference.sh does

A server in this process answers each range of an `.h5ad` file after the same wait, so that a batch takes the same time on every rank and next to no
processor. Expected is step time over the longer of step time and batch time; the batch time is what the loader threads recorded, so neither the
server nor HTTP is part of the comparison. Prints a table in markdown.
"""

import glob
import http.server
import json
import os
import statistics
import tempfile
import threading
import time

from bench_record import expctl, figure, of_runs, write_record

RANKS, REPEATS, WARMUP, STEPS = 8, 3, 10, 40
# Wait of an answer and step of the accelerator, ms.
CASES = [(300, 60), (300, 150), (150, 150), (50, 150), (600, 60)]
LOADER_STAGES = ("sample", "read", "decode", "mask", "collate")

CONFIG = """
[experiment]
study = "arrayloader"
title = "Utilisation beside a constant loader"
[data]
samples = 640
[array]
format = "h5ad"
files = ["{url}"]
[loader]
batch_size = 4
workers = 1
prefetch_factor = 1
[train]
mode = "emulate"
step_ms = {step_ms}
[measure]
warmup = {warmup}
steps = {steps}
repeats = {repeats}
[launch]
ranks = {ranks}
"""


class LateAnswers(http.server.BaseHTTPRequestHandler):
    """One file, each range of it after `wait_s`."""

    protocol_version = "HTTP/1.1"
    content, wait_s = b"", 0.0

    def do_HEAD(self):
        self.answer(200, len(self.content))

    def do_GET(self):
        asked = self.headers.get("Range")
        first, last = 0, len(self.content) - 1
        if asked:
            begin, end = asked.removeprefix("bytes=").split("-")
            first, last = int(begin), min(int(end or last), last)
        time.sleep(self.wait_s)
        self.answer(206 if asked else 200, last + 1 - first, f"bytes {first}-{last}/{len(self.content)}" if asked else None)
        self.wfile.write(self.content[first : last + 1])

    def answer(self, status, length, content_range=None):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", '"1"')
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def measure(url, wait_ms, step_ms):
    """AU of each run, and what it is by arithmetic."""
    LateAnswers.wait_s = wait_ms / 1000
    text = CONFIG.format(url=url, step_ms=step_ms, warmup=WARMUP, steps=STEPS, repeats=REPEATS, ranks=RANKS)
    with tempfile.NamedTemporaryFile("w", prefix="utilisation_", suffix=".toml", dir="conf") as config:
        config.write(text)
        config.flush()
        job = expctl("submit", config.name, "--backend", "local", "--wait").split()[0]
    row = json.loads(expctl("compare", job, "--json"))["groups"][0]["lines"][0]
    ranks_of_runs = row["emulation"]["utilisation"]["runs"]
    busy_s = sum(stage["busy_s"] for stage in row["totals"]["measured"]["stages"] if stage["stage"] in LOADER_STAGES)
    batch_ms = 1000 * busy_s / (STEPS * RANKS)
    found = [statistics.mean(ranks) for ranks in ranks_of_runs]
    return found, batch_ms, step_ms / max(step_ms, batch_ms)


def main():
    folder = expctl("data", "build", "arrayloader", "--samples", "640", "--scale", "0.02").strip()
    (path,) = glob.glob(f"{folder}/**/*.h5ad", recursive=True)
    with open(path, "rb") as file:
        LateAnswers.content = file.read()
    server = Server(("127.0.0.1", 0), LateAnswers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/rows.h5ad"
    print("| Answer after, ms | Step, ms | Batch (measured), ms | AU by arithmetic | AU | of runs | off |")
    print("|---:|---:|---:|---:|---:|---|---:|")
    for wait_ms, step_ms in CASES:
        found, batch_ms, expected = measure(url, wait_ms, step_ms)
        median, low, high = statistics.median(found), min(found), max(found)
        off = median / expected - 1
        print(f"| {wait_ms} | {step_ms} | {batch_ms:.1f} | {expected:.2%} | {median:.2%} | {low:.2%}–{high:.2%} | {off:+.2%} |", flush=True)
        key = f"answers after {wait_ms} ms, steps of {step_ms} ms"
        of_runs(f"{key}, AU", found)
        for name, value, unit in [("batch", batch_ms, "ms"), ("AU by arithmetic", expected, ""), ("off", off, "")]:
            figure(f"{key}, {name}", value, None, len(found), unit)
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/emulation.py")


if __name__ == "__main__":
    main()
