"""Write matrices of .h5ad files in every layout that h5py and anndata have, and what is in them.

    write_h5ad_matrix.py FOLDER

What is in them: FOLDER/cases.json, see matrix_cases.py.
"""

import anndata
import h5py
import hdf5plugin
import numpy as np
import scipy.sparse as sp

from matrix_cases import bad, compressed, folder, good, matrix, rng, write_cases


def sparse_group(parent, name, dense, kind="csr", index="<i4", ptr="<i4", old=False, **options):
    m = compressed(dense, kind)
    group = parent.create_group(name)
    if old:
        group.attrs["h5sparse_format"] = kind
        group.attrs["h5sparse_shape"] = np.array(dense.shape)
    else:
        group.attrs["encoding-type"] = f"{kind}_matrix"
        group.attrs["encoding-version"] = "0.1.0"
        group.attrs["shape"] = np.array(dense.shape)
    group.create_dataset("data", data=m.data.astype(dense.dtype), **options)
    group.create_dataset("indices", data=m.indices.astype(index), **options)
    group.create_dataset("indptr", data=m.indptr.astype(ptr), **{k: v for k, v in options.items() if k == "track_order"})
    return group


FILTERS = {
    "none": {},
    "gzip": dict(compression="gzip"),
    "gzip-shuffle": dict(compression="gzip", shuffle=True),
    "gzip-shuffle-sum": dict(compression="gzip", shuffle=True, fletcher32=True),
    "shuffle": dict(shuffle=True),
    "sum": dict(fletcher32=True),
    "lzf": dict(compression="lzf"),
    "lzf-shuffle-sum": dict(compression="lzf", shuffle=True, fletcher32=True),
    "zstd": dict(hdf5plugin.Zstd(clevel=5)),
    "zstd-shuffle": dict(hdf5plugin.Zstd(), shuffle=True),
    "lz4": dict(hdf5plugin.LZ4()),
    "lz4-blocks": dict(hdf5plugin.LZ4(nbytes=64)),
}
for codec in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]:
    for shuffle in [0, 1, 2]:
        FILTERS[f"blosc-{codec}-{shuffle}"] = dict(hdf5plugin.Blosc(cname=codec, clevel=5, shuffle=shuffle))

# Every filter, as sparse and as dense matrix, in chunks that rows straddle.
for name, options in FILTERS.items():
    file = f"filter-{name}.h5ad"
    with h5py.File(folder / file, "w") as f:
        dense = matrix()
        sparse_group(f, "X", dense, chunks=(37,), **options)
        f.create_group("layers")
        f["layers"].create_dataset("split", data=dense, chunks=(10, 13), **options)
        f["layers"].create_dataset("wide", data=dense, chunks=(7, 61), **options)
        f["layers"].create_dataset("wider", data=dense, chunks=(9, 100), maxshape=(None, None), **options)
        sparse_group(f["layers"], "one", dense, chunks=(100_000,), maxshape=(None,), **options)
        # Noise is longer when it is compressed: filters are skipped then.
        noise = rng.integers(0, 1 << 23, (16, 61)).astype("<i4")
        noise = np.where(noise == 0, 1, noise)
        f["layers"].create_dataset("noise", data=noise, chunks=(4, 61), **options)
    good(file, "X", dense)
    for layer in ["split", "wide", "wider"]:
        good(file, f"layers/{layer}", dense, "dense")
    good(file, "layers/one", dense)
    good(file, "layers/noise", noise, "dense")

# Every type and order of bytes, chunked, contiguous and compressed.
for dtype in ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]:
    for order in "<>":
        file = f"type-{dtype}-{'little' if order == '<' else 'big'}.h5ad"
        dense = matrix(dtype=order + dtype)
        with h5py.File(folder / file, "w") as f:
            index = order + dtype if dtype[0] != "f" else order + "i8"
            ptr = order + ("i8" if dtype[0] == "f" or dtype[1] in "12" else dtype)
            sparse_group(f, "X", dense, index=index, ptr=ptr, chunks=(50,))
            f.create_group("layers")
            sparse_group(f["layers"], "flat", dense, index=index, ptr=ptr)
            sparse_group(f["layers"], "gzip", dense, index=index, ptr=ptr, chunks=(50,), compression="gzip")
            f["layers"].create_dataset("dense", data=dense)
            f["layers"].create_dataset("split", data=dense, chunks=(10, 13))
        for location in ["X", "layers/flat", "layers/gzip"]:
            good(file, location, dense)
        for location in ["layers/dense", "layers/split"]:
            good(file, location, dense, "dense")

