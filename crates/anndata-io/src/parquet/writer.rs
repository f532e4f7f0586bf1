use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};

use crate::names::check_unique;
use crate::parquet::schema::{CATEGORIES_KEY, DENSE_COLUMN, GENES_KEY, INDICES_COLUMN, VALUES_COLUMN};
use crate::{AnnDataError, CsrRows, CsrView, RowsView};

/// How the matrix is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ParquetLayout {
    /// One list column `X` with a value for each gene in each row, as NVIDIA Merlin reads it.
    #[default]
    Dense,
    /// Two list columns of the same lengths, `indices` (int32) and `values` (float32).
    Sparse,
}

/// Compression of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParquetCompression {
    /// None.
    None,
    /// Snappy, the default of most writers.
    Snappy,
    /// Zstandard with this level.
    Zstd(i32),
}

/// Options of [`ParquetWriter`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// How the matrix is stored.
    pub layout: ParquetLayout,
    /// Rows of a row group.
    pub row_group_rows: usize,
    /// Maximum rows of a page of the matrix: a reader decodes a whole page to get one row.
    pub page_rows: usize,
    /// Compression of pages.
    pub compression: ParquetCompression,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self {
            layout: ParquetLayout::Dense,
            row_group_rows: 1024,
            page_rows: 16,
            compression: ParquetCompression::Snappy,
        }
    }
}

/// Type of a column of obs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParquetObsKind {
    /// Classes with these names; written as strings with a dictionary.
    Labels(Vec<String>),
    /// float64.
    Numbers,
    /// Nullable int64.
    Integers,
    /// Booleans.
    Bools,
}

/// Name and type of a column of obs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetObsColumn {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: ParquetObsKind,
}

impl ParquetObsColumn {
    /// Fails if the name is that of a column of the matrix.
    pub(crate) fn check(&self) -> Result<(), String> {
        if [DENSE_COLUMN, INDICES_COLUMN, VALUES_COLUMN].contains(&self.name.as_str()) {
            return Err(format!("an obs column cannot have the name '{}': the matrix has it", self.name));
        }
        Ok(())
    }
}

