//! The methods of a job: options against their convention, sizes against the model.

use assay_api::{Bos, Convention, ErrorCode, Method, MethodRequest, OneOrMany};

use super::Limits;
use crate::faults::Faults;

/// Methods of a job.
const MAX_METHODS: usize = 8;
/// Tokens of a window where the request names none and the model has that many positions.
const DEFAULT_WINDOW: u32 = 2048;
/// The same under `llamacpp`, as in that program.
const DEFAULT_WINDOW_LLAMACPP: u32 = 512;
/// Tokens between the starts of two windows where the request names none.
const DEFAULT_STRIDE: u32 = 512;
/// The text between two documents where the request names none.
const DEFAULT_JOIN: &str = "\n\n";
/// Bytes of the text between two documents.
const MAX_JOIN: usize = 1024;

/// The methods with every default filled in. `model` is none if the checkpoint did not open;
/// then the request is refused anyway.
pub(super) fn resolve(
    methods: &OneOrMany<MethodRequest>,
    model: Option<&Limits>,
    faults: &mut Faults,
) -> OneOrMany<Method> {
    let count = methods.as_slice().len();
    faults.require(count >= 1, "method", "is an empty list; give a method");
    faults.require(
        count <= MAX_METHODS,
        "method",
        format!("has {count} methods; a job takes {MAX_METHODS}, post several jobs"),
    );
    let mut index = 0;
    let resolved = methods.map(|method| {
        let name = name(methods, index);
        index += 1;
        one(method, &name, model, faults)
    });
    let all = resolved.as_slice();
    for (index, method) in all.iter().enumerate() {
        if let Some(first) = all[..index].iter().position(|other| other == method) {
            faults.add(
                ErrorCode::InvalidRequest,
                name(methods, index),
                format!(
                    "is the same as method[{first}] once defaults are filled in; leave one of \
                     them out"
                ),
            );
        }
    }
    resolved
}

/// What a method is called in errors.
pub(super) fn name(methods: &OneOrMany<MethodRequest>, index: usize) -> String {
    match methods {
        OneOrMany::One(_) => "method".to_owned(),
        OneOrMany::Many(_) => format!("method[{index}]"),
    }
}

fn one(request: &MethodRequest, name: &str, model: Option<&Limits>, faults: &mut Faults) -> Method {
    let convention = request.convention;
    options(request, name, faults);
    let most = model.map_or(u32::MAX, |model| model.positions);
    let window = request
        .window
        .unwrap_or(most.min(default_window(convention)));
    let stride = (convention == Convention::Strided).then(|| {
        let default = DEFAULT_STRIDE.min(window / 2).max(1);
        request.stride.unwrap_or(default)
    });
    let bos = request.bos.unwrap_or_default();
    let mut refuse = |option: &str, detail: String| {
        faults.add(ErrorCode::MethodInvalid, format!("{name}.{option}"), detail);
    };
    let least = least_window(convention);
    let label = convention.as_str();
    if window < least {
        refuse(
            "window",
            format!("is {window}; the smallest window of `{label}` is {least}"),
        );
    } else if window > most {
        refuse(
            "window",
            format!("is {window}, but the model has {most} positions; ask for {most} or less"),
        );
    } else if let Some(stride) = stride
        && !(1..window).contains(&stride)
    {
        refuse(
            "stride",
            format!(
                "is {stride}, the window {window}; a stride is 1 to {}, so that every token is \
                 scored with one before it",
                window - 1
            ),
        );
    }
    if bos == Bos::Always && model.is_some_and(|model| !model.has_bos) {
        refuse(
            "bos",
            "is `always`, but the tokenizer names no BOS; leave it out, or name one in \
             tokenizer_config.json (`bos_token`)"
                .to_owned(),
        );
    }
    let joined = convention.is_joined();
    Method {
        convention,
        window,
        stride,
        join: joined.then(|| match &request.join {
            Some(join) => join.clone(),
            None => DEFAULT_JOIN.to_owned(),
        }),
        bos: joined.then_some(bos),
        tail: (convention == Convention::Blocks).then(|| request.tail.unwrap_or_default()),
    }
}

