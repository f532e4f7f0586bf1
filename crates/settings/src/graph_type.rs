//! Which networks of a data set make the edge types of a graph.

/// Names of operands that are no edge types. No edge type may have one of them.
pub const OPERANDS: [&str; 3] = ["labels", "genes", "metabolism"];

/// One edge type of a graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphType {
    /// Its name: that of the network, or of the merge.
    pub name: String,
    /// The networks whose edges it has; one where nothing is merged.
    pub members: Vec<String>,
}

/// A merge that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct MergeError {
    /// Its position among the merges.
    pub position: usize,
    /// Why it cannot be.
    pub problem: MergeProblem,
}

/// Why edge types cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MergeProblem {
    /// It has another form.
    #[error("`{merge}` is not NAME=NETWORK+NETWORK or NAME=PREFIX*")]
    Form {
        /// The merge.
        merge: String,
    },
    /// Its name is one of [`OPERANDS`].
    #[error("no edge type can be called `{name}`: tables have that word for something else")]
    ReservedName {
        /// The name.
        name: String,
    },
    /// It names no network of the graph.
    #[error("`{merge}`: the graph has no edge type `{pattern}`")]
    NoNetwork {
        /// The merge.
        merge: String,
        /// The name or pattern that fits none.
        pattern: String,
    },
    /// It names a network that another merge has.
    #[error("`{merge}`: `{network}` is merged already")]
    MergedAlready {
        /// The merge.
        merge: String,
        /// The network.
        network: String,
    },
    /// It names one network.
    #[error("`{merge}` merges one edge type alone")]
    Single {
        /// The merge.
        merge: String,
    },
    /// Another edge type has its name.
    #[error("`{merge}`: another edge type is called `{name}`")]
    NameTaken {
        /// The merge.
        merge: String,
        /// The name.
        name: String,
    },
}

/// The edge types of a graph of these networks, in order, after `merges`, each of the form `NAME=NETWORK+NETWORK` or `NAME=PREFIX*`.
///
/// A merged type stands where its first network stood, and has its networks in the order of the graph.
///
/// # Errors
/// The first merge that cannot be.
pub fn graph_types<N: AsRef<str>, M: AsRef<str>>(networks: &[N], merges: &[M]) -> Result<Vec<GraphType>, MergeError> {
    let alone = |network: &N| {
        let name = network.as_ref().to_owned();
        GraphType { members: vec![name.clone()], name }
    };
    let mut types: Vec<GraphType> = networks.iter().map(alone).collect();
    let mut merged: Vec<String> = Vec::new();
    for (position, merge) in merges.iter().enumerate() {
        let merged_type = read_merge(merge.as_ref(), networks, &types, &mut merged)
            .map_err(|problem| MergeError { position, problem })?;
        let is_member = |of: &GraphType| merged_type.members.contains(&of.name);
        let first = types.iter().position(is_member).unwrap_or(types.len());
        types.retain(|of| !is_member(of));
        types.insert(first.min(types.len()), merged_type);
    }
    Ok(types)
}

