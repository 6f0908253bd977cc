//! Tiles as grids of cells, which show the thread that holds each element, or the banks of each
//! line of shared memory.

use std::collections::{BTreeMap, BTreeSet};
use weft_ir::diag::Span;
use weft_ir::{
    Accumulator, Block, Control, Int, IntTuple, Kernel, Operation, Space, Sreg, Team, TensorType, Thread,
    Tile as TileOp, TypeRef, Value, ValueType, Var, View,
};
use weft_layout::{Cell, Layout, accumulator, svg_cells};

/// The numbers of rows and columns that are drawn.
const DRAWN: usize = 16;
/// The number of threads that are evaluated; elements of others are not drawn.
const THREADS: u32 = 256;
/// The number of values of a thread that are evaluated.
const VALUES: i64 = 64;
/// The unit in bytes in which global memory is read and written (CUDA C++ Best Practices Guide,
/// Coalesced Access).
const SECTOR: i64 = 32;
/// The most bytes of shared memory that a thread accesses at once, and the number of such chunks in all banks.
const CHUNK: i64 = 16;
const CHUNKS: i64 = 8;

/// A grid of cells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Grid {
    cells: BTreeMap<(usize, usize), Cell>,
}

impl Grid {
    /// Rows and columns of all cells.
    pub fn size(&self) -> (usize, usize) {
        let ends = self.cells.keys().map(|(r, c)| (r + 1, c + 1));
        ends.fold((0, 0), |(rows, columns), (r, c)| (rows.max(r), columns.max(c)))
    }

    /// The picture of its first rows and columns.
    pub fn svg(&self, title: &str) -> Option<String> {
        let (rows, columns) = self.size();
        let cell = |row: usize, column: usize| self.cells.get(&(row, column)).cloned();
        svg_cells(title, (rows.min(DRAWN), columns.min(DRAWN)), &cell).ok()
    }

    /// Says which part of the grid is not drawn.
    pub fn cut(&self) -> Option<String> {
        let (rows, columns) = self.size();
        let (r, c) = (rows.min(DRAWN), columns.min(DRAWN));
        ((r, c) != (rows, columns))
            .then(|| format!("The first {r} \u{d7} {c} of {rows} \u{d7} {columns} elements."))
    }
}

/// The tile that the threads of a CTA or role access together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Accessed {
    pub span: Span,
    /// The name of the operation, such as `store`.
    pub op: String,
    /// The tensor whose memory is accessed.
    pub tensor: String,
    /// The number of elements in a row of the grid.
    pub line: i64,
    pub grid: Grid,
    /// For memory outside of an SM, the sectors of 32 bytes that a warp touches, and the fewest that hold as many bytes.
    pub sectors: Option<(i64, i64)>,
}

/// The known values of a launch: those of run-time parameters, and the number of PEs.
pub(crate) struct Known<'a> {
    pub parameter: &'a dyn Fn(&str) -> Option<i64>,
    pub pes: i64,
}

/// The tiles of a kernel's accesses by more than one thread.
pub(crate) fn accessed(kernel: &Kernel, known: &Known<'_>) -> Vec<Accessed> {
    let mut found = Vec::new();
    visit(kernel, &kernel.body, kernel.threads(), &mut |value, threads| {
        found.extend(Tiles { kernel, known }.of(value, threads.min(THREADS)));
    });
    found
}

/// Calls `see` with every instruction and the number of threads of its role.
fn visit(kernel: &Kernel, block: &Block, threads: u32, see: &mut dyn FnMut(Value, u32)) {
    for &value in &block.0 {
        let Some(inst) = kernel.insts.get(value) else { continue };
        see(value, threads);
        let own = match inst.op.control() {
            Some(Control::Role { threads, .. }) => *threads,
            _ => threads,
        };
        inst.op.blocks().into_iter().for_each(|inner| visit(kernel, inner, own, see));
    }
}

struct Tiles<'a> {
    kernel: &'a Kernel,
    known: &'a Known<'a>,
}

