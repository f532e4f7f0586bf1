use jiff::tz::TimeZone;

/// A pattern that makes no file name.
#[derive(Debug, thiserror::Error)]
pub enum NoteNameError {
    /// A `{` without `}`.
    #[error("the note name {pattern:?} has a `{{` without `}}`")]
    Unclosed {
        /// The pattern.
        pattern: String,
    },
    /// A placeholder that does not exist.
    #[error("the note name {pattern:?} has the unknown place {{{placeholder}}}")]
    UnknownPlaceholder {
        /// The pattern.
        pattern: String,
        /// The placeholder, without braces.
        placeholder: String,
    },
    /// The name is empty, begins with a dot, or has a character that no file name has.
    #[error("the note name {pattern:?} is no file name")]
    NoFileName {
        /// The pattern.
        pattern: String,
    },
    /// The time of the job is out of range.
    #[error("{reason}")]
    Time {
        /// The reason.
        reason: String,
    },
}

/// The values that a pattern of file names may use.
#[derive(Clone, Copy, Debug)]
pub struct NoteName<'a> {
    /// Name of the study.
    pub study: &'a str,
    /// Name of the config.
    pub config: &'a str,
    /// Number of the job.
    pub job: u64,
    /// Time of submission, seconds since the epoch; its day in UTC is in the name.
    pub submitted: i64,
}

impl NoteName<'_> {
    /// The default pattern.
    pub const DEFAULT: &'static str = "{config}_{job}";

    /// The placeholders of a pattern with what each stands for.
    pub const PLACEHOLDERS: &'static str =
        "{study}, {config}, {job}, {date} (2025.11.04), {year}, {month}, {day} (2025, 11, 4)";

    /// The file name of a note, without `.md`, by a pattern such as
    /// `experiments.{study}.scripts.{config}.{year}.{month}.{day}.results`.
    ///
    /// # Errors
    /// A pattern that makes no file name.
    pub fn fill(&self, pattern: &str) -> Result<String, NoteNameError> {
        let day = jiff::Timestamp::from_second(self.submitted)
            .map_err(|e| NoteNameError::Time { reason: e.to_string() })?
            .to_zoned(TimeZone::UTC);
        let mut name = String::new();
        let mut rest = pattern.strip_suffix(".md").unwrap_or(pattern);
        while let Some((before, after)) = rest.split_once('{') {
            let (placeholder, behind) =
                after.split_once('}').ok_or_else(|| NoteNameError::Unclosed { pattern: pattern.to_owned() })?;
            name.push_str(before);
            name.push_str(&match placeholder {
                "study" => self.study.to_owned(),
                "config" => self.config.to_owned(),
                "job" => self.job.to_string(),
                "date" => day.strftime("%Y.%m.%d").to_string(),
                "year" => day.year().to_string(),
                "month" => day.month().to_string(),
                "day" => day.day().to_string(),
                other => {
                    return Err(NoteNameError::UnknownPlaceholder {
                        pattern: pattern.to_owned(),
                        placeholder: other.to_owned(),
                    });
                }
            });
            rest = behind;
        }
        name.push_str(rest);
        let bad = |c: char| c.is_control() || matches!(c, '/' | '\\' | '}');
        if name.is_empty() || name.starts_with('.') || name.contains(bad) {
            return Err(NoteNameError::NoFileName { pattern: pattern.to_owned() });
        }
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_make_names() {
        let of = NoteName { study: "006-kuzmin-tmi", config: "086", job: 12, submitted: 1_762_300_800 };
        assert_eq!(of.fill(NoteName::DEFAULT).unwrap(), "086_12");
        let dendron = "experiments.{study}.scripts.{config}.{year}.{month}.{day}.results.md";
        assert_eq!(of.fill(dendron).unwrap(), "experiments.006-kuzmin-tmi.scripts.086.2025.11.5.results");
        for (pattern, what) in [
            ("{conf}", "unknown place {conf}"),
            ("{config", "without `}`"),
            ("a/{job}", "no file name"),
            ("", "no file name"),
            (".{job}", "no file name"),
        ] {
            let error = of.fill(pattern).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
