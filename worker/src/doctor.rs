//! `assay-worker doctor`: whether this host is fit to run.

use std::path::Path;

use assay_api::{Check, Dtype};
use assay_checkpoint::Checkpoint;
use assay_decoder::Products;
use assay_store::Store;

use crate::config::Config;
use crate::device_kind::device_kind;
use crate::run::devices;

/// Prints one line a check to standard output, for people or as JSON.
///
/// # Errors
/// A check failed.
pub fn doctor(config: &Config, json: bool) -> anyhow::Result<()> {
    let checks = checks(config);
    for check in &checks {
        if json {
            println!("{}", serde_json::to_string(check)?);
        } else {
            println!("{check}");
        }
    }
    let failed = checks.iter().filter(|check| !check.ok).count();
    anyhow::ensure!(failed == 0, "{failed} of the checks above failed");
    Ok(())
}

fn checks(config: &Config) -> Vec<Check> {
    let mut checks = vec![
        match config.validate() {
            Ok(()) => Check::passed("worker settings", "consistent"),
            Err(error) => Check::failed("worker settings", error.to_string(), "change one of them"),
        },
        Check::passed("libtorch", assay_decoder::runtime::libtorch_version()),
    ];
    match devices(config) {
        Ok(devices) => {
            for device in devices {
                let found = format!("{device} is {}", device_kind(&device));
                checks.push(Check::passed("device", found));
            }
            checks.extend(Dtype::ALL.iter().map(|dtype| products(*dtype)));
        }
        Err(error) => checks.push(Check::failed(
            "devices",
            format!("{error:#}"),
            "name others in ASSAY_DEVICES",
        )),
    }
    checks.push(nccl());
    checks.push(match assay_process::memory::available() {
        Some(bytes) => Check::passed("memory", format!("{} MB available", bytes / 1_000_000)),
        None => Check::failed(
            "memory",
            "the kernel does not tell what is available",
            "mount /proc, or set ASSAY_MEMORY_BUDGET",
        ),
    });
    checks.push(tokenizers(&config.model_root));
    checks.push(writable(&config.state_dir));
    checks.push(database(config));
    checks
}

/// What multiplies matrices on the processor. On a GPU, libtorch does.
fn products(dtype: Dtype) -> Check {
    let found = format!("{} with {}", dtype.as_str(), Products::best(dtype));
    Check::passed("matrix products", found)
}

/// A device of one GPU needs no NCCL, so that it is missing is no failure.
fn nccl() -> Check {
    match assay_decoder::runtime::nccl_library() {
        Some(name) => Check::passed("NCCL library", format!("{name} is there")),
        None => Check::passed(
            "NCCL library",
            "not found; only models spread over several GPUs need it",
        ),
    }
}

/// The tokenizers of the checkpoints that lie directly below the model root.
fn tokenizers(root: &Path) -> Check {
    let name = "tokenizers";
    let entries = match std::fs::read_dir(root) {
        Ok(entries) => entries,
        Err(error) => {
            return Check::failed(
                name,
                format!("{}: {error}", root.display()),
                "make the model root or name another in ASSAY_MODEL_ROOT",
            );
        }
    };
    let (mut usable, mut refused) = (0, Vec::new());
    for entry in entries.flatten() {
        let path = entry.path();
        let is_checkpoint =
            path.join("config.json").exists() || path.extension().is_some_and(|e| e == "gguf");
        if !is_checkpoint {
            continue;
        }
        let opened =
            Checkpoint::open(&path).and_then(|checkpoint| checkpoint.tokenizer().map(drop));
        match opened {
            Ok(()) => usable += 1,
            Err(error) => refused.push(error.to_string()),
        }
    }
    match refused.first() {
        None => Check::passed(
            name,
            format!("{usable} checkpoints directly below the root, all usable"),
        ),
        Some(first) => Check::failed(
            name,
            format!(
                "{} checkpoints cannot be used, such as {first}",
                refused.len()
            ),
            "correct or remove them; jobs that name them are refused",
        ),
    }
}

fn writable(path: &Path) -> Check {
    let tried = std::fs::create_dir_all(path).and_then(|()| tempfile::tempfile_in(path).map(drop));
    match tried {
        Ok(()) => Check::passed("worker state directory", path.display().to_string()),
        Err(error) => Check::failed(
            "worker state directory",
            format!("{}: {error}", path.display()),
            "make it writable or name another in ASSAY_STATE_DIR",
        ),
    }
}

fn database(config: &Config) -> Check {
    let ask = || -> anyhow::Result<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(async {
            let store = Store::connect(&config.database_url, 1).await?;
            store.ready().await?;
            Ok(store.live_workers().await?)
        })
    };
    match ask() {
        Ok(workers) => Check::passed(
            "database of the worker",
            format!("reachable, migrated, {workers} live workers"),
        ),
        Err(error) => Check::failed(
            "database of the worker",
            format!("{error:#}"),
            "start it, correct DATABASE_URL, or run `assay-server migrate`",
        ),
    }
}
