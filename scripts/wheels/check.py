"""Checks wheels of scripts/wheels.sh: what their programs ask of the system, and where they look for libraries.

    check.py [--without FOLDER]... WHEEL...

Fails on a symbol that is newer than manylinux_2_28 has, as auditwheel knows it, on a place of libraries that is not relative to the program, and
on a program that names a file in FOLDER, which is of the machine that built. A library that a program carries in itself is looked at, too.
"""

import argparse
import io
import json
import pathlib
import re
import sys
import tempfile
import zipfile

import auditwheel.policy
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

POLICY = "manylinux_2_28"
# The head of a program or library for x86-64 that may lie at any address.
HEAD = re.compile(rb"\x7fELF\x02\x01\x01[\x00\x03]\x00{8}\x03\x00\x3e\x00")


def limits():
    """The versions that the policy allows, by prefix: {"GLIBC": {"2.28", …}}."""
    policies = json.loads((pathlib.Path(auditwheel.policy.__file__).parent / "manylinux-policy.json").read_text())
    policy = next(policy for policy in policies if policy["name"] == POLICY)
    return policy["symbol_versions"]["x86_64"]


def problems(content, name, allowed):
    for section in ELFFile(io.BytesIO(content)).iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for library, versions in section.iter_versions():
                for version in versions:
                    prefix, _, rest = version.name.rpartition("_")
                    if prefix in allowed and rest not in allowed[prefix]:
                        yield f"{name} asks for {version.name} of {library.name}, which {POLICY} does not have"
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                if tag.entry.d_tag in ("DT_RUNPATH", "DT_RPATH"):
                    paths = (tag.runpath if tag.entry.d_tag == "DT_RUNPATH" else tag.rpath).split(":")
                    for found in paths:
                        if not found.startswith("$ORIGIN/"):
                            yield f"{name} looks for libraries in {found}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--without", action="append", default=[])
    parser.add_argument("wheels", nargs="+")
    options = parser.parse_args()
    builders = [folder.rstrip("/") + "/" for folder in options.without]
    allowed, found, programs = limits(), [], 0
    for wheel in options.wheels:
        with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
            archive.extractall(scratch)
            for path in sorted(pathlib.Path(scratch).rglob("*")):
                content = path.read_bytes() if path.is_file() else b""
                if content[:4] == b"\x7fELF":
                    programs += 1
                    name = f"{pathlib.Path(wheel).name}: {path.name}"
                    found += problems(content, name, allowed)
                    for head in HEAD.finditer(content, 1):
                        found += problems(content[head.start():], f"{name}, a library in it,", allowed)
                    found += [f"{name} names files in {folder}" for folder in builders if folder.encode() in content]
    for problem in found:
        print(f"error: {problem}", file=sys.stderr)
    if found or not programs:
        sys.exit(1)
    print(f"==> {programs} programs and modules ask for no newer symbol than {POLICY} has", file=sys.stderr)


main()
