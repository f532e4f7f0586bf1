//! The batch script, from the template in slurm/batch.sh.j2.
//!
//! Invariant: a value of the user's is either a number or goes through one of the two quoting filters.

use expctl_record::JobRecord;
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

use super::container::Wrapping;
use super::path_text;
use super::resources::Resources;
use super::tools::Programs;
use crate::conf::{self, Profile};
use crate::exit::{Exit, Failure};
use crate::project::Project;

const TEMPLATE: &str = include_str!("../../../slurm/batch.sh.j2");

/// Seconds that ranks may go on after the first one ended well. Ranks that only load data do not wait for each other, so
/// this is long; a rank that fails ends the others at once.
const WAIT_FOR_OTHERS_S: u32 = 3600;

/// The batch script of a job that runs `programs`.
///
/// # Errors
/// Exit 3 if the trials need different resources, the profile cannot be read or does not take the job, or a value cannot be written in a script.
pub fn render(project: &Project, job: &JobRecord, programs: &Programs) -> Result<String, Failure> {
    fill(project, job, programs, &format!("0-{}", job.trials.len().saturating_sub(1)), None)
}

/// The batch script that runs the array tasks `indices` of a job once more, into the folder the job has already.
///
/// # Errors
/// As [`render`].
pub(super) fn render_retry(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    indices: &[u32],
) -> Result<String, Failure> {
    let list: Vec<String> = indices.iter().map(u32::to_string).collect();
    fill(project, job, programs, &list.join(","), Some(job.job))
}

/// The script with its array tasks and the number of the job's folder; a new job's is the one that Slurm gives it.
fn fill(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    array: &str,
    folder: Option<u64>,
) -> Result<String, Failure> {
    let resources = Resources::common(job)?;
    let profile = match resources.profile.as_str() {
        "" => Profile::default(),
        name => conf::profile(project, name)?,
    };
    let gres = resources.gres();
    check_array(&profile, job)?;
    let container = Wrapping::of(&resources.image, &profile, project, job, programs)?;
    let runs = path_text(project.runs())?;
    // Slurm reads % as the start of a pattern, and does not read patterns at all in a name with a backslash.
    let number = folder.map_or_else(|| "%A".to_owned(), |job| job.to_string());
    let log_pattern = format!("{}/{number}/slurm-%a.log", runs.replace('%', "%%"));
    for path in [runs, path_text(&programs.expctl)?, path_text(&programs.worker)?] {
        if path.contains('\\') || path.contains(char::is_control) {
            return Err(Failure::new(Exit::Usage, format!("Slurm cannot write to a folder named {path:?}"))
                .hint("EXPCTL_RUNS moves the ledger to another folder"));
        }
    }
    let text = environment().render_named_str(
        "batch.sh.j2",
        TEMPLATE,
        context! {
            job_name => job_name(job),
            array, folder,
            throttle => resources.throttle,
            ranks => resources.ranks,
            cpus_per_rank => resources.cpus_per_rank,
            memory_mib => resources.memory_mib,
            time_min => resources.time_min,
            partition => resources.partition,
            account => resources.account,
            qos => resources.qos,
            constraint => resources.constraint,
            exclusive => resources.exclusive,
            gres,
            extra => profile.extra,
            modules => profile.modules,
            environment => profile.environment,
            setup => profile.setup,
            scratch => profile.scratch,
            container => container.map(Wrapping::into_value),
            wait_s => WAIT_FOR_OTHERS_S,
            expctl => path_text(&programs.expctl)?,
            worker => path_text(&programs.worker)?,
            library_path => programs.library_path.clone(),
            runs, log_pattern,
        },
    );
    text.map_err(|e| match e.kind() {
        ErrorKind::InvalidOperation => Failure::new(
            Exit::Config,
            format!("the batch script cannot be written: {}", e.detail().unwrap_or_default()),
        ),
        _ => Failure::internal(format!("slurm/batch.sh.j2: {e}")),
    })
}

/// Refuse an array that the cluster would refuse.
fn check_array(profile: &Profile, job: &JobRecord) -> Result<(), Failure> {
    match profile.max_array_size {
        Some(size) if job.trials.len() as u64 > size => Err(Failure::new(
            Exit::Config,
            format!("the job has {} trials, but {} takes arrays of at most {size}", job.trials.len(), profile.name),
        )
        .hint("submit the variants one by one: --only NAME")),
        _ => Ok(()),
    }
}

/// What the queue shows: the config's name. Slurm keeps any printable character.
fn job_name(job: &JobRecord) -> String {
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
