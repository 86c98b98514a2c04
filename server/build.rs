//! Chooses what is embedded as the dashboard: what Vite has built, or else a page that says how to
//! build it, so that the server builds without Node.

use std::path::Path;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(dashboard)");
    let built = Path::new("dashboard/dist/index.html").is_file();
    if built {
        println!("cargo::rustc-cfg=dashboard");
    }
    // A path that does not exist would have the server built anew every time.
    let watched = ["dashboard/dist", "dashboard", "src/ui/unbuilt"]
        .into_iter()
        .find(|path| Path::new(path).is_dir());
    if let Some(watched) = watched {
        println!("cargo::rerun-if-changed={watched}");
    }
    println!("cargo::rerun-if-changed=build.rs");
}
