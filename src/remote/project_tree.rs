//! [`ProjectTree`]: the code of a project as it travels to a cluster: what a snapshot has, and no content that the cluster has already.

use std::collections::BTreeMap;
use std::path::PathBuf;

use expctl_config::SnapshotSettings;
use expctl_ledger::{CodeSnapshot, LiveReason, SnapshotContent, SnapshotEntry, SnapshotPath};
use expctl_text::format::{bytes, count};

use super::error::RemoteError;
use super::host::Host;
use super::protocol::{HostReply, HostRequest};
use super::session::HostSession;
use super::transfer::{Transfer, Transferred};
use crate::exit::Failure;
use crate::project::Project;
use crate::snapshot::{SnapshotLimits, Store, take};

/// Files that a warning names.
const MAX_NAMED: usize = 5;

/// The code of a project, whose contents are in the store of its ledger here.
#[derive(Debug)]
pub struct ProjectTree {
    snapshot: CodeSnapshot,
    store: Store,
    /// Files of the code that stay here, with the reason.
    stays: Vec<String>,
}

impl ProjectTree {
    /// The code of `project` as it is now. The profile of `host` goes along if it is the user's: it is not there.
    ///
    /// # Errors
    /// Exit 3 if settings are wrong; exit 6 if the project cannot be read or the ledger not be written.
    pub fn take(project: &Project, host: &Host) -> Result<Self, Failure> {
        let settings = SnapshotSettings::load(project)?;
        let limits =
            SnapshotLimits { max_file_bytes: settings.max_file_bytes(), max_total_bytes: settings.max_total_bytes() };
        let taken = take(project, limits)?.snapshot;
        let store = Store::named(project.runs(), &taken.store);
        let stays = taken.entries.iter().filter_map(stays_here).collect();
        let mut entries: Vec<SnapshotEntry> = taken.copied().cloned().collect();
        if let Some((path, text)) = user_profile(project, host)
            && !entries.iter().any(|entry| entry.path.0 == path)
        {
            let content = SnapshotContent::File { mode: 0o644, size: text.len() as u64, hash: store.insert(&text)? };
            entries.push(SnapshotEntry { path: SnapshotPath(path), content });
        }
        let snapshot = CodeSnapshot::new(taken.store, project.root().to_owned(), entries);
        Ok(Self { snapshot, store, stays })
    }

    /// Its hash, which names its folder there.
    pub fn hash(&self) -> &str {
        &self.snapshot.hash
    }

    /// Whether it has a file.
    pub fn has(&self, path: &std::path::Path) -> bool {
        self.snapshot.entries.iter().any(|entry| entry.path.0 == path)
    }

    /// What the user should know of files that do not travel.
    pub fn warning(&self) -> Option<String> {
        if self.stays.is_empty() {
            return None;
        }
        let more = self.stays.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(", and {} more", count(more as u64, "file")) } else { String::new() };
        let shown = self.stays.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
        Some(format!("warning: stays here, so programs there do not find it: {shown}{more}"))
    }

    /// Send it, and have its folder made there; returns the contents that were not there yet.
    ///
    /// # Errors
    /// The connection was lost, or the disk there is full.
    pub fn send(&self, session: &mut HostSession) -> Result<Transferred, RemoteError> {
        let request = HostRequest::Lacks { entries: self.snapshot.entries.clone() };
        let HostReply::Lacks { hashes } = session.ask(&request)? else { return Err(session.other_answer()) };
        let sizes = self.sizes();
        let asked: Option<Vec<u64>> = hashes.iter().map(|hash| sizes.get(hash.as_str()).copied()).collect();
        // The other side gets no other content of the store.
        let Some(asked) = asked else { return Err(session.other_answer()) };
        let mut transfer = Transfer::new(format!("sending to {}", session.host()));
        transfer.expect(asked.len() as u64, asked.iter().sum());
        for hash in hashes {
            // One that is damaged here is written again by the same command.
            let content = self.store.read(&hash).inspect_err(|_| self.store.remove_damaged(&hash))?;
            let size = content.len() as u64;
            session.send(&HostRequest::Content { hash, size }, &content)?;
            transfer.add_bytes(size);
            transfer.add_file();
        }
        let HostReply::Tree { .. } = session.ask(&HostRequest::Unpack)? else { return Err(session.other_answer()) };
        Ok(transfer.end())
    }

    /// Lengths of its contents, by hash.
    fn sizes(&self) -> BTreeMap<&str, u64> {
        let contents = self.snapshot.entries.iter().map(|entry| &entry.content);
        let sizes = contents.filter_map(|content| match content {
            SnapshotContent::File { hash, size, .. } => Some((hash.as_str(), *size)),
            _ => None,
        });
        sizes.collect()
    }
}

/// The words for a file of the code that is not copied.
fn stays_here(entry: &SnapshotEntry) -> Option<String> {
    match entry.content {
        SnapshotContent::Live { reason, size } if reason != LiveReason::Ignored => {
            let size = size.map(|size| format!(", {}", bytes(size as f64))).unwrap_or_default();
            let path = entry.path.0.display().to_string();
            Some(format!("{} ({}{size})", path.escape_debug(), reason.words()))
        }
        _ => None,
    }
}

/// The profile of a host that is in the user's folder: the path in a project where it is found, and its text.
fn user_profile(project: &Project, host: &Host) -> Option<(PathBuf, Vec<u8>)> {
    let file = format!("{}.toml", host.profile()?);
    let text = std::fs::read(project.config_home()?.join("profiles").join(&file)).ok()?;
    Some((PathBuf::from("slurm").join("profiles").join(file), text))
}
