#!/usr/bin/env python3
"""How far `expctl predict` is off: predicts from one job of each configuration, runs what it predicted, and compares.

    benches/predictions.py [NAME ...]      all configurations of CONFIGURATIONS, or some
    EXPCTL_BENCH_RECORD=FILE               write the figures there, as scripts/reference.sh does

For each configuration: `expctl submit` as listed, then `expctl predict JOB --verify 0`, which runs all settings of the loader that
are predicted (threads, batches ahead, batch size), three times each, alternately with the job's own settings. None of the configurations
was used to choose the constants of the model. Prints a table in markdown, with the summary in the end.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time

from bench_record import expctl, figure, write_record

REPEATS = 3
# Gains that differ by less than this factor count as the same.
AS_MUCH = 1.05

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
    "rows, trained": ["conf/arrayloader_fig5.toml", "--only", "mlp_rows", "--set", "model.hidden=32", "--set", "measure.steps=300"],
    **{
        f"gzip rows, emulated steps of {ms} ms": ["conf/choosing.toml", "--only", "single_gzip", "--set", "train.mode=emulate", "--set",
                                                  f"train.step_ms={ms}", "--set", f"measure.steps={steps}"]
        for ms, steps in [(0, 256), (1, 256), (10, 256), (100, 50)]
    },
}


def pairs_of(name):
    """Predicted and measured gains of a configuration, and seconds that it took; the reason where the model refuses it."""
    begin = time.monotonic()
    job = expctl("submit", *CONFIGURATIONS[name], "--backend", "local", "--wait", "--set", f"measure.repeats={REPEATS}").split()[0]
    asked = subprocess.run(["expctl", "predict", job, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if asked.returncode:
        return [], asked.stderr.strip(), time.monotonic() - begin
    verified = expctl("predict", job, "--verify", "0", "--repeats", str(REPEATS), "--backend", "local", "--json")
    return json.loads(verified.split("\n", 1)[1]), None, time.monotonic() - begin


def proposed(pair):
    """Whether a note would propose it (docs/guide/predict.md)."""
    expected = pair["predicted_interval"]
    return pair["predicted"] > AS_MUCH and (not expected or expected["low"] * pair["predicted"] > 1)


def main(names):
    rows, errors, within, best, failed = [], [], [], [], []
    for name in names:
        try:
            pairs, refused, took = pairs_of(name)
        except RuntimeError as error:
            # The others are measured all the same; a record is not made of a part.
            print(f"{name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"{name}: {len(pairs)} pairs, {took:.0f} s" + (f", refused: {refused}" if refused else ""), file=sys.stderr)
        if refused:
            rows.append(f"| {name} | not predicted: {refused} | | | | | |")
            continue
        pairs = [pair for pair in pairs if pair["measured"]]
        for pair in pairs:
            predicted, measured = pair["predicted"], pair["measured"]["value"]
            error, expected = measured / predicted - 1, pair["predicted_interval"]
            inside = expected and expected["low"] <= measured <= expected["high"]
            errors.append(abs(error))
            within.append(bool(inside))
            key = f"{name}, {pair['setting']}"
            figure(f"{key}, predicted", predicted, expected, REPEATS)
            figure(f"{key}, measured", measured, pair["measured"]["interval"], pair["runs"])
            ends = lambda of: f"{of['low']:.2f}–{of['high']:.2f}" if of else "–"  # noqa: E731
            rows.append(f"| {name} | {pair['setting']} | {predicted:.2f}× | {ends(expected)} | {measured:.2f}× | {error * 100:+.1f} % | "
                        f"{'yes' if inside else 'no'} |")
        # The setting that a note would propose, or the job's own where it proposes none, against the best measured: not shown to be slower.
        # Another batch size is another training.
        choices = [pair for pair in pairs if not pair["setting"].startswith("loader.batch_size")]
        own = {"predicted": 1.0, "measured": {"value": 1.0, "interval": None}}
        chosen = max(filter(proposed, choices), key=lambda pair: pair["predicted"], default=own)
        top = max([*choices, own], key=lambda pair: pair["measured"]["value"])
        low = (top["measured"]["interval"] or {"low": top["measured"]["value"]})["low"]
        best.append(chosen is top or chosen["measured"]["value"] >= min(low, top["measured"]["value"] / AS_MUCH))
    print("| Configuration | Setting | Predicted gain (estimated) | 95 % | Measured gain | Measured over predicted | In the interval |")
    print("|---|---|---:|---:|---:|---:|---|")
    print("\n".join(rows))
    errors.sort()
    n = len(errors)
    if not n:
        sys.exit("nothing was predicted")
    summary = {
        "pairs": n,
        "median error": statistics.median(errors),
        "90th percentile": errors[min(n - 1, math.ceil(0.9 * n) - 1)],
        "in the interval": sum(within) / n,
        "best is best": sum(best) / len(best),
    }
    print()
    for key, value in summary.items():
        print(f"{key}: {value:.3f}" if value != n else f"{key}: {n}")
        figure(key, float(value), None, n)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")
    write_record(os.environ.get("EXPCTL_BENCH_RECORD"), "benches/predictions.py")


if __name__ == "__main__":
    main(sys.argv[1:] or list(CONFIGURATIONS))
