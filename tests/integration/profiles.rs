//! Cluster profiles as a user meets them: the scripts that they make, what wins over what, and `expctl doctor`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use expctl_config::SHIPPED_PROFILES;

use crate::common;
use crate::common::cluster::Cluster;
use crate::common::{SMALL, TestProject, text};

const IMAGE: &str = "/images/rocky linux.sif";

/// The script of a config under a profile; what only a user knows is filled in.
fn script(project: &TestProject, profile: &str, set: &[&str]) -> String {
    script_of(project, SMALL, profile, set)
}

fn script_of(project: &TestProject, config: &str, profile: &str, set: &[&str]) -> String {
    let conf = project.conf("small", config);
    let profile = format!("slurm.profile={profile}");
    let mut line = vec!["plan", conf.to_str().unwrap(), "--script", "--set", &profile];
    line.extend(set.iter().flat_map(|s| ["--set", s]));
    project.ok(&line)
}

fn shipped(project: &TestProject, config: &str, name: &str, set: &[&str]) -> String {
    let image = format!("slurm.image={IMAGE}");
    let mut all =
        if ["dev-cluster", "local"].contains(&name) { vec![] } else { vec![image.as_str(), "slurm.account=lab"] };
    all.extend(set);
    script_of(project, config, name, &all)
}

