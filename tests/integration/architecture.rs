//! The shape of the code: which part uses which, and how much of what should become less is left.
//!
//! All of it is read from the files: `crate::…` and `super::…` paths in `src`, names of the workspace's crates in them, and the dependencies in
//! `crates/*/Cargo.toml`. Comments, strings and tests are left out. A part is a module of `src` (`src/report`) or a crate (`ledger`).
//!
//! Lists of exceptions may only become shorter: a test fails for a new entry, and for one that is no longer needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What every module of `src` may use: exit codes, the terminal, the project's folders and programs, and the ledger's records.
const BASE: &[&str] = &[
    "src/console",
    "src/exit",
    "src/interrupt",
    "src/program",
    "src/project",
    "atomic-file",
    "ledger",
    "parallel-map",
    "settings",
    "text",
];

/// What each part may use; of modules of `src` beside [`BASE`]. `*` is everything. Parts that are not there do not matter.
const MAY_USE: &[(&str, &[&str])] = &[
    // The command line is the only part that knows all others.
    ("src/cli", &["*"]),
    ("src/exit", &[]),
    ("src/console", &[]),
    ("src/interrupt", &[]),
    ("src/program", &[]),
    ("src/project", &["config"]),
    ("src/plan", &["config"]),
    // The only part beside the command line that opens data: it answers what configs and programs ask.
    ("src/data", &["src/launch", "anndata-io", "config", "datasets"]),
    ("src/provenance", &["src/ledger", "config"]),
    ("src/snapshot", &["src/provenance"]),
    ("src/remote", &["src/launch", "src/provenance", "src/snapshot", "config"]),
    ("src/launch", &["src/ledger", "src/snapshot", "config", "host-metrics", "slurm", "stats"]),
    ("src/ledger", &[]),
    // From the ledger to a note; nothing of configs and launching.
    ("src/trace", &["src/ledger", "stats"]),
    ("src/report", &["src/ledger", "src/trace", "charts", "stats"]),
    ("src/export", &["src/ledger", "src/report"]),
    ("src/predict", &["src/report", "pipeline-model", "stats"]),
    ("src/search", &["src/report", "stats"]),
    ("src/history", &["src/ledger", "src/report", "charts", "stats"]),
    ("src/site", &["src/history", "src/launch", "src/ledger", "src/report", "charts", "stats"]),
    ("src/timings", &["src/ledger", "src/report", "charts", "stats"]),
    ("src/watch", &["src/export", "src/launch", "slurm"]),
    ("src/doctor", &["src/launch", "config", "host-metrics", "slurm"]),
    // Crates.
    ("atomic-file", &[]),
    ("settings-derive", &[]),
    ("settings", &["settings-derive"]),
    ("config", &["settings", "text"]),
    ("ledger", &["atomic-file", "host-metrics", "parallel-map", "settings"]),
    ("slurm", &[]),
    ("text", &["stats"]),
    ("charts", &[]),
    ("stats", &[]),
    ("pipeline-model", &[]),
    ("anndata-io", &[]),
    ("loader-core", &[]),
    ("cell-loader", &["anndata-io", "loader-core"]),
    ("graph-loader", &["loader-core"]),
    ("datasets", &["anndata-io", "atomic-file", "cell-loader", "graph-loader", "ledger", "loader-core", "settings"]),
    ("python-loaders", &["anndata-io", "cell-loader", "datasets", "graph-loader", "loader-core", "settings"]),
    ("torch-dist", &[]),
    ("fake-gpu", &["torch-dist"]),
    ("host-metrics", &[]),
    ("rounding", &[]),
    ("test-support", &[]),
    (
        "worker",
        &[
            "anndata-io",
            "atomic-file",
            "cell-loader",
            "datasets",
            "graph-loader",
            "host-metrics",
            "ledger",
            "loader-core",
            "settings",
            "torch-dist",
        ],
    ),
];

/// Arrows that [`MAY_USE`] does not allow and that are still there, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// `Result<_, String>` by crate. A library's errors are enums.
const STRING_ERRORS: &[(&str, usize)] = &[];

