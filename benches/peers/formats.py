"""Makes the format of a peer's own from AnnData files, once: it is complete, or not there.

Usage: formats.py FORMAT FOLDER FILE.h5ad…    (benches/peers/prepare.sh calls it in the right environment)

FOLDER/FORMAT is made in FOLDER/partial-FORMAT first. Formats are annbatch.zarr, scdl, tiledbsoma, mds, slaf and lance.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np


def make_annbatch(files, folder):
    import zarr
    from annbatch import DatasetCollection

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
    DatasetCollection(folder).add_adatas([str(file) for file in files], rng=np.random.default_rng(7))


def make_scdl(files, folder):
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


def make_tiledbsoma(files, folder):
    """One experiment of all files, as tiledbsoma's guide to appending does it."""
    import anndata as ad
    import tiledbsoma.io

    def read(file):
        """Rows and the columns that the peers are asked for: AnnData's nullable columns have no counterpart."""
        adata = ad.read_h5ad(file)
        label = "cell_type" if "cell_type" in adata.obs else "cell_line"
        obs = adata.obs[[label, "weight"]].assign(**{label: adata.obs[label].astype(str)})
        return ad.AnnData(adata.X, obs=obs, var=adata.var[[]])

    folder.rmdir()
    uri, names = str(folder), {"measurement_name": "RNA"}
    tiledbsoma.io.from_anndata(uri, read(files[0]), "RNA")
    for file in files[1:]:
        adata = read(file)
        mapping = tiledbsoma.io.register_anndatas(uri, [adata], **names, obs_field_name="obs_id", var_field_name="var_id")
        mapping.prepare_experiment(uri)
        tiledbsoma.io.from_anndata(uri, adata, "RNA", registration_mapping=mapping)


def make_mds(files, folder):
    import h5py
    from streaming_packages import MDSWriter

    columns = {"genes": "ndarray:int32", "values": "ndarray:float32", "label": "int"}
    with MDSWriter(out=str(folder / "rows"), columns=columns) as out:
        for path in files:
            with h5py.File(path) as file:
                genes, indptr = int(file["X"].attrs["shape"][1]), file["X"]["indptr"][:]
                labels = file["obs"]["cell_type"]["codes"][:]
                for start in range(0, len(labels), 4096):
                    ends = indptr[start:start + 4097]
                    values = file["X"]["data"][ends[0]:ends[-1]].astype(np.float32, copy=False)
                    columns_of = file["X"]["indices"][ends[0]:ends[-1]].astype(np.int32, copy=False)
                    for row, (a, b) in enumerate(zip(ends - ends[0], ends[1:] - ends[0])):
                        out.write({"genes": columns_of[a:b], "values": values[a:b], "label": int(labels[start + row])})
    (folder / "about.json").write_text(json.dumps({"genes": genes}))


def make_slaf(files, folder):
    """SLAF's tables, of one file with all rows: of several its converter counts the values before each row (cell_start_index) anew for every
    file, and its loader takes the last row of a file, where a read ends in it, for a whole one."""
    import sys
    import types

    import anndata as ad
    from anndata.experimental import concat_on_disk

    # The converter takes nothing but the reader of AnnData files from scanpy, which is anndata's.
    scanpy = types.ModuleType("scanpy")
    scanpy.read_h5ad, scanpy.AnnData = ad.read_h5ad, ad.AnnData
    sys.modules["scanpy"] = scanpy
    from slaf.data import SLAFConverter

    together = folder.with_suffix(".h5ad")
    concat_on_disk(files, together)
    SLAFConverter().convert(str(together), str(folder))
    together.unlink()


def make_lance(files, folder):
    """A table with a row for each cell: lists of gene numbers and of values, as the .h5ad files have them."""
    import h5py
    import lance
    import pyarrow as pa

    schema = pa.schema([("genes", pa.list_(pa.int32())), ("values", pa.list_(pa.float32()))])

    def parts():
        for path in files:
            with h5py.File(path) as file:
                indptr = file["X"]["indptr"][:]
                for start in range(0, len(indptr) - 1, 4096):
                    ends = indptr[start:start + 4097]
                    values = file["X"]["data"][ends[0]:ends[-1]].astype(np.float32, copy=False)
                    columns_of = file["X"]["indices"][ends[0]:ends[-1]].astype(np.int32, copy=False)
                    offsets = pa.array((ends - ends[0]).astype(np.int32))
                    lists = [pa.ListArray.from_arrays(offsets, pa.array(part)) for part in (columns_of, values)]
                    yield pa.RecordBatch.from_arrays(lists, schema=schema)

    lance.write_dataset(pa.RecordBatchReader.from_batches(schema, parts()), str(folder / "rows"), schema)
    with h5py.File(files[0]) as file:
        (folder / "about.json").write_text(json.dumps({"genes": int(file["X"].attrs["shape"][1])}))


MAKERS = {
    "annbatch.zarr": make_annbatch,
    "scdl": make_scdl,
    "tiledbsoma": make_tiledbsoma,
    "mds": make_mds,
    "slaf": make_slaf,
    "lance": make_lance,
}


def make(name, folder, files):
    """Makes one format, if it is not there."""
    if (folder / name).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f"partial-{name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    MAKERS[name](files, partial)
    partial.rename(folder / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=MAKERS)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("files", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    make(options.format, options.folder, sorted(options.files))


if __name__ == "__main__":
    main()
