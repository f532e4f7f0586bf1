use expctl_record::JobRecord;
use jiff::tz::TimeZone;

use crate::exit::{Exit, Failure};

/// The pattern without a wish for another one.
pub(super) const PATTERN: &str = "{config}_{job}";

/// Places of a pattern, and what each stands for.
const PLACES: &str = "{study}, {config}, {job}, {date} (2025.11.04), {year}, {month}, {day} (2025, 11, 4)";

/// The file name of a note, without `.md`, by a pattern such as `experiments.{study}.scripts.{config}.{year}.{month}.{day}.results`.
///
/// The day is that of the submission, in UTC.
///
/// # Errors
/// Exit 2 for a place that does not exist, or a name that is none.
pub(super) fn file_name(pattern: &str, record: &JobRecord) -> Result<String, Failure> {
    filled(pattern, &record.study, &record.config, record.job, record.submitted)
}

/// Whether a pattern makes a name, before there is a job.
///
/// # Errors
/// As [`file_name`].
pub(crate) fn check_name(pattern: &str) -> Result<(), Failure> {
    filled(pattern, "study", "config", 1, 0).map(drop)
}

fn filled(pattern: &str, study: &str, config: &str, job: u64, submitted: i64) -> Result<String, Failure> {
    let wrong = |what: String| Failure::new(Exit::Usage, format!("the note name {pattern:?} {what}"));
    let day = jiff::Timestamp::from_second(submitted).map_err(Failure::internal)?.to_zoned(TimeZone::UTC);
    let mut name = String::new();
    let mut rest = pattern.strip_suffix(".md").unwrap_or(pattern);
    while let Some((before, after)) = rest.split_once('{') {
        let (place, behind) = after.split_once('}').ok_or_else(|| wrong("has a `{` without `}`".to_owned()))?;
        name.push_str(before);
        name.push_str(&match place {
            "study" => study.to_owned(),
            "config" => config.to_owned(),
            "job" => job.to_string(),
            "date" => day.strftime("%Y.%m.%d").to_string(),
            "year" => day.year().to_string(),
            "month" => day.month().to_string(),
            "day" => day.day().to_string(),
            other => {
                return Err(wrong(format!("has the unknown place {{{other}}}")).hint(format!("known are {PLACES}")));
            }
        });
        rest = behind;
    }
    name.push_str(rest);
    let bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | '}');
    if name.is_empty() || name.starts_with('.') || name.contains(bad) {
        return Err(wrong("is no file name".to_owned()).hint("--notes names the folder, --name only the file in it"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_make_names() {
        let record: JobRecord = serde_json::from_value(serde_json::json!({
            "schema": expctl_record::TRIAL_SCHEMA_VERSION, "job": 12, "backend": "local", "config": "086", "study": "006-kuzmin-tmi",
            "config_path": "c.toml", "overrides": [], "submitted": 1_762_300_800, "commit": null,
            "expctl_version": "0.1.0", "baseline": null, "trials": []
        }))
        .unwrap();
        let name = |pattern: &str| file_name(pattern, &record);
        assert_eq!(name(PATTERN).unwrap(), "086_12");
        let dendron = "experiments.{study}.scripts.{config}.{year}.{month}.{day}.results.md";
        assert_eq!(name(dendron).unwrap(), "experiments.006-kuzmin-tmi.scripts.086.2025.11.5.results");
        for (pattern, what) in [
            ("{conf}", "unknown place {conf}"),
            ("{config", "without `}`"),
            ("a/{job}", "no file name"),
            ("", "no file name"),
            (".{job}", "no file name"),
        ] {
            let failure = name(pattern).unwrap_err();
            assert!(failure.exit == Exit::Usage && failure.message.contains(what), "{}", failure.message);
        }
    }
}
