//! Whole launches have the results of an H200.
//!
//! `tests/golden/h200_launches.txt` has the hash of each launch's results, `h200_near.txt` the first results of kernels
//! with approximate functions. With `WEFT_CORPUS=DIR` this test writes them to `DIR`, for `tests/golden/run_launches.py` to execute on a GPU.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod common;
#[path = "common/gpu/mod.rs"]
mod gpu;

use gpu::{Item, Job, Map};
use std::collections::HashMap;
use weft_sim::{Arg, Check, Config, Launch, Machine, Module, SimError, Swizzle, TensorMap, TensorType};

fn encoded(map: &Map, address: u64) -> Result<[u8; 128], SimError> {
    use TensorType::*;
    let elements = [U8, U16, U32, S32, U64, S64, F16, F32, F64, Bf16, F32Ftz, Tf32];
    let map = TensorMap {
        element: elements[map.data_type as usize],
        address,
        dims: map.dims.clone(),
        strides: map.strides.clone(),
        tile: map.boxes.clone(),
        element_strides: map.steps.clone(),
        swizzle: [Swizzle::None, Swizzle::B32, Swizzle::B64, Swizzle::B128][map.swizzle as usize],
        fill_nan: map.nan,
    };
    map.encode()
}

/// What the simulator makes of a job, with all its checks.
fn simulate(job: &Job, module: &Module) -> Result<Vec<u8>, String> {
    let error = |e: SimError| e.to_string();
    let check = Some(Check::default());
    let mut m = Machine::new(Config::default().check(check).explore(true)).map_err(error)?;
    let mut results = Vec::new();
    let mut args = Vec::new();
    for (i, item) in job.args.iter().enumerate() {
        let mut place = |data: &[u8], wanted: bool| -> Result<Arg, String> {
            let at = m.alloc(0, &format!("argument {i}"), data.len().max(1) as u64, 512).map_err(error)?;
            m.write(0, at, data).map_err(error)?;
            if wanted {
                results.push((at, data.len()));
            }
            Ok(Arg::U64(at))
        };
        args.push(match item {
            Item::In(d) => place(d, false)?,
            Item::InOut(d) => place(d, true)?,
            Item::Out(n) => place(&vec![0; *n], true)?,
            Item::Scratch(n) => place(&vec![0; *n], false)?,
            Item::I32(v) => Arg::I32(*v),
            Item::I64(v) => Arg::I64(*v),
            Item::F32(v) => Arg::F32(*v),
            Item::Null => Arg::U64(0),
            Item::Map(map) => {
                let Arg::U64(address) = place(&map.data, map.written)? else { unreachable!() };
                Arg::Bytes(encoded(map, address).map_err(error)?.to_vec())
            }
        });
    }
    let launch = Launch::default().grid(job.grid).block(job.block).dynamic_shared(job.shared).args(args);
    m.launch(module, &job.entry, &[launch]).map_err(error)?;
    // They ran on the GPU, and are right.
    if let Some(f) = m.take_findings().first() {
        return Err(f.to_string());
    }
    let mut all = Vec::new();
    for (at, size) in results {
        let mut data = vec![0; size];
        m.read(0, at, &mut data).map_err(error)?;
        all.extend(data);
    }
    Ok(all)
}

fn fnv(data: &[u8]) -> u64 {
    data.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Largest relative error, to the larger of the number and the mean, of results with approximate functions.
fn close(ty: &str, ours: &[u8], gpu: &str) -> bool {
    let gpu: Vec<u8> = gpu
        .as_bytes()
        .chunks(2)
        .map(|d| u8::from_str_radix(str::from_utf8(d).unwrap(), 16).unwrap())
        .collect();
    let (size, tolerance) = match ty {
        "f16" => (2, 2_f64.powi(-10)),
        "f32" => (4, 2_f64.powi(-21)),
        _ => (8, 2_f64.powi(-51)),
    };
    let numbers = |bytes: &[u8]| -> Vec<f64> {
        let number = |b: &[u8]| match size {
            2 => half::f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            4 => f32::from_le_bytes(b.try_into().unwrap()).into(),
            _ => f64::from_le_bytes(b.try_into().unwrap()),
        };
        bytes.chunks_exact(size).map(number).collect()
    };
    let (ours, gpu) = (numbers(&ours[..gpu.len()]), numbers(&gpu));
    let mean = gpu.iter().map(|x| x.abs()).sum::<f64>() / gpu.len() as f64;
    ours.iter().zip(&gpu).all(|(a, b)| (a - b).abs() <= tolerance * b.abs().max(mean))
}

#[test]
fn same_bits_as_an_h200() {
    let jobs = gpu::jobs();
    if let Ok(dir) = std::env::var("WEFT_CORPUS") {
        return gpu::dump(std::path::Path::new(&dir), &jobs).unwrap();
    }
    let lines = |text: &'static str| text.lines().filter(|l| !l.starts_with('#'));
    let exact: HashMap<&str, &str> = lines(include_str!("golden/h200_launches.txt"))
        .map(|l| l.split_once(' ').unwrap())
        .map(|(hash, name)| (name, hash))
        .collect();
    let near: HashMap<&str, (&str, &str)> = lines(include_str!("golden/h200_near.txt"))
        .map(|l| {
            let mut words = l.splitn(3, ' ');
            let [ty, values, name] = std::array::from_fn(|_| words.next().unwrap());
            (name, (ty, values))
        })
        .collect();
    let (mut compared, mut unknown, mut wrong) = (0, 0, Vec::new());
    for job in &jobs {
        // The rest waits for its instructions.
        let Ok(module) = Module::parse(&job.ptx) else {
            unknown += 1;
            continue;
        };
        let result = match simulate(job, &module) {
            Ok(result) => result,
            Err(e) => {
                wrong.push(format!("{}: {e}", job.name));
                continue;
            }
        };
        let name = job.name.as_str();
        let same = match (exact.get(name), near.get(name)) {
            (Some(hash), _) => format!("{:016x}", fnv(&result)) == *hash,
            (_, Some((ty, values))) => close(ty, &result, values),
            _ => continue,
        };
        compared += 1;
        if !same {
            wrong.push(format!("{name}: differs"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} fail:\n{}", wrong.len(), jobs.len(), wrong.join("\n"));
    assert!(unknown <= 67, "{unknown} of {} are not simulated", jobs.len());
    assert!(compared >= 833, "{compared} of {} are compared", exact.len() + near.len());
}