fn write(project: &TestProject, path: &str, content: &str) {
    let path = project.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

fn refused(project: &TestProject, set: &str) -> String {
    let conf = project.conf("small", SMALL);
    let output = project.run(&["check", conf.to_str().unwrap(), "--set", set]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    text(&output.stderr)
}

fn bash_reads(script: &Path) {
    let output = Command::new("bash").arg("-n").arg(script).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn shipped_profiles_make_these_scripts() {
    let project = TestProject::new();
    let worker = common::worker();
    let mut settings = insta::Settings::clone_current();
    // The libtorch of whoever runs the test, the folders of the programs, and the project's folder.
    settings.add_filter(r"  --bind=\S*libtorch\S* \\\n", "");
    settings.add_filter(&format!(r"{}", worker.parent().unwrap().display()), "BIN");
    settings.add_filter(&format!(r"{}", project.path().display()), "PROJECT");
    for (name, _) in SHIPPED_PROFILES {
        let script = shipped(&project, SMALL, name, &[]);
        let file = project.path().join("batch.sh");
        std::fs::write(&file, &script).unwrap();
        bash_reads(&file);
        settings.bind(|| insta::assert_snapshot!(name, script));
    }
}

#[test]
fn the_upper_word_on_a_cluster_wins() {
    let project = TestProject::new();
    let with = |script: &str, line: &str| assert!(script.contains(line), "{line}\n{script}");
    write(&project, "config/expctl/profiles/mine.toml", "[slurm]\npartition = \"users\"\nqos = \"low\"\n");
    with(&script(&project, "mine", &[]), "#SBATCH --partition=\"users\"\n#SBATCH --qos=\"low\"");
    write(&project, "slurm/profiles/mine.toml", "[slurm]\npartition = \"own\"\nqos = \"high\"\n");
    with(&script(&project, "mine", &[]), "#SBATCH --partition=\"own\"\n#SBATCH --qos=\"high\"");
    let defaults =
        "[slurm]\nprofile = \"mine\"\npartition = \"any\"\naccount = \"me\"\n[profile.mine]\nqos = \"best\"\n";
    write(&project, "config/expctl/config.toml", defaults);
    let conf = project.conf("small", &format!("{SMALL}\n[slurm]\naccount = \"lab\"\n"));
    let all = project.ok(&["plan", conf.to_str().unwrap(), "--script"]);
    with(&all, "--partition=\"own\"\n#SBATCH --account=\"lab\"\n#SBATCH --qos=\"best\"");
    let set = project.ok(&["plan", conf.to_str().unwrap(), "--script", "--set", "slurm.partition=x"]);
    with(&set, "#SBATCH --partition=\"x\"");
}

#[test]
fn a_users_folders_hold_unless_a_variable_names_others() {
    let project = TestProject::new();
    write(&project, "config/expctl/config.toml", "runs = \"/u/runs\"\ndata = \"/u/data\"\n");
    let conf = project.conf("small", SMALL);
    let line = ["plan", conf.to_str().unwrap(), "--script"];
    assert!(project.ok(&line).contains("\nruns=/u/runs\n"));
    let moved = project.expctl(&line).env("EXPCTL_RUNS", "/e/runs").output().unwrap();
    assert!(text(&moved.stdout).contains("\nruns=/e/runs\n"));
}

#[test]
fn what_is_wrong_with_a_profile_is_shown_with_its_place() {
    let project = TestProject::new();
    write(
        &project,
        "slurm/profiles/bad.toml",
        "modulse = [\"x\"]\n[slurm]\npartitoin = \"a\"\n[extra]\n\"mail-tpye\" = \"END\"\n\
        array = \"0-9\"\n[environment]\n\"A B\" = \"x\"\nRANK = \"1\"\n[container]\nbinds = [\"-x\"]\nimage = \"i\"\n",
    );
    let message = refused(&project, "slurm.profile=bad");
    for part in [
        "did you mean `modules`?",
        "did you mean `slurm.partition`?",
        "did you mean `mail-type`?",
        "unknown key `array`",
        "`A B` cannot name a variable",
        "`RANK` is not for a profile to set",
        "`container.binds` cannot hold \"-x\"",
        "the image is `image` in [slurm]",
        "slurm/profiles/bad.toml",
    ] {
        assert!(message.contains(part), "{part}\n{message}");
    }
    let message = refused(&project, "slurm.profile=dleta");
    assert!(
        message.contains("there is no profile `dleta`") && message.contains("did you mean \"delta\"?"),
        "{message}"
    );
    let message = refused(&project, "slurm.profile=delta");
    assert!(message.contains("needs `slurm.account`") && message.contains("needs `slurm.image`"), "{message}");
    let message = refused(&project, "slurm.profile=../../etc/passwd");
    assert!(message.contains("there is no profile"), "{message}");
    write(&project, "config/expctl/config.toml", "bakcend = \"slurm\"\nruns = \"x\"\n");
    let message = refused(&project, "slurm.profile=dev-cluster");
    assert!(message.contains("did you mean `backend`?") && message.contains("config/expctl/config.toml"), "{message}");
}

#[test]
fn slurm_is_asked_to_send_mail_as_the_guide_says() {
    let project = TestProject::new();
    let extra = "[extra]\nmail-type = \"END,FAIL\"\nmail-user = \"me@example.org\"\n";
    write(&project, "slurm/profiles/mails.toml", extra);
    let script = script(&project, "mails", &[]);
    for line in ["#SBATCH --mail-type=\"END,FAIL\"\n", "#SBATCH --mail-user=\"me@example.org\"\n"] {
        assert!(script.contains(line), "{script}");
    }
}

#[test]
fn a_job_longer_than_the_profiles_arrays_is_several() {
    let project = TestProject::new();
    write(&project, "slurm/profiles/tiny.toml", "max_array_size = 1\n");
    let scripts = script(&project, "tiny", &[]);
    assert_eq!(scripts.lines().filter(|line| *line == "#!/bin/bash").count(), 2, "{scripts}");
    assert_eq!(scripts.lines().filter(|line| *line == "#SBATCH --array=0").count(), 2, "{scripts}");
}

/// Run with programs that note what they were given: the values arrive as they are, and do nothing.
#[test]
fn hostile_values_arrive_as_they_are() {
    let project = TestProject::new();
    let hostile = "it's \"a\" \\ $(touch pwned) `touch pwned` ; touch pwned\n#SBATCH --uid=0";
    let quoted = serde_json::to_string(hostile).unwrap();
    write(
        &project,
        "slurm/profiles/hostile.toml",
        &format!(
            "modules = [{quoted}]\nsetup = [\"module() {{ :; }}\"]\nscratch = {0}\n[container]\nbinds = [{0}]\n[environment]\nHOSTILE = {quoted}\n\
         [extra]\ncomment = 'a\" $(touch pwned)'\n",
            serde_json::to_string(&format!("/{}", hostile.replace(['\n', ','], " "))).unwrap(),
        ),
    );
    let image = hostile.replace('\n', " ");
    let script = script(&project, "hostile", &[&format!("slurm.image={}", serde_json::to_string(&image).unwrap())]);
    let directives: Vec<&str> = script
        .lines()
        .take_while(|l| l.is_empty() || l.starts_with('#'))
        .filter(|l| l.starts_with("#SBATCH"))
        .collect();
    assert!(directives.iter().all(|line| !line.contains("uid")), "{script}");
    let bin = project.path().join("bin");
    write(
        &project,
        "bin/srun",
        "#!/bin/bash\nwhile [ \"$1\" != exec ]; do shift; done\nprintf '%s\\0' \"$HOSTILE\" \"$@\" > \"$SEEN\"\n",
    );
    write(
        &project,
        "bin/expctl",
        "#!/bin/bash\n# One trial, then the list of the task is done.\n[ \"$1 ${*: -1}\" != \"stage-attempt 0\" ] || echo \"1 $PWD/attempt\"\n",
    );
    std::fs::create_dir(project.path().join("attempt")).unwrap();
    for name in ["srun", "expctl"] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // Its own launcher is replaced; `module` is a function of the environment, as it is on clusters.
    let launcher = script.lines().find(|l| l.starts_with("expctl=")).unwrap();
    let script = script.replace(launcher, &format!("expctl={}/expctl", bin.display()));
    write(&project, "batch.sh", &script);
    let seen = project.path().join("seen");
    let output = Command::new("bash")
        .args(["-c", "module() { printf '%s' \"$2\" > \"$SEEN.module\"; }; export -f module; exec bash batch.sh"])
        .current_dir(project.path())
        .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
        .env("SEEN", &seen)
        .env("SLURM_ARRAY_JOB_ID", "7")
        .env("SLURM_ARRAY_TASK_ID", "0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{script}", text(&output.stderr));
    let given = std::fs::read_to_string(&seen).unwrap();
    let given: Vec<&str> = given.split('\0').collect();
    assert_eq!(given[0], hostile);
    assert!(given.contains(&image.as_str()), "{given:?}");
    assert!(given.contains(&format!("--bind=/{image}").as_str()), "{given:?}");
    assert_eq!(std::fs::read_to_string(project.path().join("seen.module")).unwrap(), hostile);
    assert!(!project.path().join("pwned").exists());
}

#[test]
fn the_doctor_works_without_slurm() {
    let project = TestProject::new();
    let doctor = || {
        let mut command = project.expctl(&["doctor"]);
        command.env("PATH", "/usr/bin/nowhere:/bin/nowhere").env_remove("SLURM_CONF").env_remove("MODULEPATH");
        command
    };
    // Without a PATH there is no ldd either, which would say where libtorch is: that the worker starts is enough.
    let output = doctor().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).contains("| Slurm | ok | no Slurm: jobs run on this machine"),
        "{}",
        text(&output.stdout)
    );
    let folder = tempfile::tempdir().unwrap();
    let ldd = ["/usr/bin/ldd", "/bin/ldd"].into_iter().find(|p| Path::new(p).exists()).unwrap();
    std::os::unix::fs::symlink(ldd, folder.path().join("ldd")).unwrap();
    let output = doctor().env("PATH", folder.path()).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success(), "{table}{}", text(&output.stderr));
    assert!(table.contains("| worker | ok | expctl-worker ") && table.contains("| libtorch | ok | "), "{table}");
    for check in ["project", "ledger", "data", "cache", "system", "GPU"] {
        assert!(table.contains(&format!("| {check} | ")), "{check}\n{table}");
    }
    let output = doctor().env("PATH", folder.path()).env("EXPCTL_WORKER", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(70));
    assert!(text(&output.stdout).contains("| worker | problem | "), "{}", text(&output.stdout));
    // Folders that cannot be written: a problem of the ledger, and the cache is only slower without.
    let file = project.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = doctor().env("EXPCTL_RUNS", file.join("runs")).env("XDG_CACHE_HOME", &file).output().unwrap();
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(6), "{table}{}", text(&output.stderr));
    assert!(table.contains("| ledger | problem | ") && table.contains("export EXPCTL_RUNS=FOLDER"), "{table}");
    assert!(table.contains("| cache | warning | ") && table.contains("export XDG_CACHE_HOME=FOLDER"), "{table}");
    // A profile of a cluster, away from it.
    write(&project, "slurm/profiles/far.toml", "[ssh]\nhost = \"me@far\"\n");
    let table = text(&doctor().args(["--profile", "far"]).output().unwrap().stdout);
    assert!(table.contains("| Slurm | warning | ") && table.contains("expctl submit CONF --on far"), "{table}");
    let table = text(&doctor().env("MODULEPATH", "/modules").output().unwrap().stdout);
    assert!(table.contains("module avail slurm"), "{table}");
    let outside = tempfile::tempdir().unwrap();
    let table = text(&doctor().current_dir(&outside).output().unwrap().stdout);
    assert!(table.contains("| project | warning | ") && table.contains("expctl init NAME"), "{table}");
}

