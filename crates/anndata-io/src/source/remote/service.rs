//! Options, counters and shared state of all remote objects of the process.

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

/// State that all remote objects of the process share.
#[derive(Debug)]
pub(crate) struct Service {
    pub options: RemoteOptions,
    pub counters: Counters,
    /// Bounds the number of requests in flight.
    pub requests: Semaphore,
    pub queue: RequestQueue,
    pub pages: Mutex<PageCache>,
    pub cache: Option<BlockCache>,
    stores: Mutex<HashMap<ObjectHost, Arc<dyn ObjectStore>>>,
    /// Open objects by URL.
    pub open: Mutex<HashMap<String, Weak<RemoteObject>>>,
}

static CURRENT: RwLock<Option<Arc<Service>>> = RwLock::new(None);

/// Sets the options for remote objects that are opened from now on. The default is [`RemoteOptions::default`].
///
/// # Errors
/// The folder of the cache cannot be written to, or belongs to another user.
pub fn configure(options: RemoteOptions) -> Result<(), AnnDataError> {
    let mut current = CURRENT.write().unwrap_or_else(PoisonError::into_inner);
    if current.as_ref().is_none_or(|service| service.options != options) {
        *current = Some(Arc::new(Service::new(options)?));
    }
    Ok(())
}

/// Requests and bytes since the last [`configure`] that changed the options.
pub fn remote_counts() -> RemoteCounts {
    let current = CURRENT.read().unwrap_or_else(PoisonError::into_inner);
    current.as_ref().map(|service| service.counters.load()).unwrap_or_default()
}

impl Service {
    /// The service with the options that were set last.
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

    /// The client for the bucket or server of an address.
    pub fn store(&self, at: &Address) -> Result<Arc<dyn ObjectStore>, Failure> {
        // The runtime installs the TLS provider, which clients need.
        runtime(&at.url)?;
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(&at.host) {
            return Ok(Arc::clone(store));
        }
        // `with_retries` repeats requests: object_store does not repeat one whose answer is cut short.
        let no_retries = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let made: object_store::Result<Arc<dyn ObjectStore>> = match &at.host {
            ObjectHost::S3(bucket) => {
                let from_environment = AmazonS3Builder::from_env().with_bucket_name(bucket);
                // An answer may take long as long as bytes come.
                let client = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
                let builder = from_environment.with_config(client, "1 day").with_retry(no_retries);
                builder.with_http_connector(StatusConnector).build().map(|store| Arc::new(store) as _)
            }
            ObjectHost::Gs(bucket) => {
                let builder = google_cloud_storage(|name| std::env::var(name).ok()).with_bucket_name(bucket);
                builder
                    .with_retry(no_retries)
                    .with_http_connector(StatusConnector)
                    .build()
                    .map(|store| Arc::new(store) as _)
            }
            ObjectHost::Http(origin) => {
                // A server asked over TLS may not send its reader on to plain HTTP.
                let client =
                    ClientOptions::new().with_allow_http(origin.starts_with("http://")).with_timeout_disabled();
                let builder = HttpBuilder::new().with_url(origin).with_client_options(client).with_retry(no_retries);
                builder.with_http_connector(StatusConnector).build().map(|store| Arc::new(store) as _)
            }
        };
        let made = made.map_err(|e| Failure::refused(&at.url, &format!("cannot be asked for: {e}")))?;
        stores.insert(at.host.clone(), Arc::clone(&made));
        Ok(made)
    }
}

/// Endpoint of the XML API of Google Cloud Storage.
const GS_ENDPOINT: &str = "https://storage.googleapis.com";

/// A client of the XML API of Google Cloud Storage, without a bucket. `variable` looks up environment variables: an HMAC key
/// (`GS_ACCESS_KEY_ID` and `GS_SECRET_ACCESS_KEY`, as in GDAL) signs requests; without both, requests are not signed and only
/// public objects can be read. `GS_ENDPOINT_URL` is another server with the same API, such as an emulator.
///
/// The variables of AWS are ignored, because a process may read buckets of both.
fn google_cloud_storage(variable: impl Fn(&str) -> Option<String>) -> AmazonS3Builder {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let endpoint = set("GS_ENDPOINT_URL").unwrap_or_else(|| GS_ENDPOINT.to_owned());
    // An answer may take long as long as bytes come.
    let client = ClientOptions::new().with_timeout_disabled().with_allow_http(endpoint.starts_with("http://"));
    // The name of the region is signed; the XML API accepts "auto" for any region.
    let builder = AmazonS3Builder::new().with_region("auto").with_endpoint(endpoint).with_client_options(client);
    match (set("GS_ACCESS_KEY_ID"), set("GS_SECRET_ACCESS_KEY")) {
        (Some(id), Some(secret)) => builder.with_access_key_id(id).with_secret_access_key(secret),
        _ => builder.with_skip_signature(true),
    }
}

