//! Tests of the `weft` command: its answers to invalid input, with which it writes nothing, and its
//! input and output of data.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use weft::ir::Scalar;
use weft_run::array::Array;

const TWO_SHOT: &str = "examples/allreduce_two_shot.weft";

/// A folder with the examples.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        let place = Scratch(TempDir::new().unwrap());
        fs::create_dir(place.path("examples")).unwrap();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples")).unwrap() {
            let from = entry.unwrap().path();
            fs::copy(&from, place.path("examples").join(from.file_name().unwrap())).unwrap();
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    /// An array of numbers 0, 1, 2, ...
    fn write_npy(&self, name: &str, dtype: Scalar, shape: &[u64]) {
        let mut data = Vec::new();
        for i in 0..shape.iter().product::<u64>() {
            weft_run::array::write_number(dtype, weft_run::array::Number::Int(i.into()), &mut data);
        }
        Array { dtype, shape: shape.to_vec(), data }.write(&self.path(name)).unwrap();
    }

    /// The names and contents of all files.
    fn everything(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let files = fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> =
            files.filter(|p| p.is_file()).map(|p| (p.clone(), fs::read(p).unwrap())).collect();
        files.sort();
        files
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        command.args(arguments).current_dir(self.0.path());
        command
    }

    fn weft(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// The output of the command, which must succeed.
    fn answer(&self, arguments: &[&str]) -> String {
        let out = self.weft(arguments);
        assert!(out.status.success(), "weft {arguments:?}: {}", text(&out.stderr));
        text(&out.stdout)
    }

    /// Checks that the command fails with status 1 or 2, that its standard error contains all of
    /// `why`, that it prints nothing on standard output, and that it changes no file.
    fn rejects(&self, arguments: &[&str], why: &[&str]) {
        let before = self.everything();
        let out = self.weft(arguments);
        let said = text(&out.stderr);
        assert!(matches!(out.status.code(), Some(1 | 2)), "weft {arguments:?}: {:?}\n{said}", out.status);
        for part in why {
            assert!(said.contains(part), "weft {arguments:?} does not say `{part}`:\n{said}");
        }
        assert!(!said.contains("panicked"), "{said}");
        assert_eq!(text(&out.stdout), "", "weft {arguments:?}");
        assert_eq!(self.everything(), before, "weft {arguments:?} changed files");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn files_that_are_not_arrays() {
    let place = Scratch::new();
    place.write_npy("good.npy", Scalar::F32, &[2, 100]);
    let good = fs::read(place.path("good.npy")).unwrap();
    place.write("truncated.npy", &good[..good.len() - 5]);
    place.write("longer.npy", [&good[..], b"more"].concat());
    place.write("header.npy", &good[..40]);
    place.write("foreign.npy", b"PK\x03\x04 this is an archive, not an array");
    place.write("empty.npy", b"");
    // The headers are wrong. They have the same length as before, because the padding is adjusted.
    let shape = |new: &str| {
        let latin: String = good.iter().map(|byte| char::from(*byte)).collect();
        let padding = " ".repeat(new.len() - "(2, 100, )".len());
        let lie = latin.replacen("(2, 100, )", new, 1).replacen(&padding, "", 1);
        lie.chars().map(|c| c as u8).collect::<Vec<_>>()
    };
    place.write("claims.npy", shape("(2, 99999999999)"));
    place.write("overflows.npy", shape("(2, 9999999999999999999)"));
    place.write("nested.npy", shape(&"[".repeat(30)));
    let run = |file: &str, why: &[&str]| {
        let input = format!("x={file}");
        let all = ["run", TWO_SHOT, "--pes", "2", "--input", &input, "--output", "x=out.npy"];
        place.rejects(&all, &[&[file], why].concat());
    };
    run("nowhere.npy", &["cannot be read"]);
    run("truncated.npy", &["truncated", "800 bytes"]);
    run("longer.npy", &["4 bytes after"]);
    run("header.npy", &["truncated"]);
    run("foreign.npy", &["\\x93NUMPY"]);
    run("empty.npy", &["not a .npy file"]);
    run("claims.npy", &["99999999999"]);
    run("overflows.npy", &["impossible shape"]);
    run("nested.npy", &["nested"]);
    run("examples", &["cannot be read"]);
}

#[test]
fn arrays_that_do_not_fit() {
    let place = Scratch::new();
    place.write_npy("x.npy", Scalar::F32, &[2, 100]);
    place.write_npy("doubles.npy", Scalar::F64, &[2, 100]);
    place.write_npy("half.npy", Scalar::F16, &[2, 100]);
    place.write_npy("cube.npy", Scalar::F32, &[2, 10, 10]);
    place.write_npy("pe_0.npy", Scalar::F32, &[100]);
    place.write_npy("pe_1.npy", Scalar::F32, &[99]);
    let run = |more: &[&str], why: &[&str]| {
        let all = [&["run", TWO_SHOT, "--pes", "2", "--output", "x=out.npy"], more].concat();
        place.rejects(&all, why);
    };
    run(&["--input", "x=x.npy", "--pes", "3"], &[]);
    place.rejects(&["run", TWO_SHOT, "--pes", "3", "--input", "x=x.npy"], &["x.npy", "3"]);
    run(&["--input", "x=cube.npy"], &["cube.npy", "[10, 10]", "1 modes"]);
    run(&["--input", "x=x.npy", "-D", "N=99"], &["99", "100"]);
    run(&["--input", "x=x.npy", "-D", "T=f16"], &["f16", "f32"]);
    run(&["--input", "x=x.npy", "--dtype", "bf16"], &["x.npy", "bf16"]);
    run(&["--input", "y=x.npy"], &["no tensor `y`", "x"]);
    run(&["--input", "x=pe_{pe}.npy"], &["PE 1", "[99]", "[100]"]);
    run(&["--input", "x=x.npy", "--input", "x=x.npy"], &["two inputs"]);
    run(&["--input", "x=doubles.npy", "-D", "T=f32"], &["f64", "f32"]);
    for file in ["half.npy", "doubles.npy"] {
        let answer = place.answer(&["run", TWO_SHOT, "--pes", "2", "--input", &format!("x={file}")]);
        assert!(answer.contains("correct"), "{answer}");
    }
}

#[test]
fn requests_that_do_not_fit() {
    let place = Scratch::new();
    place.write("given.weft", "kernel k<N: int>(x: global<f32, (N):(1)>) block(32) { }");
    place.write("two.weft", "kernel a() block(1) {} kernel b() block(1) {}");
    place.rejects(&["compile", "given.weft"], &["E0101", "-D N="]);
    place.rejects(&["run", "given.weft"], &["N"]);
    place.rejects(&["compile", "given.weft", "-D", "N=0"], &["E0106"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "-D", "M=4"], &["E0102", "`M`", "N"]);
    place.rejects(&["compile", "given.weft", "-D", "N=four"], &["N=four"]);
    place.rejects(&["compile", "given.weft", "-D", "N"], &["NAME=VALUE"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "-D", "N=5"], &["twice"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "--arch", "sm_1"], &["sm_1", "sm_90a"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "--ptx-version", "one"], &["one"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "--emit", "elf"], &["elf", "ptx"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "--emit", "after:magic"], &["E0400", "memory"]);
    place.rejects(&["compile", "given.weft", "-D", "N=4", "-o", "no/such/folder/k.ptx"], &["no/such/folder"]);
    place.rejects(&["run", "two.weft"], &["--kernel", "a, b"]);
    place.rejects(&["run", "two.weft", "--kernel", "c"], &["`c`", "a, b"]);
    place.rejects(&["run", TWO_SHOT, "--pes", "0"], &["--pes"]);
    place.rejects(&["run", TWO_SHOT, "--grid", "0"], &["--grid 0"]);
    place.rejects(&["run", TWO_SHOT, "--dtype", "f33"], &["f33", "bf16"]);
    place.rejects(&["run", "examples/broadcast.weft", "--pes", "2", "-D", "ROOT=2", "-D", "N=64"], &["ROOT"]);
    place.rejects(&["compile", "nowhere.weft"], &["nowhere.weft"]);
    place.rejects(&["compile", "examples"], &["examples"]);
    place.rejects(&["explain", "E9999"], &["E9999"]);
    place.rejects(&["layout", "composition((6,4):(1,8),(4,2):(1,3))"], &["mode"]);
    place.rejects(&["layout", "composition((6,4)"], &["^"]);
}

#[test]
fn benches_that_cannot_be() {
    let place = Scratch::new();
    place.write("given.weft", "kernel k(n: i32) block(1) {}");
    let bench = |more: &[&str], why: &[&str]| place.rejects(&[&["bench"], more].concat(), why);
    bench(&[], &["OPERATION"]);
    bench(&["allsum"], &["`allsum`", "allreduce, allgather", "put, get, signal, barrier"]);
    bench(&["allreduce", "--sizes", "1K:2K"], &["--sizes 1K:2K", "FROM:TO:xFACTOR"]);
    bench(&["allreduce", "--sizes", "0"], &["at least 1 byte"]);
    bench(&["allreduce", "--sizes", "3"], &["3 bytes", "f32", "use at least 4"]);
    let eight = ["reducescatter", "--sizes", "1K,16", "--pes", "8", "--against", "nvshmem"];
    bench(&eight, &["16 bytes", "8 PEs", "use at least 32"]);
    bench(&["allreduce", "--dtype", "f33"], &["f33", "bf16, f32"]);
    bench(&["allreduce", "--dtype", "bool"], &["--dtype bool", "i8"]);
    bench(&["allreduce", "--op", "xor"], &["--op xor", "sum, min, max"]);
    bench(&["allreduce", "--algo", "ll,circle"], &["`circle`", "ll", "auto"]);
    bench(&["allreduce", "--algo", "none"], &["nothing to measure"]);
    bench(
        &["allreduce", "--on", "sim", "--against", "nccl"],
        &["`nccl` cannot be counted", "--algo auto", "two_shot"],
    );
    bench(&["put", "--algo", "ll"], &["`ll`", "p2p"]);
    bench(&["allreduce", "--against", "gloo"], &["`gloo`", "nccl, nccl-symm, nvshmem"]);
    bench(&["allreduce", "--dtype", "e4m3", "--against", "nvshmem"], &["NVSHMEM", "e4m3"]);
    bench(&["allreduce", "--dtype", "i16", "--against", "nccl"], &["NCCL", "sum of i16"]);
    bench(&["barrier", "--against", "nccl"], &["NCCL does not support barrier"]);
    bench(&["allreduce", "--kernel", "nowhere.weft"], &["nowhere.weft"]);
    bench(&["allreduce", "--kernel", "given.weft"], &["--kernel given.weft", "`n: i32`"]);
    bench(&["put", "--kernel", TWO_SHOT], &["allreduce_two_shot", "put is not a collective"]);
    bench(&["allreduce", "--dtype", "e5m2", "--pes", "9", "--check"], &["--check", "9 PEs", "wider"]);
    bench(&["allreduce", "--iters", "0"], &["--iters"]);
    bench(&["allreduce", "--warmup", "0"], &["--warmup"]);
    bench(&["allreduce", "--json", "no/such/folder/x.json"], &["cannot write no/such/folder/x.json"]);
    bench(&["allreduce", "--csv", "examples"], &["cannot write examples"]);
    bench(&["allreduce", "--plot", "no/such/folder/x.svg"], &["cannot write no/such/folder/x.svg"]);
}

#[test]
fn products_that_cannot_be_measured() {
    let place = Scratch::new();
    place.write("damaged.json", "{ \"form\": 1, \"tables\": [");
    for command in ["bench", "tune"] {
        let gemm = |more: &[&str], why: &[&str]| place.rejects(&[&[command, "gemm"], more].concat(), why);
        gemm(&["--shapes", "16x64"], &["`16x64` is not a shape", "MxNxK"]);
        gemm(&["--shapes", "16x64x64,0x64x64"], &["R0505", "m is 0 in 0x64x64"]);
        gemm(&["--shapes", "16x100x64"], &["R0505", "n is 100", "stride of 200 bytes", "pad n"]);
        gemm(&["--dtype", "bf17"], &["--dtype bf17", "e4m3"]);
        gemm(&["--dtype", "i32"], &["R0505", "A and B are of i32", "bf16"]);
        gemm(&["--out-dtype", "u8"], &["R0505", "D is of u8"]);
        gemm(&["--dtype", "e4m3", "--column-major-b"], &["R0505", "B of e4m3 with contiguous columns"]);
    }
    let bench = |more: &[&str], why: &[&str]| place.rejects(&[&["bench", "gemm"], more].concat(), why);
    bench(&["--plan", "bn=100"], &["--plan bn=100", "bn=100 is not supported", "256", "auto"]);
    bench(&["--plan", "fastest"], &["--plan fastest", "NAME=VALUE", "auto"]);
    bench(&["--plan", "stages=8"], &["R0505", "bytes of shared memory", "232448"]);
    bench(&["--against", "nccl"], &["--against nccl", "expected cublas"]);
    bench(&["--scales", "tensor"], &["`tensor` names no scales", "none, matrices, rows, blocks"]);
    bench(&["--scales", "rows"], &["operands with scales of rows are of e4m3 or e5m2, and not of bf16"]);
    let fp8 = ["--shapes", "256x256x256", "--dtype", "e4m3"];
    let scaled = |more: &[&str], why: &[&str]| bench(&[&fp8[..], more].concat(), why);
    scaled(
        &["--scales", "rows", "--plan", "bm=256,bn=128,bk=128,stages=3"],
        &["R0505", "the plan bm=256", "no registers for the scales", "choose bm=128"],
    );
    scaled(
        &["--scales", "blocks", "--kernel", "examples/gemm.weft"],
        &["gemm.weft has no parameters `scale_a`"],
    );
    scaled(&["--kernel", "examples/gemm_fp8.weft"], &["gemm_fp8.weft has the parameters `scale_a`"]);
    bench(&["--kernel", "nowhere.weft"], &["nowhere.weft"]);
    bench(
        &["--kernel", TWO_SHOT],
        &["--kernel examples/allreduce_two_shot.weft", "expected only the extents"],
    );
    bench(&["--kernel", "examples/gemm.weft", "-D", "BX=1"], &["no compile-time parameter `BX`"]);
    bench(&["--kernel", "examples/gemm.weft:other"], &["expected one kernel to measure"]);
    bench(&["--iters", "0"], &["--iters"]);
    bench(&["--csv", "examples"], &["cannot write examples"]);
    let tune = |more: &[&str], why: &[&str]| place.rejects(&[&["tune", "gemm"], more].concat(), why);
    tune(&["--budget", "0"], &["--budget"]);
    tune(&["--show", "--out", "damaged.json"], &["R0111", "damaged.json is damaged", "weft tune gemm"]);
    assert!(
        place.answer(&["tune", "gemm", "--show", "--out", "none.json"]).contains("there is no stored table")
    );
    // A variable that names no library is reported, and so is one that names another library.
    place.write("libother.so", "no library");
    for (library, why) in
        [("nowhere.so", "WEFT_CUBLASLT is set to nowhere.so"), ("libother.so", "libother.so: ")]
    {
        let mut command = place.command(&["bench", "gemm", "--against", "cublas"]);
        let out = command.env("WEFT_CUBLASLT", library).output().unwrap();
        let said = text(&out.stderr);
        assert!(!out.status.success() && said.starts_with(&code("R0112")) && said.contains(why), "{said}");
    }
}

/// Checks that a benchmark on the simulator counts traffic, and that the counts for two-shot are
/// right.
#[test]
fn a_bench_on_the_simulator() {
    let place = Scratch::new();
    let more =
        ["--pes", "4", "--dtype", "bf16", "--sizes", "8K,1M", "--algo", "two_shot", "--json", "t.json"];
    let out = place.command(&[&["bench", "allreduce", "--on", "sim"], &more[..]].concat()).output().unwrap();
    let said = text(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}{}", text(&out.stderr));
    assert_eq!(said.lines().filter(|l| l.contains("two_shot")).count(), 4, "{said}");
    let all: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("t.json")).unwrap()).unwrap();
    let out = |i: usize, which: &str| all[i][which]["out"].as_u64().unwrap();
    let (switch, peer) = (8192 + 8192 / 4, 2 * 8192 / 4 * 3);
    assert!((switch..switch + 1000).contains(&out(0, "switch")) && out(0, "peer") == 0, "{said}");
    assert!((peer..peer + 1000).contains(&out(1, "peer")) && out(1, "switch") == 0, "{said}");
    assert!(out(3, "peer") >= 128 * peer, "{said}");
    let sim =
        |more: &[&str], why: &[&str]| place.rejects(&[&["bench"], more, &["--on", "sim"]].concat(), why);
    // The choice of the model, by name and with its time, with the switch and without.
    let auto = ["bench", "allreduce", "--on", "sim", "--pes", "4", "--sizes", "1K", "--algo", "auto"];
    let said = place.answer(&auto);
    let lines: Vec<Vec<_>> = said.lines().skip(2).map(|l| l.split_whitespace().collect()).collect();
    let choices: Vec<_> = lines.iter().map(|words| &words[1..4]).collect();
    assert_eq!(choices, [["auto:", "lamport_switch", "multimem"], ["auto:", "lamport", "unicast"]], "{said}");
    for words in &lines {
        let us: f64 = words[words.len() - 3].parse().unwrap();
        assert!((1.5..3.0).contains(&us), "{said}");
    }
    sim(&["put"], &["put", "collectives"]);
    sim(&["verify-switch"], &["multicast"]);
    sim(&["allreduce", "--measured", "t.json"], &["t.json", "is not a report"]);
    place.rejects(&["bench", "allreduce", "--measured", "t.json"], &["--on sim"]);
    place.rejects(&["bench", "verify-switch", "--dtype", "f33"], &["f33", "all"]);
}

