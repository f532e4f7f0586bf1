//! Between the loaders and the rest of expctl: settings of a trial as options of the loaders, errors of the loaders with the
//! names of the settings, and times as the ledger has them.

use anndata_io::Form;
use cell_loader::{CellBatchOptions, CellError, Draw, Fetch};
use expctl_ledger::PerStage;
use expctl_settings::{Advice, Array, Pipeline, Sampler, StoreKind};
use graph_loader::{Collation, GraphBatchOptions, MaskSource, Processor, RecordFormat, Walk};
use loader_core::{BatchOperations, Stage, StageOperation, StageTimes};

use crate::{DatasetError, SettingError};

/// How the records of a kind of store hold a sample.
pub const fn record_format(kind: StoreKind) -> RecordFormat {
    match kind {
        StoreKind::Json => RecordFormat::Json,
        StoreKind::Compressed => RecordFormat::FalsePositions,
        StoreKind::FullMasks => RecordFormat::ByteMasks,
        StoreKind::PackedMasks => RecordFormat::BitMasks,
        StoreKind::Ids => RecordFormat::Ids,
    }
}

/// `[pipeline]` as options of batches of a graph, without a limit of the memory for masks of single genes.
///
/// # Errors
/// The processor is of arrays.
pub fn graph_batch_options(pipeline: &Pipeline) -> Result<GraphBatchOptions, DatasetError> {
    use expctl_settings::Processor as Setting;
    let processor = match pipeline.processor {
        Setting::Lazy => Processor::Lazy,
        Setting::Subgraph => Processor::Subgraph,
        Setting::IncidenceSubgraph => Processor::IncidenceSubgraph,
        Setting::Neighborhood => Processor::Neighborhood,
        Setting::Perturbation => Processor::Perturbation,
        Setting::Shared => Processor::Shared,
        Setting::Packed => Processor::Packed,
        Setting::Ids => Processor::Ids,
        Setting::Rows => {
            let key = Pipeline::PROCESSOR.name();
            return Err(DatasetError::Setting { key, problem: SettingError::ArrayProcessor });
        }
    };
    Ok(GraphBatchOptions {
        processor,
        collation: match pipeline.collation {
            expctl_settings::Collation::Pyg => Collation::Pyg,
            expctl_settings::Collation::LazyCollater => Collation::LazyCollater,
            expctl_settings::Collation::SharedIndex => Collation::SharedIndex,
        },
        follow_batch: pipeline.follow_batch.clone(),
        hops: pipeline.hops,
        walk: match pipeline.walk {
            expctl_settings::Walk::PerType => Walk::PerType,
            expctl_settings::Walk::Union => Walk::Union,
            expctl_settings::Walk::Incoming => Walk::Incoming,
        },
        mask_source: match pipeline.mask_source {
            expctl_settings::MaskSource::Incidence => MaskSource::Incidence,
            expctl_settings::MaskSource::GeneMasks => MaskSource::GeneMasks,
        },
        gene_mask_bytes: u64::MAX,
        mask_fraction: pipeline.mask_fraction,
        mask_seed: pipeline.mask_seed,
    })
}

/// `[array]` as options of batches of rows.
pub fn cell_batch_options(array: &Array) -> CellBatchOptions {
    CellBatchOptions {
        genes: array.genes.clone(),
        output: match array.output {
            expctl_settings::Output::Dense => Form::Dense,
            expctl_settings::Output::Sparse => Form::Sparse,
        },
        fetch: match array.fetch {
            expctl_settings::Fetch::Batch => Fetch::Batch,
            expctl_settings::Fetch::Row => Fetch::Row,
        },
        normalize: array.normalize,
        log1p: array.log1p,
    }
}

/// `[sampler]` as a draw.
///
/// # Errors
/// The draw needs a column of obs, and none is named.
pub fn row_draw(sampler: &Sampler) -> Result<Draw, DatasetError> {
    use expctl_settings::Draw as Setting;
    let Sampler { draw, chunk_rows, chunks, rows, .. } = *sampler;
    let column = || match sampler.by.as_str() {
        "" => Err(DatasetError::Setting { key: Sampler::BY.name(), problem: SettingError::NoColumn { draw } }),
        column => Ok(column.to_owned()),
    };
    Ok(match draw {
        Setting::Sequential => Draw::Sequential { chunk_rows },
        Setting::Uniform => Draw::Uniform,
        Setting::Weighted => Draw::Weighted { column: column()?, rows },
        Setting::Balanced => Draw::Balanced { column: column()?, rows },
        Setting::Chunked => Draw::Chunked { chunk_rows, chunks },
    })
}

/// A stage of a loader as the ledger has it.
pub const fn ledger_stage(stage: Stage) -> expctl_ledger::Stage {
    match stage {
        Stage::Sample => expctl_ledger::Stage::Sample,
        Stage::Read => expctl_ledger::Stage::Read,
        Stage::Decode => expctl_ledger::Stage::Decode,
        Stage::Mask => expctl_ledger::Stage::Mask,
        Stage::Collate => expctl_ledger::Stage::Collate,
        Stage::Pin => expctl_ledger::Stage::Pin,
        Stage::Other => expctl_ledger::Stage::Other,
    }
}

/// Times of a batch as the ledger has them.
pub fn ledger_times(times: &StageTimes) -> PerStage<u64> {
    let mut ledger = PerStage::default();
    for (stage, ns) in times.iter() {
        ledger[ledger_stage(stage)] = ns;
    }
    ledger
}

