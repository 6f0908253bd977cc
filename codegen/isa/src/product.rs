//! Matrix products and their fragments, selected by the types that are multiplied.

use crate::choice::Choice;
use crate::instruction::Instruction;

/// A product of matrices, with the element types in the words of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Product {
    /// The element type of matrix A.
    pub a: &'static str,
    /// The element type of matrix B.
    pub b: &'static str,
    /// The type of the sums.
    pub sum: &'static str,
}

/// The element types whose names in the language differ from those of matrix instructions. `f32`
/// operands are multiplied as tf32, with 10 bits of mantissa.
const OPERANDS: [(&str, &str); 7] = [
    ("f32", "tf32"),
    ("i8", "s8"),
    ("u8", "u8"),
    ("bf16", "bf16"),
    ("f16", "f16"),
    ("e4m3", "e4m3"),
    ("e5m2", "e5m2"),
];
const SUMS: [(&str, &str); 3] = [("f32", "f32"), ("f16", "f16"), ("i32", "s32")];

fn renamed(names: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    names.iter().find(|(from, _)| *from == name).map(|(_, to)| *to)
}

impl Product {
    /// The product of two element types that is accumulated in a third, by their names in the
    /// language. It is `None` if no table has an operand or sum of that type.
    pub fn new(a: &str, b: &str, sum: &str) -> Option<Product> {
        let operand = |name| renamed(&OPERANDS, name);
        Some(Product { a: operand(a)?, b: operand(b)?, sum: renamed(&SUMS, sum)? })
    }

    /// The number of elements along K that an instruction multiplies, which is 32 bytes of them.
    pub fn depth(&self) -> u32 {
        match self.a {
            "tf32" => 8,
            "bf16" | "f16" => 16,
            _ => 32,
        }
    }

    /// The product of a warpgroup with `n` columns of B. A is in registers (`regs`) or in shared
    /// memory. Each operand is contiguous along K, or along M or N if its `mn` is set.
    pub fn of_warpgroup(&self, n: u32, regs: bool, mn: [bool; 2]) -> Option<Choice> {
        let major = |mn| if mn { "mn" } else { "k" };
        let (k, n) = (self.depth().to_string(), n.to_string());
        let from = if regs { "regs" } else { "shared" };
        let words = [self.a, self.b, self.sum, &k, &n, from, major(mn[0]), major(mn[1])];
        Some(Choice::new(Instruction::named("wgmma.mma_async")?, &words))
    }

    /// The product of a warp, which multiplies 16 rows of A with 8 columns of B.
    pub fn of_warp(&self) -> Option<Choice> {
        let k = self.depth().to_string();
        Some(Choice::new(Instruction::named("mma.sync")?, &[self.a, self.b, self.sum, &k]))
    }
}

/// The load (`ldmatrix`) or store (`stmatrix`) of `n` matrices of eight rows of 16 bytes.
pub fn fragments(name: &str, n: u32, trans: bool) -> Option<Choice> {
    let words = ["b16", &format!("x{n}"), if trans { "trans" } else { "-" }];
    Some(Choice::new(Instruction::named(name)?, &words))
}