/// Checks that the model's choice of a fused norm is printed with its name and time, and that
/// variants that no kernel has are refused.
#[test]
fn a_prediction_of_fused_norms() {
    let place = Scratch::new();
    let fused = ["bench", "fused-allreduce-rmsnorm", "--predict"];
    let auto = [&fused[..], &["--pes", "4", "--tokens", "1,16", "--algo", "auto"]].concat();
    let said = place.answer(&auto);
    let lines: Vec<Vec<_>> = said.lines().skip(2).map(|l| l.split_whitespace().collect()).collect();
    let choices: Vec<_> = lines.iter().filter(|words| words[2] == "no").collect();
    let [one, sixteen] = choices[..] else { panic!("{said}") };
    assert!(one[0] == "1" && one.ends_with(&["auto:", "one_flight:4x128"]), "{said}");
    assert!(sixteen[0] == "16" && sixteen.ends_with(&["auto:", "two_flights:4x128"]), "{said}");
    let [one, sixteen] = [one, sixteen].map(|words| words[3].parse::<f64>().unwrap());
    assert!(2.5 < one && one + 1.0 < sixteen && sixteen < 6.0, "{said}");
    let rejects = |more: &[&str], why: &[&str]| place.rejects(&[&fused[..], more].concat(), why);
    rejects(&[], &["--predict needs --pes"]);
    rejects(&["--pes", "4", "--algo", "separate"], &["the model predicts fused kernels", "allreduce+norm"]);
    rejects(
        &["--pes", "4", "--algo", "one_flight:8x512"],
        &["`one_flight:8x512` cannot run", "1024 threads"],
    );
    rejects(&["--pes", "4", "--check"], &["--predict", "--check"]);
}

