//! Every row of the instruction tables can be written, is accepted in some form, and does not panic whatever its
//! operands are.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/host.rs"]
mod host;

use common::Rng;
use host::grid;
use weft_sim::{Arg, Config, Machine, Module};

struct Row {
    syntax: String,
    operands: String,
    classes: Vec<(String, Vec<String>)>,
}

/// The rows, read back from the documentation that is made of them.
fn rows() -> Vec<Row> {
    let table = weft_sim::instruction_table();
    let instructions = table.split("## Special registers").next().unwrap();
    let row = |line: &str| {
        let line = line.replace("\\|", "\u{1}");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let classes = cells[3].split("; ").filter_map(|c| {
            let (name, list) = c.split_once(" = ")?;
            Some((name.trim_matches(['`', '.']).to_string(), list.split(' ').map(str::to_string).collect()))
        });
        Row {
            syntax: cells[1].trim_matches('`').to_string(),
            operands: cells[2].replace('\u{1}', "|"),
            classes: classes.collect(),
        }
    };
    instructions.lines().filter(|l| l.starts_with("| `")).map(row).collect()
}

/// A random instruction of the row: modifiers as the syntax says, operands of plausible kinds.
fn instance(row: &Row, rng: &mut Rng) -> String {
    let mut text = String::new();
    let mut parts = row.syntax.split('.');
    let mut optional = false;
    let mut mods: Vec<String> = Vec::new();
    for (i, part) in parts.by_ref().enumerate() {
        let name = part.trim_end_matches(['{', '}']);
        let mut skip = optional && rng.below(2) == 0;
        if i == 0 {
            text.push_str(name);
            skip = true;
        }
        if !skip {
            let choice = match row.classes.iter().find(|(n, _)| n == name) {
                // The smallest: others have up to 128 registers.
                Some((_, list)) if text == "wgmma" && name == "shape" => list[0].clone(),
                Some((_, list)) => list[rng.below(list.len() as u64) as usize].clone(),
                None => name.to_string(),
            };
            mods.push(choice);
        }
        optional = part.ends_with('{') || optional && !part.contains('}');
    }
    for m in &mods {
        text.push('.');
        text.push_str(m);
    }
    // Operands: mostly of the width that the last type has, now and then another.
    let width = |m: &String| match m.as_str() {
        m if m.ends_with("64") || m == "f32x2" => Some(64),
        m if m.ends_with("32") || m.ends_with("16x2") || m.ends_with("x4") => Some(32),
        m if m.ends_with("16") || m.ends_with("8x2") || m == "e4m3x2" || m == "e5m2x2" => Some(16),
        "e4m3" | "e5m2" | "b8" | "u8" | "s8" => Some(8),
        _ => None,
    };
    let widths: Vec<u32> = mods.iter().filter_map(width).collect();
    let vec =
        mods.iter().find_map(|m| m.strip_prefix('v').and_then(|n| n.parse::<usize>().ok())).unwrap_or(1);
    let predicates = mods.iter().any(|m| m == "pred");
    // Operands that are fragments of matrices: vectors of a length that depends on shape and type.
    let fragments = ["mma", "ldmatrix", "stmatrix", "wgmma", "wmma"].iter().any(|m| text.starts_with(m))
        && rng.below(4) != 0;
    let register = |rng: &mut Rng| {
        let w = match (rng.below(4), widths.as_slice()) {
            (0, _) | (_, []) => [8, 16, 32, 64, 32, 32][rng.below(6) as usize],
            (_, list) => list[rng.below(list.len() as u64) as usize],
        };
        format!("%v{w}_{}", rng.below(4))
    };
    let mut list = Vec::new();
    let required = row.operands.split('{').next().unwrap_or("").trim_end_matches([',', ' ']);
    let spec = if rng.below(2) == 0 { required.to_string() } else { row.operands.replace(['{', '}'], "") };
    // Commas within brackets do not separate operands.
    let spec = spec.replace("[map, coords]", "[map coords]");
    for o in spec.split(',').map(str::trim).filter(|o| !o.is_empty()) {
        list.push(match o {
            "[map coords]" => {
                let rank = mods.iter().find_map(|m| m.strip_suffix('d')?.parse::<usize>().ok()).unwrap_or(1);
                let list: Vec<String> = (0..rank).map(|i| format!("%v32_{}", i % 4)).collect();
                format!("[%a{}, {{{}}}]", rng.below(4), list.join(", "))
            }
            "ord" => rng.below(5).to_string(),
            o if o.starts_with('[') => {
                let base = ["%a0", "%a1", "%a2", "%a3", "x", "%v64_0"][rng.below(6) as usize];
                format!("[{base}+{}]", [0, 0, 4, 16, -8][rng.below(5) as usize])
            }
            "target" | "targets" | "function" => o.to_string(),
            o if o.contains('|') => {
                let first = if o.starts_with('p') || predicates { "%p0".into() } else { register(rng) };
                if rng.below(2) == 0 { format!("{first}|%p1") } else { first }
            }
            o if o.ends_with("-desc") => format!("%v64_{}", rng.below(4)),
            "scale-d" => ["%p0", "0", "1"][rng.below(3) as usize].into(),
            o if o.starts_with("imm-") => ["1", "0", "-1"][rng.below(3) as usize].into(),
            "e" if fragments => register(rng),
            "f" if fragments => rng.below(2).to_string(),
            _ if fragments => {
                let w = if mods.iter().any(|m| m == "f64") { 64 } else { 32 };
                let length = 1 << rng.below(4);
                let elements: Vec<String> = (0..length).map(|i| format!("%v{w}_{}", i % 4)).collect();
                format!("{{{}}}", elements.join(", "))
            }
            _ if vec > 1 && o.len() == 1 => {
                let w = widths.last().copied().unwrap_or(32);
                let elements: Vec<String> = (0..vec).map(|i| format!("%v{w}_{}", i % 4)).collect();
                format!("{{{}}}", elements.join(", "))
            }
            "immLut" | "count" => rng.below(256).to_string(),
            "size" => "128".into(),
            "cp-size" => ["4", "8", "16"][rng.below(3) as usize].into(),
            "n" => rng.below(8).to_string(),
            "state" if rng.below(2) == 0 => "_".into(),
            "policy" | "state" => "%v64_1".into(),
            "ctaMask" | "byteMask" => "%v16_1".into(),
            _ if predicates && rng.below(2) == 0 => format!("%p{}", rng.below(3)),
            _ => match rng.below(8) {
                0 => rng.below(40).to_string(),
                1 => ["-1", "0xffffffff", "1", "16"][rng.below(4) as usize].into(),
                2 => format!("%p{}", rng.below(3)),
                _ => register(rng),
            },
        });
    }
    format!("{text} {};", list.join(", "))
}

