//! Jobs whose PEs are threads.

use std::net::TcpListener;
use std::sync::atomic::AtomicU32;

use socket2::{Domain, SockAddr, Socket, Type};

use super::super::door::STRANGER;
use super::super::env::{self, Hub as Address, Launcher};
use super::super::{Admission, Secret};
use super::*;
use crate::error::{Code, LAUNCHER};

const FAST: Options = Options { timeout: Duration::from_millis(600), grace: None, reports: false };
const SLOW: Options = Options { timeout: Duration::from_secs(20), grace: None, reports: false };

fn places(size: u32) -> Vec<ProcessRank> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let job = format!("test {} {}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
    let hub = Address::Local(env::local_name(&job));
    let place = |rank| ProcessRank {
        rank,
        size,
        local_rank: Some(rank),
        local_size: Some(size),
        hub: hub.clone(),
        job: job.clone(),
        launcher: Launcher::Variables,
        admission: Admission::SameUser,
    };
    (0..size).map(place).collect()
}

/// What every PE of a job returns, by rank.
fn job<T: Send>(places: &[ProcessRank], options: Options, pe: impl Fn(&Control) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let start = |place| {
            let pe = &pe;
            scope.spawn(move || pe(&Control::connect_with(place, options).unwrap()))
        };
        let pes: Vec<_> = places.iter().map(start).collect();
        pes.into_iter().map(|pe| pe.join().unwrap()).collect()
    })
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> (Code, String) {
    let error = result.unwrap_err();
    (error.code, error.message)
}

fn within<T>(bound: Duration, body: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = body();
    assert!(start.elapsed() < bound, "took {:?}, bound {bound:?}", start.elapsed());
    result
}

#[test]
fn everybody_gets_everybodys_payload() {
    for size in [1, 2, 7] {
        let all: Vec<u32> = (0..size).collect();
        let results = job(&places(size), SLOW, |control| {
            let mut got = Vec::new();
            for round in 0..20u32 {
                // Lengths differ by PE and round.
                let payload = vec![(control.rank() + round) as u8; (control.rank() * round) as usize];
                got.push(control.exchange(&all, &format!("round {round}"), &payload).unwrap());
            }
            control.goodbye();
            got
        });
        for rounds in results {
            for (round, payloads) in (0..).zip(rounds) {
                let expected: Vec<Vec<u8>> =
                    (0..size).map(|pe| vec![(pe + round) as u8; (pe * round) as usize]).collect();
                assert_eq!(payloads, expected);
            }
        }
    }
}

#[test]
fn the_patient_wait_beyond_the_bound() {
    let results = job(&places(3), FAST, |control| {
        if control.rank() == 2 {
            thread::sleep(FAST.timeout * 3);
        }
        let met = match control.rank() {
            2 => control.exchange(&[0, 1, 2], "at last", &[]),
            _ => control.exchange_patiently(&[0, 1, 2], "at last", &[]),
        };
        control.goodbye();
        met.map(|all| all.len())
    });
    assert_eq!(results, [Ok(3), Ok(3), Ok(3)]);
}

/// With `WEFT_WATCH=report` a host waits in an exchange beyond the limit, but not for the start.
#[test]
fn reports_go_on_beyond_the_bound() {
    let results = job(&places(3), FAST.reports(true), |control| {
        let began = Instant::now();
        if control.rank() == 2 {
            thread::sleep(FAST.timeout * 3);
        }
        let met = control.exchange(&[0, 1, 2], "at last", &[control.rank() as u8; 3]);
        let asked = control.ask();
        control.exchange(&[0, 1, 2], "end", &[]).unwrap();
        control.goodbye();
        (met, began.elapsed() >= FAST.timeout * 3, asked.iter().flatten().count())
    });
    let met = Ok((0..3).map(|pe| vec![pe; 3]).collect());
    assert_eq!(results, [(met.clone(), true, 3), (met.clone(), true, 3), (met, true, 3)]);

    let alone = &places(2)[0];
    let (code, message) = code(within(FAST.timeout * 4, || Control::connect_with(alone, FAST.reports(true))));
    assert_eq!(code, BOOTSTRAP);
    assert!(message.contains("PE 1 did not arrive within 0.6 s"), "{message}");
}

