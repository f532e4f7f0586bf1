//! `expctl data info`: what a built data set and its stores hold.

use std::path::Path;

use expctl_datasets::array::{ArrayDataset, ArrayManifest, ArrayStoreManifest};
use expctl_datasets::graph::{Dataset, Manifest, StoreManifest};
use expctl_datasets::{DatasetError, graph};
use expctl_settings::{ArrayFormat, Data, LabelSource, StoreKind};
use expctl_text::Table;
use expctl_text::format::{self, MISSING};
use indicatif::HumanCount;
use serde_json::json;

use super::build::open_failure;
use crate::console::{out, out_json};
use crate::data::{DataState, store_state};
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Print a graph data set, as tables or as one JSON object: the manifest, and `stores` with each store.
pub fn print_graph(project: &Project, data: &Data, json: bool) -> Result<(), Failure> {
    let folder = project.data_dir(data);
    let dataset = Dataset::open(&folder).map_err(|e| open_failure(project, data, &e))?;
    let manifest = dataset.manifest();
    let (stores, refused) = stores(&dataset);
    if json {
        let mut whole = serde_json::to_value(manifest).map_err(Failure::internal)?;
        let refused_in_json = refused.iter().map(|(kind, why)| json!({ "kind": kind, "refused": why.to_string() }));
        whole["stores"] = stores.iter().map(StoreRow::json).chain(refused_in_json).collect();
        out_json(&whole)?;
        return verdict(&folder, &refused);
    }
    out(format_args!("{}\n{}\n", manifest.title, folder.display()));
    out(network_table(manifest).markdown());
    out("\nEdges count each undirected edge once and one self-loop per gene.\n");
    out(facts_table(manifest).markdown());
    out("");
    out(store_table(&stores, &refused).markdown());
    verdict(&folder, &refused)
}

/// An existing store that cannot be read, with the reason.
type UnusableStore = (StoreKind, DatasetError);

/// Exit 6 if a store cannot be used.
fn verdict(folder: &Path, refused: &[UnusableStore]) -> Result<(), Failure> {
    if refused.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = refused.iter().map(|(kind, _)| kind.name()).collect();
    let found =
        Failure::new(Exit::Incomplete, format_args!("{}: cannot be used: {}", folder.display(), names.join(", ")));
    Err(refused.iter().filter_map(|(_, why)| why.advice()).fold(found, Failure::hint))
}

/// Figures of a store.
struct StoreRow {
    kind: StoreKind,
    records: u64,
    bytes: u64,
    allocated_bytes: u64,
    value_bytes: u64,
    /// Apparent size as a multiple of the base store's.
    ratio: f64,
    seconds: f64,
    content_blake3: String,
}

impl StoreRow {
    fn new(
        kind: StoreKind,
        store: &graph::StoreInfo,
        file: &expctl_datasets::FileInfo,
        base: u64,
        seconds: f64,
    ) -> Self {
        Self {
            kind,
            records: store.records,
            bytes: file.bytes,
            allocated_bytes: file.allocated_bytes,
            value_bytes: store.value_bytes,
            ratio: file.bytes as f64 / base.max(1) as f64,
            seconds,
            content_blake3: store.content_blake3.clone(),
        }
    }

    fn bytes_per_sample(&self) -> f64 {
        self.bytes as f64 / self.records.max(1) as f64
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "kind": self.kind,
            "records": self.records,
            "bytes": self.bytes,
            "allocated_bytes": self.allocated_bytes,
            "value_bytes": self.value_bytes,
            "bytes_per_sample": self.bytes_per_sample(),
            "ratio_to_base": self.ratio,
            "build_seconds": self.seconds,
            "content_blake3": self.content_blake3,
        })
    }
}

/// The base store and those that were made from it, and the ones that cannot be used.
fn stores(dataset: &Dataset) -> (Vec<StoreRow>, Vec<UnusableStore>) {
    let manifest = dataset.manifest();
    let base = manifest.files.iter().find(|file| file.path.ends_with("data.mdb"));
    let bytes = base.map_or(0, |file| file.bytes);
    let of_base = base.map(|file| StoreRow::new(StoreKind::Json, &manifest.store, file, bytes, manifest.build_seconds));
    let (mut stores, mut refused) = (Vec::from_iter(of_base), Vec::new());
    for kind in StoreKind::ALL.into_iter().filter(|kind| *kind != StoreKind::Json) {
        match store_state(dataset, kind) {
            DataState::There(StoreManifest { store, file, build_seconds, .. }) => {
                stores.push(StoreRow::new(kind, &store, &file, bytes, build_seconds));
            }
            DataState::Missing => {}
            DataState::Refused(why) => refused.push((kind, why)),
        }
    }
    (stores, refused)
}

