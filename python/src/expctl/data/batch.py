"""A batch of rows."""

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .._native import Batch as NativeBatch
from .output import Output, choose


class CSR(NamedTuple):
    """A sparse matrix [B, genes] as three arrays, for libraries that have no sparse matrix of their own."""

    crow: Any
    """int32 [B + 1]: start of each row in `col` and `values`, and the end."""
    col: Any
    """int32 [nnz]: gene of each value, ascending in a row."""
    values: Any
    """float32 [nnz]."""
    shape: Tuple[int, int]
    """(B, genes)."""


class Column(NamedTuple):
    """An obs column of a batch."""

    name: str
    array: int
    """Index among the arrays of a batch that come after the row numbers."""
    categories: Optional[Tuple[str, ...]]
    """Names of the classes if the batch has them as text; else None."""
    table: Any = None
    """int64: the number of an encoder for each class number of the files, and -1 at the end; None are the numbers of the files."""


class Batch:
    """B rows, in the order in which they were drawn.

    Arrays are not copied: they are the memory that a loader thread wrote. They are yours as long as you hold one of them, also
    to write to. When all of them are freed, the memory is used for a later batch.
    """

    __slots__ = ("X", "_native", "_output", "_columns", "_rows", "_index", "_obs")

    X: Any
    """float32 [B, genes] (or the loader's dtype): a dense array, or a sparse one of the loader's kind."""

    def __init__(self, native: NativeBatch, output: Output, columns: Tuple[Column, ...], rows: Any = None):
        self.X = output.matrix(native)
        self._native: Any = native
        self._output = output
        self._columns = columns
        self._rows = rows
        self._index: Any = None
        self._obs: Optional[Dict[str, Any]] = None

    @property
    def index(self) -> Any:
        """int64 [B]: the row of the data set that each row of the batch is."""
        if self._index is None:
            index = self._output.array(self._native, self._first_array())
            self._index = index if self._rows is None else self._output.places(self._rows, index)
        return self._index

    @property
    def obs(self) -> Dict[str, Any]:
        """The obs columns that the data set was opened with, each [B].

        Classes are int64 numbers, -1 being a missing value; their names are in `Dataset.classes`. Numbers are float32, integers
        int64, unless another type was asked for. Text is a list of str (out="torch", "dlpack") or an array of objects, None
        being a missing value.
        """
        if self._obs is None:
            first = self._first_array() + 1
            self._obs = {column.name: self._column(column, first + column.array) for column in self._columns}
        return self._obs

    def _column(self, column: Column, array: int) -> Any:
        if column.categories is not None:
            return self._output.text(self._native, array, column.categories)
        values = self._output.array(self._native, array)
        return values if column.table is None else self._output.looked_up(column.table, values)

    @property
    def epoch(self) -> int:
        """The epoch that the batch is of."""
        return self._native.epoch

    @property
    def shape(self) -> Tuple[int, int]:
        """(B, genes)."""
        return self._native.rows, self._native.genes

    @property
    def nnz(self) -> int:
        """Stored values; of a dense batch B × genes."""
        return self._native.nnz

    @property
    def nbytes(self) -> int:
        """Bytes of X and of the obs columns."""
        return self._native.nbytes

    @property
    def bytes_read(self) -> int:
        """Bytes that were read from the files for this batch."""
        return self._native.bytes_read

    def stage_times(self) -> List[Tuple[str, int, int]]:
        """For each stage its name, the ns that loader threads worked on it for this batch, and the ns that the program waited
        for it. `expctl.Run` puts them into the step that uses the batch."""
        return self._native.stages()

    def to(self, device: Any, non_blocking: bool = False) -> "Batch":
        """A batch with all tensors on a device of torch. Sparse values stay sparse."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self, device: Any = None) -> "Batch":
        """A batch in page-locked memory, as `DataLoader(pin_memory=True)` asks for."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, change: Any) -> "Batch":
        self._output.need_torch()
        other = object.__new__(Batch)
        other.X = change(self.X)
        other._native = self._native
        other._output = self._output
        other._columns, other._rows = self._columns, self._rows
        other._index = change(self.index)
        other._obs = {name: values if isinstance(values, list) else change(values) for name, values in self.obs.items()}
        return other

    def _first_array(self) -> int:
        return 3 if self._native.sparse else 1

    def __len__(self) -> int:
        return self._native.rows

    def __repr__(self) -> str:
        kind = f"sparse, nnz={self.nnz}" if self._native.sparse else "dense"
        columns = f", obs={[column.name for column in self._columns]}" if self._columns else ""
        return f"Batch(rows={self.shape[0]}, genes={self.shape[1]}, {kind}{columns})"

    def __reduce__(self) -> Any:
        # Arrays are copied by whoever sends them: NumPy into the pickle, torch into shared memory.
        return _received, (self.X, self.index, self.obs, SentBatch(self._native), self._output.choice, self._columns)


class SentArrays:
    """What a batch of another process has of the arrays of a native batch."""

    def __init__(self, native: Any):
        self.epoch, self.nbytes, self.bytes_read = native.epoch, native.nbytes, native.bytes_read
        self._length, self._stages = len(native), native.stages()

    def stages(self) -> List[Tuple[str, int, int]]:
        """The times of the process that built the batch."""
        return self._stages

    def __len__(self) -> int:
        return self._length


class SentBatch(SentArrays):
    """What a batch of another process has of a native batch of rows."""

    def __init__(self, native: Any):
        super().__init__(native)
        self.rows, self.genes, self.sparse, self.nnz = native.rows, native.genes, native.sparse, native.nnz


def _received(x: Any, index: Any, obs: Dict[str, Any], sent: SentBatch, choice: Any, columns: Any) -> Batch:
    batch = object.__new__(Batch)
    batch.X = x
    batch._native = sent
    batch._output = choose(*choice)
    batch._columns, batch._rows = columns, None
    batch._index, batch._obs = index, obs
    return batch
