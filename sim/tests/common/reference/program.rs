//! Random programs.

use super::warp::{OPERATIONS, SHUFFLES, Shared};
use super::{Row, W, rows, word};
use std::fmt::Write as _;
use std::sync::LazyLock;

static ROWS: LazyLock<Vec<Row>> = LazyLock::new(rows);

/// How many registers of each width there are.
const FILE: [(W, &str, usize); 4] = [(W::P, "p", 3), (W::H, "h", 5), (W::S, "r", 7), (W::D, "d", 5)];
pub const LANES: usize = 32;
/// 8-byte words of a lane's inputs and results: all registers.
pub const WORDS: usize = 20;

/// How many instructions there are.
pub fn count() -> usize {
    ROWS.len()
}

fn name(w: W, i: usize) -> String {
    format!("%{}{i}", FILE[w as usize].1)
}

/// The registers of a lane, by width.
type Lane = [[u64; 8]; 4];

enum Step {
    Do {
        row: &'static Row,
        to: usize,
        from: Vec<usize>,
        constant: Option<u64>,
    },
    Warp {
        op: &'static Shared,
        to: usize,
        from: [usize; 3],
    },
    /// Lanes where the predicate holds, and the others.
    If {
        p: usize,
        then: Vec<Step>,
        other: Vec<Step>,
    },
    /// As often as the two low bits of a register say.
    Loop {
        count: usize,
        body: Vec<Step>,
    },
}

/// Choices from given bytes; zeros when they are used up.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn byte(&mut self) -> usize {
        self.0.next().copied().unwrap_or(0).into()
    }
    fn below(&mut self, n: usize) -> usize {
        (if n > 256 { self.byte() << 8 | self.byte() } else { self.byte() }) % n
    }
    fn register(&mut self, w: W) -> usize {
        self.below(FILE[w as usize].2)
    }

    /// A number with something about it, as an integer and as a float of any width.
    fn value(&mut self, bits: u32) -> u64 {
        let formats: &[(u32, u32)] = match bits {
            64 => &[(11, 52), (8, 23)],
            32 => &[(8, 23), (5, 10)],
            _ => &[(5, 10), (8, 7)],
        };
        let (exp, man) = formats[self.below(2)];
        let random = (0..8).fold(0, |v, _| v << 8 | self.byte() as u64);
        let small = self.byte() as u64;
        let fraction = random & word(man);
        let (top, bias) = (word(exp), word(exp - 1));
        let magnitude = match self.below(16) {
            0 => 0,
            1 => small & 3,
            2 => word(bits),
            3 => 1 << (bits - 1) | small & 1,
            4 => word(bits - 1),
            5 => small,
            6 => 1 << (small % u64::from(bits)),
            7 => top << man,
            8 => top << man | fraction,
            9 => (top << man) - 1,
            10 => fraction,
            11 => bias << man | fraction,
            12 => (bias + small % u64::from(man + 4)) << man | fraction & word(3) << (man - 3),
            13 => (bias - small % u64::from(man + 3)) << man | fraction,
            _ => random,
        };
        let sign = if small & 0x80 == 0 { 0 } else { 1 << (exp + man) };
        let v = (magnitude ^ sign) & word(bits);
        // Both halves of a packed register.
        if bits == 32 && exp == 5 { v & 0xffff | random >> 32 << 16 & word(32) } else { v }
    }

    fn steps(&mut self, many: usize, depth: usize, l: &mut Vec<Step>) {
        for _ in 0..many {
            let kind = self.below(32);
            l.push(match kind {
                0..=2 if depth < 3 => {
                    let p = self.register(W::P);
                    let (mut then, mut other) = (Vec::new(), Vec::new());
                    let n = 1 + self.below(4);
                    self.steps(n, depth + 1, &mut then);
                    let n = self.below(4);
                    self.steps(n, depth + 1, &mut other);
                    Step::If { p, then, other }
                }
                3 if depth < 2 => {
                    let count = self.register(W::S);
                    let mut body = Vec::new();
                    let n = 1 + self.below(3);
                    self.steps(n, depth + 1, &mut body);
                    Step::Loop { count, body }
                }
                4..=7 => {
                    let all = if depth == 0 && kind < 6 { SHUFFLES } else { OPERATIONS };
                    let op = &all[self.below(all.len())];
                    let from = [self.register(W::S), self.register(W::S), self.register(W::P)];
                    // The destination is no operand: it may be written first.
                    let taken = if op.to == W::P { from[2] } else { from[0] };
                    let to = self.register(op.to);
                    let to = if to == taken { (to + 1) % FILE[op.to as usize].2 } else { to };
                    Step::Warp { op, to, from }
                }
                _ => {
                    let row = &ROWS[self.below(ROWS.len())];
                    let from: Vec<usize> = row.from.iter().map(|w| self.register(*w)).collect();
                    let mut to = self.register(row.to);
                    while row.apart && row.from.iter().zip(&from).any(|(w, r)| *w == row.to && *r == to) {
                        to = (to + 1) % FILE[row.to as usize].2;
                    }
                    let last = row.from[row.from.len() - 1].bits();
                    let constant = (row.immediate && self.below(6) == 0).then(|| self.value(last));
                    Step::Do { row, to, from, constant }
                }
            });
        }
    }
}

