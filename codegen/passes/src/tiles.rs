//! A report on the lowering of tiles for `weft explain`: matrix products, copies by TMA, pipelines,
//! fences between proxies, shared memory, and registers of roles.

use std::fmt;
use std::sync::Arc;
use weft_ir::abi::place_shared;
use weft_ir::diag::Span;
use weft_ir::roles::{registers_at_start, registers_of_cta};
use weft_ir::{Address, Block, Control, Operation, machine};
use weft_isa::Target;

/// The number of columns of the widest matrix instruction over shared memory (PTX ISA,
/// wgmma.mma_async).
const MAX_COLUMNS: u32 = 256;

/// A fact about tiles, and its place in the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tiled {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text that it is about.
    pub span: Span,
    /// The fact about the tiles.
    pub fact: Fact,
}

/// The kinds of facts about tiles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fact {
    /// A product of matrices by the tensor cores.
    Product(Product),
    /// A copy of a tile by TMA.
    Copy(Copy),
    /// A copy of consecutive bytes.
    Bulk(Bulk),
    /// A pipeline: its number of stages, and the number of warps that release each, including those
    /// of all CTAs that share it.
    Pipeline {
        /// The number of stages.
        stages: u32,
        /// The number of warps that arrive at a stage's empty barrier.
        warps: u32,
    },
    /// The bytes that an acquire expects.
    Expects(u32),
    /// A fence between accesses of threads and those of copies and matrix instructions, and its
    /// purpose.
    Fence(&'static str),
    /// A wait that a pass inserted, and its purpose.
    Wait(&'static str),
    /// The allocations in shared memory with their sizes in bytes, the total size, and the size
    /// that the target has.
    Shared(Vec<(String, u64)>, u64, u32),
    /// A role: its name, first thread, number of threads, and registers per thread.
    Role(Arc<str>, u32, u32, u32),
    /// The registers of all roles together, and those of the CTA.
    Registers(u32, u32),
}

/// The instructions of a matrix product in one thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Product {
    /// The instruction's name, without operands.
    pub instr: String,
    /// The number of instructions.
    pub count: u32,
    /// For both operands, the mode along which elements are contiguous, and the swizzle in bytes.
    /// It is `None` for an operand in registers.
    pub operands: [Option<(char, i64)>; 2],
    /// The number of the accumulator's registers in a thread, and the number of sums in each.
    pub registers: (u32, u32),
    /// The condition under which its first instructions replace the contents of the registers
    /// (scale-d is 0), if there is one.
    pub replaces: Option<&'static str>,
    /// The number of columns of a warpgroup.
    pub columns: u32,
    /// Whether warpgroups multiply. Otherwise warps do.
    pub warpgroups: bool,
}

/// The instructions of a copy of a tile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copy {
    /// Whether the copy goes out of shared memory.
    pub out: bool,
    /// Whether the tensor is another PE's, whose map is an entry of a table.
    pub peer: bool,
    /// The number of boxes. An instruction copies each of them.
    pub count: usize,
    /// The extents of a box, with the contiguous dimension first.
    pub extents: Vec<u16>,
    /// The size of a box in bytes.
    pub bytes: u64,
    /// The swizzle in bytes, or 0 without one.
    pub swizzle: u32,
}

/// The instruction of a copy of consecutive bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bulk {
    /// The name of the instruction, without operands.
    pub instr: String,
    /// The number of bytes that one instruction copies.
    pub bytes: u32,
    /// Whether the copy goes out of shared memory.
    pub out: bool,
}