/// Values of a column of obs for some rows.
#[derive(Clone, Copy, Debug)]
pub enum ParquetObsValues<'a> {
    /// int32 `[rows]`: class; -1 is a missing value.
    Labels(&'a [i32]),
    /// float64 `[rows]`; NaN is a missing value.
    Numbers(&'a [f64]),
    /// int64 `[rows]`.
    Integers(&'a [Option<i64>]),
    /// Booleans `[rows]`.
    Bools(&'a [bool]),
}

/// Writes a parquet file that pyarrow, pandas and [`crate::ParquetStore`] read.
///
/// Memory holds the rows (CSR) and the pages of one row group. The file is complete only after [`Self::finish`]; a caller that
/// must not leave an incomplete file writes to another name and renames it.
pub struct ParquetWriter {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    genes: usize,
    obs: Vec<ParquetObsColumn>,
    options: ParquetOptions,
    /// Rows of the next row group.
    rows: CsrRows,
    held: Vec<PendingObs>,
    written: u64,
}

impl ParquetWriter {
    /// Creates or replaces the file at `path`. `genes` are the names of the columns.
    ///
    /// # Errors
    /// A name of a gene, an obs column or a class occurs twice, or an obs column has the name of a column of the matrix; there
    /// are more genes than int32 counts; the file cannot be written.
    pub fn create(
        path: &Path,
        genes: &[String],
        obs: &[ParquetObsColumn],
        options: &ParquetOptions,
    ) -> Result<Self, AnnDataError> {
        check_names(genes, obs, options).map_err(|reason| AnnDataError::damaged(path, reason))?;
        let failed = |e: ParquetError| AnnDataError::damaged(path, e);
        let schema = file_schema(obs, options.layout).map_err(failed)?;
        let properties = writer_properties(genes, obs, options).map_err(failed)?;
        let file = File::create(path).map_err(AnnDataError::io("create", path))?;
        let writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(failed)?;
        let held = obs.iter().map(|column| match column.kind {
            ParquetObsKind::Labels(_) => PendingObs::Labels(Vec::new()),
            ParquetObsKind::Numbers => PendingObs::Numbers(Vec::new()),
            ParquetObsKind::Integers => PendingObs::Integers(Vec::new()),
            ParquetObsKind::Bools => PendingObs::Bools(Vec::new()),
        });
        Ok(Self {
            path: path.to_owned(),
            writer,
            genes: genes.len(),
            held: held.collect(),
            obs: obs.to_vec(),
            options: options.clone(),
            rows: CsrRows::default(),
            written: 0,
        })
    }

    /// Appends rows, and their values of all obs columns in the order of [`Self::create`].
    ///
    /// # Errors
    /// The number of values is not that of the rows, or their type is not that of the column; a code is not that of a class; a
    /// column index of a row is too large, or they do not ascend; the disk is full.
    pub fn write_rows(&mut self, rows: &RowsView<'_>, obs: &[ParquetObsValues<'_>]) -> Result<(), AnnDataError> {
        let count = match rows {
            RowsView::Sparse(rows) => rows.indptr.len().saturating_sub(1),
            RowsView::Dense { data, .. } => data.len().checked_div(self.genes).unwrap_or(0),
        };
        self.check_rows(rows).and_then(|()| self.check_obs(count, obs)).map_err(|e| self.refused(e))?;
        let mut done = 0;
        while done < count {
            let take = (count - done).min(self.options.row_group_rows - self.rows.len());
            match rows {
                RowsView::Sparse(rows) => self.hold_sparse(rows, done, take),
                RowsView::Dense { data, .. } => self.hold_dense(&data[done * self.genes..(done + take) * self.genes]),
            }
            for (held, values) in self.held.iter_mut().zip(obs) {
                match (held, values) {
                    (PendingObs::Labels(held), ParquetObsValues::Labels(values)) => {
                        held.extend(&values[done..done + take])
                    }
                    (PendingObs::Numbers(held), ParquetObsValues::Numbers(values)) => {
                        held.extend(&values[done..done + take])
                    }
                    (PendingObs::Integers(held), ParquetObsValues::Integers(values)) => {
                        held.extend(&values[done..done + take]);
                    }
                    (PendingObs::Bools(held), ParquetObsValues::Bools(values)) => {
                        held.extend(&values[done..done + take])
                    }
                    // `check_obs` has rejected it.
                    _ => {}
                }
            }
            done += take;
            if self.rows.len() == self.options.row_group_rows {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Writes the rest and the footer; returns the number of rows in the file.
    ///
    /// # Errors
    /// The disk is full.
    pub fn finish(mut self) -> Result<u64, AnnDataError> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        let path = self.path;
        let file = self.writer.into_inner().map_err(|e| AnnDataError::damaged(&path, e))?;
        file.sync_all().map_err(AnnDataError::io("write", &path))?;
        Ok(self.written)
    }

    fn refused(&self, reason: String) -> AnnDataError {
        AnnDataError::Invalid(format!("cannot write rows to {}: {reason}", self.path.display()))
    }

    fn check_rows(&self, rows: &RowsView<'_>) -> Result<(), String> {
        match rows {
            RowsView::Dense { columns, data } if *columns != self.genes || data.len() % (*columns).max(1) != 0 => {
                Err(format!("rows of {columns} values, the file has {} genes", self.genes))
            }
            RowsView::Dense { .. } => Ok(()),
            RowsView::Sparse(rows) => {
                for row in 0..rows.indptr.len().saturating_sub(1) {
                    let (columns, _) = rows.row(row);
                    let last = columns.last().map_or(0, |last| *last as i64);
                    if columns.first().is_some_and(|first| *first < 0)
                        || (!columns.is_empty() && last >= self.genes as i64)
                        || columns.windows(2).any(|pair| pair[0] >= pair[1])
                    {
                        return Err(format!("columns of row {row} do not ascend within 0..{}", self.genes));
                    }
                }
                Ok(())
            }
        }
    }

    fn check_obs(&self, count: usize, obs: &[ParquetObsValues<'_>]) -> Result<(), String> {
        if obs.len() != self.obs.len() {
            return Err(format!("{} columns of obs, the file has {}", obs.len(), self.obs.len()));
        }
        for (column, values) in self.obs.iter().zip(obs) {
            let (len, fits) = match (&column.kind, values) {
                (ParquetObsKind::Labels(names), ParquetObsValues::Labels(codes)) => {
                    let classes = -1..names.len() as i64;
                    (codes.len(), codes.iter().all(|code| classes.contains(&i64::from(*code))))
                }
                (ParquetObsKind::Numbers, ParquetObsValues::Numbers(values)) => (values.len(), true),
                (ParquetObsKind::Integers, ParquetObsValues::Integers(values)) => (values.len(), true),
                (ParquetObsKind::Bools, ParquetObsValues::Bools(values)) => (values.len(), true),
                _ => return Err(format!("the values of obs column '{}' are of another kind", column.name)),
            };
            if len != count {
                return Err(format!("{len} values of obs column '{}' for {count} rows", column.name));
            }
            if !fits {
                return Err(format!("a code of obs column '{}' is of no class", column.name));
            }
        }
        Ok(())
    }

    fn hold_sparse(&mut self, rows: &CsrView<'_>, first: usize, count: usize) {
        let range = rows.indptr[first] as usize..rows.indptr[first + count] as usize;
        let shift = self.rows.indices.len() as u64;
        let ends = &rows.indptr[first + 1..=first + count];
        self.rows.indptr.extend(ends.iter().map(|end| end - range.start as u64 + shift));
        self.rows.indices.extend(&rows.indices[range.clone()]);
        self.rows.data.extend(&rows.data[range]);
    }

    fn hold_dense(&mut self, data: &[f32]) {
        for row in data.chunks_exact(self.genes) {
            self.rows.push_dense(row);
        }
    }

    /// Writes a row group with the buffered rows.
    fn flush(&mut self) -> Result<(), AnnDataError> {
        let path = &self.path;
        let mut write = || -> Result<(), ParquetError> {
            let mut group = self.writer.next_row_group()?;
            match self.options.layout {
                ParquetLayout::Dense => write_dense(&mut group, &self.rows, self.genes)?,
                ParquetLayout::Sparse => {
                    write_lists::<Int32Type>(&mut group, &self.rows.indptr, &self.rows.indices)?;
                    write_lists::<FloatType>(&mut group, &self.rows.indptr, &self.rows.data)?;
                }
            }
            for (column, held) in self.obs.iter().zip(&self.held) {
                write_obs(&mut group, column, held)?;
            }
            group.close()?;
            Ok(())
        };
        write().map_err(|e| AnnDataError::damaged(path, e))?;
        self.written += self.rows.len() as u64;
        self.rows.clear();
        for held in &mut self.held {
            match held {
                PendingObs::Labels(codes) => codes.clear(),
                PendingObs::Numbers(values) => values.clear(),
                PendingObs::Integers(values) => values.clear(),
                PendingObs::Bools(values) => values.clear(),
            }
        }
        Ok(())
    }
}

fn check_names(genes: &[String], obs: &[ParquetObsColumn], options: &ParquetOptions) -> Result<(), String> {
    if genes.is_empty() || i32::try_from(genes.len()).is_err() {
        return Err(format!("cannot write rows of {} genes", genes.len()));
    }
    check_unique(genes)?;
    if options.row_group_rows == 0 || options.page_rows == 0 {
        return Err("row groups and pages have 1 row or more".to_owned());
    }
    let mut names = HashSet::new();
    for column in obs {
        column.check()?;
        if !names.insert(&column.name) {
            return Err(format!("two obs columns have the name '{}'", column.name));
        }
        if let ParquetObsKind::Labels(classes) = &column.kind {
            let different: HashSet<_> = classes.iter().collect();
            if different.len() != classes.len() {
                return Err(format!("two classes of obs column '{}' have one name", column.name));
            }
        }
    }
    Ok(())
}

/// Values that are passed to the encoder at once: a few rows, so that the buffered row group stays CSR even if the file is
/// dense.
const BATCH_VALUES: usize = 1 << 18;

/// Values of an obs column for the rows of the next row group.
enum PendingObs {
    Labels(Vec<i32>),
    Numbers(Vec<f64>),
    Integers(Vec<Option<i64>>),
    Bools(Vec<bool>),
}

/// A required list of required elements, named as in the specification (LogicalTypes.md, *Lists*).
fn list_type(name: &str, of: Physical) -> Result<Arc<Type>, ParquetError> {
    let element = Type::primitive_type_builder("element", of).with_repetition(Repetition::REQUIRED).build()?;
    let repeated = Type::group_type_builder("list")
        .with_repetition(Repetition::REPEATED)
        .with_fields(vec![Arc::new(element)])
        .build()?;
    let list = Type::group_type_builder(name)
        .with_repetition(Repetition::REQUIRED)
        .with_logical_type(Some(LogicalType::List))
        .with_fields(vec![Arc::new(repeated)])
        .build()?;
    Ok(Arc::new(list))
}

/// Schema of the file.
fn file_schema(obs: &[ParquetObsColumn], layout: ParquetLayout) -> Result<Arc<Type>, ParquetError> {
    let mut fields = match layout {
        ParquetLayout::Dense => vec![list_type(DENSE_COLUMN, Physical::FLOAT)?],
        ParquetLayout::Sparse => {
            vec![list_type(INDICES_COLUMN, Physical::INT32)?, list_type(VALUES_COLUMN, Physical::FLOAT)?]
        }
    };
    for column in obs {
        let field = match column.kind {
            ParquetObsKind::Labels(_) => Type::primitive_type_builder(&column.name, Physical::BYTE_ARRAY)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(Some(LogicalType::String))
                .build()?,
            ParquetObsKind::Numbers => Type::primitive_type_builder(&column.name, Physical::DOUBLE)
                .with_repetition(Repetition::REQUIRED)
                .build()?,
            ParquetObsKind::Integers => Type::primitive_type_builder(&column.name, Physical::INT64)
                .with_repetition(Repetition::OPTIONAL)
                .build()?,
            ParquetObsKind::Bools => Type::primitive_type_builder(&column.name, Physical::BOOLEAN)
                .with_repetition(Repetition::REQUIRED)
                .build()?,
        };
        fields.push(Arc::new(field));
    }
    Ok(Arc::new(Type::group_type_builder("schema").with_fields(fields).build()?))
}

/// Properties of the file, with the names of genes and classes in its footer.
fn writer_properties(
    genes: &[String],
    obs: &[ParquetObsColumn],
    options: &ParquetOptions,
) -> Result<WriterProperties, ParquetError> {
    let categories: BTreeMap<&str, &[String]> = obs
        .iter()
        .filter_map(|column| match &column.kind {
            ParquetObsKind::Labels(names) => Some((column.name.as_str(), names.as_slice())),
            ParquetObsKind::Numbers | ParquetObsKind::Integers | ParquetObsKind::Bools => None,
        })
        .collect();
    let json = |e: serde_json::Error| ParquetError::General(e.to_string());
    let pairs = vec![
        KeyValue::new(GENES_KEY.to_owned(), serde_json::to_string(genes).map_err(json)?),
        KeyValue::new(CATEGORIES_KEY.to_owned(), serde_json::to_string(&categories).map_err(json)?),
    ];
    let compression = match options.compression {
        ParquetCompression::None => Compression::UNCOMPRESSED,
        ParquetCompression::Snappy => Compression::SNAPPY,
        ParquetCompression::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level)?),
    };
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(compression)
        // Limit of a dictionary; the defaults of version 2 are supported by fewer readers.
        .set_encoding(Encoding::PLAIN)
        // Statistics of a list of values are useless, and cost a pass over the data.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(pairs));
    let lists: &[&str] = match options.layout {
        ParquetLayout::Dense => &[DENSE_COLUMN],
        ParquetLayout::Sparse => &[INDICES_COLUMN, VALUES_COLUMN],
    };
    for name in lists {
        let path = ColumnPath::new([name, "list", "element"].map(str::to_owned).to_vec());
        properties = properties.set_column_data_page_row_count_limit(path, options.page_rows);
    }
    Ok(properties.build())
}

/// Writes a dense list column, some rows at once.
fn write_dense(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &CsrRows,
    genes: usize,
) -> Result<(), ParquetError> {
    let batch = (BATCH_VALUES / genes).clamp(1, rows.len());
    let definition = vec![1; batch * genes];
    let mut repetition = vec![1; batch * genes];
    repetition.iter_mut().step_by(genes).for_each(|level| *level = 0);
    let mut dense = vec![0.0; batch * genes];
    write_column(group, |writer: &mut ColumnWriterImpl<'_, FloatType>| {
        for first in (0..rows.len()).step_by(batch) {
            let n = batch.min(rows.len() - first);
            dense.fill(0.0);
            for (row, out) in (first..first + n).zip(dense.chunks_exact_mut(genes)) {
                let (columns, values) = rows.view().row(row);
                columns.iter().zip(values).for_each(|(column, value)| out[*column as usize] = *value);
            }
            let count = n * genes;
            writer.write_batch(&dense[..count], Some(&definition[..count]), Some(&repetition[..count]))?;
        }
        Ok(())
    })
}

/// Writes a sparse list column, some rows at once.
fn write_lists<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    indptr: &[u64],
    values: &[T::T],
) -> Result<(), ParquetError> {
    let (mut definition, mut repetition) = (Vec::new(), Vec::new());
    write_column(group, |writer: &mut ColumnWriterImpl<'_, T>| {
        let mut first = indptr[0] as usize;
        for (row, pair) in indptr.windows(2).enumerate() {
            // An empty row has a level, too.
            let len = (pair[1] - pair[0]) as usize;
            repetition.push(0);
            repetition.resize(repetition.len() + len.saturating_sub(1), 1);
            definition.resize(definition.len() + len.max(1), i16::from(len > 0));
            if definition.len() >= BATCH_VALUES || row + 2 == indptr.len() {
                let last = pair[1] as usize;
                writer.write_batch(&values[first..last], Some(&definition), Some(&repetition))?;
                first = last;
                definition.clear();
                repetition.clear();
            }
        }
        Ok(())
    })
}

