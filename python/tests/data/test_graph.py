"""Batches of samples of a graph: what they hold, their order, states, threads and errors."""

import gc
import importlib.util
import json
import multiprocessing
import pathlib
import pickle
import shutil
import tempfile
import unittest

import numpy as np

import expctl.data as xd
import graphs
from expctl.data import graph
from test_process import in_fork, open_files, threads_of_loaders, until

OUTPUTS = ["numpy", "dlpack"] + (["torch"] if importlib.util.find_spec("torch") else [])
STORES = ["json", "ids", "compressed", "packed_masks", "full_masks"]
FORMS = ["ids", "removed", "packed", "masks"]


def array(value):
    return value if isinstance(value, np.ndarray) else np.from_dlpack(value)


def send_indices(loader, send):
    send.send((loader.state_dict(), [batch.index.tolist() for batch in loader]))


class GraphTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = graphs.folder()
        cls.truth = graphs.Truth(cls.folder)

    def setUp(self):
        self.ds = graph.open(self.folder)

    def loader(self, batch_size=28, ds=None, **options):
        return graph.Loader(ds or self.ds, batch_size, **({"out": "numpy", "threads": 2} | options))

    def indices(self, loader):
        return [batch.index.tolist() for batch in loader]

    def check(self, batch, masks):
        """A batch has the genes, labels and masks of its samples."""
        samples = [self.truth.samples[i] for i in array(batch.index)]
        self.assertEqual(array(batch.genes).tolist(), [gene for genes, _, _ in samples for gene in genes])
        counts = [len(genes) for genes, _, _ in samples]
        self.assertEqual(array(batch.gene_sample).tolist(), np.repeat(np.arange(len(samples)), counts).tolist())
        self.assertEqual(array(batch.gene_ptr).tolist(), [0, *np.cumsum(counts)])
        for found, place in [(batch.labels, 1), (batch.p_values, 2)]:
            expected = [np.nan if sample[place] is None else sample[place] for sample in samples]
            np.testing.assert_array_equal(array(found), np.array(expected, dtype="float32"))
        for found in (batch.masks, batch.removed):
            self.assertIn(list(found), ([], masks))
        for name in masks if batch.masks or batch.removed else []:
            expected = np.stack([self.truth.mask(name, i) for i in array(batch.index)])
            if name in batch.removed:
                removed = batch.removed[name]
                positions, ptr = array(removed.positions), array(removed.ptr)
                self.assertEqual((positions.dtype, ptr.dtype), ("int32", "int64"))
                rows = np.split(positions, ptr[1:-1])
                for row, mask in zip(rows, expected):
                    np.testing.assert_array_equal(row, np.flatnonzero(~mask))
                found = removed.kept()
            elif isinstance(batch.masks[name], graph.PackedMask):
                bits = array(batch.masks[name].bits)
                self.assertEqual(bits.shape, (len(expected), 8 * -(-expected.shape[1] // 64)))
                np.testing.assert_array_equal(bits[:, : -(-expected.shape[1] // 8)], np.packbits(expected, axis=1, bitorder="little"))
                found = batch.masks[name].kept()
            else:
                found = batch.masks[name]
            found = array(found)
            self.assertIn(found.dtype, ("bool", "uint8"))
            np.testing.assert_array_equal(found.astype(bool), expected)


class Batches(GraphTest):
    def test_every_form_has_what_the_definition_says(self):
        every = self.truth.edge_types + list(graphs.METABOLIC)
        for metabolism in (False, True):
            ds = graph.open(self.folder, metabolism=metabolism)
            masks = every if metabolism else self.truth.edge_types
            for form in FORMS:
                for out in OUTPUTS:
                    loader = self.loader(64, ds, processor=form, out=out)
                    seen = [batch for batch in loader]
                    self.assertEqual(sum(len(batch) for batch in seen), len(self.truth.samples))
                    for batch in seen:
                        self.check(batch, masks)
                    has = {"removed": seen[0].removed, "ids": not seen[0].masks}.get(form, seen[0].masks)
                    self.assertTrue(has)

    def test_all_stores_give_the_same(self):
        rows = [249, 3, 3, 0, 17]
        chosen = self.truth.edge_types[::-2]
        for store in STORES:
            ds = graph.open(self.folder, store=store, edge_types=chosen)
            self.assertEqual(ds.edge_types, chosen)
            for form in FORMS:
                batch = ds.read(rows, processor=form, out="numpy")
                self.assertEqual(batch.index.tolist(), rows)
                self.check(batch, chosen)

    def test_the_graph_is_that_of_the_file(self):
        ds = graph.open(self.folder, metabolism=True)
        self.assertEqual((ds.genes, ds.num_genes), (self.truth.genes, len(self.truth.genes)))
        self.assertEqual(ds.edge_types, self.truth.edge_types)
        self.assertEqual(ds.num_edges, {name: edges.shape[1] for name, edges in self.truth.edges.items()})
        self.assertEqual(list(ds.edge_index), list(ds.num_edges))
        for name, edges in ds.edge_index.items():
            np.testing.assert_array_equal(array(edges), self.truth.edges[name])
        np.testing.assert_array_equal(array(ds.stoichiometry), self.truth.stoichiometry)
        self.assertEqual((ds.num_reactions, ds.num_metabolites), (self.truth.reactions, self.truth.metabolites))
        self.assertEqual((len(ds.reaction_ids), len(ds.metabolite_ids)), (self.truth.reactions, self.truth.metabolites))
        mean, sd = ds.label_statistics
        manifest = json.loads((self.folder / "manifest.json").read_text())
        self.assertEqual([mean, sd], [manifest["samples"]["label_mean"], manifest["samples"]["label_sd"]])
        self.assertFalse(self.ds.metabolism or self.ds.stoichiometry is not None)

    def test_samples_by_number(self):
        self.assertEqual(len(self.ds), len(self.truth.samples))
        self.assertEqual(array(self.ds[-1].index).tolist(), [249])
        self.assertEqual(array(self.ds[2:8:3].index).tolist(), [2, 5])
        batch = self.ds[[9, 9, 1]]
        self.assertEqual((len(batch), repr(batch)), (3, "Batch(samples=3, genes=9)"))
        self.check(batch, [])

    def test_a_store_alone_with_a_graph_of_the_program(self):
        names = self.truth.edge_types
        given = {"genes": self.truth.genes, "edges": {name: self.truth.edges[name] for name in names}}
        with tempfile.TemporaryDirectory() as folder:
            lmdb = pathlib.Path(folder, "published", "processed", "lmdb")
            lmdb.mkdir(parents=True)
            shutil.copy(self.folder / "processed" / "lmdb" / "data.mdb", lmdb)
            with self.assertRaisesRegex(ValueError, "LMDB store alone: give the graph"):
                graph.open(lmdb.parents[1])
            for place in (lmdb, lmdb.parents[1]):
                ds = graph.open(place, graph=given, edge_types=names[3:5])
                self.check(ds.read(range(40), processor="packed", out="numpy"), names[3:5])
            copied = pickle.loads(pickle.dumps(ds))
            self.assertEqual(copied.edge_types, names[3:5])
            self.check(copied.read([5], processor="masks", out="numpy"), names[3:5])
            # The split is that of a data set with a manifest.
            split = graph.open(lmdb, graph=given, split="val")
            self.assertEqual(split.rows.tolist(), graph.open(self.folder, split="val").rows.tolist())
            few = {**given, "genes": given["genes"][:-1]}
            for wrong, text in [
                ({**given, "genes": given["genes"][::-1]}, "names ascend"),
                (few, "an edge ends at node 197, and there are 197"),
                ({**given, "edges": {"a": np.zeros((3, 4), "int64")}}, "integers \\[2, E\\], and not int64 \\[3, 4\\]"),
                ({**given, "edges": {"a": np.zeros((2, 4))}}, "and not float64"),
                ({"nodes": []}, "has \"genes\" and \"edges\""),
            ]:
                with self.assertRaisesRegex(ValueError, text):
                    graph.open(lmdb, graph=wrong)
            with self.assertRaisesRegex(ValueError, "no edge type 'x'; it has"):
                graph.open(lmdb, graph=given, edge_types=["x"])

    def test_arrays_are_not_copied_may_be_written_to_and_their_memory_is_used_again(self):
        seen = set()
        for batch in self.loader(8, processor="masks", threads=1, prefetch=1):
            mask = batch.masks["physical"]
            self.assertTrue(mask.flags.writeable)
            mask[:] = False
            seen.add(mask.__array_interface__["data"][0])
        self.assertLess(len(seen), 16)
        batches = list(self.loader(processor="masks"))
        gc.collect()
        for batch in batches:
            self.check(batch, self.truth.edge_types)

    def test_what_batches_cost_is_known(self):
        loader = self.loader(processor="packed", seed=1)
        batches = list(loader)
        stages = loader.stages()
        self.assertEqual((stages.batches, stages.rows), (len(batches), 250))
        self.assertEqual(stages.bytes_read, sum(batch.bytes_read for batch in batches))
        self.assertTrue(all(stages.busy[stage] > 0 for stage in ("read", "decode", "mask", "collate")))
        self.assertIn("250 samples in 9 batches", loader.explain())
        named = {name: busy for name, busy, _ in batches[0].stage_times()}
        self.assertGreater(named["decode"], 0)
        masks = sum(8 * -(-edges.shape[1] // 64) for name, edges in self.truth.edges.items() if name in self.truth.edge_types)
        self.assertEqual(batches[0].nbytes, 28 * (masks + 2 * 8 * 3 + 8 + 2 * 4) + 8)


class Order(GraphTest):
    def test_every_sample_once_an_epoch_over_all_ranks(self):
        for sampler in ("uniform", "sequential", "chunked", xd.uniform(range(100))):
            for drop_last in (False, True):
                loaders = [self.loader(16, rank=(rank, 3), sampler=sampler, drop_last=drop_last, seed=5) for rank in range(3)]
                for epoch in range(2):
                    found = [self.indices(loader) for loader in loaders]
                    self.assertEqual(len({len(batches) for batches in found}), 1)
                    self.assertEqual([len(batches) for batches in found], [len(loader) for loader in loaders])
                    every = [i for batches in found for batch in batches for i in batch]
                    count = 250 if isinstance(sampler, str) else 100
                    self.assertLessEqual(set(every), set(range(count)))
                    if drop_last:
                        self.assertEqual(len(set(every)), len(every))
                    else:
                        # The last ranks are filled up.
                        self.assertEqual(set(every), set(range(count)))
                        self.assertEqual(len(every), -(-count // 3) * 3)

    def test_epochs_differ_and_seeds_repeat(self):
        loader = self.loader(seed=3)
        first, second = self.indices(loader), self.indices(loader)
        self.assertNotEqual(first, second)
        loader.set_epoch(0)
        self.assertEqual(self.indices(loader), first)
        self.assertEqual(self.indices(self.loader(seed=3, threads=0, prefetch=1)), first)
        self.assertNotEqual(self.indices(self.loader(seed=4)), first)
        rows = [249, 0, 7, 7]
        self.assertEqual(self.indices(self.loader(3, sampler=rows)), [[249, 0, 7], [7]])
        batches = [[5, 1], [2, 3, 4]]
        self.assertEqual(self.indices(self.loader(sampler=batches)), batches)

    def test_it_goes_on_in_the_middle_of_an_epoch(self):
        loader = self.loader(seed=3, processor="packed")
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = self.indices(iterator)
        resumed = self.loader(seed=3, processor="removed")
        resumed.load_state_dict(state)
        resumed.set_epoch(0)
        self.assertEqual(self.indices(resumed), rest)
        self.assertEqual(self.indices(resumed), self.indices(loader))
        for other, text in [
            (self.loader(seed=4), "seed was 3 and is 4"),
            (self.loader(29, seed=3), "batch_size was 28 and is 29"),
            (self.loader(seed=3, ds=self.ds.subset(range(100))), "samples was 250 and is 100"),
        ]:
            with self.assertRaisesRegex(ValueError, text):
                other.load_state_dict(state)

    def test_splits_and_subsets(self):
        parts = [graph.open(self.folder, split=split) for split in ("train", "val", "test")]
        self.assertEqual([len(part) for part in parts], [200, 25, 25])
        self.assertEqual(sorted(np.concatenate([part.rows for part in parts]).tolist()), list(range(250)))
        self.assertEqual(graph.open(self.folder, split="val").rows.tolist(), parts[1].rows.tolist())
        other = graph.open(self.folder, split="val", split_seed=7)
        self.assertNotEqual(other.rows.tolist(), parts[1].rows.tolist())
        for ds in (parts[0], self.ds.subset(np.arange(250) % 3 == 0), self.ds.split((0.5, 0.25), seed=2)[1]):
            for sampler in ("uniform", "sequential", "chunked"):
                found = [i for batch in self.indices(self.loader(16, ds, sampler=sampler)) for i in batch]
                self.assertEqual(sorted(found), list(range(len(ds))))
            batch = ds.read([4, 0], out="numpy")
            self.assertEqual((batch.index.tolist(), batch.genes[:3].tolist()), ([4, 0], self.truth.samples[ds.rows[4]][0]))
        self.assertIn("25 of 250 samples", repr(parts[1]))
        for view in (self.ds.subset([3]), *self.ds.split((0.5, 0.5))):
            self.assertIs(view._native, self.ds._native)
            self.assertIs(view.genes, self.ds.genes)


class Errors(GraphTest):
    def test_wrong_arguments_say_what_is_wrong(self):
        for make, text in [
            (lambda: graph.open(self.folder, split="dev"), "split='dev' is none of all, train, val, test"),
            (lambda: graph.open(self.folder, store="npz"), 'store "npz" is none of json, compressed'),
            (lambda: graph.open(self.folder, edge_types=["physical", "x"]), "no edge type `x` in .*; it has physical"),
            (lambda: self.loader(processor="lazy"), "processor='lazy' is none of ids, removed"),
            (lambda: self.loader(0), "batch_size=0"),
            (lambda: self.loader(out="scipy"), 'out="scipy" is for rows'),
            (lambda: self.loader(processor="pyg"), "out='numpy': processor=\"pyg\" makes batches of PyTorch Geometric"),
            (lambda: self.loader(sampler=xd.balanced("label")), "samples of a graph have no columns to draw by"),
            (lambda: self.loader(sampler="weighted"), "it needs a column"),
            (lambda: self.loader(300, drop_last=True), "300"),
            (lambda: self.loader(rank=(2, 2)), "rank"),
            (lambda: self.ds.read([0], processor="x"), 'processor "x" is none of'),
            (lambda: self.ds.read([0], follow_batch="x"), "is a list of names"),
        ]:
            with self.assertRaisesRegex(ValueError, text):
                make()
        with self.assertRaisesRegex(TypeError, "what expctl.data.graph.open gives, and not a str"):
            graph.Loader(str(self.folder), out="numpy")
        with self.assertRaisesRegex(TypeError, "graph= is a HeteroData or a dict, and not a int"):
            graph.open(self.folder, graph=3)
        for ask, text in [
            (lambda: self.ds.read([250]), "sample 250 is listed, and there are 250 samples"),
            (lambda: self.loader(sampler=[-3]), "sample -3 is listed, and samples are counted from 0"),
            (lambda: self.ds[250], "sample 250 is asked for, and there are 250 samples"),
            (lambda: self.ds.subset([0, 1]).read([5]), "sample 5 is asked for, and there are 2 samples"),
        ]:
            with self.assertRaisesRegex(IndexError, text):
                ask()
        with self.assertRaisesRegex(FileNotFoundError, "has not been built"):
            graph.open(self.folder / "none")
        with self.assertRaises(FileNotFoundError):
            graph.open(self.folder / "none", graph={"genes": ["a"], "edges": {}})

    def test_damage_and_stores_that_are_not_there(self):
        with tempfile.TemporaryDirectory() as folder:
            copied = pathlib.Path(folder, "copy")
            shutil.copytree(self.folder, copied, ignore=shutil.ignore_patterns("stores"))
            with self.assertRaisesRegex(FileNotFoundError, "has no ids store; .*expctl data convert"):
                graph.open(copied, store="ids")
            data = copied / "processed" / "lmdb" / "data.mdb"
            ds = graph.open(copied)
            found = data.read_bytes()
            data.write_bytes(found.replace(b'"gene_interaction":', b'"gene_interactiom":'))
            with self.assertRaises((OSError, xd.DataError)):
                list(self.loader(ds=ds))
            with self.assertRaisesRegex(xd.DataError, "record .* missing field `gene_interaction`"):
                list(self.loader(ds=graph.open(copied)))
            data.write_bytes(found[:10000])
            with self.assertRaisesRegex(xd.DataError, "LMDB store .*"):
                graph.open(copied)


class Process(GraphTest):
    def test_loaders_that_are_dropped_midway_leave_no_thread_and_no_file(self):
        list(self.loader())
        gc.collect()
        self.assertTrue(until(lambda: not threads_of_loaders()))
        files = open_files()
        for i in range(60):
            ds = graph.open(self.folder)
            loader = self.loader(8, ds, processor=FORMS[i % 4])
            iterator = iter(loader)
            next(iterator)
            if i % 3 == 0:
                # Without an end of its own: a generator that is dropped midway.
                del iterator
        del loader, ds
        iterator = None
        gc.collect()
        self.assertTrue(until(lambda: not threads_of_loaders()), threads_of_loaders())
        self.assertLessEqual(open_files(), files)

    def test_pickled_for_spawn_it_goes_on_where_it_was(self):
        loader = self.loader(seed=3)
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        resumed = self.loader(seed=3, ds=graph.open(self.folder), processor="packed")
        resumed.load_state_dict(state)
        context = multiprocessing.get_context("spawn")
        receive, send = context.Pipe()
        child = context.Process(target=send_indices, args=(resumed, send))
        child.start()
        found_state, found = receive.recv()
        child.join()
        self.assertEqual((found_state, found), (state, self.indices(iterator)))
        batch = self.ds.read([3, 5], processor="packed", out="numpy")
        sent = pickle.loads(pickle.dumps(batch))
        self.check(sent, self.truth.edge_types)
        self.assertEqual((repr(sent), sent.stage_times()), (repr(batch), batch.stage_times()))

    def test_forks(self):
        self.assertTrue(until(lambda: not threads_of_loaders()))
        expected = self.indices(self.loader(seed=1))
        self.assertTrue(until(lambda: not threads_of_loaders()))
        self.assertEqual(in_fork(lambda: self.indices(self.loader(seed=1))), str(expected))
        iterator = iter(self.loader(prefetch=8))
        batch = next(iterator)
        for work in [lambda: next(iterator), lambda: self.indices(self.loader()), lambda: self.ds[3]]:
            text = in_fork(work)
            self.assertIn("RuntimeError", text)
            self.assertIn("spawn", text)
        self.assertEqual(in_fork(lambda: batch.genes.sum()), str(batch.genes.sum()))


@unittest.skipUnless("torch" in OUTPUTS, "torch is not installed")
class Torch(GraphTest):
    def test_in_a_dataloader_of_torch(self):
        import torch
        from torch.utils.data import DataLoader, IterableDataset

        loader = graph.Loader(self.ds, 28, processor="masks", seed=1)
        self.assertIsInstance(loader, IterableDataset)
        batches = list(DataLoader(loader, batch_size=None, num_workers=0))
        self.assertEqual([batch.index.tolist() for batch in batches], self.indices(self.loader(seed=1)))
        self.assertEqual(batches[0].masks["physical"].dtype, torch.bool)
        self.assertEqual(pickle.loads(pickle.dumps(loader)).processor, "masks")
        with self.assertRaisesRegex(RuntimeError, "threads of its own"):
            list(DataLoader(loader, batch_size=None, num_workers=1, multiprocessing_context="spawn"))

    def test_samplers_of_torch(self):
        from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

        sampler = DistributedSampler(self.ds, num_replicas=2, rank=1, seed=4)
        loader = self.loader(16, sampler=sampler)
        loader.set_epoch(3)
        sampler.set_epoch(3)
        self.assertEqual([i for batch in self.indices(loader) for i in batch], list(sampler))
        batches = BatchSampler(SequentialSampler(range(50)), 20, drop_last=False)
        self.assertEqual(self.indices(self.loader(sampler=batches)), list(batches))

    @unittest.skipIf(importlib.util.find_spec("torch_geometric"), "torch_geometric is installed")
    def test_without_pytorch_geometric_the_error_says_what_to_install(self):
        for processor in ("pyg", "perturbation"):
            with self.assertRaisesRegex(ImportError, "pip install torch_geometric"):
                graph.Loader(self.ds, processor=processor)

    def test_all_tensors_go_to_a_device(self):
        ds = graph.open(self.folder, metabolism=True)
        for form in FORMS:
            batch = ds.read([1, 2], processor=form).to("cpu")
            self.check(batch, ds.edge_types + list(graphs.METABOLIC))
            moved = ds.read([1, 2], processor=form).to("meta")
            self.assertEqual((moved.genes.device.type, moved.index.device.type), ("meta", "meta"))
            for masks in moved.masks.values():
                self.assertEqual((masks.bits if form == "packed" else masks).device.type, "meta")
            batch = next(iter(graph.Loader(ds, 4, processor=form, device="meta")))
            self.assertEqual(batch.labels.device.type, "meta")
        with self.assertRaisesRegex(TypeError, 'out="torch"'):
            ds.read([1], out="numpy").to("cpu")


if __name__ == "__main__":
    unittest.main()