#[test]
fn groups_overlap_and_run_side_by_side() {
    let results = job(&places(4), SLOW, |control| {
        let pair: &[u32] = if control.rank() < 2 { &[0, 1] } else { &[2, 3] };
        let odd = [1, 3];
        let rank = control.rank() as u8;
        thread::scope(|scope| {
            let inner = scope.spawn(|| control.exchange(pair, "pair", &[rank]).unwrap());
            if control.rank() % 2 == 1 {
                assert_eq!(control.exchange(&odd, "odd", &[rank]).unwrap(), [[1], [3]]);
            }
            let inner = inner.join().unwrap();
            control.exchange(&[0, 1, 2, 3], "all", &[]).unwrap();
            control.goodbye();
            inner
        })
    });
    assert_eq!(results, [[[0], [1]], [[0], [1]], [[2], [3]], [[2], [3]]]);
}

#[test]
fn calls_that_differ_are_told_to_all_and_the_next_one_works() {
    let all = [0, 1, 2];
    let results = job(&places(3), SLOW, |control| {
        let what = if control.rank() == 1 { "free #3" } else { "alloc 4096 B (src/main.rs:10)" };
        let wrong = control.exchange(&all, what, b"x");
        let right = control.exchange(&all, "barrier", &[control.rank() as u8]);
        control.goodbye();
        (wrong, right)
    });
    for (wrong, right) in results {
        let message = "the PEs made different calls: PEs 0, 2: alloc 4096 B (src/main.rs:10); PE 1: free #3";
        assert_eq!(code(wrong), (COLLECTIVE, message.into()));
        assert_eq!(right.unwrap(), [[0], [1], [2]]);
    }
}

#[test]
fn who_does_not_come_is_named_and_where_it_is() {
    let results = job(&places(4), FAST, |control| {
        let result = match control.rank() {
            0 | 3 => within(FAST.timeout * 4, || control.exchange(&[0, 1, 2, 3], "barrier", &[])),
            1 => control.exchange(&[1, 2], "split", &[]),
            _ => {
                thread::sleep(FAST.timeout * 3 / 2);
                // It is too late for both, and learns so at once.
                let split = within(FAST.timeout / 2, || control.exchange(&[1, 2], "split", &[]));
                assert!(code(split).1.starts_with("PE 2 did not arrive within 0.6 s; PE 1: split"));
                within(FAST.timeout / 2, || control.exchange(&[0, 1, 2, 3], "barrier", &[]))
            }
        };
        if control.rank() == 1 {
            thread::sleep(FAST.timeout * 3 / 2);
        }
        control.goodbye();
        result
    });
    let messages: Vec<_> = results.into_iter().map(code).collect();
    assert!(messages.iter().all(|m| m.0 == COLLECTIVE), "{messages:?}");
    let barrier = "PEs 1, 2 did not arrive within 0.6 s; PEs 0, 3: barrier";
    assert!(messages[0].1.starts_with(barrier), "{messages:?}");
    assert_eq!(messages[0], messages[3]);
    assert_eq!(messages[0], messages[2]);
    assert!(messages[1].1.starts_with("PE 2 did not arrive within 0.6 s; PE 1: split"), "{messages:?}");
}

#[test]
fn a_death_ends_all_exchanges() {
    let results = job(&places(3), SLOW, |control| {
        if control.rank() == 1 {
            // Returns, and its connection closes.
            return None;
        }
        let pending = within(Duration::from_secs(5), || control.exchange(&[0, 1, 2], "barrier", &[]));
        let later = within(Duration::from_secs(1), || control.exchange(&[0, 2], "barrier", &[]));
        Some((code(pending), code(later), control.died()))
    });
    let message = "PE 1 ended: its process ended before the job did".to_string();
    for (pending, later, died) in results.into_iter().flatten() {
        assert_eq!(pending, (PEER_DIED, message.clone()));
        assert_eq!(later, pending);
        assert_eq!(died, Some((1, "its process ended before the job did".into())));
    }
}

#[test]
fn the_hubs_death_is_a_death() {
    let results = job(&places(3), SLOW, |control| match control.rank() {
        0 => None,
        _ => Some(code(within(Duration::from_secs(5), || control.exchange(&[0, 1, 2], "barrier", &[])))),
    });
    for result in results.into_iter().skip(1) {
        let (code, message) = result.unwrap();
        assert_eq!(code, PEER_DIED);
        assert!(message.starts_with("PE 0 ended: "), "{message}");
    }
}

#[test]
fn a_failure_is_told_in_its_own_words() {
    for failing in 0..3 {
        let results = job(&places(3), SLOW, |control| {
            if control.rank() == failing {
                control.fail("error[R0302]: out of memory");
            }
            code(control.exchange(&[0, 1, 2], "alloc", &[]))
        });
        for result in results {
            assert_eq!(result, (PEER_DIED, format!("PE {failing} ended: error[R0302]: out of memory")));
        }
    }
}

