"""In which order a loader draws rows."""

import array
import hashlib
from dataclasses import dataclass
from typing import Any, Iterable, List, Optional, Tuple

from .._native import chunk_presets

_KINDS = ("uniform", "sequential", "chunked")


@dataclass(frozen=True)
class Draw:
    """A rule by which rows are drawn. Made by the functions of this module; `str(draw)` identifies it in a saved state."""

    kind: str
    column: str = ""
    rows: int = 0
    chunk_rows: int = 0
    chunks: int = 0
    listed: Optional[bytes] = None
    #: Length of the mask that the rows were given as; 0 is none.
    mask: int = 0

    def __str__(self) -> str:
        words = [f"{name}={value!r}" for name, value in self._settings() if value]
        return f"{self.kind}({', '.join(words)})"

    def _settings(self) -> List[Tuple[str, Any]]:
        listed = digest(self.listed) if self.listed is not None else ""
        return [
            ("column", self.column), ("rows", self.rows), ("chunk_rows", self.chunk_rows), ("chunks", self.chunks),
            ("digest", listed),
        ]


def uniform(rows: Any = None) -> Draw:
    """All rows once an epoch in random order, another one each epoch; with `rows` only those (a training split, say)."""
    return Draw("uniform") if rows is None else Draw("shuffled", listed=row_bytes(rows), mask=mask_length(rows))


def sequential(chunk_rows: int = 0) -> Draw:
    """All rows in the order of the files, `chunk_rows` read at once (0: as many as the files store together)."""
    return Draw("sequential", chunk_rows=chunk_rows)


def weighted(column: str, rows: int = 0) -> Draw:
    """Rows with replacement, by the weights in an obs column; `rows` an epoch over all ranks (0: as many as there are).

    For weights that no column has there is `torch.utils.data.WeightedRandomSampler`, which a Loader takes as well.
    """
    _check_column("weighted", column)
    return Draw("weighted", column=column, rows=rows)


def balanced(column: str, rows: int = 0) -> Draw:
    """Rows with replacement, each class of an obs column as often; `rows` an epoch over all ranks (0: as many as there are)."""
    _check_column("balanced", column)
    return Draw("balanced", column=column, rows=rows)


def chunked(chunk_rows: Optional[int] = None, chunks: Optional[int] = None, *, preset: Optional[str] = None) -> Draw:
    """All rows once an epoch: chunks of `chunk_rows` consecutive rows in random order, the rows of `chunks` chunks shuffled together.

    Reads far fewer byte ranges of a file than `uniform`, and takes memory for `chunk_rows` × `chunks` rows, or of files that store all
    values for two times as many.

    Args:
        chunk_rows: 0 are as many as the files store together, or 512. None is 0, or as the preset has it.
        chunks: None is 32, or as the preset has it.
        preset: "annbatch" (512 rows, 32 chunks), "scdataset" (16, 1024), "census" (64, 1024, as tiledbsoma-ml) or "merlin" (0, 16): both
            numbers as that system has them, where they are not given.
    """
    known = {name: (rows, together) for name, rows, together in chunk_presets()}
    if preset is not None and preset not in known:
        raise ValueError(f"preset={preset!r} is none of {', '.join(known)}")
    rows, together = (0, 32) if preset is None else known[preset]
    return Draw("chunked", chunk_rows=rows if chunk_rows is None else chunk_rows, chunks=together if chunks is None else chunks)


def _check_column(draw: str, column: Any) -> None:
    if not isinstance(column, str):
        raise TypeError(f"{draw}({type(column).__name__}): it takes the name of an obs column")


class ForeignSampler:
    """A sampler of torch, or anything that yields rows or lists of rows. It is iterated once an epoch, as a whole."""

    def __init__(self, sampler: Iterable[Any]):
        self.sampler = sampler
        #: Whether it yields batches, as far as is known before it was iterated; None is unknown.
        self._in_batches = _yields_batches(sampler)

    def __str__(self) -> str:
        return type(self.sampler).__name__

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to a sampler that wants it, as DistributedSampler does."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def draw(self) -> Tuple[bytes, Optional[bytes]]:
        """The rows of an epoch; and the end of each batch, if the sampler yields batches."""
        rows = array.array("q")
        ends = array.array("q")
        batches = False
        for drawn in self.sampler:
            # A number may be a tensor without dimensions.
            if hasattr(drawn, "__iter__") and getattr(drawn, "ndim", 1) != 0:
                batches = True
                rows.extend(int(row) for row in drawn)
                ends.append(len(rows))
            elif batches:
                raise TypeError(f"{self} yields batches and single rows")
            else:
                rows.append(int(drawn))
        if batches and len(ends) and ends[0] == 0:
            raise ValueError(f"{self} yields an empty batch")
        self._in_batches = batches
        return rows.tobytes(), ends.tobytes() if batches else None

    def batches(self, batch_size: int, drop_last: bool) -> int:
        """Batches of an epoch.

        Raises:
            TypeError: the sampler has no length, or it is not known yet whether that is in rows or in batches.
        """
        count = len(self.sampler)  # type: ignore[arg-type]
        if self._in_batches is None:
            # To look would take a draw from its generator.
            raise TypeError(f"{self} yields rows or batches, and which is known in its first epoch only: it has no batch_size")
        if self._in_batches:
            return count
        return count // batch_size if drop_last else -(-count // batch_size)


