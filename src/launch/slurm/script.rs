//! Batch scripts, from the templates slurm/batch.sh.j2 (an array of trials) and slurm/step.sh.j2 (building data,
//! writing the note).
//!
//! The template of arrays is the project's own, else the user's own, else the one compiled in.
//!
//! Invariant: a user's value in a script is either a number or goes through one of the two quoting filters.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use expctl_config::{ClusterProfile, Container, PYXIS, is_mount_of_pyxis};
use expctl_ledger::JobRecord;
use expctl_settings::{NO_DATA_SET, Trial, is_url};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, context};

use super::array_plan::{ArrayPlan, Limits, plan_arrays};
use crate::exit::{Exit, Failure};
use crate::program::{Programs, libtorch_folder};
use crate::project::Project;

const STEP_TEMPLATE: &str = include_str!("../../../slurm/step.sh.j2");
/// Seconds that ranks may go on after the first one ended well. Ranks that only load data do not wait for each other,
/// so this is long; a rank that fails ends the others at once.
const WAIT_FOR_OTHERS_S: u32 = 3600;
/// Seconds before its time limit at which a task that can go on later is told to stop. Slurm looks at limits every 30
/// s, and may be a minute early.
const BEFORE_LIMIT_S: u32 = 120;

/// The template that is compiled in.
pub const SHIPPED_TEMPLATE: &str = include_str!("../../../slurm/batch.sh.j2");

/// Words that every script needs: without one of them a job leaves no results.
const NEEDED_WORDS: [&str; 3] = ["stage-attempt", "srun", "conclude"];

/// Word of a script that runs trials side by side.
const LANE_WORD: &str = "--lane";

/// The template in use, name and text. The name is a path, or `slurm/batch.sh.j2, compiled in`.
///
/// # Errors
/// Exit 3 if the file that is in use cannot be read, or lacks what a job needs to leave results.
pub fn batch_template(project: &Project) -> Result<(String, String), Failure> {
    for path in template_paths(project) {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            // The one in this program's own repository is no one's wish.
            Ok(text) if text == SHIPPED_TEMPLATE => continue,
            Ok(text) => text,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(Failure::new(Exit::Config, format!("cannot read the batch template {name}: {e}"))),
        };
        let lacking: Vec<&str> =
            NEEDED_WORDS.into_iter().filter(|word| !commands_of(&text).any(|line| line.contains(word))).collect();
        if !lacking.is_empty() {
            let message = format!("the batch template {name} lacks {}", lacking.join(" and "));
            return Err(Failure::new(Exit::Config, message)
                .hint("a job leaves results only if its script runs `expctl stage-attempt`, srun and `expctl conclude`")
                .hint("start from the one that is compiled in; docs/guide/slurm.md says what it is given"));
        }
        return Ok((name, text));
    }
    Ok(("slurm/batch.sh.j2, compiled in".to_owned(), SHIPPED_TEMPLATE.to_owned()))
}

/// The lines of a template that are no comments.
fn commands_of(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with('#'))
}

fn template_paths(project: &Project) -> Vec<PathBuf> {
    let own = project.root().join("slurm").join("batch.sh.j2");
    std::iter::once(own).chain(project.config_home().map(|home| home.join("batch.sh.j2"))).collect()
}

/// Which id of the job a script names in paths.
#[derive(Clone, Copy, Debug)]
pub enum ScriptJobId {
    /// The id of its own array, which Slurm fills in.
    OwnArray,
    /// A known id.
    Known(u64),
    /// An id that only submitting finds out: the placeholder `JOB`.
    Placeholder,
}

/// The batch scripts of a job, one per array, as far as they are known before it is submitted. Limits that only the
/// cluster knows (the size of arrays) are not applied.
///
/// # Errors
/// As [`render`].
pub fn scripts(project: &Project, job: &JobRecord) -> Result<Vec<String>, Failure> {
    render(project, job, &Programs::find()?)
}

/// [`scripts`] of a job that runs `programs`.
///
/// # Errors
/// Exit 3 if the profile cannot be read or does not take the job, or a value cannot be written in a script.
pub fn render(project: &Project, job: &JobRecord, programs: &Programs) -> Result<Vec<String>, Failure> {
    let profile = profile_of(project, job)?;
    let limits = Limits { array_size: profile.max_array_size, submit: profile.max_submit };
    JobScripts { project, job, programs, profile: &profile }.arrays(limits)
}

/// Writes the scripts of a job.
#[derive(Clone, Copy)]
pub struct JobScripts<'a> {
    pub project: &'a Project,
    pub job: &'a JobRecord,
    pub programs: &'a Programs,
    pub profile: &'a ClusterProfile,
}

