//! `expctl data` with arrays as a user runs it, and what it builds as Python reads it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::programs::interpreter;
use assert_cmd::assert::{Assert, OutputAssertExt};
use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

const SET: &str = "arrayloader";
const SMALL: [&str; 6] = ["--samples", "3001", "--scale", "0.05", "--files", "2"];
const FORMATS: [&str; 12] = [
    "h5ad_gzip",
    "h5ad_lzf",
    "h5ad_zstd",
    "h5ad_contiguous",
    "h5ad_dense",
    "h5ad_csc",
    "h5ad_shuffled",
    "parquet",
    "parquet_sparse",
    "mds",
    "mds_zstd",
    "zarr",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn expctl(data: &Path, args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("expctl").unwrap();
    command.env("EXPCTL_ROOT", root()).env("EXPCTL_DATA", data).arg("data").args(args);
    command
}

fn small(data: &Path, verb: &str) -> Command {
    let mut command = expctl(data, &[verb, SET]);
    command.args(SMALL);
    command
}

fn stdout(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

fn stderr(assert: &Assert) -> String {
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

fn build(data: &Path) -> PathBuf {
    PathBuf::from(stdout(&small(data, "build").assert().success()).trim_end())
}

fn in_python(folder: &Path) -> Value {
    let output = Command::new(interpreter())
        .arg(root().join("tests/python/read_arrays.py"))
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "read_arrays.py failed");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn all_formats_hold_what_was_built() {
    let data = tempfile::tempdir().unwrap();
    let folder = build(data.path());
    assert!(folder.ends_with("arrayloader/scale-0.05_samples-3001_seed-42_files-2"), "{}", folder.display());
    let to: Vec<&str> = FORMATS.iter().flat_map(|format| ["--to", format]).collect();
    let made = small(data.path(), "convert").args(&to).args(["--row-group", "512"]).assert().success();
    assert_eq!(stdout(&made).lines().count(), FORMATS.len());
    small(data.path(), "verify").assert().success().stdout("");

    let found = in_python(&folder);
    let info = small(data.path(), "info").arg("--json").assert().success();
    let info: Value = serde_json::from_str(&stdout(&info)).unwrap();
    for (key, value) in [("rows", 3001), ("genes", 1000)] {
        assert_eq!((&found[key], &info[key]), (&Value::from(value), &Value::from(value)));
    }
    assert_eq!((&found["nnz"], &found["sum"]), (&info["nnz"], &info["sum"]));
    let density = found["nnz"].as_f64().unwrap() / 3_001_000.0;
    // So few rows are of two of the eight donors, which differ in depth and in the frequency of their types.
    assert!((density / 0.0616 - 1.0).abs() < 0.4, "{density}");
    assert_eq!(found["columns"], serde_json::json!(["cell_type", "donor", "n_counts", "n_genes", "weight", "age"]));
    for class in info["obs"][0]["classes"].as_array().unwrap() {
        assert_eq!(found["classes"][class["name"].as_str().unwrap()], class["rows"]);
    }
    assert!(found["missing_ages"].as_u64() > Some(200));
    let filters = |format: &str| found["formats"][format]["filters"].as_object().unwrap().keys().next().cloned();
    assert_eq!(filters("h5ad_gzip").as_deref(), Some("gzip"));
    assert_eq!(filters("h5ad_lzf").as_deref(), Some("lzf"));
    assert_eq!(filters("h5ad_zstd").as_deref(), Some("32015"));
    assert_eq!((filters("h5ad_contiguous"), &found["formats"]["h5ad_contiguous"]["chunks"]), (None, &Value::Null));
    assert_eq!(found["formats"]["parquet"], 3);
    assert_eq!(found["shuffled"]["shards"], serde_json::json!([1501, 1500]));
    assert!(found["shuffled"]["correlation"].as_f64().unwrap().abs() < 0.1);

    let table = stdout(&small(data.path(), "info").assert().success());
    for word in FORMATS.iter().chain(&["cell_type", "nullable int64", "density", "generated"]) {
        assert!(table.contains(word), "{word} is not in\n{table}");
    }
    // With other options the files that are there are not those that are asked for.
    let other = small(data.path(), "convert").args(["--to", "parquet", "--row-group", "100"]).assert().code(6);
    assert!(stderr(&other).contains("was made with row groups of 512 rows"), "{}", stderr(&other));
}

#[test]
fn genes_and_parquet_files_are_as_many_as_are_asked_for() {
    let data = tempfile::tempdir().unwrap();
    let named = ["--samples", "60", "--genes", "300", "--files", "2"];
    let run = |verb: &str, more: &[&str]| expctl(data.path(), &[&[verb, SET][..], &named, more].concat()).assert();
    let folder = PathBuf::from(stdout(&run("build", &[]).success()).trim_end());
    assert!(folder.ends_with("arrayloader/genes-300_samples-60_seed-42_files-2"), "{}", folder.display());
    run("convert", &["--to", "parquet", "--file-count", "3"]).success();
    let files = std::fs::read_dir(folder.join("stores/parquet")).unwrap();
    let files = files.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|e| e == "parquet"));
    assert_eq!(files.count(), 3);
    let info: Value = serde_json::from_str(&stdout(&run("info", &["--json"]).success())).unwrap();
    assert_eq!((&info["genes"], &info["stores"][0]["file_count"]), (&Value::from(300), &Value::from(3)));
    let zarr = run("convert", &["--to", "zarr", "--file-count", "3"]).code(2);
    assert!(stderr(&zarr).contains("--file-count has no effect without --to parquet"), "{}", stderr(&zarr));
    expctl(data.path(), &["build", SET, "--genes", "300", "--scale", "0.5"]).assert().code(2);
    let graph = expctl(data.path(), &["build", "006-kuzmin-tmi", "--genes", "300"]).assert().code(3);
    assert!(stderr(&graph).contains("--genes applies to data sets of arrays"), "{}", stderr(&graph));
}

#[test]
fn damage_is_found_and_said() {
    let data = tempfile::tempdir().unwrap();
    let folder = build(data.path());
    small(data.path(), "convert").args(["--to", "h5ad_gzip"]).assert().success();
    for file in ["files/part-0001.h5ad", "stores/h5ad_gzip/part-0000.h5ad"] {
        let path = folder.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let found = small(data.path(), "verify").assert().code(6);
    let lines = stdout(&found);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.starts_with("files/part-0001.h5ad: checksum "), "{lines}");
    assert!(stderr(&found).contains("--to h5ad_gzip --samples 3001"), "{}", stderr(&found));
    std::fs::remove_file(folder.join("files/part-0000.h5ad")).unwrap();
    let missing = small(data.path(), "convert").args(["--to", "h5ad_lzf"]).assert().code(6);
    assert!(stderr(&missing).contains("part-0000.h5ad: is missing"), "{}", stderr(&missing));
}

#[test]
fn what_does_not_belong_is_refused() {
    let data = tempfile::tempdir().unwrap();
    for (args, code, says) in [
        (&["build", SET, "--networks", "real"][..], 3, "--networks applies to data sets of graphs"),
        (&["build", SET, "--labels", "planted"], 3, "--labels applies to data sets of graphs"),
        (&["build", "006-kuzmin-tmi", "--files", "2"], 3, "--files applies to data sets of arrays"),
        (&["build", SET, "--samples", "3", "--files", "4"], 3, "3 rows cannot be in 4 files"),
        (&["build", SET, "--samples", "3", "--scale", "0"], 3, "scale is a share of the genes"),
        (&["build", SET, "--samples", "100000000000"], 6, "are needed"),
        (&["convert", SET, "--to", "ids"], 3, "cannot be converted to ids"),
        (&["convert", SET, "--to", "h5ad"], 6, "has not been built"),
        (&["convert", "a.parquet", "--to", "h5ad"], 2, "--out"),
        (&["convert", "006-kuzmin-tmi", "--to", "parquet"], 3, "cannot be converted to parquet"),
        (&["convert", SET, "--to", "h5ad_gzip"], 6, "has not been built"),
        (&["convert", SET, "--to", "h5ad_gzip", "--row-group", "9"], 2, "--row-group has no effect"),
        (&["convert", "a.h5ad", "b.h5ad", "--to", "parquet"], 2, "--out"),
        (&["convert", "a.h5ad", "--to", "parquet", "--out", "o", "--samples", "3"], 2, "--samples says which data set"),
        (&["convert", "a.h5ad", "--to", "parquet", "--out", "o", "--seed", "3"], 2, "--seed has no effect"),
        (&["info", SET, "--samples", "7"], 6, "expctl data build arrayloader --samples 7 --scale 1 --seed 42"),
    ] {
        let refused = expctl(data.path(), args).current_dir(data.path()).assert().code(code);
        assert!(stderr(&refused).contains(says), "{args:?}: {}", stderr(&refused));
    }
}

/// Files of any origin: here those that AnnData wrote, of other types than expctl writes.
#[test]
fn files_of_a_user_are_converted_and_shuffled() {
    let folder = tempfile::tempdir().unwrap();
    let script = "
import anndata, numpy as np, pandas as pd, scipy.sparse as sp, sys
rng = np.random.default_rng(1)
for n, rows in enumerate([300, 200]):
    X = sp.random(rows, 40, 0.2, format='csr', random_state=n, dtype='f8')
    kind = pd.Categorical(rng.choice(['b', 'a'][: n + 1], rows), categories=['b', 'a'][: n + 1])
    obs = pd.DataFrame({'kind': kind, 'text': [f't{i}' for i in range(rows)], 'x': rng.random(rows), 'flag': rng.random(rows) < 0.5},
                       index=[f'{n}-{i}' for i in range(rows)])
    anndata.AnnData(X, obs=obs, obsm={'pca': rng.random((rows, 2))}).write_h5ad(f'{sys.argv[1]}/{n}.h5ad', compression='gzip')
";
    assert!(Command::new(interpreter()).args(["-c", script]).arg(folder.path()).status().unwrap().success());
    let convert = |args: &[&str]| {
        let mut command = expctl(folder.path(), &["convert", "0.h5ad", "1.h5ad"]);
        command.args(args).current_dir(folder.path());
        command
    };
    let made = convert(&["--to", "h5ad_zstd", "--out", "zstd"]).assert().success();
    assert_eq!(stdout(&made), "zstd/0.h5ad\nzstd/1.h5ad\n");
    let again = convert(&["--to", "h5ad_zstd", "--out", "zstd"]).assert().code(6);
    assert!(stderr(&again).contains("is there; it is not replaced"), "{}", stderr(&again));
    let shuffle = ["--out", "shuffled", "--shuffle", "--seed", "3", "--shard-rows", "120"];
    let made = convert(&["--to", "parquet"]).args(shuffle).assert().success();
    assert_eq!(stdout(&made).lines().count(), 5);
    let check = "
import anndata, glob, hdf5plugin, numpy as np, pyarrow.parquet as pq
base = [anndata.read_h5ad(f'{n}.h5ad') for n in range(2)]
for n, one in enumerate(base):
    other = anndata.read_h5ad(f'zstd/{n}.h5ad')
    assert (other.X != one.X.astype('f4')).nnz == 0 and other.obs.equals(one.obs)
    assert (other.obsm['pca'] == one.obsm['pca']).all()
base = anndata.concat(base)
tables = [pq.read_table(path) for path in sorted(glob.glob('shuffled/*.parquet'))]
assert [t.num_rows for t in tables] == [120, 120, 120, 120, 20]
X = np.concatenate([np.stack(t['X'].to_pandas().values) for t in tables])
x = np.concatenate([t['x'].to_numpy() for t in tables])
kind = np.concatenate([t['kind'].to_pandas().astype(str).values for t in tables])
order = [{v: i for i, v in enumerate(base.obs.x.values)}[v] for v in x]
assert sorted(order) == list(range(500)) and order != sorted(order)
assert (X == base.X.toarray()[order].astype('f4')).all() and (kind == base.obs.kind.astype(str).values[order]).all()
";
    let mut python = Command::new(interpreter());
    assert!(python.args(["-c", check]).current_dir(folder.path()).status().unwrap().success());
    // A file that is cut short is named, and nothing half-made is left.
    let bytes = std::fs::read(folder.path().join("1.h5ad")).unwrap();
    std::fs::write(folder.path().join("1.h5ad"), &bytes[..bytes.len() / 2]).unwrap();
    let cut = convert(&["--to", "h5ad_gzip", "--out", "cut"]).assert().code(6);
    assert!(stderr(&cut).contains("1.h5ad"), "{}", stderr(&cut));
    assert_eq!(std::fs::read_dir(folder.path().join("cut")).unwrap().count(), 0);
}

/// The archives of AnnData itself, back to its version 0.5.
#[test]
fn files_of_old_anndata_are_brought_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    let packed = root().join("tests/samples/anndata-archives/files.tar.gz");
    assert!(Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(folder.path()).status().unwrap().success());
    // Its archive of AnnData 0.5 is the real data set of this repository.
    let oldest = root().join("experiments/arrayloader/real/pbmc68k_reduced.h5ad");
    std::fs::copy(oldest, folder.path().join("v0.5.0.h5ad")).unwrap();
    let convert = |files: &[&str]| {
        let mut command = expctl(folder.path(), &["convert"]);
        command.args(files).args(["--to", "h5ad", "--out", "new"]).current_dir(folder.path());
        command
    };
    convert(&["v0.5.0.h5ad", "v0.7.0.h5ad", "v0.7.8.h5ad"]).assert().success();
    let empty = convert(&["v0.11.4.h5ad"]).assert().code(6);
    assert!(stderr(&empty).contains("v0.11.4.h5ad: has no matrix X"), "{}", stderr(&empty));
    let compare = "
import anndata, numpy as np, scipy.sparse as sp
dense = lambda x: x.toarray() if sp.issparse(x) else np.asarray(x)
for name in ['v0.5.0', 'v0.7.0', 'v0.7.8']:
    old, new = anndata.read_h5ad(f'{name}.h5ad'), anndata.read_h5ad(f'new/{name}.h5ad')
    assert old.shape == new.shape and (dense(old.X).astype('f4') == dense(new.X)).all()
    assert (old.obs_names == new.obs_names).all() and (old.var_names == new.var_names).all()
    assert list(old.obs) == list(new.obs) and len(old.obs.columns) > 2
    for column in old.obs:
        assert (old.obs[column].astype(str) == new.obs[column].astype(str)).all(), column
        assert (old.obs[column].dtype == 'category') == (new.obs[column].dtype == 'category'), column
";
    let mut python = Command::new(interpreter());
    python.args(["-W", "ignore", "-c", compare]).current_dir(folder.path());
    assert!(python.status().unwrap().success());
}

