//! Lowers products of tiles to matrix instructions of warpgroups or warps, and accumulators to the
//! registers to which these add.

use super::MemoryPass;
use super::exchange::fragments;
use super::fresh::Holds;
use super::place::{Route, TensorAddress, found};
use super::tile::nearest;
use crate::codes::BAD_OPERAND;
use crate::edit::{Action, Editor, Emit};
use crate::teams::linear;
use crate::tiles::{self, Fact};
use rustc_hash::FxHashMap;
use weft_ir::builder::{Built, aligned};
use weft_ir::diag::{Code, Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::roles::WARPGROUP;
use weft_ir::tile::per_register;
use weft_ir::{
    Accumulator, Arith, Async, BinOp, Bridge, Int, IntTuple, Layout, LocalId, Operation, Scalar, Space, Sreg,
    Tile, Value, ValueType,
};
use weft_isa::{Choice, Instruction, Product, Target};
use weft_layout::{ATOM_ROWS, Operand, SLICE_BYTES, Swizzle};

/// The bits of an address in a matrix descriptor, in units of 16 bytes.
const ADDRESS: i64 = 0x3ffff;

/// Replaces accumulators by registers of each thread. Returns the tile of each op on an
/// accumulator, and the variables that hold one.
pub(super) fn registers(k: &mut Kernel) -> (FxHashMap<Value, Accumulator>, Vec<LocalId>) {
    let vector = |a: Accumulator| {
        let elem = if per_register(a.elem) > 1 { Scalar::I32 } else { a.elem };
        Type::lanes_of(elem, a.lanes(a.own_cols()) / per_register(a.elem))
    };
    let of = |k: &Kernel, v: Value| match k.ty(v) {
        Type::Accumulator(a) => Some(*a),
        _ => None,
    };
    let mut tiles = FxHashMap::default();
    k.walk(&mut |v, inst| {
        let acc = match inst.op.tile() {
            Some(Tile::Mma { acc, .. } | Tile::AccumulatorRead { acc, .. }) => of(k, *acc),
            _ => None,
        };
        tiles.extend(acc.map(|acc| (v, acc)));
    });
    let held = k.locals.iter().filter(|(_, local)| matches!(local.ty, Type::Accumulator(_)));
    let held = held.map(|(id, _)| id).collect();
    for local in k.locals.iter_mut() {
        if let Type::Accumulator(a) = local.ty {
            local.ty = vector(a);
        }
    }
    for inst in k.insts.iter_mut() {
        if let Type::Accumulator(a) = inst.ty {
            inst.ty = vector(a);
        }
    }
    (tiles, held)
}

/// Whether the target has matrix instructions of warpgroups on tiles in shared memory. Otherwise
/// warps multiply fragments of the tiles.
pub(crate) fn has_warpgroups(target: Target) -> bool {
    Instruction::named("wgmma.mma_async").is_some_and(|wgmma| wgmma.is_on(target))
}

/// A tile in shared memory as operand of instructions.
pub(super) struct OperandTile {
    /// The layout of the operand for instructions.
    pub operand: Operand,
    /// The address of the allocation's first byte.
    pub root: Value,
    /// The distance from there to the tile, in bytes.
    pub offset: Int,
    /// The distance from the tile's first element to that of this warpgroup's part, in bytes.
    pub part: Int,
}

impl MemoryPass<'_> {
    /// Lowers an op on accumulators.
    pub(super) fn matrix(&mut self, e: &mut Editor, v: Value, op: &Tile, span: Span) -> Built<Action> {
        let warpgroups = has_warpgroups(self.options.target);
        let done = match op {
            Tile::Accumulator {} => {
                let ty = e.b.ty(v).clone();
                if !warpgroups {
                    e.b.zero(&ty)?
                } else if self.fresh.begins_with_zeros(v) {
                    e.b.emit_as(Async::WgmmaZero {}, ty)?
                } else {
                    let acc = e.b.emit_as(Async::WgmmaUnset {}, ty)?;
                    self.fresh.note(acc, Holds::Nothing);
                    acc
                }
            }
            // The registers are in the order of the instructions already.
            Tile::AccumulatorOf { value } => {
                let ty = e.b.ty(v).clone();
                if *e.b.ty(*value) == ty { *value } else { e.b.emit_as(Arith::Bitcast { a: *value }, ty)? }
            }
            Tile::MmaWait { acc, pending } if warpgroups => {
                let holds = self.fresh.of(*acc);
                let held = self.held.until(v);
                let done = e.b.emit(Async::WgmmaWait { acc: *acc, pending: *pending, held })?;
                // Registers that no product of the preceding loop has written become zeros now.
                if *pending == 0 && holds != Holds::Nothing {
                    self.settled(e, done, holds)?
                } else {
                    self.fresh.note(done, holds);
                    done
                }
            }
            // The products of warps are complete when they are issued.
            Tile::MmaWait { acc, .. } => *acc,
            Tile::AccumulatorRead { acc, first, cols } => {
                let tile = self.tile_of(v, span)?;
                let acc = self.settled(e, *acc, self.fresh.of(*acc))?;
                read(&mut e.b, acc, tile, *first, *cols)?
            }
            Tile::Mma { a, b, acc } => {
                let tile = self.tile_of(v, span)?;
                let k = e.b.kernel();
                let y = found(self.places.get(b), k, *b, span)?.clone();
                let x = match k.ty(*a) {
                    Type::Vector(elem, lanes) => {
                        let (elem, lanes) = (*elem, *lanes);
                        let mut registers = fragments(e, *a, elem, lanes)?;
                        if warpgroups {
                            registers = e.b.emit(Async::WgmmaRegisters { a: registers })?;
                            self.held.begun(v, registers);
                        }
                        Factor::Registers(registers, elem)
                    }
                    _ => Factor::Tile(found(self.places.get(a), k, *a, span)?.clone()),
                };
                let adds = self.adds(e, *acc)?;
                let (done, product) = multiply(e, self.options.target, (&x, &y), (*acc, adds), tile, span)?;
                let kernel = e.b.kernel().name.clone();
                self.report.tile(&kernel, span, Fact::Product(product));
                done
            }
            _ => return Ok(Action::Keep),
        };
        Ok(Action::Become(done))
    }

    fn tile_of(&self, v: Value, span: Span) -> Built<Accumulator> {
        let missing = || Diagnostic::error(BAD_OPERAND, span, "the accumulator cannot be determined");
        self.accumulators.get(&v).copied().ok_or_else(missing)
    }
}

