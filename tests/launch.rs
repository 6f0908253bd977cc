//! Tests of the description of compiled kernels that launchers read: its stored form for the
//! examples, and the checks of arguments against it. No GPU is used, and the addresses are made up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::Path;

use weft::runtime::DType;
use weft::runtime::error::{ARGUMENT, LAUNCH};
use weft::runtime::launch::{
    ArgumentValue, Checked, Elements, Hidden, KernelInfo, Lowering as Lowered, ModuleInfo, Number, ParamKind,
    Space,
};
use weft::{Compiled, Define, KernelFile, Lowering, Options};
use weft_ir::abi::signature;
use weft_layout::{Layout, parse_layout};

const EXAMPLES: [&str; 5] =
    ["all_gather", "allreduce_one_shot", "allreduce_two_shot", "broadcast", "reduce_scatter"];

/// A kernel whose number of rows is known at launch, with eight rows per CTA.
const SCALE: &str = "kernel scale(n: int % 8, by: f32, x: global<f32, (n, 16):(16, 1), align = 16>) \
    block(128) grid(n / 8) {
    let rows = zipped_divide(x, (8, 16))[_, block_idx()];
    let mine = partition(rows, threads<block>());
    for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * by; }
}";

/// A kernel with as many rows as the team has PEs.
const PUSH: &str =
    "kernel push<N: int>(x: symm<i32, (n_pes(team), N):(N, 1)>, sync: barrier, team: team) block(64) {
    barrier(sync, team, acq_rel, sys);
    let row = partition(x[my_pe(team), _], threads());
    for i in 0..size<1>(row) { row[_, i] = row[_, i] + 1; }
}";

fn compile(name: &str, text: &str, lowering: Lowering, n: i64) -> Compiled {
    let file = KernelFile::parse(name, text).unwrap_or_else(|e| panic!("{e}"));
    let mut options = Options::new("sm_90a".parse().unwrap());
    options.lowering = lowering;
    if !file.heads()[0].generics.is_empty() {
        options.defines = [("N".to_owned(), Define::Int(n))].into();
    }
    if file.heads()[0].generics.iter().any(|g| &*g.0 == "T") {
        options.defines.insert("T".into(), Define::parse("f16").unwrap());
    }
    file.compile(&options).unwrap_or_else(|e| panic!("{e}"))
}

fn example(name: &str, lowering: Lowering) -> Compiled {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}.weft"));
    compile(name, &fs::read_to_string(path).unwrap(), lowering, 1000)
}

fn describe(c: &Compiled) -> ModuleInfo {
    c.describe().unwrap()
}

fn layout(text: &str) -> Layout {
    parse_layout(text, &mut |_| None).unwrap()
}

fn tensor(dtype: DType, layout: &Layout) -> ArgumentValue<'_> {
    ArgumentValue::Tensor { address: 0x1000, dtype, extent: Elements::Layout(layout), symmetric: true }
}

const TEAM: ArgumentValue<'static> = ArgumentValue::Team { my_pe: 3, n_pes: 8, handle: 0 };
const SYNC: ArgumentValue<'static> = ArgumentValue::Barrier { address: 0x2000, ctas: 16 };

/// Arguments that fit: with a tensor's own layout, if it is known.
fn fitting<'a>(k: &KernelInfo, layouts: &'a [Layout]) -> Vec<ArgumentValue<'a>> {
    let mut layouts = layouts.iter();
    k.arguments()
        .map(|(_, p)| match &p.kind {
            ParamKind::Tensor { dtype, .. } => tensor(*dtype, layouts.next().unwrap()),
            ParamKind::Team => TEAM,
            ParamKind::Barrier => SYNC,
            other => panic!("{other}"),
        })
        .collect()
}

fn layouts(k: &KernelInfo) -> Vec<Layout> {
    let values = vec![Some(8); k.params.len()];
    let tensors = k.params.iter().filter_map(|p| match &p.kind {
        ParamKind::Tensor { layout, .. } => Some(layout.layout(&values).unwrap()),
        _ => None,
    });
    tensors.collect()
}

#[test]
fn the_description_survives_storing() {
    for name in EXAMPLES {
        for lowering in [Lowering::Multimem, Lowering::Unicast] {
            let info = describe(&example(name, lowering));
            let text = serde_json::to_string_pretty(&info).unwrap();
            assert_eq!(serde_json::from_str::<ModuleInfo>(&text).unwrap(), info, "{text}");
        }
    }
    for (name, text) in [("scale", SCALE), ("push", PUSH)] {
        let info = describe(&compile(name, text, Lowering::Unicast, 12));
        let text = serde_json::to_string(&info).unwrap();
        let back: ModuleInfo = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }
}

#[test]
fn a_description_reads_like_the_kernels_head() {
    let info = describe(&example("allreduce_two_shot", Lowering::Unicast));
    let k = info.kernel("allreduce_two_shot").unwrap();
    let params: Vec<_> = k.params.iter().map(|p| format!("{}: {}", p.name, p.kind)).collect();
    assert_eq!(params[..3], ["x: symm<f16, (1000):(1)>", "sync: barrier", "team: team"]);
    assert!(params[3..].contains(&"x_peers: peers(%0, %2)".to_owned()), "{params:?}");
    assert_eq!((info.target.as_str(), info.lowering, k.block), ("sm_90a", Lowered::Unicast, [512, 1, 1]));
    assert_eq!(info.kernel("all_reduce"), None);
}

