"""Read the graph of a data set with safetensors and numpy.

    read_graph.py DATASET_FOLDER

Prints a JSON object: for each tensor its dtype and shape, and for each network the number of distinct edges, of
self-loops, and the largest degree.
"""

import json
import sys
from pathlib import Path

import numpy
from safetensors.numpy import load_file


def main() -> None:
    folder = Path(sys.argv[1])
    genes = (folder / "genes.txt").read_text().split()
    tensors = load_file(folder / "graph.safetensors")
    networks = {}
    for name, tensor in tensors.items():
        if name.startswith("edge_index/"):
            source, target = tensor
            loops = source == target
            degree = numpy.bincount(numpy.concatenate([source[~loops], target[~loops]]), minlength=len(genes))
            networks[name.removeprefix("edge_index/")] = {
                "distinct": len(numpy.unique(source * len(genes) + target)),
                "self_loops": int(loops.sum()),
                "loops_at_end": bool(loops[-len(genes) :].all()),
                "largest_degree": int(degree.max()),
            }
    stoichiometry = tensors["stoichiometry/rmr"]
    print(
        json.dumps(
            {
                "genes": len(genes),
                "genes_sorted": genes == sorted(genes),
                "tensors": {name: [str(t.dtype), list(t.shape)] for name, t in tensors.items()},
                "networks": networks,
                "reactants": int((stoichiometry < 0).sum()),
                "products": int((stoichiometry > 0).sum()),
            }
        )
    )


if __name__ == "__main__":
    main()