fn store_table(stores: &[StoreRow], refused: &[UnusableStore]) -> Table {
    let columns =
        ["Store", "Records", "Bytes, apparent", "Bytes, allocated", "Bytes per sample", "× base", "Build time"];
    let mut table = Table::new(columns).right(1..7);
    for store in stores {
        table.row([
            store.kind.name().to_owned(),
            HumanCount(store.records).to_string(),
            HumanCount(store.bytes).to_string(),
            HumanCount(store.allocated_bytes).to_string(),
            format!("{:.1}", store.bytes_per_sample()),
            format!("{:.3}", store.ratio),
            format!("{:.1} s", store.seconds),
        ]);
    }
    for (kind, why) in refused {
        let reason = match why.cause() {
            DatasetError::Damaged { damage, .. } => damage.to_string(),
            other => other.to_string(),
        };
        let mut row = vec![kind.name().to_owned(), format!("cannot be used: {reason}")];
        row.resize(columns.len(), MISSING.to_owned());
        table.row(row);
    }
    table
}

fn network_table(manifest: &Manifest) -> Table {
    let mut table = Table::new(["Network", "Edges", "Real", "Generated", "Self-loops", "Class"]).right(1..5);
    let count = |n: u64| HumanCount(n).to_string();
    let mut row = |name: &str, edges, real, generated, loops, class: &str| {
        table.row([name.to_owned(), count(edges), count(real), count(generated), count(loops), class.to_owned()]);
    };
    for n in &manifest.networks {
        row(&n.name, n.edges, n.real, n.generated, n.self_loops, n.class.name());
    }
    let sum = |of: fn(&graph::NetworkInfo) -> u64| manifest.networks.iter().map(of).sum();
    row("all", manifest.num_edges(), sum(|n| n.real), sum(|n| n.generated), sum(|n| n.self_loops), "");
    for (name, edges) in
        [("gpr (gene→reaction)", manifest.bipartite.gpr), ("rmr (reaction→metabolite)", manifest.bipartite.rmr)]
    {
        row(name, edges, 0, edges, 0, manifest.bipartite.class.name());
    }
    table
}

fn facts_table(manifest: &Manifest) -> Table {
    let (genes, samples, store) = (&manifest.genes, &manifest.samples, &manifest.store);
    let mut table = Table::new(["What", "Value"]);
    let mut row = |what: &str, value: String| {
        table.row([what.to_owned(), value]);
    };
    let per_sample = |bytes: u64| bytes as f64 / samples.count.max(1) as f64;
    let store_file = manifest.files.iter().find(|file| file.path.ends_with("data.mdb"));
    row(
        "genes",
        format!("{} ({} real + {} generated)", HumanCount(genes.count), HumanCount(genes.real), genes.generated),
    );
    row(
        "samples",
        format!("{} of {} genes, {}", HumanCount(samples.count), samples.genes_per_sample, samples.class.name()),
    );
    row("labels", labels_words(manifest.data.labels).to_owned());
    row("label mean", format!("{:.6}", samples.label_mean));
    row("label sd (population)", format!("{:.6}", samples.label_sd));
    row("label min, max", format!("{:.6}, {:.6}", samples.label_min, samples.label_max));
    row("bytes, apparent", format!("{} ({})", HumanCount(manifest.bytes()), format::bytes(manifest.bytes() as f64)));
    let allocated = manifest.allocated_bytes();
    row("bytes, allocated when built", format!("{} ({})", HumanCount(allocated), format::bytes(allocated as f64)));
    row("JSON bytes per sample", format!("{:.1}", per_sample(store.value_bytes)));
    row("store bytes per sample", format!("{:.1}", per_sample(store_file.map_or(0, |file| file.bytes))));
    let resumed = match manifest.resumed_at {
        0 => String::new(),
        n => format!(" (last run only; {} samples were there)", HumanCount(n)),
    };
    row("build time", format!("{:.1} s{resumed}", manifest.build_seconds));
    table
}

fn labels_words(labels: LabelSource) -> &'static str {
    match labels {
        LabelSource::Random => "random: nothing can be learned from them",
        LabelSource::Planted => "planted: the product of a strength of each gene, and noise",
    }
}

/// Print an array data set, as tables or as one JSON object: the manifest, and `stores` with each format.
pub fn print_array(project: &Project, data: &Data, json: bool) -> Result<(), Failure> {
    let folder = project.data_dir(data);
    let dataset = ArrayDataset::open(&folder).map_err(|e| open_failure(project, data, &e.advise(&folder, data)))?;
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
        out_json(&whole)?;
    } else {
        out(format_args!("{}\n{}\n", manifest.title, folder.display()));
        out(array_facts(manifest).markdown());
        out("");
        out(obs_columns(manifest).markdown());
        out("");
        let mut table = array_stores(manifest, &stores);
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

fn array_facts(manifest: &ArrayManifest) -> Table {
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

fn obs_columns(manifest: &ArrayManifest) -> Table {
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

fn array_stores(manifest: &ArrayManifest, stores: &[ArrayStoreManifest]) -> Table {
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
