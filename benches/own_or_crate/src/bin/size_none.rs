//! What a program has without a chart.

fn main() {
    println!("{}", std::env::args().count());
}