/// The start of an error about a missing library, which is an error about the driver if that is
/// missing too.
fn code(library: &str) -> String {
    let missing = weft_runtime::cuda::device_count().err();
    missing.map_or(format!("error[{library}]"), |e| format!("error[{}]", e.code))
}

/// Checks that a missing NCCL is reported before GPUs are used. The error says what to do, and no
/// file is written.
#[test]
fn a_benchmark_reports_a_missing_nccl() {
    let place = Scratch::new();
    place.write("libnccl.so.2", "no library");
    let before = place.everything();
    let named = |path: &str, why: &[&str]| {
        let arguments = ["bench", "allreduce", "--against", "nccl,nvshmem", "--json", "new.json"];
        let out = place.command(&arguments).env("WEFT_NCCL", path).output().unwrap();
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.starts_with(&code("R0109")) && why.iter().all(|w| said.contains(w)), "{said}");
        assert_eq!(text(&out.stdout), "");
    };
    named("no/such/folder", &["WEFT_NCCL", "no/such/folder", "libnccl.so.2"]);
    named(place.path("libnccl.so.2").to_str().unwrap(), &["libnccl.so.2"]);
    assert_eq!(place.everything(), before);
}

/// Checks that a Python without PyTorch is reported before GPUs are used, and so are features that
/// PyTorch does not have.
#[test]
fn a_benchmark_reports_a_missing_pytorch() {
    let place = Scratch::new();
    let before = place.everything();
    let said = |python: &str, more: &[&str]| {
        let arguments = [&["bench", "allreduce", "--sizes", "1K", "--json", "new.json"], more].concat();
        let out = place.command(&arguments).env("WEFT_PYTHON", python).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert_eq!(text(&out.stdout), "");
        text(&out.stderr)
    };
    let missing = said("no/such/python3", &["--against", "torch"]);
    assert!(missing.starts_with("error") && missing.contains("PyTorch: cannot start /"), "{missing}");
    assert!(missing.contains("/no/such/python3: No such file"), "{missing}");
    assert!(missing.contains("pip install torch") && missing.contains("WEFT_PYTHON"), "{missing}");
    let none = said("false", &["--against", "nvshmem,torch-two-shot"]);
    assert!(none.starts_with("error") && none.contains("PyTorch ended (exit status: 1)"), "{none}");
    let half = said("false", &["--against", "torch", "--dtype", "f16"]);
    assert!(half.contains("not sum of f16"), "{half}");
    assert_eq!(place.everything(), before);
}

