//! The note of a job, or of batch timings, as one page for a browser: tables that sort, charts that zoom, nothing from outside.
//!
//! Invariant: text from a config or a ledger is never markup, and the page may fetch nothing.

use std::path::{Path, PathBuf};

use expctl_charts::{Chart, ChartError, page_style, svg_in_page};
use expctl_ledger::{MeasuredJob, write_atomic};
use minijinja::HtmlEscape;
use pulldown_cmark::{Alignment, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};
use serde_json::Value;

use super::note::{NoteOptions, Picture, generated, submission};
use super::pictures::{LEARNING, charts, overview_chart};
use crate::console::say;
use crate::exit::Failure;
use crate::project::Project;

/// Write the page of a job beside its note, with the name of the note and `.html`. Gives its path. `options`: those of the note. A file of
/// that name that is not the page of this submission stays: then the page is `<name>-2.html` (`-3`, …), with a message on stderr.
///
/// # Errors
/// Exit 3 for invalid settings or template of notes; 70 for a page that cannot be made or written.
pub fn write_page(
    project: &Project,
    job: &MeasuredJob,
    note: &Path,
    options: &NoteOptions,
) -> Result<PathBuf, Failure> {
    let plots = charts(job).into_iter().map(PagePlot::new).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)?;
    // The learning curves have their own section.
    let shown = plots.iter().filter(|plot| plot.chart.name != LEARNING).map(|plot| Picture {
        file: plot.file(),
        alt: plot.chart.alt.clone(),
        caption: plot.chart.caption.clone(),
    });
    let markdown = generated(project, job, note, &shown.collect::<Vec<_>>(), options)?;
    let source = PageSource { name: &job.record.config, identity: &submission(&job.record), words: "this submission" };
    let lead = overview_chart(job).map(PagePlot::new).transpose().map_err(Failure::internal)?;
    let body = page_body(&markdown, &plots, &PageLayout::AnswerFirst(lead.as_ref()));
    write_html(note.with_extension("html"), &body, &source)
}

/// Write markdown with its charts, which it links by [`PageChart::link`], as one page at `path`. Gives its path. `source` identifies the page: a
/// file at `path` that is not the page of the same source stays, and then the page is `<name>-2.html` (`-3`, …), with a message on stderr.
///
/// # Errors
/// Exit 70 for a page that cannot be made or written.
pub fn write_markdown_page(
    path: PathBuf,
    markdown: &str,
    charts: Vec<PageChart>,
    source: &str,
) -> Result<PathBuf, Failure> {
    let plots = charts.into_iter().map(PagePlot::new).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)?;
    let body = page_body(markdown, &plots, &PageLayout::AsWritten);
    write_html(path, &body, &PageSource { name: source, identity: source, words: "this source" })
}

/// The source of a page.
struct PageSource<'a> {
    /// Title of the page if the note has no heading.
    name: &'a str,
    /// Identity of the source.
    identity: &'a str,
    /// Kind of source, in words.
    words: &'a str,
}

fn write_html(first: PathBuf, body: &PageBody, source: &PageSource<'_>) -> Result<PathBuf, Failure> {
    // The line that identifies the page.
    let mark = format!("<meta name=\"expctl-page\" content=\"{}\">", HtmlEscape(source.identity));
    let page = page(body, source.name, &mark).map_err(Failure::internal)?;
    let path = own_or_free(&first, &mark)?;
    if path != first {
        let (first, path) = (first.display(), path.display());
        say(format!("{first} is not the page of {} and stays as it is; writing {path}", source.words));
    }
    write_atomic(&path, page.as_bytes())?;
    Ok(path)
}

