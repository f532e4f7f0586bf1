"""Batches as PyTorch Geometric makes them of the published samples."""

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..._native import GraphBatch
from ..output import Output
from ..times import BatchTimes

if TYPE_CHECKING:
    from .batch import Layout
    from .dataset import Dataset

#: What every sample has: one phenotype, and its p-value.
PHENOTYPE, P_VALUE = "gene_interaction", "gene_interaction_p_value"


class Collated:
    """Puts the arrays of a native batch into a `HeteroDataBatch`: what `torch_geometric.loader.DataLoader` makes of B samples of
    LazySubgraphRepresentation ("pyg") or of Perturbation ("perturbation"), with the same stores, fields, shapes and dtypes.

    Edges of sample i are shifted by i graphs; `perturbation_indices` are not. The batch knows its samples: `batch[i]` and
    `batch.to_data_list()` work.
    """

    def __init__(self, dataset: "Dataset", layout: "Layout", output: Output):
        try:
            from torch_geometric.data import Batch, HeteroData
        except ImportError as error:
            raise ImportError(f'processor="{layout.processor}" makes batches of PyTorch Geometric: pip install torch_geometric') from error
        # What Batch(_base_cls=HeteroData) makes, without the class and the signature that it looks up each time.
        kind = type(Batch(_base_cls=HeteroData))
        self._new = lambda: type.__call__(kind)
        self._array, self._truth, self._places = output.array, output.truth, layout.places
        self._counts: Optional[_Counts] = None
        self._has_graphs = layout.processor == "pyg"
        self._follows = frozenset(layout.follow_batch)
        self._genes, self._names = dataset.num_genes, dataset.genes
        self._edge_types = dataset._native.edge_types
        self._metabolism = dataset._native.metabolism if self._has_graphs else None
        self._node_ids = {"reaction": dataset.reaction_ids, "metabolite": dataset.metabolite_ids} if self._metabolism else {}

    def batch(self, native: GraphBatch) -> Any:
        """The `HeteroDataBatch` of a native batch."""
        samples = len(native)
        arrays = _Arrays(native, self)
        data = self._new()
        counts = self._counts_of(samples)
        slices, offsets = _Slices(counts), _Offsets(counts)
        data._num_graphs = samples
        # Past HeteroData, which takes what is set for a field of the graph.
        data.__dict__["expctl_times"] = BatchTimes(native.stages(), samples, native.bytes_read)
        data._slice_dict, data._inc_dict = slices.stores, offsets.stores
        self._put_genes(data["gene"], arrays, slices, offsets)
        if not self._has_graphs:
            return data
        reactions, metabolites, gpr, rmr = self._metabolism or (0, 0, 0, 0)
        if self._metabolism is not None:
            self._put_nodes(data["reaction"], "reaction", reactions, arrays, slices, offsets)
            self._put_nodes(data["metabolite"], "metabolite", metabolites, arrays, slices, offsets)
        genes = self._genes
        edge_stores = [(("gene", name, "gene"), edges, (genes, genes)) for name, edges in self._edge_types]
        if self._metabolism is not None:
            edge_stores.append((("gene", "gpr", "reaction"), gpr, (genes, reactions)))
            edge_stores.append((("reaction", "rmr", "metabolite"), rmr, (reactions, metabolites)))
        for key, edges, nodes in edge_stores:
            self._put_edges(data[key], key, edges, nodes, arrays, slices, offsets)
        return data

    def _counts_of(self, samples: int) -> "_Counts":
        """Those of the batch before, but for the last batch of an epoch and samplers whose batches differ in size."""
        if self._counts is None or self._counts.samples != samples:
            self._counts = _Counts(samples)
        return self._counts

    def _put_genes(self, store: Any, arrays: "_Arrays", slices: "_Slices", offsets: "_Offsets") -> None:
        samples, genes = slices.samples, self._genes
        indices, ptr = arrays["genes"], arrays["gene_ptr"]
        names = [self._names[gene] for gene in indices.tolist()]
        ends = ptr.tolist()
        perturbed = [names[start:end] for start, end in zip(ends, ends[1:])]

        def put(field: str, value: Any, sizes: Any, is_tensor: bool = True) -> None:
            store[field] = value
            slices.put("gene", field, sizes)
            offsets.put("gene", field, is_tensor)

        def put_genes(field: str, value: List[Any]) -> None:
            put(field, value, 1, is_tensor=False)

        if self._has_graphs:
            put_genes("node_ids", [self._names] * samples)
        _put_num_nodes(store, [genes] * samples)
        put_genes("ids_pert" if self._has_graphs else "perturbed_genes", perturbed)
        put("perturbation_indices", indices, ptr)
        if "perturbation_indices" in self._follows:
            store.perturbation_indices_batch, store.perturbation_indices_ptr = arrays["gene_sample"], ptr.clone()
        if self._has_graphs:
            put("x", arrays["labels"].new_zeros(samples * genes, 0), genes)
            if "x" in self._follows:
                store.x_batch, store.x_ptr = arrays["gene/x_batch"], arrays["gene/x_ptr"]
        put("pert_mask", arrays.truth("gene/pert_mask"), genes)
        put("mask", arrays.truth("gene/mask"), genes)
        for prefix, values, types in [("phenotype", "labels", PHENOTYPE), ("phenotype_stat", "p_values", P_VALUE)]:
            put(f"{prefix}_values", arrays[values], 1)
            for field in (f"{prefix}_type_indices", f"{prefix}_sample_indices"):
                put(field, arrays[f"gene/{field}"], 1)
            put_genes(f"{prefix}_types", [[types]] * samples)
        store.batch, store.ptr = arrays["gene/batch"], arrays["gene/ptr"]

    def _put_edges(
        self, store: Any, key: Tuple[str, str, str], edges: int, nodes: Tuple[int, int], arrays: "_Arrays", slices: "_Slices",
        offsets: "_Offsets",
    ) -> None:
        name, field = f"edges/{key[1]}", "edge_index" if key[0] == key[2] else "hyperedge_index"
        store[field], store.num_edges = arrays[f"{name}/edge_index"], arrays[f"{name}/num_edges"]
        slices.put(key, field, edges)
        offsets.shift(key, field, nodes)
        slices.put(key, "num_edges", 1)
        offsets.put(key, "num_edges", True)
        if key == ("reaction", "rmr", "metabolite"):
            store.stoichiometry = arrays[f"{name}/stoichiometry"]
            slices.put(key, "stoichiometry", edges)
            offsets.put(key, "stoichiometry", True)
        store.mask = arrays.truth(f"{name}/mask")
        slices.put(key, "mask", edges)
        offsets.put(key, "mask", True)

    def _put_nodes(
        self, store: Any, kind: str, count: int, arrays: "_Arrays", slices: "_Slices", offsets: "_Offsets"
    ) -> None:
        """Reactions or metabolites."""
        _put_num_nodes(store, [count] * slices.samples)
        store.node_ids = [self._node_ids[kind]] * slices.samples
        slices.put(kind, "node_ids", 1)
        offsets.put(kind, "node_ids", False)
        fields = {"w_growth": arrays["reaction/w_growth"]} if kind == "reaction" else {}
        fields |= {"mask": arrays.truth(f"{kind}/mask"), "pert_mask": arrays.truth(f"{kind}/pert_mask")}
        for field, value in fields.items():
            store[field] = value
            slices.put(kind, field, count)
            offsets.put(kind, field, True)
        store.batch, store.ptr = arrays[f"{kind}/batch"], arrays[f"{kind}/ptr"]


