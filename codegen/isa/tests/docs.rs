//! Checks that the generated pages of docs/ match the tables.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

fn is_current(name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    if std::env::var_os("WEFT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/{name} is out of date: WEFT_BLESS=1 cargo test -p weft-isa");
}

#[test]
fn multimem_page_is_current() {
    is_current("multimem.md", &weft_isa::markdown());
}

#[test]
fn pages_of_matrix_instructions_and_bulk_copies_are_current() {
    for name in ["mma", "bulk"] {
        is_current(&format!("{name}.md"), &weft_isa::page(name).unwrap());
    }
    assert_eq!(weft_isa::page("multimem"), None);
}
