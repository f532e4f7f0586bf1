//! The jobs before and after the trials of a job: one builds the data, one writes the note.

use expctl_record::JobRecord;
use minijinja::context;

use super::parts::{Limits, parts};
use super::path_text;
use super::script::template;
use super::tools::Programs;
use crate::conf::Profile;
use crate::data_state::{DataState, data_states};
use crate::exit::Failure;
use crate::project::Project;

const TEMPLATE: &str = include_str!("../../../slurm/step.sh.j2");

/// The script that builds what data the trials of `job` still lack; none if they lack none.
pub(super) fn build_script(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    profile: &Profile,
) -> Result<Option<String>, Failure> {
    // What is refused fails in the building job: `submit` has looked before, so it has become so since.
    if data_states(project, &job.trials).values().all(|state| matches!(state, DataState::There(()))) {
        return Ok(None);
    }
    fill(project, job, programs, profile, "build").map(Some)
}

/// The script that gives every trial an outcome and writes the note, once nothing of the job runs any more.
pub(super) fn note_script(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    profile: &Profile,
) -> Result<String, Failure> {
    fill(project, job, programs, profile, "note")
}

/// One process, where the job's first trial would run, with the processors and the memory of that trial.
fn fill(
    project: &Project,
    job: &JobRecord,
    programs: &Programs,
    profile: &Profile,
    step: &str,
) -> Result<String, Failure> {
    let Some(part) = parts(job, &[0], Limits::default(), &|_, resources| resources).pop() else {
        return Err(Failure::internal("the job has no trials"));
    };
    let resources = part.resources;
    let folder = format!("{}/{}", path_text(project.runs())?, job.job);
    template(
        "slurm/step.sh.j2",
        TEMPLATE,
        context! {
            step,
            job_name => format!("{} {step}", super::script::job_name(job)),
            cpus => resources.cpus_per_rank * resources.ranks_per_node(),
            memory_mib => resources.memory_per_node_mib(),
            // How long data take to build has nothing to do with how long a trial runs.
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
