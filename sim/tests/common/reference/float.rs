//! Floating instructions, from the manual's sections 9.7.3 to 9.7.5, 9.7.9.

use super::exact::{BF16, F16, F32, F64, Format, Mode, Number, integral, product, quotient, root, sum};
use super::{Row, W, row, word};
use num_bigint::{BigInt, Sign};

/// What is said behind an instruction's name.
#[derive(Debug, Clone, Copy)]
struct How {
    f: Format,
    mode: Mode,
    ftz: bool,
    sat: bool,
    relu: bool,
}

const MODES: [(&str, Mode); 4] =
    [("rn", Mode::Nearest), ("rz", Mode::Zero), ("rm", Mode::Down), ("rp", Mode::Up)];

impl How {
    fn input(self, v: u64) -> u64 {
        if self.ftz { self.f.flush(v) } else { v }
    }

    fn finish(self, v: u64) -> u64 {
        let one = ((1 << (self.f.exp - 1)) - 1) << self.f.man;
        let negative = v & self.f.sign() != 0;
        if self.sat {
            return if self.f.is_nan(v) || negative { 0 } else { v.min(one) };
        }
        if self.relu && negative && !self.f.is_nan(v) { 0 } else { v }
    }

    /// `None` is NaN; of double precision it is the last operand that is NaN, made quiet.
    fn result(self, x: Option<Number>, operands: &[u64]) -> u64 {
        match x {
            Some(x) => self.finish(self.f.write(x, self.mode, self.ftz)),
            None if self.f == F64 => {
                let nan = operands.iter().rev().find(|v| F64.is_nan(**v));
                nan.map_or(F64.nan, |v| v | 1 << 51)
            }
            None => self.finish(self.f.nan),
        }
    }

    fn read(self, v: u64) -> Option<Number> {
        self.f.read(self.input(v))
    }

    fn add(self, a: u64, b: u64) -> u64 {
        let x = self.read(a).zip(self.read(b)).and_then(|(a, b)| sum(a, b, self.mode));
        self.result(x, &[a, b])
    }

    fn sub(self, a: u64, b: u64) -> u64 {
        self.add(a, if self.f.is_nan(b) { b } else { b ^ self.f.sign() })
    }

    fn mul(self, a: u64, b: u64) -> u64 {
        let x = self.read(a).zip(self.read(b)).and_then(|(a, b)| product(a, b));
        self.result(x, &[a, b])
    }

    fn fma(self, a: u64, b: u64, c: u64) -> u64 {
        let x = self.read(a).zip(self.read(b)).and_then(|(a, b)| product(a, b));
        let x = x.zip(self.read(c)).and_then(|(p, c)| sum(p, c, self.mode));
        // Of NaNs the multiplier's second wins, then the addend.
        self.result(x, &[a, c, b])
    }

    fn div(self, a: u64, b: u64) -> u64 {
        let x = self.read(a).zip(self.read(b)).and_then(|(a, b)| quotient(a, b));
        self.result(x, &[b, a])
    }

    fn sqrt(self, a: u64) -> u64 {
        self.result(self.read(a).and_then(root), &[a])
    }

    fn extremum(self, a: u64, b: u64, largest: bool, nan: bool) -> u64 {
        let (a, b) = (self.input(a), self.input(b));
        let picked = match (self.f.is_nan(a), self.f.is_nan(b)) {
            (true, true) if self.f == F64 => b | 1 << 51,
            (true, true) => self.f.nan,
            (true, false) if !nan => b,
            (false, true) if !nan => a,
            (true, _) | (_, true) => self.f.nan,
            _ => {
                let negative = |v: u64| v & self.f.sign() != 0;
                let less = match (negative(a), negative(b)) {
                    (true, true) => a > b,
                    (false, false) => a < b,
                    (n, _) => n,
                };
                if less == largest { b } else { a }
            }
        };
        self.finish(picked)
    }
}

/// In each of the fields of a packed type.
fn lanes(count: u32, v: &[u64], f: impl Fn(&[u64]) -> u64) -> u64 {
    let bits = 32 / count;
    (0..count).fold(0, |out, i| {
        let part: Vec<u64> = v.iter().map(|v| v >> (i * bits) & word(bits)).collect();
        out | f(&part) << (i * bits)
    })
}