/// `first`, or the next name with a number that is free or has the mark.
fn own_or_free(first: &Path, mark: &str) -> Result<PathBuf, Failure> {
    let stem = first.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut path = first.to_owned();
    for n in 2u32.. {
        match std::fs::read(&path) {
            Ok(text) if String::from_utf8_lossy(&text).lines().any(|line| line == mark) => break,
            Ok(_) => path = first.with_file_name(format!("{stem}-{n}.html")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => break,
            Err(e) => return Err(Failure::internal(format!("cannot read {}: {e}", path.display()))),
        }
    }
    Ok(path)
}

/// Style of all pages.
pub const PAGE_STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Script of the button for light and dark on all pages.
pub const THEME_SCRIPT: &str = include_str!("theme.js");

/// The whole page. `name`: its title if the note has no heading; `mark`: the line that identifies it.
///
/// Its policy forbids everything from outside, and all scripts and styles but its own two. These have a nonce that is a hash of the whole
/// page, so text from a config cannot know it.
fn page(body: &PageBody, name: &str, mark: &str) -> Result<String, std::fmt::Error> {
    use std::fmt::Write as _;

    let nonce = &blake3::hash(body.html.as_bytes()).to_hex()[..32];
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'"
    );
    let title = if body.title.is_empty() { name } else { body.title.as_str() };
    let mut page = String::new();
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"expctl {version}\">\n{mark}\n<title>{title}</title>\n\
         <style nonce=\"{nonce}\">{PAGE_STYLE}{plots}</style>\n</head>\n<body>\n\
         <header><nav aria-label=\"Contents\"><details><summary>Contents</summary><ul>{contents}</ul></details></nav>\
         <button type=\"button\" id=\"theme\" hidden>Theme: system</button></header>\n\
         <main>\n{html}</main>\n\
         <script nonce=\"{nonce}\">{THEME_SCRIPT}{SCRIPT}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = HtmlEscape(title),
        plots = page_style(),
        contents = contents(body),
        html = body.html,
    )?;
    Ok(page)
}

/// The note as HTML, with its headings.
struct PageBody {
    /// The HTML.
    pub html: String,
    /// Headings of the second level: anchor and text.
    pub contents: Vec<(String, String)>,
    /// The first heading.
    pub title: String,
}

/// Marks at the start of list items, which are empty boxes without a font of emoji, with the words that the page has in their place.
const MARKS: [(&str, &str); 2] = [("✅", "yes"), ("❌", "no")];

/// The text that starts a list item, with a word in the place of a mark.
fn item_text(text: CowStr<'_>) -> Vec<Event<'_>> {
    let marked = MARKS.iter().find_map(|(mark, word)| Some((*word, text.strip_prefix(mark)?.to_owned())));
    match marked {
        Some((word, rest)) => {
            let word = format!("<strong>{word}:</strong>");
            vec![Event::InlineHtml(word.into()), Event::Text(rest.into())]
        }
        None => vec![Event::Text(text)],
    }
}

/// How the sections of a page, those under a heading of the second level, are laid out.
enum PageLayout<'a> {
    /// One below the other.
    AsWritten,
    /// The first section, which answers, stands out; below it a picture of the answer; then the second section, which has the table. All
    /// others are folded.
    AnswerFirst(Option<&'a PagePlot>),
}

impl PageLayout<'_> {
    /// HTML before the heading of a section, counted from 0, which ends the one before it.
    fn before(&self, section: usize) -> String {
        match (self, section) {
            (Self::AsWritten, _) => String::new(),
            (Self::AnswerFirst(_), 0) => "<section class=\"answer\">\n".to_owned(),
            (Self::AnswerFirst(lead), 1) => {
                let picture = lead.map(|plot| {
                    let caption = HtmlEscape(&plot.chart.caption);
                    format!("{}<p class=\"caption\">{caption}</p>\n", plot.html())
                });
                format!("</section>\n{}<section>\n", picture.unwrap_or_default())
            }
            (Self::AnswerFirst(_), 2) => format!("</section>\n{FOLD}"),
            (Self::AnswerFirst(_), _) => format!("</details>\n{FOLD}"),
        }
    }

    /// HTML after the heading of a section.
    fn after_heading(&self, section: usize) -> &'static str {
        match self {
            Self::AnswerFirst(_) if section > 1 => "</summary>\n",
            _ => "",
        }
    }

    /// HTML at the end of a page with so many sections.
    fn end(&self, sections: usize) -> &'static str {
        match (self, sections) {
            (Self::AsWritten, _) | (_, 0) => "",
            (Self::AnswerFirst(_), 1 | 2) => "</section>\n",
            (Self::AnswerFirst(_), _) => "</details>\n",
        }
    }
}

