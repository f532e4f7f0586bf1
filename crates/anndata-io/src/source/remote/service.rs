use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use tokio::sync::Semaphore;

use crate::AnnDataError;
use crate::lru_cache::LruCache;
use crate::source::coalesce::MAX_REQUEST_BYTES;
use crate::source::remote::address::{Address, ObjectHost};
use crate::source::remote::block_cache::BlockCache;
use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::{StatusConnector, runtime};
use crate::source::remote::object::RemoteObject;
use crate::source::remote::request::RequestQueue;

/// What all objects of the process share.
#[derive(Debug)]
pub(crate) struct Service {
    pub options: RemoteOptions,
    pub counters: Counters,
    /// Requests that may be under way.
    pub requests: Semaphore,
    pub queue: RequestQueue,
    pub pages: Mutex<PageCache>,
    pub cache: Option<BlockCache>,
    stores: Mutex<HashMap<ObjectHost, Arc<dyn ObjectStore>>>,
    /// Those that are open, by URL.
    pub open: Mutex<HashMap<String, Weak<RemoteObject>>>,
}

static CURRENT: RwLock<Option<Arc<Service>>> = RwLock::new(None);

/// Say how objects that are opened from now on are read. Without it they are read as [`RemoteOptions::default`] has it.
///
/// # Errors
/// The folder of the cache cannot be written to, or is not this user's alone.
pub fn configure(options: RemoteOptions) -> Result<(), AnnDataError> {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    if current.as_ref().is_none_or(|service| service.options != options) {
        *current = Some(Arc::new(Service::new(options)?));
    }
    Ok(())
}

/// What objects that are read as it was said last have taken so far; all zero before the first was opened.
pub fn remote_counts() -> RemoteCounts {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.as_ref().map(|service| service.counters.now()).unwrap_or_default()
}

impl Service {
    /// As it was said last.
    pub fn current() -> Result<Arc<Self>, AnnDataError> {
        if let Some(service) = &*CURRENT.read().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Arc::clone(service));
        }
        let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(service) => Ok(Arc::clone(service)),
            None => Ok(Arc::clone(current.insert(Arc::new(Self::new(RemoteOptions::default())?)))),
        }
    }

    fn new(options: RemoteOptions) -> Result<Self, AnnDataError> {
        let requests = options.requests.max(1);
        Ok(Self {
            counters: Counters::default(),
            requests: Semaphore::new(requests),
            queue: RequestQueue::new(2 * requests as u64 * MAX_REQUEST_BYTES),
            pages: Mutex::new(LruCache::new(MAX_PAGES, usize::MAX)),
            cache: options.cache.as_ref().map(BlockCache::open).transpose()?,
            stores: Mutex::default(),
            open: Mutex::default(),
            options,
        })
    }

    /// What has the objects of a place.
    pub fn store(&self, at: &Address) -> Result<Arc<dyn ObjectStore>, Failure> {
        // Clients want the process's TLS to be chosen, which the runtime does first.
        runtime(&at.url)?;
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(&at.place) {
            return Ok(Arc::clone(store));
        }
        // Parts are asked for again here: object_store does not do so for an answer that ends early without a word.
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let made: object_store::Result<Arc<dyn ObjectStore>> = match &at.place {
            ObjectHost::S3(bucket) => {
                let from_environment = AmazonS3Builder::from_env().with_bucket_name(bucket);
                // An answer may take long as long as bytes come.
                let client = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
                let builder = from_environment.with_config(client, "1 day").with_retry(once);
                builder.with_http_connector(StatusConnector).build().map(|store| Arc::new(store) as _)
            }
            ObjectHost::Gs(bucket) => {
                let builder = google_cloud_storage(|name| std::env::var(name).ok()).with_bucket_name(bucket);
                builder.with_retry(once).with_http_connector(StatusConnector).build().map(|store| Arc::new(store) as _)
            }
            ObjectHost::Http(origin) => {
                let client = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
                let builder = HttpBuilder::new().with_url(origin).with_client_options(client).with_retry(once);
                builder.with_http_connector(StatusConnector).build().map(|store| Arc::new(store) as _)
            }
        };
        let made = made.map_err(|e| Failure::refused(&at.url, &format!("cannot be asked for: {e}")))?;
        stores.insert(at.place.clone(), Arc::clone(&made));
        Ok(made)
    }
}

/// Where Google Cloud Storage answers requests of S3's protocol.
const GS_ENDPOINT: &str = "https://storage.googleapis.com";