def _yields_batches(sampler: Any) -> Optional[bool]:
    """Whether a sampler that was not iterated yet yields batches; None is unknown."""
    if hasattr(sampler, "batch_size") or isinstance(sampler, (list, tuple)):
        return True
    # Samplers of torch are named after what they draw; `Sampler` alone says nothing of it.
    bases = [base for base in type(sampler).__mro__ if base.__module__.startswith("torch.utils.data") and base.__name__ != "Sampler"]
    return False if bases else None


def resolve(sampler: Any) -> Any:
    """A `Draw` or a `ForeignSampler` for what a user gave."""
    if isinstance(sampler, (Draw, ForeignSampler)):
        return sampler
    if isinstance(sampler, str):
        if sampler not in _KINDS:
            hint = f"; it needs a column: sampler=expctl.data.{sampler}(\"column\")" if sampler in ("weighted", "balanced") else ""
            raise ValueError(f"sampler={sampler!r} is none of {', '.join(_KINDS)}{hint}")
        return {"uniform": uniform, "sequential": sequential, "chunked": chunked}[sampler]()
    if isinstance(sampler, (range, bytes)) or hasattr(sampler, "__array__") or _is_list_of_rows(sampler):
        return Draw("listed", listed=row_bytes(sampler), mask=mask_length(sampler))
    if hasattr(sampler, "__iter__"):
        return ForeignSampler(sampler)
    raise TypeError(f"a sampler is a name, what a function of expctl.data gives, rows, or a sampler of torch, and not {sampler!r}")


def _is_list_of_rows(sampler: Any) -> bool:
    return isinstance(sampler, (list, tuple)) and not (len(sampler) > 0 and hasattr(sampler[0], "__len__"))


def row_bytes(rows: Any) -> bytes:
    """Row numbers as the bytes of int64 numbers. Of a mask, the rows where it is true."""
    if isinstance(rows, bytes):
        return rows
    if hasattr(rows, "__array__"):
        try:
            import numpy
        except ImportError:
            rows = rows.tolist()
        else:
            rows = numpy.asarray(rows)
            if rows.ndim != 1:
                raise ValueError(f"rows are a list of one dimension, and not of shape {rows.shape}")
            if rows.dtype == bool:
                rows = numpy.flatnonzero(rows)
            if rows.size and rows.dtype.kind not in "iu":
                raise TypeError(f"rows are integers, and not {rows.dtype}")
            return rows.astype("int64", copy=False).tobytes()
    if len(rows) > 0 and isinstance(rows[0], bool):
        rows = [row for row, chosen in enumerate(rows) if chosen]
    return array.array("q", rows).tobytes()


def mask_length(rows: Any) -> int:
    """Length of a mask; 0 if these are row numbers."""
    if isinstance(rows, bytes):
        return 0
    if hasattr(rows, "__array__"):
        # `bool`, `boolean` and `bool[pyarrow]` of pandas, `torch.bool`, `Boolean` of polars.
        dtype = str(getattr(rows, "dtype", "")).lower().removeprefix("torch.")
        return len(rows) if dtype.startswith("bool") else 0
    return len(rows) if len(rows) > 0 and isinstance(rows[0], bool) else 0


def check_mask(length: int, count: int, items: str) -> None:
    """Raise IndexError for a mask (`mask_length` is not 0) of another data set than that of so many rows."""
    if length not in (0, count):
        raise IndexError(f"a mask of {length} truth values is given, and there are {count} {items}")


def digest(rows: bytes) -> str:
    """A short name of a list of rows, by which a saved state knows it again."""
    return hashlib.sha256(rows).hexdigest()[:16]
