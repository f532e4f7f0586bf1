//! Names of columns, and of the footer's key-value metadata.

/// List column of a dense matrix.
pub(super) const DENSE: &str = "X";
/// List column of a sparse matrix: number of the gene of each value.
pub(super) const INDICES: &str = "indices";
/// List column of a sparse matrix: the values.
pub(super) const VALUES: &str = "values";
/// Key: names of the genes, a JSON list of strings.
pub(super) const GENES: &str = "expctl.genes";
/// Key: number of genes, where there are no names.
pub(super) const COLUMNS: &str = "expctl.columns";
/// Key: categories of columns of obs in their order, a JSON object of lists of strings.
pub(super) const CATEGORIES: &str = "expctl.categories";
/// Key: columns that belong to obs although they hold numbers, a JSON list; needed where each gene is a column.
pub(super) const OBS: &str = "expctl.obs";
