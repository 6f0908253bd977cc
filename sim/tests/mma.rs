//! `mma.sync` and `wmma` of every type and shape, held against float64.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/foreign.rs"]
mod gpu;

use float8::{F8E4M3, F8E5M2};
use gpu::{Gpu, Scalar, close, data, integers, module};
use half::{bf16, f16};
use weft_sim::Arg;

/// Bits of a matrix' elements, row by row along K, and their values.
struct Operand {
    bits: u32,
    raw: Vec<u64>,
    values: Vec<f64>,
}

fn operand<T: Scalar>(x: &[T]) -> Operand {
    let raw = x.iter().map(|v| v.put().iter().rev().fold(0, |r, &b| r << 8 | u64::from(b))).collect();
    Operand { bits: 8 * T::BYTES as u32, raw, values: x.iter().map(|v| v.value()).collect() }
}

fn floats<T: Scalar>(n: usize, salt: u64, bits: u32) -> Operand {
    operand(&data::<T>(n, salt, bits))
}

/// Integers of 4 bits.
fn nibbles(n: usize, salt: u64, signed: bool) -> Operand {
    let (low, high) = if signed { (-8, 7) } else { (0, 15) };
    let x: Vec<i8> = integers(n, salt, low, high);
    Operand {
        bits: 4,
        raw: x.iter().map(|v| *v as u64 & 15).collect(),
        values: x.iter().map(|v| v.value()).collect(),
    }
}

fn single_bits(n: usize, salt: u64) -> Operand {
    let x: Vec<u8> = integers(n, salt, 0, 1);
    Operand {
        bits: 1,
        raw: x.iter().map(|&v| v.into()).collect(),
        values: x.iter().map(|v| v.value()).collect(),
    }
}

impl Operand {
    /// The registers of lane after lane. By the manual's figures element `i` of a lane, `e` of which fill a register, is
    /// in row `g`, or `g + 8` for every other register of an operand of 16 rows, at K `e * t + i % e` and onwards.
    fn fragments(&self, rows: usize, k: usize) -> Vec<u8> {
        let width = self.bits.max(32);
        let e = (width / self.bits) as usize;
        let mut out = Vec::new();
        for lane in 0..32 {
            let (g, t) = (lane / 4, lane % 4);
            for j in 0..rows * k / 32 / e {
                let (row, start) = if rows == 16 { (g + j % 2 * 8, j / 2) } else { (g, j) };
                let element = |i: usize| self.raw[row * k + start * 4 * e + e * t + i];
                let register = (0..e).fold(0, |r, i| r | element(i) << (i as u32 * self.bits));
                out.extend(&register.to_le_bytes()[..width as usize / 8]);
            }
        }
        out
    }

    /// As a matrix in memory; columns instead of rows where `turned`.
    fn bytes(&self, k: usize, turned: bool) -> Vec<u8> {
        let rows = self.raw.len() / k;
        let order: Vec<u64> = if turned {
            (0..k).flat_map(|x| (0..rows).map(move |r| (r, x))).map(|(r, x)| self.raw[r * k + x]).collect()
        } else {
            self.raw.clone()
        };
        let pack = |chunk: &[u64]| chunk.iter().rev().fold(0, |b, v| b << self.bits | *v as u8);
        if self.bits < 8 {
            return order.chunks(8 / self.bits as usize).map(pack).collect();
        }
        order.iter().flat_map(|v| v.to_le_bytes()[..self.bits as usize / 8].to_vec()).collect()
    }
}

/// `C + A * B'` and the largest sum of magnitudes.
fn exact(a: &Operand, b: &Operand, c: &[f64], n: usize, k: usize) -> (Vec<f64>, f64) {
    let row = |i: usize| a.values[i / n * k..][..k].iter().zip(&b.values[i % n * k..][..k]);
    let sums = (0..c.len()).map(|i| c[i] + row(i).map(|(a, b)| a * b).sum::<f64>()).collect();
    let sizes = (0..c.len()).map(|i| c[i].abs() + row(i).map(|(a, b)| (a * b).abs()).sum::<f64>());
    (sums, sizes.fold(0.0, f64::max))
}

