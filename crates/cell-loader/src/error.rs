//! `CellError`: the errors of samplers and loaders of cells. They name rows, columns and genes, and no setting of the program that asked for them.

use std::ops::Range;

use anndata_io::AnnDataError;
use loader_core::LoaderError;

/// What can go wrong between the rows of a store and a batch.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// A file cannot be read.
    #[error(transparent)]
    AnnData(#[from] AnnDataError),
    /// The loader cannot deliver a batch.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// A gene is asked for that the store does not have.
    #[error("{gene:?} is none of the {genes} genes of the data ({} …)", first.join(", "))]
    UnknownGene {
        /// The gene.
        gene: String,
        /// Number of genes of the store.
        genes: usize,
        /// The first of them.
        first: Vec<String>,
    },
    /// A gene is asked for that several columns of the store have.
    #[error("{gene:?} stands more than once in the data, so it names no column")]
    AmbiguousGene {
        /// The gene.
        gene: String,
    },
    /// A gene is asked for twice.
    #[error("{gene:?} is listed twice")]
    RepeatedGene {
        /// The gene.
        gene: String,
    },
    /// Rows are to be scaled to a sum that they cannot have.
    #[error("{target} is no sum that rows can have; take one above 0, or 0 for none")]
    ScaleTarget {
        /// The sum.
        target: f64,
    },
    /// Labels do not have a code for each row of the store.
    #[error("the store has {rows} rows, and the label columns have {found:?}")]
    LabelRows {
        /// Rows of the store.
        rows: u64,
        /// Rows of each label column.
        found: Vec<usize>,
    },
    /// A rank would have no batch in an epoch.
    #[error(
        "rank {rank} of {world_size} has no batch: {rows} rows an epoch in batches of {batch_size}{}",
        if *drop_last { ", the last that is not full left out" } else { "" }
    )]
    NoBatch {
        /// The rank.
        rank: u32,
        /// Number of ranks.
        world_size: u32,
        /// Rows of an epoch, of all ranks together.
        rows: u64,
        /// Rows of a batch.
        batch_size: u64,
        /// Batches that are not full are left out.
        drop_last: bool,
    },
    /// Rows cannot be drawn by the weights of a column.
    #[error("weights in {column}: {problem}")]
    Weights {
        /// The column of obs.
        column: String,
        /// What is wrong with the weights.
        problem: WeightsProblem,
    },
    /// A column of weights does not hold numbers, but classes.
    #[error("{problem}; it has classes, so rows can be drawn balanced by it")]
    WeightsAreClasses {
        /// Why the column cannot be read as numbers.
        problem: AnnDataError,
    },
    /// There are more rows than a table of classes can hold.
    #[error("classes in {column}: {rows} rows are more than can be drawn from; 4,294,967,295 can")]
    TooManyRows {
        /// The column of obs.
        column: String,
        /// Number of rows.
        rows: usize,
    },
    /// No row has a class.
    #[error("classes in {column}: none of the {rows} rows has one, so no row can be drawn")]
    NoClasses {
        /// The column of obs.
        column: String,
        /// Number of rows.
        rows: usize,
    },
    /// A column of obs does not have a value for each row.
    #[error("column {column} of obs has {values} values for {rows} rows")]
    ColumnLength {
        /// The column of obs.
        column: String,
        /// Its values.
        values: usize,
        /// Rows of the store.
        rows: u64,
    },
    /// A block has no chunk, or more rows than 32 bits can count.
    #[error(
        "{chunks} chunks of {chunk_rows} rows{} cannot be held; take at least 1 chunk, and at most 4,294,967,295 rows",
        batch_size.map(|size| format!(", for batches of {size},")).unwrap_or_default()
    )]
    BlockSize {
        /// Rows of a batch, if the chunks are those that batches in order need.
        batch_size: Option<u64>,
        /// Chunks of a block.
        chunks: u64,
        /// Rows of a chunk.
        chunk_rows: u64,
    },
    /// A row was drawn that a store in memory does not have.
    #[error("row {row} was drawn, and there are {rows} rows in memory")]
    RowBeyondEnd {
        /// The row.
        row: u64,
        /// Rows of the store.
        rows: u64,
    },
    /// A row is listed that the store does not have.
    #[error("row {row} is listed, and there are {rows} rows")]
    ListedRow {
        /// The row.
        row: u64,
        /// Rows of the store.
        rows: u64,
    },
    /// Rows that are listed for chunks do not ascend, or one is listed twice.
    #[error("row {row} is listed after itself or a later row, and rows of chunks ascend")]
    ListedOrder {
        /// The row.
        row: u64,
    },
    /// The ends of listed batches do not ascend up to the number of listed rows.
    #[error("the ends of the listed batches do not ascend up to {rows}, the number of listed rows")]
    ListedBatches {
        /// Listed rows.
        rows: usize,
    },
    /// A reader returned another number of rows than was asked for.
    #[error("rows {rows:?} were asked for, and {found} rows came")]
    RangeLength {
        /// The rows that were asked for.
        rows: Range<u64>,
        /// Number of rows returned.
        found: u64,
    },
    /// A reader returned another number of rows than a batch has.
    #[error("{found} rows were read in place of {expected}")]
    BatchLength {
        /// Number of rows returned.
        found: usize,
        /// Rows of the batch.
        expected: usize,
    },
    /// A sparse row has a column that is no gene.
    #[error("row {row} has a value in column {column}, and there are {genes} genes")]
    ColumnBeyondGenes {
        /// The row.
        row: u64,
        /// The column.
        column: i32,
        /// Number of genes.
        genes: usize,
    },
    /// A dense row has another number of values than there are genes.
    #[error("row {row} has {values} values for {genes} genes")]
    RowLength {
        /// The row.
        row: u64,
        /// Its values.
        values: usize,
        /// Number of genes.
        genes: usize,
    },
    /// The indices of a sparse batch do not fit into int32.
    #[error("a sparse batch of {rows} rows has 2,147,483,648 values or more; take smaller batches")]
    BatchTooLarge {
        /// Rows of the batch.
        rows: usize,
    },
}

/// What is wrong with weights.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum WeightsProblem {
    /// There are more weights than a table can hold.
    #[error("{rows} rows are more than can be drawn from; 4,294,967,295 can")]
    TooMany {
        /// Number of rows.
        rows: usize,
    },
    /// A row has no weight.
    #[error("row {row} has none, or NaN; give each row a number of 0 or more")]
    Missing {
        /// The row.
        row: usize,
    },
    /// A weight is negative or infinite.
    #[error("row {row} has {weight}; a weight is a finite number of 0 or more")]
    OutOfRange {
        /// The row.
        row: usize,
        /// Its weight.
        weight: f64,
    },
    /// No row can be drawn.
    #[error("all {rows} are 0; at least one must be more")]
    AllZero {
        /// Number of rows.
        rows: usize,
    },
}
