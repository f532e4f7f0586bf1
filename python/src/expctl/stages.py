"""The parts of a step that the ledger knows, in order."""

STAGES = (
    "sample",
    "read",
    "decode",
    "mask",
    "collate",
    "pin",
    "transfer",
    "forward",
    "backward",
    "allreduce",
    "clip",
    "optimizer",
    "other",
)
KNOWN = frozenset(STAGES)


def check(name):
    """Refuse a name that is no stage."""
    if name not in KNOWN:
        raise ValueError(f"there is no stage {name!r}; stages are {', '.join(STAGES)}")