/// What `make check` leaves out.
mod slow {
    use super::*;

    #[test]
    fn slurm_takes_the_scripts_of_shipped_profiles() {
        let Some(cluster) = Cluster::start(&["--nodes", "1", "--gpus", "4", "--cpus", "64", "--mem", "600000"]) else {
            return;
        };
        let project = TestProject::new();
        // Two variants that ask for the same are one array, others are one each.
        let uneven = SMALL.replace("[variant.ids]", "[variant.ids]\nlaunch.ranks = 1");
        for (name, _) in SHIPPED_PROFILES {
            for (config, arrays) in [(SMALL, 1), (uneven.as_str(), 2)] {
                let all = shipped(&project, config, name, &["slurm.partition=batch", "slurm.constraint="]);
                let scripts: Vec<&str> = all.split("#!/bin/bash\n").skip(1).collect();
                assert_eq!(scripts.len(), arrays, "{name}: {all}");
                for script in scripts {
                    let file = project.path().join(format!("{name}.sh"));
                    std::fs::write(&file, format!("#!/bin/bash\n{script}")).unwrap();
                    bash_reads(&file);
                    cluster.ask("sbatch", &["--test-only", file.to_str().unwrap()]);
                }
            }
        }
        let doctor = |profile: &str| {
            let mut command = project.expctl(&["doctor", "--profile", profile, "--json"]);
            let output = command.env("SLURM_CONF", cluster.conf()).output().unwrap();
            let checks: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
            let state = |name: &str| checks.iter().find(|c| c["check"] == name).unwrap()["state"].clone();
            (output.status.code(), state("partition"), state("clock"), state("sbatch"))
        };
        assert_eq!(doctor("dev-cluster"), (Some(0), "ok".into(), "ok".into(), "ok".into()));
        let (code, partition, ..) = doctor("mmli");
        assert_eq!((code, partition), (Some(4), "problem".into()), "no such partition there");
    }
}

