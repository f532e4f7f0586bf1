//! Columns of the matrix and of obs, from the schema and the key-value metadata of a file.

use std::collections::{BTreeMap, HashSet};

use parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};

use crate::names::{check_count, check_unique, numbered_genes};
use crate::parquet::error::ParquetError;
use crate::parquet::values::NumericType;

/// A column of the matrix.
#[derive(Clone, Debug)]
pub(crate) struct MatrixColumn {
    /// Number among the columns of a row group.
    pub column: usize,
    /// Type of its values.
    pub numeric: NumericType,
    /// Definition level of a present value.
    pub max_definition: i16,
    /// Repetition level of a value that does not begin a row: 1 for lists, else 0.
    pub max_repetition: i16,
    /// Definition level of an empty list.
    pub empty: i16,
}

/// How the matrix is stored.
#[derive(Debug)]
pub(crate) enum ParquetMatrixLayout {
    /// A list of the values of all genes in each row.
    Dense(MatrixColumn),
    /// A list of gene numbers and a list of values.
    Sparse { indices: MatrixColumn, values: MatrixColumn },
    /// A column for each gene.
    Wide(Vec<MatrixColumn>),
}

/// A column of obs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ObsColumn {
    /// Strings.
    Text(usize),
    /// Booleans.
    Bool(usize),
    /// Numbers of this type.
    Number(usize, NumericType),
}

/// Content of a file, from its schema and metadata.
#[derive(Debug)]
pub(crate) struct ParquetSchema {
    pub layout: ParquetMatrixLayout,
    /// Gene names.
    pub genes: Vec<String>,
    /// Columns of obs by name.
    pub obs: BTreeMap<String, ObsColumn>,
    /// Categories of columns of obs in their order, if the metadata has them.
    pub categories: BTreeMap<String, Vec<String>>,
    /// A warning about what had to be guessed.
    pub guess: Option<String>,
}

/// Finds the matrix, the genes and obs.
pub(crate) fn read_schema(metadata: &ParquetMetaData) -> Result<ParquetSchema, ParquetError> {
    let schema = metadata.file_metadata().schema_descr();
    let roots = schema.root_schema().get_fields();
    let mut names = HashSet::with_capacity(roots.len());
    if let Some(root) = roots.iter().find(|root| !names.insert(root.name())) {
        return Err(ParquetError::RepeatedColumn { column: root.name().to_owned() });
    }
    let notes = KeyValueNotes::of(metadata)?;
    let lists = list_columns(schema);
    let leaf = |name: &str| lists.iter().find(|(list, _)| *list == name).map(|(_, leaf)| leaf.clone());
    let mut obs = flat_columns(schema);
    let (layout, mut genes) = match (leaf(DENSE_COLUMN), leaf(INDICES_COLUMN), leaf(VALUES_COLUMN)) {
        (Some(dense), _, _) => (ParquetMatrixLayout::Dense(dense), Vec::new()),
        (None, Some(indices), Some(values)) => {
            if indices.numeric.is_float() {
                return Err(ParquetError::IndicesType);
            }
            (ParquetMatrixLayout::Sparse { indices, values }, Vec::new())
        }
        _ if lists.len() == 1 => (ParquetMatrixLayout::Dense(lists[0].1.clone()), Vec::new()),
        _ if !lists.is_empty() => {
            let lists = lists.iter().map(|(name, _)| (*name).to_owned()).collect();
            return Err(ParquetError::UnknownLists { lists });
        }
        _ => gene_columns(schema, &notes, &mut obs)?,
    };
    // The metadata of pandas only says which columns are its index.
    let is_guess = matches!(layout, ParquetMatrixLayout::Wide(_)) && notes.genes.is_none() && !notes.has_obs;
    let guess = genes.first().zip(genes.last()).filter(|_| is_guess).map(|(first, last)| {
        format!(
            "nothing says which columns are genes, so the {} columns of numbers of the most frequent type are: '{first}' \
             to '{last}'; the key-value metadata can say '{}' (a JSON list of the genes) or '{}' (of columns of numbers \
             that are none)",
            genes.len(),
            GENES_KEY,
            OBS_KEY
        )
    });
    if genes.is_empty() {
        genes = match notes.genes {
            Some(genes) => genes,
            None => numbered_genes(match (notes.columns, &layout) {
                (Some(columns), _) => columns as u64,
                (None, ParquetMatrixLayout::Dense(leaf)) => row_length(metadata, leaf.column)? as u64,
                (None, _) => return Err(ParquetError::NoGeneCount),
            })?,
        };
    }
    check_count(genes.len() as u64)?;
    Ok(ParquetSchema { layout, genes, obs, categories: notes.categories, guess })
}

