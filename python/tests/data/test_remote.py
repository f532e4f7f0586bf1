"""Files behind HTTP."""

import http.server
import os
import socket
import subprocess
import sys
import threading
import unittest

from cells import Cells


class Ranges(http.server.BaseHTTPRequestHandler):
    """Serves files of a folder, with byte ranges."""

    protocol_version = "HTTP/1.1"
    folder = ""

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        path = os.path.join(self.folder, os.path.basename(self.path))
        if not os.path.exists(path):
            self.send_error(404)
            return
        with open(path, "rb") as file:
            body = file.read()
        first, last = 0, len(body) - 1
        ranged = self.headers.get("Range")
        if ranged:
            first, _, end = ranged.removeprefix("bytes=").partition("-")
            first, last = int(first), min(int(end), last) if end else last
        self.send_response(206 if ranged else 200)
        if ranged:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", f'"{len(body)}"')
        self.send_header("Last-Modified", self.date_time_string(int(os.stat(path).st_mtime)))
        self.end_headers()
        if with_body:
            self.wfile.write(body[first : last + 1])

    def log_message(self, *_):
        pass


PROGRAM = """
import os, sys
import expctl.data as xd
ds = xd.open(sys.argv[1])
child = os.fork()
if child == 0:
    try:
        ds[0]
    except RuntimeError as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


class Remote(unittest.TestCase):
    def setUp(self):
        self.cells = Cells()
        self.addCleanup(self.cells.close)
        Ranges.folder = self.cells.folder.name
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Ranges)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.urls = [f"http://127.0.0.1:{server.server_port}/{os.path.basename(file)}" for file in self.cells.files]

    def run_apart(self, program, *arguments):
        """In a process of its own: what reads remote files in this one would forbid its forks."""
        path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
        run = subprocess.run(
            [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=120,
            env=os.environ | {"PYTHONPATH": path},
        )  # fmt: skip
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def test_rows_of_urls_are_those_of_the_files_and_a_cache_keeps_them(self):
        program = """
import sys
import numpy as np
import expctl.data as xd
cache, *urls = sys.argv[1:]
for mib in [0, 16]:
    ds = xd.open(urls, obs=["cell_type"], cache_mib=mib, cache_dir=cache)
    for sampler in ["uniform", "chunked"]:
        batches = list(xd.Loader(ds, 32, sampler=sampler, out="numpy"))
        rows = sorted(np.concatenate([batch.index for batch in batches]).tolist())
        print(len(ds), rows == list(range(218)), float(sum(batch.X.sum() for batch in batches)))
"""
        cache = os.path.join(self.cells.folder.name, "cache")
        lines = self.run_apart(program, cache, *self.urls).splitlines()
        total = float(self.cells.joined().X.sum())
        self.assertEqual(lines, [f"218 True {total}"] * 4)
        self.assertTrue(any(files for _, _, files in os.walk(cache)))

    def test_an_interrupt_ends_the_wait_for_a_server_that_says_nothing(self):
        silent = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(silent.close)
        program = """
import os, signal, sys, threading, time
import expctl.data as xd
# It is ignored where a shell started this in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
begun = time.monotonic()
try:
    xd.open(sys.argv[1])
except KeyboardInterrupt:
    print(time.monotonic() - begun)
"""
        waited = self.run_apart(program, f"http://127.0.0.1:{silent.getsockname()[1]}/cells.h5ad")
        self.assertLess(float(waited), 3)

    def test_a_fork_is_refused_and_a_missing_object_is_named(self):
        self.assertIn("remote files were open", self.run_apart(PROGRAM, self.urls[0]))
        program = """
import sys
import expctl.data as xd
try:
    xd.open(sys.argv[1])
except OSError as error:
    print(type(error).__name__, error)
"""
        said = self.run_apart(program, self.urls[0] + "gone.h5ad")
        self.assertIn("ConnectionError", said)
        self.assertIn("gone.h5ad", said)


if __name__ == "__main__":
    unittest.main()
