//! Checks the dependencies between crates (docs/architecture.md), and properties that every file
//! must have.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The crates that the library combines.
const BASE: &[&str] = &[
    "weft-layout",
    "weft-abi",
    "weft-ir",
    "weft-lang",
    "weft-isa",
    "weft-passes",
    "weft-llvm",
    "weft-sim",
    "weft-runtime",
];

/// Every package of the workspace, and the other packages that it can use. Dependencies follow the
/// data: text, IR, passes, LLVM, PTX. None points back.
const ROOMS: &[(&str, &[&[&str]])] = &[
    ("weft-layout", &[]),
    ("weft-abi", &[&["weft-layout"]]),
    ("weft-ir", &[&["weft-abi", "weft-layout"]]),
    ("weft-lang", &[&["weft-ir", "weft-layout"]]),
    ("weft-isa", &[]),
    ("weft-passes", &[&["weft-abi", "weft-ir", "weft-isa", "weft-layout"]]),
    ("weft-llvm", &[&["weft-ir", "weft-isa"]]),
    ("weft-lsp", &[&["weft-abi", "weft-ir", "weft-isa", "weft-lang", "weft-passes"]]),
    ("weft-sim", &[]),
    ("weft-runtime", &[&["weft-abi", "weft-layout", "weft-sim"]]),
    // It runs compilers and contains none.
    ("xtask", &[]),
    ("warpweft", &[BASE]),
    ("warpweft-run", &[BASE, &["warpweft"]]),
    ("warpweft-check", &[BASE, &["warpweft", "warpweft-run"]]),
    ("warpweft-report", &[BASE, &["warpweft", "warpweft-run", "warpweft-check"]]),
    ("warpweft-bench", &[BASE, &["warpweft", "warpweft-run"]]),
    (
        "warpweft-cli",
        &[
            BASE,
            &["warpweft", "warpweft-run", "warpweft-check", "warpweft-report", "warpweft-bench", "weft-lsp"],
        ],
    ),
    ("warpweft-comm", &[&["warpweft"]]),
    ("warpweft-python", &[&["warpweft", "warpweft-run", "warpweft-check", "warpweft-cli", "warpweft-comm"]]),
];

/// Packages that the tests of a package can use, besides those that it can use itself.
const OF_TESTS: &[(&str, &str)] = &[
    // The reference of the fused norm in float64.
    ("warpweft-comm", "warpweft-bench"),
];

/// Libraries that only one crate uses, so that they can be replaced there.
const CONFINED: &[(&str, &str)] = &[("inkwell", "weft-llvm"), ("llvm-sys", "weft-llvm")];

/// The maximum number of lines of a Rust file. A file that needs more has two subjects.
const MAX_LINES: usize = 800;

/// Parts of paths that exist on one machine only. (They are split in two, because this file is
/// checked too.)
const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/tmp/", "target"), concat!("/home", "/")];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The standard output of a program that runs at the root.
fn output(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).current_dir(root()).output().unwrap();
    assert!(out.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap()
}

/// The name of each package of the workspace, and the names of its dependencies of every kind, but
/// for those that its tests can use.
fn packages() -> Vec<(String, Vec<String>)> {
    let json = output(env!("CARGO"), &["metadata", "--format-version=1", "--no-deps", "--offline"]);
    let metadata: Value = serde_json::from_str(&json).unwrap();
    let dependencies = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let of_tests = |used: &&Value| {
            used["kind"] == "dev" && OF_TESTS.contains(&(text(package, "name"), text(used, "name")))
        };
        all.filter(|used| !of_tests(used)).map(|used| text(used, "name").to_owned()).collect()
    };
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages.map(|package| (text(package, "name").to_owned(), dependencies(package))).collect()
}

/// The files that git has or would add, with their text. Binary files are left out.
fn files() -> Vec<(String, String)> {
    let names = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"]);
    let read = |name: &str| Some((name.to_owned(), fs::read_to_string(root().join(name)).ok()?));
    let files: Vec<_> = names.lines().filter_map(read).collect();
    assert!(files.iter().any(|(name, _)| name == "Cargo.toml"), "not at the root: {names}");
    files
}

#[test]
fn rooms_use_only_the_rooms_before_them() {
    let packages = packages();
    assert_eq!(
        packages.len(),
        ROOMS.len(),
        "a new package needs its line in ROOMS and in docs/architecture.md"
    );
    let mut wrong = Vec::new();
    for (name, dependencies) in &packages {
        let Some((_, may_use)) = ROOMS.iter().find(|(room, _)| room == name) else {
            panic!("`{name}` is a new package: say in ROOMS and in docs/architecture.md what it may use");
        };
        let may_use = may_use.concat();
        for used in dependencies.iter().filter(|used| ROOMS.iter().any(|(room, _)| room == used)) {
            if !may_use.contains(&used.as_str()) {
                wrong.push(format!("{name} -> {used}: {name} may use only [{}]", may_use.join(", ")));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that the design has not:\n{}\nData flows from text to PTX and never back, so that each room can be \
         read, tested and replaced alone. Move what is needed to an earlier room, or to the root package, which \
         joins them.",
        wrong.join("\n")
    );
}

/// Checks that the order of the table is consistent, so that an edit of the table cannot add a
/// dependency that points back.
#[test]
fn the_table_has_no_dependency_that_points_back() {
    for (place, (room, may_use)) in ROOMS.iter().enumerate() {
        for used in may_use.concat() {
            let before = ROOMS[..place].iter().any(|(earlier, _)| *earlier == used);
            assert!(before, "{room} -> {used}: `{used}` does not stand before `{room}`");
        }
    }
}

#[test]
fn only_one_room_sees_llvm() {
    for (name, dependencies) in packages() {
        for (confined, room) in CONFINED {
            let used = dependencies.iter().any(|used| used == confined);
            assert!(!used || name == *room, "{name} uses {confined}, which only {room} may");
        }
    }
}

#[test]
fn rust_files_are_short() {
    let files = files();
    let sources = files.iter().filter(|(name, _)| name.ends_with(".rs"));
    let long: Vec<_> =
        sources.filter(|(_, text)| text.lines().count() > MAX_LINES).map(|(name, _)| name).collect();
    assert!(long.is_empty(), "more than {MAX_LINES} lines; split by family: {long:?}");
}

#[test]
fn no_file_names_a_path_of_one_machine() {
    let mut found = Vec::new();
    for (name, text) in files() {
        for (number, line) in text.lines().enumerate() {
            for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
                found.push(format!("{name}:{}: {path}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "paths that other machines do not have:\n{}", found.join("\n"));
}
