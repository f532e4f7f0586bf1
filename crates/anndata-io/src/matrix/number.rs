use std::fmt;

/// A numeric type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) kind: Kind,
    /// Most significant byte first.
    pub(crate) big_endian: bool,
}

/// What its bits mean. Booleans, which HDF5 has as an enumeration of a byte, are numbers of that byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    F32,
    F64,
}

impl Number {
    /// Bytes of one.
    pub(crate) const fn size(self) -> usize {
        match self.kind {
            Kind::I8 | Kind::U8 => 1,
            Kind::I16 | Kind::U16 | Kind::F16 => 2,
            Kind::I32 | Kind::U32 | Kind::F32 => 4,
            Kind::I64 | Kind::U64 | Kind::F64 => 8,
        }
    }

    /// Has no fraction.
    pub(crate) const fn is_integer(self) -> bool {
        !matches!(self.kind, Kind::F16 | Kind::F32 | Kind::F64)
    }

    /// Can be negative.
    pub(crate) const fn is_signed(self) -> bool {
        !matches!(self.kind, Kind::U8 | Kind::U16 | Kind::U32 | Kind::U64)
    }

    /// Has its bytes as this machine has them.
    pub(crate) const fn is_native_endian(self) -> bool {
        self.size() == 1 || self.big_endian == cfg!(target_endian = "big")
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            Kind::I8 => "int8",
            Kind::U8 => "uint8",
            Kind::I16 => "int16",
            Kind::U16 => "uint16",
            Kind::I32 => "int32",
            Kind::U32 => "uint32",
            Kind::I64 => "int64",
            Kind::U64 => "uint64",
            Kind::F16 => "float16",
            Kind::F32 => "float32",
            Kind::F64 => "float64",
        };
        f.write_str(name)
    }
}