impl Product {
    /// The reason why no instruction can do more at once, or read its operands with fewer bank
    /// conflicts.
    fn limit(&self) -> String {
        let mut why = Vec::new();
        if !self.warpgroups {
            return "the target has no matrix instructions of warpgroups (wgmma)".into();
        }
        if self.columns < MAX_COLUMNS {
            why.push(format!("a warpgroup has {} columns of the accumulator", self.columns));
        }
        for (name, operand) in ["A", "B"].iter().zip(&self.operands) {
            if let Some((_, swizzle @ 0..128)) = operand {
                why.push(format!("{name} is swizzled by {swizzle} bytes instead of 128"));
            }
        }
        if why.is_empty() { "no instruction is wider".into() } else { why.join("; ") }
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { instr, count, registers, .. } = self;
        write!(f, "mma: {count} x {instr}")?;
        for (name, operand) in ["A", "B"].iter().zip(&self.operands) {
            match operand {
                None => write!(f, ", {name} in registers")?,
                Some((major, 0)) => write!(f, ", {name} {major}-major without swizzle")?,
                Some((major, bytes)) => write!(f, ", {name} {major}-major in {bytes}-byte swizzle")?,
            }
        }
        let (count, sums) = registers;
        write!(f, "; {count} accumulator registers per thread")?;
        if *sums > 1 {
            write!(f, " with {sums} sums each")?;
        }
        if let Some(when) = self.replaces {
            write!(f, ", replaced {when}")?;
        }
        write!(f, "; {}", self.limit())
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Copy { out, peer, count, extents, bytes, swizzle } = self;
        let way = if *out { "out of" } else { "to" };
        let sides: Vec<_> = extents.iter().map(u16::to_string).collect();
        let (s, each) = if *count == 1 { ("", "a box") } else { ("s", "boxes") };
        let dims = extents.len();
        write!(f, "tma {way} shared memory: {count} instruction{s} of {dims} dimensions, ")?;
        write!(f, "{each} of {} ({bytes} bytes), ", sides.join(" x "))?;
        match swizzle {
            0 => f.write_str("no swizzle")?,
            bytes => write!(f, "swizzle of {bytes} bytes")?,
        }
        if *peer { f.write_str(", of another PE's tensor by a table of maps") } else { Ok(()) }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::Product(product) => product.fmt(f),
            Fact::Copy(copy) => copy.fmt(f),
            Fact::Bulk(Bulk { instr, bytes, out }) => {
                let way = if *out { "out of" } else { "to" };
                write!(f, "bulk {way} shared memory: {bytes} bytes by {instr}")
            }
            Fact::Pipeline { stages, warps } => {
                let s = if *stages == 1 { "" } else { "s" };
                write!(f, "pipeline: {stages} stage{s}, {} bytes of barriers; ", stages * 16)?;
                write!(f, "number of warps that release a stage: {warps}")
            }
            Fact::Expects(bytes) => write!(f, "producer_acquire: the stage expects {bytes} bytes"),
            Fact::Fence(why) => write!(f, "fence.proxy.async: {why}"),
            Fact::Wait(why) => write!(f, "cp.async.bulk.wait_group.read: {why}"),
            Fact::Shared(parts, sum, limit) => {
                let parts: Vec<_> = parts.iter().map(|(name, bytes)| format!("{name} {bytes}")).collect();
                write!(f, "shared memory: {sum} of {limit} bytes: {}", parts.join(", "))
            }
            Fact::Role(name, first, threads, regs) => {
                write!(f, "role {name}: threads {first} to {}, {regs} registers each", first + threads - 1)
            }
            Fact::Registers(sum, all) => write!(f, "registers of the roles: {sum} of {all}"),
        }
    }
}

/// The facts about memory and registers of a kernel that has roles, pipelines or matrix products.
pub(crate) fn of_launch(k: &machine::Kernel, target: Target) -> Vec<Tiled> {
    let tiled = |span, fact| Tiled { kernel: k.name.clone(), span, fact };
    let (mut parts, mut end, mut uses) = (Vec::new(), 0u64, false);
    k.walk(&mut |_, inst| {
        uses |= matches!(inst.op, machine::Op::Async(_));
        if let Some(Address::Shared { name, bytes, align }) = inst.op.address() {
            end = place_shared(end, *bytes, *align).map_or(u64::MAX, |at| at.saturating_add(*bytes));
            parts.push((if name.is_empty() { "unnamed".to_owned() } else { name.to_string() }, *bytes));
        }
    });
    let mut found = Vec::new();
    if !uses {
        return found;
    }
    if end > 0 {
        found.push(tiled(k.span, Fact::Shared(parts, end, target.shared_limit())));
    }
    let mut named = Vec::new();
    let registers = roles(k, &k.body, registers_at_start(k.threads()), &mut named);
    found.extend(named.into_iter().map(|(span, fact)| tiled(span, fact)));
    if registers > 0 {
        found.push(tiled(k.span, Fact::Registers(registers, registers_of_cta(k.threads()))));
    }
    found
}

/// Adds the named roles of a block. Roles that do not state their registers have `given` per
/// thread. Returns the registers of all roles of the block.
fn roles(k: &machine::Kernel, block: &Block, given: u32, found: &mut Vec<(Span, Fact)>) -> u32 {
    let mut sum = 0;
    for inst in block.0.iter().filter_map(|v| k.insts.get(*v)) {
        if let Some(Control::Role { name, first, threads, regs, body }) = inst.op.control() {
            let own = if *regs > 0 { *regs } else { given };
            if !name.is_empty() {
                found.push((inst.span, Fact::Role(name.clone(), *first, *threads, own)));
            }
            roles(k, body, own, found);
            sum += own * threads;
        }
    }
    sum
}
