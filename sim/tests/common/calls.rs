//! Writes kernels that call NVSHMEM's functions, as LLVM's NVPTX back end prints calls.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by several test programs"
)]

use std::collections::BTreeSet;
use weft_sim::{Arg, Config, Launch, Machine, Module, SimError, Stats, nvshmem_function};

/// A kernel `k` being written. Its parameters are in `%a0`, `%a1`, ...; `%x`, `%w`, `%h` are registers of 64, 32
/// and 16 bits, `%p` predicates.
#[derive(Default)]
pub struct Kernel {
    body: String,
    declared: BTreeSet<String>,
    callseq: usize,
}

impl Kernel {
    pub fn line(&mut self, text: &str) -> &mut Self {
        self.body.push_str(text);
        self.body.push('\n');
        self
    }

    /// Calls a function with registers or literals; its result, if wanted, goes to a register (`""`: not wanted).
    pub fn call(&mut self, name: &str, args: &[&str], result: &str) -> &mut Self {
        let f = nvshmem_function(name).unwrap_or_else(|| panic!("no function `{name}`"));
        assert_eq!(f.params().len(), args.len(), "{name}");
        self.declared.insert(name.to_string());
        self.callseq += 1;
        self.line(&format!("{{ // callseq {}, 0", self.callseq));
        for (i, (&bytes, arg)) in f.params().iter().zip(args).enumerate() {
            self.line(&format!("{};", param(bytes, &format!("param{i}"))));
            self.line(&format!("st.param.b{} [param{i}], {arg};", bytes * 8));
        }
        let list: Vec<String> = (0..args.len()).map(|i| format!("param{i}")).collect();
        match f.result() {
            None => {
                self.line(&format!("call.uni {name}, ({});", list.join(", ")));
            }
            Some(bytes) => {
                self.line(&format!("{};", param(bytes, "retval0")));
                self.line(&format!("call.uni (retval0), {name}, ({});", list.join(", ")));
                if !result.is_empty() {
                    self.line(&format!("ld.param.b{} {result}, [retval0];", bytes * 8));
                }
            }
        }
        self.line("}")
    }

    pub fn text(&self, params: usize) -> String {
        let mut out = ".version 8.8\n.target sm_90a\n.address_size 64\n".to_string();
        for name in &self.declared {
            let f = nvshmem_function(name).unwrap();
            let result = f.result().map_or(String::new(), |b| format!(" ({})", param(b, "func_retval0")));
            let list: Vec<String> =
                f.params().iter().enumerate().map(|(i, b)| param(*b, &format!("{name}_param_{i}"))).collect();
            out += &format!(".extern .func {result} {name}\n(\n{}\n)\n;\n", list.join(",\n"));
        }
        let list: Vec<String> = (0..params).map(|i| format!(".param .u64 p{i}")).collect();
        out += &format!(".visible .entry k({})\n{{\n", list.join(", "));
        out += ".reg .b64 %a<16>; .reg .b64 %x<64>; .reg .b32 %w<64>; .reg .b16 %h<16>; .reg .pred %p<16>;\n";
        for i in 0..params {
            out += &format!("ld.param.b64 %a{i}, [p{i}];\n");
        }
        out + &self.body + "ret;\n}\n"
    }

    pub fn module(&self, params: usize) -> Module {
        let text = self.text(params);
        Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }
}

fn param(bytes: u64, name: &str) -> String {
    match bytes {
        2 => format!(".param .align 2 .b8 {name}[2]"),
        _ => format!(".param .b{} {name}", bytes * 8),
    }
}

/// A kernel of so many parameters.
pub fn kernel(params: usize, write: impl FnOnce(&mut Kernel)) -> Module {
    let mut k = Kernel::default();
    write(&mut k);
    k.module(params)
}

pub fn machine_of(n_pes: usize, seed: u64) -> Machine {
    Machine::new(Config::default().n_pes(n_pes).seed(seed)).unwrap()
}

/// Runs the kernel on every PE with these arguments by PE, one CTA.
pub fn launch(
    m: &mut Machine,
    module: &Module,
    threads: u32,
    args: impl Fn(&Machine, usize) -> Vec<u64>,
) -> Result<Stats, SimError> {
    let grids: Vec<Launch> = (0..m.config().n_pes)
        .map(|pe| {
            Launch::default()
                .pe(pe)
                .block([threads, 1, 1])
                .args(args(m, pe).into_iter().map(Arg::U64).collect())
        })
        .collect();
    m.launch(module, "k", &grids)
}

pub fn longs(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

pub fn read_longs(m: &Machine, pe: usize, addr: u64, n: usize) -> Vec<u64> {
    let mut bytes = vec![0; n * 8];
    m.read(pe, addr, &mut bytes).unwrap();
    bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
}
