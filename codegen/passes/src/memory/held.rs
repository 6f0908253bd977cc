//! Products that read registers: from where they begin up to a wait for them, nobody writes the registers.

use crate::codes::UNWAITED;
use rustc_hash::FxHashMap;
use weft_ir::diag::Diagnostic;
use weft_ir::mixed::{Kernel, Type};
use weft_ir::{Block, Operation, Tile, Value};

/// The registers that products in flight read.
#[derive(Default)]
pub(super) struct Held {
    /// The registers of products that are begun.
    registers: FxHashMap<Value, Value>,
    /// The products that may be under way at each wait.
    waits: FxHashMap<Value, Vec<Value>>,
}

impl Held {
    /// Finds which waits end the products of elements in registers.
    ///
    /// # Errors
    /// Fails if no wait for all products follows in the block of one: its registers could be written before
    /// it has read them.
    pub fn new(k: &Kernel) -> Result<Held, Vec<Diagnostic>> {
        let (mut held, mut errors) = (Held::default(), Vec::new());
        held.block(k, &k.body, &mut errors);
        if errors.is_empty() { Ok(held) } else { Err(errors) }
    }

    /// A product is begun that reads these registers.
    pub fn begun(&mut self, product: Value, registers: Value) {
        self.registers.insert(product, registers);
    }

    /// The registers that nobody may write before a wait.
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
            let message = "a product of elements in registers is not waited for where it begins";
            Diagnostic::error(UNWAITED, k.insts[v].span, message)
                .help("put `mma_wait<0>` of its accumulator behind it, in the same block")
        }));
    }
}