/// `.type`, format, fields, register.
const TYPES: [(&str, Format, u32, W); 6] = [
    ("f32", F32, 1, W::S),
    ("f64", F64, 1, W::D),
    ("f16", F16, 1, W::H),
    ("bf16", BF16, 1, W::H),
    ("f16x2", F16, 2, W::S),
    ("bf16x2", BF16, 2, W::S),
];

fn push(
    l: &mut Vec<Row>,
    name: String,
    (count, w): (u32, W),
    n: usize,
    f: impl Fn(&[u64]) -> u64 + Send + Sync + 'static,
) {
    let operands: Vec<_> = (0..n).map(|i| format!("{{{i}}}")).collect();
    let text = format!("{name} {{d}}, {};", operands.join(", "));
    l.push(row(text, w, &vec![w; n], move |v| if count == 1 { f(v) } else { lanes(count, v, &f) }));
}

pub fn arithmetic(l: &mut Vec<Row>) {
    for (ty, f, count, w) in TYPES {
        let single = ty == "f32";
        let wide = matches!(ty, "f32" | "f64");
        let modes = if wide { &MODES[..] } else { &MODES[..1] };
        let to = (count, w);
        for &(rnd, mode) in modes {
            let flags: &[(bool, bool)] = match f {
                F32 => &[(false, false), (true, false), (false, true), (true, true)],
                F16 => &[(false, false), (true, false), (false, true), (true, true)],
                _ => &[(false, false)],
            };
            for &(ftz, sat) in flags {
                let how = How { f, mode, ftz, sat, relu: false };
                let tail =
                    format!(".{rnd}{}{}.{ty}", if ftz { ".ftz" } else { "" }, if sat { ".sat" } else { "" });
                push(l, format!("add{tail}"), to, 2, move |v| how.add(v[0], v[1]));
                push(l, format!("sub{tail}"), to, 2, move |v| how.sub(v[0], v[1]));
                push(l, format!("mul{tail}"), to, 2, move |v| how.mul(v[0], v[1]));
                push(l, format!("fma{tail}"), to, 3, move |v| how.fma(v[0], v[1], v[2]));
                if wide && !sat {
                    push(l, format!("div{tail}"), to, 2, move |v| how.div(v[0], v[1]));
                    push(l, format!("sqrt{tail}"), to, 1, move |v| how.sqrt(v[0]));
                    let one = if single { 0x3f80_0000 } else { 0x3ff0_0000_0000_0000 };
                    push(l, format!("rcp{tail}"), to, 1, move |v| how.div(one, v[0]));
                }
            }
        }
        let how = How { f, mode: Mode::Nearest, ftz: false, sat: false, relu: false };
        if !wide {
            let relu = How { relu: true, ..how };
            push(l, format!("fma.rn.relu.{ty}"), to, 3, move |v| relu.fma(v[0], v[1], v[2]));
        }
        for largest in [false, true] {
            let name = if largest { "max" } else { "min" };
            push(l, format!("{name}.{ty}"), to, 2, move |v| how.extremum(v[0], v[1], largest, false));
            if ty != "f64" {
                let text = format!("{name}.NaN.{ty}");
                push(l, text, to, 2, move |v| how.extremum(v[0], v[1], largest, true));
            }
            if single || f == F16 {
                let how = How { ftz: true, ..how };
                push(l, format!("{name}.ftz.{ty}"), to, 2, move |v| how.extremum(v[0], v[1], largest, false));
            }
        }
    }
}

fn order(f: Format, ftz: bool, a: u64, b: u64) -> Option<std::cmp::Ordering> {
    let flush = |v| if ftz { f.flush(v) } else { v };
    let (a, b) = (f.read(flush(a))?, f.read(flush(b))?);
    let difference = match (a, b) {
        (Number::Infinite(a), Number::Infinite(b)) => return Some(b.cmp(&a)),
        (Number::Infinite(a), _) => {
            return Some(if a { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater });
        }
        (_, Number::Infinite(b)) => {
            return Some(if b { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less });
        }
        (Number::Finite(a, ea, _), Number::Finite(b, eb, _)) => {
            let e = ea.min(eb);
            (a << (ea - e) as u64) - (b << (eb - e) as u64)
        }
    };
    Some(match difference.sign() {
        Sign::Minus => std::cmp::Ordering::Less,
        Sign::NoSign => std::cmp::Ordering::Equal,
        Sign::Plus => std::cmp::Ordering::Greater,
    })
}

