//! `assay-server doctor`: whether this host is fit to serve.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use assay_api::Check;
use assay_data::Root;
use assay_store::{Store, StoreError};

use crate::config::{DatabaseUrl, DoctorConfig};
use crate::uploads::room;

/// Difference of two clocks that is no cause for worry.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);
/// Bytes of room below which uploads and archives will soon fail.
const LITTLE_ROOM: u64 = 1_000_000_000;

/// Prints one line a check to standard output, for people or as JSON.
///
/// # Errors
/// A check failed, or there is nobody to read the lines.
pub async fn doctor(config: &DoctorConfig) -> anyhow::Result<()> {
    let checks = checks(config).await;
    let mut lines = String::new();
    for check in &checks {
        if config.json {
            lines += &serde_json::to_string(check)?;
        } else {
            lines += &check.to_string();
        }
        lines.push('\n');
    }
    // `print!` panics where a reader such as `head` has gone.
    std::io::stdout()
        .write_all(lines.as_bytes())
        .context("cannot print the checks")?;
    let failed = checks.iter().filter(|check| !check.ok).count();
    anyhow::ensure!(failed == 0, "{failed} of the checks above failed");
    Ok(())
}

async fn checks(config: &DoctorConfig) -> Vec<Check> {
    let mut checks = database(config.database_url.as_ref()).await;
    let roots = [
        ("model root", "ASSAY_MODEL_ROOT", &config.model_root),
        ("data root", "ASSAY_DATA_ROOT", &config.data_root),
    ];
    for (name, variable, path) in roots {
        checks.push(root(name, variable, path.as_deref()));
    }
    checks.extend(state(&config.state_dir));
    checks
}

/// The database, its schema and its clock.
async fn database(url: Option<&DatabaseUrl>) -> Vec<Check> {
    let name = "database";
    let Some(url) = url else {
        return vec![Check::failed(
            name,
            "no address is given",
            "set DATABASE_URL to postgres://USER:PASSWORD@HOST:PORT/NAME; `assay up` brings a \
             database of its own",
        )];
    };
    let host = url.host();
    let store = match Store::connect(url.expose(), 1).await {
        Ok(store) => store,
        Err(error) => {
            return vec![Check::failed(
                name,
                format!("{host} cannot be used: {error}"),
                "start PostgreSQL there, or correct DATABASE_URL",
            )];
        }
    };
    vec![
        Check::passed(name, format!("{host} answers")),
        migrations(&store).await,
        clock(&store).await,
    ]
}

async fn migrations(store: &Store) -> Check {
    let name = "migrations";
    match store.ready().await {
        Ok(()) => Check::passed(name, "the schema is this program's"),
        Err(StoreError::SchemaBehind { applied, wanted }) => Check::failed(
            name,
            format!("the schema is at migration {applied}, this program needs {wanted}"),
            "run `assay-server migrate`, or start the server without --no-migrate",
        ),
        Err(error) => Check::failed(
            name,
            error.to_string(),
            "let the user of DATABASE_URL read and write the database",
        ),
    }
}

/// Times in answers are the database's, those in logs the host's.
async fn clock(store: &Store) -> Check {
    let before = SystemTime::now();
    match store.clock().await {
        Ok(theirs) => compare(before, theirs.into(), SystemTime::now()),
        Err(error) => Check::failed(
            "clock",
            error.to_string(),
            "see whether the database is overloaded",
        ),
    }
}

/// `theirs` was read some time from `before` to `after` on this host's clock.
fn compare(before: SystemTime, theirs: SystemTime, after: SystemTime) -> Check {
    let name = "clock";
    let behind = before.duration_since(theirs).unwrap_or_default();
    let ahead = theirs.duration_since(after).unwrap_or_default();
    let (difference, which) = if behind > ahead {
        (behind, "ahead of")
    } else {
        (ahead, "behind")
    };
    if difference <= CLOCK_TOLERANCE {
        return Check::passed(name, "this host agrees with the database");
    }
    Check::failed(
        name,
        format!(
            "this host is {:.0} s {which} the database",
            difference.as_secs_f64()
        ),
        "let both set their clocks by NTP; until then times in logs and in answers do not agree",
    )
}

