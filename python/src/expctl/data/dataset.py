"""Files of rows, opened and joined."""

import glob
import os
import sys
import tempfile
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union, overload

from .._native import Dataset as NativeDataset
from .._native import Sampler, Stream, configure_remote
from . import views
from .batch import Batch, Column, Matrix, described
from .encoders import Encoders, encoders_of, renumbered, with_classes
from .obs import Obs, ObsSpec, columns_of, read_columns
from .output import choose, row_sum
from .rows import MANY_ROWS, RowSet

Paths = Union[str, "os.PathLike[str]", Sequence[Union[str, "os.PathLike[str]"]]]

_FORMATS = {".h5ad": "h5ad", ".h5": "h5ad", ".zarr": "zarr", ".parquet": "parquet", ".mds": "mds"}


@overload
def open(
    files: Paths,
    *,
    format: Optional[str] = None,
    layer: Optional[str] = None,
    raw: bool = False,
    layers: Sequence[str] = (),
    obsm: Sequence[str] = (),
    join: str = "inner",
    obs: ObsSpec = None,
    filter: Optional[str] = None,
    encoders: Any = None,
    unseen: str = "error",
    genes: Optional[Sequence[str]] = None,
    memory: bool = False,
    threads: Optional[int] = None,
    cache_mib: int = 0,
    cache_dir: Optional[str] = None,
    split: None = None,
    split_seed: int = 0,
) -> "Dataset": ...


@overload
def open(
    files: Paths,
    *,
    format: Optional[str] = None,
    layer: Optional[str] = None,
    raw: bool = False,
    layers: Sequence[str] = (),
    obsm: Sequence[str] = (),
    join: str = "inner",
    obs: ObsSpec = None,
    filter: Optional[str] = None,
    encoders: Any = None,
    unseen: str = "error",
    genes: Optional[Sequence[str]] = None,
    memory: bool = False,
    threads: Optional[int] = None,
    cache_mib: int = 0,
    cache_dir: Optional[str] = None,
    split: Sequence[float],
    split_seed: int = 0,
) -> "Tuple[Dataset, ...]": ...


def open(
    files: Paths,
    *,
    format: Optional[str] = None,
    layer: Optional[str] = None,
    raw: bool = False,
    layers: Sequence[str] = (),
    obsm: Sequence[str] = (),
    join: str = "inner",
    obs: ObsSpec = None,
    filter: Optional[str] = None,
    encoders: Any = None,
    unseen: str = "error",
    genes: Optional[Sequence[str]] = None,
    memory: bool = False,
    threads: Optional[int] = None,
    cache_mib: int = 0,
    cache_dir: Optional[str] = None,
    split: Optional[Sequence[float]] = None,
    split_seed: int = 0,
) -> "Union[Dataset, Tuple[Dataset, ...]]":
    """Open files of rows (cells) and join them as `anndata.concat` does.

    Args:
        files: a path, a pattern with `*`, a URL (http, https, s3, gs), or a list of these. Rows are in this order.
        format: "h5ad", "zarr", "parquet" or "mds"; None goes by the ends of the names.
        layer: name of the layer with the values; None is X.
        raw: the values of `raw`, with its genes.
        layers: layers that a batch has beside them, by name; "X" is X. They are as they are stored: `normalize` and `log1p` of a loader are
            for `batch.X`. Each is read for itself.
        obsm: arrays of obsm that a batch has, by name, such as "X_pca".
        join: "inner" for the genes that all files have, "outer" for those that any has (missing values are 0).
        obs: obs columns of a batch, as a list of names, or a dict of names and types: "auto", "class" (int64 class numbers),
            "float32", "float64", "int64" or "text". "auto" is class numbers for categories, text and truth values, int64 for
            integers without missing values, float32 for other numbers.
        filter: a query of pandas over obs, such as "tissue == 'lung' and n_counts > 500": only the rows for which it is true. Only
            the columns that it names are read. Names with spaces are in backticks, and `index` is the names of the rows.
        encoders: class numbers of another data set: its `encoders()`, a file of them, or a dict of columns and names of classes.
            Columns of obs that are named there are classes with these numbers.
        unseen: what a class is that the encoders do not know: "error", or "missing" (class number -1).
        genes: names of the genes of a batch, in this order; None is all. `normalize` is over all genes all the same.
        memory: read all rows into memory now, on `threads` threads.
        threads: threads of that reading; None is one for each CPU.
        cache_mib: MiB of a folder that keep what was read of remote files, for all processes of this machine; 0 keeps nothing.
            Holds for the process.
        cache_dir: that folder; None is EXPCTL_CACHE_DIR, or else one in the folder for temporary files.
        split: shares of the rows, such as (0.8, 0.1, 0.1): a data set for each, as `Dataset.split` gives them, which can also keep groups
            together and divide classes. None is one data set of all rows.
        split_seed: of that split.

    Raises:
        FileNotFoundError, PermissionError, OSError: a file cannot be opened.
        DataError: a file is damaged, has no such column, gene or layer, or does not fit the others; no row matches the
            filter; a row has a class that the encoders do not know.
        MemoryError: the rows do not fit into memory.
    """
    dataset = Dataset(
        files, format=format, layer=layer, raw=raw, layers=_names("layers", layers), obsm=_names("obsm", obsm), join=join, obs=obs,
        filter=filter, encoders=encoders, unseen=unseen, genes=_genes(genes), memory=memory, threads=threads, cache_mib=cache_mib, cache_dir=cache_dir,
    )
    return dataset if split is None else dataset.split(split, seed=split_seed)


