//! What came of a search.

use std::collections::BTreeMap;

use expctl_settings::Loader;
use expctl_stats::{Ratio, mean};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::race::{BASELINE, Elimination, GRID_REPEATS, Race, RaceEnd};

/// A point as the config and the command line name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchedPoint {
    /// The searched settings, by dotted key.
    pub point: BTreeMap<String, Json>,
    /// The same as arguments of `--set`.
    pub set: Vec<String>,
}

/// A point that could not run: a rule of the config refuses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefusedRow {
    /// The point.
    #[serde(flatten)]
    pub point: SearchedPoint,
    /// The rule.
    pub reason: String,
}

/// A point of the race.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultRow {
    /// The point.
    #[serde(flatten)]
    pub point: SearchedPoint,
    /// Whether it has the config's own settings.
    pub baseline: bool,
    /// Whether it is the chosen one.
    pub chosen: bool,
    /// Whether it was shown to be equal to the fastest, which then is one of several.
    pub equal: bool,
    /// Completed runs, one a round.
    pub runs: usize,
    /// Measured steps of these runs.
    pub steps: u64,
    /// Samples per second of all ranks, geometric mean over the runs. Class: measured.
    pub samples_per_s: Option<f64>,
    /// Steps per second, geometric mean over the runs. Class: measured.
    pub it_per_s: Option<f64>,
    /// Its rate over that of the chosen point, paired by round, with a 95 % interval; `None` of the chosen point, and without a common round.
    pub ratio: Option<Ratio>,
    /// Rounds in which both ran.
    pub pairs: usize,
    /// How it was eliminated; `None` if it was in it at the end.
    pub eliminated: Option<Elimination>,
}

/// The result of a search that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// Name of the config.
    pub config: String,
    /// The variant.
    pub variant: String,
    /// Class of the rates and ratios.
    #[serde(skip_deserializing, default = "measured")]
    pub class: &'static str,
    /// Why it ended.
    pub end: RaceEnd,
    /// Rate of the chosen point over that of the config's own settings, paired by round; `None` if these are chosen or could not be measured.
    pub gain: Option<Ratio>,
    /// Rounds in which both ran.
    pub gain_runs: usize,
    /// The settings of the chosen point that are not the config's own, as arguments of `--set`; empty if these are chosen.
    pub set: Vec<String>,
    /// All points, the chosen one first, then by their rates; those that were never measured last.
    pub rows: Vec<ResultRow>,
    /// Place in `rows` of the point that was next: in the race longest, then fastest.
    pub runner_up: Option<usize>,
    /// Points that could not run.
    pub refused: Vec<RefusedRow>,
    /// The jobs of its rounds.
    pub jobs: Vec<u64>,
    /// Wall time of its trials, s. Class: measured.
    pub trial_s: f64,
    /// Wall time of the whole grid with `GRID_REPEATS` repeats, s. Class: estimated.
    pub grid_s: f64,
    /// Repeats of that grid.
    pub grid_repeats: u32,
    /// The budget, s; `None` without one.
    pub budget_s: Option<f64>,
    /// Smallest gain that matters, percent.
    pub min_gain_percent: f64,
    /// Runs of full length of each point, at most.
    pub max_repeats: u32,
    /// Whether points have different batch sizes: the training is then another one.
    pub other_batch_sizes: bool,
}

/// The class of rates of runs.
fn measured() -> &'static str {
    "measured"
}

/// What a result says of its search, beside the race.
#[derive(Clone, Debug)]
pub struct SearchFacts {
    /// Name of the config.
    pub config: String,
    /// The variant.
    pub variant: String,
    /// The points, as the race numbers them.
    pub points: Vec<SearchedPoint>,
    /// Points that could not run.
    pub refused: Vec<RefusedRow>,
    /// The jobs of the rounds.
    pub jobs: Vec<u64>,
    /// The budget, s.
    pub budget_s: Option<f64>,
    /// Smallest gain that matters, percent.
    pub min_gain_percent: f64,
    /// Runs of full length of each point, at most.
    pub max_repeats: u32,
}

/// The key whose values make another training.
const BATCH_SIZE: &str = Loader::BATCH_SIZE.name();