/// Refuses options that the convention does not have, rather than score something else than the
/// caller may think.
fn options(request: &MethodRequest, name: &str, faults: &mut Faults) {
    let convention = request.convention;
    let label = convention.as_str();
    let has = [
        (
            "stride",
            request.stride.is_some(),
            convention == Convention::Strided,
            "`strided`",
        ),
        (
            "join",
            request.join.is_some(),
            convention.is_joined(),
            "`blocks`, `strided` and `llamacpp`, which join the documents",
        ),
        (
            "tail",
            request.tail.is_some(),
            convention == Convention::Blocks,
            "`blocks`",
        ),
    ];
    for (option, given, fits, of) in has {
        if given && !fits {
            faults.add(
                ErrorCode::MethodInvalid,
                format!("{name}.{option}"),
                format!("is an option of {of}, not of `{label}`; leave it out"),
            );
        }
    }
    if convention == Convention::Rolling && request.bos == Some(Bos::Never) {
        faults.add(
            ErrorCode::MethodInvalid,
            format!("{name}.bos"),
            "is `never`, but `rolling` always puts its prefix before a document; leave it out, or \
             use `blocks`",
        );
    }
    if let Some(join) = &request.join {
        faults.require(
            join.len() <= MAX_JOIN,
            &format!("{name}.join"),
            format!("has {} bytes; it takes at most {MAX_JOIN}", join.len()),
        );
    }
}

fn default_window(convention: Convention) -> u32 {
    match convention {
        Convention::Llamacpp => DEFAULT_WINDOW_LLAMACPP,
        Convention::Rolling | Convention::Blocks | Convention::Strided => DEFAULT_WINDOW,
    }
}

