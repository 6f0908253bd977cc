//! Tests of the output of `weft bench` with a made-up report. No figure here was measured.

#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "support/bless.rs"]
mod bless;

use std::path::{Path, PathBuf};
use weft::runtime::DType;
use weft_bench::{
    Bandwidth, Calibration, Collective, Loading, NvLink, Operation, Placement, Report, Row, Spread, Wrong,
};

/// A contender: its name, whether it is part of warpweft, the placements of its results, the least
/// time of a call in us, and the resulting busbw.
const CONTENDERS: [(&str, bool, &[Placement], f64, f64); 5] = [
    ("ll", true, &[Placement::OutOfPlace, Placement::InPlace], 3.5, 60.0),
    ("two_shot", true, &[Placement::InPlace], 7.0, 330.0),
    ("nccl", false, &[Placement::OutOfPlace, Placement::InPlace], 16.0, 350.0),
    ("nccl-symm", false, &[Placement::OutOfPlace, Placement::InPlace], 5.5, 265.0),
    ("nvshmem", false, &[Placement::OutOfPlace], 12.0, 210.0),
];

fn row(name: &str, ours: bool, place: Placement, size: u64, us: f64) -> Row {
    let in_place = if place == Placement::InPlace { 1.03 } else { 1.0 };
    let us = us * in_place;
    let algbw = size as f64 / us / 1e3;
    Row {
        size,
        count: size / 2,
        dtype: DType::BF16,
        redop: Some("sum".into()),
        algorithm: name.into(),
        place,
        ctas: ours.then_some(32),
        plan: ours.then(|| format!("{name}, 32 CTAs of 512, 4 at once")),
        iters: 20,
        repeats: 10,
        time_us: Spread { min: us * 0.9, median: us, max: us * 1.25 },
        cold_us: Spread { min: us * 1.5, median: us * 2.0, max: us * 2.5 },
        first_us: us + 1000.0,
        algbw,
        busbw: algbw * Collective::AllReduce.bus_factor(8),
        wrong: ours.then_some(0),
        first_wrong: None,
    }
}

fn report() -> Report {
    let push = |ctas, gbps| Bandwidth { ctas, bytes: 256 << 20, gbps };
    let mut rows = Vec::new();
    for shift in (10..=30).step_by(2) {
        let size = 1u64 << shift;
        for (name, ours, places, least, most) in CONTENDERS {
            let us = least + size as f64 * Collective::AllReduce.bus_factor(8) / most / 1e3;
            rows.extend(places.iter().map(|place| row(name, ours, *place, size, us)));
        }
    }
    Report {
        warpweft: "0.1.0".into(),
        date: "2000-01-01T00:00:00Z".into(),
        command: ["weft", "bench", "allreduce"].map(String::from).into(),
        operation: Collective::AllReduce.into(),
        n_pes: 8,
        gpu: "made-up GPU".into(),
        nvlink: Some(NvLink::of(18, (9, 0))),
        driver: Some("580.1".into()),
        cuda: "13.0".into(),
        nvshmem: "3.4.5".into(),
        nccl: Some("2.28.9".into()),
        torch: None,
        flashinfer: None,
        lowering: "unicast".into(),
        no_multicast: Some("NVSHMEM_DISABLE_NVLS is set".into()),
        iters: 20,
        warmup: 5,
        repeats: 10,
        graph: true,
        auto: Some("model: there is no table for 8 x made-up GPU; `weft tune` measures one".into()),
        calibration: Some(Calibration {
            empty_kernel_us: 0.5,
            empty_block_us: Some(1.5),
            barrier_us: 2.25,
            flight_us: Some(1.25),
            push: vec![push(1, 40.0), push(8, 300.0), push(132, 362.0)],
            pull: vec![push(1, 30.0), push(132, 340.0)],
            loading: Loading { ptx_ms: 21.5, cubin_ms: 0.375 },
        }),
        notes: Vec::new(),
        left_out: vec!["multimem: it needs a multicast address, but the team has none".into()],
        rows,
    }
}