impl SearchResult {
    /// The result of a race that is over; `None` if it chose no point.
    pub fn new(race: &Race, end: RaceEnd, facts: SearchFacts) -> Option<Self> {
        let choice = race.choice()?;
        let chosen = choice.point;
        let row = |(number, point): (usize, &SearchedPoint)| {
            let runs = race.measured(number);
            let geometric =
                |rates: Vec<f64>| mean(&rates.iter().map(|rate| rate.ln()).collect::<Vec<_>>()).map(f64::exp);
            let against = (number != chosen).then(|| race.ratio(number, chosen)).flatten();
            let row = ResultRow {
                point: point.clone(),
                baseline: number == BASELINE,
                chosen: number == chosen,
                equal: choice.equal.len() > 1 && choice.equal.contains(&number),
                runs: runs.len(),
                steps: runs.iter().map(|run| run.steps).sum(),
                samples_per_s: geometric(runs.iter().map(|run| run.samples_per_s).collect()),
                it_per_s: geometric(runs.iter().map(|run| run.it_per_s).collect()),
                ratio: against.map(|(ratio, _)| ratio),
                pairs: against.map_or(0, |(_, pairs)| pairs),
                eliminated: race.eliminated(number).cloned(),
            };
            (number, row)
        };
        let mut rows: Vec<(usize, ResultRow)> = facts.points.iter().enumerate().map(row).collect();
        // The chosen point has no ratio to itself; one that was never measured has none either.
        let speed = |row: &ResultRow| match row.ratio {
            _ if row.chosen => f64::INFINITY,
            Some(ratio) => ratio.value,
            None => 0.0,
        };
        rows.sort_by(|(_, a), (_, b)| speed(b).total_cmp(&speed(a)));
        let in_race_until = |row: &ResultRow| match &row.eliminated {
            None => u32::MAX,
            Some(
                Elimination::Slower { round, .. } | Elimination::Behind { round, .. } | Elimination::NoTime { round },
            ) => *round,
            Some(Elimination::Failed { .. }) => 0,
        };
        let others = rows.iter().enumerate().filter(|(_, (_, row))| !row.chosen && row.ratio.is_some());
        let runner_up = others
            .max_by(|(_, (_, a)), (_, (_, b))| {
                in_race_until(a).cmp(&in_race_until(b)).then(speed(a).total_cmp(&speed(b)))
            })
            .map(|(position, _)| position);
        let gain = (chosen != BASELINE).then(|| race.ratio(chosen, BASELINE)).flatten();
        let (baseline, best) = (facts.points.get(BASELINE)?, facts.points.get(chosen)?);
        let set = best.set.iter().filter(|argument| !baseline.set.contains(argument)).cloned().collect();
        let batch_size = baseline.point.get(BATCH_SIZE);
        let other_batch_sizes = facts.points.iter().any(|point| point.point.get(BATCH_SIZE) != batch_size);
        Some(Self {
            config: facts.config,
            variant: facts.variant,
            class: measured(),
            end,
            gain: gain.map(|(ratio, _)| ratio),
            gain_runs: gain.map_or(0, |(_, pairs)| pairs),
            set,
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            runner_up,
            refused: facts.refused,
            jobs: facts.jobs,
            trial_s: race.spent_s(),
            grid_s: race.grid_s().unwrap_or_default(),
            grid_repeats: GRID_REPEATS,
            budget_s: facts.budget_s,
            min_gain_percent: facts.min_gain_percent,
            max_repeats: facts.max_repeats,
            other_batch_sizes,
        })
    }

    /// The chosen point.
    pub fn chosen(&self) -> Option<&ResultRow> {
        self.rows.first()
    }
}

#[cfg(test)]
mod tests {
    use super::super::race::{Entrant, MeasuredRun, PointRun, RaceOptions, RaceRound};
    use super::*;
    use crate::report::compare::Format;

    /// Points with so many threads, of which the first has the config's own settings.
    fn facts(threads: &[u64]) -> SearchFacts {
        let point = |workers: &u64| SearchedPoint {
            point: BTreeMap::from([("loader.workers".to_owned(), (*workers).into())]),
            set: vec![format!("loader.workers={workers}")],
        };
        let refused = RefusedRow { point: point(&99), reason: "too many".to_owned() };
        SearchFacts {
            config: "small".to_owned(),
            variant: "rows".to_owned(),
            points: threads.iter().map(point).collect(),
            refused: vec![refused],
            jobs: vec![4, 5],
            budget_s: None,
            min_gain_percent: 3.0,
            max_repeats: 5,
        }
    }

