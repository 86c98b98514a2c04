//! The dashboard: files that are embedded in the program, below `/ui/`.
//!
//! They are pages for people and no part of the API, so the OpenAPI document does not have them.

use std::borrow::Cow;
use std::fmt::Write as _;

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use rust_embed::{EmbeddedFile, RustEmbed};

/// What Vite has built, or a page that says that nothing is; see `build.rs`.
#[derive(RustEmbed)]
#[cfg_attr(dashboard, folder = "dashboard/dist")]
#[cfg_attr(not(dashboard), folder = "src/ui/unbuilt")]
struct Files;

/// The page.
const INDEX: &str = "index.html";
/// Where the names of files have a hash of what is in them.
const HASHED: &str = "assets/";

/// Nothing but what is embedded here, and this service's answers. Inline scripts and styles are none
/// of it.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; \
    base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// The pages, and the way to them from `/`.
pub(crate) fn router() -> Router {
    // Relative, so that it holds behind a proxy that serves this below a prefix.
    let enter = || async { Redirect::temporary("ui/") };
    Router::new()
        .route("/", get(enter))
        .route("/ui", get(enter))
        .route(
            "/ui/",
            get(|headers: HeaderMap| async move { find(INDEX, &headers) }),
        )
        .route(
            "/ui/{*path}",
            get(
                |Path(path): Path<String>, headers: HeaderMap| async move { find(&path, &headers) },
            ),
        )
}

/// The file of this name. What there is not is a 404, which the edge gives its body.
fn find(name: &str, headers: &HeaderMap) -> Response {
    match Files::get(name) {
        None => StatusCode::NOT_FOUND.into_response(),
        Some(file) => answer(name, file, headers),
    }
}

fn answer(name: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let tag = entity_tag(&file.metadata.sha256_hash());
    let caching = [
        (ETAG, tag.clone()),
        (CACHE_CONTROL, cache_control(name).to_owned()),
        (CONTENT_SECURITY_POLICY, POLICY.to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    if is_known(headers, &tag) {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    let content_type = [(CONTENT_TYPE, content_type(file.metadata.mimetype()))];
    (caching, content_type, body(file.data)).into_response()
}

/// What is embedded is in memory for good and not copied.
fn body(data: Cow<'static, [u8]>) -> axum::body::Body {
    match data {
        Cow::Borrowed(bytes) => axum::body::Bytes::from_static(bytes).into(),
        Cow::Owned(bytes) => bytes.into(),
    }
}

/// A name with a hash stands for the same bytes forever; all others are asked for anew.
fn cache_control(name: &str) -> &'static str {
    if name.starts_with(HASHED) {
        "public, max-age=31536000, immutable"
    } else {
        "no-cache"
    }
}

fn content_type(mime: &str) -> String {
    let is_text = mime.starts_with("text/") || mime == "application/json";
    let charset = if is_text { "; charset=utf-8" } else { "" };
    format!("{mime}{charset}")
}

fn entity_tag(digest: &[u8; 32]) -> String {
    let mut tag = String::from("\"");
    for byte in &digest[..16] {
        let _ = write!(tag, "{byte:02x}");
    }
    tag + "\""
}

/// Whether the caller has the file with this tag (RFC 9110, section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter();
    tags.filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|known| known == "*" || known.trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashed_names_are_kept_for_good() {
        for (name, kept) in [
            ("index.html", false),
            ("favicon.svg", false),
            ("assets/index-4f2a.js", true),
            ("other/assets/x.js", false),
        ] {
            assert_eq!(cache_control(name).contains("immutable"), kept, "{name}");
        }
    }

    #[test]
    fn a_tag_is_known_alone_weakly_and_among_others() {
        let tag = entity_tag(&[7; 32]);
        assert_eq!(tag.len(), 34);
        let known = |value: &str| {
            let headers = [(IF_NONE_MATCH, value.parse().unwrap())];
            is_known(&HeaderMap::from_iter(headers), &tag)
        };
        assert!(known(&tag) && known("*") && known(&format!("W/{tag}")));
        assert!(known(&format!("\"other\", {tag}")));
        assert!(!known("\"other\"") && !known(tag.trim_matches('"')));
        assert!(!is_known(&HeaderMap::new(), &tag));
    }

    #[test]
    fn texts_name_their_encoding() {
        assert_eq!(content_type("text/html"), "text/html; charset=utf-8");
        assert_eq!(content_type("image/png"), "image/png");
    }
}
