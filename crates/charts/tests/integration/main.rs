//! Every kind of chart, drawn through the public interface. `EXPCTL_PICTURES=FOLDER` keeps the files, to be looked at.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;

use expctl_charts::{Axis, Bar, BoxMark, Chart, Layer, Panel, ShadedCell, Size, chart_files, png, svg};

/// Even draws from 0 to 1 that are the same every time.
fn noise(n: usize) -> Vec<f64> {
    let mut state = 7u64;
    let next = move |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    (0..n).map(next).collect()
}

fn panel(title: &str, x: Axis, y: Axis, layers: Vec<Layer>) -> Panel {
    Panel { title: title.into(), x, y, layers }
}

fn chart(name: &str, title: &str, panels: Vec<Panel>, columns: usize) -> Chart {
    let alt = format!("{title}, drawn for a test.");
    let caption = "Derived from nothing, n = 1.".into();
    Chart { name: name.into(), title: title.into(), alt, caption, panels, columns }
}

fn bars() -> Chart {
    let names =
        ["lazy launch.ranks=2", "eager", "<b>bold</b> & \"quoted\"", "a_very_long_name_that_does_not_fit_anywhere"];
    let bar = |i: usize| {
        let x = i as f64;
        let to = 1200.0 + 900.0 * x;
        Bar { x, width: 0.7, from: 0.0, to, interval: Some([to - 130.0, to + 130.0]) }
    };
    let dots =
        (0..4).flat_map(|i| [[i as f64 - 0.1, 1150.0 + 900.0 * i as f64], [i as f64 + 0.1, 1260.0 + 900.0 * i as f64]]);
    let layers = vec![
        Layer::Bars { name: "mean, 95 % interval".into(), colour: 0, bars: (0..4).map(bar).collect() },
        Layer::Dots { name: "each run".into(), colour: 1, points: dots.collect() },
        Layer::Rule { name: "baseline".into(), y: 1200.0 },
    ];
    let x = Axis::new("variant").named(names.map(String::from));
    chart("bars", "Rate of each variant", vec![panel("", x, Axis::new("rate (samples/s)"), layers)], 1)
}

fn stacked() -> Chart {
    let stages =
        ["sample", "read", "decode", "mask", "collate", "transfer", "forward", "backward", "optimizer", "unattributed"];
    let layer = |(colour, stage): (usize, &&str)| {
        let bars = (0..3).map(|i| Bar {
            x: i as f64,
            width: 0.7,
            from: colour as f64,
            to: colour as f64 + 1.0,
            interval: None,
        });
        Layer::Bars { name: (*stage).into(), colour, bars: bars.collect() }
    };
    let x = Axis::new("").named(["ours", "merlin", "census"].map(String::from));
    let layers = stages.iter().enumerate().map(layer).collect();
    chart("stacked", "Where a step goes", vec![panel("", x, Axis::new("exposed time (ms/step)"), layers)], 1)
}

fn lines() -> Chart {
    let of = |colour: usize| {
        let mut times: Vec<f64> =
            noise(5000).iter().map(|v| 0.002 * (1.0 + colour as f64) * 10f64.powf(*v * 3.0)).collect();
        times.sort_by(f64::total_cmp);
        let n = times.len() as f64;
        let points = times.iter().enumerate().map(|(i, t)| [*t, (i + 1) as f64 / n]).collect();
        Layer::Line { name: format!("method {colour}"), colour, points }
    };
    let panels = vec![
        panel(
            "first epoch",
            Axis::new("batch time (s)").log(),
            Axis::new("share of batches").between(0.0, 1.0),
            (0..7).map(of).collect(),
        ),
        panel(
            "second epoch",
            Axis::new("batch time (s)").log(),
            Axis::new("share of batches").between(0.0, 1.0),
            (0..7).map(of).collect(),
        ),
    ];
    chart("lines", "Batch times", panels, 2)
}

