//! Reductions on streams: a kernel for each operation and element type, all generated from one
//! text.

use super::ops::{self, Block, MAX_PES};
use crate::DType;
use crate::collective::Reduce;
use crate::cuda::{Device, Stream};
use crate::error::Result;
use crate::launch::driver::{Function, Loaded};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The number of threads of a CTA.
const THREADS: u32 = 256;
/// The largest number of CTAs, which take elements in turn.
const CTAS: u64 = 64;

/// The PTX arithmetic for elements of a type.
struct Arithmetic {
    dtype: DType,
    /// The type suffix of operations.
    compute: &'static str,
    /// The type of registers.
    register: &'static str,
    /// The type suffix of loads and stores.
    memory: &'static str,
}

macro_rules! arithmetic {
    ($($dtype:ident: $compute:literal, $register:literal, $memory:literal;)*) => {
        &[$(Arithmetic { dtype: DType::$dtype, compute: $compute, register: $register, memory: $memory }),*]
    };
}

/// Narrow integers are computed in 32 bits, and 16-bit floats in f32.
const TYPES: &[Arithmetic] = arithmetic! {
    I8: "s32", "b32", "s8";
    I16: "s32", "b32", "s16";
    I32: "s32", "b32", "s32";
    I64: "s64", "b64", "s64";
    U8: "u32", "b32", "u8";
    U16: "u32", "b32", "u16";
    U32: "u32", "b32", "u32";
    U64: "u64", "b64", "u64";
    F16: "f32", "f32", "b16";
    BF16: "f32", "f32", "b16";
    F32: "f32", "f32", "f32";
    F64: "f64", "f64", "f64";
};

/// The text of a reduction, or `None` if NVSHMEM does not have it either.
fn text(dtype: DType, op: Reduce) -> Option<String> {
    let Arithmetic { compute, register, memory, .. } = TYPES.iter().find(|t| t.dtype == dtype)?;
    let is_float = compute.starts_with('f');
    let name = match op {
        Reduce::Sum => "add",
        Reduce::Prod if is_float => "mul",
        Reduce::Prod => "mul.lo",
        Reduce::Min => "min",
        Reduce::Max => "max",
        _ if is_float => return None,
        Reduce::And => "and",
        Reduce::Or => "or",
        Reduce::Xor => "xor",
    };
    let bitwise = matches!(op, Reduce::And | Reduce::Or | Reduce::Xor);
    let combine = format!("{name}.{}", if bitwise { register } else { compute });
    let (load, store) = match dtype {
        DType::F16 => {
            ("ld.global.b16 %h, [%a]; cvt.f32.f16 %v, %h;", "cvt.rn.f16.f32 %h, %x; st.global.b16 [%a], %h;")
        }
        DType::BF16 => (
            "ld.global.b16 %h, [%a]; mov.b32 %v, {%z, %h};",
            "cvt.rn.bf16.f32 %h, %x; st.global.b16 [%a], %h;",
        ),
        _ => ("", ""),
    };
    let (plain_load, plain_store) =
        (format!("ld.global.{memory} %v, [%a];"), format!("st.global.{memory} [%a], %x;"));
    let load = if load.is_empty() { &plain_load } else { load };
    let store = if store.is_empty() { &plain_store } else { store };
    let bytes = dtype.bytes();
    Some(format!(
        "
.version 7.0
.target sm_80
.address_size 64
// Element i < count is reduced over the n sources and written to the m destinations.
.visible .entry weft_reduce(
    .param .u64 count, .param .u32 n, .param .u32 m,
    .param .align 8 .b8 sources[512], .param .align 8 .b8 destinations[512]
)
{{
    .reg .{register} %v, %x;
    .reg .b16 %h, %z;
    .reg .b32 %t, %b, %g, %n, %m, %j;
    .reg .b64 %i, %o, %a, %p, %count, %stride;
    .reg .pred %q;
    mov.b16 %z, 0;
    ld.param.u64 %count, [count];
    ld.param.u32 %n, [n];
    ld.param.u32 %m, [m];
    mov.u32 %t, %tid.x;
    mov.u32 %b, %ctaid.x;
    mov.u32 %g, %nctaid.x;
    mad.lo.u32 %t, %b, {THREADS}, %t;
    mul.lo.u32 %g, %g, {THREADS};
    cvt.u64.u32 %i, %t;
    cvt.u64.u32 %stride, %g;
next:
    setp.ge.u64 %q, %i, %count;
    @%q bra end;
    mul.lo.u64 %o, %i, {bytes};
    mov.b64 %p, sources;
    ld.param.u64 %a, [%p];
    add.u64 %a, %a, %o;
    {load}
    mov.{register} %x, %v;
    mov.u32 %j, 1;
source:
    setp.ge.u32 %q, %j, %n;
    @%q bra store;
    add.u64 %p, %p, 8;
    ld.param.u64 %a, [%p];
    add.u64 %a, %a, %o;
    {load}
    {combine} %x, %x, %v;
    add.u32 %j, %j, 1;
    bra source;
store:
    mov.b64 %p, destinations;
    mov.u32 %j, 0;
destination:
    setp.ge.u32 %q, %j, %m;
    @%q bra done;
    ld.param.u64 %a, [%p];
    add.u64 %a, %a, %o;
    {store}
    add.u64 %p, %p, 8;
    add.u32 %j, %j, 1;
    bra destination;
done:
    add.u64 %i, %i, %stride;
    bra next;
end:
    ret;
}}
\0"
    ))
}

