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

/// A measure with four decimals, or in powers of ten where these would not fit a column.
pub(crate) fn measure(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e7).contains(&value.abs()) {
        format!("{value:.4e}")
    } else {
        format!("{value:.4}")
    }
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
        assert_eq!([0.04, 99.95, 1234.5].map(rate), ["0.0", "100.0", "1,235"]);
        assert_eq!(
            [3.2, 61.0, 7260.0].map(duration),
            ["4 s", "1 min 01 s", "2 h 01 min"]
        );
    }
}