/// The start of a folded section.
const FOLD: &str = "<details class=\"fold\">\n<summary>";

/// Convert markdown to HTML. Raw HTML becomes text, tables get a scrolling box, links to pictures become the pictures.
fn page_body(markdown: &str, plots: &[PagePlot], layout: &PageLayout<'_>) -> PageBody {
    let mut events = Vec::new();
    let (mut contents, mut title) = (Vec::new(), String::new());
    // The heading that is being read, and the picture whose alternative text is being skipped.
    let mut heading: Option<(usize, HeadingLevel, String)> = None;
    let mut image: Option<Option<&PagePlot>> = None;
    // Alignment of the columns of the table, column of the current cell, and whether it is in the header.
    let (mut columns, mut column, mut in_head) = (Vec::new(), 0, false);
    // Number of open `details` elements.
    let mut open = 0;
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Image { dest_url, .. }) => {
                // A name may be the suffix of another.
                let own = plots.iter().find(|plot| *plot.file() == *dest_url);
                image = Some(own.or_else(|| plots.iter().find(|plot| plot.is(&dest_url))));
            }
            Event::End(TagEnd::Image) => {
                // Other pictures are replaced by their alternative text.
                if let Some(Some(plot)) = image.take() {
                    events.push(Event::InlineHtml(plot.html().into()));
                }
            }
            _ if matches!(image, Some(Some(_))) => {}
            Event::Html(text) if opens_or_closes_details(text.trim_end(), &mut open) => events.push(Event::Html(text)),
            Event::Html(text) | Event::InlineHtml(text) => {
                if !text.trim_start().starts_with("<!--") {
                    events.push(Event::Text(text));
                }
            }
            Event::Start(Tag::Heading { level, .. }) => heading = Some((events.len(), level, String::new())),
            Event::End(TagEnd::Heading(_)) => {
                let Some((at, level, words)) = heading.take() else { continue };
                // The note's own heading is of the second level, because its title stands in the frontmatter.
                let number = (level as usize).saturating_sub(1).max(1);
                let anchor = format!("s{}", events.len());
                let section = (number == 2).then_some(contents.len());
                // Parts that were folded in the note end with their section.
                let ends = if section.is_some() { std::mem::take(&mut open) } else { 0 };
                let before = section.map(|section| layout.before(section)).unwrap_or_default();
                let after = section.map(|section| layout.after_heading(section)).unwrap_or_default();
                let start = format!("{}{before}<h{number} id=\"{anchor}\">", "</details>\n".repeat(ends));
                events.insert(at, Event::Html(start.into()));
                events.push(Event::Html(format!("</h{number}>\n{after}").into()));
                match number {
                    1 if title.is_empty() => title = words,
                    2 => contents.push((anchor, words)),
                    _ => {}
                }
            }
            Event::Start(Tag::Table(alignment)) => {
                let open = "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table\">";
                events.push(Event::Html(open.into()));
                // The page's policy forbids the style attributes that an alignment would become.
                events.push(Event::Start(Tag::Table(vec![Alignment::None; alignment.len()])));
                columns = alignment;
            }
            Event::Start(Tag::TableHead | Tag::TableRow) => {
                column = 0;
                in_head = matches!(event, Event::Start(Tag::TableHead));
                events.push(event);
            }
            Event::Start(Tag::TableCell) => {
                let right = columns.get(column) == Some(&Alignment::Right);
                let class = if right { " class=\"right\"" } else { "" };
                events.push(Event::InlineHtml(format!("<{}{class}>", cell_element(in_head)).into()));
                column += 1;
            }
            Event::End(TagEnd::TableCell) => {
                events.push(Event::InlineHtml(format!("</{}>", cell_element(in_head)).into()));
            }
            Event::End(TagEnd::Table) => {
                events.push(Event::End(TagEnd::Table));
                events.push(Event::Html("</div>\n".into()));
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = if harmless(&dest_url) { dest_url } else { CowStr::from("#") };
                events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
            }
            Event::Text(text) if matches!(events.last(), Some(Event::Start(Tag::Item))) => {
                events.extend(item_text(text));
            }
            event => {
                if let (Some((_, _, words)), Event::Text(text) | Event::Code(text)) = (&mut heading, &event) {
                    words.push_str(text);
                }
                events.push(event);
            }
        }
    }
    events.extend((0..open).map(|_| Event::Html("</details>\n".into())));
    events.push(Event::Html(layout.end(contents.len()).into()));
    let mut text = String::new();
    html::push_html(&mut text, events.into_iter());
    // A figure is not allowed inside of a paragraph.
    let text = text.replace("<p><figure", "<figure").replace("</figure></p>", "</figure>");
    PageBody { html: text, contents, title }
}

