"""Write AnnData files of many shapes, and beside each what AnnData reads from it (anndata_truth.py).

    python write_anndata.py FOLDER

`one/NAME.h5ad` with `one/NAME.json` are single files, `one/NAME.v2.zarr` and `one/NAME.v3.zarr` the same in zarr, `real.json` is what the file that ships says; `joined/NAME/*.h5ad` with `joined/NAME.json` are files to join, and what
anndata.concat makes of them.
"""

import json
import pathlib
import sys
import warnings

import anndata
import h5py
import hdf5plugin
import numpy as np
import pandas as pd
import scipy.sparse

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import anndata_truth  # noqa: E402

warnings.simplefilter("ignore")
folder = pathlib.Path(sys.argv[1])
(folder / "one").mkdir()
(folder / "joined").mkdir()
rng = np.random.default_rng(11)


def sparse(rows, genes, dtype=np.float32, form="csr"):
    values = rng.poisson(0.5, (rows, genes))
    values[rng.random((rows, genes)) < 0.05] = 113
    matrix = scipy.sparse.csr_matrix(values.astype(dtype))
    return matrix.asformat(form)


def names(prefix, count):
    return [f"{prefix}{number}" for number in range(count)]


def new(matrix, obs=None, genes=None):
    rows, columns = matrix.shape
    obs = pd.DataFrame(index=names("cell ", rows)) if obs is None else obs
    return anndata.AnnData(matrix, obs=obs, var=pd.DataFrame(index=names("gene-", columns) if genes is None else genes))


def write(name, adata, **options):
    path = folder / "one" / f"{name}.h5ad"
    adata.write_h5ad(path, **options)
    anndata_truth.write(path.with_suffix(".json"), anndata.read_h5ad(path))
    if options:
        return
    for version in [2, 3]:
        anndata.settings.zarr_write_format = version
        anndata.read_h5ad(path).write_zarr(folder / "one" / f"{name}.v{version}.zarr")


def compress(path, options):
    """Compress what is there, but for strings: hdf5plugin's Blosc ends the process on them."""
    with h5py.File(path, "r+") as file:
        found = []
        file.visititems(lambda name, item: found.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in found:
            old = file[name]
            if old.dtype.kind == "O" or old.ndim != 1 or old.size == 0:
                continue
            values, attributes = old[:], dict(old.attrs)
            del file[name]
            file.create_dataset(name, data=values, chunks=(min(16, values.size),), **options).attrs.update(attributes)


def columns(rows):
    """Columns of all kinds."""
    missing = rng.random(rows) < 0.3
    integers = rng.integers(0, 6, rows)
    kinds = np.array(["T cell", "B cell", "NK, α-β", "", "細胞"])
    many = [f"donor {number:04}" for number in rng.permutation(600)]
    obs = pd.DataFrame(index=[f"AACG{number:05}-é" for number in range(rows)])
    obs["kind"] = pd.Categorical(rng.choice(kinds, rows), categories=kinds[::-1])
    obs["kind_missing"] = pd.Categorical.from_codes(np.where(missing, -1, integers % 5), categories=kinds)
    obs["kind_ordered"] = pd.Categorical(rng.choice(["low", "mid", "high"], rows), ["low", "mid", "high"], ordered=True)
    obs["kind_none"] = pd.Categorical.from_codes(np.full(rows, -1), categories=["never"])
    obs["many"] = pd.Categorical(rng.choice(many, rows), categories=many)
    obs["by_integer"] = pd.Categorical(integers * 10, categories=[50, 40, 30, 20, 10, 0])
    obs["by_float"] = pd.Categorical(integers / 4)
    obs["by_bool"] = pd.Categorical(integers > 2)
    obs["text"] = [f"{number % 7}ß{number}" for number in range(rows)]
    for kind in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]:
        obs[kind] = (rng.integers(-3 if kind[0] != "u" else 0, 12, rows) * 1.5).astype(kind)
    obs["large"] = rng.integers(2**53, 2**63, rows)
    obs["larger"] = rng.integers(2**63, 2**64, rows, dtype=np.uint64)
    obs["tiny"] = rng.choice([1e-7, 1.5e-5, 0.0001, 123456789.125, 1e16, 1e22, -0.0, 0.0, 2.5e-300], rows)
    obs["tiny_single"] = rng.choice(np.float32([0.1, 1e-7, 16777216, 1e10, 3.4e38, -2.5]), rows)
    obs["float_missing"] = np.where(missing, np.nan, rng.standard_normal(rows).round(1))
    obs["bool"] = integers > 3
    obs["integer_missing"] = pd.array(np.where(missing, None, integers), dtype="Int32")
    obs["unsigned_missing"] = pd.array(np.where(missing, None, integers), dtype="UInt8")
    obs["integer_there"] = pd.array(integers, dtype="Int64")
    obs["bool_missing"] = pd.array(np.where(missing, None, integers > 2), dtype="boolean")
    obs["text_missing"] = pd.array([None if miss else f"t{number}" for number, miss in enumerate(missing)], dtype="string")
    return obs


