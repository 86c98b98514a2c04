//! Why a command failed, and the exit codes.

use std::process::ExitCode;

use crate::client::ClientError;

/// Exit codes: part of the program's interface, and said in `--help`.
pub(crate) mod exit {
    pub(crate) const FAILED: u8 = 1;
    pub(crate) const USAGE: u8 = 2;
    /// Of `gate`, which keeps 1 for what is worse.
    pub(crate) const INCONCLUSIVE: u8 = 2;
    pub(crate) const SERVER: u8 = 3;
    /// As shells say it of a program that SIGINT has ended.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// The end of every `--help` but that of `gate`, which has codes of its own.
pub(crate) const EXIT_CODES: &str = "Exit codes:
  0    done; with --wait: every job succeeded
  1    a job did not succeed; the service could not start; a check failed;
       a checkpoint, a dataset or a file cannot be used
  2    wrong usage
  3    the server cannot be reached or refused the request
  130  interrupted; with --wait the job goes on";

/// What a command ends with.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server gave no answer to use.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Arguments contradict each other, or one is not what it should be.
    #[error("{0}")]
    Usage(String),
    /// Something on this machine is not as it should be.
    #[error("{0}")]
    Failed(String),
    /// A gate came to no verdict.
    #[error("no verdict: {0}")]
    Undecided(String),
    /// The user has had enough.
    #[error("{0}")]
    Interrupted(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Client(_) => exit::SERVER,
            Self::Usage(_) => exit::USAGE,
            Self::Failed(_) => exit::FAILED,
            Self::Undecided(_) => exit::INCONCLUSIVE,
            Self::Interrupted(_) => exit::INTERRUPTED,
        })
    }
}
