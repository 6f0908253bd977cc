//! NVSHMEM's functions used wrongly, and waits that never end: what is reported, and where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/calls.rs"]
mod calls;
#[path = "common/host.rs"]
mod host;

use calls::{Kernel, kernel, launch, longs, machine_of};
use host::{failure, symmetric};
use proptest::prelude::*;
use weft_sim::{Config, Machine, Module, SimError, nvshmem_functions};

/// Runs a kernel on two PEs that must fail: `%a0` is a symmetric array `x` of 8 longs, `%a1` private memory `y`
/// of 64 bytes, `%a2` the handle of a team of PE 1 alone, `%w0` the PE.
fn fault(threads: u32, code: &str, write: impl FnOnce(&mut Kernel)) -> SimError {
    let module = kernel(3, |k| {
        k.call("nvshmem_my_pe", &[], "%w0");
        write(k);
    });
    let mut m = machine_of(2, 0);
    let x = symmetric(&mut m, "x", |_| longs(&[0; 8]));
    let y: Vec<u64> = (0..2).map(|pe| m.alloc(pe, "y", 64, 16).unwrap()).collect();
    let team = m.team(&[1]).unwrap();
    failure(
        launch(&mut m, &module, threads, |m, pe| {
            vec![m.local_addr(pe, x).unwrap(), y[pe], team.handle() as u64]
        }),
        code,
    )
}

/// The fault of one call by one thread.
fn call(name: &str, args: &[&str], code: &str) -> SimError {
    fault(1, code, |k| {
        k.line("cvt.u32.u64 %w9, %a2;").call(name, args, "");
    })
}

#[test]
fn places_are_named() {
    let e = call("nvshmem_putmem", &["%a1", "%a0", "8", "1"], "S013");
    let at = e.at.clone().unwrap();
    assert_eq!((at.cta, at.thread, at.ptx_line), ([0; 3], Some([0; 3]), 38));
    assert_eq!(at.ptx_text, "call.uni nvshmem_putmem, (param0, param1, param2, param3);");
    // Which PE comes first is the seed's business.
    let text = e.to_string().replace(&format!("{:#x}", address(&e)), "ADDRESS").replace("PE 1", "PE 0");
    assert_eq!(
        text,
        "error[S013]: `dst` of `nvshmem_putmem`: `y`+0 (ADDRESS; 64 bytes, private memory of PE 0) is not symmetric
  at PE 0, CTA (0, 0, 0), thread (0, 0, 0) of `k`
  --> PTX line 38: call.uni nvshmem_putmem, (param0, param1, param2, param3);
  = help: pass the PE's own address of an object on the symmetric heap, and the target PE as a separate argument"
    );
}

/// The address in a message.
fn address(e: &SimError) -> u64 {
    let digits = e.message.split("0x").nth(1).unwrap().split(';').next().unwrap();
    u64::from_str_radix(digits, 16).unwrap()
}

