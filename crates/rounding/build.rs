//! Tells the executables of this package where libtorch lies.

fn main() {
    // Published by torch-sys (its `links` name is "tch"). RUNPATH, not RPATH: LD_LIBRARY_PATH can still point at a
    // site's own libtorch.
    if let Ok(lib) = std::env::var("DEP_TCH_LIBTORCH_LIB") {
        println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{lib}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
