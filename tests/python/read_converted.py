"""Read the stores that were made from the base store with py-lmdb and numpy alone.

    read_converted.py DATASET_FOLDER [INDEX...]

Prints a JSON object: for each kind of store, and each record asked for, its genes, label and p-value, and of each mask the
number and the sum of its False positions.
"""

import json
import sys
from pathlib import Path

import lmdb
import numpy

DTYPES = {"I64": "<i8", "F32": "<f4", "U8": "u1"}


def tensors(value: bytes) -> dict[str, numpy.ndarray]:
    """A record is a safetensors file: the length of the header, the header, the data."""
    length = int.from_bytes(value[:8], "little")
    header, data = json.loads(value[8 : 8 + length]), value[8 + length :]
    fields = {name: field for name, field in header.items() if name != "__metadata__"}
    return {
        name: numpy.frombuffer(data[slice(*field["data_offsets"])], DTYPES[field["dtype"]]).reshape(field["shape"])
        for name, field in fields.items()
    }


def false_positions(kind: str, fields: dict[str, numpy.ndarray], sizes: dict[str, int]) -> dict[str, numpy.ndarray]:
    found = {}
    for i, (name, size) in enumerate(sizes.items()):
        mask = f"{'node' if i < 3 else 'edge'}_masks/{name}"
        if kind == "compressed":
            assert fields[f"{mask}/mask_size"] == [size]
            found[mask] = fields[f"{mask}/false_indices"]
            continue
        unpack = lambda bits: numpy.unpackbits(bits, count=size, bitorder="little") if kind == "packed_masks" else bits
        kept = unpack(fields[mask])
        assert kept.shape == (size,)
        found[mask] = numpy.flatnonzero(kept == 0)
        if i < 3:
            assert (unpack(fields[f"pert_masks/{name}"]) == 1 - kept).all()
    return found


def record(kind: str, value: bytes, sizes: dict[str, int]) -> dict:
    if kind == "ids":
        label, p_value = numpy.frombuffer(value[:8], "<f4")
        genes, masks = numpy.frombuffer(value[8:], "<u4"), {}
    else:
        fields = tensors(value)
        (label,), (p_value,) = fields["gene/phenotype_values"], fields["gene/phenotype_stat_values"]
        genes, masks = fields["gene/perturbation_indices"], false_positions(kind, fields, sizes)
    return {
        "genes": genes.tolist(),
        "label": float(label),
        "p_value": float(p_value),
        "masks": {name: [len(positions), int(positions.sum())] for name, positions in masks.items()},
    }


def main() -> None:
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    found = {}
    for store in sorted((folder / "stores").iterdir()):
        manifest = json.loads((store / "manifest.json").read_text())
        sizes = {mask["name"]: mask["entries"] for mask in manifest["masks"]}
        env = lmdb.open(str(store / "lmdb"), readonly=True, lock=False)
        with env.begin() as txn:
            assert txn.stat()["entries"] == manifest["store"]["records"]
            found[store.name] = [record(store.name, txn.get(index.encode()), sizes) for index in wanted]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
