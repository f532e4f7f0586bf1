use expctl_pipeline::array::dataset::{ArrayDataset, ArrayManifest, ArrayStoreManifest};
use expctl_record::{ArrayFormat, Data};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use indicatif::HumanCount;
use serde_json::json;

use super::data::failure;
use super::out;
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Print what an array data set holds, as tables or as one JSON object: the manifest, and `stores` with each format.
pub(super) fn info(project: &Project, data: &Data, json: bool) -> Result<(), Failure> {
    let folder = project.data_dir(data);
    let dataset = ArrayDataset::open(&folder).map_err(|e| failure(&e.advise(&folder, data)))?;
    let manifest = dataset.manifest();
    let mut refused = Vec::new();
    let mut stores = Vec::new();
    for format in ArrayFormat::ALL.into_iter().filter(|format| *format != ArrayFormat::H5ad) {
        match dataset.converted(format) {
            Ok(found) => stores.extend(found),
            Err(e) => refused.push((format, e)),
        }
    }
    if json {
        let mut whole = serde_json::to_value(manifest).map_err(Failure::internal)?;
        let found = stores.iter().map(|store| serde_json::to_value(store).map_err(Failure::internal));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        let not = refused.iter().map(|(format, why)| json!({ "format": format, "refused": why.to_string() }));
        whole["stores"] = found.into_iter().chain(not).collect();
        out(serde_json::to_string_pretty(&whole).map_err(Failure::internal)?);
    } else {
        out(format_args!("{}\n{}\n", manifest.title, folder.display()));
        out(facts(manifest).markdown());
        out("");
        out(columns(manifest).markdown());
        out("");
        let mut table = formats(manifest, &stores);
        for (format, why) in &refused {
            let cells = [format.name().to_owned(), format!("cannot be used: {}", why.cause())];
            table.row(cells.into_iter().chain(std::iter::repeat_n(MISSING.to_owned(), 4)));
        }
        out(table.markdown());
    }
    if refused.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = refused.iter().map(|(format, _)| format.name()).collect();
    let found =
        Failure::new(Exit::Incomplete, format_args!("{}: cannot be used: {}", folder.display(), names.join(", ")));
    Err(refused.iter().filter_map(|(_, why)| why.advice()).fold(found, Failure::hint))
}

fn facts(manifest: &ArrayManifest) -> Table {
    let mut table = Table::new(["What", "Value"]);
    let values = (manifest.rows as f64 * manifest.genes as f64).max(1.0);
    let rows = manifest.rows.max(1) as f64;
    let resumed = match manifest.resumed_files {
        0 => String::new(),
        n => format!(" (last run only; {} were there)", format::count(n, "file")),
    };
    for (what, value) in [
        ("rows", format!("{}, {}", HumanCount(manifest.rows), manifest.class.name())),
        ("genes", HumanCount(manifest.genes).to_string()),
        ("values that are not 0", HumanCount(manifest.nnz).to_string()),
        ("density", format!("{:.4}", manifest.nnz as f64 / values)),
        ("values per row", format!("{:.1}", manifest.nnz as f64 / rows)),
        ("sum of a row, mean", format!("{:.1}", manifest.sum / rows)),
        ("files", manifest.files.len().to_string()),
        ("build time", format!("{:.1} s{resumed}", manifest.build_seconds)),
    ] {
        table.row([what.to_owned(), value]);
    }
    table
}

fn columns(manifest: &ArrayManifest) -> Table {
    let mut table =
        Table::new(["Column of obs", "Kind", "Classes", "Rows of the largest", "Rows of the smallest"]).right(2..5);
    for column in &manifest.obs {
        let rows = || column.classes.iter().map(|class| class.rows);
        let shown = |rows: Option<u64>| rows.map_or_else(|| MISSING.to_owned(), |rows| HumanCount(rows).to_string());
        let classes = (!column.classes.is_empty()).then_some(column.classes.len() as u64);
        table.row([column.name.clone(), column.kind.clone(), shown(classes), shown(rows().max()), shown(rows().min())]);
    }
    table
}

fn formats(manifest: &ArrayManifest, stores: &[ArrayStoreManifest]) -> Table {
    let mut table = Table::new(["Format", "Files", "Bytes", "Bytes per row", "× base", "Build time"]).right(1..6);
    let base = manifest.bytes().max(1) as f64;
    let mut row = |format: ArrayFormat, files: usize, bytes: u64, seconds: f64| {
        table.row([
            format.name().to_owned(),
            files.to_string(),
            HumanCount(bytes).to_string(),
            format!("{:.1}", bytes as f64 / manifest.rows.max(1) as f64),
            format!("{:.3}", bytes as f64 / base),
            format!("{seconds:.1} s"),
        ]);
    };
    row(ArrayFormat::H5ad, manifest.files.len(), manifest.bytes(), manifest.build_seconds);
    for store in stores {
        row(store.format, store.files.len(), store.bytes(), store.build_seconds);
    }
    table
}
