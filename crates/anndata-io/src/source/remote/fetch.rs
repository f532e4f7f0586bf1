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
use object_store::path::Path as Key;
use object_store::{ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};

use crate::source::remote::address::Address;
use crate::source::remote::failure::{Failure, FailureKind};
use crate::source::remote::service::{Patience, Service, count};

/// What an object was when it was opened, as a server knows it again.
#[derive(Clone, Debug)]
pub(crate) struct Version(ObjectMeta);

impl Version {
    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.0.size
    }

    /// Both are of one content.
    pub fn same(&self, other: &ObjectMeta) -> bool {
        self.0.size == other.size
            && match (&self.0.e_tag, &other.e_tag) {
                (Some(one), Some(other)) => one == other,
                // Not said at all: no tag of this object has been seen, so the time of the last change counts.
                (None, None) => self.0.last_modified == other.last_modified,
                _ => false,
            }
    }

    pub fn is(&self, other: &Self) -> bool {
        self.same(&other.0)
    }

    /// What tells it from all other versions, for the names of blocks.
    pub fn tag(&self) -> String {
        let tag = self.0.e_tag.as_deref().unwrap_or_default();
        format!("{}\n{tag}\n{}", self.0.size, if tag.is_empty() { self.0.last_modified.timestamp() } else { 0 })
    }

    /// A request for a part of this version, which a server that understands it refuses once there is another.
    fn asked(&self, range: &Range<u64>) -> GetOptions {
        let mut options = GetOptions { range: Some(GetRange::Bounded(range.clone())), ..GetOptions::default() };
        match &self.0.e_tag {
            // Weak tags never match (RFC 9110, 13.1.1); the answer has the tag, too.
            Some(tag) if !tag.starts_with("W/") => options.if_match = Some(tag.clone()),
            Some(_) => {}
            None => options.if_unmodified_since = Some(self.0.last_modified),
        }
        options
    }
}

/// Ask what an object is.
pub(crate) async fn fetch_version(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
) -> Result<Version, Failure> {
    // Whoever opens a file waits for the answer, and may have mistyped it.
    let patience = Patience { attempts: service.options.patience.attempts.min(5), ..service.options.patience };
    let found = with_retries(service, &patience, || async {
        let asked = with_timeout(&patience, at, "an answer", store.head(&at.key));
        let (answer, status) = with_status(asked).await;
        answer?.map_err(|e| Failure::of_answer(at, &e, status, false))
    });
    let found = found.await?;
    if found.e_tag.is_none() && found.last_modified.timestamp() == 0 {
        let reason = "the server says neither ETag nor Last-Modified: a change while it is read would not be seen";
        return Err(Failure::refused(&at.url, reason));
    }
    Ok(Version(found))
}

/// Names of what is directly below a place, in any order.
pub(crate) async fn fetch_names(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
) -> Result<Vec<String>, Failure> {
    let patience = service.options.patience;
    let found = with_retries(service, &patience, || async {
        let asked = with_timeout(&patience, at, "a list", store.list_with_delimiter(Some(&at.key)));
        let (answer, status) = with_status(asked).await;
        answer?.map_err(|e| Failure::of_answer(at, &e, status, false))
    });
    let found = found.await?;
    let objects = found.objects.iter().map(|object| &object.location);
    Ok(objects.chain(&found.common_prefixes).filter_map(|key| key.filename().map(str::to_owned)).collect())
}

/// Read a part of an object, all of it and of that version.
pub(crate) async fn fetch_range(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
    version: &Version,
    range: &Range<u64>,
) -> Result<Bytes, Failure> {
    let patience = service.options.patience;
    with_retries(service, &patience, || fetch_range_once(service, store, at, version, range)).await
}

/// Try until it is there, it cannot be had, or patience is at its end.
async fn with_retries<T, F>(service: &Service, patience: &Patience, attempt: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut number = 1;
    loop {
        count(&service.counters.requests, 1);
        match attempt().await {
            Err(failure) if failure.kind == FailureKind::Passing && number < patience.attempts => {
                number += 1;
                tracing::debug!("{failure}; attempt {number} of {} follows", patience.attempts);
                count(&service.counters.retries, 1);
                tokio::time::sleep(patience.pause(number, RandomState::new().build_hasher().finish())).await;
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
    let patience = service.options.patience;
    let asked = with_timeout(&patience, at, "an answer", get(store, &at.key, version.asked(range)));
    let (answer, status) = with_status(asked).await;
    let answer = answer?.map_err(|e| Failure::of_answer(at, &e, status, true))?;
    if !version.same(&answer.meta) {
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
        let next = with_timeout(&patience, at, "the rest of an answer", next).await?;
        let Some(some) = next else { break };
        let some = some.map_err(|e| Failure::of_answer(at, &e, None, true))?;
        service.counters.remote_bytes.fetch_add(some.len() as u64, Ordering::Relaxed);
        if all.len() + some.len() > len {
            return Err(Failure::passing(
                at,
                format!("the server sends more than the {len} bytes that were asked for"),
            ));
        }
        all.extend_from_slice(&some);
    }
    if all.len() < len {
        let reason = format!("the server sends {} bytes where {len} were asked for", all.len());
        return Err(Failure::passing(at, reason));
    }
    Ok(all.freeze())
}

async fn get(store: &dyn ObjectStore, key: &Key, options: GetOptions) -> object_store::Result<GetResult> {
    store.get_opts(key, options).await
}

async fn with_timeout<T>(
    patience: &Patience,
    at: &Address,
    what: &str,
    waited: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::time::timeout(patience.answer, waited)
        .await
        .map_err(|_| Failure::passing(at, format!("{what} has not come for {:?}", patience.answer)))
}

tokio::task_local! {
    /// Status of the last answer that the task got, 0 for none.
    static STATUS: Cell<u16>;
}

/// Run an attempt; the status of the last answer that it got is the second of what it returns.
///
/// object_store's own error says it only in words.
async fn with_status<T>(attempt: impl Future<Output = T>) -> (T, Option<u16>) {
    let scope = STATUS.scope(Cell::new(0), async {
        let result = attempt.await;
        (result, STATUS.with(Cell::get))
    });
    let (result, status) = scope.await;
    (result, Some(status).filter(|status| *status > 0))
}

/// Makes clients that note the status of each answer.
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
    // What the macro `async_trait` makes of `async fn call(&self, request)`.
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
            // Outside of an attempt nobody asks.
            let _ = STATUS.try_with(|noted| noted.set(status));
            answer
        })
    }
}

/// Threads that move bytes: one does a few GB/s, two keep going while one writes to a cache.
const RUNTIME_THREADS: usize = 2;

/// The runtime of the process. It has no end: what is under way when the process ends is of no use to anybody.
pub(crate) fn runtime(url: &str) -> Result<&'static Runtime, Failure> {
    static RUNTIME: LazyLock<Result<Runtime, String>> = LazyLock::new(|| {
        // Fails if it was done before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let built = Builder::new_multi_thread()
            .worker_threads(RUNTIME_THREADS)
            .thread_name("anndata-remote")
            .enable_all()
            .build();
        built.map_err(|e| e.to_string())
    });
    RUNTIME.as_ref().map_err(|e| Failure::refused(url, &format!("there are no threads for requests: {e}")))
}
