//! Timelines as files in the format of Chrome's trace events, which Perfetto and chrome://tracing
//! open.
//!
//! Each PE is a process, and each warp is a thread. Slices show what warps do and wait for,
//! asynchronous events show operations in progress between PEs, and counters show their bytes. A
//! microsecond stands for a warp instruction of the machine.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use weft::sim::{Activity, Trace, TraceSpan, TraceTransfer};

/// Writes a timeline as Chrome's trace events (JSON object format).
///
/// # Errors
/// Fails if the writer fails.
pub(crate) fn write_chrome(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let mut events = Events { out, first: true };
    events.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let threads = threads(trace);
    let pes: BTreeSet<usize> = trace.spans.iter().map(|s| s.pe).collect();
    for pe in pes {
        events.metadata(pe, 0, "process_name", json!({ "name": format!("PE {pe}") }))?;
        events.metadata(pe, 0, "process_sort_index", json!({ "sort_index": pe }))?;
    }
    for ((pe, [z, y, x], warp), tid) in &threads {
        let cta = if (*y, *z) == (0, 0) { x.to_string() } else { format!("({x}, {y}, {z})") };
        let alone = !threads.contains_key(&(*pe, [*z, *y, *x], 1));
        let name = if alone && *warp == 0 { format!("CTA {cta}") } else { format!("CTA {cta} warp {warp}") };
        events.metadata(*pe, *tid, "thread_name", json!({ "name": name }))?;
        events.metadata(*pe, *tid, "thread_sort_index", json!({ "sort_index": tid }))?;
    }
    for s in &trace.spans {
        events.put(&slice(s, threads.get(&key(s)).copied().unwrap_or(0)))?;
    }
    for (id, t) in trace.transfers.iter().enumerate() {
        transfer(t, id).iter().try_for_each(|e| events.put(e))?;
    }
    for (pe, time, bytes) in in_flight(&trace.transfers) {
        events.put(&counter(pe, time, "bytes in flight", bytes))?;
    }
    for t in &trace.traffic {
        events.put(&counter(t.pe, t.time, "bytes moved by loads and stores", t.bytes))?;
    }
    let other = json!({
        "clock": "1 microsecond stands for 1 warp instruction of the simulated machine, all PEs together",
        "warp instructions": trace.end,
        "events left out": trace.dropped,
    });
    write!(events.out, "\n],\"otherData\":{other}}}\n")
}

/// The thread number of each warp, in the order of PE, CTA (z, y, x) and warp.
fn threads(trace: &Trace) -> BTreeMap<(usize, [u32; 3], u32), u64> {
    let mut all: BTreeMap<_, u64> = trace.spans.iter().map(|s| (key(s), 0)).collect();
    all.values_mut().zip(1..).for_each(|(tid, n)| *tid = n);
    all
}

fn key(s: &TraceSpan) -> (usize, [u32; 3], u32) {
    let [x, y, z] = s.cta;
    (s.pe, [z, y, x], s.warp)
}

fn slice(s: &TraceSpan, tid: u64) -> Value {
    let (name, cat, args) = match &s.activity {
        Activity::Running => (&*s.kernel, "running", json!({})),
        Activity::Waiting { what, detail } => (&**what, "waiting", json!({ "what": detail })),
    };
    // The viewers have colours for these names: green for running, grey for waiting.
    let color = if cat == "running" { "thread_state_running" } else { "thread_state_sleeping" };
    json!({
        "name": name, "cat": cat, "ph": "X", "pid": s.pe, "tid": tid,
        "ts": s.start, "dur": s.end - s.start, "cname": color, "args": args,
    })
}

/// An event from issue to completion, on the PE that issued the transfer.
fn transfer(t: &TraceTransfer, id: usize) -> [Value; 2] {
    let name = format!("{} {} bytes, PE {}", t.what, t.bytes, t.to);
    let event = |phase: &str, time: u64| {
        json!({
            "name": name, "cat": "transfer", "ph": phase, "id": id, "pid": t.from, "tid": 0, "ts": time,
            "args": { "from": t.from, "to": t.to, "bytes": t.bytes },
        })
    };
    [event("b", t.start), event("e", t.end)]
}

fn counter(pe: usize, time: u64, name: &str, bytes: u64) -> Value {
    json!({ "name": name, "ph": "C", "pid": pe, "tid": 0, "ts": time, "args": { "bytes": bytes } })
}

/// The issuing PE, the time, and the bytes in flight from then on, ordered by PE and time.
fn in_flight(transfers: &[TraceTransfer]) -> Vec<(usize, u64, u64)> {
    let mut changes: BTreeMap<(usize, u64), i128> = BTreeMap::new();
    for t in transfers.iter().filter(|t| t.end > t.start) {
        *changes.entry((t.from, t.start)).or_default() += t.bytes as i128;
        *changes.entry((t.from, t.end)).or_default() -= t.bytes as i128;
    }
    let mut sums: BTreeMap<usize, i128> = BTreeMap::new();
    let sum = |((pe, time), change)| {
        let sum = sums.entry(pe).or_default();
        *sum += change;
        (pe, time, u64::try_from(*sum).unwrap_or(0))
    };
    changes.into_iter().map(sum).collect()
}

/// Writes the events of a JSON array, one on each line.
struct Events<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Events<'_> {
    fn put(&mut self, event: &Value) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "" } else { "," };
        write!(self.out, "{comma}\n{event}")
    }

    fn metadata(&mut self, pid: usize, tid: u64, name: &str, args: Value) -> io::Result<()> {
        self.put(&json!({ "name": name, "ph": "M", "pid": pid, "tid": tid, "args": args }))
    }
}
