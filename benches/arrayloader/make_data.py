"""Makes the data of the array loader's benchmark, and the formats of those peers that have their own.

Usage: make_data.py FOLDER [--files 8] [--rows 25000] [--genes 20000] [--values 1232] [--only NAME,…]

FOLDER/h5ad/*.h5ad are taken as they are where they exist already (`expctl data build` makes them; obs needs cell_type
and weight); otherwise counts of about --values genes a row are drawn (negative binomial, seeded). From those are made,
each once: h5ad_gzip, annbatch.zarr, scdl, parquet (a list of all genes, row groups of 1,024, snappy; the first
--parquet-rows rows of each file).
"""

import argparse
import pathlib
import shutil

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp


def draw(path, number, rows, genes, values):
    rng = np.random.default_rng([7, number])
    # Genes differ: a few are seen in nearly all cells, most in few.
    weights = rng.gamma(0.6, size=genes) + 0.02
    share = np.clip(weights / weights.sum() * values, 0, 0.95)
    share = np.clip(share * values / share.sum(), 0, 1)
    indptr, indices, data = [0], [], []
    for _ in range(rows):
        columns = np.flatnonzero(rng.random(genes, dtype=np.float32) < share).astype(np.int32)
        indices.append(columns)
        data.append((rng.negative_binomial(1, 0.35, columns.size) + 1).astype(np.float32))
        indptr.append(indptr[-1] + columns.size)
    matrix = sp.csr_matrix((np.concatenate(data), np.concatenate(indices), np.array(indptr)), shape=(rows, genes))
    kinds = rng.zipf(1.5, rows) % 20
    counts = np.bincount(kinds, minlength=20)
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical.from_codes(kinds, [f"type {i}" for i in range(20)]),
            "weight": 1.0 / counts[kinds],
        },
        index=[f"cell_{number}_{i}" for i in range(rows)],
    )
    var = pd.DataFrame(index=[f"gene_{i}" for i in range(genes)])
    ad.AnnData(matrix, obs=obs, var=var).write_h5ad(path)


def make_gzip(files, folder, _):
    for file in files:
        ad.read_h5ad(file).write_h5ad(folder / file.name, compression="gzip")


def make_annbatch(files, folder, _):
    import zarr
    from annbatch import DatasetCollection

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    DatasetCollection(folder).add_adatas([str(file) for file in files], rng=np.random.default_rng(7))


def make_scdl(files, folder, _):
    from bionemo.scdl.io.single_cell_collection import SingleCellCollection

    parts = folder.with_suffix(".parts")
    shutil.rmtree(parts, ignore_errors=True)
    source = folder.with_suffix(".source")
    source.mkdir(exist_ok=True)
    for file in files:
        link = source / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(file.resolve())
    collection = SingleCellCollection(parts)
    collection.load_h5ad_multi(source, max_workers=1, data_dtype="float32", use_X_not_raw=True)
    folder.rmdir()
    collection.flatten(folder, destroy_on_copy=True)
    shutil.rmtree(parts, ignore_errors=True)
    shutil.rmtree(source)


def make_parquet(files, folder, options):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in files:
        adata = ad.read_h5ad(file, backed="r")
        rows = min(adata.n_obs, options.parquet_rows)
        writer = None
        for start in range(0, rows, 1024):
            stop = min(start + 1024, rows)
            dense = adata.X[start:stop].toarray().astype(np.float32)
            x = pa.FixedSizeListArray.from_arrays(pa.array(dense.ravel()), dense.shape[1]).cast(pa.list_(pa.float32()))
            table = pa.table({"X": x} | {c: pa.Array.from_pandas(adata.obs[c].iloc[start:stop].astype(
                str if c == "cell_type" else float)) for c in ("cell_type", "weight")})
            writer = writer or pq.ParquetWriter(folder / f"{file.stem}.parquet", table.schema)
            writer.write_table(table, row_group_size=1024)
        writer.close()


MAKERS = {"h5ad_gzip": make_gzip, "annbatch.zarr": make_annbatch, "scdl": make_scdl, "parquet": make_parquet}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in {"files": 8, "rows": 25000, "genes": 20000, "values": 1232, "parquet-rows": 4096}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", default=",".join(MAKERS))
    options = parser.parse_args()
    h5ad = options.folder / "h5ad"
    h5ad.mkdir(parents=True, exist_ok=True)
    if not list(h5ad.glob("*.h5ad")):
        for number in range(options.files):
            partial = h5ad / f"part_{number}.partial"
            draw(partial, number, options.rows, options.genes, options.values)
            partial.rename(h5ad / f"part_{number}.h5ad")
    files = sorted(h5ad.glob("*.h5ad"))
    for name in filter(None, options.only.split(",")):
        folder = options.folder / name
        if folder.exists():
            continue
        partial = options.folder / f"partial-{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            MAKERS[name](files, partial, options)
        except Exception as e:  # the other peers go on
            print(f"{name} cannot be made: {type(e).__name__}: {e}", flush=True)
            continue
        partial.rename(folder)


if __name__ == "__main__":
    main()
