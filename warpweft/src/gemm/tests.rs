//! Plans, the model and tables without a GPU. No figure of a table here was measured.

use super::fit::{candidates, fits, fits_some, shared_bytes};
use super::handle::{file, options};
use super::model::{cycles, ranked};
use super::plan::PARAMETERS;
use super::tuning::{Entry, Setting, Table, Tables};
use super::*;
use weft_isa::Target;
use weft_runtime::{DType, Device, error};

const SMS: u32 = 132;

fn target(name: &str) -> Target {
    name.parse().unwrap()
}

fn machine() -> Machine {
    Machine { target: target("sm_90a"), sms: SMS, memory_gbps: Device::H100_MEMORY_GBPS }
}

fn problem(text: &str) -> Problem {
    Problem::new(text.parse().unwrap(), DType::BF16)
}

fn plan(text: &str) -> Plan {
    text.parse().unwrap()
}

#[test]
fn plans_read_back() {
    for plan in Plan::all() {
        assert_eq!(plan.to_string().parse(), Ok(plan));
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&json).unwrap(), plan);
    }
    assert_eq!(Plan::all().count(), PARAMETERS.iter().map(|p| p.values.len()).product::<usize>());
    assert_eq!(Plan::all().next(), Some(Plan::default()));
    // Parameters that are not named have the kernel's default.
    assert_eq!(plan("stages=3"), Plan::default().with(Param::Stages, 3).unwrap());
    assert_eq!(plan("BN=64,bm=256").get(Param::Bn), 64);
}

#[test]
fn texts_that_are_no_plans() {
    let cases = [
        ("", "expected NAME=VALUE"),
        ("bm", "expected NAME=VALUE"),
        ("bm=", "whole number"),
        ("bm=-128", "whole number"),
        ("bm=128,bm=128", "`bm` is given twice"),
        ("tile=128", "`tile` is not a parameter of the kernel: expected bm, bn"),
        ("bm=100", "bm=100 is not supported: expected 64, 128, 256"),
        ("bm=4294967424", "whole number"),
    ];
    for (text, why) in cases {
        let e = text.parse::<Plan>().unwrap_err();
        assert!(e.contains(why), "{text}: {e}");
    }
    assert!(serde_json::from_str::<Plan>("\"bm=1\"").is_err());
}

#[test]
fn shapes_read_back() {
    let shape: Shape = "4096x8192x14336".parse().unwrap();
    assert_eq!((shape, shape.to_string().as_str()), (Shape::new(4096, 8192, 14336), "4096x8192x14336"));
    for text in ["", "4096", "4096x8192", "1x2x3x4", "1x2x-3", "ax2x3", "1X2X3", "18446744073709551616x1x1"] {
        assert!(text.parse::<Shape>().unwrap_err().contains("expected MxNxK"), "{text}");
    }
}

#[test]
fn problems_that_the_kernel_does_not_compute() {
    let refused = |p: Problem| p.check().unwrap_err();
    let of = |text| refused(problem(text));
    let column = |dtype| Problem { b: Major::Column, ..Problem::new(Shape::new(16, 64, 64), dtype) };
    let cases = [
        (of("0x64x64"), "m is 0"),
        (of("16x0x64"), "n is 0"),
        (of("16x64x0"), "k is 0"),
        (of("2147483648x64x64"), "m is 2147483648"),
        (of("16x60x64"), "n is 60 in 16x60x64, so D of bf16 has a stride of 120 bytes"),
        (of("16x64x60"), "k is 60 in 16x64x60, so A of bf16 has a stride of 120 bytes"),
        (refused(Problem::new(Shape::new(16, 64, 72), DType::E4M3)), "so A of e4m3 has a stride of 72 bytes"),
        (refused(column(DType::E4M3)), "with contiguous columns"),
        (refused(Problem { shape: Shape::new(16, 60, 64), ..column(DType::F16) }), "B of f16 has a stride"),
        (refused(Problem::new(Shape::new(16, 64, 64), DType::F64)), "A and B are of f64"),
        (refused(Problem { out: DType::I32, ..problem("16x64x64") }), "D is of i32"),
    ];
    for (e, why) in cases {
        assert!(e.code == error::GEMM && e.message.contains(why) && !e.help.is_empty(), "{e}");
    }
    for text in ["1x8x8", "4001x8184x4104", "2147483647x8x8"] {
        assert_eq!(problem(text).check(), Ok(()), "{text}");
    }
    assert_eq!(column(DType::BF16).check(), Ok(()));
    assert!(of("16x60x64").help.contains("64"));
}

