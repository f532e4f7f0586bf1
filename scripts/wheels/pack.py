"""Packs what cargo built into two wheels.

    pack.py BUILT OUT      BUILT has expctl, expctl-worker and libpython_loaders.so; the wheels go to OUT

A wheel is a zip of files in the places of an installed package, with its metadata; `wheel pack` writes the list of hashes and the archive.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
TAG = "manylinux_2_28_x86_64"
TORCH = "torch==2.11.*"

# C libraries whose source a package has and compiles, with their licences.
C_LIBRARIES = {
    "blosc-src": {"c-blosc": "BSD-3-Clause AND MIT"},
    "bzip2-sys": {"bzip2": "bzip2-1.0.6"},
    "hdf5-metno-src": {"HDF5": "LicenseRef-HDF5"},
    "libdeflate-sys": {"libdeflate": "MIT"},
    "libz-sys": {"zlib": "Zlib"},
    "lmdb-master-sys": {"LMDB": "OLDAP-2.8"},
    "lz4-sys": {"lz4": "BSD-2-Clause"},
    "zstd-sys": {"zstd": "BSD-3-Clause"},
}
# These say that they link a library, and it is code of their own, or one that stays outside: libtorch, Python, libstdc++.
WITHOUT_C_LIBRARY = {"cxx", "hdf5-metno-sys", "link-cplusplus", "pyo3", "pyo3-ffi", "ring", "torch-sys"}
# Folders of packages that are not compiled: their licences are not those of a program.
NOT_BUILT = {"benches", "contrib", "doc", "docs", "examples", "programs", "test", "tests", "zlib-ng"}
# Texts that packages of crates.io come without.
LICENCES = ROOT / "scripts/wheels/licences"
KEPT = {"blosc-src": "c-blosc.txt", "heed": "heed.txt", "heed-traits": "heed.txt", "heed-types": "heed.txt"}
# What else is in the programs: name, licence, text. Of PyTorch it is what its headers have, compiled into the worker.
OTHERS = (
    ("DejaVu Sans", "Bitstream-Vera", ROOT / "crates/charts/src/font/LICENCE.txt"),
    ("PyTorch", "BSD-3-Clause", LICENCES / "pytorch.txt"),
    ("the standard library of Rust", "MIT OR Apache-2.0", ROOT / "LICENSE-APACHE"),
)


def project():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]


def packages():
    """The packages of crates.io in both programs: name, version, licence, and the files that state it."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    found = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    used, nodes = set(), {node["id"]: node for node in found["resolve"]["nodes"]}
    queue = [node for node in found["workspace_members"]]
    while queue:
        node = queue.pop()
        if node in used:
            continue
        used.add(node)
        for dependency in nodes[node]["deps"]:
            if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
                queue.append(dependency["pkg"])
    kept = [package for package in found["packages"] if package["id"] in used and package["source"]]
    return sorted(kept, key=lambda package: (package["name"], package["version"]))


def licence_files(package):
    """The files that state its licence: its own, those of the C libraries whose source it has, and what is kept here where it has none."""
    folder = pathlib.Path(package["manifest_path"]).parent
    named = [folder / package["license_file"]] if package["license_file"] else []
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name.lower() not in NOT_BUILT)
        texts = sorted(name for name in files if is_licence(name))
        # Of two below the package, LICENSE is the one that is chosen here and COPYING the other: zstd may be taken under the GPL.
        if pathlib.Path(place) != folder and any(name.lower().startswith("licen") for name in texts):
            texts = [name for name in texts if not name.lower().startswith("copying")]
        found += [pathlib.Path(place) / name for name in texts]
    kept = [LICENCES / KEPT[package["name"]]] if package["name"] in KEPT else []
    own = named + kept + [path for path in found if path.parent == folder]
    # Several state Apache-2.0 in their manifest and come without its text.
    if not own and "Apache-2.0" in (package["license"] or ""):
        own = [ROOT / "LICENSE-APACHE"]
    if not own:
        sys.exit(f"pack: {package['name']} {package['version']} comes without its licence\n  hint: put the text into {LICENCES}, and name it in KEPT")
    return list(dict.fromkeys(own + found))


def is_licence(name):
    """Whether a file of this name has the text of a licence."""
    lower = name.lower()
    starts = ("license", "licence", "copying", "copyright", "notice", "unlicense")
    return lower.startswith(starts) and not lower.endswith((".c", ".h", ".html", ".py", ".rs", ".sh"))


def third_party(all_packages):
    """The licences of all packages, each text once."""
    texts = {}
    lines = ["Packages of crates.io that are part of this program, with their licences. The texts follow.", ""]
    for package in all_packages:
        lines.append(f"{package['name']} {package['version']}: {package['license'] or 'see its text'}")
        for library, licence in C_LIBRARIES.get(package["name"], {}).items():
            lines.append(f"{library}, C source in {package['name']}: {licence}")
        for path in licence_files(package):
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{package['name']} {package['version']}")
    for name, licence, path in OTHERS:
        lines.append(f"{name}: {licence}")
        texts.setdefault(path.read_text().strip(), []).append(name)
    for text, users in texts.items():
        # A package may have the same text in two files.
        lines += ["", "=" * 80, "Of " + ", ".join(dict.fromkeys(users)), "", text]
    return "\n".join(lines) + "\n"


def check_c_libraries(all_packages):
    """Stops for a package with a library that C_LIBRARIES does not tell of."""
    known = C_LIBRARIES.keys() | WITHOUT_C_LIBRARY
    for package in all_packages:
        if package["links"] and package["name"] not in known:
            sys.exit(f"pack: {package['name']} links the library {package['links']}\n  hint: C_LIBRARIES in {__file__} says what is in a wheel")


