"""What a peer of arrays is asked for: the settings of a trial that it can follow, and the files.

The settings are those that our own loaders are given (docs/reference/config.md, [array], [sampler] and [loader]), so that one
config has both. A peer refuses what it cannot do: a figure of something else under that name would be worse than none.
"""

import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable


def again(loader):
    """Batches of a loader without end, epoch after epoch."""
    while True:
        yield from loader


@dataclasses.dataclass(frozen=True)
class Request:
    """Rows to draw.

    files: AnnData or parquet files, or folders in zarr, in order; h5ad: the AnnData files that the peers' own formats were made from.
    own: folder of those formats (formats.py makes them).
    draw: "uniform", "weighted" or "chunked"; by: column of obs with the weights.
    chunk_rows, chunks: with "chunked", rows that lie together, and how many such chunks are shuffled together.
    labels: columns of obs that a batch is to have beside its rows; none: rows alone.
    output: "sparse" (CSR, as the loader yields it) or "dense" (float32 tensor); memory: all rows in memory first.
    rank, ranks: which of how many ranks draws; each row of an epoch is one rank's.
    endless: makes batches without end of a loader; expctl's, where there is a run, sees inside of torch's.
    read: folders of own formats that were asked for. cold: they are dropped from the page cache first, as the files of the data set are
    (measure.cold_cache).
    """

    files: tuple
    h5ad: tuple
    own: pathlib.Path
    draw: str = "uniform"
    by: str = "weight"
    chunk_rows: int = 512
    chunks: int = 32
    labels: tuple = ()
    output: str = "sparse"
    batch: int = 128
    workers: int = 0
    ahead: int = 2
    seed: int = 42
    memory: bool = False
    rank: int = 0
    ranks: int = 1
    endless: Callable = again
    read: list = dataclasses.field(default_factory=list)
    cold: bool = False

    @property
    def held(self):
        """Rows that are shuffled together."""
        return self.chunk_rows * self.chunks

    def needs(self, peer, draw=("uniform",), output=("sparse", "dense"), workers=True, memory=False, ranks=False):
        """Ends the process with one line if the peer cannot do what is asked."""
        for key, value, able in (("sampler.draw", self.draw, draw), ("array.output", self.output, output)):
            if value not in able:
                stop(f"{peer} has no {key} = \"{value}\", only {' and '.join(able)}")
        if self.workers and not workers:
            stop(f"{peer} has no worker processes: set loader.workers = 0")
        if self.ranks > 1 and not ranks:
            stop(f"{peer} runs on one rank here: set launch.ranks = 1")
        if self.memory != memory:
            stop(f"{peer} reads {'rows in memory: set' if memory else 'files: leave out'} array.memory")

    def format(self, name):
        """Folder of a format of a peer's own."""
        folder = self.own / name
        if not folder.exists():
            stop(f"{folder} is missing; benches/peers/prepare.sh {self.own.parent} {name} makes it")
        self.read.append(folder)
        if self.cold:
            drop_from_page_cache(files_below([folder]))
        return folder

    def stored_bytes(self):
        """Size of what is read: the peer's own format where it has asked for one, else the files."""
        return sum(file.stat().st_size for file in files_below(self.read or self.files))


def files_below(paths):
    """The files among some paths, and those in the folders among them."""
    return [file for path in paths for file in (path, *path.resolve().rglob("*")) if file.is_file()]


def drop_from_page_cache(files):
    """Asks the kernel to forget files, as expctl does with those of the data set. What another process maps stays."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        # Pages that are not on the disk yet cannot be dropped.
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def stop(text):
    """An error of what was asked for: one line, and no traceback."""
    sys.exit(f"error: {text}")


def of_trial(settings, data, **more):
    """The request of a trial: its settings (trial.json), and the folder of its data set."""
    array, sampler, loader = settings["array"], settings["sampler"], settings["loader"]
    unasked = [key for key in ("genes", "layer", "normalize", "log1p") if array.get(key)]
    if unasked:
        stop(f"the peers take rows as they are: array.{unasked[0]} is for our own loaders")
    data, form = pathlib.Path(data), array["format"]
    if array.get("files"):
        stop("the peers read the files of the data set: array.files is for our own loaders")
    folder = data / "files" if form == "h5ad" else data / "stores" / form
    suffix = "parquet" if "parquet" in form else "zarr" if form == "zarr" else "h5ad"
    files = tuple(sorted(folder.glob(f"part-*.{suffix}")))
    if not files:
        stop(f"no part-*.{suffix} in {folder}: expctl data build, expctl data convert")
    return Request(
        files=files,
        h5ad=tuple(sorted((data / "files").glob("part-*.h5ad"))),
        own=data / "peers",
        draw=sampler["draw"],
        by=sampler["by"],
        chunk_rows=sampler["chunk_rows"],
        chunks=sampler["chunks"],
        labels=tuple(array["labels"]),
        output=array["output"],
        batch=loader["batch_size"],
        workers=loader["workers"],
        ahead=loader["prefetch_factor"],
        seed=loader["seed"],
        memory=array["memory"],
        cold=settings.get("measure", {}).get("cold_cache", False),
        **more,
    )
