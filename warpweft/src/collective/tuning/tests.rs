//! Tests with invented tables: no figure here was measured.

use super::*;
use std::sync::Arc;
use weft_runtime::Reduce;

fn setting() -> Setting {
    Setting {
        gpu: "NVIDIA H200".into(),
        n_pes: 8,
        wire: Wire::NvLink,
        multicast: false,
        driver: "580.1".into(),
    }
}

fn entry(symmetric: bool, dtype: DType, algorithm: &str, sizes: &[u64]) -> Entry {
    Entry {
        sums: Sums::Ordinary,
        collective: Collective::AllReduce,
        place: Placement::OutOfPlace,
        symmetric,
        dtype,
        algorithm: algorithm.into(),
        limits: Limits { ctas: 48, threads: 128, unroll: 2 },
        sizes: sizes.iter().map(|bytes| (*bytes, 1.0 + *bytes as f64 / 3e5)).collect(),
    }
}

fn table() -> Table {
    let entries = vec![
        entry(true, DType::BF16, "ll", &[1 << 10, 1 << 14]),
        entry(true, DType::BF16, "one_shot", &[1 << 18]),
        entry(true, DType::BF16, "two_shot", &[1 << 22, 1 << 26]),
        entry(false, DType::BF16, "ll_two_shot", &[1 << 10]),
        entry(false, DType::BF16, "push", &[1 << 22]),
        entry(true, DType::F32, "push_direct", &[1 << 10, 1 << 26]),
    ];
    let command = ["weft", "tune", "--out", "a \"quoted\" name"].map(String::from).into();
    Table { setting: setting(), parts: hashes(&entries), entries, command, ..Table::default() }
}

fn request(dtype: DType, bytes: u64) -> Request {
    Request::new(Collective::AllReduce, dtype, bytes / dtype.bytes() as u64, 8)
}

fn chosen(table: &Table, request: &Request) -> Option<&'static str> {
    table.plan(request, 132).map(|p| p.algorithm.name)
}

#[test]
fn the_nearest_size_is_taken() {
    let table = table();
    let of = |bytes| chosen(&table, &request(DType::BF16, bytes)).unwrap();
    for (bytes, name) in [
        (16, ""),
        (128, "ll"),
        (1 << 10, "ll"),
        (4 << 10, "ll"),
        ((1 << 16) - 256, "ll"),
        ((1 << 16) + 256, "one_shot"),
        (1 << 18, "one_shot"),
        (1 << 21, "two_shot"),
        (16 << 20, "two_shot"),
        (1 << 30, "two_shot"),
    ] {
        match name {
            // More than a factor of sixteen away.
            "" => assert_eq!(chosen(&table, &request(DType::BF16, bytes)), None),
            name => assert_eq!(of(bytes), name, "{bytes}"),
        }
    }
    // The plan's size follows from the request, within what was measured.
    let plan = |bytes| table.plan(&request(DType::BF16, bytes), 132).map(|p| (p.ctas, p.threads, p.unroll));
    assert_eq!(plan(1 << 10), Some((1, 128, 1)));
    assert_eq!(plan(64 << 20), Some((48, 128, 2)));
    // A handle with fewer CTAs limits the plan.
    assert_eq!(table.plan(&request(DType::BF16, 64 << 20), 8).map(|p| p.ctas), Some(8));
}

#[test]
fn types_memory_and_what_an_algorithm_can() {
    let table = table();
    let of = |change: fn(&mut Request)| {
        let mut request = request(DType::BF16, 1 << 20);
        change(&mut request);
        chosen(&table, &request)
    };
    assert_eq!(of(|_| {}), Some("one_shot"));
    // Another type of the same width, and another operation.
    assert_eq!(of(|r| r.dtype = DType::F16), Some("one_shot"));
    assert_eq!(of(|r| r.op = Reduce::Max), Some("one_shot"));
    assert_eq!(of(|r| r.dtype = DType::I32), Some("push_direct"));
    assert_eq!(of(|r| r.dtype = DType::U8), None);
    // If one operand is not symmetric, a plan for any memory holds.
    assert_eq!(of(|r| r.symmetric = [false; 2]), Some("push"));
    assert_eq!(of(|r| r.symmetric = [true, false]), Some("push"));
    assert_eq!(of(|r| r.place = Placement::InPlace), None);
    assert_eq!(of(|r| r.op = Reduce::Xor), None);
    assert_eq!(of(|r| r.collective = Collective::AllToAll), None);
}

