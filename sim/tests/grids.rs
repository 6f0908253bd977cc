//! Grids that begin while others run, of several modules; memory that is freed, and memory that is registered.

#![allow(clippy::unwrap_used, reason = "tests")]

use weft_sim::{Arg, Check, Config, Launch, Machine, Module};

/// A thread that waits until a word is what it is told, and one that stores a word, each in a module of its own.
const WAIT: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry wait(.param .u64 flag, .param .u32 value) {
    .reg .b64 %d<2>; .reg .b32 %r<3>; .reg .pred %p<2>;
    ld.param.b64 %d1, [flag];
    ld.param.b32 %r1, [value];
again:
    ld.acquire.sys.global.b32 %r2, [%d1];
    setp.ne.u32 %p1, %r2, %r1;
    @%p1 bra again;
    ret;
}";
const STORE: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry store(.param .u64 to, .param .u32 value) {
    .reg .b64 %d<2>; .reg .b32 %r<2>;
    ld.param.b64 %d1, [to];
    ld.param.b32 %r1, [value];
    st.release.sys.global.b32 [%d1], %r1;
    ret;
}";
const WEAK: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry weak(.param .u64 to, .param .u32 value) {
    .reg .b64 %d<2>; .reg .b32 %r<2>;
    ld.param.b64 %d1, [to];
    ld.param.b32 %r1, [value];
    st.global.b32 [%d1], %r1;
    ret;
}";
/// Copies a word to global memory by the async proxy, and waits only until its source was read.
const BULK: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry bulk(.param .u64 to, .param .u32 value) {
    .reg .b64 %d<2>; .reg .b32 %r<2>;
    .shared .align 16 .b32 s[4];
    ld.param.b64 %d1, [to];
    ld.param.b32 %r1, [value];
    st.shared.b32 [s], %r1;
    fence.proxy.async.shared::cta;
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [s], 16;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group.read 0;
    ret;
}";

/// Lets the grids behind it begin, waits for a flag, and stores a word beside it.
const FIRST: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry first(.param .u64 flag, .param .u32 value) {
    .reg .b64 %d<2>; .reg .b32 %r<3>; .reg .pred %p<2>;
    ld.param.b64 %d1, [flag];
    ld.param.b32 %r1, [value];
    griddepcontrol.launch_dependents;
again:
    ld.acquire.sys.global.b32 %r2, [%d1];
    setp.ne.u32 %p1, %r2, %r1;
    @%p1 bra again;
    st.global.b32 [%d1+4], %r1;
    ret;
}";
/// Sets the flag, waits for the grid in front, and doubles the word.
const SECOND: &str = "
.version 8.0 .target sm_90 .address_size 64
.visible .entry second(.param .u64 flag, .param .u32 value) {
    .reg .b64 %d<2>; .reg .b32 %r<3>;
    ld.param.b64 %d1, [flag];
    ld.param.b32 %r1, [value];
    st.release.sys.global.b32 [%d1], %r1;
    griddepcontrol.wait;
    ld.global.b32 %r2, [%d1+4];
    add.u32 %r2, %r2, %r2;
    st.global.b32 [%d1+4], %r2;
    ret;
}";

fn launch(pe: usize, address: u64, value: u32) -> Launch {
    Launch::default().pe(pe).args(vec![Arg::U64(address), Arg::U32(value)])
}

fn machine(n_pes: usize, check: bool) -> Machine {
    let check = check.then(Check::default);
    Machine::new(Config::default().n_pes(n_pes).check(check).step_limit(1 << 20)).unwrap()
}

