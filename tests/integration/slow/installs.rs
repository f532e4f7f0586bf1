//! The ways of installing that docs/guide/install.md names: each command as it stands there, up to the note of a first job.
//!
//! Nothing is fetched: the package index is the folder of `scripts/installers.sh`. A wheel with PyTorch's name and version stands in for PyTorch,
//! and libtorch is put into its place after it was installed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use tempfile::TempDir;
use test_support::{Requirement, skip};

use super::wheels::wheels;
use crate::common::text;

const GUIDE: &str = include_str!("../../../docs/guide/install.md");
const DEFINITION: &str = include_str!("../../../slurm/apptainer.def");
const MODULE: &str = include_str!("../../../slurm/modulefile.lua");

/// What both programs print for `--version`.
const VERSIONS: &str =
    concat!("expctl ", env!("CARGO_PKG_VERSION"), "\nexpctl-worker ", env!("CARGO_PKG_VERSION"), "\n");

/// The commands of the section *Install them*, without prompts and comments: those of the environment, of pip, and of a first job.
fn commands() -> Vec<&'static str> {
    let (_, section) = GUIDE.split_once("\n## Install them\n").unwrap();
    let (_, block) = section.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("\n```").unwrap();
    let lines = block.lines().filter_map(|line| line.strip_prefix("$ "));
    let commands: Vec<&str> = lines.map(|line| line.split("  #").next().unwrap().trim_end()).collect();
    assert!(commands.len() > 3, "{commands:?}");
    commands
}

/// The commands of the row for those who have `what`.
fn row(what: &str) -> Vec<&'static str> {
    let is_row = |line: &&str| line.strip_prefix("| ").is_some_and(|cell| cell.starts_with(what));
    let row = GUIDE.lines().find(is_row).unwrap_or_else(|| panic!("no row for {what}"));
    row.split('`').skip(1).step_by(2).collect()
}

/// The only command of a row.
fn command(what: &str) -> &'static str {
    let [command] = row(what)[..] else { panic!("one command is expected for {what}: {:?}", row(what)) };
    command
}

/// A part of the definition of the image.
fn section(name: &str) -> String {
    let (_, rest) = DEFINITION.split_once(&format!("%{name}\n")).unwrap();
    let lines: Vec<&str> = rest.lines().take_while(|line| !line.starts_with('%')).map(str::trim).collect();
    lines.join("\n")
}

/// A machine on which somebody installs: the wheels in `dist`, an empty home, and the index.
struct Machine {
    folder: TempDir,
    /// What `scripts/installers.sh` set up.
    tools: PathBuf,
    libtorch: PathBuf,
    /// The interpreter that environments are made of.
    python: PathBuf,
}