/// Checks that the benchmark reports a missing GPU and the alternative, and writes no file.
#[test]
fn a_bench_without_gpus() {
    let place = Scratch::new();
    place.write("old.csv", "kept");
    let before = place.everything();
    let all = ["bench", "allreduce", "--op", "max", "--against", "nvshmem"];
    let all = [&all[..], &["--json", "new.json", "--csv", "old.csv"]].concat();
    let out = place.command(&all).env("CUDA_VISIBLE_DEVICES", "").output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("error[R010") && said.contains("`weft run`") && said.contains("simulator"),
        "{said}"
    );
    assert_eq!(text(&out.stdout), "");
    assert_eq!(place.everything(), before);
}

#[test]
fn files_that_are_not_texts() {
    let place = Scratch::new();
    place.write("latin1.weft", b"// caf\xe9\nkernel k() block(1) {}");
    place.write("nested.weft", format!("const N = {}1{};", "(".repeat(100_000), ")".repeat(100_000)));
    place.write("blocks.weft", format!("kernel k() block(1) {}", "{".repeat(200_000)));
    place.write("binary.weft", [0u8; 1000]);
    place.write("empty.weft", "");
    place.rejects(&["compile", "latin1.weft"], &["line 1", "UTF-8"]);
    place.rejects(&["compile", "nested.weft"], &["E0009"]);
    place.rejects(&["compile", "blocks.weft"], &["E0"]);
    place.rejects(&["compile", "binary.weft"], &["E0003"]);
    place.rejects(&["compile", "empty.weft"], &["kernel"]);
    place.rejects(&["layout", &format!("{}1", "(".repeat(100_000))], &[]);
}

