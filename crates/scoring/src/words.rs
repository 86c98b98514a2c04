//! Words, as lm-evaluation-harness counts them.

/// Number of words of `text`: Python's `len(re.split(r"\s+", text))`.
///
/// That is one more than the number of runs of white space, so the empty text has one word and
/// white space at either end adds an empty one. Python's `\s` is Unicode's White_Space and the
/// four separators U+001C to U+001F.
pub fn count_words(text: &str) -> u64 {
    let mut words = 1;
    let mut inside = false;
    for c in text.chars() {
        let space = c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}');
        words += u64::from(space && !inside);
        inside = space;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::count_words;

    /// Every code point that Python 3.11's `re.fullmatch(r"\s", c)` matches.
    const PYTHON_SPACES: [char; 29] = [
        '\u{9}', '\u{a}', '\u{b}', '\u{c}', '\u{d}', '\u{1c}', '\u{1d}', '\u{1e}', '\u{1f}',
        '\u{20}', '\u{85}', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}', '\u{2002}', '\u{2003}',
        '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{200a}',
        '\u{2028}', '\u{2029}', '\u{202f}', '\u{205f}', '\u{3000}',
    ];

    #[test]
    fn white_space_is_pythons() {
        for c in '\0'..=char::MAX {
            let expected = if PYTHON_SPACES.contains(&c) { 2 } else { 1 };
            assert_eq!(
                count_words(&format!("a{c}b")),
                expected,
                "U+{:04X}",
                u32::from(c)
            );
        }
    }

    /// Counts by Python 3.11.
    #[test]
    fn counts_are_pythons() {
        let cases = [
            ("", 1),
            (" ", 2),
            ("a", 1),
            (" a", 2),
            ("a ", 2),
            (" a ", 3),
            ("a b  c", 3),
            ("a\n\nb\tc\r\n", 4),
            ("a\u{a0}b\u{3000}c", 3),
            ("a\u{1c}\u{1d}\u{1e}\u{1f}b", 2),
            ("a\u{85}b", 2),
            ("a\u{180e}b", 1),
            ("a\u{200b}b", 1),
            ("a\u{feff}b", 1),
            ("\u{2028} \u{2029}", 2),
            (" = Robert Boulter = \n \n", 6),
        ];
        for (text, expected) in cases {
            assert_eq!(count_words(text), expected, "{text:?}");
        }
    }
}
