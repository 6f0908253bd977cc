//! `wgmma` on tiles in every layout, of every type, held against float64; and what is wrong with it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/foreign.rs"]
mod gpu;

use float8::{F8E4M3, F8E5M2};
use gpu::{Gpu, Scalar, close, data, integers, module};
use half::{bf16, f16};
use std::fmt::Write as _;
use weft_sim::Arg;

/// How a tile lies in shared memory.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Bytes of the rows among which pieces are exchanged; 16 for core matrices one after the other.
    span: usize,
    /// The contiguous dimension is M or N, not K.
    transposed: bool,
}

const K_MAJOR: [Layout; 4] = [
    Layout { span: 16, transposed: false },
    Layout { span: 32, transposed: false },
    Layout { span: 64, transposed: false },
    Layout { span: 128, transposed: false },
];
const MN_MAJOR: [Layout; 4] = [
    Layout { span: 16, transposed: true },
    Layout { span: 32, transposed: true },
    Layout { span: 64, transposed: true },
    Layout { span: 128, transposed: true },
];

impl Layout {
    /// Byte offset of byte `along` of line `line`, among `lines`: lines are rows, or, transposed, places along K; eight of
    /// them by `span` bytes are an atom.
    fn offset(self, line: usize, along: usize, lines: usize) -> usize {
        let atom = 8 * self.span;
        let start = (along / self.span * (lines / 8) + line / 8) * atom;
        let at = start + line % 8 * self.span + along % self.span;
        let exchange = match self.span {
            128 => line % 8,
            64 => line / 2 % 4,
            32 => line / 4 % 2,
            _ => 0,
        };
        at ^ (exchange * 16)
    }

    /// Descriptor of a tile of so many lines, at an offset of shared memory.
    fn descriptor(self, at: usize, lines: usize) -> u64 {
        let atom = 8 * self.span as u64;
        let (next_lines, next_along) = (atom, atom * lines as u64 / 8);
        let (leading, stride) = match (self.transposed, self.span) {
            (false, _) => (next_along, next_lines),
            // Without exchange the two change their roles.
            (true, 16) => (next_lines, next_along),
            (true, _) => (next_along, next_lines),
        };
        let mode = match self.span {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        at as u64 >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32 | mode << 62
    }

    /// The tile's bytes: `bits` has rows of 32 bytes along K, of elements of so many bytes.
    fn image(self, rows: &[Vec<u8>], element: usize) -> Vec<u8> {
        let mut out = vec![0xff; rows.len().max(64) * self.span.max(32) * 2];
        for (r, row) in rows.iter().enumerate() {
            for (i, b) in row.iter().enumerate() {
                let at = if self.transposed {
                    self.offset(i / element, r * element + i % element, 32 / element)
                } else {
                    self.offset(r, i, rows.len())
                };
                out[at] = *b;
            }
        }
        out
    }
}

/// One warpgroup: shared memory is filled with an image, A is multiplied by B twice, the second time onto the first.
struct Case<'a> {
    n: usize,
    /// `m64nNkK.dtype.atype.btype` without the first part.
    suffix: &'a str,
    layouts: (Layout, Layout),
    /// Operands behind scale-d.
    tail: &'a str,
    a_in_registers: bool,
}

const TILE_B: usize = 16384;