fn snapshot(name: &str, actual: &str) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots/bench").join(name);
    bless::check(&path, actual).unwrap();
}

#[test]
fn tables() {
    let report = report();
    snapshot("table.txt", &report.table(false));
    snapshot("wide.txt", &report.table(true));
    snapshot("table.md", &report.markdown());
    // Columns end where their names end.
    for wide in [false, true] {
        let head = report.head(wide);
        let names = head.lines().find(|l| l.contains("algorithm")).unwrap();
        let table = report.table(wide);
        let lines = table.lines().filter(|l| !l.starts_with('#'));
        // (The plans of warpweft's contenders follow in the last column.)
        assert!(lines.filter(|l| !l.contains("CTAs")).all(|l| l.len() == names.len()));
    }
}

#[test]
fn json_reads_back() {
    let mut report = report();
    report.rows[3].first_wrong = Some(Wrong {
        elements: 3,
        of: 6_291_456,
        pe: 2,
        round: 1,
        index: 17,
        found: "3".into(),
        expected: "5".into(),
    });
    report.rows[3].wrong = Some(3);
    let text = report.json().unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["operation"], "allreduce");
    assert_eq!(value["calibration"]["push"][2]["gbps"], 362.0);
    assert_eq!(value["rows"][0]["type"], "bf16");
    assert_eq!(value["rows"][0]["place"], "out-of-place");
    assert_eq!(value["rows"][0]["cold_us"]["max"], report.rows[0].cold_us.max);
    let said = report.first_wrong().unwrap();
    report.notes.push("nccl: made up".into());
    assert_eq!(report.first_wrong(), Some(format!("{said}; nccl: made up")));
    assert!(report.head(false).contains("\n# nccl: made up\n"));
    assert_eq!(
        said,
        "allreduce with nccl out of place, 1024 bytes of bf16: 3 of 6291456 elements are wrong; first: PE 2, element \
         17 of round 1 is 3, expected 5"
    );
}

#[test]
fn csv_has_a_line_per_row() {
    let report = report();
    let text = report.csv();
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + report.rows.len());
    assert!(lines.iter().all(|l| l.len() == lines[0].len()));
    let at = |name: &str| lines[0].iter().position(|n| *n == name).unwrap();
    assert_eq!((lines[1][at("place")], lines[1][at("wrong")]), ("out-of-place", "0"));
    let nccl = lines.iter().find(|l| l[at("algorithm")] == "nccl").unwrap();
    assert_eq!((nccl[at("wrong")], nccl[at("ctas")]), ("", ""));
    let [median, first] = ["time_median_us", "first_us"].map(|n| lines[1][at(n)].parse::<f64>().unwrap());
    assert_eq!((median, first), (report.rows[0].time_us.median, report.rows[0].first_us));
}

