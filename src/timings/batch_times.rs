//! Times of all rows by method and epoch, in bounded memory.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use tempfile::SpooledTempFile;

use super::batch_check::{BatchCheck, BatchChecker, MAX_PAGES};
use super::source::TimingsError;

/// Series of up to this many rows (128 MiB of times) are sorted in memory, and all their figures are exact.
pub const EXACT_ROWS: u64 = 1 << 24;

/// Bytes of rows in memory; beyond them rows go to a temporary file.
const MEMORY_BYTES: usize = 64 << 20;
/// Maximum number of buffered rows, over all series.
const MAX_BUFFERED: usize = 1 << 21;
/// Rows of a chunk: the maximum that a series buffers.
const CHUNK_ROWS: usize = 1 << 16;
/// Maximum number of rows that are sorted at a time: 128 MiB, and as much again to sort them.
const MAX_SORTED: usize = 1 << 23;
/// Maximum number of pairs of method and epoch.
const MAX_SERIES: usize = 10_000;

/// Times of all rows by method and epoch, in the order of batches, in bounded memory.
#[derive(Debug)]
pub struct BatchTimes {
    path: PathBuf,
    methods: Vec<String>,
    epochs: Vec<String>,
    series: Vec<BatchSeries>,
    indices: HashMap<(u32, u32), usize>,
    spool: SpooledTempFile,
    end: u64,
    buffered: usize,
    /// Pages of bitmaps that are left for the checks of batch numbers.
    free_pages: usize,
}

/// The rows of one method and epoch.
#[derive(Debug)]
pub struct BatchSeries {
    method: u32,
    epoch: u32,
    rows: u64,
    chunks: Vec<SpooledChunk>,
    times: Vec<f64>,
    batches: Vec<u64>,
    /// Whether batch numbers are stored: from the first row on whose number is not that of the row.
    numbered: bool,
    /// Whether rows came without batch numbers, and were counted.
    counted: bool,
    checker: BatchChecker,
}

/// Rows of a series that are contiguous in the spool: times, then batch numbers if `numbered`.
#[derive(Clone, Copy, Debug)]
struct SpooledChunk {
    offset: u64,
    rows: usize,
    numbered: bool,
    /// Batch of the first row, if not `numbered`.
    first: u64,
}

impl BatchSeries {
    /// Number of rows.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// The check of its batch numbers; `None` where rows came without numbers, and were counted.
    pub fn check(&self) -> Option<BatchCheck> {
        (!self.counted).then(|| self.checker.result())
    }
}

