//! Tests of `weft check` and `weft sim`: their findings, the text of the findings, and that a
//! replay repeats them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use weft::ir::Scalar;
use weft::{Define, KernelFile, Lowering, Transport};
use weft_check::{CheckOptions, Report, check_file};
use weft_run::array::{Array, Number, write_number};

/// A kernel in which PE p takes PE p + 1's flag as the sign that its data has arrived. The
/// arguments select how the flag is set and read.
fn message(store: &str, load: &str) -> String {
    format!(
        "kernel message(x: symm<i32, (4):(1)>, flag: symm<u32, (1):(1)>, out: global<i32, (4):(1)>, sync: barrier, team: team)
    block(32) grid(1)
{{
    let next = (my_pe(team) + 1) % n_pes(team);
    if thread_idx<x>() == 0 {{ flag[0] = 0; }}
    barrier(sync, team, acq_rel, sys);
    if thread_idx<x>() == 0 {{
        peer(x, next)[1] = 7;
        store<{store}>(peer(flag, next)[0], 1);
        let mut seen: u32 = 0;
        while seen == 0 {{ seen = load<{load}>(flag[0]); }}
        out[1] = x[1];
    }}
    barrier(sync, team, acq_rel, sys);
}}
"
    )
}

fn checked(text: &str, set: impl FnOnce(&mut CheckOptions)) -> Report {
    let file = KernelFile::parse("k.weft", text).unwrap();
    let mut options = CheckOptions::new("sm_90a".parse().unwrap());
    (options.pes, options.seeds) = (vec![2], 3);
    set(&mut options);
    check_file(&file, &options).unwrap()
}

fn codes(report: &Report) -> Vec<&str> {
    let mut all: Vec<_> = report.findings.iter().map(|f| f.code.as_str()).collect();
    all.sort_unstable();
    all
}

const WRONG: &str = "kernel twice<N: int>(x: global<f32, (N):(1)>, out: global<f32, (N):(1)>) block(128) computes(copy(x, out)) {
    let from = partition(x, threads());
    let to = partition(out, threads());
    for i in 0..size<1>(to) { to[_, i] = from[_, i] * 2; }
}
";

#[test]
fn sizes_lowerings_and_seeds_are_explored_and_a_finding_is_reported_once() {
    let report = checked(WRONG, |_| ());
    assert_eq!(codes(&report), ["C001"]);
    let finding = &report.findings[0];
    // There is one lowering, because there is no in-switch operation, three sizes and three seeds.
    assert_eq!((report.cases.len(), report.runs, finding.count), (3, 9, 9));
    let sizes: Vec<_> = report.cases.iter().map(|c| c.defines["N"]).collect();
    assert_eq!(sizes, [Define::Int(1), Define::Int(1003), Define::Int(5003)]);
    assert_eq!(finding.replay.seed, 0);

    let report = checked(WRONG, |o| (o.sizes, o.fail_fast) = (vec![7], true));
    assert_eq!((report.cases.len(), report.runs), (1, 1));
    let report = checked(&WRONG.replace("* 2", "* 1"), |o| o.pes = vec![1, 3]);
    assert!(report.is_clean(), "{}", report.text(weft::lang::render::Color::Never));
    assert_eq!(report.cases.len(), 6);
}

