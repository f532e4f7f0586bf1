//! One remote object, at one version.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::ObjectStore;

use crate::AnnDataError;
use crate::source::SourceError;
use crate::source::byte_source::{ReadRange, copy_to_uninit};
use crate::source::coalesce::{covering_ranges, split_into_requests, subtract};
use crate::source::remote::address::Address;
use crate::source::remote::block_cache::{BLOCK, BlockBuffer, block_name};
use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::{Version, fetch_range, fetch_version, runtime};
use crate::source::remote::request::RangeRequest;
use crate::source::remote::service::{PAGE, Service, count, lock};

/// An object whose version was requested less than this ago is opened again without a request.
const FRESH: Duration = Duration::from_secs(2);

/// Pages that are read at once in a sequential read.
const PAGES_AHEAD: u64 = 8;

/// Entries of dropped requests are removed when there are so many.
const MAX_DEAD_REQUESTS: usize = 1024;

/// A remote object, at the version that it had when it was opened.
#[derive(Debug)]
pub(crate) struct RemoteObject {
    address: Address,
    version: Version,
    store: Arc<dyn ObjectStore>,
    service: Arc<Service>,
    /// Requests by the start of their range. Usable requests do not overlap.
    requests: Mutex<BTreeMap<u64, Weak<RangeRequest>>>,
    /// Unique in the process.
    number: u64,
    /// Name of its blocks in the cache.
    name: [u8; 16],
    /// Time of the last request for the version.
    checked_at: Mutex<Instant>,
    /// Another version was seen since.
    outdated: AtomicBool,
    /// Failure of the last read, for [`Self::failure`].
    last_failure: Mutex<Option<Failure>>,
}

impl RemoteObject {
    /// Opens an object. An object that is open already is shared, unless it has changed.
    ///
    /// # Errors
    /// There is no such object, access is denied, or the server does not answer.
    pub fn open(url: &str) -> Result<Arc<Self>, AnnDataError> {
        let service = Service::current()?;
        let runtime = runtime(url).map_err(Failure::into_error)?;
        runtime.block_on(Self::open_async(&service, url)).map_err(Failure::into_error)
    }

    /// [`Self::open`] within the runtime.
    pub async fn open_async(service: &Arc<Service>, url: &str) -> Result<Arc<Self>, Failure> {
        let known = Self::opened(service, url);
        let is_current = |known: &&Arc<Self>| !known.outdated.load(Ordering::Acquire);
        let is_fresh = |known: &&Arc<Self>| is_current(known) && lock(&known.checked_at).elapsed() < FRESH;
        if let Some(known) = known.as_ref().filter(is_fresh) {
            return Ok(Arc::clone(known));
        }
        let address = Address::parse(url)?;
        let store = service.store(&address)?;
        let version = fetch_version(service, store.as_ref(), &address).await?;
        if let Some(known) = known {
            if known.version.is_same(&version) && is_current(&&known) {
                *lock(&known.checked_at) = Instant::now();
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
            requests: Mutex::default(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            checked_at: Mutex::new(Instant::now()),
            outdated: AtomicBool::new(false),
            last_failure: Mutex::default(),
            service: Arc::clone(service),
        });
        let mut open = lock(&service.open);
        open.retain(|_, object| object.strong_count() > 0);
        open.insert(url.to_owned(), Arc::downgrade(&object));
        Ok(object)
    }

    /// An object that is open.
    pub fn find_open(url: &str) -> Option<Arc<Self>> {
        Self::opened(&*Service::current().ok()?, url)
    }

    fn opened(service: &Service, url: &str) -> Option<Arc<Self>> {
        lock(&service.open).get(url).and_then(Weak::upgrade)
    }

    pub fn url(&self) -> &str {
        &self.address.url
    }

    /// Length in bytes.
    pub fn bytes(&self) -> u64 {
        self.version.bytes()
    }

    /// Number of the object, unique in the process.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn service(&self) -> &Service {
        &self.service
    }

    /// Fails if another version of the object was seen. Bytes that were read are of the opened version even then.
    ///
    /// # Errors
    /// [`AnnDataError::Rewritten`].
    pub fn unchanged(&self) -> Result<(), AnnDataError> {
        if self.outdated.load(Ordering::Acquire) { Err(Failure::changed(&self.address).into_error()) } else { Ok(()) }
    }

    /// The failure of the last read, if it failed: libhdf5, which reads through callbacks, does not return our error.
    pub fn failure(&self) -> Option<AnnDataError> {
        lock(&self.last_failure).take().map(Failure::into_error)
    }

    /// Records a failure for [`Self::failure`] and converts it.
    pub fn failed(&self, failure: Failure) -> AnnDataError {
        *lock(&self.last_failure) = Some(failure.clone());
        failure.into_error()
    }

    /// Clears the recorded failure after a successful read.
    pub fn succeeded(&self) {
        lock(&self.last_failure).take();
    }

