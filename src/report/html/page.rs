use minijinja::HtmlEscape;

use super::content::{Body, contents};
use crate::plot::page_style;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The whole page. `name` is its title where the note has no heading; `mark` is the line by which it is known again.
///
/// Its policy forbids everything from outside, and every script and style but its own two, which carry a number that follows
/// from all that the page says: what stands in a config cannot know it.
pub(super) fn page(body: &Body, name: &str, mark: &str) -> Result<String, std::fmt::Error> {
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
         <style nonce=\"{nonce}\">{STYLE}{plots}</style>\n</head>\n<body>\n\
         <header><nav aria-label=\"Contents\"><details><summary>Contents</summary><ul>{contents}</ul></details></nav>\
         <button type=\"button\" id=\"theme\" hidden>Theme: system</button></header>\n\
         <main>\n{html}</main>\n\
         <script nonce=\"{nonce}\">{SCRIPT}</script>\n</body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        title = HtmlEscape(title),
        plots = page_style(),
        contents = contents(body),
        html = body.html,
    )?;
    Ok(page)
}
