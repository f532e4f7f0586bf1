//! `build` makes a data set of a graph: genes, networks, metabolism, samples with labels, and the base store, an LMDB file with a JSON record for
//! each sample.
//! Invariant: a build that was stopped is continued, and ends with the same records.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use expctl_settings::{Advice, Data, LabelSource};
use graph_loader::{LmdbStore, LmdbWriter, text_order};

use crate::build_folder::{
    BuildFolder, BuildProgress, DATA_FILE, GENES_FILE, Report, STORE_FOLDER, checksums, existing, report, room,
};
use crate::graph::graph_file::GRAPH_FILE;
use crate::graph::manifest::{BipartiteInfo, GeneCounts, Manifest, NetworkInfo, SCHEMA, SampleInfo, StoreInfo};
use crate::graph::networks::{GeneNames, GeneratedMetabolism};
use crate::graph::recipe::Recipe;
use crate::graph::samples::{GENES_PER_SAMPLE, SAMPLES_FILE, SampleGenes, SampleLabels, Triples, statistics};
use crate::graph::{graph_file, networks, samples};
use crate::manifest::DataOrigin;
use crate::{Damage, DatasetError};

/// Records that are written in one transaction.
const BATCH: usize = 1000;
/// LMDB's page.
const PAGE: u64 = 4096;

/// Build a data set in `folder`, or return its manifest at once if it is there.
///
/// A build that was stopped (`Break`, which gives [`DatasetError::Stopped`], or a killed process) leaves
/// `<folder>.partial`; the next one goes on with it and ends with the same records. `folder` itself appears only when
/// all is complete.
pub fn build(
    recipe: &Recipe,
    data: &Data,
    folder: &Path,
    progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
) -> Result<Manifest, DatasetError> {
    let started = Instant::now();
    recipe.check(data)?;
    let digest = recipe.digest(data)?;
    if let Some(manifest) = existing(folder, Manifest::load(folder), |manifest| manifest.recipe_blake3 == digest)? {
        return Ok(manifest);
    }
    let genes = GeneNames::new(recipe, data.seed, data.scale)?;
    let triples = Triples::new(&genes, recipe.samples.count, data.seed, data.scale);
    triples.check(data.samples, data.scale)?;
    let template = RecordTemplate::load(&recipe.folder.join(&recipe.samples.record))?;
    let labels = labels(recipe, data, &genes, &triples);
    let records = Records { genes: &genes, triples: &triples, labels: &labels, template: &template };

    let partial = BuildFolder::open(folder)?;
    if let Some(manifest) = existing(folder, Manifest::load(folder), |manifest| manifest.recipe_blake3 == digest)? {
        partial.discard()?;
        return Ok(manifest);
    }
    partial.prepare(&digest)?;
    let share = genes.len() as f64 / recipe.genes as f64;
    let store_bytes = records.store_bytes(data.samples);
    let graph_bytes = (recipe.network.iter().map(|n| n.edges).sum::<u64>() as f64 * share * share * 16.0) as u64;
    room_for(partial.path(), store_bytes + graph_bytes)?;

    report(progress, "graph", 0, 1)?;
    let networks = networks::build_all(recipe, data, &genes)?;
    let metabolism = GeneratedMetabolism::new(&recipe.bipartite, genes.len(), share, data.seed, data.scale);
    graph_file::write(&partial.path().join(GRAPH_FILE), &networks, &metabolism)?;
    let names = partial.path().join(GENES_FILE);
    std::fs::write(&names, genes.names.join("\n") + "\n").map_err(DatasetError::io("write", &names))?;
    records.sample_genes(data.samples).write(&partial.path().join(SAMPLES_FILE))?;
    report(progress, "graph", 1, 1)?;

    let store_folder = partial.path().join(STORE_FOLDER);
    let resumed_at = records.write(&store_folder, data.samples, store_bytes, progress)?;
    let store = store_info(&store_folder)?;
    let files = [GENES_FILE, GRAPH_FILE, SAMPLES_FILE].map(str::to_owned);
    let files: Vec<String> = files.into_iter().chain([format!("{STORE_FOLDER}/{DATA_FILE}")]).collect();
    let files = checksums(partial.path(), &files, progress)?;

    let manifest = Manifest {
        schema: SCHEMA,
        title: recipe.title.clone(),
        data: data.clone(),
        recipe_blake3: digest,
        genes: GeneCounts::from_names(&genes),
        networks: networks.iter().map(|network| NetworkInfo::from_built(network, genes.len())).collect(),
        bipartite: BipartiteInfo::from_generated(&metabolism),
        samples: sample_info(&labels),
        store,
        files,
        build_seconds: started.elapsed().as_secs_f64(),
        resumed_at,
    };
    partial.write_manifest(&manifest)?;
    partial.finish(folder)?;
    Ok(manifest)
}