#[test]
fn a_grid_that_waits_is_ended_by_one_of_another_module_that_begins_later() {
    let (wait, store) = (Module::parse(WAIT).unwrap(), Module::parse(STORE).unwrap());
    let mut m = machine(2, false);
    let flag = m.alloc_symmetric("flag", 4, 16).unwrap();
    let here = m.local_addr(0, flag).unwrap();
    let there = m.peer_addr(1, flag, 0).unwrap();
    m.write(0, here, &[0; 4]).unwrap();
    let waits = m.begin(&wait, "wait", &launch(0, here, 7), &[]).unwrap();
    // It does not end before something else has ended that is given in the meantime.
    let other = m.begin(&store, "store", &launch(1, there, 3), &[]).unwrap();
    assert_eq!(m.advance().unwrap(), [other]);
    let last = m.begin(&store, "store", &launch(1, there, 7), &[other]).unwrap();
    let mut ended = Vec::new();
    while ended.len() < 2 {
        ended.extend(m.advance().unwrap());
    }
    ended.sort();
    assert_eq!(ended, [waits, last]);
    assert_eq!(m.advance().unwrap(), []);
    let stats = m.settle().unwrap();
    assert!(stats.count("st.release").0 == 2 && stats.lines.is_empty(), "{stats:?}");
    assert!(!m.is_running());
}

#[test]
fn without_it_the_wait_is_a_deadlock_and_the_machine_goes_on_afterwards() {
    let (wait, store) = (Module::parse(WAIT).unwrap(), Module::parse(STORE).unwrap());
    let mut m = machine(1, false);
    let flag = m.alloc(0, "flag", 4, 16).unwrap();
    m.write(0, flag, &[0; 4]).unwrap();
    m.begin(&wait, "wait", &launch(0, flag, 7), &[]).unwrap();
    assert_eq!(m.advance().unwrap_err().code, "S008");
    assert!(!m.is_running());
    m.launch(&store, "store", &[launch(0, flag, 5)]).unwrap();
    let mut word = [0; 4];
    m.read(0, flag, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 5);
}

#[test]
fn grids_without_an_order_race_and_those_behind_each_other_do_not() {
    let weak = [Module::parse(WEAK).unwrap(), Module::parse(WEAK).unwrap()];
    for ordered in [false, true] {
        let mut m = machine(1, true);
        let to = m.alloc(0, "to", 4, 16).unwrap();
        let first = m.begin(&weak[0], "weak", &launch(0, to, 1), &[]).unwrap();
        let after = if ordered { vec![first] } else { Vec::new() };
        m.begin(&weak[1], "weak", &launch(0, to, 2), &after).unwrap();
        while !m.advance().unwrap().is_empty() {}
        m.settle().unwrap();
        let codes: Vec<_> = m.take_findings().iter().map(|f| f.code).collect();
        assert_eq!(codes, if ordered { vec![] } else { vec!["S030"] }, "ordered: {ordered}");
    }
}

/// The first grid waits for what the second one does before its wait, and the second one sees what the first one stored.
#[test]
fn a_grid_that_is_let_begins_early_and_waits_itself() {
    let first = Module::parse(FIRST).unwrap();
    let (second, weak) = (Module::parse(SECOND).unwrap(), Module::parse(WEAK).unwrap());
    let without = Module::parse(&SECOND.replace("    griddepcontrol.wait;\n", "")).unwrap();
    for (code, codes) in [(&second, vec![]), (&without, vec!["S030"])] {
        let mut found = Vec::new();
        for seed in 0..10 {
            let check = Some(Check::default());
            let config = Config::default().seed(seed).check(check).step_limit(1 << 20);
            let mut m = Machine::new(config).unwrap();
            let words = m.alloc(0, "words", 8, 16).unwrap();
            m.write(0, words, &[0; 8]).unwrap();
            let a = m.begin(&first, "first", &launch(0, words, 5), &[]).unwrap();
            let b = m.begin_early(code, "second", &launch(0, words, 5), &[], Some(a)).unwrap();
            // Behind the second in the usual way, and so behind the first.
            m.begin(&weak, "weak", &launch(0, words, 9), &[b]).unwrap();
            while !m.advance().unwrap().is_empty() {}
            m.settle().unwrap();
            let mut read = [0; 8];
            m.read(0, words, &mut read).unwrap();
            if codes.is_empty() {
                assert_eq!(read, [9, 0, 0, 0, 10, 0, 0, 0], "seed {seed}");
            }
            let findings = m.take_findings();
            assert!(findings.iter().all(|f| f.help.contains("wait_dependencies")), "{findings:?}");
            found.extend(findings.iter().map(|f| f.code));
        }
        found.dedup();
        assert_eq!(found, codes);
    }
    // One that is not let waits for ever for the first, which waits for it.
    let mut m = machine(1, false);
    let words = m.alloc(0, "words", 8, 16).unwrap();
    m.write(0, words, &[0; 8]).unwrap();
    let a = m.begin(&first, "first", &launch(0, words, 5), &[]).unwrap();
    m.begin(&second, "second", &launch(0, words, 5), &[a]).unwrap();
    assert_eq!(m.advance().unwrap_err().code, "S008");
}

