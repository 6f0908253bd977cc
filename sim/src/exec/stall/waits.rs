//! The waits of all warps: what each waits for, which thread wrote it last, and which threads have
//! finished.

use super::super::Poll;
use super::super::run::Run;
use super::super::warp::{Group, State};
use super::awaited::{awaited, number};
use crate::memory::Spot;
use crate::model::{CtaSlot, LANES, WarpSlot};
use crate::names::Named;
use std::collections::BTreeMap;

/// The largest number of lines in a report.
const LISTED: usize = 24;
/// The largest number of lines about one location in the program.
const OF_PLACE: usize = 4;
/// The largest number of warps of a CTA, and of CTAs, that a line names.
const NAMED: usize = 8;

/// The kind of a wait, in the order of a report: causes before consequences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WaitKind {
    Memory,
    Nothing,
    Lanes,
    Barrier,
}

/// A wait of a group at a location in the program.
struct Wait {
    kind: WaitKind,
    pc: u32,
    text: String,
    /// The memory that it waits for.
    word: Option<Spot>,
}

/// The warps by PE, CTA and name, with their lanes if only some of them wait. The warps of a name
/// are counted from its first.
type Waiting = BTreeMap<(usize, [u32; 3], Option<Named>), Vec<(u32, Option<u32>)>>;

/// The groups that wait at one location.
#[derive(Default)]
struct WaitSite {
    texts: BTreeMap<String, (Waiting, Option<Spot>)>,
}

/// Lists what all groups wait for, by location in the program. There is a line for each different
/// memory location, and one for all groups that wait at a barrier there.
pub(super) fn waits(run: &Run, order: &[WarpSlot]) -> Vec<String> {
    let mut places: BTreeMap<(WaitKind, u32), WaitSite> = BTreeMap::new();
    let mut sorted = order.to_vec();
    sorted.sort_unstable_by_key(|&w| run.warps[w].index);
    for w in sorted {
        let warp = &run.warps[w];
        let at = &run.ctas[warp.cta].at;
        let [x, y, z] = at.ctaid;
        let names = &run.grids[run.ctas[warp.cta].grid].names;
        let name = Named::of(names, warp.index * LANES as u32).cloned();
        let index = warp.index - name.as_ref().map_or(0, |n| n.first / LANES as u32);
        for g in &warp.groups {
            let lanes = (g.mask != warp.live).then_some(g.mask);
            let Wait { kind, pc, text, word } = wait(run, w, g);
            let place = places.entry((kind, pc)).or_default();
            let (who, memory) = place.texts.entry(text).or_default();
            who.entry((at.pe, [z, y, x], name.clone())).or_default().push((index, lanes));
            *memory = word;
        }
    }
    let total = places.len();
    let mut out: Vec<String> =
        places.iter().take(LISTED).flat_map(|((kind, _), place)| lines(run, *kind, place)).collect();
    if total > LISTED {
        let (more, warps) = (total - LISTED, order.len());
        out.push(format!("... and {more} more locations at which warps wait ({warps} warps wait in total)"));
    }
    out
}

fn lines(run: &Run, kind: WaitKind, place: &WaitSite) -> Vec<String> {
    let max = if kind == WaitKind::Memory { OF_PLACE } else { 1 };
    let named = |(text, (who, _)): (&String, &(Waiting, Option<Spot>))| format!("{}: {text}", named(who));
    let mut out: Vec<String> = place.texts.iter().take(max).map(named).collect();
    let warps = |(who, _): &(Waiting, Option<Spot>)| who.values().map(Vec::len).sum::<usize>();
    let others: usize = place.texts.values().skip(max).map(warps).sum();
    if others > 0 {
        let s = if others == 1 { "" } else { "s" };
        out.push(format!("{others} more warp{s} at the same location"));
    }
    let Some(detector) = &run.check else { return out };
    let words = || place.texts.values().take(max).filter_map(|(_, word)| *word);
    let last = |word: Spot| {
        let by = detector.last_write(run, word.buffer, word.at / 4)?;
        Some(format!("{} was last written by {by}", run.memory.describe_at(word)))
    };
    let before = out.len();
    out.extend(words().filter_map(last));
    if out.len() == before && words().next().is_some() {
        out.push("no kernel has written this memory in this run".to_owned());
    }
    out
}

