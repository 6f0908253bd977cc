//! NVSHMEM's operations on streams. As in NVSHMEM, they are kernels of one thread that call its
//! device functions, which are built into the simulator.

use crate::error::{Error, OPERATION, Result};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};
use weft_sim::{Launch, Module, NvshmemFunction, nvshmem_function};

/// The name of the kernel that calls a function with the kernel's own parameters.
pub(super) fn kernel_name(function: &str) -> String {
    format!("{function}_on_stream")
}

/// The PTX of a kernel that calls a function.
fn text(f: NvshmemFunction) -> String {
    let bits = |bytes: u64| bytes * 8;
    let list = |of: &dyn Fn(usize, u64) -> String| -> String {
        let all = f.params().iter().enumerate().map(|(i, bytes)| of(i, bits(*bytes)));
        all.collect::<Vec<_>>().join(", ")
    };
    let (name, params) = (f.name(), list(&|i, bits| format!(".param .b{bits} p{i}")));
    let result = f.result().map_or(String::new(), |bytes| format!("(.param .b{} r) ", bits(bytes)));
    let mut out = String::from(".version 8.0\n.target sm_90\n.address_size 64\n");
    let _ = writeln!(out, ".extern .func {result}{name} ({params});");
    let _ = writeln!(out, ".visible .entry {} ({params}) {{", kernel_name(name));
    out.push_str("\t.reg .b32 %w<9>;\n\t.reg .b64 %l<9>;\n");
    let register = |i: usize, bytes: u64| format!("{}{i}", if bytes == 8 { "%l" } else { "%w" });
    for (i, bytes) in f.params().iter().enumerate() {
        let _ = writeln!(out, "\tld.param.b{} {}, [p{i}];", bits(*bytes), register(i, *bytes));
    }
    out.push_str("\t{\n");
    for (i, bytes) in f.params().iter().enumerate() {
        let _ = writeln!(out, "\t.param .b{} a{i};", bits(*bytes));
        let _ = writeln!(out, "\tst.param.b{} [a{i}], {};", bits(*bytes), register(i, *bytes));
    }
    let arguments = list(&|i, _| format!("a{i}"));
    match f.result() {
        Some(bytes) => {
            let _ = writeln!(out, "\t.param .b{} r;\n\tcall.uni (r), {name}, ({arguments});", bits(bytes));
        }
        None => {
            let _ = writeln!(out, "\tcall.uni {name}, ({arguments});");
        }
    }
    out.push_str("\t}\n\tret;\n}\n");
    out
}

/// Returns the module with the kernel that calls a function.
///
/// # Errors
/// Fails if there is no such function (R0401).
pub(super) fn module(function: &str) -> Result<Module> {
    static MADE: OnceLock<Mutex<HashMap<String, Module>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(module) = made.get(function) {
        return Ok(module.clone());
    }
    let missing = || Error::new(OPERATION, format!("NVSHMEM does not have `{function}`"));
    let text = text(nvshmem_function(function).ok_or_else(missing)?);
    let module = Module::parse_for_host(&text)
        .map_err(|e| Error::new(OPERATION, format!("`{function}` cannot be called on a stream: {e}")))?;
    made.insert(function.to_owned(), module.clone());
    Ok(module)
}

/// The launch of a function's kernel with these arguments.
pub(super) fn launch(pe: u32, arguments: Vec<weft_sim::Arg>) -> Launch {
    Launch::default().pe(pe as usize).args(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_a_thread_can_be_called_on_a_stream() {
        let plain = |name: &str| !name.ends_with("_warp") && !name.ends_with("_block");
        // 16-bit and 128-bit values are passed as structures.
        let simple = |f: &NvshmemFunction| f.params().iter().all(|bytes| matches!(bytes, 4 | 8));
        let all = weft_sim::nvshmem_functions().filter(|f| plain(f.name())).filter(simple);
        let mut n = 0;
        for f in all.step_by(7) {
            module(f.name()).unwrap();
            n += 1;
        }
        assert!(n > 50, "{n} functions");
        assert_eq!(module("nvshmem_nothing").unwrap_err().code, OPERATION);
    }
}
