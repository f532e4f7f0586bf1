//! [`HistoryPage`]: `history.html`, the rates of each config and variant over the jobs of the ledger.
//!
//! Invariants: a picture is drawn again only when a rate of its series or what it ran with has changed; rates are read only when a job is new or
//! has another state or outcome, or when something could not be read the last time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use expctl_charts::{page_style, svg_in_page};
use expctl_ledger::{Ledger, write_atomic};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::exit::Failure;
use crate::history::{RateSeries, RatedJobs, grouped, series_chart};
use crate::ledger::ListedJob;
use crate::program::build_identity;
use crate::project::Project;
use crate::report::html::{PAGE_STYLE, THEME_SCRIPT};

/// Jobs from which on a series has a picture.
const MIN_JOBS: usize = 3;
/// The page.
pub const PAGE: &str = "history.html";
/// The pictures, and what each was drawn of.
const FILE: &str = "expctl-site-history.json";
const TEMPLATE: &str = include_str!("history.html.j2");

/// The pictures of a site.
pub struct HistoryPage {
    folder: PathBuf,
    drawn: DrawnPage,
}

/// Pictures by config and name of the series.
type DrawnConfigs = BTreeMap<String, BTreeMap<String, DrawnSeries>>;

/// What is on the page.
#[derive(Debug, Default, Serialize, Deserialize)]
struct DrawnPage {
    /// Hash of the jobs that it shows; empty if something of them could not be read.
    of: String,
    configs: DrawnConfigs,
}

/// A picture with its words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct DrawnSeries {
    /// Hash of the build of expctl and of the series.
    of: String,
    /// SVG for a page with [`page_style`].
    picture: String,
    /// What became of the rate.
    finding: String,
    /// What the picture shows.
    caption: String,
}

impl HistoryPage {
    /// The pictures that a folder has. A file that cannot be read counts as none: all pictures are drawn again.
    pub fn open(folder: &Path) -> Self {
        let text = std::fs::read(folder.join(FILE)).ok();
        let drawn = text.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        Self { folder: folder.to_owned(), drawn }
    }

    /// Write the page of a project's ledger, if anything on it has changed; `jobs` are those of the ledger, `title` is that of the site.
    ///
    /// # Errors
    /// Exit 70 if the page cannot be made or written.
    pub fn write(self, project: &Project, ledger: &Ledger, jobs: &[ListedJob], title: &str) -> Result<(), Failure> {
        let page = self.folder.join(PAGE);
        let of = hash(&(build_identity(), jobs))?;
        if of == self.drawn.of && page.is_file() {
            return Ok(());
        }
        let mut by_config = BTreeMap::<String, Vec<_>>::new();
        // Jobs that cannot be read are named by the list of all jobs.
        let RatedJobs { jobs: rated, is_complete, .. } = RatedJobs::load(project, ledger, |_| true);
        for (job, rates) in rated {
            by_config.entry(job.config).or_default().extend(rates.into_iter().flatten());
        }
        let mut configs = DrawnConfigs::new();
        for (config, rates) in by_config {
            let all = grouped(rates).into_iter().filter(|series| series.jobs.len() >= MIN_JOBS);
            let of_config: Vec<RateSeries> = all.collect();
            let before = self.drawn.configs.get(&config);
            let drawn =
                parallel_map::map(&of_config, |series| draw(series, before.and_then(|of| of.get(&series.name))));
            for (series, drawn) in of_config.into_iter().zip(drawn) {
                if let Some(drawn) = drawn? {
                    configs.entry(config.clone()).or_default().insert(series.name, drawn);
                }
            }
        }
        if configs != self.drawn.configs || !page.is_file() {
            write_atomic(&page, render(title, &configs)?.as_bytes())?;
        }
        // What could not be read may be there the next time, although nothing that lists show has changed.
        let of = if is_complete { of } else { String::new() };
        let text = serde_json::to_vec(&DrawnPage { of, configs }).map_err(Failure::internal)?;
        Ok(write_atomic(&self.folder.join(FILE), &text)?)
    }
}

/// The picture of a series: the one from before, if it is of the same rates. `None` without a rate.
fn draw(series: &RateSeries, before: Option<&DrawnSeries>) -> Result<Option<DrawnSeries>, Failure> {
    let of = hash(&(build_identity(), series))?;
    if let Some(before) = before.filter(|before| before.of == of) {
        return Ok(Some(before.clone()));
    }
    let series = series.clone().with_levels();
    let Some(chart) = series_chart(&series) else { return Ok(None) };
    let picture = svg_in_page(&chart).map_err(Failure::internal)?;
    // Its marks of code are for markdown.
    let finding = series.finding().replace('`', "");
    Ok(Some(DrawnSeries { of, picture, finding, caption: chart.caption }))
}

/// Hash of a value as JSON.
fn hash(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_vec(value).map_err(Failure::internal)?;
    Ok(blake3::hash(&text).to_hex()[..32].to_owned())
}

fn render(title: &str, drawn: &DrawnConfigs) -> Result<String, Failure> {
    let series = |(name, series): (&String, &DrawnSeries)| {
        let picture = minijinja::Value::from_safe_string(series.picture.clone());
        minijinja::context! { name, picture, finding => &series.finding, caption => &series.caption }
    };
    let config = |(name, all): (&String, &BTreeMap<String, DrawnSeries>)| {
        let series: Vec<minijinja::Value> = all.iter().map(series).collect();
        minijinja::context! { name, series }
    };
    let configs: Vec<minijinja::Value> = drawn.iter().map(config).collect();
    let nonce = &blake3::hash(json!(drawn).to_string().as_bytes()).to_hex()[..32];
    let mut templates = minijinja::Environment::new();
    templates.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    templates.add_template(PAGE, TEMPLATE).map_err(Failure::internal)?;
    let page = templates.get_template(PAGE).map_err(Failure::internal)?;
    page.render(minijinja::context! {
        title, nonce, configs,
        least => MIN_JOBS,
        style => minijinja::Value::from_safe_string(format!("{PAGE_STYLE}{}", page_style())),
        script => minijinja::Value::from_safe_string(THEME_SCRIPT.to_owned()),
        version => env!("CARGO_PKG_VERSION"),
    })
    .map_err(Failure::internal)
}
