//! Starts the server and waits until it is ready.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use super::service::{Refusals, Service, Watched};
use crate::client::http;

const POLL: Duration = Duration::from_millis(20);
/// Longer than the schema of a large database takes to be brought up to date.
const READY_LIMIT: Duration = Duration::from_mins(5);

/// Starts `service` on `listen` and returns it with its address. Should it die later, it is
/// started again on that same address.
pub(super) async fn start(
    service: Service,
    listen: &str,
    state: &Path,
    refusals: Refusals,
) -> anyhow::Result<(Watched, String)> {
    // The server picks the port and says which, for a port picked here could be taken by
    // another process before the server binds it.
    let file = state.join("address");
    remove(&file)?;
    let first = service
        .clone()
        .arguments(["--listen", listen, "--address-file"].map(OsStr::new))
        .arguments([file.as_os_str()]);
    let child = first.spawn()?;
    let address = tokio::select! {
        address = ready(&file) => address?,
        status = child.ended() => bail!("assay-server ended ({status}) before it was ready"),
    };
    let again = service.arguments(["--listen", &address].map(OsStr::new));
    Ok((Watched::service(again, child, refusals), address))
}

/// Waits for the address and for `/readyz` to answer 200 there.
async fn ready(file: &Path) -> anyhow::Result<String> {
    let deadline = Instant::now() + READY_LIMIT;
    let http = http()?;
    let mut answer = String::from("it has not opened its port");
    while Instant::now() < deadline {
        if let Some(address) = read(file)? {
            let url = format!("http://{address}/readyz");
            match http.get(url).timeout(Duration::from_secs(5)).send().await {
                Ok(response) if response.status().is_success() => return Ok(address),
                Ok(response) => answer = response.text().await.unwrap_or_default(),
                Err(error) => answer = error.to_string(),
            }
        }
        sleep(POLL).await;
    }
    bail!(
        "assay-server is not ready after {} s: {answer}",
        READY_LIMIT.as_secs()
    )
}

/// The server writes the file whole, by renaming.
fn read(file: &Path) -> anyhow::Result<Option<String>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn remove(file: &Path) -> anyhow::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", file.display()))
        }
        _ => Ok(()),
    }
}
