"""What AnnData says is in a file, as JSON. Runs with every AnnData from 0.6 on."""

import json

import numpy as np
import pandas as pd
import scipy.sparse


def plain(value):
    """A value as JSON has it: what is no value is null."""
    if value is None or value is pd.NaT or (hasattr(pd, "NA") and value is pd.NA):
        return None
    if isinstance(value, (float, np.floating)):
        return None if np.isnan(value) else float(value)
    return value.item() if isinstance(value, np.generic) else value


def name(value):
    """How Python writes a value; of a float32 no more digits than it has, of -0 the 0 that it equals."""
    return str(float(str(value)) + 0.0) if isinstance(value, (float, np.floating)) else str(value)


def labels(column):
    """A column as categories and codes."""
    if hasattr(column, "cat"):
        return [name(category) for category in column.cat.categories], [int(code) for code in column.cat.codes]
    known = ~np.asarray(pd.isna(column), dtype=bool)
    values = list(column.astype(np.float32) if column.dtype == np.float16 else column.values)
    different = sorted({value for value, there in zip(values, known) if there})
    numbers = {value: number for number, value in enumerate(different)}
    return [name(value) for value in different], [numbers[value] if there else -1 for value, there in zip(values, known)]


def numbers(column):
    """A column as numbers, or null if it holds strings."""
    values = column.cat.categories if hasattr(column, "cat") else column[~np.asarray(pd.isna(column), dtype=bool)]
    if any(isinstance(value, str) for value in values):
        return None
    return [None if plain(value) is None else float(value) for value in column]


def matrix(values):
    """Rows of a matrix as float32."""
    values = values.toarray() if scipy.sparse.issparse(values) else np.asarray(values)
    return [[plain(value) for value in row] for row in values.astype(np.float32)]


def truth(adata):
    """All that is compared."""
    parts = {"X": {"genes": list(adata.var_names), "values": matrix(adata.X)}}
    for name in adata.layers.keys():
        parts["layers/" + name] = {"genes": list(adata.var_names), "values": matrix(adata.layers[name])}
    if adata.raw is not None:
        parts["raw"] = {"genes": list(adata.raw.var_names), "values": matrix(adata.raw.X)}
    columns = {}
    for name in adata.obs.columns:
        categories, codes = labels(adata.obs[name])
        columns[str(name)] = {"categories": categories, "codes": codes, "numbers": numbers(adata.obs[name])}
    return {"rows": list(adata.obs_names), "columns": columns, "parts": parts}


def write(path, adata):
    """Write what `adata` holds to `path`."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(truth(adata), file, ensure_ascii=False, allow_nan=False)
