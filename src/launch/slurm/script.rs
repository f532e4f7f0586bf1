//! The batch script, from the template in slurm/batch.sh.j2.
//!
//! Invariant: a value of the user's is either a number or goes through one of the two quoting filters.

use expctl_record::JobRecord;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

use super::container::Wrapping;
use super::parts::{Limits, Part, parts};
use super::path_text;
use super::tools::Programs;
use crate::conf::{self, Profile};
use crate::exit::{Exit, Failure};
use crate::project::Project;

/// Seconds that ranks may go on after the first one ended well. Ranks that only load data do not wait for each other, so
/// this is long; a rank that fails ends the others at once.
const WAIT_FOR_OTHERS_S: u32 = 3600;
/// Seconds before its time limit at which a task that can go on later is told to stop. Slurm looks at limits every 30 s, and
/// may be a minute early.
const BEFORE_LIMIT_S: u32 = 120;

/// Where the job's folder stands, as a script says it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    /// Under the number that Slurm gives this very array.
    Own,
    /// Under a number that is known already.
    Known(u64),
    /// Under one that only submitting finds out.
    Later,
}

/// The batch scripts of a job that runs `programs`, one for each array, as far as they are known before it is submitted:
/// what only the cluster knows (how long an array may be) is left out.
///
/// # Errors
/// Exit 3 if the profile cannot be read or does not take the job, or a value cannot be written in a script.
pub fn render(project: &Project, job: &JobRecord, programs: &Programs) -> Result<Vec<String>, Failure> {
    let profile = profile_of(project, job)?;
    let limits = Limits { array_size: profile.max_array_size, submit: profile.max_submit };
    render_within(project, job, programs, &profile, limits)
}

/// The same where the limits of the cluster are known.
pub(super) fn render_within(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    profile: &Profile,
    limits: Limits,
) -> Result<Vec<String>, Failure> {
    let all: Vec<u32> = (0..).take(job.trials.len()).collect();
    let parts = parts(job, &all, limits, &|_, resources| resources);
    let numbers = std::iter::once(Number::Own).chain(std::iter::repeat(Number::Later));
    let scripts = parts.iter().zip(numbers).map(|(part, number)| fill(project, job, programs, profile, part, number));
    scripts.collect()
}

/// The cluster profile of a job.
pub(super) fn profile_of(project: &Project, job: &JobRecord) -> Result<Profile, Failure> {
    match job.trials.first().map_or("", |trial| trial.settings.slurm.profile.as_str()) {
        "" => Ok(Profile::default()),
        name => Ok(conf::profile(project, name)?),
    }
}

