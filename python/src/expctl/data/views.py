"""Views: some rows of a data set, chosen by a filter or a split, and in which order a loader draws them."""

import io
import re
import tokenize
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from .._native import DataError
from .samplers import Draw, ForeignSampler, digest, row_bytes

if TYPE_CHECKING:
    from .dataset import Dataset


def matching(dataset: "Dataset", query: str) -> Any:
    """int64: the rows of a data set for which a query of pandas is true. Only the columns that it names are read.

    Raises:
        DataError: there is no such column, or the query is none of pandas, or no row matches.
    """
    import numpy
    import pandas

    if not isinstance(query, str):
        raise TypeError(f"filter is a query such as \"tissue == 'lung'\", and not a {type(query).__name__}")
    if "@" in query:
        raise DataError(f"filter={query!r}: variables of the program (@) are not known here; put their values into the text")
    words = _words(query)
    columns = [name for name in dataset.obs.columns if name in words]
    if "index" in words:
        frame = dataset.obs.to_pandas(columns)
    else:
        frame = pandas.DataFrame({name: dataset.obs[name].array for name in columns}, index=pandas.RangeIndex(len(dataset)))
    frame.insert(0, _ROW, numpy.arange(len(dataset)))
    try:
        found = frame.query(query, engine="python")
    except Exception as error:  # Whatever the expression does.
        raise DataError(f"filter={query!r}: {error}; obs has the columns {', '.join(dataset.obs.columns)}") from error
    rows = found[_ROW].to_numpy(dtype="int64")
    if not len(rows):
        raise DataError(f"filter={query!r}: none of {len(dataset)} rows matches")
    return rows


_ROW = "row of the data set"


def _words(query: str) -> "set[str]":
    """The names in an expression, those in backticks too; not what is in strings."""
    names = set(re.findall(r"`([^`]+)`", query))
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(re.sub(r"`[^`]+`", "_", query)).readline))
    except (tokenize.TokenError, SyntaxError):
        # pandas says what is wrong with it.
        return names
    return names | {token.string for token in tokens if token.type == tokenize.NAME}


def parts(dataset: "Dataset", fractions: Sequence[float], seed: int, by: Optional[str], stratify: Optional[str]) -> List[Any]:
    """int64 rows of each part of a split, ascending. `Dataset.split` says what the arguments are."""
    import numpy

    if isinstance(fractions, (str, float, int)):
        raise TypeError(f"shares of a split are several, such as (0.8, 0.1, 0.1), and not {fractions!r}")
    shares = [float(share) for share in fractions]
    if not shares or min(shares) <= 0 or sum(shares) > 1 + 1e-9:
        raise ValueError(f"fractions={tuple(fractions)!r}: each is above 0, and together they are 1 at most")
    if by is not None and stratify is not None:
        raise ValueError("by= keeps the rows of a group together, and stratify= divides each class: choose one")
    chance = numpy.random.Generator(numpy.random.PCG64(seed)).random
    if by is not None:
        part_of = _grouped(*_groups(dataset, by), shares, chance)
    else:
        part_of = numpy.full(len(dataset), -1)
        codes = numpy.zeros(len(dataset), "int64") if stratify is None else _groups(dataset, stratify)[0]
        for code in numpy.unique(codes):
            rows = numpy.flatnonzero(codes == code)
            rows = rows[numpy.argsort(chance(len(rows)), kind="stable")]
            ends = numpy.rint(numpy.minimum(numpy.cumsum(shares), 1) * len(rows)).astype("int64")
            for part, (start, end) in enumerate(zip([0, *ends[:-1]], ends)):
                part_of[rows[start:end]] = part
    found = [numpy.flatnonzero(part_of == part) for part in range(len(shares))]
    for share, rows in zip(shares, found):
        if not len(rows):
            raise ValueError(f"the part of {share:g} would have none of the {len(dataset)} {dataset._items}")
    return found


def _groups(dataset: "Dataset", column: str) -> Tuple[Any, List[str]]:
    """int [rows] numbers of groups in the order of their names, a missing value being a group of its own; and their names."""
    import numpy

    values = numpy.asarray(dataset.obs[column].astype(object), dtype=object)
    texts = numpy.array(["" if value is None or value != value else f"={value}" for value in values])
    names, codes = numpy.unique(texts, return_inverse=True)
    return codes, list(names)


def _grouped(codes: Any, names: List[str], shares: List[float], chance: Any) -> Any:
    """int [rows]: the part of each row, where a group is in one part: in random order each goes where most rows are wanting."""
    import numpy

    if len(names) < len(shares):
        raise ValueError(f"{len(names)} groups cannot be divided into {len(shares)} parts")
    sizes = numpy.bincount(codes, minlength=len(names))
    # What the shares leave is a part as well, which nobody gets.
    wanting = numpy.array([*shares, max(1 - sum(shares), 0)]) * len(codes)
    part_of_group = numpy.full(len(names), -1)
    order = numpy.argsort(chance(len(names)), kind="stable")
    for place, group in enumerate(order):
        empty = [part for part in range(len(shares)) if not (part_of_group == part).any()]
        # The last groups are for the parts that have none.
        part = empty[0] if len(order) - place <= len(empty) else int(wanting.argmax())
        wanting[part] -= sizes[group]
        part_of_group[group] = part
    return part_of_group[codes]


