//! `wmma`: multiplication of matrices that are loaded, kept and stored as opaque fragments.
//!
//! The manual leaves the distribution of elements over lanes open. Here elements are counted row by
//! row (B's by columns), from lane to lane and register to register. If the registers have room for
//! more, the elements repeat.

use super::fragment::Accumulator;
use super::mma::{accumulator_bits, convert};
use super::{ElementFormat, Shape, arithmetic, register_type, whole_warp};
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::Space;
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src, fault};
use crate::isa::classes::RND;
use crate::isa::site::{Address, Issue, Site, issue};
use crate::isa::{Class, Family, row};
use crate::memory::Window;
use crate::model::LANES;
use crate::num::tensor::{Arithmetic, Dot, Rows, multiply};
use crate::num::{F16, F32, mask};
use crate::order::Order;
use crate::types::Ty;

const LAYOUT: &[&str] = &["row", "col"];
const ONE_LAYOUT: Class = ("layout", LAYOUT);
const A_LAYOUT: Class = ("alayout", LAYOUT);
const B_LAYOUT: Class = ("blayout", LAYOUT);
const SPACE: Class = ("ss", &["global", "shared", "shared::cta"]);
const OPERAND: Class = ("operand", &["a", "b"]);
const K16: Class = ("shape", &["m16n16k16", "m8n32k16", "m32n8k16"]);
const K8: Class = ("shape", &["m16n16k8"]);
const K4: Class = ("shape", &["m8n8k4"]);
const K32: Class = ("shape", &["m8n8k32"]);
const K128: Class = ("shape", &["m8n8k128"]);
const SMALL: Class = ("shape", &["m8n8k32", "m8n8k128"]);
const F16_F32: &[&str] = &["f16", "f32"];
const SINGLE: &[&str] = &["f32"];
const S32: &[&str] = &["s32"];
const F64: &[&str] = &["f64"];
const LOAD: &str = "wmma.load.operand.sync.aligned.layout.shape{.ss}.type";
const LOAD_C: &str = "wmma.load.c.sync.aligned.layout.shape{.ss}.type";
const STORE: &str = "wmma.store.d.sync.aligned.layout.shape{.ss}.type";
const TYPED: &str = "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype";
const FROM: &str = "r, [p]{, stride}";
const TO: &str = "[p], r{, stride}";
const DABC: &str = "d, a, b, c";

