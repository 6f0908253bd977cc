//! Tensor copies and tensor maps, held against loops over coordinates.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{failure, module};
use weft_sim::{Arg, Config, Launch, Machine, SimError, Stats, Swizzle, TensorMap, TensorType};

const TYPES: [(TensorType, usize); 10] = [
    (TensorType::U8, 1),
    (TensorType::U16, 2),
    (TensorType::U32, 4),
    (TensorType::S32, 4),
    (TensorType::U64, 8),
    (TensorType::S64, 8),
    (TensorType::F16, 2),
    (TensorType::F32, 4),
    (TensorType::F64, 8),
    (TensorType::Bf16, 2),
];

fn size(t: TensorType) -> usize {
    TYPES.iter().find(|(x, _)| *x == t).unwrap().1
}

/// Dense, with rows rounded up to 16 bytes.
fn map(element: TensorType, dims: &[u64], tile: &[u32]) -> TensorMap {
    let mut strides = Vec::new();
    let mut step = (dims[0] * size(element) as u64).next_multiple_of(16);
    for d in &dims[1..] {
        strides.push(step);
        step *= d;
    }
    TensorMap {
        element,
        address: 0,
        dims: dims.to_vec(),
        strides,
        tile: tile.to_vec(),
        element_strides: vec![1; dims.len()],
        swizzle: Swizzle::None,
        fill_nan: false,
    }
}

fn bytes(m: &TensorMap) -> usize {
    let row = (m.dims[0] as usize * size(m.element)).next_multiple_of(16);
    row * m.dims[1..].iter().product::<u64>() as usize
}

/// Bytes from one row of a box to the next in shared memory: the span of its swizzle, if that is more than a row has.
fn pitch(m: &TensorMap) -> usize {
    let span = [0, 32, 64, 128][m.swizzle as usize];
    (m.tile[0] as usize * size(m.element)).max(span)
}

/// Rows of a box.
fn rows(m: &TensorMap) -> usize {
    (1..m.tile.len()).map(|i| m.tile[i].div_ceil(m.element_strides[i]) as usize).product()
}

/// Bytes of a box in shared memory.
fn box_bytes(m: &TensorMap) -> usize {
    pitch(m) * rows(m)
}

/// An element of a box.
struct ElementPlace {
    shared: usize,
    /// Its byte in the tensor, if it has one.
    read: Option<usize>,
    /// The byte that is written for it: rows go on to a multiple of 16 bytes.
    written: Option<usize>,
}

fn places(m: &TensorMap, at: &[i32]) -> Vec<ElementPlace> {
    let n = size(m.element);
    let steps: Vec<u32> = (0..at.len()).map(|i| if i == 0 { 1 } else { m.element_strides[i] }).collect();
    let counts: Vec<usize> = (0..at.len()).map(|i| m.tile[i].div_ceil(steps[i]) as usize).collect();
    let width = |d: usize| m.dims[d] as i64;
    let padded = (m.dims[0] as usize * n).next_multiple_of(16) / n;
    let mut out = Vec::new();
    for e in 0..counts.iter().product::<usize>() {
        let (mut rest, mut global, mut read, mut written) = (e, 0_i64, true, true);
        for d in 0..at.len() {
            let c = i64::from(at[d]) + (rest % counts[d]) as i64 * i64::from(steps[d]);
            rest /= counts[d];
            read &= (0..width(d)).contains(&c);
            written &= (0..if d == 0 { padded as i64 } else { width(d) }).contains(&c);
            global += c * if d == 0 { n as i64 } else { m.strides[d - 1] as i64 };
        }
        let linear = e / counts[0] * pitch(m) + e % counts[0] * n;
        // The 16-byte piece of a row of 128 bytes, combined with the row's number.
        let span = [1, 2, 4, 8][m.swizzle as usize];
        let (row, piece) = (linear / 128, linear / 16 % 8);
        let shared = row * 128 + (piece ^ (row % 8 % span)) * 16 + linear % 16;
        let global = global as usize;
        out.push(ElementPlace { shared, read: read.then_some(global), written: written.then_some(global) });
    }
    out
}

struct Job {
    /// Tensor in, box out, and box in, tensor out.
    from: Vec<u8>,
    to: Vec<u8>,
}