/// Formats `PE 1 CTA (0, 0, 0) warps 0 to 7, PE 2 CTA (0, 0, 0) role load, PE 2 CTA (0, 0, 0) role
/// math warp 0 lanes 0x00000001`.
fn named(who: &Waiting) -> String {
    let all = who.iter().take(NAMED);
    let mut ctas: Vec<String> = all
        .map(|((pe, [z, y, x], name), warps)| {
            format!("PE {pe} CTA ({x}, {y}, {z}) {}", role_words(name.as_ref(), warps))
        })
        .collect();
    if who.len() > NAMED {
        ctas.push(format!("and {} more CTAs", who.len() - NAMED));
    }
    ctas.join(", ")
}

/// Formats the warps of a role. The name alone means all of them.
fn role_words(name: Option<&Named>, warps: &[(u32, Option<u32>)]) -> String {
    let Some(Named { name, threads, .. }) = name else { return warp_words(warps) };
    let all = warps.len() == threads.div_ceil(LANES as u32) as usize;
    match all && warps.iter().all(|(_, lanes)| lanes.is_none()) {
        true => format!("role {name}"),
        false => format!("role {name} {}", warp_words(warps)),
    }
}

fn warp_words(warps: &[(u32, Option<u32>)]) -> String {
    if let ([(first, None), .., (last, None)], true) = (warps, warps.iter().all(|(_, lanes)| lanes.is_none()))
        && (last - first) as usize == warps.len() - 1
    {
        return format!("warps {first} to {last}");
    }
    let word = |(warp, lanes): &(u32, Option<u32>)| match lanes {
        None => warp.to_string(),
        Some(mask) => format!("{warp} lanes {mask:#010x}"),
    };
    let shown: Vec<String> = warps.iter().take(NAMED).map(word).collect();
    let more = if warps.len() > NAMED { format!(" and {} more", warps.len() - NAMED) } else { String::new() };
    format!("warp{} {}{more}", if warps.len() == 1 { "" } else { "s" }, shown.join(", "))
}

/// Whether the warp has read the awaited memory only before its loop.
pub(super) fn reads_once(run: &Run, w: WarpSlot, g: &Group) -> bool {
    let warp = &run.warps[w];
    let loops =
        g.state == State::Ready && g.proven != 0 && warp.ticket(g.mask).is_none() && !warp.pipe.waits();
    loops && g.poll.valid && !g.poll.fresh
}

fn wait(run: &Run, w: WarpSlot, g: &Group) -> Wait {
    let warp = &run.warps[w];
    let cta = &run.ctas[warp.cta];
    let place = |pc: u32| {
        let code = run.code_of(w);
        let inst = &code.insts[pc as usize];
        let source = code.source(inst).first().map_or(String::new(), |s| format!("{s}, "));
        format!("{source}PTX line {}: {}", inst.line, code.line(inst.line))
    };
    let at =
        |kind, pc: u32, text: String| Wait { kind, pc, text: format!("{text}, {}", place(pc)), word: None };
    if let Some(ticket) = warp.ticket(g.mask) {
        let what = run.remote.describe(ticket, &run.memory, cta.at.pe, cta.at.ntid.iter().product());
        return at(WaitKind::Memory, g.pc, what.unwrap_or_default());
    }
    match g.state {
        State::Barrier(a) => {
            let b = &cta.barriers[a.id as usize];
            let wanted = a.count.unwrap_or(cta.live);
            let text = format!("waits at barrier {} ({} of {wanted} threads arrived)", a.id, b.lanes);
            at(WaitKind::Barrier, g.pc, text)
        }
        State::Cluster => at(WaitKind::Barrier, g.pc, run.describe_cluster(warp.cta)),
        State::Converge(needed) | State::Meet(needed) => {
            let missing = needed & warp.live & !g.mask;
            at(WaitKind::Lanes, g.pc, format!("waits for lanes {missing:#010x} of its warp"))
        }
        State::Ready if warp.pipe.waits() => {
            let what = "waits for the other warps of its warpgroup to begin the same wgmma.mma_async";
            at(WaitKind::Barrier, g.pc, what.to_owned())
        }
        State::Ready if waits_for_launches(run, w, g) => {
            at(WaitKind::Barrier, g.pc, "waits for the launches before its own to end".to_owned())
        }
        State::Ready if g.poll.valid => {
            let (text, word) = polls(run, w, g);
            Wait { word, ..at(WaitKind::Memory, g.poll.pc, text) }
        }
        State::Ready => at(WaitKind::Nothing, g.pc, "loops without reading memory".to_owned()),
    }
}

/// Whether a group that has begun early waits for the grids before its own.
fn waits_for_launches(run: &Run, w: WarpSlot, g: &Group) -> bool {
    let code = run.code_of(w);
    let inst = code.insts.get(g.pc as usize);
    inst.is_some_and(|inst| code.mnemonics[inst.mnemonic as usize] == "griddepcontrol.wait")
}

