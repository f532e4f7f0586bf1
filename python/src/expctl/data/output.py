"""The arrays that batches are handed out as: of torch, NumPy or SciPy, or plain DLPack tensors."""

import importlib.util
import warnings
from typing import Any, Callable, Optional, Sequence

from .._native import Batch as NativeBatch
from .._native import LentArrays, Tensor

OUTPUTS = ("torch", "numpy", "scipy", "dlpack")
DTYPES = ("float32", "float64", "float16", "bfloat16")


class Output:
    """How the arrays of a batch are made. `matrix` is called once a batch, so it is chosen once.

    `matrix(native, first, columns)`: the matrix [B, columns] of a batch whose arrays begin with number `first`.
    """

    def __init__(self, kind: str, sparse: bool, dtype: str):
        self.kind = kind
        self.sparse = sparse
        self.dtype = dtype
        #: The arguments of `choose` that give this output.
        self.choice = (kind, sparse, dtype)
        self.matrix, self._array = _MAKERS[kind](sparse, dtype)

    def array(self, native: LentArrays, index: int) -> Any:
        """An array of one dimension."""
        return self._array(native, index)

    def whole(self, tensor: Tensor) -> Any:
        """An array that is of no batch."""
        if self.kind == "torch":
            import torch

            return torch.from_dlpack(tensor)
        if self.kind == "dlpack":
            return tensor
        import numpy

        return numpy.from_dlpack(tensor)

    def truth(self, mask: Any) -> Any:
        """A mask of uint8 as one of truth values, in the same memory; of out="dlpack" as it is."""
        if self.kind == "torch":
            import torch

            return mask.view(torch.bool)
        return mask if self.kind == "dlpack" else mask.view(bool)

    def looked_up(self, table: Any, codes: Any) -> Any:
        """int64 [B]: `table[codes]`, where -1 is its last element."""
        if self.kind == "torch":
            import torch

            return torch.from_numpy(table)[codes]
        import numpy

        return table[numpy.from_dlpack(codes) if self.kind == "dlpack" else codes]

    def places(self, rows: Any, index: Any) -> Any:
        """int64 [B]: where in `rows`, which ascend, each element of `index` is."""
        if self.kind == "torch":
            import torch

            return torch.searchsorted(torch.from_numpy(rows), index)
        import numpy

        return numpy.searchsorted(rows, numpy.from_dlpack(index) if self.kind == "dlpack" else index).astype("int64", copy=False)

    def text(self, native: NativeBatch, index: int, categories: Sequence[str]) -> Any:
        """Names of the classes of an array of class numbers; None for -1."""
        names = [categories[code] if code >= 0 else None for code in native.class_numbers(index)]
        if self.kind in ("torch", "dlpack"):
            return names
        import numpy

        # Not asarray, which would make strings of a fixed width.
        array = numpy.empty(len(names), dtype=object)
        array[:] = names
        return array

    def need_torch(self) -> None:
        """Raise TypeError unless the arrays are tensors of torch."""
        if self.kind != "torch":
            raise TypeError(f'this is for out="torch", and these are arrays of out="{self.kind}"')


def row_sum(normalize: Any) -> float:
    """The sum that rows are scaled to. Raises TypeError for True, which as a number would be a sum of 1."""
    if normalize is True:
        raise TypeError("normalize=True: it is the sum that each row is scaled to, such as 1e4")
    return float(normalize)


class Destination:
    """Where batches are moved. False is the memory that they were written to."""

    def __init__(self, pin: bool, device: Any):
        self.pin, self.device = bool(pin), device
        self._pins = self.pin and _has_accelerator()

    def __bool__(self) -> bool:
        return self.pin or self.device is not None

    def moved(self, batch: Any) -> Any:
        """A batch there. Batches of PyTorch Geometric have the same methods."""
        if self._pins:
            batch = batch.pin_memory()
        # Out of page-locked memory the device reads by itself, and torch keeps the memory until it has.
        return batch if self.device is None else batch.to(self.device, non_blocking=self._pins)