impl Machine {
    /// `None`, and the test says that it is skipped, where something is missing.
    fn new() -> Option<Self> {
        let Some(libtorch) = std::env::var_os("LIBTORCH").map(PathBuf::from) else {
            skip(Requirement::Other, "LIBTORCH names no libtorch");
            return None;
        };
        let Some(wheels) = wheels() else {
            skip(Requirement::Other, "there are no wheels: make test links them, make wheels makes them");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/installers.sh");
        let setup = Command::new("bash").arg(script).stdin(Stdio::null()).output().unwrap();
        if setup.status.code() == Some(3) {
            skip(Requirement::Python, text(&setup.stderr).trim());
            return None;
        }
        assert!(setup.status.success(), "installers.sh: {}", text(&setup.stderr));
        let tools = PathBuf::from(text(&setup.stdout).trim());
        let asked = ["-c", "import sys; print(sys._base_executable)"];
        let python = Command::new(tools.join("bin/python")).args(asked).output().unwrap();
        let python = PathBuf::from(text(&python.stdout).trim());
        let machine = Self { folder: tempfile::tempdir().unwrap(), tools, libtorch, python };
        let (dist, settings) = (machine.path().join("dist"), machine.path().join("home/.config/uv"));
        std::fs::create_dir(&dist).unwrap();
        std::fs::create_dir_all(&settings).unwrap();
        let index = format!("no-index = true\nfind-links = [{:?}]\n", machine.index());
        std::fs::write(settings.join("uv.toml"), index).unwrap();
        for file in std::fs::read_dir(wheels).unwrap().map(|entry| entry.unwrap().path()) {
            std::fs::copy(&file, dist.join(file.file_name().unwrap())).unwrap();
        }
        Some(machine)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The folder in place of a package index.
    fn index(&self) -> PathBuf {
        self.tools.join("index")
    }

    /// Files in `dist` whose names begin so.
    fn in_dist(&self, start: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.path().join("dist")).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))).collect()
    }

    /// What these lines of a shell print, all of which have to succeed. Programs of the environment `prefix` come first.
    fn shell(&self, prefix: Option<&Path>, lines: &str) -> String {
        let home = self.path().join("home");
        let own = [home.join(".local/bin"), self.tools.join("bin"), "/usr/bin".into(), "/bin".into()];
        let path = std::env::join_paths(prefix.map(|prefix| prefix.join("bin")).into_iter().chain(own)).unwrap();
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", lines]).current_dir(self.path()).env_clear().stdin(Stdio::null());
        bash.env("PATH", path).env("HOME", &home).env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1");
        bash.env("PIP_CONFIG_FILE", "/dev/null").env("PIP_DISABLE_PIP_VERSION_CHECK", "1");
        bash.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", self.index());
        bash.env("UV_PYTHON", &self.python).env("UV_PYTHON_DOWNLOADS", "never").env("UV_NO_PROGRESS", "1");
        // With uv beside it, pipx would install with that.
        bash.env("PIPX_DEFAULT_BACKEND", "pip");
        let Output { status, stdout, stderr } = bash.output().unwrap();
        assert!(status.success(), "{lines}\n{status}\n{}\n{}", text(&stdout), text(&stderr));
        text(&stdout)
    }

    /// A new environment that has pip alone.
    fn environment(&self, name: &str) -> PathBuf {
        self.shell(None, &format!("uv venv --quiet {name}\nuv pip install --quiet --python {name} pip"));
        self.path().join(name)
    }

    /// The folder of PyTorch in the environment that has this worker.
    fn torch(worker: &Path) -> Option<PathBuf> {
        let worker = worker.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", worker.display()));
        let libraries = worker.parent().unwrap().with_file_name("lib");
        let pythons = std::fs::read_dir(libraries).unwrap().map(|entry| entry.unwrap().path());
        pythons.map(|python| python.join("site-packages/torch")).find(|torch| torch.is_dir())
    }

    /// Puts libtorch where PyTorch has it, in the environment that has this worker.
    fn put_libtorch(&self, worker: &Path) {
        let torch = Self::torch(worker).unwrap_or_else(|| panic!("no PyTorch beside {}", worker.display()));
        std::os::unix::fs::symlink(self.libtorch.join("lib"), torch.join("lib")).unwrap();
    }

    /// The last of the commands of the guide makes a project and runs a job, whose note is there then.
    fn runs_a_first_job(&self, prefix: Option<&Path>) {
        self.shell(prefix, commands().last().unwrap());
        self.has_a_note();
    }

    fn has_a_note(&self) {
        let note = self.path().join("project/results/first_1.md");
        let note = std::fs::read_to_string(&note).unwrap_or_else(|error| panic!("{}: {error}", note.display()));
        assert!(note.contains("samples/s"), "{note}");
    }

    /// Both programs are where a tool of the user is, and run a job.
    fn has_the_tool(&self) {
        let bin = self.path().join("home/.local/bin");
        self.put_libtorch(&bin.join("expctl-worker"));
        let said = self.shell(None, "command -v expctl\nexpctl --version\nexpctl-worker --version");
        assert_eq!(said, format!("{}\n{VERSIONS}", bin.join("expctl").display()));
        self.runs_a_first_job(None);
    }
}

