//! `Conversion` makes a store of another kind (compressed, full masks, packed masks, ids) from the base store of a data set.
//! Invariant: a store gets its name only after all its genes and labels, and some of its masks, were compared with the base store.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

use expctl_settings::{Advice, StoreKind};
use graph_loader::{
    CellGraph, EdgeType, GraphError, LmdbStore, LmdbWriter, MaskForm, Metabolism, RecordDecoder, Sample, StoreDecoder,
    StoreEncoder, text_order,
};

use crate::build_folder::{BuildFolder, BuildProgress, DATA_FILE, Report, checksums, free_bytes, report, tidy};
use crate::graph::dataset::Dataset;
use crate::graph::forecast::{ESTIMATED_FROM, Estimate, lmdb_bytes, record_bytes};
use crate::graph::manifest::{CONVERTED, MaskInfo, STORE_SCHEMA, StoreInfo, StoreManifest, base_blake3};
use crate::parallel::in_order;
use crate::settings::record_format;
use crate::{Damage, DatasetError, RequestError};

/// Maximum bytes that are encoded at a time and written in one transaction (one record, if that is more).
const MAX_BYTES: u64 = 16 << 20;
/// Maximum records of a transaction.
const MAX_RECORDS: u64 = 20_000;

/// Makes a store of another kind from the base store of a data set.
///
/// Threads encode, each every n-th piece of the records in key order, and this thread writes the pieces in that order, so
/// the store has the same content with any number of threads. No more than three pieces of each thread are in memory.
pub struct Conversion<'d> {
    dataset: &'d Dataset,
    kind: StoreKind,
    graph: CellGraph,
    base: LmdbStore,
    decoder: RecordDecoder,
    folder: PathBuf,
    encoder: StoreEncoder,
    estimate: Estimate,
    /// Mean bytes of a value, of the records that the estimate is from.
    mean_value: u64,
}

/// Records that were encoded together.
struct EncodedRecords {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<'d> Conversion<'d> {
    /// Open the base store and estimate the size of the new one. Nothing is written.
    ///
    /// # Errors
    /// The base store or the graph cannot be read, or `kind` is the base store.
    pub fn new(dataset: &'d Dataset, kind: StoreKind) -> Result<Self, DatasetError> {
        if kind == StoreKind::Json {
            return Err(RequestError::IsBase { format: kind.name() }.into());
        }
        let names: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
        let graph = dataset.graph(&names, true)?;
        let mut conversion = Self {
            dataset,
            kind,
            base: dataset.store()?,
            decoder: dataset.decoder()?,
            folder: dataset.store_folder(kind),
            encoder: StoreEncoder::new(record_format(kind), dataset.mask_sizes(), &graph),
            graph,
            estimate: Estimate { bytes: 0, from: 0, there: 0, free: 0 },
            mean_value: 0,
        };
        conversion.estimate()?;
        Ok(conversion)
    }

    /// Estimated size of the store, and the free space.
    pub fn size(&self) -> &Estimate {
        &self.estimate
    }

    fn estimate(&mut self) -> Result<(), DatasetError> {
        let records = self.base.len();
        let from = records.min(ESTIMATED_FROM);
        let chosen: Vec<u64> = (0..from).map(|i| i * records / from).collect();
        let piece = self.encode(&chosen, &mut self.encoder.clone())?;
        let (mut start, mut leaves, mut pages) = (0, 0, 0);
        for (index, &end) in chosen.iter().zip(&piece.ends) {
            let (in_leaf, own) = record_bytes(index.to_string().len() as u64, (end - start) as u64);
            (leaves, pages) = (leaves + in_leaf, pages + own);
            start = end;
        }
        let mean = |bytes: u64| bytes as f64 / from.max(1) as f64;
        let bytes = lmdb_bytes(records, mean(leaves), mean(pages));
        let partial = BuildFolder::path_of(&self.folder);
        let there = partial.join(CONVERTED).join(DATA_FILE).metadata().map_or(0, |about| about.len());
        let free = free_bytes(self.dataset.folder())?;
        self.estimate = Estimate { bytes, from, there: there.min(bytes), free };
        self.mean_value = piece.bytes.len() as u64 / from.max(1);
        Ok(())
    }

