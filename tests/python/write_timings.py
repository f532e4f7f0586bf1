"""Write batch times as pandas and pyarrow write them, and print what pandas makes of them as JSON.

Usage: write_timings.py FOLDER"""

import json
import pathlib
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(1)
frames = []
for method, n, period in (("b", 1500, 10), ("a", 1200, 0)):
    for epoch in range(2):
        times = np.exp(rng.normal(0, 0.3, n)) * 0.05
        if period:
            times[3::period] *= 40
        frames.append(pd.DataFrame({"method": method, "epoch": epoch, "batch_times": times}))
frame = pd.concat(frames)

# As the notebook's file: the index without a name counts the batches of an epoch.
frame.to_parquet(folder / "index.parquet")
plain = frame.reset_index(names="batch")
plain["method"] = plain["method"].astype("category")
plain.to_parquet(folder / "category.parquet", row_group_size=700, compression="zstd")
plain.astype({"epoch": "int8", "batch_times": "float32"}).to_parquet(folder / "small.parquet", compression="gzip")
table = pa.table(
    {
        "loader": pa.array(plain["method"].astype(str)).dictionary_encode(),
        "pass": pa.array(plain["epoch"].astype(str)),
        "i": pa.array(plain["batch"], pa.uint32()),
        "took_ns": pa.array((plain["batch_times"] * 1e9).round().astype("int64")),
        "exact": pa.array(
            [f"{t:.9f}" for t in plain["batch_times"]], pa.string()
        ).cast(pa.decimal128(18, 9)),
        "half": pa.array(plain["batch_times"].astype("float16")),
        "nested": pa.array([{"x": 1.0}] * len(plain)),
    }
)
pq.write_table(table, folder / "renamed.parquet", compression="lz4")
plain.sample(frac=1, random_state=1).to_parquet(folder / "shuffled.parquet", index=False)
plain.to_csv(folder / "plain.csv", index=False)
broken = plain.copy()
broken.loc[1234, "batch_times"] = np.nan
broken.to_parquet(folder / "null.parquet")
pq.write_table(
    pa.table({"batch_times": pa.array([1.0, 2.0, float("nan"), 3.0])}), folder / "nan.parquet"
)

# The notebook's own steps.
result = {}
for (method, epoch), group in frame.groupby(["method", "epoch"]):
    sums = group.batch_times.sort_values().cumsum().reset_index(drop=True)
    n, total = len(sums), sums.iloc[-1]
    time, batch = sums / total, (sums.index.to_series() + 1) / n
    ratio = batch / time * (1 - time) / (1 - batch)
    result[f"{method}/{epoch}"] = {
        "n": n,
        "total": total,
        "quantiles": [group.batch_times.quantile(q) for q in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)],
        "slowest_10": 1 - float(time.iloc[n - round(n * 0.1) - 1]),
        "ratio_at_half": float(ratio.iloc[n // 2 - 1]),
    }
print(json.dumps(result))
