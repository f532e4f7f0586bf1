use std::ops::RangeInclusive;
use std::str::FromStr;

/// Widths that a picture may have, in points.
const WIDTHS: RangeInclusive<u16> = 480..=4000;
/// Heights that a picture may have, in points.
const HEIGHTS: RangeInclusive<u16> = 200..=4000;

/// Width and height of a picture, in points: pixels of the SVG, of which the PNG has two by two for each.
///
/// Invariant: 480 to 4000 points wide and 200 to 4000 high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    width: u16,
    height: u16,
}

/// Why a text is no size of a picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Not two whole numbers with an `x` between them.
    #[error("two numbers with an x between them are expected: 900x600")]
    Form,
    /// A number that no picture has.
    #[error("a {side} of {points} points is not possible: {} to {} are", possible.start(), possible.end())]
    Range {
        /// `width` or `height`.
        side: &'static str,
        /// What was asked for.
        points: u16,
        /// What is possible.
        possible: RangeInclusive<u16>,
    },
}

impl Size {
    /// Points from left to right.
    pub fn width(self) -> f64 {
        f64::from(self.width)
    }

    /// Points from top to bottom.
    pub fn height(self) -> f64 {
        f64::from(self.height)
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let (width, height) = text.split_once('x').ok_or(SizeError::Form)?;
        let points = |text: &str, side, possible: RangeInclusive<u16>| -> Result<u16, SizeError> {
            let points: u16 = text.trim().parse().map_err(|_| SizeError::Form)?;
            if possible.contains(&points) { Ok(points) } else { Err(SizeError::Range { side, points, possible }) }
        };
        Ok(Self { width: points(width, "width", WIDTHS)?, height: points(height, "height", HEIGHTS)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_two_numbers_within_their_ranges() {
        let size: Size = "900x600".parse().unwrap();
        assert_eq!((size.width(), size.height()), (900.0, 600.0));
        for text in ["900", "900*600", "900x", "x600", "-900x600", "900x600x3", "70000x600"] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::Form), "{text}");
        }
        let said = |text: &str| text.parse::<Size>().unwrap_err().to_string();
        assert_eq!(said("479x600"), "a width of 479 points is not possible: 480 to 4000 are");
        assert_eq!(said("900x5000"), "a height of 5000 points is not possible: 200 to 4000 are");
    }
}