#[test]
fn the_sizes_satisfy_the_kernels_conditions() {
    let text =
        "kernel k<N: int, T: float>(x: symm<T, (N):(1)>, out: symm<T, (N):(1)>, sync: barrier, team: team)
        block(64) computes(copy(x, out))
    {
        static_assert(N % 24 == 0, \"rows of 24\");
        let from = partition(x, threads());
        let to = partition(out, threads());
        for i in 0..size<1>(to) { to[_, i] = from[_, i]; }
    }";
    let report = checked(text, |o| o.pes = vec![3]);
    let sizes: Vec<_> = report.cases.iter().map(|c| c.defines["N"]).collect();
    assert!(report.is_clean() && sizes.len() == 3, "{sizes:?}");
    assert!(sizes.iter().all(|n| matches!(n, Define::Int(n) if n % 24 == 0)), "{sizes:?}");

    let bad = text.replace("N % 24 == 0", "false");
    let file = KernelFile::parse("k.weft", &bad).unwrap();
    let error = check_file(&file, &CheckOptions::new("sm_90a".parse().unwrap())).unwrap_err();
    assert!(error.to_string().contains("no value") || error.to_string().contains("rows of 24"), "{error}");
}

#[test]
fn a_race_names_both_accesses_the_element_and_the_missing_order() {
    let report = checked(&message("release, sys", "acquire, sys"), |_| ());
    assert!(report.is_clean(), "{}", report.text(weft::lang::render::Color::Never));

    let report = checked(&message("relaxed, sys", "acquire, sys"), |_| ());
    assert_eq!(codes(&report), ["S031"]);
    let finding = &report.findings[0];
    let lines: Vec<_> = finding.accesses.iter().map(|a| a.place.source[0].line).collect();
    assert_eq!(lines, [12, 8]);
    assert!(finding.accesses[0].what.contains("reads x[1] of PE"), "{finding:?}");
    assert_ne!(finding.accesses[0].place.pe, finding.accesses[1].place.pe);
    let text = report.text(weft::lang::render::Color::Never);
    for part in [
        "error[S031]",
        "k.weft:12:9",
        "out[1] = x[1];",
        "peer(x, next)[1] = 7;",
        "wrote it earlier",
        "release",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }

    let narrow = checked(&message("release, gpu", "acquire, gpu"), |_| ());
    assert!(codes(&narrow).contains(&"S032"), "{:?}", narrow.findings);
}

#[test]
fn a_replay_meets_that_finding_again() {
    // The error depends on the schedule: the PE that adds last leaves its own value.
    let report = checked(&message("relaxed, sys", "relaxed, sys"), |o| o.seeds = 4);
    let first = &report.findings[0];
    let again = checked(&message("relaxed, sys", "relaxed, sys"), |o| {
        (o.pes, o.seed, o.seeds) = (vec![first.replay.pes], first.replay.seed, 1);
        o.compile.lowering = first.replay.lowering;
        o.compile.transport = first.replay.transport;
        o.nodes = first.replay.node.into_iter().collect();
        o.compile.defines = first.replay.defines.clone();
        o.launches = first.replay.launches;
    });
    assert!(!report.command(first).contains("--root"));
    let below = checked(&message("relaxed, sys", "relaxed, sys"), |o| o.root = Some("kernels".into()));
    let command = below.command(&below.findings[0]);
    assert!(command.ends_with(" --root kernels"), "{command}");
    let found = again.findings.iter().find(|f| f.code == first.code).unwrap();
    assert_eq!(
        (&found.message, &found.accesses, &found.replay),
        (&first.message, &first.accesses, &first.replay)
    );
}

/// A kernel with a put that only a barrier follows. It is correct if the put is done in place, and
/// wrong if the put is in flight for a long time.
const NO_QUIET: &str =
    "kernel forgets(x: symm<f32, (67):(1)>, y: symm<f32, (67):(1)>, sync: barrier, team: team)
    block(32) grid(1) computes(rotate(x, y))
{
    put<block>(y, x, (my_pe() + 1) % n_pes());
    barrier(sync, team, acq_rel, sys);
}
";

#[test]
fn nodes_of_several_sizes_run_both_branches_of_a_transfer() {
    let report = checked(NO_QUIET, |o| (o.pes, o.compile.lowering) = (vec![1, 5], Lowering::Unicast));
    let nodes: Vec<_> = report.cases.iter().map(|c| (c.pes, c.node.unwrap())).collect();
    assert_eq!(nodes, [(1, 1), (5, 1), (5, 3), (5, 5)]);
    assert!(!report.is_clean());
    for f in &report.findings {
        assert!(f.replay.pes == 5 && f.replay.node.is_some_and(|n| n < 5), "{:?}", f.replay);
        assert!(report.command(f).contains(" --node "), "{}", report.command(f));
    }
    let within = |nodes: &[u32]| {
        checked(NO_QUIET, |o| (o.pes, o.nodes) = (vec![5], nodes.to_vec())).findings.first().cloned()
    };
    assert_eq!(within(&[5, 8]), None);
    assert_eq!(within(&[2]).unwrap().replay.node, Some(2));
    // With an explicit transport, the result does not depend on nodes.
    let report = checked(NO_QUIET, |o| o.compile.transport = Transport::Nvshmem);
    assert!(!report.is_clean() && report.cases.iter().all(|c| c.node.is_none()), "{:?}", report.cases);
}

#[test]
fn a_lowering_that_is_asked_for_is_the_only_one() {
    let text = fs::read_to_string("examples/allreduce_one_shot.weft").unwrap();
    let file = KernelFile::parse("examples/allreduce_one_shot.weft", &text).unwrap();
    let mut options = CheckOptions::new("sm_90a".parse().unwrap());
    (options.pes, options.seeds, options.sizes) = (vec![2], 1, vec![100]);
    let lowerings = |options: &CheckOptions| -> Vec<Lowering> {
        check_file(&file, options).unwrap().cases.iter().map(|c| c.lowering).collect()
    };
    assert_eq!(lowerings(&options), [Lowering::Multimem, Lowering::Unicast]);
    options.compile.lowering = Lowering::Unicast;
    assert_eq!(lowerings(&options), [Lowering::Unicast]);
}

/// A folder in which the command runs.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn write_npy(&self, name: &str, shape: &[u64]) {
        let mut data = Vec::new();
        (0..shape.iter().product::<u64>())
            .for_each(|i| write_number(Scalar::F32, Number::Float(i as f64), &mut data));
        Array { dtype: Scalar::F32, shape: shape.to_vec(), data }.write(&self.path(name)).unwrap();
    }

    /// Runs the command and returns the status, the standard output and the standard error.
    fn weft(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weft"));
        let Output { status, stdout, stderr } =
            command.args(arguments).current_dir(self.0.path()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }
}

