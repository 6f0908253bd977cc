//! Gives the lanes of a warp the elements of a first factor that matrix instructions expect.
//!
//! Four lanes hold a row of an accumulator: lane `q` has columns `2 q` and `2 q + 1` of each eight.
//! Instructions expect 32 bits of adjacent columns in a lane. For elements of 16 bits these are the
//! same columns. For 8 bits lane `q` needs columns `4 q` to `4 q + 3` of each 16, and for 32 bits
//! columns `q` and `q + 4` of each eight (PTX ISA, wgmma.mma_async: register fragments). The lanes
//! of a row then exchange two registers in two shuffles. In each shuffle every lane sends one
//! register and receives one.

use crate::edit::Editor;
use crate::teams::linear;
use weft_ir::builder::Built;
use weft_ir::mixed::{Builder, Type};
use weft_ir::{Arith, BinOp, CmpOp, Scalar, ShuffleMode, Sreg, Thread, Value};

/// The number of lanes that hold a row.
const LANES: i64 = 4;

/// How the lanes of a row exchange a pair of registers. Bit `q` of a mask belongs to lane `q`.
struct Exchange {
    /// The lanes that send their first register in the first shuffle.
    sends_first: i64,
    /// The lanes that receive the lower columns in the first shuffle.
    receives_lower: i64,
    /// The lane from which lane `q` receives in the first shuffle, in bits `2 q` and `2 q + 1`.
    from: i64,
    /// Exclusive or with the lane gives the lane from which it receives in the second shuffle.
    flip: i64,
}

const OF_8_BITS: Exchange =
    Exchange { sends_first: 0b1001, receives_lower: 0b1001, from: 0b10_01_11_00, flip: 1 };
const OF_32_BITS: Exchange =
    Exchange { sends_first: 0b0011, receives_lower: 0b0101, from: 0b11_01_10_00, flip: 2 };

/// The registers of a first factor for instructions: four for each 64 rows and 32 bytes along K.
/// `held` are the thread's elements in the order of an accumulator.
pub(super) fn fragments(e: &mut Editor, held: Value, elem: Scalar, lanes: u32) -> Built<Value> {
    let count = lanes * elem.bytes() / 4;
    let registers = e.b.emit_as(Arith::Bitcast { a: held }, Type::Vector(Scalar::I32, count))?;
    let exchange = match elem.bytes() {
        1 => OF_8_BITS,
        4 => OF_32_BITS,
        _ => return Ok(registers),
    };
    let lane = linear(&mut e.b, Sreg::ThreadIdx)?;
    let lane = e.b.index(lane)?;
    let lane = e.b.convert(lane, Scalar::I32)?;
    let lanes = Lanes::new(&mut e.b, lane, &exchange)?;
    let mut received = Vec::with_capacity(count as usize);
    for first in (0..count).step_by(2) {
        let pair = [e.b.slice(registers, first, 1)?, e.b.slice(registers, first + 1, 1)?];
        let [lower, upper] = lanes.exchange(&mut e.b, pair)?;
        if elem.bytes() == 4 {
            received.extend([lower, upper]);
        } else {
            received.extend(halves(&mut e.b, lower, upper)?);
        }
    }
    if elem.bytes() == 4 {
        // The instruction takes the lower columns of both rows before the upper ones.
        received.chunks_exact_mut(4).for_each(|fragment| fragment.swap(1, 2));
    }
    e.b.concat(received)
}

/// What a lane does in an exchange.
struct Lanes {
    sends_first: Value,
    receives_lower: Value,
    from: [Value; 2],
}

impl Lanes {
    fn new(b: &mut Builder, lane: Value, exchange: &Exchange) -> Built<Self> {
        let constant = |b: &mut Builder, n: i64| b.int(Scalar::I32, n);
        let three = constant(b, LANES - 1)?;
        let place = b.binary(BinOp::And, lane, three)?;
        let is_in = |b: &mut Builder, mask: i64| {
            let (mask, one) = (constant(b, mask)?, constant(b, 1)?);
            let bit = b.binary(BinOp::Shr, mask, place)?;
            let bit = b.binary(BinOp::And, bit, one)?;
            b.compare(CmpOp::Eq, bit, one)
        };
        let (sends_first, receives_lower) =
            (is_in(b, exchange.sends_first)?, is_in(b, exchange.receives_lower)?);
        let one = constant(b, 1)?;
        let twice = b.binary(BinOp::Shl, place, one)?;
        let from = constant(b, exchange.from)?;
        let from = b.binary(BinOp::Shr, from, twice)?;
        let from = b.binary(BinOp::And, from, three)?;
        // The distance between both lanes is within the row, so the row's other bits stay.
        let row = b.binary(BinOp::Xor, lane, place)?;
        let first = b.binary(BinOp::Or, row, from)?;
        let last = constant(b, 31)?;
        let first = b.binary(BinOp::And, first, last)?;
        let flip = constant(b, exchange.flip)?;
        let second = b.binary(BinOp::Xor, first, flip)?;
        Ok(Self { sends_first, receives_lower, from: [first, second] })
    }

    /// Exchanges a pair of registers. Returns the register of the lower columns and that of the
    /// upper columns.
    fn exchange(&self, b: &mut Builder, [first, second]: [Value; 2]) -> Built<[Value; 2]> {
        let sent = [b.select(self.sends_first, first, second)?, b.select(self.sends_first, second, first)?];
        let [x, y] = [(sent[0], self.from[0]), (sent[1], self.from[1])]
            .map(|(value, lane)| b.emit(Thread::Shuffle { value, mode: ShuffleMode::Idx, lane }));
        let (x, y) = (x?, y?);
        Ok([b.select(self.receives_lower, x, y)?, b.select(self.receives_lower, y, x)?])
    }
}

/// The lower halves of two registers, and their upper halves.
fn halves(b: &mut Builder, x: Value, y: Value) -> Built<[Value; 2]> {
    let (sixteen, low) = (b.int(Scalar::I32, 16)?, b.int(Scalar::I32, 0xffff)?);
    let high = b.int(Scalar::I32, !0xffff)?;
    let (x_low, y_low) = (b.binary(BinOp::And, x, low)?, b.binary(BinOp::Shl, y, sixteen)?);
    let x_high = b.binary(BinOp::Shr, x, sixteen)?;
    let (x_high, y_high) = (b.binary(BinOp::And, x_high, low)?, b.binary(BinOp::And, y, high)?);
    Ok([b.binary(BinOp::Or, x_low, y_low)?, b.binary(BinOp::Or, x_high, y_high)?])
}
