//! The answer of a job: the fastest variant against each baseline, or why there is none.

use std::collections::{BTreeMap, BTreeSet};

use expctl_settings::Mode;
use expctl_stats::{MIN_RUNS_FOR_VERDICT, MIN_SECONDS_FOR_VERDICT, Verdict};
use expctl_text::format;

use super::{ResultLine, Results};
use crate::report::breakdown::ISOLATION_MODES;
use crate::report::differences::confounds;
use crate::report::variant_row::VariantRow;

/// What the rows of a baseline say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BaselineAnswer {
    /// The row of this index is the fastest of those shown to be faster.
    Fastest(usize),
    /// All rows do the same kind of work and are shown to be slower.
    Baseline,
    /// No row is shown to be faster, though at least one was tested.
    NoneFaster,
    /// No row was tested, for this reason.
    NoVerdict(Verdict),
}

impl ResultLine<'_> {
    /// `ids, 4.00× lazy (95 % 3.80–4.21, 3 runs each, derived)`.
    fn against(&self, base: &str) -> String {
        let line = &self.line;
        let interval = line.ratio_samples_per_s.as_ref().and_then(format::ratio_interval);
        let interval = interval.map(|ends| format!("95 % {ends}, ")).unwrap_or_default();
        let counted = line.row.counted();
        let base_counted = line.base.as_ref().map_or(counted, |base| base.counted());
        let runs = match line.runs {
            Some((n, _)) if line.paired => format!("{n} pairs of runs, "),
            Some((n, of_base)) if counted != base_counted => {
                format!("{} and {}, ", format::count(n as u64, counted), format::count(of_base as u64, base_counted))
            }
            Some((n, of_base)) if n == of_base => format!("{} each, ", format::count(n as u64, counted)),
            Some((n, of_base)) => format!("{n} and {of_base} {counted}s, "),
            None => String::new(),
        };
        let apart = if line.across() { " †, not like for like" } else { "" };
        let (label, ratio) = (&line.row.label, format::ratio(self.ratio()));
        format!("{label}, {ratio} {base} ({interval}{runs}derived){apart}")
    }
}

impl<'a> Results<'a> {
    /// The answer of the job, for each baseline the fastest variant of those shown to be faster, or why there is none; baselines with the same
    /// reason share a sentence. Empty without ratios.
    pub fn answers(&self) -> Vec<String> {
        let mut answers: Vec<(BaselineAnswer, Vec<&str>)> = Vec::new();
        for (base, rows) in self.bases() {
            let answer = self.answer(&rows);
            match answers.iter_mut().find(|(other, _)| *other == answer) {
                Some((_, bases)) => bases.push(base),
                None => answers.push((answer, vec![base])),
            }
        }
        answers.into_iter().map(|(answer, bases)| self.sentence(answer, &bases)).collect()
    }

    /// What the rows of one baseline, given by their indices, say.
    fn answer(&self, rows: &[usize]) -> BaselineAnswer {
        let of_base = || rows.iter().map(move |index| (*index, &self.0[*index]));
        let faster = of_base().filter(|(_, e)| e.line.verdict == Some(Verdict::Faster));
        if let Some((fastest, _)) = faster.max_by(|a, b| a.1.ratio().total_cmp(&b.1.ratio())) {
            return BaselineAnswer::Fastest(fastest);
        }
        // What does other work is no proof of that.
        if of_base().all(|(_, e)| e.line.verdict == Some(Verdict::Slower) && !e.line.across()) {
            return BaselineAnswer::Baseline;
        }
        let verdicts: Vec<Verdict> = of_base().filter_map(|(_, e)| e.line.verdict).collect();
        let is_open =
            |verdict: &Verdict| matches!(verdict, Verdict::TooFewRuns | Verdict::TooShort | Verdict::NoSpread);
        match verdicts.iter().copied().min_by_key(|verdict| *verdict != Verdict::TooFewRuns) {
            Some(first) if verdicts.iter().all(is_open) => BaselineAnswer::NoVerdict(first),
            _ => BaselineAnswer::NoneFaster,
        }
    }

