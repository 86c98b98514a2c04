//! `assay-worker doctor`: whether this host is fit to run.

use std::path::Path;

use assay_store::Store;

use crate::config::Config;
use crate::device_kind::device_kind;
use crate::run::devices;

/// Prints one line a check to standard output.
///
/// # Errors
/// A check failed.
pub fn doctor(config: &Config) -> anyhow::Result<()> {
    let mut failed = 0;
    let mut check = |name: &str, result: anyhow::Result<String>| match result {
        Ok(detail) => println!("ok    {name}: {detail}"),
        Err(error) => {
            failed += 1;
            println!("FAIL  {name}: {error:#}");
        }
    };
    check(
        "settings",
        config.validate().map(|()| "consistent".to_owned()),
    );
    check(
        "libtorch",
        Ok(assay_decoder::runtime::libtorch_version().to_owned()),
    );
    match devices(config) {
        Ok(devices) => {
            for device in &devices {
                check("device", Ok(format!("{device} is {}", device_kind(device))));
            }
        }
        Err(error) => check("devices", Err(error)),
    }
    check("model root", readable(&config.model_root));
    check("data root", readable(&config.data_root));
    check("state directory", writable(&config.state_dir));
    check("database", database(config));
    anyhow::ensure!(failed == 0, "{failed} of the checks above failed");
    Ok(())
}

fn readable(path: &Path) -> anyhow::Result<String> {
    let entries = std::fs::read_dir(path)
        .map_err(|error| anyhow::anyhow!("{}: {error}; make it or name another", path.display()))?;
    Ok(format!("{} ({} entries)", path.display(), entries.count()))
}

fn writable(path: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(path)?;
    tempfile::tempfile_in(path)
        .map_err(|error| anyhow::anyhow!("{}: {error}; make it writable", path.display()))?;
    Ok(path.display().to_string())
}

fn database(config: &Config) -> anyhow::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let store = Store::connect(&config.database_url, 1).await?;
        store.ready().await?;
        Ok(format!(
            "reachable, migrated, {} live workers",
            store.live_workers().await?
        ))
    })
}
