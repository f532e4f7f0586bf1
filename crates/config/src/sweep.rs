//! `[sweep]`: settings that take several values, and the points that these make. A point is one combination of the values;
//! each variant runs at each point.
//!
//! ```toml
//! [sweep.grid]                                # every combination: 2 × 2 points
//! loader.workers = [0, 4]
//! loader.batch_size = [8, 16]
//!
//! [[sweep.exclude]]                           # drops one of them
//! loader = { workers = 0, batch_size = 16 }
//!
//! [[sweep.include]]                           # and adds another one
//! loader = { workers = 8, batch_size = 32 }
//! ```

use expctl_settings::{KeySpec, Launch, SECTIONS, Search, Section, ValueType};

use crate::layer::{Layer, Scope, Setting, accept, known_key, read_settings, table_of, text_of};
use crate::node::{Node, NodeKey, NodeTable, NodeValue, ValueOrigin, flatten};
use crate::problem::Problem;
use crate::suggest::closest;

/// Maximum number of trials of a config. `expctl check` needs about 14 kB of memory for each.
pub const MAX_TRIALS: usize = 50_000;

/// The table of a config that points are read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PointTable {
    /// `[sweep]`: each point runs.
    #[default]
    Sweep,
    /// `[search]`: points race.
    Search,
}

impl PointTable {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Search => "search",
        }
    }
}

/// One swept key of `grid` or `zip`, with its values.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The dotted key: `loader.workers`.
    pub key: &'static str,
    /// Where the key stands in the config, for messages.
    pub at: ValueOrigin,
    /// The values, in the order of the config.
    pub values: Vec<Setting>,
}

/// Settings that belong together: one table of `list`, `exclude` or `include`, or one point.
#[derive(Clone, Debug)]
pub struct SweepRow {
    /// Where the row, or the last value that made the point, stands in the config. `None`: the point without a sweep.
    pub at: Option<ValueOrigin>,
    /// The swept keys and their values.
    pub settings: Layer,
}

/// One table of `exclude`.
#[derive(Clone, Debug)]
pub struct Exclude {
    /// The variant whose points it drops, and where its name stands. `None`: the points of all variants.
    pub variant: Option<(String, ValueOrigin)>,
    /// The values that a point has to have to be dropped.
    pub row: SweepRow,
}

/// `[sweep]`, or the points of `[search]`: (grid × zip × list) − exclude + include. A part that is absent counts as one point without
/// settings in the product.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Which of the two it is, for messages.
    pub table: PointTable,
    /// Where `[sweep]` stands in the config. `None`: there is no sweep.
    pub at: Option<ValueOrigin>,
    /// Whether a variant may set a key that the sweep varies; the value of the sweep then wins. `None`: not set, which
    /// means no.
    pub overrules_variants: Option<bool>,
    /// Axes of which every combination is a point.
    pub grid: Vec<Axis>,
    /// Axes of equal length: their first values make one point, their second values another, and so on.
    pub zip: Vec<Axis>,
    /// Tables of settings; each is combined with every point of `grid` and `zip`.
    pub list: Option<Vec<SweepRow>>,
    /// Points of the product that are dropped.
    pub exclude: Option<Vec<Exclude>>,
    /// Points that are added to the product.
    pub include: Option<Vec<SweepRow>>,
}

impl Sweep {
    /// Merge with `over`, a sweep that wins, for example that of `--set`. An axis replaces the axis of the same key; an
    /// array of tables replaces the whole other one.
    pub fn extend(&mut self, over: Self) {
        self.at = over.at.or(self.at);
        self.overrules_variants = over.overrules_variants.or(self.overrules_variants);
        for (below, above) in [(&mut self.grid, over.grid), (&mut self.zip, over.zip)] {
            for axis in above {
                match below.iter_mut().find(|a| a.key == axis.key) {
                    Some(old) => *old = axis,
                    None => below.push(axis),
                }
            }
        }
        self.list = over.list.or(self.list.take());
        self.exclude = over.exclude.or(self.exclude.take());
        self.include = over.include.or(self.include.take());
    }

