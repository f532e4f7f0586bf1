//! Macros of `expctl-settings`. A setting is declared once, as a field of its section; a word of a config once, as a variant of an enum.
//! [`macro@section`] and [`macro@Words`] make everything else from that: keys, types, defaults, help, and how both are read and written.
//!
//! The macros are of use inside `expctl-settings` only: what they emit names its types.

mod section;
mod words;

use proc_macro::TokenStream;

/// Makes a struct the section of a config.
///
/// ```text
/// #[section("loader")]
/// #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
/// pub struct Loader {
///     /// Samples per rank and step.
///     #[setting(required, min = 1)]
///     pub batch_size: u64,
///     /// Loader threads per rank; 0 loads on the step's own thread.
///     #[setting(default = 0)]
///     pub workers: u32,
/// }
/// ```
///
/// The attribute stands above `derive`. The first paragraph of a field's documentation is its help. Arguments of `setting`:
///
/// | Argument | Meaning |
/// |---|---|
/// | `required` | a config has to set it |
/// | `default = VALUE` | its value where a config does not |
/// | `derived = "TEXT"` | its value then follows from something else, which the text names |
/// | `added`, `added = VALUE` | it is younger than the first records: one without it has the default, or `VALUE` |
/// | `min = N`, `above = N`, `max = N` | bounds of a number |
/// | `workloads(Graph, …)` | the workloads that it matters for; all, or those of the section, without it |
/// | `per_job` | it holds for a whole job, so that its trials cannot differ in it |
/// | `not_run` | it changes nothing that is run, and is no part of a trial's id |
///
/// `workloads(…)`, `per_job` and `not_run` may also stand behind the section's name; they then hold for all of its fields, and a field's
/// own `workloads(…)` wins.
///
/// Emitted are a constant of type `Key` per field (`Loader::BATCH_SIZE`), an implementation of `Section`, serde's default of each field
/// that is `added`, and `Default` where every field has a value without a config.
#[proc_macro_attribute]
pub fn section(arguments: TokenStream, item: TokenStream) -> TokenStream {
    section::expand(arguments.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Gives each variant of an enum its word: the variant's name in snake case, or that of `#[word("…")]`.
///
/// Further arguments of `word`: `alias = "…"` is another spelling that configs may use; `not_listed` keeps the variant out of `ALL`, as the
/// absence of all others; `not_in_configs` makes it a word that records may have and configs may not.
///
/// Emitted are `ALL`, `name()`, and the implementations of `SettingValue`, `Serialize` and `Deserialize`.
#[proc_macro_derive(Words, attributes(word))]
pub fn words(item: TokenStream) -> TokenStream {
    words::expand(item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