impl JobScripts<'_> {
    /// The scripts of all arrays, where the cluster has these limits.
    pub fn arrays(self, limits: Limits) -> Result<Vec<String>, Failure> {
        let all: Vec<u32> = (0..).take(self.job.trials.len()).collect();
        let plans = plan_arrays(self.job, &all, limits, &|_, resources| resources);
        let ids = std::iter::once(ScriptJobId::OwnArray).chain(std::iter::repeat(ScriptJobId::Placeholder));
        plans.iter().zip(ids).map(|(plan, id)| self.array(plan, id)).collect()
    }

    /// The script of one array.
    pub fn array(self, plan: &ArrayPlan, id: ScriptJobId) -> Result<String, Failure> {
        let Self { project, job, programs, profile } = self;
        let resources = &plan.resources;
        let container = ContainerCommand::new(&resources.image, self)?;
        let runs = path_text(project.runs())?;
        // In file names Slurm takes % for the start of a pattern, and reads no patterns at all where there is a
        // backslash.
        let (folder, folder_pattern) = match id {
            ScriptJobId::OwnArray => (None, "%A".to_owned()),
            ScriptJobId::Known(job) => (Some(job.to_string()), job.to_string()),
            ScriptJobId::Placeholder => (Some("JOB".to_owned()), "JOB".to_owned()),
        };
        let log_pattern = format!("{}/{folder_pattern}/slurm-%A_%a.log", runs.replace('%', "%%"));
        for path in [runs, path_text(&programs.expctl)?, path_text(&programs.worker)?] {
            if path.contains('\\') || path.contains(char::is_control) {
                return Err(Failure::new(Exit::Usage, format!("Slurm cannot write to a folder named {path:?}"))
                    .hint("EXPCTL_RUNS moves the ledger to another folder"));
            }
        }
        let time_min = resources.time_min.saturating_mul(plan.max_turns());
        let mut extra = profile.extra.clone();
        let mut exclude = resources.exclude.clone();
        if !exclude.is_empty() {
            // Slurm would use the second of two such options.
            let own = extra.iter().position(|(name, _)| name == "exclude").map(|found| extra.remove(found));
            exclude.extend(own.and_then(|(_, nodes)| nodes));
        }
        // A script that is warned before its time limit needs time to act on it.
        let warned = resources.requeues.is_some() && u64::from(BEFORE_LIMIT_S) < time_min.saturating_mul(30);
        let (name, text) = batch_template(project)?;
        if resources.pack > 1 && !commands_of(&text).any(|line| line.contains(LANE_WORD)) {
            let message =
                format!("slurm.pack is {}, and the batch template {name} runs one trial at a time", resources.pack);
            return Err(Failure::new(Exit::Config, message)
                .hint("set slurm.pack to 1")
                .hint("or take over the lanes of the template that is compiled in; see docs/guide/slurm.md"));
        }
        fill_template(
            &name,
            &text,
            context! {
                job_name => job_name(job),
                array => plan.indices(), folder,
                throttle => resources.throttle,
                nodes => resources.nodes,
                ranks => resources.ranks,
                ranks_per_node => resources.ranks_per_node(),
                cpus_per_rank => resources.cpus_per_rank,
                memory_mib => resources.memory_per_node_mib(),
                pack => resources.pack,
                shares_gpus => resources.shares_gpus(),
                task_ranks => resources.task_ranks(),
                task_memory_mib => resources.task_memory_per_node_mib(),
                task_gres => resources.task_gres(),
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
                container => container.map(ContainerCommand::into_value),
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

    /// The script that builds the data that the trials of the job lack.
    pub fn build(self) -> Result<String, Failure> {
        self.step("build")
    }

    /// The script that gives every trial an outcome and writes the note, once nothing of the job runs.
    pub fn note(self) -> Result<String, Failure> {
        self.step("note")
    }

    /// The script of one process that runs where the job's first trial would, with the CPUs and the memory of that
    /// trial.
    fn step(self, step: &str) -> Result<String, Failure> {
        let Self { project, job, programs, profile } = self;
        let Some(plan) = plan_arrays(job, &[0], Limits::default(), &|_, resources| resources).pop() else {
            return Err(Failure::internal("the job has no trials"));
        };
        let resources = plan.resources;
        let folder = format!("{}/{}", path_text(project.runs())?, job.job);
        fill_template(
            "slurm/step.sh.j2",
            STEP_TEMPLATE,
            context! {
                step,
                job_name => format!("{} {step}", job_name(job)),
                cpus => resources.cpus_per_rank * resources.ranks_per_node(),
                memory_mib => resources.memory_per_node_mib(),
                // The time to build data does not depend on that of a trial.
                time_min => if step == "note" { resources.time_min } else { 0 },
                extra => &profile.extra,
                partition => &resources.partition,
                account => &resources.account,
                qos => &resources.qos,
                constraint => &resources.constraint,
                modules => &profile.modules,
                environment => &profile.environment,
                setup => &profile.setup,
                scratch => &profile.scratch,
                expctl => path_text(&programs.expctl)?,
                root => path_text(project.root())?,
                runs => path_text(project.runs())?,
                data => path_text(project.data())?,
                job => job.job,
                log => format!("{}/{step}.log", folder.replace('%', "%%")),
            },
        )
    }
}

/// The cluster profile of a job.
pub fn profile_of(project: &Project, job: &JobRecord) -> Result<ClusterProfile, Failure> {
    match job.trials.first().map_or("", |trial| trial.settings.slurm.profile.as_str()) {
        "" => Ok(ClusterProfile::default()),
        name => Ok(expctl_config::profile(project, name)?),
    }
}

/// How the template starts a rank in a container: by a command before the rank's own, or by options of srun.
///
/// Invariant: what a rank reads and writes has the same path inside as outside.
#[derive(Debug)]
struct ContainerCommand {
    runtime: String,
    nv: bool,
    binds: Vec<String>,
    image: String,
    /// The variable from which the runtime sets `LD_LIBRARY_PATH` inside; none for Pyxis.
    library_variable: Option<&'static str>,
    /// Options of srun; empty unless the runtime is Pyxis.
    srun_options: Vec<String>,
}

impl ContainerCommand {
    /// The value that the template sees.
    fn into_value(self) -> minijinja::Value {
        let Self { runtime, nv, binds, image, library_variable, srun_options } = self;
        minijinja::context! { runtime, nv, binds, image, library_variable, srun_options }
    }

    /// The command for `image`; `None` if that is empty.
    ///
    /// # Errors
    /// Exit 3 if the image is no path; exit 2 if the path of a folder cannot be bound.
    fn new(image: &str, scripts: JobScripts<'_>) -> Result<Option<Self>, Failure> {
        if image.is_empty() {
            return Ok(None);
        }
        if image.starts_with('-') || image.contains(char::is_control) {
            return Err(Failure::new(Exit::Config, format!("{image:?} cannot be a container image"))
                .hint("set slurm.image to the path of one, or to a name that the runtime knows"));
        }
        let Container { runtime, mut binds, nv } = scripts.profile.container.clone().unwrap_or_default();
        let is_pyxis = runtime == PYXIS;
        if is_pyxis && is_file_that_pyxis_takes_for_a_name(image) {
            return Err(Failure::new(
                Exit::Config,
                format!("Pyxis takes {image:?} for the name of an image of Docker"),
            )
            .hint(format!("a file begins with / or ./: slurm.image = \"./{image}\"")));
        }
        let library_variable = match runtime.as_str() {
            "apptainer" => Some("APPTAINERENV_LD_LIBRARY_PATH"),
            "singularity" => Some("SINGULARITYENV_LD_LIBRARY_PATH"),
            _ => None,
        };
        let scratch = scripts.profile.scratch.iter().map(PathBuf::from);
        for folder in scratch.chain(container_folders(scripts)) {
            let text = path_text(&folder)?;
            if text.contains([',', ':']) {
                return Err(Failure::new(Exit::Usage, format!("a container cannot be shown a folder named {text:?}"))
                    .hint("`,` and `:` have a meaning there; move the folder, or link to it"));
            }
            if is_pyxis && !is_mount_of_pyxis(text) {
                return Err(Failure::new(Exit::Usage, format!("Pyxis cannot show a folder named {text:?}")).hint(
                    "spaces, `\"`, `$`, `\\` and backticks have a meaning there; move the folder, or link to it",
                ));
            }
            if !binds.iter().any(|bind| bind == text) {
                binds.push(text.to_owned());
            }
        }
        let srun_options = if is_pyxis { pyxis_options(image, &binds, scripts) } else { Vec::new() };
        Ok(Some(Self { runtime, nv, binds, image: image.to_owned(), library_variable, srun_options }))
    }
}

/// Whether an image is meant to be a file of enroot, and Pyxis would ask a registry for it: a path begins with `/` or `.` there.
fn is_file_that_pyxis_takes_for_a_name(image: &str) -> bool {
    let ending = Path::new(image).extension();
    !image.starts_with(['/', '.']) && ending.is_some_and(|ending| ending == "sqsh" || ending == "squashfs")
}

/// Options of srun with [Pyxis](https://github.com/NVIDIA/pyxis): the image, the folders at the same paths inside, and the variables that the
/// script sets, which else would be the image's where it has them.
fn pyxis_options(image: &str, binds: &[String], scripts: JobScripts<'_>) -> Vec<String> {
    let mount = |bind: &String| if bind.contains(':') { bind.clone() } else { format!("{bind}:{bind}") };
    let mounts: Vec<String> = binds.iter().map(mount).collect();
    let mut options = vec![format!("--container-image={image}")];
    if !mounts.is_empty() {
        options.push(format!("--container-mounts={}", mounts.join(",")));
    }
    let mut variables: Vec<&str> = scripts.profile.environment.iter().map(|(name, _)| name.as_str()).collect();
    if scripts.programs.library_path.is_some() && !variables.contains(&"LD_LIBRARY_PATH") {
        variables.push("LD_LIBRARY_PATH");
    }
    if !variables.is_empty() {
        options.push(format!("--container-env={}", variables.join(",")));
    }
    options
}

/// Folders that a rank needs: those of its program, of libtorch, of the ledger and of the data.
fn container_folders(scripts: JobScripts<'_>) -> Vec<PathBuf> {
    let JobScripts { project, job, programs, .. } = scripts;
    let mut folders: Vec<PathBuf> = programs.worker.parent().map(Path::to_owned).into_iter().collect();
    folders.extend(libtorch_folder(&programs.worker));
    if job.trials.iter().any(|trial| trial.settings.runs_command()) {
        // The program runs in the project's folder, supervised by the launcher's own program.
        folders.push(project.root().to_owned());
        folders.extend(programs.expctl.parent().map(Path::to_owned));
    }
    folders.push(project.runs().to_owned());
    let data: BTreeSet<PathBuf> = job.trials.iter().flat_map(data_folders).collect();
    folders.extend(data);
    folders
}

/// Folders that a trial reads its data from: that of its data set, or those of its own files.
fn data_folders(trial: &Trial) -> Vec<PathBuf> {
    match trial.settings.array.files.as_slice() {
        [] if trial.settings.data.set == NO_DATA_SET => Vec::new(),
        [] => vec![trial.data_dir.clone()],
        own => {
            let local = own.iter().filter(|file| !is_url(file));
            local.filter_map(|file| Some(Path::new(file).parent()?.to_owned())).collect()
        }
    }
}

/// Text of a path for a script.
fn path_text(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| Failure::new(Exit::Usage, format!("the path {} is not valid UTF-8", path.display())))
}

/// Fill in the template of a script.
fn fill_template(name: &str, text: &str, values: minijinja::Value) -> Result<String, Failure> {
    environment().render_named_str(name, text, values).map_err(|e| match e.kind() {
        ErrorKind::InvalidOperation => Failure::new(
            Exit::Config,
            format!("the batch script cannot be written: {}", e.detail().unwrap_or_default()),
        ),
        // A user may have written the template.
        _ => Failure::new(Exit::Config, format!("the batch template {name} cannot be filled in: {e}")),
    })
}

/// The name that the queue shows: that of the config. Slurm keeps any printable character.
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

/// A line with only a `{% … %}` leaves no line in the script.
fn whole_line_blocks() -> SyntaxConfig {
    #[expect(clippy::expect_used, reason = "only contradictory delimiters can fail, and these are the standard ones")]
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()
        .expect("the standard delimiters do not contradict each other")
}

/// A value as a word of the shell.
fn shell(value: &str) -> Result<String, minijinja::Error> {
    shlex::try_quote(value)
        .map(std::borrow::Cow::into_owned)
        .map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, format!("{value:?}: {e}")))
}

