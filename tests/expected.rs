//! Tests of results that are compared with a `reference fn` of the text, or with the numbers in
//! files.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A kernel that adds twice the next PE's element to each element.
const TEXT: &str = "const FACTOR = 2;

reference fn mixed(x, bias, out) {
    let next = (my_pe() + 1) % n_pes();
    for r in 0..size<0>(x) {
        for c in 0..size<1>(x) { out[r, c] = x[r, c] + FACTOR * peer(x, next)[r, c] + bias; }
    }
}

kernel mix<T: float = f32, N: int>(x: symm<T, (3, N):(N, 1)>, out: global<T, (3, N):(N, 1)>, bias: f32)
    block(32) grid(3) computes(mixed(x, bias, out))
{
    let next = (my_pe() + 1) % n_pes();
    for c in thread_idx()..N step 32 {
        out[block_idx(), c] = (x[block_idx(), c].to<f32>() + 2.0 * peer(x, next)[block_idx(), c].to<f32>() + bias).to<T>();
    }
}
";

struct Scratch(TempDir);

impl Scratch {
    fn new(text: &str) -> Scratch {
        let place = Scratch(TempDir::new().unwrap());
        place.write(text);
        place
    }

    fn write(&self, text: &str) {
        fs::write(self.path("k.weft"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn says(&self, arguments: &str, status: i32, all: &[&str]) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let out = command.args(arguments.split_whitespace()).current_dir(self.0.path()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "weft {arguments}:\n{said}");
        for part in all {
            assert!(said.contains(part), "weft {arguments} does not say `{part}`:\n{said}");
        }
        assert!(!said.contains("is not freed"), "{said}");
    }
}

#[test]
fn a_reference_function_finds_right_and_wrong() {
    let place = Scratch::new(TEXT);
    for dtype in ["f32", "f16", "bf16", "f64"] {
        let run = format!("run k.weft --on sim --pes 3 --launches 2 -D N=40 -D T={dtype} --arg bias=0.5");
        place.says(
            &run,
            0,
            &["computes     mixed(x, bias, out)", "over 360 elements of out: launch 2 correct"],
        );
    }
    let wrong = ["error[C001]: `out` differs from computes(...)", "elements are wrong after launch 1"];
    for (right, mistake) in [
        ("+ bias)", "+ bias * 1.001)"),
        ("2.0 *", "2.001 *"),
        (", c].to<f32>() + 2.0", ", 0].to<f32>() + 2.0"),
    ] {
        assert!(TEXT.contains(right));
        place.write(&TEXT.replace(right, mistake));
        place.says("check k.weft --pes 3 --seeds 2 --arg bias=0.5 -D N=40", 1, &wrong);
    }
}

#[test]
fn errors_in_reference_functions_have_a_place() {
    let place = Scratch::new(TEXT);
    let body = |line: &str| {
        TEXT.replace("    for r in 0..size<0>(x) {", &format!("    {line}\n    for r in 0..size<0>(x) {{"))
    };
    for (line, says) in [
        ("out[3, 0] = 1;", "error[E0107]: the coordinate of mode 0 is 3, but the mode has 3"),
        ("let a = x[0];", "error[E0107]: 1 coordinate for a tensor of 2 modes"),
        ("let a = 1 / 0;", "error[E0103]: the result for 1 and 0 does not exist"),
        ("peer(out, next)[0, 0] = 1;", "error[E0105]: each PE's result is evaluated separately"),
        ("sync_threads();", "error[E0100]: a reference function cannot call `sync_threads`"),
        ("next = 2;", "error[E0105]: `next` is not a variable declared by `let mut`"),
        ("let mut s = 0; s = 0.5;", "error[E0103]: `s` holds 0, and cannot become 0.5"),
        ("let a = missing;", "error[E0100]: `missing` is not defined in the reference function"),
        ("let a = peer(x, 3);", "error[E0107]: there is no PE 3"),
        ("let a = size<2>(x);", "error[E0107]: there is no mode 2: the tensor has 2"),
    ] {
        place.write(&body(line));
        place.says("run k.weft --on sim --pes 3 -D N=4 --arg bias=1", 1, &[says, "k.weft:5:"]);
    }
}

#[test]
fn files_contain_the_expected_results() {
    let place = Scratch::new(TEXT);
    let run = "run k.weft --on sim --pes 2 -D N=40 --arg bias=0.5 --seed 7";
    place.says(&format!("{run} --output x=x.npy --output out=out_{{pe}}.npy"), 0, &[]);
    place.says(&format!("{run} --output out=all.npy"), 0, &[]);
    place.says(
        &format!("{run} --expect out=all.npy"),
        0,
        &["0.00 of the tolerance against all.npy over 240 elements of out"],
    );
    // The number of PEs follows from the files, unless --pes says it.
    place.says(&format!("{} --output x=of_{{pe}}.npy", run.replace("--pes 2", "--pes 3")), 0, &[]);
    for (files, pes) in [("x.npy", "simulator, 2 PEs"), ("of_{pe}.npy", "simulator, 3 PEs")] {
        let run = run.replace("--pes 2 -D N=40 ", "");
        place.says(&format!("{run} --input x={files}"), 0, &[pes, "x: f32 (3, 40) on each PE"]);
    }
    let four = run.replace("--pes 2", "--pes 4");
    place.says(&format!("{four} --input x=x.npy"), 1, &["its first extent must be the number of PEs, 4"]);
    // The sizes follow from the file. The seed changes only data that the file does not contain.
    let check = "check k.weft --pes 2 --seeds 2 --arg bias=0.5 --input x=x.npy --expect out=out_{pe}.npy";
    place.says(check, 0, &["found        nothing", "runs         2, 2 launches each"]);
    let again = "--launches 2 --input x=x.npy --expect out=out_{pe}.npy --tolerance 0.001,0";
    let other = check.replace("0.5", "0.6");
    place.says(
        &format!("{other} --tolerance 1e-3"),
        1,
        &["error[C001]: `out` differs from out_{pe}.npy", again],
    );
    place.says(&format!("{other} --tolerance 0,0.11"), 0, &[]);
    place.says(&format!("{check} --tolerance none"), 2, &["numbers that are not negative"]);
    place.says(&format!("{run} --expect out=x_{{pe}}.npy"), 1, &["x_0.npy: cannot be read"]);
    place.says(&format!("{run} --expect y=all.npy"), 1, &["there is no tensor `y` to compare with all.npy"]);
    place.says(
        &format!("{} --expect out=all.npy", run.replace("N=40", "N=41")),
        1,
        &["has shape [3, 40] for each PE, but `out` has [3, 41]"],
    );
}
