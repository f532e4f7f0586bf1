"""Memory of a process and of those below it: PSS, where shared pages are parted among those that share them.

Usage: pss.py PID    looks four times a second until stdin has a character; then prints the most that it saw, in bytes
"""

import collections
import pathlib
import select
import sys


def pss_bytes(root, without=None):
    """PSS of a process and of all below it, in bytes, less a child that only looks."""
    children = collections.defaultdict(list)
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(stat.parent.name))
    total, rest = 0, [root]
    while rest:
        pid = rest.pop()
        if pid == without:
            continue
        rest += children[pid]
        try:
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            pass
    return total


def main():
    import os

    most = 0
    while True:
        most = max(most, pss_bytes(int(sys.argv[1]), without=os.getpid()))
        if select.select([sys.stdin], [], [], 0.25)[0]:
            break
    # Nothing to read: the process that asked is gone.
    if sys.stdin.read(1):
        print(most, flush=True)


if __name__ == "__main__":
    main()
