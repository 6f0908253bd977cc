//! Tests of the files that `weft new` creates. The templates of the Rust host are compiled here
//! unchanged.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::error::Error;
use std::path::Path;
use std::process::{Command, Output};

#[path = "../src/new/rust/main.rs"]
#[allow(dead_code, reason = "a test calls what `main` does")]
mod host;

#[path = "../src/new/rust/kernel.rs"]
mod kernel;

fn weft(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weft")).args(words).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_rust_host_runs_on_simulated_pes() {
    let job = weft::runtime::World::simulated(3).unwrap();
    job.run(|world| host::run(world).map_err(|e| Box::<dyn Error + Send + Sync>::from(e.to_string())))
        .unwrap();
}

#[test]
fn a_rust_package_has_the_name_of_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let out = weft(folder.path(), &["new", "ring-sum", "--path", env!("CARGO_MANIFEST_DIR")]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    assert!(said.contains("created ring-sum/ring_sum.weft\n") && said.contains("    cargo test\n"), "{said}");

    let read = |file: &str| std::fs::read_to_string(folder.path().join("ring-sum").join(file)).unwrap();
    let manifest = read("Cargo.toml");
    assert!(manifest.contains("name = \"ring-sum\"\n"), "{manifest}");
    for (name, crate_folder) in [("warpweft", "warpweft"), ("warpweft-check", "check")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(crate_folder).canonicalize().unwrap();
        let line = format!("\n{name} = {{ path = {:?} }}\n", path.display().to_string());
        assert!(manifest.contains(&line), "{manifest}");
    }
    assert!(read("src/main.rs").contains("include_str!(\"../ring_sum.weft\")"));
    assert!(read("tests/kernel.rs").contains("include_str!(\"../ring_sum.weft\")"));

    let run = weft(&folder.path().join("ring-sum"), &["run", "ring_sum.weft", "--pes", "3", "-D", "N=1003"]);
    assert!(text(&run.stdout).contains(": correct"), "{}{}", text(&run.stdout), text(&run.stderr));
}

#[test]
fn a_rust_package_depends_on_the_version_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    assert!(weft(folder.path(), &["new", "sum"]).status.success());
    let manifest = std::fs::read_to_string(folder.path().join("sum/Cargo.toml")).unwrap();
    for name in ["warpweft", "warpweft-check"] {
        let line = format!("\n{name} = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        assert!(manifest.contains(&line), "{manifest}");
    }
}

#[test]
fn a_python_host_has_the_name_of_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let out = weft(folder.path(), &["new", "sum", "--host", "python"]);
    assert!(text(&out.stdout).contains("    python -m pytest\n"), "{}", text(&out.stderr));
    let host = std::fs::read_to_string(folder.path().join("sum/host.py")).unwrap();
    assert!(host.contains("with_name(\"sum.weft\")"), "{host}");
    assert!(folder.path().join("sum/test_kernel.py").exists());
}

#[test]
fn bad_names_and_existing_folders_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |name: &str, why: &str| {
        let out = weft(folder.path(), &["new", name]);
        assert!(!out.status.success());
        assert!(text(&out.stderr).contains(why), "{}", text(&out.stderr));
    };
    refused("2nd", "`2nd` cannot be the name of a kernel");
    refused("a.b", "`a.b` cannot be the name of a kernel");
    refused("for", "`for` is a word of the language");
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    std::fs::create_dir(folder.path().join("there")).unwrap();
    refused("there", "there already exists");
}
