"""Samples that perturb genes of one graph: a store of records, and the graph."""

import os
import sys
from collections.abc import Mapping
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from ..._native import GraphDataset, GraphForm, Sampler, Stream
from .. import views
from ..rows import MANY_ROWS, RowSet
from .batch import Batch, Layout, array_output

SPLITS = ("all", "train", "val", "test")


def open(
    folder: Union[str, "os.PathLike[str]"],
    *,
    graph: Any = None,
    edge_types: Optional[Sequence[str]] = None,
    metabolism: bool = False,
    store: str = "json",
    split: str = "all",
    split_seed: int = 42,
) -> "Dataset":
    """Open a data set of `expctl data build`, or an LMDB store as published.

    Args:
        folder: a folder that `expctl data build` printed. With `graph`, one with an LMDB store of JSON records (`data.mdb`), or the
            root of a published data set, which has it in `processed/lmdb`.
        graph: of an LMDB store alone, the graph of its genes: a `HeteroData` as torchcell's `dataset.cell_graph`, or a dict such as
            `{"genes": names, "edges": {"physical": edge_index}}` with names ascending and int64 [2, E].
        edge_types: names of edge types, in this order; None are all of the graph.
        metabolism: reactions and metabolites as well, with their edges gpr and rmr.
        store: what the records are read from: "json", or one of what `expctl data convert` made of it: "compressed", "full_masks",
            "packed_masks", "ids". Batches are the same.
        split: "all", "train", "val" or "test": 80 %, 10 % and 10 % of the samples, drawn at random, as `select.split` of a config.
            Any but "all" needs NumPy.
        split_seed: of that draw, as `select.seed`.

    Raises:
        FileNotFoundError, PermissionError, OSError: there is no data set or no such store, or a file cannot be opened.
        DataError: a file is damaged; there is no such edge type; the store has no masks of it.
        ValueError: an argument, or a graph that batches cannot be made from.
    """
    if split not in SPLITS:
        raise ValueError(f"split={split!r} is none of {', '.join(SPLITS)}")
    path = os.fspath(folder)
    if graph is None and not os.path.isfile(os.path.join(path, "manifest.json")):
        lmdb = _lmdb_folder(path)
        if lmdb is not None:
            raise ValueError(f"{lmdb} is an LMDB store alone: give the graph of its genes, graph=dataset.cell_graph for torchcell's")
    if graph is not None and store != "json":
        raise ValueError(f"store={store!r}: of an LMDB store alone only JSON is read")
    arrays = None if graph is None else _arrays_of(graph, edge_types, metabolism)
    dataset = Dataset(path, arrays, edge_types=edge_types, metabolism=metabolism, store=store)
    if split == "all":
        return dataset
    import numpy

    rows = numpy.from_dlpack(dataset._native.split(split, seed=split_seed)).copy()
    if not len(rows):
        raise ValueError(f"split={split!r} has none of the {len(dataset)} samples")
    return dataset._view(rows)


class GraphArrays(NamedTuple):
    """A graph as the native module takes it."""

    genes: List[str]
    edge_types: List[Tuple[str, bytes]]
    """int64 [2, E] of each."""
    metabolism: Optional[Tuple[int, int, bytes, bytes, bytes]]
    """Reactions, metabolites, gpr, rmr, stoichiometry."""
    reaction_ids: Optional[List[str]] = None
    metabolite_ids: Optional[List[str]] = None


