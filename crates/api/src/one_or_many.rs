//! A value, or a list of such values.

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// One object or a list of them; it travels in the form it came in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany<T> {
    /// One object.
    One(T),
    /// A list.
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// The objects in order.
    pub fn as_slice(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }

    /// The same form with each object replaced.
    pub fn map<U>(&self, f: impl FnMut(&T) -> U) -> OneOrMany<U> {
        let mut f = f;
        match self {
            Self::One(one) => OneOrMany::One(f(one)),
            Self::Many(many) => OneOrMany::Many(many.iter().map(f).collect()),
        }
    }
}

impl<T: Default> Default for OneOrMany<T> {
    fn default() -> Self {
        Self::One(T::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectOrList<T>(std::marker::PhantomData<T>);

        // serde's `untagged` would answer "did not match any variant"; a visitor keeps the
        // name of the field that is wrong.
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectOrList<T> {
            type Value = OneOrMany<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object or a list of objects")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMany::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let many: Vec<Object<T>> = Vec::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(OneOrMany::Many(many.into_iter().map(|one| one.0).collect()))
            }
        }

        deserializer.deserialize_any(ObjectOrList(std::marker::PhantomData))
    }
}

/// A value that travels as an object. What serde derives takes a list of the fields' values too.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        deserializer.deserialize_any(Fields(std::marker::PhantomData))
    }
}

/// An optional value that travels as an object, for `deserialize_with`.
pub(crate) fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let object = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(object.map(|object| object.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Convention, MethodRequest};

    #[test]
    fn both_forms_are_taken_and_kept() {
        for json in [
            r#"{"convention":"blocks","window":4}"#,
            r#"[{"convention":"blocks"},{"convention":"rolling","window":8}]"#,
            "[]",
        ] {
            let value: OneOrMany<MethodRequest> = serde_json::from_str(json).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), json);
        }
        let one: OneOrMany<MethodRequest> = serde_json::from_str("{}").unwrap();
        assert_eq!(one.as_slice()[0].convention, Convention::Rolling);
        assert_eq!(one, OneOrMany::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (json, word) in [
            (r#"{"widow":4}"#, "widow"),
            (r#"[{"convention":"block"}]"#, "block"),
            ("7", "an object or a list"),
            (r#"[["blocks",64]]"#, "expected an object"),
            ("[[]]", "expected an object"),
        ] {
            let error = serde_json::from_str::<OneOrMany<MethodRequest>>(json).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
    }
}
