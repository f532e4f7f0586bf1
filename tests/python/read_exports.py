"""Opens what `expctl export` writes with the tools that it is written for, and prints what they see as JSON.

    read_exports.py tables RUNS CSV JSONL PARQUET   compares the tables of steps with the step tables in the ledger RUNS/JOB
    read_exports.py trials CSV JSONL PARQUET        the table of trials, by trial
    read_exports.py mlflow FOLDER                   runs by name
    read_exports.py tensorboard FOLDER              runs by folder
    read_exports.py wandb FOLDER                    runs by name
    read_exports.py openmetrics FILE                samples of each family
    read_exports.py junit FILE                      test cases

Needs scripts/exports_python.sh, but for `tables`, `trials` and `junit`.
"""

import json
import math
import pathlib
import sys


def equal(ours, theirs):
    """Stops where two tables differ in a column, a cell or its being null."""
    import pandas as pd

    pd.testing.assert_frame_equal(ours.reset_index(drop=True), theirs.reset_index(drop=True), check_dtype=False)


def tables(job, csv, jsonl, parquet):
    import pandas as pd

    table = pd.read_parquet(parquet)
    # Arrow's own reader, and the types that it sees.
    import pyarrow.parquet as pq

    schema = pq.read_schema(parquet)
    assert pq.ParquetFile(parquet).metadata.metadata[b"expctl.table"] == b"steps"
    text = {"job": str, "trial": str, "variant": str}
    equal(pd.read_csv(csv, dtype=text), table)
    equal(pd.read_json(jsonl, lines=True, dtype=text, convert_dates=False).convert_dtypes(), table.convert_dtypes())
    compared = 0
    for file in sorted(pathlib.Path(job).glob("*/attempt-*/rank-?.parquet")):
        trial, rank = file.parts[-3], int(file.stem.removeprefix("rank-"))
        theirs = pd.read_parquet(file)
        ours = table[(table.trial == trial) & (table["rank"] == rank)]
        equal(ours[theirs.columns], theirs)
        compared += len(theirs)
    first = [name for name in table.columns if name not in theirs.columns]
    kinds = {name: str(schema.field(name).type) for name in [*first, "step", "measured", "loss"]}
    return {"rows": len(table), "compared": compared, "columns": list(table.columns), "types": kinds}


def trials(csv, jsonl, parquet):
    import pandas as pd

    table = pd.read_parquet(parquet)
    text = {"job": str, "trial": str, "variant": str, "origin": str}
    # In CSV an empty text is a missing one.
    read = pd.read_csv(csv, dtype=text, keep_default_na=False, na_values=[""])
    equal(read, table.mask(table.eq("")))
    rows = [json.loads(line) for line in open(jsonl)]
    assert [list(row) for row in rows] == [list(table.columns)] * len(table)
    return {row["trial"]: row for row in rows}


def mlflow(folder):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(pathlib.Path(folder).absolute().as_uri())
    runs = {}
    for experiment in client.search_experiments():
        for run in client.search_runs([experiment.experiment_id]):
            history = {name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics}
            runs[run.info.run_name] = {
                "experiment": experiment.name,
                "id": run.info.run_id,
                "status": run.info.status,
                "start": run.info.start_time,
                "end": run.info.end_time,
                "params": run.data.params,
                "tags": run.data.tags,
                "metrics": {
                    name: [[metric.step, metric.timestamp, metric.value] for metric in metrics]
                    for name, metrics in history.items()
                },
            }
    return runs


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
    from tensorboard.plugins.hparams import metadata

    multiplexer = EventMultiplexer(size_guidance={"scalars": 0, "tensors": 0})
    multiplexer.AddRunsFromDirectory(folder).Reload()
    runs = {}
    for name in multiplexer.Runs():
        run = multiplexer.GetAccumulator(name)
        plugin = run.PluginTagToContent("hparams")
        start = metadata.parse_session_start_info_plugin_data(plugin[metadata.SESSION_START_INFO_TAG])
        end = plugin.get(metadata.SESSION_END_INFO_TAG)
        end = end and metadata.parse_session_end_info_plugin_data(end)
        values = {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}
        runs[name] = {
            "scalars": {
                tag: [[event.step, event.wall_time, event.value] for event in run.Scalars(tag)]
                for tag in run.Tags()["scalars"]
            },
            "hparams": values,
            "group": start.group_name,
            "status": end and end.status,
        }
    return runs


def all_known(message):
    """Stops at a field that the protocol does not have."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for one in [value] if hasattr(value, "ListFields") else value:
                all_known(one)


def wandb(folder):
    from wandb.proto import wandb_internal_pb2 as protocol
    from wandb.sdk.internal.datastore import DataStore

    def values(items):
        return {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in items}

    runs = {}
    for file in sorted(pathlib.Path(folder).glob("offline-run-*/run-*.wandb")):
        store = DataStore()
        store.open_for_scan(str(file))
        found, history, numbers, kinds = {}, [], [], []
        while (data := store.scan_data()) is not None:
            record = protocol.Record()
            record.ParseFromString(data)
            all_known(record)
            kind = record.WhichOneof("record_type")
            kinds.append(kind)
            numbers.append(record.num)
            if kind == "run":
                assert record.run.run_id in file.name and record.run.run_id in file.parent.name
                found |= {
                    "project": record.run.project,
                    "group": record.run.run_group,
                    "tags": list(record.run.tags),
                    "notes": record.run.notes,
                    "host": record.run.host,
                    "start": record.run.start_time.seconds,
                    "commit": record.run.git.commit,
                    "config": values(record.run.config.update),
                }
                name = record.run.display_name
            elif kind == "history":
                assert record.history.step.num == values(record.history.item)["_step"]
                history.append(values(record.history.item))
            elif kind == "summary":
                found["summary"] = values(record.summary.update)
            elif kind == "exit":
                found |= {"exit": record.exit.exit_code, "runtime": record.exit.runtime}
        assert numbers == list(range(1, len(numbers) + 1))
        assert kinds[:2] == ["header", "run"] and kinds[-1] == "exit", kinds
        runs[name] = {**found, "history": history}
    return runs


def openmetrics(file):
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
    from prometheus_client.parser import text_string_to_metric_families as prometheus

    text = pathlib.Path(file).read_text()
    families = list(text_string_to_metric_families(text))
    seen = {f.name: [[sample.labels, sample.value] for sample in f.samples] for f in families}
    assert {family.type for family in families} == {"gauge"} and all(family.documentation for family in families)
    # node_exporter reads the older format.
    older = {f.name: [[sample.labels, sample.value] for sample in f.samples] for f in prometheus(text)}
    assert older == seen, (older, seen)
    return seen


def junit(file):
    import xml.etree.ElementTree as ET

    root = ET.parse(file).getroot()
    (suite,) = root.findall("testsuite")
    cases = []
    for case in suite.findall("testcase"):
        kinds = [child for child in case if child.tag != "properties"]
        properties = {p.get("name"): p.get("value") for p in case.find("properties")}
        results = [[child.tag, child.get("type"), child.get("message"), child.text] for child in kinds]
        cases.append({**case.attrib, "results": results, "properties": properties})
    return {"root": root.attrib, "suite": suite.attrib, "cases": cases}


def plain(value):
    """JSON has no numbers that are none."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


READERS = {f.__name__: f for f in [tables, trials, mlflow, tensorboard, wandb, openmetrics, junit]}

if __name__ == "__main__":
    print(json.dumps(plain(READERS[sys.argv[1]](*sys.argv[2:])), allow_nan=False))
