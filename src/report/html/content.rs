use minijinja::HtmlEscape;
use pulldown_cmark::{Alignment, CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::plot::Plot;

/// The note's markdown as HTML, with the list of its headings.
pub(super) struct Body {
    /// The HTML.
    pub html: String,
    /// Headings of the second level: the anchor and the words.
    pub contents: Vec<(String, String)>,
    /// The first heading.
    pub title: String,
}

/// Markdown to HTML: raw HTML becomes words, tables get a box of their own to scroll in, and the links to pictures the
/// pictures.
pub(super) fn body(markdown: &str, plots: &[Plot]) -> Body {
    let mut events = Vec::new();
    let (mut contents, mut title) = (Vec::new(), String::new());
    // The heading that is being read, and the picture whose alternative words are being left out.
    let mut heading: Option<(usize, HeadingLevel, String)> = None;
    let mut image: Option<Option<&Plot>> = None;
    // How the columns of the table are aligned, the column of the cell that is read, and whether it is one of the head.
    let (mut columns, mut column, mut in_head) = (Vec::new(), 0, false);
    // How many folded parts are open.
    let mut open = 0;
    for event in Parser::new_ext(markdown, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Image { dest_url, .. }) => {
                // One name may be the end of another.
                let own = plots.iter().find(|plot| *plot.file() == *dest_url);
                image = Some(own.or_else(|| plots.iter().find(|plot| plot.is(&dest_url))));
            }
            Event::End(TagEnd::Image) => {
                // A picture from elsewhere is not in the page; its words stand for it.
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
                events.insert(at, Event::Html(format!("<h{number} id=\"{anchor}\">").into()));
                events.push(Event::Html(format!("</h{number}>\n").into()));
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
                events.push(Event::InlineHtml(format!("<{}{class}>", cell(in_head)).into()));
                column += 1;
            }
            Event::End(TagEnd::TableCell) => {
                events.push(Event::InlineHtml(format!("</{}>", cell(in_head)).into()));
            }
            Event::End(TagEnd::Table) => {
                events.push(Event::End(TagEnd::Table));
                events.push(Event::Html("</div>\n".into()));
            }
            Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
                let dest_url = if harmless(&dest_url) { dest_url } else { CowStr::from("#") };
                events.push(Event::Start(Tag::Link { link_type, dest_url, title, id }));
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
    let mut text = String::new();
    html::push_html(&mut text, events.into_iter());
    // A picture is no part of a sentence.
    let text = text.replace("<p><figure", "<figure").replace("</figure></p>", "</figure>");
    Body { html: text, contents, title }
}

/// Whether a line of HTML is one by which a part is folded: `<details>`, its summary in plain words, or its end. Such a line does nothing
/// else, whoever wrote it.
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
fn cell(in_head: bool) -> &'static str {
    if in_head { "th" } else { "td" }
}

/// No link of a note runs a program.
fn harmless(link: &str) -> bool {
    let scheme = link.split(['/', '?', '#']).next().unwrap_or_default().split_once(':').map(|(scheme, _)| scheme);
    scheme.is_none_or(|scheme| ["http", "https", "mailto"].iter().any(|known| scheme.eq_ignore_ascii_case(known)))
}

/// Headings as a list of links.
pub(super) fn contents(body: &Body) -> String {
    let item = |(anchor, words): &(String, String)| format!("<li><a href=\"#{anchor}\">{}</a></li>", HtmlEscape(words));
    body.contents.iter().map(item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_class() {
        let found = body("| a | b |\n|---|--:|\n| style=\"text-align: right\" | 1 |\n| c | 2 |\n", &[]).html;
        for part in
            ["<th>a</th><th class=\"right\">b</th>", "text-align: right", "<td>c</td><td class=\"right\">2</td>"]
        {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert!(!found.contains("<td style") && !found.contains("<th style"), "{found}");
    }

    #[test]
    fn folded_parts_stay_folded_and_carry_nothing_else() {
        let found = body("<details>\n<summary>2 more</summary>\n\n- a\n- b\n\n</details>\n\nend\n", &[]).html;
        assert!(found.contains("<details>\n<summary>2 more</summary>\n<ul>"), "{found}");
        assert!(found.contains("</ul>\n</details>") && found.ends_with("<p>end</p>\n"), "{found}");
        let hostile = "<details open ontoggle=x>\n\n- </details>: a\n\n</details>\n\n<summary>a</summary>\n\n<details>\n<summary><img src=x></summary>\n";
        let found = body(hostile, &[]).html;
        assert!(!found.contains("<details open") && !found.contains("<img") && !found.contains("<summary"), "{found}");
        // One that is never closed ends with the page.
        assert_eq!((found.matches("<details>").count(), found.matches("</details>").count()), (1, 1), "{found}");
    }

    #[test]
    fn what_comes_from_outside_is_words() {
        let text = "## Title\n\n### A <b>part</b>\n\n<script>alert(1)</script>\n\n| a |\n|---|\n| <img src=x onerror=y> |\n\n\
                    <!-- expctl: job 1 -->\n\n[a](javascript:alert(1)) [b](other.md) [c](https://example.org/x:y)\n";
        let found = body(text, &[]);
        assert!(!found.html.contains("<script") && !found.html.contains("<img") && !found.html.contains("<b>"));
        assert!(!found.html.contains("expctl: job") && !found.html.contains("javascript:"), "{}", found.html);
        assert!(found.html.contains("href=\"other.md\"") && found.html.contains("href=\"https://example.org/x:y\""));
        assert_eq!(found.title, "Title");
        assert_eq!(found.contents[0].1, "A part");
        assert!(found.html.contains("<h1 id=") && found.html.contains("<h2 id=") && found.html.contains("<table>"));
    }
}
