"""Writes rows with MosaicML's own MDSWriter in many ways.

Usage: write_mds.py FOLDER

FOLDER/files.json describes them: name of each folder, whether its rows are sparse, its matrix (NAME.f32 beside them, of
`rows` x `genes` float32) and how many shards it has. Columns of obs are the same in all.
"""

import json
import sys

import mds_package as mds
import numpy as np

folder = sys.argv[1]
rng = np.random.default_rng(3)
ROWS, GENES = 211, 300
codes = rng.integers(0, 3, ROWS)
TEXT = np.array(["B cell", "NK", "Zelle ä"])

counts = np.where(rng.random((ROWS, GENES)) < 0.1, rng.integers(1, 120, (ROWS, GENES)), 0)
counts[:, 0] = 1  # the package refuses empty arrays
counts[5, :] = np.arange(1, GENES + 1) % 120 + 1
floats = counts * 0.37
matrices = {"counts": counts.astype("f4"), "floats": floats.astype("f4"), "halves": floats.astype("f2").astype("f4")}
for name, matrix in matrices.items():
    matrix.tofile(f"{folder}/{name}.f32")

OBS = {"batch": "int", "small": "int8", "wide": "uint64", "score": "float64", "single": "float32", "half": "float16",
       "text": "str", "digits": "str_int", "decimal": "str_float", "blob": "pkl"}


def obs(row):
    return {"batch": int(row % 7) - 3, "small": np.int8(row % 5 - 2), "wide": np.uint64((1 << 63) + row % 3),
            "score": float(codes[row]) * 0.5 if row % 11 else float("nan"), "single": np.float32(row) / 3,
            "half": np.float16(row % 4) / 2, "text": str(TEXT[codes[row]]), "digits": int(row % 4) * 10**20,
            "decimal": row / 7, "blob": {"row": int(row)}}


files = []


def write(name, sparse, matrix, columns, row, genes=None, **options):
    path = f"{folder}/{name}"
    with mds.MDSWriter(out=path, columns={**columns, **OBS}, **options) as out:
        for number in range(ROWS):
            out.write({**row(number), **obs(number)})
    if genes == "names":
        with open(f"{path}/genes.txt", "w") as names:
            names.writelines(f"gene_{gene}\n" for gene in range(GENES))
    elif genes:
        with open(f"{path}/index.json") as file:
            index = json.load(file)
        index.update(genes)
        with open(f"{path}/index.json", "w") as file:
            json.dump(index, file)
    with open(f"{path}/index.json") as file:
        shards = [shard["samples"] for shard in json.load(file)["shards"]]
    files.append({"name": name, "sparse": sparse, "matrix": matrix, "shards": shards,
                  "packed": bool(options.get("compression"))})


def sparse(values, index_type, value_type, names=("indices", "values"), shuffle=False):
    def row(number):
        columns = np.flatnonzero(values[number])
        if shuffle:
            columns = np.random.default_rng(number).permutation(columns)
        return {names[0]: columns.astype(index_type), names[1]: values[number, columns].astype(value_type)}
    return row


ARRAYS = {"indices": "ndarray:int32", "values": "ndarray:float32"}
COMPRESSIONS = [None, "zstd", "zstd:19", "gz", "gz:1", "snappy"]
HASHES = [[], ["sha1"], ["md5", "sha1", "xxh64"], ["sha256", "xxh128", "xxh32", "xxh3_64"], ["blake2b"]]
SIZES = [None, "20kb", "3kb", 1]
for i, compression in enumerate(COMPRESSIONS):
    for j, size in enumerate(SIZES):
        hashes = HASHES[(i * len(SIZES) + j) % len(HASHES)]
        write(f"sparse-{compression}-{size}".replace(":", "-"), True, "counts", ARRAYS,
              sparse(counts, "i4", "f4"), "names", compression=compression, hashes=hashes, size_limit=size)
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
for index_type in ["int16", "uint16", "uint32", "int64", "uint64"]:
    for value_type in INTEGERS + ["float64"]:
        write(f"types-{index_type}-{value_type}", True, "counts",
              {"indices": f"ndarray:{index_type}", "data": f"ndarray:{value_type}"},
              sparse(counts, index_type, value_type, ("indices", "data")), "names")
write("halves", True, "halves", {"indices": "ndarray", "values": "ndarray:float16"}, sparse(floats, "u2", "f2"), "names")
write("doubles", True, "floats", {"indices": "ndarray", "values": "ndarray"}, sparse(floats, "u2", "f8"), "names")
write("unsorted", True, "counts", ARRAYS, sparse(counts, "i4", "f4", shuffle=True), {"expctl.columns": GENES})
write("other_names", True, "floats", {"genes": "ndarray:uint16", "weights": "ndarray:float64"},
      sparse(floats, "u2", "f8", ("genes", "weights")), {"expctl.columns": GENES})
write("noted", True, "counts", {"genes": "ndarray:int32", "counts": "ndarray:int32"},
      sparse(counts, "i4", "i4", ("genes", "counts")),
      {"expctl.columns": GENES, "expctl.indices": "genes", "expctl.values": "counts"})
raw = sparse(counts, "i4", "f4")
write("bytes", True, "counts", {"indices": "bytes", "values": "bytes"},
      lambda n: {name: value.tobytes() for name, value in raw(n).items()}, "names")
for encoding in ["ndarray:float32", f"ndarray:float32:{GENES}", f"ndarray:float64:1,{GENES}", "ndarray", "bytes"]:
    for compression in [None, "zstd:1"]:
        dtype = "f8" if "64" in encoding else "f4"
        one = (lambda n: floats[n].astype("f4").tobytes()) if encoding == "bytes" else (
            lambda n: floats[n].reshape((1, -1) if "," in encoding else -1).astype(dtype))
        name = f"dense-{encoding}-{compression}".replace(":", "-").replace(",", "-")
        write(name, False, "floats", {"x": encoding}, lambda n: {"x": one(n)}, compression=compression, size_limit="50kb")
write("dense-only", False, "counts", {"cell": "ndarray:int16"}, lambda n: {"cell": counts[n].astype("i2")})
with open(f"{folder}/files.json", "w") as file:
    json.dump({"rows": ROWS, "genes": GENES, "codes": codes.tolist(), "text": TEXT.tolist(), "files": files}, file)