# Booleans, rounding, infinities.
with h5py.File(folder / "values.h5ad", "w") as f:
    flags = matrix() > 0
    f["X"] = flags
    sparse_group(f, "layers/flags", flags)
    odd = np.array([[1 / 3, np.inf, -np.inf, -0.0, 1e-45, 16777217.0, 1e300, 65504.0]])
    f["layers/double"] = odd
    f["layers/large"] = np.array([[2**24 + 1, 2**53 + 1, -(2**62) - 1, 2**63 - 1]], "<i8")
    f["layers/half"] = np.frombuffer(np.arange(0x7c00, dtype="<u2").tobytes(), "<f2").reshape(31, 1024)
    good("values.h5ad", "X", flags, "dense")
    good("values.h5ad", "layers/flags", flags)
    for layer in ["double", "large", "half"]:
        data = f[f"layers/{layer}"][:]
        good("values.h5ad", f"layers/{layer}", data, "dense")

# Layouts of the file itself: old and new indices of chunks, a user block, compact data sets, parts never written.
for libver in ["earliest", "v108", "v110", "v112", "latest"]:
    file = f"version-{libver}.h5ad"
    dense = matrix(300, 40)
    with h5py.File(folder / file, "w", libver=(libver, libver) if libver != "earliest" else "earliest", userblock_size=1024) as f:
        sparse_group(f, "X", dense, chunks=(37,), compression="gzip")
        f.create_group("layers")
        for name, options in dict(
            fixed=dict(chunks=(11, 7)),
            growing=dict(chunks=(11, 40), maxshape=(None, 40), compression="gzip"),
            tree=dict(chunks=(11, 7), maxshape=(None, None)),
            single=dict(chunks=(300, 40)),
            flat={},
        ).items():
            f["layers"].create_dataset(name, data=dense, **options)
    good(file, "X", dense)
    for layer in ["fixed", "growing", "tree", "single", "flat"]:
        good(file, f"layers/{layer}", dense, "dense")

with h5py.File(folder / "holes.h5ad", "w") as f:
    half = np.full((100, 30), 7.0, "<f4")
    for name, options in dict(split=dict(chunks=(10, 9)), wide=dict(chunks=(10, 30)), gzip=dict(chunks=(10, 9), compression="gzip"), flat={}).items():
        d = f.create_dataset(f"layers/{name}", (100, 30), ">f4", fillvalue=7, **options)
        if name != "flat":
            half[20:40, :9] = d[20:40, :9] = 3
            half[90:, 18:27] = d[90:, 18:27] = 4
    for name in ["split", "wide", "gzip"]:
        good("holes.h5ad", f"layers/{name}", half, "dense")
    good("holes.h5ad", "layers/flat", np.full((100, 30), 7.0), "dense")

with h5py.File(folder / "compact.h5ad", "w") as f:
    small = matrix(20, 12)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    space = h5py.h5s.create_simple(small.shape)
    h5py.h5d.create(f.id, b"X", h5py.h5t.IEEE_F32LE, space, plist).write(h5py.h5s.ALL, h5py.h5s.ALL, small)
    good("compact.h5ad", "X", small, "dense")

# What anndata writes, and what older versions wrote.
dense = matrix(200, 50)
for kind, compression in [("csr", None), ("csr", "gzip"), ("csc", None), ("csc", "lzf"), ("array", None), ("array", "gzip")]:
    file = f"anndata-{kind}-{compression}.h5ad"
    x = dict(csr=sp.csr_matrix, csc=sp.csc_matrix, array=np.asarray)[kind](dense)
    a = anndata.AnnData(x, layers={"counts": x.copy()})
    a.raw = anndata.AnnData(x.copy())
    a.write_h5ad(folder / file, compression=compression)
    for location in ["X", "raw", "raw/X", "layers/counts"]:
        form = "dense" if kind == "array" else "sparse"
        good(file, location, dense, form)
bad("anndata-csr-None.h5ad", "layers/none", "it has X, raw/X, layers/counts")
bad("anndata-csr-None.h5ad", "obs", "dataframe")

with h5py.File(folder / "old.h5ad", "w") as f:
    sparse_group(f, "X", dense, old=True)
    sparse_group(f, "raw.X", dense, kind="csc", old=True)
good("old.h5ad", "X", dense)
good("old.h5ad", "raw", dense)

