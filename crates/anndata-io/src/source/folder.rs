//! `Folder`: files of a local folder, or objects below a URL, found by key. Zarr arrays and MDS shards are opened through it.
//! Invariant: no key leads out of the folder.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::AnnDataError;
use crate::source::SourceError;
use crate::source::byte_source::{ByteSource, url_of};
use crate::source::remote::address::{Address, ObjectHost};
use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::{fetch_names, runtime};
use crate::source::remote::object::RemoteObject;
use crate::source::remote::service::Service;

/// Files below a folder, or remote objects below a URL, by their keys: relative paths with `/` between names.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    remote: Option<RemotePrefix>,
}

impl Folder {
    /// Opens a folder, which must exist if it is one of this machine.
    ///
    /// # Errors
    /// The folder does not exist, or the URL is none that can be read.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        if let Some(url) = url_of(path) {
            return Ok(Self { path: path.to_owned(), remote: Some(RemotePrefix::new(url)?) });
        }
        let metadata = path.metadata().map_err(AnnDataError::io("open", path))?;
        if !metadata.is_dir() {
            return Err(AnnDataError::damaged(path, SourceError::NotFolder));
        }
        Ok(Self { path: path.to_owned(), remote: None })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of a small file; `None` if there is none.
    ///
    /// # Errors
    /// The file has more than `max_bytes` bytes, or cannot be read; the key leads out of the folder.
    pub fn get(&self, key: &str, max_bytes: u64) -> Result<Option<Vec<u8>>, AnnDataError> {
        let path = self.key_path(key)?;
        if let Some(remote) = &self.remote {
            return remote.get(key, max_bytes);
        }
        let file = match std::fs::File::open(&path) {
            Err(e) if is_absent(&e) => return Ok(None),
            other => other.map_err(AnnDataError::io("open", &path))?,
        };
        let mut bytes = Vec::new();
        file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(AnnDataError::io("read", &path))?;
        if bytes.len() as u64 > max_bytes {
            return Err(AnnDataError::damaged(&path, SourceError::TooLong { max_bytes }));
        }
        Ok(Some(bytes))
    }

    /// As [`Self::get`], of a file that must exist.
    ///
    /// # Errors
    /// As [`Self::get`]; the file does not exist.
    pub fn require(&self, key: &str, max_bytes: u64) -> Result<Vec<u8>, AnnDataError> {
        let path = self.path.join(key);
        self.get(key, max_bytes)?.ok_or_else(|| match &self.remote {
            Some(_) => AnnDataError::damaged(&path, SourceError::Absent),
            None => AnnDataError::io("read", &path)(io::Error::from_raw_os_error(nix::libc::ENOENT)),
        })
    }

    /// Names of the files and folders in a folder, sorted; none if the folder does not exist.
    ///
    /// # Errors
    /// The folder cannot be read; the key leads out of this one.
    pub fn names(&self, key: &str) -> Result<Vec<String>, AnnDataError> {
        let path = self.key_path(key)?;
        if let Some(remote) = &self.remote {
            return remote.names(key);
        }
        let entries = match std::fs::read_dir(&path) {
            Err(e) if is_absent(&e) => return Ok(Vec::new()),
            other => other.map_err(AnnDataError::io("read", &path))?,
        };
        let name = |entry: io::Result<std::fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        let names: io::Result<Vec<String>> = entries.map(name).collect();
        let mut names = names.map_err(AnnDataError::io("read", &path))?;
        names.sort();
        Ok(names)
    }

    /// The existing ones of `keys` as one source, and for each key the number of its file; `None` if it does not exist.
    ///
    /// # Errors
    /// A file cannot be opened; there are more files than a process may have open; a key leads out of the folder.
    pub fn source(&self, keys: &[String]) -> Result<(ByteSource, Vec<Option<usize>>), AnnDataError> {
        let paths = keys.iter().map(|key| self.key_path(key)).collect::<Result<Vec<_>, _>>()?;
        if let Some(remote) = &self.remote {
            let found = remote.objects(keys)?;
            let files = numbered(found.iter().map(Option::is_some));
            return Ok((ByteSource::from_objects(&self.path, found.into_iter().flatten().collect())?, files));
        }
        let exists = |path: &PathBuf| match path.metadata() {
            Ok(_) => Ok(true),
            Err(e) if is_absent(&e) => Ok(false),
            Err(e) => Err(AnnDataError::io("inspect", path)(e)),
        };
        let exist = paths.iter().map(exists).collect::<Result<Vec<bool>, _>>()?;
        let names: Vec<PathBuf> =
            keys.iter().zip(&exist).filter(|(_, exists)| **exists).map(|(key, _)| key.into()).collect();
        Ok((ByteSource::open_folder(&self.path, &names)?, numbered(exist)))
    }

    /// For each entry of `keys` its first file that exists, all as one source; and which of the entry's keys each file is.
    ///
    /// # Errors
    /// No file of an entry exists; as [`Self::source`].
    pub fn source_of_first(&self, keys: &[Vec<&str>]) -> Result<(ByteSource, Vec<usize>), AnnDataError> {
        let mut chosen = Vec::with_capacity(keys.len());
        let Some(remote) = &self.remote else {
            let mut names = Vec::with_capacity(keys.len());
            for keys in keys {
                let paths = keys.iter().map(|key| self.key_path(key)).collect::<Result<Vec<_>, _>>()?;
                // If none exists, opening the last one says so.
                let first = paths.iter().position(|path| path.exists()).unwrap_or(keys.len().saturating_sub(1));
                names.extend(keys.get(first).map(PathBuf::from));
                chosen.push(first);
            }
            return Ok((ByteSource::open_folder(&self.path, &names)?, chosen));
        };
        let mut objects: Vec<Option<Arc<RemoteObject>>> = vec![None; keys.len()];
        chosen.resize(keys.len(), 0);
        for round in 0..keys.iter().map(Vec::len).max().unwrap_or(0) {
            let wanted = |(_, (object, keys)): &(usize, (&Option<Arc<RemoteObject>>, &Vec<&str>))| {
                object.is_none() && round < keys.len()
            };
            let missing: Vec<usize> = objects.iter().zip(keys).enumerate().filter(wanted).map(|(n, _)| n).collect();
            let of_round: Vec<String> = missing.iter().map(|n| keys[*n][round].to_owned()).collect();
            of_round.iter().try_for_each(|key| self.key_path(key).map(drop))?;
            for (n, object) in missing.into_iter().zip(remote.objects(&of_round)?) {
                if object.is_some() {
                    (objects[n], chosen[n]) = (object, round);
                }
            }
        }
        if let Some(n) = objects.iter().position(Option::is_none) {
            let name = keys[n].last().copied().unwrap_or_default();
            return Err(AnnDataError::damaged(&self.path.join(name), SourceError::Absent));
        }
        Ok((ByteSource::from_objects(&self.path, objects.into_iter().flatten().collect())?, chosen))
    }

    /// The path of a key.
    fn key_path(&self, key: &str) -> Result<PathBuf, AnnDataError> {
        let is_plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        if key.split('/').all(is_plain) {
            return Ok(self.path.join(key));
        }
        Err(AnnDataError::damaged(&self.path, SourceError::KeyOutside { key: key.to_owned() }))
    }
}

