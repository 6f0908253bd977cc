//! Sizes, alignments and offsets of variables and parameters.

use super::MAX_VARIABLE;
use crate::builder::ModuleBuilder;
use crate::codes;
use crate::error::PtxError;
use crate::exec::access::Space;
use crate::exec::code::{FunctionCode, Relocation};
use crate::ptx::{
    ast::{self, Init, Number},
    error_at,
};
use crate::types::Ty;

pub(super) struct Size {
    pub bytes: u64,
    pub align: u64,
    /// Whether the outermost dimension is open, as in `x[]`.
    pub open: bool,
}

/// Returns the size and alignment of a declared variable, or an error for impossible values.
pub(super) fn size_of(text: &str, v: &ast::Variable<'_>) -> Result<Size, PtxError> {
    let bad = |message: String| Err(error_at(text, v.at, codes::TOO_LARGE, message, ""));
    let Some(ty) = Ty::parse(v.ty) else {
        let help =
            "declare variables with .b8 to .b64, or with an integer or floating-point type of 8 to 64 bits";
        return Err(error_at(
            text,
            v.at,
            codes::NOT_SIMULATED,
            format!("type `.{}` of `{}` is not supported", v.ty, v.name),
            help,
        ));
    };
    let element = ty.bytes() as u64 * u64::from(v.vector);
    let mut bytes = element;
    let mut open = false;
    for (i, dim) in v.dims.iter().enumerate() {
        match dim {
            Some(n) => bytes = bytes.saturating_mul(*n),
            None if i == 0 => open = true,
            None => return bad(format!("only the first dimension of `{}` may be left out", v.name)),
        }
    }
    if open {
        bytes = bytes.saturating_mul((v.init.len() as u64 * element).div_ceil(bytes.max(1)));
    }
    let align = v.align.unwrap_or(element);
    if !align.is_power_of_two() || align > 4096 {
        return bad(format!("alignment {align} of `{}` is not a power of two up to 4096", v.name));
    }
    if bytes > MAX_VARIABLE {
        return bad(format!("`{}` is larger than {MAX_VARIABLE} bytes", v.name));
    }
    Ok(Size { bytes, align, open })
}

/// Lays out the parameters and results of a device function at the start of its frame.
pub(super) fn signature(text: &str, f: &ast::Function<'_>) -> Result<FunctionCode, PtxError> {
    let mut code = FunctionCode { name: f.name.to_string(), ..FunctionCode::default() };
    if f.is_entry {
        return Ok(code);
    }
    let mut end = 0_u64;
    let mut place = |list: &[ast::Variable<'_>], out: &mut Vec<(u64, u64)>| {
        for p in list {
            if p.space == "reg" {
                let help = "declare the parameter with .param";
                return Err(error_at(
                    text,
                    p.at,
                    codes::NOT_SIMULATED,
                    "register parameters are not supported",
                    help,
                ));
            }
            let Size { bytes, align, .. } = size_of(text, p)?;
            let offset = end.next_multiple_of(align);
            end = offset + bytes;
            if end > MAX_VARIABLE {
                return Err(error_at(text, p.at, codes::TOO_LARGE, "too many bytes of parameters", ""));
            }
            out.push((offset, bytes));
        }
        Ok(())
    };
    place(&f.params, &mut code.params)?;
    place(&f.returns, &mut code.returns)?;
    code.frame_bytes = end;
    Ok(code)
}

/// Fills in a module variable's initial value.
pub(super) fn initialise(
    m: &mut ModuleBuilder<'_>,
    index: usize,
    v: &ast::Variable<'_>,
) -> Result<(), PtxError> {
    if v.init.is_empty() {
        return Ok(());
    }
    if m.variables[index].space == Space::Shared {
        return Err(
            m.name_error(v.at, format!("`{}` is in shared memory and cannot have an initialiser", v.name))
        );
    }
    let Some(ty) = Ty::parse(v.ty) else { return Ok(()) };
    let size = ty.bytes();
    if v.init.len() as u64 * size as u64 > m.variables[index].size {
        return Err(m.name_error(v.at, format!("`{}` has more initial values than elements", v.name)));
    }
    let mut bytes = Vec::with_capacity(v.init.len() * size);
    let mut relocations = Vec::new();
    for value in &v.init {
        let at = bytes.len();
        let bits = match *value {
            Init::Number(Number::Int(n)) => n,
            Init::Number(Number::F32(n)) => n.into(),
            Init::Number(Number::F64(n)) if size == 4 => (n as f32).to_bits().into(),
            Init::Number(Number::F64(n)) => n.to_bits(),
            Init::Symbol { name, offset } => {
                let Some(&variable) = m.variable_names.get(name) else {
                    return Err(m.name_error(
                        v.at,
                        format!(
                            "the initialiser of `{}` takes the address of `{name}`, which is not declared",
                            v.name
                        ),
                    ));
                };
                relocations.push(Relocation { at, size, variable, offset });
                0
            }
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..size]);
    }
    let variable = &mut m.variables[index];
    (variable.init, variable.relocations) = (bytes, relocations);
    Ok(())
}

/// The layout of a kernel's shared variables.
pub(super) struct SharedLayout {
    /// The number and the offset of each variable.
    pub places: Vec<(usize, u64)>,
    /// The size of the static variables in bytes.
    pub bytes: u32,
    /// Whether there is dynamic shared memory.
    pub dynamic: bool,
}

/// Lays out the shared variables that a kernel reaches through its calls, one after another, with
/// the dynamic ones at the end.
pub(super) fn shared(
    m: &ModuleBuilder<'_>,
    entry: usize,
    f: &ast::Function<'_>,
) -> Result<SharedLayout, PtxError> {
    let mut reached = vec![false; m.functions.len()];
    let mut todo = vec![entry];
    let mut used = vec![false; m.variables.len()];
    while let Some(i) = todo.pop() {
        if std::mem::replace(&mut reached[i], true) {
            continue;
        }
        let (variables, calls) = &m.uses[i];
        variables.iter().for_each(|&v| used[v] = true);
        todo.extend(calls);
    }
    let of = |dynamic: bool| {
        let is_used = |i: &usize| {
            used[*i] && m.variables[*i].space == Space::Shared && m.variables[*i].dynamic == dynamic
        };
        (0..m.variables.len()).filter(is_used).collect::<Vec<_>>()
    };
    let mut end = 0_u64;
    let mut places = Vec::new();
    for i in of(false) {
        let at = end.next_multiple_of(m.variables[i].align);
        places.push((i, at));
        end = at + m.variables[i].size;
        if end > u64::from(u32::MAX) / 2 {
            return Err(error_at(m.text, f.at, codes::TOO_LARGE, "more than 2 GiB of shared memory", ""));
        }
    }
    let dynamic = of(true);
    // All dynamic arrays begin at the same offset, with the alignment of the most demanding one.
    let align = dynamic.iter().map(|&i| m.variables[i].align).max().unwrap_or(1).max(16);
    let start = end.next_multiple_of(align);
    places.extend(dynamic.iter().map(|&i| (i, start)));
    let bytes = if dynamic.is_empty() { end } else { start };
    Ok(SharedLayout { places, bytes: bytes as u32, dynamic: !dynamic.is_empty() })
}