/// Checks that a hundred megabytes are rejected because of their size, without being read.
#[test]
fn a_hundred_megabytes_of_garbage() {
    let place = Scratch::new();
    fs::File::create(place.path("garbage.weft")).unwrap().set_len(100 << 20).unwrap();
    let start = std::time::Instant::now();
    let out = place.weft(&["compile", "garbage.weft"]);
    assert!(
        !out.status.success() && text(&out.stderr).contains("larger than 1048576 bytes"),
        "{}",
        text(&out.stderr)
    );
    assert!(start.elapsed().as_secs() < 5);
}

/// Checks one array for all PEs, and one file per PE, as input and output. The output is the sum.
#[test]
fn data_in_and_out() {
    let place = Scratch::new();
    for (dtype, word) in [(Scalar::F32, "f32"), (Scalar::F16, "f16"), (Scalar::BF16, "bf16")] {
        place.write_npy("x.npy", dtype, &[3, 7]);
        let run = ["run", TWO_SHOT, "--pes", "3", "--dtype", word];
        let all = [&run[..], &["--input", "x=x.npy", "--output", "x=sum_{pe}.npy"]].concat();
        assert!(place.answer(&all).contains("correct"));
        for pe in 0..3 {
            let sum = Array::read(&place.path(&format!("sum_{pe}.npy"))).unwrap();
            // NumPy has no bf16, so such files contain 16-bit words.
            let sum = if dtype == Scalar::BF16 { sum.reinterpret(dtype).unwrap() } else { sum };
            assert_eq!((sum.dtype, &sum.shape[..]), (dtype, &[7][..]));
            let found: Vec<_> = (0..7).map(|i| sum.get(i).as_f64()).collect();
            assert_eq!(found, [21.0, 24.0, 27.0, 30.0, 33.0, 36.0, 39.0], "{word}, PE {pe}");
        }
        let again = [&run[..], &["--input", "x=sum_{pe}.npy", "--output", "x=nine.npy"]].concat();
        assert!(place.answer(&again).contains("correct"));
        assert_eq!(Array::read(&place.path("nine.npy")).unwrap().shape, [3, 7]);
    }
}