/// Whether a line of HTML is a `<details>`, its end, or a summary in plain text. Such a line is harmless, whoever wrote it.
fn opens_or_closes_details(line: &str, open: &mut usize) -> bool {
    let plain = |words: &str| !words.contains(['<', '>', '&']);
    match line {
        "<details>" => *open += 1,
        "</details>" if *open > 0 => *open -= 1,
        _ => {
            let summary = line.strip_prefix("<summary>").and_then(|rest| rest.strip_suffix("</summary>"));
            return *open > 0 && summary.is_some_and(plain);
        }
    }
    true
}

/// The element of a cell.
fn cell_element(in_head: bool) -> &'static str {
    if in_head { "th" } else { "td" }
}

/// Whether a link cannot run a script.
fn harmless(link: &str) -> bool {
    let scheme = link.split(['/', '?', '#']).next().unwrap_or_default().split_once(':').map(|(scheme, _)| scheme);
    scheme.is_none_or(|scheme| ["http", "https", "mailto"].iter().any(|known| scheme.eq_ignore_ascii_case(known)))
}

/// Headings as a list of links.
fn contents(body: &PageBody) -> String {
    let item = |(anchor, words): &(String, String)| format!("<li><a href=\"#{anchor}\">{}</a></li>", HtmlEscape(words));
    body.contents.iter().map(item).collect()
}

/// Significant digits of values in a page.
const DIGITS: usize = 6;

/// A chart of a page.
#[derive(Clone, Debug, PartialEq)]
pub struct PageChart {
    /// The chart.
    pub chart: Chart,
    /// By panel and layer: text for tooltips in addition to the name of the layer, as `epoch 3`. May be empty or too short.
    pub of: Vec<Vec<String>>,
}

impl PageChart {
    /// The file name by which the markdown of a page links it.
    pub fn link(&self) -> String {
        format!("page_{}.svg", self.chart.name)
    }
}

impl From<Chart> for PageChart {
    fn from(chart: Chart) -> Self {
        Self { chart, of: Vec::new() }
    }
}

/// A chart of a page, drawn, with its data.
struct PagePlot {
    /// The chart.
    pub chart: Chart,
    of: Vec<Vec<String>>,
    svg: String,
}

impl PagePlot {
    /// Draw a chart.
    pub fn new(chart: impl Into<PageChart>) -> Result<Self, ChartError> {
        let PageChart { chart, of } = chart.into();
        Ok(Self { svg: svg_in_page(&chart)?, chart, of })
    }

    /// The file name by which the markdown of a page links it.
    pub fn file(&self) -> String {
        format!("page_{}.svg", self.chart.name)
    }