impl BatchTimes {
    /// An empty store for the rows of `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            methods: Vec::new(),
            epochs: Vec::new(),
            series: Vec::new(),
            indices: HashMap::new(),
            spool: SpooledTempFile::new(MEMORY_BYTES),
            end: 0,
            buffered: 0,
            free_pages: MAX_PAGES,
        }
    }

    /// The series, in the order of their first rows.
    pub fn series(&self) -> &[BatchSeries] {
        &self.series
    }

    /// Methods, in the order of their first rows.
    pub fn methods(&self) -> &[String] {
        &self.methods
    }

    /// Indices of the series of a method.
    pub fn of_method(&self, method: usize) -> Vec<usize> {
        (0..self.series.len()).filter(|i| self.series[*i].method as usize == method).collect()
    }

    /// Name of the epoch of a series.
    pub fn epoch(&self, series: usize) -> &str {
        &self.epochs[self.series[series].epoch as usize]
    }

    /// Id of a method; a new one is added.
    pub fn method_id(&mut self, name: &str) -> u32 {
        id(&mut self.methods, name)
    }

    /// Id of an epoch; a new one is added.
    pub fn epoch_id(&mut self, name: &str) -> u32 {
        id(&mut self.epochs, name)
    }

    /// Add a row. Without a batch number it is the next of its series.
    ///
    /// # Errors
    /// [`TimingsError::ManySeries`], or [`TimingsError::Spool`] if the temporary file cannot be written.
    pub fn push(&mut self, method: u32, epoch: u32, batch: Option<u64>, seconds: f64) -> Result<(), TimingsError> {
        let index = match self.indices.get(&(method, epoch)) {
            Some(index) => *index,
            None => self.add_series(method, epoch)?,
        };
        let series = &mut self.series[index];
        series.counted |= batch.is_none();
        let batch = batch.unwrap_or(series.rows);
        let plain = batch == series.rows;
        let follows = series.checker.add(batch, &mut self.free_pages);
        let counts_up = follows && plain;
        if !(series.numbered || counts_up) {
            self.flush(index)?;
            self.series[index].numbered = true;
        }
        let series = &mut self.series[index];
        series.rows += 1;
        series.times.push(seconds);
        if series.numbered {
            series.batches.push(batch);
        }
        self.buffered += 1;
        if series.times.len() >= CHUNK_ROWS {
            self.flush(index)?;
        } else if self.buffered >= MAX_BUFFERED {
            (0..self.series.len()).try_for_each(|index| self.flush(index))?;
        }
        Ok(())
    }

    fn add_series(&mut self, method: u32, epoch: u32) -> Result<usize, TimingsError> {
        if self.series.len() >= MAX_SERIES {
            return Err(TimingsError::ManySeries { path: self.path.clone(), most: MAX_SERIES });
        }
        let index = self.series.len();
        self.series.push(BatchSeries {
            method,
            epoch,
            rows: 0,
            chunks: Vec::new(),
            times: Vec::new(),
            batches: Vec::new(),
            numbered: false,
            counted: false,
            checker: BatchChecker::default(),
        });
        self.indices.insert((method, epoch), index);
        Ok(index)
    }

    /// Write the buffered rows of a series.
    fn flush(&mut self, index: usize) -> Result<(), TimingsError> {
        let series = &mut self.series[index];
        let rows = series.times.len();
        if rows == 0 {
            return Ok(());
        }
        self.buffered -= rows;
        let mut bytes: Vec<u8> = Vec::with_capacity(rows * 16);
        // Taken with their buffers: thousands of complete series would keep more memory than the buffered rows need.
        std::mem::take(&mut series.times).into_iter().for_each(|time| bytes.extend(time.to_le_bytes()));
        std::mem::take(&mut series.batches).into_iter().for_each(|batch| bytes.extend(batch.to_le_bytes()));
        let first = series.rows - rows as u64;
        series.chunks.push(SpooledChunk { offset: self.end, rows, numbered: series.numbered, first });
        self.spool.seek(SeekFrom::Start(self.end))?;
        self.spool.write_all(&bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Pass the times of a series to `take` in the order of its batches, some ten thousand at a time.
    ///
    /// # Errors
    /// [`TimingsError::Spool`] if the temporary file cannot be read; [`TimingsError::Repeated`] if rows are out of order and too many have the
    /// same number.
    pub fn each_part(&mut self, index: usize, take: impl FnMut(&[f64])) -> Result<(), TimingsError> {
        self.each_part_of(index, MAX_SORTED, take)
    }

    /// [`BatchTimes::each_part`] with at most `max_rows` rows sorted at a time.
    fn each_part_of(
        &mut self,
        index: usize,
        max_rows: usize,
        mut take: impl FnMut(&[f64]),
    ) -> Result<(), TimingsError> {
        self.flush(index)?;
        let series = &self.series[index];
        let (rows, largest) = (series.rows, series.checker.largest());
        let chunks = series.chunks.clone();
        if series.checker.in_order() {
            for chunk in chunks {
                take(&self.read(&chunk)?.0);
            }
            return Ok(());
        }
        // Out of order: one range of batches at a time, each reading all chunks. The range is cut whenever it has more rows than
        // fit, so numbers may be far apart or repeat.
        let mut found: Vec<(u64, f64)> = Vec::with_capacity((max_rows + CHUNK_ROWS).min(rows as usize));
        let mut low = 0;
        while low <= largest {
            let mut end = largest + 1;
            for chunk in &chunks {
                let (times, batches) = self.read(chunk)?;
                let numbered = batches.into_iter().zip(times);
                found.extend(numbered.filter(|(batch, _)| (low..end).contains(batch)));
                if found.len() > max_rows {
                    let mut numbers: Vec<u64> = found.iter().map(|(batch, _)| *batch).collect();
                    let middle = *numbers.select_nth_unstable(max_rows / 2).1;
                    end = middle.max(low + 1);
                    found.retain(|(batch, _)| *batch < end);
                    if found.len() > max_rows {
                        let series = format!(
                            "{}, epoch {}",
                            self.methods[self.series[index].method as usize],
                            self.epoch(index)
                        );
                        return Err(TimingsError::Repeated { series, batch: low, most: max_rows });
                    }
                }
            }
            // A stable sort: rows with the same number stay in the order of the file.
            found.sort_by_key(|(batch, _)| *batch);
            let times: Vec<f64> = found.drain(..).map(|(_, time)| time).collect();
            take(&times);
            low = end;
        }
        Ok(())
    }

    /// Pass the times of a series to `take` in windows of `size`, the last of them up to twice as long.
    ///
    /// # Errors
    /// The errors of [`BatchTimes::each_part`].
    pub fn each_window(&mut self, index: usize, size: usize, mut take: impl FnMut(&[f64])) -> Result<(), TimingsError> {
        let mut buffer: Vec<f64> = Vec::new();
        self.each_part(index, |part| {
            buffer.extend(part);
            let mut from = 0;
            while buffer.len() - from >= 2 * size {
                take(&buffer[from..from + size]);
                from += size;
            }
            buffer.drain(..from);
        })?;
        if !buffer.is_empty() {
            take(&buffer);
        }
        Ok(())
    }

    /// Times and batch numbers of a chunk.
    fn read(&mut self, chunk: &SpooledChunk) -> Result<(Vec<f64>, Vec<u64>), TimingsError> {
        let words = if chunk.numbered { 2 } else { 1 };
        let mut bytes = vec![0; chunk.rows * 8 * words];
        self.spool.seek(SeekFrom::Start(chunk.offset))?;
        self.spool.read_exact(&mut bytes)?;
        let (words, _) = bytes.as_chunks::<8>();
        let (times, batches) = words.split_at(chunk.rows);
        let times = times.iter().map(|word| f64::from_le_bytes(*word)).collect();
        let batches = match chunk.numbered {
            true => batches.iter().map(|word| u64::from_le_bytes(*word)).collect(),
            false => (chunk.first..chunk.first + chunk.rows as u64).collect(),
        };
        Ok((times, batches))
    }
}

fn id(names: &mut Vec<String>, name: &str) -> u32 {
    let index = names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    index as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_the_order_of_their_batches() {
        let mut store = BatchTimes::new("x");
        let method = store.method_id("a");
        let epochs = [store.epoch_id("0"), store.epoch_id("1")];
        let n = 200_000_u64;
        for i in 0..n {
            store.push(method, epochs[0], None, i as f64).unwrap();
            // Odd multiples permute a power of two; of these, the first stay in order for a while.
            let batch = if i < 1000 { i } else { 1000 + (i - 1000) * 7919 % (n - 1000) };
            store.push(method, epochs[1], Some(batch), batch as f64).unwrap();
        }
        for place in 0..2 {
            let (mut all, mut windows) = (Vec::new(), 0);
            store
                .each_window(place, 4096, |window| {
                    all.extend(window);
                    windows += 1;
                    assert!(window.len() >= 4096);
                })
                .unwrap();
            assert!(windows == 48 && all.iter().enumerate().all(|(i, time): (usize, &f64)| *time == i as f64));
        }
        // The first came without numbers, so there was nothing to check.
        assert_eq!(store.series()[0].check(), None);
        let check = store.series()[1].check().unwrap();
        assert!(check.passed() && !check.in_order);
    }

    #[test]
    fn numbers_that_come_again_or_lie_far_apart_are_taken_some_at_a_time() {
        let mut store = BatchTimes::new("x");
        let (method, epoch, far) = (store.method_id("a"), store.epoch_id("0"), store.epoch_id("1"));
        for i in 0..300_000_u64 {
            store.push(method, epoch, Some(i % 30_000), (i % 30_000) as f64 + (i / 30_000) as f64 / 16.0).unwrap();
        }
        // Their check would fill hundreds of megabytes.
        store.free_pages = 10;
        for i in (0..300_000_u64).rev() {
            store.push(method, far, Some(i << 33), i as f64).unwrap();
        }
        for (place, most) in [(0, 40_000), (1, 40_000), (0, 300_000)] {
            let (mut all, mut largest) = (Vec::new(), 0);
            let part = |times: &[f64]| {
                all.extend_from_slice(times);
                largest = largest.max(times.len());
            };
            store.each_part_of(place, most, part).unwrap();
            assert!(all.len() == 300_000 && all.is_sorted() && largest <= most, "{place}: {largest}");
        }
        let refused = store.each_part_of(0, 5, |_| {}).unwrap_err();
        assert!(matches!(refused, TimingsError::Repeated { batch: 0, .. }), "{refused}");
        assert!(
            store.series.iter().all(|series| series.times.capacity() == 0),
            "buffers that were written are given back"
        );
    }
}