#[test]
fn layouts_line_by_line() {
    let place = Scratch::new();
    let mut child = place
        .command(&["layout", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "composition((4,(2,2)):(1,(8,4)),(2,4):(4,1))\nnonsense(\nsize((4,8):(8,1))\n";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let answers = text(&out.stdout);
    let answers: Vec<_> = answers.lines().collect();
    assert_eq!((answers.len(), answers[0], answers[2]), (3, "(2,4):(8,1)", "32"), "{answers:?}");
    assert!(answers[1].starts_with("error: ") && out.status.code() == Some(1), "{answers:?}");
}

/// Checks that a closed pipe (`weft ... | head`) does not cause a message.
#[test]
fn a_closed_pipe_is_quiet() {
    let place = Scratch::new();
    let mut child =
        place.command(&["compile", TWO_SHOT]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(text(&out.stderr), "");
}

#[test]
fn stages_and_their_times() {
    let place = Scratch::new();
    let out = place.weft(&["compile", TWO_SHOT, "--time-passes", "-o", "k.ptx"]);
    assert!(out.status.success());
    let times = text(&out.stderr);
    for stage in ["parse", "elaborate", "memory", "llvm", "total"] {
        assert!(times.contains(stage), "{times}");
    }
    assert!(fs::read_to_string(place.path("k.ptx")).unwrap().contains("multimem.ld_reduce"));
    assert!(place.answer(&["compile", TWO_SHOT, "--emit", "meta"]).contains("\"multimem\""));
}

/// Checks that `weft tune` reports errors before it measures anything, also without a GPU.
#[test]
fn invalid_requests_for_tuning() {
    let place = Scratch::new();
    place.write("damaged.json", "{ \"form\": 1, \"tables\": [{]}");
    place.rejects(&["tune", "allsum"], &["`allsum` is not a collective", "allreduce", "alltoall"]);
    place.rejects(&["tune", "--dtype", "f31"], &["--dtype f31", "bf16"]);
    place.rejects(&["tune", "--dtype", "f32,bool"], &["--dtype bool", "bf16"]);
    place.rejects(&["tune", "--op", "xor"], &["--op xor", "sum, min, max"]);
    place.rejects(&["tune", "--sizes", "1Q"], &["--sizes 1Q"]);
    place.rejects(&["tune", "--sizes", "1"], &["nothing to tune"]);
    place.rejects(&["tune", "--pes", "1"], &["--pes"]);
    place.rejects(&["tune", "--out", "damaged.json"], &["R0111", "damaged.json is damaged", "weft tune"]);
    place.rejects(&["tune", "--show", "--out", "damaged.json"], &["R0111", "damaged.json is damaged"]);
    place.rejects(&["tune", "--out", "examples"], &["examples"]);
    if weft::runtime::cuda::device_count().is_err() {
        place.rejects(&["tune", "allreduce", "--quick", "--out", "new.json"], &["error[R010"]);
    }
    let show = |variable: &str| {
        let mut command = place.command(&["tune", "--show"]);
        let out =
            command.env("WEFT_TUNING", variable).env("XDG_DATA_HOME", place.path("data")).output().unwrap();
        (out.status.success(), text(&out.stdout), text(&out.stderr))
    };
    let (ok, said, _) = show("");
    assert!(ok && said.contains("there is no stored table") && said.contains("tuning.json"), "{said}");
    let (ok, _, why) = show("off");
    assert!(!ok && why.contains("WEFT_TUNING is off"), "{why}");
    let (ok, _, why) = show("damaged.json");
    assert!(!ok && why.contains("R0111"), "{why}");
}

/// Checks that the text of IR contains the asserts at both levels. IR is compiled with its asserts
/// or not at all.
#[test]
fn asserts_are_left_out_of_texts_and_not_of_ir() {
    let place = Scratch::new();
    place.write("k.weft", "kernel k(n: i32) block(32) { assert(n < 7, \"below \\\"7\\\"\"); }");
    for stage in ["ir", "after:dce"] {
        let ir = place.answer(&["compile", "k.weft", "--emit", stage]);
        assert!(ir.contains(r#""below \"7\"""#), "{ir}");
        place.write("k.ir", ir);
        assert!(place.answer(&["compile", "k.ir"]).contains("call.uni __assertfail"), "{stage}");
        place.rejects(
            &["compile", "k.ir", "--no-assert"],
            &["--no-assert", "cannot remove the asserts of IR"],
        );
    }
    assert!(!place.answer(&["compile", "k.weft", "--no-assert"]).contains("assert"));
    let run = ["run", "k.weft", "--arg", "n=7", "--pes", "1", "--grid", "1"];
    place.rejects(&run, &["S016", "k.weft:1", "at PE 0, CTA (0, 0, 0), thread (0, 0, 0)"]);
}

/// Checks that `--check` names a file that is not formatted, that `weft fmt` formats it, and that a
/// file with a syntax error is not changed.
#[test]
fn kernel_files_are_formatted() {
    let place = Scratch::new();
    fs::create_dir(place.path("kernels")).unwrap();
    place.write("kernels/k.weft", "kernel k( n:i32 )block(32){let x=n+1; // one more\n }");
    place.write("kernels/bad.weft", "kernel k(");
    let checked = place.weft(&["fmt", "--check", "kernels/k.weft"]);
    assert_eq!(
        (checked.status.code(), text(&checked.stdout)),
        (Some(1), "kernels/k.weft is not formatted\n".into())
    );
    let all = place.weft(&["fmt", "kernels"]);
    assert!(all.status.code() == Some(1) && text(&all.stderr).contains("kernels/bad.weft:1"), "{all:?}");
    let formatted = "kernel k(n: i32) block(32) {\n    let x = n + 1;  // one more\n}\n";
    assert_eq!(fs::read_to_string(place.path("kernels/k.weft")).unwrap(), formatted);
    assert_eq!(fs::read_to_string(place.path("kernels/bad.weft")).unwrap(), "kernel k(");
    assert_eq!(place.answer(&["fmt", "--check", "kernels/k.weft"]), "");
}

/// Checks shell completions, manual pages, and the formatting of standard input to standard output.
#[test]
fn shells_pages_and_texts() {
    let place = Scratch::new();
    let script = place.command(&["completions", "bash"]).output().unwrap();
    assert!(script.status.success() && String::from_utf8(script.stdout).unwrap().starts_with("_weft()"));

    fs::create_dir(place.path("man1")).unwrap();
    assert!(place.command(&["man", "man1"]).status().unwrap().success());
    assert!(fs::read_to_string(place.path("man1/weft-run.1")).unwrap().contains("weft run"));

    let format = |text: &str| {
        let mut command = place.command(&["fmt", "-"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
    };
    let text = format("kernel k( x:global<f32,(8):(1)> ) block(8)\n{ x[ _ ]=1.0 ; /* one */ }\n");
    assert!(
        text.starts_with("kernel k(x: global<f32, (8):(1)>) block(8)") && text.contains("/* one */"),
        "{text}"
    );
    assert_eq!(format(&text), text);
}

/// Checks a session with the language server: it states its capabilities, and ends on request.
#[test]
fn a_language_server_answers() {
    let place = Scratch::new();
    let mut command = place.command(&["lsp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}"#,
        r#"{"jsonrpc":"2.0","method":"initialized","params":{}}"#,
        r#"{"jsonrpc":"2.0","id":2,"method":"shutdown"}"#,
        r#"{"jsonrpc":"2.0","method":"exit"}"#,
    ] {
        write!(input, "Content-Length: {}\r\n\r\n{message}", message.len()).unwrap();
    }
    drop(input);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    assert!(String::from_utf8(out.stdout).unwrap().contains("hoverProvider"));
}

/// Checks that the page names missing tools, and is written only if the kernel compiles.
#[test]
fn a_page_about_a_kernel() {
    let place = Scratch::new();
    let report = |arguments: &[&str]| {
        let mut command = place.command(&[&["report"], arguments].concat());
        let out = command.env("WEFT_PTXAS", "nowhere/ptxas").output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        text(&out.stdout)
    };
    let options = ["examples/11_put_signal.weft", "--pes", "2", "--seeds", "1"];
    let said = report(&[&options[..], &["-o", "page.html"]].concat());
    assert!(said.starts_with("wrote page.html: 1 kernel, "), "{said}");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("WEFT_PTXAS is set to nowhere/ptxas"));
    assert_eq!(report(&options), page);

    place.rejects(
        &["report", "examples/allreduce_two_shot.weft", "-D", "T=e4m3", "-o", "no.html"],
        &["E0406"],
    );
    place.rejects(&["report", "nowhere.weft"], &["nowhere.weft"]);
    place.write("k.ptx", ".version 8.0");
    place.rejects(&["report", "k.ptx"], &["weft sim"]);
}
