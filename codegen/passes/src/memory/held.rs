//! Products that read registers. Nothing may write these registers between the beginning of a
//! product and a wait for it.

use crate::codes::UNWAITED;
use rustc_hash::FxHashMap;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Kernel, Type};
use weft_ir::{Block, Operation, Tile, Value};

/// The registers that products in flight read.
#[derive(Default)]
pub(super) struct HeldRegisters {
    /// The registers of each product that has begun.
    registers: FxHashMap<Value, Value>,
    /// The products that may be in flight at each wait.
    waits: FxHashMap<Value, Vec<Value>>,
}

impl HeldRegisters {
    /// Finds the waits that end the products of elements in registers.
    ///
    /// # Errors
    /// Fails if no wait for all products follows such a product in its block, because its registers
    /// could be written before it has read them.
    pub fn new(k: &Kernel) -> Result<HeldRegisters, Vec<Diagnostic>> {
        let (mut held, mut errors) = (HeldRegisters::default(), Vec::new());
        held.block(k, &k.body, &mut errors);
        if errors.is_empty() { Ok(held) } else { Err(errors) }
    }

    /// Records that a product which reads these registers has begun.
    pub fn begun(&mut self, product: Value, registers: Value) {
        self.registers.insert(product, registers);
    }

    /// The registers that must not be written before a wait.
    pub fn until(&self, wait: Value) -> Vec<Value> {
        let products = self.waits.get(&wait).into_iter().flatten();
        products.filter_map(|product| self.registers.get(product).copied()).collect()
    }

    fn block(&mut self, k: &Kernel, block: &Block, errors: &mut Vec<Diagnostic>) {
        let mut open: Vec<Value> = Vec::new();
        for &v in &block.0 {
            match k.op(v).tile() {
                Some(Tile::Mma { a, .. }) if matches!(k.ty(*a), Type::Vector(..)) => open.push(v),
                Some(Tile::MmaWait { pending, .. }) => {
                    self.waits.insert(v, open.clone());
                    if *pending == 0 {
                        open.clear();
                    }
                }
                _ => k.op(v).blocks().into_iter().for_each(|inner| self.block(k, inner, errors)),
            }
        }
        errors.extend(open.into_iter().map(|v| {
            let message = "no wait for a product of elements in registers follows in its block";
            Diagnostic::error(UNWAITED, k.insts[v].span, message)
                .help("put `mma_wait<0>` of its accumulator after it, in the same block")
        }));
    }
}
