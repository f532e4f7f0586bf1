//! `expctl-worker`: one rank of one trial. It reads `trial.json` in the attempt's folder and leaves its records there.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use expctl_ledger::{AttemptDir, RankEnv};
use expctl_worker::{Signals, run};
use torch_dist::leave_nccl_failures_to_caller;

/// One rank of an expctl trial. Started by `expctl submit`, not by hand.
#[derive(Debug, Parser)]
#[command(version)]
struct Args {
    /// Folder of the attempt, with trial.json
    #[arg(long, value_name = "DIR")]
    attempt: PathBuf,
}

fn main() -> ExitCode {
    keep_freed_memory();
    // SAFETY: no other thread runs yet.
    unsafe { leave_nccl_failures_to_caller() };
    let filter = tracing_subscriber::EnvFilter::try_from_env("EXPCTL_LOG").unwrap_or_else(|_| "info".into());
    // Where the log's disk is full, the subscriber would complain about it with `eprintln!`, which panics then.
    let messages =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    messages.with_ansi(false).init();
    match start(&Args::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        // SAFETY: ends the process at once; its records are written. A rank that failed on a GPU has left loader threads and memory of the
        // device: no destructor of libtorch may run beside these.
        Ok(code) => unsafe { libc::_exit(u8::try_from(code).map_or(70, i32::from)) },
        Err(e) => {
            tracing::error!("{e:#}");
            ExitCode::from(2)
        }
    }
}

fn start(args: &Args) -> anyhow::Result<i32> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let checkpoint = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&checkpoint))?;
    let attempt = AttemptDir::open(&args.attempt);
    let trial = attempt.trial()?;
    if trial.settings.runs_command() {
        // A batch template of the user may be older than the setting for programs.
        anyhow::bail!("trial {} runs a program: start its ranks with `expctl run-command --attempt DIR`", trial.id);
    }
    let env = RankEnv::read(|name| std::env::var(name).ok(), trial.settings.launch.ranks)?;
    tracing::info!("rank {} of {}, trial {}", env.rank, env.world_size, trial.id);
    Ok(run(&attempt, &trial, env, &Signals { stop, checkpoint }))
}

/// Free memory at the end of the heap that stays with the process, bytes.
const TRIM_THRESHOLD: i32 = 512 << 20;
/// Blocks of at least this size are mapped and unmapped one by one, bytes; glibc accepts no larger figure.
const MMAP_THRESHOLD: i32 = 32 << 20;

/// Have the C library keep freed memory. A step frees gradients and activations, and the next one needs as much again: memory that went
/// back to the kernel comes back as pages that it fills with zeros first, a tenth of a step of 21 million parameters. The user's own
/// variables for the C library take precedence.
fn keep_freed_memory() {
    if ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"].iter().any(|name| std::env::var_os(name).is_some()) {
        return;
    }
    // SAFETY: sets options of the allocator; no other thread runs yet. A figure that is refused changes nothing.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD);
    }
}
