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
        self._shares: Optional[_Shares] = None
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
        shares = self._shares_of(samples)
        data._num_graphs = samples
        # Past HeteroData, which takes what is set for a field of the graph.
        data.__dict__["expctl_times"] = BatchTimes(native.stages(), samples, native.bytes_read, native.nbytes)
        ptr = arrays["gene_ptr"]
        self._put_genes(data["gene"], ptr, arrays, shares)
        if self._has_graphs:
            reactions, metabolites, gpr, rmr = self._metabolism or (0, 0, 0, 0)
            if self._metabolism is not None:
                self._put_nodes(data["reaction"], "reaction", reactions, arrays, shares)
                self._put_nodes(data["metabolite"], "metabolite", metabolites, arrays, shares)
            genes = self._genes
            edge_stores = [(("gene", name, "gene"), edges, (genes, genes)) for name, edges in self._edge_types]
            if self._metabolism is not None:
                edge_stores.append((("gene", "gpr", "reaction"), gpr, (genes, reactions)))
                edge_stores.append((("reaction", "rmr", "metabolite"), rmr, (reactions, metabolites)))
            for key, edges, nodes in edge_stores:
                self._put_edges(data[key], key, edges, nodes, arrays, shares)
        shares.are_known = True
        # Of its own, because a batch may be changed.
        data._slice_dict = {store: dict(fields) for store, fields in shares.slices.items()}
        data._slice_dict["gene"]["perturbation_indices"] = ptr
        data._inc_dict = {store: dict(fields) for store, fields in shares.offsets.items()}
        return data

    def _shares_of(self, samples: int) -> "_Shares":
        """Those of the batch before, but for the last batch of an epoch and samplers whose batches differ in size."""
        if self._shares is None or self._shares.samples != samples:
            self._shares = _Shares(samples)
        return self._shares

    def _put_genes(self, store: Any, ptr: Any, arrays: "_Arrays", shares: "_Shares") -> None:
        samples, genes = shares.samples, self._genes
        indices = arrays["genes"]
        names = [self._names[gene] for gene in indices.tolist()]
        ends = ptr.tolist()
        perturbed = [names[start:end] for start, end in zip(ends, ends[1:])]
        fields: Dict[str, Any] = {}
        if self._has_graphs:
            fields["node_ids"] = [self._names] * samples
        fields["num_nodes"] = genes * samples
        fields["ids_pert" if self._has_graphs else "perturbed_genes"] = perturbed
        fields["perturbation_indices"] = indices
        if "perturbation_indices" in self._follows:
            fields["perturbation_indices_batch"], fields["perturbation_indices_ptr"] = arrays["gene_sample"], ptr.clone()
        if self._has_graphs:
            fields["x"] = arrays["labels"].new_zeros(samples * genes, 0)
            if "x" in self._follows:
                fields["x_batch"], fields["x_ptr"] = arrays["gene/x_batch"], arrays["gene/x_ptr"]
        fields["pert_mask"], fields["mask"] = arrays.truth("gene/pert_mask"), arrays.truth("gene/mask")
        for prefix, values, types in [("phenotype", "labels", PHENOTYPE), ("phenotype_stat", "p_values", P_VALUE)]:
            fields[f"{prefix}_values"] = arrays[values]
            for field in (f"{prefix}_type_indices", f"{prefix}_sample_indices"):
                fields[field] = arrays[f"gene/{field}"]
            fields[f"{prefix}_types"] = [[types]] * samples
        fields["batch"], fields["ptr"] = arrays["gene/batch"], arrays["gene/ptr"]
        _put(store, fields, [genes] * samples)
        if not shares.are_known:
            # The share of a sample in its genes is another in each batch.
            shares.put("gene", fields, {"perturbation_indices": 0, "x": genes, "pert_mask": genes, "mask": genes})

    def _put_edges(
        self, store: Any, key: Tuple[str, str, str], edges: int, nodes: Tuple[int, int], arrays: "_Arrays", shares: "_Shares"
    ) -> None:
        name, field = f"edges/{key[1]}", "edge_index" if key[0] == key[2] else "hyperedge_index"
        fields = {field: arrays[f"{name}/edge_index"], "num_edges": arrays[f"{name}/num_edges"]}
        if key == ("reaction", "rmr", "metabolite"):
            fields["stoichiometry"] = arrays[f"{name}/stoichiometry"]
        fields["mask"] = arrays.truth(f"{name}/mask")
        store._mapping.update(fields)
        if not shares.are_known:
            shares.put(key, fields, {field: edges, "stoichiometry": edges, "mask": edges})
            shares.shift(key, field, nodes)

    def _put_nodes(self, store: Any, kind: str, count: int, arrays: "_Arrays", shares: "_Shares") -> None:
        """Reactions or metabolites."""
        fields: Dict[str, Any] = {"num_nodes": count * shares.samples, "node_ids": [self._node_ids[kind]] * shares.samples}
        if kind == "reaction":
            fields["w_growth"] = arrays["reaction/w_growth"]
        fields["mask"], fields["pert_mask"] = arrays.truth(f"{kind}/mask"), arrays.truth(f"{kind}/pert_mask")
        fields["batch"], fields["ptr"] = arrays[f"{kind}/batch"], arrays[f"{kind}/ptr"]
        _put(store, fields, [count] * shares.samples)
        if not shares.are_known:
            shares.put(kind, fields, {"w_growth": count, "mask": count, "pert_mask": count})