    /// An answer that holds for these baselines. Without a fastest variant it has the largest ratio to one of them, which proves nothing.
    fn sentence(&self, answer: BaselineAnswer, bases: &[&str]) -> String {
        let names = self.base_words(bases);
        let best = match answer {
            BaselineAnswer::Fastest(index) => return format!("Fastest: {}", self.0[index].against(&names)),
            _ => self.largest_ratio(bases),
        };
        let lead = match answer {
            BaselineAnswer::Baseline => format!("Fastest: {names} (the baseline)"),
            BaselineAnswer::NoVerdict(Verdict::TooFewRuns) => {
                format!("No verdict against {names}: too few runs ({MIN_RUNS_FOR_VERDICT} needed on both sides)")
            }
            BaselineAnswer::NoVerdict(Verdict::TooShort) => {
                let needed = format::seconds(MIN_SECONDS_FOR_VERDICT);
                format!("No verdict against {names}: measured too briefly (less than {needed} per run)")
            }
            BaselineAnswer::NoVerdict(_) => {
                format!("No verdict against {names}: no run differs from another, so no test is possible")
            }
            _ => format!("No variant is shown to be faster than {names}"),
        };
        let next = if answer == BaselineAnswer::Baseline { "next" } else { "largest ratio" };
        best.map_or(lead.clone(), |best| format!("{lead}; {next}: {best}"))
    }

    /// The row with the largest ratio to one of these baselines, with that ratio.
    fn largest_ratio(&self, bases: &[&str]) -> Option<String> {
        let bases: BTreeSet<&str> = bases.iter().copied().collect();
        let base = |entry: &ResultLine<'a>| entry.base.clone().filter(|base| bases.contains(base.as_str()));
        let rows = self.0.iter().filter_map(|entry| Some((entry, base(entry)?)));
        let (entry, base) = rows.filter(|(e, _)| e.ratio() > 0.0).max_by(|a, b| a.0.ratio().total_cmp(&b.0.ratio()))?;
        Some(entry.against(&base))
    }

    /// `lazy`; of several points of one variant `lazy at each of its 4 points`.
    fn base_words(&self, bases: &[&str]) -> String {
        let by_label: BTreeMap<&str, &VariantRow> =
            self.0.iter().map(|e| (e.line.row.label.as_str(), &e.line.row)).collect();
        let row = |label: &str| by_label.get(label).copied();
        if let [first, _, ..] = bases
            && let Some(variant) = row(first).map(|row| row.variant.as_str())
            && bases.iter().all(|base| row(base).is_some_and(|row| row.variant == variant))
        {
            let points = self.0.iter().filter(|e| e.line.row.variant == variant).count();
            return match bases.len() {
                n if n == points => format!("{variant} at each of its {n} points"),
                n => format!("{variant} at {n} of its {points} points"),
            };
        }
        bases.join(" and ")
    }

    /// For each of several variants with several points of one kind of work the point with the highest rate, one sentence each. Without
    /// tests: the points of a variant are not compared with each other.
    pub fn best_points(&self) -> Vec<String> {
        let mut variants: Vec<&str> = self.0.iter().map(|e| e.line.row.variant.as_str()).collect();
        let mut known: BTreeSet<&str> = BTreeSet::new();
        variants.retain(|variant| known.insert(*variant));
        if variants.len() < 2 {
            // Its first point is the baseline, and the answer is on that.
            return Vec::new();
        }
        variants.iter().filter_map(|variant| self.best_point(variant)).collect()
    }