impl Tiles<'_> {
    fn of(&self, value: Value, threads: u32) -> Option<Accessed> {
        let inst = self.kernel.insts.get(value)?;
        let place = inst.op.access()?.place();
        let part = self.kernel.ty(place).tensor()?;
        let (offset, root) = self.root(place);
        let tensor = self.kernel.ty(root).tensor()?;
        let layout = part.layout.subst(&mut |var| self.value(Value(var.id), 0).map(Int::from)).ok()?;
        let values = layout.size().as_const()?.min(VALUES);
        let held = |v: i64| layout.crd2idx(&IntTuple::from(v)).ok()?.as_const();
        let held: Vec<i64> = (0..values).map(held).collect::<Option<_>>()?;
        let first: Vec<i64> = (0..threads).map(|t| self.number(&offset, t)).collect::<Option<_>>()?;
        if first.iter().collect::<BTreeSet<_>>().len() < 2 {
            return None;
        }
        let line = self.line(tensor);
        let owners =
            first.iter().zip(0..).flat_map(|(at, t)| held.iter().zip(0..).map(move |(v, i)| (at + v, t, i)));
        let bytes = i64::from(tensor.elem.bits().div_ceil(8));
        let outside = !matches!(tensor.space, Space::Shared | Space::Cluster | Space::Register);
        let warp = || owners.clone().filter(|(_, t, _)| *t < 32);
        let touched = warp().map(|(at, ..)| at * bytes / SECTOR).collect::<BTreeSet<_>>().len() as i64;
        let elements = warp().map(|(at, ..)| at).collect::<BTreeSet<_>>().len() as i64;
        Some(Accessed {
            span: inst.span,
            op: inst.op.name().into_owned(),
            tensor: self.name(root),
            line,
            grid: grid(owners, line),
            sectors: outside.then_some((touched, (elements * bytes + SECTOR - 1) / SECTOR)),
        })
    }

    /// The tensor that a view belongs to, and the view's first element in it.
    fn root(&self, view: Value) -> (Int, Value) {
        let (mut offset, mut at) = (Int::ZERO, view);
        loop {
            match self.kernel.op(at).view() {
                Some(View::Part { base, offset: more } | View::Distributed { base, offset: more, .. }) => {
                    offset = offset + more.clone();
                    at = *base;
                }
                Some(View::Multicast { base, .. } | View::Peer { base, .. } | View::InCta { base, .. }) => {
                    at = *base
                }
                _ => return (offset, at),
            }
        }
    }

    fn name(&self, root: Value) -> String {
        match (self.kernel.op(root).var(), self.kernel.op(root).view()) {
            (Some(Var::Param { index }), _) => {
                self.kernel.head.params.get(*index as usize).map_or(String::new(), |p| p.name.to_string())
            }
            (_, Some(View::Shared { name })) => name.to_string(),
            _ => String::new(),
        }
    }

    /// The number of elements between two lines of the tensor; if it has only one line, a number
    /// that suits the page.
    fn line(&self, tensor: &TensorType) -> i64 {
        let modes = self.modes(&tensor.layout);
        let strides = modes.iter().filter(|(extent, _)| *extent > 1).map(|(_, stride)| *stride);
        strides.filter(|stride| *stride >= 8).min().unwrap_or(DRAWN as i64)
    }

    /// Extent and stride of each mode, where they are known.
    fn modes(&self, layout: &Layout) -> Vec<(i64, i64)> {
        let number = |int: &Int| self.number(int, 0).unwrap_or(0);
        let leaves = layout.shape().leaves().into_iter().zip(layout.stride().leaves());
        leaves.map(|(extent, stride)| (number(extent), number(stride))).collect()
    }

    fn number(&self, int: &Int, thread: u32) -> Option<i64> {
        int.subst(&mut |var| self.value(Value(var.id), thread).map(Int::from)).as_const()
    }

    /// A value in the first CTA of PE 0, in the first round of each loop.
    fn value(&self, value: Value, thread: u32) -> Option<i64> {
        let op = &self.kernel.insts.get(value)?.op;
        let [x, y, _] = self.kernel.block.map(|n| n.max(1));
        if let Some(Thread::Special { reg, dim }) = op.thread() {
            let own = [thread % x, thread / x % y, thread / (x * y)];
            return Some(match reg {
                Sreg::ThreadIdx => i64::from(own[*dim as usize]),
                Sreg::LaneIdx => i64::from(thread % 32),
                Sreg::BlockDim => i64::from(self.kernel.block[*dim as usize]),
                Sreg::GridDim => i64::from(self.kernel.cluster[*dim as usize]),
                Sreg::BlockIdx | Sreg::ClusterRank => 0,
            });
        }
        match (op.var(), op.team(), op.tile()) {
            (Some(Var::Param { index }), ..) => {
                (self.known.parameter)(&self.kernel.head.params.get(*index as usize)?.name)
            }
            (Some(Var::LoopVar { min, .. }), ..) => Some((*min).max(0)),
            (_, Some(Team::NPes { .. }), _) => Some(self.known.pes),
            (_, Some(Team::MyPe { .. }), _) | (.., Some(TileOp::Acquire { .. } | TileOp::Await { .. })) => {
                Some(0)
            }
            _ => None,
        }
    }
}

