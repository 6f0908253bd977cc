//! The use of each tensor of a kernel, which its text declares or its operations suggest.

use std::collections::BTreeMap;
use std::fmt;
use weft_ir::ordering::{Flag, flags};
use weft_ir::{Kernel, Role, Type};
use weft_lang::elaborate::Reference;

/// The role of a tensor parameter, declared or guessed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorRole {
    /// What the kernel uses the tensor for.
    pub role: Role,
    /// The reason for the guess, or `None` if the text declares the role.
    pub guessed: Option<String>,
    /// Whether `computes(...)` names it as a result and not as an operand.
    pub is_result: bool,
}

impl fmt::Display for TensorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.guessed {
            None => write!(f, "{}, as declared", self.role),
            Some(why) => write!(f, "{}, guessed: {why}", self.role),
        }
    }
}

/// Assigns roles to a kernel's parameters, by index. A parameter that is not a tensor has none.
/// `reference` is the kernel's `computes(...)`.
pub(crate) fn assign(kernel: &Kernel, reference: Option<&Reference>) -> Vec<Option<TensorRole>> {
    let flags = flags(kernel);
    let of = |(index, p): (u32, &weft_ir::Param<_>)| {
        matches!(p.ty, Type::Tensor(_)).then(|| {
            let is_result = reference.is_some_and(|r| r.has_result(&p.name));
            let (role, why) = guess(reference, &flags, &p.name, index);
            match p.role {
                Some(role) => TensorRole { role, guessed: None, is_result },
                None => TensorRole { role, guessed: Some(why), is_result },
            }
        })
    };
    (0..).zip(&kernel.head.params).map(of).collect()
}

/// Guesses the role of an undeclared parameter, and gives the reason.
fn guess(
    reference: Option<&Reference>,
    flags: &BTreeMap<u32, Flag>,
    name: &str,
    index: u32,
) -> (Role, String) {
    // A function of the text may assign to a counter that starts at 0. The kernel's own operations
    // are better evidence.
    let by_operations = reference.is_some_and(|r| r.function.is_some()) && flags.contains_key(&index);
    match reference.filter(|_| !by_operations) {
        Some(r) if r.has_result(name) => return (Role::Output, format!("it is the result of computes({r})")),
        Some(r) if r.args.iter().any(|arg| **arg == *name) => {
            return (Role::Input, format!("it is the operand of computes({r})"));
        }
        _ => {}
    }
    let (role, why) = match flags.get(&index) {
        Some(Flag::Counted) => (Role::Zeroed, "an atomic or a reduction in memory updates it"),
        Some(Flag::Signal) => (Role::Zeroed, "it is a signal, or an operation waits for it"),
        Some(Flag::Ordered) => {
            (Role::Zeroed, "ordered loads read it, so other threads may write it at the same time")
        }
        None => (Role::Input, "no operation of the kernel suggests another use"),
    };
    (role, why.to_owned())
}