#[test]
fn the_status_distinguishes_clean_findings_and_failure() {
    let place = Scratch::new();
    place.write("right.weft", &message("release, sys", "acquire, sys"));
    place.write("wrong.weft", &message("relaxed, sys", "acquire, sys"));
    place.write("none.weft", "kernel");
    let small = ["--pes", "2", "--seeds", "2"];
    let run = |file: &str, more: &[&str]| place.weft(&[&["check", file], &small[..], more].concat());
    let (status, out, err) = run("right.weft", &[]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("found        nothing"), "{out}");
    let (status, out, _) = run("wrong.weft", &[]);
    assert_eq!(status, 1, "{out}");
    let (status, out, err) = run("none.weft", &[]);
    assert_eq!((status, out.as_str()), (2, ""));
    assert!(err.contains("error[E0"), "{err}");
    assert_eq!(run("nowhere.weft", &[]).0, 2);
    assert_eq!(run("right.weft", &["--block", "32"]).0, 2);
    assert_eq!(run("right.weft", &["-D", "X=1"]).0, 2);

    // The command in the report repeats the finding word for word.
    let command = out_command(&run("wrong.weft", &[]).1);
    let words: Vec<_> = command.split_whitespace().skip(1).collect();
    let (status, again, _) = place.weft(&words);
    assert_eq!(status, 1);
    let paragraph = |text: &str| text.split("   = note: found in").next().unwrap().to_owned();
    assert_eq!(paragraph(&again), paragraph(&run("wrong.weft", &[]).1));
}

/// The command that a report contains.
fn out_command(report: &str) -> String {
    report.lines().map(str::trim).find(|line| line.starts_with("weft check")).unwrap().to_owned()
}

