use std::sync::Arc;

use tokio::task::JoinSet;

use super::address::{Address, Place};
use super::failure::Failure;
use super::fetch::list;
use super::object::RemoteObject;
use super::runtime::runtime;
use super::service::Service;
use crate::AnnDataError;

/// Objects whose URLs begin alike: what a folder is to files.
#[derive(Debug)]
pub(in crate::source) struct RemotePrefix {
    /// Without a slash at its end.
    url: String,
}

impl RemotePrefix {
    /// Those below a URL. Nobody is asked whether there are any.
    ///
    /// # Errors
    /// It is no URL that can be read.
    pub(in crate::source) fn new(url: &str) -> Result<Self, AnnDataError> {
        let url = url.trim_end_matches('/').to_owned();
        Address::parse(&url).map_err(Failure::into_error)?;
        Ok(Self { url })
    }

    /// The bytes of an object of at most `most`; `None` if there is none.
    ///
    /// # Errors
    /// It has more, or cannot be read.
    pub(in crate::source) fn get(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, AnnDataError> {
        let [object] = &self.objects(&[key.to_owned()])?[..] else { return Ok(None) };
        let Some(object) = object else { return Ok(None) };
        if object.bytes() > most {
            return Err(AnnDataError::damaged(object.url().as_ref(), format!("has more than {most} bytes")));
        }
        object.read_range(0..object.bytes()).map(Some)
    }

    /// Names below `key`, sorted.
    ///
    /// # Errors
    /// The server does not say them.
    pub(in crate::source) fn names(&self, key: &str) -> Result<Vec<String>, AnnDataError> {
        let url = self.at(key);
        let names = || {
            let address = Address::parse(&url)?;
            if matches!(address.place, Place::Http(_)) {
                let reason =
                    "over HTTP nobody says what is below it; consolidated metadata does (zarr.consolidate_metadata)";
                return Err(Failure::refused(&url, reason));
            }
            let service = Service::current().map_err(|e| Failure::refused(&url, &e.to_string()))?;
            let store = service.store(&address)?;
            runtime(&url)?.block_on(list(&service, store.as_ref(), &address))
        };
        let mut names = names().map_err(Failure::into_error)?;
        names.sort();
        Ok(names)
    }

    /// Each of these objects that is there. All are asked for at once, as far as requests may be under way.
    ///
    /// # Errors
    /// The server does not answer, or refuses to.
    pub(in crate::source) fn objects(&self, keys: &[String]) -> Result<Vec<Option<Arc<RemoteObject>>>, AnnDataError> {
        let service = Service::current()?;
        let looked = async {
            let mut tasks = JoinSet::new();
            for (number, key) in keys.iter().enumerate() {
                let (service, url) = (Arc::clone(&service), self.at(key));
                tasks.spawn(async move {
                    // The semaphore is never closed; without a permit it is one request more.
                    let _permit = service.requests.acquire().await;
                    (number, RemoteObject::look(&service, &url).await)
                });
            }
            let mut found = vec![None; keys.len()];
            while let Some(done) = tasks.join_next().await {
                let (number, object) = done.map_err(|e| Failure::refused(&self.url, &e.to_string()))?;
                found[number] = match object {
                    Err(failure) if failure.is_absence() => None,
                    other => Some(other?),
                };
            }
            Ok(found)
        };
        runtime(&self.url).and_then(|runtime| runtime.block_on(looked)).map_err(Failure::into_error)
    }

    fn at(&self, key: &str) -> String {
        format!("{}/{key}", self.url)
    }
}
