//! The race between the points of a search: which of them run next and for how many steps, which are out, and when it is over.
//!
//! It reads and writes nothing: rounds of measurements go in, and what comes out follows from them alone. A race that was interrupted is the
//! same race once its rounds are recorded again.
//!
//! A round runs each point that is still in the race once, and the config's own settings. The first runs a quarter of the steps, the second
//! half of them, all later ones the full number. What leaves the race, in this order:
//!
//! 1. a point that failed, or that the remaining time has no room for;
//! 2. a point that is slower than the fastest so far: the interval of the ratio of its rates to that one's, paired by round, lies below 1, and
//!    not within what matters. The fastest point is lost in this way in at most 5 % of races: the level of an interval is 5 % (one-sided),
//!    divided by the number of points that one could lose to and of rounds in which it could (Bonferroni);
//! 3. after each round, all but the fastest third of those that ran, at least two. This may lose the fastest point to chance, and is what
//!    makes a search short (successive halving; Jamieson & Talwalkar 2016, *Non-stochastic best arm identification and hyperparameter
//!    optimization*).

use expctl_stats::{ALPHA, Interval, MIN_RUNS_FOR_VERDICT, Ratio, paired_ratio, paired_ratio_at};
use serde::{Deserialize, Serialize};

/// Repeats of the whole grid that a search is compared with.
pub const GRID_REPEATS: u32 = 3;
/// Share of the time of these repeats that a race may take, as its rounds estimate it: estimates that are 10 % off keep it below a third.
const MAX_SHARE: f64 = 0.3;
/// A race of fewer points has no such limit: it would not be enough for as many rounds as intervals need.
const SMALL_GRID: usize = 6;
/// Shares of the steps in the first rounds.
const FIRST_SHARES: [f64; 2] = [0.25, 0.5];
/// One in so many points goes on after a round.
const ONE_IN: usize = 3;
/// Points that go on at least.
const FINALISTS: usize = 2;
/// Steps of a run, unless the full number is smaller: fewer tell little of a rate.
const MIN_STEPS: u64 = 20;

/// A point of the search, as far as the race has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entrant {
    /// Measured steps of a run of full length.
    pub full_steps: u64,
    /// The number of steps is a multiple of this, where blocks of rows are read together; else 1.
    pub block_steps: u64,
    /// Loader threads of all ranks.
    pub threads: u64,
    /// Samples in memory: batches that are ready, and those that threads assemble.
    pub buffered_samples: u64,
}

impl Entrant {
    /// Measured steps of a run of this share of the full length.
    fn steps(&self, share: f64) -> u64 {
        let steps = ((self.full_steps as f64 * share).ceil() as u64).max(MIN_STEPS);
        steps.div_ceil(self.block_steps).saturating_mul(self.block_steps).min(self.full_steps)
    }
}

/// What decides when a race ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaceOptions {
    /// Seconds of trials. `None`: only the share of the grid is a limit.
    pub budget_s: Option<f64>,
    /// Rounds of full length, at most.
    pub max_repeats: u32,
    /// Differences up to this share of a rate do not matter.
    pub min_gain: f64,
}

/// A run of a point that completed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRun {
    /// Samples per second of all ranks.
    pub samples_per_s: f64,
    /// Steps per second.
    pub it_per_s: f64,
    /// Measured steps.
    pub steps: u64,
    /// Wall time of the trial, s.
    pub seconds: f64,
}

/// What came of a point in a round.
#[derive(Clone, Debug, PartialEq)]
pub enum PointRun {
    /// It completed.
    Measured(MeasuredRun),
    /// It failed by itself, and would again.
    Failed {
        /// Why, one line.
        reason: String,
        /// Wall time of the trial, s.
        seconds: f64,
    },
}

impl PointRun {
    /// Why it failed; `None` if it completed.
    pub fn failure(&self) -> Option<&str> {
        match self {
            Self::Measured(_) => None,
            Self::Failed { reason, .. } => Some(reason),
        }
    }

    fn seconds(&self) -> f64 {
        match self {
            Self::Measured(run) => run.seconds,
            Self::Failed { seconds, .. } => *seconds,
        }
    }
}