/// `data convert` of matrices that other programs wrote, which `script` makes `X` of files of AnnData; returns how many there are, how many of
/// those that are converted are as h5py or zarr-python read them, and the refusals.
fn convert_grafted(sample: &str, script: &str) -> (usize, usize, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["files", "old"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let packed = root().join("tests/samples").join(sample).join("files.tar.gz");
    let files = folder.path().join("files");
    assert!(Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(&files).status().unwrap().success());
    let graft = |args: &[&str]| {
        let mut python = Command::new(interpreter());
        python.args(["-W", "ignore"]).arg(root().join("tests/python").join(script)).args(args);
        let output = python.current_dir(folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    graft(&["files", "old"]);
    let made = std::fs::read_dir(folder.path().join("old")).unwrap();
    let mut made: Vec<String> = made.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    made.sort();
    let mut refused = Vec::new();
    for name in &made {
        let mut command = expctl(folder.path(), &["convert"]);
        let file = format!("old/{name}");
        let output = command.args([&file, "--to", "h5ad", "--out", "new"]).current_dir(folder.path()).output().unwrap();
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(6), "{name}");
            let said = String::from_utf8(output.stderr).unwrap();
            refused.extend(said.lines().filter_map(|line| line.strip_prefix("error: old/")).map(str::to_owned));
        }
    }
    (made.len(), graft(&["--compare", "old", "new"]).trim().parse().unwrap(), refused)
}

/// Matrices in HDF5 files that other programs wrote, with every kind of chunk index, are those that h5py reads.
#[test]
fn every_storage_layout_of_hdf5_is_read() {
    let (made, equal, refused) = convert_grafted("jhdf", "graft_hdf5.py");
    // Bit fields are no numbers.
    assert_eq!(refused, ["bitfield_datasets.0.h5ad: X: holds no numbers"]);
    assert_eq!((made, equal), (109, 108));
}

#[test]
fn zarr_arrays_of_others_are_read_or_refused_with_the_reason() {
    let (made, equal, refused) = convert_grafted("zarrs", "graft_zarr.py");
    assert_eq!((made, equal), (36, 17));
    insta::assert_snapshot!(refused.join("\n"));
}

/// Annotations of an old file are read and written before the first row: with many rows that takes long.
#[test]
fn a_conversion_says_how_far_the_annotations_are() {
    let folder = tempfile::tempdir().unwrap();
    let (old, out) = (root().join("experiments/arrayloader/real/pbmc68k_reduced.h5ad"), folder.path().join("out"));
    let convert = expctl(folder.path(), &["convert"]).arg(old).args(["--to", "h5ad_zstd", "--out"]).arg(out).assert();
    let said = stderr(&convert.success());
    let line = |line: &str| said.find(line).unwrap_or_else(|| panic!("{line}: {said}"));
    assert!(said.starts_with("columns: 0 of 9\n"), "{said}");
    assert!(line("columns: 9 of 9\n") < line("annotations: 0 of 700\n"), "{said}");
    assert!(line("annotations: 700 of 700\n") < line("rows: "), "{said}");
}