/// Places elements by their offsets, each with its thread and value. If several have the same
/// offset, the first is shown. Rows have `line` elements.
fn grid(owners: impl Iterator<Item = (i64, i64, i64)> + Clone, line: i64) -> Grid {
    let least = |of: &dyn Fn(i64) -> i64| owners.clone().map(|(at, ..)| of(at)).min().unwrap_or(0);
    let (top, left) = (least(&|at| at.div_euclid(line)), least(&|at| at.rem_euclid(line)));
    let mut cells = BTreeMap::new();
    for (at, thread, value) in owners {
        let (row, column) = (at.div_euclid(line) - top, at.rem_euclid(line) - left);
        cells.entry((row as usize, column as usize)).or_insert_with(|| Cell::of_thread(thread, value));
    }
    Grid { cells }
}

/// The accumulators of a kernel, without duplicates.
pub(crate) fn accumulators(kernel: &Kernel) -> Vec<Accumulator> {
    let mut found = Vec::new();
    let locals = kernel.locals.iter().map(|(_, local)| local.ty.view());
    for ty in kernel.insts.iter().map(|(_, inst)| inst.ty.view()).chain(locals) {
        if let TypeRef::Accumulator(accumulator) = ty
            && !found.contains(&accumulator)
        {
            found.push(accumulator);
        }
    }
    found
}

/// The threads and registers that hold the first elements of an accumulator.
pub(crate) fn held(tile: &Accumulator) -> Option<Grid> {
    let over = tile.over.map(i64::from);
    let (rows, columns) = (i64::from(tile.rows), i64::from(tile.cols));
    let layout = accumulator(rows, columns, over).ok()?;
    let values = layout.mode(0)?.size().as_const()?;
    let at = |i: i64| layout.crd2idx(&IntTuple::from(i)).ok()?.as_const();
    let mut cells = BTreeMap::new();
    for i in 0..rows * columns {
        let place = at(i)?;
        let cell = Cell::of_thread(i / values, i % values);
        cells.insert(((place % rows) as usize, (place / rows) as usize), cell);
    }
    Some(Grid { cells })
}