fn registers(name: &str, count: usize) -> String {
    let list: Vec<String> = (0..count).map(|i| format!("%{name}{i}")).collect();
    format!("{{{}}}", list.join(", "))
}

/// Loads or stores registers of lane after lane from address register `at`.
fn moves(name: &str, at: &str, count: usize, bits: u32, load: bool) -> String {
    let one = |i: usize| {
        let offset = i * bits as usize / 8;
        if load {
            format!("ld.global.b{bits} %{name}{i}, [{at}+{offset}];\n")
        } else {
            format!("st.global.b{bits} [{at}+{offset}], %{name}{i};\n")
        }
    };
    (0..count).map(one).collect()
}

/// Runs `mma.sync.aligned.FORM`; the result row by row.
fn run<C: Scalar>(form: &str, shape: (usize, usize, usize), a: &Operand, b: &Operand, c: &[C]) -> Vec<C> {
    multiply(&format!("mma.sync.aligned.{form}"), shape, a, b, c, None)
}

/// Runs an instruction. With metadata, by lane, and its selector, A has the non-zero half of its elements.
fn multiply<C: Scalar>(
    form: &str,
    (m, n, k): (usize, usize, usize),
    a: &Operand,
    b: &Operand,
    c: &[C],
    metadata: Option<([u32; 32], u32)>,
) -> Vec<C> {
    let ka = if metadata.is_some() { k / 2 } else { k };
    let count =
        |rows: usize, k: usize, o: &Operand| rows * k * o.bits as usize / 32 / o.bits.max(32) as usize;
    let (na, nb) = (count(m, ka, a), count(n, k, b));
    let sparse = metadata.map_or(String::new(), |(_, selector)| format!(", %r2, {selector}"));
    let bits = 8 * C::BYTES as u32;
    let nc = m * n * bits as usize / 32 / bits.max(32) as usize;
    let (wa, wc) = (a.bits.max(32), bits.max(32));
    let address = |name: &str, at: &str, bytes: u32| {
        format!("ld.param.b64 %rd1, [{name}]; mul.wide.u32 %rd2, %r1, {bytes}; add.s64 {at}, %rd1, %rd2;\n")
    };
    let text = format!(
        ".version 8.7\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d, .param .u64 e)
{{
.reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .b{wa} %a<16>, %b<16>; .reg .b{wc} %c<16>, %d<16>;
mov.u32 %r1, %tid.x;
{}ld.global.b32 %r2, [%rd7];
{}{}{}{}{}{}{}{form} {}, {}, {}, {}{sparse};\n{}ret;\n}}\n",
        address("e", "%rd7", 4),
        address("a", "%rd3", na as u32 * wa / 8),
        address("b", "%rd4", nb as u32 * wa / 8),
        address("c", "%rd5", nc as u32 * wc / 8),
        address("d", "%rd6", nc as u32 * wc / 8),
        moves("a", "%rd3", na, wa, true),
        moves("b", "%rd4", nb, wa, true),
        moves("c", "%rd5", nc, wc, true),
        registers("d", nc),
        registers("a", na),
        registers("b", nb),
        registers("c", nc),
        moves("d", "%rd6", nc, wc, false),
    );
    // Accumulators: c0 and c1 in row g, columns 2t and 2t + 1; of 16 rows c2 and c3 in row g + 8.
    let place = |lane: usize, x: usize| (lane / 4 + x / 2 * 8) * n + lane % 4 * 2 + x % 2;
    let per_lane = m * n / 32;
    let order: Vec<usize> = (0..32).flat_map(|l| (0..per_lane).map(move |x| place(l, x))).collect();
    let mut g = Gpu::new(0);
    let pc = g.put(&order.iter().map(|&i| c[i]).collect::<Vec<_>>());
    let (pa, pb, pd) = (g.put(&a.fragments(m, ka)), g.put(&b.fragments(n, k)), g.room::<C>(m * n));
    let pe = g.put(&metadata.map_or([0; 32], |(e, _)| e));
    g.run(&module(&text), "k", ([1, 1, 1], [32, 1, 1], 0), [pa, pb, pc, pd, pe].map(Arg::U64).to_vec());
    let mut out = vec![C::of(0.0); m * n];
    for (i, v) in order.iter().zip(g.get::<C>(pd, m * n)) {
        out[*i] = v;
    }
    out
}

