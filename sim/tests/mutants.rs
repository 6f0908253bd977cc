//! What compilers made, with one instruction left out or changed: the checks say what is missing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/foreign.rs"]
mod gpu;

use gpu::{Gpu, data, module};
use half::{bf16, f16};
use weft_sim::{Arg, Check, Config, Machine, Swizzle, TensorType};

const SM80: &str = include_str!("ptx/nvrtc/gemm_sm80.sm_80.ptx");
const SM90: &str = include_str!("ptx/nvrtc/gemm_sm90.sm_90a.ptx");
const TRITON: &str = include_str!("ptx/triton/matmul_f16.sm_90.ptx");

/// The kernel `entry` with the `n`th instruction that contains `what` replaced.
fn mutant(text: &str, entry: &str, what: &str, n: usize, by: &str) -> String {
    let start = text.find(&format!(".entry {entry}")).unwrap();
    let (at, _) =
        text[start..].match_indices(what).nth(n).unwrap_or_else(|| panic!("no `{what}` in {entry}"));
    let line = text[..start + at].rfind('\n').unwrap() + 1;
    let end = line + text[line..].find(';').unwrap() + 1;
    format!("{}{by}{}", &text[..line], &text[end..])
}

/// Codes of what is found, in some schedules.
fn found(run: impl Fn(&mut Gpu) -> Result<weft_sim::Stats, weft_sim::SimError>) -> Vec<&'static str> {
    let mut codes = Vec::new();
    for seed in 0..6 {
        let config = Config::default().seed(seed).check(Some(Check::default())).step_limit(3_000_000);
        let mut g = Gpu { machine: Machine::new(config).unwrap() };
        codes.extend(run(&mut g).err().map(|e| e.code.as_str()));
        codes.extend(g.machine.take_findings().iter().map(|f| f.code.as_str()));
    }
    codes.sort_unstable();
    codes.dedup();
    codes
}

/// `gemm_f16` of 64 x 64 x 128.
fn gemm_f16(text: &str) -> Vec<&'static str> {
    let module = module(text);
    found(|g| {
        let (pa, pb) = (g.put(&data::<f16>(64 * 128, 1, 6)), g.put(&data::<f16>(64 * 128, 2, 6)));
        let out = g.room::<f32>(64 * 64);
        let args = vec![Arg::U64(pa), Arg::U64(pb), Arg::U64(out), Arg::I32(64), Arg::I32(64), Arg::I32(128)];
        g.try_run(&module, "gemm_f16", ([1, 1, 1], [128, 1, 1], 0), args)
    })
}

/// `gemm_tma` of 64 x 128 x 320.
fn gemm_tma(text: &str) -> Vec<&'static str> {
    let module = module(text);
    found(|g| {
        let (m, n, k) = (64, 128, 320);
        let (pa, pb) = (g.put(&data::<bf16>(m * k, 1, 6)), g.put(&data::<bf16>(n * k, 2, 6)));
        let out = g.room::<bf16>(m * n);
        let map = |at, shape, boxes, swizzle| gpu::map(TensorType::Bf16, at, shape, boxes, swizzle);
        let args = vec![
            map(pa, (m, k), (64, 64), Swizzle::B128),
            map(pb, (n, k), (128, 64), Swizzle::B128),
            map(out, (m, n), (64, 64), Swizzle::None),
            Arg::I32(k as i32),
        ];
        g.try_run(&module, "gemm_tma", ([1, 1, 1], [160, 1, 1], 91136), args)
    })
}

/// Triton's `matmul` of 64 x 64 x 128.
fn triton(text: &str) -> Vec<&'static str> {
    let module = module(text);
    found(|g| {
        let (pa, pb) = (g.put(&data::<f16>(64 * 128, 1, 6)), g.put(&data::<f16>(64 * 128, 2, 6)));
        let out = g.room::<f16>(64 * 64);
        let mut args = [pa, pb, out].map(Arg::U64).to_vec();
        args.extend([64, 64, 128, 128, 128, 64].map(Arg::I32));
        args.extend([Arg::U64(0), Arg::U64(0)]);
        g.try_run(&module, "matmul", ([1, 1, 1], [128, 1, 1], 24576), args)
    })
}

/// What is left out or changed, and the code that says so.
fn each(text: &str, entry: &str, run: fn(&str) -> Vec<&'static str>, list: &[(&str, usize, &str, &str)]) {
    assert_eq!(run(text), Vec::<&str>::new(), "{entry} as it was compiled");
    for (what, n, by, code) in list {
        let codes = run(&mutant(text, entry, what, *n, by));
        assert!(codes.contains(code), "{entry} without `{what}` ({n}): {codes:?}, not {code}");
    }
}

#[test]
fn copies_and_matrix_loads() {
    each(
        SM80,
        "gemm_f16",
        gemm_f16,
        &[
            // The copies of others are not waited for; a stage is filled while others read it.
            ("bar.sync", 0, "", "S035"),
            ("bar.sync", 1, "", "S035"),
            ("cp.async.wait_group", 0, "", "S035"),
            ("cp.async.wait_all", 0, "", "S035"),
            ("cp.async.commit_group", 1, "", "S035"),
        ],
    );
}

#[test]
fn tensor_copies_and_warpgroups() {
    let one = "wgmma.wait_group.sync.aligned 1;";
    each(
        SM90,
        "gemm_tma",
        gemm_tma,
        &[
            ("fence.proxy.async.shared::cta", 0, "", "S033"),
            ("bar.sync 1, 128", 0, "", "S030"),
            ("bar.sync \t0", 0, "", "S014"),
            ("wgmma.wait_group", 0, one, "S035"),
            ("wgmma.commit_group", 0, "", "S035"),
            ("wgmma.fence", 0, "", "S011"),
            ("mbarrier.arrive.shared::cta", 0, "", "S008"),
            ("mbarrier.arrive.expect_tx", 0, "", "S008"),
        ],
    );
}

#[test]
fn a_compilers_pipeline() {
    each(
        TRITON,
        "matmul",
        triton,
        &[
            // What cp.async has written, wgmma reads through another proxy.
            ("fence.proxy.async", 0, "", "S033"),
            ("bar.sync", 0, "", "S035"),
            ("cp.async.wait_group", 0, "", "S035"),
            ("wgmma.wait_group", 0, "", "S035"),
            ("wgmma.wait_group", 1, "", "S011"),
        ],
    );
}
