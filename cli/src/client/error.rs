//! Why there is no answer to use.

use std::iter;

use assay_api::Problem;
use reqwest::StatusCode;

/// Why there is no answer to use. One line, and one more for each field at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error("cannot make an HTTP client: {cause}; install the system's package of CA certificates")]
    NoClient { cause: String },
    #[error(
        "no answer from {server}: {cause}; start a server with `assay up`, or name another with \
         --server or ASSAY_SERVER"
    )]
    Unreachable { server: String, cause: String },
    #[error("the key of the service (ASSAY_API_KEY or --api-key) has characters that no key has")]
    NotAKey,
    #[error("{}", problem_lines(.0))]
    Refused(Box<Problem>),
    #[error("{url} answered {status} and not as Assay does; is it the address of an Assay server?")]
    NotAssay { url: String, status: StatusCode },
    #[error("cannot read the answer of {url}: {cause}; are server and client of one version?")]
    Unreadable {
        url: String,
        cause: serde_json::Error,
    },
    #[error("cannot send {file}: {cause}")]
    Unsendable { file: String, cause: String },
    #[error("the transfer of {url} broke off: {cause}")]
    BrokenOff { url: String, cause: String },
}

/// The fields at fault one a line, unless the detail says all there is to say about a single one.
/// A detail that sums the fields up in one long line is left out.
fn problem_lines(problem: &Problem) -> String {
    let title = format!("{} ({})", problem.title, problem.code);
    let fields = problem
        .errors
        .iter()
        .map(|error| format!("{}: {}", error.field, error.detail));
    let fields: Vec<_> = fields.collect();
    let head = match fields.as_slice() {
        [_, _, ..] if fields.iter().all(|field| problem.detail.contains(field)) => title,
        _ => format!("{title}: {}", problem.detail),
    };
    let fields = fields.into_iter().filter(|field| *field != problem.detail);
    iter::once(head)
        .chain(fields)
        .collect::<Vec<_>>()
        .join("\n  ")
}

#[cfg(test)]
mod tests {
    use assay_api::{ErrorCode, FieldError};

    use super::*;

    #[test]
    fn each_field_at_fault_has_a_line() {
        let mut problem = Problem::new(ErrorCode::InvalidRequest, "2 fields are wrong");
        for (field, detail) in [("model", "does not exist"), ("datasets", "needs one")] {
            problem.errors.push(FieldError {
                field: field.to_owned(),
                detail: detail.to_owned(),
            });
        }
        let fields = "\n  model: does not exist\n  datasets: needs one";
        let title = "Invalid request (E0003)";
        assert_eq!(
            problem_lines(&problem),
            format!("{title}: 2 fields are wrong{fields}")
        );
        problem.detail = "model: does not exist. datasets: needs one".to_owned();
        assert_eq!(problem_lines(&problem), format!("{title}{fields}"));
        let single = Problem::of_field(ErrorCode::NotFound, "model", "does not exist");
        assert_eq!(
            problem_lines(&single),
            "Not found (E0002): model: does not exist"
        );
    }
}
