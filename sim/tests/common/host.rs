//! Host-side helpers of the tests: typed memory of a machine, launches on one or all PEs.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by several test programs"
)]

use weft_sim::{Arg, Config, Launch, Machine, Module, SimError, Symmetric};

pub fn machine(n_pes: usize) -> Machine {
    Machine::new(Config::default().n_pes(n_pes)).unwrap()
}

/// A module of one kernel `k` with these parameter types and this body.
pub fn module(params: &str, body: &str) -> Module {
    let list: Vec<String> =
        params.split_whitespace().enumerate().map(|(i, t)| format!(".param .{t} p{i}")).collect();
    let text = format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k({})\n{{\n{body}\nret;\n}}\n",
        list.join(", ")
    );
    Module::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

pub fn grid(pe: usize, ctas: u32, threads: u32, args: Vec<Arg>) -> Launch {
    Launch::default().pe(pe).grid([ctas, 1, 1]).block([threads, 1, 1]).args(args)
}

pub fn words(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn read_words(m: &Machine, pe: usize, addr: u64, n: usize) -> Vec<u32> {
    let mut bytes = vec![0; n * 4];
    m.read(pe, addr, &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
}

pub fn read_floats(m: &Machine, pe: usize, addr: u64, n: usize) -> Vec<f32> {
    read_words(m, pe, addr, n).into_iter().map(f32::from_bits).collect()
}

/// A symmetric allocation filled on every PE.
pub fn symmetric(m: &mut Machine, name: &str, data: impl Fn(usize) -> Vec<u8>) -> Symmetric {
    let s = m.alloc_symmetric(name, data(0).len() as u64, 16).unwrap();
    for pe in 0..m.config().n_pes {
        let addr = m.local_addr(pe, s).unwrap();
        m.write(pe, addr, &data(pe)).unwrap();
    }
    s
}

/// A private allocation with contents.
pub fn buffer(m: &mut Machine, pe: usize, name: &str, data: &[u8]) -> u64 {
    let addr = m.alloc(pe, name, data.len() as u64, 16).unwrap();
    m.write(pe, addr, data).unwrap();
    addr
}

/// The error of a launch that must fail, with the code expected of it.
pub fn failure(result: Result<weft_sim::Stats, SimError>, code: &str) -> SimError {
    let e = result.expect_err("the launch should fail");
    assert_eq!(e.code, code, "{e}");
    e
}
