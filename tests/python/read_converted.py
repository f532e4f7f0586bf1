"""Read the stores that were made from the base store with py-lmdb and numpy alone.

    read_converted.py DATASET_FOLDER [INDEX...]

Prints a JSON object: for each kind of store, and each record asked for, its genes, label and p-value, and of each mask the
number and the sum of its False positions.
"""

import io
import json
import sys
import zipfile
from pathlib import Path

import lmdb
import numpy


def arrays(value: bytes) -> dict[str, numpy.ndarray]:
    """A record is what numpy.savez writes."""
    found = dict(numpy.load(io.BytesIO(value), allow_pickle=False))
    # Readers need no more than the line above. What follows holds the format to its word.
    assert zipfile.ZipFile(io.BytesIO(value)).testzip() is None
    again = io.BytesIO()
    numpy.savez(again, **found)
    assert again.getvalue() == value
    return found


def false_positions(kind: str, fields: dict[str, numpy.ndarray], sizes: dict[str, int]) -> dict[str, numpy.ndarray]:
    found = {}
    for i, (name, size) in enumerate(sizes.items()):
        mask = f"{'node' if i < 3 else 'edge'}_masks/{name}"
        if kind == "compressed":
            assert fields["mask_sizes"].tolist() == list(sizes.values())
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
        fields = arrays(value)
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
