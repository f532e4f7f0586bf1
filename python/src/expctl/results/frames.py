"""Tables of `expctl export` as what the caller asked for."""

import importlib.util
import json
import tempfile
from pathlib import Path
from typing import Any, List, Literal, Optional, Tuple

from .program import Root, run

Form = Literal["dicts", "pandas", "polars", "arrow"]


def exported(job: str, table: str, form: Form, root: Root) -> Tuple[Any, Optional[str]]:
    """The table of a job (steps or trials), and what `expctl` said of trials that are missing in it.

    Packages are imported only where they are asked for. pandas without pyarrow gets the rows one by one.

    Raises:
        ValueError: there is no such form.
        ImportError: its package is not installed.
        ResultsError: as `program.run`.
    """
    readers = {"dicts": dicts, "pandas": pandas, "polars": polars, "arrow": arrow}
    if form not in readers:
        raise ValueError(f'as_="{form}" is not known; there are {", ".join(readers)}')
    is_text = form == "dicts" or (form == "pandas" and importlib.util.find_spec("pyarrow") is None)
    with tempfile.TemporaryDirectory(prefix="expctl-") as folder:
        path = Path(folder, table)
        to = "jsonl" if is_text else "parquet"
        _, missing = run(["export", job, "--to", to, "--table", table, "--out", str(path)], root)
        return readers[form](path), missing


def dicts(path: Path) -> List[dict]:
    """A dict for each row. Missing cells are None; so are numbers that are none (a loss of NaN), which JSON cannot say."""
    with open(path) as file:
        return [json.loads(line) for line in file]


def pandas(path: Path) -> Any:
    """A DataFrame of pandas."""
    import pandas as pd

    with open(path, "rb") as file:
        is_parquet = file.read(4) == b"PAR1"
    return pd.read_parquet(path) if is_parquet else pd.DataFrame(dicts(path))


def polars(path: Path) -> Any:
    """A DataFrame of polars."""
    import polars as pl

    return pl.read_parquet(path)


def arrow(path: Path) -> Any:
    """A table of pyarrow."""
    import pyarrow.parquet as pq

    return pq.read_table(path, memory_map=False)


def chosen(table: Any, form: Form, **wanted: Any) -> Any:
    """The rows in which each column has the wanted value; columns that nothing is wanted of (None) are not looked at."""
    wanted = {name: value for name, value in wanted.items() if value is not None}
    if not wanted:
        return table
    if form == "dicts":
        return [row for row in table if all(row[name] == value for name, value in wanted.items())]
    if form == "pandas":
        for name, value in wanted.items():
            table = table[table[name] == value]
        return table.reset_index(drop=True)
    if form == "polars":
        return table.filter(**wanted)
    import pyarrow.compute as pc

    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], value))
    return table
