use serde_json::{Map, Value as Json};

/// Attributes of a node, or any other object.
pub(super) type Object = Map<String, Json>;

/// The text at `name`, if there is any.
pub(super) fn text<'a>(of: &'a Object, name: &str) -> Option<&'a str> {
    of.get(name).and_then(Json::as_str)
}

/// Whole numbers at `name`: lengths of dimensions.
pub(super) fn lengths(of: &Object, name: &str) -> Result<Vec<u64>, String> {
    let list = of.get(name).and_then(Json::as_array);
    let lengths = list.and_then(|list| list.iter().map(Json::as_u64).collect::<Option<Vec<u64>>>());
    lengths.ok_or_else(|| format!("its metadata has no list of lengths {name}"))
}

/// Name and configuration of what v3 calls an extension: an object with both, or the name alone.
pub(super) fn named(of: &Json) -> Result<(&str, Object), String> {
    match of {
        Json::String(name) => Ok((name, Object::new())),
        Json::Object(object) => {
            let name = text(object, "name").ok_or("something in its metadata has no name")?;
            let configuration = object.get("configuration").and_then(Json::as_object);
            Ok((name, configuration.cloned().unwrap_or_default()))
        }
        _ => Err("something in its metadata is neither a name nor an object".to_owned()),
    }
}
