//! What `expctl watch` shows of a job, and how.

mod frame;
mod lines;
mod screen;
mod view;

pub use frame::frame;
pub use lines::Lines;
pub use screen::Screen;
pub use view::View;
