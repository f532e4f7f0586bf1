"""MDS folders, as MosaicML's MDSWriter writes them, with rows, columns of obs and loaders as of any other files."""

import json
import os
import struct
import unittest

import numpy as np

import expctl.data as xd
from cells import Cells, dense


def write_mds(one, folder, samples=40):
    """The rows of an AnnData as raw shards of `samples` rows."""
    os.mkdir(folder)
    x = one.X.toarray().astype("float32")
    kinds = one.obs["cell_type"]
    columns = [("cell_type", "int64", 8), ("donor", "str", None), ("n_counts", "float64", 8),
               ("x", f"ndarray:float32:{x.shape[1]}", 4 * x.shape[1])]
    names, encodings, sizes = (list(part) for part in zip(*columns))
    about = {"column_encodings": encodings, "column_names": names, "column_sizes": sizes, "compression": None, "format": "mds",
             "hashes": [], "size_limit": 1 << 26, "version": 2}
    note = json.dumps(about, sort_keys=True).encode()
    shards = []
    for number, start in enumerate(range(0, len(x), samples)):
        rows = []
        for row in range(start, min(start + samples, len(x))):
            donor = one.obs["donor"].iloc[row].encode()
            rows.append(struct.pack("<Iq", len(donor), kinds.cat.codes.iloc[row]) + donor
                        + struct.pack("<d", one.obs["n_counts"].iloc[row]) + x[row].tobytes())
        first = 4 + 4 * (len(rows) + 1) + len(note)
        offsets = np.cumsum([first] + [len(row) for row in rows]).astype("uint32")
        data = struct.pack("<I", len(rows)) + offsets.tobytes() + note + b"".join(rows)
        base = f"shard.{number:05}.mds"
        with open(os.path.join(folder, base), "wb") as file:
            file.write(data)
        raw = {"basename": base, "bytes": len(data), "hashes": {}}
        shards.append(about | {"raw_data": raw, "samples": len(rows), "zip_data": None})
    index = {"version": 2, "shards": shards, "expctl.categories": {"cell_type": list(kinds.cat.categories)}}
    with open(os.path.join(folder, "index.json"), "w") as file:
        json.dump(index, file)
    with open(os.path.join(folder, "genes.txt"), "w") as file:
        file.writelines(f"{gene}\n" for gene in one.var_names)


class Folders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cells = Cells()
        cls.folders = [os.path.join(cls.cells.folder.name, f"part{i}.mds") for i in range(3)]
        for one, folder in zip(cls.cells.adatas, cls.folders):
            write_mds(one, folder)

    @classmethod
    def tearDownClass(cls):
        cls.cells.close()

    def test_rows_and_columns_are_those_of_anndata(self):
        for join in ["inner", "outer"]:
            truth = self.cells.joined(join)
            ds = xd.open(self.folders, join=join, obs={"cell_type": "auto", "n_counts": "float64", "donor": "text"})
            self.assertEqual((ds.shape, ds.var_names), (truth.shape, list(truth.var_names)))
            for sampler in ["uniform", "chunked"]:
                for batch in xd.Loader(ds, 16, sampler=sampler, out="numpy", threads=2):
                    rows = batch.index
                    np.testing.assert_array_equal(dense(batch), truth.X.toarray()[rows])
                    np.testing.assert_array_equal(batch.obs["n_counts"], truth.obs["n_counts"].to_numpy()[rows])
                    self.assertEqual(batch.obs["donor"].tolist(), truth.obs["donor"].iloc[rows].tolist())
                    names = [ds.classes["cell_type"][code] if code >= 0 else None for code in batch.obs["cell_type"]]
                    kinds = np.concatenate([one.obs["cell_type"].astype(object) for one in self.cells.adatas])[rows]
                    self.assertEqual(names, [None if name != name else name for name in kinds])

    def test_a_folder_by_its_index_and_a_filter(self):
        folder = os.path.join(self.cells.folder.name, "no ending")
        os.symlink(self.folders[0], folder)
        ds = xd.open(folder, filter="donor == 'donor 1'")
        self.assertEqual(ds.rows.tolist(), list(range(1, 101, 3)))
        np.testing.assert_array_equal(dense(ds[:]), self.cells.adatas[0].X.toarray()[ds.rows])

    def test_a_shard_that_is_cut_is_refused(self):
        folder = os.path.join(self.cells.folder.name, "cut.mds")
        write_mds(self.cells.adatas[0], folder)
        path = os.path.join(folder, "shard.00001.mds")
        os.truncate(path, os.path.getsize(path) // 2)
        with self.assertRaisesRegex((xd.DataError, OSError), "shard.00001.mds"):
            list(xd.Loader(xd.open(folder), 16, out="numpy"))


if __name__ == "__main__":
    unittest.main()
