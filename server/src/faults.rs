//! Collects everything that is wrong with a request, so that one answer names it all.

use assay_api::{ErrorCode, FieldError, Problem};

use crate::error::ApiError;

/// The faults found so far.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<(ErrorCode, FieldError)>);

impl Faults {
    /// Notes that `field` is wrong; `detail` says how, and what would be right.
    pub(crate) fn add(
        &mut self,
        code: ErrorCode,
        field: impl Into<String>,
        detail: impl Into<String>,
    ) {
        self.0.push((
            code,
            FieldError {
                field: field.into(),
                detail: detail.into(),
            },
        ));
    }

    /// Notes the fault unless `holds`.
    pub(crate) fn require(&mut self, holds: bool, field: &str, detail: impl Into<String>) {
        if !holds {
            self.add(ErrorCode::InvalidRequest, field, detail);
        }
    }

    /// Adds faults of what lies at `parent` of the request.
    pub(crate) fn add_below(&mut self, parent: &str, faults: Self) {
        self.0.extend(faults.0.into_iter().map(|(code, mut error)| {
            error.field = format!("{parent}.{}", error.field);
            (code, error)
        }));
    }

    /// All faults as one problem: of their code if they share one, else of `E0003`.
    ///
    /// # Errors
    /// There is at least one fault.
    pub(crate) fn into_result(self) -> Result<(), ApiError> {
        let mut codes = self.0.iter().map(|(code, _)| *code);
        let Some(first) = codes.next() else {
            return Ok(());
        };
        let code = if codes.all(|code| code == first) {
            first
        } else {
            ErrorCode::InvalidRequest
        };
        let sentences: Vec<String> = self
            .0
            .iter()
            .map(|(_, error)| format!("{}: {}", error.field, error.detail))
            .collect();
        let mut problem = Problem::new(code, sentences.join(". "));
        problem.errors = self.0.into_iter().map(|(_, error)| error).collect();
        Err(problem.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_code_stays_and_mixed_codes_become_the_general_one() {
        assert!(Faults::default().into_result().is_ok());
        for (second, shared) in [
            (ErrorCode::PathOutsideRoot, ErrorCode::PathOutsideRoot),
            (ErrorCode::DatasetUnreadable, ErrorCode::InvalidRequest),
        ] {
            let mut faults = Faults::default();
            faults.add(ErrorCode::PathOutsideRoot, "model", "first");
            faults.add(second, "datasets[0].path", "second");
            let Err(ApiError::Problem(problem)) = faults.into_result() else {
                panic!()
            };
            assert_eq!(problem.code, shared);
            assert_eq!(problem.detail, "model: first. datasets[0].path: second");
            assert_eq!(problem.errors.len(), 2);
        }
    }
}
