"""The diffs of the guide, from another loader: both sides run, on the same rows."""

import importlib.util
import itertools
import pathlib
import re
import unittest
import warnings

import numpy as np

import expctl.data as xd
from cells import Cells

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "docs/guide/python.md"
HAS_TORCH = importlib.util.find_spec("torch") is not None


def sides(peer):
    """The two programs of the diff that follows a line which names the peer. Their last line is the use of a batch."""
    text = GUIDE.read_text()
    block = re.search(rf"{peer}[^\n]*:\n\n```diff\n(.*?)```", text, re.S).group(1).splitlines()
    return ["\n".join(line[1:] for line in block if line[:1] in (sign, " ")) for sign in "-+"]


def used(program, names):
    """The values of the last line of each batch, which is an expression in a loop."""
    *before, last = program.splitlines()
    names |= {"found": []}
    exec("\n".join([*before, f"    found.append(({last.strip()}))"]), names)
    return names["found"]


@unittest.skipUnless(GUIDE.exists(), "the guide is not there")
@unittest.skipUnless(HAS_TORCH, "torch is not installed")
class Diffs(unittest.TestCase):
    def test_from_annloader(self):
        import anndata as ad
        from anndata.experimental import AnnCollection, AnnLoader

        cells = Cells()
        self.addCleanup(cells.close)
        before, after = sides("`AnnLoader`")
        names = {"ad": ad, "AnnCollection": AnnCollection, "AnnLoader": AnnLoader, "xd": xd, "paths": cells.files}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = used(before, dict(names))
        ours = used(after, dict(names))
        for found in [theirs, ours]:
            self.assertEqual([x.shape for x, _ in found], [(128, 3), (90, 3)])
        rows = [sorted(itertools.chain(*(np.asarray(x).tolist() for x, _ in found))) for found in [theirs, ours]]
        self.assertEqual(*rows)

    def test_ours_of_the_others(self):
        cells = Cells()
        self.addCleanup(cells.close)
        for peer, rows in [("`MappedCollection`", 218), ("annbatch", 218)]:
            found = used(sides(peer)[1], {"xd": xd, "paths": cells.files})
            self.assertEqual(sum(x.shape[0] for x, _ in found), rows)


if __name__ == "__main__":
    unittest.main()