def _put(store: Any, fields: Dict[str, Any], nodes: List[int]) -> None:
    """Put fields into a store of nodes, and the number of nodes of each sample. What the store's own `__setattr__` does besides, for each field
    (properties, caches, None), concerns none of them."""
    store.__dict__["_num_nodes"] = nodes
    store._mapping.update(fields)


class _Arrays:
    """The arrays of a native batch by name."""

    def __init__(self, native: GraphBatch, collated: Collated):
        self._native, self._collated = native, collated

    def __getitem__(self, name: str) -> Any:
        return self._collated._array(self._native, self._collated._places[name])

    def truth(self, name: str) -> Any:
        """A mask as truth values."""
        return self._collated._truth(self[name])


#: Fields that PyTorch Geometric computes for a batch: samples have no share in them.
OF_THE_BATCH = ("num_nodes", "batch", "ptr")


class _Shares:
    """What each sample's share of each field is, as `separate` of PyTorch Geometric reads it. It depends on the number of samples alone, so it is
    worked out once; batches of as many samples share the tensors, and nothing writes to them."""

    def __init__(self, samples: int):
        import torch

        self.samples = samples
        #: Whether all fields of a batch have been put.
        self.are_known = False
        #: Where each sample's share ends, by store and field.
        self.slices: Dict[Any, Dict[str, Any]] = {}
        #: By how much the values of each sample are shifted; None for lists.
        self.offsets: Dict[Any, Dict[str, Any]] = {}
        #: int64 [samples + 1]: 0, 1, …
        self._steps = torch.arange(samples + 1)
        #: int64 [samples]: 0.
        self._none = torch.zeros(samples, dtype=torch.int64)
        self._ends: Dict[int, Any] = {}
        self._shifts: Dict[Tuple[int, int], Any] = {}

    def put(self, store: Any, fields: Dict[str, Any], rows: Dict[str, int]) -> None:
        """The fields of a store; those that `rows` does not have have one row a sample. None is shifted."""
        slices, offsets = self.slices.setdefault(store, {}), self.offsets.setdefault(store, {})
        for field, value in fields.items():
            if field in OF_THE_BATCH or field.endswith(("_batch", "_ptr")):
                continue
            size = rows.get(field, 1)
            if size not in self._ends:
                self._ends[size] = self._steps * size
            slices[field] = self._ends[size]
            offsets[field] = None if isinstance(value, list) else self._none

    def shift(self, store: Any, field: str, nodes: Tuple[int, int]) -> None:
        """An edge index between so many nodes of a sample."""
        if nodes not in self._shifts:
            import torch

            self._shifts[nodes] = self._steps[:-1].view(-1, 1, 1) * torch.tensor(nodes).view(2, 1)
        self.offsets[store][field] = self._shifts[nodes]
