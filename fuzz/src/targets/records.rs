//! What expctl writes itself: data sets of graphs, jobs of the ledger; and batch times of others.

use std::path::Path;

use expctl::timings::{TimingsColumns, read_file};
use expctl_datasets::graph::Dataset;
use expctl_ledger::{JobDir, MeasuredJob, read_journal};
use expctl_settings::{Pipeline, Processor, StoreKind};
use graph_loader::Sample;

use super::Digest;
use crate::Outcome;

/// Kinds of stores that seeds have.
const STORES: [StoreKind; 5] =
    [StoreKind::Json, StoreKind::Compressed, StoreKind::FullMasks, StoreKind::PackedMasks, StoreKind::Ids];

/// A built data set of graphs: the graph, and all records of all its stores. The first error is the answer, but all are read.
pub fn graph(folder: &Path) -> Outcome<u64> {
    let dataset = Dataset::open(folder)?;
    let networks: Vec<String> = dataset.manifest().networks.iter().map(|network| network.name.clone()).collect();
    let mut digest = Digest::new();
    let mut refused = None;
    match dataset.graph(&networks, true) {
        Ok(graph) => digest.add(graph.genes.len() as u64),
        Err(refusal) => refused = Some(refusal),
    }
    for store in STORES {
        let pipeline = Pipeline { store, metabolism: true, ..Pipeline::new(Processor::Lazy, networks.clone()) };
        if !dataset.has(store) {
            continue;
        }
        if let Err(refusal) = records(&dataset, &pipeline, &mut digest) {
            refused = refused.or(Some(refusal));
        }
    }
    refused.map_or(Ok(digest.value()), |refusal| Err(refusal.into()))
}

fn records(dataset: &Dataset, pipeline: &Pipeline, digest: &mut Digest) -> Result<(), expctl_datasets::DatasetError> {
    let (store, decoder) = dataset.records(pipeline)?;
    let mut reader = store.reader()?;
    let (mut bytes, mut sample) = (Vec::new(), Sample::default());
    for index in 0..store.len().min(1000) {
        bytes.clear();
        let len = reader.read(index, &mut bytes)?;
        decoder.decode(index, &bytes, bytes.len() - len..bytes.len(), &mut sample)?;
        sample.genes.iter().for_each(|gene| digest.add(*gene as u64));
        digest.add(u64::from(sample.label.to_bits()));
    }
    Ok(reader.unchanged()?)
}

/// The folder of a job: all its records, journals and tables.
pub fn ledger(folder: &Path) -> Outcome<u64> {
    let job = JobDir::new(folder);
    let record = job.record()?;
    for trial in &record.trials {
        for attempt in job.attempts(&trial.id)? {
            // Each is read, whatever is wrong with the others.
            let _ = (attempt.trial(), attempt.environment(), attempt.data_read(), attempt.shuffle(), attempt.outcome());
            for rank in 0..2 {
                let _ = (attempt.usage(rank), attempt.rank_exit(rank), attempt.steps(rank), attempt.samples(rank));
                let _ = (attempt.totals(rank), read_journal(&attempt.journal_path(rank)));
            }
        }
    }
    Ok(MeasuredJob::load(&job)?.runs.len() as u64)
}

/// Batch times of a parquet or CSV file.
pub fn timings(path: &Path) -> Outcome<u64> {
    let columns = TimingsColumns::default();
    let (_, times) = read_file(path, &columns)?;
    Ok(times.series().len() as u64)
}
