use object_store::path::Path as Key;
use reqwest::Url;

use crate::AnnDataError;
use crate::source::remote::failure::Failure;

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// As it was given.
    pub url: String,
    pub place: ObjectHost,
    /// Its name there.
    pub key: Key,
}

/// What has objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ObjectHost {
    /// A bucket of S3, or of what speaks its protocol.
    S3(String),
    /// A bucket of Google Cloud Storage, read over its XML API, which speaks S3's protocol.
    Gs(String),
    /// A server, `http://HOST:PORT`.
    Http(String),
}

impl Address {
    /// Read a URL: `s3://BUCKET/KEY`, `gs://BUCKET/KEY`, `http://HOST/PATH` or `https://HOST/PATH`. Of a bucket the key is taken
    /// as it stands; in a path of HTTP `%20` is a space.
    ///
    /// # Errors
    /// It is another, or holds a secret: a user, a password, or the signature of a request.
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
            let place = if scheme == "gs://" { ObjectHost::Gs(bucket) } else { ObjectHost::S3(bucket) };
            return Ok(Self { url: url.to_owned(), place, key });
        }
        let parsed = Url::parse(url).map_err(|e| wrong(&format!("is no URL: {e}")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(wrong("begins with none of s3://, gs://, http:// and https://"));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(wrong(
                "holds a user or a password, which the ledger would show; objects that need them are read as s3:// or gs://",
            ));
        }
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(wrong(
                "has a part behind ? or #, such as a signature, which the ledger would show; signed objects are read as s3:// or gs://",
            ));
        }
        let key =
            Key::from_url_path(parsed.path()).map_err(|e| wrong(&format!("has a path that cannot be read: {e}")))?;
        if key.as_ref().is_empty() {
            return Err(wrong("names a server and no object"));
        }
        Ok(Self { url: url.to_owned(), place: ObjectHost::Http(parsed.origin().ascii_serialization()), key })
    }
}

/// See whether a URL can be read, without asking anybody.
///
/// # Errors
/// It is no object's of a bucket or a server, or holds a secret.
pub fn check_url(url: &str) -> Result<(), AnnDataError> {
    Address::parse(url).map(drop).map_err(Failure::into_error)
}

/// A URL without what may be a secret.
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
        assert_eq!((s3.place, s3.key.as_ref()), (ObjectHost::S3("bucket".to_owned()), "a b/c.h5ad"));
        let gs = Address::parse("gs://bucket/a b/c.h5ad").unwrap();
        assert_eq!((gs.place, gs.key.as_ref()), (ObjectHost::Gs("bucket".to_owned()), "a b/c.h5ad"));
        let http = Address::parse("http://127.0.0.1:80/a%20b/c.h5ad").unwrap();
        assert_eq!(http.place, ObjectHost::Http("http://127.0.0.1".to_owned()));
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
