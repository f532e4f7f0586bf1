use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use tempfile::SpooledTempFile;

use super::batch_check::{Checker, MOST_PAGES};
use super::{BatchCheck, TimingsError};

/// Series of up to so many rows (128 MiB of times) are sorted in memory, and all figures of them are exact.
pub const EXACT_ROWS: u64 = 1 << 24;

/// Bytes of rows that are kept in memory; beyond them they go to a temporary file.
const IN_MEMORY: usize = 64 << 20;
/// Rows that wait for their way into the store, over all series.
const WAITING: usize = 1 << 21;
/// Most rows of a series that wait.
const CHUNK: usize = 1 << 16;
/// Most rows that are put in order at a time: 128 MiB, and as much again to sort them.
const SORTED: usize = 1 << 23;
/// Most pairs of method and epoch.
const MOST_SERIES: usize = 10_000;

/// Times of all rows by method and epoch, in the order of batches, in bounded memory.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    methods: Vec<String>,
    epochs: Vec<String>,
    series: Vec<Series>,
    places: HashMap<(u32, u32), usize>,
    spool: SpooledTempFile,
    end: u64,
    waiting: usize,
    /// Pages of bitmaps that the checks of batch numbers may still take.
    free_pages: usize,
}

/// The rows of one method and epoch.
#[derive(Debug)]
pub struct Series {
    method: u32,
    epoch: u32,
    rows: u64,
    chunks: Vec<Chunk>,
    times: Vec<f64>,
    batches: Vec<u64>,
    /// From the first row that does not follow on those before, batch numbers are kept.
    numbered: bool,
    /// Rows came without batch numbers, and were counted.
    counted: bool,
    checker: Checker,
}

/// Rows of a series beside each other in the spool: times, then, where numbered, batches.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    at: u64,
    rows: usize,
    numbered: bool,
    /// Batch of the first row where not numbered.
    first: u64,
}

impl Series {
    /// Number of rows.
    pub const fn rows(&self) -> u64 {
        self.rows
    }

    /// What the check of its batch numbers came to; none where rows came without, and were counted.
    pub fn check(&self) -> Option<BatchCheck> {
        (!self.counted).then(|| self.checker.result())
    }
}