pub(in crate::isa) static FAMILY: Family = Family {
    title: "Matrix multiplication of opaque fragments",
    section: "9.7.14.4",
    rows: &[
        row(LOAD, FROM, &[OPERAND, ONE_LAYOUT, K16, SPACE, ("type", &["f16", "bf16", "s8", "u8"])], load),
        row(LOAD, FROM, &[OPERAND, ONE_LAYOUT, K8, SPACE, ("type", &["tf32"])], load),
        row(LOAD, FROM, &[OPERAND, ONE_LAYOUT, K4, SPACE, ("type", F64)], load),
        row(LOAD, FROM, &[OPERAND, ONE_LAYOUT, K32, SPACE, ("type", &["s4", "u4"])], load),
        row(LOAD, FROM, &[OPERAND, ONE_LAYOUT, K128, SPACE, ("type", &["b1"])], load),
        row(LOAD_C, FROM, &[ONE_LAYOUT, K16, SPACE, ("type", &["f16", "f32", "s32"])], load),
        row(LOAD_C, FROM, &[ONE_LAYOUT, K8, SPACE, ("type", SINGLE)], load),
        row(LOAD_C, FROM, &[ONE_LAYOUT, K4, SPACE, ("type", F64)], load),
        row(LOAD_C, FROM, &[ONE_LAYOUT, SMALL, SPACE, ("type", S32)], load),
        row(STORE, TO, &[ONE_LAYOUT, K16, SPACE, ("type", &["f16", "f32", "s32"])], store),
        row(STORE, TO, &[ONE_LAYOUT, K8, SPACE, ("type", SINGLE)], store),
        row(STORE, TO, &[ONE_LAYOUT, K4, SPACE, ("type", F64)], store),
        row(STORE, TO, &[ONE_LAYOUT, SMALL, SPACE, ("type", S32)], store),
        row(
            "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.ctype",
            DABC,
            &[A_LAYOUT, B_LAYOUT, K16, ("dtype", F16_F32), ("ctype", F16_F32)],
            mma,
        ),
        row(
            TYPED,
            DABC,
            &[
                A_LAYOUT,
                B_LAYOUT,
                K16,
                ("dtype", SINGLE),
                ("atype", &["bf16"]),
                ("btype", &["bf16"]),
                ("ctype", SINGLE),
            ],
            mma,
        ),
        row(
            TYPED,
            DABC,
            &[
                A_LAYOUT,
                B_LAYOUT,
                K8,
                ("dtype", SINGLE),
                ("atype", &["tf32"]),
                ("btype", &["tf32"]),
                ("ctype", SINGLE),
            ],
            mma,
        ),
        row(
            "wmma.mma.sync.aligned.alayout.blayout.shape{.rnd}.dtype.atype.btype.ctype",
            DABC,
            &[
                A_LAYOUT,
                B_LAYOUT,
                K4,
                ("rnd", RND),
                ("dtype", F64),
                ("atype", F64),
                ("btype", F64),
                ("ctype", F64),
            ],
            mma,
        ),
        row(
            "wmma.mma.sync.aligned.alayout.blayout.shape.dtype.atype.btype.ctype{.satfinite}",
            DABC,
            &[
                A_LAYOUT,
                B_LAYOUT,
                K16,
                ("dtype", S32),
                ("atype", &["s8", "u8"]),
                ("btype", &["s8", "u8"]),
                ("ctype", S32),
            ],
            mma,
        ),
        row(
            "wmma.mma.sync.aligned.row.col.shape.dtype.atype.btype.ctype{.satfinite}",
            DABC,
            &[K32, ("dtype", S32), ("atype", &["s4", "u4"]), ("btype", &["s4", "u4"]), ("ctype", S32)],
            mma,
        ),
        row(
            "wmma.mma.bitOp.popc.sync.aligned.row.col.shape.dtype.atype.btype.ctype",
            DABC,
            &[
                ("bitOp", &["xor", "and"]),
                K128,
                ("dtype", S32),
                ("atype", &["b1"]),
                ("btype", &["b1"]),
                ("ctype", S32),
            ],
            mma,
        ),
    ],
};

/// An opaque fragment.
#[derive(Debug, Clone, Copy)]
struct Fragment {
    /// The number of elements of the matrix.
    elements: usize,
    /// The bits of an element.
    bits: u32,
    registers: usize,
}

impl Fragment {
    /// A fragment of A or B with this number of rows (columns) along K.
    fn operand(rows: usize, k: usize, kind: ElementFormat, name: &str) -> Fragment {
        let elements = rows * k;
        // A fragment of halves has the registers of the largest shape.
        let registers = if name == "f16" { 8 } else { elements / (LANES * kind.packed()) };
        Fragment { elements, bits: kind.storage, registers }
    }

    fn accumulator(shape: Shape, bits: u32) -> Fragment {
        let a = Accumulator { m: shape.m, n: shape.n, bits };
        Fragment { elements: shape.m * shape.n, bits, registers: a.registers() }
    }

    fn ty(self) -> Ty {
        register_type(self.bits.max(32))
    }

    /// The number of element `i` of register `j` of a lane.
    fn element(self, lane: usize, j: usize, i: usize) -> usize {
        ((lane * self.registers + j) * self.packed() + i) % self.elements
    }

    fn packed(self) -> usize {
        (self.bits.max(32) / self.bits) as usize
    }

    fn gather(self, cx: &Context<'_>, regs: &[Src]) -> Vec<u64> {
        let mut out = vec![0; self.elements];
        for (j, &r) in regs.iter().enumerate() {
            for (lane, &v) in cx.src(r).iter().enumerate() {
                for i in 0..self.packed() {
                    out[self.element(lane, j, i)] = v >> (i as u32 * self.bits) & mask(self.bits);
                }
            }
        }
        out
    }

    fn scatter(self, cx: &mut Context<'_>, regs: &[Reg], bits: &[u64]) {
        for (j, &r) in regs.iter().enumerate() {
            for (lane, to) in cx.reg(r).iter_mut().enumerate() {
                *to = (0..self.packed())
                    .fold(0, |v, i| v | bits[self.element(lane, j, i)] << (i as u32 * self.bits));
            }
        }
    }
}

