//! `expctl data info`: what a built data set and its stores hold.

use expctl_pipeline::dataset::{self, Dataset, Manifest, StoreManifest};
use expctl_record::StoreKind;
use indicatif::{HumanBytes, HumanCount};
use serde_json::json;

use super::data::{Set, failure, known};
use super::out;
use crate::exit::Failure;
use crate::project::Project;
use crate::report::Table;

/// Print it, as tables or as one JSON object: the manifest, and `stores` with each store.
pub(super) fn info(project: &Project, set: &Set, json: bool) -> Result<(), Failure> {
    let data = known(project, set)?;
    let folder = project.data_dir(&data);
    let dataset = Dataset::open(&folder).map_err(|e| failure(&e))?;
    let manifest = dataset.manifest();
    let stores = stores(&dataset)?;
    if json {
        let mut whole = serde_json::to_value(manifest).map_err(Failure::internal)?;
        whole["stores"] = stores.iter().map(Store::json).collect();
        out(serde_json::to_string_pretty(&whole).map_err(Failure::internal)?);
        return Ok(());
    }
    out(format_args!("{}\n{}\n", manifest.title, folder.display()));
    out(network_table(manifest).markdown());
    out("\nEdges count each undirected edge once and one self-loop per gene.\n");
    out(facts_table(manifest).markdown());
    out("");
    out(store_table(&stores).markdown());
    Ok(())
}

/// What there is to say about any store.
struct Store {
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

impl Store {
    fn new(kind: StoreKind, store: &dataset::StoreInfo, file: &dataset::FileInfo, base: u64, seconds: f64) -> Self {
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

/// The base store and those that were made from it.
fn stores(dataset: &Dataset) -> Result<Vec<Store>, Failure> {
    let manifest = dataset.manifest();
    let Some(file) = manifest.files.iter().find(|file| file.path.ends_with("data.mdb")) else {
        return Ok(Vec::new());
    };
    let base = file.bytes;
    let mut stores = vec![Store::new(StoreKind::Json, &manifest.store, file, base, manifest.build_seconds)];
    for kind in StoreKind::ALL.into_iter().filter(|kind| *kind != StoreKind::Json) {
        let converted = dataset.converted(kind).map_err(|e| failure(&e))?;
        stores.extend(converted.map(|StoreManifest { store, file, build_seconds, .. }| {
            Store::new(kind, &store, &file, base, build_seconds)
        }));
    }
    Ok(stores)
}

fn store_table(stores: &[Store]) -> Table {
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
    let sum = |of: fn(&dataset::NetworkInfo) -> u64| manifest.networks.iter().map(of).sum();
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
    row("label mean", format!("{:.6}", samples.label_mean));
    row("label sd (population)", format!("{:.6}", samples.label_sd));
    row("label min, max", format!("{:.6}, {:.6}", samples.label_min, samples.label_max));
    row("bytes, apparent", format!("{} ({})", HumanCount(manifest.bytes()), HumanBytes(manifest.bytes())));
    let allocated = manifest.allocated_bytes();
    row("bytes, allocated when built", format!("{} ({})", HumanCount(allocated), HumanBytes(allocated)));
    row("JSON bytes per sample", format!("{:.1}", per_sample(store.value_bytes)));
    row("store bytes per sample", format!("{:.1}", per_sample(store_file.map_or(0, |file| file.bytes))));
    let resumed = match manifest.resumed_at {
        0 => String::new(),
        n => format!(" (last run only; {} samples were there)", HumanCount(n)),
    };
    row("build time", format!("{:.1} s{resumed}", manifest.build_seconds));
    table
}
