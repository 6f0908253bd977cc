//! Integer, bit and logic instructions, from the manual's sections 9.7.1, 9.7.2, 9.7.6 to 9.7.9.

use super::{Row, W, row, word};

const TYPES: [(&str, W, bool); 6] = [
    ("u16", W::H, false),
    ("s16", W::H, true),
    ("u32", W::S, false),
    ("s32", W::S, true),
    ("u64", W::D, false),
    ("s64", W::D, true),
];

fn value(bits: u32, signed: bool, v: u64) -> i128 {
    if signed && v >> (bits - 1) & 1 == 1 { i128::from(v) - (1 << bits) } else { i128::from(v) }
}

fn clamp(bits: u32, signed: bool, v: i128) -> u64 {
    let (low, high) = if signed {
        (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1)
    } else {
        (0, (1_i128 << bits) - 1)
    };
    v.clamp(low, high) as u64 & word(bits)
}

pub fn arithmetic(l: &mut Vec<Row>) {
    for (t, w, signed) in TYPES {
        let bits = w.bits();
        let int = move |v: u64| value(bits, signed, v);
        let mut binary = |name: &str, f: fn(i128, i128) -> i128| {
            let text = format!("{name}.{t} {{d}}, {{0}}, {{1}};");
            l.push(row(text, w, &[w, w], move |v| f(int(v[0]), int(v[1])) as u64 & word(bits)).immediate());
        };
        binary("add", |a, b| a + b);
        binary("sub", |a, b| a - b);
        binary("mul.lo", i128::wrapping_mul);
        binary("min", i128::min);
        binary("max", i128::max);
        let text = format!("mul.hi.{t} {{d}}, {{0}}, {{1}};");
        // Unsigned products of 64 bits do not fit a signed number of 128.
        let high = move |a: u64, b: u64| {
            let product = if signed { (int(a) * int(b)) as u128 } else { u128::from(a) * u128::from(b) };
            (product >> bits) as u64 & word(bits)
        };
        l.push(row(text, w, &[w, w], move |v| high(v[0], v[1])).immediate());
        let text = format!("mad.lo.{t} {{d}}, {{0}}, {{1}}, {{2}};");
        l.push(
            row(text, w, &[w; 3], move |v| v[0].wrapping_mul(v[1]).wrapping_add(v[2]) & word(bits))
                .immediate(),
        );
        let text = format!("mad.hi.{t} {{d}}, {{0}}, {{1}}, {{2}};");
        l.push(row(text, w, &[w; 3], move |v| high(v[0], v[1]).wrapping_add(v[2]) & word(bits)).immediate());
        if let Some(wide) = w.twice() {
            let text = format!("mul.wide.{t} {{d}}, {{0}}, {{1}};");
            l.push(
                row(text, wide, &[w, w], move |v| (int(v[0]) * int(v[1])) as u64 & word(2 * bits))
                    .immediate(),
            );
            let text = format!("mad.wide.{t} {{d}}, {{0}}, {{1}}, {{2}};");
            l.push(row(text, wide, &[w, w, wide], move |v| {
                ((int(v[0]) * int(v[1])) as u64).wrapping_add(v[2]) & word(2 * bits)
            }));
        }
        // Nothing is said of a division by zero.
        let text = format!("or.b{bits} {{d}}, {{1}}, 1;\n  div.{t} {{d}}, {{0}}, {{d}};");
        l.push(row(text, w, &[w, w], move |v| (int(v[0]) / int(v[1] | 1)) as u64 & word(bits)).apart());
        let text = format!("or.b{bits} {{d}}, {{1}}, 1;\n  rem.{t} {{d}}, {{0}}, {{d}};");
        l.push(row(text, w, &[w, w], move |v| (int(v[0]) % int(v[1] | 1)) as u64 & word(bits)).apart());
        let text = format!("sad.{t} {{d}}, {{0}}, {{1}}, {{2}};");
        l.push(row(text, w, &[w; 3], move |v| {
            ((int(v[0]) - int(v[1])).unsigned_abs() as u64).wrapping_add(v[2]) & word(bits)
        }));
        if signed {
            l.push(row(format!("abs.{t} {{d}}, {{0}};"), w, &[w], move |v| int(v[0]).unsigned_abs() as u64));
            l.push(row(format!("neg.{t} {{d}}, {{0}};"), w, &[w], move |v| -int(v[0]) as u64 & word(bits)));
        }
        // A shift to the right keeps the sign; too far is all the way.
        let text = format!("shr.{t} {{d}}, {{0}}, {{1}};");
        l.push(
            row(text, w, &[w, W::S], move |v| (int(v[0]) >> v[1].min(127)) as u64 & word(bits)).immediate(),
        );
        for (op, test) in [
            ("eq", (|a, b| a == b) as fn(i128, i128) -> bool),
            ("ne", |a, b| a != b),
            ("lt", |a, b| a < b),
            ("le", |a, b| a <= b),
            ("gt", |a, b| a > b),
            ("ge", |a, b| a >= b),
        ] {
            let text = format!("setp.{op}.{t} {{d}}, {{0}}, {{1}};");
            l.push(row(text, W::P, &[w, w], move |v| u64::from(test(int(v[0]), int(v[1])))).immediate());
            for (logic, both) in
                [("and", (|a, b| a & b) as fn(u64, u64) -> u64), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)]
            {
                let text = format!("setp.{op}.{logic}.{t} {{d}}, {{0}}, {{1}}, {{2}};");
                let f = move |v: &[u64]| both(u64::from(test(int(v[0]), int(v[1]))), v[2]);
                l.push(row(text, W::P, &[w, w, W::P], f));
                let text = format!("setp.{op}.{logic}.{t} {{d}}, {{0}}, {{1}}, !{{2}};");
                let f = move |v: &[u64]| both(u64::from(test(int(v[0]), int(v[1]))), 1 - v[2]);
                l.push(row(text, W::P, &[w, w, W::P], f));
            }
            for (d, dw, yes) in [("u32", W::S, word(32)), ("s32", W::S, word(32)), ("f32", W::S, 0x3f80_0000)]
            {
                let text = format!("set.{op}.{d}.{t} {{d}}, {{0}}, {{1}};");
                l.push(row(text, dw, &[w, w], move |v| if test(int(v[0]), int(v[1])) { yes } else { 0 }));
            }
        }
        for (to, tw, to_signed) in TYPES {
            let text = format!("cvt.{to}.{t} {{d}}, {{0}};");
            l.push(row(text, tw, &[w], move |v| int(v[0]) as u64 & word(tw.bits())));
            // `.sat` is not for conversions that always fit.
            let (n, m) = (tw.bits() - u32::from(to_signed), bits - u32::from(signed));
            if n >= m && (to_signed || !signed) {
                continue;
            }
            let text = format!("cvt.sat.{to}.{t} {{d}}, {{0}};");
            l.push(row(text, tw, &[w], move |v| clamp(tw.bits(), to_signed, int(v[0]))));
        }
        for (to, sign) in [("s8", true), ("u8", false)] {
            // An 8-bit value is held with its sign or zeros.
            let text = format!("cvt.{to}.{t} {{d}}, {{0}};");
            l.push(row(text, W::S, &[w], move |v| value(8, sign, v[0] & 0xff) as u64 & word(32)));
            let text = format!("cvt.sat.{to}.{t} {{d}}, {{0}};");
            l.push(row(text, W::S, &[w], move |v| {
                value(8, sign, clamp(8, sign, int(v[0]))) as u64 & word(32)
            }));
        }
        let text = format!("slct.{t}.s32 {{d}}, {{0}}, {{1}}, {{2}};");
        l.push(row(text, w, &[w, w, W::S], |v| if value(32, true, v[2]) >= 0 { v[0] } else { v[1] }));
    }
    for (name, f) in [("add", (|a, b| a + b) as fn(i128, i128) -> i128), ("sub", |a, b| a - b)] {
        let text = format!("{name}.sat.s32 {{d}}, {{0}}, {{1}};");
        let f = move |v: &[u64]| clamp(32, true, f(value(32, true, v[0]), value(32, true, v[1])));
        l.push(row(text, W::S, &[W::S; 2], f).immediate());
    }
    l.push(row("mad.hi.sat.s32 {d}, {0}, {1}, {2};".into(), W::S, &[W::S; 3], |v| {
        let int = |v| value(32, true, v);
        clamp(32, true, ((int(v[0]) * int(v[1])) >> 32) + int(v[2]))
    }));
    for (t, signed) in [("u32", false), ("s32", true)] {
        for (half, shift) in [("lo", 0), ("hi", 16)] {
            let product = move |a, b| {
                let int = |v: u64| value(24, signed, v & word(24));
                ((int(a) * int(b)) >> shift) as u64 & word(32)
            };
            l.push(row(format!("mul24.{half}.{t} {{d}}, {{0}}, {{1}};"), W::S, &[W::S; 2], move |v| {
                product(v[0], v[1])
            }));
            let text = format!("mad24.{half}.{t} {{d}}, {{0}}, {{1}}, {{2}};");
            l.push(row(text, W::S, &[W::S; 3], move |v| (product(v[0], v[1]) + v[2]) & word(32)));
        }
    }
    packed(l);
    carries(l);
    dots(l);
}