/// A matrix in memory: `lines` lines of `length` elements, `stride` elements apart.
struct Tile {
    space: Space,
    address: Address,
    /// The stride, with the mask of its used bits.
    stride: Option<(Src, u64)>,
    lines: usize,
    length: usize,
    /// Whether lines are rows of the fragment.
    straight: bool,
    fragment: Fragment,
}

fn tile(s: &mut Site<'_, '_, '_>, address: usize) -> Result<Tile, Issue> {
    let name = s.text("type");
    let operand = s.get("operand").unwrap_or("c");
    let shape = Shape::parse(s.text("shape"), name)?;
    let row_major = s.get("layout") == Some("row");
    let (rows, columns, fragment) = match operand {
        "c" => {
            let bits = accumulator_bits(s, "type");
            (shape.m, shape.n, Fragment::accumulator(shape, bits))
        }
        _ => {
            let kind = ElementFormat::parse(name)?;
            let rows = if operand == "a" { shape.m } else { shape.n };
            (rows, shape.k, Fragment::operand(rows, shape.k, kind, name))
        }
    };
    // The fragment's rows are contiguous in a row-major A or C, and in a column-major B.
    let straight = row_major != (operand == "b");
    if !straight && matches!(name, "s4" | "u4" | "b1") {
        return issue(
            codes::UNKNOWN_MODIFIER,
            "elements of less than a byte need .row for A and .col for B",
            "",
        );
    }
    let (address, space) = s.address(address, s.space())?;
    let unit = if name == "b1" { 1 } else { fragment.bits.into() };
    let stride = if s.operands.len() > 2 { Some((s.src(2, Ty::B32)?, unit)) } else { None };
    let (lines, length) = if straight { (rows, columns) } else { (columns, rows) };
    Ok(Tile { space, address, stride, lines, length, straight, fragment })
}

impl Tile {
    /// The size of the pieces in which a line is moved, in bytes.
    fn piece(&self) -> usize {
        (self.length * self.fragment.bits as usize / 8).min(16)
    }

    /// Addresses of the pieces, line by line.
    fn addresses(&self, cx: &Context<'_>) -> Result<Vec<u64>, Fault> {
        let addresses = self.address.lanes(cx);
        let base = addresses[0];
        if let Some(lane) = (0..LANES).find(|&l| addresses[l] != base) {
            let help = "give the same matrix address in all lanes of the warp";
            return Err(fault(
                codes::UNDEFINED,
                lane,
                "the address differs between the threads of a warp",
                help,
            ));
        }
        let bits = u64::from(self.fragment.bits);
        let stride = match self.stride {
            None => self.length as u64 * bits,
            Some((s, unit)) => cx.uniform(s, "the stride")? * unit,
        };
        let pieces = self.length as u64 * bits / 8 / self.piece() as u64;
        let at = |line: u64, p: u64| base.wrapping_add(line * (stride / 8) + p * self.piece() as u64);
        Ok((0..self.lines as u64)
            .flat_map(|line| (0..pieces).map(move |p| (line, p)))
            .map(|(l, p)| at(l, p))
            .collect())
    }

    /// Accesses the pieces, 32 at a time, with one lane for each.
    fn each(
        &self,
        cx: &mut Context<'_>,
        kind: AccessKind,
        mut f: impl FnMut(&mut Context<'_>, usize, usize, u64) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let addresses = self.addresses(cx)?;
        let all = cx.active;
        for (batch, chunk) in addresses.chunks(LANES).enumerate() {
            let mut lanes = [0; LANES];
            lanes[..chunk.len()].copy_from_slice(chunk);
            cx.active = mask(chunk.len() as u32) as u32;
            cx.watch(self.space, &lanes, self.piece(), kind, Order::WEAK);
            cx.active = all;
            for (lane, &addr) in chunk.iter().enumerate() {
                f(cx, batch * LANES + lane, lane, addr)?;
            }
        }
        Ok(())
    }

    /// The position of the memory's element `i` in the fragment's matrix.
    fn place(&self, i: usize) -> usize {
        let (line, at) = (i / self.length, i % self.length);
        if self.straight { i } else { at * self.lines + line }
    }
}

struct Load {
    tile: Tile,
    dst: Vec<Reg>,
}

fn load(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let tile = tile(s, 1)?;
    let f = tile.fragment;
    let dst = s.vector_dst(0, f.registers, f.ty(), false)?.into_iter().map(|d| d.0).collect();
    Ok(Box::new(Load { tile, dst }))
}

impl Operation for Load {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let t = &self.tile;
        let (bits, piece) = (t.fragment.bits, t.piece());
        let per_piece = piece * 8 / bits as usize;
        let mut matrix = vec![0; t.fragment.elements];
        let mut w = Window::empty();
        t.each(cx, AccessKind::Read, |cx, n, lane, addr| {
            let mut bytes = [0; 16];
            cx.read(t.space, addr, &mut bytes[..piece], lane, &mut w)?;
            let value = u128::from_le_bytes(bytes);
            for i in 0..per_piece {
                matrix[t.place(n * per_piece + i)] = (value >> (i as u32 * bits)) as u64 & mask(bits);
            }
            Ok(())
        })?;
        t.fragment.scatter(cx, &self.dst, &matrix);
        Ok(Flow::Next)
    }
}