#[test]
fn the_commands_lead_from_an_empty_environment_to_a_note() {
    let Some(machine) = Machine::new() else { return };
    let prefix = machine.path().join("expctl");
    let lines: Vec<String> =
        commands().iter().map(|line| line.replace("/shared/you/expctl", prefix.to_str().unwrap())).collect();
    let (before, after) = lines.split_at(2);
    let begun = Instant::now();
    machine.shell(None, &before.join("\n"));
    machine.put_libtorch(&prefix.join("bin/expctl-worker"));
    machine.shell(None, &after.join("\n"));
    let seconds = begun.elapsed().as_secs_f64();
    machine.has_a_note();
    let bytes: u64 = machine.in_dist("expctl_").iter().map(|wheel| wheel.metadata().unwrap().len()).sum();
    // Beside other tests it takes longer than for a user: benches/install_time.py measures. The harness captures what println! prints.
    let said = format!(
        "from an empty environment to a first note: {seconds:.1} s, {bytes} bytes of wheels; PyTorch not counted\n"
    );
    std::io::stderr().write_all(said.as_bytes()).unwrap();

    // What the module file puts before the paths of a shell.
    assert!(MODULE.starts_with("local prefix = \"/"), "{MODULE}");
    let folders: Vec<&str> =
        MODULE.lines().filter_map(|line| line.split_once("pathJoin(prefix, \"")?.1.split('"').next()).collect();
    assert_eq!(folders, ["bin", "share/man"]);
    assert!(folders.iter().all(|folder| prefix.join(folder).is_dir()), "{folders:?}");
}

#[test]
fn uv_installs_both_programs() {
    let Some(machine) = Machine::new() else { return };
    machine.shell(None, command("[uv]"));
    machine.has_the_tool();
}

#[test]
fn pipx_installs_both_programs() {
    let Some(machine) = Machine::new() else { return };
    machine.shell(None, command("pipx"));
    machine.has_the_tool();
}

/// What the first command puts into a folder is all that the second one needs.
#[test]
fn nodes_without_internet_install_from_a_folder() {
    let Some(machine) = Machine::new() else { return };
    let [download, install] = row("nodes without internet")[..] else { panic!("two commands are expected") };
    machine.shell(None, download);
    // PyTorch, and what it asks for.
    for name in ["torch-2.11.", "filelock-"] {
        assert_eq!(machine.in_dist(name).len(), 1, "{name}: {:?}", machine.in_dist(""));
    }
    let prefix = machine.environment("node");
    machine.shell(Some(&prefix), &format!("unset PIP_NO_INDEX PIP_FIND_LINKS\n{install}"));
    machine.put_libtorch(&prefix.join("bin/expctl-worker"));
    assert_eq!(machine.shell(Some(&prefix), "expctl --version\nexpctl-worker --version"), VERSIONS);
    machine.runs_a_first_job(Some(&prefix));
}

/// By its name, where an index has both wheels: the launcher brings the worker of its own version.
#[test]
fn the_extra_of_the_launcher_brings_the_worker() {
    let Some(machine) = Machine::new() else { return };
    let prefix = machine.environment("environment");
    // PIP_NO_INDEX leaves out the address of the index, for which the folder of the wheels stands in.
    let install = command("a package index of your site");
    machine.shell(Some(&prefix), &format!("export PIP_FIND_LINKS=\"$PIP_FIND_LINKS dist\"\n{install}"));
    machine.put_libtorch(&prefix.join("bin/expctl-worker"));
    assert_eq!(machine.shell(Some(&prefix), "expctl --version\nexpctl-worker --version"), VERSIONS);
}

