use super::dtype::Dtype;

/// How the values of a column are encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// `ndarray`, `ndarray:DTYPE`, `ndarray:DTYPE:SHAPE`: what is not given is in each sample.
    Array { dtype: Option<Dtype>, shape: Option<Vec<u64>> },
    /// `bytes`.
    Bytes,
    /// `int`, `uint8` … `float64`.
    Scalar(Dtype),
    /// `str`.
    Text,
    /// `str_int`: digits.
    TextInteger,
    /// `str_float` and `str_decimal`.
    TextFloat,
    /// Another one, which is not looked into.
    Other,
}

impl Encoding {
    /// # Errors
    /// An array of an unknown dtype, or whose shape is none.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("encoding \"{text}\" is none of MDS");
        let array = match text.split_once(':') {
            None if text == "ndarray" => "",
            Some(("ndarray", rest)) => rest,
            _ => {
                return Ok(match text {
                    "bytes" => Self::Bytes,
                    "str" => Self::Text,
                    "str_int" => Self::TextInteger,
                    "str_float" | "str_decimal" => Self::TextFloat,
                    "int" => Self::Scalar(Dtype::I64),
                    other => Dtype::named(other).map_or(Self::Other, Self::Scalar),
                });
            }
        };
        if array.is_empty() {
            return Ok(Self::Array { dtype: None, shape: None });
        }
        let (dtype, shape) = match array.split_once(':') {
            None => (array, None),
            Some((dtype, shape)) => (dtype, Some(shape)),
        };
        let dtype = Dtype::named(dtype).ok_or_else(wrong)?;
        let sides = |shape: &str| -> Option<Vec<u64>> {
            shape.split(',').map(|side| side.trim().parse().ok().filter(|side| *side > 0)).collect()
        };
        let shape = shape.map(|shape| sides(shape).ok_or_else(wrong)).transpose()?;
        let encoding = Self::Array { dtype: Some(dtype), shape };
        if encoding.is_too_large() {
            return Err(wrong());
        }
        Ok(encoding)
    }

    fn is_too_large(&self) -> bool {
        matches!(self, Self::Array { shape: Some(_), .. }) && self.size().flatten().is_none()
    }

    /// Bytes of every value, `None` inside where they differ; `None` where this code does not know.
    pub(super) fn size(&self) -> Option<Option<u32>> {
        Some(match self {
            Self::Array { dtype: Some(dtype), shape: Some(shape) } => {
                let count = shape.iter().try_fold(1_u64, |count, side| count.checked_mul(*side));
                count.and_then(|count| count.checked_mul(dtype.size() as u64)).and_then(|bytes| bytes.try_into().ok())
            }
            Self::Scalar(dtype) => Some(dtype.size() as u32),
            Self::Other => return None,
            _ => None,
        })
    }

    /// Whether it may hold a row, or a part of one.
    pub(super) const fn is_array(&self) -> bool {
        matches!(self, Self::Array { .. } | Self::Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_are_those_of_the_package() {
        let size = |text: &str| Encoding::parse(text).map(|encoding| encoding.size());
        assert_eq!(size("ndarray"), Ok(Some(None)));
        assert_eq!(size("ndarray:float32"), Ok(Some(None)));
        assert_eq!(size("ndarray:int16:3,4"), Ok(Some(Some(24))));
        assert_eq!(size("int"), Ok(Some(Some(8))));
        assert_eq!(size("float16"), Ok(Some(Some(2))));
        assert_eq!(size("str"), Ok(Some(None)));
        assert_eq!(size("jpeg"), Ok(None));
        for wrong in ["ndarray:float8", "ndarray:float32:", "ndarray:float32:0", "ndarray:int8:99999999,99999999"] {
            assert!(Encoding::parse(wrong).unwrap_err().contains(wrong));
        }
    }
}
