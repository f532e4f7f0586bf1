use super::chart::Scale;
use crate::report::format;

/// Most ticks on a logarithmic axis before decades are left out.
const MOST_DECADES: i32 = 8;

/// A place on an axis that has a number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    /// The value.
    pub value: f64,
    /// The number as it is written; empty for a line without one.
    pub label: String,
}

/// Ticks between two values, about `wanted` of them.
pub(super) fn ticks(scale: Scale, [low, high]: [f64; 2], wanted: usize) -> Vec<Tick> {
    match scale {
        Scale::Linear => linear(low, high, wanted),
        Scale::Log => logarithmic(low, high, wanted),
    }
}

/// Steps of 1, 2 or 5 times a power of ten.
fn linear(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let rough = (high - low) / wanted.max(1) as f64;
    if !(rough.is_finite() && rough > 0.0) {
        return Vec::new();
    }
    let power = rough.log10().floor();
    let lead = [1.0, 2.0, 5.0, 10.0].into_iter().find(|lead| lead * 10f64.powf(power) >= rough * 0.999).unwrap_or(10.0);
    let step = lead * 10f64.powf(power);
    let decimals = decimals(step);
    let large = low.abs().max(high.abs());
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last.min(first + 100))
        .map(|i| {
            let value = i as f64 * step;
            Tick { value, label: number(value, large, decimals) }
        })
        .collect()
}

/// Decimals that tell steps of this size apart.
fn decimals(step: f64) -> usize {
    usize::try_from(-(step * 1.0001).log10().floor() as i32).unwrap_or(0)
}

/// `12,500`, `0.25`; beyond that `3×10⁷`, all of an axis with the power of its largest.
fn number(value: f64, large: f64, decimals: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let power = large.log10().floor() as i32;
    if (-4..7).contains(&power) {
        let text = format!("{:.decimals$}", value.abs());
        let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
        let whole = whole.parse().map_or_else(|_| whole.to_owned(), format::thousands);
        let sign = if value < 0.0 { "−" } else { "" };
        return if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") };
    }
    let lead = value / 10f64.powi(power);
    let text = format!("{lead:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}×{}", text.replace('-', "−"), ten(power))
}

/// `10⁻³`.
fn ten(power: i32) -> String {
    let raised = |c| match c {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' | '4'..='9' => char::from_u32(0x2070 + (c as u32 - '0' as u32)).unwrap_or(c),
        other => other,
    };
    format!("10{}", power.to_string().chars().map(raised).collect::<String>())
}

/// A value by itself, to four significant digits.
pub(super) fn plain(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let places = 3 - value.abs().log10().floor() as i32;
    let text = number(value, value.abs(), usize::try_from(places).unwrap_or(0));
    match text.contains('.') && !text.contains('×') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// Powers of ten, with 2 and 5 between them where there is room; lines without numbers for the other digits.
fn logarithmic(low: f64, high: f64, wanted: usize) -> Vec<Tick> {
    let (from, to) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = high.log10() - low.log10();
    if !decades.is_finite() || decades <= 0.0 {
        return Vec::new();
    }
    if decades < 0.7 {
        // Within a few times the same, even steps are what one can read.
        return linear(low, high, wanted);
    }
    let powers = high.log10().floor() - low.log10().ceil() + 1.0;
    let every = (powers / wanted.clamp(2, 10) as f64).ceil().max(1.0) as i32;
    let digits: &[u8] = match decades {
        d if d * 3.0 <= wanted as f64 => &[1, 2, 5],
        d if d * 2.0 <= wanted as f64 => &[1, 3],
        _ => &[1],
    };
    let mut all = Vec::new();
    for power in from..=to {
        for digit in 1..10u8 {
            let value = f64::from(digit) * 10f64.powi(power);
            if value < low * 0.999_999 || value > high * 1.000_001 {
                continue;
            }
            let named = digits.contains(&digit) && power.rem_euclid(every) == 0;
            // Of many decades the lines between say nothing.
            if named || (decades <= f64::from(MOST_DECADES) && every == 1) {
                let label = if named { power_label(value, power) } else { String::new() };
                all.push(Tick { value, label });
            }
        }
    }
    all
}

fn power_label(value: f64, power: i32) -> String {
    if (-4..7).contains(&power) {
        return number(value, value, usize::try_from(-power).unwrap_or(0));
    }
    let digit = (value / 10f64.powi(power)).round() as u8;
    if digit == 1 { ten(power) } else { format!("{digit}×{}", ten(power)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, low: f64, high: f64, wanted: usize) -> String {
        let named = ticks(scale, [low, high], wanted).into_iter().map(|t| t.label).filter(|l| !l.is_empty());
        named.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn linear_ticks_are_round() {
        assert_eq!(labels(Scale::Linear, 0.0, 10.6, 5), "0 5 10");
        assert_eq!(labels(Scale::Linear, 0.0, 10.6, 6), "0 2 4 6 8 10");
        assert_eq!(labels(Scale::Linear, -0.02, 0.031, 5), "−0.02 0 0.02");
        assert_eq!(labels(Scale::Linear, 0.0, 25_000.0, 5), "0 5,000 10,000 15,000 20,000 25,000");
        assert_eq!(labels(Scale::Linear, 0.0, 4e7, 4), "0 1×10⁷ 2×10⁷ 3×10⁷ 4×10⁷");
        assert_eq!(labels(Scale::Linear, 0.0, 3e-6, 3), "0 1×10⁻⁶ 2×10⁻⁶ 3×10⁻⁶");
        assert_eq!(labels(Scale::Linear, 0.25, 0.75, 5), "0.3 0.4 0.5 0.6 0.7");
        assert_eq!(labels(Scale::Linear, 1.0, 1.0, 5), "");
    }

    #[test]
    fn logarithmic_ticks_are_decades() {
        assert_eq!(labels(Scale::Log, 0.8, 1200.0, 5), "1 10 100 1,000");
        assert_eq!(labels(Scale::Log, 0.8, 30.0, 6), "1 2 5 10 20");
        assert_eq!(labels(Scale::Log, 0.000_009, 2.0, 6), "10⁻⁵ 0.0001 0.001 0.01 0.1 1");
        assert_eq!(labels(Scale::Log, 1e-9, 1e9, 5), "10⁻⁸ 0.0001 1 10,000 10⁸");
        assert_eq!(labels(Scale::Log, 2.0, 6.0, 4), "2 3 4 5 6");
    }
}
