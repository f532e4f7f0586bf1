"""Batches of processors "pyg" and "perturbation" are those that PyTorch Geometric collates of the published samples.

The samples are those of benches/peers/lazy_samples.py, written from the published description of LazySubgraphRepresentation and of the
Perturbation processor.
"""

import contextlib
import copy
import io
import pathlib
import pickle
import shutil
import sys
import tempfile
import unittest

import expctl
import graphs
import test_guide
from expctl.data import graph

try:
    import torch
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import DataLoader
    from torch_geometric.loader.dataloader import Collater
except ImportError as error:
    raise unittest.SkipTest(f"PyTorch Geometric is not installed: {error}")

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "benches" / "peers"))
import lazy_samples  # noqa: E402
import shared_graph  # noqa: E402

FOLLOW = ("x", "x_pert", "perturbation_indices")


class Pyg(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = graphs.folder()

    def samples(self, edge_types=(), metabolism=True, processor="pyg"):
        made = {"pyg": lazy_samples.lazy_sample, "perturbation": lazy_samples.perturbation_sample}[processor]
        cell_graph = shared_graph.CellGraph(self.folder, list(edge_types), metabolism)
        return shared_graph.Samples(self.folder, cell_graph, made)

    def same(self, expected, found, where):
        """The same value: tensors to the dtype and every element, dicts to the order of keys."""
        self.assertIs(type(expected), type(found), where)
        if isinstance(expected, torch.Tensor):
            self.assertEqual((expected.dtype, expected.shape), (found.dtype, found.shape), where)
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True, msg=str(where))
        elif isinstance(expected, dict):
            self.assertEqual(list(expected), list(found), where)
            for key in expected:
                self.same(expected[key], found[key], (*where, key))
        else:
            self.assertEqual(expected, found, where)

    def same_batch(self, expected, found):
        self.assertEqual([store._key for store in expected.stores], [store._key for store in found.stores])
        for ours, theirs in zip(found.stores, expected.stores):
            self.same(dict(theirs), dict(ours), (theirs._key,))
            self.assertEqual(vars(theirs).get("_num_nodes"), vars(ours).get("_num_nodes"), theirs._key)
        self.assertEqual((expected.num_graphs, expected.batch_size, len(expected)), (found.num_graphs, found.batch_size, len(found)))
        self.same(expected._slice_dict, found._slice_dict, ("slices",))
        self.same(expected._inc_dict, found._inc_dict, ("offsets",))
        for i, (one, other) in enumerate(zip(expected.to_data_list(), found.to_data_list())):
            self.same(one.to_dict(), other.to_dict(), (i,))

    def test_batches_are_equal(self):
        few = ["string12_0_database", "physical"]
        for processor in ("pyg", "perturbation"):
            for metabolism in (True, False):
                for edge_types in ([], few):
                    samples = self.samples(edge_types, metabolism, processor)
                    ds = graph.open(self.folder, edge_types=edge_types or None, metabolism=metabolism)
                    for follow in (FOLLOW, ("x", "x_pert"), ()):
                        for rows in ([3, 7, 7, 0, 249], [12]):
                            expected = Collater(samples, list(follow))([samples[row] for row in rows])
                            self.same_batch(expected, ds.read(rows, processor=processor, follow_batch=follow))

    def test_an_epoch_is_that_of_the_dataloader(self):
        samples = self.samples(metabolism=False)
        ds = graph.open(self.folder, store="ids")
        order = torch.randperm(len(ds), generator=torch.Generator().manual_seed(1)).tolist()
        theirs = DataLoader(samples, batch_size=28, sampler=order, follow_batch=list(FOLLOW))
        ours = graph.Loader(ds, batch_size=28, processor="pyg", sampler=order, threads=3)
        self.assertEqual(len(theirs), len(ours))
        count = 0
        for expected, found in zip(theirs, ours):
            self.same_batch(expected, found)
            count += found.num_graphs
        self.assertEqual(count, 250)

    def cell_graph(self):
        """The graph as torchcell has it, with names of reactions and metabolites."""
        source = self.samples().graph
        cell_graph = HeteroData()
        cell_graph["gene"].node_ids, cell_graph["gene"].num_nodes = source.names, source.genes
        for name, edges in source.edges.items():
            cell_graph["gene", name, "gene"].edge_index = edges
        cell_graph["gene", "gpr", "reaction"].hyperedge_index = source.gpr
        rmr = cell_graph["reaction", "rmr", "metabolite"]
        rmr.hyperedge_index, rmr.stoichiometry = source.rmr, source.stoichiometry
        for kind, names in [("reaction", source.reaction_ids), ("metabolite", source.metabolite_ids)]:
            cell_graph[kind].node_ids = [f"{kind} {name}" for name in names]
            cell_graph[kind].num_nodes = len(names)
        return cell_graph

    def test_a_store_alone_with_the_cell_graph(self):
        cell_graph = self.cell_graph()
        samples = self.samples()
        samples.graph.reaction_ids = cell_graph["reaction"].node_ids
        samples.graph.metabolite_ids = cell_graph["metabolite"].node_ids
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(self.folder / "processed" / "lmdb" / "data.mdb", folder)
            ds = graph.open(folder, graph=cell_graph, metabolism=True)
            expected = Collater(samples, list(FOLLOW))([samples[i] for i in range(30)])
            self.same_batch(expected, ds.read(range(30), processor="pyg"))
            plain = graph.open(folder, graph=cell_graph)
            self.assertEqual((plain.metabolism, plain.edge_types), (False, list(samples.graph.edges)))

    @unittest.skipUnless(test_guide.GUIDE.exists(), "the guide is not there")
    def test_both_sides_of_the_diff_of_the_guide_give_the_same(self):
        dataset = self.samples(metabolism=False)
        dataset.root, dataset.cell_graph = str(self.folder), self.cell_graph()

        def used(program):
            perturbed, masks = zip(*test_guide.used(program.replace("num_workers=4", "num_workers=0"), {"dataset": dataset}))
            # Both shuffle, each in its own way.
            return sorted(torch.cat(perturbed).tolist()), len(torch.cat(masks)), int(torch.cat(masks).sum())

        theirs, ours = test_guide.sides("From the DataLoader of PyTorch Geometric")
        self.assertEqual(used(ours), used(theirs))

    def test_steps_of_a_run_have_what_loading_a_batch_cost(self):
        ds = graph.open(self.folder, metabolism=True)
        for processor in ("pyg", "perturbation"):
            loader = graph.Loader(ds, 28, processor=processor, sampler="sequential", threads=1)
            run = expctl.Run(program="graphs", warmup=0, steps=9)
            busy, samples, read = {}, [], 0
            for step, batch in zip(run.steps(), run.loader(loader)):
                self.assertTrue(all(ns >= 0 for ns in step.exposed.values()), step.exposed)
                for stage, ns in step.busy.items():
                    busy[stage] = busy.get(stage, 0) + ns
                samples.append(step.samples)
                read += step.bytes_read
                self.assertEqual(batch.expctl_times.samples, batch.num_graphs)
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                run.close()
            self.assertEqual(samples, [28] * 8 + [26])
            self.assertTrue(all(busy[stage] > 0 for stage in ("read", "decode", "mask")), busy)
            self.assertGreater(read, 0)

    def test_tensors_that_depend_on_the_count_alone_are_those_of_each_count(self):
        ds = graph.open(self.folder, metabolism=True)
        samples = self.samples()
        for rows in ([0, 1, 2], [5], [9, 8], [3, 4, 5]):
            expected = Collater(samples, list(FOLLOW))([samples[row] for row in rows])
            self.same_batch(expected, ds.read(rows, processor="pyg"))

    def test_batches_are_moved_copied_and_outlive_their_loader(self):
        samples = self.samples()
        expected = Collater(samples, list(FOLLOW))([samples[i] for i in range(28)])
        ds = graph.open(self.folder, metabolism=True)
        loader = graph.Loader(ds, batch_size=28, processor="pyg", sampler="sequential")
        batch = next(iter(loader))
        del loader, ds
        for other in (batch, batch.to("cpu"), batch.clone(), copy.copy(batch), pickle.loads(pickle.dumps(batch))):
            self.same_batch(expected, other)
        self.assertEqual(batch.to("meta")["gene"].mask.device.type, "meta")

    def test_it_is_a_data_set_of_torch(self):
        loader = graph.Loader(graph.open(self.folder), batch_size=28, processor="perturbation", transform=lambda batch: batch["gene"].ptr)
        found = list(torch.utils.data.DataLoader(loader, batch_size=None))
        self.assertEqual([len(ptr) - 1 for ptr in found], [28] * 8 + [26])
        with self.assertRaisesRegex(ValueError, "follow_batch can name"):
            graph.Loader(graph.open(self.folder), processor="pyg", follow_batch=["y"])


if __name__ == "__main__":
    unittest.main()