#[test]
fn faults_of_one_call() {
    let cases: &[(&str, &[&str], &str, &str)] = &[
        (
            "nvshmem_putmem",
            &["0", "%a0", "8", "1"],
            "S002",
            "`dst` of `nvshmem_putmem`: 0x0 is a null pointer",
        ),
        (
            "nvshmem_putmem",
            &["%a0", "0", "8", "1"],
            "S002",
            "`src` of `nvshmem_putmem`: 0x0 is a null pointer",
        ),
        ("nvshmem_putmem", &["%a0", "%a1", "65", "1"], "S003", "65 bytes at `x`+0"),
        (
            "nvshmem_putmem_nbi",
            &["%a0", "%a1", "-1", "1"],
            "S013",
            "18446744073709551615 elements of 1 bytes are more",
        ),
        ("nvshmem_put64", &["%a0", "%a1", "9", "1"], "S003", "72 bytes at `x`+0"),
        ("nvshmem_uint64_get", &["%a0", "%a1", "1", "1"], "S013", "`src` of `nvshmem_uint64_get`: `y`+0"),
        ("nvshmem_uint64_get_nbi", &["0", "%a0", "1", "1"], "S002", "`dst` of `nvshmem_uint64_get_nbi`"),
        (
            "nvshmem_putmem",
            &["%a0", "%a1", "8", "2"],
            "S013",
            "`nvshmem_putmem`: PE 2 does not exist: the number of PEs is 2",
        ),
        ("nvshmem_putmem", &["%a0", "%a1", "8", "-1"], "S013", "PE -1 does not exist"),
        ("nvshmem_uint64_p", &["%a0", "1", "7"], "S013", "PE 7 does not exist"),
        ("nvshmem_int_atomic_add", &["%a1", "1", "0"], "S013", "`dst` of `nvshmem_int_atomic_add`: `y`+0"),
        ("nvshmem_float_atomic_fetch", &["%a1", "0"], "S013", "`src` of `nvshmem_float_atomic_fetch`: `y`+0"),
        ("nvshmem_uint64_iput", &["%a0", "%a1", "2", "1", "5", "1"], "S003", "72 bytes at `x`+0"),
        ("nvshmem_uint64_iget", &["%a1", "%a0", "0", "1", "5", "1"], "S013", "`dst_stride` is 0"),
        ("nvshmem_uint64_iput", &["%a0", "%a1", "1", "-3", "5", "1"], "S013", "`src_stride` is -3"),
        ("nvshmemx_signal_op", &["%a0", "1", "8", "1"], "S013", "`signal_op` is 8"),
        ("nvshmemx_signal_op", &["%a1", "1", "9", "1"], "S013", "`signal` of `nvshmemx_signal_op`: `y`+0"),
        ("nvshmem_putmem_signal", &["%a0", "%a0", "8", "%a1", "1", "9", "1"], "S013", "`signal` of"),
        ("nvshmem_signal_wait_until", &["%a1", "0", "1"], "S013", "`signal` of"),
        ("nvshmem_signal_wait_until", &["%a0", "6", "1"], "S013", "`cmp` is 6"),
        ("nvshmem_int_wait_until", &["%a1", "0", "1"], "S013", "`ivar` of `nvshmem_int_wait_until`: `y`+0"),
        ("nvshmem_int_test_all", &["%a0", "17", "0", "0", "1"], "S003", "68 bytes at `x`+0"),
        ("nvshmem_team_n_pes", &["8"], "S013", "`nvshmem_team_n_pes`: 8 is not a team"),
        ("nvshmem_barrier", &["3"], "S013", "3 is not a team"),
        ("nvshmem_team_sync", &["-1"], "S013", "the team is NVSHMEM_TEAM_INVALID"),
        (
            "nvshmem_float_sum_reduce",
            &["0", "%a1", "%a0", "1"],
            "S013",
            "`dst` of `nvshmem_float_sum_reduce`",
        ),
        ("nvshmem_alltoallmem", &["0", "%a0", "%a0", "33"], "S003", "66 bytes at `x`+0"),
        (
            "nvshmem_broadcastmem",
            &["0", "%a0", "%a0", "8", "2"],
            "S013",
            "root 2 is not a PE of the team, which has 2",
        ),
    ];
    for (name, args, code, text) in cases {
        let e = call(name, args, code);
        assert!(e.message.contains(text), "{e}");
        assert!(e.message.contains(&format!("`{name}`")), "{e}");
        assert!(!e.help.is_empty(), "{e}");
    }
    let e = fault(1, "S013", |k| {
        k.line("cvt.u32.u64 %w9, %a2;").call("nvshmem_barrier", &["%w9"], "");
    });
    assert!(e.message.contains("PE 0 is not in the team [1]"), "{e}");
}