/// A round that has ended: the points that ran, each with what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RaceRound {
    /// By the number of the point.
    pub runs: Vec<(usize, PointRun)>,
}

impl RaceRound {
    fn run_of(&self, point: usize) -> Option<&PointRun> {
        self.runs.iter().find(|(of, _)| *of == point).map(|(_, run)| run)
    }
}

/// A round that is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundPlan {
    /// Its number, from 1.
    pub round: u32,
    /// Points with their measured steps, in the order in which they run.
    pub runs: Vec<(usize, u64)>,
}

/// How a point was eliminated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Elimination {
    /// Its run failed.
    Failed {
        /// In this round.
        round: u32,
        /// Why.
        reason: String,
    },
    /// It is slower than the fastest point.
    Slower {
        /// After this round.
        round: u32,
        /// Its rate over that of the fastest, with the interval that decided.
        ratio: Ratio,
    },
    /// It was not among the fastest.
    Behind {
        /// After this round.
        round: u32,
        /// Its position by rate, from 1.
        position: usize,
        /// Points that went on.
        went_on: usize,
    },
    /// The remaining time had no room for it.
    NoTime {
        /// The round that it did not run in.
        round: u32,
    },
}

/// Why a race is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RaceEnd {
    /// One point remains.
    OneRemains,
    /// No remaining point can be faster than the fastest by what matters.
    Equal,
    /// Every remaining point has run as often as allowed.
    Repeats,
    /// The budget has no room for another round.
    Budget,
    /// The share of the grid's time has no room for another round.
    Share,
    /// No point could be measured.
    NothingMeasured,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum NextMove {
    /// Run this.
    Run(RoundPlan),
    /// Nothing.
    End(RaceEnd),
}

/// The point that a race chooses.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The point.
    pub point: usize,
    /// Points that were shown to be equal to the fastest, itself among them; one if none was.
    pub equal: Vec<usize>,
}

/// Why there is no such race, or a round does not belong to it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RaceError {
    /// One point has nobody to race.
    #[error("a race needs at least two points, not {points}")]
    FewPoints {
        /// Points that were given.
        points: usize,
    },
    /// A point without steps.
    #[error("point {point} has no steps, or blocks of none")]
    NoSteps {
        /// The point.
        point: usize,
    },
    /// An option that is not a positive number.
    #[error("a race needs a budget, repeats and a smallest gain above 0")]
    BadOption,
    /// A round in which nothing ran.
    #[error("nothing ran in round {round}")]
    EmptyRound {
        /// Its number.
        round: u32,
    },
    /// A point that the race does not have, or that ran twice in a round.
    #[error("round {round} has point {point}, which is none of the race, or has it twice")]
    BadPoint {
        /// The round.
        round: u32,
        /// The point.
        point: usize,
    },
    /// A rate or a time that is no positive number.
    #[error("in round {round} the rate or time of point {point} is no positive number")]
    BadFigure {
        /// The round.
        round: u32,
        /// The point.
        point: usize,
    },
}

/// A race. Point 0 is the config's own settings: it runs in each round, also when it was eliminated, so that the gain over it is known.
#[derive(Clone, Debug)]
pub struct Race {
    entrants: Vec<Entrant>,
    options: RaceOptions,
    rounds: Vec<RaceRound>,
    eliminated: Vec<Option<Elimination>>,
}

/// The point of the config's own settings.
pub const BASELINE: usize = 0;

impl Race {
    /// A race that has not begun.
    ///
    /// # Errors
    /// Fewer than two points, a point without steps, or an option that is not positive.
    pub fn new(entrants: Vec<Entrant>, options: RaceOptions) -> Result<Self, RaceError> {
        let is_positive = |value: f64| value.is_finite() && value > 0.0;
        if entrants.len() < 2 {
            return Err(RaceError::FewPoints { points: entrants.len() });
        }
        if let Some(point) = entrants.iter().position(|entrant| entrant.full_steps == 0 || entrant.block_steps == 0) {
            return Err(RaceError::NoSteps { point });
        }
        if !is_positive(options.min_gain) || options.max_repeats == 0 || !options.budget_s.is_none_or(is_positive) {
            return Err(RaceError::BadOption);
        }
        let eliminated = vec![None; entrants.len()];
        Ok(Self { entrants, options, rounds: Vec::new(), eliminated })
    }

