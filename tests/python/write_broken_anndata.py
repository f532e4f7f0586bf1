"""Write AnnData files that each have one thing wrong.

    python write_broken_anndata.py FOLDER

`cases.json` is a list of [file, what to read, what the error must say]; what is read is "" (open the file), "labels NAME" or
"numbers NAME".
"""

import json
import pathlib
import sys
import warnings

import anndata
import h5py
import numpy as np
import pandas as pd
import scipy.sparse

warnings.simplefilter("ignore")
folder = pathlib.Path(sys.argv[1])
rows, genes = 12, 5
obs = pd.DataFrame(index=[f"cell {number}" for number in range(rows)])
obs["kind"] = pd.Categorical(["a", "b", "c"] * 4)
obs["text"] = [f"text {number}" for number in range(rows)]
obs["depth"] = np.arange(rows)
obs["bool"] = obs["depth"] > 3
obs["maybe"] = pd.array([1, None] * 6, dtype="Int64")
var = pd.DataFrame(index=[f"gene-{number}" for number in range(genes)])
matrix = scipy.sparse.csr_matrix(np.arange(rows * genes, dtype=np.float32).reshape(rows, genes) % 4)
whole = folder / "whole.h5ad"
anndata.AnnData(matrix, obs=obs, var=var).write_h5ad(whole)
old = pathlib.Path(__file__).parents[2] / "crates/anndata-io/tests/anndata"
cases = []


def broken(name, read, *says, of=whole):
    """A copy that the decorated function breaks."""

    def run(breaks):
        path = folder / f"{name}.h5ad"
        path.write_bytes(of.read_bytes())
        with h5py.File(path, "r+") as file:
            breaks(file)
        cases.append([path.name, read, list(says)])

    return run


def replace(file, name, values, **options):
    attributes = dict(file[name].attrs) if name in file else {}
    if name in file:
        del file[name]
    file.create_dataset(name, data=values, **options).attrs.update(attributes)


@broken("no_column", "labels knid", "obs has no column \"knid\"", "is \"kind\" meant?", "kind, text, depth, bool, maybe")
def _(file):
    pass


@broken("strings_as_numbers", "numbers text", "obs/text", "strings where numbers are needed")
def _(file):
    pass


@broken("short_obs", "", "obs has 11 rows where X has 12 rows")
def _(file):
    replace(file, "obs/_index", file["obs/_index"][:11], dtype=h5py.string_dtype())


@broken("short_var", "", "var has 4 rows where X has 5 columns")
def _(file):
    replace(file, "var/_index", file["var/_index"][:4], dtype=h5py.string_dtype())


@broken("short_column", "labels depth", "obs/depth", "11 values where there are 12 rows")
def _(file):
    replace(file, "obs/depth", np.arange(11))


@broken("long_column", "labels depth", "obs/depth", "13 values where there can be 12 at most")
def _(file):
    replace(file, "obs/depth", np.arange(13))


@broken("flat_column", "labels depth", "obs/depth", "shape [3, 4] where one dimension is expected")
def _(file):
    replace(file, "obs/depth", np.arange(12).reshape(3, 4))


@broken("no_obs", "", "obs: it is not there")
def _(file):
    del file["obs"]


@broken("no_var", "", "var: it is not there")
def _(file):
    del file["var"]


@broken("no_index", "", "obs/_index: it is not there")
def _(file):
    del file["obs/_index"]


@broken("no_index_name", "", "obs", "attribute _index")
def _(file):
    del file["obs"].attrs["_index"]
    file.move("obs/_index", "obs/names")


@broken("lost_column", "labels depth", "obs/depth: it is not there")
def _(file):
    del file["obs/depth"]


@broken("frame_version", "", "obs", "version \"9.9.0\" of the encoding \"dataframe\"", "0.1.0 and 0.2.0")
def _(file):
    file["obs"].attrs["encoding-version"] = "9.9.0"


@broken("frame_encoding", "", "obs", "encoding \"dict\"")
def _(file):
    file["obs"].attrs["encoding-type"] = "dict"


@broken("categorical_version", "labels kind", "obs/kind", "version \"7.0.0\"")
def _(file):
    file["obs/kind"].attrs["encoding-version"] = "7.0.0"


@broken("column_encoding", "labels kind", "obs/kind", "encoding \"awkward-array\"")
def _(file):
    file["obs/kind"].attrs["encoding-type"] = "awkward-array"


@broken("number_as_version", "labels kind", "obs/kind", "encoding-version is not a string")
def _(file):
    file["obs/kind"].attrs["encoding-version"] = 2


@broken("code_beyond", "labels kind", "obs/kind", "row 4 has code 3 where there are 3 categories")
def _(file):
    file["obs/kind/codes"][4] = 3


@broken("code_below", "labels kind", "obs/kind", "row 4 has code -2 where there are 3 categories")
def _(file):
    file["obs/kind/codes"][4] = -2