/// While another PE's grid goes on.
#[test]
fn what_a_grid_has_copied_is_there_when_it_has_ended() {
    let (wait, bulk) = (Module::parse(WAIT).unwrap(), Module::parse(BULK).unwrap());
    let store = Module::parse(STORE).unwrap();
    for seed in 0..20 {
        let config = Config::default().n_pes(2).seed(seed).step_limit(1 << 20);
        let mut m = Machine::new(config).unwrap();
        let [flag, to] = [0, 1].map(|pe| m.alloc(pe, "words", 16, 16).unwrap());
        m.write(0, flag, &[0; 4]).unwrap();
        let waits = m.begin(&wait, "wait", &launch(0, flag, 1), &[]).unwrap();
        let copies = m.begin(&bulk, "bulk", &launch(1, to, 7), &[]).unwrap();
        assert_eq!(m.advance().unwrap(), [copies]);
        let mut word = [0; 4];
        m.read(1, to, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), 7, "seed {seed}");
        let ends = m.begin(&store, "store", &launch(0, flag, 1), &[]).unwrap();
        let mut ended = Vec::new();
        while ended.len() < 2 {
            ended.extend(m.advance().unwrap());
        }
        ended.sort();
        assert_eq!(ended, [waits, ends]);
        m.settle().unwrap();
    }
}

#[test]
fn freed_memory_is_given_again_and_holds_poison() {
    let mut m = Machine::new(Config::default().memory_limit(1 << 20)).unwrap();
    for round in 0..100_u8 {
        let (a, b) = (m.alloc_symmetric("a", 100_000, 256).unwrap(), m.alloc(0, "b", 77_777, 256).unwrap());
        let a_here = m.local_addr(0, a).unwrap();
        let mut bytes = [round; 100];
        m.read(0, a_here + 99_000, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff; 100], "round {round}");
        m.write(0, a_here, &vec![round; 100_000]).unwrap();
        m.write(0, b, &vec![round; 77_777]).unwrap();
        m.free_symmetric(a).unwrap();
        m.free(0, b).unwrap();
        assert!(m.read(0, a_here, &mut bytes).is_err() && m.free(0, b).is_err());
    }
    // A hole between two others.
    let [a, b, c] = [1000, 2000, 3000].map(|n| m.alloc(0, "x", n, 16).unwrap());
    m.free(0, b).unwrap();
    assert_eq!(m.alloc(0, "y", 1900, 16).unwrap(), b);
    assert!(a < b && b < c && m.alloc(0, "z", 2000, 16).unwrap() > c);
}

#[test]
fn registered_memory_is_one_memory_at_two_addresses() {
    let store = Module::parse(STORE).unwrap();
    let mut m = machine(2, false);
    let own = m.alloc(1, "own", 4096, 4096).unwrap();
    m.write(1, own + 8, &[5; 4]).unwrap();
    let heap = m.alloc_symmetric("heap", 4096, 4096).unwrap();
    m.register(1, own, heap).unwrap();
    let at = m.local_addr(1, heap).unwrap();
    let mut word = [0; 4];
    m.read(1, at + 8, &mut word).unwrap();
    assert_eq!(word, [5; 4]);
    // PE 0 stores through the heap, PE 1 reads its own.
    m.launch(&store, "store", &[launch(0, m.peer_addr(0, heap, 1).unwrap() + 12, 9)]).unwrap();
    m.read(1, own + 12, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 9);
    assert_eq!(
        m.peer_of(0, m.local_addr(0, heap).unwrap() + 4, 1).unwrap(),
        m.peer_addr(0, heap, 1).unwrap() + 4
    );
    m.unregister(1, own).unwrap();
    m.free_symmetric(heap).unwrap();
    m.read(1, own + 12, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 9);
}
