//! Timelines: what warps do and wait for, what is under way, and that they are bounded.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use weft_sim::{Activity, Arg, Config, Launch, Machine, Module, Trace, TraceConfig};

/// PE 0 works, then raises PE 1's flag; PE 1's thread 0 polls for it while its other warp waits at the barrier.
const PTX: &str = ".version 8.6 .target sm_90 .address_size 64
.visible .entry flag(.param .u64 own, .param .u64 peer, .param .u32 pe) {
.reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .pred %p<4>;
ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [peer]; ld.param.u32 %r1, [pe];
mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0; @%p1 bra done;
setp.ne.u32 %p2, %r1, 0; @%p2 bra wait;
mov.u32 %r3, 0;
work: add.u32 %r3, %r3, 1; setp.lt.u32 %p3, %r3, 2000; @%p3 bra work;
st.release.sys.global.u32 [%rd2], 1;
bra done;
wait: ld.acquire.sys.global.u32 %r4, [%rd1]; setp.eq.u32 %p3, %r4, 0; @%p3 bra wait;
done: bar.sync 0;
ret; }";

fn run(trace: Option<TraceConfig>, launches: usize) -> Trace {
    let module = Module::parse(PTX).unwrap();
    let mut machine = Machine::new(Config::default().n_pes(2).trace(trace)).unwrap();
    for _ in 0..launches {
        let flag = machine.alloc_symmetric("flag", 4, 16).unwrap();
        let mut grids = Vec::new();
        for pe in 0..2 {
            let own = machine.local_addr(pe, flag).unwrap();
            machine.write(pe, own, &[0; 4]).unwrap();
            let peer = machine.peer_addr(pe, flag, 1 - pe).unwrap();
            let args = vec![Arg::U64(own), Arg::U64(peer), Arg::U32(pe as u32)];
            grids.push(Launch::default().pe(pe).block([64, 1, 1]).args(args));
        }
        machine.launch(&module, "flag", &grids).unwrap();
    }
    machine.take_trace()
}

#[test]
fn waits_have_a_name_and_a_length() {
    let trace = run(Some(TraceConfig::default()), 1);
    let waits = |pe: usize, warp: u32| -> Vec<(String, u64)> {
        let of = trace.spans.iter().filter(|s| (s.pe, s.warp) == (pe, warp));
        let waiting = |s: &weft_sim::TraceSpan| match &s.activity {
            Activity::Waiting { what, .. } => Some((what.to_string(), s.end - s.start)),
            Activity::Running => None,
        };
        of.filter_map(waiting).collect()
    };
    let poll = waits(1, 0);
    assert!(poll.iter().any(|(what, time)| what == "polls flag+0" && *time > 4000), "{poll:?}");
    for pe in 0..2 {
        let other = waits(pe, 1);
        assert!(other.iter().any(|(what, time)| what == "barrier 0" && *time > 4000), "{other:?}");
    }
    assert!(!waits(0, 0).iter().any(|(what, _)| what.starts_with("polls")), "{:?}", waits(0, 0));
    let detail = trace.spans.iter().find_map(|s| match &s.activity {
        Activity::Waiting { what, detail } if what.starts_with("polls") => Some(detail.clone()),
        _ => None,
    });
    assert!(detail.unwrap().contains("PTX line 11"));
    // The flag's 4 bytes went from PE 0 to PE 1.
    assert_eq!(trace.traffic.last().map(|t| (t.pe, t.bytes)), Some((0, 4)));
}

#[test]
fn each_warp_does_one_thing_at_a_time() {
    let trace = run(Some(TraceConfig::default()), 3);
    for pe in 0..2 {
        for warp in 0..2 {
            let of = trace.spans.iter().filter(|s| (s.pe, s.warp) == (pe, warp));
            let mut end = 0;
            let mut launches = 0;
            for s in of {
                assert!(s.start >= end && s.end > s.start && s.end <= trace.end, "{s:?} after {end}");
                launches += usize::from(s.start > end);
                end = s.end;
            }
            assert!(launches <= 3, "PE {pe} warp {warp}: gaps are between launches alone");
        }
    }
    assert_eq!(trace.dropped, 0);
}

#[test]
fn it_is_bounded_and_off_unless_asked_for() {
    assert_eq!(run(None, 1), Trace::default());
    let all = run(Some(TraceConfig::default()), 4);
    let few = run(Some(TraceConfig::default().limit(5)), 4);
    assert_eq!(few.spans.len(), 5);
    assert_eq!(few.spans[..], all.spans[..5]);
    assert!(few.dropped as usize >= all.spans.len() - 5, "{}", few.dropped);
    assert_eq!(few.end, all.end);
}
