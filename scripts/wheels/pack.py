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
    folder = pathlib.Path(package["manifest_path"]).parent
    named = [folder / package["license_file"]] if package["license_file"] else []
    files = sorted(path for path in folder.iterdir() if path.is_file())
    found = [path for path in files if path.name.lower().startswith(("license", "licence", "copying", "notice", "unlicense"))]
    return list(dict.fromkeys(named + found))


def third_party(all_packages):
    """The licences of all packages, each text once."""
    texts = {}
    lines = ["Packages of crates.io that are part of this program, with their licences. The texts follow.", ""]
    for package in all_packages:
        lines.append(f"{package['name']} {package['version']}: {package['license'] or 'see its text'}")
        for path in licence_files(package):
            text = path.read_text(errors="replace").strip()
            texts.setdefault(text, []).append(f"{package['name']} {package['version']}")
    for text, users in texts.items():
        lines += ["", "=" * 80, "Of " + ", ".join(users), "", text]
    return "\n".join(lines) + "\n"


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

    return json.dumps({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": name, "version": version}},
        "components": [component(package) for package in all_packages],
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