pub struct Program {
    steps: Vec<Step>,
    /// Of all lanes.
    pub inputs: Vec<u64>,
}

impl Program {
    /// The program that these bytes choose.
    pub fn new(bytes: &[u8], max: usize) -> Program {
        let mut choices = Choices(bytes.iter());
        let many = 1 + choices.below(max);
        let mut steps = Vec::new();
        choices.steps(many, 0, &mut steps);
        let mut inputs = Vec::new();
        // Lanes differ even when nothing is left to choose from.
        for lane in 0..LANES as u64 {
            for (w, _, n) in FILE {
                for _ in 0..n {
                    inputs.push(
                        (choices.value(w.bits()) ^ lane.wrapping_mul(0x0801_0401 * (lane & 1)))
                            & word(w.bits()),
                    );
                }
            }
        }
        Program { steps, inputs }
    }

    /// One instruction by itself, number `i` of [`count`].
    pub fn only(i: usize, bytes: &[u8]) -> Program {
        let mut choices = Choices(bytes.iter());
        let row = &ROWS[i];
        // Operands from registers of their own.
        let from: Vec<usize> = (0..row.from.len()).map(|i| i % FILE[row.from[i] as usize].2).collect();
        let to = FILE[row.to as usize].2 - 1;
        let step = Step::Do { row, to, from, constant: None };
        let inputs = (0..LANES).flat_map(|_| FILE.iter().flat_map(|(w, _, n)| vec![w.bits(); *n]));
        let inputs = inputs.map(|bits| choices.value(bits)).collect();
        Program { steps: vec![step], inputs }
    }

    /// What it does.
    pub fn text(&self) -> String {
        let mut t = String::new();
        print(&self.steps, 0, &mut 0, &mut t);
        t
    }

    /// A kernel `k(out, in)` of one warp.
    pub fn ptx(&self) -> String {
        let mut t = String::from(
            ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 k_out, .param .u64 k_in)\n{\n\
             \x20 .reg .pred %p<4>, %q;\n  .reg .b16 %h<8>;\n  .reg .b32 %r<8>, %m<8>, %n<8>, %t;\n  .reg .b64 %d<8>, %a<3>;\n\
             \x20 ld.param.b64 %a0, [k_out];\n  ld.param.b64 %a1, [k_in];\n  mov.u32 %t, %tid.x;\n",
        );
        for i in 0..2 {
            let _ = writeln!(t, "  mad.wide.u32 %a{i}, %t, {}, %a{i};", 8 * WORDS);
        }
        let registers = || FILE.iter().flat_map(|(w, _, n)| (0..*n).map(|i| (*w, name(*w, i)))).enumerate();
        for (at, (w, r)) in registers() {
            let _ = match w {
                W::P => writeln!(t, "  ld.global.b32 %t, [%a1+{}];\n  setp.ne.u32 {r}, %t, 0;", 8 * at),
                _ => writeln!(t, "  ld.global.b{} {r}, [%a1+{}];", w.bits(), 8 * at),
            };
        }
        t.push_str("  mov.u32 %m0, -1;\n");
        print(&self.steps, 0, &mut 0, &mut t);
        for (at, (w, r)) in registers() {
            let _ = match w {
                W::P => writeln!(t, "  selp.b32 %t, 1, 0, {r};\n  st.global.b32 [%a0+{}], %t;", 8 * at),
                _ => writeln!(t, "  st.global.b{} [%a0+{}], {r};", w.bits(), 8 * at),
            };
        }
        t.push_str("  ret;\n}\n");
        t
    }

    /// What the kernel writes, of memory that is zero.
    pub fn run(&self) -> Vec<u64> {
        let mut lanes: Vec<Lane> = vec![[[0; 8]; 4]; LANES];
        let registers = || FILE.iter().flat_map(|(w, _, n)| (0..*n).map(|i| (*w as usize, i))).enumerate();
        for (lane, input) in lanes.iter_mut().zip(self.inputs.chunks(WORDS)) {
            registers().for_each(|(at, (w, i))| lane[w][i] = input[at]);
        }
        execute(&self.steps, u32::MAX, &mut lanes);
        lanes.iter().flat_map(|lane| registers().map(|(_, (w, i))| lane[w][i])).collect()
    }
}

