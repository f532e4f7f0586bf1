//! URLs of objects.

use object_store::path::Path as Key;
use reqwest::Url;

use crate::AnnDataError;
use crate::source::remote::failure::Failure;

/// The parsed URL of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The URL as it was given.
    pub url: String,
    pub host: ObjectHost,
    /// Key of the object in its bucket, or path on its server.
    pub key: Key,
}

/// A bucket or a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObjectHost {
    /// A bucket of S3, or of a server with the same protocol.
    S3(String),
    /// A bucket of Google Cloud Storage, read with its XML API, which has the protocol of S3.
    Gs(String),
    /// A server, `http://HOST:PORT`.
    Http(String),
}

impl Address {
    /// Parses `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `http://HOST/PATH` or `https://HOST/PATH`. The key of a bucket is taken
    /// literally; the path of HTTP is percent-decoded.
    ///
    /// # Errors
    /// The URL has another form, or contains a secret: a user, a password, or a signature.
    pub fn parse(url: &str) -> Result<Self, Failure> {
        let wrong = |reason: &str| Failure::refused(without_secrets(url), reason);
        let bucketed = ["s3://", "gs://"].into_iter().find_map(|scheme| Some((scheme, url.strip_prefix(scheme)?)));
        if let Some((scheme, rest)) = bucketed {
            let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
            if bucket.is_empty() || key.is_empty() {
                return Err(wrong(&format!("is not {scheme}BUCKET/KEY")));
            }
            if bucket.contains(['@', '?']) {
                return Err(wrong("has something else than the name of a bucket before its key"));
            }
            let key = Key::parse(key).map_err(|e| wrong(&format!("has a key that cannot be read: {e}")))?;
            let bucket = bucket.to_owned();
            let host = if scheme == "gs://" { ObjectHost::Gs(bucket) } else { ObjectHost::S3(bucket) };
            return Ok(Self { url: url.to_owned(), host, key });
        }
        let parsed = Url::parse(url).map_err(|e| wrong(&format!("is no URL: {e}")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(wrong("begins with none of s3://, gs://, http:// and https://"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong(
                "holds a user or a password, which messages would show; objects that need them are read as s3:// or gs://",
            ));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(wrong(
                "has a part behind ? or #, such as a signature, which messages would show; signed objects are read as s3:// or gs://",
            ));
        }
        let key =
            Key::from_url_path(parsed.path()).map_err(|e| wrong(&format!("has a path that cannot be read: {e}")))?;
        if key.as_ref().is_empty() {
            return Err(wrong("names a server and no object"));
        }
        Ok(Self { url: url.to_owned(), host: ObjectHost::Http(parsed.origin().ascii_serialization()), key })
    }
}

/// Checks the form of the URL of an object, without a request.
///
/// # Errors
/// The URL names no object of a bucket or a server, or contains a secret.
pub fn check_url(url: &str) -> Result<(), AnnDataError> {
    Address::parse(url).map(drop).map_err(Failure::into_error)
}

/// A URL without its user, password and query, which may be secrets.
fn without_secrets(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    match url[..end].split_once("://") {
        Some((scheme, rest)) => {
            let host = rest.find('/').unwrap_or(rest.len());
            let start = rest[..host].rfind('@').map_or(0, |at| at + 1);
            format!("{scheme}://{}", &rest[start..])
        }
        None => url[..end].to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let s3 = Address::parse("s3://bucket/a b/c.h5ad").unwrap();
        assert_eq!((s3.host, s3.key.as_ref()), (ObjectHost::S3("bucket".to_owned()), "a b/c.h5ad"));
        let gs = Address::parse("gs://bucket/a b/c.h5ad").unwrap();
        assert_eq!((gs.host, gs.key.as_ref()), (ObjectHost::Gs("bucket".to_owned()), "a b/c.h5ad"));
        let http = Address::parse("http://127.0.0.1:80/a%20b/c.h5ad").unwrap();
        assert_eq!(http.host, ObjectHost::Http("http://127.0.0.1".to_owned()));
        assert_eq!(http.key.as_ref(), "a b/c.h5ad");
    }

    #[test]
    fn what_cannot_be_read_or_holds_a_secret_is_refused_without_showing_it() {
        for url in ["s3://bucket", "s3://bucket/", "gs://bucket", "gs:///a", "az://b/c", "http://host", "http://"] {
            assert!(Address::parse(url).is_err(), "{url}");
        }
        for url in ["s3://u:hunter2@bucket/a", "gs://u:hunter2@bucket/a"] {
            let text = Address::parse(url).unwrap_err().to_string();
            assert!(text.contains("bucket/a") && !text.contains("hunter2"), "{text}");
        }
        for url in ["https://me:hunter2@host/a.h5ad", "https://host/a.h5ad?X-Amz-Signature=hunter2"] {
            let text = Address::parse(url).unwrap_err().to_string();
            assert!(text.contains("https://host/a.h5ad") && !text.contains("hunter2"), "{text}");
        }
    }
}
