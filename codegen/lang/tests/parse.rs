//! What parses.

use weft_lang::parse;

const DESIGN: &str = r#"
// Two-shot allreduce, in place: PE p reduces its shard in the switch and broadcasts it.
kernel allreduce_two_shot<T: float, N: int>(x: symm<T, (N):(1)>, sync: barrier, team: team) block(512) {
    let mc    = multicast(x, team);                           // the same layout at the multicast address
    let shard = zipped_divide(mc, ceil_div(N, n_pes(team)));  // (within a shard, PE)
    let work  = partition(shard[_, my_pe(team)], threads());  // (value, step): 16-byte vectors, tail bounded by N

    barrier(sync, team, acq_rel, sys);
    for i in 0..size<1>(work) unroll(4) {
        work[_, i] = ld_reduce<add, acc = f32>(work[_, i]);    // multimem.ld_reduce, multimem.st
    }
    barrier(sync, team, acq_rel, sys);
}
fn tail() {
    let v = ld_reduce<add, acc = f32>(mc[row, _]) + residual[row, _];
    let s = rsqrt(sum<block>(v * v) / H + eps);
    out_mc[row, _] = (v * s * weight).to<T>();
}
"#;

#[test]
fn the_design_sketch_parses() {
    let file = parse(0, DESIGN).unwrap();
    insta::assert_debug_snapshot!(file.items.len(), @"2");
}
