use std::time::{Duration, Instant};

use super::out;
use crate::exit::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::launch::status::Follow;
use crate::ledger::Ledger;
use crate::project::Project;
use crate::watch::{Lines, Screen, View, frame};

/// How often a signal is looked for between two looks.
const TURN: Duration = Duration::from_millis(100);

/// Arguments of `expctl watch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: u64,
    /// Seconds between two looks at the ledger; Slurm is asked less often
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one JSON object a look, one per line
    #[arg(long)]
    json: bool,
}

/// Show a job until it has ended; the exit code then says what became of it.
pub fn run(project: &Project, args: &Args) -> Result<(), Failure> {
    let mut job = Follow::new(&Ledger::open(project)?.measured(args.job)?)?;
    let interrupt = Interrupt::listen()?;
    let every = Duration::from_secs(args.interval);
    let mut lines = Lines::default();
    let mut screen = if args.json { None } else { Screen::open() };
    loop {
        job.look()?;
        let view = View::new(&mut job)?;
        if view.ended {
            // Back on the first screen, where the end is told in lines that stay.
            screen = None;
        }
        match &screen {
            Some(screen) => {
                let (height, width) = screen.size();
                screen.draw(&frame(&view, height, width));
            }
            None if args.json => out(serde_json::to_string(&view).map_err(Failure::internal)?),
            None => lines.changes(&view).into_iter().for_each(out),
        }
        if view.ended {
            return job.status().verdict().map_err(|failure| hint(failure, args.job));
        }
        let leave = match &screen {
            Some(screen) => screen.wait(every, &interrupt),
            None => wait(every, &interrupt),
        };
        if leave {
            drop(screen);
            return Err(Failure::rendered(Exit::Incomplete, format!("job {} goes on without me", args.job))
                .hint(format!("watch it again with `expctl watch {0}`, stop it with `expctl cancel {0}`", args.job)));
        }
    }
}

fn hint(failure: Failure, job: u64) -> Failure {
    failure.hint(format!("`expctl logs {job}` shows what the ranks printed, `expctl retry {job}` runs them again"))
}

/// Wait; true if the user wants to leave.
fn wait(time: Duration, interrupt: &Interrupt) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < time && !interrupt.is_set() {
        std::thread::sleep(TURN.min(time.saturating_sub(begun.elapsed())));
    }
    interrupt.is_set()
}
