"""The loader: batches of a data set, epoch after epoch."""

import functools
import os
import sys
from time import perf_counter_ns
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

from .. import run
from .._native import Sampler, Stream
from . import ranks, times, views
from .batch import Batch
from .dataset import Dataset
from .output import Destination, Output, choose, row_sum
from .samplers import Draw, ForeignSampler, check_mask, digest, resolve

STATE_VERSION = 1
#: Beyond any step.
_NO_END = 1 << 62


class BatchLoader:
    """What the loaders of all data sets have in common: the order of batches, epochs, saved states, threads and times.

    A loader of its own kind says what arrays it hands out (`_output_of`), how a stream is started (`_stream`), what a batch of it is
    (`_batch`), and what else is saved of it (`_data`, `_options`).
    """

    #: The class that a program names, where torch made another one of it.
    _kind: Optional[type] = None
    #: What a batch has several of.
    _items = "rows"
    _advice = times.ADVICE
    #: What arrays batches are of. A loader of its own kind sets it first.
    _output: Output

    def __new__(cls, *args: Any, **options: Any) -> Any:
        # A class that a program derives has the bases that the program gives it.
        if "_output_of" in vars(cls) and cls._output_of(options).kind == "torch" and cls._kind is None:
            return object.__new__(iterable_dataset(cls))
        return object.__new__(cls)

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        sampler: Any,
        threads: Optional[int],
        prefetch: Optional[int],
        drop_last: bool,
        seed: int,
        rank: Any,
        persistent: bool,
        pin: bool,
        device: Any,
        transform: Optional[Callable[[Any], Any]],
    ):
        if batch_size < 1 or prefetch is not None and prefetch < 1:
            raise ValueError(f"batch_size={batch_size} and prefetch={prefetch} are 1 at least")
        if threads is not None and threads < 0:
            raise ValueError(f"threads={threads} is 0 at least; 0 builds each batch when it is asked for, None is one for each CPU, 4 at most")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed} is not within 0 and 2**64 - 1")
        self.dataset = dataset
        self.batch_size = int(batch_size)
        self.drop_last = bool(drop_last)
        self.seed = int(seed)
        self.threads = min(4, len(os.sched_getaffinity(0))) if threads is None else int(threads)
        self.prefetch = None if prefetch is None else int(prefetch)
        self.transform = transform
        self._destination = Destination(pin, device)
        if self._destination:
            self._output.need_torch()
        self._draw = resolve(sampler)
        if isinstance(self._draw, Draw):
            check_mask(self._draw.mask, len(dataset), self._items)
        self._rank = ranks.resolve(rank)
        # The order is decided once; that of a sampler of torch each epoch.
        self._order = self._draw if dataset._rows is None else views.in_view(self._draw, dataset, self.seed)
        self._sampler = self._native_sampler() if isinstance(self._order, Draw) else None
        # The batch that comes next, and whether a loaded state says so.
        self._next: Tuple[int, int] = (0, 0)
        self._resumes = False
        self._position: Tuple[int, int] = (0, 0)
        # The place of a loaded state, until its first batch is asked for: torchdata drops an iterator that it never used.
        self._loaded: Optional[Tuple[Tuple[int, int], Optional[str]]] = None
        # Samplers of torch: what they drew in the epoch of the position, and what a loaded state says that they drew.
        self._drawn: Optional[str] = None
        self._expected: Optional[str] = None
        self._done = times.StageTimes()
        self._running: Optional[times.Iteration] = None
        self.persistent = bool(persistent)
        # Of a persistent loader the threads after an epoch, and the step whose batch they build first.
        self._kept: Optional[Tuple[Stream, int]] = None

    @classmethod
    def _output_of(cls, options: Dict[str, Any]) -> Output:
        """What the arrays of batches are, by the arguments of a program. Raises ValueError, or ImportError."""
        raise NotImplementedError

    def _stream(self, sampler: Sampler, first: int, steps: int) -> Stream:
        """Start threads that build the batches of the steps from `first` up to `steps`."""
        raise NotImplementedError

    def _batch(self, native: Any) -> Any:
        """What the loop gets for a batch of a stream."""
        raise NotImplementedError

    def _data(self) -> Dict[str, Any]:
        """What the order of batches depends on beside the arguments that all loaders have."""
        raise NotImplementedError

    def _options(self) -> Dict[str, Any]:
        """The arguments of this kind of loader alone, for another process."""
        raise NotImplementedError

    # -- iteration ------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        _refuse_worker_process()
        if self._loaded is not None:
            self._next, self._expected = self._loaded
        epoch, first = self._next
        self._next, self._resumes = (epoch + 1, 0), False
        self._position = (epoch, first)
        sampler = self._sampler_of(epoch)
        return self._batches(sampler, epoch, first)

    def _batches(self, sampler: Sampler, epoch: int, first: int) -> Iterator[Any]:
        self._loaded = None
        count = sampler.batches_per_epoch
        # Orders of samplers of torch are made anew each epoch, so they have only one.
        base = epoch * count if isinstance(self._order, Draw) else 0
        stream = self._started(sampler, base + first, base + count)
        self._running = iteration = times.Iteration(stream)
        transform, destination = self.transform, self._destination
        done = first
        try:
            while done < count:
                begun = perf_counter_ns()
                native = stream.next()
                assert native is not None  # Its steps do not end before the epoch.
                batch = self._batch(native)
                del native
                # Asked for once: another thread may close the run.
                told = run.current
                if told is not None:
                    told.loaded_beside(batch, perf_counter_ns() - begun, epoch)
                if destination:
                    batch = destination.moved(batch)
                result = batch if transform is None else transform(batch)
                done += 1
                # Another iteration may have begun meanwhile: the position is that of the last one.
                if self._running is iteration:
                    self._position = (epoch, done) if done < count else (epoch + 1, 0)
                del batch
                yield result
                del result
        finally:
            self._done.add(iteration)
            if self._running is iteration:
                self._running = None
            if done == count and self._persists() and self._kept is None:
                self._kept = (stream, base + count)
            else:
                stream.stop()

    def _persists(self) -> bool:
        # What a sampler of torch draws in the next epoch is not known before.
        return self.persistent and self._sampler is not None

    def _started(self, sampler: Sampler, first: int, end: int) -> Stream:
        """A stream of the steps from `first` up to `end`: that of the epoch before, if it was kept and comes there."""
        kept, self._kept = self._kept, None
        if kept is not None:
            stream, step = kept
            if step == first:
                return stream
            stream.stop()
        return self._stream(sampler, first, _NO_END if self._persists() else end)

    def _native_sampler(self, listed: Optional[bytes] = None, ends: Optional[bytes] = None) -> Sampler:
        rank, world_size = self._rank
        options: Dict[str, Any] = {}
        if isinstance(self._order, Draw):
            kind = self._order.kind
            options = {name: getattr(self._order, name) for name in ("column", "rows", "chunk_rows", "chunks", "listed")}
        elif isinstance(self._order, views.DrawInView):
            kind, options = "listed", {"listed": listed}
        else:
            # They have divided the rows among the ranks already.
            kind, rank, world_size = "listed" if ends is None else "batches", 0, 1
            options = {"listed": listed, "ends": ends}
        return Sampler(
            self.dataset._native, kind, batch_size=self.batch_size, drop_last=self.drop_last, seed=self.seed, rank=rank,
            world_size=world_size, **options,
        )

    def _sampler_of(self, epoch: int) -> Sampler:
        if self._sampler is not None:
            return self._sampler
        self._order.set_epoch(epoch)
        rows, ends = self._order.draw()
        self._drawn = digest(rows + (ends or b""))
        expected, self._expected = self._expected, None
        if expected is not None and expected != self._drawn:
            raise ValueError(
                f"the saved state is of an epoch in which {self._draw} drew other rows than now; "
                "give the sampler the seed or generator that it had, or begin the epoch anew with set_epoch"
            )
        return self._native_sampler(rows, ends)

    def __len__(self) -> int:
        """Batches of an epoch, on each rank."""
        if self._sampler is not None:
            return self._sampler.batches_per_epoch
        if isinstance(self._order, views.DrawInView):
            return self._order.batches(self.batch_size, self.drop_last, self._rank[1])
        return self._order.batches(self.batch_size, self.drop_last)

    # -- epochs and states ----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration is of."""
        return self._next[0]

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch `epoch`, counted from 0, from its start.

        If a state of the middle of this epoch was loaded and no batch was asked for since, it still begins there.
        """
        if epoch < 0:
            raise ValueError(f"epoch {epoch} is below 0")
        if self._loaded is not None and epoch == self._loaded[0][0]:
            self._next, self._expected = self._loaded
            return
        if self._resumes and epoch == self._next[0]:
            return
        self._next, self._resumes, self._expected = (int(epoch), 0), False, None
        self._position = self._next
        self._drawn = self._loaded = None

    def state_dict(self) -> Dict[str, Any]:
        """Where this loader is: after the batch that was handed out last. Plain numbers and strings, whatever the data's size.

        All ranks are at the same place, so the state of one is that of all.
        """
        epoch, batch = self._position
        state = {"version": STATE_VERSION, "epoch": epoch, "batch": batch, "settings": self._identity()}
        if batch > 0 and self._drawn is not None:
            state["drawn"] = self._drawn
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The next iteration begins with the batch after the one that the state was saved at.

        Raises:
            ValueError: the state is of another number of ranks, batch size, seed, sampler or data. The text says which.
        """
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"the state has version {state.get('version')!r}, and {STATE_VERSION} is known")
        saved, own = state["settings"], self._identity()
        different = [f"{name} was {saved.get(name)!r} and is {value!r}" for name, value in own.items() if saved.get(name) != value]
        if different:
            raise ValueError(
                f"the state belongs to another order of batches: {'; '.join(different)}. "
                "Make the loader as it was, or begin an epoch with set_epoch"
            )
        self._next = (int(state["epoch"]), int(state["batch"]))
        self._position = self._next
        self._resumes = self._next[1] > 0
        self._expected = state.get("drawn")
        self._drawn = self._expected
        self._loaded = (self._next, self._expected)

    def _identity(self) -> Dict[str, Any]:
        """What decides the rows of each batch."""
        return {
            "world_size": self._rank[1], "batch_size": self.batch_size, "seed": self.seed, "drop_last": self.drop_last,
            "sampler": str(self._draw), **self._data(),
            **({} if self.dataset._rows is None else {"view": views.name_of(self.dataset._rows)}),
        }

    # -- what it costs --------------------------------------------------------------------------------------------------

    def stages(self) -> times.StageTimes:
        """What all batches so far cost, by stage: busy and exposed seconds."""
        total = times.StageTimes(
            self._done.batches, self._done.rows, self._done.bytes_read, self._done.seconds, dict(self._done.busy),
            dict(self._done.exposed),
        )
        if self._running is not None:
            total.add(self._running)
        return total

    def explain(self) -> str:
        """What holds the program up, in a few sentences."""
        return times.explain(self.stages(), self.threads, self._items, self._advice)

    # -- Python ---------------------------------------------------------------------------------------------------------

    @property
    def sampler(self) -> Any:
        """The rule by which rows are drawn, or the sampler of torch."""
        return self._draw.sampler if isinstance(self._draw, ForeignSampler) else self._draw

    @property
    def batch_sampler(self) -> None:
        """None: the trainers of Lightning ask for it where there is a sampler."""
        return None

    @property
    def rank(self) -> Tuple[int, int]:
        """(rank, number of ranks)."""
        return self._rank

    def _described(self) -> str:
        """What differs between loaders of one kind."""
        rank = f", rank={self._rank}" if self._rank[1] > 1 else ""
        try:
            count = f", {len(self)} batches an epoch"
        except TypeError:
            count = ""
        return f"threads={self.threads}{rank}{count}"

    def __reduce__(self) -> Any:
        options = {
            "batch_size": self.batch_size, "sampler": self._draw, "threads": self.threads, "prefetch": self.prefetch,
            "drop_last": self.drop_last, "seed": self.seed, "rank": self._rank, "transform": self.transform,
            "persistent": self.persistent, "pin": self._destination.pin, "device": self._destination.device, **self._options(),
        }
        state = (self._next, self._resumes, self._position, self._drawn, self._expected)
        return _remake, (self._kind or type(self), self.dataset, options, *state)


