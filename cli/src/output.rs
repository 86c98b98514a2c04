//! What goes to stdout.

use std::fmt::Display;
use std::io::Write as _;

/// Prints a line. A reader that has gone away, as `head` does, is no error.
pub(crate) fn line(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
