//! Checks that omitted asserts leave no trace: the PTX is equal, byte for byte, to that of the
//! kernel without them.

#![allow(clippy::unwrap_used, reason = "tests")]

use weft::{Compiled, KernelFile, Lowering, Options};

/// A kernel with accesses that are combined, a reduction and a barrier, and with asserts among
/// them.
const TEXT: &str = "kernel k<N: int = 5000>(x: symm<f32, (N):(1)>, y: global<f32, (N):(1)>, sync: barrier, team: team) block(128) {
    let from = partition(x, threads());
    let to = partition(y, threads());
    assert(n_pes(team) > 1, \"there is another PE\");
    barrier(sync, team, acq_rel, sys);
    for i in 0..size<1>(to) unroll(4) {
        assert(i != 7, \"a step\");
        assert(y[i] < 1e30 && atomic<add>(y[0], 0.0) < 1e30, \"elements\");
        to[_, i] = from[_, i] * 2.0;
    }
    let total = sum<block>(y[thread_idx()]);
    assert(total == total, \"a number\");
    if thread_idx() == 0 { y[block_idx()] = total; }
    barrier(sync, team, acq_rel, sys);
}";

fn compile(text: &str, asserts: bool, lowering: Lowering) -> Compiled {
    let mut options = Options::new("sm_90a".parse().unwrap());
    (options.asserts, options.lowering) = (asserts, lowering);
    KernelFile::parse("k.weft", text).unwrap().compile(&options).unwrap()
}

#[test]
fn asserts_that_are_left_out_leave_no_trace() {
    // The other lines keep their positions.
    let is_assert = |line: &str| line.trim_start().starts_with("assert(");
    let without: Vec<_> = TEXT.lines().map(|line| if is_assert(line) { "" } else { line }).collect();
    let without = without.join("\n");
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        let want = compile(&without, true, lowering).ptx;
        assert!(!want.contains("assert"), "{want}");
        let left_out = compile(TEXT, false, lowering).ptx;
        assert!(left_out == want, "{lowering:?}:\n{left_out}\nnot\n{want}");
        let with = compile(TEXT, true, lowering).ptx;
        assert_eq!(with.matches("call.uni __assertfail").count(), 4, "{with}");
    }
}
