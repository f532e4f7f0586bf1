use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::AnnDataError;
use crate::source::byte_source::{ByteSource, url_of};
use crate::source::remote::address::{Address, ObjectHost};
use crate::source::remote::failure::Failure;
use crate::source::remote::fetch::{fetch_names, runtime};
use crate::source::remote::object::RemoteObject;
use crate::source::remote::service::Service;

/// Files below a folder, or remote objects below a URL, by their keys: paths from there with `/` between names.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Where it is remote.
    remote: Option<RemotePrefix>,
}

impl Folder {
    /// A folder, which is there if it is one of this machine.
    ///
    /// # Errors
    /// There is none, or no such URL can be read.
    pub fn open(path: &Path) -> Result<Self, AnnDataError> {
        if let Some(url) = url_of(path) {
            return Ok(Self { path: path.to_owned(), remote: Some(RemotePrefix::new(url)?) });
        }
        let about = path.metadata().map_err(AnnDataError::io("open", path))?;
        if !about.is_dir() {
            return Err(AnnDataError::damaged(path, "is no folder"));
        }
        Ok(Self { path: path.to_owned(), remote: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of a small file; `None` if there is none.
    ///
    /// # Errors
    /// It has more than `most` bytes, or cannot be read; the key leads out of the folder.
    pub fn get(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, AnnDataError> {
        let path = self.at(key)?;
        if let Some(remote) = &self.remote {
            return remote.get(key, most);
        }
        let file = match std::fs::File::open(&path) {
            Err(e) if is_absent(&e) => return Ok(None),
            other => other.map_err(AnnDataError::io("open", &path))?,
        };
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes).map_err(AnnDataError::io("read", &path))?;
        if bytes.len() as u64 > most {
            return Err(AnnDataError::damaged(&path, format!("has more than {most} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Names of the files and folders in a folder, sorted; none if it is not there.
    ///
    /// # Errors
    /// It cannot be read; the key leads out of the folder.
    pub fn names(&self, key: &str) -> Result<Vec<String>, AnnDataError> {
        let path = self.at(key)?;
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

    /// Those of the files that are there as one source, and which part of it each of `keys` is; `None` of what is not there.
    ///
    /// # Errors
    /// One cannot be opened; they are more than a process may have open; a key leads out of the folder.
    pub fn source(&self, keys: &[String]) -> Result<(ByteSource, Vec<Option<usize>>), AnnDataError> {
        let (mut there, mut parts) = (Vec::new(), Vec::with_capacity(keys.len()));
        if let Some(remote) = &self.remote {
            keys.iter().try_for_each(|key| self.at(key).map(drop))?;
            let mut objects = Vec::new();
            for object in remote.objects(keys)? {
                parts.push(object.map(|object| {
                    objects.push(object);
                    objects.len() - 1
                }));
            }
            return Ok((ByteSource::of_objects(&self.path, objects)?, parts));
        }
        for key in keys {
            let path = self.at(key)?;
            match path.metadata() {
                Ok(_) => {
                    parts.push(Some(there.len()));
                    there.push(PathBuf::from(key));
                }
                Err(e) if is_absent(&e) => parts.push(None),
                Err(e) => return Err(AnnDataError::io("inspect", &path)(e)),
            }
        }
        Ok((ByteSource::open_folder(&self.path, &there)?, parts))
    }

    /// Where a key is.
    fn at(&self, key: &str) -> Result<PathBuf, AnnDataError> {
        let plain = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        if key.split('/').all(plain) {
            return Ok(self.path.join(key));
        }
        Err(AnnDataError::damaged(&self.path, format!("names {key:?}, which is no place in it")))
    }
}

fn is_absent(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Objects whose URLs begin alike: what a folder is to files.
#[derive(Debug)]
pub(crate) struct RemotePrefix {
    /// Without a slash at its end.
    url: String,
}

impl RemotePrefix {
    /// Those below a URL. Nobody is asked whether there are any.
    ///
    /// # Errors
    /// It is no URL that can be read.
    pub fn new(url: &str) -> Result<Self, AnnDataError> {
        let url = url.trim_end_matches('/').to_owned();
        Address::parse(&url).map_err(Failure::into_error)?;
        Ok(Self { url })
    }

    /// The bytes of an object of at most `most`; `None` if there is none.
    ///
    /// # Errors
    /// It has more, or cannot be read.
    pub fn get(&self, key: &str, most: u64) -> Result<Option<Vec<u8>>, AnnDataError> {
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
    pub fn names(&self, key: &str) -> Result<Vec<String>, AnnDataError> {
        let url = self.at(key);
        let names = || {
            let address = Address::parse(&url)?;
            if matches!(address.place, ObjectHost::Http(_)) {
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

    /// Each of these objects that is there. All are asked for at once, as far as requests may be under way.
    ///
    /// # Errors
    /// The server does not answer, or refuses to.
    pub fn objects(&self, keys: &[String]) -> Result<Vec<Option<Arc<RemoteObject>>>, AnnDataError> {
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
