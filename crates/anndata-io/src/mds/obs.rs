use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::encoding::Encoding;
use super::obs_values::{Coded, Missing, integer, number, text};
use super::shard::{Body, Shard};
use super::store::MdsStore;
use crate::AnnDataError;
use crate::{LabelKind, Labels};

/// Of samples that are no longer on average, several are read at once.
const SHORT: u64 = 1 << 13;
/// Bytes that are read at once of these.
const BLOCK: usize = 4 << 20;
/// Bytes that are read first of each of the others: columns of obs are often among them.
const BEGINNING: u64 = 1 << 12;
/// Threads that read, at most: each holds a shard, where they are compressed.
const THREADS: usize = 8;

/// How classes are named that stand for truth values.
pub(super) const BOOLS: [&str; 2] = ["False", "True"];

/// A column of obs as classes.
pub(super) fn labels(store: &MdsStore, name: &str, column: usize) -> Result<Labels, AnnDataError> {
    let noted = store.notes.categories.get(name);
    let missing = Missing(store.notes.missing.get(name).copied());
    let encoding = &store.columns.encodings[column];
    let wrong = |reason: String| AnnDataError::damaged(store.path(), format!("obs column '{name}': {reason}"));
    match encoding {
        Encoding::Text => {
            let parts = each_shard(store, column, Coded::default, |coded: &mut Coded<String>, cell| {
                coded.add(Some(text(cell)?));
                Ok(())
            })?;
            Coded::labels(parts, noted, LabelKind::Text).map_err(wrong)
        }
        Encoding::Scalar(dtype) if dtype.is_float() => {
            Err(wrong("it holds numbers with fractions: they are no classes".to_owned()))
        }
        Encoding::TextFloat => Err(wrong("it holds numbers with fractions: they are no classes".to_owned())),
        _ => match noted {
            Some(categories) => {
                let parts =
                    each_shard(store, column, Vec::new, |codes: &mut Vec<i32>, cell| {
                        let code = integer(encoding, cell)?;
                        let known = (-1..categories.len() as i128).contains(&code);
                        codes.push(i32::try_from(code).ok().filter(|_| known).ok_or_else(|| {
                            format!("{code} is the number of none of its {} classes", categories.len())
                        })?);
                        Ok(())
                    })?;
                let kind = if *categories == BOOLS { LabelKind::Bool } else { LabelKind::Text };
                Ok(Labels { categories: categories.clone(), kind, codes: parts.concat() })
            }
            None => {
                let parts = each_shard(store, column, Coded::default, |coded: &mut Coded<i128>, cell| {
                    coded.add(missing.or_none(integer(encoding, cell)?));
                    Ok(())
                })?;
                Coded::labels(parts, None, LabelKind::Integer).map_err(wrong)
            }
        },
    }
}

/// A column of obs as numbers; NaN where there is none.
pub(super) fn numbers(store: &MdsStore, name: &str, column: usize) -> Result<Vec<f64>, AnnDataError> {
    let missing = Missing(store.notes.missing.get(name).copied());
    let encoding = &store.columns.encodings[column];
    let is_classes = store.notes.categories.get(name).is_some_and(|names| *names != BOOLS);
    if *encoding == Encoding::Text || is_classes {
        let reason = format!("obs column '{name}': it holds text, not numbers");
        return Err(AnnDataError::damaged(store.path(), reason));
    }
    let parts = each_shard(store, column, Vec::new, |values: &mut Vec<f64>, cell| {
        values.push(number(encoding, cell, missing)?);
        Ok(())
    })?;
    Ok(parts.concat())
}

/// Read a column of all samples, shard by shard on several threads; each has a `T` for each shard, in their order.
fn each_shard<T: Send + Sync>(
    store: &MdsStore,
    column: usize,
    new: impl Fn() -> T + Sync,
    add: impl Fn(&mut T, &[u8]) -> Result<(), String> + Sync,
) -> Result<Vec<T>, AnnDataError> {
    let shards = store.shards.len();
    let found: Vec<OnceLock<Result<T, AnnDataError>>> = (0..shards).map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS).min(shards);
    let work = || {
        let mut bytes = Vec::new();
        loop {
            let shard = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = found.get(shard) else { return };
            let mut part = new();
            let samples = 0..store.shards[shard].samples();
            let read = each_cell(store, (shard, samples), column, &mut bytes, |cell| add(&mut part, cell));
            if read.is_err() {
                // The others need not go on.
                next.store(shards, Ordering::Relaxed);
            }
            let _ = slot.set(read.map(|()| part));
        }
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        for other in others {
            other.join().map_err(|panic| AnnDataError::panicked("reading a column of obs", panic.as_ref()))?;
        }
        Ok::<_, AnnDataError>(())
    })?;
    let mut parts = Vec::with_capacity(shards);
    let mut missing = false;
    for slot in found {
        match slot.into_inner() {
            Some(part) => parts.push(part?),
            None => missing = true,
        }
    }
    if missing {
        return Err(AnnDataError::Invalid("a thread that reads a column of obs ended early".to_owned()));
    }
    Ok(parts)
}

/// Hand over what the first sample of a shard has of a column.
pub(super) fn first_cell(
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

/// Hand over what samples of a shard have of a column, in order.
fn each_cell(
    store: &MdsStore,
    (number, samples): (usize, std::ops::Range<u64>),
    column: usize,
    bytes: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), AnnDataError> {
    let (shard, shape) = (&store.shards[number], &store.columns.shape);
    let mut of_sample = |sample: &[u8], at: u64| -> Result<(), AnnDataError> {
        let result = shape.cells(sample, [column, column]).and_then(|[cell, _]| take(cell));
        result.map_err(|reason| store.damaged(number, at, &reason))
    };
    match &shard.body {
        Body::Packed(codec) => {
            let packed = shard.source.all()?;
            shard.unpack(*codec, &packed, bytes)?;
            drop(packed);
            for sample in samples {
                of_sample(&bytes[Shard::sample_in(bytes, sample as usize)], sample)?;
            }
        }
        Body::Raw(offsets) if shard.raw_bytes() / shard.samples().max(1) <= SHORT => {
            let mut next = samples.start;
            while next < samples.end {
                let start = Shard::sample(offsets, next as usize).start;
                let wanted = &offsets[next as usize + 1..=samples.end as usize];
                let count = wanted.partition_point(|end| u64::from(*end) - start <= BLOCK as u64).max(1);
                let end = u64::from(wanted[count - 1]);
                bytes.clear();
                shard.source.append(start, (end - start) as usize, bytes)?;
                for sample in next..next + count as u64 {
                    let within = Shard::sample(offsets, sample as usize);
                    of_sample(&bytes[(within.start - start) as usize..(within.end - start) as usize], sample)?;
                }
                next += count as u64;
            }
        }
        Body::Raw(offsets) => {
            let mut rest = Vec::new();
            for sample in samples {
                let within = Shard::sample(offsets, sample as usize);
                let len = within.end - within.start;
                let first = len.min(BEGINNING.max(shape.head() as u64));
                bytes.clear();
                shard.source.append(within.start, first as usize, bytes)?;
                let wrong = |reason: String| store.damaged(number, sample, &reason);
                let cell = shape.cell(bytes, len, column).map_err(wrong)?;
                let cell = if cell.end <= first {
                    &bytes[cell.start as usize..cell.end as usize]
                } else {
                    rest.clear();
                    shard.source.append(within.start + cell.start, (cell.end - cell.start) as usize, &mut rest)?;
                    &rest
                };
                take(cell).map_err(wrong)?;
            }
        }
    }
    shard.source.unchanged()
}