def sbom(name, version, all_packages):
    """What the programs are made of, as CycloneDX 1.5."""
    def component(package):
        entry = {
            "type": "library",
            "name": package["name"],
            "version": package["version"],
            "purl": f"pkg:cargo/{package['name']}@{package['version']}",
        }
        if package["license"]:
            entry["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        return entry

    # Those are no packages of their own: their version is that of the package which has the source.
    def parts(package):
        source = f"C source in {package['name']} {package['version']}"
        for library, licence in C_LIBRARIES.get(package["name"], {}).items():
            yield {"type": "library", "name": library, "description": source, "licenses": [{"expression": licence}]}

    others = [{"type": "library", "name": one, "licenses": [{"expression": licence}]} for one, licence, _ in OTHERS]
    bundled = [part for package in all_packages for part in parts(package)]

    return json.dumps({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": [component(package) for package in all_packages] + bundled + others,
    }, indent=1) + "\n"


def metadata(name, summary, lines, readme):
    given = project()
    head = [
        "Metadata-Version: 2.4",
        f"Name: {name}",
        f"Version: {given['version']}",
        f"Summary: {summary}",
        f"License-Expression: {given['license']}",
        "License-File: LICENSE-APACHE",
        "License-File: LICENSE-MIT",
        "License-File: THIRD_PARTY.txt",
        "Requires-Python: >=3.10",
        "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Programming Language :: Rust",
        *lines,
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(head) + "\n\n" + readme.read_text()


def pack(out, name, tag, text, place, all_packages):
    """Writes the wheel `name`; `place(folder)` puts its files there."""
    version = project()["version"]
    stem = f"{name}-{version}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / stem
        info = folder / f"{stem}.dist-info"
        (info / "licenses").mkdir(parents=True)
        (info / "sboms").mkdir()
        (info / "METADATA").write_text(text)
        (info / "WHEEL").write_text(
            f"Wheel-Version: 1.0\nGenerator: expctl (scripts/wheels.sh)\nRoot-Is-Purelib: false\nTag: {tag}\n"
        )
        for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
            shutil.copy(ROOT / licence, info / "licenses")
        (info / "licenses/THIRD_PARTY.txt").write_text(third_party(all_packages))
        (info / "sboms/expctl.cyclonedx.json").write_text(sbom(name, version, all_packages))
        place(folder, folder / f"{stem}.data")
        # The same files give the same archive, byte for byte.
        date = os.environ.get("SOURCE_DATE_EPOCH") or subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.strip()
        for path in folder.rglob("*"):
            os.utime(path, (int(date), int(date)))
        command = [sys.executable, "-m", "wheel", "pack", "--dest-dir", str(out), str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": date})
    wheel = out / f"{stem}-{tag}.whl"
    print(f"==> {wheel}: {wheel.stat().st_size / 1e6:.1f} MB", file=sys.stderr)


def stripped(source, target):
    """A copy of a program or module without its table of symbols, which only debuggers read."""
    subprocess.run(["strip", "--strip-unneeded", "-o", target, source], check=True)


def program(source, data):
    (data / "scripts").mkdir(parents=True)
    target = data / "scripts" / source.name
    stripped(source, target)
    target.chmod(0o755)


def shared_files(expctl, data):
    """Manual pages and completions, where a prefix has them."""
    for arguments, path in (
        (["completions", "bash"], "bash-completion/completions/expctl"),
        (["completions", "zsh"], "zsh/site-functions/_expctl"),
        (["completions", "fish"], "fish/vendor_completions.d/expctl.fish"),
    ):
        target = data / "data/share" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(subprocess.run([expctl, *arguments], check=True, capture_output=True, text=True).stdout)
    subprocess.run([expctl, "man-pages", data / "data/share/man/man1"], check=True)


def main():
    built, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(exist_ok=True)
    for old in out.glob("expctl_*.whl"):
        old.unlink()
    all_packages = packages()
    check_c_libraries(all_packages)
    version = project()["version"]

    def launcher(folder, data):
        shutil.copytree(ROOT / "python/src/expctl", folder / "expctl", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        stripped(built / "libpython_loaders.so", folder / "expctl/_native.abi3.so")
        program(built / "expctl", data)
        shared_files(built / "expctl", data)

    extras = [
        "Provides-Extra: worker",
        f"Requires-Dist: expctl-worker=={version}; extra == 'worker'",
        "Provides-Extra: torch",
        "Requires-Dist: torch; extra == 'torch'",
        "Provides-Extra: numpy",
        "Requires-Dist: numpy; extra == 'numpy'",
        "Requires-Dist: pandas; extra == 'numpy'",
        "Requires-Dist: scipy; extra == 'numpy'",
    ]
    summary = "Distributed training experiments on Slurm: where the time of a pipeline goes, and loaders for Python"
    text = metadata("expctl-hpc", summary, extras, ROOT / "README.md")
    pack(out, "expctl_hpc", f"cp310-abi3-{TAG}", text, launcher, all_packages)

    summary = "The ranks of expctl: what trains and times, on the libtorch of PyTorch"
    text = metadata("expctl-worker", summary, [f"Requires-Dist: {TORCH}"], ROOT / "README.md")
    pack(out, "expctl_worker", f"py3-none-{TAG}", text, lambda _, data: program(built / "expctl-worker", data), all_packages)


main()