    /// Make the store with `jobs` threads and check it, or return its manifest at once if it is there.
    ///
    /// A conversion that was stopped leaves `<folder>.partial`; the next one goes on with it and ends with the same records.
    /// `folder` itself appears only when all is complete and checked.
    ///
    /// # Errors
    /// There is no room; another process is at it; the store that is there was made from another base store; what was
    /// written reads back as something else.
    pub fn run(
        &self,
        jobs: usize,
        progress: &mut dyn FnMut(BuildProgress) -> std::ops::ControlFlow<()>,
    ) -> Result<StoreManifest, DatasetError> {
        self.make(jobs, progress).map_err(|e| self.dataset.advise(e))
    }

    fn make(&self, jobs: usize, progress: &mut Report<'_>) -> Result<StoreManifest, DatasetError> {
        let started = Instant::now();
        if let Some(manifest) = self.dataset.converted(self.kind)? {
            tidy(&self.folder);
            return Ok(manifest);
        }
        if self.folder.exists() {
            return Err(DatasetError::damaged(&self.folder, Damage::NoManifest { contents: "is no store" }));
        }
        if self.estimate.missing() > 0 {
            let full = std::io::Error::new(std::io::ErrorKind::StorageFull, self.estimate.to_string());
            return Err(DatasetError::io("build", &self.folder)(full));
        }
        let base = base_blake3(self.dataset.manifest());
        let partial = BuildFolder::open(&self.folder)?;
        if let Some(manifest) = self.dataset.converted(self.kind)? {
            partial.discard()?;
            return Ok(manifest);
        }
        partial.prepare(&format!("{base} {} {STORE_SCHEMA}", self.kind.name()))?;
        let resumed_at = self.write(&partial.path().join(CONVERTED), jobs.max(1), progress)?;
        let store = match self.check(&partial.path().join(CONVERTED), progress) {
            Err(e) if is_damage_in(partial.path(), &e) => {
                // Kept, it would be found as it is by every later run.
                partial.discard()?;
                return Err(e.and(Advice::StartAgain));
            }
            other => other?,
        };
        let file = checksums(partial.path(), &[format!("{CONVERTED}/{DATA_FILE}")], progress)?.swap_remove(0);
        let sizes = self.dataset.mask_sizes();
        let masks = if self.kind == StoreKind::Ids { Vec::new() } else { sizes.all().collect() };
        let manifest = StoreManifest {
            schema: STORE_SCHEMA,
            kind: self.kind,
            base_blake3: base,
            masks: masks.iter().map(|(name, n)| MaskInfo { name: (*name).to_owned(), entries: *n as u64 }).collect(),
            store,
            file,
            build_seconds: started.elapsed().as_secs_f64(),
            resumed_at,
        };
        partial.write_manifest(&manifest)?;
        partial.finish(&self.folder)?;
        Ok(manifest)
    }

    /// Write the records that are not there yet; returns how many were.
    fn write(&self, folder: &Path, jobs: usize, to: &mut Report<'_>) -> Result<u64, DatasetError> {
        let records = self.base.len();
        let order = text_order(records);
        let writer = LmdbWriter::open(folder, 2 * self.estimate.bytes + (1 << 30))?;
        let (there, last) = writer.state()?;
        let expected = there.checked_sub(1).and_then(|at| order.get(at as usize)).map(|index| index.to_string());
        if last != expected.map(String::into_bytes) {
            return Err(DatasetError::damaged(folder, Damage::OtherRecords { run: "conversion" }));
        }
        report(to, "samples", there, records)?;
        let of_piece = (MAX_BYTES / self.mean_value.max(1)).clamp(1, MAX_RECORDS) as usize;
        let pieces: Vec<&[u64]> = order[there as usize..].chunks(of_piece).collect();
        let mut done = there;
        let what = |index: u64| {
            let indices = pieces[index as usize];
            let (count, first) = (indices.len(), indices.first().copied().unwrap_or_default());
            let base = self.base.path().display();
            format!("the conversion panicked at one of {count} records of {base} from {first} on")
        };
        let mut next = pieces.iter();
        in_order(
            jobs,
            pieces.len() as u64,
            &what,
            || Ok(self.encoder.clone()),
            |encoder, index| self.encode(pieces[index as usize], encoder),
            |piece| {
                let indices = next.next().copied().unwrap_or_default();
                writer.append_values(indices, &piece.ends, &piece.bytes)?;
                done += indices.len() as u64;
                report(to, "samples", done, records)
            },
        )?;
        writer.finish()?;
        Ok(there)
    }