fn packed(l: &mut Vec<Row>) {
    for (t, signed) in [("u16x2", false), ("s16x2", true)] {
        for (name, f) in [
            ("add", (|a, b| a + b) as fn(i128, i128) -> i128),
            ("sub", |a, b| a - b),
            ("min", i128::min),
            ("max", i128::max),
        ] {
            let text = format!("{name}.{t} {{d}}, {{0}}, {{1}};");
            l.push(row(text, W::S, &[W::S; 2], move |v| {
                let half = |v: u64, i| value(16, signed, v >> (16 * i) & word(16));
                (0..2).fold(0, |d, i| d | (f(half(v[0], i), half(v[1], i)) as u64 & word(16)) << (16 * i))
            }));
        }
    }
}

/// Sums of two words of twice the length, by way of the carry.
fn carries(l: &mut Vec<Row>) {
    for (t, w) in [("u32", W::S), ("u64", W::D)] {
        let bits = w.bits();
        let two = move |v: &[u64], i: usize| u128::from(v[i]) | u128::from(v[i + 1]) << bits;
        for (name, high) in [("add", false), ("add", true), ("sub", false), ("sub", true)] {
            let text = if high {
                format!("{name}.cc.{t} {{d}}, {{0}}, {{2}};\n  {name}c.{t} {{d}}, {{1}}, {{3}};")
            } else {
                format!("{name}.cc.{t} {{d}}, {{0}}, {{2}};")
            };
            let made = row(text, w, &[w; 4], move |v| {
                let (a, b) = (two(v, 0), two(v, 2));
                let r = if name == "add" { a.wrapping_add(b) } else { a.wrapping_sub(b) };
                (if high { r >> bits } else { r }) as u64 & word(bits)
            });
            l.push(made.apart());
        }
        // The high word of `a * b + c`.
        let text = format!(
            "mad.lo.cc.{t} {{d}}, {{0}}, {{1}}, {{2}};\n  madc.hi.cc.{t} {{d}}, {{0}}, {{1}}, {{3}};\n  addc.{t} {{d}}, {{d}}, 0;"
        );
        l.push(
            row(text, w, &[w; 4], move |v| {
                let product = u128::from(v[0]) * u128::from(v[1]);
                let low = (product & u128::from(word(bits))) + u128::from(v[2]);
                let high = (product >> bits) + u128::from(v[3]) + (low >> bits);
                let carry = high >> bits;
                (high + carry) as u64 & word(bits)
            })
            .apart(),
        );
    }
}

