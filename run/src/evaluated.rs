//! Compares results with a `reference fn` of the kernel's text.

use super::array::{self, read_number, write_number};
use super::reference::{Checked, Values};
use weft_ir::diag::Diagnostic;
use weft_ir::{NumberKind, Scalar};
use weft_lang::elaborate::Define;
use weft_lang::evaluate::{Argument, Number, PeContext, ReferenceFn, Tensors, unit_roundoff};

/// The allowed error as a multiple of the bound of the running error analysis, since the kernel may
/// add in another order than the reference.
const SLACK: f64 = 2.0;

/// The argument of a parameter of the function.
pub(super) enum Operand {
    /// A tensor before and after the launch.
    Tensor { name: String, before: Values, after: Values },
    /// A number, a truth value or an element type.
    Value(Define),
}

/// A tensor during the evaluation of the function on a PE.
struct Memory<'a> {
    before: &'a Values,
    /// The assigned elements on this PE.
    assigned: Vec<Option<Number>>,
}

struct Host<'a> {
    tensors: Vec<Memory<'a>>,
    pe: usize,
}

impl Tensors for Host<'_> {
    fn shape(&self, tensor: usize) -> &[u64] {
        &self.tensors[tensor].before.shape
    }

    fn read(&self, tensor: usize, pe: usize, at: usize) -> Number {
        let Memory { before, assigned } = &self.tensors[tensor];
        match assigned.get(at).copied().flatten().filter(|_| pe == self.pe) {
            Some(n) => n,
            None => number(before.dtype, before.get(pe, at)),
        }
    }

    fn write(&mut self, tensor: usize, at: usize, value: Number) -> Result<(), String> {
        let Memory { before, assigned } = &mut self.tensors[tensor];
        let dtype = before.dtype;
        assigned.resize(before.len(), None);
        assigned[at] = Some(match (dtype.kind(), value) {
            (NumberKind::Float, n) => Number::Real(n.real()),
            (NumberKind::Bool, n @ Number::Bool(_)) => n,
            (NumberKind::Signed | NumberKind::Unsigned, Number::Int(n)) => {
                number(dtype, held(dtype, array::Number::Int(n)))
            }
            (_, n) => {
                return Err(format!(
                    "{n} cannot be assigned to an element of {dtype}: convert it with `.to<{dtype}>()`"
                ));
            }
        });
        Ok(())
    }
}

/// Converts an element for the function.
fn number(dtype: Scalar, n: array::Number) -> Number {
    match n {
        array::Number::Int(n) if dtype == Scalar::Bool => Number::Bool(n != 0),
        array::Number::Int(n) => Number::Int(n),
        array::Number::Float(x) => Number::Real(x.into()),
    }
}

/// Rounds a number to an element type.
fn held(dtype: Scalar, n: array::Number) -> array::Number {
    let mut bytes = Vec::new();
    write_number(dtype, n, &mut bytes);
    read_number(dtype, &bytes)
}

/// Compares every element that the function assigns, on every PE, with the one after the launch.
/// `acc` is the type that the kernel computes in.
///
/// # Errors
/// Fails if the function does something that has no meaning.
pub(super) fn check(f: &ReferenceFn, operands: &[Operand], acc: Scalar) -> Result<Checked, Diagnostic> {
    let tensors = || {
        operands.iter().filter_map(|o| match o {
            Operand::Tensor { name, before, after } => Some((name, before, after)),
            Operand::Value(_) => None,
        })
    };
    let mut number_of_tensors = 0..;
    let arguments: Vec<_> = operands
        .iter()
        .map(|o| match o {
            Operand::Tensor { .. } => Argument::Tensor(number_of_tensors.next().unwrap_or_default()),
            Operand::Value(Define::Int(n)) => Argument::Number(Number::Int((*n).into())),
            Operand::Value(Define::Float(x)) => Argument::Number(Number::Real((*x).into())),
            Operand::Value(Define::Bool(b)) => Argument::Number(Number::Bool(*b)),
            Operand::Value(Define::Dtype(dtype)) => Argument::Dtype(*dtype),
            Operand::Value(Define::Reduction(_)) => Argument::Number(Number::Int(0)),
        })
        .collect();
    let n_pes = tensors().map(|(_, before, _)| before.data.len()).max().unwrap_or_default();
    let mut out = Checked::default();
    let mut names: Vec<&str> = Vec::new();
    for pe in 0..n_pes {
        let memory = tensors().map(|(_, before, _)| Memory { before, assigned: Vec::new() });
        let mut host = Host { tensors: memory.collect(), pe };
        f.evaluate(&arguments, &mut host, PeContext { pe, n_pes, unit: unit_roundoff(acc) })?;
        for (memory, (name, _, after)) in host.tensors.iter().zip(tensors()) {
            if !memory.assigned.is_empty() && !names.contains(&name.as_str()) {
                names.push(name);
            }
            for (i, want) in memory.assigned.iter().enumerate() {
                let Some(want) = want else { continue };
                if !compare(&mut out, after.get(pe, i), *want, after.dtype) {
                    out.add_wrong(name, pe, i, after.get(pe, i), exact(*want));
                }
            }
        }
    }
    if out.tensor.is_empty() {
        out.tensor = names.join(", ");
    }
    Ok(out)
}

/// Converts a number for an array.
fn exact(n: Number) -> array::Number {
    match n {
        Number::Int(n) => array::Number::Int(n),
        Number::Bool(b) => array::Number::Int(b.into()),
        Number::Real(x) => array::Number::Float(x.value),
    }
}

/// Adds the comparison of an element, and returns whether it is right.
fn compare(out: &mut Checked, have: array::Number, want: Number, dtype: Scalar) -> bool {
    let error = match want {
        Number::Real(x) => SLACK * x.error,
        Number::Int(_) | Number::Bool(_) => 0.0,
    };
    out.compare(have, exact(want), held(dtype, exact(want)), error, dtype)
}
