use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// JSON with the spaces of Python's `json.dumps`.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { to.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// As `json.dumps(value, sort_keys=True)` has it, where names are ASCII: of the same samples come the same bytes.
pub(super) fn dumps(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Objects of `serde_json` are sorted by key, and a list of bytes takes everything.
    let _ = value.serialize(&mut Serializer::with_formatter(&mut bytes, Spaced));
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn spaces_are_those_of_python() {
        let value = json!({"b": [1, null, "x"], "a": {}, "c": []});
        assert_eq!(String::from_utf8(dumps(&value)).unwrap(), r#"{"a": {}, "b": [1, null, "x"], "c": []}"#);
    }
}