#[test]
fn one_that_left_is_not_waited_for() {
    let results = job(&places(2), SLOW, |control| {
        if control.rank() == 1 {
            control.goodbye();
            return code(control.exchange(&[0, 1], "late", &[]));
        }
        let result = within(Duration::from_secs(5), || control.exchange(&[0, 1], "more", &[]));
        control.goodbye();
        code(result)
    });
    assert_eq!(results[0], (COLLECTIVE, "PE 1 already left the job; PE 0: more".into()));
    assert_eq!(results[1].0, FINALIZED);
}

#[test]
fn members_are_checked_here() {
    let results = job(&places(2), SLOW, |control| {
        let wrong: [&[u32]; 5] = [&[], &[1 - control.rank()], &[1, 0], &[0, 0, 1], &[0, 1, 2]];
        let codes: Vec<Code> = wrong.iter().map(|m| code(control.exchange(m, "x", &[])).0).collect();
        let huge = vec![0; wire::MAX_FRAME];
        let too_much = code(control.exchange(&[0, 1], "huge", &huge));
        // Each of these fits, and the answer does not.
        let half = code(control.exchange(&[0, 1], "half", &huge[..wire::MAX_FRAME / 2]));
        let after = control.exchange(&[0, 1], "after", &[]).map(|payloads| payloads.len());
        control.goodbye();
        (codes, too_much.0, half, after)
    });
    for (codes, too_much, half, after) in results {
        assert_eq!(codes, [NOT_IN_TEAM; 5]);
        assert_eq!((too_much, half.0, after), (COLLECTIVE, COLLECTIVE, Ok(2)));
        assert!(half.1.ends_with("the limit is 67108864; PEs 0, 1: half"), "{}", half.1);
    }
}

#[test]
fn a_pe_that_never_starts_is_named() {
    let places = places(3);
    thread::scope(|scope| {
        for place in &places[..2] {
            scope.spawn(move || {
                let error =
                    within(Duration::from_secs(5), || Control::connect_with(place, FAST)).unwrap_err();
                assert_eq!(error.code, BOOTSTRAP, "{error}");
                assert_eq!(error.message, "PE 2 did not arrive within 0.6 s; PEs 0, 1: start");
            });
        }
    });
    // Without PE 0 there is nobody to ask.
    let error = Control::connect_with(&places[1], FAST).unwrap_err();
    assert_eq!(error.code, BOOTSTRAP);
    assert!(error.message.starts_with("PE 1: cannot connect to PE 0 at @weft-"), "{error}");
}

#[test]
fn strangers_and_misfits_are_refused() {
    let places = places(2);
    let Address::Local(name) = places[0].hub.clone() else { unreachable!() };
    thread::scope(|scope| {
        let hub = scope.spawn(|| Control::connect_with(&places[0], SLOW).unwrap());
        let connect =
            || socket::connect(&Address::Local(name.clone()), Instant::now() + SLOW.timeout).unwrap();
        // Nonsense, and an endless hello.
        for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], &[0; 64]] {
            let socket = connect();
            let _ = socket.send(nonsense);
            let link = Link::new(socket, SLOW.timeout).unwrap();
            let answer = wire::read::<Reply>(&mut link.reader(), wire::MAX_FRAME);
            let refused = matches!(&answer, Ok(Some(Reply::Refused(why))) if why == STRANGER);
            assert!(refused || !matches!(answer, Ok(Some(_))), "{answer:?}");
        }
        let refusal = |change: fn(&mut ProcessRank)| {
            let mut place = places[1].clone();
            change(&mut place);
            let error = Control::connect_with(&place, SLOW).unwrap_err();
            assert_eq!(error.code, BOOTSTRAP);
            error.message
        };
        let secret = || Admission::Secret(Secret::new(b"another secret"));
        let strangers = [refusal(|p| p.job = "other".into()), {
            let mut place = places[1].clone();
            place.admission = secret();
            Control::connect_with(&place, SLOW).unwrap_err().message
        }];
        for message in strangers {
            assert!(message.ends_with(STRANGER) && !message.contains(&places[0].job), "{message}");
        }
        assert!(refusal(|p| p.size = 3).ends_with("PE 0's job has 2 PEs, but this PE is number 1 of 3"));
        let last = scope.spawn(|| Control::connect_with(&places[1], SLOW).unwrap());
        let (zero, one) = (hub.join().unwrap(), last.join().unwrap());
        // The house is full, and the door shut.
        assert!(refusal_when_full(&places[1]).contains("cannot connect to PE 0"));
        one.goodbye();
        zero.goodbye();
    });
}