const PRELUDE: &str = "
.version 9.0
.target sm_100a
.address_size 64
.global .align 16 .b8 x[64];
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{
.reg .b8 %v8_<4>; .reg .b16 %v16_<4>; .reg .b32 %v32_<4>; .reg .b64 %v64_<4>; .reg .b64 %a<4>; .reg .pred %p<3>;
.shared .align 16 .b8 s[256];
.local .align 16 .b8 l[64];
ld.param.b64 %a0, [p0]; ld.param.b64 %a1, [p1]; ld.param.b64 %a2, [p2]; mov.b64 %a3, s;
ld.global.v4.b64 {%v64_0, %v64_1, %v64_2, %v64_3}, [%a0];
mov.b64 {%v32_0, %v32_1}, %v64_0; mov.b64 {%v32_2, %v32_3}, %v64_1;
mov.b64 {%v16_0, %v16_1, %v16_2, %v16_3}, %v64_2;
setp.lt.s64 %p0, %v64_0, 0; setp.lt.s64 %p1, %v64_1, 0; setp.lt.s64 %p2, %v64_2, 0;
targets: .branchtargets target, target;
";

#[test]
fn every_row_is_accepted_and_runs() {
    let mut rng = Rng(1);
    let mut never = Vec::new();
    let mut ran = 0;
    for row in rows() {
        let mut accepted = 0;
        for attempt in 0..4000 {
            if accepted >= 8 || accepted > 0 && attempt >= 400 {
                break;
            }
            let inst = instance(&row, &mut rng);
            let text = format!("{PRELUDE}{inst}\ntarget: ret;\n}}\n");
            let Ok(module) = Module::parse(&text) else { continue };
            accepted += 1;
            // A branch to the next instruction and calls aside, it runs; errors are fine, panics are not.
            let config = Config::default().n_pes(2).seed(rng.next()).step_limit(5000);
            let mut m = Machine::new(config).unwrap();
            let data = m.alloc_symmetric("data", 64, 32).unwrap();
            let team = m.team(&[1, 0]).unwrap();
            let random: Vec<u8> = (0..64).map(|_| rng.next() as u8).collect();
            let local = m.local_addr(0, data).unwrap();
            m.write(0, local, &random).unwrap();
            let mc = m.multicast_addr(0, data, team).unwrap();
            let peer = m.peer_addr(0, data, 1).unwrap();
            let args = vec![Arg::U64(local), Arg::U64(mc), Arg::U64(peer)];
            ran += usize::from(m.launch(&module, "k", &[grid(0, 1, 40, args)]).is_ok());
        }
        if accepted == 0 {
            never.push(format!("{} {}", row.syntax, row.operands));
        }
    }
    // Calls need call parameters, which this generator does not write.
    never.retain(|r| !r.starts_with("call"));
    assert!(never.is_empty(), "rows that no instruction has matched:\n{}", never.join("\n"));
    assert!(ran > 1000, "{ran}");
}