/// Copies the tensor's box to shared memory and from there, as it is, to the second argument; or from there to the tensor.
fn run(m: &TensorMap, at: &[i32], load: bool, op: &str, job: &mut Job, seed: u64) -> Result<Stats, SimError> {
    let n = box_bytes(m);
    let moved = rows(m) * m.tile[0] as usize * size(m.element);
    let coordinates = (0..at.len()).map(|i| format!("%r{}", 10 + i)).collect::<Vec<_>>().join(", ");
    let params =
        (0..at.len()).map(|i| format!("ld.param.b32 %r{}, [p{}];", 10 + i, i + 2)).collect::<String>();
    let d = at.len();
    let body = if load {
        format!(
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], {moved};
            cp.async.bulk.tensor.{d}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
                [s], [%rd2, {{{coordinates}}}], [bar];
        W:  mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;
            cp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], {n};"
        )
    } else {
        let name = if op.is_empty() {
            format!("cp.async.bulk.tensor.{d}d.global.shared::cta.bulk_group")
        } else {
            format!("cp.reduce.async.bulk.tensor.{d}d.global.shared::cta.{op}.tile.bulk_group")
        };
        format!(
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], {n};
            cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1], {n}, [bar];
        W:  mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra W;
            {name} [%rd2, {{{coordinates}}}], [s];"
        )
    };
    let text = format!(
        ".version 8.6 .target sm_90a .address_size 64
        .extern .shared .align 1024 .b8 s[];
        .visible .entry k(.param .align 64 .b8 map[128], .param .u64 p1{}) {{
        .reg .b64 %rd<8>; .reg .b32 %r<32>; .reg .pred %p<2>; .shared .align 8 .b64 bar;
        mov.b64 %rd2, map; cvta.param.u64 %rd2, %rd2; ld.param.b64 %rd1, [p1]; {params}
        prefetch.tensormap [%rd2];
        {body}
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
        ret; }}",
        (0..at.len()).map(|i| format!(", .param .u32 p{}", i + 2)).collect::<String>()
    );
    let k = weft_sim::Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut machine = Machine::new(Config::default().seed(seed)).unwrap();
    let tensor = machine.alloc(0, "tensor", bytes(m) as u64, 16).unwrap();
    let other = machine.alloc(0, "box", n as u64, 16).unwrap();
    let (a, b) = if load { (tensor, other) } else { (other, tensor) };
    machine.write(0, a, &job.from).unwrap();
    machine.write(0, b, &job.to).unwrap();
    let encoded = TensorMap { address: m.address + tensor, ..m.clone() }.encode()?;
    let mut args = vec![Arg::Bytes(encoded.to_vec()), Arg::U64(other)];
    args.extend(at.iter().map(|c| Arg::I32(*c)));
    let launch = Launch::default().dynamic_shared(n as u32).args(args);
    let result = machine.launch(&k, "k", &[launch]);
    machine.read(0, b, &mut job.to).unwrap();
    result
}

fn pattern(n: usize, salt: usize) -> Vec<u8> {
    (0..n).map(|i| ((i * 7 + i / 256 * 3 + salt) % 251) as u8).collect()
}

fn check(m: &TensorMap, at: &[i32]) {
    // Boxes begin at multiples of 16 bytes.
    let unit = (16 / size(m.element)) as i32;
    let mut at = at.to_vec();
    at[0] -= at[0].rem_euclid(unit);
    let at = &at;
    let n = size(m.element);
    let places = places(m, at);
    for seed in 0..3 {
        let mut job = Job { from: pattern(bytes(m), 1), to: pattern(box_bytes(m), 2) };
        run(m, at, true, "", &mut job, seed).unwrap_or_else(|e| panic!("{e}"));
        for ElementPlace { shared, read, .. } in &places {
            let want = read.map_or(vec![0; n], |g| job.from[g..g + n].to_vec());
            let got = &job.to[*shared..shared + n];
            assert_eq!(got, want, "{m:?} at {at:?}: shared {shared}, global {read:?}");
        }
        let mut job = Job { from: pattern(box_bytes(m), 3), to: pattern(bytes(m), 4) };
        let mut want = job.to.clone();
        let stored = run(m, at, false, "", &mut job, seed);
        if at.iter().any(|c| *c < 0) {
            let e = failure(stored, "S014");
            assert!(e.message.contains("negative coordinates"), "{e}");
            continue;
        }
        stored.unwrap_or_else(|e| panic!("{e}"));
        for ElementPlace { shared, written, .. } in &places {
            if let Some(g) = *written {
                want[g..g + n].copy_from_slice(&job.from[*shared..shared + n]);
            }
        }
        assert_eq!(job.to, want, "{m:?} at {at:?}");
    }
}

