//! `expctl search`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use expctl_config::{Config, NotesSettings, Plan, Run, VariantPoints, set_arguments};
use expctl_ledger::{JobRecord, Ledger, MeasuredJob, SearchRound, write_atomic};
use expctl_settings::{Search, Settings};
use expctl_text::format::count;
use serde_json::Value as Json;

use super::report::note_options;
use super::run_plan::{BackendName, JobPurpose, RunOptions, Submission, submit_plan};
use crate::console::{out, say};
use crate::data::ProjectData;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::backend_for_job;
use crate::launch::slurm::Adjustment;
use crate::launch::status::JobStatus;
use crate::program::needed_worker_of_this_version;
use crate::project::Project;
use crate::provenance::{CodeOf, ConfigOf};
use crate::report::compare::Format;
use crate::search::{
    BASELINE, NextMove, Race, RaceError, RaceOptions, RefusedRow, RoundPlan, SearchFacts, SearchHistory, SearchLock,
    SearchResult, SearchedPoint, entrant, has_ended, quoted, race_round,
};

/// Arguments of `expctl search`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl search conf/search.toml\n  \
                  expctl search conf/search.toml --budget 60 --set loader.batch_size=64")]
pub struct SearchArgs {
    /// The config (TOML), with the settings to search in its section `search`
    conf: PathBuf,
    /// The variant to search for, where the config has several
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Set a key on top of everything the config says, for example loader.workers=4 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Seconds of trials in all [default: search.budget_s]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    budget: Option<f64>,
    /// Begin again, also where the ledger has this search
    #[arg(long)]
    again: bool,
    /// Where to run [default: as for submit]
    #[arg(long, value_enum, env = "EXPCTL_BACKEND")]
    backend: Option<BackendName>,
    /// Form of the output [default: table on a terminal, else markdown]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl SearchArgs {
    pub fn config(&self) -> &Path {
        &self.conf
    }

    /// The command that goes on with the search, where the user is.
    fn command(&self, project: &Project) -> String {
        let only = self.only.as_ref().map(|name| format!(" --only {name}")).unwrap_or_default();
        let set: String = self.overrides.iter().map(|set| format!(" --set {}", quoted(set))).collect();
        format!("expctl search {}{}{only}{set}", self.conf.display(), project.on_machine())
    }

    /// The command that submits the config with its own settings.
    fn submit_command(&self, project: &Project) -> String {
        self.command(project).replacen("expctl search", "expctl submit", 1)
    }
}

/// Search for the fastest settings: begin, or go on with what the ledger has, or show the result again.
pub fn run(project: &Project, args: &SearchArgs) -> Result<(), Failure> {
    let mut overrides = args.overrides.clone();
    overrides.extend(args.budget.map(|seconds| format!("search.budget_s={seconds}")));
    let only: Vec<String> = args.only.iter().cloned().collect();
    let config = expctl_config::load_only(&ProjectData(project), &args.conf, &overrides, &only)?;
    let (options, points) = searched(&config, args)?;
    let search = OpenSearch::find(project, args, (&config, &options, points))?;
    let finished = search.run()?;
    if project.is_for_another_machine() {
        // That one shows it and writes the note. What a login prints need not end its last line.
        out(format_args!("\n{}", serde_json::to_string(&finished).map_err(Failure::internal)?));
        return Ok(());
    }
    show(project, &finished, args)
}

/// Print the result of a search that has ended, and write its note.
pub fn show(project: &Project, finished: &SearchResult, args: &SearchArgs) -> Result<(), Failure> {
    let form = match args.format {
        _ if args.json => Format::Json,
        Some(form) => form,
        None if std::io::stdout().is_terminal() => Format::Table,
        None => Format::Markdown,
    };
    out(finished.render(form, &args.submit_command(project)).map_err(Failure::internal)?);
    write_note(project, finished, args)
}

