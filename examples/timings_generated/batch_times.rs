//! Times of the shape that was seen in the published array-loader benchmark, drawn at random.
//!
//! Invariant: the metadata of the files say that they are generated. They show what the analysis finds, and nothing about the loaders.

use std::path::Path;
use std::sync::Arc;

use expctl::timings::{CLASS_KEY, TimingsClass};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// A draw from the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut Pcg64) -> f64 {
    let (u, v): (f64, f64) = (1.0 - random.random::<f64>(), random.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Lognormal times about a median, s.
pub fn noise(random: &mut Pcg64, batches: usize, median_s: f64, sigma: f64) -> Vec<f64> {
    (0..batches).map(|_| median_s * (sigma * normal(random)).exp()).collect()
}

/// Census as the notebook describes it: about every 10th batch some 100 times as slow, a slip by one batch every 40 to 50; and
/// another line of batches of about 1 s at every 10th batch, without slips.
pub fn census(random: &mut Pcg64, batches: usize) -> Vec<f64> {
    let mut times = noise(random, batches, 0.045, 0.3);
    let steady = random.random_range(0..10);
    (steady..batches).step_by(10).for_each(|i| times[i] = (0.12 * normal(random)).exp());
    let mut at = random.random_range(0..10);
    let mut slip = at + random.random_range(40..=50);
    while at < batches {
        times[at] = 5.5 * (0.25 * normal(random)).exp();
        at += 10;
        if at > slip {
            at += 1;
            slip += random.random_range(40..=50);
        }
    }
    times
}

/// Merlin as described: every 10th batch some 30 times as slow; the first epoch noisy.
pub fn merlin(random: &mut Pcg64, batches: usize, first: bool) -> Vec<f64> {
    let mut times = noise(random, batches, 0.02, if first { 1.1 } else { 0.25 });
    let phase = random.random_range(0..10);
    (phase..batches).step_by(10).for_each(|i| times[i] = 0.6 * (0.3 * normal(random)).exp());
    times
}

/// MappedCollection as described: even times with outliers, of which each is on a 7th batch.
pub fn mapped_collection(random: &mut Pcg64, batches: usize) -> Vec<f64> {
    let mut times = noise(random, batches, 0.085, 0.12);
    let phase = random.random_range(0..7);
    for i in (phase..batches).step_by(7) {
        if random.random_bool(0.3) {
            times[i] *= 1.8 + random.random::<f64>() * 3.0;
        }
    }
    times
}

/// One row group for each method and epoch of the published file's shape: 148,045 rows, batches in `__index_level_0__` as
/// pandas writes an index without a name, methods in the file's order.
///
/// # Errors
/// The file cannot be written.
pub fn write_benchmark(path: &Path, seed: u64) -> Result<(), ParquetError> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut file = BenchmarkWriter::new(path)?;
    for epoch in 0..5 {
        file.group("Merlin", epoch, &merlin(&mut random, 9870, epoch == 0))?;
    }
    for epoch in 0..5 {
        file.group("Census", epoch, &census(&mut random, 9870))?;
    }
    for epoch in 0..5 {
        file.group("MappedCollection", epoch, &mapped_collection(&mut random, 9869))?;
    }
    file.close()
}

/// Many rows of the same shape, a million to a row group, for measuring: three methods of five epochs.
///
/// # Errors
/// The file cannot be written.
pub fn write_many(path: &Path, seed: u64, rows: usize) -> Result<(), ParquetError> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut file = BenchmarkWriter::new(path)?;
    let size = 1_000_000;
    for (method, of_method) in [("Merlin", 0), ("Census", 1), ("MappedCollection", 2)] {
        for epoch in 0..5 {
            let batches = rows / 15 + usize::from(of_method * 5 + epoch < (rows % 15) as i64);
            for from in (0..batches).step_by(size) {
                let n = size.min(batches - from);
                let times = match of_method {
                    0 => merlin(&mut random, n, epoch == 0),
                    1 => census(&mut random, n),
                    _ => mapped_collection(&mut random, n),
                };
                file.group_from(method, epoch, from as i64, &times)?;
            }
        }
    }
    file.close()
}

struct BenchmarkWriter(SerializedFileWriter<std::fs::File>);

impl BenchmarkWriter {
    fn new(path: &Path) -> Result<Self, ParquetError> {
        let column = |name: &str, kind, logical| {
            let builder = Type::primitive_type_builder(name, kind).with_repetition(Repetition::REQUIRED);
            builder.with_logical_type(logical).build().map(Arc::new)
        };
        let fields = vec![
            column("method", Physical::BYTE_ARRAY, Some(LogicalType::String))?,
            column("epoch", Physical::INT64, None)?,
            column("batch_times", Physical::DOUBLE, None)?,
            column("__index_level_0__", Physical::INT64, None)?,
        ];
        let schema = Arc::new(Type::group_type_builder("batch").with_fields(fields).build()?);
        let class = KeyValue::new(CLASS_KEY.to_owned(), TimingsClass::Generated.name().to_owned());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_key_value_metadata(Some(vec![class]))
            .build();
        Ok(Self(SerializedFileWriter::new(std::fs::File::create(path)?, schema, Arc::new(properties))?))
    }

    fn group(&mut self, method: &str, epoch: i64, times: &[f64]) -> Result<(), ParquetError> {
        self.group_from(method, epoch, 0, times)
    }

    fn group_from(&mut self, method: &str, epoch: i64, from: i64, times: &[f64]) -> Result<(), ParquetError> {
        let mut group = self.0.next_row_group()?;
        if let Some(mut column) = group.next_column()? {
            let values = vec![ByteArray::from(method); times.len()];
            column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            column.typed::<Int64Type>().write_batch(&vec![epoch; times.len()], None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            column.typed::<DoubleType>().write_batch(times, None, None)?;
            column.close()?;
        }
        if let Some(mut column) = group.next_column()? {
            let batches: Vec<i64> = (from..from + times.len() as i64).collect();
            column.typed::<Int64Type>().write_batch(&batches, None, None)?;
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    fn close(self) -> Result<(), ParquetError> {
        self.0.close().map(|_| ())
    }
}
