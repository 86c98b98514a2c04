//! The demo's text, cut into documents.

use std::fs;
use std::path::Path;

use serde_json::json;

/// The chapters of the demo text, each with its heading.
pub(crate) fn chapters() -> Vec<String> {
    const HEADING: &str = "CHAPTER ";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../demo/moby-dick.txt");
    let text = fs::read_to_string(path).unwrap();
    let mut chapters: Vec<String> = Vec::new();
    for line in text.split_inclusive('\n') {
        match chapters.last_mut() {
            Some(chapter) if !line.starts_with(HEADING) => chapter.push_str(line),
            _ => chapters.push(line.to_owned()),
        }
    }
    chapters
}

/// One chapter a line.
pub(crate) fn jsonl(chapters: &[String]) -> String {
    chapters
        .iter()
        .map(|text| json!({"text": text}).to_string() + "\n")
        .collect()
}