/// The launcher needs no PyTorch, and the worker takes one for CPUs that is there.
#[test]
fn a_pytorch_is_asked_for_by_the_worker_and_stays() {
    let Some(machine) = Machine::new() else { return };
    let prefix = machine.environment("environment");
    machine.shell(Some(&prefix), command("only your own training script"));
    assert_eq!(machine.shell(Some(&prefix), "expctl --version"), VERSIONS.lines().next().unwrap().to_owned() + "\n");
    assert_eq!(Machine::torch(&prefix.join("bin/expctl")), None);
    let loaders = machine.shell(Some(&prefix), "python -c 'import expctl, expctl.data; print(expctl.__version__)'");
    assert_eq!(loaders.trim(), env!("CARGO_PKG_VERSION"));

    machine.shell(Some(&prefix), command("a PyTorch without CUDA"));
    let said = machine.shell(Some(&prefix), "pip install dist/*.whl");
    let installed = said.lines().find_map(|line| line.strip_prefix("Successfully installed ")).unwrap_or_default();
    assert_eq!(installed, concat!("expctl-worker-", env!("CARGO_PKG_VERSION")), "{said}");
    machine.put_libtorch(&prefix.join("bin/expctl-worker"));
    assert_eq!(machine.shell(Some(&prefix), "expctl --version\nexpctl-worker --version"), VERSIONS);
}

/// There is no conda for the tests: it is told to run the command that is tested above, with a Python that the wheels are for.
#[test]
fn conda_runs_the_same_command_of_pip() {
    let (create, run) = command("conda").split_once(" && ").unwrap();
    let create: Vec<&str> = create.split(' ').collect();
    let ["conda", "create", "-n", name, python] = create[..] else { panic!("{create:?}") };
    assert!(is_supported(python.strip_prefix("python=").unwrap()), "{python}");
    let pip = run.strip_prefix(&format!("conda run -n {name} ")).unwrap_or_else(|| panic!("{run}"));
    assert_eq!(commands()[1], format!("/shared/you/expctl/bin/{pip}"));
}

/// Whether the wheels are for this version of Python, as `3.12`.
fn is_supported(version: &str) -> bool {
    version.strip_prefix("3.").and_then(|minor| minor.parse().ok()).is_some_and(|minor: u32| (10..=14).contains(&minor))
}

/// There is no Apptainer for the tests, nor the system of its image. What runs in the image runs here in an environment of this system, where /opt is
/// a folder of its own.
#[test]
fn the_commands_of_the_apptainer_definition_run() {
    let Some(machine) = Machine::new() else { return };
    let build: Vec<&str> = row("[Apptainer]")[0].split(' ').collect();
    let ["apptainer", "build", _, "slurm/apptainer.def"] = build[..] else { panic!("{build:?}") };
    let (_, python) = DEFINITION.split_once("\nFrom: python:").unwrap();
    assert!(is_supported(python.split('-').next().unwrap()), "{python}");

    let mount = "mount -t tmpfs tmpfs /opt";
    if !Command::new("unshare")
        .args(["--mount", "sh", "-c", mount])
        .output()
        .is_ok_and(|output| output.status.success())
    {
        return skip(Requirement::Other, "this user or this machine mounts no folders (unshare --mount)");
    }
    let prefix = machine.environment("image");
    let files = section("files");
    let lines = format!("{mount}\ncp -r {}\n{}\n[ -z \"$(ls /opt)\" ]\n", files.trim(), section("post").trim());
    std::fs::write(machine.path().join("post"), lines).unwrap();
    machine.shell(Some(&prefix), "unshare --mount bash -eu post");
    machine.put_libtorch(&prefix.join("bin/expctl-worker"));
    assert_eq!(machine.shell(Some(&prefix), &section("test")), VERSIONS);
    let said = machine.shell(Some(&prefix), &format!("set -- --version\n{}", section("runscript")));
    assert_eq!(said, VERSIONS.lines().next().unwrap().to_owned() + "\n");
}
