#!/usr/bin/env python3
"""How far `expctl predict` is off: predicts from one job of each configuration, runs what it predicted, and compares.

    benches/predictions.py [NAME ...]      all configurations of CONFIGURATIONS, or some; a record is made of all
    benches/predictions.py --list          what is measured of which config, and why others are left out, as JSON
    EXPCTL_BENCH_RECORD=FILE               write the figures there, as scripts/reference.sh does
    EXPCTL_BENCH_MINUTES=N                 end after about so many minutes, with exit code 75; the same command goes on

For each configuration: `expctl submit` as listed, then `expctl predict JOB --verify 0`, which runs all settings of the loader that are
predicted (threads, batches ahead, batch size) and the emulated steps of STEP_MS, three times each, alternately with the job's own settings.
None of the configurations was used to choose the constants of the model. Prints a table in markdown, with the summary in the end.

A configuration takes about five minutes on two processors, all of them some two hours. It is a part that is kept (`Parts` in bench_record.py):
what was interrupted begins again with the configuration that it was at.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time

from bench_record import Parts, expctl, figure, write_record

REPEATS = 3
# Exit code of what expctl predict does not predict.
REFUSED = 7
# Times of emulated steps, ms.
STEP_MS = [0, 1, 10, 100]
# Gains that differ by less than this factor count as the same.
AS_MUCH = 1.05

ROWS = ["--set", "data.samples=200000", "--set", "data.files=8"]

# Name, and the arguments of `expctl submit`. A run takes some seconds. Batches that are ahead when measuring begins are few of all.
CONFIGURATIONS = {
    "demo lazy": ["conf/demo.toml", "--only", "lazy", "--set", "launch.ranks=1", "--set", "measure.steps=300"],
    "demo dango, 2 ranks": ["conf/demo.toml", "--only", "dango", "--set", "measure.steps=500"],
    "fair lazy": ["conf/006_fair.toml", "--only", "lazy", "--set", "data.scale=0.2", "--set", "measure.steps=200"],
    "fair ids": ["conf/006_fair.toml", "--only", "ids", "--set", "measure.steps=40000", "--set", "measure.warmup=2000"],
    "fair shared": ["conf/006_fair.toml", "--only", "shared", "--set", "measure.steps=4000"],
    "rows": ["conf/choosing.toml", "--only", "single", "--set", "measure.steps=4000"],
    "chunks": ["conf/choosing.toml", "--only", "chunked", "--set", "measure.steps=20480"],
    "gzip rows": ["conf/choosing.toml", "--only", "single_gzip", "--set", "measure.steps=256"],
    "gzip rows, 1 thread": ["conf/search.toml", "--set", "measure.steps=160"],
    "rows, trained": ["conf/arrayloader_fig5.toml", "--only", "mlp_rows", "--set", "model.hidden=32", "--set", "measure.steps=300"],
    "rows in order": ["conf/arrayloader_fig4.toml", "--only", "disk_sequential", *ROWS, "--set", "measure.steps=4000"],
    "rows, batches of 1000": ["conf/arrayloader_fig1.toml", "--only", "mapped_uniform", *ROWS, "--set", "measure.epochs=0", "--set",
                              "measure.warmup=40", "--set", "measure.steps=400"],
    "rows, no threads": ["conf/arrayloader_fig2a.toml", "--only", "h5ad", "--set", "measure.epochs=0", "--set", "measure.warmup=100",
                         "--set", "measure.steps=1500"],
    "sparse rows": ["conf/peers.toml", "--only", "rows_expctl_sparse_1", "--set", "measure.steps=4096"],
    "086 dango": ["conf/086_dataloader.toml", "--only", "dango", "--set", "data.samples=1000", "--set", "variant.dango.measure.steps=2500"],
    "086 dango, trained on 2 ranks": ["conf/086_ddp.toml", "--only", "dango", "--set", "data.scale=0.02", "--set", "slurm.memory_mib=16384",
                                      "--set", "measure.warmup=20", "--set", "measure.steps=200"],
    "087 shared, trained": ["conf/087_training.toml", "--only", "shared", "--set", "measure.steps=30"],
    "scaling dango": ["conf/scaling_086.toml", "--only", "dango", "--set", "measure.steps=400"],
    "masks packed": ["conf/006_masks.toml", "--only", "packed"],
    "graph perturbation": ["conf/peers_graph.toml", "--only", "expctl_perturbation"],
    "rows, 8 ranks, emulated steps of 60 ms": ["conf/emulate.toml", "--only", "uniform", "--set", "measure.steps=60"],
    **{
        f"gzip rows, emulated steps of {ms} ms": ["conf/choosing.toml", "--only", "single_gzip", "--set", "train.mode=emulate", "--set",
                                                  f"train.step_ms={ms}", "--set", f"measure.steps={steps}"]
        for ms, steps in [(10, 256), (100, 50)]
    },
}

# Shipped configs of which nothing is predicted here, and why. Those that others extend are no configs of their own.
GPU = "needs a GPU"
PUBLISHED = "published runs of hours; 006_fair has its loader"
OTHERS = "measures programs, of whose loaders nothing can be set"
BESIDE_OTHERS = "measures programs of others; demo and peers_graph have ways of ours"
LEFT_OUT = {
    "006_cold": "a cold disk: 2.6 GB are read for each run",
    "006_isolation": "the parts of one step, one by one; demo and 087_training have the whole step",
    "006_lazy_base": "is what others extend",
    "006_training": "published runs, whose step takes most of a second; 087_training has the model",
    "065_incidence": PUBLISHED,
    "073_profiler": PUBLISHED,
    "074_compressed": PUBLISHED,
    "075_full_masks": PUBLISHED,
    "077_full_masks": PUBLISHED,
    "080_sum": PUBLISHED,
    "081_device_masks_looped": PUBLISHED,
    "082_device_masks_vectorised": PUBLISHED,
    "086_as_run": PUBLISHED,
    "086_base": "is what others extend",
    "086_batch": "sweeps batch sizes of 086_dataloader, which are predicted from it",
    "086_model": "086_dataloader and 086_ddp have its loaders and models",
    "087_neighborhood": PUBLISHED,
    "087_preprocessed": PUBLISHED,
    "arrayloader_10m": "reads 600 GB",
    "arrayloader_base": "is what others extend",
    "arrayloader_cold": "a cold disk",
    "arrayloader_fig2a_peers": OTHERS,
    "arrayloader_fig2b": "measures bytes on disk",
    "arrayloader_fig2b_peers": OTHERS,
    "arrayloader_fig3": "sweeps ranks of what choosing reads; scaling_086 has several ranks",
    "arrayloader_figA1": "sweeps loader threads of what choosing reads, which are predicted from it",
    "arrayloader_figA1_peers": OTHERS,
    "arrayloader_ranks_peers": OTHERS,
    "arrayloader_remote": "needs an object store behind a line",
    "gpu_086": GPU,
    "gpu_copies": GPU,
    "gpu_ddp": GPU,
    "gpu_ddp_bf16": GPU,
    "gpu_masks": GPU,
    "gpu_masks_full": GPU,
    "gpu_ranks": GPU,
    "gpu_rows": GPU,
    "gpu_shared": GPU,
    "gpu_trace": GPU,
    "pack": "runs trials side by side, of which predict refuses to predict",
    "peers_ddp": BESIDE_OTHERS,
    "peers_ddp_base": "is what others extend",
    "peers_python": OTHERS,
    "peers_python_training": OTHERS,
    "peers_subgraph": BESIDE_OTHERS,
    "profile_086": "profiles, and predict refuses times with a profiler",
    "tahoe": "needs 14 files of wide rows; peers has the same loaders on others",
    "tahoe_cold": "reads more than the memory",
    "tahoe_remote": "needs an object store behind a line",
    "training_planted": "trains whole epochs, whose steps another batch size changes",
}

# What a setting changes, for those that are asked for; all others are beside them.
ASKED = {
    "loader.workers": ("threads 1, 2, 4", {"1", "2", "4"}),
    "loader.prefetch_factor": ("batches ahead 1, 2, 8", {"1", "2", "8"}),
    "loader.batch_size": ("batches of half and double size", None),
    "train.step_ms": ("emulated steps of 0, 1, 10, 100 ms", None),
}
OTHER = "other settings: 0 and 8 threads, 4 batches ahead, one edge index"


def measured(name):
    """What was predicted of a configuration and what was measured of it; the reason where the model refuses it."""
    job = expctl("submit", *CONFIGURATIONS[name], "--backend", "local", "--wait", "--set", f"measure.repeats={REPEATS}").split()[0]
    # A step that the job has already is no change.
    own = f"{name} ".rpartition("emulated steps of ")[2].split(" ")[0]
    steps = ",".join(str(ms) for ms in STEP_MS if str(ms) != own)
    asked = subprocess.run(["expctl", "predict", job, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if asked.returncode == REFUSED:
        return {"refused": asked.stderr.strip(), "pairs": []}
    if asked.returncode:
        raise RuntimeError(f"expctl predict {job}: exit {asked.returncode}: {asked.stderr.strip()}")
    refused = "; ".join(f"`{one['label']}`: {one['reason']}" for one in json.loads(asked.stdout)["not_predicted"])
    verified = expctl("predict", job, "--verify", "0", "--step-ms", steps, "--repeats", str(REPEATS), "--backend", "local", "--json")
    return {"refused": refused or None, "pairs": json.loads(verified.split("\n", 1)[1])}


def asked_for(setting):
    """The group of a setting; OTHER for those beside what is asked for."""
    key, value = setting.split()[-1].split("=", 1)
    group, values = ASKED.get(key, (OTHER, None))
    return group if values is None or value in values else OTHER


def proposed(pair):
    """Whether a note would propose it (docs/guide/predict.md)."""
    expected = pair["predicted_interval"]
    return pair["predicted"] > AS_MUCH and (not expected or expected["low"] * pair["predicted"] > 1)


def is_inside(pair):
    expected = pair["predicted_interval"]
    return bool(expected and expected["low"] <= pair["measured"]["value"] <= expected["high"])


def best_is_best(pairs):
    """Whether the setting that a note would propose, or the job's own where it proposes none, is the best of those that were measured, or not
    shown to be slower. Another batch size is another training, and an emulated step another accelerator."""
    choices = [pair for pair in pairs if not pair["setting"].startswith(("loader.batch_size", "train."))]
    own = {"predicted": 1.0, "measured": {"value": 1.0, "interval": None}}
    chosen = max(filter(proposed, choices), key=lambda pair: pair["predicted"], default=own)
    top = max([*choices, own], key=lambda pair: pair["measured"]["value"])
    low = (top["measured"]["interval"] or {"low": top["measured"]["value"]})["low"]
    return chosen is top or chosen["measured"]["value"] >= min(low, top["measured"]["value"] / AS_MUCH)


def summarise(group, pairs):
    """Figures of some pairs: how many, how far off, and how many in their intervals."""
    errors = sorted(abs(pair["measured"]["value"] / pair["predicted"] - 1) for pair in pairs)
    n = len(errors)
    start = f"{group}: " if group else ""
    for key, value in [
        ("pairs", float(n)),
        ("median error", statistics.median(errors)),
        ("90th percentile", errors[math.ceil(0.9 * n) - 1]),
        ("in the interval", sum(map(is_inside, pairs)) / n),
    ]:
        print(f"{start}{key}: {n}" if key == "pairs" else f"{start}{key}: {value:.3f}")
        figure(f"{start}{key}", value, None, n)


def main(names):
    rows, groups, best, failed, refused = [], {}, [], [], 0
    parts = Parts("predictions")
    longest = 0.0
    for name in names:
        begin = time.monotonic()
        try:
            found = parts.get(name, lambda: measured(name), longest)  # noqa: B023
        except RuntimeError as error:
            # The others are measured all the same; a record is not made of a part.
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        took = time.monotonic() - begin
        longest = max(longest, took)
        print(f"{name}: {len(found['pairs'])} pairs, {took:.0f} s" + (f", refused: {found['refused']}" if found["refused"] else ""),
              file=sys.stderr)
        if found["refused"]:
            refused += 1
            rows.append(f"| {name} | not predicted: {found['refused']} | | | | | |")
        labels = list(dict.fromkeys(pair["label"] for pair in found["pairs"]))
        for label in labels:
            pairs = [pair for pair in found["pairs"] if pair["measured"] and pair["label"] == label]
            if not pairs:
                continue
            title = name if len(labels) == 1 else f"{name}, {label}"
            for pair in pairs:
                predicted, value, expected = pair["predicted"], pair["measured"]["value"], pair["predicted_interval"]
                groups.setdefault(asked_for(pair["setting"]), []).append(pair)
                if asked_for(pair["setting"]) != OTHER:
                    key = f"{title}, {pair['setting']}"
                    figure(f"{key}, predicted", predicted, expected, REPEATS)
                    figure(f"{key}, measured", value, pair["measured"]["interval"], pair["runs"])
                ends = f"{expected['low']:.2f}–{expected['high']:.2f}" if expected else "–"
                rows.append(f"| {title} | {pair['setting']} | {predicted:.2f}× | {ends} | {value:.2f}× | "
                            f"{(value / predicted - 1) * 100:+.1f} % | {'yes' if is_inside(pair) else 'no'} |")
            best.append(best_is_best(pairs))
            if not best[-1]:
                print(f"{title}: the setting that is proposed is not the best", file=sys.stderr)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    print("| Configuration | Setting | Predicted gain (estimated) | 95 % | Measured gain | Measured over predicted | In the interval |")
    print("|---|---|---:|---:|---:|---:|---|")
    print("\n".join(rows))
    print()
    asked = [pair for group, pairs in groups.items() if group != OTHER for pair in pairs]
    if not asked:
        sys.exit("nothing was predicted")
    summarise("", asked)
    for group in sorted(groups):
        summarise(group, groups[group])
    for key, value, n in [("proposed is best", sum(best) / len(best), len(best)), ("refused", float(refused), len(names))]:
        print(f"{key}: {value:.3f} of {n}")
        figure(key, value, None, n)
    if set(names) == set(CONFIGURATIONS):
        write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/predictions.py", parts)
    elif os.environ.get("EXPCTL_BENCH_RECORD"):
        print("no record: it is made of all configurations", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print(json.dumps({"measured": CONFIGURATIONS, "left_out": LEFT_OUT}, indent=2))
    elif set(sys.argv[1:]) - set(CONFIGURATIONS):
        sys.exit(f"there is no {', '.join(sorted(set(sys.argv[1:]) - set(CONFIGURATIONS)))}; --list says what there is")
    else:
        main(sys.argv[1:] or list(CONFIGURATIONS))