fn execute(steps: &[Step], mask: u32, lanes: &mut [Lane]) {
    let members = |mask: u32| (0..LANES).filter(move |l| mask >> l & 1 == 1);
    let holds = |lanes: &[Lane], mask: u32, f: &dyn Fn(&Lane) -> bool| {
        members(mask).filter(|l| f(&lanes[*l])).fold(0, |m, l| m | 1_u32 << l)
    };
    if mask == 0 {
        return;
    }
    for step in steps {
        match step {
            Step::Do { row, to, from, constant } => {
                for l in members(mask) {
                    let lane = &mut lanes[l];
                    let mut operands: Vec<u64> =
                        row.from.iter().zip(from).map(|(w, r)| lane[*w as usize][*r]).collect();
                    if let (Some(c), Some(last)) = (constant, operands.last_mut()) {
                        *last = *c;
                    }
                    lane[row.to as usize][*to] = (row.eval)(&operands);
                }
            }
            Step::Warp { op, to, from } => {
                let s = W::S as usize;
                let operands = std::array::from_fn(|l| {
                    let lane = &lanes[l];
                    [lane[s][from[0]], lane[s][from[1]], lane[W::P as usize][from[2]]]
                });
                for l in members(mask) {
                    lanes[l][op.to as usize][*to] = (op.eval)(&operands, mask, l);
                }
            }
            Step::If { p, then, other } => {
                let yes = holds(lanes, mask, &|lane| lane[W::P as usize][*p] == 1);
                execute(then, yes, lanes);
                execute(other, mask & !yes, lanes);
            }
            Step::Loop { count, body } => {
                // The counter is taken before: the body may change the register.
                let counts: Vec<u64> = lanes.iter().map(|lane| lane[W::S as usize][*count] & 3).collect();
                for round in 0..3 {
                    let still = members(mask).filter(|l| counts[*l] > round).fold(0, |m, l| m | 1_u32 << l);
                    execute(body, still, lanes);
                }
            }
        }
    }
}

/// The mask of the lanes that are here is in `%m{depth}`.
fn print(steps: &[Step], depth: usize, labels: &mut usize, t: &mut String) {
    for step in steps {
        let _ = match step {
            Step::Do { row, to, from, constant } => {
                let mut text = row.text.replace("{d}", &name(row.to, *to));
                for (i, (w, r)) in row.from.iter().zip(from).enumerate() {
                    let last = i + 1 == from.len();
                    let operand = constant.filter(|_| last).map_or(name(*w, *r), |c| format!("{c:#x}"));
                    text = text.replace(&format!("{{{i}}}"), &operand);
                }
                writeln!(t, "  {text}")
            }
            Step::Warp { op, to, from } => {
                let operands = [("{d}", name(op.to, *to)), ("{m}", format!("%m{depth}"))];
                let from = [
                    ("{0}", name(W::S, from[0])),
                    ("{1}", name(W::S, from[1])),
                    ("{2}", name(W::P, from[2])),
                ];
                let text =
                    operands.iter().chain(&from).fold(op.text.to_string(), |t, (k, v)| t.replace(k, v));
                writeln!(t, "  {text}")
            }
            Step::If { p, then, other } => {
                let (label, inner) = (*labels, depth + 1);
                *labels += 1;
                let _ = write!(
                    t,
                    "  vote.sync.ballot.b32 %m{inner}, %p{p}, %m{depth};\n  @!%p{p} bra OTHER{label};\n"
                );
                print(then, inner, labels, t);
                let _ = write!(
                    t,
                    "  bra JOIN{label};\nOTHER{label}:\n  not.b32 %m{inner}, %m{inner};\n\
                     \x20 and.b32 %m{inner}, %m{inner}, %m{depth};\n"
                );
                print(other, inner, labels, t);
                writeln!(t, "JOIN{label}:")
            }
            Step::Loop { count, body } => {
                let (label, inner) = (*labels, depth + 1);
                *labels += 1;
                let _ = write!(
                    t,
                    "  and.b32 %n{inner}, %r{count}, 3;\n  mov.b32 %m{inner}, %m{depth};\nLOOP{label}:\n\
                     \x20 setp.ne.u32 %q, %n{inner}, 0;\n  vote.sync.ballot.b32 %m{inner}, %q, %m{inner};\n\
                     \x20 @!%q bra JOIN{label};\n"
                );
                print(body, inner, labels, t);
                writeln!(t, "  sub.u32 %n{inner}, %n{inner}, 1;\n  bra LOOP{label};\nJOIN{label}:")
            }
        };
    }
}