/// Names of structs, enums and traits that are defined three times or more. Another name says more.
const REPEATED_NAMES: &[(&str, usize)] = &[];

/// `pub(super)` and `pub(in …)` in 1,000 lines of a part, at most.
const MAX_PUB_SUPER: usize = 4;

/// Names that many types may have: each says its role in its module.
fn is_common(name: &str) -> bool {
    ["Error", "Options", "Result"].iter().any(|end| name.ends_with(end))
}

/// A source file without comments, strings and tests.
struct Source {
    /// `src/report`, or the name of a crate's folder.
    part: String,
    path: PathBuf,
    /// Modules from the root of its crate to the file.
    depth: usize,
    code: String,
}

/// A crate of the workspace.
#[derive(Default)]
struct Crate {
    /// Its name in paths.
    library: String,
    /// Names of the packages that it depends on, but for tests.
    dependencies: Vec<String>,
}

struct Tree {
    sources: Vec<Source>,
    /// By package.
    packages: BTreeMap<String, (String, Crate)>,
}

fn tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut sources = Vec::new();
        read_sources(&root.join("src"), None, &mut sources);
        let mut packages = BTreeMap::new();
        for folder in folders(&root.join("crates")) {
            let Ok(manifest) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            let (package, found) = read_manifest(&manifest);
            read_sources(&folder.join("src"), Some(&name), &mut sources);
            packages.insert(package, (name, found));
        }
        Tree { sources, packages }
    })
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.is_dir());
    all.sort();
    all
}

/// Read all files below `root` but those of test modules. Without a crate, a part is a module of the folder.
fn read_sources(root: &Path, of_crate: Option<&str>, sources: &mut Vec<Source>) {
    let mut files = Vec::new();
    list_files(root, &mut files);
    files.sort();
    let mut tests: BTreeSet<PathBuf> = BTreeSet::new();
    let mut found = Vec::new();
    for path in files {
        let (code, test_modules) = without_tests(&without_comments(&std::fs::read_to_string(&path).unwrap()));
        let inside = path.strip_prefix(root).unwrap();
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let is_root = matches!(stem.as_str(), "mod" | "lib" | "main");
        let below = if is_root { path.parent().unwrap().to_owned() } else { path.with_extension("") };
        for module in test_modules {
            tests.insert(below.join(format!("{module}.rs")));
            tests.insert(below.join(module));
        }
        let module =
            inside.components().next().unwrap().as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        let part = of_crate.map_or_else(|| format!("src/{module}"), str::to_owned);
        let depth = inside.components().count() - usize::from(is_root);
        found.push(Source { part, path, depth, code });
    }
    let is_test = |path: &Path| tests.contains(path) || path.to_string_lossy().ends_with("tests.rs");
    sources.extend(found.into_iter().filter(|source| !source.path.ancestors().any(is_test)));
}

fn list_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            list_files(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// Name of a package, of its library, and of the packages that it depends on.
fn read_manifest(text: &str) -> (String, Crate) {
    let (mut package, mut found, mut section) = (String::new(), Crate::default(), String::new());
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
            // `[dependencies.name]`.
            if let Some((_, name)) = section.split_once("dependencies.").filter(|(before, _)| *before != "dev-") {
                found.dependencies.push(name.to_owned());
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        let (key, value) = (key.trim().trim_matches('"'), value.trim().trim_matches('"'));
        match section.as_str() {
            "package" if key == "name" => value.clone_into(&mut package),
            "lib" if key == "name" => value.clone_into(&mut found.library),
            section if section.ends_with("dependencies") && !section.ends_with("dev-dependencies") => {
                found.dependencies.push(key.split('.').next().unwrap().to_owned());
            }
            _ => {}
        }
    }
    if found.library.is_empty() {
        found.library = package.replace('-', "_");
    }
    (package, found)
}

/// The text with comments and literals as blanks; lines stay where they are.
fn without_comments(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let letter_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            block_comment(rest)
        } else if rest[0] == b'"' {
            quoted(rest)
        } else if rest[0] == b'r' && !(letter_before && bytes[at - 1] != b'b') {
            raw_string(rest).unwrap_or(0)
        } else if rest[0] == b'\'' {
            character(rest).unwrap_or(0)
        } else {
            0
        };
        code[at..at + length].iter_mut().filter(|b| **b != b'\n').for_each(|b| *b = b' ');
        at += length.max(1);
    }
    String::from_utf8(code).unwrap()
}

