//! Single requests with their retries, and the runtime that executes them.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::pin::Pin;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use object_store::{ClientOptions, GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};

use crate::source::remote::address::Address;
use crate::source::remote::failure::{Failure, FailureKind};
use crate::source::remote::service::{RetryPolicy, Service, count};

/// Version of an object: its length with its ETag, or its time of modification.
#[derive(Clone, Debug)]
pub(crate) struct Version(ObjectMeta);

impl Version {
    /// Length of the object.
    pub fn bytes(&self) -> u64 {
        self.0.size
    }

    /// Whether `other` describes this version.
    pub fn matches(&self, other: &ObjectMeta) -> bool {
        self.0.size == other.size
            && match (&self.0.e_tag, &other.e_tag) {
                (Some(one), Some(other)) => one == other,
                // The server sends no ETag: the time of modification decides.
                (None, None) => self.0.last_modified == other.last_modified,
                _ => false,
            }
    }

    pub fn is_same(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }

    /// A string that is different for every version of an object; part of the names of cached blocks.
    pub fn tag(&self) -> String {
        let tag = self.0.e_tag.as_deref().unwrap_or_default();
        format!("{}\n{tag}\n{}", self.0.size, if tag.is_empty() { self.0.last_modified.timestamp() } else { 0 })
    }

    /// Options of a conditional request for a range of this version: the server refuses it once there is another version.
    fn range_request(&self, range: &Range<u64>) -> GetOptions {
        let mut options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        match &self.0.e_tag {
            // Weak tags never match (RFC 9110, 13.1.1); the tag of the answer is compared instead.
            Some(tag) if !tag.starts_with("W/") => options.if_match = Some(tag.clone()),
            Some(_) => {}
            None => options.if_unmodified_since = Some(self.0.last_modified),
        }
        options
    }
}

/// Requests the version of an object.
pub(crate) async fn fetch_version(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
) -> Result<Version, Failure> {
    // Fewer attempts: the user waits for this answer, and may have mistyped the URL.
    let retry = RetryPolicy { attempts: service.options.retry.attempts.min(5), ..service.options.retry };
    let found = with_retries(service, &retry, || async {
        let request = with_timeout(&retry, at, "an answer", store.head(&at.key));
        let (answer, status) = with_status(request).await;
        answer?.map_err(|e| Failure::from_answer(at, &e, status, false))
    });
    let found = found.await?;
    if found.e_tag.is_none() && found.last_modified.timestamp() == 0 {
        let reason = "the server says neither ETag nor Last-Modified: a change while it is read would not be seen";
        return Err(Failure::refused(&at.url, reason));
    }
    Ok(Version(found))
}

/// Requests the names directly below a prefix, in any order.
pub(crate) async fn fetch_names(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
) -> Result<Vec<String>, Failure> {
    let retry = service.options.retry;
    let found = with_retries(service, &retry, || async {
        let request = with_timeout(&retry, at, "a list", store.list_with_delimiter(Some(&at.key)));
        let (answer, status) = with_status(request).await;
        answer?.map_err(|e| Failure::from_answer(at, &e, status, false))
    });
    let found = found.await?;
    let objects = found.objects.iter().map(|object| &object.location);
    Ok(objects.chain(&found.common_prefixes).filter_map(|key| key.filename().map(str::to_owned)).collect())
}

/// Requests a byte range of a version of an object.
pub(crate) async fn fetch_range(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
    version: &Version,
    range: &Range<u64>,
) -> Result<Bytes, Failure> {
    let retry = service.options.retry;
    with_retries(service, &retry, || fetch_range_once(service, store, at, version, range)).await
}

