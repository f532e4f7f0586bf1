//! `snapshot.json` of a job: the files of the project as they were when it was submitted. Their contents are objects, named by their hashes,
//! which all jobs of a user share.
//!
//! Invariant: two snapshots with the same hash have the same files and links.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::layout::{known_schema, read_optional};
use crate::{JobDir, LedgerError, write_atomic};

/// Version of `snapshot.json`.
pub const SNAPSHOT_SCHEMA_VERSION: u32 = 1;

/// `snapshot.json`: the code of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeSnapshot {
    /// [`SNAPSHOT_SCHEMA_VERSION`].
    pub schema: u32,
    /// BLAKE3 over the paths, permissions and contents of its files, and the paths and targets of its links.
    pub hash: String,
    /// Folder of the objects, in the folder of all jobs.
    pub store: String,
    /// Folder of the project.
    pub project: SnapshotPath,
    /// Files, links and what stays in the project's folder, by path.
    pub entries: Vec<SnapshotEntry>,
}

/// One file, link or folder of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotEntry {
    /// Its path, relative to the project's folder.
    pub path: SnapshotPath,
    /// What it is.
    #[serde(flatten)]
    pub content: SnapshotContent,
}

/// What an entry of a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum SnapshotContent {
    /// A file whose content is an object.
    File {
        /// 644, or 755 if it may be run.
        #[serde(with = "octal")]
        mode: u32,
        /// Its length, bytes.
        size: u64,
        /// BLAKE3 of its content: the name of the object.
        hash: String,
    },
    /// A symbolic link.
    Link {
        /// What it names, as it stands in the link.
        target: SnapshotPath,
    },
    /// Not copied: the job's programs find the file or folder of the project, as it is then.
    Live {
        /// Why.
        reason: LiveReason,
        /// Length of a file that could have been copied, bytes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
    },
}

/// Why a file or folder was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveReason {
    /// It does not belong to the code: git or `.expctlignore` ignores it, or it is data, results or an environment.
    Ignored,
    /// It is larger than a file may be.
    TooLarge,
    /// With it, the snapshot would be larger than it may be.
    OverTotal,
    /// It holds a secret, or its name is that of a file of secrets.
    Secret,
    /// It cannot be read.
    Unreadable,
    /// It is a link out of the project.
    LeadsOut,
}

impl LiveReason {
    /// Words for a message.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Ignored => "ignored",
            Self::TooLarge => "too large",
            Self::OverTotal => "more than the snapshot may hold",
            Self::Secret => "looks like a secret",
            Self::Unreadable => "cannot be read",
            Self::LeadsOut => "leads out of the project",
        }
    }
}

/// A path as `snapshot.json` has it: bytes that are not UTF-8, and `%`, are `%` and two hexadecimal digits, as in a URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SnapshotPath(pub PathBuf);

impl SnapshotPath {
    /// The path as text.
    pub fn encoded(&self) -> String {
        let mut text = String::new();
        for chunk in self.0.as_os_str().as_bytes().utf8_chunks() {
            text.push_str(&chunk.valid().replace('%', "%25"));
            chunk.invalid().iter().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        }
        text
    }

    /// The path that a text stands for. `None`: a `%` without two digits.
    pub fn decoded(text: &str) -> Option<Self> {
        let mut bytes = Vec::with_capacity(text.len());
        let mut rest = text.as_bytes();
        while let Some((first, behind)) = rest.split_first() {
            if *first != b'%' {
                bytes.push(*first);
                rest = behind;
                continue;
            }
            let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
            // A sign is no digit.
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &behind[2..];
        }
        Some(Self(PathBuf::from(OsString::from_vec(bytes))))
    }
}

impl AsRef<Path> for SnapshotPath {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Serialize for SnapshotPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encoded())
    }
}

impl<'de> Deserialize<'de> for SnapshotPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::decoded(&text).ok_or_else(|| de::Error::custom(format!("{text:?} is no path of a snapshot")))
    }
}

