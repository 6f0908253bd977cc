//! Every code has a page, every page a code, and the examples are what they say.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use weft_sim::codes::{CODES, PRELUDE};
use weft_sim::{Arg, Check, Config, Launch, Machine, Module, Team};

/// The codes that a body meets: of an error, or of findings.
fn meets(body: &str) -> Vec<&'static str> {
    let module = match Module::parse(&format!("{PRELUDE}{body}\nret; }}")) {
        Ok(module) => module,
        Err(e) => return vec![e.code.as_str()],
    };
    let check = Some(Check::default());
    let mut machine = Machine::new(Config::default().n_pes(2).check(check).step_limit(100_000)).unwrap();
    let buffer = machine.alloc_symmetric("x", 4096, 128).unwrap();
    let mut launches = Vec::new();
    for pe in 0..2 {
        let own = machine.local_addr(pe, buffer).unwrap();
        machine.write(pe, own, &[0; 2048]).unwrap();
        let peer = machine.peer_addr(pe, buffer, 1 - pe).unwrap();
        let multicast = machine.multicast_addr(pe, buffer, Team::WORLD).unwrap();
        let args = vec![Arg::U64(own), Arg::U64(peer), Arg::U64(multicast), Arg::U32(pe as u32)];
        launches.push(Launch::default().pe(pe).grid([2, 1, 1]).block([64, 1, 1]).args(args));
    }
    let ended = machine.launch(&module, "k", &launches);
    let findings = machine.take_findings().into_iter().map(|f| f.code.as_str());
    findings.chain(ended.err().map(|e| e.code.as_str())).collect()
}

#[test]
fn the_examples_meet_their_codes_alone() {
    let mut wrong = Vec::new();
    for info in CODES.iter().filter(|i| !i.example.is_empty()) {
        let met: BTreeSet<_> = meets(info.example).into_iter().collect();
        if met != BTreeSet::from([info.code.as_str()]) {
            wrong.push(format!("the example of {} meets {met:?}", info.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(meets("st.global.u32 [%rd1], %r2;"), ["S030"; 1]);
    assert!(meets("ld.global.u32 %r4, [%rd1];").is_empty());
}

/// Every `codes::NAME` below a folder, and codes that are written out.
fn codes_in(folder: &Path, all: &mut BTreeSet<String>, literal: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            codes_in(&path, all, literal);
        } else if !path.ends_with("codes.rs") {
            let text = fs::read_to_string(&path).unwrap();
            let is_code =
                |w: &&str| w.len() == 4 && w.starts_with(['S', 'P']) && w[1..].parse::<u16>().is_ok();
            literal.extend(text.split('"').filter(is_code).map(|code| format!("{}: {code}", path.display())));
            let name =
                |rest: &str| rest.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            all.extend(text.split("codes::").skip(1).map(name).filter(|name: &String| name.len() > 1));
        }
    }
}

#[test]
fn every_code_has_a_page() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut used, mut literal) = (BTreeSet::new(), Vec::new());
    codes_in(&folder, &mut used, &mut literal);
    assert!(literal.is_empty(), "only the table writes codes out: {}", literal.join(", "));
    let table = fs::read_to_string(folder.join("codes.rs")).unwrap();
    let rows: Vec<(&str, &str)> = table
        .lines()
        .filter_map(|line| line.strip_prefix("    ")?.split_once(" = \""))
        .filter_map(|(name, rest)| Some((name, rest.split_once("\", ")?.0)))
        .collect();
    assert_eq!(used, rows.iter().map(|(name, _)| (*name).to_owned()).collect());
    let known: Vec<_> = CODES.iter().map(|i| i.code.as_str()).collect();
    assert!(known.is_sorted());
    assert_eq!(known, rows.iter().map(|(_, code)| *code).collect::<Vec<_>>());
    for info in CODES {
        let Some(end) = info.explanation.chars().last() else { panic!("{} is not explained", info.code) };
        assert!(end == '.' && !info.title.ends_with('.') && !info.title.is_empty(), "{}", info.code);
    }
}