/// The smallest window that scores a token.
fn least_window(convention: Convention) -> u32 {
    match convention {
        Convention::Rolling => 1,
        Convention::Blocks | Convention::Strided => 2,
        Convention::Llamacpp => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ApiError;
    use assay_api::Tail;
    use serde_json::{Value, json};

    const MODEL: Limits = Limits {
        positions: 1000,
        has_bos: true,
    };

    fn resolved(
        methods: Value,
        model: &Limits,
    ) -> Result<Vec<Method>, (ErrorCode, String, String)> {
        let methods = serde_json::from_value(methods).unwrap();
        let mut faults = Faults::default();
        let resolved = resolve(&methods, Some(model), &mut faults);
        match faults.into_result() {
            Ok(()) => Ok(resolved.as_slice().to_vec()),
            Err(ApiError::Problem(problem)) => {
                let [error] = &problem.errors[..] else {
                    panic!("{problem:?}")
                };
                Err((problem.code, error.field.clone(), error.detail.clone()))
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn defaults_depend_on_the_convention_and_the_model() {
        let long = Limits {
            positions: 8192,
            ..MODEL
        };
        let names = json!([
            {"convention": "rolling"}, {"convention": "blocks"}, {"convention": "strided"},
            {"convention": "llamacpp"}
        ]);
        for (model, windows) in [
            (&long, [2048, 2048, 2048, 512]),
            (&MODEL, [1000, 1000, 1000, 512]),
        ] {
            let methods = resolved(names.clone(), model).unwrap();
            let found: Vec<u32> = methods.iter().map(|method| method.window).collect();
            assert_eq!(found, windows);
        }
        let methods = resolved(names, &long).unwrap();
        assert_eq!(methods[0], Method::rolling(2048));
        let joined = Method {
            join: Some("\n\n".to_owned()),
            bos: Some(Bos::Auto),
            ..Method::rolling(2048)
        };
        let blocks = Method {
            convention: Convention::Blocks,
            tail: Some(Tail::Drop),
            ..joined.clone()
        };
        let strided = Method {
            convention: Convention::Strided,
            stride: Some(512),
            ..joined.clone()
        };
        let llamacpp = Method {
            convention: Convention::Llamacpp,
            window: 512,
            ..joined
        };
        assert_eq!(methods[1..], [blocks, strided, llamacpp]);
        for (window, stride) in [(100, 50), (3, 1), (2, 1)] {
            let method = json!({"convention": "strided", "window": window});
            assert_eq!(resolved(method, &MODEL).unwrap()[0].stride, Some(stride));
        }
    }

    #[test]
    fn what_the_convention_does_not_have_is_refused_by_name() {
        for (method, field, word) in [
            (json!({"stride": 4}), "method.stride", "`strided`"),
            (json!({"join": ""}), "method.join", "`blocks`"),
            (json!({"tail": "drop"}), "method.tail", "`blocks`"),
            (json!({"bos": "never"}), "method.bos", "prefix"),
            (
                json!([{}, {"convention": "blocks", "stride": 4}]),
                "method[1].stride",
                "`strided`",
            ),
            (
                json!({"convention": "strided", "tail": "score"}),
                "method.tail",
                "`blocks`",
            ),
            (
                json!({"convention": "llamacpp", "stride": 4}),
                "method.stride",
                "`strided`",
            ),
            (
                json!({"convention": "llamacpp", "tail": "score"}),
                "method.tail",
                "`blocks`",
            ),
        ] {
            let (code, at, detail) = resolved(method, &MODEL).unwrap_err();
            assert_eq!((code, &*at), (ErrorCode::MethodInvalid, field), "{detail}");
            assert!(
                detail.contains(word) && detail.contains("leave it out"),
                "{detail}"
            );
        }
        for bos in ["auto", "always"] {
            let rolling = resolved(json!({"bos": bos}), &MODEL).unwrap();
            assert_eq!(rolling, [Method::rolling(1000)]);
        }
    }

    #[test]
    fn sizes_are_held_against_the_convention_and_the_model() {
        for (method, field, words) in [
            (json!({"window": 0}), "method.window", ["0", "is 1"]),
            (json!({"window": 1001}), "method.window", ["1001", "1000"]),
            (
                json!({"convention": "blocks", "window": 1}),
                "method.window",
                ["1", "is 2"],
            ),
            (
                json!({"convention": "strided", "window": 1}),
                "method.window",
                ["1", "is 2"],
            ),
            (
                json!({"convention": "llamacpp", "window": 3}),
                "method.window",
                ["3", "is 4"],
            ),
            (
                json!({"convention": "strided", "stride": 0}),
                "method.stride",
                ["0", "1 to 999"],
            ),
            (
                json!({"convention": "strided", "stride": 1000}),
                "method.stride",
                ["1000", "1 to 999"],
            ),
        ] {
            let (code, at, detail) = resolved(method, &MODEL).unwrap_err();
            assert_eq!((code, &*at), (ErrorCode::MethodInvalid, field), "{detail}");
            assert!(words.iter().all(|word| detail.contains(word)), "{detail}");
        }
        let tiny = Limits {
            positions: 3,
            ..MODEL
        };
        assert!(resolved(json!({"convention": "llamacpp"}), &tiny).is_err());
        assert!(resolved(json!({"convention": "strided"}), &tiny).is_ok());
    }

    #[test]
    fn a_bos_that_is_always_there_has_to_exist() {
        let without = Limits {
            has_bos: false,
            ..MODEL
        };
        for convention in ["rolling", "blocks", "strided", "llamacpp"] {
            let method = json!({"convention": convention, "bos": "always"});
            assert!(resolved(method.clone(), &MODEL).is_ok());
            let (code, field, _) = resolved(method, &without).unwrap_err();
            assert_eq!((code, &*field), (ErrorCode::MethodInvalid, "method.bos"));
            let method = json!({"convention": convention, "bos": "auto"});
            assert!(resolved(method, &without).is_ok());
        }
    }

    #[test]
    fn a_list_has_no_method_twice_and_a_bounded_length() {
        let equal = json!([{}, {"convention": "blocks"}, {"window": 1000}]);
        let (code, field, detail) = resolved(equal, &MODEL).unwrap_err();
        assert_eq!((code, &*field), (ErrorCode::InvalidRequest, "method[2]"));
        assert!(detail.contains("method[0]"), "{detail}");
        let many: Vec<Value> = (1..=9).map(|window| json!({"window": window})).collect();
        for list in [json!([]), json!(many)] {
            let (code, field, _) = resolved(list, &MODEL).unwrap_err();
            assert_eq!((code, &*field), (ErrorCode::InvalidRequest, "method"));
        }
        let long = json!({"convention": "blocks", "join": "x".repeat(1025)});
        assert_eq!(resolved(long, &MODEL).unwrap_err().1, "method.join");
    }
}