#[test]
fn plans_that_do_not_fit() {
    let why = |plan: &Plan, dtype| {
        let e = fits_some(&Problem::new(Shape::new(64, 64, 64), dtype), plan).unwrap_err();
        assert_eq!(e.code, error::GEMM);
        e.message
    };
    assert!(
        why(&plan("stages=5"), DType::BF16)
            .contains("279552 bytes of shared memory, but a CTA on sm_90a has 232448")
    );
    assert!(why(&plan("bm=256,bn=192,stages=2"), DType::BF16).contains("192 registers"));
    assert!(why(&Plan::default(), DType::E4M3).contains("rows of 64 bytes"));
    assert!(why(&plan("bk=32"), DType::BF16).contains("rows of 64 bytes"));
    let columns = Problem { b: Major::Column, ..problem("64x64x64") };
    assert!(
        fits_some(&columns, &plan("bn=64,ctas=2"))
            .unwrap_err()
            .message
            .contains("loads 32 rows of B at a time")
    );
    assert!(fits_some(&columns, &plan("bn=128,ctas=2")).is_ok());
    let why = |text: &str| why(&plan(text), DType::BF16);
    assert!(why("bn=64,ctas=2,split=2").contains("clusters of 2 tiles, with 2 CTAs for each tile"));
    assert!(why("bn=16,split=4").contains("gives each CTA 4 columns of a tile to store"));
    assert!(why("bn=168,split=2,stages=2").contains("gives each CTA 84 columns"));
    assert!(why("split=2,turns=1,bn=64").contains("roles that take turns"));
    let narrow = Problem { out: DType::E4M3, ..problem("64x64x64") };
    let e = fits_some(&narrow, &plan("bn=16,split=2")).unwrap_err();
    assert!(e.message.contains("stores rows of 8 bytes (8 of e4m3)"), "{e}");
    assert!(fits_some(&narrow, &plan("bn=16,split=2,swap=1")).is_ok());
    // Each type has a plan.
    for dtype in [DType::BF16, DType::F16, DType::F32, DType::E4M3, DType::E5M2] {
        let problem = Problem::new(Shape::new(64, 64, 64), dtype);
        for name in ["sm_90", "sm_90a", "sm_100a", "sm_103a", "sm_120a"] {
            assert!(candidates(&problem, target(name)).count() > 8, "{dtype} on {name}");
        }
    }
}

/// The shared memory that a plan needs equals what the compiled kernel declares, and a plan that
/// needs too much does not compile.
#[test]
fn shared_memory_is_as_the_kernel_has_it() {
    let columns = Problem { b: Major::Column, ..problem("64x64x64") };
    let fp8 = Problem::new(Shape::new(64, 64, 64), DType::E4M3);
    let cases = [
        (problem("64x64x64"), "bm=128", "sm_90a"),
        (problem("64x64x64"), "bm=256,bn=128,bk=64,stages=3", "sm_90a"),
        (columns, "bn=192,stages=2", "sm_90a"),
        (fp8, "bn=64,bk=128,stages=8", "sm_90a"),
        (problem("64x64x64"), "bn=128,stages=4,ctas=2", "sm_90a"),
        (Problem { out: DType::F32, ..fp8 }, "bn=128,bk=128,stages=2", "sm_90a"),
        (problem("64x64x64"), "bm=128,stages=5", "sm_90a"),
        (problem("64x64x64"), "bm=64,bn=16,bk=128,swap=1,stages=8", "sm_90a"),
        (problem("64x64x64"), "bm=64,bn=64,split=2,stages=8", "sm_90a"),
        (Problem { out: DType::F32, ..fp8 }, "bm=128,bn=128,bk=128,split=4,stages=3,swap=1", "sm_90a"),
        (columns, "bm=256,bn=32,swap=1,split=4,stages=2", "sm_90a"),
        (problem("64x64x64"), "bm=64,bn=256,swap=1,ctas=4,stages=4", "sm_90a"),
        (problem("64x64x64"), "bn=168,stages=5,ctas=2,turns=1", "sm_90a"),
        (problem("64x64x64"), "bm=64,bn=256,stages=4,turns=1", "sm_90a"),
        (problem("64x64x64"), "bn=88,stages=7,swap=1", "sm_90a"),
        (problem("64x64x64"), "bn=136,stages=5,swap=1", "sm_90a"),
        (problem("64x64x64"), "bn=200,stages=4,swap=1,turns=0", "sm_90a"),
        (problem("64x64x64"), "bn=144,bm=64,stages=3,split=2,swap=1", "sm_90a"),
        (Problem { out: DType::F32, ..fp8 }, "bn=152,bk=128,stages=2", "sm_90a"),
        (problem("64x64x64"), "bn=128,stages=3", "sm_100a"),
        (fp8, "bn=128,bk=128,stages=2", "sm_120a"),
        (problem("64x64x64"), "bn=128,stages=3", "sm_120a"),
        (columns, "bm=64,bn=64,stages=4,split=2", "sm_120a"),
    ];
    for (problem, text, name) in cases {
        let (plan, target) = (plan(text), target(name));
        let (bytes, max) = (shared_bytes(&problem, &plan), u64::from(target.shared_limit()));
        match crate::gpu::cache::Entry::compile(&file().unwrap(), &options(&problem, &plan, target)) {
            Ok(entry) => assert_eq!(u64::from(entry.info.kernels[0].shared), bytes, "{problem}: {plan}"),
            Err(e) => assert!(bytes > max && e.to_string().contains("E0604"), "{problem}: {plan}: {e}"),
        }
        assert_eq!(fits(&problem, &plan, target).is_ok(), bytes <= max, "{problem}: {plan}");
    }
}