/// Locks a mutex. A poisoned one is usable: no critical section of this module can panic halfway through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Options of remote objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteOptions {
    /// Largest number of requests in flight in the process; not 0.
    pub requests: usize,
    /// Cache of blocks on disk; `None` requests all bytes from the server.
    pub cache: Option<CacheOptions>,
    /// Timeout and retries.
    pub retry: RetryPolicy,
}

/// Options of the cache of blocks on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Folder of the cache, which all processes of a node share.
    pub folder: PathBuf,
    /// Largest size of the cache in bytes.
    pub bytes: u64,
}

/// Timeout and retries of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Timeout for the start of an answer, and for each further part of it.
    pub answer: Duration,
    /// Number of attempts for a request; not 0.
    pub attempts: u32,
    /// Pause before the second attempt; it doubles before each further one. The actual pause is random between half and all of it.
    pub pause: Duration,
    /// Upper bound of the pause.
    pub longest_pause: Duration,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self { requests: 32, cache: None, retry: RetryPolicy::default() }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            answer: Duration::from_secs(20),
            attempts: 10,
            pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(10),
        }
    }
}

impl RetryPolicy {
    /// Pause before attempt number `attempt`, which is at least 2; `random` is any number.
    pub(crate) fn pause(&self, attempt: u32, random: u64) -> Duration {
        let whole = self.pause.saturating_mul(1 << (attempt.clamp(2, 20) - 2)).min(self.longest_pause);
        whole / 2 + (whole / 2).mul_f64((random % 1024) as f64 / 1024.0)
    }
}

/// Requests and bytes of remote objects in this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteCounts {
    /// Requests that were sent, retries included.
    pub requests: u64,
    /// Retries of failed requests.
    pub retries: u64,
    /// Bytes received from servers.
    pub remote_bytes: u64,
    /// Bytes read from the cache on disk.
    pub cache_bytes: u64,
    /// Blocks found in the cache.
    pub hits: u64,
    /// Blocks not found in the cache; 0 without a cache.
    pub misses: u64,
    /// Blocks that could not be written to the cache: the disk is full, or another process holds the lock.
    pub not_kept: u64,
}

/// [`RemoteCounts`] with atomic counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub requests: AtomicU64,
    pub retries: AtomicU64,
    pub remote_bytes: AtomicU64,
    pub cache_bytes: AtomicU64,
    pub hits: AtomicU64,
    pub misses: AtomicU64,
    pub not_kept: AtomicU64,
}

impl Counters {
    fn load(&self) -> RemoteCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RemoteCounts {
            requests: load(&self.requests),
            retries: load(&self.retries),
            remote_bytes: load(&self.remote_bytes),
            cache_bytes: load(&self.cache_bytes),
            hits: load(&self.hits),
            misses: load(&self.misses),
            not_kept: load(&self.not_kept),
        }
    }
}

/// Adds `n` to a counter.
pub(crate) fn count(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Pages of remote objects by object and page number, for small reads such as metadata and footers.
pub(crate) type PageCache = LruCache<(u64, u64), Arc<[u8]>>;

/// Size of a page in bytes: metadata is small and contiguous.
pub(crate) const PAGE: u64 = 128 << 10;

/// Capacity of the page cache, shared by all objects.
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
        let retry = RetryPolicy::default();
        let longest: Vec<u128> = (2..12).map(|attempt| retry.pause(attempt, 1023).as_millis()).collect();
        assert!(longest.is_sorted() && longest[0] <= 100 && *longest.last().unwrap() <= 10_000, "{longest:?}");
        assert_eq!(retry.pause(2, 0), Duration::from_millis(50));
        assert_eq!(retry.pause(u32::MAX, 0), Duration::from_secs(5));
    }
}
