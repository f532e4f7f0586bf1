//! Compiles the fake device against libtorch's headers, and tells executables of this package where libtorch lies.

use std::path::PathBuf;
use std::{env, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=../torch-dist/cpp/timed_allreduce.h");
    // Published by torch-sys (its `links` name is "tch").
    let lib = env::var("DEP_TCH_LIBTORCH_LIB")
        .map(PathBuf::from)
        .map_err(|_| io::Error::other("torch-sys did not say where libtorch is: set LIBTORCH to its folder"))?;
    let include = match env::var("LIBTORCH_INCLUDE") {
        Ok(folder) => PathBuf::from(folder),
        Err(_) => lib.parent().map(PathBuf::from).unwrap_or_default(),
    }
    .join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .debug(false)
        .define("USE_DISTRIBUTED", None)
        .define("USE_C10D_GLOO", None)
        .define("_GLIBCXX_USE_CXX11_ABI", env::var("LIBTORCH_CXX11_ABI").as_deref().unwrap_or("1"))
        .include("../torch-dist/cpp")
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .file("cpp/fake_gpu.cpp")
        .compile("expctl_fake_gpu");
    // RUNPATH, not RPATH: LD_LIBRARY_PATH can still point at a site's own libtorch.
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{}", lib.display());
    Ok(())
}