class Dataset(RowSet[Batch]):
    """Rows (cells) × genes of one or more files. Made by `expctl.data.open`.

    `ds[i]`, `ds[2:10]` and `ds[[7, 3, 3]]` are batches of these rows, in this order. A Dataset is a map-style data set of torch, too:
    `DataLoader(ds, batch_size=64, shuffle=True)`. A `Loader` is many times as fast.
    """

    def __init__(self, files: Paths, **options: Any):
        if options["unseen"] not in ("error", "missing"):
            raise ValueError(f'unseen={options["unseen"]!r} is neither "error" nor "missing"')
        self._options = {"files": _expand(files), **options, "encoders": encoders_of(options["encoders"])}
        self._open()

    def _open(self) -> None:
        options = self._options
        files: List[str] = options["files"]
        format = options["format"] or _format_of(files)
        is_remote = any("://" in file for file in files)
        if is_remote:
            folder = options["cache_dir"] or os.environ.get("EXPCTL_CACHE_DIR") or _temporary_cache()
            configure_remote(requests=32, folder=folder, cache_mib=options["cache_mib"])
        if options["layer"] is not None and options["raw"]:
            raise ValueError(f"raw=True and layer={options['layer']!r}: raw has no layers")
        encoders: Optional[Encoders] = options["encoders"]
        columns = with_classes(columns_of(options["obs"]), encoders)
        if options["layers"] and options["raw"]:
            raise ValueError(f"raw=True and layers={options['layers']!r}: raw has other genes than the layers")

        def opened(location: str, genes: Sequence[str]) -> NativeDataset:
            return NativeDataset(
                files, format=format, layer=location, join=options["join"], genes=list(genes), memory=options["memory"],
                threads=options["threads"] or len(os.sched_getaffinity(0)), is_remote=is_remote,
            )

        genes = options["genes"] or []
        self._opened = opened(_layer_of(options["layer"], options["raw"]), genes)
        self._layers = [opened(_layer_of(name, False), genes) for name in options["layers"]]
        self._obsm = [opened(f"obsm/{name}", []) for name in options["obsm"]]
        self._matrices = tuple(
            Matrix(kind, name, native.n_vars)
            for kind, natives in (("layers", self._layers), ("obsm", self._obsm))
            for name, native in zip(options[kind], natives)
        )
        self._obs: Optional[Obs] = Obs(self._native, self._rows)
        if options["filter"] is not None and self._rows is None:
            self._rows = views.matching(self, options["filter"])
            self._obs = Obs(self._native, self._rows)
        self._columns = read_columns(self._native, columns)
        layout = []
        for i, (name, dtype, array) in enumerate(self._columns.layout()):
            text = tuple(self._columns.categories(i) or ()) if columns[name] == "text" else None
            table = None
            if dtype == "class" and text is None and encoders is not None and name in encoders:
                table = renumbered(name, self._columns, i, encoders[name], options["unseen"], self._rows)
            layout.append(Column(name, array, text, table))
        self._layout = tuple(layout)

    def close(self) -> None:
        super().close()
        self._layers, self._obsm, self._obs = [], [], None

    def _view(self, rows: Any) -> "Dataset":
        view = super()._view(rows)
        view._obs = Obs(self._native, rows)
        return view

    @property
    def shape(self) -> Tuple[int, int]:
        """(rows, genes)."""
        return len(self), self._native.n_vars

    @property
    def var_names(self) -> List[str]:
        """Names of the genes, in the order of the columns of a batch."""
        return self._native.var_names

    @property
    def layers(self) -> List[str]:
        """Names of the layers that a batch has beside X."""
        return list(self._options["layers"])

    @property
    def obsm(self) -> Dict[str, int]:
        """The arrays of obsm that a batch has, and their columns."""
        return {matrix.name: matrix.columns for matrix in self._matrices if matrix.kind == "obsm"}

    def _more(self, sparse: bool) -> List[Tuple[NativeDataset, bool]]:
        """What a batch has beside X, and which of it is sparse: layers as X is, obsm never."""
        return [(native, sparse) for native in self._layers] + [(native, False) for native in self._obsm]

    @property
    def obs(self) -> Obs:
        """All columns of obs, read when they are asked for."""
        if self._obs is None:
            self._obs = Obs(self._native, self._rows)
        return self._obs

    @property
    def obs_names(self) -> Optional[List[str]]:
        """Names of the rows, or None if the files have none."""
        return self.obs.names

    @property
    def classes(self) -> Dict[str, List[str]]:
        """For each obs column of a batch that has class numbers, the names of the classes, by number."""
        encoders = self._options["encoders"] or {}
        found = {}
        for i, (name, dtype, _) in enumerate(self._columns.layout()):
            if dtype == "class":
                found[name] = list(encoders[name]) if name in encoders else self._columns.categories(i) or []
        return found

    def encoders(self) -> Encoders:
        """The class numbers of this data set, to save, and to open another one with: `open(..., encoders=ds.encoders())`."""
        texts = {column.name for column in self._layout if column.categories is not None}
        return Encoders({name: names for name, names in self.classes.items() if name not in texts})

    @property
    def sparse(self) -> bool:
        """The rows are stored as CSR."""
        return self._native.sparse

    @property
    def in_memory(self) -> bool:
        """All rows are in memory."""
        return self._native.in_memory

    @property
    def nbytes(self) -> int:
        """Size of the files in bytes."""
        return self._native.stored_bytes

    @property
    def files(self) -> List[str]:
        """Paths and URLs, in order."""
        return list(self._options["files"])

    def split(
        self, fractions: Sequence[float], *, seed: int = 0, by: Optional[str] = None, stratify: Optional[str] = None
    ) -> Tuple["Dataset", ...]:
        """Parts of the rows, drawn at random, as views: data sets of the same open files, which a Loader takes as any other.

            train, val, test = ds.split((0.8, 0.1, 0.1), seed=1, by="donor")

        Args:
            fractions: share of the rows of each part; what they leave of 1 is in none.
            seed: another one gives another split; the same one, of the same rows, the same.
            by: an obs column: rows with the same value are in the same part. Shares are as near as its groups allow.
            stratify: an obs column: each of its classes is divided in these shares, to within one row.

        A missing value is a group, or class, of its own. Needs NumPy, and pandas for `by` and `stratify`.

        Raises:
            ValueError: fractions of 0 or below, or above 1 together; a part without rows.
            DataError: there is no such column.
        """
        return tuple(self._view(views.subset(self._rows, rows, self._items)) for rows in views.parts(self, fractions, seed, by, stratify))

    def read(
        self,
        rows: Any,
        *,
        out: Optional[str] = None,
        sparse: Optional[bool] = None,
        dtype: Any = "float32",
        normalize: float = 0.0,
        log1p: bool = False,
    ) -> Batch:
        """A batch of these rows, in this order; a row may come more than once. Arguments are those of `Loader`."""
        output = choose(out, sparse, dtype)
        listed = self._file_rows(rows)
        ends = (len(listed) // 8).to_bytes(8, byteorder=sys.byteorder)
        sampler = Sampler(
            self._native, "batches", batch_size=1, drop_last=False, seed=0, rank=0, world_size=1, listed=listed, ends=ends
        )
        stream = Stream(
            self._native, sampler, self._columns, self._more(output.sparse), sparse=output.sparse, normalize=row_sum(normalize), log1p=log1p,
            threads=int(len(listed) // 8 > MANY_ROWS), prefetch=1, first=0, steps=1,
        )
        try:
            native = stream.next()
        finally:
            # Where it is only dropped, no other thread runs until its thread has ended.
            stream.stop()
        assert native is not None  # One step was asked for.
        return Batch(native, output, self._layout, self._matrices, self._rows)

    def __repr__(self) -> str:
        if self.closed:
            return f"Dataset(closed, {len(self.files)} files)"
        rows, genes = self.shape
        where = "in memory" if self.in_memory else f"{self.nbytes / 1e6:,.1f} MB on disk"
        kind = "sparse" if self.sparse else "dense"
        of = "" if self._rows is None else f" of {len(self._native):,}"
        return f"Dataset({rows:,}{of} rows × {genes:,} genes, {kind}, {where}, {self._native.name}{described(self._layout, self._matrices)})"

    def __reduce__(self) -> Any:
        return _reopen, (self._options, self._rows)


def _reopen(options: Dict[str, Any], rows: Any) -> Dataset:
    """A data set in another process: the files are opened again there."""
    dataset = object.__new__(Dataset)
    dataset._options, dataset._rows = options, rows
    dataset._open()
    return dataset


def _temporary_cache() -> str:
    return os.path.join(tempfile.gettempdir(), f"expctl-cache-{os.geteuid()}")


def _names(argument: str, names: Sequence[str]) -> List[str]:
    """Names, each once."""
    if isinstance(names, str):
        raise ValueError(f"{argument}={names!r} is a list of names")
    if len(set(names)) < len(names):
        raise ValueError(f"{argument}={list(names)!r} has a name twice")
    return list(names)


def _genes(names: Optional[Sequence[str]]) -> Optional[List[str]]:
    """Names of genes, of an array or an index of pandas, too. None is all."""
    if names is None:
        return None
    if isinstance(names, str) or not len(names):
        raise ValueError(f"genes={names!r} is a list of names, and None is all of them")
    return [str(name) for name in names]


def _layer_of(layer: Optional[str], raw: bool) -> str:
    if raw:
        return "raw"
    if layer is None or layer == "X":
        return "X"
    return layer if layer.startswith("layers/") else f"layers/{layer}"


def _expand(files: Paths) -> List[str]:
    """All files, patterns replaced by what they match, in the order of names."""
    given = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    found: List[str] = []
    for name in [os.fspath(file) for file in given]:
        if "://" in name or os.path.exists(name) or not glob.has_magic(name):
            found.append(name)
            continue
        matches = sorted(glob.glob(name))
        if not matches:
            raise FileNotFoundError(f"no file matches {name}")
        found.extend(matches)
    if not found:
        raise ValueError("there are no files to open")
    return found


def _format_of(files: List[str]) -> str:
    """The format that all names end with."""
    formats = set()
    for file in files:
        name = file.split("?")[0].rstrip("/")
        ending = os.path.splitext(name)[1].lower()
        if ending not in _FORMATS and os.path.isfile(os.path.join(file, "index.json")):
            formats.add("mds")
        elif ending in _FORMATS:
            formats.add(_FORMATS[ending])
        else:
            raise ValueError(f"{file}: its name does not say its format; give format= one of h5ad, zarr, parquet, mds")
    if len(formats) > 1:
        raise ValueError(f"files of several formats ({', '.join(sorted(formats))}) cannot be joined")
    return formats.pop()