def _has_accelerator() -> bool:
    import torch

    return torch.accelerator.is_available() if hasattr(torch, "accelerator") else torch.cuda.is_available()


def choose(out: Optional[str], sparse: Optional[bool], dtype: Any) -> Output:
    """The output for the arguments of a user. Raises ValueError, or ImportError if a library is not installed."""
    if out is None:
        out = "torch" if importlib.util.find_spec("torch") else "numpy"
    if out not in OUTPUTS:
        raise ValueError(f"out={out!r} is none of {', '.join(OUTPUTS)}")
    if out == "scipy" and sparse is False:
        raise ValueError('out="scipy" is for sparse values; take out="numpy" for dense ones')
    name = str(dtype).removeprefix("torch.") if not isinstance(dtype, type) else dtype.__name__
    if name not in DTYPES or name == "bfloat16" and out != "torch":
        raise ValueError(f"dtype={dtype!r} is none of {', '.join(DTYPES)} (bfloat16 with torch)")
    if out == "dlpack" and name != "float32":
        raise ValueError('out="dlpack" hands out the memory of the loader, which is float32')
    return Output(out, out == "scipy" if sparse is None else bool(sparse), name)


def _torch(sparse: bool, dtype: str) -> Any:
    import torch
    from torch.utils.dlpack import from_dlpack

    wanted = getattr(torch, dtype)
    convert = wanted is not torch.float32
    csr = torch.sparse_csr_tensor

    def array(native: LentArrays, index: int) -> Any:
        return from_dlpack(native.capsule(index))

    def dense_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        values = from_dlpack(native.capsule(first))
        return values.to(wanted) if convert else values

    def sparse_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        values = from_dlpack(native.capsule(first + 2))
        return csr(
            from_dlpack(native.capsule(first)),
            from_dlpack(native.capsule(first + 1)),
            values.to(wanted) if convert else values,
            size=(native.rows, columns),
            check_invariants=False,
        )

    if sparse:
        # torch says once in a process that sparse CSR is in beta; nobody can do anything about it here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            csr(torch.zeros(1, dtype=torch.int32), torch.zeros(0, dtype=torch.int32), torch.zeros(0), size=(0, 1))
    return (sparse_matrix if sparse else dense_matrix), array


def _numpy(sparse: bool, dtype: str) -> Any:
    import numpy

    from .batch import CSR

    array = _numpy_array(numpy)
    wanted = numpy.dtype(dtype)

    def dense_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        return array(native, first).astype(wanted, copy=False)

    def sparse_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        values = array(native, first + 2).astype(wanted, copy=False)
        return CSR(array(native, first), array(native, first + 1), values, (native.rows, columns))

    return (sparse_matrix if sparse else dense_matrix), array


def _scipy(sparse: bool, dtype: str) -> Any:
    import numpy
    from scipy.sparse import csr_matrix

    array = _numpy_array(numpy)
    wanted = numpy.dtype(dtype)

    def sparse_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        values = array(native, first + 2).astype(wanted, copy=False)
        parts = (values, array(native, first + 1), array(native, first))
        matrix = csr_matrix(parts, shape=(native.rows, columns), copy=False)
        matrix.has_sorted_indices = True
        matrix.has_canonical_format = True
        return matrix

    return sparse_matrix, array


def _dlpack(sparse: bool, dtype: str) -> Any:
    from .batch import CSR

    def array(native: LentArrays, index: int) -> Any:
        return native.tensor(index)

    def dense_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        return native.tensor(first)

    def sparse_matrix(native: NativeBatch, first: int, columns: int) -> Any:
        return CSR(native.tensor(first), native.tensor(first + 1), native.tensor(first + 2), (native.rows, columns))

    return (sparse_matrix if sparse else dense_matrix), array


def _numpy_array(numpy: Any) -> Callable[[LentArrays, int], Any]:
    from_dlpack = numpy.from_dlpack

    def array(native: LentArrays, index: int) -> Any:
        return from_dlpack(native.tensor(index))

    return array


_MAKERS = {"torch": _torch, "numpy": _numpy, "scipy": _scipy, "dlpack": _dlpack}
