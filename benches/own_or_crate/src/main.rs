//! Compares code of our own with the crate that could take its place: the same work on the same files, in turn, each side in
//! separate processes. README.md says what is compared and how to read the table.

// `harness` runs the cases; the other modules have the cases of a question each.
mod alias;
mod chart;
mod files;
mod harness;
mod lmdb;
mod ours;
mod parquet;
mod process;
mod random;
mod work;
mod zarr;

// What is measured and is not public outside its crate, from the very same files.
#[allow(dead_code, unused_imports)]
#[path = "../../../crates/cell-loader/src/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../../../crates/host-metrics/src/process.rs"]
mod metrics;
#[allow(dead_code)]
#[path = "../../../crates/cell-loader/src/permutation.rs"]
mod permutation;
#[allow(dead_code)]
#[path = "../../../crates/cell-loader/src/weighted.rs"]
mod weighted;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::harness::{
    Case, Context, HEAD, Outcome, Plan, SUMMARY_HEAD, lines_of_code, run_case, run_child, rust_files,
};

/// Folder of the files within the folder for temporary files; they are used again.
const FOLDER: &str = "own_or_crate_files";

const USAGE: &str =
    "own_or_crate [--n PROCESSES] [--seconds EACH] [--scale SHARE] [--only QUESTION,…] [--quick] [--folder FOLDER]";

fn main() -> ExitCode {
    match run(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("own_or_crate: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn cases() -> Vec<Case> {
    let all = [parquet::cases(), zarr::cases(), lmdb::cases(), process::cases(), alias::cases(), random::cases()];
    all.into_iter().flatten().chain(chart::cases()).collect()
}

fn run(arguments: &[String]) -> Outcome<()> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["--child", question, name, side, seconds, scale, folder] => {
            let cases = cases();
            let case =
                cases.iter().find(|case| case.question == question && case.name == name).ok_or("no such case")?;
            let side = case.sides.iter().find(|known| known.name == side).ok_or("no such side")?;
            let context = Context { folder: PathBuf::from(folder), scale: scale.parse()? };
            println!("{}", run_child(case, side, &context, seconds.parse()?)?);
            Ok(())
        }
        ["--idle"] => process::idle(),
        ref options => compare(options),
    }
}

fn compare(options: &[&str]) -> Outcome<()> {
    let (mut n, mut seconds, mut scale, mut only) = (7, 0.25, 1.0, Vec::new());
    let mut folder = std::env::temp_dir().join(FOLDER);
    let mut options = options.iter().copied();
    while let Some(option) = options.next() {
        let mut value = || options.next().ok_or_else(|| format!("{option} needs a value\n{USAGE}"));
        match option {
            "--quick" => (n, seconds, scale) = (3, 0.1, 0.2),
            "--n" => n = value()?.parse()?,
            "--seconds" => seconds = value()?.parse()?,
            "--scale" => scale = value()?.parse()?,
            "--only" => only = value()?.split(',').map(str::to_owned).collect(),
            "--folder" => folder = PathBuf::from(value()?),
            _ => return Err(USAGE.into()),
        }
    }
    // Files of another scale are other files.
    let folder = folder.join(format!("scale-{scale}"));
    std::fs::create_dir_all(&folder)?;
    let plan = Plan { n, seconds, context: Context { folder, scale } };
    let begin = Instant::now();
    crate::files::build(&plan.context)?;
    eprintln!("files in {} after {:.0} s", plan.context.folder.display(), begin.elapsed().as_secs_f64());
    println!("{n} processes a side in turn, {seconds} s each, files at scale {scale}\n\n{HEAD}");
    let mut summary = Vec::new();
    for case in cases().iter().filter(|case| only.is_empty() || only.iter().any(|only| only == case.question)) {
        let compared = run_case(case, &plan)?;
        compared.iter().for_each(|compared| println!("{}", compared.line));
        let fastest = compared.into_iter().max_by(|a, b| a.rate.total_cmp(&b.rate));
        summary.extend(fastest.map(|fastest| fastest.summary));
    }
    println!("\n{SUMMARY_HEAD}\n{}", summary.join("\n"));
    if only.is_empty() {
        println!("\n{}", lines()?);
    }
    eprintln!("done after {:.0} s", begin.elapsed().as_secs_f64());
    Ok(())
}

/// Lines of our code that each crate would replace, at most.
fn lines() -> Outcome<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates");
    let mut table = "| ours | lines of code (no tests, comments, empty lines) |\n|---|---|\n".to_owned();
    let mut add = |name: &str, folder: &str, accept: &dyn Fn(&str) -> bool| -> Outcome<()> {
        let lines = lines_of_code(&rust_files(&crates.join(folder), accept)?)?;
        table += &format!("| {name} | {lines} |\n");
        Ok(())
    };
    let page = ["decode", "levels", "page", "page_directory", "page_header", "reader", "values"];
    add("parquet: pages, levels, values", "anndata-io/src/parquet", &|name| page.contains(&name))?;
    add("zarr: reading", "anndata-io/src/zarr", &|name| !name.contains("writer"))?;
    add("chunks of arrays (HDF5 needs them, too)", "anndata-io/src/matrix", &|name| {
        ["array_reader", "stored_array", "dtype"].contains(&name)
    })?;
    add("LMDB: reading", "graph-loader/src", &|name| ["lmdb", "lmdb_tree"].contains(&name))?;
    add("/proc", "host-metrics/src", &|name| name == "process")?;
    add("control groups", "host-metrics/src", &|name| name == "control_group")?;
    add("alias table, with the table of classes", "cell-loader/src", &|name| name == "weighted")?;
    add("random stream, with the permutation", "cell-loader/src", &|name| name == "permutation")?;
    add("charts", "charts/src", &|_| true)?;
    Ok(table)
}