/// The options of the search, and the points of the variant that is meant.
fn searched<'a>(config: &'a Config, args: &SearchArgs) -> Result<(Search, &'a VariantPoints), Failure> {
    let Some(space) = &config.search else {
        return Err(Failure::new(Exit::Config, format!("{} has no [search]", args.conf.display()))
            .hint("say which settings to search: [search] with loader.workers = [0, 2, 4], for example"));
    };
    let names: Vec<&str> = config.runs.iter().map(|run| run.variant.as_str()).collect();
    match (&args.only, space.variants.as_slice()) {
        (Some(name), variants) => match variants.iter().find(|points| points.variant == *name) {
            Some(points) => Ok((space.options, points)),
            None => Err(Failure::new(Exit::Usage, format!("no variant is named `{name}`"))
                .hint(format!("variants are {}", names.join(", ")))),
        },
        (None, [only]) => Ok((space.options, only)),
        (None, _) => Err(Failure::new(Exit::Usage, "a search is for one variant, and the config has several")
            .hint(format!("name it with --only: {}", names.join(", ")))),
    }
}

/// A search of a variant that is under way.
struct OpenSearch<'a> {
    project: &'a Project,
    args: &'a SearchArgs,
    config: &'a Config,
    options: Search,
    points: &'a VariantPoints,
    /// All settings of each point, and its searched ones.
    settings: Vec<(Settings, BTreeMap<String, Json>)>,
    id: String,
    start: u32,
    interrupt: Interrupt,
    _lock: SearchLock,
}

impl<'a> OpenSearch<'a> {
    /// The search that the ledger has, or a new one, and say which of both.
    fn find(
        project: &'a Project,
        args: &'a SearchArgs,
        (config, options, points): (&'a Config, &Search, &'a VariantPoints),
    ) -> Result<Self, Failure> {
        let settings = |run: &Run| Some((run.values.settings()?, run.swept()));
        let settings: Option<Vec<_>> = points.points.iter().map(settings).collect();
        let settings = settings.ok_or_else(|| Failure::internal("a valid config has a point without settings"))?;
        let id = points.id(&config.name, options);
        let interrupt = Interrupt::listen()?;
        // Before the ledger is read, which another process may be changing.
        let lock = SearchLock::wait(project, &id, &interrupt)?;
        let history = SearchHistory::load(&Ledger::open(project)?, &config.name, &points.variant);
        let known = history.newest(&id);
        let start = match &known {
            Some(known) if args.again => known.start + 1,
            Some(known) => known.start,
            None => 1,
        };
        match (&known, history.other(&id)) {
            (Some(known), _) if !args.again => say(format!("the ledger has this search up to job {}", known.last_job)),
            (None, Some(other)) => say(format!(
                "a new search: the points, steps or options are not those of the search with job {}",
                other.last_job
            )),
            _ => {}
        }
        Ok(Self { project, args, config, options: *options, points, settings, id, start, interrupt, _lock: lock })
    }

    /// Run rounds until the race is over.
    fn run(&self) -> Result<SearchResult, Failure> {
        loop {
            let (race, jobs) = self.race()?;
            match race.next_move() {
                NextMove::Run(plan) => self.run_round(&race, &plan, jobs.first().copied())?,
                NextMove::End(end) => {
                    let facts = self.facts(jobs);
                    return SearchResult::new(&race, end, facts).ok_or_else(|| self.nothing_measured(&race));
                }
            }
        }
    }