/// On an H200, products that fill the GPU are faster without clusters (docs/performance.md).
#[test]
fn fast_memory_needs_no_clusters() {
    for shape in ["4096x4096x4096", "8192x8192x8192", "4096x8192x4096", "8192x8192x1024"] {
        let clusters = |memory_gbps| {
            let plan = ranked(&problem(shape), Machine { memory_gbps, ..machine() })[0];
            (plan.get(Param::Ctas), plan.get(Param::Bn))
        };
        let (h100, h200) = (clusters(Device::H100_MEMORY_GBPS), clusters(Device::H200_MEMORY_GBPS));
        assert_eq!((h100.0, h200.0), (2, 1), "{shape}");
        assert_eq!(h100.1, h200.1, "{shape}: the same tiles");
    }
}

/// On targets whose warpgroups cannot multiply, warps multiply, and keep fragments in registers.
#[test]
fn targets_whose_warps_multiply_have_smaller_tiles() {
    let e = fits(&problem("64x64x64"), &plan("stages=2"), target("sm_100a")).unwrap_err();
    assert!(
        e.message.contains("128 registers of each thread for sums, but the limit on sm_100a is 64"),
        "{e}"
    );
    for name in ["sm_100a", "sm_103a", "sm_120a"] {
        let machine = Machine { target: target(name), sms: 148, memory_gbps: Device::H100_MEMORY_GBPS };
        let plan = ranked(&problem("4096x4096x4096"), machine)[0];
        assert_eq!(plan.get(Param::Bm) * plan.get(Param::Bn), 128 * 128, "{name}: {plan}");
    }
}

#[test]
fn the_model_prefers_what_is_plain() {
    let first = |text: &str| ranked(&problem(text), machine())[0];
    // Tensor cores limit large products, and large tiles read shared memory the least.
    let large = first("8192x8192x8192");
    assert!(large.get(Param::Bm) * large.get(Param::Bn) >= 128 * 168, "{large}");
    // The largest tile is the best one if it leaves fewer multiprocessors idle in the last wave.
    assert_eq!(first("4096x4096x4096").get(Param::Bn), 256);
    // Two roles divide the rows of a tile of 128 x 128; a single role that multiplies is slower.
    assert_eq!([Param::Bm, Param::Bn].map(|p| first("256x8192x8192").get(p)), [128, 128]);
    // Fewer CTAs than multiprocessors do not use the whole bandwidth of memory. Pairs of CTAs have all rows.
    let pairs = first("128x8192x8192");
    assert_eq!([Param::Bm, Param::Bn, Param::Bk, Param::Ctas].map(|p| pairs.get(p)), [64, 128, 64, 2]);
    // The last product and the store of a tile are hidden if roles take turns.
    assert_eq!(first("8192x8192x1024").get(Param::Turns), 1);
    // With one tile for each multiprocessor there are no turns to take, and clusters gain little.
    assert_eq!([Param::Turns, Param::Ctas].map(|p| first("16x8192x4096").get(p)), [0, 1]);
    // For a product with few rows, tiles of the transpose have no more columns than rows exist.
    let few = first("16x8192x4096");
    assert_eq!(
        [Param::Swap, Param::Bm, Param::Bn, Param::Split].map(|p| few.get(p)),
        [1, 64, 16, 1],
        "{few}"
    );
    assert_eq!(first("17x8192x4096").get(Param::Bn), 24);
    // Clusters of four do not fill the GPU: 128 CTAs in them take two waves.
    for text in ["64x8192x4096", "64x8192x8192", "128x8192x8192", "256x8192x8192"] {
        let plan = first(text);
        assert!(plan.get(Param::Ctas) * plan.get(Param::Split) <= 2, "{text}: {plan}");
    }
    assert_eq!(first("64x8192x8192").get(Param::Ctas), 1);
    // If there are few tiles, several CTAs share each.
    let short = first("64x1024x8192");
    assert!(short.get(Param::Split) >= 2, "{short}");
    // Rows that begin inside sectors of the cache need more requests, and clusters reduce them.
    assert_eq!(first("4001x8184x4104").get(Param::Ctas), 2);
    // A larger product takes longer.
    let cycles = |text: &str| cycles(&problem(text), &Plan::default(), SMS);
    assert!(cycles("4096x4096x4096") < cycles("4096x4096x8192"));
    assert!(cycles("4096x4096x4096") < cycles("8192x4096x4096"));
    // One tile too many takes another wave.
    assert!(cycles("1408x3072x4096") < 0.6 * cycles("1536x3072x4096"));
    let all = ranked(&problem("4096x4096x4096"), machine());
    assert_eq!(all.len(), candidates(&problem("4096x4096x4096"), machine().target).count());
    assert!(all.iter().all(|plan| fits_some(&problem("4096x4096x4096"), plan).is_ok()));
}