impl Case<'_> {
    fn ptx(&self, registers: usize) -> String {
        let d: Vec<String> = (0..registers).map(|j| format!("%d{j}")).collect();
        let a = if self.a_in_registers { "{%a0, %a1, %a2, %a3}" } else { "%rd3" };
        let mma = format!(
            "wgmma.mma_async.sync.aligned.m64n{}k{} {{{}}}, {a}, %rd4",
            self.n,
            self.suffix,
            d.join(", ")
        );
        let mut stores = String::new();
        for (j, d) in d.iter().enumerate() {
            let _ = writeln!(stores, "st.global.b32 [%rd7+{}], {d};", 512 * j);
        }
        let tail = self.tail;
        format!(
            ".version 8.0\n.target sm_90a\n.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 image, .param .u32 bytes, .param .u64 a, .param .u64 b, .param .u64 out, .param .u64 fa)
{{
.reg .b64 %rd<10>; .reg .b32 %r<10>, %d<{registers}>, %a<4>; .reg .pred %p<4>;
ld.param.b64 %rd1, [image]; ld.param.b32 %r1, [bytes];
ld.param.b64 %rd3, [a]; ld.param.b64 %rd4, [b]; ld.param.b64 %rd5, [out]; ld.param.b64 %rd6, [fa];
mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2;
mul.wide.u32 %rd7, %r2, 4; add.s64 %rd7, %rd5, %rd7;
mul.wide.u32 %rd8, %r2, 16; add.s64 %rd8, %rd6, %rd8;
ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%rd8];
L: cvt.u64.u32 %rd2, %r3; add.s64 %rd2, %rd1, %rd2;
ld.global.b32 %r4, [%rd2]; st.shared.b32 [%r3], %r4;
add.u32 %r3, %r3, 512; setp.lt.u32 %p1, %r3, %r1;
@%p1 bra L;
fence.proxy.async;
bar.sync 0;
setp.eq.u32 %p2, 0, 1;
wgmma.fence.sync.aligned;
{mma}, %p2{tail};
{mma}, 1{tail};
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{stores}ret;
}}\n"
        )
    }

    /// Runs it; the accumulators, by register and thread.
    fn run(&self, seed: u64, registers: usize, a: &[Vec<u8>], b: &[Vec<u8>], element: usize) -> Vec<u32> {
        let m = module(&self.ptx(registers));
        let mut g = Gpu::new(seed);
        let mut image = self.layouts.0.image(a, element);
        assert!(image.len() <= TILE_B);
        image.resize(TILE_B, 0xff);
        image.extend(self.layouts.1.image(b, element));
        image.resize(image.len().next_multiple_of(512), 0xff);
        // Fragments of A as the manual has them: registers of 4 bytes at K 4t and 16 + 4t bytes, rows g and g + 8.
        let mut fragments = Vec::new();
        for t in 0..128 {
            let (row, at) = (t / 32 * 16 + t % 32 / 4, t % 4 * 4);
            for j in 0..4 {
                let (row, at) = (row + j % 2 * 8, at + j / 2 * 16);
                fragments.push(u32::from_le_bytes(a[row][at..at + 4].try_into().unwrap()));
            }
        }
        let k = 32 / element;
        let lines = |l: Layout, rows: usize| if l.transposed { k } else { rows };
        let da = self.layouts.0.descriptor(0, lines(self.layouts.0, 64));
        let db = self.layouts.1.descriptor(TILE_B, lines(self.layouts.1, self.n));
        let (pi, pf, out) = (g.put(&image), g.put(&fragments), g.room::<u32>(registers * 128));
        let args = vec![
            Arg::U64(pi),
            Arg::U32(image.len() as u32),
            Arg::U64(da),
            Arg::U64(db),
            Arg::U64(out),
            Arg::U64(pf),
        ];
        g.run(&m, "k", ([1, 1, 1], [128, 1, 1], image.len() as u32), args);
        g.get::<u32>(out, registers * 128)
    }
}

fn rows<T: Scalar>(x: &[T], k: usize) -> Vec<Vec<u8>> {
    x.chunks(k).map(|row| row.iter().flat_map(|v| v.put()).collect()).collect()
}

/// Accumulators of 32 bits as a matrix of 64 x n: d[j] is in row 16w + g + 8 (j / 2 % 2), column 8 (j / 4) + 2t + j % 2.
fn matrix(out: &[u32], n: usize) -> Vec<u32> {
    let mut m = vec![0; 64 * n];
    for (i, v) in out.iter().enumerate() {
        let (j, t) = (i / 128, i % 128);
        let row = t / 32 * 16 + t % 32 / 4 + j / 2 % 2 * 8;
        m[row * n + j / 4 * 8 + t % 4 * 2 + j % 2] = *v;
    }
    m
}

/// `factor * A * B'`.
fn product<T: Scalar, U: Scalar>(a: &[T], b: &[U], n: usize, factor: f64) -> Vec<f64> {
    gpu::product(a, b, 64, n, a.len() / 64, true).iter().map(|v| v * factor).collect()
}

fn floats<T: Scalar, U: Scalar>(case: &Case<'_>, bits: u32, factor: f64, slack: f64) {
    let k = 32 / T::BYTES;
    let (a, b) = (data::<T>(64 * k, 1, bits), data::<U>(case.n * k, 2, bits));
    for seed in 0..4 {
        let out = case.run(seed, case.n / 2, &rows(&a, k), &rows(&b, k), T::BYTES);
        let got: Vec<f32> = matrix(&out, case.n).into_iter().map(f32::from_bits).collect();
        let what = format!("{} {:?} seed {seed}", case.suffix, case.layouts);
        close(&what, &got, &product(&a, &b, case.n, factor), slack, 0.0);
    }
}

#[test]
fn halves_in_every_layout() {
    let all = || K_MAJOR.into_iter().chain(MN_MAJOR);
    for la in all() {
        for lb in all() {
            let tail = format!(", 1, 1, {}, {}", u8::from(la.transposed), u8::from(lb.transposed));
            let case = Case {
                n: 32,
                suffix: "16.f32.f16.f16",
                layouts: (la, lb),
                tail: &tail,
                a_in_registers: false,
            };
            // Of so few bits that sums are exact.
            floats::<f16, f16>(&case, 5, 2.0, 0.0);
        }
    }
}

