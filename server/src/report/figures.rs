//! Numbers and methods as a report writes them.

use assay_api::{Bos, DatasetResult, Method, Tail};

/// With all digits, as the API has it.
pub(super) fn exact(value: f64) -> String {
    serde_json::to_string(&value).expect("a number is plain data")
}

/// As [`exact`], with a dash for what is not known.
pub(super) fn exact_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| DASH.to_owned(), exact)
}

/// For reading at a glance: with this many decimals.
pub(super) fn rounded(value: f64, decimals: usize) -> String {
    format!("{value:.decimals$}")
}

/// A count with commas between thousands.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share as per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// What is not known.
pub(super) const DASH: &str = "\u{2013}";

/// The method with all its options.
pub(super) fn method(method: &Method) -> String {
    let parts = [
        Some(format!(
            "{}, window {}",
            method.convention.as_str(),
            method.window
        )),
        method.stride.map(|stride| format!("stride {stride}")),
        method.join.as_ref().map(|join| format!("join {join:?}")),
        method.bos.map(|bos| {
            let word = match bos {
                Bos::Auto => "auto",
                Bos::Always => "always",
                Bos::Never => "never",
            };
            format!("bos {word}")
        }),
        method.tail.map(|tail| {
            let word = match tail {
                Tail::Drop => "drop",
                Tail::Score => "score",
            };
            format!("tail {word}")
        }),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// nll / scored tokens.
pub(super) fn mean_nll(dataset: &DatasetResult) -> Option<f64> {
    mean(dataset.nll?, dataset.scored_tokens)
}

/// A mean over tokens, if there are any.
pub(super) fn mean(nll: f64, tokens: u64) -> Option<f64> {
    (tokens > 0).then(|| nll / tokens as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_the_api() {
        assert_eq!(exact(44.365_582_558_713_825), "44.365582558713825");
        assert_eq!(exact(2.0), "2.0");
        assert_eq!(exact_or_dash(None), DASH);
        assert_eq!((count(0), count(999)), ("0".to_owned(), "999".to_owned()));
        assert_eq!(count(134_515_008), "134,515,008");
        assert_eq!(percent(0.987), "98.7 %");
    }
}
