use std::collections::BTreeSet;

use serde::Serialize;

use super::Row;
use super::confounds::is_relevant;

/// Rows for which a list of one value each can still be read.
const MANY_ROWS: usize = 8;

/// A setting that is not the same in all rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The setting, as a reader calls it.
    pub setting: String,
    /// Its value in each row, in order; `?` where it is not known.
    pub values: Vec<String>,
}

impl Difference {
    /// `workers 4/6/12`, or, where there are many rows, each value once: `workers 4 (9 rows), 6, 12 (2 rows)`.
    pub fn words(&self) -> String {
        if self.values.len() > MANY_ROWS {
            let mut rows: Vec<(&str, usize)> = Vec::new();
            for value in &self.values {
                match rows.iter_mut().find(|(known, _)| known == value) {
                    Some((_, n)) => *n += 1,
                    None => rows.push((value, 1)),
                }
            }
            let one = |(value, n): &(&str, usize)| match n {
                1 => (*value).to_owned(),
                n => format!("{value} ({n} rows)"),
            };
            return format!("{} {}", self.setting, rows.iter().map(one).collect::<Vec<_>>().join(", "));
        }
        let separator = if self.values.iter().any(|v| v.contains([' ', '/'])) { " / " } else { "/" };
        format!("{} {}", self.setting, self.values.join(separator))
    }
}

/// What readers ask for first; the rest follows by name.
const FIRST: [(&str, &str); 14] = [
    ("launch.ranks", "ranks"),
    ("loader.batch_size", "batch_size"),
    ("data.samples", "samples"),
    ("data.scale", "scale"),
    ("data.networks", "networks"),
    ("pipeline.edge_types", "edge_types"),
    ("device", "device"),
    ("loader.workers", "workers"),
    ("loader.pin_memory", "pin_memory"),
    ("cpus_per_rank", "CPUs per rank"),
    ("cpus", "CPUs of the job"),
    ("allocator", "allocator"),
    ("model", "model"),
    ("loader.prefetch_factor", "prefetch_factor"),
];

/// What a reader calls a setting.
pub fn setting_name(key: &str) -> &str {
    FIRST.iter().find(|(known, _)| *known == key).map_or(key, |(_, name)| name)
}

/// Keys as a reader wants them: what is asked for first, then by name.
pub(super) fn in_order<'a>(keys: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let keys: BTreeSet<&str> = keys.collect();
    let first = FIRST.iter().filter_map(|(key, _)| keys.get(key).copied());
    let rest = keys.iter().copied().filter(|key| FIRST.iter().all(|(known, _)| known != key));
    first.chain(rest).collect()
}

/// Settings in which rows differ besides the method, without those that no rate depends on. One that no two rows know is no
/// difference.
pub fn differences(rows: &[&Row]) -> Vec<Difference> {
    in_order(rows.iter().flat_map(|r| r.settings.keys().map(String::as_str)))
        .into_iter()
        .filter(|key| is_relevant(key))
        .filter_map(|key| {
            let found: Vec<Option<&String>> = rows.iter().map(|r| r.settings.get(key)).collect();
            let distinct: BTreeSet<&String> = found.iter().flatten().copied().collect();
            (distinct.len() > 1).then(|| Difference {
                setting: setting_name(key).to_owned(),
                values: found.iter().map(|v| v.map_or_else(|| "?".to_owned(), Clone::clone)).collect(),
            })
        })
        .collect()
}

/// Stands in front of a list of differences: ` besides the method`, or nothing where one processor made the batches of all rows, so that
/// the differences are what is compared.
pub fn besides_the_method(rows: &[&Row]) -> &'static str {
    if rows.windows(2).all(|two| two[0].same_processor(two[1])) { "" } else { " besides the method" }
}

/// Of the settings that readers ask for first, those that some rows know and others do not.
pub(super) fn unknown(rows: &[&Row]) -> Vec<String> {
    let known = |key: &str| rows.iter().filter(|r| r.settings.contains_key(key)).count();
    let some = |key: &str| (1..rows.len()).contains(&known(key));
    FIRST.iter().filter(|(key, _)| some(key)).map(|(_, name)| (*name).to_owned()).collect()
}