fn labels(recipe: &Recipe, data: &Data, genes: &GeneNames, triples: &Triples) -> SampleLabels {
    match data.labels {
        LabelSource::Random => SampleLabels::new(&recipe.samples, data.samples, data.seed, data.scale),
        LabelSource::Planted => {
            let samples = (0..data.samples).map(|index| triples.at(index));
            let values = samples::values(samples, genes.len(), data.seed, data.scale);
            SampleLabels::planted(values, &recipe.samples, data.seed, data.scale)
        }
    }
}

/// The inputs of the records.
struct Records<'a> {
    genes: &'a GeneNames,
    triples: &'a Triples,
    labels: &'a SampleLabels,
    template: &'a RecordTemplate,
}

impl Records<'_> {
    /// Append the JSON of sample `index`.
    fn render(&self, index: u64, out: &mut Vec<u8>) {
        let genes: [&str; GENES_PER_SAMPLE] =
            self.triples.at(index).map(|gene| self.genes.names[gene as usize].as_str());
        let at = index as usize;
        self.template.render(index, genes, self.labels.values[at], self.labels.p_values[at], out);
    }

    /// The genes of all samples.
    fn sample_genes(&self, samples: u64) -> SampleGenes {
        let genes: Vec<_> = (0..samples).map(|index| self.triples.at(index).map(|gene| gene as i32)).collect();
        SampleGenes::new(genes.iter().map(<[i32; GENES_PER_SAMPLE]>::as_slice))
    }

    /// Bytes that the store will take: whole pages for each value with its header, and a little for the tree of keys.
    fn store_bytes(&self, samples: u64) -> u64 {
        let mut value = Vec::new();
        self.render(0, &mut value);
        samples * ((value.len() as u64 + 16).next_multiple_of(PAGE) + 64) + 64 * PAGE
    }

    /// Write the records that are not there yet; returns how many were.
    fn write(&self, folder: &Path, samples: u64, bytes: u64, to: &mut Report<'_>) -> Result<u64, DatasetError> {
        let order = text_order(samples);
        let writer = LmdbWriter::open(folder, 2 * bytes + (1 << 30))?;
        let (there, last) = writer.state()?;
        let expected = there.checked_sub(1).and_then(|at| order.get(at as usize)).map(|index| index.to_string());
        if last != expected.map(String::into_bytes) {
            return Err(DatasetError::damaged(folder, Damage::OtherRecords { run: "build" }).and(Advice::Remove));
        }
        report(to, "samples", there, samples)?;
        let mut done = there;
        for indices in order[there as usize..].chunks(BATCH) {
            writer.append(indices, |index, out| self.render(index, out))?;
            done += indices.len() as u64;
            report(to, "samples", done, samples)?;
        }
        writer.finish()?;
        Ok(there)
    }
}