fn dots(l: &mut Vec<Row>) {
    for (at, sa) in [("u32", false), ("s32", true)] {
        for (bt, sb) in [("u32", false), ("s32", true)] {
            let byte = |v: u64, i: u32, signed| value(8, signed, v >> (8 * i) & 0xff);
            let text = format!("dp4a.{at}.{bt} {{d}}, {{0}}, {{1}}, {{2}};");
            l.push(row(text, W::S, &[W::S; 3], move |v| {
                let sum: i128 = (0..4).map(|i| byte(v[0], i, sa) * byte(v[1], i, sb)).sum();
                (sum + i128::from(v[2])) as u64 & word(32)
            }));
            for (half, from) in [("lo", 0), ("hi", 2)] {
                let text = format!("dp2a.{half}.{at}.{bt} {{d}}, {{0}}, {{1}}, {{2}};");
                l.push(row(text, W::S, &[W::S; 3], move |v| {
                    let word16 = |i| value(16, sa, v[0] >> (16 * i) & word(16));
                    let sum: i128 = (0..2).map(|i| word16(i) * byte(v[1], from + i, sb)).sum();
                    (sum + i128::from(v[2])) as u64 & word(32)
                }));
            }
        }
    }
}

pub fn bits(l: &mut Vec<Row>) {
    for w in [W::H, W::S, W::D] {
        let n = w.bits();
        for (name, f) in
            [("and", (|a, b| a & b) as fn(u64, u64) -> u64), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)]
        {
            let text = format!("{name}.b{n} {{d}}, {{0}}, {{1}};");
            l.push(row(text, w, &[w, w], move |v| f(v[0], v[1])).immediate());
        }
        l.push(row(format!("not.b{n} {{d}}, {{0}};"), w, &[w], move |v| !v[0] & word(n)));
        l.push(row(format!("cnot.b{n} {{d}}, {{0}};"), w, &[w], |v| u64::from(v[0] == 0)));
        let text = format!("shl.b{n} {{d}}, {{0}}, {{1}};");
        l.push(
            row(text, w, &[w, W::S], move |v| (u128::from(v[0]) << v[1].min(64)) as u64 & word(n))
                .immediate(),
        );
        let text = format!("selp.b{n} {{d}}, {{0}}, {{1}}, {{2}};");
        l.push(row(text, w, &[w, w, W::P], |v| if v[2] == 1 { v[0] } else { v[1] }));
    }
    for (t, w) in [("b32", W::S), ("b64", W::D)] {
        let n = w.bits();
        let bit = |v: u64, i: u32| v >> i & 1;
        l.push(row(format!("popc.{t} {{d}}, {{0}};"), W::S, &[w], move |v| {
            (0..n).map(|i| bit(v[0], i)).sum()
        }));
        l.push(row(format!("clz.{t} {{d}}, {{0}};"), W::S, &[w], move |v| {
            (0..n).rev().take_while(|&i| bit(v[0], i) == 0).count() as u64
        }));
        l.push(row(format!("brev.{t} {{d}}, {{0}};"), w, &[w], move |v| {
            (0..n).fold(0, |d, i| d | bit(v[0], i) << (n - 1 - i))
        }));
        let text = format!("bfi.{t} {{d}}, {{0}}, {{1}}, {{2}}, {{3}};");
        l.push(row(text, w, &[w, w, W::S, W::S], move |v| {
            let (at, len) = ((v[2] & 0xff) as u32, (v[3] & 0xff) as u32);
            (0..len)
                .filter(|i| at + i < n && *i < n)
                .fold(v[1], |d, i| d & !(1 << (at + i)) | bit(v[0], i) << (at + i))
        }));
    }
    for (t, w, signed) in &TYPES[2..] {
        let (n, signed) = (w.bits(), *signed);
        for shiftamt in [false, true] {
            let text = format!("bfind{}.{t} {{d}}, {{0}};", if shiftamt { ".shiftamt" } else { "" });
            l.push(row(text, W::S, &[*w], move |v| {
                let x = if signed && v[0] >> (n - 1) == 1 { !v[0] & word(n) } else { v[0] };
                match (0..n).rev().find(|i| x >> i & 1 == 1) {
                    Some(i) if shiftamt => u64::from(n - 1 - i),
                    Some(i) => i.into(),
                    None => word(32),
                }
            }));
        }
        let text = format!("bfe.{t} {{d}}, {{0}}, {{1}}, {{2}};");
        l.push(row(text, *w, &[*w, W::S, W::S], move |v| {
            let (at, len) = (v[1] & 0xff, v[2] & 0xff);
            let top = u64::from(n - 1);
            let sign = if !signed || len == 0 { 0 } else { v[0] >> (at + len - 1).min(top) & 1 };
            (0..=top)
                .fold(0, |d, i| d | (if i < len && at + i <= top { v[0] >> (at + i) & 1 } else { sign }) << i)
        }));
    }
    words(l);
}

