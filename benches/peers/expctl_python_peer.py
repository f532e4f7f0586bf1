"""expctl in Python: `expctl.data`, whose threads load in the process of the training loop (docs/guide/python.md). No peer: our own.

The same trial as native ones, with the package's own arguments: `array.output`, `array.labels`, `array.memory`, `sampler.*`,
`loader.workers` threads, `loader.prefetch_factor` batches that each may be ahead, `launch.ranks`. 2 of them are the default of the config and
of the package, which then has fewer of large batches ahead. `persistent=True`, as the guide says of short epochs: native trials keep their
threads as well.

The loop is that of the guide: each step takes X and the columns of `array.labels`, as tensors. Stages are what the loader threads
measured themselves, as of native trials; what Python adds to the wait for a batch is *other*, the loop's body is unattributed.
"""

import built_loaders  # noqa: F401, I001

import expctl
import expctl.data as xd
import measured
import request

DRAWS = {
    "uniform": lambda asked: xd.uniform(),
    "weighted": lambda asked: xd.weighted(asked.by),
    "chunked": lambda asked: xd.chunked(asked.chunk_rows, asked.chunks),
}


def begin(settings=None):
    """The run of this trial, and its loader."""
    versions = {"expctl": expctl.__version__, **measured.versions(["numpy"])}
    run = expctl.Run(program="expctl in Python", versions=versions, **({"settings": settings} if settings else {}))
    measured.limit_threads(run)
    asked = request.of_trial(run.settings, run.data_dir, rank=run.rank, ranks=run.world_size)
    asked.needs("expctl in Python", draw=DRAWS, memory=asked.memory, ranks=True)
    dataset = xd.open(asked.files, obs=asked.labels, memory=asked.memory)
    loader = xd.Loader(
        dataset, asked.batch, sampler=DRAWS[asked.draw](asked), threads=asked.workers, out="torch",
        prefetch=None if asked.ahead == 2 else asked.ahead,
        sparse=asked.output == "sparse", drop_last=True, seed=asked.seed, rank=(run.rank, run.world_size),
        persistent=True,
    )
    run.note(stored_bytes=asked.stored_bytes(), samples_per_epoch=len(loader) * asked.batch * run.world_size, samples_total=len(dataset))
    return run, loader


def main():
    run, loader = begin()
    for _, batch in zip(run.steps(), run.loader(loader, endless=True)):
        batch.X, batch.obs  # noqa: B018
    run.close()


if __name__ == "__main__":
    main()
