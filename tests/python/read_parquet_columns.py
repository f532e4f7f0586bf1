"""Reads the numeric columns of parquet files with pyarrow.

Usage: read_parquet_columns.py FILE...

Prints a JSON object: for each file its columns of numbers and of lists of numbers (`flat`, `lists`), each as the bits of its values in
float32, one after another; null for a column with a missing value. A file that pyarrow cannot read has its error as a string instead.
"""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def bits(column):
    """float32 bits of a column without missing values."""
    if column.null_count:
        return None
    column = column.combine_chunks()
    if pa.types.is_list(column.type):
        column = column.flatten()
        if column.null_count:
            return None
    with np.errstate(over="ignore", invalid="ignore"):
        return column.to_numpy(zero_copy_only=False).astype(np.float32).view(np.uint32).tolist()


def is_number(kind):
    return pa.types.is_integer(kind) or pa.types.is_floating(kind)


def columns(path):
    try:
        # Without threads: with them, one exit in six or so of the interpreter is an abort.
        table = pq.ParquetFile(path, page_checksum_verification=True).read(use_threads=False)
    except Exception as error:
        return str(error)
    found = {"flat": {}, "lists": {}}
    for field in table.schema:
        is_list = pa.types.is_list(field.type)
        if is_number(field.type.value_type if is_list else field.type):
            found["lists" if is_list else "flat"][field.name] = bits(table[field.name])
    return found


print(json.dumps({path: columns(path) for path in sys.argv[1:]}))
