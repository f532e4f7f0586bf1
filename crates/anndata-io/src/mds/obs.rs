//! Reads an obs column of all samples as classes or numbers, shard by shard, on several threads.
//! Invariant: values are in the order of the rows, whichever thread has read a shard.

use crate::annotation::coded_column::{BOOL_NAMES, CodedColumn};
use crate::in_parallel::{in_parallel, threads};
use crate::mds::encoding::{ColumnEncoding, ObsNumber, scalar};
use crate::mds::error::{MdsError, SampleError};
use crate::mds::shard::{Shard, ShardBody};
use crate::{AnnDataError, LabelKind, Labels, MdsStore};

/// Samples of at most this average size are read in large blocks.
const SHORT_SAMPLE_BYTES: u64 = 1 << 13;
/// Size of these blocks in bytes.
const BLOCK_BYTES: usize = 4 << 20;
/// First bytes of a larger sample that are read at once: obs columns are often among them.
const FIRST_READ_BYTES: u64 = 1 << 12;

/// Reads a column of obs as classes.
pub(crate) fn obs_labels(store: &MdsStore, name: &str, column: usize) -> Result<Labels, AnnDataError> {
    let noted = store.notes.categories.get(name);
    let missing = MissingValue(store.notes.missing.get(name).copied());
    let encoding = &store.columns.encodings[column];
    let wrong = |error| column_error(store, name, error);
    match encoding {
        ColumnEncoding::Text => {
            let parts = each_shard(store, column, CodedColumn::default, |coded: &mut CodedColumn<String>, cell| {
                coded.add(Some(cell_text(cell)?));
                Ok(())
            })?;
            CodedColumn::labels(parts, noted, LabelKind::Text).map_err(|error| wrong(error.into()))
        }
        ColumnEncoding::Scalar(dtype) if dtype.is_float() => Err(wrong(MdsError::Fractions)),
        ColumnEncoding::TextFloat => Err(wrong(MdsError::Fractions)),
        _ => match noted {
            Some(categories) => {
                let parts = each_shard(store, column, Vec::new, |codes: &mut Vec<i32>, cell| {
                    let code = cell_integer(encoding, cell)?;
                    let known = (-1..categories.len() as i128).contains(&code);
                    codes.push(i32::try_from(code).ok().filter(|_| known).ok_or_else(|| {
                        let code = i64::try_from(code).unwrap_or(i64::MAX);
                        SampleError::UnknownClass { code, classes: categories.len() }
                    })?);
                    Ok(())
                })?;
                let kind = if *categories == BOOL_NAMES { LabelKind::Bool } else { LabelKind::Text };
                Ok(Labels { categories: categories.clone(), kind, codes: parts.concat() })
            }
            None => {
                let parts = each_shard(store, column, CodedColumn::default, |coded: &mut CodedColumn<i128>, cell| {
                    coded.add(missing.or_none(cell_integer(encoding, cell)?));
                    Ok(())
                })?;
                CodedColumn::labels(parts, None, LabelKind::Integer).map_err(|error| wrong(error.into()))
            }
        },
    }
}

/// Reads a column of obs as numbers; a missing value is NaN.
pub(crate) fn obs_numbers(store: &MdsStore, name: &str, column: usize) -> Result<Vec<f64>, AnnDataError> {
    let missing = MissingValue(store.notes.missing.get(name).copied());
    let encoding = &store.columns.encodings[column];
    let is_classes = store.notes.categories.get(name).is_some_and(|names| *names != BOOL_NAMES);
    if *encoding == ColumnEncoding::Text || is_classes {
        return Err(column_error(store, name, MdsError::Text));
    }
    let parts = each_shard(store, column, Vec::new, |values: &mut Vec<f64>, cell| {
        values.push(cell_number(encoding, cell, missing)?);
        Ok(())
    })?;
    Ok(parts.concat())
}

#[cold]
fn column_error(store: &MdsStore, name: &str, error: MdsError) -> AnnDataError {
    AnnDataError::damaged(store.path(), MdsError::Obs { column: name.to_owned(), error: Box::new(error) })
}

/// Reads a column of all samples, shard by shard on several threads; returns a `T` for each shard, in order.
fn each_shard<T: Send + Sync>(
    store: &MdsStore,
    column: usize,
    new: impl Fn() -> T + Sync,
    add: impl Fn(&mut T, &[u8]) -> Result<(), SampleError> + Sync,
) -> Result<Vec<T>, AnnDataError> {
    in_parallel(threads(), store.shards.len(), "reading a column of obs", |shard| {
        let mut part = new();
        let samples = 0..store.shards[shard].samples();
        each_cell(store, (shard, samples), column, &mut Vec::new(), |cell| add(&mut part, cell))?;
        Ok(part)
    })
}

/// Passes the value of the first sample of a shard to `take`.
pub(crate) fn first_cell(
    store: &MdsStore,
    shard: usize,
    column: usize,
    mut take: impl FnMut(&[u8]),
) -> Result<(), AnnDataError> {
    each_cell(store, (shard, 0..1), column, &mut Vec::new(), |cell| {
        take(cell);
        Ok(())
    })
}