    /// Every swept key, and where it stands. A key of several rows comes several times.
    pub fn keys(&self) -> Vec<(&'static str, ValueOrigin)> {
        let axes = self.grid.iter().chain(&self.zip).map(|axis| (axis.key, axis.at));
        let rows = self.list.iter().chain(&self.include).flatten();
        let in_rows = rows.flat_map(|row| row.settings.iter().filter_map(|(key, s)| Some((*key, s.at?))));
        axes.chain(in_rows).collect()
    }

    /// Number of points before any is excluded. Computed from the lengths of the parts: the points themselves may be too many for
    /// the memory.
    fn count(&self) -> usize {
        let zip = self.zip.first().map(|axis| axis.values.len());
        let factors = self.grid.iter().map(|axis| axis.values.len()).chain(zip).chain(self.list.as_ref().map(Vec::len));
        // With `include` alone there is no product.
        let product = factors.reduce(usize::saturating_mul).unwrap_or(0);
        product.saturating_add(self.include.as_ref().map_or(0, Vec::len))
    }

    /// A problem, if the sweep makes more than [`MAX_TRIALS`] trials of `variants` variants. [`Self::points`] must not be called
    /// then: the points may be too many for the memory.
    pub fn too_many(&self, variants: usize) -> Option<Problem> {
        let (at, points) = (self.at?, self.count());
        if points.saturating_mul(variants) <= MAX_TRIALS {
            return None;
        }
        let axes = self.grid.iter().map(|axis| format!("{} values of {}", axis.values.len(), axis.key));
        let axes: Vec<String> = axes.collect();
        let plural = if variants == 1 { "" } else { "s" };
        let table = self.table.name();
        let message =
            format!("{points} points of the {table} × {variants} variant{plural} are more than {MAX_TRIALS} trials");
        let problem = Problem::new(at, message, axes.join(" × "));
        Some(
            problem
                .help(format!("{table} fewer keys at once, or pair their values in [{table}.zip] or [[{table}.list]]")),
        )
    }

    /// The points, in order: the first axis of the grid changes slowest, then zip, then list; included ones come last.
    /// Without a sweep there is one point that changes no setting. What `exclude` drops for one variant alone is still
    /// among them: see [`Self::excluded`]. Mistakes of the sweep are added to `problems`.
    pub fn points(&self, problems: &mut Vec<Problem>) -> Vec<SweepRow> {
        let no_settings = SweepRow { at: None, settings: Layer::new() };
        let Some(at) = self.at else { return vec![no_settings] };
        let problems_before = problems.len();
        self.check(problems);
        let mut points = vec![no_settings];
        for axis in &self.grid {
            let rows: Vec<SweepRow> = axis.values.iter().map(|value| row_of_value(axis.key, value)).collect();
            points = product(&points, &rows);
        }
        if let Some(first) = self.zip.first() {
            let row = |i: usize| {
                let settings = self.zip.iter().filter_map(|axis| Some((axis.key, axis.values.get(i)?.clone())));
                SweepRow { at: first.values.get(i).and_then(|v| v.at), settings: settings.collect() }
            };
            points = product(&points, &(0..first.values.len()).map(row).collect::<Vec<_>>());
        }
        if let Some(list) = &self.list {
            points = product(&points, list);
        }
        // With `include` alone, its points are all: there is no product.
        if self.grid.is_empty() && self.zip.is_empty() && self.list.is_none() {
            points.clear();
        }
        for exclude in self.exclude.iter().flatten().filter(|exclude| exclude.variant.is_none()) {
            points.retain(|point| !exclude.row.matches(point));
        }
        points.extend(self.include.iter().flatten().cloned());
        if points.is_empty() && problems.len() == problems_before {
            let has_exclude = self.exclude.iter().flatten().next().is_some();
            let table = self.table.name();
            let message = match has_exclude {
                true => format!("`exclude` leaves no point of the {table}"),
                false => format!("the {table} is empty"),
            };
            let problem = Problem::new(at, message, "makes no trial");
            problems.push(problem.help(format!(
                "give it values, for example [{table}.grid] with loader.workers = [0, 4], or remove it"
            )));
        }
        points
    }