def _put_num_nodes(store: Any, counts: List[int]) -> None:
    store._num_nodes = counts
    store.num_nodes = sum(counts)


class _Arrays:
    """The arrays of a native batch by name."""

    def __init__(self, native: GraphBatch, collated: Collated):
        self._native, self._collated = native, collated

    def __getitem__(self, name: str) -> Any:
        return self._collated._array(self._native, self._collated._places[name])

    def truth(self, name: str) -> Any:
        """A mask as truth values."""
        return self._collated._truth(self[name])


class _Counts:
    """Tensors that depend on the number of samples alone: batches of as many samples share them, and nothing writes to them."""

    def __init__(self, samples: int):
        import torch

        self.samples = samples
        #: int64 [samples + 1]: 0, 1, …
        self.steps = torch.arange(samples + 1)
        #: int64 [samples]: 0.
        self.none = torch.zeros(samples, dtype=torch.int64)
        #: Where each sample's share ends, by its size.
        self.ends: Dict[int, Any] = {}
        #: By how much an edge index is shifted, by the nodes of a sample.
        self.shifts: Dict[Tuple[int, int], Any] = {}


class _Slices:
    """Where each sample's share of a field ends, as `separate` of PyTorch Geometric reads it."""

    def __init__(self, counts: _Counts):
        self.samples = counts.samples
        self.stores: Dict[Any, Dict[str, Any]] = {}
        self._counts = counts

    def put(self, store: Any, field: str, size: Any) -> None:
        """A field of `size` rows a sample, or the ends themselves."""
        if isinstance(size, int):
            ends = self._counts.ends.get(size)
            if ends is None:
                ends = self._counts.ends[size] = self._counts.steps * size
        else:
            ends = size
        self.stores.setdefault(store, {})[field] = ends


class _Offsets:
    """By how much the values of each sample in a field are shifted."""

    def __init__(self, counts: _Counts):
        self.stores: Dict[Any, Dict[str, Any]] = {}
        self._counts = counts

    def put(self, store: Any, field: str, is_tensor: bool) -> None:
        """A field that is not shifted. Lists have no offsets."""
        self.stores.setdefault(store, {})[field] = self._counts.none if is_tensor else None

    def shift(self, store: Any, field: str, nodes: Tuple[int, int]) -> None:
        """An edge index between so many nodes of a sample."""
        shifts = self._counts.shifts.get(nodes)
        if shifts is None:
            import torch

            shifts = self._counts.steps[:-1].view(-1, 1, 1) * torch.tensor(nodes).view(2, 1)
            self._counts.shifts[nodes] = shifts
        self.stores.setdefault(store, {})[field] = shifts