    /// Take in what came of the next round. Points in the race that did not run in it leave.
    ///
    /// # Errors
    /// A round without runs, with a point that is none or twice there, or with a figure that is no positive number.
    pub fn record(&mut self, round: RaceRound) -> Result<(), RaceError> {
        let number = self.rounds.len() as u32 + 1;
        self.check(number, &round)?;
        for point in self.racing() {
            self.eliminated[point] = match round.run_of(point) {
                Some(PointRun::Measured(_)) => None,
                Some(PointRun::Failed { reason, .. }) => {
                    Some(Elimination::Failed { round: number, reason: reason.clone() })
                }
                None => Some(Elimination::NoTime { round: number }),
            };
        }
        self.rounds.push(round);
        self.leave_slower(number);
        self.leave_behind(number);
        Ok(())
    }

    fn check(&self, number: u32, round: &RaceRound) -> Result<(), RaceError> {
        if round.runs.is_empty() {
            return Err(RaceError::EmptyRound { round: number });
        }
        for (i, (point, run)) in round.runs.iter().enumerate() {
            if *point >= self.entrants.len() || round.runs[..i].iter().any(|(earlier, _)| earlier == point) {
                return Err(RaceError::BadPoint { round: number, point: *point });
            }
            let is_sound = match run {
                PointRun::Measured(run) => {
                    let figures = [run.samples_per_s, run.it_per_s, run.seconds];
                    figures.iter().all(|figure| figure.is_finite() && *figure > 0.0) && run.steps > 0
                }
                PointRun::Failed { seconds, .. } => seconds.is_finite() && *seconds >= 0.0,
            };
            if !is_sound {
                return Err(RaceError::BadFigure { round: number, point: *point });
            }
        }
        Ok(())
    }

    /// Points that are still in the race, in order of their numbers. Each has run in every round.
    pub fn racing(&self) -> Vec<usize> {
        (0..self.entrants.len()).filter(|point| self.eliminated[*point].is_none()).collect()
    }

    /// The same, the fastest first.
    fn racing_by_rate(&self) -> Vec<usize> {
        let mut racing: Vec<(f64, usize)> =
            self.racing().into_iter().map(|point| (self.log_rate(point), point)).collect();
        racing.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        racing.into_iter().map(|(_, point)| point).collect()
    }

    /// Mean logarithm of the rates of a point; 0 of a point that was never measured. Points in the race ran in the same rounds.
    fn log_rate(&self, point: usize) -> f64 {
        let logs: Vec<f64> = self.measured(point).iter().map(|run| run.samples_per_s.ln()).collect();
        expctl_stats::mean(&logs).unwrap_or(0.0)
    }

    /// A point that is slower than the fastest leaves.
    fn leave_slower(&mut self, round: u32) {
        let racing = self.racing_by_rate();
        let Some((fastest, others)) = racing.split_first() else { return };
        for point in others {
            let Some(ratio) = self.tested_ratio(*point, *fastest, self.slower_level()) else { continue };
            let is_slower = |interval: Interval| interval.high < 1.0 && interval.low < self.equal_from();
            if ratio.interval.is_some_and(is_slower) {
                self.eliminated[*point] = Some(Elimination::Slower { round, ratio });
            }
        }
    }

    /// All but the fastest third leave.
    fn leave_behind(&mut self, round: u32) {
        let racing = self.racing_by_rate();
        let ran = self.rounds.last().map_or(0, |last| last.runs.len()).min(racing.len());
        let went_on = ran.div_ceil(ONE_IN).max(FINALISTS);
        for (index, point) in racing.iter().enumerate().skip(went_on) {
            self.eliminated[*point] = Some(Elimination::Behind { round, position: index + 1, went_on });
        }
    }