#[test]
fn tiles_of_every_rank() {
    check(&map(TensorType::F32, &[100], &[64]), &[4]);
    check(&map(TensorType::F32, &[100], &[64]), &[70]);
    check(&map(TensorType::F16, &[60, 33], &[64, 8]), &[-3, 29]);
    check(&map(TensorType::U8, &[50, 20], &[32, 16]), &[17, -5]);
    check(&map(TensorType::U64, &[6, 5, 4], &[2, 3, 2]), &[5, 3, -1]);
    check(&map(TensorType::Bf16, &[9, 3, 4, 3], &[8, 2, 3, 2]), &[-1, 2, 0, 1]);
    check(&map(TensorType::S32, &[7, 3, 2, 3, 2], &[4, 2, 2, 2, 2]), &[2, -1, 1, 2, 0]);
    // Entirely outside, far away.
    check(&map(TensorType::F64, &[6, 5], &[2, 2]), &[6, 0]);
    check(&map(TensorType::F64, &[6, 5], &[2, 2]), &[i32::MIN, i32::MAX]);
    for (t, n) in TYPES {
        check(&map(t, &[100, 10], &[64 / n as u32, 4]), &[3, 7]);
    }
}

#[test]
fn swizzles() {
    for (swizzle, row) in [(Swizzle::B32, 32), (Swizzle::B64, 64), (Swizzle::B128, 128)] {
        for bytes in [row, row / 2] {
            let m = TensorMap { swizzle, ..map(TensorType::F16, &[200, 40], &[bytes / 2, 24]) };
            check(&m, &[8, 3]);
            check(&m, &[195, 30]);
            check(&m, &[-3, -2]);
        }
    }
}

#[test]
fn every_other_element() {
    let m = TensorMap { element_strides: vec![1, 2, 3], ..map(TensorType::F32, &[20, 15, 15], &[8, 5, 7]) };
    check(&m, &[1, 2, 3]);
    check(&m, &[17, 12, -1]);
}

#[test]
fn nan_outside() {
    let m = TensorMap { fill_nan: true, ..map(TensorType::F32, &[6, 2], &[4, 2]) };
    let mut job = Job { from: pattern(bytes(&m), 1), to: vec![0; box_bytes(&m)] };
    run(&m, &[4, 0], true, "", &mut job, 0).unwrap();
    let nan = |i: usize| f32::from_le_bytes(job.to[4 * i..4 * i + 4].try_into().unwrap()).is_nan();
    assert_eq!([0, 1, 2, 3].map(nan), [false, false, true, true]);
}

#[test]
fn boxes_begin_at_multiples_of_16_bytes() {
    let m = map(TensorType::F16, &[64, 8], &[16, 2]);
    for at in [[4, 0], [-3, 1], [63, 0]] {
        for load in [true, false] {
            let (a, b) = if load { (bytes(&m), box_bytes(&m)) } else { (box_bytes(&m), bytes(&m)) };
            let mut job = Job { from: pattern(a, 1), to: pattern(b, 2) };
            let e = failure(run(&m, &at, load, "", &mut job, 0), "S014");
            assert!(e.message.contains(&format!("innermost coordinate {}", at[0])), "{e}");
        }
    }
}