    /// A point of which no swept value is known, for a sweep that makes none.
    pub fn unknown_point(&self) -> SweepRow {
        let settings = self.keys().into_iter().map(|(key, _)| (key, Setting::unwritten(None))).collect();
        SweepRow { at: None, settings }
    }

    /// Where the entry of `exclude` stands that drops the point for this variant alone. `None`: the variant runs at this
    /// point.
    pub fn excluded(&self, variant: &str, point: &SweepRow) -> Option<ValueOrigin> {
        let of_variant = |exclude: &&Exclude| exclude.variant.as_ref().is_some_and(|(name, _)| name == variant);
        let found = self.exclude.iter().flatten().filter(of_variant).find(|exclude| exclude.row.matches(point))?;
        found.row.at
    }

    /// The variants that `exclude` names, and where their names stand.
    pub fn excluding_variants(&self) -> impl Iterator<Item = &(String, ValueOrigin)> {
        self.exclude.iter().flatten().filter_map(|exclude| exclude.variant.as_ref())
    }

    /// Report axes without values, `zip` axes of unequal length, keys that are swept twice, and `exclude` tables that can
    /// never match.
    fn check(&self, problems: &mut Vec<Problem>) {
        let table = self.table.name();
        for axis in self.grid.iter().chain(&self.zip).filter(|axis| axis.values.is_empty()) {
            problems.push(Problem::new(axis.at, format!("the {table} of `{}` is empty", axis.key), "has no values"));
        }
        if let Some((first, rest)) = self.zip.split_first() {
            for axis in rest.iter().filter(|axis| axis.values.len() != first.values.len()) {
                let (n, m) = (axis.values.len(), first.values.len());
                let problem = Problem::new(
                    axis.at,
                    format!("`{table}.zip` pairs arrays of unequal length: {m} and {n}"),
                    format!("`{}` has {n} values", axis.key),
                );
                problems.push(
                    problem
                        .also(first.at, format!("`{}` has {m}", first.key))
                        .help(format!("give each as many values, or use [{table}.grid] for all combinations")),
                );
            }
        }
        self.check_swept_twice(problems);
        let swept = self.keys();
        for exclude in self.exclude.iter().flatten() {
            if let (None, true, Some(at)) = (&exclude.variant, exclude.row.settings.is_empty(), exclude.row.at) {
                let problem = Problem::new(at, "`exclude` names no swept key", "never matches");
                problems.push(problem.help("say which points are dropped, for example loader.workers = 0"));
            }
            if let (Some((name, at)), true) = (&exclude.variant, exclude.row.settings.is_empty()) {
                let message = format!("`exclude` names variant `{name}`, but no swept key");
                let problem = Problem::new(*at, message, "never matches");
                problems
                    .push(problem.help("say which of its points are dropped, or leave the variant out with --only"));
            }
            for (key, setting) in &exclude.row.settings {
                if let (false, Some(at)) = (swept.iter().any(|(k, _)| k == key), setting.at) {
                    let problem =
                        Problem::new(at, format!("`exclude` names `{key}`, which is not swept"), "never matches");
                    let keys: std::collections::BTreeSet<&str> = swept.iter().map(|(k, _)| *k).collect();
                    let keys: Vec<&str> = keys.into_iter().collect();
                    problems.push(problem.help(format!("swept are {}", keys.join(", "))));
                }
            }
        }
    }

    /// Report keys in two of grid, zip and list: the values of one of them would have no effect.
    fn check_swept_twice(&self, problems: &mut Vec<Problem>) {
        let mut seen: Vec<(&str, ValueOrigin)> = self.grid.iter().map(|a| (a.key, a.at)).collect();
        let mut listed: Vec<(&str, ValueOrigin)> = Vec::new();
        for (key, setting) in self.list.iter().flatten().flat_map(|row| &row.settings) {
            if let (Some(at), false) = (setting.at, listed.iter().any(|(k, _)| k == key)) {
                listed.push((*key, at));
            }
        }
        for (key, at) in self.zip.iter().map(|a| (a.key, a.at)).chain(listed) {
            match seen.iter().find(|(k, _)| *k == key) {
                Some((_, first)) => problems
                    .push(Problem::new(at, format!("`{key}` is swept twice"), "here again").also(*first, "swept here")),
                None => seen.push((key, at)),
            }
        }
    }
}