/// A client of Google Cloud Storage's XML API without a bucket, by the variables that `variable` yields: requests are signed with
/// an HMAC key (`GS_ACCESS_KEY_ID` and `GS_SECRET_ACCESS_KEY`, as GDAL calls them), or not at all where one of the two is not set,
/// which reads public objects. `GS_ENDPOINT_URL` is another server with the same API, such as an emulator.
///
/// AWS's variables are not asked: a job may read buckets of both.
fn google_cloud_storage(variable: impl Fn(&str) -> Option<String>) -> AmazonS3Builder {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let endpoint = set("GS_ENDPOINT_URL").unwrap_or_else(|| GS_ENDPOINT.to_owned());
    // An answer may take long as long as bytes come.
    let client = ClientOptions::new().with_timeout_disabled().with_allow_http(endpoint.starts_with("http://"));
    // The name of the region is signed; the XML API takes "auto" for any.
    let builder = AmazonS3Builder::new().with_region("auto").with_endpoint(endpoint).with_client_options(client);
    match (set("GS_ACCESS_KEY_ID"), set("GS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => builder.with_access_key_id(id).with_secret_access_key(secret),
        _ => builder.with_skip_signature(true),
    }
}

/// Nothing below panics between changes that belong together.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How objects are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Requests that a process has under way at a time; not 0.
    pub requests: usize,
    /// Where blocks are kept; `None` reads all from the server.
    pub cache: Option<CacheOptions>,
    /// How long servers are given.
    pub patience: Patience,
}

/// A cache of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Folder that all processes of a node share.
    pub folder: PathBuf,
    /// Bytes that it takes at most.
    pub bytes: u64,
}

/// How long servers are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Longest that an answer, and then each part of it, is waited for.
    pub answer: Duration,
    /// Times that a part is asked for; not 0.
    pub attempts: u32,
    /// Pause before the second time; before each further one it is twice as long. Half to all of it is waited, by chance.
    pub pause: Duration,
    /// A pause is no longer than this.
    pub longest_pause: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { requests: 32, cache: None, patience: Patience::default() }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(20),
            attempts: 10,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl Patience {
    /// Pause before attempt number `attempt`, which is not the first; `chance` is any number.
    pub(crate) fn pause(&self, attempt: u32, chance: u64) -> Duration {
        let whole = self.pause.saturating_mul(1 << (attempt.clamp(2, 20) - 2)).min(self.longest_pause);
        whole / 2 + (whole / 2).mul_f64((chance % 1024) as f64 / 1024.0)
    }
}

/// Requests and bytes that reading remote files took this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounts {
    /// Requests that were sent, repeated ones too.
    pub requests: u64,
    /// Requests that repeat one that failed.
    pub retries: u64,
    /// Bytes of objects that came from servers.
    pub remote_bytes: u64,
    /// Bytes that were taken from the cache instead.
    pub cache_bytes: u64,
    /// Blocks that were in the cache.
    pub hits: u64,
    /// Blocks that were not in the cache; 0 without one.
    pub misses: u64,
    /// Blocks that could not be written to the cache: the disk is full, or it is in use.
    pub not_kept: u64,
}

/// [`RemoteCounts`], counted by many threads.
#[derive(Debug, Default)]
struct Counters {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub remote_bytes: AtomicU64,
    pub cache_bytes: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub not_kept: AtomicU64,
}

impl Counters {
    pub fn now(&self) -> RemoteCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteCounts {
            requests: of(&self.requests),
            retries: of(&self.retries),
            remote_bytes: of(&self.remote_bytes),
            cache_bytes: of(&self.cache_bytes),
            hits: of(&self.hits),
            misses: of(&self.misses),
            not_kept: of(&self.not_kept),
        }
    }
}

/// Count `n` more.
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Pages of remote objects by object and page number: of what is read a little at a time, such as metadata and footers.
pub(crate) type PageCache = LruCache<(u64, u64), Arc<[u8]>>;

/// Bytes of a page: metadata is small and lies together.
pub(crate) const PAGE: u64 = 128 << 10;

/// Pages of all objects together.
const MAX_PAGES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn google_cloud_storage_has_variables_of_its_own() {
        let settings = |variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
            let builder = google_cloud_storage(find);
            let value = |key: AmazonS3ConfigKey| builder.get_config_value(&key);
            (
                value(AmazonS3ConfigKey::Endpoint),
                value(AmazonS3ConfigKey::AccessKeyId),
                value(AmazonS3ConfigKey::SkipSignature),
            )
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(settings(&[("AWS_ACCESS_KEY_ID", "aws")]), (some(GS_ENDPOINT), None, some("true")));
        let key = [("GS_ACCESS_KEY_ID", "id"), ("GS_SECRET_ACCESS_KEY", "secret")];
        assert_eq!(settings(&key), (some(GS_ENDPOINT), some("id"), some("false")));
        // Half a key signs nothing.
        assert_eq!(settings(&key[..1]), (some(GS_ENDPOINT), None, some("true")));
        let emulated = settings(&[("GS_ENDPOINT_URL", "http://127.0.0.1:4443")]);
        assert_eq!(emulated.0, some("http://127.0.0.1:4443"));
    }

    #[test]
    fn pauses_grow_to_a_bound() {
        let patience = Patience::default();
        let longest: Vec<u128> = (2..12).map(|attempt| patience.pause(attempt, 1023).as_millis()).collect();
        assert!(longest.is_sorted() && longest[0] <= 100 && *longest.last().unwrap() <= 10_000, "{longest:?}");
        assert_eq!(patience.pause(2, 0), Duration::from_millis(50));
        assert_eq!(patience.pause(u32::MAX, 0), Duration::from_secs(5));
    }
}