/// Tiles of the transpose have widths into which the rows of A divide.
#[test]
fn widths_follow_few_rows() {
    let widths = |text: &str, swap| -> std::collections::BTreeSet<u32> {
        let problem = problem(text);
        let all = candidates(&problem, machine().target).filter(|plan| plan.get(Param::Swap) == swap);
        all.map(|plan| plan.get(Param::Bn)).filter(|n| n % 16 == 8 || [72, 144, 176].contains(n)).collect()
    };
    let usual = 168;
    assert_eq!(widths("288x8192x4096", 0), [usual].into());
    assert_eq!(widths("288x8192x4096", 1), [72, 144, usual].into());
    assert_eq!(widths("521x8192x4096", 1), [136, 144, 176].into());
    assert_eq!(widths("8192x8192x4096", 1), [].into());
    // The fastest of the plans that were measured on an H200.
    for (text, best) in [
        ("272x8192x8192", "bn=136,stages=5,swap=1"),
        ("288x8192x4096", "bn=144,stages=5,swap=1"),
        ("352x8192x8192", "bn=176,stages=5,swap=1"),
        ("400x8192x8192", "bn=200,stages=5,swap=1"),
        ("464x8192x4096", "bn=240,stages=4,swap=1"),
        ("448x4096x4096", "bn=112,stages=7,swap=1"),
        ("144x4096x4096", "bm=64,bn=72,bk=128,stages=6,swap=1"),
    ] {
        assert_eq!(ranked(&problem(text), machine())[0], plan(best), "{text}");
    }
    // A wider tile takes no less time.
    let tile = |n: u32| {
        let plan = plan("stages=3,swap=1").with(Param::Bn, n).unwrap();
        cycles(&problem(&format!("{n}x16384x4096")), &plan, SMS)
    };
    let times: Vec<f64> = (16..=256).step_by(8).map(tile).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// Large stages of 16-bit elements are many, or there are none. Those of 8-bit elements are as large as others.
#[test]
fn large_stages_are_not_few() {
    let few = |problem: Problem| {
        let all = candidates(&problem, machine().target);
        all.filter(|plan| plan.get(Param::Bk) == 128 && plan.get(Param::Stages) < 4).collect::<Vec<_>>()
    };
    for text in ["160x8192x8192", "352x4096x4096", "608x8192x8192", "4096x4096x4096"] {
        let left = few(problem(text));
        assert!(left.iter().all(|plan| plan.get(Param::Split) > 1), "{text}: {left:?}");
    }
    assert!(few(problem("160x1024x8192")).contains(&plan("bm=64,bn=128,bk=128,stages=3,split=4")));
    assert!(few(Problem::new(Shape::new(4096, 4096, 4096), DType::E4M3)).contains(&plan("bk=128,stages=3")));
}

/// The fastest of the plans that were measured on an H100, and for 64 x 4096 x 8192 and 160 x 8192 x
/// 8192 on an H200.
#[test]
fn the_model_finds_what_was_measured() {
    let measured = [
        ("16x4096x8192", "bm=64,bn=16,bk=128,stages=8,split=2,swap=1"),
        ("64x4096x8192", "bm=64,bn=32,bk=128,stages=8"),
        ("128x4096x8192", "bm=64,bn=64,bk=128,stages=6,turns=1"),
        ("512x4096x8192", "bm=128,bn=128,stages=6"),
        ("64x8192x4096", "bm=64,bn=64,bk=128,stages=6,swap=1"),
        ("96x8192x4096", "bm=64,bn=96,bk=128,stages=5,swap=1"),
        ("160x8192x8192", "bm=128,bn=80,stages=8,swap=1"),
        ("192x8192x4096", "bm=128,bn=96,stages=7,swap=1"),
        ("320x8192x4096", "bm=128,bn=160,stages=5,swap=1"),
        ("448x8192x8192", "bm=128,bn=224,stages=4,swap=1"),
        ("640x8192x8192", "bm=128,bn=160,stages=5,turns=1"),
        ("256x8192x4096", "bm=128,bn=128,stages=6,swap=1"),
        ("4096x4096x4096", "bm=128,bn=256,ctas=2"),
        ("8192x8192x8192", "bm=128,bn=168,stages=5,ctas=2,turns=1"),
    ];
    for (text, best) in measured {
        assert_eq!(ranked(&problem(text), machine())[0], plan(best), "{text}");
    }
    // Stages of 128 elements were not measured there.
    let first = ranked(&problem("256x4096x8192"), machine())[0];
    assert_eq!([Param::Bm, Param::Bn, Param::Turns].map(|p| first.get(p)), [64, 128, 1], "{first}");
}

fn table() -> Table {
    let setting = Setting { gpu: "NVIDIA H200".into(), driver: "580.1".into() };
    let entry = |problem, text, us| Entry { problem, plan: plan(text), us };
    let entries = vec![
        entry(problem("4096x4096x4096"), "bn=128,stages=5", 190.0),
        entry(problem("64x8192x4096"), "bn=64,stages=8", 30.5),
        entry(Problem { b: Major::Column, ..problem("4096x4096x4096") }, "bn=192,stages=4", 200.0),
    ];
    let command = ["weft", "tune", "gemm", "a \"quoted\" name"].map(String::from).into();
    Table { date: "2026-11-25T00:00:00Z".into(), command, entries, ..Table::new(setting) }
}

#[test]
fn the_nearest_shape_is_taken() {
    let table = table();
    let of = |text: &str| table.plan(&problem(text), machine().target).map(|p| p.get(Param::Bn));
    assert_eq!(of("4096x4096x4096"), Some(128));
    assert_eq!(of("4001x4096x4104"), Some(128));
    assert_eq!(of("60x8192x4096"), Some(64));
    // The shape differs by more than a factor of 1.5.
    assert_eq!(of("4096x4096x8192"), None);
    assert_eq!(of("16x8192x4096"), None);
    let columns = Problem { b: Major::Column, ..problem("4096x4096x4096") };
    assert_eq!(table.plan(&columns, machine().target).map(|p| p.get(Param::Bn)), Some(192));
    assert_eq!(
        table.plan(&Problem { dtype: DType::F16, ..problem("4096x4096x4096") }, machine().target),
        None
    );
    // Two tiles of the transpose have 281 rows, and 290 rows would need a third tile.
    let few = Entry { problem: problem("288x8192x4096"), plan: plan("bn=144,swap=1"), us: 30.0 };
    let few = Table { entries: vec![few], ..table.clone() };
    let width = |text: &str| few.plan(&problem(text), machine().target).map(|p| p.get(Param::Bn));
    assert_eq!(["281x8192x4096", "290x8192x4096"].map(width), [Some(144), None]);
    // An entry whose plan no longer fits is ignored.
    let large = Entry { plan: plan("stages=8"), ..table.entries[0].clone() };
    let one = Table { entries: vec![large], ..table.clone() };
    assert_eq!(one.plan(&problem("4096x4096x4096"), machine().target), None);
}

#[test]
fn tables_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("below").join("gemm.json");
    assert_eq!(Tables::read(&file).unwrap(), Tables::new());
    let mut tables = Tables::new();
    tables.add(table());
    let other = Setting { gpu: "NVIDIA H100".into(), ..table().setting };
    tables.add(Table { setting: other, entries: Vec::new(), ..table() });
    tables.write(&file).unwrap();
    assert_eq!(Tables::read(&file).unwrap(), tables);
    // The file has a line for each entry.
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().filter(|l| l.contains("\"4096x4096x4096\"")).count(), 2, "{text}");
    // Newer entries replace those of the same problem, and add to the others.
    let mut newer = Table { entries: table().entries[..1].to_vec(), ..table() };
    newer.entries[0].plan = plan("stages=3");
    tables.add(newer);
    assert_eq!((tables.tables.len(), tables.tables[0].entries.len()), (2, 3));
    assert_eq!(tables.tables[0].plan(&problem("4096x4096x4096"), machine().target), Some(plan("stages=3")));
    assert!(tables.tables[0].text().contains("bm=128,bn=64,bk=64,stages=8,ctas=1,split=1,swap=0,turns=0"));
    // A measurement with another driver makes a new table.
    let setting = Setting { driver: "590.2".into(), ..table().setting };
    tables.add(Table { setting, entries: table().entries[1..2].to_vec(), ..table() });
    assert_eq!((tables.tables.len(), tables.tables[0].entries.len()), (2, 1));
}