#[test]
fn faults_of_addresses() {
    // Misaligned for the type; bytes are not.
    let e = fault(1, "S004", |k| {
        k.line("add.u64 %x0, %a0, 2;").call("nvshmem_float_put", &["%x0", "%a1", "1", "1"], "");
    });
    assert!(
        e.message.contains("`dst` of `nvshmem_float_put` is `x`+2") && e.message.contains("not aligned to 4"),
        "{e}"
    );
    let e = fault(1, "S004", |k| {
        k.line("add.u64 %x0, %a1, 8;").call("nvshmem_put128", &["%a0", "%x0", "1", "1"], "");
    });
    assert!(e.message.contains("`src` of `nvshmem_put128` is `y`+8"), "{e}");
    // A peer's address, a multicast address.
    let e = fault(1, "S013", |k| {
        k.line("xor.b32 %w1, %w0, 1;").call("nvshmem_ptr", &["%a0", "%w1"], "%x0");
        k.call("nvshmem_uint64_p", &["%x0", "1", "%w1"], "");
    });
    assert!(e.message.contains("is already an address of a peer's memory"), "{e}");
    let e = fault(1, "S013", |k| {
        k.call("nvshmemx_mc_ptr", &["0", "%a0"], "%x0").call("nvshmem_uint64_p", &["%x0", "1", "0"], "");
    });
    assert!(e.message.contains("is a multicast address"), "{e}");
    // Shared memory may be a source, but not beyond its end; local memory not of a CTA's put.
    let shared = ".shared .align 8 .b8 s[16]; cvta.shared.u64 %x0, s;";
    let e = fault(1, "S003", |k| {
        k.line(shared).call("nvshmem_putmem", &["%a0", "%x0", "24", "0"], "");
    });
    assert!(e.message.contains("24 bytes at shared offset 0x0 are out of bounds (size 16)"), "{e}");
    let e = fault(1, "S013", |k| {
        k.line(shared).call("nvshmem_getmem", &["%x0", "%a0", "8", "0"], "");
    });
    assert!(e.message.contains("`dst` is in shared memory"), "{e}");
    let local = ".local .align 8 .b8 l[16]; cvta.local.u64 %x0, l;";
    let e = fault(32, "S013", |k| {
        k.line(local).call("nvshmemx_putmem_block", &["%a0", "%x0", "16", "0"], "");
    });
    assert!(e.message.contains("`src` is in one thread's local memory"), "{e}");
    let e = fault(1, "S013", |k| {
        k.line("add.u64 %x0, %a0, 4;").call("nvshmem_int_sum_reduce", &["0", "%a0", "%x0", "4"], "");
    });
    assert!(e.message.contains("overlap in part"), "{e}");
    let e = fault(1, "S013", |k| {
        k.line("add.u64 %x0, %a0, 16;").call("nvshmem_int_max_reducescatter", &["0", "%x0", "%a0", "4"], "");
    });
    assert!(e.message.contains("overlap in part"), "{e}");
}

#[test]
fn threads_of_one_call_agree() {
    let e = fault(64, "S013", |k| {
        k.line("mov.u32 %w1, %tid.x; shr.u32 %w1, %w1, 5;");
        k.call("nvshmemx_putmem_block", &["%a0", "%a1", "8", "%w1"], "");
    });
    assert!(
        e.message.contains("`nvshmemx_putmem_block`: `pe` differs between the threads of a CTA: "),
        "{e}"
    );
    let e = fault(32, "S013", |k| {
        k.line("mov.u32 %w1, %tid.x; cvt.u64.u32 %x1, %w1; add.u64 %x1, %x1, %a1;");
        k.call("nvshmemx_putmem_warp", &["%a0", "%x1", "8", "1"], "");
    });
    assert!(e.message.contains("`src` differs between the threads of a warp"), "{e}");
    assert!(e.message.contains("in thread (0, 0, 0)") && e.message.contains("in thread (1, 0, 0)"), "{e}");
    // Two functions at a time in one CTA.
    let e = fault(64, "S013", |k| {
        k.line("mov.u32 %w1, %tid.x; setp.lt.u32 %p1, %w1, 32; @%p1 bra LOW;");
        k.call("nvshmemx_putmem_block", &["%a0", "%a1", "8", "1"], "");
        k.line("bra DONE;\nLOW:");
        k.call("nvshmemx_barrier_all_block", &[], "");
        k.line("DONE:");
    });
    assert!(e.message.contains("of the same CTA is in `nvshmemx_"), "{e}");
}

