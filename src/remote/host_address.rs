//! [`HostAddress`]: which machine, and which folder there, the records of a host here are of.
//!
//! Invariant: records and submissions of two machines, or of two folders, never get into one folder here: both may have a job 1.

use std::fmt;
use std::path::Path;

use expctl_ledger::write_json;
use serde::{Deserialize, Serialize};

use super::error::RemoteError;
use super::once_submission::read_json;

/// File in the folder of a host here.
const ADDRESS_FILE: &str = "where.json";

/// A folder on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// What `ssh` takes.
    pub host: String,
    /// The folder of the project there.
    pub folder: String,
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.folder)
    }
}

impl HostAddress {
    /// Refuse a folder here with records of another machine, or of another folder there. `name` is the host's here.
    ///
    /// # Errors
    /// It has such records, or cannot be read.
    pub fn check(&self, name: &str, folder: &Path) -> Result<(), RemoteError> {
        match read_json::<Self>(&folder.join(ADDRESS_FILE))? {
            Some(known) if known != *self => Err(RemoteError::OtherAddress {
                host: name.to_owned(),
                folder: folder.to_owned(),
                known: known.to_string(),
                given: self.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// The same; a folder that is of no machine yet is of this one from now on.
    ///
    /// # Errors
    /// As [`HostAddress::check`], or it cannot be written.
    pub fn claim(&self, name: &str, folder: &Path) -> Result<(), RemoteError> {
        self.check(name, folder)?;
        let path = folder.join(ADDRESS_FILE);
        if !path.exists() {
            write_json(&path, self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_of_one_machine_and_one_folder_there() {
        let here = tempfile::tempdir().unwrap();
        let folder = here.path().join("delta");
        let address = |host: &str, folder: &str| HostAddress { host: host.to_owned(), folder: folder.to_owned() };
        let first = address("me@delta", "expctl/p");
        // A name that leads nowhere yet claims nothing.
        address("me@dleta", "expctl/p").check("delta", &folder).unwrap();
        first.claim("delta", &folder).unwrap();
        first.claim("delta", &folder).unwrap();
        for other in [address("me@mmli", "expctl/p"), address("me@delta", "expctl/q")] {
            let failure = crate::exit::Failure::from(other.claim("delta", &folder).unwrap_err());
            assert_eq!(failure.exit, crate::exit::Exit::Refused);
            assert!(failure.message.contains("me@delta:expctl/p") && !failure.hints.is_empty(), "{failure}");
        }
    }
}
