"""A batch of samples of a graph."""

from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..._native import GraphBatch, GraphForm
from ..batch import LentBatch, SentArrays
from ..output import Output, choose

if TYPE_CHECKING:
    from .dataset import Dataset

#: Processors whose batches are of PyTorch Geometric.
PYG = ("pyg", "perturbation")


def array_output(out: Optional[str], processor: str = "ids") -> Output:
    """The output for the arguments of a user. Raises ValueError, or ImportError if a library is not installed."""
    if out == "scipy":
        raise ValueError('out="scipy" is for rows; batches of a graph are of "torch", "numpy" or "dlpack"')
    if processor in PYG and out not in (None, "torch"):
        raise ValueError(f'out={out!r}: processor="{processor}" makes batches of PyTorch Geometric, which are tensors of torch')
    return choose("torch" if processor in PYG else out, False, "float32")


class PackedMask(NamedTuple):
    """A mask of each sample, a bit per entry."""

    bits: Any
    """uint8 [B, 8 · ceil(E / 64)]: bit i of byte j is entry 8·j + i, 1 being kept; bits behind the last entry are 0."""
    entries: int
    """Entries E of each sample."""

    def kept(self) -> Any:
        """bool [B, E]: True is kept. On the device that the bits are on."""
        bits = self.bits
        if hasattr(bits, "device") and hasattr(bits, "bitwise_and"):
            import torch

            powers = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=bits.device)
            return bits.unsqueeze(-1).bitwise_and(powers).ne(0).flatten(1)[:, : self.entries]
        import numpy

        bits = numpy.from_dlpack(bits) if not isinstance(bits, numpy.ndarray) else bits
        return numpy.unpackbits(bits, axis=1, count=self.entries, bitorder="little").view(bool)


class RemovedEntries(NamedTuple):
    """The entries that each sample removes."""

    positions: Any
    """int32 [ΣF]: entries, ascending within a sample."""
    ptr: Any
    """int64 [B + 1]: where each sample's positions start."""
    entries: int
    """Entries E of each sample."""

    def kept(self) -> Any:
        """bool [B, E]: True is kept. On the device that the positions are on."""
        positions, ptr = self.positions, self.ptr
        if hasattr(positions, "device") and hasattr(positions, "bitwise_and"):
            import torch

            samples = len(ptr) - 1
            mask = torch.ones(samples, self.entries, dtype=torch.bool, device=positions.device)
            of_sample = torch.repeat_interleave(torch.arange(samples, device=positions.device), ptr.diff())
            mask[of_sample, positions.long()] = False
            return mask
        import numpy

        if not isinstance(positions, numpy.ndarray):
            positions, ptr = numpy.from_dlpack(positions), numpy.from_dlpack(ptr)
        mask = numpy.ones((len(ptr) - 1, self.entries), dtype=bool)
        mask[numpy.repeat(numpy.arange(len(ptr) - 1), numpy.diff(ptr)), positions] = False
        return mask


class Batch(LentBatch):
    """B samples, in the order in which they were drawn. Σk is the number of genes that they perturb."""

    __slots__ = ("genes", "gene_sample", "gene_ptr", "labels", "p_values", "masks", "removed", "index")

    genes: Any
    """int64 [Σk]: perturbed genes, sample by sample, ascending within one."""
    gene_sample: Any
    """int64 [Σk]: the sample of each, 0 to B - 1."""
    gene_ptr: Any
    """int64 [B + 1]: where each sample's genes start."""
    labels: Any
    """float32 [B]: gene interactions."""
    p_values: Any
    """float32 [B]: their p-values; NaN if there is none."""
    masks: Dict[str, Any]
    """With "masks" bool [B, E] (out="dlpack": uint8), True being kept; with "packed" a `PackedMask`: of each edge type and, with
    metabolism, of "reaction", "gpr" and "rmr". Else empty."""
    removed: Dict[str, RemovedEntries]
    """With "removed" the entries that are False in these masks. Else empty."""
    index: Any
    """int64 [B]: the number of each sample in the data set."""

    def _mapped(self, change: Callable[[Any], Any]) -> "Batch":
        self._output.need_torch()

        def mapped(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: mapped(inner) for name, inner in value.items()}
            if isinstance(value, tuple):
                return type(value)(*map(mapped, value))
            return value if isinstance(value, int) else change(value)

        return _batch({name: mapped(value) for name, value in self._arrays().items()}, self._native, self._output)

    def _arrays(self) -> Dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __repr__(self) -> str:
        more = f", masks of {list(self.masks)}" if self.masks else f", removed entries of {list(self.removed)}" if self.removed else ""
        return f"Batch(samples={len(self)}, genes={len(self.genes)}{more})"

    def __reduce__(self) -> Any:
        # Arrays are copied by whoever sends them: NumPy into the pickle, torch into shared memory.
        return _received, (self._arrays(), SentArrays(self._native), self._output.choice)


def _batch(arrays: Dict[str, Any], native: Any, output: Output) -> Batch:
    batch = object.__new__(Batch)
    for name, value in arrays.items():
        setattr(batch, name, value)
    batch._native, batch._output = native, output
    return batch


def _received(arrays: Dict[str, Any], sent: SentArrays, choice: Any) -> Batch:
    return _batch(arrays, sent, choose(*choice))


class Layout:
    """What the batches of a data set and a processor hold: the same for all of them."""

    def __init__(self, form: GraphForm, processor: str, follow_batch: Sequence[str]):
        self.form = form
        self.processor = processor
        self.follow_batch = follow_batch
        #: Index of each array among those of a native batch.
        self.places = {name: place for place, name in enumerate(form.arrays())}

    def maker(self, dataset: "Dataset", output: Output) -> Callable[[GraphBatch], Any]:
        """A function that makes of a native batch what a program gets."""
        if self.processor in PYG:
            from .pyg import Collated

            return Collated(dataset, self, output).batch
        rows, array = dataset._rows, output.array
        plain = [(name, self.places[name]) for name in ("genes", "gene_sample", "gene_ptr", "labels", "p_values")]
        index, is_packed = self.places["index"], self.processor == "packed"
        entries = {**dataset.num_edges, "reaction": dataset.num_reactions}
        masks = [(name[len("masks/") :], place) for name, place in self.places.items() if name.startswith("masks/")]
        lists = [name[len("removed/") : -len("/ptr")] for name in self.places if name.startswith("removed/") and name.endswith("/ptr")]
        removed = [(name, self.places[f"removed/{name}/positions"], self.places[f"removed/{name}/ptr"]) for name in lists]

        def make(native: GraphBatch) -> Batch:
            arrays: Dict[str, Any] = {name: array(native, place) for name, place in plain}
            found = array(native, index)
            arrays["index"] = found if rows is None else output.places(rows, found)
            if is_packed:
                arrays["masks"] = {name: PackedMask(array(native, place), entries[name]) for name, place in masks}
            else:
                arrays["masks"] = {name: output.truth(array(native, place)) for name, place in masks}
            arrays["removed"] = {
                name: RemovedEntries(array(native, positions), array(native, ptr), entries[name]) for name, positions, ptr in removed
            }
            return _batch(arrays, native, output)

        return make