#[test]
fn calls_of_part_of_a_group_stall() {
    // Half a warp.
    let e = fault(32, "S007", |k| {
        k.line("mov.u32 %w1, %tid.x; setp.lt.u32 %p1, %w1, 16; @%p1 bra DONE;");
        k.call("nvshmemx_putmem_warp", &["%a0", "%a1", "8", "1"], "");
        k.line("DONE: bar.warp.sync 0xffffffff;");
    });
    assert!(e.notes.iter().any(|n| n.contains("waits for lanes 0x0000ffff of its warp")), "{e}");
    // Threads that have ended; a last warp that is not full.
    let e = fault(64, "S013", |k| {
        k.line("mov.u32 %w1, %tid.x; setp.eq.u32 %p1, %w1, 40; @%p1 bra DONE;");
        k.call("nvshmemx_putmem_block", &["%a0", "%a1", "8", "1"], "");
        k.line("DONE:");
    });
    assert!(
        e.message.contains("the CTA has 63 running threads, but NVSHMEM divides the work among 64"),
        "{e}"
    );
    let e = fault(40, "S013", |k| {
        k.call("nvshmemx_putmem_warp", &["%a0", "%a1", "8", "1"], "");
    });
    assert!(
        e.message.contains("the warp has 8 running threads, but NVSHMEM divides the work among 32"),
        "{e}"
    );
    // A CTA of which one warp waits at another barrier.
    let e = fault(96, "S008", |k| {
        k.line("mov.u32 %w1, %tid.x; setp.lt.u32 %p1, %w1, 32; @%p1 bra LOW;");
        k.call("nvshmemx_putmem_block", &["%a0", "%a1", "8", "1"], "");
        k.line("LOW: bar.sync 0;");
    });
    let wanted = "in `nvshmemx_putmem_block` for the other threads of its CTA (64 of 96 have arrived)";
    assert!(e.notes.iter().any(|n| n.contains("warps 1 to 2") && n.contains(wanted)), "{e}");
    assert!(e.at.unwrap().ptx_text.contains("nvshmemx_putmem_block"));
}

#[test]
fn waits_for_memory_that_nobody_writes() {
    let e = fault(1, "S008", |k| {
        k.line("setp.eq.u32 %p1, %w0, 1; @%p1 bra ONE;");
        k.call("nvshmem_signal_wait_until", &["%a0", "5", "3"], "%x0");
        k.line("bra DONE;\nONE:");
        k.call("nvshmemx_signal_op", &["%a0", "2", "9", "0"], "");
        k.line("DONE:");
    });
    assert_eq!(e.at.as_ref().unwrap().pe, 0);
    let note = &e.notes[0];
    assert!(
        note.starts_with("PE 0 CTA (0, 0, 0) warp 0: waits in `nvshmem_signal_wait_until` until `x`+0 (0x"),
        "{note}"
    );
    assert!(note.contains("64 bytes, symmetric heap of PE 0) >= 3; now holds 2, PTX line "), "{note}");
    let e = fault(1, "S008", |k| {
        k.line("st.global.v2.b64 [%a0], {4, 9};");
        k.call("nvshmem_int64_wait_until_any", &["%a0", "6", "0", "4", "-1"], "%x0");
    });
    assert!(e.notes[0].contains("waits in `nvshmem_int64_wait_until_any` until any of 6 at `x`+0"), "{e}");
    assert!(e.notes[0].contains("< -1; now hold 4, 9, 0, 0, ..., PTX line"), "{e}");
    // The element that is missing.
    let e = fault(1, "S008", |k| {
        k.line("st.global.v2.b64 [%a0], {4, 4};");
        k.call("nvshmem_int64_wait_until_all", &["%a0", "6", "0", "0", "4"], "");
    });
    assert!(e.notes[0].contains("until `x`+16") && e.notes[0].contains("= 4; now holds 0"), "{e}");
    // Values of one PE's that overtook each other.
    let overtaken = (0..20).any(|seed| {
        let module = kernel(1, |k| {
            k.call("nvshmem_my_pe", &[], "%w0").line("setp.eq.u32 %p1, %w0, 1; @%p1 bra ONE;");
            k.call("nvshmem_signal_wait_until", &["%a0", "0", "2"], "");
            k.call("nvshmem_signal_wait_until", &["%a0", "0", "9"], "").line("bra DONE;\nONE:");
            for value in ["1", "2"] {
                k.call("nvshmemx_signal_op", &["%a0", value, "9", "0"], "");
            }
            k.line("DONE:");
        });
        let mut m = machine_of(2, seed);
        let x = symmetric(&mut m, "x", |_| longs(&[0]));
        let e = failure(launch(&mut m, &module, 1, |m, pe| vec![m.local_addr(pe, x).unwrap()]), "S008");
        e.notes[0].contains(
            "= 9; now holds 1 (PE 1 set it to 1 and then to 2, and 2 arrived first: there is no fence between them), PTX",
        )
    });
    assert!(overtaken);
    // A loop of the program's own.
    let e = fault(1, "S008", |k| {
        k.line("SPIN:");
        k.call("nvshmem_signal_fetch", &["%a0"], "%x0");
        k.line("setp.eq.u64 %p1, %x0, 0; @%p1 bra SPIN;");
    });
    assert!(e.notes[0].contains("polls `x`+0"), "{e}");
}

