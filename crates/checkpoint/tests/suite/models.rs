//! docs/models.md against the tables and the fixtures.

use assay_checkpoint::Family;

#[path = "../../examples/models.rs"]
#[allow(dead_code)] // its main is for the program
mod example;

#[test]
fn the_page_says_what_the_tables_say() {
    assert!(
        include_str!("../../../../docs/models.md") == example::page().unwrap(),
        "docs/models.md is not what the tables and the fixtures say; write it anew with \
         `cargo run --release -p assay-checkpoint --example models > docs/models.md` and commit it"
    );
}

#[test]
fn every_family_has_fixtures_in_every_form_that_is_read() {
    let fixtures = example::fixtures().unwrap();
    for family in Family::all() {
        let has = |gguf: bool| {
            let mut own = fixtures
                .iter()
                .filter(|fixture| fixture.architecture.family == family);
            own.any(|fixture| fixture.name.contains(".gguf") == gguf)
        };
        assert!(has(false), "{family:?} has no fixture");
        assert_eq!(has(true), family.gguf().is_some(), "{family:?} as GGUF");
    }
}