#[test]
fn arguments_are_at_the_offsets_of_the_code() {
    for name in EXAMPLES {
        for lowering in [Lowering::Multimem, Lowering::Unicast] {
            let compiled = example(name, lowering);
            let (info, low) = (describe(&compiled), &compiled.low.kernels[0]);
            let k = &info.kernels[0];
            let layouts = layouts(k);
            let checked =
                Checked::new(k, None, &fitting(k, &layouts)).unwrap_or_else(|e| panic!("{name}: {e}"));

            let entries = signature(low).unwrap();
            let end = entries.last().map_or(0, |e| e.offset + e.size);
            assert_eq!(checked.block.len(), end as usize, "{name}");
            for e in &entries {
                let bytes = &checked.block[e.offset as usize..(e.offset + e.size) as usize];
                let source = low.head.params[e.index as usize].source as usize;
                let value = bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
                let want = match &k.params[source].kind {
                    ParamKind::Tensor { .. } => 0x1000,
                    ParamKind::Barrier => 0x2000,
                    ParamKind::Hidden(Hidden::MyPe { .. }) => 3,
                    ParamKind::Hidden(Hidden::NPes { .. }) => 8,
                    // The launcher fills in these parameters.
                    ParamKind::Hidden(Hidden::Multicast { .. } | Hidden::Peers { .. }) => 0,
                    other => panic!("{name}: {other}"),
                };
                assert_eq!(value, want, "{name}: {}", k.params[source].name);
            }
            let tables = lowering == Lowering::Unicast;
            let expected = |what| match what {
                Hidden::Peers { .. } => tables,
                Hidden::Multicast { .. } => !tables,
                _ => false,
            };
            let unfilled = &checked.unfilled;
            assert!(!unfilled.is_empty() && unfilled.iter().all(|u| expected(u.what)), "{name}");
        }
    }
}

#[test]
fn invalid_arguments_are_rejected_with_reasons() {
    let info = describe(&example("allreduce_two_shot", Lowering::Unicast));
    let k = &info.kernels[0];
    let (good, short, spread) = (layout("1000:1"), layout("999:1"), layout("1000:2"));
    let global = ArgumentValue::Tensor {
        address: 0x1000,
        dtype: DType::F16,
        extent: Elements::Flat(1000),
        symmetric: false,
    };
    let odd = ArgumentValue::Tensor {
        address: 0x1001,
        dtype: DType::F16,
        extent: Elements::Layout(&good),
        symmetric: true,
    };
    for (given, says) in [
        (vec![tensor(DType::F16, &good), SYNC], "takes 3 arguments, but 2 were given"),
        (vec![tensor(DType::F16, &good), SYNC, TEAM, TEAM], "takes 3 arguments, but 4 were given"),
        (vec![tensor(DType::BF16, &good), SYNC, TEAM], "its elements are bf16, not f16"),
        (vec![tensor(DType::F16, &short), SYNC, TEAM], "999 elements, not the 1000 of (1000):(1)"),
        (vec![tensor(DType::F16, &spread), SYNC, TEAM], "its layout differs from (1000):(1)"),
        (vec![global, SYNC, TEAM], "it is not in symmetric memory"),
        (vec![odd, SYNC, TEAM], "1 bytes past a multiple of"),
        (vec![SYNC, tensor(DType::F16, &good), TEAM], "barrier for 16 CTAs was given"),
        (vec![tensor(DType::F16, &good), SYNC, SYNC], "`team: team`"),
    ] {
        let e = Checked::new(k, None, &given).unwrap_err();
        assert_eq!(e.code, ARGUMENT);
        assert!(e.message.starts_with("`allreduce_two_shot` takes "), "{e}");
        assert!(e.message.contains(says), "{e}\nlacks: {says}");
    }
    let given = [tensor(DType::F16, &good), SYNC, TEAM];
    let checked = Checked::new(k, None, &given).unwrap();
    assert_eq!(checked.barrier_ctas(), Some(16));
    assert!(checked.fits([16, 1, 1]).is_ok());
    assert_eq!(checked.fits([17, 1, 1]).unwrap_err().code, ARGUMENT);
    assert_eq!(checked.fits([4, 4, 1]).unwrap_err().code, LAUNCH);
    assert_eq!(checked.own_grid(), Ok(None));
}

#[test]
fn extents_and_grids_follow_from_the_arguments() {
    let info = describe(&compile("scale", SCALE, Lowering::Unicast, 0));
    let k = &info.kernels[0];
    assert!(matches!(&k.params[2].kind, ParamKind::Tensor { space: Space::Global, align: 16, .. }));
    let rows = layout("(24,16):(16,1)");
    let number = |value| ArgumentValue::Scalar { dtype: DType::I32, value };
    let given = |n| [number(Number::Int(n)), number(Number::Float(2.0)), tensor(DType::F32, &rows)];
    assert_eq!(Checked::new(k, None, &given(24)).unwrap().own_grid(), Ok(Some([3, 1, 1])));
    let e = Checked::new(k, None, &given(32)).unwrap_err();
    assert!(e.message.contains("384 elements, not the 512 of (32,16):(16,1)"), "{e}");
    assert!(Checked::new(k, None, &given(20)).unwrap_err().message.contains("not a positive multiple of 8"));
    assert!(Checked::new(k, None, &given(0)).unwrap_err().message.contains("not a positive multiple of 8"));

    let info = describe(&compile("push", PUSH, Lowering::Unicast, 12));
    let k = &info.kernels[0];
    let (eight, seven) = (layout("(8,12):(12,1)"), layout("(7,12):(12,1)"));
    assert!(Checked::new(k, None, &[tensor(DType::I32, &eight), SYNC, TEAM]).is_ok());
    let e = Checked::new(k, None, &[tensor(DType::I32, &seven), SYNC, TEAM]).unwrap_err();
    assert!(e.message.contains("84 elements, not the 96 of (8,12):(12,1)"), "{e}");
}