    /// Starts to read ranges: copies cached blocks into `into`, requests all other bytes and appends them to `pending`.
    ///
    /// # Errors
    /// A range is beyond the end.
    pub fn begin(
        self: &Arc<Self>,
        ranges: &[ReadRange],
        into: &mut [MaybeUninit<u8>],
        pending: &mut Vec<PendingRange>,
    ) -> Result<(), AnnDataError> {
        self.check(ranges)?;
        let mut missing = Vec::new();
        match &self.service.cache {
            None => missing.extend(ranges.iter().map(|read| (object_range(read), read.at))),
            Some(cache) => {
                let mut scratch = BlockBuffer::default();
                for read in ranges {
                    for (range, at) in blocks_of(read) {
                        let within = (range.start % BLOCK) as usize..((range.end - 1) % BLOCK + 1) as usize;
                        let len = range.end - range.start;
                        // A prefetched request is used up even if the cache has the block, because it takes memory until then.
                        if self.is_requested(range.start) {
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
        // A request may be used up by others between being found and being wanted: then its bytes are requested again.
        let mut made = Vec::new();
        while !missing.is_empty() {
            let requests = self.requests_for(missing.iter().map(|(range, _)| range.clone()), &mut made);
            let mut again = Vec::new();
            for (range, at) in missing {
                for request in overlapping(&requests, &range) {
                    let part = range.start.max(request.range().start)..range.end.min(request.range().end);
                    let at = at + (part.start - range.start) as usize;
                    match PendingRange::new(Arc::clone(request), part.clone(), at) {
                        Some(range) => pending.push(range),
                        None => again.push((part, at)),
                    }
                }
            }
            missing = again;
        }
        self.service.queue.add(&made, false);
        Ok(())
    }

    /// Requests ranges that readers will want later, as far as there is memory for them.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn prefetch(self: &Arc<Self>, ranges: &[ReadRange]) -> Result<Prefetch, AnnDataError> {
        self.check(ranges)?;
        let mut wanted: Vec<Range<u64>> = ranges.iter().map(object_range).collect();
        if let Some(cache) = &self.service.cache {
            let missing = |range: &Range<u64>| !cache.has(&self.name, range.start / BLOCK);
            wanted = ranges.iter().flat_map(blocks_of).map(|(range, _)| range).filter(missing).collect();
        }
        let mut made = Vec::new();
        let requests = self.requests_for(wanted.iter().cloned(), &mut made);
        for range in wanted {
            for request in overlapping(&requests, &range) {
                request.promise(range.end.min(request.range().end) - range.start.max(request.range().start));
            }
        }
        self.service.queue.add(&made, true);
        Ok(Prefetch::new(requests))
    }

    /// Whether a usable request has the byte at `offset` (with a cache: its whole block).
    fn is_requested(&self, offset: u64) -> bool {
        let request = lock(&self.requests).range(..=offset).next_back().and_then(|(_, request)| request.upgrade());
        request.is_some_and(|request| request.range().end > offset && request.is_usable())
    }

    /// Requests that together have all bytes of `wanted`, ascending and disjoint. New ones are appended to `made` as well; the caller
    /// puts them into the queue.
    fn requests_for(
        self: &Arc<Self>,
        wanted: impl Iterator<Item = Range<u64>>,
        made: &mut Vec<Arc<RangeRequest>>,
    ) -> Vec<Arc<RangeRequest>> {
        let block = if self.service.cache.is_some() { BLOCK } else { 0 };
        let mut found: Vec<Arc<RangeRequest>> = Vec::new();
        let mut last_there: Option<Arc<RangeRequest>> = None;
        let mut known = lock(&self.requests);
        if known.len() > MAX_DEAD_REQUESTS {
            known.retain(|_, request| request.strong_count() > 0);
        }
        for range in covering_ranges(wanted.collect(), block, self.bytes()) {
            // The last request that starts before the range may reach into it.
            let before = known.range(..range.start).next_back().map(|(start, _)| *start);
            // One that reaches on from the range before was usable then, and counts as such here even if others have used it up since:
            // a new request inside it would overlap it. The caller asks again for what it does not get.
            let reaches_on = |request: &Arc<RangeRequest>| last_there.as_ref().is_some_and(|r| Arc::ptr_eq(r, request));
            let there: Vec<Arc<RangeRequest>> = known
                .range(before.unwrap_or(range.start)..range.end)
                .filter_map(|(_, request)| request.upgrade())
                .filter(|request| request.range().end > range.start && (reaches_on(request) || request.is_usable()))
                .collect();
            last_there = there.last().cloned().or(last_there);
            let mut new = Vec::new();
            for left in subtract(range, there.iter().map(|request| request.range().clone())) {
                new.extend(split_into_requests(left, block).map(|range| RangeRequest::new(self, range)));
            }
            for request in &new {
                // Unusable requests of these bytes must not hide the new one.
                let gone: Vec<u64> = known.range(request.range().clone()).map(|(start, _)| *start).collect();
                gone.iter().for_each(|start| drop(known.remove(start)));
                known.insert(request.range().start, Arc::downgrade(request));
            }
            made.extend(new.iter().cloned());
            found.extend(there);
            found.extend(new);
        }
        drop(known);
        found.sort_unstable_by_key(|request| request.range().start);
        found.dedup_by_key(|request| request.range().start);
        found
    }

    /// Requests a range.
    pub async fn fetch(&self, range: &Range<u64>) -> Result<Bytes, Failure> {
        let result = fetch_range(&self.service, self.store.as_ref(), &self.address, &self.version, range).await;
        if result.as_ref().is_err_and(Failure::is_change) {
            self.outdated.store(true, Ordering::Release);
        }
        result
    }

    /// Writes bytes to the cache; `start` is the start of a block.
    pub fn store_in_cache(&self, start: u64, bytes: &[u8]) {
        let Some(cache) = &self.service.cache else { return };
        let not_kept = cache.put(&self.name, start / BLOCK, bytes);
        count(&self.service.counters.not_kept, not_kept);
    }

    /// Reads few bytes, such as metadata, through the page cache.
    ///
    /// # Errors
    /// The object cannot be read, or the range is beyond its end.
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

    /// Reads pages, and further ones if the read is sequential, into the page cache; returns the first.
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
        first.ok_or_else(|| AnnDataError::damaged(self.url().as_ref(), SourceError::Empty))
    }

    /// Reads a range, which is within the object.
    pub fn read_range(self: &Arc<Self>, range: Range<u64>) -> Result<Vec<u8>, AnnDataError> {
        let start = range.start;
        let mut all = vec![MaybeUninit::uninit(); (range.end - start) as usize];
        let mut pending = Vec::new();
        self.begin(&[ReadRange { offset: start, at: 0, len: all.len() }], &mut all, &mut pending)?;
        pending.into_iter().try_for_each(|range| range.take(&mut all)).map_err(|failure| self.failed(failure))?;
        self.succeeded();
        // SAFETY: all bytes were read.
        Ok(all.into_iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    fn check(&self, ranges: &[ReadRange]) -> Result<(), AnnDataError> {
        let beyond = |read: &&ReadRange| read.offset.checked_add(read.len as u64).is_none_or(|end| end > self.bytes());
        match ranges.iter().find(beyond) {
            None => Ok(()),
            Some(_) => Err(AnnDataError::damaged(self.url().as_ref(), SourceError::CutShort)),
        }
    }
}

fn object_range(read: &ReadRange) -> Range<u64> {
    read.offset..read.offset + read.len as u64
}

/// Splits a range at blocks: bytes of the object, and their position in the buffer.
fn blocks_of(read: &ReadRange) -> impl Iterator<Item = (Range<u64>, usize)> + use<> {
    let Range { start, end } = object_range(read);
    let at = read.at;
    let blocks = if start < end { start / BLOCK..end.div_ceil(BLOCK) } else { 0..0 };
    blocks.map(move |block| {
        let range = start.max(block * BLOCK)..end.min((block + 1) * BLOCK);
        let at = at + (range.start - start) as usize;
        (range, at)
    })
}

/// The requests that have bytes of `range`; `requests` ascend and do not overlap.
fn overlapping<'u>(
    requests: &'u [Arc<RangeRequest>],
    range: &Range<u64>,
) -> impl Iterator<Item = &'u Arc<RangeRequest>> + use<'u> {
    let first = requests.partition_point(|request| request.range().end <= range.start);
    let end = if range.is_empty() { range.start } else { range.end };
    requests[first..].iter().take_while(move |request| request.range().start < end)
}

/// Bytes of a request, and their position in a buffer.
#[derive(Debug)]
pub(crate) struct PendingRange {
    request: Arc<RangeRequest>,
    /// Bytes of the object.
    range: Range<u64>,
    at: usize,
}

impl PendingRange {
    /// `None` if the request is not usable any more.
    pub fn new(request: Arc<RangeRequest>, range: Range<u64>, at: usize) -> Option<Self> {
        request.want(range.end - range.start).then_some(Self { request, range, at })
    }

    /// Waits for the bytes and copies them.
    ///
    /// # Errors
    /// The request failed, or its answer is too short.
    pub fn take(self, into: &mut [MaybeUninit<u8>]) -> Result<(), Failure> {
        let bytes = self.request.wait()?;
        let first = self.request.range().start;
        let part = (self.range.start - first) as usize..(self.range.end - first) as usize;
        let Some(bytes) = bytes.get(part) else {
            return Err(Failure::refused(self.request.url(), "an answer has fewer bytes than were asked for"));
        };
        copy_to_uninit(&mut into[self.at..self.at + bytes.len()], bytes);
        Ok(())
    }
}

impl Drop for PendingRange {
    fn drop(&mut self) {
        self.request.done(self.range.end - self.range.start);
    }
}

/// Requests that were sent ahead of their readers. Dropping it cancels those that no reader wants.
#[derive(Debug, Default)]
pub struct Prefetch(Vec<Arc<RangeRequest>>);

impl Prefetch {
    pub(crate) fn new(requests: Vec<Arc<RangeRequest>>) -> Self {
        Self(requests)
    }

    /// Adds the requests of another prefetch.
    pub fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }
}
