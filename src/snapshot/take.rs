//! [`take`]: copies the code of a project into the store, and lists it.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use expctl_ledger::{CodeSnapshot, LiveReason, SnapshotContent, SnapshotEntry, SnapshotPath};
use expctl_text::format::{bytes, count};

use super::code_files::{code_files, is_made_by_python};
use super::error::SnapshotError;
use super::file_index::{FileIndex, FileState};
use super::store::Store;
use crate::project::Project;
use crate::provenance::Secrets;

/// Maximum number of files: a folder with more holds data.
const MAX_FILES: usize = 50_000;
/// Maximum number of links to what is not copied.
const MAX_LINKS: usize = 10_000;
/// Files that a warning names.
const MAX_NAMED: usize = 5;

/// How much of the code of a job is copied.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotLimits {
    /// Largest file, bytes.
    pub max_file_bytes: u64,
    /// All files, bytes.
    pub max_total_bytes: u64,
}

/// A snapshot whose files are in the store.
#[derive(Clone, Debug)]
pub struct TakenSnapshot {
    /// The snapshot.
    pub snapshot: CodeSnapshot,
    /// Files and folders that programs will not find: there are too many links.
    pub not_linked: usize,
}

/// Put the code of a project into the store of its ledger.
///
/// # Errors
/// The project cannot be listed, or the ledger cannot be written.
pub fn take(project: &Project, limits: SnapshotLimits) -> Result<TakenSnapshot, SnapshotError> {
    let root = project.root();
    let store = Store::of_user(project.runs());
    store.create()?;
    let index = FileIndex::load(store.path(), root);
    let secrets = Secrets::from_environment();
    let found = parallel_map::map(&code_files(project)?, |path| look(root, path, limits));
    let mut entries = Vec::new();
    let mut files = Vec::new();
    for found in found.into_iter().flatten() {
        match found {
            Found::File(file) => files.push(file),
            Found::Entry(entry) => entries.push(entry),
        }
    }
    let (files, over) = within(files, limits.max_total_bytes);
    entries.extend(over.into_iter().map(|file| live(file.path, LiveReason::OverTotal, Some(file.size))));
    let read = parallel_map::map(&files, |file| copy(root, file, &store, &index, &secrets));
    let mut known = Vec::new();
    for (copied, file) in read.into_iter().zip(&files) {
        let Some((entry, is_unchanged)) = copied? else { continue };
        if let SnapshotContent::File { hash, .. } = &entry.content
            && is_unchanged
        {
            known.push((entry.path.encoded(), file.state, hash.clone()));
        }
        entries.push(entry);
    }
    let code = CodeSnapshot::new(store.name(), root.to_owned(), entries);
    let (links, not_linked) = beside(root, &code);
    let entries = code.entries.into_iter().chain(links).collect();
    let snapshot = CodeSnapshot::new(store.name(), root.to_owned(), entries);
    index.save(known.into_iter());
    Ok(TakenSnapshot { snapshot, not_linked })
}

impl TakenSnapshot {
    /// What the user should know of files that belong to the code and are not copied.
    pub fn warnings(&self) -> Vec<String> {
        let live = self.snapshot.entries.iter().filter_map(|entry| match entry.content {
            SnapshotContent::Live { reason, size } if reason != LiveReason::Ignored => {
                Some((&entry.path, reason, size))
            }
            _ => None,
        });
        let named: Vec<String> = live
            .map(|(path, reason, size)| {
                let size = size.map(|size| format!(", {}", bytes(size as f64))).unwrap_or_default();
                format!("{} ({}{size})", path.0.display().to_string().escape_debug(), reason.words())
            })
            .collect();
        let mut warnings = Vec::new();
        if !named.is_empty() {
            let more = named.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(", and {} more", count(more as u64, "file")) } else { String::new() };
            let shown = named.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
            warnings.push(format!(
                "warning: not in the snapshot of the code: {shown}{more}; programs find them as they are when they run"
            ));
        }
        if self.not_linked > 0 {
            let what = count(self.not_linked as u64, "file");
            warnings.push(format!(
                "warning: {what} beside the code will not be found by relative paths: keep data in folders of their own, or submit with --live"
            ));
        }
        warnings
    }
}

/// A file that is to be copied.
struct CodeFile {
    path: PathBuf,
    state: FileState,
    size: u64,
    mode: u32,
}

/// What is at the path of a file of the code.
enum Found {
    /// A file to copy.
    File(CodeFile),
    /// A link, or a file that stays where it is.
    Entry(SnapshotEntry),
}

fn live(path: PathBuf, reason: LiveReason, size: Option<u64>) -> SnapshotEntry {
    SnapshotEntry { path: SnapshotPath(path), content: SnapshotContent::Live { reason, size } }
}

/// `None`: it has gone meanwhile, or is a pipe or the like.
fn look(root: &Path, path: &Path, limits: SnapshotLimits) -> Option<Found> {
    let whole = root.join(path);
    let meta = std::fs::symlink_metadata(&whole).ok()?;
    if meta.is_symlink() {
        let target = std::fs::read_link(&whole).ok()?;
        if leads_out(path, &target) {
            return Some(Found::Entry(live(path.to_owned(), LiveReason::LeadsOut, None)));
        }
        let content = SnapshotContent::Link { target: SnapshotPath(target) };
        return Some(Found::Entry(SnapshotEntry { path: SnapshotPath(path.to_owned()), content }));
    }
    if !meta.is_file() {
        return None;
    }
    let stays = |reason| Some(Found::Entry(live(path.to_owned(), reason, Some(meta.len()))));
    if is_secret_name(path) {
        return stays(LiveReason::Secret);
    }
    if meta.len() > limits.max_file_bytes {
        return stays(LiveReason::TooLarge);
    }
    let mode = if meta.permissions().mode() & 0o111 == 0 { 0o644 } else { 0o755 };
    Some(Found::File(CodeFile { path: path.to_owned(), state: FileState::of(&meta), size: meta.len(), mode }))
}

