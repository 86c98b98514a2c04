//! Tells the linker where libtorch is; the decoder's build script found it.

fn main() {
    let rpath = std::env::var("DEP_ASSAY_DECODER_RPATH")
        .expect("assay-decoder's build script publishes the rpath of libtorch");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{rpath}");
    // libtorch_cpu.so needs CUDA's runtime by name; its own rpath finds that when it is loaded.
    println!("cargo::rustc-link-arg=-Wl,--unresolved-symbols=ignore-in-shared-libs");
}