/// The registers of columns. Those of one block of 64 rows follow those of the previous block.
fn read(b: &mut Builder, acc: Value, tile: Accumulator, first: u32, cols: u32) -> Built<Value> {
    let (own, wanted) = (tile.own_cols(), cols / tile.over[1]);
    let blocks = tile.rows / (ATOM_ROWS as u32 * tile.over[0]);
    let columns = 2 * per_register(tile.elem);
    let parts = (0..blocks).map(|i| b.slice(acc, (i * own + first) / columns, wanted / columns));
    let parts = parts.collect::<Built<Vec<_>>>()?;
    let all = b.concat(parts)?;
    match per_register(tile.elem) {
        1 => Ok(all),
        _ => b.emit_as(Arith::Bitcast { a: all }, Type::lanes_of(tile.elem, tile.lanes(wanted))),
    }
}

/// The first factor of a product.
enum Factor {
    /// A tile in memory.
    Tile(TensorAddress),
    /// The registers of the thread's elements for instructions, and the type of the elements.
    Registers(Value, Scalar),
}

/// The first factor of a warpgroup's part of a product.
pub(super) enum LeftFactor {
    /// The factor is in shared memory.
    Shared(OperandTile),
    /// The factor is in registers: four for each 64 rows and each slice along K.
    Registers(Value),
}