fn refusal_when_full(place: &ProcessRank) -> String {
    Control::connect_with(place, FAST).unwrap_err().message
}

#[test]
fn over_tcp() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for host in ["127.0.0.1", "localhost"] {
        let mut places = places(3);
        for place in &mut places {
            place.hub = Address::Tcp(host.into(), port);
        }
        let results = job(&places, SLOW, |control| {
            let got = control.exchange(&[0, 1, 2], "x", &[control.rank() as u8]).unwrap();
            control.goodbye();
            got
        });
        assert_eq!(results, vec![vec![vec![0], vec![1], vec![2]]; 3]);
    }
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let mut places = places(2);
    places[0].hub = Address::Tcp("127.0.0.1".into(), address.port());
    let error = Control::connect_with(&places[0], FAST).unwrap_err();
    assert_eq!(error.code, BOOTSTRAP);
    assert!(error.message.starts_with(&format!("PE 0: cannot listen at {address}: ")), "{error}");
    assert!(error.help.contains("WEFT_PORT"));
}

/// Nothing stays open: the name is free again, and PE 0's threads are gone.
#[test]
fn the_end_leaves_nothing() {
    let places = places(2);
    for _ in 0..3 {
        job(&places, SLOW, |control| control.goodbye());
    }
    let Address::Local(name) = &places[0].hub else { unreachable!() };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    socket.bind(&SockAddr::unix(format!("\0{name}")).unwrap()).unwrap();
}

#[test]
fn a_pe_that_is_alone_may_fail_and_go_on() {
    let options = FAST.grace(Some(Duration::from_millis(50)));
    let control = Control::connect_with(&places(1)[0], options).unwrap();
    control.fail("no NVSHMEM");
    // Were it watched, this process would end now.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(control.died(), Some((0, "no NVSHMEM".into())));
}

/// Places that meet on the loopback address.
fn on_loopback(size: u32, admission: &Admission) -> Vec<ProcessRank> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = |place| ProcessRank {
        hub: Address::Tcp("127.0.0.1".into(), port),
        admission: admission.clone(),
        ..place
    };
    places(size).into_iter().map(place).collect()
}

#[test]
fn beyond_this_host_somebody_must_say_who_may_come() {
    let mut places = places(2);
    for place in &mut places {
        place.hub = Address::Tcp("a-host-of-nobody".into(), 29600);
        let (code, message) = code(Control::connect_with(place, FAST));
        assert_eq!(code, LAUNCHER);
        assert!(message.contains("there is no secret that limits who may connect"), "{message}");
    }
}

#[test]
fn a_secret_lets_in_and_a_wrong_one_does_not() {
    let secret = Admission::Secret(Secret::new(b"the job's secret"));
    let results = job(&on_loopback(3, &secret), SLOW, |control| {
        let all = control.exchange(&[0, 1, 2], "x", &[]).map(|all| all.len());
        control.goodbye();
        all
    });
    assert_eq!(results, [Ok(3), Ok(3), Ok(3)]);

    // Who knows the name and the size, and not the secret.
    let places = on_loopback(2, &secret);
    thread::scope(|scope| {
        let hub = scope.spawn(|| code(Control::connect_with(&places[0], FAST)));
        for admission in [Admission::SameUser, Admission::Anybody, Admission::Secret(Secret::new(b"guess"))] {
            let stranger = ProcessRank { admission, ..places[1].clone() };
            let (code, message) = code(Control::connect_with(&stranger, SLOW));
            assert!(code == BOOTSTRAP && message.ends_with(STRANGER), "{message}");
        }
        let (code, message) = hub.join().unwrap();
        assert_eq!(code, BOOTSTRAP);
        assert!(
            message.contains("PE 1 did not arrive") && message.contains("3 connections were rejected"),
            "{message}"
        );
        assert!(message.ends_with("belonged to another job, or used another secret"), "{message}");
    });
}

