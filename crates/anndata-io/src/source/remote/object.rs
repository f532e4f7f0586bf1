use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectStore;

use crate::AnnDataError;
use crate::source::byte_source::{ReadRange, copy_to_uninit};
use crate::source::coalesce::{covering_ranges, split_into_requests, subtract};
use crate::source::remote::address::Address;
use crate::source::remote::block_cache::{BLOCK, BlockBuffer, block_name};
use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::{Version, fetch_range, fetch_version, runtime};
use crate::source::remote::request::RangeRequest;
use crate::source::remote::service::{PAGE, Service, count, lock};

/// An object that was looked at so lately is not looked at again by whoever opens it once more: what is read is of the version
/// that was found then, in any case.
const FRESH: Duration = Duration::from_secs(2);

/// Pages that are read at once where one follows another.
const PAGES_AHEAD: u64 = 8;

/// Parts that nobody has any more are forgotten when there are so many.
const MAX_DEAD_REQUESTS: usize = 1024;

/// An object of a server, at the version that it had when it was opened.
#[derive(Debug)]
pub(crate) struct RemoteObject {
    address: Address,
    version: Version,
    store: Arc<dyn ObjectStore>,
    service: Arc<Service>,
    /// Parts that are asked for, or there and not all taken, by where they begin. None overlaps another that is usable.
    units: Mutex<BTreeMap<u64, Weak<RangeRequest>>>,
    number: u64,
    /// What its blocks are called in the cache.
    name: [u8; 16],
    looked: Mutex<Instant>,
    /// It was opened later, and was another then.
    outdated: AtomicBool,
    /// Why it could not be read last.
    failed: Mutex<Option<Failure>>,
}

impl RemoteObject {
    /// Look at an object. Whoever opens one that is open gets the same, unless it has changed.
    ///
    /// # Errors
    /// There is none, it may not be read, or the server does not answer.
    pub fn open(url: &str) -> Result<Arc<Self>, AnnDataError> {
        let service = Service::current()?;
        let runtime = runtime(url).map_err(Failure::into_error)?;
        runtime.block_on(Self::look(&service, url)).map_err(Failure::into_error)
    }

    /// The same where requests are made.
    pub async fn look(service: &Arc<Service>, url: &str) -> Result<Arc<Self>, Failure> {
        let known = Self::opened(service, url);
        let is_current = |known: &&Arc<Self>| !known.outdated.load(Ordering::Acquire);
        let lately = |known: &&Arc<Self>| is_current(known) && lock(&known.looked).elapsed() < FRESH;
        if let Some(known) = known.as_ref().filter(lately) {
            return Ok(Arc::clone(known));
        }
        let address = Address::parse(url)?;
        let store = service.store(&address)?;
        let version = fetch_version(service, store.as_ref(), &address).await?;
        if let Some(known) = known {
            if known.version.is(&version) && is_current(&&known) {
                *lock(&known.looked) = Instant::now();
                return Ok(known);
            }
            known.outdated.store(true, Ordering::Release);
        }
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let object = Arc::new(Self {
            name: block_name(url, &version.tag()),
            address,
            version,
            store,
            units: Mutex::default(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            looked: Mutex::new(Instant::now()),
            outdated: AtomicBool::new(false),
            failed: Mutex::default(),
            service: Arc::clone(service),
        });
        let mut open = lock(&service.open);
        open.retain(|_, object| object.strong_count() > 0);
        open.insert(url.to_owned(), Arc::downgrade(&object));
        Ok(object)
    }

    /// One that is open.
    pub fn find(url: &str) -> Option<Arc<Self>> {
        Self::opened(&*Service::current().ok()?, url)
    }

    fn opened(service: &Service, url: &str) -> Option<Arc<Self>> {
        lock(&service.open).get(url).and_then(Weak::upgrade)
    }

    pub fn url(&self) -> &str {
        &self.address.url
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.version.bytes()
    }

    /// Tells it from all others of this process.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    /// An error if it was seen to be another object by now. What was read is of the version that was opened even then.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`].
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        if self.outdated.load(Ordering::Acquire) { Err(Failure::changed(&self.address).into_error()) } else { Ok(()) }
    }

