use proptest::prelude::*;

use super::*;

fn problem(text: &str) -> Problem {
    text.parse::<Reference>().unwrap_err().problem
}

#[test]
fn parts_are_where_they_belong() {
    use Kind::{Dataset, Model};
    let long = format!("hf://o/n@{}", "a".repeat(40));
    let table = [
        ("hf://gpt2", Model, "gpt2", "main", None),
        ("hf://gpt2@v1.0", Model, "gpt2", "v1.0", None),
        ("hf://o/n", Model, "o/n", "main", None),
        ("hf://o/n@refs/pr/1", Model, "o/n", "refs/pr/1", None),
        ("hf://o/n@feature%2Fx", Model, "o/n", "feature/x", None),
        (&long, Model, "o/n", &long[9..], None),
        (
            "hf://datasets/o/n/a.jsonl",
            Dataset,
            "o/n",
            "main",
            Some("a.jsonl"),
        ),
        (
            "hf://datasets/o/n@v1/d/a@b c",
            Dataset,
            "o/n",
            "v1",
            Some("d/a@b c"),
        ),
        (
            "hf://datasets/o/n@refs/pr/12/d/a",
            Dataset,
            "o/n",
            "refs/pr/12",
            Some("d/a"),
        ),
        (
            "hf://datasets/o/n@refs/convert/parquet/d/a",
            Dataset,
            "o/n",
            "refs/convert/parquet",
            Some("d/a"),
        ),
        (
            "hf://datasets/o/n@refs/pr/x/a",
            Dataset,
            "o/n",
            "refs",
            Some("pr/x/a"),
        ),
        (
            "hf://datasets/o/n@f%2Fx/a",
            Dataset,
            "o/n",
            "f/x",
            Some("a"),
        ),
    ];
    for (text, kind, name, revision, path) in table {
        let reference: Reference = text.parse().unwrap();
        assert_eq!(reference.repository().kind(), kind, "{text}");
        assert_eq!(reference.repository().name(), name, "{text}");
        assert_eq!(reference.revision(), revision, "{text}");
        assert_eq!(reference.path(), path, "{text}");
        assert_eq!(reference.to_string().parse(), Ok(reference), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    use Part::{Name, Organisation, Path, Revision};
    let empty = Problem::Empty;
    let character = |part, character| Problem::Character { part, character };
    let table = [
        ("gpt2", Problem::Scheme),
        ("HF://gpt2", Problem::Scheme),
        ("hf://", empty(Name)),
        ("hf:///n", empty(Organisation)),
        ("hf://o/", empty(Name)),
        ("hf://o/n@", empty(Revision)),
        ("hf://o/n@a//b", empty(Revision)),
        ("hf://o/n@a/", empty(Revision)),
        ("hf://datasets/", empty(Organisation)),
        ("hf://datasets/o", empty(Name)),
        ("hf://datasets/o/n", Problem::PathMissing),
        ("hf://datasets/o/n@main", Problem::PathMissing),
        ("hf://datasets/o/n/", empty(Path)),
        ("hf://datasets/o/n/a//b", empty(Path)),
        ("hf://o/n/config.json", Problem::PathOfModel),
        ("hf://o/n m", character(Name, ' ')),
        ("hf://ö/n", character(Organisation, 'ö')),
        ("hf://o/n@a%2e", character(Revision, '%')),
        ("hf://o/n@a@b", character(Revision, '@')),
        ("hf://datasets/o/n/a\\b", character(Path, '\\')),
        ("hf://datasets/o/n/a\0b", character(Path, '\0')),
    ];
    for (text, expected) in table {
        assert_eq!(problem(text), expected, "{text}");
    }
    for text in [
        "../n",
        "o/..",
        "o/a..b",
        "o/a--b",
        "o/.a",
        "o/a-",
        "o/a.git",
        "o/n@..",
        "o/n@a/../b",
    ] {
        let found = problem(&format!("hf://{text}"));
        assert!(matches!(found, Problem::Form { .. }), "{text}: {found}");
    }
    for path in ["..", "a/../b", "./a", "a/."] {
        let found = problem(&format!("hf://datasets/o/n/{path}"));
        assert!(
            matches!(found, Problem::Form { part: Path, .. }),
            "{path}: {found}"
        );
    }
    for (text, part, limit) in [
        (format!("hf://o/{}", "n".repeat(97)), Name, 96),
        (format!("hf://o/n@{}", "r".repeat(256)), Revision, 255),
        (format!("hf://datasets/o/n/{}", "p".repeat(256)), Path, 255),
        (
            format!("hf://datasets/o/n/{}", "p/".repeat(513)),
            Path,
            1024,
        ),
    ] {
        assert_eq!(problem(&text), Problem::TooLong { part, limit });
    }
}

#[test]
fn the_text_of_an_error_says_what_to_write() {
    let text = "hf://o/n/config.json"
        .parse::<Reference>()
        .unwrap_err()
        .to_string();
    assert!(text.contains("a model is used as a whole"), "{text}");
    assert!(text.contains("write hf://org/name@revision"), "{text}");
}

/// Texts with many of the characters that mean something, so that a good part of them parses.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "(hf://)?(datasets/)?[a-c@/.%-]{0,24}",
        "hf://datasets/[ab]/[cd]@(refs/)?(pr/|convert/)?[a1]{0,2}(%2F|/)?[a1/]{0,6}",
        "hf://datasets/o/n@[a1]{1,2}(%2F[a1]{1,2}){1,2}(/[a1]{1,2}){1,2}",
        "hf://[a-z]{1,3}(/[a-z]{1,3})?(@[a-z/]{0,6})?",
        any::<String>(),
    ]
}

proptest! {
    #[test]
    fn displaying_loses_nothing(text in texts()) {
        if let Ok(reference) = text.parse::<Reference>() {
            prop_assert_eq!(reference.to_string().parse::<Reference>(), Ok(reference));
        }
    }

    #[test]
    fn what_is_displayed_is_its_own_display(
        dataset in any::<bool>(),
        name in "[a-z0-9_]{1,8}/[a-z0-9_]{1,8}",
        revision in "[a-z0-9]{1,4}|refs/pr/[0-9]{1,3}|refs/convert/[a-z]{1,8}",
        path in "[a-zé @%.]{1,5}x(/[a-z]{1,5}){0,3}",
    ) {
        let text = if dataset {
            format!("hf://datasets/{name}@{revision}/{path}")
        } else {
            format!("hf://{name}@{revision}")
        };
        prop_assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
    }
}