/// Writes a column of obs.
fn write_obs(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column_of: &ParquetObsColumn,
    held: &PendingObs,
) -> Result<(), ParquetError> {
    match (&column_of.kind, held) {
        (ParquetObsKind::Labels(names), PendingObs::Labels(codes)) => {
            let names: Vec<ByteArray> = names.iter().map(|name| name.as_str().into()).collect();
            let present: Vec<i16> = codes.iter().map(|code| i16::from(*code >= 0)).collect();
            let values: Vec<ByteArray> =
                codes.iter().filter_map(|code| usize::try_from(*code).ok()).map(|code| names[code].clone()).collect();
            write_column(group, |writer: &mut ColumnWriterImpl<'_, ByteArrayType>| {
                writer.write_batch(&values, Some(&present), None).map(|_| ())
            })
        }
        (_, PendingObs::Numbers(values)) => write_column(group, |writer: &mut ColumnWriterImpl<'_, DoubleType>| {
            writer.write_batch(values, None, None).map(|_| ())
        }),
        (_, PendingObs::Integers(values)) => {
            let present: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<i64> = values.iter().flatten().copied().collect();
            write_column(group, |writer: &mut ColumnWriterImpl<'_, Int64Type>| {
                writer.write_batch(&values, Some(&present), None).map(|_| ())
            })
        }
        (_, PendingObs::Bools(values)) => write_column(group, |writer: &mut ColumnWriterImpl<'_, BoolType>| {
            writer.write_batch(values, None, None).map(|_| ())
        }),
        // `create` makes both of the same type.
        (_, PendingObs::Labels(_)) => Ok(()),
    }
}

/// The next column of the row group.
fn write_column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<(), ParquetError>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("the schema has too few columns".to_owned()))?;
    write(column.typed::<T>())?;
    column.close()
}
