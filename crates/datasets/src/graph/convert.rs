use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use expctl_record::StoreKind;

use super::estimate::{ESTIMATED_FROM, lmdb_bytes, record_bytes};
use super::files::{Report, checksums, free_bytes, report};
use super::manifest::MANIFEST_FILE;
use super::partial::{Partial, tidy};
use super::store_manifest::{CONVERTED, base_blake3};
use super::{BuildProgress, Dataset, Estimate, MaskInfo, STORE_SCHEMA, StoreManifest};
use crate::PipelineError;
use crate::graph::CellGraph;
use crate::store::{LmdbStore, LmdbWriter, RecordDecoder, Sample, StoreEncoder, text_order};

/// The most bytes that are encoded at a time and written in one transaction (one record, if that is more).
const PIECE: u64 = 16 << 20;
/// The most records of a transaction.
const PIECE_RECORDS: u64 = 20_000;

/// Makes a store of another kind from the base store of a data set.
///
/// Threads encode, each every n-th piece of the records in key order, and this thread writes the pieces in that order, so
/// the store has the same content with any number of threads. No more than three pieces of each thread are in memory.
pub struct Conversion<'d> {
    pub(super) dataset: &'d Dataset,
    pub(super) kind: StoreKind,
    pub(super) graph: CellGraph,
    pub(super) base: LmdbStore,
    pub(super) decoder: RecordDecoder,
    folder: PathBuf,
    encoder: StoreEncoder,
    estimate: Estimate,
    /// Bytes of values of the records that the estimate is from, on average.
    mean_value: u64,
}

/// Records that were encoded together.
struct Piece {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl<'d> Conversion<'d> {
    /// Get ready, and estimate how large the store will be. Nothing is written.
    ///
    /// # Errors
    /// The base store or the graph cannot be read, or `kind` is the base store.
    pub fn new(dataset: &'d Dataset, kind: StoreKind) -> Result<Self, PipelineError> {
        if kind == StoreKind::Json {
            return Err(PipelineError::Invalid("the json store is what the others are made from".to_owned()));
        }
        let names: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
        let graph = dataset.graph(&names, true)?;
        let mut conversion = Self {
            dataset,
            kind,
            base: dataset.store()?,
            decoder: dataset.decoder()?,
            folder: dataset.store_folder(kind),
            encoder: StoreEncoder::new(kind, dataset.mask_sizes(), &graph),
            graph,
            estimate: Estimate { bytes: 0, from: 0, there: 0, free: 0 },
            mean_value: 0,
        };
        conversion.estimate()?;
        Ok(conversion)
    }

    /// How large the store will be, and whether there is room for it.
    pub fn size(&self) -> &Estimate {
        &self.estimate
    }

    fn estimate(&mut self) -> Result<(), PipelineError> {
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
        let partial = Partial::path_of(&self.folder);
        let there = partial.join(CONVERTED).join("data.mdb").metadata().map_or(0, |about| about.len());
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
    ) -> Result<StoreManifest, PipelineError> {
        self.make(jobs, progress).map_err(|e| self.dataset.advise(e))
    }