pub fn comparisons(l: &mut Vec<Row>) {
    use std::cmp::Ordering::{Equal, Greater, Less};
    for (ty, f, count, w) in TYPES {
        if count > 1 {
            continue;
        }
        for (op, yes) in [
            ("eq", &[Equal][..]),
            ("ne", &[Less, Greater]),
            ("lt", &[Less]),
            ("le", &[Less, Equal]),
            ("gt", &[Greater]),
            ("ge", &[Greater, Equal]),
            ("num", &[Less, Equal, Greater]),
        ] {
            let unordered = if op == "num" { "nan".to_string() } else { format!("{op}u") };
            let unordered_yes = if op == "num" { &[][..] } else { yes };
            for (op, yes, nan) in [(op.to_string(), yes, false), (unordered, unordered_yes, true)] {
                for ftz in [false, true] {
                    if ftz && ty != "f32" {
                        continue;
                    }
                    let text =
                        format!("setp.{op}{}.{ty} {{d}}, {{0}}, {{1}};", if ftz { ".ftz" } else { "" });
                    let test = move |v: &[u64]| order(f, ftz, v[0], v[1]).map_or(nan, |o| yes.contains(&o));
                    l.push(row(text, W::P, &[w, w], move |v| u64::from(test(v))));
                }
            }
        }
    }
}

const INTEGERS: [(&str, W); 6] =
    [("u16", W::H), ("s16", W::H), ("u32", W::S), ("s32", W::S), ("u64", W::D), ("s64", W::D)];

pub fn conversions(l: &mut Vec<Row>) {
    let floats = &TYPES[..3];
    for &(ty, f, _, w) in floats {
        for (it, iw) in INTEGERS {
            let (bits, signed) = (iw.bits(), it.starts_with('s'));
            for (rnd, mode) in MODES {
                for ftz in [false, true] {
                    if ftz && ty != "f32" {
                        continue;
                    }
                    let flag = if ftz { ".ftz" } else { "" };
                    // To an integer: clamped; NaN is 0, or what the width has as its least negative number.
                    let text = format!("cvt.{rnd}i{flag}.{it}.{ty} {{d}}, {{0}};");
                    l.push(row(text, iw, &[w], move |v| {
                        let v = if ftz { f.flush(v[0]) } else { v[0] };
                        let (min, max) = if signed {
                            (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
                        } else {
                            (0, (1_i128 << bits) - 1)
                        };
                        let Some(x) = f.read(v) else {
                            let wide = f == F64 || bits == 64;
                            return if wide { 1 << (bits - 1) } else { 0 };
                        };
                        let n = match &x {
                            Number::Infinite(true) => BigInt::from(min),
                            Number::Infinite(false) => BigInt::from(max),
                            finite => integral(finite, mode).unwrap(),
                        };
                        let n = n.clamp(BigInt::from(min), BigInt::from(max));
                        i128::try_from(n).unwrap() as u64 & word(bits)
                    }));
                }
                let text = format!("cvt.{rnd}.{ty}.{it} {{d}}, {{0}};");
                l.push(row(text, w, &[iw], move |v| {
                    let unused = 128 - bits;
                    let n = if signed { (i128::from(v[0]) << unused) >> unused } else { i128::from(v[0]) };
                    f.write(Number::Finite(BigInt::from(n), 0, false), mode, false)
                }));
            }
        }
    }
    // Narrowing; widening is exact.
    for &(to, t, _, tw) in &TYPES[..4] {
        for &(from, f, _, fw) in &TYPES[..3] {
            if to == from || to == "bf16" && from != "f32" {
                continue;
            }
            for (rnd, mode) in MODES {
                let narrows = t.man < f.man;
                if (!narrows || to == "bf16") && mode != Mode::Nearest {
                    continue;
                }
                let text = format!(
                    "cvt{}.{to}.{from} {{d}}, {{0}};",
                    if narrows { format!(".{rnd}") } else { String::new() }
                );
                l.push(row(text, tw, &[fw], move |v| match f.read(v[0]) {
                    Some(x) => t.write(x, mode, false),
                    // From and to double precision NaNs keep their sign and their leading bits.
                    None if t == F64 || f == F64 => {
                        let payload = v[0] & ((1 << f.man) - 1);
                        let payload =
                            if narrows { payload >> (f.man - t.man) } else { payload << (t.man - f.man) };
                        let sign = if v[0] & f.sign() != 0 { t.sign() } else { 0 };
                        sign | t.infinity() | payload | 1 << (t.man - 1)
                    }
                    None => t.nan,
                }));
            }
        }
    }
}