/// Operations of a batch as the ledger has them.
pub fn ledger_operations(operations: &BatchOperations) -> Vec<expctl_ledger::OperationTime> {
    use expctl_ledger::Operation as Ledger;
    let time = |time: loader_core::OperationTime| expctl_ledger::OperationTime {
        stage: ledger_stage(time.stage),
        operation: match time.operation {
            StageOperation::Allocate => Ledger::Allocate,
            StageOperation::Lookup => Ledger::Lookup,
            StageOperation::Fill => Ledger::Fill,
            StageOperation::Filter => Ledger::Filter,
            StageOperation::Copy => Ledger::Copy,
        },
        operand: time.operand,
        ns: time.ns,
    };
    operations.times().into_iter().map(time).collect()
}

/// The quality of a shuffle as the ledger has it.
pub fn ledger_shuffle(quality: cell_loader::ShuffleQuality) -> expctl_ledger::ShuffleQuality {
    let cell_loader::ShuffleQuality {
        epoch_rows,
        metered_rows,
        metered_batches,
        duplicates,
        neighbour_correlation,
        mean_distance,
        expected_distance,
        labels,
    } = quality;
    let labels = labels.map(|mixing| {
        let cell_loader::LabelMixing { column, classes, entropy, ideal_entropy } = mixing;
        expctl_ledger::LabelMixing { column, classes, entropy, ideal_entropy }
    });
    expctl_ledger::ShuffleQuality {
        epoch_rows,
        metered_rows,
        metered_batches,
        duplicates,
        neighbour_correlation,
        mean_distance,
        expected_distance,
        labels,
    }
}

impl From<CellError> for DatasetError {
    /// Errors that a setting causes name it.
    fn from(error: CellError) -> Self {
        let key = match error {
            CellError::AnnData(error) => return Self::AnnData(error),
            CellError::WeightsAreClasses { problem } => return Self::AnnData(problem).and(Advice::DrawBalanced),
            CellError::UnknownGene { .. } | CellError::AmbiguousGene { .. } | CellError::RepeatedGene { .. } => {
                Array::GENES.name()
            }
            CellError::ScaleTarget { .. } => Array::NORMALIZE.name(),
            CellError::BlockSize { batch_size: None, .. } => Sampler::CHUNKS.name(),
            CellError::BlockSize { .. } => Sampler::CHUNK_ROWS.name(),
            error => return Self::Cell(error),
        };
        Self::Setting { key, problem: SettingError::Cell(error) }
    }
}

#[cfg(test)]
mod tests {
    use anndata_io::AnnDataError;
    use expctl_settings::Draw as Setting;

    use super::*;

    #[test]
    fn a_draw_by_no_column_is_an_error_that_names_the_setting() {
        let error = |draw| row_draw(&Sampler { draw, ..Sampler::default() }).unwrap_err().to_string();
        let expected = "sampler.by: it is empty, and to draw rows `weighted` needs a column of obs";
        assert_eq!(error(Setting::Weighted), expected);
        assert!(error(Setting::Balanced).contains("`balanced`"));
    }

    #[test]
    fn stages_operations_and_operands_have_the_names_of_the_ledger() {
        use std::time::Instant;

        use graph_loader::{Marker, Marks, Operand};

        assert!(Stage::ALL.iter().all(|stage| ledger_stage(*stage).name() == stage.name()));
        let operands = [Operand::Labels, Operand::Genes, Operand::Metabolism, Operand::EdgeType(0)];
        let mut marks = Marks::new(Instant::now(), ["physical"]);
        operands.iter().for_each(|operand| marks.mark(StageOperation::Fill, *operand));
        let times = ledger_operations(&marks.finish());
        let names: Vec<&str> = times.iter().map(|time| &*time.operand).collect();
        assert_eq!((&names[..3], names[3]), (&expctl_settings::OPERANDS[..], "physical"));
        assert!(times.iter().all(|time| time.operation.name() == StageOperation::Fill.name()));
    }

    #[test]
    fn errors_of_rows_name_the_setting_that_caused_them() {
        let text = |error: CellError| DatasetError::from(error).to_string();
        let gene = || "x".to_owned();
        assert_eq!(text(CellError::RepeatedGene { gene: gene() }), "array.genes: \"x\" is listed twice");
        let unknown = CellError::UnknownGene { gene: gene(), genes: 4, first: vec!["a".to_owned(), "b".to_owned()] };
        assert_eq!(text(unknown), "array.genes: \"x\" is none of the 4 genes of the data (a, b …)");
        let expected = "array.normalize: -1 is no sum that rows can have; take one above 0, or 0 for none";
        assert_eq!(text(CellError::ScaleTarget { target: -1.0 }), expected);
        let problem = AnnDataError::Other("no column kind".into());
        let expected =
            "no column kind; it has classes: with sampler.draw = \"balanced\" each of them comes alike often";
        assert_eq!(text(CellError::WeightsAreClasses { problem }), expected);
        let block = |batch_size, chunks, chunk_rows| text(CellError::BlockSize { batch_size, chunks, chunk_rows });
        assert!(block(None, 0, 4).starts_with("sampler.chunks: 0 chunks of 4 rows cannot be held; "));
        let expected = "sampler.chunk_rows: 1 chunks of 34359738368 rows, for batches of 4294967296, cannot be held; take at \
                        least 1 chunk, and at most 4,294,967,295 rows";
        assert_eq!(block(Some(1 << 32), 1, 1 << 35), expected);
    }
}