fn block_comment(text: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        if text[at..].starts_with(b"/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with(b"*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    at
}

fn quoted(text: &[u8]) -> usize {
    let mut at = 1;
    while at < text.len() && text[at] != b'"' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(text.len())
}

/// Length of `r#"…"#`; `None` for another word with an r.
fn raw_string(text: &[u8]) -> Option<usize> {
    let hashes = text[1..].iter().take_while(|b| **b == b'#').count();
    if text.get(1 + hashes) != Some(&b'"') {
        return None;
    }
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let body = &text[hashes + 2..];
    let length = body.windows(end.len()).position(|window| window == end).unwrap_or(body.len());
    Some((hashes + 2 + length + end.len()).min(text.len()))
}

/// Length of `'x'` and `'\n'`; `None` for a lifetime.
fn character(text: &[u8]) -> Option<usize> {
    if text.get(1) == Some(&b'\\') {
        return text.get(3..)?.iter().position(|b| *b == b'\'').map(|end| end + 4);
    }
    let width = text[1..].iter().skip(1).take_while(|b| **b & 0xc0 == 0x80).count() + 1;
    (text.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// The code without items under `#[cfg(test)]`, and the names of modules of them that lie in files of their own.
fn without_tests(code: &str) -> (String, Vec<String>) {
    let (mut kept, mut outside, mut rest) = (String::new(), Vec::new(), code);
    while let Some(start) = rest.find("#[cfg(test)]") {
        let (before, after) = rest.split_at(start);
        let after = &after["#[cfg(test)]".len()..];
        kept.push_str(before);
        let head = item_head(after);
        let item: Vec<&str> = after[..head].split_whitespace().collect();
        let module = item.iter().position(|word| *word == "mod").and_then(|at| item.get(at + 1));
        let mut length = head;
        if after[head..].starts_with('{') {
            length += matching(&after[head..], '{', '}');
        } else if let Some(module) = module {
            outside.push((*module).to_owned());
        }
        // Lines stay where they are.
        kept.extend(after[..length].chars().filter(|c| *c == '\n'));
        rest = &after[length..];
    }
    kept.push_str(rest);
    (kept, outside)
}

/// Length of an item, a field or an arm of a match up to what it holds, or up to its end.
fn item_head(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' | '}' | ';' | ',' if depth <= 0 => return at,
            _ => {}
        }
    }
    text.len()
}

/// Length of the text up to the bracket that closes the first one.
fn matching(text: &str, open: char, close: char) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth -= 1;
            if depth == 0 {
                return at + close.len_utf8();
            }
        }
    }
    text.len()
}

/// Words of the code with where they begin.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + code[from..].find(is_part)?;
        let length = code[start..].find(|c| !is_part(c)).unwrap_or(code.len() - start);
        from = start + length;
        Some((start, &code[start..from]))
    })
}

/// First words of the paths that follow `crate::`, `super::super::` and so on up to the root, and names of libraries.
fn paths<'c>(source: &'c Source, libraries: &BTreeMap<&str, &str>) -> Vec<(usize, &'c str)> {
    let code = source.code.as_str();
    let (mut found, mut supers) = (Vec::new(), 0);
    for (start, word) in words(code) {
        let after = code[start + word.len()..].trim_start();
        let Some(after) = after.strip_prefix("::") else {
            supers = 0;
            continue;
        };
        let preceded = code[..start].trim_end().ends_with("::");
        supers = if word == "super" { supers + 1 } else { 0 };
        if word == "crate" || supers > 0 && supers == source.depth {
            found.extend(first_words(after).into_iter().map(|word| (start, word)));
        } else if !preceded && libraries.contains_key(word) {
            found.push((start, word));
        }
    }
    // `use library;` and `use library as name;`
    for (start, word) in words(code) {
        if libraries.contains_key(word) && code[..start].trim_end().ends_with("use") {
            found.push((start, word));
        }
    }
    found
}