impl SweepRow {
    /// Whether the point has all of this row's values. A row without values matches no point, and neither does a value
    /// that could not be read.
    fn matches(&self, point: &Self) -> bool {
        !self.settings.is_empty()
            && self.settings.iter().all(|(key, expected)| {
                expected.value.is_some() && point.settings.get(key).is_some_and(|found| found.value == expected.value)
            })
    }
}

/// A row with one setting.
fn row_of_value(key: &'static str, value: &Setting) -> SweepRow {
    SweepRow { at: value.at, settings: Layer::from([(key, value.clone())]) }
}

/// Every row of `left` joined with every row of `right`; `right` changes fastest.
fn product(left: &[SweepRow], right: &[SweepRow]) -> Vec<SweepRow> {
    let pair = |l: &SweepRow, r: &SweepRow| {
        let mut settings = l.settings.clone();
        settings.extend(r.settings.clone());
        SweepRow { at: r.at.or(l.at), settings }
    };
    left.iter().flat_map(|l| right.iter().map(move |r| pair(l, r))).collect()
}

/// The tables of `[sweep]` and `[search]`.
const TABLES: [&str; 5] = ["grid", "zip", "list", "exclude", "include"];

/// The one key that `[sweep]` takes without its section, and the key that it stands for.
const RANKS: (&str, &str) = ("ranks", Launch::RANKS.name());

/// The key of [`Sweep::overrules_variants`].
const OVERRULES: &str = "overrules_variants";

/// The key of [`Exclude::variant`].
const VARIANT: &str = "variant";

/// Read `table`, the content of `[sweep]`, whose header stands at `at`. Values are checked as in any other table; what is
/// wrong is added to `problems` and left out.
pub fn read_sweep(at: ValueOrigin, table: &NodeTable, problems: &mut Vec<Problem>) -> Sweep {
    read_points(PointTable::Sweep, at, table, problems)
}

/// The same for the points of either table.
pub fn read_points(of: PointTable, at: ValueOrigin, table: &NodeTable, problems: &mut Vec<Problem>) -> Sweep {
    let within = of.name();
    let mut sweep = Sweep { table: of, at: Some(at), ..Sweep::default() };
    for (key, node) in table {
        match key.name.as_str() {
            "grid" => {
                if let Some(table) = table_of(&format!("`{within}.grid`"), node, problems) {
                    sweep.grid.extend(read_axes(of, flatten("", table), problems));
                }
            }
            "zip" => {
                if let Some(table) = table_of(&format!("`{within}.zip`"), node, problems) {
                    sweep.zip = read_axes(of, flatten("", table), problems);
                }
            }
            "list" => sweep.list = read_rows(&format!("`{within}.list`"), node, problems),
            "exclude" => sweep.exclude = read_excludes(&format!("`{within}.exclude`"), node, problems),
            "include" => sweep.include = read_rows(&format!("`{within}.include`"), node, problems),
            OVERRULES if of == PointTable::Sweep => {
                let read = accept(&ValueType::Bool, "sweep.overrules_variants", node);
                let read = read.map_err(|problem| problems.push(*problem)).ok();
                sweep.overrules_variants = read.and_then(|value| value.as_bool());
            }
            // A key that stands in the table itself is swept as if it stood in its grid.
            name if name == RANKS.0 => {
                let named = NodeKey { name: RANKS.1.to_owned(), at: key.at };
                sweep.grid.extend(read_axes(of, vec![(named, node.clone())], problems));
            }
            name if SECTIONS.contains(&name) => {
                if let Some(table) = table_of(&format!("`{within}.{name}`"), node, problems) {
                    sweep.grid.extend(read_axes(of, flatten(name, table), problems));
                }
            }
            // "loader.workers" in quotes.
            name if name.contains('.') => sweep.grid.extend(read_axes(of, vec![(key.clone(), node.clone())], problems)),
            name => {
                let problem = Problem::new(key.at, format!("unknown key `{within}.{name}`"), "no such key");
                problems.push(unknown_key(of, name, problem));
            }
        }
    }
    for (i, axis) in sweep.grid.iter().enumerate() {
        // A problem within one file alone: in several files, the axis of a later file replaces that of an earlier one.
        if let Some(first) = sweep.grid[..i].iter().find(|first| first.key == axis.key) {
            let problem = Problem::new(axis.at, format!("`{}` is swept twice", axis.key), "here again");
            problems.push(problem.also(first.at, "swept here"));
        }
    }
    sweep
}

