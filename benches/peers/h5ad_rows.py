"""Rows and columns of obs of AnnData files (CSR), for loaders that take any source that can be indexed."""

import contextlib

import anndata as ad
import h5py
import numpy as np
import scipy.sparse as sp
from request import stop


class Files:
    """Rows of several AnnData files: rows are read in the order of the files and put back in their own."""

    def __init__(self, paths):
        self.parts = [ad.io.sparse_dataset(h5py.File(path)["X"]) for path in paths]
        self.starts = np.cumsum([0] + [part.shape[0] for part in self.parts])

    def __len__(self):
        return int(self.starts[-1])

    def __getitem__(self, rows):
        rows = np.atleast_1d(np.asarray(rows))
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        cuts = np.searchsorted(ascending, self.starts)
        parts = []
        for part, start, a, b in zip(self.parts, self.starts, cuts, cuts[1:]):
            if b > a:
                unique, back = np.unique(ascending[a:b] - start, return_inverse=True)
                found = part[unique]
                parts.append(found if unique.size == b - a else found[back])
        found = parts[0] if len(parts) == 1 else sp.vstack(parts, format="csr")
        if np.array_equal(ascending, rows):
            # Asked for in the order of the files, as scDataset does: another copy would put them where they are.
            return found
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        return found[back]


def joined(paths):
    """One CSR matrix of several files, each read into its part of it: the values are in memory once."""
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(h5py.File(path))["X"] for path in paths]
        indptrs = [part["indptr"][:] for part in parts]
        ends = np.cumsum([0] + [int(indptr[-1]) for indptr in indptrs])
        data = np.empty(ends[-1], parts[0]["data"].dtype)
        # As scipy takes them: narrow where the number of values allows it.
        index = np.int32 if ends[-1] < 2**31 else np.int64
        indices = np.empty(ends[-1], index)
        for part, start, end in zip(parts, ends, ends[1:]):
            if end > start:
                part["data"].read_direct(data, dest_sel=np.s_[start:end])
                part["indices"].read_direct(indices, dest_sel=np.s_[start:end])
        indptr = np.concatenate([[0]] + [indptr[1:] + start for indptr, start in zip(indptrs, ends)]).astype(index)
        shape = (len(indptr) - 1, int(parts[0].attrs["shape"][1]))
    return sp.csr_matrix((data, indices, indptr), shape=shape, copy=False)


def obs_column(paths, column):
    """A column of obs of all files."""

    def read(path):
        with h5py.File(path) as file:
            return ad.io.read_elem(file["obs"])[column].to_numpy()

    return np.concatenate([read(path) for path in paths])


def orders(request, rows):
    """Row numbers of epochs, one array each, without end: a permutation, or draws by weight."""
    rng = np.random.default_rng(request.seed)
    if request.draw == "weighted":
        weights = obs_column(request.h5ad, request.by).astype(float)
        cumulative = np.cumsum(weights / weights.sum())
    while True:
        if request.draw == "weighted":
            yield np.searchsorted(cumulative, rng.random(rows)).clip(max=rows - 1)
        else:
            yield rng.permutation(rows)


def row_sampler(request, data):
    """torch's sampler of single rows of a map-style data set: of several ranks each draws its share, in another order every epoch."""
    import torch
    from torch.utils.data import DistributedSampler, RandomSampler, WeightedRandomSampler

    class RankSampler(DistributedSampler):
        def __iter__(self):
            order = super().__iter__()
            self.set_epoch(self.epoch + 1)
            return order

    if request.ranks > 1:
        if request.draw != "uniform":
            stop("torch's DistributedSampler has no weights: set sampler.draw = \"uniform\", or launch.ranks = 1")
        return RankSampler(data, request.ranks, request.rank, shuffle=True, seed=request.seed, drop_last=True)
    if request.draw == "weighted":
        weights = obs_column(request.h5ad, request.by).astype(float)
        return WeightedRandomSampler(torch.from_numpy(weights), len(data))
    return RandomSampler(data)
