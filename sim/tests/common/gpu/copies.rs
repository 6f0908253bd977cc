//! Asynchronous copies: `cp.async`, bulk reductions, tensor copies with their swizzles, strides and bounds.

use super::super::common::Rng;
use super::data::{BF16, DataKind, F16, F32, F64, Format, OperandName, bytes, floats, integers};
use super::{HEADER, Item, Job, Map};
use std::fmt::Write as _;

const ENTRY: &str =
    "%u1, [k_out];\nld.param.b64 %u2, [k_in];\nmov.u32 %t1, %tid.x;\nmov.u32 %t2, %ctaid.x;\n";

/// Registers, the parameters' addresses in `%u1` and `%u2`, the thread and CTA in `%t1` and `%t2`, shared memory of
/// `size` bytes at `%t3`.
fn head(parameters: &str, size: usize) -> String {
    format!(
        "{HEADER}.visible .entry k({parameters})\n{{\n.reg .b64 %u<12>;\n.reg .b32 %t<24>;\n.reg .pred %p, %q;\n\
         .shared .align 1024 .b8 buf[{size}];\n.shared .align 8 .b64 bar;\nmov.u32 %t3, buf;\nmov.u32 %t4, bar;\n\
         ld.param.b64 {ENTRY}"
    )
}

/// All 128 threads copy `size` bytes (a multiple of 4) between global memory at `%u{global}` and shared at `%t3`.
fn copy(global: u32, size: usize, store: bool, tag: &str) -> String {
    let body = if store {
        "ld.shared.b32 %t6, [%t7];\nst.global.b32 [%u10], %t6;"
    } else {
        "ld.global.b32 %t6, [%u10];\nst.shared.b32 [%t7], %t6;"
    };
    format!(
        "mul.lo.u32 %t5, %t1, 4;\nadd.u32 %t7, %t3, %t5;\ncvt.u64.u32 %u10, %t5;\nadd.u64 %u10, %u{global}, %u10;\n\
         {tag}:\nsetp.ge.u32 %p, %t5, {size};\n@%p bra {tag}_END;\n{body}\nadd.u32 %t5, %t5, 512;\n\
         add.u32 %t7, %t7, 512;\nadd.u64 %u10, %u10, 512;\nbra.uni {tag};\n{tag}_END:\n"
    )
}

/// `cp.async` of part of each element, the rest zero, into memory that is not.
fn elements(l: &mut Vec<Job>) {
    for (level, size) in [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)] {
        for ignore in [false, true] {
            let record = 2 * size + 8;
            let total = 128 * size;
            let mut k = head(".param .u64 k_out, .param .u64 k_in", total);
            let _ = write!(
                k,
                "mad.wide.u32 %u3, %t2, {}, %u2;\nmad.wide.u32 %u1, %t2, {total}, %u1;\n{}bar.sync 0;\n\
                 add.u64 %u4, %u3, {total};\nmad.wide.u32 %u5, %t1, {size}, %u4;\nadd.u64 %u6, %u4, {total};\n\
                 mad.wide.u32 %u6, %t1, 8, %u6;\nld.global.b32 %t8, [%u6];\nsetp.lt.s32 %q, %t8, 2;\n\
                 mad.lo.u32 %t9, %t1, {size}, %t3;\n",
                128 * record,
                copy(3, total, false, "FILL"),
            );
            let last = if ignore { "%q" } else { "%t8" };
            let _ = write!(
                k,
                "cp.async.{level}.shared.global [%t9], [%u5], {size}, {last};\ncp.async.commit_group;\n\
                 cp.async.wait_group 0;\nbar.sync 0;\n{}ret;\n}}\n",
                copy(1, total, true, "OUT")
            );
            let mut rng = Rng(6000 + size as u64);
            let mut input = Vec::new();
            for _ in 0..4 {
                input.extend(integers(2 * total / 4, &mut rng));
                for _ in 0..128 {
                    input.extend([rng.below(size as u64 + 1) as u32, 0]);
                }
            }
            let name = format!("cp.async.{level} {size} {}", if ignore { "ignore-src" } else { "src-size" });
            l.push(Job::simple(&name, k, [4, 128], bytes(&input), 4 * total));
        }
    }
}