    /// Why it could not be read last, if that was so: for what reads it through others, who do not say.
    pub fn failure(&self) -> Option<AnnDataError> {
        lock(&self.failed).take().map(Failure::into_error)
    }

    /// Note and turn into an error what went wrong.
    pub fn failed(&self, failure: Failure) -> AnnDataError {
        *lock(&self.failed) = Some(failure.clone());
        failure.into_error()
    }

    /// It could be read: what was noted before is past.
    pub fn succeeded(&self) {
        lock(&self.failed).take();
    }

    /// Take what is in the cache, and have all else asked for at once; it goes to `late`.
    ///
    /// # Errors
    /// A piece is beyond the end.
    pub fn begin(
        self: &Arc<Self>,
        pieces: &[ReadRange],
        into: &mut [MaybeUninit<u8>],
        late: &mut Vec<PendingRange>,
    ) -> Result<(), AnnDataError> {
        self.check(pieces)?;
        let mut missing = Vec::new();
        match &self.service.cache {
            None => missing.extend(pieces.iter().map(|piece| (object_range(piece), piece.at))),
            Some(cache) => {
                let mut scratch = BlockBuffer::default();
                for piece in pieces {
                    for (range, at) in blocks_of(piece) {
                        let within = (range.start % BLOCK) as usize..((range.end - 1) % BLOCK + 1) as usize;
                        let len = range.end - range.start;
                        // What was asked for ahead is taken from there: it takes room until it is.
                        if self.is_asked_for(range.start) {
                            missing.push((range, at));
                            continue;
                        }
                        match cache.get(&self.name, range.start / BLOCK, &mut scratch) {
                            Some(block) if block.len() >= within.end => {
                                copy_to_uninit(&mut into[at..at + len as usize], &block[within]);
                                count(&self.service.counters.cache_bytes, len);
                            }
                            _ => missing.push((range, at)),
                        }
                    }
                }
                count(&self.service.counters.hits, scratch.hits);
                count(&self.service.counters.misses, scratch.misses);
            }
        }
        // A part may be let go of between being found and being wanted: then it is asked for again.
        let mut made = Vec::new();
        while !missing.is_empty() {
            let units = self.units_for(missing.iter().map(|(range, _)| range.clone()), &mut made);
            let mut again = Vec::new();
            for (range, at) in missing {
                for unit in overlapping(&units, &range) {
                    let part = range.start.max(unit.range().start)..range.end.min(unit.range().end);
                    let at = at + (part.start - range.start) as usize;
                    match PendingRange::new(Arc::clone(unit), part.clone(), at) {
                        Some(arriving) => late.push(arriving),
                        None => again.push((part, at)),
                    }
                }
            }
            missing = again;
        }
        self.service.queue.add(&made, false);
        Ok(())
    }

