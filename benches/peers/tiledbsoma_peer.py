"""tiledbsoma-ml (what cellxgene_census reads with): chunks of rows of a SOMA experiment, shuffled in large blocks.

Settings, as its documentation has them: shuffle_chunk_size = sampler.chunk_rows (64 by default), io_batch_size =
chunk_rows × chunks (65,536 by default), `use_eager_fetch`, `experiment_dataloader`. The experiment is on the local disk,
with the settings that tiledbsoma.io.from_h5ad takes. Its threads are TileDB's.
"""

import measured


def batches(request):
    request.needs("tiledbsoma-ml", draw=["chunked"])
    import tiledbsoma
    from tiledbsoma_ml import ExperimentDataset, experiment_dataloader

    more = {"num_workers": request.workers, "prefetch_factor": request.ahead} if request.workers else {}
    with tiledbsoma.Experiment.open(str(request.format("tiledbsoma"))) as experiment:
        with experiment.axis_query(measurement_name="RNA") as query:
            data = ExperimentDataset(query, layer_name="data", obs_column_names=["cell_type"], batch_size=request.batch,
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
