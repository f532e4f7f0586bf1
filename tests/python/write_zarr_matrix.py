"""Write matrices in zarr, versions 2 and 3, in every layout that zarr and numcodecs have, and what is in them.

    write_zarr_matrix.py FOLDER

What is in them: FOLDER/cases.json, see matrix_cases.py.
"""

import numcodecs
import numpy as np
import zarr
import zarr.codecs as zc

from matrix_cases import bad, compressed, folder, good, matrix, write_cases


def root(file, version):
    return zarr.open_group(folder / file, mode="w", zarr_format=version)


def put(group, name, values, **options):
    options.setdefault("chunks", tuple(max(1, min(n, 37)) for n in values.shape))
    array = group.create_array(name, shape=values.shape, dtype=values.dtype, **options)
    array[...] = values
    return array


def sparse(file, group, name, dense, kind="csr", index="<i4", ptr="<i4", **options):
    m = compressed(dense, kind)
    made = group.create_group(name)
    made.attrs.update({"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0", "shape": list(dense.shape)})
    put(made, "data", m.data.astype(dense.dtype), **options)
    put(made, "indices", m.indices.astype(index), **options)
    put(made, "indptr", m.indptr.astype(ptr), **options)
    good(file, name, dense)


def dense_array(file, group, name, values, **options):
    array = put(group, name, values, **options)
    array.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    good(file, name, values, "dense")


def both(file, version, **options):
    """Sparse and dense of the same options."""
    group = root(file, version)
    sparse(file, group, "X", matrix(), **options)
    for name, chunks in {"wide": (7, 61), "split": (10, 9), "one": (83, 61), "over": (100, 64)}.items():
        dense_array(file, group, f"layers/{name}", matrix(), chunks=chunks, **options)


blosc = {
    f"blosc-{name}-{shuffle}": dict(cname=name, clevel=5, shuffle=shuffle)
    for name in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]
    for shuffle in [0, 1, 2]
}
V2 = {
    "none": dict(compressors=None),
    "zstd": dict(compressors=numcodecs.Zstd(level=5)),
    "gzip": dict(compressors=numcodecs.GZip(level=5)),
    "zlib": dict(compressors=numcodecs.Zlib(level=5)),
    "lz4": dict(compressors=numcodecs.LZ4()),
    "shuffle-zlib": dict(compressors=numcodecs.Zlib(), filters=[numcodecs.Shuffle(4)]),
    "slash": dict(chunk_key_encoding={"name": "v2", "separator": "/"}),
    **{name: dict(compressors=numcodecs.Blosc(**of)) for name, of in blosc.items()},
}
for name, options in V2.items():
    both(f"v2-{name}.zarr", 2, **options)
SHUFFLES = ["noshuffle", "shuffle", "bitshuffle"]
V3 = {
    "none": dict(compressors=None),
    "zstd": dict(compressors=zc.ZstdCodec(level=3)),
    "zstd-sum": dict(compressors=zc.ZstdCodec(level=3, checksum=True)),
    "gzip": dict(compressors=zc.GzipCodec()),
    "crc32c": dict(compressors=zc.Crc32cCodec()),
    "zstd-crc32c": dict(compressors=[zc.ZstdCodec(), zc.Crc32cCodec()]),
    "crc32c-zstd": dict(compressors=[zc.Crc32cCodec(), zc.ZstdCodec()]),
    "big": dict(serializer=zc.BytesCodec(endian="big"), compressors=zc.ZstdCodec()),
    "big-none": dict(serializer=zc.BytesCodec(endian="big"), compressors=None),
    "dots": dict(chunk_key_encoding={"name": "default", "separator": "."}),
    "v2-keys": dict(chunk_key_encoding={"name": "v2", "separator": "."}),
    "numcodecs-zlib": dict(compressors=zarr.codecs.numcodecs.Zlib(level=3)),
    "numcodecs-lz4": dict(compressors=zarr.codecs.numcodecs.LZ4()),
    "numcodecs-shuffle": dict(compressors=[zarr.codecs.numcodecs.Shuffle(elementsize=4), zc.GzipCodec()]),
    **{
        name: dict(compressors=zc.BloscCodec(cname=of["cname"], clevel=5, shuffle=SHUFFLES[of["shuffle"]]))
        for name, of in blosc.items()
    },
}
for name, options in V3.items():
    both(f"v3-{name}.zarr", 3, **options)