/// Tolerances of docs/ptx-instructions.md, of sums of `k` products whose magnitudes add up to `size`.
fn check<C: Scalar>(
    form: &str,
    shape: (usize, usize, usize),
    a: &Operand,
    b: &Operand,
    c: &[C],
    relative: f64,
) {
    let (_, n, k) = shape;
    let (want, size) = exact(a, b, &c.iter().map(|v| v.value()).collect::<Vec<_>>(), n, k);
    let got = run(form, shape, a, b, c);
    let slack = if relative == 0.0 { 0.0 } else { size * (k + 1) as f64 * 2_f64.powi(-22) };
    close(form, &got, &want, slack, relative);
}

#[test]
fn halves() {
    for k in [8, 16] {
        let (shape, name) = ((16, 8, k), format!("m16n8k{k}.row.col"));
        let (a, b) = (floats::<f16>(16 * k, 1, 10), floats::<f16>(8 * k, 2, 10));
        check(&format!("{name}.f32.f16.f16.f32"), shape, &a, &b, &data::<f32>(128, 3, 24), 2_f64.powi(-23));
        check(&format!("{name}.f16.f16.f16.f16"), shape, &a, &b, &data::<f16>(128, 3, 10), 2_f64.powi(-11));
        let (a, b) = (floats::<bf16>(16 * k, 4, 7), floats::<bf16>(8 * k, 5, 7));
        check(&format!("{name}.f32.bf16.bf16.f32"), shape, &a, &b, &data::<f32>(128, 6, 24), 2_f64.powi(-23));
    }
    for k in [4, 8] {
        // Only the upper 19 bits of an element count; the data has no more.
        let (a, b) = (floats::<f32>(16 * k, 7, 10), floats::<f32>(8 * k, 8, 10));
        let form = format!("m16n8k{k}.row.col.f32.tf32.tf32.f32");
        check(&form, (16, 8, k), &a, &b, &data::<f32>(128, 9, 24), 2_f64.powi(-23));
    }
    for k in [16, 32] {
        let (a, b) = (floats::<F8E4M3>(16 * k, 10, 3), floats::<F8E5M2>(8 * k, 11, 2));
        let form = format!("m16n8k{k}.row.col.f32.e4m3.e5m2.f32");
        check(&form, (16, 8, k), &a, &b, &data::<f32>(128, 12, 24), 2_f64.powi(-23));
        let form = format!("m16n8k{k}.row.col.f16.e5m2.e4m3.f16");
        let (a, b) = (floats::<F8E5M2>(16 * k, 10, 2), floats::<F8E4M3>(8 * k, 11, 3));
        check(&form, (16, 8, k), &a, &b, &data::<f16>(128, 12, 5), 2_f64.powi(-10));
    }
}

