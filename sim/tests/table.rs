//! The generated documentation is current.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[test]
fn instruction_table_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/ptx-instructions.md");
    let table = weft_sim::instruction_table();
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap();
    assert!(
        found == table,
        "docs/ptx-instructions.md is not current: run WEFT_BLESS=1 cargo test -p weft-sim"
    );
}

/// Every row of the tables is a form that can be found: no two rows are the same, no name is misspelt.
#[test]
fn rows_are_distinct() {
    let table = weft_sim::instruction_table();
    let rows: Vec<&str> = table.lines().filter(|l| l.starts_with("| `")).collect();
    let distinct: std::collections::HashSet<&&str> = rows.iter().collect();
    assert_eq!(rows.len(), distinct.len());
    assert!(rows.len() > 250, "{}", rows.len());
}