fn elements_of(ty: &str, words: usize, part: OperandName, rng: &mut Rng) -> Vec<u32> {
    let f: Option<Format> = match ty.split('.').next_back() {
        Some("f16") => Some(F16),
        Some("bf16") => Some(BF16),
        Some("f32") => Some(F32),
        Some("f64") => Some(F64),
        _ => None,
    };
    let Some(f) = f else { return integers(words, rng) };
    // All kinds in one: a line of each.
    let kinds =
        [DataKind::Near, DataKind::Wide, DataKind::Special, DataKind::Tiny, DataKind::Huge, DataKind::Sparse];
    let each = words / kinds.len() / 2 * 2;
    let mut all: Vec<u32> = kinds.into_iter().flat_map(|k| floats(f, k, part, each, rng)).collect();
    all.extend(floats(f, DataKind::Near, part, words - all.len(), rng));
    all
}

/// Reductions of shared memory into global memory by the bulk copy engine.
fn reductions(l: &mut Vec<Job>) {
    let ops = [
        "add.u32",
        "add.s32",
        "add.u64",
        "inc.u32",
        "dec.u32",
        "min.u32",
        "max.u32",
        "min.s32",
        "max.s32",
        "min.u64",
        "max.u64",
        "min.s64",
        "max.s64",
        "and.b32",
        "or.b32",
        "xor.b32",
        "and.b64",
        "or.b64",
        "xor.b64",
        "add.f32",
        "add.f64",
        "add.noftz.f16",
        "min.f16",
        "max.f16",
        "add.noftz.bf16",
        "min.bf16",
        "max.bf16",
    ];
    for (i, op) in ops.into_iter().enumerate() {
        let size = 1536;
        let mut k = head(".param .u64 k_out, .param .u64 k_in", size);
        let _ = write!(
            k,
            "{}fence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.ne.u32 %q, %t1, 0;\n@%q bra DONE;\n\
             cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%u1], [%t3], {size};\n\
             cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nDONE:\nret;\n}}\n",
            copy(2, size, false, "FILL")
        );
        let mut rng = Rng(6100 + i as u64);
        let before = bytes(&elements_of(op, size / 4, OperandName::C, &mut rng));
        let input = bytes(&elements_of(op, size / 4, OperandName::A, &mut rng));
        let mut job = Job::simple(&format!("cp.reduce.async.bulk.{op}"), k, [1, 128], input, 0).raw(size);
        job.args[0] = Item::InOut(before);
        l.push(job);
    }
}

/// A tensor and its map.
#[derive(Clone)]
struct Tensor {
    data_type: u32,
    /// Bytes of an element.
    size: u64,
    dims: &'static [u64],
    boxes: &'static [u32],
    steps: &'static [u32],
    swizzle: u32,
    nan: bool,
}

impl Tensor {
    fn new(data_type: u32, dims: &'static [u64], boxes: &'static [u32], swizzle: u32) -> Tensor {
        let size = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4][data_type as usize];
        Tensor { data_type, size, dims, boxes, steps: &[1; 5], swizzle, nan: false }
    }
    fn name(&self) -> String {
        let Tensor { data_type, dims, boxes, swizzle, nan, .. } = self;
        let steps = &self.steps[..dims.len()];
        format!("type {data_type} dims {dims:?} box {boxes:?} steps {steps:?} swizzle {swizzle} nan {nan}")
    }
    /// Bytes in shared memory.
    fn bytes(&self) -> usize {
        let each = self.boxes.iter().zip(self.steps).map(|(b, s)| u64::from(b.div_ceil(*s)));
        // The first step is without effect.
        (each.skip(1).product::<u64>() * u64::from(self.boxes[0]) * self.size) as usize
    }
    fn strides(&self) -> Vec<u64> {
        // Multiples of 16 bytes, and more than the rows have.
        let mut at = (self.dims[0] * self.size).next_multiple_of(16) + 16;
        self.dims[1..]
            .iter()
            .map(|d| {
                let stride = at;
                at *= d + 1;
                stride
            })
            .collect()
    }
    fn item(&self, rng: &mut Rng, part: OperandName, written: bool) -> Item {
        let strides = self.strides();
        let outer = strides.last().map_or(self.dims[0] * self.size, |s| s * self.dims[self.dims.len() - 1]);
        let ty = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "f32"];
        let data = bytes(&elements_of(ty[self.data_type as usize], outer.div_ceil(4) as usize, part, rng));
        Item::Map(Box::new(Map {
            data,
            data_type: self.data_type,
            dims: self.dims.to_vec(),
            strides,
            boxes: self.boxes.to_vec(),
            steps: self.steps[..self.dims.len()].to_vec(),
            swizzle: self.swizzle,
            nan: self.nan,
            written,
        }))
    }
    /// Coordinates to try: inside, over the edges, outside. An H200 takes only innermost ones that are multiples of
    /// 16 bytes, and says else "illegal instruction".
    fn places(&self) -> Vec<Vec<i32>> {
        let each = |f: &dyn Fn(i32, i32) -> i32| -> Vec<i32> {
            self.dims.iter().zip(self.boxes).map(|(d, b)| f(*d as i32, *b as i32)).collect()
        };
        let mut places = vec![
            each(&|_, _| 0),
            each(&|d, b| (d - b).clamp(0, 3)),
            each(&|_, b| -(b / 3) - 1),
            each(&|d, b| d - b / 2 - 1),
            each(&|d, _| d + 1),
            self.dims.iter().enumerate().map(|(i, d)| if i == 0 { -3 } else { *d as i32 - 1 }).collect(),
        ];
        let unit = (16 / self.size).max(1) as i32;
        places.iter_mut().for_each(|place| place[0] -= place[0].rem_euclid(unit));
        places
    }
}

