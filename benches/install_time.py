#!/usr/bin/env python3
"""What installing takes: seconds from an empty environment to the note of a first job, and bytes that pip fetches for it.

    benches/install_time.py [DIST]   DIST has the wheels of make wheels; default dist
    EXPCTL_BENCH_RECORD=FILE         write the figures there, as scripts/reference.sh does
    INSTALL_RUNS=N                   runs, each in a new folder; default 5

The commands are those of docs/guide/install.md. PyTorch is not in the seconds: a wheel of its name, without its content, stands in for it
(scripts/installers.sh), and libtorch is linked into its place. The bytes of PyTorch are those of all files that pip would fetch for it from the
package index with this Python, whose sizes the index is asked for; none of them is fetched.
"""

import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path[:0] = [str(HERE), str(ROOT / "scripts")]

from bench_record import figure, of_runs, write_record  # noqa: E402
from fetch_wheel import ssl_context  # noqa: E402

PARTS = ("environment", "pip", "first job")


def commands():
    """The commands of the section *Install them*: environment, pip, and those that lead to a first note."""
    guide = (ROOT / "docs/guide/install.md").read_text()
    block = guide.split("\n## Install them\n", 1)[1].split("```console\n", 1)[1].split("\n```", 1)[0]
    return [line[2:].split("  #")[0].rstrip() for line in block.splitlines() if line.startswith("$ ")]


def printed(script):
    """The line that a script of the project prints."""
    return subprocess.run(["bash", ROOT / "scripts" / script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def seconds(folder, tools, lines):
    """Runs lines of a shell as somebody who has nothing; returns how long they took."""
    home = os.path.join(folder, "home")
    os.makedirs(home, exist_ok=True)
    environment = {
        "HOME": home,
        "PATH": f"{tools}/bin:/usr/bin:/bin",
        "LC_ALL": "C.UTF-8",
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_FIND_LINKS": f"{tools}/index",
        "PIP_NO_INDEX": "1",
    }
    begun = time.perf_counter()
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(lines)], cwd=folder, env=environment, capture_output=True, text=True)
    taken = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{lines}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return taken


def install(dist, tools, libtorch):
    """Seconds of PARTS in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(dist, os.path.join(folder, "dist"))
        prefix = os.path.join(folder, "expctl")
        lines = [line.replace("/shared/you/expctl", prefix) for line in commands()]
        before = [seconds(folder, tools, lines[:1]), seconds(folder, tools, lines[1:2])]
        (torch,) = glob.glob(f"{prefix}/lib/python3.*/site-packages/torch")
        os.symlink(os.path.join(libtorch, "lib"), os.path.join(torch, "lib"))
        first = seconds(folder, tools, lines[2:])
        if not os.path.exists(os.path.join(folder, "project/results/first_1.md")):
            sys.exit("the commands of docs/guide/install.md led to no note")
        return [*before, first]


def pytorch_bytes(tools):
    """Bytes of all files that pip would fetch for PyTorch."""
    command = [f"{tools}/bin/python", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--use-feature=fast-deps"]
    command += ["--only-binary", ":all:", "--report", "-", "torch==2.11.*"]
    report = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    total = 0
    for item in report["install"]:
        request = urllib.request.Request(item["download_info"]["url"], method="HEAD")
        with urllib.request.urlopen(request, timeout=120, context=ssl_context()) as answer:
            total += int(answer.headers["Content-Length"])
    return total


def main():
    dist = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist")
    wheels = glob.glob(f"{dist}/expctl_*.whl")
    if len(wheels) != 2:
        sys.exit(f"{dist} has not the two wheels: make wheels makes them")
    tools, libtorch = printed("installers.sh"), printed("libtorch.sh")
    runs = [install(dist, tools, libtorch) for _ in range(int(os.environ.get("INSTALL_RUNS", "5")))]
    print("| Part | median, s | fastest | slowest |\n|---|---:|---:|---:|")
    for name, values in [*zip(PARTS, zip(*runs)), ("in all", [sum(run) for run in runs])]:
        middle, low, high = of_runs(name, values, "s")
        print(f"| {name} | {middle:.1f} | {low:.1f} | {high:.1f} |")
    for name, size in (("wheels", sum(map(os.path.getsize, wheels))), ("PyTorch", pytorch_bytes(tools))):
        figure(name, size, None, 1, "B")
        print(f"{name}: {size / 1e6:.1f} MB")
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/install_time.py")


if __name__ == "__main__":
    main()