class Dataset(RowSet[Batch]):
    """Samples that perturb genes of one graph. Made by `expctl.data.graph.open`.

    `ds[i]`, `ds[2:10]` and `ds[[7, 3, 3]]` are batches of these samples, in this order, with their genes and labels;
    `ds.read(…, processor=…)` has the rest. A `Loader` is many times as fast.
    """

    _items = "samples"

    def __init__(self, folder: str, graph: Optional[GraphArrays], **options: Any):
        self._folder, self._arrays, self._options = folder, graph, options
        if graph is None:
            types = options["edge_types"]
            self._opened = GraphDataset(
                folder, store=options["store"], edge_types=None if types is None else list(types), metabolism=options["metabolism"]
            )
        else:
            self._opened = GraphDataset.of_lmdb(
                _lmdb_folder(folder) or folder, genes=graph.genes, edge_types=graph.edge_types, metabolism=graph.metabolism
            )
        # Views are copies, and share what batches are made from.
        self._layouts: Dict[Tuple[str, Tuple[str, ...]], Layout] = {}
        self._shared: Dict[str, Any] = {}

    @property
    def num_genes(self) -> int:
        """Genes of the graph, G."""
        return self._native.num_genes

    @property
    def genes(self) -> List[str]:
        """Systematic names of the genes, ascending: the index of a gene is its place."""
        if "genes" not in self._shared:
            self._shared["genes"] = self._native.genes
        return self._shared["genes"]

    @property
    def edge_types(self) -> List[str]:
        """Names of the edge types, in the order of batches."""
        return [name for name, _ in self._native.edge_types]

    @property
    def num_edges(self) -> Dict[str, int]:
        """Edges of each edge type, self-loops included; with metabolism also of "gpr" and "rmr"."""
        found = dict(self._native.edge_types)
        if self._native.metabolism is not None:
            found["gpr"], found["rmr"] = self._native.metabolism[2:]
        return found

    @property
    def metabolism(self) -> bool:
        """The graph has reactions and metabolites."""
        return self._native.metabolism is not None

    @property
    def num_reactions(self) -> int:
        """Reactions of the graph; 0 without metabolism."""
        return (self._native.metabolism or (0, 0, 0, 0))[0]

    @property
    def num_metabolites(self) -> int:
        """Metabolites of the graph; 0 without metabolism."""
        return (self._native.metabolism or (0, 0, 0, 0))[1]

    @property
    def edge_index(self) -> Dict[str, Any]:
        """int64 [2, E] of each edge type (with metabolism also of "gpr" and "rmr"): tensors of torch if it is installed, else of NumPy.

        They are what all samples share; masks of batches are of their columns. Copied from the graph once.
        """
        if "edge_index" not in self._shared:
            whole = array_output(None).whole
            self._shared["edge_index"] = {
                name: whole(self._native.edge_index(i)) for i, name in enumerate(self.num_edges)
            }
        return self._shared["edge_index"]

    @property
    def stoichiometry(self) -> Any:
        """float32 [E] of "rmr", reactants below 0; None without metabolism."""
        if "stoichiometry" not in self._shared:
            found = self._native.stoichiometry()
            self._shared["stoichiometry"] = None if found is None else array_output(None).whole(found)
        return self._shared["stoichiometry"]

    @property
    def label_statistics(self) -> Optional[Tuple[float, float]]:
        """Mean and standard deviation of the labels of all samples, whatever the split; None if the data set does not say."""
        return self._native.label_statistics

    def split(self, fractions: Sequence[float], *, seed: int = 0) -> Tuple["Dataset", ...]:
        """Parts of the samples, drawn at random, as views of the same open store. What the shares leave of 1 is in none. Needs NumPy.

        The split of expctl's own trials is `open(…, split=…)`.

        Raises:
            ValueError: fractions of 0 or below, or above 1 together; a part without samples.
        """
        return tuple(self._view(views.subset(self._rows, rows, self._items)) for rows in views.parts(self, fractions, seed, None, None))

    def read(
        self,
        rows: Any,
        *,
        processor: str = "ids",
        out: Optional[str] = None,
        follow_batch: Sequence[str] = ("x", "x_pert", "perturbation_indices"),
    ) -> Any:
        """A batch of these samples, in this order; a sample may come more than once. Arguments are those of `Loader`."""
        listed = self._file_rows(rows)
        ends = (len(listed) // 8).to_bytes(8, byteorder=sys.byteorder)
        layout = self._layout(processor, follow_batch)
        make = layout.maker(self, array_output(out, processor))
        sampler = Sampler(
            self._native, "batches", batch_size=1, drop_last=False, seed=0, rank=0, world_size=1, listed=listed, ends=ends
        )
        threads = int(len(listed) // 8 > MANY_ROWS)
        stream = Stream.of_graphs(self._native, layout.form, sampler, threads=threads, prefetch=1, first=0, steps=1)
        try:
            native = stream.next()
        finally:
            # Where it is only dropped, no other thread runs until its thread has ended.
            stream.stop()
        assert native is not None  # One step was asked for.
        return make(native)

    def _layout(self, processor: str, follow_batch: Sequence[str]) -> Layout:
        """What batches hold, with the tables that they are made from; built once for the data set and its views."""
        if isinstance(follow_batch, str):
            raise ValueError(f"follow_batch={follow_batch!r} is a list of names")
        key = (processor, tuple(follow_batch) if processor in ("pyg", "perturbation") else ())
        if key not in self._layouts:
            form = GraphForm(self._native, processor, follow_batch=list(key[1]))
            self._layouts[key] = Layout(form, processor, key[1])
        return self._layouts[key]

    @property
    def reaction_ids(self) -> List[str]:
        """Names of the reactions; R_0, R_1, … where the data set has none."""
        return self._names("reaction_ids", "R", self.num_reactions)

    @property
    def metabolite_ids(self) -> List[str]:
        """Names of the metabolites; M_0, M_1, … where the data set has none."""
        return self._names("metabolite_ids", "M", self.num_metabolites)

    def _names(self, field: str, letter: str, count: int) -> List[str]:
        if field not in self._shared:
            given = None if self._arrays is None else getattr(self._arrays, field)
            self._shared[field] = given or [f"{letter}_{i}" for i in range(count)]
        return self._shared[field]

    def __repr__(self) -> str:
        if self.closed:
            return f"Dataset(closed, {self._folder})"
        of = "" if self._rows is None else f" of {len(self._native):,}"
        metabolism = ", metabolism" if self.metabolism else ""
        edges = sum(self.num_edges.values())
        return (
            f"Dataset({len(self):,}{of} samples, {self.num_genes:,} genes, {edges:,} edges of {len(self.edge_types)} types"
            f"{metabolism}, {self._native.file})"
        )

    def __reduce__(self) -> Any:
        return _reopen, (self._folder, self._arrays, self._options, self._rows)


def _reopen(folder: str, graph: Optional[GraphArrays], options: Dict[str, Any], rows: Any) -> Dataset:
    """A data set in another process: the files are opened again there."""
    dataset = Dataset(folder, graph, **options)
    dataset._rows = rows
    return dataset


def _lmdb_folder(folder: str) -> Optional[str]:
    """The folder of the store within that of a data set, or itself; None if there is none."""
    places = [folder, os.path.join(folder, "lmdb"), os.path.join(folder, "processed", "lmdb")]
    return next((place for place in places if os.path.isfile(os.path.join(place, "data.mdb"))), None)


def _int64(edges: Any) -> bytes:
    import numpy

    array = numpy.ascontiguousarray(numpy.asarray(edges))
    if array.ndim != 2 or array.shape[0] != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"an edge index is of integers [2, E], and not {array.dtype} {list(array.shape)}")
    return array.astype("int64", copy=False).tobytes()


def _arrays_of(graph: Any, edge_types: Optional[Sequence[str]], metabolism: bool) -> GraphArrays:
    """The graph that a program gave."""
    import numpy

    if isinstance(graph, Mapping):
        if set(graph) != {"genes", "edges"}:
            raise ValueError(f'graph= has "genes" and "edges", and not {", ".join(map(repr, graph)) or "nothing"}')
        if metabolism:
            raise ValueError("metabolism=True takes a HeteroData with reactions and metabolites")
        genes, edges = graph["genes"], dict(graph["edges"])
    elif hasattr(graph, "edge_types") and hasattr(graph, "node_types"):
        genes = graph["gene"].node_ids
        between = [key for key in graph.edge_types if key[0] == key[2] == "gene"]
        edges = {key[1]: graph[key].edge_index for key in between}
    else:
        raise TypeError(f"graph= is a HeteroData or a dict, and not a {type(graph).__name__}")
    missing = [name for name in edge_types or () if name not in edges]
    if missing:
        raise ValueError(f"the graph has no edge type {missing[0]!r}; it has {', '.join(edges)}")
    chosen = [(name, _int64(edges[name])) for name in (edges if edge_types is None else edge_types)]
    if not metabolism:
        return GraphArrays(list(genes), chosen, None)
    for key in [("gene", "gpr", "reaction"), ("reaction", "rmr", "metabolite")]:
        if key not in graph.edge_types:
            raise ValueError(f"metabolism=True, and the graph has no edges {key}")
    gpr, rmr = graph["gene", "gpr", "reaction"], graph["reaction", "rmr", "metabolite"]
    stoichiometry = numpy.asarray(rmr.stoichiometry, dtype="float32").tobytes()
    reactions, metabolites = graph["reaction"], graph["metabolite"]
    return GraphArrays(
        list(genes), chosen,
        (int(reactions.num_nodes), int(metabolites.num_nodes), _int64(gpr.hyperedge_index), _int64(rmr.hyperedge_index), stoichiometry),
        list(reactions.get("node_ids") or []) or None, list(metabolites.get("node_ids") or []) or None,
    )
