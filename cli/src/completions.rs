//! `assay completions`.

use std::io::Write as _;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

/// Print the completions of a shell.
///
/// For bash: `assay completions bash > ~/.local/share/bash-completion/completions/assay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(completions: &Completions) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(
        completions.shell,
        &mut crate::Cli::command(),
        "assay",
        &mut script,
    );
    // A reader that has gone away is no error.
    let _ = std::io::stdout().write_all(&script);
    ExitCode::SUCCESS
}
