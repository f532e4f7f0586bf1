"""A batch of rows."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, TypeVar

from .._native import Batch as NativeBatch
from .output import Output, choose
from .times import BatchTimes

Self = TypeVar("Self", bound="LentBatch")


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


class Matrix(NamedTuple):
    """A matrix of a batch beside X: a layer, or an array of obsm."""

    kind: str
    """"layers" or "obsm"."""
    name: str
    columns: int
    """Genes of a layer; columns of an array of obsm."""


class LentBatch:
    """What batches of rows and of graphs have in common.

    Arrays are not copied: they are the memory that a loader thread wrote. They are yours as long as you hold one of them, also
    to write to. When all of them are freed, the memory is used for a later batch.
    """

    __slots__ = ("_native", "_output")

    #: The native batch, or what a batch of another process has of it.
    _native: Any
    _output: Output

    @property
    def epoch(self) -> int:
        """The epoch that the batch is of."""
        return self._native.epoch

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays but the numbers of the rows or samples."""
        return self._native.nbytes

    @property
    def bytes_read(self) -> int:
        """Bytes that were read for this batch."""
        return self._native.bytes_read

    def stage_times(self) -> List[Tuple[str, int, int]]:
        """For each stage its name, the ns that loader threads worked on it for this batch, and the ns that the program waited
        for it."""
        return self._native.stages()

    @property
    def expctl_times(self) -> BatchTimes:
        """What loading it cost, for programs that put it into their steps themselves."""
        native = self._native
        return BatchTimes(native.stages(), len(native), native.bytes_read, native.nbytes)

    def expctl_record(self, waited: int) -> Optional[Tuple[str, int, int, int]]:
        """What loading it cost, for `expctl.Run`: the members "busy" and "exposed" of a JSON object, ns by stage; rows or samples; bytes
        read; bytes of its arrays. `waited` is how long the step waited for it, ns. None for a batch of another process."""
        record = getattr(self._native, "record", None)
        return None if record is None else record(waited)

    def to(self: Self, device: Any, non_blocking: bool = False) -> Self:
        """A batch with all tensors on a device of torch. Sparse values stay sparse."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self: Self, device: Any = None) -> Self:
        """A batch in page-locked memory, as `DataLoader(pin_memory=True)` asks for."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self: Self, change: Callable[[Any], Any]) -> Self:
        """A batch of the tensors that `change` makes. Raises TypeError unless they are of torch."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._native)


class Batch(LentBatch):
    """B rows, in the order in which they were drawn."""

    __slots__ = ("X", "_columns", "_matrices", "_rows", "_index", "_obs", "_more")

    X: Any
    """float32 [B, genes] (or the loader's dtype): a dense array, or a sparse one of the loader's kind."""

    def __init__(
        self, native: NativeBatch, output: Output, columns: Tuple[Column, ...], matrices: Tuple[Matrix, ...] = (), rows: Any = None
    ):
        self.X = output.matrix(native, 0, native.genes)
        self._native = native
        self._output = output
        self._columns, self._matrices = columns, matrices
        self._rows = rows
        self._index: Any = None
        self._obs: Optional[Dict[str, Any]] = None
        self._more: Optional[Dict[str, Dict[str, Any]]] = None

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

    @property
    def layers(self) -> Dict[str, Any]:
        """The layers that the data set was opened with, each as X is but for `normalize` and `log1p`."""
        return self._made()["layers"]

    @property
    def obsm(self) -> Dict[str, Any]:
        """The arrays of obsm that the data set was opened with, each dense float32 [B, columns]."""
        return self._made()["obsm"]

    def _made(self) -> Dict[str, Dict[str, Any]]:
        if self._more is None:
            made: Dict[str, Dict[str, Any]] = {"layers": {}, "obsm": {}}
            array = self._first_array() + 1 + len(self._columns)
            for kind, name, columns in self._matrices:
                is_layer = kind == "layers"
                made[kind][name] = (
                    self._output.matrix(self._native, array, columns) if is_layer else self._output.array(self._native, array)
                )
                array += 3 if is_layer and self._native.sparse else 1
            self._more = made
        return self._more

    def _column(self, column: Column, array: int) -> Any:
        if column.categories is not None:
            return self._output.text(self._native, array, column.categories)
        values = self._output.array(self._native, array)
        return values if column.table is None else self._output.looked_up(column.table, values)

    @property
    def shape(self) -> Tuple[int, int]:
        """(B, genes)."""
        return self._native.rows, self._native.genes

    @property
    def nnz(self) -> int:
        """Stored values; of a dense batch B × genes."""
        return self._native.nnz

    def _mapped(self, change: Callable[[Any], Any]) -> "Batch":
        self._output.need_torch()
        other = object.__new__(Batch)
        other.X = change(self.X)
        other._native, other._output = self._native, self._output
        other._columns, other._matrices, other._rows = self._columns, self._matrices, self._rows
        other._index = change(self.index)
        other._obs = {name: values if isinstance(values, list) else change(values) for name, values in self.obs.items()}
        other._more = {kind: {name: change(values) for name, values in of.items()} for kind, of in self._made().items()}
        return other

    def _first_array(self) -> int:
        return 3 if self._native.sparse else 1

    def __repr__(self) -> str:
        kind = f"sparse, nnz={self.nnz}" if self._native.sparse else "dense"
        return f"Batch(rows={self.shape[0]}, genes={self.shape[1]}, {kind}{described(self._columns, self._matrices)})"

    def __reduce__(self) -> Any:
        # Arrays are copied by whoever sends them: NumPy into the pickle, torch into shared memory.
        shared = (SentBatch(self._native), self._output.choice, self._columns, self._matrices)
        return _received, (self.X, self.index, self.obs, self._made(), *shared)


def described(columns: Tuple[Column, ...], matrices: Tuple[Matrix, ...]) -> str:
    """What a batch has beside X, for a repr."""
    named = {"obs": [column.name for column in columns]}
    named.update({kind: [matrix.name for matrix in matrices if matrix.kind == kind] for kind in ("layers", "obsm")})
    return "".join(f", {kind}={names}" for kind, names in named.items() if names)


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


def _received(
    x: Any, index: Any, obs: Dict[str, Any], more: Dict[str, Dict[str, Any]], sent: SentBatch, choice: Any, columns: Any, matrices: Any
) -> Batch:
    batch = object.__new__(Batch)
    batch.X = x
    batch._native, batch._output = sent, choose(*choice)
    batch._columns, batch._matrices, batch._rows = columns, matrices, None
    batch._index, batch._obs, batch._more = index, obs, more
    return batch
