/// The sentence for a name that is not there: those that are (the first of them, where they are many), and the closest.
pub(crate) fn not_there<'a>(
    what: &str,
    plural: &str,
    name: &str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> String {
    /// Names that are listed.
    const LISTED: usize = 20;
    /// Letters that a name that is meant can differ in.
    const DISTANCE: usize = 2;
    let lower = name.to_lowercase();
    let far = |other: &str| {
        // The distance is never less than the difference in length, which costs nothing to see.
        if other.len().abs_diff(name.len()) > 2 * DISTANCE {
            usize::MAX
        } else {
            strsim::levenshtein(&lower, &other.to_lowercase())
        }
    };
    let closest = names
        .clone()
        .map(|other| (far(other), other))
        .min()
        .filter(|(distance, _)| *distance <= DISTANCE && *distance < name.chars().count());
    let count = names.clone().count();
    let listed: Vec<&str> = names.take(LISTED).collect();
    let mut text = what.to_owned();
    if let Some((_, closest)) = closest {
        text += &format!("; is {closest:?} meant?");
    }
    match count {
        0 => text + &format!("; there are no {plural}"),
        _ if count > LISTED => text + &format!("; the {plural} are {} and {} more", listed.join(", "), count - LISTED),
        _ => text + &format!("; the {plural} are {}", listed.join(", ")),
    }
}
