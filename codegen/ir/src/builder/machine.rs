//! Parameters and accesses of kernels at the machine level.

use super::{Builder, Built};
use crate::head::MachineParam;
use crate::kernel::Value;
use crate::level::Machine;
use crate::names::{Scope, Sem, Space};
use crate::op::{Memory, Var};
use crate::types::machine;

impl Builder<Machine> {
    /// Adds a parameter that is a number, or an address of which nothing is known.
    pub fn param(&mut self, name: &str, ty: machine::Type) -> Built<Value> {
        self.add(name, ty, 1)
    }

    /// Adds a parameter that is an address and a multiple of `align` bytes.
    pub fn pointer_param(&mut self, name: &str, space: Space, align: u32) -> Built<Value> {
        self.add(name, machine::Type::Pointer(space), align)
    }

    /// Appends a weak load of a value of type `ty`.
    pub fn load(&mut self, ptr: Value, ty: machine::Type) -> Built<Value> {
        self.emit_as(Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Sys }, ty)
    }

    /// Appends a weak store of a value.
    pub fn store(&mut self, ptr: Value, value: Value) -> Built<Value> {
        self.emit(Memory::Store { ptr, value, sem: Sem::Weak, scope: Scope::Sys })
    }

    /// Appends a `multimem.st.relaxed.sys` of `value` to the address `ptr`.
    pub fn mc_store(&mut self, ptr: Value, value: Value) -> Built<Value> {
        self.emit(Memory::McStore { ptr, value, sem: Sem::Relaxed, scope: Scope::Sys })
    }

    fn add(&mut self, name: &str, ty: machine::Type, align: u32) -> Built<Value> {
        let params = &mut self.kernel.head.params;
        let index = u32::try_from(params.len()).unwrap_or(u32::MAX);
        params.push(MachineParam { name: name.into(), ty, align, source: index, span: self.span });
        self.emit(Var::Param { index })
    }
}