    fn best_point(&self, variant: &str) -> Option<String> {
        let rows = || self.0.iter().map(|e| &e.line.row).filter(|row| row.variant == variant && !row.profiler);
        let first = rows().next().filter(|first| !first.point.is_empty())?;
        // Modes, for example, are not alternatives to each other.
        if rows().any(|row| !confounds(row, first).0.is_empty()) {
            return None;
        }
        let rated: Vec<(&VariantRow, f64)> =
            rows().filter_map(|row| Some((row, row.median_samples_per_s()?))).collect();
        let (_, of_first) = rated.iter().find(|(row, _)| row.label == first.label)?;
        let (best, rate) = rated.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|_| rated.len() > 1)?;
        let point: Vec<String> = best.point.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let against = if best.label == first.label {
            "its first point".to_owned()
        } else {
            format!("{} its first point", format::ratio(rate / of_first))
        };
        Some(format!("{variant}: best at {} ({against}; medians of samples/s, no test)", point.join(", ")))
    }

    /// The baselines, the rows that the answers name, and those that wait for processors, which says more of the machine than of them.
    pub fn answering_rows(&self) -> Vec<&VariantRow> {
        let named = self.named();
        let answers = |(i, e): &(usize, &ResultLine<'a>)| {
            let is_crowded = e.line.row.bottleneck.is_some_and(|b| b.crowded_other().is_some());
            e.line.baseline || is_crowded || named.contains(i)
        };
        self.0.iter().enumerate().filter(answers).map(|(_, e)| &e.line.row).collect()
    }

    /// The row to start from, and its baseline if that is another one: of the rows that answers name as fastest the one with the highest
    /// rate, without any the row with the highest rate. Steps that do less than others are no alternative to them, so only rows whose steps
    /// do most count.
    pub fn lead(&self) -> Option<(&VariantRow, Option<&VariantRow>)> {
        let work = |entry: &ResultLine<'a>| step_work(entry.runs[0].trial.settings.train.mode);
        let rate = |entry: &ResultLine<'a>| entry.line.row.median_samples_per_s().filter(|_| !entry.line.row.profiler);
        let most = self.0.iter().filter(|entry| rate(entry).is_some()).map(work).max()?;
        let counts = |entry: &&ResultLine<'a>| work(entry) == most && rate(entry).is_some();
        let fastest = |entries: Vec<&'_ ResultLine<'a>>| -> Option<usize> {
            let best = entries.into_iter().filter(counts).max_by(|a, b| {
                let rates = [a, b].map(|entry| rate(entry).unwrap_or(0.0));
                rates[0].total_cmp(&rates[1])
            })?;
            self.0.iter().position(|entry| std::ptr::eq(entry, best))
        };
        let answered = |(base, rows): (&str, Vec<usize>)| match self.answer(&rows) {
            BaselineAnswer::Fastest(index) => Some(index),
            BaselineAnswer::Baseline => self.0.iter().position(|entry| entry.line.row.label == base),
            _ => None,
        };
        let named = self.bases().into_iter().filter_map(answered).map(|index| &self.0[index]).collect();
        let lead = &self.0[fastest(named).or_else(|| fastest(self.0.iter().collect()))?];
        let base = lead.base.as_ref().and_then(|base| self.rows().into_iter().find(|row| row.label == *base));
        Some((&lead.line.row, base))
    }

    /// Labels of the rows that verdicts refer to, each once, with the indices of the rows that refer to it. A job may have thousands: one for
    /// each point of its sweep.
    fn bases(&self) -> Vec<(&str, Vec<usize>)> {
        let mut bases: Vec<(&str, Vec<usize>)> = Vec::new();
        let mut index_by_base: BTreeMap<&str, usize> = BTreeMap::new();
        let judged = self.0.iter().filter(|e| e.line.verdict.is_some());
        for base in judged.filter_map(|e| e.base.as_deref()) {
            index_by_base.entry(base).or_insert_with(|| {
                bases.push((base, Vec::new()));
                bases.len() - 1
            });
        }
        for (row, base) in self.0.iter().enumerate().filter_map(|(row, e)| Some((row, e.base.as_deref()?))) {
            if let Some(index) = index_by_base.get(base) {
                bases[*index].1.push(row);
            }
        }
        bases
    }

    /// Indices of the rows that the answers name as fastest.
    fn named(&self) -> Vec<usize> {
        let fastest = |(_, rows): (&str, Vec<usize>)| match self.answer(&rows) {
            BaselineAnswer::Fastest(index) => Some(index),
            _ => None,
        };
        self.bases().into_iter().filter_map(fastest).collect()
    }

    /// The findings on all rows but those that the answers name.
    pub fn other_findings(&self) -> Vec<String> {
        let named = self.named();
        let is_named = |entry: &ResultLine<'a>| named.iter().any(|index| std::ptr::eq(&self.0[*index], entry));
        let few = BaselineAnswer::NoVerdict(Verdict::TooFewRuns);
        let answers_say_few = self.bases().iter().all(|(_, rows)| self.answer(rows) == few);
        self.findings_of(|entry| !is_named(entry), !answers_say_few)
    }
}

/// How much a step of a mode does, beside others.
fn step_work(mode: Mode) -> usize {
    ISOLATION_MODES.iter().position(|(other, _)| *other == mode).unwrap_or(0)
}