#[test]
fn damaged_tables_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gemm.json");
    let mut tables = Tables::new();
    tables.add(table());
    let good = tables.text();
    let cases = [
        ("", "is damaged"),
        ("[]", "is damaged"),
        ("{ \"form\": 2, \"tables\": 7 }", "has format 2, but this version reads format 1"),
        (&good[..good.len() / 2], "is damaged"),
        (&good.replace("stages=8", "stages=9"), "stages=9 is not supported"),
        (&good.replace("64x8192x4096", "64x8192"), "expected MxNxK"),
        (&good.replace(":190.0", ":-190.0"), "takes -190 us"),
    ];
    for (text, why) in cases {
        std::fs::write(&file, text).unwrap();
        let e = Tables::read(&file).unwrap_err().to_string();
        assert!(
            e.starts_with("error[R0111]: ") && e.contains(why) && e.contains("weft tune gemm"),
            "{text}: {e}"
        );
    }
}

#[test]
fn tables_that_no_longer_hold() {
    let mut tables = Tables::new();
    tables.add(table());
    let why = |tables: &Tables, setting: &Setting| tables.find(setting).err().unwrap_or_default();
    let setting = table().setting;
    assert_eq!(why(&tables, &setting), "");
    let newer = Setting { driver: "590.2".into(), ..setting.clone() };
    assert!(why(&tables, &newer).contains("was measured with driver 580.1"));
    let other = Setting { gpu: "NVIDIA B200".into(), ..setting.clone() };
    assert_eq!(why(&tables, &other), "there is no table for NVIDIA B200");
    tables.tables[0].kernel = "0123456789abcdef".into();
    assert!(why(&tables, &setting).contains("another kernel"));
    assert!(tables.tables[0].text().contains("left out"));
}

