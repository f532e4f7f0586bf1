"""Class numbers that one data set takes from another."""

import os
import pickle
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells
from test_torch import HAS_TORCH


def plain(values):
    return np.from_dlpack(values) if hasattr(values, "__dlpack__") else np.asarray(values)


class EncodersOfClasses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()
        cls.path = os.path.join(cls.cells.folder.name, "classes.json")

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def names(self, ds, batch):
        codes = plain(batch.obs["cell_type"]).tolist()
        return [ds.classes["cell_type"][code] if code >= 0 else None for code in codes]

    def truth(self, part):
        return [None if name != name else name for name in self.cells.adatas[part].obs["cell_type"].astype(object)]

    def test_another_data_set_has_the_same_numbers(self):
        whole = xd.open(self.cells.files, obs=["cell_type", "donor"])
        whole.encoders().save(self.path)
        found = xd.Encoders.load(self.path)
        self.assertEqual(dict(found), {name: tuple(names) for name, names in whole.classes.items()})
        self.assertEqual(found, whole.encoders())
        outs = [("numpy", None), ("dlpack", None), ("scipy", None)] + ([("torch", None)] if HAS_TORCH else [])
        for part in [0, 1, 2]:
            for encoders in [self.path, found, dict(found)]:
                ds = xd.open(self.cells.files[part], obs=["cell_type"], encoders=encoders)
                self.assertEqual(ds.classes["cell_type"], whole.classes["cell_type"])
                self.assertEqual(ds.encoders()["cell_type"], found["cell_type"])
                for out, sparse in outs:
                    batch = ds.read(range(len(ds)), out=out, sparse=sparse)
                    self.assertEqual(self.names(ds, batch), self.truth(part))
                    self.assertEqual(str(batch.obs["cell_type"].dtype).removeprefix("torch."), "int64")
        reversed_ds = xd.open(self.cells.files[1], obs=["cell_type"], encoders={"cell_type": ["T cell", "B cell", "NK"]})
        for ds in [reversed_ds, pickle.loads(pickle.dumps(reversed_ds))]:
            for batch in xd.Loader(ds, 16, out="numpy"):
                self.assertEqual(self.names(ds, batch), [self.truth(1)[row] for row in batch.index])
        batch = reversed_ds.read([1, 2, 3], out="numpy")
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(batch)).obs["cell_type"], batch.obs["cell_type"])

    def test_an_unseen_class_is_named_or_missing(self):
        encoders = {"cell_type": ["B cell", "T cell"], "never": []}
        with self.assertRaisesRegex(xd.DataError, r"'NK'.*unseen=\"missing\""):
            xd.open(self.cells.files, obs=["cell_type"], encoders=encoders)
        ds = xd.open(self.cells.files, obs=["cell_type"], encoders=encoders, unseen="missing")
        batch = ds.read(range(101), out="numpy")
        self.assertEqual(self.names(ds, batch), [None if name == "NK" else name for name in self.truth(0)])
        # Only the rows that are there count.
        xd.open(self.cells.files, obs=["cell_type"], encoders=encoders, filter="cell_type != 'NK'")
        with self.assertRaisesRegex(ValueError, "unseen='ignore'"):
            xd.open(self.cells.files, encoders=encoders, unseen="ignore")

    def test_numbers_are_classes_where_an_encoder_says_so(self):
        plates = xd.open(self.cells.files, obs={"plate": "class"}).encoders()
        ds = xd.open(self.cells.files, obs=["plate", "donor"], encoders=plates)
        self.assertEqual(ds.classes["plate"], list(plates["plate"]))
        self.assertEqual(ds.read([0], out="numpy").obs["plate"].dtype, np.int64)
        # Text stays text, and is not among the encoders.
        text = xd.open(self.cells.files, obs={"donor": "text"}, encoders={"donor": ["donor 2", "donor 1", "donor 0"]})
        self.assertEqual(text.read([0, 1], out="numpy").obs["donor"].tolist(), ["donor 0", "donor 1"])
        self.assertNotIn("donor", text.encoders())

    def test_files_that_are_none(self):
        with self.assertRaises(FileNotFoundError):
            xd.open(self.cells.files, encoders="nowhere.json")
        for text, problem in [("{", "not JSON"), ("[]", "not a file"), ('{"version": 2, "classes": {}}', "version 1"),
                              ('{"version": 1, "classes": {"a": ["x", "x"]}}', "more than once"),
                              ('{"version": 1, "classes": {"a": "x"}}', "list of names")]:
            path = os.path.join(self.cells.folder.name, "broken.json")
            with open(path, "w") as file:
                file.write(text)
            with self.assertRaisesRegex(xd.DataError, problem):
                xd.Encoders.load(path)
        with self.assertRaisesRegex(TypeError, "and not a int"):
            xd.open(self.cells.files, encoders=3)
        self.assertIn("cell_type: 2 classes", repr(xd.Encoders({"cell_type": ["a", "b"]})))


if __name__ == "__main__":
    unittest.main()
