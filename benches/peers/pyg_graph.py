"""Steps of a peer of graphs: samples of lazy_samples.py or neighbor_samples.py, made a batch by PyTorch Geometric.

With worker processes, PyG's DataLoader is what is awaited; expctl sees in it when samples and batches are made. Without
them, the step does itself what that DataLoader does, so that the time of each part is seen: read (LMDB), decode (JSON),
mask (the sample), collate (PyG's Collater).
"""

import json

import measured
from request import again, stop


def loader(samples, settings, follow):
    """PyG's DataLoader with the published settings: shuffled, follow_batch; workers stay from epoch to epoch."""
    from torch_geometric.loader import DataLoader

    asked = settings["loader"]
    more = {"prefetch_factor": asked["prefetch_factor"], "persistent_workers": True} if asked["workers"] else {}
    return DataLoader(samples, batch_size=asked["batch_size"], shuffle=asked["shuffle"], drop_last=asked["drop_last"],
                      follow_batch=follow, num_workers=asked["workers"], **more)


def run_graph(peer, make_name):
    import expctl

    run = expctl.Run(program=peer, versions=measured.versions(["torch_geometric", "lmdb", "safetensors", "numpy"]))
    measured.limit_threads(run)
    settings = run.settings
    refuse(settings)
    import lazy_samples
    import shared_graph

    pipeline = settings["pipeline"]
    graph = shared_graph.CellGraph(run.data_dir, pipeline["edge_types"], pipeline["metabolism"])
    samples = shared_graph.Samples(run.data_dir, graph, getattr(lazy_samples, make_name))
    run_batches(run, samples, loader(samples, settings, pipeline["follow_batch"]))


def run_batches(run, samples, source):
    """The steps, with the batches that `source`, a DataLoader, makes of `samples`."""
    if run.settings["loader"]["workers"]:
        batches = iter(run.loader(source, endless=True))
        measured.steps(run, batches, lambda batch: batch, lambda batch: (batch.num_graphs, batch_bytes(batch)))
    else:
        in_this_process(run, samples, source)
    run.close()


def batch_bytes(batch):
    """Bytes of all tensors of a batch."""
    return sum(value.nbytes for store in batch.stores for value in store.values() if hasattr(value, "nbytes"))


def refuse(settings):
    """Ends the process with one line where the settings ask for what the peer does not have."""
    select, pipeline = settings["select"], settings["pipeline"]
    if settings["launch"]["ranks"] != 1:
        stop("the peers run on one rank: set launch.ranks = 1")
    if select["split"] != "all" or select["samples"] != "all" or select["subset"]:
        stop("the peers take all samples: leave [select] out")
    if pipeline["store"] != "json" or pipeline["collation"] != "pyg":
        stop("the peers read the JSON store and collate as PyG does: pipeline.store, pipeline.collation")


def in_this_process(run, samples, source):
    """What DataLoader does without workers, part by part."""
    indices, collate = again(source.batch_sampler), source.collate_fn
    for step in run.steps():
        with step.stage("sample"):
            chosen = next(indices)
        with step.stage("read"):
            records = [samples.read(index) for index in chosen]
        with step.stage("decode"):
            parsed = [json.loads(record) for record in records]
        with step.stage("mask"):
            made = [samples.make(samples.graph, record) for record in parsed]
        with step.stage("collate"):
            batch = collate(made)
        step.samples, step.bytes_batch = batch.num_graphs, batch_bytes(batch)
        step.bytes_read += sum(len(record) for record in records)
