//! A program that draws a chart, to see what that adds to its size.

#[allow(dead_code)]
#[path = "../chart.rs"]
mod chart;
#[allow(dead_code)]
#[path = "../harness.rs"]
mod harness;

fn main() -> harness::Outcome<()> {
    println!("{}", chart::ours()?);
    Ok(())
}