/// Whether there is such a reduction.
pub(super) fn exists(dtype: DType, op: Reduce) -> bool {
    text(dtype, op).is_some()
}

/// The kernels that were loaded so far.
#[derive(Default)]
pub(super) struct Reductions(Mutex<HashMap<(DType, Reduce), Kernel>>);

struct Kernel {
    function: Function,
    /// The module, which must be dropped after its function.
    _module: Loaded,
}

impl Reductions {
    /// Reduces `count` elements of the sources into all destinations.
    pub fn launch(
        &self,
        device: &Device,
        (dtype, op): (DType, Reduce),
        count: usize,
        (sources, destinations): (&[u64], &[u64]),
        stream: &Stream,
    ) -> Result<()> {
        debug_assert!(sources.len() <= MAX_PES && destinations.len() <= MAX_PES);
        let function = {
            let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match kernels.get(&(dtype, op)) {
                Some(kernel) => kernel.function.clone(),
                None => {
                    let module = ops::load(device, &text(dtype, op).unwrap_or_default())?;
                    let function = module.function("weft_reduce")?;
                    kernels.insert((dtype, op), Kernel { function: function.clone(), _module: module });
                    function
                }
            }
        };
        let ctas = (count as u64).div_ceil(THREADS.into()).clamp(1, CTAS);
        let half = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let block =
            Block::default().word(count as u64).packed(half(sources.len())).packed(half(destinations.len()));
        let block = block.words(sources.iter().copied()).words(destinations.iter().copied());
        ops::launch(&function, (ctas as u32, THREADS), block, stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_nvshmems_reductions() {
        for dtype in DType::ALL {
            for op in Reduce::ALL {
                let bits = matches!(op, Reduce::And | Reduce::Or | Reduce::Xor);
                let wanted = dtype.nvshmem_name().is_some() && (!bits || dtype.is_int());
                assert_eq!(exists(*dtype, op), wanted, "{op:?} of {dtype}");
            }
        }
    }

    #[test]
    fn every_text_assembles() {
        use crate::jitlink::{Input, JitLink};
        let library = match JitLink::get() {
            Ok(library) => library,
            Err(e) => {
                assert!(std::env::var_os("WEFT_REQUIRE_NVJITLINK").is_none(), "{e}");
                return println!("skipped: {e}");
            }
        };
        let reductions = DType::ALL.iter().flat_map(|d| Reduce::ALL.map(|op| text(*d, op)));
        for text in reductions.flatten().chain([ops::TEXT.to_owned()]) {
            for target in ["sm_90a", "sm_100"] {
                let linked = library.link(target, None, &[Input::Ptx("ops", text.trim_end_matches('\0'))]);
                assert!(linked.is_ok(), "{target}: {linked:?}\n{text}");
            }
        }
    }
}
