//! Spreads some jobs over some devices by every strategy, in virtual time, and prints tables.
//!
//! `cargo run --release -p assay-scoring --example simulation -- FOLDER` also writes them to
//! `FOLDER/simulation.md`, and a plot to `FOLDER/simulation.svg`.

#[allow(dead_code)] // shared with the tests
#[path = "../../tests/simulation/jobs.rs"]
mod jobs;
mod plot;
mod scenarios;
mod tables;

use std::error::Error;
use std::fs;
use std::path::PathBuf;

use scenarios::{changing, steady};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let compared: Vec<_> = steady()
        .into_iter()
        .map(scenarios::Scenario::compare)
        .collect();
    let runs: Vec<_> = changing().into_iter().map(scenarios::Change::run).collect();
    let text = tables::all(&compared, &runs);
    print!("{text}");
    if let Some(folder) = folder {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("simulation.md"), text)?;
        let plotted: Vec<_> = compared
            .iter()
            .filter(|compared| compared.plotted)
            .collect();
        plot::draw(&folder.join("simulation.svg"), &plotted)?;
    }
    Ok(())
}
