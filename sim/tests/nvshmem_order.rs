//! When remote operations land: never before it is legal that they do not, never after it is not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/calls.rs"]
mod calls;
#[path = "common/host.rs"]
mod host;

use calls::{Kernel, kernel, launch, longs, machine_of, read_longs};
use host::symmetric;
use proptest::prelude::*;
use weft_sim::{Machine, Stats};

/// Runs PE 0's part and PE 1's, with `%a0` a symmetric array (64 longs of 0 on PE 1, 1, 2, ... on PE 0), `%a1` a
/// symmetric signal and `%a2` an array of 64 longs for results, and returns the machine and PE 1's results.
fn pair(
    seed: u64,
    zero: impl FnOnce(&mut Kernel),
    one: impl FnOnce(&mut Kernel),
) -> (Machine, Vec<u64>, Stats) {
    let module = kernel(3, |k| {
        k.call("nvshmem_my_pe", &[], "%w0").line("setp.ne.u32 %p0, %w0, 0; @%p0 bra ONE;");
        zero(k);
        k.line("bra END;\nONE:");
        one(k);
        k.line("END:");
    });
    let mut m = machine_of(2, seed);
    let x = symmetric(&mut m, "x", |pe| {
        longs(&(0..64).map(|i| if pe == 0 { i + 1 } else { 0 }).collect::<Vec<_>>())
    });
    let signal = symmetric(&mut m, "signal", |_| longs(&[0; 8]));
    let out = m.alloc(1, "out", 512, 8).unwrap();
    let stats = launch(&mut m, &module, 1, |m, pe| {
        let at = |s| m.local_addr(pe, s).unwrap();
        vec![at(x), at(signal), if pe == 1 { out } else { 0 }]
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let results = read_longs(&m, 1, out, 64);
    (m, results, stats)
}

/// PE 1 waits for the signal and looks at elements 0 and 63.
fn look(k: &mut Kernel) {
    k.call("nvshmem_signal_wait_until", &["%a1", "5", "1"], "%x0");
    k.line("ld.global.b64 %x1, [%a0]; ld.global.b64 %x2, [%a0+504]; st.global.v2.b64 [%a2], {%x1, %x2};");
}

/// Over many seeds: whether all of the data was there, some of it, none.
fn outcomes(zero: impl Fn(&mut Kernel)) -> [usize; 3] {
    let mut count = [0; 3];
    for seed in 0..60 {
        let (_, got, _) = pair(seed, &zero, look);
        let there = usize::from(got[0] == 1) + usize::from(got[1] == 64);
        count[2 - there] += 1;
    }
    count
}

const SIGNAL: &[&str] = &["%a1", "1", "9", "1"];
const COPY: &[&str] = &["%a0", "%a0", "512", "1"];

#[test]
fn data_and_signal_without_a_fence() {
    // A blocking put may land behind the signal, in whole or in part.
    let [all, some, none] = outcomes(|k| {
        k.call("nvshmem_putmem", COPY, "").call("nvshmemx_signal_op", SIGNAL, "");
    });
    assert!(all > 5 && some > 3 && none > 3, "{all} {some} {none}");
    // A non-blocking one always does: nothing makes it land.
    let [all, some, none] = outcomes(|k| {
        k.call("nvshmem_putmem_nbi", COPY, "").call("nvshmemx_signal_op", SIGNAL, "");
    });
    assert_eq!([all, some, none], [0, 0, 60]);
}

#[test]
fn what_orders_data_and_signal() {
    for put in ["nvshmem_putmem", "nvshmem_putmem_nbi"] {
        for order in ["nvshmem_fence", "nvshmem_quiet"] {
            let all = outcomes(|k| {
                k.call(put, COPY, "").call(order, &[], "").call("nvshmemx_signal_op", SIGNAL, "");
            });
            assert_eq!(all, [60, 0, 0], "{put} {order}");
            // By a fetching AMO, a put of the flag, a plain store to the peer.
            let all = outcomes(|k| {
                k.call(put, COPY, "").call(order, &[], "");
                k.call("nvshmem_uint64_atomic_swap", &["%a1", "1", "1"], "");
            });
            assert_eq!(all, [60, 0, 0], "{put} {order}");
            let all = outcomes(|k| {
                k.call(put, COPY, "").call(order, &[], "").call("nvshmem_uint64_p", &["%a1", "1", "1"], "");
            });
            assert_eq!(all, [60, 0, 0], "{put} {order}");
            let all = outcomes(|k| {
                k.call(put, COPY, "").call(order, &[], "").call("nvshmem_ptr", &["%a1", "1"], "%x9");
                k.line("st.release.sys.global.b64 [%x9], 1;");
            });
            assert_eq!(all, [60, 0, 0], "{put} {order}");
            // In the switch: to all PEs at once.
            let all = outcomes(|k| {
                k.call(put, COPY, "").call(order, &[], "").call("nvshmemx_mc_ptr", &["0", "%a1"], "%x9");
                k.line("multimem.red.release.sys.global.add.u64 [%x9], 1;");
            });
            assert_eq!(all, [60, 0, 0], "{put} {order}");
        }
    }
    let signalled = &["%a0", "%a0", "512", "%a1", "1", "10", "1"];
    for put in ["nvshmem_putmem_signal", "nvshmem_putmem_signal_nbi"] {
        let all = outcomes(|k| {
            k.call(put, signalled, "");
        });
        assert_eq!(all, [60, 0, 0], "{put}");
    }
}

/// A fence orders what goes to the same PE only, and completes nothing.
#[test]
fn a_fence_is_no_quiet() {
    for (order, first) in [("nvshmem_fence", 99), ("nvshmemx_flush", 1), ("nvshmem_quiet", 1)] {
        let (m, ..) = pair(
            5,
            |k| {
                k.call("nvshmem_putmem_nbi", COPY, "").call(order, &[], "");
                k.line("st.global.b64 [%a0], 99;");
            },
            |_| {},
        );
        let x = m.peer_addr(0, x_of(&m), 1).unwrap();
        assert_eq!(read_longs(&m, 0, x, 1), [first], "{order}");
    }
}

/// The first symmetric allocation of `pair`.
fn x_of(m: &Machine) -> weft_sim::Symmetric {
    // Allocated first by every `pair`, so another machine's serves.
    let mut other = machine_of(m.config().n_pes, 0);
    other.alloc_symmetric("x", 512, 16).unwrap()
}

#[test]
fn sources_of_blocking_puts_are_read_at_once() {
    for seed in 0..30 {
        let (m, ..) = pair(
            seed,
            |k| {
                k.call("nvshmem_putmem", COPY, "")
                    .line("st.global.b64 [%a0], 99; st.global.b64 [%a0+504], 99;");
            },
            |_| {},
        );
        let x = read_longs(&m, 0, m.peer_addr(0, x_of(&m), 1).unwrap(), 64);
        assert_eq!((x[0], x[63]), (1, 64));
    }
}

#[test]
fn non_blocking_gets_need_a_quiet() {
    let get: &[&str] = &["%a2", "%a0", "512", "0"];
    for (completes, value) in [
        ("", u64::MAX),
        ("nvshmem_fence", u64::MAX),
        ("nvshmem_sync_all", u64::MAX),
        ("nvshmem_quiet", 1),
        ("nvshmem_barrier_all", 1),
    ] {
        let meets = completes.ends_with("_all");
        let (_, got, stats) = pair(
            9,
            |k| {
                if meets {
                    k.call(completes, &[], "");
                }
            },
            |k| {
                k.call("nvshmem_getmem_nbi", get, "");
                if !completes.is_empty() {
                    k.call(completes, &[], "");
                }
                k.line("ld.global.b64 %x0, [%a2]; st.global.b64 [%a2+504], %x0;");
                k.call("nvshmem_quiet", &[], "");
            },
        );
        // The get itself has overwritten element 63 unless it landed before.
        if value == 1 {
            assert_eq!(got[63], 1, "{completes}");
        } else {
            assert_eq!(got[63], 64, "{completes}");
        }
        assert_eq!(got[0], 1);
        assert_eq!(stats.nvshmem.unfinished, 0);
    }
}

#[test]
fn the_end_of_the_kernel_completes_nothing_but_is_counted() {
    let (m, _, stats) = pair(
        3,
        |k| {
            k.call("nvshmem_putmem_nbi", COPY, "");
        },
        |_| {},
    );
    assert!(stats.nvshmem.unfinished > 0);
    assert_eq!(read_longs(&m, 0, m.peer_addr(0, x_of(&m), 1).unwrap(), 1), [1]);
}

/// A peer that waits for non-blocking data without a signal gets it, some day.
#[test]
fn operations_land_when_nobody_can_go_on() {
    let (_, got, _) = pair(
        4,
        |k| {
            k.call("nvshmem_putmem_nbi", COPY, "");
        },
        |k| {
            k.call("nvshmem_uint64_wait_until", &["%a0", "0", "1"], "");
            k.line("st.global.b64 [%a2], 7;");
        },
    );
    assert_eq!(got[0], 7);
    // Also for one that polls, and counts while it does.
    let (_, got, _) = pair(
        4,
        |k| {
            k.call("nvshmem_putmem_nbi", COPY, "");
        },
        |k| {
            k.line("mov.b64 %x2, 0;\nSPIN:\nadd.u64 %x2, %x2, 1;");
            k.call("nvshmem_uint64_test", &["%a0", "0", "1"], "%w1");
            k.line("setp.eq.u32 %p1, %w1, 0; @%p1 bra SPIN;\nst.global.b64 [%a2], 7;");
        },
    );
    assert_eq!(got[0], 7);
}

/// Two puts to the same place come in any order, unless a fence is between them.
#[test]
fn puts_overtake_each_other() {
    let last = |seed, fence: bool| {
        let (m, ..) = pair(
            seed,
            |k| {
                k.line("add.u64 %x0, %a0, 8;").call("nvshmem_put64_nbi", &["%a0", "%a0", "1", "1"], "");
                if fence {
                    k.call("nvshmem_fence", &[], "");
                }
                k.call("nvshmem_put64_nbi", &["%a0", "%x0", "1", "1"], "").call("nvshmem_quiet", &[], "");
            },
            |_| {},
        );
        read_longs(&m, 0, m.peer_addr(0, x_of(&m), 1).unwrap(), 1)[0]
    };
    let seen = |fence| (0..40).map(|seed| last(seed, fence)).collect::<std::collections::BTreeSet<_>>();
    assert_eq!(seen(false).into_iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(seen(true).into_iter().collect::<Vec<_>>(), [2]);
}

#[test]
fn the_seed_decides() {
    let program = |k: &mut Kernel| {
        k.call("nvshmem_putmem", COPY, "").call("nvshmemx_signal_op", SIGNAL, "");
    };
    let run = |seed| pair(seed, program, look).1;
    let all: Vec<Vec<u64>> = (0..20).map(run).collect();
    assert_eq!(all, (0..20).map(run).collect::<Vec<_>>());
    assert!(all.windows(2).any(|w| w[0] != w[1]));
}

// A model of the rules, against random programs.

const WORDS: usize = 6;

#[derive(Debug, Clone)]
enum Step {
    /// `count` words from `at`, of the source array.
    Put {
        at: usize,
        count: usize,
        nbi: bool,
        signal: bool,
    },
    P {
        at: usize,
    },
    /// Changes the source array's words.
    Source {
        at: usize,
    },
    Fence,
    Quiet,
    Signal,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let put = (0..WORDS, 1..=WORDS, any::<bool>(), 0..4).prop_map(|(at, count, nbi, s)| Step::Put {
        at,
        count: count.min(WORDS - at),
        nbi,
        signal: s == 0,
    });
    let step = prop_oneof![
        4 => put,
        2 => (0..WORDS).prop_map(|at| Step::P { at }),
        2 => (0..WORDS).prop_map(|at| Step::Source { at }),
        2 => Just(Step::Fence),
        1 => Just(Step::Quiet),
        2 => Just(Step::Signal),
    ];
    proptest::collection::vec(step, 1..14)
}

/// A write of a word: which values it may bring, and what it lands behind.
#[derive(Debug)]
struct Write {
    word: usize,
    values: Vec<u64>,
    epoch: usize,
    /// The signal that lands behind it.
    signal: Option<usize>,
    open: bool,
}

struct Model {
    writes: Vec<Write>,
    /// Epochs of signals in order.
    signals: Vec<usize>,
}

impl Model {
    /// Runs the program in the mind.
    fn new(program: &[Step]) -> Model {
        let (mut writes, mut signals): (Vec<Write>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut source = [0; WORDS];
        let (mut epoch, mut fresh) = (0, 100);
        for step in program {
            match *step {
                Step::Put { at, count, nbi, signal } => {
                    let behind = signal.then_some(signals.len());
                    for (word, value) in source.iter().enumerate().skip(at).take(count) {
                        let values = vec![*value];
                        writes.push(Write { word, values, epoch, signal: behind, open: nbi });
                    }
                    if signal {
                        signals.push(epoch);
                    }
                }
                Step::P { at } => {
                    fresh += 1;
                    writes.push(Write { word: at, values: vec![fresh], epoch, signal: None, open: false });
                }
                Step::Source { at } => {
                    fresh += 1;
                    source[at] = fresh;
                    // Non-blocking puts under way may bring this value instead.
                    for w in writes.iter_mut().filter(|w| w.word == at && w.open) {
                        w.values.push(fresh);
                    }
                }
                Step::Fence => epoch += 1,
                Step::Quiet => {
                    epoch += 1;
                    writes.iter_mut().for_each(|w| w.open = false);
                }
                Step::Signal => signals.push(epoch),
            }
        }
        Model { writes, signals }
    }

    /// The values word `word` may have once signals up to `seen` have been seen (all has landed, if `None`).
    fn allowed(&self, word: usize, seen: Option<usize>) -> Vec<u64> {
        let landed = |w: &Write| match seen {
            None => true,
            Some(last) => (0..=last).any(|s| w.epoch < self.signals[s] || w.signal == Some(s)),
        };
        let mine = || self.writes.iter().filter(|w| w.word == word);
        let hidden = |w: &Write| mine().any(|later| later.epoch > w.epoch && landed(later));
        let mut out: Vec<u64> = mine().filter(|w| !hidden(w)).flat_map(|w| w.values.clone()).collect();
        if !mine().any(landed) {
            out.push(0);
        }
        out
    }
}

/// Runs a program on PE 0; PE 1 takes a snapshot of the words at every signal. Returns these, and the words at last.
fn execute(program: &[Step], seed: u64) -> (Vec<Vec<u64>>, Vec<u64>) {
    let mut signals = 0;
    let mut fresh = 100;
    let module = kernel(4, |k| {
        k.call("nvshmem_my_pe", &[], "%w0").line("setp.ne.u32 %p0, %w0, 0; @%p0 bra ONE;");
        for step in program {
            match *step {
                Step::Put { at, count, nbi, signal } => {
                    let name = format!(
                        "nvshmem_put64{}{}",
                        if signal { "_signal" } else { "" },
                        if nbi { "_nbi" } else { "" }
                    );
                    k.line(&format!("add.u64 %x0, %a0, {}; add.u64 %x1, %a1, {};", at * 8, at * 8));
                    let count = count.to_string();
                    if signal {
                        k.line(&format!("add.u64 %x2, %a2, {};", signals * 8));
                        signals += 1;
                        k.call(&name, &["%x0", "%x1", &count, "%x2", "1", "9", "1"], "");
                    } else {
                        k.call(&name, &["%x0", "%x1", &count, "1"], "");
                    }
                }
                Step::P { at } => {
                    fresh += 1;
                    k.line(&format!("add.u64 %x0, %a0, {};", at * 8));
                    k.call("nvshmem_uint64_p", &["%x0", &fresh.to_string(), "1"], "");
                }
                Step::Source { at } => {
                    fresh += 1;
                    k.line(&format!("st.global.b64 [%a1+{}], {fresh};", at * 8));
                }
                Step::Fence => {
                    k.call("nvshmem_fence", &[], "");
                }
                Step::Quiet => {
                    k.call("nvshmem_quiet", &[], "");
                }
                Step::Signal => {
                    k.line(&format!("add.u64 %x2, %a2, {};", signals * 8));
                    signals += 1;
                    k.call("nvshmemx_signal_op", &["%x2", "1", "9", "1"], "");
                }
            }
        }
        k.line("bra END;\nONE:");
        for s in 0..signals {
            k.line(&format!("add.u64 %x2, %a2, {};", s * 8));
            k.call("nvshmem_signal_wait_until", &["%x2", "0", "1"], "");
            for w in 0..WORDS {
                let at = (s * WORDS + w) * 8;
                k.line(&format!(
                    "ld.volatile.global.b64 %x3, [%a0+{}]; st.global.b64 [%a3+{at}], %x3;",
                    w * 8
                ));
            }
        }
        k.line("END:");
    });
    let mut m = machine_of(2, seed);
    let x = symmetric(&mut m, "x", |_| longs(&[0; WORDS]));
    let source = symmetric(&mut m, "source", |_| longs(&[0; WORDS]));
    let signal = symmetric(&mut m, "signal", |_| longs(&[0; 16]));
    let log = m.alloc(1, "log", 16 * WORDS as u64 * 8, 8).unwrap();
    launch(&mut m, &module, 1, |m, pe| {
        let at = |s| m.local_addr(pe, s).unwrap();
        vec![at(x), at(source), at(signal), log]
    })
    .unwrap_or_else(|e| panic!("{e}"));
    let all = read_longs(&m, 1, log, signals * WORDS);
    let last = read_longs(&m, 1, m.local_addr(1, x).unwrap(), WORDS);
    (all.chunks(WORDS).map(<[u64]>::to_vec).collect(), last)
}

fn check(program: &[Step], seed: u64) -> Result<(), TestCaseError> {
    let model = Model::new(program);
    let (snapshots, last) = execute(program, seed);
    prop_assert_eq!(snapshots.len(), model.signals.len());
    for (s, words) in snapshots.iter().enumerate() {
        for (word, value) in words.iter().enumerate() {
            let allowed = model.allowed(word, Some(s));
            prop_assert!(allowed.contains(value), "word {word} is {value} at signal {s}, not of {allowed:?}");
        }
    }
    for (word, value) in last.iter().enumerate() {
        let allowed = model.allowed(word, None);
        prop_assert!(allowed.contains(value), "word {word} is {value} at last, not of {allowed:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_obey_the_model(program in steps(), seed in any::<u64>()) {
        check(&program, seed)?;
    }
}

/// The simulator is as free as the model: over many seeds every value that is allowed is seen.
#[test]
fn all_that_is_allowed_happens() {
    let program = [
        Step::Put { at: 0, count: 2, nbi: false, signal: false },
        Step::P { at: 0 },
        Step::Source { at: 1 },
        Step::Put { at: 1, count: 1, nbi: true, signal: true },
        Step::Source { at: 1 },
        Step::Signal,
        Step::Fence,
        Step::P { at: 2 },
        Step::Signal,
    ];
    let model = Model::new(&program);
    for s in 0..model.signals.len() {
        for word in 0..3 {
            let mut seen: Vec<u64> = (0..300).map(|seed| execute(&program, seed).0[s][word]).collect();
            seen.sort_unstable();
            seen.dedup();
            let mut allowed = model.allowed(word, Some(s));
            allowed.sort_unstable();
            allowed.dedup();
            assert_eq!(seen, allowed, "word {word} at signal {s}");
        }
    }
}