fn tensors() -> Vec<Tensor> {
    let t = Tensor::new;
    let mut l = vec![
        t(6, &[100, 50], &[8, 20], 0),
        t(6, &[100, 50], &[64, 20], 0),
        t(6, &[100, 50], &[16, 20], 1),
        t(6, &[100, 50], &[32, 20], 2),
        t(6, &[100, 50], &[64, 20], 3),
        t(6, &[100, 50], &[32, 20], 3),
        t(6, &[100, 50], &[8, 20], 1),
        t(9, &[100, 50], &[16, 20], 2),
        t(7, &[40, 30, 5], &[32, 4, 2], 3),
        t(7, &[40, 30, 5], &[8, 4, 2], 1),
        t(0, &[64, 10, 6, 3], &[32, 3, 2, 2], 1),
        t(0, &[64, 10, 6, 3], &[48, 3, 2, 2], 0),
        t(6, &[16, 4, 3, 3, 2], &[16, 2, 2, 2, 1], 0),
        t(6, &[16, 4, 3, 3, 2], &[8, 3, 2, 2, 2], 2),
        t(8, &[20, 10], &[8, 4], 2),
        t(4, &[20, 10], &[16, 4], 3),
        t(1, &[1000], &[128], 0),
        t(2, &[33, 9], &[4, 8], 0),
        t(10, &[96, 8], &[32, 4], 3),
        t(11, &[96, 8], &[32, 4], 3),
    ];
    for (data_type, dims, boxes, swizzle) in [
        (6, &[100, 50][..], &[64, 12][..], 3),
        (7, &[40, 30], &[16, 6], 0),
        (9, &[40, 30], &[16, 6], 1),
        (7, &[1000], &[64], 0),
        (8, &[20, 10], &[8, 4], 0),
    ] {
        l.push(Tensor { nan: true, ..t(data_type, dims, boxes, swizzle) });
    }
    for steps in [&[1, 2][..], &[1, 3], &[2, 1]] {
        l.push(Tensor { steps, ..t(6, &[100, 50], &[32, 12], 2) });
    }
    l
}

fn coordinates(rank: usize) -> String {
    (0..rank).map(|i| format!("%t{}", 10 + i)).collect::<Vec<_>>().join(", ")
}

fn load_coordinates(rank: usize) -> String {
    (0..rank).fold(String::new(), |s, i| s + &format!("ld.global.b32 %t{}, [%u2+{}];\n", 10 + i, 4 * i))
}

/// Tiles of tensors into shared memory, which is not zero before.
fn loads(l: &mut Vec<Job>) {
    for (i, t) in tensors().into_iter().enumerate() {
        let (rank, size) = (t.dims.len(), t.bytes());
        // Rows narrower than their swizzle have its span.
        let total = size.next_multiple_of(128) * 4 + 128;
        let mut k = head(".param .u64 k_out, .param .align 64 .b8 k_map[128], .param .u64 k_in", total);
        let _ = write!(
            k,
            "mad.wide.u32 %u1, %t2, {total}, %u1;\nmad.wide.u32 %u2, %t2, 32, %u2;\nmov.b64 %u7, k_map;\n\
             cvta.param.u64 %u7, %u7;\n{}mov.u32 %t6, 0x5a5a5a5a;\nmul.lo.u32 %t5, %t1, 4;\n\
             FILL:\nsetp.ge.u32 %p, %t5, {total};\n@%p bra FILLED;\nadd.u32 %t7, %t3, %t5;\n\
             st.shared.b32 [%t7], %t6;\nadd.u32 %t5, %t5, 512;\nbra.uni FILL;\n\
             FILLED:\nsetp.ne.u32 %q, %t1, 0;\n@%q bra START;\nmbarrier.init.shared::cta.b64 [%t4], 1;\n\
             START:\nfence.proxy.async.shared::cta;\nbar.sync 0;\n@%q bra WAIT;\n\
             mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t4], {size};\n\
             cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%t3], \
             [%u7, {{{}}}], [%t4];\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %p, [%t4], 0;\n@!%p bra WAIT;\n\
             {}ret;\n}}\n",
            load_coordinates(rank),
            coordinates(rank),
            copy(1, total, true, "OUT")
        );
        let mut rng = Rng(6200 + i as u64);
        let places = t.places();
        let mut input = Vec::new();
        for place in &places {
            input.extend((0..8).map(|i| place.get(i).copied().unwrap_or(0) as u32));
        }
        let name = format!("cp.async.bulk.tensor load {}", t.name());
        let mut job =
            Job::simple(&name, k, [places.len() as u32, 128], bytes(&input), places.len() * total).raw(4096);
        job.args.insert(1, t.item(&mut rng, OperandName::A, false));
        l.push(job);
    }
}

