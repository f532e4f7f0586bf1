//! [`Message`]: the wire format of protocol buffers, as far as event files of TensorBoard and run files of Weights & Biases need it.

/// A message that is being encoded, field by field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message(Vec<u8>);

/// Wire types.
const VARINT: u32 = 0;
const EIGHT_BYTES: u32 = 1;
const LENGTH: u32 = 2;
const FOUR_BYTES: u32 = 5;

impl Message {
    /// Without a field.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// The encoded message.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// A field of an integer, truth value or enum. Negative numbers take ten bytes, as int32 and int64 do.
    #[must_use]
    pub fn integer(mut self, field: u32, value: i64) -> Self {
        self.tag(field, VARINT);
        self.varint(value as u64);
        self
    }

    /// A field of a float.
    #[must_use]
    pub fn float(mut self, field: u32, value: f32) -> Self {
        self.tag(field, FOUR_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A field of a double.
    #[must_use]
    pub fn double(mut self, field: u32, value: f64) -> Self {
        self.tag(field, EIGHT_BYTES);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// A field of bytes.
    #[must_use]
    pub fn data(mut self, field: u32, bytes: &[u8]) -> Self {
        self.tag(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    /// A field of text.
    #[must_use]
    pub fn text(self, field: u32, text: &str) -> Self {
        self.data(field, text.as_bytes())
    }

    /// A field of a message.
    #[must_use]
    pub fn message(self, field: u32, message: &Self) -> Self {
        self.data(field, &message.0)
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of the format's own description (protobuf.dev, "Encoding").
    #[test]
    fn fields_are_encoded_as_described() {
        assert_eq!(Message::new().integer(1, 150).bytes(), [0x08, 0x96, 0x01]);
        assert_eq!(Message::new().text(2, "testing").bytes(), b"\x12\x07testing");
        let inner = Message::new().integer(1, 150);
        assert_eq!(Message::new().message(3, &inner).bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let negative = Message::new().integer(1, -2);
        assert_eq!(negative.bytes(), [0x08, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        assert_eq!(Message::new().float(5, 1.0).bytes(), [0x2d, 0, 0, 0x80, 0x3f]);
        assert_eq!(Message::new().double(1, 2.0).bytes(), [0x09, 0, 0, 0, 0, 0, 0, 0, 0x40]);
        assert_eq!(Message::new().integer(200, 1).bytes(), [0xc0, 0x0c, 0x01]);
    }
}
