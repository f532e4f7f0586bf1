//! Settings of a trial as options of the loaders, and errors of the loaders with the names of the settings.

use cell_loader::{CellBatchOptions, CellError, Draw, Fetch, Output};
use expctl_record::{Array, Pipeline, Sampler, StoreKind};
use graph_loader::{Collation, GraphBatchOptions, MaskSource, Processor, RecordFormat, Walk};

use crate::DatasetError;

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
    use expctl_record::Processor as Setting;
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
            let reason = "processor `rows` is of arrays: samples of a graph need another one";
            return Err(DatasetError::Invalid(reason.to_owned()));
        }
    };
    Ok(GraphBatchOptions {
        processor,
        collation: match pipeline.collation {
            expctl_record::Collation::Pyg => Collation::Pyg,
            expctl_record::Collation::LazyCollater => Collation::LazyCollater,
            expctl_record::Collation::SharedIndex => Collation::SharedIndex,
        },
        follow_batch: pipeline.follow_batch.clone(),
        hops: pipeline.hops,
        walk: match pipeline.walk {
            expctl_record::Walk::PerType => Walk::PerType,
            expctl_record::Walk::Union => Walk::Union,
        },
        mask_source: match pipeline.mask_source {
            expctl_record::MaskSource::Incidence => MaskSource::Incidence,
            expctl_record::MaskSource::GeneMasks => MaskSource::GeneMasks,
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
            expctl_record::Output::Dense => Output::Dense,
            expctl_record::Output::Sparse => Output::Sparse,
        },
        fetch: match array.fetch {
            expctl_record::Fetch::Batch => Fetch::Batch,
            expctl_record::Fetch::Row => Fetch::Row,
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
    use expctl_record::Draw as Setting;
    let Sampler { draw, chunk_rows, chunks, rows, .. } = *sampler;
    let column = || match sampler.by.as_str() {
        "" => Err(DatasetError::Invalid(format!(
            "sampler.by is empty; with draw = \"{}\" it names a column of obs",
            draw.name()
        ))),
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

impl From<CellError> for DatasetError {
    /// Errors that a setting causes name it.
    fn from(error: CellError) -> Self {
        match error {
            CellError::AnnData(error) => Self::AnnData(error),
            CellError::UnknownGene { .. } | CellError::AmbiguousGene { .. } | CellError::RepeatedGene { .. } => {
                Self::Invalid(format!("array.genes: {error}"))
            }
            CellError::ScaleTarget { .. } => Self::Invalid(format!("array.normalize = {error}")),
            CellError::BlockSize { chunks, chunk_rows } => Self::Invalid(format!(
                "sampler.chunks = {chunks} of {chunk_rows} rows cannot be held; take at least 1 chunk, and at most \
                 4,294,967,295 rows"
            )),
            CellError::WeightsAreClasses { problem } => {
                let advice = "it has classes: with sampler.draw = \"balanced\" each of them comes alike often";
                Self::AnnData(problem).and(advice.to_owned())
            }
            error => Self::Cell(error),
        }
    }
}