/// Multiplies a warpgroup's parts of two tiles.
fn multiply(
    e: &mut Editor,
    target: Target,
    (x, y): (&Factor, &TensorAddress),
    (acc, adds): (Value, Option<Value>),
    tile: Accumulator,
    span: Span,
) -> Built<(Value, tiles::Product)> {
    let warpgroup = linear(&mut e.b, Sreg::ThreadIdx)?.floor_div(&Int::from(i64::from(WARPGROUP)));
    let [m, n] = tile.over.map(i64::from);
    let (along_m, along_n) = (warpgroup.rem(&Int::from(m)), warpgroup.floor_div(&Int::from(m)));
    let (rows, cols) = (i64::from(tile.rows) / m, i64::from(tile.cols) / n);
    let (a, elem) = match x {
        Factor::Tile(x) => (LeftFactor::Shared(source(e, x, (&along_m, rows, m), span)?), x.ty.elem),
        Factor::Registers(registers, elem) => (LeftFactor::Registers(*registers), *elem),
    };
    let b = source(e, y, (&along_n, cols, n), span)?;
    let (of_a, of_b) = (a.slices(&e.b, rows), b.operand.slices.len());
    if of_a != of_b {
        let message = format!("the factors have {of_a} and {of_b} slices of 32 bytes along K");
        return Err(Diagnostic::error(BAD_OPERAND, span, message));
    }
    let product = Product::new(elem.name(), y.ty.elem.name(), tile.elem.name());
    let cols = u32::try_from(cols).unwrap_or(u32::MAX);
    let own = WarpgroupPart { rows, cols, elems: [elem, y.ty.elem], sum: tile.elem };
    let held = tile.lanes(own.cols) / per_register(own.sum);
    let mut fact = a.fact(&b, (product, has_warpgroups(target)), own, held);
    fact.replaces = adds.map(|adds| match e.b.kernel().op(adds).arith() {
        Some(Arith::Const { .. }) => "by each product",
        _ => "if nothing was added before",
    });
    let done = if has_warpgroups(target) {
        let majors = [a.mn_major(), b.operand.mn_major];
        let in_registers = matches!(a, LeftFactor::Registers(_));
        exists(product.and_then(|p| p.of_warpgroup(own.cols, in_registers, majors)), target, span)?;
        by_warpgroup(e, (&a, &b), (acc, adds), own, span)
    } else {
        exists(product.and_then(|p| p.of_warp()), target, span)?;
        super::warps::multiply(e, (&a, &b), acc, own, span)
    }?;
    Ok((done, fact))
}

/// A warpgroup's part of a product.
#[derive(Clone, Copy)]
pub(super) struct WarpgroupPart {
    /// The number of rows of A.
    pub rows: i64,
    /// The number of rows of B.
    pub cols: u32,
    /// The element types of A and B.
    pub elems: [Scalar; 2],
    /// The type of the sums.
    pub sum: Scalar,
}

/// Fails if the target does not have the instruction.
fn exists(choice: Option<Choice>, target: Target, span: Span) -> Built<()> {
    let missing = || Diagnostic::error(BAD_OPERAND, span, "no instruction multiplies these types");
    let no = choice.ok_or_else(missing)?.check(target).err();
    no.map_or(Ok(()), |no| {
        let help = "the instructions of each target are in docs/mma.md";
        Err(Diagnostic::error(Code(no.code()), span, no.to_string()).help(help))
    })
}

/// Emits the instructions for all blocks of 64 rows and slices along K, as one group. The first
/// instruction of each block adds to its registers only if the condition is true.
fn by_warpgroup(
    e: &mut Editor,
    (a, b): (&LeftFactor, &OperandTile),
    (mut acc, adds): (Value, Option<Value>),
    own: WarpgroupPart,
    span: Span,
) -> Built<Value> {
    let from_a = match a {
        LeftFactor::Shared(a) => a.descriptor(&mut e.b)?,
        LeftFactor::Registers(registers) => *registers,
    };
    let from_b = b.descriptor(&mut e.b)?;
    if let LeftFactor::Shared(_) = a {
        e.b.emit(Async::WgmmaFence {})?;
    }
    let slices = b.operand.slices.len();
    // Consecutive instructions add to different registers if possible.
    for slice in 0..slices {
        for block in 0..own.rows / ATOM_ROWS {
            let a_at = match a {
                LeftFactor::Shared(a) => a.at(&mut e.b, from_a, (block * ATOM_ROWS, slice), span)?,
                LeftFactor::Registers(_) => fragment(&mut e.b, from_a, (block as usize, slice), slices)?,
            };
            let b_at = b.at(&mut e.b, from_b, (0, slice), span)?;
            acc = e.b.emit(Async::Wgmma {
                acc,
                first: block as u32 * (own.cols / 2 / per_register(own.sum)),
                a: a_at,
                b: b_at,
                n: own.cols,
                a_elem: own.elems[0],
                b_elem: own.elems[1],
                sum: own.sum,
                a_mn: a.mn_major(),
                b_mn: b.operand.mn_major,
                adds: adds.filter(|_| slice == 0),
            })?;
        }
    }
    e.b.emit(Async::WgmmaCommit {})?;
    Ok(acc)
}

impl LeftFactor {
    /// The number of slices along K for `rows` rows.
    fn slices(&self, b: &Builder, rows: i64) -> usize {
        match self {
            LeftFactor::Shared(a) => a.operand.slices.len(),
            LeftFactor::Registers(v) => {
                b.ty(*v).lanes().unwrap_or(0) as usize / (4 * (rows / ATOM_ROWS).max(1) as usize)
            }
        }
    }