# Columns in any order, zeros that are stored, no values, no rows.
with h5py.File(folder / "order.h5ad", "w") as f:
    m = sp.csr_matrix(dense)
    for row in range(m.shape[0]):
        part = slice(m.indptr[row], m.indptr[row + 1])
        order = rng.permutation(m.indptr[row + 1] - m.indptr[row])
        m.indices[part], m.data[part] = m.indices[part][order], m.data[part][order]
    for name, options in dict(X={}, gzip=dict(compression="gzip", chunks=(30,))).items():
        g = sparse_group(f, name, dense, **options)
        g["indices"][:], g["data"][:] = m.indices, m.data
        good("order.h5ad", name, dense)
    zeros = sparse_group(f, "zeros", dense)
    zeros["data"][:] = 0
    good("order.h5ad", "zeros", dense * 0, nnz=m.nnz)
    sparse_group(f, "empty", np.zeros((5, 4), "<f4"))
    good("order.h5ad", "empty", np.zeros((5, 4)))
    sparse_group(f, "nothing", np.zeros((0, 4), "<f4"), chunks=(10,), maxshape=(None,))
    good("order.h5ad", "nothing", np.zeros((0, 4)))
    f["dense"] = np.zeros((0, 4), "<f4")
    good("order.h5ad", "dense", np.zeros((0, 4)), "dense")

# What must be refused.
with h5py.File(folder / "refused.h5ad", "w") as f:

    def broken(name, error, change):
        g = sparse_group(f, name, dense, ptr="<i8")
        change(g)
        bad("refused.h5ad", name, error)

    def put(part, at, value):
        def change(g):
            g[part][at] = value

        return change

    def again(part, **options):
        def change(g):
            data = g[part][:]
            del g[part]
            g.create_dataset(part, data=data[: options.pop("end", None)].astype(options.pop("dtype", data.dtype)), **options)

        return change

    broken("beyond", "index that is not in 0 to 49", put("indices", 40, 50))
    broken("negative", "index that is not in 0 to 49", put("indices", 40, -1))
    broken("descending", "goes from", put("indptr", 10, 0))
    broken("first", "goes from 1 to", put("indptr", 0, 1))
    broken("last", "instead of from 0 to", put("indptr", slice(-2, None), int(m.nnz) - 1))
    broken("minus", "goes from", put("indptr", 5, -3))
    broken("short", "has 200 entries for 200 rows", again("indptr", end=-1))
    broken("uneven", "entries, and uneven/data has", again("data", end=-1))
    broken("floats", "holds float32 instead of integers", again("indices", dtype="<f4"))
    broken("text", "holds text", lambda g: (g.__delitem__("data"), g.create_dataset("data", data=["a"] * m.nnz)))
    broken("part", "has no part/indices", lambda g: g.__delitem__("indices"))
    broken("shape", "has no attribute shape", lambda g: g.attrs.__delitem__("shape"))
    broken("version", "version \"0.9.0\"", lambda g: g.attrs.__setitem__("encoding-version", "0.9.0"))
    broken("kind", "encoded as \"coo_matrix\"", lambda g: g.attrs.__setitem__("encoding-type", "coo_matrix"))
    broken("complex", "complex", again("data", dtype="<c8"))
    twice = sparse_group(f, "twice", dense)
    row = int(np.argmax(np.diff(m.indptr)))
    twice["indices"][m.indptr[row] + 1] = twice["indices"][m.indptr[row]]
    bad("refused.h5ad", "twice", "twice in a row")
    f["vector"] = np.zeros(5)
    bad("refused.h5ad", "vector", "two dimensions")
    f["cube"] = np.zeros((5, 2, 2))
    bad("refused.h5ad", "cube", "two dimensions")
    f["bits"] = np.zeros((50, 50))
    f.create_dataset("shuffled", data=np.zeros((50, 50)), **hdf5plugin.Bitshuffle())
    bad("refused.h5ad", "shuffled", "32008 (bitshuffle)")
    f.create_dataset("scaled", data=np.zeros((50, 50), "i4"), scaleoffset=4)
    bad("refused.h5ad", "scaled", "6 (scale-offset)")
    f["elsewhere"] = h5py.ExternalLink("values.h5ad", "X")
    bad("refused.h5ad", "elsewhere", "another file")
    f.create_dataset("outside", (10, 10), "<f4", external=[("outside.bin", 0, 400)])
    bad("refused.h5ad", "outside", "external storage")
    layout = h5py.VirtualLayout((83, 61), "?")
    layout[:] = h5py.VirtualSource(str(folder / "values.h5ad"), "X", (83, 61))
    f.create_virtual_dataset("virtual", layout)
    bad("refused.h5ad", "virtual", "virtual")
    f["loop"] = h5py.SoftLink("/loop")
    bad("refused.h5ad", "loop", "loop")
    bad("refused.h5ad", "a/b/c", "has no matrix a/b/c")
(folder / "text.h5ad").write_text("this is not HDF5 at all, but some text\n" * 100)
bad("text.h5ad", "X", "no HDF5 signature")
(folder / "nothing.h5ad").write_bytes(b"")
bad("nothing.h5ad", "X", "no HDF5 signature")
whole = (folder / "filter-gzip.h5ad").read_bytes()
(folder / "cut.h5ad").write_bytes(whole[: len(whole) // 2])
bad("cut.h5ad", "X", "truncated")

write_cases()
