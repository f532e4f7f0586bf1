"""Reads a parquet file with pyarrow and pandas.

Usage: read_parquet.py FILE

Prints JSON: the matrix as lists of rows, columns of obs, names of genes and classes.
"""

import json
import sys

import numpy as np
import pyarrow.parquet as pq

path = sys.argv[1]
file = pq.ParquetFile(path)
# Without threads: with them, one exit in six or so of the interpreter is an abort ("terminate called").
table = file.read(use_threads=False)
notes = {k.decode(): v.decode() for k, v in table.schema.metadata.items()}
genes = json.loads(notes["expctl.genes"])
if "X" in table.column_names:
    rows = table["X"].to_pylist()
    assert table.schema.field("X").type.value_type == "float"
else:
    rows = np.zeros((table.num_rows, len(genes)), np.float32)
    for row, indices, values in zip(rows, table["indices"].to_pylist(), table["values"].to_pylist()):
        assert indices == sorted(set(indices))
        row[indices] = values
    rows = rows.tolist()
frame = table.to_pandas(use_threads=False)
assert len(frame) == table.num_rows == len(rows)
print(json.dumps({
    "rows": rows,
    "kind": frame["kind"].tolist(),
    "count": table["count"].to_pylist(),
    "good": table["good"].to_pylist(),
    "types": {name: str(table.schema.field(name).type) for name in ["kind", "score", "count", "good"]},
    "score": [None if np.isnan(x) else x for x in frame["score"]],
    "genes": genes,
    "categories": json.loads(notes["expctl.categories"]),
    "groups": [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)],
}))
