//! The files of apache/parquet-testing: `check` refuses each with the reason, or its matrix is the one that pyarrow reads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anndata_io::{ArrayStore, DenseRows, Form, ParquetStore, RowSelection, Rows};
use serde_json::Value;

use crate::common::programs::interpreter;
use crate::common::{TestProject, text};

/// Unpacks the files into `folder`; their paths there.
fn unpack(folder: &Path) -> Vec<PathBuf> {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/parquet-testing/files.tar.gz");
    let status = Command::new("tar").arg("-xzf").arg(packed).arg("-C").arg(folder).status().unwrap();
    assert!(status.success());
    let mut files = Vec::new();
    for part in ["bad_data", "data", "data/geospatial", "shredded_variant"] {
        let all =
            std::fs::read_dir(folder.join(part)).unwrap().map(|entry| Path::new(part).join(entry.unwrap().file_name()));
        files.extend(all.filter(|path| path.extension().is_some_and(|extension| extension == "parquet")));
    }
    files.sort();
    files
}

/// What `check` says of a config with this file: nothing, or why it is refused.
fn check(project: &TestProject, file: &Path) -> Result<(), String> {
    let conf = format!(
        "[experiment]\nstudy = \"arrayloader\"\ntitle = \"Files of others\"\n[array]\nformat = \"parquet\"\nfiles = [\"{}\"]\n\
         [loader]\nbatch_size = 1\n[train]\nmode = \"data\"\n[measure]\nwarmup = 0\nsteps = 1\n[variant.a]\nsampler.draw = \"uniform\"\n",
        file.display()
    );
    project.conf("c", &conf);
    let output = project.run(&["check", "conf/c.toml"]);
    let said = text(&output.stderr);
    match output.status.code() {
        Some(0) => Ok(()),
        Some(3) => {
            let line = said.lines().find(|line| line.contains("array.files")).unwrap_or_else(|| panic!("{said}"));
            let reason = line.rsplit_once(&format!("{}: ", file.display())).map_or(line, |(_, reason)| reason);
            Err(reason.trim().to_owned())
        }
        code => panic!("{}: {code:?} {said}", file.display()),
    }
}

/// All values of the matrix in order, as bits, and the genes.
fn matrix(path: &Path) -> (Vec<u32>, Vec<String>) {
    let store = ParquetStore::open(path).unwrap();
    assert_eq!(store.form(), Form::Dense, "{}", path.display());
    let mut rows = Rows::Dense(DenseRows::default());
    let mut reader = store.reader().unwrap();
    reader.fetch(&RowSelection::Range(0..store.len()), &mut rows).unwrap();
    reader.decode(&mut rows).unwrap_or_else(|e| panic!("accepted by check: {e}"));
    let Rows::Dense(rows) = rows else { unreachable!() };
    (rows.data.iter().map(|value| value.to_bits()).collect(), store.genes().to_vec())
}

/// The matrix in the columns that pyarrow read.
fn matrix_of_columns(columns: &Value, genes: &[String]) -> Vec<u32> {
    let values = |column: &Value| -> Vec<u32> {
        let values = column.as_array().unwrap_or_else(|| panic!("missing values: {columns}"));
        values.iter().map(|bits| bits.as_u64().unwrap() as u32).collect()
    };
    let by_gene: Option<Vec<Vec<u32>>> = genes.iter().map(|gene| Some(values(columns["flat"].get(gene)?))).collect();
    if let Some(by_gene) = by_gene {
        return (0..by_gene[0].len()).flat_map(|row| by_gene.iter().map(move |column| column[row])).collect();
    }
    let lists: Vec<&Value> = columns["lists"].as_object().unwrap().values().collect();
    assert_eq!(lists.len(), 1, "{columns}");
    values(lists[0])
}

#[test]
fn each_file_is_refused_by_check_or_read_as_pyarrow_reads_it() {
    let project = TestProject::new();
    let files = unpack(project.path());
    assert_eq!(files.len(), 220);
    let mut reasons = BTreeMap::<String, Vec<String>>::new();
    let mut accepted = Vec::new();
    for file in &files {
        match check(&project, file) {
            Ok(()) => accepted.push(file),
            Err(reason) => reasons.entry(reason).or_default().push(file.display().to_string()),
        }
    }
    let output = Command::new(interpreter())
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/read_parquet_columns.py"))
        .args(&accepted)
        .current_dir(project.path())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let in_python: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut summary = format!("{} files are read as pyarrow reads them:\n", accepted.len());
    for file in &accepted {
        let (found, genes) = matrix(&project.path().join(file));
        let columns = &in_python[file.to_str().unwrap()];
        assert!(columns.is_object(), "{}: {columns}", file.display());
        assert!(found == matrix_of_columns(columns, &genes), "{} differs", file.display());
        // There are 137 of these, each with one numeric column and few rows.
        if !file.starts_with("shredded_variant") {
            summary += &format!("    {}: {} × {}\n", file.display(), found.len() / genes.len(), genes.len());
        }
    }
    for (reason, files) in reasons {
        summary += &format!("refused: {reason}\n");
        let shown = if files.len() > 8 { vec![format!("{} files", files.len())] } else { files };
        shown.iter().for_each(|file| summary += &format!("    {file}\n"));
    }
    insta::assert_snapshot!(summary);
}
