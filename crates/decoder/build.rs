//! Compiles the bindings in `src/torch.cpp` and tells the linker where libtorch is.
//!
//! Link arguments reach only the targets of the package whose build script prints them, so the
//! run-time search path is also published as metadata for the worker's build script.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=src/torch.cpp");
    println!("cargo::rerun-if-env-changed=LIBTORCH");
    let libtorch = PathBuf::from(
        env::var_os("LIBTORCH")
            .expect("LIBTORCH must name a directory with libtorch's include and lib"),
    );
    // LIBTORCH may hold links into an unpacked wheel, whose libraries find each other by paths
    // relative to where they really lie; libtorch_cuda.so is looked for there too.
    let cpu = libtorch.join("lib/libtorch_cpu.so");
    let cpu = cpu
        .canonicalize()
        .unwrap_or_else(|error| panic!("{}: {error}", cpu.display()));
    let rpath = cpu.parent().expect("a file lies in a directory").display();

    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false) // libtorch's own headers warn
        .include(libtorch.join("include"))
        .flag("-fopenmp") // or libtorch's headers run loops on one thread
        .file("src/torch.cpp")
        .compile("assay_torch");

    // The OpenMP library that libtorch itself uses: a second one would have threads of its own.
    println!(
        "cargo::rustc-link-search=native={}",
        libtorch.join("lib").display()
    );
    println!("cargo::rustc-link-lib=dylib:+verbatim=libgomp.so.1");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{rpath}");
    // libtorch_cpu.so needs CUDA's runtime by name; its own rpath finds that when it is loaded.
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
    println!("cargo::metadata=rpath={rpath}");
}