struct Store {
    tile: Tile,
    src: Vec<Src>,
}

fn store(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let tile = tile(s, 0)?;
    let f = tile.fragment;
    let src = s.vector_src(1, f.registers, f.ty(), false)?;
    Ok(Box::new(Store { tile, src }))
}

impl Operation for Store {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let t = &self.tile;
        let (bits, piece) = (t.fragment.bits, t.piece());
        let per_piece = piece * 8 / bits as usize;
        let matrix = t.fragment.gather(cx, &self.src);
        let mut w = Window::empty();
        t.each(cx, AccessKind::Write, |cx, n, lane, addr| {
            let value = (0..per_piece)
                .fold(0_u128, |v, i| v | u128::from(matrix[t.place(n * per_piece + i)]) << (i as u32 * bits));
            cx.write(t.space, addr, &value.to_le_bytes()[..piece], lane, &mut w)
        })?;
        Ok(Flow::Next)
    }
}

struct Mma {
    shape: Shape,
    arithmetic: Arithmetic,
    a: (ElementFormat, Fragment, Vec<Src>),
    b: (ElementFormat, Fragment, Vec<Src>),
    c: (Fragment, Vec<Src>),
    d: (Fragment, Vec<Reg>),
}

fn mma(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let (atype, btype) = (s.get("atype").unwrap_or("f16"), s.get("btype").unwrap_or("f16"));
    let shape = Shape::parse(s.text("shape"), atype)?;
    let (ka, kb) = (ElementFormat::parse(atype)?, ElementFormat::parse(btype)?);
    let fa = Fragment::operand(shape.m, shape.k, ka, atype);
    let fb = Fragment::operand(shape.n, shape.k, kb, btype);
    let fd = Fragment::accumulator(shape, accumulator_bits(s, "dtype"));
    let fc = Fragment::accumulator(shape, accumulator_bits(s, "ctype"));
    // Sums use single precision if either accumulator has it.
    let wide = match arithmetic(s, atype, false)? {
        Arithmetic::Float(dot) if fc.bits == 32 => {
            // The multiplication is done as two along K, which `mma.sync` does at once.
            let group = if atype == "tf32" { 4 } else { dot.group };
            Arithmetic::Float(Dot { accumulator: F32, group, ..dot })
        }
        other => other,
    };
    let d = s.vector_dst(0, fd.registers, fd.ty(), false)?.into_iter().map(|d| d.0).collect();
    Ok(Box::new(Mma {
        shape,
        arithmetic: wide,
        a: (ka, fa, s.vector_src(1, fa.registers, fa.ty(), false)?),
        b: (kb, fb, s.vector_src(2, fb.registers, fb.ty(), false)?),
        c: (fc, s.vector_src(3, fc.registers, fc.ty(), false)?),
        d: (fd, d),
    }))
}

impl Operation for Mma {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let (a, b) = (self.a.1.gather(cx, &self.a.2), self.b.1.gather(cx, &self.b.2));
        let mut acc = self.c.0.gather(cx, &self.c.1);
        let (from, to) = (self.c.0.bits, self.d.0.bits);
        if from < to {
            acc.iter_mut().for_each(|v| *v = convert(F16, F32, *v));
        }
        let (a, b) =
            (Rows { element: self.a.0.element, bits: &a }, Rows { element: self.b.0.element, bits: &b });
        multiply(self.arithmetic, self.shape.k, &a, &b, &mut acc);
        if from > to {
            acc.iter_mut().for_each(|v| *v = convert(F32, F16, *v));
        }
        self.d.0.scatter(cx, &self.d.1, &acc);
        Ok(Flow::Next)
    }
}
