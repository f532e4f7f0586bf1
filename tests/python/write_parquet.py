"""Writes one matrix to parquet files in all the ways that pyarrow and pandas know.

Usage: write_parquet.py FOLDER

Makes counts.f32 and scaled.f32 (little-endian float32 [rows, genes]) and files.json: for each file its name, the matrix that it
has, and whether it has lists without zeros.
"""

import itertools
import json
import pathlib
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, GENES = 300, 97
folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(7)
counts = np.where(rng.random((ROWS, GENES)) < 0.1, rng.poisson(3, (ROWS, GENES)) + 1, 0).astype(np.float32)
counts[17] = 0
counts[18, :60] = 5
scaled = np.where(counts > 0, rng.random((ROWS, GENES)), 0).astype(np.float32)
scaled[3, 5], scaled[3, 6] = np.nan, np.inf
matrices = {"counts": counts, "scaled": scaled}
for name, matrix in matrices.items():
    matrix.astype("<f4").tofile(folder / f"{name}.f32")

kinds = ["B cell", "NK", "T cell", "unused"]
codes = rng.integers(-1, 3, ROWS)
obs = pd.DataFrame({
    "kind": pd.Categorical.from_codes(codes, kinds),
    "text": [None if code < 0 else kinds[code] for code in codes],
    "batch": (np.arange(ROWS) % 7 - 3).astype(np.int16),
    "barcode": [f"AAAC{i:05}" for i in range(ROWS)],
    "score": np.where(codes < 0, np.nan, codes * 0.5),
    "depth": counts.sum(1).astype(np.float32),
    "good": codes > 0,
})
files = []


def write(name, columns, matrix, sparse=False, notes=None, **options):
    table = pa.table(columns | {c: pa.Array.from_pandas(obs[c]) for c in obs})
    if notes:
        table = table.replace_schema_metadata(notes)
    options = {"row_group_size": 128, "data_page_size": 2048, "compression": "snappy"} | options
    pq.write_table(table, folder / name, **options)
    files.append({"file": name, "matrix": matrix, "sparse": sparse})


def lists(matrix, value=pa.float32(), of=pa.list_, nullable=True):
    field = pa.field("element", value, nullable=nullable)
    return pa.array(list(matrix.astype(value.to_pandas_dtype())), of(field))


shapes = {
    "list": lambda m: lists(m),
    "large": lambda m: lists(m, of=pa.large_list),
    "fixed": lambda m: lists(m, of=lambda field: pa.list_(field, GENES)),
    "required": lambda m: lists(m, nullable=False),
}
number = itertools.count()
for version, dictionary, codec in itertools.product(
    ["1.0", "2.0"], [True, False], ["none", "snappy", "gzip", "zstd", "lz4"]
):
    for shape, make in shapes.items():
        index = next(number) % 2 == 0
        for matrix in matrices:
            write(
                f"dense_{shape}_{version}_{dictionary}_{codec}_{matrix}.parquet", {"X": make(matrices[matrix])}, matrix,
                data_page_version=version, use_dictionary=dictionary, compression=codec, write_page_index=index,
                write_page_checksum=not index, dictionary_pagesize_limit=1 << 20 if index else 512,
            )

for value in [pa.float64(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]:
    write(f"dense_{value}.parquet", {"cells": lists(counts, value)}, "counts")
    if pa.types.is_integer(value):
        write(f"delta_{value}.parquet", {"X": lists(counts, value)}, "counts", use_dictionary=False,
              column_encoding={"X.list.element": "DELTA_BINARY_PACKED"}, data_page_size=1 << 20)
for matrix in matrices:
    write(f"split_{matrix}.parquet", {"X": lists(matrices[matrix])}, matrix, use_dictionary=False,
          column_encoding={"X.list.element": "BYTE_STREAM_SPLIT"})
write("defaults.parquet", {"X": lists(counts)}, "counts", row_group_size=None, data_page_size=None)

notes = {"expctl.columns": str(GENES)}
for index, (gene, version, dictionary, paged) in enumerate(
    itertools.product([pa.int32(), pa.int64(), pa.uint16()], ["1.0", "2.0"], [True, False], [True, False])
):
    where = [np.flatnonzero(row != 0) for row in scaled]
    columns = {
        "values": pa.array([row[at] for row, at in zip(scaled, where)], pa.list_(pa.float32())),
        "indices": pa.array([at.astype(gene.to_pandas_dtype()) for at in where], pa.list_(gene)),
    }
    for size in [256, 1 << 20]:
        write(f"sparse_{index}_{size}.parquet", columns, "scaled", True, notes, data_page_version=version,
              use_dictionary=dictionary, write_page_index=paged, data_page_size=size, compression="zstd")

for value in [np.float32, np.float64, np.int64]:
    frame = pd.DataFrame(counts.astype(value), columns=[f"g{i}" for i in range(GENES)], index=obs["barcode"])
    wide = pd.concat([frame.reset_index(drop=True), obs], axis=1)
    name = f"wide_{np.dtype(value)}.parquet"
    if value == np.int64:
        wide["size"] = np.arange(ROWS)
        wide = wide.set_index("size")
    if value == np.float64:
        wide = wide.drop(columns="score").assign(score=obs["score"].astype(np.float32))
    if value == np.float32:
        wide["depth"] = wide["depth"].astype(np.float64)
    wide.to_parquet(folder / name, row_group_size=100)
    files.append({"file": name, "matrix": "counts", "sparse": False})

(folder / "files.json").write_text(json.dumps({"rows": ROWS, "genes": GENES, "codes": codes.tolist(), "files": files}))