/// Permissions as text, in base 8.
mod octal {
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{mode:o}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        u32::from_str_radix(&text, 8).map_err(|e| de::Error::custom(format!("mode {text:?}: {e}")))
    }
}

impl CodeSnapshot {
    /// A snapshot of these entries, which are sorted here.
    pub fn new(store: String, project: PathBuf, mut entries: Vec<SnapshotEntry>) -> Self {
        entries.sort_by(|a, b| a.path.0.as_os_str().as_bytes().cmp(b.path.0.as_os_str().as_bytes()));
        let (schema, hash) = (SNAPSHOT_SCHEMA_VERSION, hash_of(&entries));
        Self { schema, hash, store, project: SnapshotPath(project), entries }
    }

    /// `snapshot.json` of a job.
    pub fn path(job: &JobDir) -> PathBuf {
        job.path().join("snapshot.json")
    }

    /// Read it. `None`: the job runs from the project's folder, as it asked for or as an older expctl had it.
    ///
    /// # Errors
    /// The file cannot be read, or a newer expctl wrote it.
    pub fn read(job: &JobDir) -> Result<Option<Self>, LedgerError> {
        let path = Self::path(job);
        let read: Option<Self> = read_optional(&path)?;
        if let Some(snapshot) = &read {
            known_schema(&path, snapshot.schema, SNAPSHOT_SCHEMA_VERSION)?;
        }
        Ok(read)
    }

    /// Write it into the folder of a job, an entry a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, job: &JobDir) -> Result<(), LedgerError> {
        let path = Self::path(job);
        let Self { schema, hash, store, project, entries } = self;
        // Both are plain texts: numbers, letters and `-`.
        let mut text =
            format!("{{\"schema\": {schema},\n\"hash\": \"{hash}\",\n\"store\": \"{store}\",\n\"project\": ");
        text.push_str(&json_line(&path, project)?);
        text.push_str(",\n\"entries\": [");
        for (i, entry) in entries.iter().enumerate() {
            text.push_str(if i == 0 { "\n" } else { ",\n" });
            text.push_str(&json_line(&path, entry)?);
        }
        text.push_str("\n]}\n");
        write_atomic(&path, text.as_bytes())
    }

    /// Its files and links.
    pub fn copied(&self) -> impl Iterator<Item = &SnapshotEntry> {
        self.entries.iter().filter(|entry| !matches!(entry.content, SnapshotContent::Live { .. }))
    }

    /// Hashes of the contents of its files: one for each file.
    pub fn hashes(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter_map(|entry| match &entry.content {
            SnapshotContent::File { hash, .. } => Some(hash.as_str()),
            _ => None,
        })
    }

    /// Number of its files, and their bytes.
    pub fn size(&self) -> (usize, u64) {
        let sizes = self.entries.iter().filter_map(|entry| match &entry.content {
            SnapshotContent::File { size, .. } => Some(*size),
            _ => None,
        });
        sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size))
    }

    /// Folders that hold its files and links, relative to the project's folder, each behind the one that it lies in. The project's own
    /// folder is the empty path.
    pub fn folders(&self) -> BTreeSet<PathBuf> {
        let ancestors = self.copied().flat_map(|entry| entry.path.0.ancestors().skip(1).map(Path::to_owned));
        ancestors.chain([PathBuf::new()]).collect()
    }
}

/// A value of the file `path` as JSON without line breaks.
fn json_line<T: Serialize>(path: &Path, value: &T) -> Result<String, LedgerError> {
    serde_json::to_string(value).map_err(LedgerError::json(path))
}

