//! The template of the batch script: the project's own, the user's own, or the one compiled in, the first one wins.

use std::path::PathBuf;

use crate::exit::{Exit, Failure};
use crate::project::Project;

/// The template that is compiled in.
pub const SHIPPED_TEMPLATE: &str = include_str!("../../slurm/batch.sh.j2");

/// Words that every script needs: without one of them a job leaves no results.
const NEEDED: [&str; 3] = ["stage-attempt", "srun", "conclude"];

/// The template in use, name and text. The name is a path, or `slurm/batch.sh.j2, compiled in`.
///
/// # Errors
/// Exit 3 if the file that is in use cannot be read, or lacks what a job needs to leave results.
pub fn batch_template(project: &Project) -> Result<(String, String), Failure> {
    for path in places(project) {
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            // The one in this program's own repository is no one's wish.
            Ok(text) if text == SHIPPED_TEMPLATE => continue,
            Ok(text) => text,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => continue,
            Err(e) => return Err(Failure::new(Exit::Config, format!("cannot read the batch template {name}: {e}"))),
        };
        // Comments do not count.
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let lacking: Vec<&str> =
            NEEDED.into_iter().filter(|word| !lines.iter().any(|line| line.contains(word))).collect();
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

fn places(project: &Project) -> Vec<PathBuf> {
    let own = project.root().join("slurm").join("batch.sh.j2");
    std::iter::once(own).chain(project.config_home().map(|home| home.join("batch.sh.j2"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
