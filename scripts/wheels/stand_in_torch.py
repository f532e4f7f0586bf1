"""Writes a wheel with the name and the version of PyTorch, and nothing of it: for tests of how wheels are installed.

    stand_in_torch.py OUT VERSION

PyTorch has gigabytes. This one asks for a package, as PyTorch asks for many; libtorch is put into the folder torch/lib after it was installed.
"""

import base64
import hashlib
import pathlib
import sys
import zipfile


def main():
    out, version = pathlib.Path(sys.argv[1]), sys.argv[2]
    info = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": "",
        "torch/version.py": f"__version__ = '{version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\nRequires-Dist: filelock\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: expctl (stand_in_torch.py)\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{info}/RECORD"
    lines = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        lines.append(f"{name},sha256={digest},{len(text.encode())}\n")
    files[record] = "".join(lines) + f"{record},,\n"
    out.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


main()
