//! `[ssh]` of a cluster profile, and `[ssh.NAME]` of a user's defaults: how a machine outside gets to a cluster.
//!
//! Invariant: the host cannot pass for an option of the program `ssh`.

use expctl_settings::ValueType;
use serde_json::Value as Json;

use crate::layer::{accept, table_of, text_of};
use crate::node::Node;
use crate::problem::Problem;
use crate::user::unknown_key;

const KEYS: [&str; 4] = ["host", "folder", "expctl", "setup"];

/// How to get to a cluster with the program `ssh`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshSettings {
    /// What `ssh` takes: a name of `~/.ssh/config`, or `user@host`.
    pub host: String,
    /// Folder of the project there, absolute or relative to the home folder there; none is named after the project.
    pub folder: Option<String>,
    /// The program `expctl` there: a name in `PATH`, or a path.
    pub expctl: String,
    /// Lines of the login shell there, run before.
    pub setup: Vec<String>,
}

impl SshSettings {
    /// Read the table `name`. `None`: it does not say which host, which is a problem.
    pub(crate) fn read(name: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let (mut host, mut folder, mut expctl, mut setup) = (None, None, None, Vec::new());
        for (key, node) in table_of(&format!("`{name}`"), node, problems).into_iter().flatten() {
            let what = format!("`{name}.{}`", key.name);
            match key.name.as_str() {
                "host" => host = text_of(&what, node, problems).filter(|text| is_host(text, &what, node, problems)),
                "folder" => folder = text_of(&what, node, problems).filter(|text| is_line(text, &what, node, problems)),
                "expctl" => expctl = text_of(&what, node, problems).filter(|text| is_line(text, &what, node, problems)),
                "setup" => match accept(&ValueType::TextList, &format!("{name}.setup"), node) {
                    Ok(list) => {
                        let lines = list.as_array().into_iter().flatten().filter_map(Json::as_str);
                        setup = lines.map(str::to_owned).collect();
                    }
                    Err(problem) => problems.push(*problem),
                },
                unknown => problems.push(unknown_key(unknown, key, &KEYS)),
            }
        }
        let Some(host) = host else {
            // What is wrong with it was said already.
            if problems.len() == before {
                let problem = Problem::new(node.at, format!("`{name}` names no host"), "`host` is missing");
                problems.push(problem.help("for example host = \"you@login.example.org\", or a name of ~/.ssh/config"));
            }
            return None;
        };
        Some(Self { host, folder, expctl: expctl.unwrap_or_else(|| "expctl".to_owned()), setup })
    }
}

fn is_host(text: &str, what: &str, node: &Node, problems: &mut Vec<Problem>) -> bool {
    let is_one =
        !text.is_empty() && !text.starts_with('-') && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    if !is_one {
        let problem = Problem::new(node.at, format!("{what} cannot be {text:?}"), "no host");
        problems.push(problem.help("a name of ~/.ssh/config, or user@host; ports and keys belong into ~/.ssh/config"));
    }
    is_one
}

fn is_line(text: &str, what: &str, node: &Node, problems: &mut Vec<Problem>) -> bool {
    let is_one = !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_control);
    if !is_one {
        problems.push(Problem::new(
            node.at,
            format!("{what} cannot be {text:?}"),
            "empty, an option, or several lines",
        ));
    }
    is_one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Reader;

    fn read(text: &str) -> (Option<SshSettings>, Vec<String>) {
        let mut reader = Reader::new();
        let tree = reader.text("profile.toml", text).unwrap();
        let (_, node) = tree.first().unwrap();
        let settings = SshSettings::read("ssh", node, &mut reader.problems);
        (settings, reader.problems.iter().map(|problem| problem.message.clone()).collect())
    }

    #[test]
    fn a_host_is_enough() {
        let (settings, problems) = read("[ssh]\nhost = \"me@delta\"\n");
        assert!(problems.is_empty(), "{problems:?}");
        let settings = settings.unwrap();
        assert_eq!((settings.host.as_str(), settings.expctl.as_str()), ("me@delta", "expctl"));
        assert!(settings.folder.is_none() && settings.setup.is_empty());
    }

    #[test]
    fn a_host_that_ssh_would_take_for_something_else_is_refused() {
        for host in ["-oProxyCommand=x", "a b", "", "a\\nb"] {
            let (settings, problems) = read(&format!("[ssh]\nhost = \"{host}\"\n"));
            assert!(settings.is_none() && problems.len() == 1, "{host}: {problems:?}");
        }
        assert_eq!(read("[ssh]\nsetup = []\n").1.len(), 1);
        assert_eq!(read("[ssh]\nhost = \"a\"\nport = 22\n").1.len(), 1);
    }
}
