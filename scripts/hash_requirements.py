#!/usr/bin/env python3
"""Write the hashes of the package index into requirement files, so that pip takes no other files.

    scripts/hash_requirements.py FILE...

Every line `NAME==VERSION` gets the SHA-256 of the wheels of that version for Linux on x86-64 and for any machine, and of the source of packages
that the file names in `--no-binary`. Run it after a version was changed; the index is pip's own, as in fetch_wheel.py.
"""

import pathlib
import re
import sys
import urllib.parse
import urllib.request

from fetch_wheel import Links, index_url, ssl_context

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def is_wanted(filename, name, version, from_source):
    """Whether a file of the index is of this version, and can be installed here."""
    if filename.endswith(".whl"):
        project, release, *_, platform = filename[:-4].split("-")
        here = platform == "any" or re.search(r"linux.*x86_64", platform)
        return bool(here) and not from_source and (normal(project), release) == (normal(name), version)
    return from_source and re.fullmatch(re.escape(version) + r"\.(tar\.gz|zip)", filename[len(name) + 1 :]) is not None


def hashes(name, version, from_source):
    page = f"{index_url()}/{normal(name)}/"
    with urllib.request.urlopen(page, timeout=120, context=ssl_context()) as answer:
        links = Links()
        links.feed(answer.read().decode())
    found = set()
    for link in links.found:
        path, _, fragment = link.partition("#")
        filename = urllib.parse.unquote(path.rsplit("/", 1)[-1])
        if fragment.startswith("sha256=") and is_wanted(filename, name, version, from_source):
            found.add(fragment.replace("=", ":"))
    if not found:
        sys.exit(f"hash_requirements: the index has no file of {name} {version} for this machine")
    return sorted(found)


def with_hashes(text):
    sources = {normal(name) for name in re.findall(r"^--no-binary +(\S+)", text, re.MULTILINE)}
    lines = []
    for line in text.splitlines():
        if line.lstrip().startswith("--hash="):
            continue
        pin = PIN.match(line)
        if not pin:
            lines.append(line)
            continue
        rest = line[pin.end() :].rstrip(" \\")
        found = hashes(*pin.groups(), normal(pin[1]) in sources)
        lines.append(f"{pin[0]}{rest} \\")
        lines += [f"    --hash={one} \\" for one in found[:-1]] + [f"    --hash={found[-1]}"]
    return "\n".join(lines) + "\n"


for path in map(pathlib.Path, sys.argv[1:]):
    path.write_text(with_hashes(path.read_text()))