/// The relevant part of the key-value metadata.
#[derive(Default)]
struct KeyValueNotes {
    genes: Option<Vec<String>>,
    columns: Option<usize>,
    categories: BTreeMap<String, Vec<String>>,
    obs: HashSet<String>,
    /// Whether [`OBS_KEY`] is there, and not only the index of pandas.
    has_obs: bool,
}

impl KeyValueNotes {
    fn of(metadata: &ParquetMetaData) -> Result<Self, ParquetError> {
        let mut notes = Self::default();
        for pair in metadata.file_metadata().key_value_metadata().into_iter().flatten() {
            let Some(value) = &pair.value else { continue };
            let wrong = |source| ParquetError::Metadata { key: pair.key.clone(), source };
            match pair.key.as_str() {
                GENES_KEY => {
                    let genes: Vec<String> = serde_json::from_str(value).map_err(wrong)?;
                    check_unique(&genes)?;
                    notes.genes = Some(genes);
                }
                COLUMNS_KEY => {
                    let columns: i32 = serde_json::from_str(value).map_err(wrong)?;
                    notes.columns = usize::try_from(columns).ok();
                }
                CATEGORIES_KEY => notes.categories = serde_json::from_str(value).map_err(wrong)?,
                OBS_KEY => {
                    notes.has_obs = true;
                    notes.obs.extend(serde_json::from_str::<Vec<String>>(value).map_err(wrong)?);
                }
                "pandas" => notes.obs.extend(pandas_index(value)),
                _ => {}
            }
        }
        Ok(notes)
    }
}

/// Columns with the index of a pandas data frame.
fn pandas_index(metadata: &str) -> Vec<String> {
    let Ok(metadata) = serde_json::from_str::<serde_json::Value>(metadata) else { return Vec::new() };
    let columns = metadata["index_columns"].as_array().cloned().unwrap_or_default();
    columns.iter().filter_map(|column| column.as_str().map(str::to_owned)).collect()
}

/// Columns that are lists of numbers, by name.
fn list_columns(schema: &SchemaDescriptor) -> Vec<(&str, MatrixColumn)> {
    let roots: Vec<usize> = (0..schema.num_columns()).map(|leaf| schema.get_column_root_idx(leaf)).collect();
    let mut lists = Vec::new();
    for (column, descriptor) in schema.columns().iter().enumerate() {
        let alone = roots.iter().filter(|root| **root == roots[column]).count() == 1;
        // A list within another group has a higher repetition level, or another group around it.
        if descriptor.max_rep_level() != 1 || descriptor.path().parts().len() > 3 || !alone {
            continue;
        }
        if let Some(numeric) = NumericType::of(descriptor) {
            let leaf = MatrixColumn {
                column,
                numeric,
                max_definition: descriptor.max_def_level(),
                max_repetition: 1,
                empty: descriptor.repeated_ancestor_def_level() - 1,
            };
            lists.push((schema.get_column_root(column).name(), leaf));
        }
    }
    lists
}

/// Columns with one value a row, by name.
fn flat_columns(schema: &SchemaDescriptor) -> BTreeMap<String, ObsColumn> {
    let flat = schema.columns().iter().enumerate().filter(|(_, column)| column.path().parts().len() == 1);
    flat.filter_map(|(number, column)| {
        let leaf = match column.physical_type() {
            Physical::BOOLEAN => ObsColumn::Bool(number),
            Physical::BYTE_ARRAY if is_text(column) => ObsColumn::Text(number),
            _ => ObsColumn::Number(number, NumericType::of(column)?),
        };
        (column.max_rep_level() == 0).then(|| (column.name().to_owned(), leaf))
    })
    .collect()
}

