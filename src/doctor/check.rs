use serde::Serialize;

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// As it should be.
    Ok,
    /// Jobs may run, but look at it.
    Warning,
    /// Jobs cannot run.
    Problem,
}

impl State {
    /// The word in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub check: String,
    /// How it came out.
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do; empty if nothing.
    pub todo: String,
    /// Whether it is about the cluster.
    #[serde(skip)]
    pub cluster: bool,
}

impl Check {
    /// All is well.
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), state: State::Ok, found: found.into(), todo: String::new(), cluster: false }
    }

    /// Something to look at.
    pub fn warning(check: &str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { state: State::Warning, todo: todo.into(), ..Self::ok(check, found) }
    }

    /// Something that stands in the way.
    pub fn problem(check: &str, found: impl Into<String>, todo: impl Into<String>) -> Self {
        Self { state: State::Problem, ..Self::warning(check, found, todo) }
    }
}