    fn encode(&self, indices: &[u64], encoder: &mut StoreEncoder) -> Result<EncodedRecords, DatasetError> {
        let mut reader = self.base.reader()?;
        let (mut json, mut sample) = (Vec::new(), Sample::default());
        let mut piece = EncodedRecords { bytes: Vec::new(), ends: Vec::with_capacity(indices.len()) };
        for &index in indices {
            json.clear();
            reader.read(index, &mut json)?;
            self.decoder.decode(index, &json, &mut sample)?;
            encoder.encode(&sample, &mut piece.bytes);
            piece.ends.push(piece.bytes.len());
        }
        reader.unchanged()?;
        Ok(piece)
    }
}

/// Whether a problem is damage in `folder`, and not that it cannot be read.
fn is_damage_in(folder: &Path, problem: &DatasetError) -> bool {
    match problem {
        DatasetError::Damaged { path, .. }
        | DatasetError::Differs { store: path, .. }
        | DatasetError::Graph(GraphError::Record { store: path, .. } | GraphError::Lmdb { path, .. }) => {
            path.starts_with(folder)
        }
        _ => false,
    }
}

/// Records between two reports.
const STRIDE: u64 = 100;

impl Conversion<'_> {
    /// Read the store in `folder` once more, record by record beside the base store, and compare genes and label of all of
    /// them and the masks of some with what the definition of a mask gives.
    fn check(&self, folder: &Path, to: &mut Report<'_>) -> Result<StoreInfo, DatasetError> {
        let store = LmdbStore::open(folder)?;
        let records = self.base.len();
        if store.len() != records {
            let (found, known_from) = (store.len(), "the base store has");
            let damage = Damage::Count { found, things: "records", known_from, expected: records };
            return Err(DatasetError::damaged(folder, damage));
        }
        let names: Vec<String> = self.graph.edge_types.iter().map(|edges| edges.name.clone()).collect();
        let decoder =
            StoreDecoder::converted(folder, record_format(self.kind), self.dataset.mask_sizes(), &names, true)?;
        let mut base = self.base.reader()?;
        let (mut json, mut expected, mut found) = (Vec::new(), Sample::default(), Sample::default());
        let mut hasher = blake3::Hasher::new();
        let mut info = StoreInfo { records: 0, value_bytes: 0, largest_value: 0, content_blake3: String::new() };
        let stride = (records / ESTIMATED_FROM).max(1);
        let read: Result<(), DatasetError> = store.for_each(|index, value| {
            let key = index.to_string();
            for bytes in [key.as_bytes(), value] {
                hasher.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
            }
            info.value_bytes += value.len() as u64;
            info.largest_value = info.largest_value.max(value.len() as u64);
            json.clear();
            base.read(index, &mut json)?;
            self.decoder.decode(index, &json, &mut expected)?;
            decoder.decode(index, value, 0..value.len(), &mut found)?;
            let differs = |is_mask| DatasetError::Differs { store: folder.to_owned(), index, is_mask };
            let of = |sample: &Sample| (sample.label.to_bits(), sample.p_value.to_bits());
            if expected.genes != found.genes || of(&expected) != of(&found) {
                return Err(differs(false));
            }
            if self.kind != StoreKind::Ids && index % stride == 0 && !masks_agree(&self.graph, &found, value) {
                return Err(differs(true));
            }
            info.records += 1;
            if info.records.is_multiple_of(STRIDE) || info.records == records {
                report(to, "check", info.records, records)?;
            }
            Ok(())
        });
        // A base store that has changed is no reason to find fault with this one.
        base.unchanged()?;
        read?;
        info.content_blake3 = hasher.finalize().to_hex().to_string();
        Ok(info)
    }
}

