use crate::project::Project;
use crate::report::compare::{Published, Row, measured_rows, rows_of};
use expctl_record::{Ledger, LedgerJob, MeasuredJob, PublishedBreakdown, PublishedRow};

/// Published rows and breakdowns that name a variant of the job as the one that repeats them, beside it. `None` if nothing names one.
pub fn published(project: &Project, job: &MeasuredJob) -> Option<String> {
    // Why published files cannot be read stands in the comparison with earlier jobs.
    let ledger = Ledger::open(project).ok()?;
    let measured = measured_rows(job);
    let named = |names: &[String]| measured.iter().any(|row| row.is_named(names));
    let rows = ledger.published_rows().iter().filter(|row| named(&row.repeated_by));
    let rows: Vec<PublishedRow> = rows.cloned().collect();
    let breakdowns = ledger.published_breakdowns().iter().filter(|one| named(&one.repeated_by));
    let breakdowns: Vec<PublishedBreakdown> = breakdowns.cloned().collect();
    let imported = rows_of(&LedgerJob::Published(rows)).ok()?;
    let all: Vec<&Row> = measured.iter().chain(&imported).collect();
    Published::of(&all, &breakdowns).markdown()
}