    /// What comes next.
    pub fn next_move(&self) -> NextMove {
        let racing = self.racing_by_rate();
        if racing.is_empty() {
            return NextMove::End(RaceEnd::NothingMeasured);
        }
        if !self.rounds.is_empty() {
            if racing.len() == 1 {
                return NextMove::End(RaceEnd::OneRemains);
            }
            if self.is_settled(&racing) {
                return NextMove::End(RaceEnd::Equal);
            }
            if self.full_rounds() >= self.options.max_repeats as usize {
                return NextMove::End(RaceEnd::Repeats);
            }
        }
        let share = match FIRST_SHARES.get(self.rounds.len()) {
            Some(share) if racing.len() > FINALISTS => *share,
            _ => 1.0,
        };
        let Some(mut points) = self.affordable(&racing, share) else {
            let is_budget = self.options.budget_s.is_some_and(|budget| self.limit_s() == Some(budget));
            return NextMove::End(if is_budget { RaceEnd::Budget } else { RaceEnd::Share });
        };
        points.sort_unstable();
        if self.rounds.len() % 2 == 1 {
            // What changes during a round (a warm machine) does not always hit the same points.
            points.reverse();
        }
        let runs = points.into_iter().map(|point| (point, self.entrants[point].steps(share))).collect();
        NextMove::Run(RoundPlan { round: self.rounds.len() as u32 + 1, runs })
    }

    /// The points of the next round: those in the race, or as many of the fastest as the remaining time has room for, and the baseline. `None`
    /// if there is no room for two.
    fn affordable(&self, racing: &[usize], share: f64) -> Option<Vec<usize>> {
        let remaining_s = self.limit_s().map_or(f64::INFINITY, |limit| limit - self.spent_s());
        let baseline =
            (!racing.contains(&BASELINE) && self.measured(BASELINE).len() == self.rounds.len()).then_some(BASELINE);
        // Before the first round nothing is known of the cost.
        (FINALISTS..=racing.len()).rev().find_map(|n| {
            let points: Vec<usize> = racing.iter().copied().take(n).chain(baseline).collect();
            let cost: f64 =
                points.iter().filter_map(|point| self.cost_s(*point, self.entrants[*point].steps(share))).sum();
            (cost <= remaining_s).then_some(points)
        })
    }

    /// Expected wall time of a run of so many steps: the rate and the time beside the steps are those of the last run. `None` without one.
    fn cost_s(&self, point: usize, steps: u64) -> Option<f64> {
        let last = *self.measured(point).last()?;
        let beside = (last.seconds - last.steps as f64 / last.it_per_s).max(0.0);
        Some(beside + steps as f64 / last.it_per_s)
    }

    /// Wall time of all trials so far, s.
    pub fn spent_s(&self) -> f64 {
        self.rounds.iter().flat_map(|round| &round.runs).map(|(_, run)| run.seconds()).sum()
    }

    /// Expected wall time of the whole grid with `GRID_REPEATS` repeats of full length, s. Class: estimated. `None` before the first round.
    pub fn grid_s(&self) -> Option<f64> {
        let first = self.rounds.first()?;
        let of_point = |(point, entrant): (usize, &Entrant)| match first.run_of(point) {
            Some(PointRun::Failed { seconds, .. }) => *seconds,
            _ => self.cost_s(point, entrant.full_steps).unwrap_or(0.0),
        };
        Some(self.entrants.iter().enumerate().map(of_point).sum::<f64>() * f64::from(GRID_REPEATS))
    }

    /// Wall time of trials that the race may take, s: the budget, or its share of the grid if that is less. `None`: there is no limit, or the
    /// first round has not run.
    pub fn limit_s(&self) -> Option<f64> {
        let share = self.grid_s()? * MAX_SHARE;
        let share = (self.entrants.len() >= SMALL_GRID).then_some(share);
        [share, self.options.budget_s].into_iter().flatten().reduce(f64::min)
    }

    /// Rounds of full length.
    fn full_rounds(&self) -> usize {
        let is_full = |(point, run): &(usize, PointRun)| match run {
            PointRun::Measured(run) => run.steps >= self.entrants[*point].full_steps,
            PointRun::Failed { .. } => false,
        };
        self.rounds.iter().filter(|round| round.runs.iter().any(is_full)).count()
    }