    /// Whether a link in the markdown of the note is to this chart.
    pub fn is(&self, link: &str) -> bool {
        link.ends_with(&format!("_{}.svg", self.chart.name))
    }

    /// The HTML of the chart.
    pub fn html(&self) -> String {
        let Self { chart, of, svg } = self;
        let mut values = serde_json::to_value(&chart.panels).unwrap_or_default();
        round(&mut values);
        name_marks(&mut values, of);
        // The only way out of a script element.
        let values = values.to_string().replace('<', "\\u003c");
        let title = HtmlEscape(&chart.title);
        format!(
            "<figure class=\"plot\" id=\"plot-{name}\" tabindex=\"0\" aria-label=\"{title}\">\
             <div class=\"tools\"><button type=\"button\" data-do=\"in\" title=\"Zoom in (+)\">+</button>\
             <button type=\"button\" data-do=\"out\" title=\"Zoom out (−)\">−</button>\
             <button type=\"button\" data-do=\"reset\" title=\"All of it (0)\">Reset</button></div>\
             <div class=\"scroll\">{svg}</div><div class=\"tip\" role=\"status\" hidden></div>\
             <script type=\"application/json\">{values}</script></figure>",
            name = HtmlEscape(&chart.name),
        )
    }
}

/// Add the tooltip texts to the data of the layers.
fn name_marks(panels: &mut Value, of: &[Vec<String>]) {
    for (panel, of) in panels.as_array_mut().into_iter().flatten().zip(of) {
        let layers = panel.get_mut("layers").and_then(Value::as_array_mut);
        for (layer, words) in layers.into_iter().flatten().zip(of).filter(|(_, words)| !words.is_empty()) {
            if let Some(layer) = layer.as_object_mut() {
                layer.insert("of".to_owned(), words.as_str().into());
            }
        }
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(round),
        Value::Object(all) => all.values_mut().for_each(round),
        Value::Number(number) => {
            // Whole numbers (batches, steps) keep all digits.
            if let Some(exact) = number.as_f64().filter(|v| v.fract() != 0.0 && number.is_f64()) {
                let rounded: f64 = format!("{exact:.*e}", DIGITS - 1).parse().unwrap_or(exact);
                *value = rounded.into();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expctl_charts::{Axis, Layer, Panel};

    #[test]
    fn marks_of_list_items_are_words() {
        let found = page_body("- ✅ collation\n- ❌ forward pass\n- of ✅ and ❌\n", &[], &PageLayout::AsWritten).html;
        assert!(found.contains("<li><strong>yes:</strong> collation</li>"), "{found}");
        assert!(found.contains("<li><strong>no:</strong> forward pass</li>"), "{found}");
        assert!(found.contains("<li>of ✅ and ❌</li>"), "{found}");
    }

    #[test]
    fn sections_after_the_answer_and_the_table_are_folded() {
        let text = "## T\n\n### Answer\n\na\n\n### Table\n\n<details>\n\nb\n\n### Third\n\nc\n\n### Fourth\n\nd\n";
        let found = page_body(text, &[], &PageLayout::AnswerFirst(None));
        let folded = "</details>\n</section>\n<details class=\"fold\">\n<summary><h2 id=";
        assert!(found.html.contains(folded), "{}", found.html);
        assert!(
            found.html.contains("<section class=\"answer\">\n<h2 id=")
                && found.html.ends_with("<p>d</p>\n</details>\n")
        );
        for (start, end) in [("<section", "</section>"), ("<details", "</details>"), ("<summary>", "</summary>")] {
            assert_eq!(found.html.matches(start).count(), found.html.matches(end).count(), "{start}: {}", found.html);
        }
        assert_eq!(found.contents.len(), 4);
        // A note of one section.
        let one = page_body("### Answer\n\na\n", &[], &PageLayout::AnswerFirst(None)).html;
        assert!(one.ends_with("<p>a</p>\n</section>\n"), "{one}");
    }

    #[test]
    fn columns_are_aligned_by_class() {
        let found = page_body(
            "| a | b |\n|---|--:|\n| style=\"text-align: right\" | 1 |\n| c | 2 |\n",
            &[],
            &PageLayout::AsWritten,
        )
        .html;
        for part in
            ["<th>a</th><th class=\"right\">b</th>", "text-align: right", "<td>c</td><td class=\"right\">2</td>"]
        {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert!(!found.contains("<td style") && !found.contains("<th style"), "{found}");
    }

    #[test]
    fn folded_parts_stay_folded_and_carry_nothing_else() {
        let found = page_body(
            "<details>\n<summary>2 more</summary>\n\n- a\n- b\n\n</details>\n\nend\n",
            &[],
            &PageLayout::AsWritten,
        )
        .html;
        assert!(found.contains("<details>\n<summary>2 more</summary>\n<ul>"), "{found}");
        assert!(found.contains("</ul>\n</details>") && found.ends_with("<p>end</p>\n"), "{found}");
        let hostile = "<details open ontoggle=x>\n\n- </details>: a\n\n</details>\n\n<summary>a</summary>\n\n<details>\n<summary><img src=x></summary>\n";
        let found = page_body(hostile, &[], &PageLayout::AsWritten).html;
        assert!(!found.contains("<details open") && !found.contains("<img") && !found.contains("<summary"), "{found}");
        // One that is never closed ends with the page.
        assert_eq!((found.matches("<details>").count(), found.matches("</details>").count()), (1, 1), "{found}");
    }

    #[test]
    fn what_comes_from_outside_is_words() {
        let text = "## Title\n\n### A <b>part</b>\n\n<script>alert(1)</script>\n\n| a |\n|---|\n| <img src=x onerror=y> |\n\n\
                    <!-- expctl: job 1 -->\n\n[a](javascript:alert(1)) [b](other.md) [c](https://example.org/x:y)\n";
        let found = page_body(text, &[], &PageLayout::AsWritten);
        assert!(!found.html.contains("<script") && !found.html.contains("<img") && !found.html.contains("<b>"));
        assert!(!found.html.contains("expctl: job") && !found.html.contains("javascript:"), "{}", found.html);
        assert!(found.html.contains("href=\"other.md\"") && found.html.contains("href=\"https://example.org/x:y\""));
        assert_eq!(found.title, "Title");
        assert_eq!(found.contents[0].1, "A part");
        assert!(found.html.contains("<h1 id=") && found.html.contains("<h2 id=") && found.html.contains("<table>"));
    }

    #[test]
    fn the_data_of_a_page_says_of_which_epoch_marks_are_and_keeps_batch_numbers() {
        let dots =
            |name: &str| Layer::Dots { name: name.to_owned(), colour: 0, points: vec![[1_234_567.0, 0.123_456_789]] };
        let panel = || {
            let layers = vec![dots("0 mod 2"), dots("1 mod 2")];
            Panel { title: String::new(), x: Axis::new("batch"), y: Axis::new("time (s)"), layers }
        };
        let text = String::from;
        let (name, title, alt, caption) = (text("dots"), text("Dots"), text("Dots."), text("measured"));
        let chart = Chart { name, title, alt, caption, panels: vec![panel(), panel()], columns: 1 };
        let of = vec![Vec::new(), vec![String::new(), text("epoch 3</script>")]];
        let html = PagePlot::new(PageChart { chart, of }).unwrap().html();
        let (_, data) = html.split_once("<script type=\"application/json\">").unwrap();
        let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
        let of = |panel: usize, layer: usize| data[panel]["layers"][layer]["of"].as_str();
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1)], [None, None, None, Some("epoch 3</script>")]);
        assert_eq!(data[1]["layers"][1]["points"][0], serde_json::json!([1_234_567.0, 0.123_457]));
    }
}