    /// The fact about its product with `b` for the report, by warpgroups or by warps.
    fn fact(
        &self,
        b: &OperandTile,
        (product, warpgroups): (Option<Product>, bool),
        own: WarpgroupPart,
        registers: u32,
    ) -> tiles::Product {
        let slices = b.operand.slices.len() as u32;
        let blocks = u32::try_from(own.rows / ATOM_ROWS).unwrap_or(u32::MAX);
        let (atom, columns) = match warpgroups {
            true => (format!("wgmma.m64n{}", own.cols), own.cols),
            false => ("mma.sync.m16n8".to_owned(), 8),
        };
        let types = product.map(|p| format!("k{}.{}.{}.{}", p.depth(), p.sum, p.a, p.b));
        let major = |operand: &Operand, mn: char| {
            let bytes = if operand.mode == 0 { 0 } else { operand.span() };
            Some((if operand.mn_major { mn } else { 'K' }, bytes))
        };
        let left = match self {
            LeftFactor::Shared(a) => major(&a.operand, 'M'),
            LeftFactor::Registers(_) => None,
        };
        tiles::Product {
            instr: atom + &types.unwrap_or_default(),
            count: blocks * slices * (own.cols / columns.max(1)),
            operands: [left, major(&b.operand, 'N')],
            registers: (registers, per_register(own.sum)),
            replaces: None,
            columns: own.cols,
            warpgroups,
        }
    }

    fn mn_major(&self) -> bool {
        matches!(self, LeftFactor::Shared(a) if a.operand.mn_major)
    }
}

/// The four registers of a block of 64 rows and a slice along K.
pub(super) fn fragment(
    b: &mut Builder,
    registers: Value,
    (block, slice): (usize, usize),
    slices: usize,
) -> Built<Value> {
    b.slice(registers, 4 * (block * slices + slice) as u32, 4)
}

/// A tile of which each of `parts` warpgroups reads `rows` rows. This warpgroup is number `part`.
fn source(
    e: &mut Editor,
    at: &TensorAddress,
    (part, rows, parts): (&Int, i64, i64),
    span: Span,
) -> Built<OperandTile> {
    let bytes = at.ty.elem.bytes();
    let bad = |why: String| {
        Diagnostic::error(BAD_OPERAND, span, why).help(nearest(
            &at.ty,
            bytes == 2,
            "matrix instructions read",
        ))
    };
    if at.route != Route::Local || at.ty.space != Space::Shared {
        return Err(bad("matrix instructions can only read the CTA's own shared memory".into()));
    }
    if let Some(limit) = at.cut() {
        let layout = &at.ty.layout;
        return Err(bad(format!("the tile {layout} extends beyond the {limit} elements of its tensor")));
    }
    let found = operand(at, (rows, parts), at.root_align()).map_err(bad)?;
    let part = part * Int::from(found.step);
    source_of(e, at, (found, part))
}

/// A tile as operand of instructions, and its distance in bytes to parts of it.
pub(super) struct Operands {
    pub operand: Operand,
    /// The distance between parts of as many rows as a warpgroup has.
    pub step: i64,
    /// The distance to the tile from the beginning of a row of the swizzle, in which a part of the
    /// columns can begin.
    inside: Int,
}

/// A tile of which `parts` warpgroups read `rows` rows each, as operand of instructions. Fails with
/// the reason if instructions cannot read it. Its allocation begins at a multiple of `align` bytes.
pub(super) fn operand(at: &TensorAddress, (rows, parts): (i64, i64), align: u32) -> Result<Operands, String> {
    let (bytes, layout): (_, &Layout) = (at.ty.elem.bytes(), &at.ty.layout);
    let (operand, room) = operand_of(layout, at.ty.swizzle, bytes).map_err(|x| x.to_string())?;
    let step = if parts > 1 { operand.at(rows, 0) } else { Some(0) };
    let even = |step: &i64| (0..parts).all(|i| operand.at(i * rows, 0) == Some(i * step));
    let Some(step) = step.filter(even) else {
        return Err(format!("the distance between parts of {rows} rows of {layout} is not constant"));
    };
    let inside = match room {
        0 => Int::ZERO,
        _ => at.offset.rem(&Int::from(i64::from(operand.align / bytes))) * i64::from(bytes),
    };
    let has = aligned(align, &(&at.offset * i64::from(bytes) - &inside), 1);
    if has < operand.align {
        let has = format!("a tile begins at a multiple of {has} bytes");
        return Err(format!("{has}, and has to at one of {}", operand.align));
    }
    let fits = inside.lower_bound() >= 0 && inside.upper_bound().is_some_and(|last| last <= room);
    if !fits || inside.divisor() % SLICE_BYTES != 0 {
        return Err(format!(
            "a part of the columns begins {inside} bytes behind the beginning of a row of {} bytes, and has to \
             at a multiple of {SLICE_BYTES} and end in the row",
            operand.span()
        ));
    }
    Ok(Operands { operand, step, inside })
}