/// A tensor in shared memory by chunks of 16 bytes: the banks of each chunk, counted by four.
pub(crate) fn banks(tensor: &TensorType) -> Option<Grid> {
    let bytes = i64::from(tensor.elem.bits()) / 8;
    let leaves =
        |tuple: &IntTuple| tuple.leaves().into_iter().map(|n| n.as_const().unwrap_or(0)).collect::<Vec<_>>();
    let (extents, strides) = (leaves(tensor.layout.shape()), leaves(tensor.layout.stride()));
    let modes = || extents.iter().copied().zip(strides.iter().copied());
    let (columns, _) = modes().find(|(extent, stride)| *extent > 1 && *stride == 1)?;
    let (rows, pitch) =
        modes().filter(|(extent, stride)| *extent > 1 && *stride > 1).min_by_key(|(_, s)| *s)?;
    let chunks = columns * bytes / CHUNK;
    if chunks == 0 {
        return None;
    }
    let mut cells = BTreeMap::new();
    for row in 0..rows.min(CHUNKS) {
        for chunk in 0..chunks.min(DRAWN as i64) {
            let at = Int::from(row * pitch * bytes + chunk * CHUNK);
            let at = tensor.swizzle.map_or(at.clone(), |swizzle| swizzle.apply(&at)).as_const()?;
            let bank = at / CHUNK % CHUNKS;
            let lines = vec![format!("B{bank}")];
            cells.insert((row as usize, chunk as usize), Cell { hue: bank, shade: 0, lines });
        }
    }
    Some(Grid { cells })
}

/// The tensors in shared memory, with their names.
pub(crate) fn in_shared(kernel: &Kernel) -> Vec<(String, &TensorType, Span)> {
    let mut found = Vec::new();
    for (_, inst) in kernel.insts.iter() {
        if let (Some(View::Shared { name }), TypeRef::Tensor(tensor)) = (inst.op.view(), inst.ty.view()) {
            found.push((name.to_string(), &**tensor, inst.span));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft::{KernelFile, Options};

    fn tiles(text: &str) -> Vec<Accessed> {
        let options = Options::new("sm_90a".parse().unwrap());
        let compiled = KernelFile::parse("k.weft", text).unwrap().compile(&options).unwrap();
        let known = Known { parameter: &|name| (name == "ld").then_some(32), pes: 1 };
        accessed(&compiled.high.kernels[0], &known)
    }

    #[test]
    fn threads_of_a_partition_hold_vectors_side_by_side() {
        let found = tiles(
            "kernel k(x: global<f32, (4096):(1)>) block(128) {
                let mine = partition(x, threads());
                for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * 2; }
            }",
        );
        assert_eq!(found.len(), 2);
        let load = &found[0];
        assert_eq!((&*load.op, &*load.tensor, load.line, load.sectors), ("load", "x", 16, Some((16, 16))));
        assert_eq!(load.grid.cells[&(1, 5)], Cell::of_thread(5, 1));
        assert_eq!(load.grid.cut().unwrap(), "The first 16 \u{d7} 16 of 32 \u{d7} 16 elements.");
    }

    #[test]
    fn rows_are_those_of_the_tensor() {
        let found = tiles(
            "kernel k(ld: int, x: global<f32, (64, ld):(ld, 1)>) block(64) {
                x[thread_idx(), 3] = 1.0;
            }",
        );
        // Each thread has its own line, and thus its own sector.
        assert_eq!((found[0].line, found[0].sectors), (32, Some((32, 4))));
        assert_eq!(found[0].grid.size(), (64, 1));
    }

    #[test]
    fn a_swizzle_spreads_a_column_over_all_banks() {
        let layout = Layout::new(IntTuple::tuple([64, 64]), IntTuple::tuple([64, 1])).unwrap();
        let mut tensor = TensorType {
            elem: weft_ir::Scalar::BF16,
            layout,
            swizzle: None,
            space: weft_ir::Space::Shared,
            align: 1024,
            bounds: Vec::new(),
        };
        let column = |tensor: &TensorType| {
            let grid = banks(tensor).unwrap();
            (0..8).map(|row| grid.cells[&(row, 0)].hue).collect::<BTreeSet<_>>().len()
        };
        assert_eq!(column(&tensor), 1);
        tensor.swizzle = Some(weft_layout::Swizzle::new(3, 4, 3).unwrap());
        assert_eq!(column(&tensor), 8);
    }
}
