//! Amounts as options of `sbatch` write them.

/// An amount of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Minutes {
    /// So many minutes; begun minutes count.
    Some(u64),
    /// No limit.
    Unlimited,
}

/// `minutes`, `minutes:seconds`, `hours:minutes:seconds`, `days-hours`, `days-hours:minutes`,
/// `days-hours:minutes:seconds`, `UNLIMITED`.
pub(super) fn minutes(text: &str) -> Option<Minutes> {
    if ["UNLIMITED", "INFINITE"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Some(Minutes::Unlimited);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u32>().ok()?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(|part| part.parse::<u32>().ok()).collect::<Option<Vec<_>>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, &[minutes]) => (0, minutes, 0),
        (None, &[minutes, seconds]) => (0, minutes, seconds),
        (Some(_), &[hours]) => (hours, 0, 0),
        (Some(_), &[hours, minutes]) => (hours, minutes, 0),
        (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
        _ => return None,
    };
    let hours = u64::from(days.unwrap_or(0)) * 24 + u64::from(hours);
    Some(Minutes::Some(hours * 60 + u64::from(minutes) + u64::from(seconds.div_ceil(60))))
}

/// MiB of `N`, `NK`, `NM`, `NG`, `NT`; without a unit they are MiB.
pub(super) fn mebibytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let amount: u64 = digits.parse().ok()?;
    match text[digits.len()..].to_ascii_uppercase().as_str() {
        "K" | "KB" => Some(amount.div_ceil(1024)),
        "" | "M" | "MB" => Some(amount),
        "G" | "GB" => amount.checked_mul(1024),
        "T" | "TB" => amount.checked_mul(1024 * 1024),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_as_sbatch_reads_them() {
        let of = |text| match minutes(text) {
            Some(Minutes::Some(minutes)) => Some(minutes),
            _ => None,
        };
        assert_eq!(of("90"), Some(90));
        assert_eq!(of("90:01"), Some(91));
        assert_eq!(of("2:30:00"), Some(150));
        assert_eq!(of("1-2"), Some(26 * 60));
        assert_eq!(of("1-2:03"), Some(26 * 60 + 3));
        assert_eq!(of("1-2:03:04"), Some(26 * 60 + 4));
        assert_eq!(minutes("unlimited"), Some(Minutes::Unlimited));
        for wrong in ["", "x", "1:2:3:4", "-1", "1.5"] {
            assert_eq!(minutes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn memory_as_sbatch_reads_it() {
        for (text, mib) in [("4096M", 4096), ("100", 100), ("2G", 2048), ("1T", 1 << 20), ("1500K", 2), ("0", 0)] {
            assert_eq!(mebibytes(text), Some(mib), "{text}");
        }
        for wrong in ["", "G", "1X", "1.5G", "99999999999999999999", "9999999999999999999T"] {
            assert_eq!(mebibytes(wrong), None, "{wrong}");
        }
    }
}
