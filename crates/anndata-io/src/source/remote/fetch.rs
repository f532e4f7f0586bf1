use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::pin::Pin;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::address::Address;
use super::answer::with_status;
use super::counts::add;
use super::failure::{Failure, Kind};
use super::options::Patience;
use super::service::Service;

/// What an object was when it was opened, as a server knows it again.
#[derive(Clone, Debug)]
pub(super) struct Version(ObjectMeta);

impl Version {
    /// Its length.
    pub(super) fn bytes(&self) -> u64 {
        self.0.size
    }

    /// Both are of one content.
    pub(super) fn same(&self, other: &ObjectMeta) -> bool {
        self.0.size == other.size
            && match (&self.0.e_tag, &other.e_tag) {
                (Some(one), Some(other)) => one == other,
                // Not said at all: no tag of this object has been seen, so the time of the last change counts.
                (None, None) => self.0.last_modified == other.last_modified,
                _ => false,
            }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        self.same(&other.0)
    }

    /// What tells it from all other versions, for the names of blocks.
    pub(super) fn tag(&self) -> String {
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
pub(super) async fn head(service: &Service, store: &dyn ObjectStore, at: &Address) -> Result<Version, Failure> {
    // Whoever opens a file waits for the answer, and may have mistyped it.
    let patience = Patience { attempts: service.options.patience.attempts.min(5), ..service.options.patience };
    let found = patiently(service, &patience, || async {
        let asked = timed(&patience, at, "an answer", store.head(&at.key));
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
pub(super) async fn list(service: &Service, store: &dyn ObjectStore, at: &Address) -> Result<Vec<String>, Failure> {
    let patience = service.options.patience;
    let found = patiently(service, &patience, || async {
        let asked = timed(&patience, at, "a list", store.list_with_delimiter(Some(&at.key)));
        let (answer, status) = with_status(asked).await;
        answer?.map_err(|e| Failure::of_answer(at, &e, status, false))
    });
    let found = found.await?;
    let objects = found.objects.iter().map(|object| &object.location);
    Ok(objects.chain(&found.common_prefixes).filter_map(|key| key.filename().map(str::to_owned)).collect())
}

/// Read a part of an object, all of it and of that version.
pub(super) async fn part(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
    version: &Version,
    range: &Range<u64>,
) -> Result<Bytes, Failure> {
    let patience = service.options.patience;
    patiently(service, &patience, || once(service, store, at, version, range)).await
}

/// Try until it is there, it cannot be had, or patience is at its end.
async fn patiently<T, F>(service: &Service, patience: &Patience, attempt: impl Fn() -> F) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let mut number = 1;
    loop {
        add(&service.counters.requests, 1);
        match attempt().await {
            Err(failure) if failure.kind == Kind::Passing && number < patience.attempts => {
                number += 1;
                tracing::debug!("{failure}; attempt {number} of {} follows", patience.attempts);
                add(&service.counters.retries, 1);
                tokio::time::sleep(patience.pause(number, RandomState::new().build_hasher().finish())).await;
            }
            Err(failure) if failure.kind == Kind::Passing => return Err(failure.after(number)),
            result => return result,
        }
    }
}

async fn once(
    service: &Service,
    store: &dyn ObjectStore,
    at: &Address,
    version: &Version,
    range: &Range<u64>,
) -> Result<Bytes, Failure> {
    let patience = service.options.patience;
    let asked = timed(&patience, at, "an answer", get(store, &at.key, version.asked(range)));
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
        let next = timed(&patience, at, "the rest of an answer", next).await?;
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

async fn timed<T>(
    patience: &Patience,
    at: &Address,
    what: &str,
    waited: impl Future<Output = T>,
) -> Result<T, Failure> {
    tokio::time::timeout(patience.answer, waited)
        .await
        .map_err(|_| Failure::passing(at, format!("{what} has not come for {:?}", patience.answer)))
}