/// Repeats `attempt` until it succeeds, fails for good, or `retry.attempts` are used up.
async fn with_retries<T, F>(service: &Service, retry: &RetryPolicy, attempt: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut number = 1;
    loop {
        count(&service.counters.requests, 1);
        match attempt().await {
            Err(failure) if failure.kind == FailureKind::Passing && number < retry.attempts => {
                number += 1;
                tracing::debug!("{failure}; attempt {number} of {} follows", retry.attempts);
                count(&service.counters.retries, 1);
                tokio::time::sleep(retry.pause(number, RandomState::new().build_hasher().finish())).await;
            }
            Err(failure) if failure.kind == FailureKind::Passing => return Err(failure.after(number)),
            result => return result,
        }
    }
}

async fn fetch_range_once(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
    version: &Version,
    range: &Range<u64>,
) -> Result<Bytes, Failure> {
    let retry = service.options.retry;
    let request = with_timeout(&retry, at, "an answer", store.get_opts(&at.key, version.range_request(range)));
    let (answer, status) = with_status(request).await;
    let answer = answer?.map_err(|e| Failure::from_answer(at, &e, status, true))?;
    if !version.matches(&answer.meta) {
        return Err(Failure::changed(at));
    }
    if answer.range != *range {
        let reason = format!("the server sends bytes {:?} where {range:?} were asked for", answer.range);
        return Err(Failure::passing(at, reason));
    }
    let mut stream = answer.into_stream();
    let len = (range.end - range.start) as usize;
    let mut all = BytesMut::with_capacity(len);
    loop {
        let next = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_next(cx));
        let next = with_timeout(&retry, at, "the rest of an answer", next).await?;
        let Some(part) = next else { break };
        let part = part.map_err(|e| Failure::from_answer(at, &e, None, true))?;
        service.counters.remote_bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
        if all.len() + part.len() > len {
            return Err(Failure::passing(
                at,
                format!("the server sends more than the {len} bytes that were asked for"),
            ));
        }
        all.extend_from_slice(&part);
    }
    if all.len() < len {
        let reason = format!("the server sends {} bytes where {len} were asked for", all.len());
        return Err(Failure::passing(at, reason));
    }
    Ok(all.freeze())
}

async fn with_timeout<T>(
    retry: &RetryPolicy,
    at: &Address,
    what: &str,
    future: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::time::timeout(retry.answer, future)
        .await
        .map_err(|_| Failure::passing(at, format!("{what} has not come for {:?}", retry.answer)))
}

tokio::task_local! {
    /// Status of the last HTTP answer in this scope; 0 if there was none.
    static STATUS: Cell<u16>;
}

/// Runs an attempt, and returns the status of its last HTTP answer as well: errors of object_store have it only in their text.
async fn with_status<T>(attempt: impl Future<Output = T>) -> (T, Option<u16>) {
    let scope = STATUS.scope(Cell::new(0), async {
        let result = attempt.await;
        (result, STATUS.with(Cell::get))
    });
    let (result, status) = scope.await;
    (result, Some(status).filter(|status| *status > 0))
}

/// Makes HTTP clients that record the status of each answer.
#[derive(Debug)]
pub(crate) struct StatusConnector;

impl HttpConnector for StatusConnector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(StatusClient(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct StatusClient(HttpClient);

impl HttpService for StatusClient {
    // The expansion of `async fn call(&self, request)` by the macro `async_trait`.
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let answer = self.0.execute(request).await;
            let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            // Fails outside of `with_status`, where the status is not used.
            let _ = STATUS.try_with(|last| last.set(status));
            answer
        })
    }
}

/// Threads that receive bytes: one thread receives a few GB/s; with two, one can write to the cache.
const RUNTIME_THREADS: usize = 2;

/// The runtime of the process. It is never shut down: requests in flight at the end of the process have no reader.
pub(crate) fn runtime(url: &str) -> Result<&'static Runtime, Failure> {
    static RUNTIME: LazyLock<std::io::Result<Runtime>> = LazyLock::new(|| {
        // Fails if the process has a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).thread_name("anndata-remote").enable_all().build()
    });
    RUNTIME.as_ref().map_err(|e| Failure::refused(url, &format!("there are no threads for requests: {e}")))
}