/// Hash of what a program of the job sees as its code.
fn hash_of(entries: &[SnapshotEntry]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |path: &SnapshotPath, kind: &str, rest: &[u8]| {
        // Lengths in front, so that no two lists give the same bytes.
        for part in [path.0.as_os_str().as_bytes(), kind.as_bytes(), rest] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
    };
    for entry in entries {
        match &entry.content {
            SnapshotContent::File { mode, hash, .. } => add(&entry.path, &format!("file {mode:o}"), hash.as_bytes()),
            SnapshotContent::Link { target } => add(&entry.path, "link", target.0.as_os_str().as_bytes()),
            SnapshotContent::Live { .. } => {}
        }
    }
    hasher.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> SnapshotPath {
        SnapshotPath(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)))
    }

    fn entries() -> Vec<SnapshotEntry> {
        let file = |mode| SnapshotContent::File { mode, size: 3, hash: "ab".to_owned() };
        [
            (path(b"train.py"), file(0o644)),
            (path(b"a b\n\xff%/run"), file(0o755)),
            (path(b"latest"), SnapshotContent::Link { target: path(b"\xfe") }),
            (path(b"data"), SnapshotContent::Live { reason: LiveReason::Ignored, size: None }),
            (path(b"big"), SnapshotContent::Live { reason: LiveReason::TooLarge, size: Some(9) }),
        ]
        .map(|(path, content)| SnapshotEntry { path, content })
        .to_vec()
    }

    #[test]
    fn any_path_is_read_back_as_it_was_written() {
        for bytes in [&b"plain/x.py"[..], b"a\n%b", b"\xff\xfe%25", "gr\u{fc}n".as_bytes(), b"\"\\"] {
            let text = serde_json::to_string(&path(bytes)).unwrap();
            assert_eq!(serde_json::from_str::<SnapshotPath>(&text).unwrap(), path(bytes), "{text}");
        }
        assert_eq!(path(b"a\xff%").encoded(), "a%FF%25");
        assert!(["%", "%f", "%zz", "%+1"].iter().all(|text| SnapshotPath::decoded(text).is_none()));
    }

    #[test]
    fn a_snapshot_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let job = JobDir::new(folder.path());
        assert_eq!(CodeSnapshot::read(&job).unwrap(), None);
        let snapshot = CodeSnapshot::new("snapshots-0".to_owned(), "/p".into(), entries());
        snapshot.write(&job).unwrap();
        assert_eq!(CodeSnapshot::read(&job).unwrap().unwrap(), snapshot);
        let text = std::fs::read_to_string(CodeSnapshot::path(&job)).unwrap();
        assert!(text.contains(r#"{"path":"data","kind":"live","reason":"ignored"}"#), "{text}");
        assert!(text.contains(r#""kind":"file","mode":"755","size":3,"hash":"ab"}"#), "{text}");
        assert_eq!((snapshot.size(), snapshot.hashes().collect::<Vec<_>>()), ((2, 6), vec!["ab"; 2]));
        assert_eq!(snapshot.folders(), BTreeSet::from([PathBuf::new(), path(b"a b\n\xff%").0]));
        std::fs::write(CodeSnapshot::path(&job), text.replace("\"schema\": 1", "\"schema\": 2")).unwrap();
        assert!(matches!(CodeSnapshot::read(&job), Err(LedgerError::Newer { found: 2, .. })));
    }

    #[test]
    fn the_hash_is_of_the_code_alone() {
        let of = |entries: Vec<SnapshotEntry>| CodeSnapshot::new(String::new(), PathBuf::new(), entries).hash;
        let whole = of(entries());
        let mut reversed = entries();
        reversed.reverse();
        assert_eq!(of(reversed), whole);
        let without = |index: usize| {
            let mut less = entries();
            less.remove(index);
            of(less)
        };
        assert_eq!((without(3), without(4)), (whole.clone(), whole.clone()));
        assert!((0..3).all(|index| without(index) != whole));
        let mut other = entries();
        other[0].content = SnapshotContent::File { mode: 0o755, size: 3, hash: "ab".to_owned() };
        assert_ne!(of(other), whole);
    }
}