#[test]
fn reductions() {
    let words = |list: &[u32]| list.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let m = map(TensorType::U32, &[6, 2], &[4, 2]);
    for (op, f) in [
        ("add", (|a, b| a + b) as fn(u32, u32) -> u32),
        ("min", |a, b| a.min(b)),
        ("max", |a, b| a.max(b)),
        ("and", |a, b| a & b),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
        ("inc", |a, b| if a >= b { 0 } else { a + 1 }),
        ("dec", |a, b| if a == 0 || a > b { b } else { a - 1 }),
    ] {
        let old: Vec<u32> = (0..16).map(|i| i * 13 % 17).collect();
        let new: Vec<u32> = (0..8).map(|i| i * 5 % 11).collect();
        let mut job = Job { from: words(&new), to: words(&old) };
        run(&m, &[4, 1], false, op, &mut job, 1).unwrap();
        let mut want = old;
        // Rows of the tensor are 8 words, of which 6 are its own.
        (0..4).for_each(|i| want[12 + i] = f(want[12 + i], new[i]));
        assert_eq!(job.to, words(&want), "{op}");
    }
    let half = map(TensorType::F16, &[8], &[8]);
    let mut job =
        Job { from: [0x3c00_u16; 8].iter().flat_map(|v| v.to_le_bytes()).collect(), to: vec![0; 16] };
    run(&half, &[0], false, "add", &mut job, 0).unwrap();
    assert_eq!(job.to, job.from);
    let e = failure(run(&half, &[0], false, "xor", &mut job, 0), "S014");
    assert!(e.message.contains("`.xor` of a tensor of f16"), "{e}");
}

#[test]
fn maps_that_are_refused() {
    let good = map(TensorType::F16, &[64, 64], &[64, 8]);
    assert!(good.encode().is_ok());
    let refuse = |m: TensorMap, says: &str| {
        let e = m.encode().unwrap_err();
        assert!(e.code == "S001" && e.message.contains(says), "{e}");
    };
    refuse(TensorMap { address: 8, ..good.clone() }, "the address 0x8");
    refuse(TensorMap { dims: vec![64, 0], ..good.clone() }, "a dimension has 0");
    refuse(TensorMap { dims: vec![64, (1 << 32) + 1], ..good.clone() }, "a dimension has 4294967297");
    refuse(TensorMap { strides: vec![120], ..good.clone() }, "a stride of 120 bytes");
    refuse(TensorMap { strides: vec![1 << 40], ..good.clone() }, "a stride of");
    refuse(TensorMap { tile: vec![64, 257], ..good.clone() }, "the box has 257");
    refuse(TensorMap { tile: vec![4, 8], ..good.clone() }, "8 bytes, not a multiple of 16");
    refuse(TensorMap { element_strides: vec![1, 9], ..good.clone() }, "an element stride is 9");
    refuse(TensorMap { swizzle: Swizzle::B64, ..good.clone() }, "128 bytes, more than its swizzle of 64");
    refuse(TensorMap { tile: vec![64], ..good.clone() }, "do not match");
    refuse(TensorMap { dims: vec![], strides: vec![], ..good.clone() }, "do not match");
    let m = map(TensorType::U16, &[64], &[64]);
    refuse(TensorMap { fill_nan: true, ..m }, "can be filled with NaN");
}

#[test]
fn maps_that_do_not_fit_their_use() {
    let m = map(TensorType::F16, &[64, 64], &[64, 8]);
    let mut job = Job { from: pattern(bytes(&m), 1), to: vec![0; box_bytes(&m)] };
    // The tensor is said to be larger than its memory.
    let large = TensorMap { dims: vec![64, 80], ..m.clone() };
    let bad = |m: &TensorMap, at: &[i32], job: &mut Job| {
        let k = bytes(&map(TensorType::F16, &[64, 64], &[64, 8]));
        assert_eq!(job.from.len(), k);
        let mut machine = Machine::new(Config::default()).unwrap();
        let tensor = machine.alloc(0, "tensor", k as u64, 16).unwrap();
        let encoded = TensorMap { address: tensor, ..m.clone() }.encode().unwrap();
        let k = module(
            "u64",
            &format!(
                ".reg .b64 %rd<4>; .reg .b32 %r<4>; .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar;
                ld.param.b64 %rd1, [p0]; mbarrier.init.shared.b64 [bar], 1;
                cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes
                    [s], [%rd1, {{{}, {}}}], [bar];",
                at[0], at[1]
            ),
        );
        let addr = machine.alloc(0, "map", 128, 64).unwrap();
        machine.write(0, addr, &encoded).unwrap();
        failure(machine.launch(&k, "k", &[Launch::default().args(vec![Arg::U64(addr)])]), "S003")
    };
    let e = bad(&large, &[0, 60], &mut job);
    assert!(e.message.contains("`tensor`"), "{e}");
    let e = bad(&TensorMap { tile: vec![64, 16], ..m.clone() }, &[0, 0], &mut job);
    assert!(e.message.contains("`k.s`"), "{e}");
    // Nobody has written the map, or it has another rank.
    for (bytes, says) in [
        ([0xff; 128].to_vec(), "not a tensor map"),
        (
            map(TensorType::F16, &[64], &[64]).encode().unwrap().to_vec(),
            "it has 1 dimensions, but the copy has 2",
        ),
    ] {
        let k = module(
            "u64",
            ".reg .b64 %rd<4>; .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar;
            ld.param.b64 %rd1, [p0]; mbarrier.init.shared.b64 [bar], 1;
            cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1, {0, 0}], [bar];",
        );
        let mut machine = Machine::new(Config::default()).unwrap();
        let addr = machine.alloc(0, "map", 128, 64).unwrap();
        machine.write(0, addr, &bytes).unwrap();
        let launch = Launch::default().args(vec![Arg::U64(addr)]);
        let e = failure(machine.launch(&k, "k", &[launch]), "S014");
        assert!(e.message.contains(says), "{e}");
    }
}