/// The number of each file among those that exist.
fn numbered(exist: impl IntoIterator<Item = bool>) -> Vec<Option<usize>> {
    let mut next = 0..;
    exist.into_iter().map(|exists| if exists { next.next() } else { None }).collect()
}

fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Objects whose URLs begin alike: what a folder is to files.
#[derive(Debug)]
struct RemotePrefix {
    /// Without a slash at its end.
    url: String,
}

impl RemotePrefix {
    /// The objects below a URL. No request checks that there are any.
    ///
    /// # Errors
    /// It is no URL that can be read.
    fn new(url: &str) -> Result<Self, AnnDataError> {
        let url = url.trim_end_matches('/').to_owned();
        Address::parse(&url).map_err(Failure::into_error)?;
        Ok(Self { url })
    }

    /// The bytes of an object of at most `most`; `None` if there is none.
    ///
    /// # Errors
    /// It has more, or cannot be read.
    fn get(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, AnnDataError> {
        let [object] = &self.objects(&[key.to_owned()])?[..] else { return Ok(None) };
        let Some(object) = object else { return Ok(None) };
        if object.bytes() > most {
            return Err(AnnDataError::damaged(object.url().as_ref(), SourceError::TooLong { max_bytes: most }));
        }
        object.read_range(0..object.bytes()).map(Some)
    }

    /// Names below `key`, sorted.
    ///
    /// # Errors
    /// The server does not say them.
    fn names(&self, key: &str) -> Result<Vec<String>, AnnDataError> {
        let url = self.at(key);
        let names = || {
            let address = Address::parse(&url)?;
            if matches!(address.host, ObjectHost::Http(_)) {
                let reason =
                    "over HTTP nobody says what is below it; consolidated metadata does (zarr.consolidate_metadata)";
                return Err(Failure::refused(&url, reason));
            }
            let service = Service::current().map_err(|e| Failure::refused(&url, &e.to_string()))?;
            let store = service.store(&address)?;
            runtime(&url)?.block_on(fetch_names(&service, store.as_ref(), &address))
        };
        let mut names = names().map_err(Failure::into_error)?;
        names.sort();
        Ok(names)
    }

    /// Each of these objects, or `None` if it does not exist. All are requested together, as far as the limit of requests allows.
    ///
    /// # Errors
    /// The server does not answer, or refuses to.
    fn objects(&self, keys: &[String]) -> Result<Vec<Option<Arc<RemoteObject>>>, AnnDataError> {
        let service = Service::current()?;
        let looked = async {
            let mut tasks = JoinSet::new();
            for (number, key) in keys.iter().enumerate() {
                let (service, url) = (Arc::clone(&service), self.at(key));
                tasks.spawn(async move {
                    // The semaphore is never closed; without a permit it is one request more.
                    let _permit = service.requests.acquire().await;
                    (number, RemoteObject::open_async(&service, &url).await)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_in_the_folder() {
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("inside");
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        std::fs::write(inside.join("a/b"), "text").unwrap();
        let folder = Folder::open(&inside).unwrap();
        assert_eq!(folder.get("a/b", 4).unwrap().as_deref(), Some(&b"text"[..]));
        assert!(folder.get("a/b", 3).unwrap_err().to_string().contains("more than 3 bytes"));
        assert!(folder.get("a/b/c", 9).unwrap().is_none() && folder.get("c", 9).unwrap().is_none());
        for key in ["../secret", "a/../../secret", "/etc/passwd", "", "a//b", "./a", "a\0"] {
            assert!(folder.get(key, 9).is_err() && folder.names(key).is_err(), "{key:?}");
            assert!(folder.source(&[key.to_owned()]).is_err(), "{key:?}");
        }
        assert_eq!(folder.names("a").unwrap(), ["b"]);
        let (source, parts) = folder.source(&["c".to_owned(), "a/b".to_owned()]).unwrap();
        assert_eq!((source.bytes(), parts), (4, vec![None, Some(0)]));
        assert!(Folder::open(&inside.join("a/b")).is_err());
    }
}
