//! Single values as sacct and scontrol print them. What they print for "not known" is none.

/// A text; none for Slurm's words for nothing.
pub(super) fn text(cell: &str) -> Option<String> {
    let nothing = ["", "None", "Unknown", "(null)", "N/A", "n/a", "None assigned"];
    (!nothing.contains(&cell)).then(|| cell.to_owned())
}

/// Seconds since the epoch, as commands print them with `SLURM_TIME_FORMAT=%s`.
pub(super) fn moment(cell: &str) -> Option<i64> {
    cell.parse().ok().filter(|seconds| *seconds > 0)
}

/// Bytes: `213729280`, `2956K`, `1.50G`. Slurm's units are powers of 1024.
pub(super) fn bytes(cell: &str) -> Option<u64> {
    let digits = cell.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &cell[digits.len()..] {
        "" | "B" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        "P" => 1 << 50,
        _ => return None,
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let value = digits.parse::<f64>().ok()? * unit as f64;
    (value.is_finite() && value >= 0.0).then_some(value as u64)
}

/// Memory that was asked for. Up to 20.11 it was per CPU (`4Gc`) or per node (`4Gn`), later it is for all together.
pub(super) fn memory(cell: &str, cpus: Option<u32>, nodes: Option<u32>) -> Option<u64> {
    let (amount, times) = match (cell.strip_suffix('c'), cell.strip_suffix('n')) {
        (Some(amount), _) => (amount, cpus?),
        (_, Some(amount)) => (amount, nodes?),
        _ => (cell, 1),
    };
    // 0: all that the node has.
    bytes(amount)?.checked_mul(u64::from(times)).filter(|bytes| *bytes > 0)
}

/// The memory in a list of resources: `billing=1,cpu=1,mem=500M,node=1`.
pub(super) fn memory_of_resources(list: &str) -> Option<u64> {
    list.split(',').find_map(|one| bytes(one.strip_prefix("mem=")?))
}

/// Seconds: `00:00.215`, `01:02:03`, `2-01:02:03`.
pub(super) fn seconds(cell: &str) -> Option<f64> {
    let (days, clock) = match cell.split_once('-') {
        Some((days, clock)) => (days.parse::<u32>().ok()?, clock),
        None => (0, cell),
    };
    let mut total = 0.0;
    let mut parts = 0;
    for part in clock.split(':') {
        let value: f64 = part.parse().ok()?;
        if !part.starts_with(|c: char| c.is_ascii_digit()) || !value.is_finite() {
            return None;
        }
        total = total * 60.0 + value;
        parts += 1;
    }
    (2..=3).contains(&parts).then_some(f64::from(days) * 86_400.0 + total)
}

/// Exit code and signal: `5:0`, `0:9`.
pub(super) fn exit(cell: &str) -> (Option<i32>, Option<i32>) {
    match cell.split_once(':') {
        Some((code, signal)) => (code.parse().ok(), signal.parse().ok().filter(|signal| *signal != 0)),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sizes() {
        let read =
            ["213729280", "2956K", "500M", "1.50G", "0", "", "16?", "-1", "4X", "18446744073709551615K"].map(bytes);
        let (k, m) = (1024, 1024 * 1024);
        let expected =
            [Some(213_729_280), Some(2956 * k), Some(500 * m), Some(1536 * m), Some(0), None, None, None, None, None];
        assert_eq!(read, expected);
        assert_eq!(memory("4Gc", Some(8), Some(2)), Some(32 << 30));
        assert_eq!(memory("4Gn", Some(8), Some(2)), Some(8 << 30));
        assert_eq!((memory("0", Some(8), Some(2)), memory("4Gc", None, None)), (None, None));
        assert_eq!(memory_of_resources("billing=4,cpu=4,gres/gpu=4,mem=200M,node=2"), Some(200 * m));
        assert_eq!(memory_of_resources("billing=4"), None);
    }

    #[test]
    fn times() {
        let read = ["00:00.215", "01:02:03", "2-01:02:03", "UNLIMITED", "Partition_Limit", "7", "", "-1:0:0", "1:-2"];
        let expected = [Some(0.215), Some(3723.0), Some(176_523.0), None, None, None, None, None, None];
        assert_eq!(read.map(seconds), expected);
        assert_eq!(
            ["1795199208", "Unknown", "None", "2026-11-20T13:26:24", "0"].map(moment)[..2],
            [Some(1_795_199_208), None]
        );
    }

    #[test]
    fn codes_and_words_for_nothing() {
        assert_eq!([exit("5:0"), exit("0:15"), exit("")], [(Some(5), None), (Some(0), Some(15)), (None, None)]);
        assert_eq!(text("None assigned"), None);
        assert_eq!(text("n[1-2]").as_deref(), Some("n[1-2]"));
    }

    proptest! {
        #[test]
        fn any_cell_is_read_without_panic(cell in "(?s)[-0-9.:eKMGcn]{0,24}|.{0,12}") {
            let _ = (text(&cell), moment(&cell), bytes(&cell), exit(&cell), memory_of_resources(&cell));
            prop_assert!(seconds(&cell).is_none_or(|s| s.is_finite() && s >= 0.0));
            let _ = memory(&cell, Some(u32::MAX), Some(u32::MAX));
        }
    }
}
