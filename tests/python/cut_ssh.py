"""In the place of ssh: passes bytes on, and ends the connection after so many of them.

CUT_SSH is the program that connects, CUT_IN and CUT_OUT the bytes after which it is killed (to and from the other side), CUT_COUNTS a file that
gets how many bytes went each way.
"""

import json
import os
import subprocess
import sys
import threading

limits = {way: int(os.environ.get(f"CUT_{way.upper()}") or -1) for way in ("in", "out")}
counts = {"in": 0, "out": 0}
ssh = subprocess.Popen([os.environ["CUT_SSH"], *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def cut():
    ssh.kill()
    sys.stderr.write("client_loop: send disconnect: Broken pipe\n")
    sys.stderr.flush()
    os._exit(255)


def pump(way, source, sink):
    limit = limits[way]
    if limit == 0:
        cut()
    while data := os.read(source, 1 << 16):
        if limit >= 0:
            data = data[: limit - counts[way]]
        counts[way] += len(data)
        try:
            while data:
                data = data[os.write(sink, data) :]
        except BrokenPipeError:
            break
        if counts[way] == limit:
            cut()
    os.close(sink)


threads = [
    threading.Thread(target=pump, args=("in", 0, os.dup(ssh.stdin.fileno())), daemon=True),
    threading.Thread(target=pump, args=("out", ssh.stdout.fileno(), os.dup(1))),
]
ssh.stdin.close()
for thread in threads:
    thread.start()
threads[1].join()
code = ssh.wait()
if "CUT_COUNTS" in os.environ:
    with open(os.environ["CUT_COUNTS"], "w") as file:
        json.dump(counts, file)
sys.stdout.flush()
os._exit(code if code >= 0 else 255)