/// One mount of Pyxis: `SRC[:DST[:FLAGS]]`, of paths or a word for what is no path.
const MOUNT: &str = r#"((/|\.)[^:,\s"$`\\]*|tmpfs|umount)(:(/|\.)[^:,\s"$`\\]*(:[a-z=+-]+)?)?"#;

/// All options of Pyxis 0.24.0 by its README, with the form of their values by its `args.c`; empty: it takes none.
const PYXIS: [(&str, &str); 16] = [
    ("container-image", r"([A-Za-z0-9._-]+@)?([A-Za-z0-9.-]+(:[0-9]+)?#)?[a-z0-9][A-Za-z0-9./_-]*(:[\w.-]+)?|[./]\S*"),
    ("container-mounts", "MOUNT(,MOUNT)*"),
    ("container-workdir", r"[./]\S*"),
    ("container-name", r"[^:]+(:(auto|create|exec|no_exec))?"),
    ("container-save", r".*[^/]"),
    ("container-mount-home", ""),
    ("no-container-mount-home", ""),
    ("container-remap-root", ""),
    ("no-container-remap-root", ""),
    ("container-entrypoint", ""),
    ("no-container-entrypoint", ""),
    ("container-entrypoint-log", ""),
    ("container-writable", ""),
    ("container-readonly", ""),
    ("container-env", r"[A-Za-z_][A-Za-z0-9_]*(,[A-Za-z_][A-Za-z0-9_]*)*"),
    ("container-unshare", r"(net|ipc|uts)(,(net|ipc|uts))*"),
];

