//! Configs as the command line uses them: those of expctl-config, with the project that they belong to.

mod batch_template;
mod project_files;

pub use batch_template::{SHIPPED_TEMPLATE, batch_template};
pub use expctl_config::{
    ClusterProfile, ConfErrors, Config, Container, Layer, LinkStyle, NotesSettings, SHIPPED_PROFILES, UserDefaults,
    closest, is_yaml, load, load_text, profile, their_names, toml_of_yaml, user_path,
};
pub use expctl_settings::{NO_DATA_SET, model_remarks};

use crate::exit::{Exit, Failure};

impl From<ConfErrors> for Failure {
    fn from(errors: ConfErrors) -> Self {
        Self::rendered(Exit::Config, errors)
    }
}
