//! Tests of kernels in sequence, from two files: the memory that they share, the arguments that the
//! host counts, and the replay of a finding.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A kernel that doubles `x` into `middle`. The next kernel adds a function of the PE and the
/// index.
const PRODUCE: &str =
    "kernel produce<N: int>(x: global<i32, (N):(1)>, middle: symm<i32, (N):(1)>, epoch: i32)
    block(32) grid(1)
{
    for i in thread_idx()..N step 32 { middle[i] = x[i] * 2 + epoch; }
}
";

const CONSUME: &str = "kernel consume<N: int>(middle: symm<i32, (N):(1)>, out: global<i32, (N):(1)>)
    block(32) grid(1) computes(copy(middle, out))
{
    for i in thread_idx()..N step 32 { out[i] = middle[i]; }
}
";

struct Scratch(TempDir);

impl Scratch {
    fn new(produce: &str, consume: &str) -> Scratch {
        let place = TempDir::new().unwrap();
        fs::write(place.path().join("a.weft"), produce).unwrap();
        fs::write(place.path().join("b.weft"), consume).unwrap();
        Scratch(place)
    }

    fn weft(&self, arguments: &str) -> Output {
        let arguments = arguments.split_whitespace();
        Command::new(env!("CARGO_BIN_EXE_weft")).args(arguments).current_dir(self.0.path()).output().unwrap()
    }

    fn says(&self, arguments: &str, status: i32, all: &[&str]) -> String {
        let out = self.weft(arguments);
        let said = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(status), "weft {arguments}:\n{said}");
        for part in all {
            assert!(said.contains(part), "weft {arguments} does not say `{part}`:\n{said}");
        }
        said
    }

    /// The 32-bit integers at the end of a file that a run wrote.
    fn integers(&self, name: &str, count: usize) -> Vec<i32> {
        let bytes = fs::read(self.0.path().join(name)).unwrap();
        let data = bytes[bytes.len() - 4 * count..].chunks_exact(4);
        data.map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }
}

#[test]
fn tensors_are_shared_and_the_host_counts() {
    let place = Scratch::new(PRODUCE, CONSUME);
    let command = "run a.weft b.weft:consume --on sim --pes 2 -D N=40 --launches 3 --arg epoch=5+10 \
        --output x=x.npy --output out=out.npy --ptx ran.ptx";
    let said = place.says(
        command,
        0,
        &["kernel       produce", "kernel       consume", "launch 3 of consume correct"],
    );
    assert_eq!(said.matches(": i32 (40) on each PE").count(), 3, "{said}");
    let (x, out) = (place.integers("x.npy", 80), place.integers("out.npy", 80));
    assert_eq!(out, x.iter().map(|x| x * 2 + 25).collect::<Vec<_>>());
    // The PTX of each kernel is that of `weft compile`.
    for (number, kernel) in [(1, "a.weft"), (2, "b.weft:consume")] {
        place.says(&format!("compile {kernel} -D N=40 -o compiled.ptx"), 0, &[]);
        let text = |name: &str| fs::read(place.0.path().join(name)).unwrap();
        assert_eq!(text(&format!("ran.{number}.ptx")), text("compiled.ptx"));
    }
    place.says(
        "check a.weft b.weft --pes 1,3 --arg epoch=1+1 --seeds 4",
        0,
        &["kernels      produce, consume"],
    );
}

#[test]
fn a_finding_names_its_file_and_is_met_again() {
    // Each PE reads data that another one writes in the previous kernel, without waiting for it.
    let consume = CONSUME.replace("= middle[i]", "= peer(middle, (my_pe() + 1) % n_pes())[i]");
    let place = Scratch::new(PRODUCE, &consume.replace("computes(copy(middle, out))", ""));
    let races = ["error[S030]: data race between PEs, in two launches", "--> b.weft:4:", "::: a.weft:4:"];
    let command = "check a.weft:produce b.weft --pes 2 --arg epoch=1+1 --seeds 4 --overlap";
    let said = place.says(command, 1, &races);
    let again = said.lines().find_map(|line| line.trim_start().strip_prefix("weft check ")).unwrap();
    assert!(again.starts_with("a.weft:produce b.weft:consume --pes 2 --seed "), "{again}");
    place.says(&format!("check {again}"), 1, &races);
    // The host orders the kernels, because it waits between them.
    place.says("check a.weft b.weft --pes 2 --arg epoch=1+1 --seeds 4", 0, &["found        nothing"]);
}

#[test]
fn a_wrong_result_names_its_kernel() {
    let place = Scratch::new(PRODUCE, &CONSUME.replace("= middle[i]", "= middle[i] + 1"));
    let said = ["error[C001]: `out` differs from computes(...)", "after launch 1 of `consume`"];
    place.says("check a.weft b.weft --pes 2 --arg epoch=1 --seeds 2", 1, &said);
}

#[test]
fn sequences_that_do_not_fit_together() {
    let place = Scratch::new(PRODUCE, CONSUME);
    let rest = "--pes 2 -D N=8 --arg epoch=1";
    let all = [
        ("run a.weft b.weft --pes 2 -D N=8", "`epoch` has no value"),
        ("run a.weft b.weft --pes 2 -D N=8 --arg epoch=1 --arg n=2", "no scalar parameter `n`"),
        (
            "run a.weft b.weft --pes 2 -D N=8 -D M=8 --arg epoch=1",
            "no kernel of the sequence has a compile-time parameter `M`",
        ),
        (
            "run a.weft b.weft --pes 2 -D N=8 --arg epoch=2147483646+1 --launches 3",
            "`epoch` is 2147483648, which does not fit",
        ),
        ("run a.weft b.weft --pes 2 -D N=8 --arg epoch=1.5+1", "an integer and its step"),
        ("run a.weft b.weft:other --pes 2 -D N=8 --arg epoch=1", "there is no kernel `other`"),
        (
            "run a.weft:produce b.weft --kernel produce --pes 2",
            "contradicts the kernel `produce` that is given with the file",
        ),
        ("run a.weft missing.weft --pes 2", "missing.weft"),
    ];
    for (command, why) in all {
        place.says(&format!("{command} --on sim"), 1, &[why]);
    }
    let place = Scratch::new(PRODUCE, &CONSUME.replace("middle: symm<i32, (N)", "middle: symm<i32, (N + 1)"));
    let why = "`middle` is i32 (9):(1) in `consume`, but i32 (8):(1) in an earlier kernel";
    place.says(&format!("run a.weft b.weft --on sim {rest}"), 1, &[why]);
    let grown = PRODUCE.replace("x: global<i32, (N):(1)>", "n: int, x: global<i32, (n):(1)>");
    let place = Scratch::new(&grown, CONSUME);
    place.says(
        "run a.weft b.weft --on sim --pes 2 -D N=8 --arg epoch=1 --arg n=9+1",
        1,
        &["`x`: ", "differs between launches"],
    );
}
