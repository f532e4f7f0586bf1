"""Reads MDS shards with MosaicML's LocalDataset and StreamingDataset, and writes them once more with its MDSWriter.

Usage: read_mds.py FOLDER

Prints JSON: samples, as LocalDataset reads them; those of StreamingDataset, which compares hashes, are the same. The shards
that MDSWriter makes of the samples are byte by byte those of FOLDER, before they are compressed, which is asserted.
"""

import json
import os
import sys
import tempfile

import mds_package as mds
import numpy as np

folder = sys.argv[1]
with open(f"{folder}/index.json") as file:
    index = json.load(file)
config = index["shards"][0]

with tempfile.TemporaryDirectory() as scratch:
    copy = f"{scratch}/copy"
    os.makedirs(copy)
    streamed = mds.StreamingDataset(remote=folder, local=copy, validate_hash="xxh64", shuffle=False, batch_size=1)
    samples = [dict(streamed[i]) for i in range(len(streamed))]
    del streamed
    # What was decompressed there; LocalDataset reads nothing that is compressed.
    local = mds.LocalDataset(copy)
    assert len(local) == len(samples)
    for i, sample in enumerate(samples):
        other = local[i]
        assert sample.keys() == other.keys()
        assert all(np.array_equal(sample[key], other[key], equal_nan=key == "score") for key in sample)
    again = f"{scratch}/again"
    columns = dict(zip(config["column_names"], config["column_encodings"]))
    with mds.MDSWriter(out=again, columns=columns, compression=config["compression"], hashes=config["hashes"],
                       size_limit=config["size_limit"]) as out:
        for sample in samples:
            # The package refuses to encode arrays without values, but takes what is encoded.
            out.write({k: b"\4\0" if isinstance(v, np.ndarray) and not v.size else v for k, v in sample.items()})
    with open(f"{again}/index.json") as file:
        written = json.load(file)["shards"]
    # How well zstd compresses is a matter of its version.
    assert [{**shard, "zip_data": None} for shard in written] == [{**s, "zip_data": None} for s in index["shards"]]
    for shard in index["shards"]:
        name = (shard["zip_data"] or shard["raw_data"])["basename"]
        with open(f"{folder}/{name}", "rb") as one, open(f"{again}/{name}", "rb") as other:
            assert mds.decompress(config["compression"], one.read()) == mds.decompress(config["compression"], other.read())

with open(f"{folder}/genes.txt") as file:
    genes = file.read().splitlines()
rows = np.zeros((len(samples), len(genes)), np.float32)
for row, sample in zip(rows, samples):
    assert sample["indices"].dtype == np.int32 and sample["values"].dtype == np.float32
    row[sample["indices"]] = sample["values"]
text = {key: [sample[key] for sample in samples] for key in samples[0] if key not in ("indices", "values")}
plain = {key: [None if value != value else value if isinstance(value, str) else value.item() if hasattr(value, "item") else value
               for value in values] for key, values in text.items()}
print(json.dumps({"rows": rows.tolist(), "genes": genes, "obs": plain, "types": columns,
                  "shards": [shard["samples"] for shard in index["shards"]],
                  "categories": index["expctl.categories"], "missing": index["expctl.missing"]}))