/// The options of Pyxis in a script, each of which it knows, takes with this value, and takes once.
fn options_of_pyxis(script: &str) -> BTreeMap<String, String> {
    let command = script.split_once("\n  srun ").unwrap().1.split_once("2> ").unwrap().0.replace("\\\n", " ");
    let words = shlex::split(&command.replace("\"$attempt\"", "A").replace("\"$worker\"", "WORKER")).unwrap();
    let rank = words.iter().position(|word| word == "WORKER").unwrap();
    // Nothing stands between the options and the rank.
    assert!(words[..rank].iter().all(|word| word.starts_with("--")), "{words:?}");
    let mut options = BTreeMap::new();
    for word in words[..rank].iter().filter(|word| word.contains("container")) {
        let option = word.trim_start_matches('-');
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let (_, form) = PYXIS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("{name} is none"));
        let form = format!("^({})$", form.replace("MOUNT", MOUNT));
        assert!(regex::Regex::new(&form).unwrap().is_match(value), "{word}");
        assert!(options.insert(name.to_owned(), value.to_owned()).is_none(), "{name} twice");
    }
    options
}

#[test]
fn ranks_in_containers_of_pyxis_are_options_of_srun() {
    let project = TestProject::new();
    write(
        &project,
        "slurm/profiles/enroot.toml",
        "[slurm]\nimage = \"nvcr.io#nvidia/pytorch:25.01-py3\"\n[container]\nruntime = \"pyxis\"\nbinds = [\"/projects\", \"/a:/b:ro\"]\n\
         [environment]\nNCCL_DEBUG = \"WARN\"\n",
    );
    let all = script(&project, "enroot", &[]);
    let options = options_of_pyxis(&all);
    assert_eq!(options["container-image"], "nvcr.io#nvidia/pytorch:25.01-py3");
    let mounts: Vec<&str> = options["container-mounts"].split(',').collect();
    let runs = project.path().join("results/runs").display().to_string();
    for mount in ["/projects:/projects".to_owned(), "/a:/b:ro".to_owned(), format!("{runs}:{runs}")] {
        assert!(mounts.contains(&mount.as_str()), "{mounts:?}");
    }
    // An image may set it, too, and would win.
    assert!(options["container-env"].split(',').any(|name| name == "NCCL_DEBUG"), "{options:?}");
    assert!(!all.contains("pyxis exec"), "{all}");
    assert_eq!(options_of_pyxis(&script(&project, "enroot", &["slurm.image=./x.sqsh"]))["container-image"], "./x.sqsh");
}

#[test]
fn what_pyxis_would_take_for_something_else_is_refused() {
    let project = TestProject::new();
    let profile = |container: &str| {
        let text = format!("[slurm]\nimage = \"/x.sqsh\"\n[container]\nruntime = \"pyxis\"\n{container}\n");
        write(&project, "slurm/profiles/enroot.toml", &text);
    };
    for container in
        ["binds = [\"projects\"]", "binds = [\"/my projects\"]", "binds = [\"/a:b\"]", "binds = ['/a$(b)']"]
    {
        profile(container);
        let message = refused(&project, "slurm.profile=enroot");
        assert!(message.contains("`container.binds` cannot hold ") && message.contains(" with pyxis"), "{message}");
    }
    profile("nv = true");
    let message = refused(&project, "slurm.profile=enroot");
    assert!(message.contains("enroot shows a GPU's driver by itself"), "{message}");
    profile("binds = [\"tmpfs:/fast\"]");
    project.conf("small", SMALL);
    let plan = ["plan", "conf/small.toml", "--script", "--set", "slurm.profile=enroot"];
    // A name that Docker's registry would be asked for.
    let output = project.run(&[&plan[..], &["--set", "slurm.image=images/x.sqsh"]].concat());
    assert_eq!(output.status.code(), Some(3));
    let message = text(&output.stderr);
    assert!(message.contains("slurm.image = \"./images/x.sqsh\""), "{message}");
    let output = project.expctl(&plan).env("EXPCTL_RUNS", "/u/my runs").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Pyxis cannot show a folder named \"/u/my runs\""), "{output:?}");
    let scratch = "scratch = \"/my scratch\"\n[slurm]\nimage = \"/x.sqsh\"\n[container]\nruntime = \"pyxis\"\n";
    write(&project, "slurm/profiles/enroot.toml", scratch);
    let output = project.run(&plan);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("Pyxis cannot show a folder named \"/my scratch\""), "{output:?}");
}