    /// The race as the ledger has it, after rounds that were stopped have been completed; and the jobs of its rounds.
    fn race(&self) -> Result<(Race, Vec<u64>), Failure> {
        let options = RaceOptions {
            budget_s: Some(self.options.budget_s).filter(|seconds| *seconds > 0.0),
            max_repeats: self.options.max_repeats,
            min_gain: self.options.min_gain_percent / 100.0,
        };
        let mut race = Race::new(self.settings.iter().map(|(settings, _)| entrant(settings)).collect(), options)?;
        let points: Vec<BTreeMap<String, Json>> = self.settings.iter().map(|(_, point)| point.clone()).collect();
        let ledger = Ledger::open(self.project)?;
        let history = SearchHistory::load(&ledger, &self.config.name, &self.points.variant);
        let mut jobs = Vec::new();
        for record in history.rounds(&self.id, self.start) {
            let folder = self.project.job(record.job);
            let mut round = race_round(&MeasuredJob::load(&folder)?, &points);
            if round.is_none() {
                self.complete_round(record)?;
                round = race_round(&MeasuredJob::load(&folder)?, &points);
            }
            let round = round.ok_or_else(|| self.stopped(record.job))?;
            race.record(round)?;
            jobs.push(record.job);
        }
        Ok((race, jobs))
    }

    /// Submit a round and wait for it. All rounds run the code of the first one: its job, unless this is it.
    fn run_round(&self, race: &Race, plan: &RoundPlan, first: Option<u64>) -> Result<(), Failure> {
        let runs: Vec<(&Run, u64)> =
            plan.runs.iter().filter_map(|(point, steps)| Some((self.points.points.get(*point)?, *steps))).collect();
        self.say_round(race, plan);
        let config = self.config.search_round(plan.round, &runs);
        let trials: Plan = expctl_config::expand(&ProjectData(self.project), &config)?;
        let round = SearchRound { id: self.id.clone(), start: self.start, round: plan.round };
        let options = RunOptions::waiting(self.args.backend);
        let submission = Submission {
            config: ConfigOf::Read(&config),
            whole: &trials,
            plan: trials.clone(),
            purpose: JobPurpose::SearchRound(round),
            code: first.map_or(CodeOf::Now, |job| CodeOf::Job(self.project.job(job))),
        };
        // What is submitted listens for itself, and hears of no signal that came before.
        if self.interrupt.is_set() {
            return Err(Failure::new(Exit::Incomplete, format!("the search stopped before round {}", plan.round))
                .hint(format!("to go on: {}", self.args.command(self.project))));
        }
        let Some(submitted) = submit_plan(self.project, submission, &options)? else { return Ok(()) };
        self.check(submitted.job, submitted.ended)
    }

    /// Run the trials of a round that have not ended, and those that were lost.
    fn complete_round(&self, record: &JobRecord) -> Result<(), Failure> {
        let folder = self.project.job(record.job);
        let (status, trouble) = JobStatus::load(&folder)?;
        if let Some(trouble) = trouble {
            let message = format!("nobody knows what of job {} still runs: {trouble}", record.job);
            return Err(Failure::new(Exit::Cluster, message));
        }
        let backend = backend_for_job(&record.backend)?;
        if status.is_active() {
            if !record.on_slurm() {
                let message = format!("this search runs already: job {}", record.job);
                return Err(Failure::new(Exit::Incomplete, message)
                    .hint(format!("expctl watch {}", self.project.job_name(record.job))));
            }
            return self.check(record.job, backend.wait(self.project, record, &self.interrupt));
        }
        let measured = MeasuredJob::load(&folder)?;
        // A trial that failed by itself stays as it is.
        let (mut again, mut kept) = (Vec::new(), Vec::new());
        for (index, run) in (0..).zip(&measured.runs) {
            let runs_again = !has_ended(run);
            if runs_again {
                again.push((index, Adjustment::default()));
            }
            if runs_again || run.completed() {
                kept.extend(record.trials.get(index as usize).cloned());
            }
        }
        say(format!("job {}: {} of {} to run", record.job, again.len(), count(record.trials.len() as u64, "trial")));
        let record = JobRecord { trials: kept, ..record.clone() };
        needed_worker_of_this_version(&record.trials)?;
        backend.retry(self.project, &record, &again)?;
        self.check(record.job, backend.wait(self.project, &record, &self.interrupt))
    }

