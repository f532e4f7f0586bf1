#!/usr/bin/env python3
"""Whether the accelerator utilisation (AU) of eight ranks beside loaders of constant speed is that of arithmetic.

    benches/emulation.py
    EXPCTL_BENCH_RECORD=FILE   write the figures there, as scripts/reference.sh does

A server in this process answers each range of an `.h5ad` file after the same wait, so that a batch takes the same time on every rank and next to no
processor. What a batch takes is measured without an accelerator, in steps that load and do nothing else (`train.mode = "data"`). Expected is
step time over the longer of step time and that. Prints a table in markdown.
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
BATCH = 4

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
batch_size = {batch}
workers = 1
prefetch_factor = 1
[train]
{train}
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


def run(url, train):
    """The row of a job with these keys of [train] in its comparison."""
    text = CONFIG.format(url=url, train=train, batch=BATCH, warmup=WARMUP, steps=STEPS, repeats=REPEATS, ranks=RANKS)
    with tempfile.NamedTemporaryFile("w", prefix="utilisation_", suffix=".toml", dir="conf") as config:
        config.write(text)
        config.flush()
        job = expctl("submit", config.name, "--backend", "local", "--wait").split()[0]
    return json.loads(expctl("compare", job, "--json"))["groups"][0]["lines"][0]


def batch_times(url):
    """What a batch takes in each run, ms."""
    return [1000 * RANKS * BATCH / rate for rate in run(url, 'mode = "data"')["samples_per_s"]]


def utilisation(url, step_ms):
    """AU of each run, mean of the ranks."""
    row = run(url, f'mode = "emulate"\nstep_ms = {step_ms}')
    return [statistics.mean(ranks) for ranks in row["emulation"]["utilisation"]["runs"]]


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
    batches = {}
    for wait_ms, step_ms in CASES:
        LateAnswers.wait_s = wait_ms / 1000
        if wait_ms not in batches:
            batches[wait_ms] = batch_times(url)
        found, batch_ms = utilisation(url, step_ms), statistics.median(batches[wait_ms])
        expected = step_ms / max(step_ms, batch_ms)
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
