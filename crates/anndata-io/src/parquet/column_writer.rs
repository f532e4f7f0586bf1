//! Schema of a new file, and its columns: of the matrix and of obs.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::column::writer::ColumnWriterImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::{ColumnPath, Type};

use crate::CsrRows;
use crate::parquet::schema::{CATEGORIES_KEY, DENSE_COLUMN, GENES_KEY, INDICES_COLUMN, VALUES_COLUMN};
use crate::parquet::writer::{ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetOptions};

/// Values of an obs column for the rows of the next row group.
pub(crate) enum PendingObs {
    Labels(Vec<i32>),
    Numbers(Vec<f64>),
    Integers(Vec<Option<i64>>),
    Bools(Vec<bool>),
}

/// Values that are passed to the encoder at once: a few rows, so that the buffered row group stays CSR even if the file is
/// dense.
const BATCH_VALUES: usize = 1 << 18;

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
pub(crate) fn file_schema(obs: &[ParquetObsColumn], layout: ParquetLayout) -> Result<Arc<Type>, ParquetError> {
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
pub(crate) fn writer_properties(
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
pub(crate) fn write_dense(
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
pub(crate) fn write_lists<T: DataType>(
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
pub(crate) fn write_obs(
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
