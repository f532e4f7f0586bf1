"""tiledbsoma-ml (what cellxgene_census reads with): chunks of rows of a SOMA experiment, shuffled in large blocks.

Settings, with the sentence of ExperimentDataset's docstring (0.1.0) that each follows:

- io_batch_size = chunk_rows × chunks: "The default value of 65,536 provides high performance but may need to be reduced in memory-limited
  hosts or when using a large number of |DataLoader| workers."
- shuffle_chunk_size = sampler.chunk_rows, 64 by default: "larger numbers correspond to less randomness, but greater read performance".
- `use_eager_fetch`, on by default: "potentially improving overall performance at the cost of doubling memory utilization".
- Batches made in it: "higher performance can be achieved by performing batching in this class", and `experiment_dataloader`: "the
  recommended way to wrap an |ExperimentDataset| in a |DataLoader|".
- Columns of array.labels; without them its default: "At least one column name must be specified."

The experiment is on the local disk, as tiledbsoma.io.from_anndata writes it, or, with an address as argument (`s3://line/peers/tiledbsoma`), in the
object store that `AWS_ENDPOINT_URL` names. Its threads are TileDB's, as many as processors.
"""

import os
import sys
import urllib.parse

import measured


def object_store():
    """TileDB's settings for a store that is not Amazon's: TileDB itself reads the keys, and no other of the variables of S3."""
    address = urllib.parse.urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
    if not address.netloc:
        return {}
    return {
        "vfs.s3.scheme": address.scheme,
        "vfs.s3.endpoint_override": address.netloc,
        "vfs.s3.region": os.environ.get("AWS_REGION", "us-east-1"),
        "vfs.s3.use_virtual_addressing": "false",
    }


def batches(request):
    request.needs("tiledbsoma-ml", draw=["chunked"])
    import tiledbsoma
    from tiledbsoma_ml import ExperimentDataset, experiment_dataloader

    more = {"num_workers": request.workers, "prefetch_factor": request.ahead} if request.workers else {}
    folder = request.format("tiledbsoma")
    address = sys.argv[1] if len(sys.argv) > 1 else str(folder)
    context = tiledbsoma.SOMATileDBContext(tiledb_config=object_store())
    with tiledbsoma.Experiment.open(address, context=context) as experiment:
        with experiment.axis_query(measurement_name="RNA") as query:
            data = ExperimentDataset(query, layer_name="data", obs_column_names=list(request.labels) or ["soma_joinid"], batch_size=request.batch,
                                     io_batch_size=request.held, shuffle_chunk_size=request.chunk_rows, shuffle=True,
                                     seed=request.seed, return_sparse_X=request.output == "sparse")
        epoch = 0
        while True:
            data.set_epoch(epoch)
            for rows, _ in experiment_dataloader(data, **more):
                if rows.shape[0] == request.batch:
                    yield rows
            epoch += 1


def finish(rows, output):
    """Dense rows come as an array of numpy."""
    import torch

    return rows if output == "sparse" else torch.from_numpy(rows)


if __name__ == "__main__":
    packages = ["tiledbsoma-ml", "tiledbsoma", "torchdata", "pyarrow"]
    measured.run_rows("tiledbsoma-ml", packages, batches, finish, by_system_calls=True)
