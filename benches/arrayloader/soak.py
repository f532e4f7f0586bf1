"""Draws rows for long and looks whether memory grows.

Usage: soak.py --rows 10000000 [--limit 1.05] PROGRAM FILE… [options of array_rates]

Looks at the program's PSS every half second until it has drawn the rows, and prints a markdown line: rows, seconds, the
most memory of each fifth of the run. Ends with 1 if the last fifth has more than --limit times what the second had (the
first one fills buffers).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time


def pss_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1000
    return 0.0


def run(command, rows):
    process = subprocess.Popen([*command, "--rows", str(rows)], stdout=subprocess.PIPE, text=True)
    seen, start = [], time.monotonic()
    while process.poll() is None:
        try:
            seen.append((time.monotonic() - start, pss_mb(process.pid)))
        except OSError:
            break
        time.sleep(0.5)
    out = process.communicate()[0]
    return json.loads(out.strip().splitlines()[-1]), seen


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--limit", type=float, default=1.05)
    options, command = parser.parse_known_args()
    result, seen = run(command, options.rows)
    whole = seen[-1][0]
    fifths = [max((mb for at, mb in seen if i * whole / 5 <= at < (i + 1) * whole / 5), default=0) for i in range(5)]
    most = " / ".join(f"{mb:,.0f}" for mb in fifths)
    print(f"| {' '.join(c for c in command[1:] if not c.endswith('.h5ad'))} | {result['rows']:,} | {whole:.0f} | {most} |")
    sys.exit(fifths[4] > fifths[1] * options.limit)


if __name__ == "__main__":
    main()