/// Passes the values of the samples of a shard to `take`, in order.
fn each_cell(
    store: &MdsStore,
    (number, samples): (usize, std::ops::Range<u64>),
    column: usize,
    bytes: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]) -> Result<(), SampleError>,
) -> Result<(), AnnDataError> {
    let (source, shard, shape) = (&store.source, &store.shards[number], &store.columns.shape);
    let mut of_sample = |sample: &[u8], at: u64| -> Result<(), AnnDataError> {
        let result = shape.cells(sample, [column, column]).and_then(|[cell, _]| take(cell));
        result.map_err(|error| store.damaged(number, at, error))
    };
    match &shard.body {
        ShardBody::Packed(codec) => {
            let packed = shard.read_packed(source)?;
            shard.unpack(source, *codec, &packed, bytes)?;
            drop(packed);
            for sample in samples {
                of_sample(&bytes[Shard::sample_in(bytes, sample as usize)], sample)?;
            }
        }
        ShardBody::Raw(offsets)
            if source.is_remote() || shard.raw_bytes() / shard.samples().max(1) <= SHORT_SAMPLE_BYTES =>
        {
            let mut next = samples.start;
            while next < samples.end {
                let start = Shard::sample(offsets, next as usize).start;
                let wanted = &offsets[next as usize + 1..=samples.end as usize];
                let count = wanted.partition_point(|end| u64::from(*end) - start <= BLOCK_BYTES as u64).max(1);
                let end = u64::from(wanted[count - 1]);
                bytes.clear();
                source.append_to(shard.start + start, (end - start) as usize, bytes)?;
                for sample in next..next + count as u64 {
                    let within = Shard::sample(offsets, sample as usize);
                    of_sample(&bytes[(within.start - start) as usize..(within.end - start) as usize], sample)?;
                }
                next += count as u64;
            }
        }
        ShardBody::Raw(offsets) => {
            let mut rest = Vec::new();
            for sample in samples {
                let within = Shard::sample(offsets, sample as usize);
                let len = within.end - within.start;
                let first = len.min(FIRST_READ_BYTES.max(shape.head() as u64));
                bytes.clear();
                source.append_to(shard.start + within.start, first as usize, bytes)?;
                let wrong = |error| store.damaged(number, sample, error);
                let cell = shape.cell(bytes, len, column).map_err(wrong)?;
                let cell = if cell.end <= first {
                    &bytes[cell.start as usize..cell.end as usize]
                } else {
                    rest.clear();
                    source.append_to(
                        shard.start + within.start + cell.start,
                        (cell.end - cell.start) as usize,
                        &mut rest,
                    )?;
                    &rest
                };
                take(cell).map_err(wrong)?;
            }
        }
    }
    source.unchanged()
}

/// The integer that is a missing value.
#[derive(Clone, Copy, Debug)]
struct MissingValue(pub(crate) Option<i64>);

impl MissingValue {
    fn or_none(self, value: i128) -> Option<i128> {
        (self.0.map(i128::from) != Some(value)).then_some(value)
    }
}

/// String of a sample.
fn cell_text(cell: &[u8]) -> Result<&str, SampleError> {
    Ok(std::str::from_utf8(cell)?)
}

/// Integer of a sample.
fn cell_integer(encoding: &ColumnEncoding, cell: &[u8]) -> Result<i128, SampleError> {
    let found = match encoding {
        ColumnEncoding::Scalar(dtype) => match scalar(*dtype, cell) {
            Some(ObsNumber::Integer(value)) => Some(value),
            _ => None,
        },
        ColumnEncoding::TextInteger => cell_text(cell)?.trim().parse().ok(),
        _ => None,
    };
    found.ok_or(SampleError::NotInteger)
}

/// Number of a sample; a missing value is NaN.
fn cell_number(encoding: &ColumnEncoding, cell: &[u8], missing: MissingValue) -> Result<f64, SampleError> {
    let found = match encoding {
        ColumnEncoding::Scalar(dtype) => match scalar(*dtype, cell) {
            Some(ObsNumber::Float(value)) => Some(value),
            Some(ObsNumber::Integer(value)) => {
                return Ok(missing.or_none(value).map_or(f64::NAN, |value| value as f64));
            }
            None => None,
        },
        ColumnEncoding::TextFloat => cell_text(cell)?.trim().parse().ok(),
        _ => return Ok(missing.or_none(cell_integer(encoding, cell)?).map_or(f64::NAN, |value| value as f64)),
    };
    found.ok_or(SampleError::NotNumber)
}

#[cfg(test)]
mod obs_values_tests {
    use super::*;
    use crate::mds::encoding::MdsDtype;

    #[test]
    fn values_are_those_of_the_package() {
        let none = MissingValue(None);
        assert_eq!(
            cell_integer(&ColumnEncoding::TextInteger, b"-12345678901234567890"),
            Ok(-12_345_678_901_234_567_890)
        );
        assert_eq!(cell_number(&ColumnEncoding::TextFloat, b"1e-05", none), Ok(1e-5));
        assert!(cell_number(&ColumnEncoding::TextFloat, b"nan", none).unwrap().is_nan());
        assert!(cell_number(&ColumnEncoding::Scalar(MdsDtype::I8), &[255], MissingValue(Some(-1))).unwrap().is_nan());
        assert_eq!(cell_number(&ColumnEncoding::Scalar(MdsDtype::F32), &1.5_f32.to_le_bytes(), none), Ok(1.5));
        assert!(cell_number(&ColumnEncoding::TextFloat, b"x", none).is_err());
        assert!(cell_integer(&ColumnEncoding::Scalar(MdsDtype::I64), &[0; 7]).is_err());
        assert!(cell_text(&[255]).is_err());
    }
}