SHARDS = {
    "blosc": dict(inner=[zc.BytesCodec(), zc.BloscCodec(cname="lz4", shuffle="shuffle")]),
    "none": dict(inner=[zc.BytesCodec()]),
    "crc32c": dict(inner=[zc.BytesCodec(), zc.Crc32cCodec()]),
    "zstd-sum": dict(inner=[zc.BytesCodec(), zc.ZstdCodec(), zc.Crc32cCodec()]),
    "start": dict(inner=[zc.BytesCodec(), zc.ZstdCodec()], index_location="start"),
    "big": dict(inner=[zc.BytesCodec(endian="big"), zc.ZstdCodec()], index_codecs=[zc.BytesCodec(endian="big"), zc.Crc32cCodec()]),
    "no-sum": dict(inner=[zc.BytesCodec(), zc.ZstdCodec()], index_codecs=[zc.BytesCodec()]),
}
for name, options in SHARDS.items():
    file = f"v3-shards-{name}.zarr"
    group = root(file, 3)

    def of(chunks, inner=options["inner"], **rest):
        rest = {k: v for k, v in options.items() if k != "inner"}
        return dict(serializer=zc.ShardingCodec(chunk_shape=chunks, codecs=inner, **rest), compressors=None)

    sparse(file, group, "X", matrix(), chunks=(148,), **of((37,)))
    sparse(file, group, "layers/large", matrix(), chunks=(1 << 14,), **of((128,)))
    dense_array(file, group, "layers/wide", matrix(), chunks=(28, 61), **of((7, 61)))
    dense_array(file, group, "layers/split", matrix(), chunks=(40, 36), **of((10, 9)))
    dense_array(file, group, "layers/over", matrix(), chunks=(200, 128), **of((50, 64)))
for version in [2, 3]:
    file = f"v{version}-types.zarr"
    group = root(file, version)
    for dtype in ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "?"]:
        for order in "<>" if version == 2 and dtype[-1] not in "1?" else "<":
            values = matrix(dtype=order + dtype)
            name = dtype.replace("?", "bool") + ("b" if order == ">" else "")
            sparse(file, group, f"layers/{name}", values)
            dense_array(file, group, f"layers/{name}-dense", values)
    for index in ["i1", "u2", "i8", "u8", "i2"]:
        sparse(file, group, f"layers/index-{index}", matrix(), index=index, ptr="i8")
    sparse(file, group, "layers/columns", matrix(), kind="csc")
    dense_array(file, group, "layers/zeros", np.zeros((50, 20), "f4"))
    sparse(file, group, "layers/nothing", np.zeros((50, 20), "f4"))
    # One column: all indices are 0, which zarr leaves out.
    sparse(file, group, "layers/column", np.ones((90, 1), "f4"))
    holes = matrix(90, 30)
    holes[10:60] = 5
    dense_array(file, group, "layers/fives", holes, chunks=(10, 30), fill_value=5)
    zarr.consolidate_metadata(group.store)

    file = f"v{version}-refused.zarr"
    group = root(file, version)
    values = matrix()
    bad(file, "X", "has no matrix X")
    bad(file, "layers/../../x", "no place in it")
    put(group, "layers/complex", values.astype("c8"))
    bad(file, "layers/complex", "type")
    put(group, "layers/line", values[0])
    bad(file, "layers/line", "two dimensions")
    group.create_group("layers/group")
    bad(file, "layers/group", "encoding-type")
    bad(file, "layers/grup", "layers/complex")
    if version == 2:
        put(group, "layers/delta", values, filters=[numcodecs.Delta("f4")])
        bad(file, "layers/delta", "\"delta\" (a filter on values)")
        put(group, "layers/bz2", values, compressors=numcodecs.BZ2())
        bad(file, "layers/bz2", "bz2")
        put(group, "layers/fortran", values, order="F")
        bad(file, "layers/fortran", "order F")
    else:
        put(group, "layers/transposed", values, filters=[zc.TransposeCodec(order=(1, 0))])
        bad(file, "layers/transposed", "transpose")
        put(group, "layers/delta", values, filters=[zarr.codecs.numcodecs.Delta(dtype="f4")])
        bad(file, "layers/delta", "numcodecs.delta")
        inner = zc.ShardingCodec(chunk_shape=(5, 61))
        put(group, "layers/nested", values, chunks=(20, 61), serializer=zc.ShardingCodec(chunk_shape=(10, 61), codecs=[inner]), compressors=None)
        bad(file, "layers/nested", "shards in shards")
(folder / "empty.zarr").mkdir()
bad("empty.zarr", "X", "neither zarr.json nor .zgroup")
zarr.create_array(folder / "array.zarr", shape=(3, 3), dtype="f4")
bad("array.zarr", "X", "instead of a group")
write_cases()