impl Store {
    /// An empty store of what `path` holds.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            methods: Vec::new(),
            epochs: Vec::new(),
            series: Vec::new(),
            places: HashMap::new(),
            spool: SpooledTempFile::new(IN_MEMORY),
            end: 0,
            waiting: 0,
            free_pages: MOST_PAGES,
        }
    }

    /// The series, in the order of their first rows.
    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// Methods, in the order of their first rows.
    pub fn methods(&self) -> &[String] {
        &self.methods
    }

    /// Numbers of the series of a method.
    pub fn of_method(&self, method: usize) -> Vec<usize> {
        (0..self.series.len()).filter(|i| self.series[*i].method as usize == method).collect()
    }

    /// Name of the epoch of a series.
    pub fn epoch(&self, series: usize) -> &str {
        &self.epochs[self.series[series].epoch as usize]
    }

    /// Number of a method, which is added where it is new.
    pub fn method_id(&mut self, name: &str) -> u32 {
        id(&mut self.methods, name)
    }

    /// Number of an epoch, which is added where it is new.
    pub fn epoch_id(&mut self, name: &str) -> u32 {
        id(&mut self.epochs, name)
    }

    /// Add a row. Without a batch number it is the next of its series.
    ///
    /// # Errors
    /// Too many series, or a temporary file that cannot be written.
    pub fn push(&mut self, method: u32, epoch: u32, batch: Option<u64>, seconds: f64) -> Result<(), TimingsError> {
        let place = match self.places.get(&(method, epoch)) {
            Some(place) => *place,
            None => self.add_series(method, epoch)?,
        };
        let series = &mut self.series[place];
        series.counted |= batch.is_none();
        let batch = batch.unwrap_or(series.rows);
        let plain = batch == series.rows;
        let follows = series.checker.see(batch, &mut self.free_pages);
        let counts_up = follows && plain;
        if !(series.numbered || counts_up) {
            self.flush(place)?;
            self.series[place].numbered = true;
        }
        let series = &mut self.series[place];
        series.rows += 1;
        series.times.push(seconds);
        if series.numbered {
            series.batches.push(batch);
        }
        self.waiting += 1;
        if series.times.len() >= CHUNK {
            self.flush(place)?;
        } else if self.waiting >= WAITING {
            (0..self.series.len()).try_for_each(|place| self.flush(place))?;
        }
        Ok(())
    }

    fn add_series(&mut self, method: u32, epoch: u32) -> Result<usize, TimingsError> {
        if self.series.len() >= MOST_SERIES {
            return Err(TimingsError::ManySeries { path: self.path.clone(), most: MOST_SERIES });
        }
        let place = self.series.len();
        self.series.push(Series {
            method,
            epoch,
            rows: 0,
            chunks: Vec::new(),
            times: Vec::new(),
            batches: Vec::new(),
            numbered: false,
            counted: false,
            checker: Checker::default(),
        });
        self.places.insert((method, epoch), place);
        Ok(place)
    }

    /// Write what waits of a series.
    fn flush(&mut self, place: usize) -> Result<(), TimingsError> {
        let series = &mut self.series[place];
        let rows = series.times.len();
        if rows == 0 {
            return Ok(());
        }
        self.waiting -= rows;
        let mut bytes: Vec<u8> = Vec::with_capacity(rows * 16);
        // Taken with what they lie in: thousands of series that are done would hold more than all that wait.
        std::mem::take(&mut series.times).into_iter().for_each(|time| bytes.extend(time.to_le_bytes()));
        std::mem::take(&mut series.batches).into_iter().for_each(|batch| bytes.extend(batch.to_le_bytes()));
        let first = series.rows - rows as u64;
        series.chunks.push(Chunk { at: self.end, rows, numbered: series.numbered, first });
        self.spool.seek(SeekFrom::Start(self.end))?;
        self.spool.write_all(&bytes)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Hand out the times of a series in the order of its batches, some ten thousand at a time.
    ///
    /// # Errors
    /// A temporary file that cannot be read; rows out of order of which too many have the same number.
    pub fn each_part(&mut self, place: usize, take: impl FnMut(&[f64])) -> Result<(), TimingsError> {
        self.each_part_of(place, SORTED, take)
    }

    /// The same, with at most so many rows to be put in order at a time.
    fn each_part_of(&mut self, place: usize, most: usize, mut take: impl FnMut(&[f64])) -> Result<(), TimingsError> {
        self.flush(place)?;
        let series = &self.series[place];
        let (rows, largest) = (series.rows, series.checker.largest());
        let chunks = series.chunks.clone();
        if series.checker.in_order() {
            for chunk in chunks {
                take(&self.read(&chunk)?.0);
            }
            return Ok(());
        }
        // Out of order: a range of batches at a time, each with a look at all chunks. The range is cut back whenever it has
        // more rows than fit, so numbers may lie far apart or come again and again.
        let mut found: Vec<(u64, f64)> = Vec::with_capacity((most + CHUNK).min(rows as usize));
        let mut low = 0;
        while low <= largest {
            let mut end = largest + 1;
            for chunk in &chunks {
                let (times, batches) = self.read(chunk)?;
                let numbered = batches.into_iter().zip(times);
                found.extend(numbered.filter(|(batch, _)| (low..end).contains(batch)));
                if found.len() > most {
                    let mut numbers: Vec<u64> = found.iter().map(|(batch, _)| *batch).collect();
                    let middle = *numbers.select_nth_unstable(most / 2).1;
                    end = middle.max(low + 1);
                    found.retain(|(batch, _)| *batch < end);
                    if found.len() > most {
                        let series = format!(
                            "{}, epoch {}",
                            self.methods[self.series[place].method as usize],
                            self.epoch(place)
                        );
                        return Err(TimingsError::Repeated { series, batch: low, most });
                    }
                }
            }
            // Of rows with the same number, the first in the file comes first.
            found.sort_by_key(|(batch, _)| *batch);
            let times: Vec<f64> = found.drain(..).map(|(_, time)| time).collect();
            take(&times);
            low = end;
        }
        Ok(())
    }

    /// Hand out the times of a series in windows of `size`, the last of them up to twice as long.
    ///
    /// # Errors
    /// As [`Store::each_part`].
    pub fn each_window(&mut self, place: usize, size: usize, mut take: impl FnMut(&[f64])) -> Result<(), TimingsError> {
        let mut held: Vec<f64> = Vec::new();
        self.each_part(place, |part| {
            held.extend(part);
            let mut from = 0;
            while held.len() - from >= 2 * size {
                take(&held[from..from + size]);
                from += size;
            }
            held.drain(..from);
        })?;
        if !held.is_empty() {
            take(&held);
        }
        Ok(())
    }

    /// Times and batch numbers of a chunk.
    fn read(&mut self, chunk: &Chunk) -> Result<(Vec<f64>, Vec<u64>), TimingsError> {
        let words = if chunk.numbered { 2 } else { 1 };
        let mut bytes = vec![0; chunk.rows * 8 * words];
        self.spool.seek(SeekFrom::Start(chunk.at))?;
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
    let place = names.iter().position(|n| n == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    place as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_the_order_of_their_batches() {
        let mut store = Store::new("x");
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
        let mut store = Store::new("x");
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
