//! Numbers as people read them.

/// An integer with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many things, in the plural where it is due.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(number))
}

/// A measure with four decimals, or in powers of ten where these would not fit a column.
pub(crate) fn measure(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        format!("{value:.4e}")
    } else {
        format!("{value:.4}")
    }
}

/// A small number, such as the difference of two means, with six decimals or in powers of ten:
/// what matters of it often begins behind the third.
pub(crate) fn small(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-5 {
        format!("{value:.2e}")
    } else {
        format!("{value:.6}")
    }
}

/// A difference with its sign, as [`small`] shows numbers.
pub(crate) fn signed(value: f64) -> String {
    let sign = if value > 0.0 { "+" } else { "" };
    format!("{sign}{}", small(value))
}

/// A rate without meaningless decimals.
pub(crate) fn rate(value: f64) -> String {
    if value < 100.0 {
        return format!("{value:.1}");
    }
    // A rate is neither negative nor near the limits of u64; the conversion saturates.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    grouped(value.round() as u64)
}

/// Seconds, minutes or hours.
pub(crate) fn duration(seconds: f64) -> String {
    // Saturates, as above.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let seconds = seconds.ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// How long ago something was, in its largest unit.
pub(crate) fn age(age: chrono::TimeDelta) -> String {
    // Clocks of two machines may differ by a little.
    let seconds = age.num_seconds().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A size in the unit that gives it three figures or so; powers of ten.
pub(crate) fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    if value < 1000.0 {
        return format!("{bytes} B");
    }
    let mut unit = "";
    for larger in ["kB", "MB", "GB", "TB"] {
        if value < 999.95 {
            break;
        }
        value /= 1000.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [23.456_78, 0.0, 0.0123].map(measure),
            ["23.4568", "0.0000", "0.0123"]
        );
        assert_eq!([1.5e9, 1.5e-5].map(measure), ["1.5000e9", "1.5000e-5"]);
        assert_eq!([1, 2].map(|n| counted(n, "byte")), ["1 byte", "2 bytes"]);
        assert_eq!(
            [0.25, -0.25, 0.0, 2e-5, -4.2e-7].map(signed),
            [
                "+0.250000",
                "-0.250000",
                "0.000000",
                "+0.000020",
                "-4.20e-7"
            ]
        );
        assert_eq!([0.04, 99.95, 1234.5].map(rate), ["0.0", "100.0", "1,235"]);
        assert_eq!(
            [3.2, 61.0, 7260.0].map(duration),
            ["4 s", "1 min 01 s", "2 h 01 min"]
        );
        assert_eq!(
            [-5, 59, 3599, 86_399, 200_000].map(|s| age(chrono::TimeDelta::seconds(s))),
            ["0 s", "59 s", "59 min", "23 h", "2 d"]
        );
        assert_eq!(
            [999, 1000, 97_743_000, 999_960_000, 5_000_000_000_000_000].map(bytes),
            ["999 B", "1.0 kB", "97.7 MB", "1.0 GB", "5000.0 TB"]
        );
    }
}