/// The type that `merge` makes of those of `networks` that no merge has yet; adds them to `merged`.
fn read_merge<N: AsRef<str>>(
    merge: &str,
    networks: &[N],
    types: &[GraphType],
    merged: &mut Vec<String>,
) -> Result<GraphType, MergeProblem> {
    let owned = || merge.to_owned();
    let form = || MergeProblem::Form { merge: owned() };
    let (name, patterns) = merge.split_once('=').ok_or_else(form)?;
    let (name, patterns): (&str, Vec<&str>) = (name.trim(), patterns.split('+').map(str::trim).collect());
    let is_name = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_pattern = |text: &str| text == "*" || is_name(text.strip_suffix('*').unwrap_or(text));
    if !is_name(name) || !patterns.iter().all(|pattern| is_pattern(pattern)) {
        return Err(form());
    }
    if OPERANDS.contains(&name) {
        return Err(MergeProblem::ReservedName { name: name.to_owned() });
    }
    let matches = |pattern: &str, network: &str| match pattern.strip_suffix('*') {
        Some(prefix) => network.starts_with(prefix),
        None => network == pattern,
    };
    for pattern in &patterns {
        if !networks.iter().any(|network| matches(pattern, network.as_ref())) {
            return Err(MergeProblem::NoNetwork { merge: owned(), pattern: (*pattern).to_owned() });
        }
    }
    let chosen = networks.iter().map(AsRef::as_ref).filter(|network| patterns.iter().any(|p| matches(p, network)));
    let members: Vec<String> = chosen.map(str::to_owned).collect();
    if let Some(again) = members.iter().find(|network| merged.contains(network)) {
        return Err(MergeProblem::MergedAlready { merge: owned(), network: again.clone() });
    }
    if members.len() < 2 {
        return Err(MergeProblem::Single { merge: owned() });
    }
    if types.iter().any(|of| of.name == name && !members.contains(&of.name)) {
        return Err(MergeProblem::NameTaken { merge: owned(), name: name.to_owned() });
    }
    merged.extend(members.iter().cloned());
    Ok(GraphType { name: name.to_owned(), members })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORKS: [&str; 5] = ["physical", "string_a", "tflink", "string_b", "string_c"];

    fn types(merges: &[&str]) -> Result<Vec<(String, String)>, (usize, String)> {
        let types = graph_types(&NETWORKS, merges).map_err(|error| (error.position, error.to_string()))?;
        Ok(types.into_iter().map(|of| (of.name, of.members.join(" "))).collect())
    }

    fn owned(types: &[(&str, &str)]) -> Vec<(String, String)> {
        types.iter().map(|(name, members)| ((*name).to_owned(), (*members).to_owned())).collect()
    }

    #[test]
    fn a_merged_type_stands_where_its_first_network_stood() {
        let alone: Vec<(&str, &str)> = NETWORKS.iter().map(|name| (*name, *name)).collect();
        assert_eq!(types(&[]).unwrap(), owned(&alone));
        let string = [("physical", "physical"), ("string", "string_a string_b string_c"), ("tflink", "tflink")];
        assert_eq!(types(&["string=string_*"]).unwrap(), owned(&string));
        // In the order of the graph, whatever the order of the names; a network of many patterns counts once.
        assert_eq!(types(&[" string = string_c + string_b+string_a+string_* "]).unwrap(), owned(&string));
        let two = [("string_a", "string_a string_b"), ("rest", "physical tflink string_c")];
        let mut found = types(&["string_a=string_a+string_b", "rest=physical+tflink+string_c"]).unwrap();
        found.reverse();
        assert_eq!(found, owned(&two));
        let all = NETWORKS.join(" ");
        assert_eq!(types(&["all=*"]).unwrap(), owned(&[("all", all.as_str())]));
    }

    #[test]
    fn what_cannot_be_merged_is_named() {
        let said = |merges: &[&str]| types(merges).unwrap_err();
        for wrong in ["string", "=string_*", "a b=string_*", "a=", "a=string_a+", "a=string_?", "a=**"] {
            assert_eq!(said(&[wrong]), (0, format!("`{wrong}` is not NAME=NETWORK+NETWORK or NAME=PREFIX*")));
        }
        assert_eq!(said(&["a=string_a+fusion"]).1, "`a=string_a+fusion`: the graph has no edge type `fusion`");
        assert_eq!(said(&["a=string_a"]).1, "`a=string_a` merges one edge type alone");
        assert_eq!(said(&["tflink=string_*"]).1, "`tflink=string_*`: another edge type is called `tflink`");
        let twice = said(&["a=string_a+string_b", "b=string_b+string_c"]);
        assert_eq!(twice, (1, "`b=string_b+string_c`: `string_b` is merged already".to_owned()));
        assert!(said(&["genes=string_*"]).1.starts_with("no edge type can be called `genes`"));
    }
}