    /// Whether no point of `racing`, the fastest first, can be faster than the first by what matters.
    fn is_settled(&self, racing: &[usize]) -> bool {
        let Some((fastest, others)) = racing.split_first() else { return false };
        others.iter().all(|point| {
            let ratio = self.tested_ratio(*point, *fastest, self.settled_level());
            let interval = ratio.and_then(|ratio| ratio.interval);
            interval.is_some_and(|interval| interval.high <= 1.0 + self.options.min_gain)
        })
    }

    /// The point to choose now: the fastest, or of those that were shown to be equal to it the one that needs least. `None` if none remains.
    pub fn choice(&self) -> Option<Choice> {
        let racing = self.racing_by_rate();
        let (fastest, others) = racing.split_first()?;
        let mut equal = vec![*fastest];
        if self.is_settled(&racing) {
            let is_equal = |point: &&usize| {
                let ratio = self.tested_ratio(**point, *fastest, self.settled_level());
                let interval = ratio.and_then(|ratio| ratio.interval);
                interval.is_some_and(|interval| interval.low >= self.equal_from())
            };
            equal.extend(others.iter().filter(is_equal));
        }
        let needs = |point: &&usize| (self.entrants[**point].threads, self.entrants[**point].buffered_samples);
        // Of those that need as much, the first is the fastest.
        let point = *equal.iter().min_by_key(needs)?;
        Some(Choice { point, equal })
    }

    /// Runs of a point that completed, oldest first.
    pub fn measured(&self, point: usize) -> Vec<MeasuredRun> {
        let runs = self.rounds.iter().filter_map(|round| round.run_of(point));
        runs.filter_map(|run| if let PointRun::Measured(run) = run { Some(*run) } else { None }).collect()
    }

    /// Rate of a point over that of another, paired by round, with its 95 % interval and the number of pairs. `None` without a pair.
    pub fn ratio(&self, point: usize, base: usize) -> Option<(Ratio, usize)> {
        let pairs = self.pairs(point, base);
        paired_ratio(&pairs).map(|ratio| (ratio, pairs.len()))
    }

    /// The same with an interval of this level, from as many pairs on as a verdict needs.
    fn tested_ratio(&self, point: usize, base: usize, level: f64) -> Option<Ratio> {
        let pairs = self.pairs(point, base);
        paired_ratio_at(&pairs, level).filter(|_| pairs.len() >= MIN_RUNS_FOR_VERDICT)
    }

    fn pairs(&self, point: usize, base: usize) -> Vec<(f64, f64)> {
        let rate = |round: &RaceRound, point| match round.run_of(point) {
            Some(PointRun::Measured(run)) => Some(run.samples_per_s),
            _ => None,
        };
        self.rounds.iter().filter_map(|round| Some((rate(round, point)?, rate(round, base)?))).collect()
    }

    /// How a point was eliminated; `None` while it is in the race.
    pub fn eliminated(&self, point: usize) -> Option<&Elimination> {
        self.eliminated[point].as_ref()
    }

    /// Rounds so far.
    pub fn rounds(&self) -> &[RaceRound] {
        &self.rounds
    }

    /// The smallest ratio to the fastest point that counts as equal.
    fn equal_from(&self) -> f64 {
        1.0 / (1.0 + self.options.min_gain)
    }

    /// Rounds in which a test can be made: from the first in which a verdict is possible.
    fn looks(&self) -> f64 {
        f64::from(self.options.max_repeats)
    }

    /// Two-sided level of the intervals by which a point is slower: half of it, over all points that one could lose to and all rounds, is
    /// [`ALPHA`].
    fn slower_level(&self) -> f64 {
        2.0 * ALPHA / ((self.entrants.len() - 1) as f64 * self.looks())
    }

    /// Two-sided level of the intervals by which points are equal: all of them have to be, so only the rounds count.
    fn settled_level(&self) -> f64 {
        ALPHA / self.looks()
    }
}

#[cfg(test)]
mod tests;