#[test]
fn plots() {
    let mut report = report();
    let svg = report.plot().unwrap();
    for text in [
        "allreduce of bf16 sum",
        "dashed: in place",
        "two_shot",
        "nvshmem",
        "450 GB/s per direction",
        "64K",
        "made-up",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    snapshot("plot.svg", &svg);
    // There is only one size, and the bandwidth of the links is unknown.
    report.rows.retain(|r| r.size == 1024);
    (report.calibration, report.nvlink) = (None, None);
    assert!(report.plot().unwrap().contains("1K"));
    // No row has a size.
    report.rows.iter_mut().for_each(|r| r.size = 0);
    report.operation = Operation::Barrier;
    assert!(report.plot().unwrap_err().to_string().contains("barrier has no sizes"));
}

/// The output of `weft bench --from` for stored reports.
fn from(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weft"));
    command.args(["bench", "allreduce"]).args(arguments).current_dir(folder).output().unwrap()
}

#[test]
fn stored_reports_are_printed_plotted_and_put_together() {
    let folder = tempfile::tempdir().unwrap();
    let all = report();
    let store = |name: &str, report: &Report| {
        std::fs::write(folder.path().join(name), report.json().unwrap()).unwrap();
    };
    // One part has the small sizes and the other the large ones. Both have the middle size.
    let part = |of: fn(u64) -> bool| Report {
        rows: all.rows.iter().filter(|r| of(r.size)).cloned().collect(),
        ..report()
    };
    store("small.json", &part(|size| size <= 1 << 20));
    store("large.json", &part(|size| size >= 1 << 20));
    let both = ["--from", "small.json", "--from", "large.json"];
    let out = from(
        folder.path(),
        &[&both[..], &["--plot", "all.svg", "--csv", "all.csv", "--markdown", "all.md"]].concat(),
    );
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8(out.stdout).unwrap(), all.table(false) + &all.foot());
    let written = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(written("all.csv"), all.csv());
    assert_eq!(written("all.svg"), all.plot().unwrap());
    assert_eq!(written("all.md"), all.markdown());
    // Select some of the contenders.
    let some = ["--algo", "ll", "--against", "nccl,nvshmem", "--json", "some.json"];
    let out = from(folder.path(), &[&both[..], &some].concat());
    assert_eq!(out.status.code(), Some(0));
    let some: Report = serde_json::from_str(&written("some.json")).unwrap();
    let named: std::collections::BTreeSet<_> = some.rows.iter().map(|r| &*r.algorithm).collect();
    assert_eq!(Vec::from_iter(named), ["ll", "nccl", "nvshmem"]);
    // A wrong result stays marked as wrong.
    let mut wrong = part(|size| size == 1024);
    let one =
        Wrong { elements: 1, of: 9, pe: 1, round: 2, index: 3, found: "4".into(), expected: "5".into() };
    wrong.rows[0].first_wrong = Some(one);
    store("wrong.json", &wrong);
    let out = from(folder.path(), &["--from", "wrong.json"]);
    let said = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(
        said.starts_with("error: allreduce with ll out of place") && said.contains("PE 1, element 3"),
        "{said}"
    );
    // Reports that do not fit together, or do not exist, are errors.
    store("other.json", &Report { n_pes: 2, ..report() });
    store("newer.json", &Report { nccl: Some("2.30.1".into()), ..report() });
    store("gather.json", &Report { operation: Collective::AllGather.into(), ..report() });
    for (arguments, why) in [
        (&["--from", "small.json", "--from", "other.json"][..], "allreduce on 2 x made-up GPU"),
        (&["--from", "small.json", "--from", "newer.json"], "measured with different versions"),
        (&["--from", "gather.json"], "has results of allgather, but the command is for allreduce"),
        (&["--from", "nowhere.json"], "cannot read nowhere.json"),
        (&["--from", "all.csv"], "all.csv is not a report"),
        (&["--from", "small.json", "--algo", "ring"], "`ring` was not measured: the report has ll, two_shot"),
    ] {
        let out = from(folder.path(), arguments);
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: ") && said.contains(why), "{said}");
    }
    let out = from(folder.path(), &["--from", "small.json", "--graph"]);
    assert!(out.status.code() == Some(2), "nothing is measured, in a graph or not");
}

/// Checks that a contender whose results in place are within 5 % of those out of place has only one
/// line.
#[test]
fn plots_have_no_line_twice() {
    let mut report = report();
    let dashes = |report: &Report| report.plot().unwrap().matches("polyline").count();
    let few = dashes(&report);
    for row in report.rows.iter_mut().filter(|r| r.algorithm == "nccl" && r.place == Placement::InPlace) {
        row.time_us.median *= 1.5;
    }
    assert!(dashes(&report) > few, "{few}");
    assert!(report.plot().unwrap().contains("dashed: in place"));
}
