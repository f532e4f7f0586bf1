"""What a program can say of itself without being asked."""

import json
import os
import platform
import resource
import sys


def trial():
    """`trial.json`; empty outside expctl."""
    path = os.environ.get("EXPCTL_TRIAL")
    if not path:
        return {}
    with open(path) as file:
        return json.load(file)


def ranks(rank, world_size):
    """Rank and number of ranks: as given, else of torch's process group, else of the environment."""
    if rank is not None and world_size is not None:
        return rank, world_size
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if "RANK" not in os.environ and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise RuntimeError("this program starts its ranks itself: give Run(rank=…, world_size=…), or set RANK")
    return int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def versions(given):
    """Versions of Python and of torch, if that is loaded, besides those given."""
    found = {"python": platform.python_version()}
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(torch.__version__)
    found.update({str(name): str(version) for name, version in (given or {}).items()})
    return found


def device():
    """`cuda` where torch could use it, else `cpu`."""
    torch = sys.modules.get("torch")
    return "cuda" if torch is not None and torch.cuda.is_available() else "cpu"


def live_modules():
    """Modules that were imported from the project's folder, although the job has a copy of them: those of `pip install -e`."""
    code, project = (os.path.realpath(os.environ.get(name, "")) for name in ("EXPCTL_CODE", "EXPCTL_ROOT"))
    if not os.environ.get("EXPCTL_CODE") or not os.environ.get("EXPCTL_ROOT"):
        return []
    found = []
    for name, module in list(sys.modules.items()):
        # Not getattr, for which modules that load others when asked would load them.
        file = getattr(module, "__dict__", {}).get("__file__")
        path = os.path.realpath(file) if isinstance(file, str) else ""
        if not path.startswith(project + os.sep) or path.startswith(code + os.sep):
            continue
        copy = os.path.join(code, os.path.relpath(path, project))
        # Behind a link to the project there is no copy.
        if os.path.realpath(copy) == copy and os.path.exists(copy):
            found.append(name)
    return sorted(found)


def peak_memory_bytes():
    """The largest resident set of this process (Linux counts it in kibibytes)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