/// Whether a read belongs to the code by which a wait reports itself.
fn is_of_reports(run: &Run, poll: &Poll) -> bool {
    poll.mbarrier.is_none() && !poll.shared && run.memory.is_of_reports(poll.addr)
}

/// Describes the memory that a group reads in a loop, and returns its word.
fn polls(run: &Run, w: WarpSlot, g: &Group) -> (String, Option<Spot>) {
    let warp = &run.warps[w];
    let (p, pe) = (g.poll, run.ctas[warp.cta].at.pe);
    if is_of_reports(run, &p) {
        return ("looks at the clock in a wait that reports itself".to_owned(), None);
    }
    if let Some(at) = p.mbarrier {
        let own = at.buffer == run.memory.shared_buffer(warp.cta);
        let name = run.shared_variable(w, at.at as u64).filter(|_| own).unwrap_or_default();
        let phase = run.asynchronous.describe(&run.memory, at);
        return (format!("waits at the mbarrier at shared {:#x}{name}, whose {phase}", at.at), None);
    }
    let what = match p.shared {
        true => format!("shared {:#x}", p.addr),
        false => run.memory.describe(pe, p.addr),
    };
    let value = number(p.value, p.bytes, false);
    let word = match p.shared {
        true => Some(Spot { buffer: run.memory.shared_buffer(warp.cta), at: p.addr as usize }),
        false => run.memory.spot(pe, p.addr, p.bytes.max(1).into(), false).ok(),
    };
    if reads_once(run, w, g) {
        return (format!("read {what} only once, before a loop that waits for it, and got {value}"), word);
    }
    let wanted = awaited(run, w, g).map_or(String::new(), |wanted| format!(" and waits for {wanted}"));
    (format!("polls {what}, reads {value}{wanted}"), word)
}

/// Describes the wait of a group, briefly and with all details.
pub(crate) fn waiting(run: &Run, w: WarpSlot, g: &Group) -> (String, String) {
    let warp = &run.warps[w];
    let p = g.poll;
    let what = match g.state {
        _ if warp.ticket(g.mask).is_some() => "NVSHMEM".to_owned(),
        State::Barrier(a) => format!("barrier {}", a.id),
        State::Cluster => "barrier of the cluster".to_owned(),
        State::Converge(_) | State::Meet(_) => "lanes of its warp".to_owned(),
        State::Ready if waits_for_launches(run, w, g) => "earlier launches".to_owned(),
        State::Ready if p.valid && is_of_reports(run, &p) => "the clock".to_owned(),
        State::Ready if p.valid && p.shared => format!("polls shared {:#x}", p.addr),
        State::Ready if p.valid => {
            let place = run.memory.describe(run.ctas[warp.cta].at.pe, p.addr);
            format!("polls {}", place.split(" (").next().unwrap_or_default().replace('`', ""))
        }
        State::Ready => "loops".to_owned(),
    };
    (what, wait(run, w, g).text)
}

/// Describes what has finished: whole PEs, and for other PEs the CTAs and the threads of waiting
/// CTAs.
pub(super) fn finished(run: &Run, order: &[WarpSlot]) -> String {
    let mut parts = Vec::new();
    for pe in 0..run.memory.n_pes {
        let grids = || run.grids.iter().filter(|g| g.pe == pe);
        let (all, open): (u64, u64) = grids()
            .fold((0, 0), |(all, open), g| (all + g.total, open + g.total - g.next + u64::from(g.running)));
        match (all, all - open) {
            (0, _) | (_, 0) => {}
            (all, ended) if all == ended => parts.push(format!("PE {pe}")),
            (all, ended) => parts.push(format!("{ended} of {all} CTAs on PE {pe}")),
        }
    }
    let mut ctas: Vec<CtaSlot> = order.iter().map(|&w| run.warps[w].cta).collect();
    ctas.sort_unstable();
    ctas.dedup();
    let some_ended = |c: &&CtaSlot| run.ctas[**c].live < run.ctas[**c].at.ntid.iter().product();
    parts.extend(ctas.iter().filter(some_ended).take(NAMED).map(|&c| {
        let (cta, threads) = (&run.ctas[c], run.ctas[c].at.ntid.iter().product::<u32>());
        let ([x, y, z], ended) = (cta.at.ctaid, threads - cta.live);
        format!("{ended} of {threads} threads of PE {} CTA ({x}, {y}, {z})", cta.at.pe)
    }));
    match parts.is_empty() {
        true => "no thread has finished".to_owned(),
        false => format!("finished: {}", parts.join(", ")),
    }
}
