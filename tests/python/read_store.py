"""Read the base store of a data set as the published Python code does: py-lmdb and json.

    read_store.py DATASET_FOLDER [INDEX...]

Prints a JSON object: the number of records, label statistics over all of them, and the records asked for in short.
"""

import json
import statistics
import sys
from pathlib import Path

import lmdb


def main() -> None:
    folder = Path(sys.argv[1])
    wanted = [int(index) for index in sys.argv[2:]]
    env = lmdb.open(str(folder / "processed" / "lmdb"), readonly=True, lock=False, readahead=False, meminit=False)
    with env.begin() as txn:
        count = txn.stat()["entries"]
        labels = []
        triples = set()
        for index in range(count):
            value = txn.get(str(index).encode())
            (record,) = json.loads(value)
            labels.append(record["experiment"]["phenotype"]["gene_interaction"])
            triples.add(tuple(p["systematic_gene_name"] for p in record["experiment"]["genotype"]["perturbations"]))
        shown = [summary(json.loads(txn.get(str(index).encode()))) for index in wanted]
    print(
        json.dumps(
            {
                "records": count,
                "distinct_triples": len(triples),
                "label_mean": statistics.fmean(labels),
                "label_sd": statistics.pstdev(labels),
                "label_min": min(labels),
                "label_max": max(labels),
                "shown": shown,
            }
        )
    )


def summary(items: list) -> dict:
    (item,) = items
    experiment, reference = item["experiment"], item["experiment_reference"]
    return {
        "genes": [p["systematic_gene_name"] for p in experiment["genotype"]["perturbations"]],
        "types": [p["perturbation_type"] for p in experiment["genotype"]["perturbations"]],
        "label": experiment["phenotype"][experiment["phenotype"]["label_name"]],
        "p_value": experiment["phenotype"][experiment["phenotype"]["label_statistic_name"]],
        "temperature": experiment["environment"]["temperature"],
        "strain": reference["genome_reference"]["strain"],
        "class": experiment["provenance"]["class"],
        "index": experiment["provenance"]["index"],
    }


if __name__ == "__main__":
    main()