#[test]
fn types_and_sizes() {
    let layouts = (K_MAJOR[3], K_MAJOR[2]);
    for n in [8, 40, 96, 256] {
        for a_in_registers in [false, true] {
            let case = |suffix, tail| Case { n, suffix, layouts, tail, a_in_registers };
            let trans = if a_in_registers { ", 1, -1, 0" } else { ", 1, -1, 0, 0" };
            floats::<bf16, bf16>(&case("16.f32.bf16.bf16", trans), 7, -2.0, 0.0);
            let trans = if a_in_registers { ", -1, 1, 0" } else { ", -1, 1, 0, 0" };
            floats::<f16, f16>(&case("16.f32.f16.f16", trans), 10, -2.0, 32.0 * 2_f64.powi(-22));
            // Ten bits of fraction: what TF32 has.
            floats::<f32, f32>(&case("8.f32.tf32.tf32", ", 1, 1"), 10, 2.0, 16.0 * 2_f64.powi(-22));
            floats::<F8E4M3, F8E5M2>(&case("32.f32.e4m3.e5m2", ", 1, 1"), 2, 2.0, 64.0 * 2_f64.powi(-11));
        }
    }
}

#[test]
fn half_accumulators() {
    let n = 64;
    let case = Case {
        n,
        suffix: "16.f16.f16.f16",
        layouts: (K_MAJOR[3], MN_MAJOR[3]),
        tail: ", 1, 1, 0, 1",
        a_in_registers: false,
    };
    let (a, b) = (data::<f16>(64 * 16, 3, 3), data::<f16>(n * 16, 4, 3));
    let out = case.run(0, n / 4, &rows(&a, 16), &rows(&b, 16), 2);
    let mut got = vec![f16::ZERO; 64 * n];
    for (i, v) in out.iter().enumerate() {
        let (j, t) = (i / 128, i % 128);
        let (row, column) = (t / 32 * 16 + t % 32 / 4 + j % 2 * 8, j / 2 * 8 + t % 4 * 2);
        got[row * n + column] = f16::from_bits(*v as u16);
        got[row * n + column + 1] = f16::from_bits((*v >> 16) as u16);
    }
    close("f16 accumulators", &got, &product(&a, &b, n, 2.0), 0.0, 2_f64.powi(-10));
}

#[test]
fn integers_and_bits() {
    for n in [24, 128] {
        for a_in_registers in [false, true] {
            let layouts = (K_MAJOR[1], K_MAJOR[0]);
            let case = |suffix| Case { n, suffix, layouts, tail: "", a_in_registers };
            let (a, b) = (integers::<i8>(64 * 32, 5, -128, 127), integers::<u8>(n * 32, 6, 0, 255));
            let out = case("32.s32.s8.u8").run(1, n / 2, &rows(&a, 32), &rows(&b, 32), 1);
            let got: Vec<i32> = matrix(&out, n).into_iter().map(|v| v as i32).collect();
            close("s8 u8", &got, &product(&a, &b, n, 2.0), 0.0, 0.0);
            let (a, b) = (integers::<u8>(64 * 32, 7, 0, 255), integers::<u8>(n * 32, 8, 0, 255));
            let out = case("256.s32.b1.b1.and.popc").run(1, n / 2, &rows(&a, 32), &rows(&b, 32), 4);
            let count = |i: usize| {
                let (r, c) = (&a[i / n * 32..][..32], &b[i % n * 32..][..32]);
                2 * r.iter().zip(c).map(|(a, b)| (a & b).count_ones()).sum::<u32>()
            };
            assert_eq!(matrix(&out, n), (0..64 * n).map(count).collect::<Vec<_>>());
        }
    }
}

/// A kernel of 128 threads with zeroed tiles of 64 x 16 at 0 and at 16384, accumulators `%d0` to `%d3`, a tile of ones to
/// be stored over A by `ONES`.
fn kernel(body: &str) -> weft_sim::Module {
    let ones = "st.shared.v4.b32 [%r9], {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};";
    module(&format!(
        ".version 8.0\n.target sm_90a\n.address_size 64
.extern .shared .align 1024 .b8 s[];
.visible .entry k(.param .u64 out)
{{
.reg .b64 %rd<10>; .reg .b32 %r<10>, %d<4>; .reg .pred %p<4>;
ld.param.b64 %rd1, [out];
mov.u32 %r1, %tid.x; shl.b32 %r9, %r1, 4; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd2, %rd1, %rd2;
add.u32 %r8, %r9, 16384;
{ones} st.shared.v4.b32 [%r8], {{0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00}};
fence.proxy.async; bar.sync 0;
// Both tiles without exchange: 128 bytes to the next core matrix along K, 256 to the next eight rows.
mov.b64 %rd3, 0x0000001000080000; mov.b64 %rd4, 0x0000001000080400;
mov.b32 %d0, 7; mov.b32 %d1, 7; mov.b32 %d2, 7; mov.b32 %d3, 7;
{}
st.global.b32 [%rd2], %d0;
ret;
}}\n",
        body.replace(
            "MMA",
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, %rd3, %rd4, 0, 1, 1, 0, 0;"
        )
    ))
}