/// Instructions that there are for 32 bits only.
fn words(l: &mut Vec<Row>) {
    for lut in [0x00, 0x1b, 0x96, 0xe8, 0xca, 0x40, 0xff] {
        let text = format!("lop3.b32 {{d}}, {{0}}, {{1}}, {{2}}, {lut:#x};");
        l.push(row(text, W::S, &[W::S; 3], move |v| {
            (0..32).fold(0, |d, i| {
                let entry = (v[0] >> i & 1) << 2 | (v[1] >> i & 1) << 1 | v[2] >> i & 1;
                d | (lut >> entry & 1) << i
            })
        }));
    }
    for (mode, wraps) in [("clamp", false), ("wrap", true)] {
        let amount = move |c: u64| if wraps { c & 31 } else { c.min(32) };
        l.push(row(format!("shf.l.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}};"), W::S, &[W::S; 3], move |v| {
            let both = u128::from(v[0] | v[1] << 32) << amount(v[2]);
            (both >> 32) as u64 & word(32)
        }));
        l.push(row(format!("shf.r.{mode}.b32 {{d}}, {{0}}, {{1}}, {{2}};"), W::S, &[W::S; 3], move |v| {
            (v[0] | v[1] << 32) >> amount(v[2]) & word(32)
        }));
        l.push(row(format!("bmsk.{mode}.b32 {{d}}, {{0}}, {{1}};"), W::S, &[W::S; 2], move |v| {
            let (at, len) = if wraps { (v[0] & 31, v[1] & 31) } else { (v[0].min(32), v[1].min(32)) };
            (at..at + len).filter(|i| *i < 32).fold(0, |d, i| d | 1 << i)
        }));
        for (t, signed) in [("u32", false), ("s32", true)] {
            l.push(row(format!("szext.{mode}.{t} {{d}}, {{0}}, {{1}};"), W::S, &[W::S; 2], move |v| {
                let n = if wraps { v[1] & 31 } else { v[1].min(32) } as u32;
                if n == 0 { 0 } else { value(n, signed, v[0] & word(n)) as u64 & word(32) }
            }));
        }
    }
    // The four bytes that each mode selects, by the two low bits of the control.
    let modes: [(&str, [[u64; 4]; 4]); 6] = [
        ("f4e", [[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 5], [3, 4, 5, 6]]),
        ("b4e", [[0, 7, 6, 5], [1, 0, 7, 6], [2, 1, 0, 7], [3, 2, 1, 0]]),
        ("rc8", [[0; 4], [1; 4], [2; 4], [3; 4]]),
        ("ecl", [[0, 1, 2, 3], [1, 1, 2, 3], [2, 2, 2, 3], [3; 4]]),
        ("ecr", [[0; 4], [0, 1, 1, 1], [0, 1, 2, 2], [0, 1, 2, 3]]),
        ("rc16", [[0, 1, 0, 1], [2, 3, 2, 3], [0, 1, 0, 1], [2, 3, 2, 3]]),
    ];
    for (mode, table) in modes {
        l.push(row(format!("prmt.b32.{mode} {{d}}, {{0}}, {{1}}, {{2}};"), W::S, &[W::S; 3], move |v| {
            let pool = v[0] | v[1] << 32;
            let bytes = table[(v[2] & 3) as usize];
            (0..4).fold(0, |d, i| d | (pool >> (8 * bytes[i]) & 0xff) << (8 * i))
        }));
    }
    l.push(row("prmt.b32 {d}, {0}, {1}, {2};".into(), W::S, &[W::S; 3], |v| {
        let pool = v[0] | v[1] << 32;
        (0..4).fold(0, |d, i| {
            let select = v[2] >> (4 * i) & 15;
            let byte = pool >> (8 * (select & 7)) & 0xff;
            let byte = if select & 8 == 0 { byte } else { 0xff * (byte >> 7) };
            d | byte << (8 * i)
        })
    }));
    // Packing and unpacking.
    l.push(row("mov.b64 {d}, {{0}, {1}};".into(), W::D, &[W::S; 2], |v| v[0] | v[1] << 32));
    l.push(row("mov.b32 {d}, {{0}, {1}};".into(), W::S, &[W::H; 2], |v| v[0] | v[1] << 16));
    l.push(row("mov.b64 {_, {d}}, {0};".into(), W::S, &[W::D], |v| v[0] >> 32));
    l.push(row("mov.b32 {{d}, _}, {0};".into(), W::H, &[W::S], |v| v[0] & word(16)));
    l.push(row("cvt.pack.sat.s16.s32 {d}, {0}, {1};".into(), W::S, &[W::S; 2], |v| {
        let half = |v| clamp(16, true, value(32, true, v));
        half(v[0]) << 16 | half(v[1])
    }));
}

pub fn predicates(l: &mut Vec<Row>) {
    for (name, f) in
        [("and", (|a, b| a & b) as fn(u64, u64) -> u64), ("or", |a, b| a | b), ("xor", |a, b| a ^ b)]
    {
        let text = format!("{name}.pred {{d}}, {{0}}, {{1}};");
        l.push(row(text, W::P, &[W::P; 2], move |v| f(v[0], v[1])));
    }
    l.push(row("not.pred {d}, {0};".into(), W::P, &[W::P], |v| 1 - v[0]));
    l.push(row("mov.pred {d}, {0};".into(), W::P, &[W::P], |v| v[0]));
}
