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

use super::keys;
use super::{ParquetCompression, ParquetLayout, ParquetObsColumn, ParquetObsKind, ParquetOptions};
use crate::CsrRows;

/// Values that the encoder is handed at once: a few rows, so that a row group in memory is CSR even where its file is
/// dense.
const BATCH_VALUES: usize = 1 << 18;

/// Values of a column of obs for the rows of the next row group.
pub(super) enum Held {
    Labels(Vec<i32>),
    Numbers(Vec<f64>),
    Integers(Vec<Option<i64>>),
    Bools(Vec<bool>),
}

/// A required list of required elements, named as the format's specification (LogicalTypes.md, *Lists*) wants it.
fn list(name: &str, of: Physical) -> Result<Arc<Type>, ParquetError> {
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

/// Columns of a file.
pub(super) fn schema(obs: &[ParquetObsColumn], layout: ParquetLayout) -> Result<Arc<Type>, ParquetError> {
    let mut fields = match layout {
        ParquetLayout::Dense => vec![list(keys::DENSE, Physical::FLOAT)?],
        ParquetLayout::Sparse => vec![list(keys::INDICES, Physical::INT32)?, list(keys::VALUES, Physical::FLOAT)?],
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

/// How a file is written, with the names of genes and classes in its footer.
pub(super) fn properties(
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
        KeyValue::new(keys::GENES.to_owned(), serde_json::to_string(genes).map_err(json)?),
        KeyValue::new(keys::CATEGORIES.to_owned(), serde_json::to_string(&categories).map_err(json)?),
    ];
    let compression = match options.compression {
        ParquetCompression::None => Compression::UNCOMPRESSED,
        ParquetCompression::Snappy => Compression::SNAPPY,
        ParquetCompression::Zstd(level) => Compression::ZSTD(ZstdLevel::try_new(level)?),
    };
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_compression(compression)
        // Where a dictionary becomes too long; version 2's own choices are read by fewer.
        .set_encoding(Encoding::PLAIN)
        // Of a list of genes' values they say nothing, and cost a pass over all of them.
        .set_statistics_enabled(EnabledStatistics::None)
        .set_key_value_metadata(Some(pairs));
    let lists: &[&str] = match options.layout {
        ParquetLayout::Dense => &[keys::DENSE],
        ParquetLayout::Sparse => &[keys::INDICES, keys::VALUES],
    };
    for name in lists {
        let path = ColumnPath::new([name, "list", "element"].map(str::to_owned).to_vec());
        properties = properties.set_column_data_page_row_count_limit(path, options.page_rows);
    }
    Ok(properties.build())
}

/// Values of all genes, some rows at once.
pub(super) fn write_dense(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &CsrRows,
    genes: usize,
) -> Result<(), ParquetError> {
    let batch = (BATCH_VALUES / genes).clamp(1, rows.len());
    let definition = vec![1; batch * genes];
    let mut repetition = vec![1; batch * genes];
    repetition.iter_mut().step_by(genes).for_each(|level| *level = 0);
    let mut dense = vec![0.0; batch * genes];
    column(group, |writer: &mut ColumnWriterImpl<'_, FloatType>| {
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

/// Lists, some rows at once.
pub(super) fn write_lists<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    indptr: &[u64],
    values: &[T::T],
) -> Result<(), ParquetError> {
    let (mut definition, mut repetition) = (Vec::new(), Vec::new());
    column(group, |writer: &mut ColumnWriterImpl<'_, T>| {
        let mut first = indptr[0] as usize;
        for (row, pair) in indptr.windows(2).enumerate() {
            // A row without values has a level all the same.
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

/// A column of obs.
pub(super) fn write_obs(
    group: &mut SerializedRowGroupWriter<'_, File>,
    column_of: &ParquetObsColumn,
    held: &Held,
) -> Result<(), ParquetError> {
    match (&column_of.kind, held) {
        (ParquetObsKind::Labels(names), Held::Labels(codes)) => {
            let names: Vec<ByteArray> = names.iter().map(|name| name.as_str().into()).collect();
            let present: Vec<i16> = codes.iter().map(|code| i16::from(*code >= 0)).collect();
            let values: Vec<ByteArray> =
                codes.iter().filter_map(|code| usize::try_from(*code).ok()).map(|code| names[code].clone()).collect();
            column(group, |writer: &mut ColumnWriterImpl<'_, ByteArrayType>| {
                writer.write_batch(&values, Some(&present), None).map(|_| ())
            })
        }
        (_, Held::Numbers(values)) => column(group, |writer: &mut ColumnWriterImpl<'_, DoubleType>| {
            writer.write_batch(values, None, None).map(|_| ())
        }),
        (_, Held::Integers(values)) => {
            let present: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
            let values: Vec<i64> = values.iter().flatten().copied().collect();
            column(group, |writer: &mut ColumnWriterImpl<'_, Int64Type>| {
                writer.write_batch(&values, Some(&present), None).map(|_| ())
            })
        }
        (_, Held::Bools(values)) => column(group, |writer: &mut ColumnWriterImpl<'_, BoolType>| {
            writer.write_batch(values, None, None).map(|_| ())
        }),
        // `create` makes both of the same kind.
        (_, Held::Labels(_)) => Ok(()),
    }
}

/// The next column of the row group.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    write: impl FnOnce(&mut ColumnWriterImpl<'_, T>) -> Result<(), ParquetError>,
) -> Result<(), ParquetError> {
    let mut column =
        group.next_column()?.ok_or_else(|| ParquetError::General("the schema has too few columns".to_owned()))?;
    write(column.typed::<T>())?;
    column.close()
}
