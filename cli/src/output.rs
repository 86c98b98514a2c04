//! What goes to stdout.

use std::fmt::Display;
use std::io::Write as _;

use serde::Serialize;
use unicode_width::UnicodeWidthChar;

/// Prints a line. A reader that has gone away, as `head` does, is no error; a full disk ends the
/// program.
pub(crate) fn line(text: impl Display) {
    let written = writeln!(std::io::stdout(), "{text}");
    if let Err(error) = written
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        eprintln!("assay: cannot write to standard output: {error}");
        std::process::exit(i32::from(crate::failure::exit::FAILED));
    }
}

/// A value as one line of JSON.
pub(crate) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("values for programs are JSON")
}

/// Prints a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) {
    line(to_json(value));
}

/// Columns of the terminal that reads stdout, or of `COLUMNS`; none if a file or a program reads.
pub(crate) fn width() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok();
    let named = named.and_then(|columns| columns.trim().parse().ok());
    named
        .or_else(|| {
            let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
            Some(usize::from(size.ws_col))
        })
        .filter(|columns| *columns > 0)
}

/// Columns that a text takes.
pub(crate) fn columns(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

/// Text that leaves the terminal as it is: control characters become escapes.
pub(crate) fn printable(text: &str) -> String {
    if !text.contains(char::is_control) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// `label` and `text` behind it, in lines of `width` columns that are indented like the first.
pub(crate) fn labelled(label: &str, text: &str, width: Option<usize>) -> String {
    let room = width.map_or(usize::MAX, |width| {
        width.saturating_sub(columns(label)).max(20)
    });
    let indent = format!("\n{}", " ".repeat(columns(label)));
    format!("{label}{}", wrapped(&printable(text), room).join(&indent))
}

/// Facts, each a label and some lines, below one another.
pub(crate) fn facts(facts: &[(&str, Vec<String>)], width: Option<usize>) -> String {
    let longest = facts.iter().map(|(label, _)| columns(label)).max();
    let longest = longest.unwrap_or(0) + 2;
    let mut lines = Vec::new();
    for (label, values) in facts {
        let mut label = format!("{label:longest$}");
        for value in values {
            lines.push(labelled(&label, value, width));
            label = " ".repeat(longest);
        }
    }
    lines.join("\n")
}

/// Lines of at most `room` columns, broken between words; a longer word is broken after a `/`, or
/// else anywhere.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for mut word in text.split(' ') {
        let line = lines.last_mut().expect("never empty");
        let gap = usize::from(!line.is_empty());
        if columns(line) + gap + columns(word) <= room {
            line.extend(std::iter::repeat_n(' ', gap));
            line.push_str(word);
            continue;
        }
        if !line.is_empty() {
            lines.push(String::new());
        }
        while columns(word) > room {
            let (piece, rest) = word.split_at(break_at(word, room));
            lines.last_mut().expect("never empty").push_str(piece);
            lines.push(String::new());
            word = rest;
        }
        lines.last_mut().expect("never empty").push_str(word);
    }
    lines
}

/// Byte offset up to which a word that is too long fits.
fn break_at(word: &str, room: usize) -> usize {
    let mut taken = 0;
    let mut slash = None;
    for (offset, character) in word.char_indices() {
        taken += character.width().unwrap_or(0);
        if taken > room && offset > 0 {
            return slash.unwrap_or(offset);
        }
        if character == '/' {
            slash = Some(offset + 1);
        }
    }
    word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_after_slashes() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(
            wrapped("on cpu/Genuine/threads-1", 12),
            ["on", "cpu/Genuine/", "threads-1"]
        );
        assert_eq!(wrapped("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(
            labelled("method  ", "rolling, window 2048, and more of it", Some(30)),
            "method  rolling, window 2048,\n        and more of it"
        );
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(printable("a\u{1b}[2Jb\nc"), "a\\u{1b}[2Jb\\nc");
        assert_eq!(printable("é中"), "é中");
    }
}
