//! Runs handwritten PTX as its directives state, with all checks.

use crate::Found;
use crate::seeded::{Key, Seeded};
use std::collections::BTreeMap;
use weft_sim::{Arg, Check, Config, Finding, Launch, Machine, Module, SimError, Symmetric, Team};

/// An allocation: `memory: NAME BYTES CONTENTS`.
struct Memory {
    name: String,
    bytes: usize,
    contents: String,
}

/// The findings with a number of seeds, each listed once.
pub fn find(file: &Seeded, text: &str, seeds: u64) -> Result<Vec<Found>, String> {
    let module = Module::parse(text).map_err(|e| e.to_string())?;
    let mut all: BTreeMap<Key, Found> = BTreeMap::new();
    for &pes in &file.pes {
        for seed in 0..seeds {
            for (key, text) in run(file, &module, pes, seed)? {
                all.entry(key.clone()).or_insert(Found { key, seed, text });
            }
        }
    }
    Ok(all.into_values().collect())
}

fn run(file: &Seeded, module: &Module, n_pes: usize, seed: u64) -> Result<Vec<(Key, String)>, String> {
    let said: BTreeMap<&str, u32> = file
        .pairs("launch")?
        .into_iter()
        .map(|(word, v)| Ok((word, v.parse().map_err(|e| format!("launch: {word}={v}: {e}"))?)))
        .collect::<Result<_, String>>()?;
    let get = |word: &str, usual: u32| said.get(word).copied().unwrap_or(usual);
    let unknown = said.keys().find(|w| !["grid", "block", "cluster", "shared", "sms"].contains(w));
    if let Some(word) = unknown {
        return Err(format!("launch: there is no `{word}`"));
    }
    let usual = Config::default();
    let sms = get("sms", usual.sms);
    // A wait that never ends must quickly be found as a deadlock.
    let config = usual
        .n_pes(n_pes)
        .seed(seed)
        .step_limit(10_000_000)
        .sms(sms)
        .explore(true)
        .check(Some(Check::default()));
    let error = |e: SimError| e.to_string();
    let mut machine = Machine::new(config).map_err(error)?;
    let team = machine.team(&(0..n_pes).collect::<Vec<_>>()).map_err(error)?;
    let mut memory = BTreeMap::new();
    for m in file.all("memory").map(Memory::read) {
        let m = m?;
        let at = machine.alloc_symmetric(&m.name, m.bytes as u64, 128).map_err(error)?;
        for pe in 0..n_pes {
            if let Some(data) = m.data(pe)? {
                let address = machine.local_addr(pe, at).map_err(error)?;
                machine.write(pe, address, &data).map_err(error)?;
            }
        }
        memory.insert(m.name, at);
    }
    let [kernel] = module.kernels() else { return Err("a file has one kernel".into()) };
    let mut launches = Vec::new();
    for pe in 0..n_pes {
        let words: Vec<&str> = file.all("args").flat_map(str::split_whitespace).collect();
        if words.len() != kernel.params.len() {
            return Err(format!("args: {}, the kernel has {}", words.len(), kernel.params.len()));
        }
        let mut args = Vec::new();
        for (word, param) in words.into_iter().zip(&kernel.params) {
            let value = argument(&machine, &memory, team, pe, word)?;
            args.push(if param.size == 8 { Arg::U64(value) } else { Arg::U32(value as u32) });
        }
        launches.push(
            Launch::default()
                .pe(pe)
                .grid([get("grid", 1), 1, 1])
                .block([get("block", 32), 1, 1])
                .cluster([get("cluster", 1), 1, 1])
                .dynamic_shared(get("shared", 0))
                .args(args),
        );
    }
    let ended = machine.launch(module, &kernel.name, &launches);
    let mut out: Vec<(Key, String)> =
        machine.take_findings().iter().map(|f| (key(f), f.to_string())).collect();
    if let Err(e) = ended {
        let lines = e.at.iter().map(|at| at.ptx_line).collect();
        out.push(((e.code.to_string(), lines), e.to_string()));
    }
    Ok(out)
}

fn key(f: &Finding) -> Key {
    let mut lines = vec![f.at.place.ptx_line];
    lines.extend(f.other.iter().map(|o| o.place.ptx_line));
    lines.sort_unstable();
    (f.code.to_string(), lines)
}

impl Memory {
    fn read(text: &str) -> Result<Memory, String> {
        let bad = || format!("memory: {text}: expected a name, bytes and `zero`, `iota` or `none`");
        let [name, bytes, contents] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(bad());
        };
        let bytes = bytes.parse().map_err(|_| bad())?;
        Ok(Memory { name: name.into(), bytes, contents: contents.into() })
    }

    fn data(&self, pe: usize) -> Result<Option<Vec<u8>>, String> {
        let first = match &*self.contents {
            "none" => return Ok(None),
            "zero" => return Ok(Some(vec![0; self.bytes])),
            "iota" => 1000 * (pe as u32 + 1),
            other => return Err(format!("memory: {}: {other}", self.name)),
        };
        let mut data: Vec<u8> = (first..).take(self.bytes.div_ceil(4)).flat_map(u32::to_le_bytes).collect();
        data.truncate(self.bytes);
        Ok(Some(data))
    }
}

fn argument(
    machine: &Machine,
    memory: &BTreeMap<String, Symmetric>,
    team: Team,
    pe: usize,
    word: &str,
) -> Result<u64, String> {
    let n_pes = machine.config().n_pes;
    match word {
        "pe" => return Ok(pe as u64),
        "pes" => return Ok(n_pes as u64),
        _ => {}
    }
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let (name, whose) = word.split_once('@').unwrap_or((word, ""));
    let Some(&what) = memory.get(name) else { return Err(format!("args: there is no memory `{name}`")) };
    let address = match whose {
        "" => machine.local_addr(pe, what),
        "mc" => machine.multicast_addr(pe, what, team),
        "next" => machine.peer_addr(pe, what, (pe + 1) % n_pes),
        number => machine.peer_addr(pe, what, number.parse().map_err(|e| format!("args: {word}: {e}"))?),
    };
    address.map_err(|e| e.to_string())
}