    /// Have parts asked for that readers will want later, as far as there is room for them.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn ahead(self: &Arc<Self>, pieces: &[ReadRange]) -> Result<Ahead, AnnDataError> {
        self.check(pieces)?;
        let mut wanted: Vec<Range<u64>> = pieces.iter().map(whole).collect();
        if let Some(cache) = &self.service.cache {
            let missing = |range: &Range<u64>| !cache.has(&self.name, range.start / BLOCK);
            wanted = pieces.iter().flat_map(blocks_of).map(|(range, _)| range).filter(missing).collect();
        }
        let mut made = Vec::new();
        let units = self.units_for(wanted.iter().cloned(), &mut made);
        for range in wanted {
            for unit in overlapping(&units, &range) {
                unit.promise(range.end.min(unit.range().end) - range.start.max(unit.range().start));
            }
        }
        self.service.queue.add(&made, true);
        Ok(Ahead::of(units))
    }

    /// Whether the byte at `offset`, and with a cache its whole block, is in a part that is on its way or there.
    fn is_asked_for(&self, offset: u64) -> bool {
        let unit = lock(&self.units).range(..=offset).next_back().and_then(|(_, unit)| unit.upgrade());
        unit.is_some_and(|unit| unit.range().end > offset && unit.is_usable())
    }

    /// Parts that have all of `wanted`, in order; those that were not there yet are in `made`, too, and are to be asked for.
    fn units_for(
        self: &Arc<Self>,
        wanted: impl Iterator<Item = Range<u64>>,
        made: &mut Vec<Arc<RangeRequest>>,
    ) -> Vec<Arc<RangeRequest>> {
        let block = if self.service.cache.is_some() { BLOCK } else { 0 };
        let mut found: Vec<Arc<RangeRequest>> = Vec::new();
        let mut known = lock(&self.units);
        if known.len() > MAX_DEAD_REQUESTS {
            known.retain(|_, unit| unit.strong_count() > 0);
        }
        for range in covering_ranges(wanted.collect(), block, self.bytes()) {
            // What begins before may reach into it: the last one that does so is enough to look at.
            let before = known.range(..range.start).next_back().map(|(start, _)| *start);
            let there: Vec<Arc<RangeRequest>> = known
                .range(before.unwrap_or(range.start)..range.end)
                .filter_map(|(_, unit)| unit.upgrade())
                .filter(|unit| unit.range().end > range.start && unit.is_usable())
                .collect();
            let mut new = Vec::new();
            for left in subtract(range, there.iter().map(|unit| unit.range().clone())) {
                new.extend(split_into_requests(left, block).map(|range| RangeRequest::new(self, range)));
            }
            for unit in &new {
                // What can be had of these bytes no more must not hide this from who looks for it.
                let gone: Vec<u64> = known.range(unit.range().clone()).map(|(start, _)| *start).collect();
                gone.iter().for_each(|start| drop(known.remove(start)));
                known.insert(unit.range().start, Arc::downgrade(unit));
            }
            made.extend(new.iter().cloned());
            found.extend(there);
            found.extend(new);
        }
        drop(known);
        found.sort_unstable_by_key(|unit| unit.range().start);
        found.dedup_by_key(|unit| unit.range().start);
        found
    }

    /// Get a part of it.
    pub async fn fetch(&self, range: &Range<u64>) -> Result<Bytes, Failure> {
        let result = fetch_range(&self.service, self.store.as_ref(), &self.address, &self.version, range).await;
        if result.as_ref().is_err_and(Failure::is_change) {
            self.outdated.store(true, Ordering::Release);
        }
        result
    }

    /// Keep a part in the cache; it begins with a block.
    pub fn keep(&self, start: u64, bytes: &[u8]) {
        let Some(cache) = &self.service.cache else { return };
        let not_kept = cache.put(&self.name, start / BLOCK, bytes);
        count(&self.service.counters.not_kept, not_kept);
    }

    /// Read a little, as do those who look where things lie: pages of it are kept in memory.
    ///
    /// # Errors
    /// It cannot be read, or ends before that.
    pub fn read_near(self: &Arc<Self>, offset: u64, into: &mut [u8]) -> Result<(), AnnDataError> {
        let len = into.len() as u64;
        self.check(&[ReadRange { offset, at: 0, len: into.len() }])?;
        let pages = offset / PAGE..(offset + len).div_ceil(PAGE);
        for page in pages.clone() {
            let start = page * PAGE;
            let cached = lock(&self.service.pages).get(&(self.number, page)).cloned();
            let bytes = match cached {
                Some(bytes) => bytes,
                None => self.read_pages(page..pages.end)?,
            };
            let from = offset.max(start);
            let to = (offset + len).min(start + bytes.len() as u64);
            into[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
        Ok(())
    }

    /// Read pages, and some more where one follows another; returns the first.
    fn read_pages(self: &Arc<Self>, pages: Range<u64>) -> Result<Arc<[u8]>, AnnDataError> {
        let follows = pages.start > 0 && lock(&self.service.pages).find(&(self.number, pages.start - 1)).is_some();
        let count = (pages.end - pages.start).min(2 * PAGES_AHEAD).max(if follows { PAGES_AHEAD } else { 1 });
        let start = pages.start * PAGE;
        let end = (start + count * PAGE).min(self.bytes());
        let all = self.read_range(start..end)?;
        let mut first = None;
        for (page, bytes) in (pages.start..).zip(all.chunks(PAGE as usize)) {
            let bytes: Arc<[u8]> = Arc::from(bytes);
            first.get_or_insert_with(|| Arc::clone(&bytes));
            let mut pages = lock(&self.service.pages);
            pages.make_room(bytes.len());
            pages.insert((self.number, page), bytes);
        }
        first.ok_or_else(|| AnnDataError::damaged(self.url().as_ref(), "has no bytes"))
    }

    /// Read a range of it, which it has.
    pub fn read_range(self: &Arc<Self>, range: Range<u64>) -> Result<Vec<u8>, AnnDataError> {
        let start = range.start;
        let mut all = vec![MaybeUninit::uninit(); (range.end - start) as usize];
        let mut late = Vec::new();
        self.begin(&[ReadRange { offset: start, at: 0, len: all.len() }], &mut all, &mut late)?;
        late.into_iter().try_for_each(|arriving| arriving.take(&mut all)).map_err(|failure| self.failed(failure))?;
        self.succeeded();
        // SAFETY: one piece was asked for, all of it is there.
        Ok(all.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    fn check(&self, pieces: &[ReadRange]) -> Result<(), AnnDataError> {
        let beyond =
            |piece: &&ReadRange| piece.offset.checked_add(piece.len as u64).is_none_or(|end| end > self.bytes());
        match pieces.iter().find(beyond) {
            None => Ok(()),
            Some(_) => Err(AnnDataError::damaged(self.url().as_ref(), "is cut short")),
        }
    }
}

fn object_range(piece: &ReadRange) -> Range<u64> {
    piece.offset..piece.offset + piece.len as u64
}

/// A piece by blocks: bytes of the object, and where they go.
fn blocks_of(piece: &ReadRange) -> impl Iterator<Item = (Range<u64>, usize)> + use<> {
    let Range { start, end } = object_range(piece);
    let at = piece.at;
    let blocks = if start < end { start / BLOCK..end.div_ceil(BLOCK) } else { 0..0 };
    blocks.map(move |block| {
        let range = start.max(block * BLOCK)..end.min((block + 1) * BLOCK);
        let at = at + (range.start - start) as usize;
        (range, at)
    })
}

/// Those of `units`, which ascend and do not overlap, that have bytes of `range`.
fn overlapping<'u>(
    units: &'u [Arc<RangeRequest>],
    range: &Range<u64>,
) -> impl Iterator<Item = &'u Arc<RangeRequest>> + use<'u> {
    let first = units.partition_point(|unit| unit.range().end <= range.start);
    let end = if range.is_empty() { range.start } else { range.end };
    units[first..].iter().take_while(move |unit| unit.range().start < end)
}

/// Bytes of a part that is asked for, and where in a buffer they go.
#[derive(Debug)]
pub(crate) struct PendingRange {
    unit: Arc<RangeRequest>,
    /// Bytes of the object.
    range: Range<u64>,
    at: usize,
}

impl PendingRange {
    /// None if the bytes cannot be had any more.
    pub fn new(unit: Arc<RangeRequest>, range: Range<u64>, at: usize) -> Option<Self> {
        unit.want(range.end - range.start).then_some(Self { unit, range, at })
    }

    /// Wait for the bytes.
    ///
    /// # Errors
    /// They cannot be had.
    pub fn take(self, into: &mut [MaybeUninit<u8>]) -> Result<(), Failure> {
        let bytes = self.unit.wait()?;
        let start = (self.range.start - self.unit.range().start) as usize;
        let bytes = &bytes[start..start + (self.range.end - self.range.start) as usize];
        copy_to_uninit(&mut into[self.at..self.at + bytes.len()], bytes);
        Ok(())
    }
}

impl Drop for PendingRange {
    fn drop(&mut self) {
        self.unit.done(self.range.end - self.range.start);
    }
}

/// Parts that were asked for ahead of their readers: they are there, or on their way, as long as this is kept.
#[derive(Debug, Default)]
pub struct Ahead(Vec<Arc<RangeRequest>>);

impl Ahead {
    pub(crate) fn of(units: Vec<Arc<RangeRequest>>) -> Self {
        Self(units)
    }

    /// Keep others as well.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