/// A wave of wider tiles takes less time for each column, and its last wave can be emptier. Pairs of
/// CTAs take less time than single ones.
#[test]
fn tiles_with_scales_of_blocks() {
    let tiles = |text: &str, sms| {
        let machine = Machine { sms, ..machine() };
        machine.tiles_with_blocks(text.parse().unwrap()).map(|tiles| (tiles.columns, tiles.ctas))
    };
    let [one, wide, wider, pair] = [(128, 1), (160, 1), (192, 1), (192, 2)];
    // Waves of tiles of 128, 160 and 192 columns: 32, 26 and 21, then 16, 13 and 11, and 8, 7 and 6.
    assert_eq!(tiles("8192x8192x8192", SMS), [pair, wider, one, wide]);
    assert_eq!(tiles("4096x8192x4096", SMS), [pair, wider, one, wide]);
    assert_eq!(tiles("4096x4096x4096", SMS), [pair, one, wider, wide]);
    // Two waves of each.
    assert_eq!(tiles("512x8192x4096", SMS), [one, wide, pair, wider]);
    // One wave of each, and 2, 1, 1 and 1.
    assert_eq!(tiles("1024x1024x4096", SMS), [one, wide, pair, wider]);
    assert_eq!(tiles("2048x1280x4096", SMS), [wide, pair, wider, one]);
    // The second CTA of a pair would have no rows.
    assert_eq!(tiles("128x25088x4096", SMS), [wider, one, wide, pair]);
    assert_eq!(tiles("100x150x256", 0), [wide, pair, wider, one], "no multiprocessors count as one");
}
