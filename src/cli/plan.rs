//! `expctl check` and `expctl plan`.

use std::path::{Path, PathBuf};

use expctl_config::{Plan, Run, SearchSpace, expand, load, load_only};
use expctl_text::format::{count, thousands};

use super::data;
use crate::console::{out, out_json, out_table, say};
use crate::data::ProjectData;
use crate::exit::{Exit, Failure};
use crate::launch;
use crate::plan;
use crate::project::Project;

/// Arguments of `expctl check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  expctl check conf/*.toml\n  expctl check conf/demo.toml --set loader.workers=4")]
pub struct CheckArgs {
    /// Config files
    #[arg(required = true, value_name = "CONF")]
    configs: Vec<PathBuf>,
    /// Set a key on top of everything the config says, for example loader.workers=4 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl CheckArgs {
    /// Those of one config as it is.
    pub fn of(config: &Path) -> Self {
        Self { configs: vec![config.to_owned()], set: Vec::new() }
    }

    pub fn config(&self) -> Option<&Path> {
        self.configs.first().map(PathBuf::as_path)
    }

    /// All of them.
    pub fn configs(&self) -> Vec<&Path> {
        self.configs.iter().map(PathBuf::as_path).collect()
    }
}

/// Check every config and print all that is wrong with each.
pub fn check(project: &Project, args: &CheckArgs) -> Result<(), Failure> {
    let files = ProjectData(project);
    let mut failed = Vec::new();
    for path in &args.configs {
        let checked =
            load(&files, path, &args.set).and_then(|config| expand(&files, &config).map(|plan| (config, plan)));
        match checked {
            Ok((config, plan)) => say(format_args!(
                "ok {}: {}, {}, {}, {}{}",
                path.display(),
                count(config.variants as u64, "variant"),
                count(config.points as u64, "point"),
                count(plan.trials.len() as u64, "trial"),
                steps_words(total_steps(&plan)),
                config.search.as_ref().map(|search| format!("; {}", search_words(search))).unwrap_or_default(),
            )),
            Err(errors) => failed.push(errors.to_string()),
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::rendered(Exit::Config, failed.join("\n\n")))
}

/// `a search of 13 points`, `searches of 13 and 9 points, 2 refused`.
pub fn search_words(search: &SearchSpace) -> String {
    let points: Vec<String> = search.variants.iter().map(|variant| variant.points.len().to_string()).collect();
    let refused: usize = search.variants.iter().map(|variant| variant.refused.len()).sum();
    let refused = if refused > 0 { format!(", {refused} refused") } else { String::new() };
    match points.as_slice() {
        [one] => format!("a search of {one} points{refused}"),
        several => format!("searches of {} points{refused}", several.join(" and ")),
    }
}

/// `1 step`, `110,490 steps`.
fn steps_words(steps: u64) -> String {
    if steps == 1 { count(1, "step") } else { format!("{} steps", thousands(steps)) }
}

/// Steps of all trials, warm-up included.
fn total_steps(plan: &Plan) -> u64 {
    plan.trials.iter().map(|t| t.settings.measure.warmup.saturating_add(t.settings.measure.steps)).sum()
}

/// Arguments of `expctl plan`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  expctl plan conf/demo.toml --only lazy\n  expctl plan conf/demo.toml --script > batch.sh"
)]
pub struct PlanArgs {
    /// Config file
    #[arg(value_name = "CONF")]
    config: PathBuf,
    /// Print the trials and their cost as JSON
    #[arg(long, conflicts_with = "script")]
    json: bool,
    /// Print the batch script that would be submitted to Slurm
    #[arg(long)]
    script: bool,
    /// Set a key on top of everything the config says, for example loader.workers=4 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Only this variant or trial (may be repeated)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
}

impl PlanArgs {
    pub fn config(&self) -> &Path {
        &self.config
    }
}

/// Print the trials of a config: a table on a terminal, markdown into a file or pipe.
pub fn run(project: &Project, args: &PlanArgs) -> Result<(), Failure> {
    let files = ProjectData(project);
    let config = load_only(&files, &args.config, &args.set, &args.only)?;
    let plan = expand(&files, &config)?.only(&args.only)?;
    if args.json {
        let data = data::data_json(project, &plan);
        let mut planned = serde_json::json!({ "trials": plan.trials, "cost": plan::cost(&plan), "data": data });
        if let Some(search) = &config.search {
            planned["search"] = search_json(search);
        }
        out_json(&planned)?;
    } else if args.script {
        say(format_args!("template: {}", launch::slurm::batch_template(project)?.0));
        let scripts = launch::slurm::scripts(project, &plan::job_record(&plan, "slurm"))?;
        if scripts.len() > 1 {
            say(format_args!("{} arrays, since their trials ask for different resources or are many", scripts.len()));
        }
        out(scripts.join("\n").trim_end());
    } else {
        out_table(&plan::table(&plan));
        if let Some(cost) = plan::cost(&plan) {
            out(format_args!("\nWith --backend local, {}\nOn Slurm, {cost}", cost.on_this_machine()));
        }
        for remark in plan::remarks(&plan) {
            say(format_args!("note: {remark}"));
        }
        for warning in plan::pack_warnings(&plan) {
            say(format_args!("warning: {warning}"));
        }
        if let Some(search) = &config.search {
            say_search(search, &args.config);
        }
        data::say_missing_data(project, &plan);
    }
    Ok(())
}

/// Say that the trials are those of the config's own settings, and which points a search has.
fn say_search(search: &SearchSpace, config: &Path) {
    say(format_args!(
        "note: these trials have the config's own settings; {} with expctl search {}",
        search_words(search),
        config.display()
    ));
    for variant in &search.variants {
        for refused in &variant.refused {
            let point = refused.point.iter().filter_map(|(key, set)| Some(format!("{key}={}", set.value.as_ref()?)));
            let point: Vec<String> = point.collect();
            say(format_args!("note: not searched: {} {}: {}", variant.variant, point.join(", "), refused.reason));
        }
    }
}

/// The points of each variant, by name, and those that are refused.
fn search_json(search: &SearchSpace) -> serde_json::Value {
    let variants = search.variants.iter().map(|variant| {
        let points: Vec<_> = variant.points.iter().map(Run::swept).collect();
        let refused: Vec<&str> = variant.refused.iter().map(|refused| refused.reason.as_str()).collect();
        serde_json::json!({ "variant": variant.variant, "points": points, "refused": refused })
    });
    variants.collect()
}