@broken("code_fraction", "labels kind", "obs/kind", "codes are not integers")
def _(file):
    replace(file, "obs/kind/codes", np.zeros(12))


@broken("category_twice", "labels kind", "obs/kind", "category \"a\" twice")
def _(file):
    file["obs/kind/categories"][2] = "a"


@broken("no_categories", "labels kind", "obs/kind", "no data set \"categories\"")
def _(file):
    del file["obs/kind/categories"]


@broken("no_codes", "labels kind", "obs/kind", "no data set \"codes\"")
def _(file):
    del file["obs/kind/codes"]


@broken("mask_length", "labels maybe", "obs/maybe", "mask has 11 values where there are 12")
def _(file):
    replace(file, "obs/maybe/mask", file["obs/maybe/mask"][:11])


@broken("mask_type", "numbers maybe", "obs/maybe", "mask is not bool")
def _(file):
    replace(file, "obs/maybe/mask", np.zeros(12))


@broken("bad_bool", "labels bool", "obs/bool", "the value 2 where True and False are 1 and 0")
def _(file):
    kind = file["obs/bool"].id.get_type()
    file["obs/bool"].id.write(h5py.h5s.ALL, h5py.h5s.ALL, np.array([2] * 12, dtype=np.int8), mtype=kind)


@broken("not_text", "labels text", "obs/text", "string 5 of it is not UTF-8")
def _(file):
    text = [b"text"] * 5 + [b"\xff\xfe"] + [b"text"] * 6
    replace(file, "obs/text", text, dtype=h5py.string_dtype())


@broken("not_text_fixed", "labels text", "obs/text", "string 2 of it is not UTF-8")
def _(file):
    replace(file, "obs/text", np.array([b"aa", b"bb", b"\xc3("] + [b"cc"] * 9))


@broken("compound_column", "labels depth", "obs/depth", "compound")
def _(file):
    replace(file, "obs/depth", np.zeros(12, dtype=[("a", "i4"), ("b", "i4")]))


@broken("complex_column", "numbers depth", "obs/depth", "type that is not read")
def _(file):
    replace(file, "obs/depth", np.zeros(12, dtype=complex))


@broken("twice_named", "", "var", "more than once: gene-1", "var_names_make_unique")
def _(file):
    file["var/_index"][3] = "gene-1"


@broken("endless_link", "labels depth", "obs/depth")
def _(file):
    del file["obs/depth"]
    file["obs/depth"] = h5py.SoftLink("/obs/depth2")
    file["obs/depth2"] = h5py.SoftLink("/obs/depth")


@broken("huge_fixed_strings", "labels text", "obs/text", "more than its file can")
def _(file):
    del file["obs/text"]
    file.create_dataset("obs/text", (12,), dtype="S1000000000", chunks=(1,))


@broken("huge_obs", "", "obs", "more than its file can hold")
def _(file):
    del file["obs/_index"]
    file.create_dataset("obs/_index", (2**60,), dtype="S4", chunks=(1024,))


@broken("self_reference", "labels kind", "obs/kind", "of categories themselves", of=old / "anndata_0.7.8.h5ad")
def _(file):
    file["obs/kind"].attrs["categories"] = file["obs/kind"].ref


@broken("no_reference", "labels kind", "obs/kind", "categories that are not in the file", of=old / "anndata_0.7.8.h5ad")
def _(file):
    file["obs/kind"].attrs.create("categories", h5py.Reference(), dtype=h5py.ref_dtype)


@broken("group_reference", "labels kind", "obs/kind", "categories that are not in the file", of=old / "anndata_0.7.8.h5ad")
def _(file):
    file["obs/kind"].attrs["categories"] = file["obs"].ref


@broken("table_code", "labels kind", "obs/kind", "has code 9 where there are 3 categories", of=old / "anndata_0.6.22.h5ad")
def _(file):
    table = file["obs"][:]
    table["kind"][3] = 9
    file["obs"][:] = table


@broken("table_no_index", "", "obs: it has no index", of=old / "anndata_0.6.22.h5ad")
def _(file):
    table = file["obs"][:]
    replace(file, "obs", table[["depth", "share"]])


@broken("no_matrix", "", "has no matrix X", "it has no matrix")
def _(file):
    del file["X"]


(folder / "text.h5ad").write_text("not HDF5 at all, but long enough to look at")
cases.append(["text.h5ad", "", ["is not an HDF5 file"]])
(folder / "empty.h5ad").write_bytes(b"")
cases.append(["empty.h5ad", "", ["is not an HDF5 file"]])
for share in [0.2, 0.5, 0.8, 0.99]:
    name = f"cut_{share}.h5ad"
    (folder / name).write_bytes(whole.read_bytes()[: int(whole.stat().st_size * share)])
    cases.append([name, "", [name]])
cases.append(["gone.h5ad", "", ["cannot open", "No such file"]])
(folder / "cases.json").write_text(json.dumps(cases))
