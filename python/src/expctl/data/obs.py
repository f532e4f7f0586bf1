"""The columns of obs."""

from collections.abc import Mapping
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

from .._native import Dataset as NativeDataset
from .._native import ObsColumns

TYPES = ("auto", "class", "float32", "float64", "int64", "text")

ObsSpec = Union[None, str, List[str], Tuple[str, ...], Dict[str, str]]


def columns_of(obs: ObsSpec) -> Dict[str, str]:
    """Names and types of the columns that a user asked for."""
    if obs is None:
        return {}
    if isinstance(obs, str):
        return {obs: "auto"}
    columns = dict(obs) if isinstance(obs, Mapping) else {name: "auto" for name in obs}
    for name, dtype in columns.items():
        if dtype not in TYPES:
            raise ValueError(f"obs[{name!r}] is asked for as {dtype!r}, which is none of {', '.join(TYPES)}")
    return columns


def read_columns(native: NativeDataset, columns: Dict[str, str]) -> ObsColumns:
    """Read the columns; text is read as classes."""
    return native.select([(name, "class" if dtype == "text" else dtype) for name, dtype in columns.items()])


class Obs(Mapping):
    """The columns of obs of all rows of a data set. A column is read when it is asked for.

    `ds.obs["cell_type"]` is a pandas Series if pandas is installed: categories for classes, bool for truth values, numbers as they
    are. Without pandas it is an array of NumPy: class numbers (int32, -1 being missing), or numbers.
    """

    def __init__(self, native: NativeDataset, rows: Any = None):
        self._native = native
        #: int64: the rows of a view; None are all.
        self._rows = rows
        self._names: Optional[List[str]] = None
        self._read: Dict[str, Any] = {}

    @property
    def columns(self) -> List[str]:
        """Names of the columns that all files have."""
        if self._names is None:
            self._names = self._native.columns()
        return list(self._names)

    @property
    def names(self) -> Optional[List[str]]:
        """Names of the rows (obs_names), or None if the files have none."""
        names = self._native.row_names()
        return names if names is None or self._rows is None else [names[row] for row in self._rows.tolist()]

    def to_pandas(self, columns: Optional[List[str]] = None) -> Any:
        """A DataFrame [rows, columns] of all columns, or of those that are named."""
        import pandas

        names = self.columns if columns is None else columns
        return pandas.DataFrame({name: self[name].array for name in names}, index=self._names_index(pandas))

    def _names_index(self, pandas: Any) -> Any:
        names = self.names
        return pandas.RangeIndex(self._count()) if names is None else pandas.Index(names)

    def _count(self) -> int:
        return len(self._native) if self._rows is None else len(self._rows)

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self._series(name)
        return self._read[name]

    def _series(self, name: str) -> Any:
        import numpy

        column = self._native.select([(name, "auto")])
        if column.layout()[0][1] == "float32":
            # Without the rounding that is meant for batches.
            column = self._native.select([(name, "float64")])
        values = numpy.from_dlpack(column.tensor(0))
        if self._rows is not None:
            values = values[self._rows]
        try:
            import pandas
        except ImportError:
            return values
        categories = column.categories(0)
        if categories is None:
            return pandas.Series(values, name=name)
        if column.kind(0) == "bool" and not (values < 0).any():
            return pandas.Series(numpy.array([text == "True" for text in categories])[values], name=name, dtype=bool)
        return pandas.Series(pandas.Categorical.from_codes(values, categories=categories), name=name)

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def get(self, name: str, default: Any = None) -> Any:
        """A column, or `default` if there is none of this name."""
        return self[name] if name in self else default

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        return f"Obs({self.columns})"