/// Checks that the output is a valid document for a text that does not compile, and that a file's
/// name is a URI in it.
#[test]
fn json_and_sarif_contain_compile_errors() {
    let place = Scratch::new();
    place.write("a b%1.weft", "kernel k(x: symm<f32, (64):(1)>) block(64) {\n    x[there] = 1.0;\n}\n");
    let run = |format: &str| {
        let (status, out, err) = place.weft(&["check", "a b%1.weft", "--format", format]);
        assert!(status == 2 && err.contains("E0100"), "{err}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let json = run("json");
    let finding = &json["findings"][0];
    assert_eq!((&finding["code"], &finding["source"]["line"]), (&"E0100".into(), &2.into()));
    assert_eq!(json["runs"], 0);
    let sarif = run("sarif");
    let all = &sarif["runs"][0];
    assert_eq!(all["tool"]["driver"]["rules"][0]["id"], "E0100");
    let at = &all["results"][0]["locations"][0]["physicalLocation"];
    assert_eq!(
        (&at["region"]["startLine"], &at["artifactLocation"]["uri"]),
        (&2.into(), &"a%20b%251.weft".into())
    );
}

#[test]
fn json_and_sarif_contain_the_findings_of_the_text() {
    let place = Scratch::new();
    place.write("wrong.weft", &message("relaxed, sys", "acquire, sys"));
    let run = |format: &str| {
        let (status, out, err) = place.weft(&[
            "check",
            "wrong.weft",
            "--pes",
            "2",
            "--seeds",
            "2",
            "--lowering",
            "unicast",
            "--format",
            format,
            "--output",
            "report.out",
            "--trace",
            "trace.json",
        ]);
        assert_eq!((status, out.as_str()), (1, ""), "{err}");
        serde_json::from_slice::<Value>(&fs::read(place.path("report.out")).unwrap()).unwrap()
    };
    let json = run("json");
    let finding = &json["findings"][0];
    assert_eq!((&finding["code"], &finding["severity"]), (&"S031".into(), &"error".into()));
    let access = &finding["accesses"][0];
    assert_eq!((&access["source"]["line"], &access["source"]["column"]), (&12.into(), &9.into()));
    assert_eq!(
        (&access["source"]["file"], &access["source"]["end_column"]),
        (&"wrong.weft".into(), &23.into())
    );
    assert!(access["ptx"]["text"].as_str().unwrap().starts_with("ld."), "{access}");
    assert_eq!(finding["replay"]["pes"], 2);
    assert_eq!(json["runs"], 2);
    assert_eq!(json["cases"].as_array().unwrap().len(), 1);

    let sarif = run("sarif");
    assert_eq!(sarif["version"], "2.1.0");
    let all = &sarif["runs"][0];
    let result = &all["results"][0];
    let rule = &all["tool"]["driver"]["rules"][result["ruleIndex"].as_u64().unwrap() as usize];
    assert_eq!(
        (&result["ruleId"], &rule["id"], &result["level"]),
        (&"S031".into(), &"S031".into(), &"error".into())
    );
    assert!(rule["fullDescription"]["text"].as_str().unwrap().len() > 50, "{rule}");
    let place_of = |location: &Value| location["physicalLocation"].clone();
    let at = place_of(&result["locations"][0]);
    assert_eq!(
        (&at["region"]["startLine"], &at["artifactLocation"]["uri"]),
        (&12.into(), &"wrong.weft".into())
    );
    assert_eq!(place_of(&result["relatedLocations"][0])["region"]["startLine"], 8);
    assert!(!result["message"]["text"].as_str().unwrap().is_empty());

    // The timeline is that of this run: there are two PEs, and both wait.
    let trace: Value = serde_json::from_slice(&fs::read(place.path("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| events.iter().filter(|e| e["name"].as_str().unwrap().contains(name)).count();
    assert_eq!((named("process_name"), named("thread_name")), (2, 2));
    assert!(named("message") >= 2, "{trace}");
    assert_eq!(trace["otherData"]["events left out"], 0);
    for e in events.iter().filter(|e| e["ph"] == "X") {
        assert!(e["dur"].as_u64().unwrap() > 0 && e["ts"].is_u64() && e["tid"].as_u64().unwrap() > 0, "{e}");
    }
}

const SCALE: &str = ".version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 .ptr .global x, .param .u64 y, .param .u32 n, .param .f32 a) {
    .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n]; ld.param.f32 %f1, [a];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 ret;
    mul.wide.u32 %rd3, %r5, 4;
    add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    mul.f32 %f3, %f2, %f1;
    st.global.f32 [%rd5], %f3;
    ret;
}
";

fn values(path: PathBuf) -> (Vec<u64>, Vec<f64>) {
    let a = Array::read(&path).unwrap();
    let all = (0..a.len() as usize).map(|i| a.get(i).as_f64()).collect();
    (a.shape, all)
}

#[test]
fn sim_runs_ptx_over_files() {
    let place = Scratch::new();
    place.write("scale.ptx", SCALE);
    place.write_npy("x.npy", &[10, 10]);
    let launch = ["sim", "scale.ptx", "--grid", "4", "--block", "32", "--check"];
    let run = |args: &[&str]| {
        let args: Vec<_> = args.iter().flat_map(|a| ["--arg", a]).collect();
        place.weft(&[&launch[..], &args[..]].concat())
    };
    let (status, out, err) = run(&["npy:x.npy", "empty:f32[10,10]=y.npy", "i32:100", "f32:0.5"]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    let (shape, y) = values(place.path("y.npy"));
    assert_eq!(shape, [10, 10]);
    assert!(y.iter().enumerate().all(|(i, y)| *y == i as f64 / 2.0), "{y:?}");

    // The file has one element too many. The error names its line, and nothing is written.
    fs::remove_file(place.path("y.npy")).unwrap();
    let (status, out, _) = run(&["npy:x.npy", "empty:f32[10,10]=y.npy", "i32:101", "f32:0.5"]);
    assert_eq!(status, 1);
    assert!(
        out.contains("error[S003]") && out.contains("scale.ptx:13:5") && out.contains("thread 4"),
        "{out}"
    );
    assert!(!place.path("y.npy").exists());
    // `--check` finds elements that were not written, and the message names the element.
    let (status, out, _) = run(&["empty:f32[100]", "empty:f32[100]", "i32:100", "f32:0.5"]);
    assert_eq!(status, 1);
    assert!(out.contains("error[S036]") && out.contains("reads x["), "{out}");

    for (args, why) in [
        (&["npy:x.npy"][..], "0: x (8 bytes, a pointer)"),
        (&["npy:x.npy", "zeros:400", "i64:100", "f32:0.5"], "argument 2 has 8 bytes"),
        (&["npy:no.npy", "zeros:400", "i32:100", "f32:0.5"], "no.npy"),
        (&["npy:x.npy", "mc:0", "i32:100", "f32:0.5"], "argument 0 is not in symmetric memory"),
        (&["npy:x.npy", "zeros:400", "i32:x", "f32:0.5"], "expected a whole number"),
    ] {
        let (status, out, err) = run(args);
        assert_eq!((status, out.as_str()), (2, ""), "{args:?}");
        assert!(err.contains(why), "{args:?}: {err}");
    }
    let (status, _, err) = place.weft(&["sim", "scale.ptx", "--arg", "zeros:4"]);
    assert!(status == 2 && err.contains("--block"), "{err}");
    place.write("bad.ptx", &SCALE.replace("mul.f32", "mull.f32"));
    let (status, _, err) = place.weft(&["sim", "bad.ptx"]);
    assert!(status == 2 && err.contains("P003") && err.contains("line 14"), "{err}");
}

#[test]
fn sim_runs_many_pes_over_symmetric_memory() {
    let place = Scratch::new();
    place.write("scale.ptx", SCALE);
    place.write_npy("x.npy", &[3, 50]);
    // Each PE writes its data into the next PE's y.
    let peer = SCALE.replace("scale(", "scale(.param .u64 into, ").replace("%rd2, [y]", "%rd2, [into]");
    place.write("next.ptx", &peer);
    let (status, out, err) = place.weft(&[
        "sim",
        "next.ptx",
        "--pes",
        "3",
        "--grid",
        "2",
        "--block",
        "32",
        "--stats",
        "--arg",
        "peer:2+1",
        "--arg",
        "npy:x.npy",
        "--arg",
        "sym:zeros:f32[50]=y_{pe}.npy",
        "--arg",
        "u32:50",
        "--arg",
        "f32:2",
    ]);
    assert_eq!((status, err.as_str()), (0, ""), "{out}");
    for pe in 0..3 {
        let (shape, y) = values(place.path(&format!("y_{pe}.npy")));
        let from = (pe + 2) % 3 * 50;
        assert_eq!(shape, [50]);
        assert!(y.iter().zip(from..).all(|(y, x)| *y == 2.0 * f64::from(x)), "PE {pe}: {y:?}");
    }
    assert!(out.contains("200 bytes from PE 0 to PE 1 with loads"), "{out}");
}

#[test]
fn check_accepts_ptx() {
    let place = Scratch::new();
    let all_at_one = SCALE.replace("%rd5, %rd2, %rd3", "%rd5, %rd2, 0").replace("[%rd5], %f3", "[%rd5], %r5");
    place.write("scale.ptx", &all_at_one.replace("st.global.f32", "st.global.u32"));
    let launch = ["--grid", "2", "--block", "64", "--pes", "1,2", "--seeds", "3"];
    let args = ["--arg", "zeros:f32[128]", "--arg", "zeros:f32[128]", "--arg", "u32:128", "--arg", "f32:2"];
    let (status, out, err) = place.weft(&[&["check", "scale.ptx"], &launch[..], &args[..]].concat());
    assert_eq!((status, err.as_str()), (1, ""), "{out}");
    assert!(out.contains("error[S030]") && out.contains("scale.ptx:15:5"), "{out}");
    assert!(out.contains("runs         6"), "{out}");
}

#[test]
fn codes_of_the_simulator_are_explained() {
    let place = Scratch::new();
    for (code, part) in
        [("S031", "release"), ("p003", "instruction"), ("C001", "computes"), ("S008", "bra wait")]
    {
        let (status, out, _) = place.weft(&["explain", code]);
        assert!(status == 0 && out.contains(part), "{out}");
    }
    assert_eq!(place.weft(&["explain", "S099"]).0, 1);
}