fn residues() -> Chart {
    let all = noise(4000);
    let layer = |residue: usize| {
        let points = all.iter().enumerate().filter(|(i, _)| i % 10 == residue).map(|(i, v)| {
            let slow = if (i + i / 450) % 10 == 3 { 100.0 } else { 1.0 };
            [i as f64, 0.003 * slow * (0.8 + 0.4 * v)]
        });
        Layer::Dots { name: format!("{residue} mod 10"), colour: residue, points: points.collect() }
    };
    let layers = (0..10).map(layer).collect();
    chart(
        "residues",
        "Batches by residue",
        vec![panel("", Axis::new("batch"), Axis::new("batch time (s)").log(), layers)],
        1,
    )
}

fn heat() -> Chart {
    let all = noise(8 * 100);
    let cell = |(i, v): (usize, &f64)| {
        let (rank, bin) = ((i / 100) as f64, (i % 100) as f64);
        ShadedCell {
            x: [bin * 5.0, bin * 5.0 + 5.0],
            y: [rank - 0.5, rank + 0.5],
            value: 20.0 + 8.0 * v + if rank == 5.0 { 9.0 } else { 0.0 },
        }
    };
    let cells = all.iter().enumerate().map(cell).collect();
    let y = Axis::new("rank").named((0..8).map(|rank| rank.to_string()));
    let layers = vec![Layer::Cells { name: "own work (ms/step)".into(), cells }];
    chart("heat", "Own work of each rank", vec![panel("", Axis::new("step"), y, layers)], 1)
}

/// Two boxes a method, the second slower; the last one is of times that are all the same.
fn boxes() -> Chart {
    let mark = |x: f64, factor: f64| BoxMark {
        x,
        width: 0.3,
        whiskers: [0.002 * factor, 0.9 * factor],
        quartiles: [0.008 * factor, 0.04 * factor],
        median: 0.02 * factor,
    };
    let layer = |(colour, name): (usize, &str)| {
        let x = |i: usize| i as f64 - 0.17 + 0.34 * colour as f64;
        let mut boxes: Vec<BoxMark> = (0..3).map(|i| mark(x(i), 1.0 + colour as f64 + i as f64)).collect();
        boxes.push(BoxMark { x: x(3), width: 0.3, whiskers: [0.1; 2], quartiles: [0.1; 2], median: 0.1 });
        Layer::Boxes { name: name.into(), colour, whiskers: "1 % to 99 %".into(), boxes }
    };
    let means = Layer::Dots { name: "mean".into(), colour: 2, points: (0..4).map(|i| [f64::from(i), 0.1]).collect() };
    let mut layers: Vec<Layer> = [(0, "first epoch"), (1, "later epochs")].into_iter().map(layer).collect();
    layers.push(means);
    let x = Axis::new("").named(["merlin", "census", "mapped", "even"].map(String::from));
    chart("boxes", "Batch loading times", vec![panel("", x, Axis::new("batch time (s)").log(), layers)], 1)
}

fn all() -> Vec<Chart> {
    vec![bars(), stacked(), lines(), residues(), heat(), boxes()]
}

#[test]
fn every_kind_becomes_an_svg_that_holds_its_words_and_a_png_that_is_not_blank() {
    let kept = std::env::var_os("EXPCTL_PICTURES").map(PathBuf::from);
    for chart in all() {
        let files = chart_files(&chart, None, "test").unwrap();
        let names = ["svg", "png"].map(|ending| format!("test_{}.{ending}", chart.name));
        assert_eq!(files.each_ref().map(|(name, _)| name), names.each_ref());
        for (folder, (name, content)) in files.iter().filter_map(|file| Some((kept.as_ref()?, file))) {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(folder.join(name), content).unwrap();
        }
        let [(_, text), (_, pixels)] = files;
        let text = String::from_utf8(text).unwrap();
        assert!(text.len() < 500_000, "{} has {} bytes", chart.name, text.len());
        assert!(text.contains(&chart.title) && text.contains("prefers-color-scheme:dark"));
        for axis in chart.panels.iter().flat_map(|panel| [&panel.x, &panel.y]).filter(|axis| !axis.label.is_empty()) {
            assert!(
                text.contains(&format!(">{}</text>", axis.label.replace('/', "&#x2f;"))),
                "{} of {}",
                axis.label,
                chart.name
            );
        }
        assert!(pixels.starts_with(b"\x89PNG") && pixels.len() > 10_000, "{}: {} bytes", chart.name, pixels.len());
    }
}