/// A value in an `#SBATCH` line, which has quoting rules of its own: inside double quotes a backslash protects a quote
/// or a backslash, and nothing else has a meaning. A line break cannot be written.
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

    #[test]
    fn the_projects_own_template_wins_unless_it_is_the_shipped_one() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::find(Some(folder.path()), None).unwrap();
        let path = folder.path().join("slurm/batch.sh.j2");
        let write = |text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
        };
        write(SHIPPED_TEMPLATE);
        assert_ne!(batch_template(&project).unwrap().0, path.display().to_string());
        let own = format!("{SHIPPED_TEMPLATE}# ours\n");
        write(&own);
        assert_eq!(batch_template(&project).unwrap(), (path.display().to_string(), own));
    }

    #[test]
    fn a_template_without_results_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let project = Project::find(Some(folder.path()), None).unwrap();
        std::fs::create_dir(folder.path().join("slurm")).unwrap();
        let text = "#!/bin/bash\n# conclude\nattempt=$(expctl stage-attempt x 0)\nsrun worker\n";
        std::fs::write(folder.path().join("slurm/batch.sh.j2"), text).unwrap();
        let failure = batch_template(&project).unwrap_err();
        assert_eq!(failure.exit, Exit::Config);
        assert!(failure.message.ends_with("batch.sh.j2 lacks conclude"), "{failure}");
    }
}