/// `threads` threads; the values stored, by seed.
fn run(body: &str, threads: u32) -> Vec<Result<Vec<f32>, weft_sim::SimError>> {
    let m = kernel(body);
    let one = |seed| {
        let mut g = Gpu::new(seed);
        let out = g.room::<f32>(threads as usize);
        g.try_run(&m, "k", ([1, 1, 1], [threads, 1, 1], 32768), vec![Arg::U64(out)])?;
        Ok(g.get::<f32>(out, threads as usize))
    };
    (0..16).map(one).collect()
}

const WAIT: &str = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;";

#[test]
fn a_tile_that_is_overwritten_too_early_shows() {
    let zeros = "st.shared.v4.b32 [%r9], {0, 0, 0, 0};";
    let right = format!("wgmma.fence.sync.aligned; MMA {WAIT} bar.sync 0; {zeros}");
    for out in run(&right, 128) {
        assert_eq!(out.unwrap(), [16.0; 128]);
    }
    let early = format!("wgmma.fence.sync.aligned; MMA {zeros} {WAIT}");
    let wrong = run(&early, 128).into_iter().filter(|out| *out.as_ref().unwrap() != [16.0; 128]).count();
    assert!((1..=16).contains(&wrong), "{wrong}");
    // A wait that leaves the latest group under way does not help.
    let partial = format!(
        "wgmma.fence.sync.aligned; MMA wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1; {zeros} {WAIT}"
    );
    assert!(run(&partial, 128).iter().any(|out| *out.as_ref().unwrap() != [16.0; 128]));
}

#[test]
fn registers_under_way() {
    // Only some schedules have it under way still; no schedule gives a wrong value silently.
    let outs = run("wgmma.fence.sync.aligned; MMA add.f32 %d0, %d0, %d0;", 128);
    let errors: Vec<_> = outs.into_iter().filter_map(Result::err).collect();
    assert!(!errors.is_empty());
    for e in errors {
        assert_eq!(e.code, "S011");
        assert!(e.message.contains("in flight"), "{e}");
    }
    // ptxas waits before moves.
    for out in run(
        "wgmma.fence.sync.aligned; MMA mov.b32 %r2, %d0; mov.b32 %d0, %r2; wgmma.commit_group.sync.aligned;",
        128,
    ) {
        assert_eq!(out.unwrap(), [16.0; 128]);
    }
}

#[test]
fn what_a_warpgroup_needs() {
    let whole = format!("wgmma.fence.sync.aligned; MMA {WAIT}");
    for (body, threads, text) in [
        (format!("MMA {WAIT}"), 128, "there is no wgmma.fence"),
        (whole.clone(), 96, "partial warpgroup"),
        (whole.clone(), 160, "partial warpgroup"),
        (format!("mov.b64 %rd4, 0x0000001000083f00; {whole}"), 128, "out of bounds"),
        (format!("mov.b64 %rd3, 0x0000001000084000; {whole}"), 128, "reserved bits"),
        (format!("cvt.u64.u32 %rd3, %r1; {whole}"), 128, "differs between the threads"),
    ] {
        let e = run(&body, threads).remove(0).expect_err(text);
        assert!(e.message.contains(text), "{e}");
    }
}

#[test]
fn a_warp_of_the_group_is_missing() {
    let body = format!("setp.gt.u32 %p1, %r1, 95; @%p1 bra END; wgmma.fence.sync.aligned; MMA {WAIT} END:");
    let e = run(&body, 128).remove(0).expect_err("three warps of four");
    assert_eq!(e.code, "S008", "{e}");
    assert!(e.to_string().contains("other warps of its warpgroup"), "{e}");
    let body = format!(
        "setp.gt.u32 %p1, %r1, 95; selp.b64 %rd3, %rd4, %rd3, %p1; wgmma.fence.sync.aligned; MMA {WAIT}"
    );
    let e = run(&body, 128).remove(0).expect_err("two matrices");
    assert!(e.message.contains("different wgmma instructions"), "{e}");
}