    fn make(&self, jobs: usize, progress: &mut Report<'_>) -> Result<StoreManifest, PipelineError> {
        let started = Instant::now();
        if let Some(manifest) = self.dataset.converted(self.kind)? {
            tidy(&self.folder);
            return Ok(manifest);
        }
        if self.folder.exists() {
            return Err(PipelineError::damaged(&self.folder, "exists, but is no store (it has no manifest)"));
        }
        if self.estimate.missing() > 0 {
            let full = std::io::Error::new(std::io::ErrorKind::StorageFull, self.estimate.to_string());
            return Err(PipelineError::io("build", &self.folder)(full));
        }
        let base = base_blake3(self.dataset.manifest());
        let partial = Partial::open(&self.folder)?;
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
                return Err(e.and("it was removed, and the next run makes it anew".to_owned()));
            }
            other => other?,
        };
        let file = checksums(partial.path(), &[format!("{CONVERTED}/data.mdb")], progress)?.swap_remove(0);
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
        let path = partial.path().join(MANIFEST_FILE);
        expctl_record::write_json(&path, &manifest).map_err(|e| PipelineError::damaged(&path, e))?;
        partial.finish(&self.folder)?;
        Ok(manifest)
    }

    /// Write the records that are not there yet; returns how many were.
    fn write(&self, folder: &Path, jobs: usize, to: &mut Report<'_>) -> Result<u64, PipelineError> {
        let records = self.base.len();
        let order = text_order(records);
        let writer = LmdbWriter::open(folder, 2 * self.estimate.bytes + (1 << 30))?;
        let (there, last) = writer.state()?;
        let expected = there.checked_sub(1).and_then(|at| order.get(at as usize)).map(|index| index.to_string());
        if last != expected.map(String::into_bytes) {
            return Err(PipelineError::damaged(folder, "holds other records than a conversion leaves"));
        }
        report(to, "samples", there, records)?;
        let of_piece = (PIECE / self.mean_value.max(1)).clamp(1, PIECE_RECORDS) as usize;
        let pieces: Vec<&[u64]> = order[there as usize..].chunks(of_piece).collect();
        let mut done = there;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..jobs.min(pieces.len()) {
                let (send, receive) = sync_channel(1);
                let mine = pieces.iter().skip(thread).step_by(jobs);
                scope.spawn(move || {
                    let mut encoder = self.encoder.clone();
                    for indices in mine {
                        let piece = self.encode_or_say_where(indices, &mut encoder);
                        let last = piece.is_err();
                        // Nobody receives any more once the conversion has failed or was stopped.
                        if send.send(piece).is_err() || last {
                            return;
                        }
                    }
                });
                threads.push(receive);
            }
            for (i, indices) in pieces.iter().enumerate() {
                let piece = threads[i % jobs].recv();
                let ended = |_| PipelineError::Invalid("a thread of the conversion has ended".to_owned());
                let piece = piece.map_err(ended)??;
                writer.append_values(indices, &piece.ends, &piece.bytes)?;
                done += indices.len() as u64;
                report(to, "samples", done, records)?;
            }
            Ok(())
        })?;
        writer.finish()?;
        Ok(there)
    }

    /// A panic while a piece is encoded is an error like others.
    fn encode_or_say_where(&self, indices: &[u64], encoder: &mut StoreEncoder) -> Result<Piece, PipelineError> {
        let piece = std::panic::catch_unwind(AssertUnwindSafe(|| self.encode(indices, encoder)));
        piece.unwrap_or_else(|panic| {
            let first = indices.first().copied().unwrap_or_default();
            let base = self.base.path().display();
            let what = format!("the conversion panicked at one of {} records of {base} from {first} on", indices.len());
            Err(PipelineError::panicked(&what, panic.as_ref()))
        })
    }

    fn encode(&self, indices: &[u64], encoder: &mut StoreEncoder) -> Result<Piece, PipelineError> {
        let mut reader = self.base.reader()?;
        let (mut json, mut sample) = (Vec::new(), Sample::default());
        let mut piece = Piece { bytes: Vec::new(), ends: Vec::with_capacity(indices.len()) };
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

/// Whether a problem is what lies in `folder`, rather than that it could not be read.
fn is_damage_in(folder: &Path, problem: &PipelineError) -> bool {
    match problem {
        PipelineError::Record { store: path, .. }
        | PipelineError::Damaged { path, .. }
        | PipelineError::Lmdb { path, .. } => path.starts_with(folder),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use expctl_record::{Data, LabelSource, Networks};

    use super::*;
    use crate::dataset::{Recipe, build};
    use crate::graph::EdgeType;

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
        conversion.encoder = StoreEncoder::new(StoreKind::Compressed, dataset.mask_sizes(), &graph);
        let error = conversion.run(2, &mut |_| ControlFlow::Continue(())).unwrap_err().to_string();
        let says =
            format!("the conversion panicked at one of 8 records of {}/processed/lmdb from 0 on: ", folder.display());
        assert!(error.starts_with(&says), "{error}");
    }
}
