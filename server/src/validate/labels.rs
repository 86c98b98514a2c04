//! Names and tags: what callers write for people.

use assay_api::JobRequest;

use crate::faults::Faults;

const MAX_TAGS: usize = 64;
const MAX_TAG_KEY: usize = 64;
/// Characters of a name, the value of a tag, or the name of a field.
const MAX_TEXT: usize = 256;

/// Checks the name and the tags of a job.
pub(super) fn check(request: &JobRequest, faults: &mut Faults) {
    if let Some(name) = &request.name {
        text("name", name, faults);
    }
    let tags = &request.tags;
    faults.require(
        tags.len() <= MAX_TAGS,
        "tags",
        format!("has {} tags; {MAX_TAGS} are taken", tags.len()),
    );
    for (key, value) in tags.iter().take(MAX_TAGS) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        faults.require(
            (1..=MAX_TAG_KEY).contains(&key.len()) && key.chars().all(plain),
            "tags",
            format!(
                "{key:?} is not a tag's key; those are 1 to {MAX_TAG_KEY} ASCII letters, digits, \
                 `.`, `_`, `-` or `/`"
            ),
        );
        let length = value.chars().count();
        faults.require(
            length <= MAX_TEXT && !value.chars().any(char::is_control),
            &format!("tags.{key}"),
            format!("takes at most {MAX_TEXT} characters, none of them a control character"),
        );
    }
}

/// Checks a name.
pub(super) fn text(field: &str, value: &str, faults: &mut Faults) {
    let length = value.chars().count();
    faults.require(
        (1..=MAX_TEXT).contains(&length) && !value.chars().any(char::is_control),
        field,
        format!("takes 1 to {MAX_TEXT} characters, none of them a control character"),
    );
}
