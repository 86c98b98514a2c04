//! What the service says about itself.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use crate::app::AppState;

/// The manual of error codes. The `type` of a problem is the path of this and the code.
const ERRORS: &str = include_str!("../../../docs/errors.md");

/// The OpenAPI document
///
/// The document that `/docs` shows.
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "service",
    responses((
        status = 200,
        description = "OpenAPI 3.1.",
        content_type = "application/json",
        body = Object,
    )),
)]
pub(crate) async fn openapi(State(state): State<AppState>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], state.openapi)
}

/// The error codes
///
/// What each means, what the service has tried by then, and what to do.
#[utoipa::path(
    get,
    path = "/errors",
    operation_id = "errors",
    tag = "service",
    responses((
        status = 200,
        description = "Markdown.",
        content_type = "text/markdown",
        body = String,
    )),
)]
pub(crate) async fn errors() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/markdown; charset=utf-8")], ERRORS)
}

#[cfg(test)]
mod tests {
    use super::ERRORS;
    use assay_api::ErrorCode;

    #[test]
    fn every_code_has_a_section_with_its_title_and_there_are_no_others() {
        let headings: Vec<&str> = ERRORS
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let expected: Vec<String> = ErrorCode::ALL
            .iter()
            .map(|code| format!("<a id=\"{code}\"></a>{code} {}", code.title()))
            .collect();
        assert_eq!(
            headings, expected,
            "docs/errors.md has one section per ErrorCode, in order"
        );
    }

    #[test]
    fn every_section_says_what_it_means_what_was_tried_and_what_to_do() {
        for section in ERRORS.split("\n### ").skip(1) {
            for part in ["**Meaning.**", "**Already tried.**", "**What to do.**"] {
                assert_eq!(section.matches(part).count(), 1, "{part} in: {section}");
            }
        }
    }
}
