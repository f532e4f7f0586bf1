use super::Line;
use super::confounds::words;
use crate::report::format;
use crate::stats::{MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, POWER, Verdict};

/// What is to be said of a line's ratio in samples/s, in words.
#[derive(Clone, Copy, Debug)]
pub struct RatioWords<'a> {
    /// The line.
    pub line: &'a Line,
    /// What the row is called.
    pub name: &'a str,
    /// What the row that its ratio refers to is called.
    pub base: &'a str,
    /// How many ratios of the table were tested together.
    pub tested: usize,
}

impl RatioWords<'_> {
    /// One sentence: ratio, verdict and what it rests on; with what else differs, where `confounds` says so. None without a ratio.
    pub fn sentence(&self, confounds: bool) -> Option<String> {
        let line = self.line;
        let (ratio, verdict, (n, base_n)) = (line.ratio_samples_per_s?, line.verdict?, line.runs?);
        let other_ways = [line.percent.and_then(percent), format::slower(ratio.value)];
        let other_ways: Vec<String> = other_ways.into_iter().flatten().collect();
        let shown = match other_ways.as_slice() {
            [] => format::ratio_with_interval(&ratio),
            _ => format!("{} ({})", format::ratio_with_interval(&ratio), other_ways.join(", ")),
        };
        let runs = if line.paired { format!("{n} pairs, by repeat") } else { format!("n = {n} and {base_n}") };
        let (name, base) = (self.name, self.base);
        let mut said = vec![match verdict {
            Verdict::TooFewRuns => format!("{name}: {shown} of {base} in samples/s ({runs}): no verdict"),
            Verdict::TooShort => {
                let why = line.too_short().map(too_short).unwrap_or_default();
                format!("{name}: {shown} of {base} in samples/s ({runs}): no verdict, {why}")
            }
            Verdict::NoSpread => format!(
                "{name}: {shown} of {base} in samples/s ({runs}): no test is possible, because no run differs from another (rounded or \
                 imported figures?)"
            ),
            _ => format!("{name}: {} {base}, {shown} in samples/s ({runs})", verdict.against()),
        }];
        said.extend(self.tests());
        if let Some(detectable) = line.detectable {
            said.push(format!(
                "a ratio of {} or more, or of {} or less, would have been shown in {:.0} % of such comparisons",
                format::ratio(detectable),
                format::ratio(1.0 / detectable),
                POWER * 100.0
            ));
        }
        if confounds {
            said.extend(self.differing());
        }
        Some(said.join("; "))
    }

    /// p values, and what they are corrected for.
    fn tests(&self) -> Option<String> {
        let line = self.line;
        let p = line.ratio_samples_per_s?.p.filter(|_| line.p_holm.is_some())?;
        let mut said = vec![format!("{} ({})", p_value(p), if line.paired { "paired t" } else { "Welch" })];
        if let Some(holm) = line.p_holm.filter(|_| self.tested > 1) {
            said.push(format!("{} among the {} ratios of the table (Holm)", p_value(holm), self.tested));
        }
        if let Some(test) = line.permutation {
            let least = if test.smallest > crate::stats::ALPHA {
                format!(", and {} is the least that so few runs can give", p_value(test.smallest))
            } else {
                String::new()
            };
            said.push(format!("{} by permutation{least}", p_value(test.p)));
        }
        let lone = if line.lone { "; alone it would have had a verdict, among so many ratios it has none" } else { "" };
        Some(format!("{}{lone}", said.join(", ")))
    }

    /// Across what the ratio goes, what else differs, and what is known of one side only.
    pub(super) fn differing(&self) -> Vec<String> {
        let line = self.line;
        let mut said = Vec::new();
        if line.across() {
            said.push(format!("† another class, so no effect of the method alone: {}", words(&line.crosses)));
        }
        if !line.confounds.is_empty() {
            let same = line.base.as_ref().is_some_and(|base| line.row.same_processor(base));
            let lead = if same { "they differ in" } else { "besides the method differ" };
            said.push(format!("{lead}: {}", words(&line.confounds)));
        }
        if !line.unknown.is_empty() {
            said.push(format!("known of one of the two only: {}", line.unknown.join(", ")));
        }
        said
    }
}

/// `measured for 3.6 ms per run, which is less than 1 s`.
pub(super) fn too_short(seconds: f64) -> String {
    let needed = format::seconds(MIN_SECONDS_FOR_VERDICT);
    format!("measured for {} per run, which is less than {needed}", format::seconds(seconds))
}

/// What a verdict needs.
pub(super) fn needed() -> String {
    format!("{MIN_RUNS_FOR_VERDICT} are needed on both sides")
}

/// `−43 %`; none where a reader takes the ratio in more easily.
pub(super) fn percent(percent: f64) -> Option<String> {
    (percent < 100.0 && percent.abs() >= 0.05).then(|| {
        let decimals = usize::from(percent.abs() < 9.95);
        let sign = if percent < 0.0 { "−" } else { "+" };
        format!("{sign}{} %", format::round(percent.abs(), decimals))
    })
}

fn p_value(p: f64) -> String {
    if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {}", format::figure(p)) }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn the_published_percentages() {
        let shown = [0.24 / 0.42, 0.22 / 0.42, 1.19, 1.004, 0.9951].map(|r| percent((r - 1.0) * 100.0).unwrap());
        assert_eq!(shown, ["−43 %", "−48 %", "+19 %", "+0.4 %", "−0.5 %"]);
        assert_eq!((percent((128.8 - 1.0) * 100.0), percent(0.0)), (None, None));
    }
}