/// Shared memory into tiles of tensors, as it is or reduced.
fn stores(l: &mut Vec<Job>) {
    let t = Tensor::new;
    let plain = [
        t(6, &[40, 20], &[32, 12], 0),
        t(6, &[100, 20], &[64, 12], 3),
        t(9, &[100, 20], &[32, 12], 2),
        t(7, &[20, 10, 4], &[8, 3, 2], 1),
        t(0, &[64, 6, 3, 3], &[32, 3, 2, 2], 1),
        Tensor { steps: &[1, 2], ..t(6, &[40, 20], &[32, 12], 2) },
    ];
    let mut all: Vec<(Tensor, &str)> = plain.into_iter().map(|t| (t, "")).collect();
    for (data_type, ops) in [
        (2, &["add", "min", "max", "inc", "dec", "and", "or", "xor"][..]),
        (3, &["add", "min", "max"]),
        (4, &["add", "min", "max", "xor"]),
        (5, &["min", "max"]),
        (6, &["add", "min", "max"]),
        (7, &["add"]),
        (9, &["add", "min", "max"]),
    ] {
        all.extend(ops.iter().map(|op| (t(data_type, &[40, 20], &[16, 8], 0), *op)));
    }
    // Rows that do not end at a multiple of 16 bytes.
    all.extend([(t(2, &[38, 20], &[16, 8], 0), "add"), (t(6, &[35, 20], &[16, 8], 0), "add")]);
    for (i, (t, op)) in all.into_iter().enumerate() {
        let (rank, size) = (t.dims.len(), t.bytes());
        let places = if op.is_empty() { t.places() } else { t.places()[1..4].to_vec() };
        let instruction = if op.is_empty() {
            "cp.async.bulk.tensor".into()
        } else {
            "cp.reduce.async.bulk.tensor".to_string()
        };
        let operation = if op.is_empty() { String::new() } else { format!(".{op}") };
        // An H200 answers "illegal instruction" to negative coordinates, where it stores.
        let taken = |place: &[i32]| place.iter().all(|c| *c >= 0);
        for (j, place) in places.iter().enumerate().filter(|(j, place)| *j != 4 && taken(place)) {
            let mut k = head(".param .align 64 .b8 k_map[128], .param .u64 k_in, .param .u64 k_out", size);
            let _ = write!(
                k,
                "mov.b64 %u7, k_map;\ncvta.param.u64 %u7, %u7;\n{}add.u64 %u3, %u2, 32;\n{}\
                 fence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.ne.u32 %q, %t1, 0;\n@%q bra DONE;\n\
                 {instruction}.{rank}d.global.shared::cta{operation}.tile.bulk_group [%u7, {{{}}}], [%t3];\n\
                 cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nDONE:\nret;\n}}\n",
                load_coordinates(rank),
                copy(3, size, false, "FILL"),
                coordinates(rank),
            );
            let mut rng = Rng(6400 + 8 * i as u64 + j as u64);
            let map = t.item(&mut rng, OperandName::C, true);
            let ty =
                ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16"][t.data_type as usize];
            let mut input: Vec<u32> = (0..8).map(|i| place.get(i).copied().unwrap_or(0) as u32).collect();
            input.extend(elements_of(ty, size.div_ceil(4), OperandName::A, &mut rng));
            let name = format!("{instruction} store {op} {} at {place:?}", t.name());
            let mut job = Job::simple(&name, k, [1, 128], bytes(&input), 0).raw(256);
            job.args = vec![map, Item::In(bytes(&input)), Item::Null];
            l.push(job);
        }
    }
}

pub fn jobs() -> Vec<Job> {
    let mut l = Vec::new();
    elements(&mut l);
    reductions(&mut l);
    loads(&mut l);
    stores(&mut l);
    l
}