fn root(name: &str, variable: &str, path: Option<&Path>) -> Check {
    let Some(path) = path else {
        let remedy = format!("set {variable}");
        return Check::failed(name, "no directory is given", remedy);
    };
    match Root::open(path) {
        Ok(_) => Check::passed(name, path.display().to_string()),
        Err(error) => Check::failed(
            name,
            error.to_string(),
            format!("make the directory and let this user read it, or correct {variable}"),
        ),
    }
}

/// The state directory and the room in it.
fn state(dir: &Path) -> Vec<Check> {
    let name = "server state directory";
    let is_new = !dir.exists();
    let tried = fs::create_dir_all(dir).and_then(|()| tempfile::tempfile_in(dir).map(drop));
    if let Err(error) = tried {
        return vec![Check::failed(
            name,
            format!("{} cannot be written: {error}", dir.display()),
            "let this user write it, or name another in ASSAY_STATE_DIR",
        )];
    }
    let megabytes = |bytes: u64| bytes / 1_000_000;
    let disk = match room(dir) {
        Ok(bytes) if bytes < LITTLE_ROOM => Check::failed(
            "disk",
            format!("{} MB free for uploads and archives", megabytes(bytes)),
            "make room, or name a larger disk in ASSAY_STATE_DIR",
        ),
        Ok(bytes) => Check::passed(
            "disk",
            format!("{} MB free for uploads and archives", megabytes(bytes)),
        ),
        Err(error) => Check::failed("disk", error.to_string(), "see whether the disk is healthy"),
    };
    if is_new {
        // The server makes it when it starts; a look leaves things as they were.
        let _ = fs::remove_dir(dir);
    }
    vec![Check::passed(name, dir.display().to_string()), disk]
}

#[cfg(test)]
mod tests {
    use super::*;
    use assay_testkit::{Roots, TestDatabase};

    fn failed(checks: &[Check]) -> Vec<&str> {
        for check in checks {
            assert_eq!(check.ok, check.remedy.is_none(), "{check}");
        }
        let failed = checks.iter().filter(|check| !check.ok);
        failed.map(|check| check.check.as_str()).collect()
    }

    #[tokio::test]
    async fn a_fit_host_passes_and_what_is_missing_is_named() {
        let database = TestDatabase::fresh().await;
        let roots = Roots::new();
        let mut config = DoctorConfig {
            database_url: Some(DatabaseUrl::from(database.url())),
            model_root: Some(roots.models()),
            data_root: Some(roots.data()),
            state_dir: roots.state(),
            json: false,
        };
        assert_eq!(failed(&checks(&config).await), ["migrations"]);
        let store = Store::connect(database.url(), 1).await.unwrap();
        store.migrate().await.unwrap();
        assert_eq!(failed(&checks(&config).await), [""; 0]);

        fs::write(roots.state().join("file"), "").unwrap();
        config = DoctorConfig {
            database_url: None,
            model_root: None,
            data_root: Some(roots.data().join("none")),
            state_dir: roots.state().join("file"),
            json: false,
        };
        assert_eq!(
            failed(&checks(&config).await),
            [
                "database",
                "model root",
                "data root",
                "server state directory"
            ]
        );
        config.database_url = Some("postgres://u:secret@127.0.0.1:1/x".into());
        let checks = checks(&config).await;
        assert_eq!(failed(&checks)[0], "database");
        assert!(!checks[0].to_string().contains("secret"), "{}", checks[0]);
        drop(store);
        database.finish().await;
    }

    #[test]
    fn clocks_may_differ_a_little() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        for (theirs, word) in [
            (94, "6 s ahead of"),
            (96, ""),
            (102, ""),
            (104, ""),
            (110, "8 s behind"),
        ] {
            let check = compare(at(100), at(theirs), at(102));
            assert_eq!(check.ok, word.is_empty(), "{check}");
            assert!(check.detail.contains(word), "{check}");
        }
    }
}
