//! Tests of `--quiet` and `--verbose`, which every command accepts.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::process::Command;

const RIGHT: &str = "examples/allreduce_two_shot.weft";
const RACY: &str = "tests/broken/message/relaxed_store.weft";

/// The exit status, standard output and standard error.
fn weft(words: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_weft"))
        .args(words)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

fn words<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

#[test]
fn a_quiet_run_prints_only_errors() {
    let run = ["run", RIGHT, "--pes", "2", "-D", "N=64"];
    assert!(weft(&run).1.contains(": correct"));
    assert_eq!(weft(&words(&run, &["--quiet"])), (0, String::new(), String::new()));
    let check = ["check", "--pes", "2", "--seeds", "2"];
    assert_eq!(weft(&words(&check, &["-q", RIGHT, "-D", "N=64"])), (0, String::new(), String::new()));
    let (status, found, _) = weft(&words(&check, &["-q", RACY]));
    assert!(status == 1 && found.starts_with("error[S0"), "{status}: {found}");
}

#[test]
fn times_are_printed_to_standard_error() {
    let compile = ["compile", RIGHT, "--emit", "meta"];
    let (_, meta, none) = weft(&compile);
    let (status, same, times) = weft(&words(&["-v"], &compile));
    assert_eq!((status, meta, none.as_str()), (0, same, ""));
    for line in ["elaborate ", "total ", "whole command "] {
        assert!(times.lines().any(|l| l.starts_with(line)), "{times}");
    }
    let (status, _, why) = weft(&words(&["-v", "-q"], &compile));
    assert!(status == 2 && why.contains("cannot be used with"), "{why}");
}

/// Checks that no command has an option of its own that hides one of these, and that no progress is
/// printed to a pipe.
#[test]
fn every_command_accepts_quiet_and_verbose() {
    let (_, help, _) = weft(&["--help"]);
    let commands = help.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next()).unwrap();
    let names = commands.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in names.into_iter().filter(|name| *name != "help") {
        let (_, page, _) = weft(&[name, "--help"]);
        assert!(page.contains("--quiet") && page.contains("--verbose"), "{name}: {page}");
    }
}