    /// Runs of 20 steps of 10 samples at these rates; none is a failure.
    fn race(rounds: &[&[Option<f64>]]) -> Race {
        let entrant = |threads| Entrant { full_steps: 20, block_steps: 1, threads, buffered_samples: 10 };
        let entrants = (0..rounds[0].len() as u64).map(entrant).collect();
        let options = RaceOptions { budget_s: None, max_repeats: 5, min_gain: 0.03 };
        let mut race = Race::new(entrants, options).unwrap();
        for rates in rounds {
            let run = |(point, rate): (usize, &Option<f64>)| {
                let run = match rate {
                    Some(rate) => {
                        let it_per_s = rate / 10.0;
                        let run = MeasuredRun { samples_per_s: *rate, it_per_s, steps: 20, seconds: 20.0 / it_per_s };
                        PointRun::Measured(run)
                    }
                    None => PointRun::Failed { reason: "out of memory".to_owned(), seconds: 1.0 },
                };
                (point, run)
            };
            race.record(RaceRound { runs: rates.iter().enumerate().map(run).collect() }).unwrap();
        }
        race
    }

    #[test]
    fn the_answer_is_the_first_line_and_what_to_paste_the_last() {
        let rounds: [&[Option<f64>]; 2] =
            [&[Some(100.0), Some(200.0), Some(190.0), None], &[Some(102.0), Some(202.0), Some(196.0)]];
        let race = race(&rounds);
        let result = SearchResult::new(&race, RaceEnd::Budget, facts(&[0, 1, 2, 4])).unwrap();
        let order: Vec<&str> = result.rows.iter().map(|row| row.point.set[0].as_str()).collect();
        assert_eq!(order, ["loader.workers=1", "loader.workers=2", "loader.workers=0", "loader.workers=4"]);
        assert_eq!((result.runner_up, result.set.as_slice()), (Some(1), &["loader.workers=1".to_owned()][..]));
        let gain = result.gain.unwrap();
        assert!((gain.value - (200.0_f64 * 202.0 / (100.0 * 102.0)).sqrt()).abs() < 1e-12 && result.gain_runs == 2);
        // Two rounds of 20 steps: 2 + 1 + 20/19 s and 1 s for the failure, then 200/102 + 200/202 + 200/196.
        let spent = 2.0 + 1.0 + 20.0 / 19.0 + 1.0 + 200.0 / 102.0 + 200.0 / 202.0 + 200.0 / 196.0;
        assert!((result.trial_s - spent).abs() < 1e-9, "{}", result.trial_s);
        let text = result.render(Format::Markdown, "expctl submit conf/small.toml").unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("**`loader.workers=1` ran fastest: 201 samples/s, 1.99× [")
                && lines[0].ends_with("] the rate of the config's own settings (n = 2, measured).**"),
            "{text}"
        );
        assert!(lines[2].starts_with("Runner-up: `loader.workers=2`, 0.96× ["), "{text}");
        assert!(text.contains("failed in round 1: out of memory") && text.contains("`loader.workers=99`: too many"));
        assert_eq!(*lines.last().unwrap(), "    expctl submit conf/small.toml --set loader.workers=1");
        assert!(!text.contains("batch size"));
    }

    #[test]
    fn the_baseline_may_be_fastest() {
        let race = race(&[&[Some(200.0), Some(100.0)]]);
        let result = SearchResult::new(&race, RaceEnd::Budget, facts(&[2, 0])).unwrap();
        assert_eq!((result.gain, result.set.len()), (None, 0));
        let text = result.render(Format::Markdown, "expctl submit small.toml").unwrap();
        assert!(
            text.starts_with("**The config's own settings (`loader.workers=2`) ran fastest: 200 samples/s"),
            "{text}"
        );
        assert!(text.ends_with("Nothing has to be set."), "{text}");
        assert_eq!(result.rows[1].pairs, 1);
        let csv = result.render(Format::Csv, "expctl submit small.toml").unwrap();
        assert_eq!(csv.lines().count(), 3, "{csv}");
    }

    #[test]
    fn a_result_of_another_machine_is_the_one_that_it_sent() {
        let rounds: [&[Option<f64>]; 2] =
            [&[Some(100.0), Some(200.0), Some(190.0), None], &[Some(102.1), Some(202.3), Some(196.7)]];
        let result = SearchResult::new(&race(&rounds), RaceEnd::Repeats, facts(&[0, 1, 2, 4])).unwrap();
        let sent = serde_json::to_string(&result).unwrap();
        assert_eq!(serde_json::from_str::<SearchResult>(&sent).unwrap(), result);
    }

    #[test]
    fn another_batch_size_is_another_training() {
        let mut facts = facts(&[0, 1]);
        for (point, size) in facts.points.iter_mut().zip([8, 16]) {
            point.point.insert(BATCH_SIZE.to_owned(), size.into());
        }
        let race = race(&[&[Some(200.0), Some(100.0)]]);
        let result = SearchResult::new(&race, RaceEnd::Budget, facts).unwrap();
        assert!(result.render(Format::Markdown, "").unwrap().contains("another batch size is another training"));
    }
}
