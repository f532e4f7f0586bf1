//! Compiles the C++ side against libtorch's headers, and tells executables of this package where libtorch lies.

use std::path::{Path, PathBuf};
use std::{env, io};

fn main() -> io::Result<()> {
    // torch-sys publishes the folder it links against (its `links` name is "tch").
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    let lib = env::var("DEP_TCH_LIBTORCH_LIB")
        .map(PathBuf::from)
        .map_err(|_| io::Error::other("torch-sys did not say where libtorch is: set LIBTORCH to its folder"))?;
    let root = match env::var("LIBTORCH_INCLUDE") {
        Ok(folder) => PathBuf::from(folder),
        Err(_) => lib.parent().map(PathBuf::from).unwrap_or_default(),
    };
    let include = root.join("include");
    let reducer = include.join("torch/csrc/distributed/c10d/reducer.hpp");
    if !reducer.exists() {
        return Err(io::Error::other(format!(
            "{} is missing: libtorch lacks the distributed headers",
            reducer.display()
        )));
    }

    let mut build = cxx_build::bridge("src/ffi.rs");
    // Of a file nearly all time goes into libtorch's headers, so each of two processors reads them once.
    for (part, files) in BRIDGE.iter().enumerate() {
        build.file(together(&format!("bridge_{part}.cpp"), files)?);
    }
    build
        .std("c++17")
        .warnings(false)
        // libtorch's headers make a minute of debug information a file.
        .debug(false)
        .define("USE_DISTRIBUTED", None)
        .define("USE_C10D_GLOO", None)
        .define("_GLIBCXX_USE_CXX11_ABI", env::var("LIBTORCH_CXX11_ABI").as_deref().unwrap_or("1"))
        .include("cpp/gloo-shim")
        .include(".")
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .compile("torch_dist_bridge");

    row_kernels();
    nccl_backend(&root)?;
    println!("cargo:rerun-if-changed=src/ffi.rs");
    println!("cargo:rerun-if-changed=cpp");
    println!("cargo:rerun-if-changed=nccl");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=torch_cpu");
    println!("cargo:rustc-link-lib=c10");
    // RUNPATH, not RPATH: LD_LIBRARY_PATH can still point at a site's own libtorch.
    println!("cargo:rustc-link-arg=-Wl,--enable-new-dtags,-rpath,{}", lib.display());
    Ok(())
}

/// The files of the bridge in `cpp`, by what is compiled together: communication and devices, and operations on tensors.
const BRIDGE: [&[&str]; 2] = [
    &["store", "group", "timed_allreduce", "reducer", "quiet", "kernel_choice", "device", "version", "autocast"],
    &["sparse", "neighbours", "layer_rows", "pairwise_join", "script", "profile", "adamw", "foreach"],
];

/// Writes a file that includes these files of `cpp`.
fn together(name: &str, files: &[&str]) -> io::Result<PathBuf> {
    let path = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(name);
    let lines: String = files.iter().map(|file| format!("#include \"cpp/{file}.cpp\"\n")).collect();
    std::fs::write(&path, lines)?;
    Ok(path)
}

/// Makes the library that the crate carries in itself and loads where CUDA is: whatever it needs of libtorch_cuda and NCCL is there
/// by then, so that it is linked with neither. Without their headers it is an empty file.
fn nccl_backend(libtorch: &Path) -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join("torch_dist_nccl.so");
    let cuda = libtorch.join("include-cuda");
    println!("cargo:rerun-if-changed={}", cuda.display());
    if !cuda.join("nccl.h").exists() {
        println!("cargo:warning=no nccl.h in {}: this build cannot use NCCL", cuda.display());
        return std::fs::write(out, b"");
    }
    let include = libtorch.join("include");
    let mut compiler = cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .debug(false)
        .opt_level(2)
        .pic(true)
        .flag("-fvisibility=hidden")
        // What g++ takes for the processor anyway; said, it is the same for every build.
        .flag_if_supported("--param=destructive-interference-size=64")
        .define("USE_DISTRIBUTED", None)
        .define("USE_C10D_NCCL", None)
        .define("_GLIBCXX_USE_CXX11_ABI", env::var("LIBTORCH_CXX11_ABI").as_deref().unwrap_or("1"))
        .include("nccl/shim")
        .include(&cuda)
        .include(&include)
        .include(include.join("torch/csrc/api/include"))
        .get_compiler()
        .to_command();
    let status = compiler.args(["-shared", "nccl/backend.cpp", "-o"]).arg(&out).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other("the process group over NCCL does not compile")) }
}

/// Compiles the row functions once for each instruction set, and once more in double precision; which ones run is decided where
/// they run. They include nothing of libtorch or the standard library, so that no code for one set ends up where another is
/// called.
fn row_kernels() {
    let x86 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64");
    let mut sets: Vec<(&str, &[&str])> = vec![("base", &[]), ("base_double", &["-DEXPCTL_DOUBLE"])];
    if x86 {
        sets.push(("v3", &["-march=x86-64-v3"]));
        sets.push(("v4", &["-march=x86-64-v4", "-mprefer-vector-width=512"]));
    }
    for (name, flags) in sets {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .std("c++17")
            .warnings(false)
            .opt_level(3)
            .flag("-ffp-contract=fast")
            // Only inlined functions pass wide vectors.
            .flag("-Wno-psabi")
            .define("EXPCTL_SET", name);
        for flag in flags {
            build.flag(flag);
        }
        for file in ["row_kernels", "row_convolutions", "row_joins", "row_pairs", "row_sums"] {
            build.file(format!("cpp/{file}.cpp"));
        }
        // Objects are named after their sources: those of one set are in its archive before the next one's are made.
        build.compile(&format!("torch_dist_row_kernels_{name}"));
    }
}
