//! The data of a project, for those who open none: configs are checked and programs are started with what is answered here.

mod data_size;
mod data_state;
mod project_data;
mod recorded_steps;

pub use data_size::DataSize;
pub use data_state::{DataState, StoredForm, data_states, store_state};
pub use project_data::{ProjectData, RecipeGenes};