#[test]
fn names_from_outside_are_words_and_never_markup() {
    let text = svg(&bars(), None).unwrap();
    assert!(text.contains("&lt;b&gt;bold&lt;") && !text.contains("<b>"), "{text}");
    assert!(!text.contains("\"quoted\""));
}

/// Width and height of an SVG, in points.
fn size_of(svg: &str) -> [f64; 2] {
    let head = &svg[..svg.find('>').unwrap()];
    ["width", "height"].map(|name| {
        let (_, rest) = head.split_once(&format!(" {name}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    })
}

#[test]
fn a_picture_has_the_size_that_was_asked_for() {
    let asked = |text: &str| Some(text.parse::<Size>().unwrap());
    for chart in all() {
        assert_eq!(size_of(&svg(&chart, None).unwrap())[0], 860.0, "{}", chart.name);
        for (text, size) in [("1400x900", [1400.0, 900.0]), ("600x700", [600.0, 700.0])] {
            assert_eq!(size_of(&svg(&chart, asked(text)).unwrap()), size, "{}", chart.name);
        }
        // Words are no smaller than usual: what needs more height than was asked for has it.
        assert!(size_of(&svg(&chart, asked("900x200")).unwrap())[1] >= 200.0);
    }
    let pixels = png(&boxes(), asked("500x400")).unwrap();
    // The header of a PNG: width and height stand behind its signature and the name of the first chunk.
    assert_eq!([&pixels[16..20], &pixels[20..24]], [1000u32.to_be_bytes(), 800u32.to_be_bytes()]);
}

#[test]
fn a_box_has_its_median_and_whiskers_also_where_it_has_no_height() {
    let text = svg(&boxes(), None).unwrap();
    // Three boxes of each kind with an area, and two whose quartiles are one value.
    assert_eq!(text.matches("class=\"bar edge").count(), 6, "{text}");
    assert_eq!(text.matches("class=\"whisker").count(), 8, "{text}");
    let words = "even, first epoch: median 0.1, 25 % to 75 %: 0.1 to 0.1, 1 % to 99 %: 0.1 to 0.1";
    assert!(text.contains(words), "{text}");
}

/// A stage of some nanoseconds below one of a second: nothing is left of it, and nothing that readers of SVG complain about.
#[test]
fn a_bar_that_is_too_thin_to_be_seen_is_not_drawn() {
    let bar = |from: f64, to: f64| Bar { x: 0.0, width: 0.7, from, to, interval: None };
    let layer = |name: &str, bar| Layer::Bars { name: name.into(), colour: 0, bars: vec![bar] };
    let layers = vec![layer("thin", bar(0.0, 1e-8)), layer("thick", bar(1e-8, 1.0))];
    let x = Axis::new("").named([String::from("one")]);
    let text = svg(&chart("thin", "Thin", vec![panel("", x, Axis::new("time (s)"), layers)], 1), None).unwrap();
    assert!(!text.contains("height=\"0\"") && !text.contains("width=\"0\""), "{text}");
    assert_eq!(text.matches("class=\"bar edge").count(), 1, "{text}");
}

#[test]
fn what_cannot_be_drawn_is_left_out_or_said() {
    let none = chart("none", "Nothing", Vec::new(), 1);
    assert!(svg(&none, None).unwrap_err().to_string().contains("no panel") && png(&none, None).is_err());
    let points = vec![[f64::NAN, 1.0], [1.0, f64::INFINITY], [0.0, -1.0], [2.0, 0.0]];
    let layers = vec![
        Layer::Line { name: "odd".into(), colour: 0, points: points.clone() },
        Layer::Dots { name: "odd".into(), colour: 12, points },
    ];
    let odd = chart("odd", "Odd", vec![panel("", Axis::new("x").log(), Axis::new("y").log(), layers)], 3);
    let text = svg(&odd, None).unwrap();
    assert!(!text.contains("NaN") && !text.contains("inf") && !text.contains("class=\"line"), "{text}");
    png(&odd, None).unwrap();
}