/// The problem of an unknown key of either table, with what was probably meant.
fn unknown_key(of: PointTable, name: &str, problem: Problem) -> Problem {
    let own: Vec<&str> = match of {
        PointTable::Sweep => vec![OVERRULES],
        PointTable::Search => Search::KEYS.iter().map(KeySpec::leaf).collect(),
    };
    let within = of.name();
    match closest(name, TABLES.into_iter().chain([RANKS.0]).chain(own.iter().copied())) {
        Some(near) => problem.help(format!("did you mean `{within}.{near}`?")),
        None => problem.help(format!(
            "[{within}] takes {}, and {}; settings go below the first five",
            TABLES.join(", "),
            own.join(", ")
        )),
    }
}

/// The axes of some keys with their nodes, each of which has to be an array of values.
fn read_axes(of: PointTable, keys: Vec<(NodeKey, Node)>, problems: &mut Vec<Problem>) -> Vec<Axis> {
    let mut axes = Vec::new();
    for (key, node) in keys {
        let Some(spec) = known_key(&key, &node, Scope::Trial, problems, &mut Layer::new()) else { continue };
        let NodeValue::Array(items) = &node.value else {
            let problem = Problem::new(
                node.at,
                format!("a {} takes an array of values for `{}`, not {}", of.name(), spec.key, node.describe()),
                "expected an array",
            );
            problems.push(problem.help("write the values in brackets: [1, 2, 4]"));
            // Swept, so it is not missing.
            axes.push(Axis { key: spec.key, at: key.at, values: vec![Setting::unwritten(None)] });
            continue;
        };
        let values = items.iter().map(|item| Setting::read(spec, item, problems)).collect();
        axes.push(Axis { key: spec.key, at: key.at, values });
    }
    axes
}

/// The rows of an array of tables. `what` names it in messages. `None`: it is no such array, which was reported.
fn read_rows(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<Vec<SweepRow>> {
    let tables = read_tables(what, node, problems)?;
    let row = |(at, table): (ValueOrigin, &NodeTable)| SweepRow {
        at: Some(at),
        settings: read_settings("", table, Scope::Trial, problems),
    };
    Some(tables.into_iter().map(row).collect())
}

/// The entries of `exclude`. In each, the key `variant` is a name, and all others are settings.
fn read_excludes(what: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<Vec<Exclude>> {
    let tables = read_tables(what, node, problems)?;
    let exclude = |(at, table): (ValueOrigin, &NodeTable)| {
        let (names, values): (NodeTable, NodeTable) = table.iter().cloned().partition(|(key, _)| key.name == VARIANT);
        let variant = names.first().and_then(|(_, node)| Some((text_of("`variant`", node, problems)?, node.at)));
        Exclude {
            variant,
            row: SweepRow { at: Some(at), settings: read_settings("", &values, Scope::Trial, problems) },
        }
    };
    Some(tables.into_iter().map(exclude).collect())
}

/// The tables of an array, each with where it stands. `None`: `node` is no array, which was reported. Entries that are no
/// tables are reported and left out.
fn read_tables<'a>(
    what: &str,
    node: &'a Node,
    problems: &mut Vec<Problem>,
) -> Option<Vec<(ValueOrigin, &'a NodeTable)>> {
    let NodeValue::Array(items) = &node.value else {
        let problem = Problem::new(
            node.at,
            format!("{what} is an array of tables, not {}", node.describe()),
            "expected an array",
        );
        let name = what.trim_matches('`');
        problems.push(problem.help(format!("write [[{name}]] tables, or [{{ loader.workers = 4 }}]")));
        return None;
    };
    let entry = |item: &'a Node| Some((item.at, table_of(&format!("an entry of {what}"), item, problems)?));
    Some(items.iter().filter_map(entry).collect())
}
