use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use tokio::sync::Semaphore;

use super::address::{Address, Place};
use super::answer::Noting;
use super::cache::Cache;
use super::counts::{Counters, RemoteCounts};
use super::cover::PART;
use super::failure::Failure;
use super::object::RemoteObject;
use super::options::RemoteOptions;
use super::pages::Pages;
use super::queue::Queue;
use super::runtime::runtime;
use crate::AnnDataError;

/// What all objects of the process share.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) options: RemoteOptions,
    pub(super) counters: Counters,
    /// Requests that may be under way.
    pub(super) requests: Semaphore,
    pub(super) queue: Queue,
    pub(super) pages: Pages,
    pub(super) cache: Option<Cache>,
    stores: Mutex<HashMap<Place, Arc<dyn ObjectStore>>>,
    /// Those that are open, by URL.
    pub(super) open: Mutex<HashMap<String, Weak<RemoteObject>>>,
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
    pub(super) fn current() -> Result<Arc<Self>, AnnDataError> {
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
            queue: Queue::new(2 * requests as u64 * PART),
            pages: Pages::default(),
            cache: options.cache.as_ref().map(Cache::open).transpose()?,
            stores: Mutex::default(),
            open: Mutex::default(),
            options,
        })
    }

    /// What has the objects of a place.
    pub(super) fn store(&self, at: &Address) -> Result<Arc<dyn ObjectStore>, Failure> {
        // Clients want the process's TLS to be chosen, which the runtime does first.
        runtime(&at.url)?;
        let mut stores = lock(&self.stores);
        if let Some(store) = stores.get(&at.place) {
            return Ok(Arc::clone(store));
        }
        // Parts are asked for again here: object_store does not do so for an answer that ends early without a word.
        let once = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let made: object_store::Result<Arc<dyn ObjectStore>> = match &at.place {
            Place::S3(bucket) => {
                let from_environment = AmazonS3Builder::from_env().with_bucket_name(bucket);
                // An answer may take long as long as bytes come.
                let client = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
                let builder = from_environment.with_config(client, "1 day").with_retry(once);
                builder.with_http_connector(Noting).build().map(|store| Arc::new(store) as _)
            }
            Place::Gs(bucket) => {
                let builder = google_cloud_storage(|name| std::env::var(name).ok()).with_bucket_name(bucket);
                builder.with_retry(once).with_http_connector(Noting).build().map(|store| Arc::new(store) as _)
            }
            Place::Http(origin) => {
                let client = ClientOptions::new().with_allow_http(true).with_timeout_disabled();
                let builder = HttpBuilder::new().with_url(origin).with_client_options(client).with_retry(once);
                builder.with_http_connector(Noting).build().map(|store| Arc::new(store) as _)
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
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
}
