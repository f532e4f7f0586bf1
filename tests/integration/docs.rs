//! What the documentation claims to list, it lists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn every_direct_dependency_is_accounted_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let text = read(&root.join("docs/design/dependencies.md"));
    let named: BTreeSet<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).collect();
    let mut manifests = vec![root.join("Cargo.toml")];
    let crates = std::fs::read_dir(root.join("crates")).unwrap();
    manifests.extend(crates.map(|entry| entry.unwrap().path().join("Cargo.toml")).filter(|path| path.is_file()));
    assert!(manifests.len() > 4);
    let manifests: Vec<(PathBuf, toml::Table)> =
        manifests.into_iter().map(|path| (path.clone(), toml::from_str(&read(&path)).unwrap())).collect();
    let ours: BTreeSet<&str> =
        manifests.iter().map(|(_, manifest)| manifest["package"]["name"].as_str().unwrap()).collect();
    for (path, manifest) in &manifests {
        for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for name in manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys) {
                assert!(
                    ours.contains(name.as_str()) || named.contains(name.as_str()),
                    "{name} of {} is not named",
                    path.display()
                );
            }
        }
    }
}
