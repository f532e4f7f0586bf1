#!/usr/bin/env python3
"""Whether the accelerator utilisation (AU) of eight ranks beside loaders of constant speed is that of arithmetic.

    benches/emulation.py
    EXPCTL_BENCH_RECORD=FILE   write the figures there, as scripts/reference.sh does

A server in this process answers each range of an `.h5ad` file after the same wait, so that a batch takes the same time on every rank and next to no
processor. What a batch takes is measured without an accelerator, in steps that load and do nothing else (`train.mode = "data"`). Expected is
step time over the longer of step time and that. Prints a table in markdown.
"""

import contextlib
import glob
import json
import os
import re
import socket
import statistics
import tempfile
import threading
import time

from bench_record import expctl, figure, of_runs, write_record

RANKS, REPEATS, WARMUP, STEPS = 8, 3, 10, 40
# Wait of an answer and step of the accelerator, ms. 323 is the step of the preset of docs/guide/emulate.md.
CASES = [(300, 60), (300, 150), (150, 150), (50, 150), (50, 323), (600, 60)]
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


class LateFile:
    """A server of one file, each range of it after `wait_s`. It reads of a request what it needs and no more: what it takes of the two
    processors delays the ranks that it serves."""

    RANGE = re.compile(rb"^range: *bytes=(\d+)-(\d*)", re.IGNORECASE | re.MULTILINE)

    def __init__(self, content):
        self.content, self.wait_s = content, 0.0
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/rows.h5ad"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        received = b""
        # A client may go away at any time.
        with connection, contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in received:
                    more = connection.recv(65536)
                    if not more:
                        return
                    received += more
                head, received = received.split(b"\r\n\r\n", 1)
                connection.sendall(self.answer(head))

    def answer(self, head):
        size = len(self.content)
        asked = self.RANGE.search(head)
        first, last = (int(asked[1]), min(int(asked[2] or size), size - 1)) if asked else (0, size - 1)
        status = f"206 Partial Content\r\nContent-Range: bytes {first}-{last}/{size}" if asked else "200 OK"
        # As a store has them: the client asks whether the file is still the same.
        lines = (f"HTTP/1.1 {status}\r\nContent-Length: {last + 1 - first}\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\n"
                 "Last-Modified: Fri, 27 Nov 2026 00:00:00 GMT\r\n\r\n")
        if head.startswith(b"HEAD"):
            return lines.encode()
        time.sleep(self.wait_s)
        return lines.encode() + self.content[first : last + 1]


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
        server = LateFile(file.read())
    print("| Answer after, ms | Step, ms | Batch (measured), ms | AU by arithmetic | AU | of runs | off |")
    print("|---:|---:|---:|---:|---:|---|---:|")
    batches, furthest = {}, 0.0
    for wait_ms, step_ms in CASES:
        server.wait_s = wait_ms / 1000
        if wait_ms not in batches:
            batches[wait_ms] = batch_times(server.url)
        found, batch_ms = utilisation(server.url, step_ms), statistics.median(batches[wait_ms])
        expected = step_ms / max(step_ms, batch_ms)
        median, low, high = statistics.median(found), min(found), max(found)
        off = median / expected - 1
        furthest = max(furthest, abs(off))
        print(f"| {wait_ms} | {step_ms} | {batch_ms:.1f} | {expected:.2%} | {median:.2%} | {low:.2%}–{high:.2%} | {off:+.2%} |", flush=True)
        key = f"answers after {wait_ms} ms, steps of {step_ms} ms"
        of_runs(f"{key}, AU", found)
        for name, value, unit in [("batch", batch_ms, "ms"), ("AU by arithmetic", expected, ""), ("off", off, "")]:
            figure(f"{key}, {name}", value, None, len(found), unit)
    print(f"\nfurthest off: {furthest:.2%}")
    figure("furthest off", furthest, None, len(CASES))
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/emulation.py")


if __name__ == "__main__":
    main()