#[test]
fn collective_calls_agree() {
    let differ = |zero: fn(&mut Kernel), one: fn(&mut Kernel), code: &str| {
        fault(1, code, |k| {
            k.line("setp.eq.u32 %p1, %w0, 1; @%p1 bra ONE;");
            zero(k);
            k.line("bra DONE;\nONE:");
            one(k);
            k.line("DONE:");
        })
    };
    let e = differ(
        |k| {
            k.call("nvshmem_barrier_all", &[], "");
        },
        |k| {
            k.call("nvshmem_sync_all", &[], "");
        },
        "S013",
    );
    assert!(
        e.message.contains("of the same team, but PE") && e.message.contains("`nvshmem_barrier_all`"),
        "{e}"
    );
    assert!(e.message.contains("`nvshmem_sync_all`"), "{e}");
    let e = differ(
        |k| {
            k.call("nvshmem_int_fcollect", &["0", "%a0", "%a0", "2"], "");
        },
        |k| {
            k.call("nvshmem_int_fcollect", &["0", "%a0", "%a0", "3"], "");
        },
        "S013",
    );
    assert!(
        e.message.contains("`count` is ") && e.message.contains("on PE 0") && e.message.contains("on PE 1"),
        "{e}"
    );
    let e = differ(
        |k| {
            k.call("nvshmem_int_broadcast", &["0", "%a0", "%a0", "2", "0"], "");
        },
        |k| {
            k.call("nvshmem_int_broadcast", &["0", "%a0", "%a0", "2", "1"], "");
        },
        "S013",
    );
    assert!(e.message.contains("`root` is "), "{e}");
    let e = differ(
        |k| {
            k.call("nvshmem_int_sum_reduce", &["0", "%a0", "%a0", "2"], "");
        },
        |k| {
            k.line("add.u64 %x0, %a0, 8;").call("nvshmem_int_sum_reduce", &["0", "%a0", "%x0", "2"], "");
        },
        "S013",
    );
    assert!(e.message.contains("`src (offset on the heap)` is "), "{e}");
    // One does not come.
    let e = differ(
        |k| {
            k.call("nvshmem_barrier_all", &[], "");
        },
        |_| {},
        "S008",
    );
    let wanted = "PE 0 CTA (0, 0, 0) warp 0: waits in `nvshmem_barrier_all` for PE 1 of team [0, 1], which has not called it";
    assert!(e.notes[0].starts_with(wanted), "{e}");
    // Two threads of one PE at once.
    let e = fault(2, "S013", |k| {
        k.call("nvshmem_barrier_all", &[], "");
    });
    assert!(e.message.contains("is already in `nvshmem_barrier_all` of the same team [0, 1]"), "{e}");
}

/// A wrong prototype or call is an error at its line, before anything runs.
#[test]
fn prototypes_are_checked() {
    let parse = |text: &str| {
        Module::parse(&format!(".version 8.8\n.target sm_90a\n.address_size 64\n{text}"))
            .expect_err("it is wrong")
    };
    let e = parse(
        ".extern .func nvshmem_putmem\n(\n.param .b64 a, .param .b64 b, .param .b32 c, .param .b32 d\n)\n;",
    );
    assert_eq!((e.code.as_str(), e.line), ("P005", 4));
    assert_eq!(
        e.message,
        "`nvshmem_putmem` has parameters of (8, 8, 8, 4) bytes and returns (), not (8, 8, 4, 4) and ()"
    );
    assert_eq!(e.help, "declare the function with the parameters (dst, src, count, pe)");
    let e = parse(".extern .func (.param .b64 r) nvshmem_my_pe\n()\n;");
    assert!(e.message.contains("returns (4), not () and (8)"), "{e}");
    // Integers narrower than 32 bits are widened, half-precision values are structures.
    parse(".extern .func nvshmem_int8_p(.param .b64 a, .param .b8 b, .param .b32 c);");
    parse(".extern .func nvshmem_half_p(.param .b64 a, .param .b32 b, .param .b32 c);");
    let e = parse(
        ".visible .entry k() {\n.param .b64 p0;\n.param .b64 p1;\ncall nvshmem_team_my_pe, (p0);\nret;\n}",
    );
    assert_eq!((e.code.as_str(), e.line), ("P005", 7));
    // A function that is not there is told apart by its name.
    let e = parse(
        ".extern .func nvshmem_frobnicate();\n.visible .entry k() {\ncall nvshmem_frobnicate;\nret;\n}",
    );
    assert_eq!((e.code.as_str(), e.line), ("P007", 6));
    assert!(e.help.contains("NVSHMEM"), "{e}");
}

