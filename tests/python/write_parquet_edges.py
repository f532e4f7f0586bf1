"""Writes parquet files of which something must be said or counted.

Usage: write_parquet_edges.py FOLDER

All have 60 rows of 4 genes; value of a gene in a row: row * 4 + gene + 1.
"""

import pathlib
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS, GENES = 60, 4
folder = pathlib.Path(sys.argv[1])
matrix = np.arange(1, ROWS * GENES + 1).reshape(ROWS, GENES)


def write(name, columns, notes=None, **options):
    table = pa.table(columns).replace_schema_metadata(notes)
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False} | options
    pq.write_table(table, folder / f"{name}.parquet", **options)


# A column for each gene, beside one of obs of the same type.
wide = {f"g{gene}": matrix[:, gene] for gene in range(GENES)} | {"n_counts": matrix.sum(1)}
write("wide_unsaid", wide)
write("wide_obs_said", wide, {"expctl.obs": '["n_counts"]'})
write("wide_genes_said", wide, {"expctl.genes": '["g3", "g2", "g1", "g0"]'})

lists = pa.array(list(matrix.astype(np.float32)), pa.list_(pa.float32()))
write("twins", {"X": lists}, {"expctl.genes": '["a", "b", "a", "c"]'})
table = pa.Table.from_arrays([lists, pa.array(range(ROWS)), pa.array(range(ROWS))], ["X", "depth", "depth"])
pq.write_table(table, folder / "columns_twice.parquet")

# One page a column, with its checksum.
write("checked", {"X": lists}, write_page_checksum=True)

# Many pages, with and without a list of where they are.
numbers = pa.array([np.arange(GENES)] * ROWS, pa.list_(pa.int32()))
for index in [True, False]:
    options = {"write_page_index": index, "data_page_size": 64, "write_batch_size": 4, "row_group_size": 40}
    write(f"dense_{index}", {"X": lists}, **options)
    write(f"sparse_{index}", {"indices": numbers, "values": lists}, {"expctl.columns": str(GENES)}, **options)
