//! The committed OpenAPI document is the one that is served.

#[test]
fn the_committed_document_is_current() {
    // Not `assert_eq!`, which would print both documents.
    assert!(
        include_str!("../../openapi/openapi.json") == assay_server::openapi_json(),
        "openapi/openapi.json is not what the server serves; regenerate it with \
         `cargo run --release -p assay-server -- openapi > openapi/openapi.json` and commit it"
    );
}

#[test]
fn every_operation_is_described() {
    let document: serde_json::Value = serde_json::from_str(&assay_server::openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    for (path, item) in paths {
        for (method, operation) in item.as_object().unwrap() {
            for part in ["summary", "description", "operationId", "tags"] {
                assert!(
                    operation[part].is_string() || operation[part].is_array(),
                    "{method} {path}: {part}"
                );
            }
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{method} {path}"
            );
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(
                    parameter["description"].is_string(),
                    "{method} {path}: {parameter}"
                );
            }
        }
    }
    let body = &paths["/jobs"]["post"]["requestBody"]["content"]["application/json"];
    let examples = body["examples"].as_object().unwrap();
    assert!(examples.len() >= 4);
    for example in examples.values() {
        serde_json::from_value::<assay_api::JobRequest>(example["value"].clone()).unwrap();
    }
    let body = &paths["/datasets/inspect"]["post"]["requestBody"]["content"]["application/json"];
    let example = body["example"].clone();
    serde_json::from_value::<assay_api::DatasetInspectionRequest>(example).unwrap();
    let body = &paths["/plans"]["post"]["requestBody"]["content"]["application/json"];
    serde_json::from_value::<assay_api::PlanRequest>(body["example"].clone()).unwrap();
}

#[test]
fn every_reference_leads_somewhere() {
    let document: serde_json::Value = serde_json::from_str(&assay_server::openapi_json()).unwrap();
    let mut references = Vec::new();
    collect_references(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect_references<'a>(value: &'a serde_json::Value, references: &mut Vec<&'a str>) {
    use serde_json::Value;

    let children: Vec<&Value> = match value {
        Value::Object(fields) => {
            references.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().collect()
        }
        Value::Array(items) => items.iter().collect(),
        _ => return,
    };
    for child in children {
        collect_references(child, references);
    }
}