def file_rows(rows: bytes, view: Any, items: str) -> bytes:
    """Rows of a view as rows of all files. Raises IndexError for one that the view does not have; `items` is what its text calls them."""
    import numpy

    asked = numpy.frombuffer(rows, "int64")
    if asked.size and (asked.min() < 0 or asked.max() >= len(view)):
        strange = asked[(asked < 0) | (asked >= len(view))][0]
        raise IndexError(f"{items[:-1]} {strange} is asked for, and there are {len(view)} {items}")
    return view[asked].tobytes()


def in_view(draw: Any, dataset: "Dataset", seed: int) -> Any:
    """What draws the rows of the files for a sampler of the rows of a view."""
    view = dataset._rows
    if isinstance(draw, ForeignSampler):
        return ForeignInView(draw, dataset)
    if draw.kind in ("listed", "shuffled"):
        return Draw(draw.kind, listed=file_rows(draw.listed, view, dataset._items))
    if draw.kind == "uniform":
        return Draw("shuffled", listed=view.tobytes())
    if draw.kind == "sequential":
        return Draw("listed", listed=view.tobytes())
    if draw.kind == "chunked":
        return Draw("listed chunks", chunk_rows=draw.chunk_rows, chunks=draw.chunks, listed=view.tobytes())
    return DrawInView(draw, dataset, seed)


class ForeignInView(ForeignSampler):
    """A sampler of torch that yields rows of a view."""

    def __init__(self, foreign: ForeignSampler, dataset: "Dataset"):
        super().__init__(foreign.sampler)
        self._view, self._items = dataset._rows, dataset._items

    def draw(self) -> Tuple[bytes, Optional[bytes]]:
        """The rows of the files of an epoch; and the end of each batch, if the sampler yields batches."""
        rows, ends = super().draw()
        return file_rows(rows, self._view, self._items), ends


class DrawInView:
    """Rows of a view by weights or by classes. All rows of an epoch are drawn when it begins, on all ranks alike."""

    def __init__(self, draw: Draw, dataset: "Dataset", seed: int):
        import numpy

        self._kind, self._view, self._seed, self._epoch = draw.kind, dataset._rows, seed, 0
        self._count = draw.rows or len(self._view)
        if draw.kind == "weighted":
            self._ends = numpy.cumsum(_weights(dataset, draw.column))
        else:
            columns = dataset._native.select([(draw.column, "class")])
            codes = numpy.from_dlpack(columns.tensor(0))[self._view]
            self._order = numpy.argsort(codes, kind="stable")
            present, self._first, self._sizes = numpy.unique(codes[self._order], return_index=True, return_counts=True)
            known = present >= 0
            self._first, self._sizes = self._first[known], self._sizes[known]
            if not len(self._first):
                raise DataError(f"obs[{draw.column!r}] is missing in all {len(self._view)} rows")

    def set_epoch(self, epoch: int) -> None:
        """The epoch that is drawn next."""
        self._epoch = epoch

    def draw(self) -> Tuple[bytes, None]:
        """The rows of the files of an epoch, over all ranks: a function of the seed and the epoch."""
        import numpy

        chance = numpy.random.Generator(numpy.random.PCG64([self._seed, self._epoch])).random
        if self._kind == "weighted":
            rows = numpy.searchsorted(self._ends, chance(self._count) * self._ends[-1], side="right")
            rows = numpy.minimum(rows, len(self._ends) - 1)
        else:
            classes = (chance(self._count) * len(self._first)).astype("int64")
            rows = self._order[self._first[classes] + (chance(self._count) * self._sizes[classes]).astype("int64")]
        return self._view[rows].tobytes(), None

    def batches(self, batch_size: int, drop_last: bool, ranks: int) -> int:
        """Batches of an epoch on each rank."""
        return self._count // ranks // batch_size if drop_last else -(-self._count // (ranks * batch_size))


def _weights(dataset: "Dataset", column: str) -> Any:
    """float64 [rows of the view]. Raises DataError for what is no weight."""
    import numpy

    columns = dataset._native.select([(column, "auto")])
    if columns.layout()[0][1] == "class":
        raise DataError(f"weights in {column}: these are classes, and no numbers")
    weights = numpy.asarray(dataset.obs[column], dtype="float64")
    strange = numpy.flatnonzero(~(numpy.isfinite(weights) & (weights >= 0)))
    if len(strange):
        raise DataError(f"weights in {column}: row {strange[0]} has {weights[strange[0]]}; a weight is a finite number of 0 or more")
    if not weights.sum() > 0:
        raise DataError(f"weights in {column}: all are 0")
    return weights


def subset(view: Any, rows: Any, items: str) -> Any:
    """int64: rows of the files of the rows of a view (None: of all), ascending, each once."""
    import numpy

    chosen = numpy.unique(numpy.frombuffer(row_bytes(rows), "int64"))
    return chosen if view is None else numpy.frombuffer(file_rows(chosen.tobytes(), view, items), "int64").copy()


def name_of(view: Any) -> str:
    """A short name of the rows of a view, by which a saved state knows them again."""
    return digest(view.tobytes())
