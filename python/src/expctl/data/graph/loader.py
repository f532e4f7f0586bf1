"""The loader of samples of a graph."""

from typing import Any, Callable, Dict, Optional, Sequence

from ..._native import Sampler, Stream
from ..loader import BatchLoader
from ..output import Output
from ..samplers import Draw, resolve
from .batch import PYG, array_output
from .dataset import Dataset

PROCESSORS = ("ids", "removed", "packed", "masks", "pyg", "perturbation")

_ADVICE = {
    "read": 'Reading holds the program up: more threads, or the store "ids" of expctl data convert, whose records are small.',
    "decode": 'Parsing JSON holds the program up: more threads, or the store "ids" of expctl data convert.',
    "mask": 'Masks hold the program up: more threads, or processor="removed" or "ids", with masks made on the device.',
    "collate": 'Copying edges for each sample holds the program up: processor="packed" or "removed", with ds.edge_index for all.',
    "sample": "Drawing samples holds the program up: larger batches.",
    "other": "The program waits for threads that begin to work: larger batches, or a larger prefetch.",
}


class Loader(BatchLoader):
    """Batches of samples, in an order that the seed decides, built by threads ahead of the program.

        loader = graph.Loader(ds, batch_size=28, processor="pyg", seed=1)
        for epoch in range(10):
            loader.set_epoch(epoch)
            for batch in loader:
                ...

    Iterating gives one epoch; iterating again gives the next one. All that `expctl.data.Loader` says of orders, epochs, saved states,
    ranks, threads and forks holds here.

    Processors, by what a batch of B samples has beside the perturbed genes and labels:

        "ids"           nothing: masks are made where the batch is used
        "removed"       of each edge type the edges that each sample removes, int32 positions in `ds.edge_index`
        "packed"        a mask of these edges, a bit per edge
        "masks"         bool [B, E], True being kept
        "pyg"           a `HeteroDataBatch` of PyTorch Geometric with a whole graph and masks for each sample, equal to what its
                        DataLoader makes of LazySubgraphRepresentation
        "perturbation"  the same of Perturbation: masks of genes, no edges

    Args:
        dataset: what `expctl.data.graph.open` gave.
        batch_size: samples of a batch, on each rank.
        processor: one of the above.
        follow_batch: of "pyg" and "perturbation": fields for which the batch names the sample of each entry, as the argument of PyG's
            DataLoader.
        sampler: "uniform", "sequential" or "chunked"; `uniform(samples)` or `chunked(…)` of `expctl.data`; sample numbers or a mask,
            which are taken in this order; or a sampler of torch that yields samples or batches.
        threads, prefetch, drop_last, seed, rank, persistent, pin, device, transform: as of `expctl.data.Loader`.
        out: "torch", "numpy" or "dlpack"; None is torch if it is installed, else numpy. "pyg" and "perturbation" are torch.
    """

    _items = "samples"
    _advice = _ADVICE

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 128,
        *,
        processor: str = "ids",
        follow_batch: Sequence[str] = ("x", "x_pert", "perturbation_indices"),
        sampler: Any = "uniform",
        threads: Optional[int] = None,
        prefetch: Optional[int] = None,
        out: Optional[str] = None,
        drop_last: bool = False,
        seed: int = 0,
        rank: Any = "auto",
        persistent: bool = False,
        pin: bool = False,
        device: Any = None,
        transform: Optional[Callable[[Any], Any]] = None,
    ):
        if not isinstance(dataset, Dataset):
            raise TypeError(f"a graph.Loader takes what expctl.data.graph.open gives, and not a {type(dataset).__name__}")
        if processor not in PROCESSORS:
            raise ValueError(f"processor={processor!r} is none of {', '.join(PROCESSORS)}")
        draw = resolve(sampler)
        if isinstance(draw, Draw) and draw.column:
            raise ValueError(f"sampler={draw}: samples of a graph have no columns to draw by")
        self._output = array_output(out, processor)
        self._layout = dataset._layout(processor, follow_batch)
        self._make = self._layout.maker(dataset, self._output)
        self._follow_batch = tuple(follow_batch)
        super().__init__(
            dataset, batch_size, sampler=draw, threads=threads, prefetch=prefetch, drop_last=drop_last, seed=seed, rank=rank,
            persistent=persistent, pin=pin, device=device, transform=transform,
        )

    @classmethod
    def _output_of(cls, options: Dict[str, Any]) -> Output:
        return array_output(options.get("out"), options.get("processor", "ids"))

    @property
    def processor(self) -> str:
        """What a batch has."""
        return self._layout.processor

    def _stream(self, sampler: Sampler, first: int, steps: int) -> Stream:
        return Stream.of_graphs(
            self.dataset._native, self._layout.form, sampler, threads=self.threads, prefetch=self.prefetch, first=first, steps=steps
        )

    def _batch(self, native: Any) -> Any:
        return self._make(native)

    def _data(self) -> Dict[str, Any]:
        return {"samples": len(self.dataset)}

    def _options(self) -> Dict[str, Any]:
        out = None if self.processor in PYG else self._output.kind
        return {"processor": self.processor, "follow_batch": self._follow_batch, "out": out}

    def __repr__(self) -> str:
        return (
            f"Loader({self.dataset!r}, batch_size={self.batch_size}, processor={self.processor!r}, sampler={self._draw}, "
            f"out={self._output.kind!r}, {self._described()})"
        )