/// Whether a relative link at `path` names something outside the project: from the copy it would lead elsewhere.
fn leads_out(path: &Path, target: &Path) -> bool {
    if target.is_absolute() {
        return false;
    }
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
            Component::Normal(_) => depth += 1,
            _ => {}
        }
    }
    false
}

/// Whether files of this name hold secrets and nothing else.
fn is_secret_name(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let ends = [".env", ".pem", ".p12", ".pfx", ".kdbx"];
    let names = [".netrc", ".pypirc", ".pgpass", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "credentials.json"];
    name.starts_with(".env.") || names.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}

/// The files that fit, and the others: the smallest files fit first, because code is small.
fn within(mut files: Vec<CodeFile>, max_bytes: u64) -> (Vec<CodeFile>, Vec<CodeFile>) {
    files.sort_by(|a, b| (a.size, &a.path).cmp(&(b.size, &b.path)));
    let mut total = 0u64;
    let fit = files.iter().take(MAX_FILES).take_while(|file| {
        total = total.saturating_add(file.size);
        total <= max_bytes
    });
    let fit = fit.count();
    let over = files.split_off(fit);
    (files, over)
}

/// The entry of a file, which is in the store then, and whether the file did not change meanwhile. `None`: it has gone.
fn copy(
    root: &Path,
    file: &CodeFile,
    store: &Store,
    index: &FileIndex,
    secrets: &Secrets,
) -> Result<Option<(SnapshotEntry, bool)>, SnapshotError> {
    let path = SnapshotPath(file.path.clone());
    let entry =
        |path, size, hash| SnapshotEntry { path, content: SnapshotContent::File { mode: file.mode, size, hash } };
    if let Some(hash) = index.hash(&path.encoded(), file.state)
        && store.has(hash, file.size)
    {
        return Ok(Some((entry(path, file.size, hash.to_owned()), true)));
    }
    let whole = root.join(&file.path);
    let content = match std::fs::read(&whole) {
        Ok(content) => content,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Ok(Some((live(file.path.clone(), LiveReason::Unreadable, Some(file.size)), false))),
    };
    if secrets.are_in(&content) {
        return Ok(Some((live(file.path.clone(), LiveReason::Secret, Some(file.size)), false)));
    }
    let hash = store.insert(&content)?;
    let is_unchanged = std::fs::symlink_metadata(&whole).is_ok_and(|meta| FileState::of(&meta) == file.state);
    Ok(Some((entry(path, content.len() as u64, hash), is_unchanged)))
}

/// What lies in the folders of the code and is not in the snapshot: data, environments, results. Programs find it through links. Second: what
/// has no link.
fn beside(root: &Path, code: &CodeSnapshot) -> (Vec<SnapshotEntry>, usize) {
    let folders = code.folders();
    let known: BTreeSet<&Path> = code.entries.iter().map(|entry| entry.path.as_ref()).collect();
    let (mut links, mut not_linked) = (Vec::new(), 0);
    for folder in &folders {
        // One that is gone by now has nothing beside its files.
        for entry in std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            let is_copied = folders.contains(&path) || known.contains(path.as_path());
            if is_copied || is_made_by_python(&path) || entry.file_name() == ".git" {
                continue;
            }
            if links.len() < MAX_LINKS {
                links.push(live(path, LiveReason::Ignored, None));
            } else {
                not_linked += 1;
            }
        }
    }
    (links, not_linked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_out_where_it_climbs_above_the_project() {
        let leads_out = |path: &str, target: &str| leads_out(Path::new(path), Path::new(target));
        for (path, target, out) in [
            ("a", "b", false),
            ("a", "../b", true),
            ("x/a", "../b", false),
            ("x/a", "../../b", true),
            ("x/a", "../y/../../b", true),
            ("x/a", "./y/../b", false),
            ("a", "/data", false),
        ] {
            assert_eq!(leads_out(path, target), out, "{path} → {target}");
        }
    }

    #[test]
    fn files_of_secrets_are_known_by_their_names() {
        let is_secret = |name: &str| is_secret_name(&Path::new("x").join(name));
        for name in [".env", "local.env", ".env.production", "key.pem", "id_rsa", ".netrc"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["token.py", "tokenizer.json", "environment.yml", "env.py", "id_rsa.pub", "credentials.py"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn small_files_fit_first() {
        let meta = std::fs::metadata("/").unwrap();
        let file = |name: &str, size| CodeFile { path: name.into(), state: FileState::of(&meta), size, mode: 0o644 };
        let (fit, over) = within(vec![file("big", 90), file("b", 5), file("a", 5), file("mid", 20)], 30);
        let names = |files: &[CodeFile]| files.iter().map(|file| file.path.display().to_string()).collect::<Vec<_>>();
        assert_eq!((names(&fit), names(&over)), (vec!["a".into(), "b".into(), "mid".into()], vec!["big".to_string()]));
    }
}