fn is_text(column: &ColumnDescriptor) -> bool {
    match column.logical_type_ref() {
        Some(LogicalType::String | LogicalType::Enum) => true,
        Some(_) => false,
        None => matches!(column.converted_type(), ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::ENUM),
    }
}

/// A column for each gene: of the numeric columns those with the most frequent type, except those that the metadata assigns to
/// obs. They are removed from `obs`.
fn gene_columns(
    schema: &SchemaDescriptor,
    notes: &KeyValueNotes,
    obs: &mut BTreeMap<String, ObsColumn>,
) -> Result<(ParquetMatrixLayout, Vec<String>), ParquetError> {
    let named: Option<HashSet<&String>> = notes.genes.as_ref().map(|genes| genes.iter().collect());
    let mut types: Vec<(NumericType, Vec<(usize, &String)>)> = Vec::new();
    for (name, leaf) in obs.iter() {
        let ObsColumn::Number(column, numeric) = leaf else { continue };
        if notes.obs.contains(name) || named.as_ref().is_some_and(|named| !named.contains(name)) {
            continue;
        }
        match types.iter_mut().find(|(of, _)| of == numeric) {
            Some((_, columns)) => columns.push((*column, name)),
            None => types.push((*numeric, vec![(*column, name)])),
        }
    }
    types.sort_by_key(|(_, columns)| std::cmp::Reverse(columns.len()));
    // Columns that the metadata names may have several types.
    let kept = if named.is_some() { types.len() } else { 1 };
    let mut genes: Vec<(usize, String, NumericType)> = Vec::new();
    for (numeric, columns) in types.into_iter().take(kept) {
        genes.extend(columns.into_iter().map(|(column, name)| (column, name.clone(), numeric)));
    }
    genes.sort_by_key(|(column, ..)| *column);
    if genes.is_empty() {
        return Err(ParquetError::NoMatrix);
    }
    if let (Some(names), Some(missing)) = (&notes.genes, &named) {
        let have: HashSet<&String> = genes.iter().map(|(_, name, _)| name).collect();
        if let Some(gene) = missing.iter().find(|gene| !have.contains(*gene)) {
            return Err(ParquetError::NoGeneColumn { gene: (**gene).clone() });
        }
        let order: BTreeMap<&String, usize> = names.iter().enumerate().map(|(place, name)| (name, place)).collect();
        genes.sort_by_key(|(_, name, _)| order.get(name).copied());
    }
    let leaves = genes.iter().map(|(column, _, numeric)| MatrixColumn {
        column: *column,
        numeric: *numeric,
        max_definition: schema.columns()[*column].max_def_level(),
        max_repetition: 0,
        empty: -1,
    });
    let leaves = leaves.collect();
    let names: Vec<String> = genes.into_iter().map(|(_, name, _)| name).collect();
    for name in &names {
        obs.remove(name);
    }
    Ok((ParquetMatrixLayout::Wide(leaves), names))
}

/// Number of values of a row, from the first row group with rows.
fn row_length(metadata: &ParquetMetaData, column: usize) -> Result<usize, ParquetError> {
    let Some(group) = metadata.row_groups().iter().find(|group| group.num_rows() > 0) else { return Ok(0) };
    let values = group.columns().get(column).map_or(0, |chunk| chunk.num_values());
    match usize::try_from(values / group.num_rows()) {
        Ok(length) if values % group.num_rows() == 0 => Ok(length),
        _ => Err(ParquetError::RowLength { values, rows: group.num_rows() }),
    }
}

/// List column of a dense matrix.
pub(crate) const DENSE_COLUMN: &str = "X";
/// List column of a sparse matrix: gene numbers.
pub(crate) const INDICES_COLUMN: &str = "indices";
/// List column of a sparse matrix: values.
pub(crate) const VALUES_COLUMN: &str = "values";
/// Key of the gene names, a JSON list of strings.
pub(crate) const GENES_KEY: &str = "expctl.genes";
/// Key of the number of genes, if they have no names.
pub(crate) const COLUMNS_KEY: &str = "expctl.columns";
/// Key of the categories of obs columns in their order, a JSON object of lists of strings.
pub(crate) const CATEGORIES_KEY: &str = "expctl.categories";
/// Key of numeric columns that belong to obs, a JSON list; needed if each gene is a column.
pub(crate) const OBS_KEY: &str = "expctl.obs";