/// Read the whole store once more: what is counted and summed up is what lies on the disk.
fn store_info(folder: &Path) -> Result<StoreInfo, DatasetError> {
    let store = LmdbStore::open(folder)?;
    let mut hasher = blake3::Hasher::new();
    let mut info = StoreInfo { records: 0, value_bytes: 0, largest_value: 0, content_blake3: String::new() };
    store.for_each::<DatasetError>(|index, value| {
        for bytes in [index.to_string().as_bytes(), value] {
            hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
        info.records += 1;
        info.value_bytes += value.len() as u64;
        info.largest_value = info.largest_value.max(value.len() as u64);
        Ok(())
    })?;
    info.content_blake3 = hasher.finalize().to_hex().to_string();
    Ok(info)
}

fn sample_info(labels: &SampleLabels) -> SampleInfo {
    let (label_mean, label_sd) = statistics(&labels.values);
    SampleInfo {
        count: labels.values.len() as u64,
        genes_per_sample: GENES_PER_SAMPLE as u32,
        label_mean,
        label_sd,
        label_min: labels.values.iter().copied().fold(f64::INFINITY, f64::min),
        label_max: labels.values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        class: DataOrigin::Generated,
    }
}

/// Fail before anything is written if the disk cannot hold the data set. Bytes that a stopped build left count.
fn room_for(partial: &Path, needed: u64) -> Result<(), DatasetError> {
    let there = partial.join(STORE_FOLDER).join(DATA_FILE).metadata().map_or(0, |meta| meta.len());
    room(partial, needed.saturating_sub(there))
}

/// The JSON of a record, in which what differs between samples is filled in.
///
/// The file is a JSON list with one `{experiment, experiment_reference}`. Strings in it stand for what differs between
/// samples: `$gene0` to `$gene2` inside any string are systematic names, the whole strings `"$index"`, `"$label"` and
/// `"$p_value"` become numbers. Invariant: every record is valid JSON if the template is, because gene names need no
/// escaping.
pub struct RecordTemplate {
    parts: Vec<TemplatePart>,
}

#[derive(Clone)]
enum TemplatePart {
    Text(String),
    Gene(usize),
    Index,
    Label,
    PValue,
}

impl RecordTemplate {
    pub fn load(path: &Path) -> Result<Self, DatasetError> {
        let text = std::fs::read_to_string(path).map_err(DatasetError::io("read", path))?;
        Self::parse(&text, path)
    }

    /// Read the text of the file `path`.
    fn parse(text: &str, path: &Path) -> Result<Self, DatasetError> {
        let compact: serde_json::Value = serde_json::from_str(text).map_err(|e| DatasetError::damaged(path, e))?;
        let mut rest = compact.to_string();
        let genes = (0..GENES_PER_SAMPLE).map(|k| (format!("$gene{k}"), TemplatePart::Gene(k)));
        let numbers =
            [("index", TemplatePart::Index), ("label", TemplatePart::Label), ("p_value", TemplatePart::PValue)];
        let numbers = numbers.map(|(name, part)| (format!("\"${name}\""), part));
        let marks: Vec<(String, TemplatePart)> = genes.chain(numbers).collect();
        let mut parts = Vec::new();
        let mut met = vec![false; marks.len()];
        while let Some((start, k)) =
            marks.iter().enumerate().filter_map(|(k, (mark, _))| Some((rest.find(mark.as_str())?, k))).min()
        {
            let tail = rest.split_off(start + marks[k].0.len());
            rest.truncate(start);
            parts.extend([TemplatePart::Text(rest), marks[k].1.clone()]);
            met[k] = true;
            rest = tail;
        }
        if let Some(k) = met.iter().position(|met| !met) {
            return Err(DatasetError::damaged(path, Damage::NoPlace(marks[k].0.clone())));
        }
        parts.push(TemplatePart::Text(rest));
        Ok(Self { parts })
    }

    /// Append the record of sample `index`.
    pub fn render(&self, index: u64, genes: [&str; GENES_PER_SAMPLE], label: f64, p: f64, out: &mut Vec<u8>) {
        for part in &self.parts {
            // Writing to a Vec cannot fail. `{:?}` is the shortest text that gives the same number back.
            let _ = match part {
                TemplatePart::Text(text) => out.write_all(text.as_bytes()),
                TemplatePart::Gene(k) => out.write_all(genes[*k].as_bytes()),
                TemplatePart::Index => write!(out, "{index}"),
                TemplatePart::Label => write!(out, "{label:?}"),
                TemplatePart::PValue => write!(out, "{p:?}"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_filled_in_and_missing_ones_refused() {
        let text = r#"[{"a": ["$gene2", "x$gene0-$gene1"], "b": "$label", "c": "$p_value", "d": "$index"}]"#;
        let template = RecordTemplate::parse(text, Path::new("record.json")).unwrap();
        let mut out = Vec::new();
        template.render(12, ["A", "B", "C"], -0.5, 1e-9, &mut out);
        assert_eq!(out, br#"[{"a":["C","xA-B"],"b":-0.5,"c":1e-9,"d":12}]"#);
        for (left_out, instead) in [("$gene2", "g"), ("$label", "l")] {
            let error =
                RecordTemplate::parse(&text.replace(left_out, instead), Path::new("record.json")).err().unwrap();
            assert!(error.to_string().ends_with("does not occur in it"), "{error}");
        }
        assert!(RecordTemplate::parse("[", Path::new("record.json")).is_err());
    }
}