    /// How a round ended that was waited for: trials that failed do not end the search, everything else does.
    fn check(&self, job: u64, ended: Result<(), Failure>) -> Result<(), Failure> {
        if self.interrupt.is_set() {
            return Err(self.stopped(job));
        }
        ended.map_err(|failure| failure.hint(format!("once the reason is gone: {}", self.args.command(self.project))))
    }

    /// The search ended before its time.
    fn stopped(&self, job: u64) -> Failure {
        Failure::new(Exit::Incomplete, format!("the search stopped in job {job}, which has not ended"))
            .hint(format!("to go on: {}", self.args.command(self.project)))
    }

    fn nothing_measured(&self, race: &Race) -> Failure {
        let mut reasons = race.rounds().iter().flat_map(|round| &round.runs).filter_map(|(_, run)| run.failure());
        let first = reasons.next().unwrap_or("no reason is recorded");
        Failure::new(Exit::TrialsFailed, format!("no point could be measured; the first failed: {first}"))
            .hint(format!("once the reason is gone: {} --again", self.args.command(self.project)))
    }

    /// Say what a round is for, and what is known by now.
    fn say_round(&self, race: &Race, plan: &RoundPlan) {
        let steps = plan.runs.iter().map(|(_, steps)| *steps).max().unwrap_or(0);
        let full = self.settings.iter().map(|(settings, _)| settings.measure.steps).max().unwrap_or(0);
        let best = race.choice().and_then(|choice| self.settings.get(choice.point)).map(|(_, point)| {
            let baseline =
                if race.choice().is_some_and(|choice| choice.point == BASELINE) { " (baseline)" } else { "" };
            format!("; fastest so far: {}{baseline}", set_arguments(point).join(", "))
        });
        say(format!(
            "round {}: {} of {}, {steps} of {full} steps{}",
            plan.round,
            plan.runs.len(),
            count(self.settings.len() as u64, "point"),
            best.unwrap_or_default()
        ));
    }

    fn facts(&self, jobs: Vec<u64>) -> SearchFacts {
        let named = |point: BTreeMap<String, Json>| SearchedPoint { set: set_arguments(&point), point };
        let refused = self.points.refused.iter().map(|refused| {
            let values = refused.point.iter().filter_map(|(key, set)| Some(((*key).to_owned(), set.value.clone()?)));
            RefusedRow { point: named(values.collect()), reason: refused.reason.clone() }
        });
        SearchFacts {
            config: self.config.name.clone(),
            variant: self.points.variant.clone(),
            points: self.settings.iter().map(|(_, point)| named(point.clone())).collect(),
            refused: refused.collect(),
            jobs,
            budget_s: Some(self.options.budget_s).filter(|seconds| *seconds > 0.0),
            min_gain_percent: self.options.min_gain_percent,
            max_repeats: self.options.max_repeats,
        }
    }
}

/// Write the result beside the notes of jobs, named after the job of its last round. A note that is there with other text stays.
fn write_note(project: &Project, result: &SearchResult, args: &SearchArgs) -> Result<(), Failure> {
    let Some(job) = result.jobs.last() else { return Ok(()) };
    let folder = note_options(project, NotesSettings::default())?.folder;
    // Numbers of jobs there may be those of other jobs here.
    let host = project.host().map(|host| format!("{host}_")).unwrap_or_default();
    let path = folder.join(format!("{}_search_{host}{job}.md", result.config));
    let body = result.render(Format::Markdown, &args.submit_command(project)).map_err(Failure::internal)?;
    let text = format!("# Search: {}, variant {}\n\n{body}\n", result.config, result.variant);
    match std::fs::read_to_string(&path) {
        Ok(known) if known != text => say(format!("{} has another text, and stays as it is", path.display())),
        Ok(_) => {}
        Err(_) => {
            write_atomic(&path, text.as_bytes())?;
            say(format!("note: {}", path.display()));
        }
    }
    Ok(())
}

/// A race that the program itself set up wrongly.
impl From<RaceError> for Failure {
    fn from(error: RaceError) -> Self {
        Self::internal(error)
    }
}
