"""Makes the data of the array loader's benchmark, and the formats of those peers that have their own.

Usage: make_data.py FOLDER [--files 8] [--rows 25000] [--genes 20000] [--values 1232] [--only NAME,…]

FOLDER/h5ad/*.h5ad are taken as they are where they exist already (`expctl data build` makes them; obs needs cell_type
and weight); otherwise counts of about --values genes a row are drawn (negative binomial, seeded). From those are made,
each once by benches/peers/formats.py: h5ad_gzip, annbatch.zarr, scdl, parquet (a list of all genes; the first
--parquet-rows rows of each file).
"""

import argparse
import pathlib
import sys

import anndata as ad
import numpy as np
import pandas as pd
import scipy.sparse as sp

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import formats  # noqa: E402

FORMATS = ["h5ad_gzip", "annbatch.zarr", "scdl", "parquet"]


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, value in {"files": 8, "rows": 25000, "genes": 20000, "values": 1232, "parquet-rows": 4096}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--only", default=",".join(FORMATS))
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
        try:
            formats.make(name, options.folder, files, options)
        except Exception as e:  # the other peers go on
            print(f"{name} cannot be made: {type(e).__name__}: {e}", flush=True)


if __name__ == "__main__":
    main()