/// The operand of a tile, and the bytes that a row of its swizzle has in addition. A tile can be a
/// part of the columns of such rows, of which the instructions then read some slices.
fn operand_of(layout: &Layout, swizzle: Option<Swizzle>, bytes: u32) -> weft_layout::Result<(Operand, i64)> {
    let span = swizzle.map_or(0, |s| (SLICE_BYTES / 2) << s.bits().min(3));
    let part = layout.mode(0).zip(layout.mode(1)).filter(|(_, depth)| {
        let own = depth.size().as_const().map_or(0, |n| n * i64::from(bytes));
        layout.rank() == 2
            && own < span
            && own % SLICE_BYTES == 0
            && matches!(depth.stride(), IntTuple::Int(d) if d.is(1))
    });
    let Some((rows, depth)) = part else {
        return Operand::new(layout, swizzle, bytes).map(|operand| (operand, 0));
    };
    let pair = |rows: &IntTuple, depth: i64| IntTuple::Tuple(vec![rows.clone(), Int::from(depth).into()]);
    let whole = Layout::new(pair(rows.shape(), span / i64::from(bytes)), pair(rows.stride(), 1))?;
    let mut operand = Operand::new(&whole, swizzle, bytes)?;
    let own = depth.size().as_const().unwrap_or(0) * i64::from(bytes);
    operand.slices.truncate((own / SLICE_BYTES) as usize);
    Ok((operand, span - own))
}

/// A tile at a place, with the distance to the part of this warpgroup.
pub(super) fn source_of(
    e: &mut Editor,
    at: &TensorAddress,
    (found, part): (Operands, Int),
) -> Built<OperandTile> {
    let root = e.b.emit(Bridge::AddressOf { base: at.root })?;
    let offset = &at.offset * Int::from(i64::from(at.ty.elem.bytes())) - &found.inside;
    Ok(OperandTile { operand: found.operand, root, offset, part: part + found.inside })
}

impl OperandTile {
    /// The lower half of the matrix descriptor of this warpgroup's first element (`u32`). The upper
    /// half is a constant.
    fn descriptor(&self, b: &mut Builder) -> Built<Value> {
        let root = b.emit(Async::SharedAddress { ptr: self.root })?;
        let first = b.index(&self.offset + &self.part)?;
        let first = b.convert(first, Scalar::U32)?;
        let address = b.binary(BinOp::Add, root, first)?;
        let constant = |b: &mut Builder, n: i64| b.int(Scalar::U32, n);
        let mask = constant(b, ADDRESS)?;
        let address = b.binary(BinOp::And, address, mask)?;
        let four = constant(b, 4)?;
        let units = b.binary(BinOp::Shr, address, four)?;
        let bits = constant(b, i64::from(self.operand.bits() as u32))?;
        b.binary(BinOp::Or, units, bits)
    }

    /// The descriptor of the instruction that begins at a row and a slice, computed from the lower
    /// half of the first element's descriptor.
    fn at(&self, b: &mut Builder, first: Value, (row, slice): (i64, usize), span: Span) -> Built<Value> {
        let bytes = self.operand.at(row, slice).ok_or_else(|| nowhere(row, span))?;
        let units = b.int(Scalar::U32, bytes / 16)?;
        let low = b.binary(BinOp::Add, first, units)?;
        let low = b.convert(low, Scalar::I64)?;
        let high = b.i64((self.operand.bits() >> 32 << 32).cast_signed())?;
        b.binary(BinOp::Or, low, high)
    }
}

/// The error for a row at which no instruction can begin.
pub(super) fn nowhere(row: i64, span: Span) -> Diagnostic {
    Diagnostic::error(BAD_OPERAND, span, format!("no instruction can begin at row {row}"))
}
