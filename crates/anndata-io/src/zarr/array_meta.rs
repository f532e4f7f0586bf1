use super::data_type::DataType;
use super::json::Object;
use super::shard_index::ShardIndex;
use crate::matrix::filters::Chain;

/// What an array is made of, whatever version says so.
#[derive(Clone, Debug)]
pub(super) struct ArrayMeta {
    pub(super) shape: Vec<u64>,
    pub(super) data_type: DataType,
    /// Lengths of what one object (a file) has: a chunk, or a shard. None is 0.
    pub(super) object: Vec<u64>,
    /// Lengths of a chunk, which is decompressed as a whole. They divide those of an object.
    pub(super) chunk: Vec<u64>,
    /// Of a sharded array.
    pub(super) index: Option<ShardIndex>,
    pub(super) keys: Keys,
    pub(super) chain: Chain,
    /// Bytes of the value that stands for what was never written.
    pub(super) fill: Vec<u8>,
    pub(super) attributes: Object,
}

/// How objects are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// `c` comes first.
    pub(super) prefix: bool,
    /// Between numbers: `.` or `/`.
    pub(super) separator: char,
}

impl Keys {
    /// The key of an object by its place in each dimension.
    pub(super) fn key(&self, place: &[u64]) -> String {
        let mut key = String::new();
        if self.prefix {
            key.push('c');
        }
        for (i, number) in place.iter().enumerate() {
            if i > 0 || self.prefix {
                key.push(self.separator);
            }
            key += &number.to_string();
        }
        // Without dimensions there is one object.
        if key.is_empty() { "0".to_owned() } else { key }
    }

    /// `.` or `/`.
    pub(super) fn separated(separator: Option<&str>, default: char) -> Result<char, String> {
        match separator {
            None => Ok(default),
            Some(".") => Ok('.'),
            Some("/") => Ok('/'),
            Some(other) => Err(format!("has keys with {other:?} between numbers")),
        }
    }
}

impl ArrayMeta {
    /// Its lengths fit each other; `Err` says which do not.
    pub(super) fn checked(self) -> Result<Self, String> {
        let Self { shape, object, chunk, .. } = &self;
        if object.len() != shape.len() || chunk.len() != shape.len() {
            return Err(format!("has a shape of {shape:?} and chunks of {object:?} and {chunk:?}"));
        }
        let fits = |(object, chunk): (&u64, &u64)| *chunk > 0 && *object > 0 && object % chunk == 0;
        if !object.iter().zip(chunk).all(fits) {
            return Err(format!("has chunks of {chunk:?} in objects of {object:?}"));
        }
        let size = self.data_type.size().unwrap_or(1).max(1) as u64;
        for lengths in [shape, object] {
            let bytes = lengths.iter().try_fold(size, |bytes, length| bytes.checked_mul(*length));
            if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
                return Err(format!("has lengths of {lengths:?}, which no file can hold"));
            }
        }
        Ok(self)
    }

    /// An attribute that is text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        super::json::text(&self.attributes, name)
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;

    #[test]
    fn keys_are_as_specified() {
        let key = |prefix, separator, place: &[u64]| Keys { prefix, separator }.key(place);
        assert_eq!(key(true, '/', &[1, 23]), "c/1/23");
        assert_eq!(key(true, '.', &[1, 23]), "c.1.23");
        assert_eq!(key(true, '/', &[]), "c");
        assert_eq!(key(false, '.', &[1, 23]), "1.23");
        assert_eq!(key(false, '/', &[0]), "0");
        assert_eq!(key(false, '.', &[]), "0");
    }
}