/// The first word of a path, or those of a group of paths.
fn first_words(text: &str) -> Vec<&str> {
    let text = text.trim_start();
    if !text.starts_with('{') {
        return words(text).next().map(|(_, word)| word).into_iter().collect();
    }
    let group = &text[1..matching(text, '{', '}') - 1];
    let (mut all, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                all.extend(words(&group[from..at]).next().map(|(_, word)| word));
                from = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// Which part uses which, with a place where it does.
fn arrows() -> BTreeMap<(String, String), String> {
    let tree = tree();
    let libraries: BTreeMap<&str, &str> =
        tree.packages.values().map(|(name, found)| (found.library.as_str(), name.as_str())).collect();
    let modules: BTreeSet<&str> = tree.sources.iter().filter_map(|source| source.part.strip_prefix("src/")).collect();
    // `pub use library as name;` in the root.
    let renamed: BTreeMap<&str, &str> = (tree.sources.iter())
        .filter(|source| source.part == "src/lib")
        .flat_map(|source| source.code.split(';'))
        .filter_map(|item| item.trim_start().strip_prefix("pub use ")?.split_once(" as "))
        .filter_map(|(library, name)| Some((name.trim(), *libraries.get(library.trim())?)))
        .collect();
    let mut found = BTreeMap::new();
    for source in tree.sources.iter().filter(|source| source.part.starts_with("src/")) {
        if matches!(source.part.as_str(), "src/lib" | "src/main") {
            continue;
        }
        for (start, word) in paths(source, &libraries) {
            let used = match (libraries.get(word), renamed.get(word)) {
                (Some(library), _) | (None, Some(library)) => (*library).to_owned(),
                _ if modules.contains(word) => format!("src/{word}"),
                _ => continue,
            };
            let line = source.code[..start].matches('\n').count() + 1;
            let place =
                || format!("{}:{line}", source.path.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display());
            if used != source.part {
                found.entry((source.part.clone(), used)).or_insert_with(place);
            }
        }
    }
    for (name, of_crate) in tree.packages.values() {
        for package in &of_crate.dependencies {
            let used = match tree.packages.get(package) {
                Some((used, _)) => used.clone(),
                None if package == "expctl" => "src".to_owned(),
                None => continue,
            };
            found.entry((name.clone(), used)).or_insert_with(|| format!("crates/{name}/Cargo.toml"));
        }
    }
    found
}

#[test]
fn arrows_go_one_way() {
    let (mut wrong, found) = (String::new(), arrows());
    let excepted: BTreeSet<(&str, &str)> = EXCEPTIONS.iter().map(|(from, to, _)| (*from, *to)).collect();
    let mut needed = BTreeSet::new();
    for ((from, to), place) in &found {
        let Some((_, allowed)) = MAY_USE.iter().find(|(part, _)| part == from) else {
            let _ = writeln!(wrong, "{from} is not in MAY_USE, and uses {to} ({place})");
            continue;
        };
        let base = from.starts_with("src/") && BASE.contains(&to.as_str());
        if base || allowed.contains(&"*") || allowed.contains(&to.as_str()) {
            continue;
        }
        if excepted.contains(&(from.as_str(), to.as_str())) {
            needed.insert((from.as_str(), to.as_str()));
        } else {
            let _ = writeln!(wrong, "{from} may not use {to}, and does in {place}");
        }
    }
    for (from, to) in excepted.difference(&needed) {
        let _ = writeln!(wrong, "the exception {from} → {to} is no longer needed: remove it from EXCEPTIONS");
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn modules_do_not_import_each_other_in_a_circle() {
    let excepted = |from: &str, to: &str| EXCEPTIONS.iter().any(|(a, b, _)| (*a, *b) == (from, to));
    let found = arrows();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (from, to) in found.keys().filter(|(from, to)| !excepted(from, to)) {
        uses.entry(from).or_default().insert(to);
    }
    // Parts that use none of those that are left, one after another. What is left in the end has circles.
    let mut left: BTreeSet<&str> = uses.keys().copied().collect();
    loop {
        let free = |part: &&str| uses[part].iter().all(|used| !left.contains(used));
        let done: Vec<&str> = left.iter().filter(|part| free(part)).copied().collect();
        if done.is_empty() {
            break;
        }
        done.iter().for_each(|part| _ = left.remove(part));
    }
    let among: Vec<String> = found
        .iter()
        .filter(|((from, to), _)| left.contains(from.as_str()) && left.contains(to.as_str()) && !excepted(from, to))
        .map(|((from, to), place)| format!("{from} → {to} ({place})"))
        .collect();
    assert!(among.is_empty(), "a circle is among these:\n{}", among.join("\n"));
}

/// Fail where counts are not those of a list, with the list as it should be.
fn compare_counts(list: &str, known: &[(&str, usize)], found: &BTreeMap<String, usize>) {
    let known: BTreeMap<String, usize> = known.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
    let all: BTreeSet<&String> = known.keys().chain(found.keys()).collect();
    let count = |of: &BTreeMap<String, usize>, name: &String| of.get(name).copied().unwrap_or_default();
    let changed: Vec<String> = all
        .into_iter()
        .filter(|name| count(&known, name) != count(found, name))
        .map(|name| match (count(&known, name), count(found, name)) {
            (before, now) if now > before => format!("{name}: {now}, and only {before} are known: find another way"),
            (before, now) => format!("{name}: {before} are known, and {now} are left: keep it so"),
        })
        .collect();
    let lines: Vec<String> = found.iter().map(|(name, count)| format!("    (\"{name}\", {count}),")).collect();
    assert!(
        changed.is_empty(),
        "\n{}\n\nconst {list}: &[(&str, usize)] = &[\n{}\n];",
        changed.join("\n"),
        lines.join("\n")
    );
}

#[test]
fn errors_of_libraries_are_no_strings() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in tree().sources.iter().filter(|source| !source.part.starts_with("src/")) {
        let count = string_errors(&source.code);
        if count > 0 {
            *found.entry(source.part.clone()).or_default() += count;
        }
    }
    compare_counts("STRING_ERRORS", STRING_ERRORS, &found);
}

/// Number of `Result<…, String>`.
fn string_errors(code: &str) -> usize {
    let results = words(code).filter(|(_, word)| *word == "Result");
    results
        .filter(|(start, word)| {
            let after = code[start + word.len()..].trim_start().trim_start_matches("::");
            if !after.starts_with('<') {
                return false;
            }
            // An arrow of a function type closes nothing.
            let plain = after.replace("->", "  ");
            let inside = &plain[1..matching(&plain, '<', '>') - 1];
            let last = inside.rsplit(',').find(|part| !part.trim().is_empty()).unwrap_or_default();
            inside.contains(',') && matches!(last.trim(), "String" | "std::string::String")
        })
        .count()
}

#[test]
fn a_type_has_a_name_of_its_own() {
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for source in &tree().sources {
        for name in types(&source.code).into_iter().filter(|name| !is_common(name)) {
            *found.entry(name.to_owned()).or_default() += 1;
        }
    }
    found.retain(|_, count| *count >= 3);
    compare_counts("REPEATED_NAMES", REPEATED_NAMES, &found);
}

/// Names of the structs, enums and traits that the code defines.
fn types(code: &str) -> Vec<&str> {
    let all: Vec<&str> = words(code).map(|(_, word)| word).collect();
    let named = all.windows(2).filter(|pair| matches!(pair[0], "struct" | "enum" | "trait"));
    named.map(|pair| pair[1]).filter(|name| name.starts_with(char::is_uppercase)).collect()
}

#[test]
fn what_a_module_shares_with_its_neighbours_is_little() {
    let mut found: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for source in &tree().sources {
        let part = if source.part.starts_with("src/") { "src" } else { source.part.as_str() };
        let (count, lines) = found.entry(part).or_default();
        *count += source.code.matches("pub(super)").count() + source.code.matches("pub(in ").count();
        *lines += source.code.lines().count();
    }
    let mut wrong = String::new();
    for (part, (count, lines)) in found {
        let most = lines * MAX_PUB_SUPER / 1000;
        if count > most {
            let _ = writeln!(wrong, "    (\"{part}\", {count}), // {most} at most; {lines} lines");
        }
    }
    assert!(wrong.is_empty(), "pub(super) and pub(in …): what needs it belongs in one file, or is pub(crate)\n{wrong}");
}

#[test]
fn every_file_says_what_it_is() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_silent = |source: &&Source| !std::fs::read_to_string(&source.path).unwrap().starts_with("//!");
    let silent = tree().sources.iter().filter(is_silent);
    let silent: Vec<String> =
        silent.map(|source| source.path.strip_prefix(root).unwrap().display().to_string()).collect();
    assert!(
        silent.is_empty(),
        "without `//!` in the first line: what is it, and what does it keep?\n{}",
        silent.join("\n")
    );
}

#[test]
fn sources_are_read_without_comments_strings_and_tests() {
    let text = "use crate::exit::Exit; // crate::report\n/* crate::a /* b */ */ let c = '\"'; let s = \"crate::plan\\\"\";\nlet r = r#\"crate::x\"\"#;\n\
                fn f<'a>(x: &'a str) {}\n#[cfg(test)]\nmod tests {\n    use crate::plot::P; fn g() { { } }\n}\n#[cfg(test)]\nmod cases;\nuse crate::{conf::{self, A}, ledger::B};\n";
    let (code, outside) = without_tests(&without_comments(text));
    assert_eq!(outside, ["cases"]);
    assert_eq!(code.matches('\n').count(), text.matches('\n').count());
    let source = Source { part: "src/launch".into(), path: PathBuf::new(), depth: 1, code };
    let names: Vec<&str> = paths(&source, &BTreeMap::new()).into_iter().map(|(_, word)| word).collect();
    assert_eq!(names, ["exit", "conf", "ledger"]);
}

#[test]
fn paths_reach_the_root_and_other_crates() {
    let code = "use super::super::exit::A; use super::near; use expctl_stats::mean; use expctl_stats as stats; x::expctl_stats::y()".to_owned();
    let source = Source { part: "src/launch".into(), path: PathBuf::new(), depth: 2, code };
    let libraries = BTreeMap::from([("expctl_stats", "stats")]);
    let names: Vec<&str> = paths(&source, &libraries).into_iter().map(|(_, word)| word).collect();
    assert_eq!(names, ["exit", "expctl_stats", "expctl_stats", "expctl_stats"]);
}

#[test]
fn manifests_name_what_they_depend_on() {
    let text = "[package]\nname = \"a-b\"\n[dependencies]\nexpctl-stats.workspace = true\nserde = { version = \"1\" }\n[dependencies.x]\npath = \"y\"\n\
                [target.'cfg(unix)'.dependencies]\nnix = \"1\"\n[dev-dependencies]\ntempfile = \"3\"\n[build-dependencies]\ncc = \"1\"\n";
    let (package, found) = read_manifest(text);
    assert_eq!((package.as_str(), found.library.as_str()), ("a-b", "a_b"));
    assert_eq!(found.dependencies, ["expctl-stats", "serde", "x", "nix", "cc"]);
}

#[test]
fn strings_as_errors_are_counted() {
    let code = "fn a() -> Result<(), String>; fn b() -> Result<Vec<(u8, String)>, Error>; fn c() -> Result<String>; Result::<A, String>::Ok(1); \
                fn d() -> Result<impl Fn() -> u8, String>; type R<T> = Result<T, std::string::String>;";
    assert_eq!(string_errors(code), 4);
    assert_eq!(types("pub struct A; enum B<T> {} pub(crate) trait C: D {} struct $name;"), ["A", "B", "C"]);
}
