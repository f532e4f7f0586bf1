"""Which part of the rows this process loads."""

import os
import sys
from typing import Any, Tuple


def resolve(rank: Any) -> Tuple[int, int]:
    """Rank and number of ranks: a pair, or "auto".

    "auto" asks torch.distributed if it is initialised, else the variables RANK and WORLD_SIZE if both are set, as torchrun sets
    them; else it is rank 0 of 1.
    """
    if rank == "auto":
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
            return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        return 0, 1
    try:
        number, count = (int(part) for part in rank)
    except (TypeError, ValueError):
        raise ValueError(f'rank={rank!r} is neither "auto" nor a pair (rank, number of ranks)') from None
    if not 0 <= number < count:
        raise ValueError(f"rank={rank!r}: ranks are counted from 0, and are below their number")
    return number, count