/// A map that the kernel makes itself, field by field, from zeros, as compilers do.
#[test]
fn maps_made_by_kernels() {
    let k = module(
        "u64 u64 u64",
        ".reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<4>; .shared .align 128 .b8 m[128]; .shared .align 1024 .b8 s[1024];
        .shared .align 8 .b64 bar;
        ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; ld.param.b64 %rd3, [p2];
        mov.u32 %r1, %tid.x; mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, m; add.u32 %r3, %r3, %r2; st.shared.b32 [%r3], 0;
        bar.warp.sync -1; setp.ne.u32 %p1, %r1, 0; @%p1 bra S;
        mov.u64 %rd4, m;
        tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd4], %rd1;
        tensormap.replace.tile.rank.shared::cta.b1024.b32 [%rd4], 1;
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd4], 0, 32;
        tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%rd4], 1, 8;
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd4], 0, 40;
        tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%rd4], 1, 16;
        tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%rd4], 0, 160;
        tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd4], 0, 1;
        tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%rd4], 1, 1;
        tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%rd4], 7;
        tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%rd4], 0;
        tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%rd4], 3;
        tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%rd4], 0;
    S:  bar.warp.sync -1;
        tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd3], [m], 128;
        fence.proxy.tensormap::generic.acquire.gpu [%rd3], 128;
        @%p1 bra E;
        mbarrier.init.shared.b64 [bar], 1; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 1024;
        cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [s], [%rd3, {4, 10}], [bar];
    W:  mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;
        cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 1024; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group.read 0;
    E:",
    );
    let m = TensorMap { swizzle: Swizzle::B128, ..map(TensorType::F32, &[40, 16], &[32, 8]) };
    for seed in 0..10 {
        let mut machine = Machine::new(Config::default().seed(seed)).unwrap();
        let data = pattern(bytes(&m), 0);
        let x = host::buffer(&mut machine, 0, "x", &data);
        let (y, at) = (machine.alloc(0, "y", 1024, 16).unwrap(), machine.alloc(0, "map", 128, 128).unwrap());
        let args = vec![Arg::U64(x), Arg::U64(y), Arg::U64(at)];
        let launch = Launch::default().block([32, 1, 1]).args(args);
        machine.launch(&k, "k", &[launch]).unwrap_or_else(|e| panic!("{e}"));
        let mut out = vec![0; 1024];
        machine.read(0, y, &mut out).unwrap();
        for ElementPlace { shared, read: global, .. } in places(&m, &[4, 10]) {
            let want = global.map_or([0; 4], |g| data[g..g + 4].try_into().unwrap());
            assert_eq!(out[shared..shared + 4], want);
        }
        // The same bytes as the host makes.
        let mut made = [0; 128];
        machine.read(0, at, &mut made).unwrap();
        assert_eq!(made, TensorMap { address: x, ..m.clone() }.encode().unwrap());
    }
}
