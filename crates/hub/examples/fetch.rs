//! Fetches what a reference stands for: the files of a model that a worker needs, or the file of
//! a dataset.
//!
//! ```sh
//! HF_ENDPOINT=... HF_TOKEN=... cargo run --release --example fetch -- CACHE hf://org/name@main
//! ```
//!
//! Prints the bytes that are there whenever another tenth of them is, then the directory.

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use assay_hub::{Hub, Kind, Progress, Reference, Settings, weights_of_model};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(cache), Some(reference)) = (arguments.next(), arguments.next()) else {
        return Err("give the directory of the cache and a reference".into());
    };
    let reference: Reference = reference.parse()?;
    let hub = Hub::new(&Settings::of_environment(&PathBuf::from(cache)))?;
    let cancel = CancellationToken::new();
    let printed = AtomicU64::new(0);
    let print = |progress: Progress<'_>| {
        let tenth = progress.done.saturating_mul(10) / progress.total.max(1);
        if printed.fetch_max(tenth, Ordering::Relaxed) < tenth {
            println!("{} of {} bytes", progress.done, progress.total);
        }
    };

    let snapshot = hub.resolve(&reference).await?;
    let directory = match reference.repository().kind() {
        Kind::Dataset => {
            let wanted = |path: &str| Some(path) == reference.path();
            hub.fetch(&snapshot, wanted, &print, &cancel).await?
        }
        Kind::Model => {
            let directory = hub.describe(&snapshot, &cancel).await?;
            let weights = weights_of_model(&snapshot, &directory)?;
            let wanted = |path: &str| weights.contains(path);
            hub.fetch(&snapshot, wanted, &print, &cancel).await?
        }
    };
    println!("{}", directory.display());
    Ok(())
}