class Loader(BatchLoader):
    """Batches of rows, in an order that the seed decides, built by threads ahead of the program.

        loader = Loader(ds, batch_size=4096, sampler="chunked", seed=1)
        for epoch in range(10):
            loader.set_epoch(epoch)
            for batch in loader:
                ...

    Iterating gives one epoch; iterating again gives the next one. With out="torch" a Loader is an `IterableDataset` of torch, so
    `DataLoader(loader, batch_size=None, num_workers=0)` gives the same batches.

    Args:
        dataset: what `expctl.data.open` gave.
        batch_size: rows of a batch, on each rank.
        sampler: "uniform", "sequential" or "chunked"; `uniform(rows)`, `sequential(...)`, `chunked(...)`, `weighted(column)` or
            `balanced(column)` of this module; rows, or a mask, which are taken in this order; or a sampler of torch that yields
            rows or batches. Samplers of torch divide the rows among ranks themselves, and are iterated once an epoch.
        threads: loader threads of this process; None is one for each CPU, 4 at most; 0 builds each batch when it is asked for.
        prefetch: batches that each thread may be ahead. None is 2, and fewer of large batches: no more than 32 MiB of them are ahead, but one
            for each thread and one more.
        out: "torch", "numpy", "scipy" (CSR) or "dlpack"; None is torch if it is installed, else numpy.
        sparse: CSR instead of dense values: a `torch.sparse_csr` tensor, a `scipy.sparse.csr_matrix` or a `CSR` of arrays.
            None is dense, but for out="scipy".
        dtype: of X: "float32" is handed out without a copy; "float64", "float16" and, with torch, "bfloat16" are copies.
        normalize: scale each row to this sum, over all genes, as `scanpy.pp.normalize_total`; 0 leaves rows as they are.
        log1p: then take ln(1 + x).
        drop_last: leave out the last batch if it is not full, and the rows that do not fill all ranks. Without it the last ranks
            are filled up with rows from the start of the epoch, as DistributedSampler does.
        seed: of all orders; the same on all ranks.
        rank: (rank, number of ranks), or "auto": see `expctl.data.ranks.resolve`.
        persistent: keep the threads after an epoch: they read the first batches of the next one meanwhile. Worth it where epochs are short. A
            loader then has threads until it is dropped, and forked processes must not read.
        pin: copy batches into page-locked memory, from which they go to a GPU while the program works. As in torch's DataLoader it has
            no effect where there is no accelerator.
        device: move batches to this device of torch; with `pin` the program does not wait for the copy.
        transform: called with each batch; what it returns is what the loop gets.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 128,
        *,
        sampler: Any = "uniform",
        threads: Optional[int] = None,
        prefetch: Optional[int] = None,
        out: Optional[str] = None,
        sparse: Optional[bool] = None,
        dtype: Any = "float32",
        normalize: float = 0.0,
        log1p: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        rank: Any = "auto",
        persistent: bool = False,
        pin: bool = False,
        device: Any = None,
        transform: Optional[Callable[[Batch], Any]] = None,
    ):
        if not isinstance(dataset, Dataset):
            raise TypeError(f"a Loader takes what expctl.data.open gives, and not a {type(dataset).__name__}")
        self._out = (out, sparse, str(dtype) if not isinstance(dtype, type) else dtype)
        self._output = choose(*self._out)
        self._values: Dict[str, Any] = {"normalize": row_sum(normalize), "log1p": bool(log1p)}
        super().__init__(
            dataset, batch_size, sampler=sampler, threads=threads, prefetch=prefetch, drop_last=drop_last, seed=seed, rank=rank,
            persistent=persistent, pin=pin, device=device, transform=transform,
        )

    @classmethod
    def _output_of(cls, options: Dict[str, Any]) -> Output:
        return choose(options.get("out"), options.get("sparse"), options.get("dtype", "float32"))

    def _stream(self, sampler: Sampler, first: int, steps: int) -> Stream:
        return Stream(
            self.dataset._native, sampler, self.dataset._columns, self.dataset._more(self._output.sparse), sparse=self._output.sparse,
            threads=self.threads, prefetch=self.prefetch, first=first, steps=steps, **self._values,
        )

    def _batch(self, native: Any) -> Batch:
        dataset = self.dataset
        return Batch(native, self._output, dataset._layout, dataset._matrices, dataset._rows)

    def _data(self) -> Dict[str, Any]:
        rows, genes = self.dataset.shape
        return {"rows": rows, "genes": genes}

    def _options(self) -> Dict[str, Any]:
        _, sparse, dtype = self._out
        return {"out": self._output.kind, "sparse": sparse, "dtype": dtype, **self._values}

    def __repr__(self) -> str:
        return (
            f"Loader({self.dataset!r}, batch_size={self.batch_size}, sampler={self._draw}, out={self._output.kind!r}, "
            f"{'sparse' if self._output.sparse else 'dense'}, {self._described()})"
        )


def _remake(kind: type, dataset: Any, options: Dict[str, Any], *state: Any) -> BatchLoader:
    """A loader in another process, at the same place."""
    loader = kind(dataset, **options)
    loader._next, loader._resumes, loader._position, loader._drawn, loader._expected = state
    return loader


@functools.lru_cache(maxsize=None)
def iterable_dataset(kind: type) -> type:
    """A kind of loader as a data set of torch, which is imported only if batches are tensors of torch."""
    from torch.utils.data import IterableDataset

    names = {"__doc__": kind.__doc__, "__module__": kind.__module__, "_kind": kind}
    return type(kind.__name__, (kind, IterableDataset), names)


def _refuse_worker_process() -> None:
    """Worker processes of a DataLoader would each load all rows."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        raise RuntimeError(
            "a Loader has threads of its own: use DataLoader(loader, batch_size=None, num_workers=0), or the Loader alone"
        )
