"""The package expctl with its loaders, which are a native module: import this before anything else.

It is the package that the environment has (`pip install ./python`), or else what scripts/python_loaders.sh built into the cache folder.
The sources of python/, which measured.py takes for the other peers, have no native module.
"""

import os
import pathlib
import sys

CACHE = pathlib.Path(os.environ.get("EXPCTL_CACHE") or pathlib.Path.home() / ".cache" / "expctl")


def folder():
    """The folder of the package, for sys.path; None if it is not built."""
    found = (path for path in [*sys.path, str(CACHE / "python-loaders" / "site")] if any(pathlib.Path(path, "expctl").glob("_native*.so")))
    return next(found, None)


_folder = folder()
if _folder is None:
    sys.exit("error: the loaders in Python are not built; run benches/peers/setup.sh loaders, or pip install ./python")
sys.path.insert(0, _folder)
# Whoever imports it later, behind the sources, has this one.
import expctl.data  # noqa: E402, F401
