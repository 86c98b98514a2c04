//! The demo's text, cut into documents.

use std::fs;
use std::path::Path;

use serde_json::json;

const HEADING: &str = "CHAPTER ";

fn text() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/moby-dick.txt");
    fs::read_to_string(path).unwrap()
}

/// The chapters of the demo text, each with its heading.
pub(crate) fn chapters() -> Vec<String> {
    let text = text();
    let mut chapters: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match chapters.last_mut() {
            Some(chapter) if !line.starts_with(HEADING) => chapter.push_str(line),
            _ => chapters.push(line.to_owned()),
        }
    }
    chapters
}

/// The first `count` paragraphs of the demo text, without headings, as far as their first `bytes`
/// bytes.
pub(crate) fn paragraphs(count: usize, bytes: usize) -> Vec<String> {
    let text = text();
    let paragraphs = text.split("\n\n").map(str::trim);
    paragraphs
        .filter(|text| !text.is_empty() && !text.starts_with(HEADING))
        .map(|text| text[..text.floor_char_boundary(bytes)].to_owned())
        .take(count)
        .collect()
}

/// One document a line.
pub(crate) fn jsonl(documents: &[String]) -> String {
    documents
        .iter()
        .map(|text| json!({"text": text}).to_string() + "\n")
        .collect()
}