/// The script of one array.
pub(super) fn fill(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    profile: &Profile,
    part: &Part,
    number: Number,
) -> Result<String, Failure> {
    let resources = &part.resources;
    let container = Wrapping::of(&resources.image, profile, project, job, programs)?;
    let runs = path_text(project.runs())?;
    // Slurm reads % as the start of a pattern, and does not read patterns at all in a name with a backslash.
    let (folder, folder_pattern) = match number {
        Number::Own => (None, "%A".to_owned()),
        Number::Known(job) => (Some(job.to_string()), job.to_string()),
        Number::Later => (Some("JOB".to_owned()), "JOB".to_owned()),
    };
    let log_pattern = format!("{}/{folder_pattern}/slurm-%A_%a.log", runs.replace('%', "%%"));
    for path in [runs, path_text(&programs.expctl)?, path_text(&programs.worker)?] {
        if path.contains('\\') || path.contains(char::is_control) {
            return Err(Failure::new(Exit::Usage, format!("Slurm cannot write to a folder named {path:?}"))
                .hint("EXPCTL_RUNS moves the ledger to another folder"));
        }
    }
    let time_min = resources.time_min.saturating_mul(part.turns());
    let mut extra = profile.extra.clone();
    let mut exclude = resources.exclude.clone();
    if !exclude.is_empty() {
        // Given twice, the second one would replace the first.
        let own = extra.iter().position(|(name, _)| name == "exclude").map(|found| extra.remove(found));
        exclude.extend(own.and_then(|(_, nodes)| nodes));
    }
    // A script that is stopped at its limit has to have the time for it.
    let warned = resources.requeues.is_some() && u64::from(BEFORE_LIMIT_S) < time_min.saturating_mul(30);
    let (name, text) = conf::batch_template(project)?;
    template(
        &name,
        &text,
        context! {
            job_name => job_name(job),
            array => part.array(), folder,
            throttle => resources.throttle,
            nodes => resources.nodes,
            ranks => resources.ranks,
            ranks_per_node => resources.ranks_per_node(),
            cpus_per_rank => resources.cpus_per_rank,
            memory_mib => resources.memory_per_node_mib(),
            time_min,
            partition => &resources.partition,
            account => &resources.account,
            qos => &resources.qos,
            constraint => &resources.constraint,
            exclusive => resources.exclusive,
            gres => resources.gres(),
            exclude => exclude.join(","),
            requeue => resources.requeues.is_some(),
            requeues => resources.requeues.filter(|_| warned),
            before_limit_s => BEFORE_LIMIT_S,
            extra,
            modules => &profile.modules,
            environment => &profile.environment,
            setup => &profile.setup,
            scratch => &profile.scratch,
            container => container.map(Wrapping::into_value),
            wait_s => WAIT_FOR_OTHERS_S,
            expctl => path_text(&programs.expctl)?,
            worker => path_text(&programs.worker)?,
            commands => job.trials.iter().any(|trial| trial.settings.runs_command()),
            root => path_text(project.root())?,
            library_path => programs.library_path.clone(),
            runs, log_pattern,
        },
    )
}

/// A template of a script, filled in.
pub(super) fn template(name: &str, text: &str, values: minijinja::Value) -> Result<String, Failure> {
    environment().render_named_str(name, text, values).map_err(|e| match e.kind() {
        ErrorKind::InvalidOperation => Failure::new(
            Exit::Config,
            format!("the batch script cannot be written: {}", e.detail().unwrap_or_default()),
        ),
        // A user may have written it.
        _ => Failure::new(Exit::Config, format!("the batch template {name} cannot be filled in: {e}")),
    })
}

/// What the queue shows: the config's name. Slurm keeps any printable character.
pub(super) fn job_name(job: &JobRecord) -> String {
    let printable: String = job.config.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if printable.trim().is_empty() { "expctl".to_owned() } else { printable }
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_syntax(whole_line_blocks());
    environment.add_filter("shell", shell);
    environment.add_filter("directive", directive);
    environment
}

/// A line that holds only a `{% … %}` leaves no line in the script.
fn whole_line_blocks() -> SyntaxConfig {
    #[expect(clippy::expect_used, reason = "only contradictory delimiters can fail, and these are the standard ones")]
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()
        .expect("the standard delimiters do not contradict each other")
}

/// A word of the shell.
fn shell(value: &str) -> Result<String, minijinja::Error> {
    shlex::try_quote(value)
        .map(std::borrow::Cow::into_owned)
        .map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, format!("{value:?}: {e}")))
}

/// A value in an `#SBATCH` line. These lines have quoting rules of their own: inside double quotes a backslash protects a
/// quote or a backslash, and nothing else has a meaning. A line break cannot be written.
fn directive(value: &str) -> Result<String, minijinja::Error> {
    if value.contains(char::is_control) {
        return Err(minijinja::Error::new(ErrorKind::InvalidOperation, format!("{value:?} holds a control character")));
    }
    Ok(format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_keep_quotes_and_refuse_line_breaks() {
        assert_eq!(directive(r#"a "b" \ $(c) # '"#).unwrap(), r#""a \"b\" \\ $(c) # '""#);
        assert!(directive("a\n#SBATCH --uid=0").is_err());
    }

    #[test]
    fn shell_words_are_quoted() {
        assert_eq!(shell("a b;$(c)").unwrap(), "'a b;$(c)'");
        assert!(shell("a\0b").is_err());
    }
}