/// Whoever listens first at PE 0's address is not believed.
#[test]
fn a_false_hub_is_not_believed() {
    let secret = Admission::Secret(Secret::new(b"the job's secret"));
    let places = on_loopback(2, &secret);
    let listener = socket::listen(&places[0].hub).unwrap();
    thread::scope(|scope| {
        let pe = scope.spawn(|| code(Control::connect_with(&places[1], SLOW)));
        let link = Link::new(listener.accept().unwrap().0, SLOW.timeout).unwrap();
        let mut reader = link.reader();
        let hello = wire::read::<Hello>(&mut reader, wire::MAX_HELLO).unwrap().unwrap();
        // Its own number sent back, as if that were a proof.
        link.send(&Reply::Challenge(hello.once)).unwrap();
        let claim = wire::read::<Claim>(&mut reader, wire::MAX_HELLO).unwrap().unwrap();
        link.send(&Reply::Welcome(claim.proof)).unwrap();
        let (code, message) = pe.join().unwrap();
        assert!(code == BOOTSTRAP && message.contains("has not proved that it is PE 0"), "{message}");
    });
}

/// Connections that say nothing, many more than PE 0 has room for, keep no PE out and cost it few threads.
#[test]
fn a_flood_keeps_nobody_out() {
    let places = on_loopback(2, &Admission::Secret(Secret::new(b"the job's secret")));
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    thread::scope(|scope| {
        let hub = scope.spawn(|| Control::connect_with(&places[0], SLOW).unwrap());
        let connect = || socket::connect(&places[0].hub, Instant::now() + SLOW.timeout).unwrap();
        let before = threads();
        let silent: Vec<Socket> = (0..400).map(|_| connect()).collect();
        // Other tests run beside this one; a thread for each connection would be 400.
        assert!(threads() < before + 200, "{} threads", threads() - before);
        let one = within(Duration::from_secs(10), || Control::connect_with(&places[1], SLOW).unwrap());
        let zero = hub.join().unwrap();
        drop(silent);
        one.goodbye();
        zero.goodbye();
    });
}

/// A hello that comes a byte at a time has as long as any other.
#[test]
fn a_slow_hello_ends() {
    let places = on_loopback(2, &Admission::SameUser);
    thread::scope(|scope| {
        let hub = scope.spawn(|| Control::connect_with(&places[0], SLOW).unwrap());
        let socket = socket::connect(&places[0].hub, Instant::now() + SLOW.timeout).unwrap();
        let began = Instant::now();
        let mut sent = 0;
        // Most of it: the length, which announces 4000 bytes, and some of them.
        while began.elapsed() < Duration::from_secs(12) {
            let byte = [0xa0, 0x0f, 0, 0].get(sent).copied().unwrap_or(1);
            if socket.send_with_flags(&[byte], nix::libc::MSG_NOSIGNAL).is_err() {
                break;
            }
            sent += 1;
            thread::sleep(Duration::from_millis(500));
        }
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
        let one = Control::connect_with(&places[1], SLOW).unwrap();
        let zero = hub.join().unwrap();
        one.goodbye();
        zero.goodbye();
    });
}

/// A PE that makes calls no other PE makes is ended before it fills PE 0's memory.
#[test]
fn what_a_pe_makes_the_hub_hold_is_bounded() {
    let places = places(2);
    thread::scope(|scope| {
        let zero = scope.spawn(|| Control::connect_with(&places[0], SLOW).unwrap());
        let one = Control::connect_with(&places[1], SLOW).unwrap();
        let zero = zero.join().unwrap();
        let payload = vec![0; wire::MAX_FRAME / 2];
        thread::scope(|calls| {
            let call = || one.exchange_patiently(&[0, 1], "alone", &payload);
            let all: Vec<_> = (0..6).map(|_| calls.spawn(call)).collect();
            for call in all {
                assert_eq!(call.join().unwrap().unwrap_err().code, PEER_DIED);
            }
        });
        let (pe, why) = zero.died().unwrap();
        assert!(pe == 1 && why.contains("made more calls than PE 0 can hold"), "{why}");
    });
}

/// A PE that waits too long learns what the others' hosts wait for.
#[test]
fn a_pe_asks_what_all_pes_do() {
    let all = [0, 1, 2];
    let asked = job(&places(3), SLOW, |control| {
        let answers = if control.rank() == 1 {
            // The others are in the exchange by then, or on their way.
            let mut answers = control.ask();
            while answers.iter().flatten().filter(|a| a.lines.iter().any(|l| l.contains("`late`"))).count()
                < 2
            {
                answers = control.ask();
            }
            answers
        } else {
            Vec::new()
        };
        control.exchange(&all, "late", &[]).unwrap();
        control.goodbye();
        answers
    });
    let lines: Vec<_> = asked[1].iter().map(|a| a.clone().unwrap().lines).collect();
    let waits = vec!["its host waits in `late` for the other PEs".to_owned()];
    assert_eq!(lines, [waits.clone(), vec!["its host does not wait for other PEs".into()], waits]);
}
