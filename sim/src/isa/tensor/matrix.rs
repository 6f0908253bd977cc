//! Moves fragments between shared memory and registers: `ldmatrix`, `stmatrix`, `movmatrix`.
//!
//! An 8x8 matrix of 16-bit elements is in memory as eight rows of 16 bytes at any addresses; lanes
//! `8i..8i + 8` give the addresses of matrix `i`. Lane `l` holds two of its elements, number `2 *
//! (l % 4)` and the next one of row `l / 4`; with `.trans`, of column `l / 4`.

use super::whole_warp;
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::{Space, put_le};
use crate::exec::{Context, Fault, Flow, Op, Operation, Reg, Src, fault};
use crate::isa::lift::custom;
use crate::isa::site::{Address, Issue, Site};
use crate::isa::{Class, Family, row};
use crate::memory::Window;
use crate::model::{LANES, Lanes};
use crate::num::mask;
use crate::order::Order;
use crate::types::Ty;

const NUM: Class = ("num", &["x1", "x2", "x4"]);
const SPACE: Class = ("ss", &["shared", "shared::cta"]);

pub(in crate::isa) static FAMILY: Family = Family {
    title: "Matrix fragments",
    section: "9.7.14.5.14 to 9.7.14.5.17",
    rows: &[
        row("ldmatrix.sync.aligned.m8n8.num{.trans}{.ss}.b16", "r, [p]", &[NUM, SPACE], load),
        row("stmatrix.sync.aligned.m8n8.num{.trans}{.ss}.b16", "[p], r", &[NUM, SPACE], store),
        row("movmatrix.sync.aligned.m8n8.trans.b16", "d, a", &[], |s| {
            let (d, a) = (s.dst(0, Ty::B32)?, s.src(1, Ty::B32)?);
            Ok(custom(move |cx| {
                if let Some(wait) = whole_warp(cx)? {
                    return Ok(wait);
                }
                let from = rows(cx.src(a));
                *cx.reg(d) = fragment(&from, true);
                Ok(Flow::Next)
            }))
        }),
    ],
};

/// An 8x8 matrix of 16-bit elements.
type Matrix = [[u16; 8]; 8];

/// The elements of a matrix that each lane holds.
fn fragment(m: &Matrix, trans: bool) -> [u64; LANES] {
    let element = |row: usize, column: usize| u64::from(if trans { m[column][row] } else { m[row][column] });
    std::array::from_fn(|l| {
        let (row, column) = (l / 4, 2 * (l % 4));
        element(row, column) | element(row, column + 1) << 16
    })
}

/// The matrix that the lanes hold.
fn rows(v: &[u64; LANES]) -> Matrix {
    std::array::from_fn(|r| std::array::from_fn(|c| (v[4 * r + c / 2] >> (16 * (c % 2))) as u16))
}

fn transposed(m: &Matrix) -> Matrix {
    std::array::from_fn(|r| std::array::from_fn(|c| m[c][r]))
}

fn count(s: &Site<'_, '_, '_>) -> usize {
    match s.get("num") {
        Some("x4") => 4,
        Some("x2") => 2,
        _ => 1,
    }
}

/// The address of a row in shared memory, which lane `lane` gives.
fn shared(space: Space, addr: u64, lane: usize) -> Result<u64, Fault> {
    let (space, addr) = if space == Space::Generic { Space::of_generic(addr) } else { (space, addr) };
    if space == Space::Shared {
        return Ok(addr);
    }
    let message = format!("a matrix row has a {} address", space.name());
    Err(fault(codes::BAD_ADDRESS, lane, message, "give ldmatrix and stmatrix addresses in shared memory"))
}

/// Reports the accesses of the lanes that give the row addresses of this number of matrices.
fn watch(cx: &mut Context<'_>, space: Space, addresses: &Lanes, matrices: usize, kind: AccessKind) {
    let all = cx.active;
    cx.active = mask(8 * matrices as u32) as u32;
    cx.watch(space, addresses, 16, kind, Order::WEAK);
    cx.active = all;
}

struct Load {
    space: Space,
    address: Address,
    trans: bool,
    dst: Vec<Reg>,
}

fn load(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let n = count(s);
    let (address, space) = s.address(1, s.space())?;
    let dst = s.vector_dst(0, n, Ty::B32, false)?.into_iter().map(|d| d.0).collect();
    Ok(Box::new(Load { space, address, trans: s.has("trans"), dst }))
}

impl Operation for Load {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let addresses = self.address.lanes(cx);
        watch(cx, self.space, &addresses, self.dst.len(), AccessKind::Read);
        let mut w = Window::empty();
        // All rows are read before a register is written, since a destination may also hold the
        // addresses.
        let mut matrices = [[[0; 8]; 8]; 4];
        for lane in 0..8 * self.dst.len() {
            let mut row = [0; 16];
            let addr = shared(self.space, addresses[lane], lane)?;
            cx.read(Space::Shared, addr, &mut row, lane, &mut w)?;
            matrices[lane / 8][lane % 8] =
                std::array::from_fn(|c| u16::from_le_bytes([row[2 * c], row[2 * c + 1]]));
        }
        for (d, m) in self.dst.iter().zip(&matrices) {
            *cx.reg(*d) = fragment(m, self.trans);
        }
        Ok(Flow::Next)
    }
}

struct Store {
    space: Space,
    address: Address,
    trans: bool,
    src: Vec<Src>,
}

fn store(s: &mut Site<'_, '_, '_>) -> Result<Op, Issue> {
    let n = count(s);
    let (address, space) = s.address(0, s.space())?;
    let src = s.vector_src(1, n, Ty::B32, false)?;
    Ok(Box::new(Store { space, address, trans: s.has("trans"), src }))
}

impl Operation for Store {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        if let Some(wait) = whole_warp(cx)? {
            return Ok(wait);
        }
        let addresses = self.address.lanes(cx);
        watch(cx, self.space, &addresses, self.src.len(), AccessKind::Write);
        let mut w = Window::empty();
        for (i, src) in self.src.iter().enumerate() {
            let m = rows(cx.src(*src));
            let m = if self.trans { transposed(&m) } else { m };
            for (r, row) in m.iter().enumerate() {
                let (lane, mut bytes) = (8 * i + r, [0; 16]);
                for (v, out) in row.iter().zip(bytes.chunks_exact_mut(2)) {
                    put_le(out, (*v).into());
                }
                let addr = shared(self.space, addresses[lane], lane)?;
                cx.write(Space::Shared, addr, &bytes, lane, &mut w)?;
            }
        }
        Ok(Flow::Next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_and_matrices() {
        let m: Matrix = std::array::from_fn(|r| std::array::from_fn(|c| (16 * r + c) as u16));
        // Lane 6: row 1, columns 4 and 5.
        assert_eq!(fragment(&m, false)[6], 0x0015_0014);
        // Transposed: column 1, rows 4 and 5.
        assert_eq!(fragment(&m, true)[6], 0x0051_0041);
        assert_eq!(rows(&fragment(&m, false)), m);
        assert_eq!(rows(&fragment(&m, true)), transposed(&m));
    }
}