/// Whether the masks in `bytes` agree with the definition, edge by edge.
fn masks_agree(graph: &CellGraph, sample: &Sample, bytes: &[u8]) -> bool {
    let perturbed = |gene: &i64| sample.genes.contains(gene);
    let network = |e: &EdgeType| -> Vec<bool> {
        e.sources().iter().zip(e.targets()).map(|(s, t)| !perturbed(s) && !perturbed(t)).collect()
    };
    let mut expected: Vec<Vec<bool>> = graph.edge_types.iter().map(network).collect();
    if let Some(metabolism) = &graph.metabolism {
        expected.extend(metabolic_masks(metabolism, perturbed));
    }
    let spans = &sample.masks.spans;
    spans.len() == expected.len()
        && spans.iter().zip(&expected).all(|(span, kept)| mask(sample.masks.form, bytes, span, kept.len()) == *kept)
}

/// Kept reactions, gpr edges and rmr edges.
fn metabolic_masks(metabolism: &Metabolism, perturbed: impl Fn(&i64) -> bool) -> [Vec<bool>; 3] {
    let mut reactions = vec![true; metabolism.reactions];
    for (gene, reaction) in metabolism.gpr_genes().iter().zip(metabolism.gpr_reactions()) {
        reactions[*reaction as usize] &= !perturbed(gene);
    }
    let gpr = metabolism.gpr_genes().iter().map(|gene| !perturbed(gene)).collect();
    let rmr = metabolism.rmr_reactions().iter().map(|reaction| reactions[*reaction as usize]).collect();
    [reactions, gpr, rmr]
}

/// A stored mask of `entries` entries, written out.
fn mask(form: MaskForm, bytes: &[u8], span: &Range<usize>, entries: usize) -> Vec<bool> {
    let bytes = &bytes[span.clone()];
    match form {
        MaskForm::None => Vec::new(),
        MaskForm::FalsePositions => {
            let mut kept = vec![true; entries];
            for word in bytes.as_chunks::<8>().0 {
                // The decoder has checked that they are among the entries.
                kept[i64::from_le_bytes(*word) as usize] = false;
            }
            kept
        }
        MaskForm::Bytes => bytes.iter().map(|byte| *byte == 1).collect(),
        MaskForm::Bits => (0..entries).map(|i| bytes[i / 8] >> (i % 8) & 1 == 1).collect(),
    }
}

#[cfg(test)]
mod tests {
    use expctl_settings::{Data, LabelSource, Networks};
    use std::ops::ControlFlow;

    use graph_loader::RecordFormat;

    use super::*;
    use crate::graph::build::build;
    use crate::graph::recipe::Recipe;

    #[test]
    fn a_panic_in_a_thread_says_where() {
        let parent = tempfile::tempdir().unwrap();
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/006-kuzmin-tmi");
        let recipe = Recipe::load(&recipe).unwrap();
        let data = Data {
            set: "006-kuzmin-tmi".to_owned(),
            samples: 8,
            scale: 0.05,
            networks: Networks::Completed,
            seed: 7,
            labels: LabelSource::Random,
            files: 1,
            genes: 0,
        };
        let folder = parent.path().join("set");
        build(&recipe, &data, &folder, &mut |_| ControlFlow::Continue(())).unwrap();
        let dataset = Dataset::open(&folder).unwrap();
        let mut conversion = Conversion::new(&dataset, StoreKind::Compressed).unwrap();
        // An encoder of a graph that has one gene alone.
        let edge_types = vec![EdgeType { name: "e".to_owned(), edge_index: vec![0, 0] }];
        let graph = CellGraph { genes: vec![String::new()], edge_types, metabolism: None };
        conversion.encoder = StoreEncoder::new(RecordFormat::FalsePositions, dataset.mask_sizes(), &graph);
        let error = conversion.run(2, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        let says =
            format!("the conversion panicked at one of 8 records of {}/processed/lmdb from 0 on: ", folder.display());
        assert!(error.starts_with(&says), "{error}");
    }
}