/// NVSHMEM's `alltoall`, `broadcast` and `fcollect` do not wait for the CTA's other threads before they read.
#[test]
fn sources_of_collectives_are_ready() {
    let write = |k: &mut Kernel, ready: bool, name: &str| {
        k.line("mov.u32 %w1, %tid.x; mul.wide.u32 %x0, %w1, 4; and.b64 %x0, %x0, 60; add.u64 %x0, %x0, %a0;");
        k.line("st.global.b32 [%x0], %w1;");
        if ready {
            k.line("bar.sync 0;");
        }
        k.line("add.u64 %x1, %a0, 32;");
        match name {
            "nvshmemx_int_broadcast_block" => k.call(name, &["0", "%x1", "%a0", "8", "1"], ""),
            _ => k.call(name, &["0", "%x1", "%a0", "2"], ""),
        };
    };
    for name in ["nvshmemx_int_alltoall_block", "nvshmemx_int_broadcast_block", "nvshmemx_int_fcollect_block"]
    {
        let e = fault(128, "S013", |k| write(k, false, name));
        assert!(e.message.contains("`src` changed after thread ("), "{e}");
        assert!(e.help.contains("put a CTA barrier before the call"), "{e}");
        // With a barrier it is well: the fault is another one, made on purpose.
        let e = fault(128, "S010", |k| {
            write(k, true, name);
            k.line("trap;");
        });
        assert_eq!(e.message, "the program executed `trap`");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a function is given, the launch ends or fails; nothing panics, nothing is written elsewhere.
    #[test]
    fn any_arguments(
        which in any::<prop::sample::Index>(),
        args in proptest::collection::vec(0..20_usize, 7),
        seed in 0..1000_u64,
    ) {
        let f = which.get(&nvshmem_functions().collect::<Vec<_>>()).to_owned();
        let values = [
            "0", "1", "2", "3", "5", "9", "10", "-1", "-2", "0x7fffffffffffffff", "0x8000000000000000", "0xffffffff",
            "0x80000000", "%a0", "%a0", "%a0", "%x1", "%a1", "%x2", "%x3",
        ];
        let module = kernel(3, |k| {
            k.line(".shared .align 16 .b8 s[64]; cvta.shared.u64 %x2, s; add.u64 %x1, %a0, 8; mov.b64 %x3, 0x200000008;");
            k.line("mov.b64 %x9, 0; mov.b16 %h0, 3;");
            let mut list = Vec::new();
            for (i, (&size, &a)) in f.params().iter().zip(&args).enumerate() {
                let value = values[a];
                match size {
                    8 => k.line(&format!("mov.b64 %x{}, {value};", 20 + i)),
                    _ if value.starts_with('%') => k.line(&format!("cvt.u32.u64 %w{}, {value};", 20 + i)),
                    _ => k.line(&format!("mov.b64 %x9, {value}; cvt.u32.u64 %w{}, %x9;", 20 + i)),
                };
                list.push(match size {
                    8 => format!("%x{}", 20 + i),
                    4 => format!("%w{}", 20 + i),
                    _ => "%h0".to_string(),
                });
            }
            let list: Vec<&str> = list.iter().map(String::as_str).collect();
            k.call(f.name(), &list, "");
        });
        let mut m = Machine::new(Config::default().n_pes(2).seed(seed).step_limit(200_000)).unwrap();
        let guard = symmetric(&mut m, "guard", |_| vec![0x5a; 64]);
        let x = symmetric(&mut m, "x", |_| longs(&[3; 8]));
        let other = symmetric(&mut m, "other", |_| vec![0x5a; 64]);
        let y: Vec<u64> = (0..2).map(|pe| m.alloc(pe, "y", 64, 16).unwrap()).collect();
        let _ = launch(&mut m, &module, 32, |m, pe| vec![m.local_addr(pe, x).unwrap(), y[pe], 0]);
        for (pe, what) in [(0, guard), (1, guard), (0, other), (1, other)] {
            let mut bytes = vec![0; 64];
            m.read(pe, m.local_addr(pe, what).unwrap(), &mut bytes).unwrap();
            prop_assert_eq!(bytes, vec![0x5a; 64]);
        }
    }
}
