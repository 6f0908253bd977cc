//! docs/multimem.md is what the tables say.

use std::path::Path;

#[test]
fn multimem_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/multimem.md");
    let wanted = weft_isa::markdown();
    if std::env::var_os("WEFT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/multimem.md is out of date: WEFT_BLESS=1 cargo test -p weft-isa");
}