anndata.settings.allow_write_nullable_strings = True
obs = columns(61)
for form in ["csr", "csc"]:
    write(f"{form}_columns", new(sparse(61, 17, form=form), obs.copy()))
write("dense_columns_chunked", new(sparse(61, 17).toarray(), obs.copy()), compression="gzip")
for name, options in {
    "gzip": {"compression": "gzip"},
    "gzip_9": {"compression": "gzip", "compression_opts": 9},
    "lzf": {"compression": "lzf"},
    "zstd": {"compression": hdf5plugin.FILTERS["zstd"], "compression_opts": (5,)},
    "lz4": dict(zip(["compression", "compression_opts"], [32004, hdf5plugin.LZ4(nbytes=4096).filter_options])),
}.items():
    write(f"columns_{name}", new(sparse(61, 17), obs.copy()), **options)
for name, options in {"lz4": ("lz4", 5, 1), "zstd": ("zstd", 3, 2), "zlib": ("zlib", 1, 0)}.items():
    write(f"columns_blosc_{name}", new(sparse(61, 17), obs.copy()))
    compress(folder / "one" / f"columns_blosc_{name}.h5ad", hdf5plugin.Blosc(*options))
for dtype in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64"]:
    write(f"csr_{dtype}", new(sparse(19, 8, dtype)))
    write(f"dense_{dtype}", new(sparse(19, 8, dtype).toarray()))
write("dense_float16", new(sparse(19, 8).toarray().astype(np.float16)))
write("dense_fractions", new(rng.standard_normal((13, 5))))
write("csr_fractions", new(scipy.sparse.random(40, 30, 0.2, "csr", random_state=3)))
wide = sparse(19, 8)
wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
write("csr_wide_indices", new(wide))
write("no_rows", new(sparse(0, 8)))
write("no_values", new(scipy.sparse.csr_matrix((7, 8), dtype=np.float32)))
named = new(sparse(21, 12), genes=[f"γ{number}" for number in rng.permutation(12)])
named.var.index.name, named.obs.index.name = "gene_symbol", "barcode"
named.obs["depth"] = np.arange(21)
named.raw = named
named = named[:, [4, 1, 9]].copy()
named.layers["counts"] = sparse(21, 3, np.int32)
named.layers["scaled"] = rng.standard_normal((21, 3))
write("raw_and_layers", named)

real = pathlib.Path(__file__).parents[2] / "experiments/arrayloader/real/pbmc68k_reduced.h5ad"
anndata_truth.write(folder / "real.json", anndata.read_h5ad(real))

# Joined files.
letters = [chr(ord("a") + number) for number in range(14)] + ["ä", "Z", "ζ", "𝔸"]
for case in range(24):
    here = folder / "joined" / f"case_{case:02}"
    here.mkdir()
    base = list(rng.permutation(letters)[:10])
    adatas = []
    for number in range(int(rng.integers(1, 5))):
        kind = case % 8
        if kind == 0:
            genes = base
        elif kind == 1:
            genes = sorted(rng.permutation(letters)[:11])
        elif kind == 2:
            genes = base[: 10 - 2 * number]
        elif kind == 3:
            genes = list(rng.permutation(base))
        else:
            genes = list(rng.permutation(letters)[: rng.integers(6, 15)])
        matrix = sparse(int(rng.integers(1, 12)), len(genes))
        if kind == 5 or (kind >= 6 and number % 2):
            matrix = matrix.toarray()
        adata = new(matrix, genes=genes)
        some = rng.permutation(["x", "y", "z", "w"])[:3]
        adata.obs["kind"] = pd.Categorical(rng.choice(some, adata.n_obs), categories=some)
        adata.obs["depth"] = rng.integers(0, 9, adata.n_obs)
        adata.write_h5ad(here / f"{number}.h5ad")
        adatas.append(anndata.read_h5ad(here / f"{number}.h5ad"))
    truth = {}
    for join in ["inner", "outer"]:
        both = anndata.concat(adatas, join=join, fill_value=0)
        dense = all(not scipy.sparse.issparse(adata.X) for adata in adatas)
        truth[join] = {"genes": list(both.var_names), "values": anndata_truth.matrix(both.X), "dense": dense}
    kinds = [kind for adata in adatas for kind in adata.obs["kind"].astype(str)]
    categories = list(dict.fromkeys(kind for adata in adatas for kind in adata.obs["kind"].cat.categories))
    truth["kind"] = {"categories": categories, "codes": [categories.index(kind) for kind in kinds]}
    truth["depth"] = [float(depth) for adata in adatas for depth in adata.obs["depth"]]
    (folder / "joined" / f"case_{case:02}.json").write_text(json.dumps(truth, ensure_ascii=False), encoding="utf-8")