#[test]
fn each_kind_of_sums_has_entries_of_its_own() {
    let mut table = table();
    let quantised = Entry { sums: Sums::Quantised, ..entry(true, DType::BF16, "quantised", &[1 << 22]) };
    table.entries.push(quantised.clone());
    let of = |sums, multicast| {
        let request = Request { sums, multicast, ..request(DType::BF16, 1 << 22) };
        chosen(&table, &request)
    };
    assert_eq!(of(Sums::Ordinary, true), Some("two_shot"));
    assert_eq!(of(Sums::Quantised, true), Some("quantised"));
    // Deterministic sums use entries of ordinary sums whose algorithms add in the order of ranks,
    // without the switch.
    assert_eq!(of(Sums::Deterministic, false), Some("two_shot"));
    assert_eq!(of(Sums::Deterministic, true), Some("push"));
    assert!(table.text().contains("quantised (quantised)"), "{}", table.text());
    // Measurements of one kind of sums leave those of other kinds.
    let newer = Table { entries: vec![quantised], ..table.clone() };
    let before = table.entries.len();
    table.renew(newer);
    assert_eq!(table.entries.len(), before);
}

#[test]
fn the_selector_has_the_model_for_what_is_not_there() {
    let selector = Selector::table(table(), "made up");
    let by = |request: &Request| selector.plan(request, 132).map(|(plan, by)| (plan.algorithm.name, by));
    assert_eq!(by(&request(DType::BF16, 1 << 20)), Ok(("one_shot", By::Table)));
    let model = Plan::choose(&request(DType::U8, 1 << 26), 132, &Links::H200).unwrap();
    assert_eq!(by(&request(DType::U8, 1 << 26)), Ok((model.algorithm.name, By::Model)));
    let none = by(&Request { op: Reduce::Xor, ..request(DType::U8, 1 << 26) }).unwrap_err();
    assert!(none.contains("no algorithm of allreduce"), "{none}");
    assert_eq!(selector.to_string(), "table: made up");
    let model = Selector::model(Links::PCIE, "as requested");
    assert_eq!(model.to_string(), "model: as requested");
    assert_eq!(model.plan(&request(DType::BF16, 1 << 20), 132).unwrap().1, By::Model);
    // PEs exchange selectors in this form.
    let sent = serde_json::to_vec(&selector).unwrap();
    assert_eq!(serde_json::from_slice::<Selector>(&sent).unwrap(), selector);
    assert_eq!(Tuning::default(), Tuning::Stored);
    assert_ne!(Tuning::Table(Arc::new(table())), Tuning::Model);
}

#[test]
fn files_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("below").join("tuning.json");
    assert_eq!(Tables::read(&file).unwrap(), Tables::new());
    let mut tables = Tables::new();
    tables.write(&file).unwrap();
    assert_eq!(Tables::read(&file).unwrap(), tables);
    tables.add(table());
    tables.add(Table { setting: Setting { n_pes: 2, ..setting() }, ..table() });
    tables.write(&file).unwrap();
    assert_eq!(Tables::read(&file).unwrap(), tables);
    // The file has a line for each entry, and no other file remains.
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().filter(|l| l.contains("\"two_shot\"")).count(), 2, "{text}");
    assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    // A folder is not a file.
    let e = tables.write(folder.path()).unwrap_err().to_string();
    assert!(e.starts_with("error[R0111]: cannot write"), "{e}");
}

#[test]
fn damaged_files_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tuning.json");
    let mut tables = Tables::new();
    tables.add(table());
    let good = tables.text();
    let cut = &good[..good.len() / 2];
    let cases = [
        ("", "is damaged"),
        ("hello", "is damaged"),
        ("[]", "is damaged"),
        ("{ \"tables\": [] }", "`form`"),
        ("{ \"form\": 2, \"tables\": 7 }", "has format 2, but this version reads format 1"),
        (cut, "is damaged"),
        (&good.replace("\"unroll\":2", "\"unroll\":0"), "CTAs, threads or steps in flight are not possible"),
        (
            &good.replace("\"threads\":128", "\"threads\":4294967295"),
            "CTAs, threads or steps in flight are not possible",
        ),
        (&good.replace("[1024,", "[67108865,"), "not in ascending order"),
        (&good.replace("\"sizes\":[[262144,", "\"sizes\":[[262144,-"), "an invalid time"),
        (&good.replace("\"allreduce\"", "\"allsum\""), "unknown variant `allsum`"),
        (&good.replace("out-of-place", "elsewhere"), "unknown variant `elsewhere`"),
    ];
    for (text, why) in cases {
        std::fs::write(&file, text).unwrap();
        let e = Tables::read(&file).unwrap_err().to_string();
        assert!(e.starts_with("error[R0111]: ") && e.contains(why) && e.contains("weft tune"), "{text}: {e}");
    }
    std::fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(Tables::read(&file).unwrap_err().to_string().contains("UTF-8"));
}

