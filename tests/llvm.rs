//! Checks that programs start without LLVM's library, which is opened when the first kernel is
//! compiled.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::Path;
use std::process::{Command, Output};

const KERNEL: &str = "kernel zero(x: global<f32, (1024):(1)>) block(128) { x[_] = 0.0; }\n";

/// The library that this process has opened, unless LLVM is built in.
fn library() -> Option<std::path::PathBuf> {
    weft_llvm::version().unwrap();
    weft_llvm::library().map(Path::to_owned)
}

fn weft(home: &Path, arguments: &[&str], variables: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
    command.env("HOME", home).env_remove("XDG_CACHE_HOME").env_remove("WEFT_LLVM");
    command.args(arguments).current_dir(home).envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn commands_that_compile_nothing_need_no_library() {
    if library().is_none() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let empty = home.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(home.path().join("zero.weft"), KERNEL).unwrap();
    let none = [("WEFT_LLVM", &*empty)];

    let out = weft(home.path(), &["layout", "(4,2):(1,4)"], &none);
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "(4,2):(1,4)\n");

    let out = weft(home.path(), &["compile", "zero.weft"], &none);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && said.contains("error[E0611]") && said.contains("empty"), "{said}");
    assert!(said.contains("set WEFT_LLVM to the path of a libLLVM"), "{said}");
}

#[test]
fn a_variable_names_the_library_or_its_folder() {
    let Some(library) = library() else { return };
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("zero.weft"), KERNEL).unwrap();
    for place in [&*library, library.parent().unwrap()] {
        let out = weft(home.path(), &["compile", "zero.weft"], &[("WEFT_LLVM", place)]);
        assert!(out.status.success(), "{}", String::from_utf8(out.stderr).unwrap());
    }
    let damaged = home.path().join("libLLVM-22-damaged.so");
    std::fs::write(&damaged, "no library").unwrap();
    let out = weft(home.path(), &["compile", "zero.weft"], &[("WEFT_LLVM", &damaged)]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert!(said.contains("found no usable shared library") && said.contains("damaged"), "{said}");
}

/// Checks that the command keeps a hard link to a toolchain's library, which remains if the
/// toolchain is removed.
#[test]
fn the_library_of_a_toolchain_is_kept() {
    let Some(library) = library() else { return };
    let home = tempfile::tempdir().unwrap();
    let toolchain = home.path().join("toolchains/one/lib");
    std::fs::create_dir_all(&toolchain).unwrap();
    let here = toolchain.join("libLLVM-22-of-a-test.so");
    std::fs::copy(library, &here).unwrap();
    std::fs::write(home.path().join("zero.weft"), KERNEL).unwrap();

    let out = weft(home.path(), &["compile", "zero.weft"], &[("WEFT_LLVM", &here)]);
    assert!(out.status.success(), "{}", String::from_utf8(out.stderr).unwrap());
    std::fs::remove_dir_all(home.path().join("toolchains")).unwrap();
    let kept = home.path().join(".cache/warpweft/llvm");
    let out = weft(home.path(), &["compile", "zero.weft"], &[("WEFT_LLVM", &kept)]);
    assert!(out.status.success(), "{}", String::from_utf8(out.stderr).unwrap());
}
