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

/// The built-in functions are those of the device library, with its prototypes and versions.
#[test]
fn nvshmem_functions_are_the_librarys() {
    let mut library = std::collections::BTreeMap::new();
    for line in include_str!("golden/nvshmem.txt").lines().filter(|l| !l.starts_with('#')) {
        let (head, rest) = line.split_once(" (").unwrap();
        let (params, rest) = rest.split_once(") ").unwrap();
        let (name, version) = head.split_once(' ').unwrap();
        let (result, types) = rest.split_once(' ').unwrap_or((rest, ""));
        for ty in types.split(',') {
            library.insert(name.replace("{T}", ty), format!("{version} ({params}) {result}"));
        }
    }
    let mut ours = std::collections::BTreeMap::new();
    for f in weft_sim::nvshmem_functions() {
        let params: Vec<String> = f.params().iter().map(u64::to_string).collect();
        let result = f.result().map_or("-".to_string(), |r| r.to_string());
        let (major, minor) = f.since();
        ours.insert(f.name().to_string(), format!("{major}.{minor} ({}) {result}", params.join(" ")));
    }
    assert!(library.len() > 1800, "{}", library.len());
    let differs = |(name, text): &(&String, &String)| library.get(*name) != Some(*text);
    let wrong: Vec<_> = ours.iter().filter(differs).map(|(n, t)| (n, t, library.get(n))).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let missing: Vec<&String> = library.keys().filter(|n| !ours.contains_key(*n)).collect();
    assert!(missing.is_empty(), "{missing:?}");
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