#[test]
fn doubles() {
    for (m, k) in [(8, 4), (16, 4), (16, 8), (16, 16)] {
        let (a, b) = (floats::<f64>(m * k, 13, 50), floats::<f64>(8 * k, 14, 50));
        let c = data::<f64>(m * 8, 15, 50);
        for rounding in ["", ".rz"] {
            let form = format!("m{m}n8k{k}.row.col{rounding}.f64.f64.f64.f64");
            let got = run(&form, (m, 8, k), &a, &b, &c);
            close(&form, &got, &exact(&a, &b, &c, 8, k).0, 1e-13, 0.0);
            if rounding.is_empty() {
                let row = |i: usize, x: usize| (a.values[i / 8 * k + x], b.values[i % 8 * k + x]);
                let chain = |i: usize| (0..k).fold(c[i], |s, x| row(i, x).0.mul_add(row(i, x).1, s));
                assert_eq!(got, (0..m * 8).map(chain).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn integers_and_bits() {
    let c: Vec<i32> = integers(128, 16, i32::MIN.into(), i32::MAX.into());
    let small: Vec<i32> = integers(128, 17, -100_000, 100_000);
    // Results that do not fit wrap around, or clamp.
    let all = |form: &str, shape: (usize, usize, usize), a: &Operand, b: &Operand| {
        let (m, n, k) = shape;
        let exact = |c: &[i32]| exact(a, b, &c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), n, k).0;
        let c = &c[..m * n];
        assert_eq!(run(form, shape, a, b, c), exact(c).iter().map(|v| *v as i64 as i32).collect::<Vec<_>>());
        let small = &small[..m * n];
        close(form, &run(form, shape, a, b, small), &exact(small), 0.0, 0.0);
        if form.contains("b1") {
            return;
        }
        let clamped = form.replace(".row.col", ".row.col.satfinite");
        assert_eq!(run(&clamped, shape, a, b, c), exact(c).iter().map(|v| *v as i32).collect::<Vec<_>>());
    };
    for (m, k) in [(8, 16), (16, 16), (16, 32)] {
        let (a, b) =
            (operand(&integers::<i8>(m * k, 18, -128, 127)), operand(&integers::<u8>(8 * k, 19, 0, 255)));
        all(&format!("m{m}n8k{k}.row.col.s32.s8.u8.s32"), (m, 8, k), &a, &b);
        let (m, k) = (m, 2 * k);
        let (a, b) = (nibbles(m * k, 20, false), nibbles(8 * k, 21, true));
        all(&format!("m{m}n8k{k}.row.col.s32.u4.s4.s32"), (m, 8, k), &a, &b);
        let k = 4 * k;
        let (a, b) = (single_bits(m * k, 22), single_bits(8 * k, 23));
        all(&format!("m{m}n8k{k}.row.col.s32.b1.b1.s32.and.popc"), (m, 8, k), &a, &b);
        let form = format!("m{m}n8k{k}.row.col.s32.b1.b1.s32.xor.popc");
        let got = run(&form, (m, 8, k), &a, &b, &small[..m * 8]);
        for (i, v) in got.iter().enumerate() {
            let (a, b) = (&a.raw[i / 8 * k..][..k], &b.raw[i % 8 * k..][..k]);
            assert_eq!(*v, small[i] + a.iter().zip(b).filter(|(a, b)| a != b).count() as i32);
        }
    }
}

/// A matrix of 16 rows that has zeros where `mma.sp` wants them, its other elements alone, and the metadata by row and
/// chunk. `chunk` elements of a row, of which half are not zero, in runs of `run`.
fn thin(full: &Operand, k: usize, (chunk, run): (usize, usize)) -> (Operand, Operand, Vec<Vec<u32>>) {
    let places = chunk / run;
    let mut dense = Operand { bits: full.bits, raw: vec![0; 16 * k], values: vec![0.0; 16 * k] };
    let mut packed = Operand { bits: full.bits, raw: Vec::new(), values: Vec::new() };
    let mut metadata = Vec::new();
    for row in 0..16 {
        let mut chunks = Vec::new();
        for c in 0..k / chunk {
            // Two different places of four, or one of two.
            let h = (row * 31 + c * 17 + row * c) % 6;
            let kept = match places {
                2 => vec![h % 2],
                _ => [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]][h].to_vec(),
            };
            chunks.push(match places {
                2 => [0b0100, 0b1110][kept[0]],
                _ => (kept[0] | kept[1] << 2) as u32,
            });
            for at in kept.iter().flat_map(|p| (0..run).map(move |i| row * k + c * chunk + p * run + i)) {
                (dense.raw[at], dense.values[at]) = (full.raw[at], full.values[at]);
                packed.raw.push(full.raw[at]);
                packed.values.push(full.values[at]);
            }
        }
        metadata.push(chunks);
    }
    (dense, packed, metadata)
}

fn check_sparse<C: Scalar>(form: &str, k: usize, full: &Operand, b: &Operand, c: &[C], relative: f64) {
    let granularity = match full.bits {
        32 => (2, 1),
        4 => (8, 2),
        _ => (4, 1),
    };
    let (dense, packed, chunks) = thin(full, k, granularity);
    let (want, size) = exact(&dense, b, &c.iter().map(|v| v.value()).collect::<Vec<_>>(), 8, k);
    let word = |list: &[u32]| list.iter().rev().fold(0, |w, c| w << 4 | c);
    let per_row = k / granularity.0;
    let contributing = per_row / 4;
    for variant in ["sp", "sp::ordered_metadata"] {
        for selector in 0..4 / contributing {
            let mut e = [0; 32];
            for g in 0..8 {
                for j in 0..contributing {
                    e[4 * g + selector * contributing + j] = if full.bits <= 8 {
                        // A row's eight chunks: of row g, g + 8, then the next eight.
                        word(&chunks[g + j % 2 * 8][j / 2 * 8..][..8])
                    } else {
                        // Four chunks of row g and four of row g + 8.
                        word(&chunks[g][4 * j..][..4]) | word(&chunks[g + 8][4 * j..][..4]) << 16
                    };
                }
            }
            let form = format!("mma.{variant}.sync.aligned.m16n8k{k}.row.col.{form}");
            let got = multiply(&form, (16, 8, k), &packed, b, c, Some((e, selector as u32)));
            let slack = if relative == 0.0 { 0.0 } else { size * (k + 1) as f64 * 2_f64.powi(-22) };
            close(&form, &got, &want, slack, relative);
        }
    }
}

#[test]
fn sparse_matrices() {
    let single = 2_f64.powi(-23);
    let c = data::<f32>(128, 50, 24);
    for k in [16, 32] {
        let (a, b) = (floats::<f16>(16 * k, 51, 10), floats::<f16>(8 * k, 52, 10));
        check_sparse("f32.f16.f16.f32", k, &a, &b, &c, single);
        check_sparse("f16.f16.f16.f16", k, &a, &b, &data::<f16>(128, 50, 10), 2_f64.powi(-11));
        let (a, b) = (floats::<bf16>(16 * k, 53, 7), floats::<bf16>(8 * k, 54, 7));
        check_sparse("f32.bf16.bf16.f32", k, &a, &b, &c, single);
        let k = k / 2;
        check_sparse(
            "f32.tf32.tf32.f32",
            k,
            &floats::<f32>(16 * k, 55, 10),
            &floats::<f32>(8 * k, 56, 10),
            &c,
            single,
        );
    }
    check_sparse(
        "f32.e4m3.e5m2.f32",
        64,
        &floats::<F8E4M3>(16 * 64, 57, 3),
        &floats::<F8E5M2>(8 * 64, 58, 2),
        &c,
        single,
    );
    let c: Vec<i32> = integers(128, 59, -100_000, 100_000);
    for k in [32, 64] {
        let (a, b) =
            (operand(&integers::<u8>(16 * k, 60, 0, 255)), operand(&integers::<i8>(8 * k, 61, -128, 127)));
        check_sparse("s32.u8.s8.s32", k, &a, &b, &c, 0.0);
        let k = 2 * k;
        check_sparse(
            "satfinite.s32.s4.u4.s32",
            k,
            &nibbles(16 * k, 62, true),
            &nibbles(8 * k, 63, false),
            &c,
            0.0,
        );
    }
}

/// `wmma.mma` of matrices in memory: form behind the layouts' place, shape, type names of loads and stores.
struct Wmma<'a> {
    shape: &'a str,
    /// `.dtype.atype.btype.ctype` as the instruction has them.
    types: &'a str,
    /// Types of the loads of A, B, C and the store of D.
    moved: [&'a str; 4],
    /// Registers of a, b, c, d, and bits of the operands', of the accumulators'.
    registers: ([usize; 4], [u32; 2]),
    /// What comes between `mma` and `.sync`.
    op: &'a str,
}

fn wmma<C: Scalar, D: Scalar>(w: &Wmma<'_>, a: &Operand, b: &Operand, c: &[C], layouts: [bool; 4]) -> Vec<D> {
    let numbers: Vec<usize> =
        w.shape.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    let [m, n, k] = numbers[..] else { panic!("{}", w.shape) };
    let name = |row: bool| if row { "row" } else { "col" };
    let [la, lb, lc, ld] = layouts;
    let ([na, nb, nc, nd], [wa, wc]) = w.registers;
    let [ta, tb, tc, td] = w.moved;
    let shape = w.shape;
    // A's rows and B's columns are further apart than they are long.
    let pad = |length: usize| length + if a.bits < 8 { 128 } else { 32 };
    let [sa, sb] = [pad(if la { k } else { m }), pad(if lb { n } else { k })];
    let [sc, sd] = [pad(if lc { n } else { m }), if ld { n } else { m }];
    let text = format!(
        ".version 8.7\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d)
{{
.reg .b64 %rd<8>; .reg .b32 %r<4>; .reg .b{wa} %a<16>, %b<16>; .reg .b{wc} %c<16>, %d<16>;
ld.param.b64 %rd1, [a]; ld.param.b64 %rd2, [b]; ld.param.b64 %rd3, [c]; ld.param.b64 %rd4, [d];
mov.u32 %r1, {sb};
wmma.load.a.sync.aligned.{}.{shape}.global.{ta} {}, [%rd1], {sa};
wmma.load.b.sync.aligned.{}.{shape}.global.{tb} {}, [%rd2], %r1;
wmma.load.c.sync.aligned.{}.{shape}.{tc} {}, [%rd3], {sc};
wmma.mma{}.sync.aligned.{}.{}.{shape}{} {}, {}, {}, {};
wmma.store.d.sync.aligned.{}.{shape}.global.{td} [%rd4], {};
ret;
}}\n",
        name(la),
        registers("a", na),
        name(lb),
        registers("b", nb),
        name(lc),
        registers("c", nc),
        w.op,
        name(la),
        name(lb),
        w.types,
        registers("d", nd),
        registers("a", na),
        registers("b", nb),
        registers("c", nc),
        name(ld),
        registers("d", nd),
    );
    let spread = |bytes: Vec<u8>, length: usize, stride: usize, bits: u32| {
        let (length, stride) = (length * bits as usize / 8, stride * bits as usize / 8);
        bytes
            .chunks(length)
            .flat_map(|l| [l.to_vec(), vec![0xff; stride - length]].concat())
            .collect::<Vec<_>>()
    };
    let turn = |i: usize, turned: bool| if turned { i % m * n + i / m } else { i };
    let c: Vec<u8> = (0..m * n).flat_map(|i| c[turn(i, !lc)].put()).collect();
    let mut g = Gpu::new(0);
    let pa = g.put(&spread(a.bytes(k, !la), if la { k } else { m }, sa, a.bits));
    let pb = g.put(&spread(b.bytes(k, lb), if lb { n } else { k }, sb, b.bits));
    let pc = g.put(&spread(c, if lc { n } else { m }, sc, 8 * C::BYTES as u32));
    let pd = g.room::<D>(m * n);
    g.run(&module(&text), "k", ([1, 1, 1], [32, 1, 1], 0), [pa, pb, pc, pd].map(Arg::U64).to_vec());
    let out = g.get::<D>(pd, m * n);
    assert_eq!(out.len(), n * sd.max(m) / sd.max(m) * m);
    let mut back = vec![D::of(0.0); m * n];
    (0..m * n).for_each(|i| back[turn(i, !ld)] = out[i]);
    back
}

#[test]
fn opaque_fragments() {
    let bools = [true, false];
    for (i, (m, n)) in [(16, 16), (8, 32), (32, 8)].into_iter().enumerate() {
        let shape = &format!("m{m}n{n}k16");
        for layouts in (0..16).map(|l| [0, 1, 2, 3].map(|b| bools[l >> b & 1])) {
            let (a, b) = (floats::<f16>(16 * m, 24, 5), floats::<f16>(16 * n, 25, 5));
            let c = data::<f32>(m * n, 26, 8);
            let want = exact(&a, &b, &c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), n, 16).0;
            let w = Wmma {
                shape,
                types: ".f32.f32",
                moved: ["f16", "f16", "f32", "f32"],
                registers: ([8, 8, 8, 8], [32, 32]),
                op: "",
            };
            close(shape, &wmma::<f32, f32>(&w, &a, &b, &c, layouts), &want, 0.0, 0.0);
            let c = data::<f16>(m * n, 27, 8);
            let want = exact(&a, &b, &c.iter().map(|v| v.value()).collect::<Vec<_>>(), n, 16).0;
            for (types, td, nd) in [(".f16.f16", "f16", 4), (".f32.f16", "f32", 8)] {
                let w = Wmma {
                    types,
                    moved: ["f16", "f16", "f16", td],
                    registers: ([8, 8, 4, nd], [32, 32]),
                    ..w
                };
                if nd == 4 {
                    let got = wmma::<f16, f16>(&w, &a, &b, &c, layouts);
                    close(shape, &got, &want, 0.0, 2_f64.powi(-11));
                } else {
                    close(shape, &wmma::<f16, f32>(&w, &a, &b, &c, layouts), &want, 0.0, 0.0);
                }
            }
            let (na, nb) = ([4, 2, 8][i], [4, 8, 2][i]);
            let (a, b) = (floats::<bf16>(16 * m, 28, 5), floats::<bf16>(16 * n, 29, 5));
            let c = data::<f32>(m * n, 26, 8);
            let want = exact(&a, &b, &c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), n, 16).0;
            let w = Wmma {
                types: ".f32.bf16.bf16.f32",
                moved: ["bf16", "bf16", "f32", "f32"],
                registers: ([na, nb, 8, 8], [32, 32]),
                ..w
            };
            close(shape, &wmma::<f32, f32>(&w, &a, &b, &c, layouts), &want, 0.0, 0.0);
            let (a, b) =
                (operand(&integers::<u8>(16 * m, 30, 0, 255)), operand(&integers::<u8>(16 * n, 31, 0, 255)));
            let c: Vec<i32> = integers(m * n, 32, -5000, 5000);
            let want = exact(&a, &b, &c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), n, 16).0;
            let w = Wmma {
                types: ".s32.u8.u8.s32.satfinite",
                moved: ["u8", "u8", "s32", "s32"],
                registers: ([na / 2, nb / 2, 8, 8], [32, 32]),
                ..w
            };
            close(shape, &wmma::<i32, i32>(&w, &a, &b, &c, layouts), &want, 0.0, 0.0);
        }
    }
    for layouts in (0..16).map(|l| [0, 1, 2, 3].map(|b| bools[l >> b & 1])) {
        let (a, b) = (floats::<f32>(16 * 8, 33, 8), floats::<f32>(16 * 8, 34, 8));
        let c = data::<f32>(256, 35, 8);
        let want = exact(&a, &b, &c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), 16, 8).0;
        let w = Wmma {
            shape: "m16n16k8",
            types: ".f32.tf32.tf32.f32",
            moved: ["tf32", "tf32", "f32", "f32"],
            registers: ([4, 4, 8, 8], [32, 32]),
            op: "",
        };
        close("tf32", &wmma::<f32, f32>(&w, &a, &b, &c, layouts), &want, 0.0, 0.0);
        let (a, b) = (floats::<f64>(8 * 4, 36, 20), floats::<f64>(8 * 4, 37, 20));
        let c = data::<f64>(64, 38, 20);
        let w = Wmma {
            shape: "m8n8k4",
            types: ".rn.f64.f64.f64.f64",
            moved: ["f64"; 4],
            registers: ([1, 1, 2, 2], [64, 64]),
            op: "",
        };
        close("f64", &wmma::<f64, f64>(&w, &a, &b, &c, layouts), &exact(&a, &b, &c, 8, 4).0, 0.0, 0.0);
    }
    // With less than a byte an element, A is row-major and B column-major.
    for (lc, ld) in [(true, true), (true, false), (false, true)] {
        let c: Vec<i32> = integers(64, 39, -5000, 5000);
        let exact = |a, b, k| exact(a, b, &c.iter().map(|v| f64::from(*v)).collect::<Vec<_>>(), 8, k).0;
        let (a, b) = (nibbles(8 * 32, 40, true), nibbles(8 * 32, 41, false));
        let registers = ([1, 1, 2, 2], [32, 32]);
        let w = Wmma {
            shape: "m8n8k32",
            types: ".s32.s4.u4.s32",
            moved: ["s4", "u4", "s32", "s32"],
            registers,
            op: "",
        };
        close("s4", &wmma::<i32, i32>(&w, &a, &b, &c, [true, false, lc, ld]), &exact(&a, &b, 32), 0.0, 0.0);
        let (a, b) = (single_bits(8 * 128, 42), single_bits(8 * 128, 43));
        let w = Wmma {
            shape: "m8n8k128",
            types: ".s32.b1.b1.s32",
            moved: ["b1", "b1", "s32", "s32"],
            registers,
            op: ".and.popc",
        };
        close("b1", &wmma::<i32, i32>(&w, &a, &b, &c, [true, false, lc, ld]), &exact(&a, &b, 128), 0.0, 0.0);
    }
}