#[test]
fn a_table_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tuning.json");
    let mut tables = Tables::new();
    tables.add(table());
    tables.write(&file).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let e = Tables::read(&file).unwrap_err().to_string();
    assert!(e.starts_with("error[R0111]: ") && e.contains("other users can write"), "{e}");
}

#[test]
fn what_no_longer_holds_is_left_out() {
    let mut old = table();
    old.entries[0].algorithm = "ll128".into();
    let (left, why) = old.clone().usable();
    assert_eq!((left.entries.len(), why), (5, vec!["allreduce has no `ll128` here".to_owned()]));
    old.parts.insert("allreduce".into(), "0123456789abcdef".into());
    let (none, why) = old.clone().usable();
    assert!(none.entries.is_empty());
    assert_eq!(why[1], "allreduce was measured with other kernels");
    let mut tables = Tables::new();
    tables.add(old);
    let said = |tables: &Tables, setting: &Setting| match tables.find(setting) {
        Stored::None(why) => why,
        Stored::Table(table, why) => format!("{} entries; {}", table.entries.len(), why.join(", ")),
    };
    assert!(said(&tables, &setting()).contains("no entry in the table of"), "{}", said(&tables, &setting()));
    // Another driver, and other GPUs.
    let mut tables = Tables::new();
    tables.add(table());
    let newer = Setting { driver: "590.2".into(), ..setting() };
    assert_eq!(said(&tables, &newer), "its table was measured with driver 580.1");
    let other = Setting { gpu: "NVIDIA B200".into(), ..setting() };
    assert_eq!(said(&tables, &other), "there is no table for 8 x NVIDIA B200, NVLink, driver 580.1");
    assert_eq!(said(&tables, &setting()), "6 entries; ");
    // Links are the same for teams of any size.
    assert_eq!(tables.links(&Setting { n_pes: 3, ..setting() }), Some(Links::H200));
    assert_eq!((tables.links(&newer), tables.links(&other)), (None, None));
    // A measurement with a new driver replaces all those with the old one.
    tables.add(Table { setting: newer.clone(), ..table() });
    assert_eq!((tables.tables.len(), said(&tables, &newer)), (1, "6 entries; ".into()));
}

#[test]
fn a_collective_and_type_is_renewed() {
    let mut tables = Tables::new();
    tables.add(table());
    let entries = vec![entry(true, DType::F32, "ll", &[2048])];
    tables.add(Table { entries: entries.clone(), date: "later".into(), ..table() });
    let [there] = &tables.tables[..] else { panic!("one setting") };
    assert_eq!((there.date.as_str(), there.entries.len()), ("later", 6));
    assert_eq!(there.entries.iter().filter(|e| e.dtype == DType::F32).collect::<Vec<_>>(), [&entries[0]]);
    assert_eq!(there.parts, table().parts);
}

/// A part's hash covers all parts that it uses.
#[test]
fn hashes_differ_by_part() {
    let all: std::collections::BTreeSet<_> =
        ["allreduce", "all_gather", "broadcast", "all_to_all", "reduce_scatter", "ll"].map(hash).into();
    assert_eq!(all.len(), 6);
    assert_eq!(hash("allreduce").len(), 16);
}

#[test]
fn a_table_can_be_read() {
    let text = table().text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], "# 8 x NVIDIA H200, NVLink, driver 580.1; warpweft 0.1.0, ");
    assert_eq!(lines.len(), 2 + table().entries.len(), "{text}");
    assert!(
        lines[2].contains(" 1024 to 16384  ll ") && lines[2].ends_with("128       2  1.00 1.05"),
        "{text}"
    );
    // Numbers are aligned with the ends of their headings.
    let end = lines[1].find("at once").unwrap() + "at once".len();
    assert!(lines[2..].iter().all(|l| l.as_bytes()[end - 1] == b'2' && &l[end..end + 2] == "  "), "{text}");
    assert_eq!(Table::default().text().lines().count(), 1);
}
