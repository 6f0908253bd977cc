//! Tests with two ranks as processes, each with a GPU or sharing one. Without a GPU the tests are
//! ignored and report this.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unsafe_code,
    reason = "tests, and addresses of their own tensors"
)]

use float8::F8E4M3;
use half::bf16;
use libtest_mimic::{Arguments, Failed, Trial};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpweft_comm::{AddRmsNorm, Comm, DType, Error, Id, NormForm, Operands, Options};
use weft::runtime::cuda::{self, Device, Stream};
use weft::runtime::{DeviceTensor, Graph};
use weft_bench::fused::{Inputs, Outputs};

/// The test and the rank that this process runs, and the communicator's id.
const RANK: &str = "WEFT_COMM_RANK";
/// The time within which a test must end.
const LIMIT: Duration = Duration::from_secs(100);
const RANKS: u32 = 2;
/// The exit status of the rank that dies on purpose.
const DIED: u8 = 7;

type Body = fn(&Rank) -> Result<(), Error>;

const TESTS: &[(&str, Body)] = &[
    ("sums", sums),
    ("gathers_and_scatters", gathers_and_scatters),
    ("memory_without_copies", memory_without_copies),
    ("graphs", graphs),
    ("two_communicators", two_communicators),
    ("norms", norms),
    ("layer_norms", layer_norms),
    ("quantised_norms", quantised_norms),
    ("norms_with_groups", norms_with_groups),
    ("what_does_not_fit", what_does_not_fit),
    ("a_rank_that_dies", a_rank_that_dies),
];

/// A rank, its stream and its communicator.
struct Rank {
    me: u32,
    id: Id,
    options: Options,
    comm: Arc<Comm>,
    stream: Stream,
}

fn main() -> ExitCode {
    if let Ok(rank) = std::env::var(RANK) {
        return as_rank(&rank);
    }
    let gpus = cuda::device_count().unwrap_or(0);
    if gpus == 0 {
        println!("all ignored: no GPU");
    }
    let trials = TESTS.iter().map(|(name, _)| Trial::test(*name, || run(name)).with_ignored_flag(gpus == 0));
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&args, trials.collect()).exit_code()
}

/// Starts the ranks of a test and waits for them.
fn run(name: &str) -> Result<(), Failed> {
    let id: String = Id::random().unwrap().0.iter().map(|byte| format!("{byte:02x}")).collect();
    let start = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(RANK, format!("{rank} {name} {id}")).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let (began, mut ranks) = (Instant::now(), (0..RANKS).map(start).collect::<Vec<_>>());
    while ranks.iter_mut().any(|rank| rank.try_wait().unwrap().is_none()) {
        if began.elapsed() > LIMIT {
            ranks.iter_mut().for_each(|rank| _ = rank.kill());
            return Err(format!("not done after {} s", LIMIT.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut failed = String::new();
    for (number, rank) in ranks.into_iter().enumerate() {
        let out = rank.wait_with_output().unwrap();
        if !out.status.success() && out.status.code() != Some(DIED.into()) {
            failed += &format!("rank {number}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.into()) }
}

fn as_rank(text: &str) -> ExitCode {
    let words: Vec<&str> = text.split(' ').collect();
    let [me, name, id] = words[..] else { panic!("{text}") };
    let me: u32 = me.parse().unwrap();
    let bytes = (0..128).map(|i| u8::from_str_radix(&id[2 * i..2 * i + 2], 16).unwrap());
    let id = Id(bytes.collect::<Vec<_>>().try_into().unwrap());
    let device = me % cuda::device_count().unwrap();
    let options = Options::default()
        .device(Some(device))
        .timeout(Duration::from_secs(20))
        .share_gpu(true)
        .max_bytes(64 << 20);
    let comm = Arc::new(Comm::new(me, RANKS, &id, &options).unwrap());
    let stream = Device::open(device).and_then(|device| device.new_stream()).unwrap();
    let body = TESTS.iter().find(|(other, _)| *other == name).unwrap().1;
    match body(&Rank { me, id, options, comm, stream }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// The data of a rank in a round. The numbers are small integers, so that sums are exact.
fn data(rank: u32, n: usize, round: u32) -> Vec<f32> {
    (0..n).map(|i| ((i as u32 * 7 + rank * 13 + round * 5) % 61) as f32 - 30.0).collect()
}

fn sum(n: usize, round: u32) -> Vec<f32> {
    let each: Vec<Vec<f32>> = (0..RANKS).map(|rank| data(rank, n, round)).collect();
    (0..n).map(|i| each.iter().map(|of| of[i]).sum()).collect()
}

impl Rank {
    fn raw(&self) -> warpweft_comm::RawStream {
        self.stream.gpu().unwrap().cu_stream()
    }

    fn tensor(&self, values: &[f32]) -> DeviceTensor<f32> {
        DeviceTensor::from_slice(values, &self.stream).unwrap()
    }

    fn read(&self, tensor: &DeviceTensor<f32>) -> Vec<f32> {
        tensor.to_vec(&self.stream).unwrap()
    }

    fn all_reduce(&self, comm: &Comm, src: u64, dst: u64, n: usize) -> Result<(), Error> {
        // SAFETY: the callers' tensors have n elements.
        unsafe { comm.all_reduce(self.raw(), src, dst, n, DType::F32) }
    }
}

fn sums(rank: &Rank) -> Result<(), Error> {
    for (round, n) in (0..).zip([1, 7, 1000, 4096, 100_003, 3_000_000]) {
        let x = rank.tensor(&data(rank.me, n, round));
        let y = rank.tensor(&vec![0.0; n]);
        rank.all_reduce(&rank.comm, x.address(), y.address(), n)?;
        assert_eq!(rank.read(&y), sum(n, round), "{n} out of place");
        assert_eq!(rank.read(&x), data(rank.me, n, round), "{n}: the source stays");
        rank.all_reduce(&rank.comm, x.address(), x.address(), n)?;
        assert_eq!(rank.read(&x), sum(n, round), "{n} in place");
    }
    rank.all_reduce(&rank.comm, 16, 32, 0)?;
    rank.comm.barrier()
}

fn gathers_and_scatters(rank: &Rank) -> Result<(), Error> {
    for (round, n) in (0..).zip([4, 1000, 70_000]) {
        let (x, all) = (rank.tensor(&data(rank.me, n, round)), rank.tensor(&vec![0.0; n * RANKS as usize]));
        // SAFETY: the tensors have these sizes.
        unsafe { rank.comm.all_gather(rank.raw(), x.address(), all.address(), n, DType::F32)? };
        let wanted: Vec<f32> = (0..RANKS).flat_map(|of| data(of, n, round)).collect();
        assert_eq!(rank.read(&all), wanted, "all_gather of {n}");
        let whole = n * RANKS as usize;
        let (big, part) = (rank.tensor(&data(rank.me, whole, round)), rank.tensor(&vec![0.0; n]));
        // SAFETY: as above.
        unsafe { rank.comm.reduce_scatter(rank.raw(), big.address(), part.address(), n, DType::F32)? };
        let own = rank.me as usize * n;
        assert_eq!(rank.read(&part), sum(whole, round)[own..own + n], "reduce_scatter of {n}");
    }
    Ok(())
}

fn memory_without_copies(rank: &Rank) -> Result<(), Error> {
    let n = 50_000;
    let made = rank.comm.alloc(n * 4)?;
    let own = rank.tensor(&data(rank.me, n, 3));
    // SAFETY: the tensor outlives the buffer.
    let registered = unsafe { rank.comm.register(own.address(), n * 4)? };
    rank.all_reduce(&rank.comm, own.address(), made.address(), n)?;
    rank.all_reduce(&rank.comm, made.address() + 1024, own.address() + 1024, 256)?;
    let (all, mut wanted) = (sum(n, 3), data(rank.me, n, 3));
    for i in 256..512 {
        wanted[i] = all[i] * RANKS as f32;
    }
    assert_eq!(rank.read(&own), wanted);
    drop(registered);
    Ok(())
}

fn graphs(rank: &Rank) -> Result<(), Error> {
    let n = 8192;
    let (x, y) = (rank.tensor(&data(rank.me, n, 0)), rank.tensor(&vec![0.0; n]));
    // SAFETY: the tensors have n elements.
    unsafe {
        rank.comm.prepare(x.address(), y.address(), n, DType::F32)?;
        rank.comm.prepare(y.address(), y.address(), n, DType::F32)?;
    }
    let graph = Graph::capture(&rank.stream, |_| {
        rank.all_reduce(&rank.comm, x.address(), y.address(), n)?;
        rank.all_reduce(&rank.comm, y.address(), y.address(), n)
    })?;
    for round in 1..6 {
        x.copy_from(&data(rank.me, n, round), &rank.stream)?;
        graph.launch()?;
        let wanted: Vec<f32> = sum(n, round).iter().map(|v| v * RANKS as f32).collect();
        assert_eq!(rank.read(&y), wanted, "replay {round}");
    }
    Ok(())
}

fn two_communicators(rank: &Rank) -> Result<(), Error> {
    let mut id = rank.id.clone();
    id.0[0] ^= 1;
    let second = Comm::new(rank.me, RANKS, &id, &rank.options)?;
    let n = 3000;
    let (x, y) = (rank.tensor(&data(rank.me, n, 0)), rank.tensor(&data(rank.me, n, 1)));
    rank.all_reduce(&rank.comm, x.address(), x.address(), n)?;
    rank.all_reduce(&second, y.address(), y.address(), n)?;
    assert_eq!((rank.read(&x), rank.read(&y)), (sum(n, 0), sum(n, 1)));
    drop(second);
    rank.all_reduce(&rank.comm, x.address(), x.address(), n)?;
    rank.comm.barrier()
}

fn narrow(values: Vec<f32>) -> Vec<bf16> {
    values.into_iter().map(bf16::from_f32).collect()
}

fn norms(rank: &Rank) -> Result<(), Error> {
    let (hidden, eps) = (1024, 1e-5f32);
    let norm = AddRmsNorm::new(&rank.comm, hidden, DType::BF16, 600)?;
    for (round, tokens) in (0..).zip([1, 8, 33, 600]) {
        norm.prepare(tokens)?;
        let n = tokens * hidden;
        let upload = |values: &[bf16]| DeviceTensor::from_slice(values, &rank.stream);
        let (x, residual) = (upload(&narrow(data(rank.me, n, round)))?, upload(&narrow(data(9, n, round)))?);
        let (weight, out) = (upload(&vec![bf16::ONE; hidden])?, upload(&vec![bf16::ZERO; n])?);
        let operands = Operands {
            input: x.address(),
            residual: residual.address(),
            weight: weight.address(),
            out: out.address(),
            ..Operands::default()
        };
        // SAFETY: the tensors have these sizes.
        unsafe { norm.run(rank.raw(), tokens, &operands, eps)? };
        // Integers below 256 are exact in bf16.
        let new: Vec<f32> = sum(n, round).iter().zip(data(9, n, round)).map(|(a, b)| a + b).collect();
        assert_eq!(residual.to_vec(&rank.stream)?, narrow(new.clone()), "the residual of {tokens} tokens");
        let out = out.to_vec(&rank.stream)?;
        for (row, got) in new.chunks(hidden).zip(out.chunks(hidden)) {
            let mean = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / hidden as f64;
            for (v, got) in row.iter().zip(got) {
                let wanted = f64::from(*v) / (mean + f64::from(eps)).sqrt();
                assert!((got.to_f64() - wanted).abs() <= wanted.abs() / 128.0 + 1e-6, "{got} for {wanted}");
            }
        }
    }
    Ok(())
}

const PLAIN: NormForm = NormForm::plain(DType::BF16);
const E4M3: NormForm = NormForm { out: DType::E4M3, ..PLAIN };

fn layer_norms(rank: &Rank) -> Result<(), Error> {
    let layer = NormForm { layer: true, ..PLAIN };
    compared(rank, layer, 1024)?;
    compared(rank, NormForm { per_token: true, both: true, layer: true, ..E4M3 }, 2000)
}

fn quantised_norms(rank: &Rank) -> Result<(), Error> {
    compared(rank, E4M3, 1024)?;
    compared(rank, NormForm { per_token: true, ..E4M3 }, 1024)?;
    compared(rank, NormForm { per_token: true, both: true, ..E4M3 }, 2000)
}

fn norms_with_groups(rank: &Rank) -> Result<(), Error> {
    let groups = NormForm { group: 128, ..E4M3 };
    compared(rank, groups, 1024)?;
    compared(rank, NormForm { both: true, layer: true, ..groups }, 7168)?;
    compared(rank, NormForm { columns: 1, ..groups }, 1024)?;
    compared(rank, NormForm { columns: 4, ..groups }, 7168)
}

/// Compares calls of a form with float64. Later calls with as many tokens as an earlier one have
/// other tensors and other data.
fn compared(rank: &Rank, form: NormForm, hidden: usize) -> Result<(), Error> {
    let norm = AddRmsNorm::with_form(&rank.comm, hidden, form, 600)?;
    for (round, tokens) in (0..).zip([1, 3, 64, 600, 3, 600]) {
        compared_once(rank, &norm, (tokens, hidden), round)?;
    }
    Ok(())
}

fn compared_once(
    rank: &Rank,
    norm: &AddRmsNorm,
    (tokens, hidden): (usize, usize),
    round: u32,
) -> Result<(), Error> {
    let (form, stream, n) = (*norm.form(), &rank.stream, tokens * hidden);
    let (eps, given) = (1e-5f32, 0.02f32);
    let weight = |c: usize| 1.0 + ((c + round as usize) % 8) as f32 / 8.0;
    let bias = |c: usize| (c % 13) as f32 / 4.0 - 1.5;
    let upload = |values: Vec<f32>| DeviceTensor::from_slice(&narrow(values), stream);
    let of_columns = |of: &dyn Fn(usize) -> f32| upload((0..hidden).map(of).collect());
    let (x, residual) = (upload(data(rank.me, n, round))?, upload(data(9, n, round))?);
    let (weights, biases) = (of_columns(&weight)?, of_columns(&bias)?);
    let out = DeviceTensor::<u8>::zeros(n * form.out.bytes() as usize, stream)?;
    let (scales, beside) = (form.scales(hidden), upload(vec![0.0; n])?);
    let scale = rank.tensor(&vec![given; form.scale_elements(tokens, hidden).max(1)]);
    let operands = Operands {
        input: x.address(),
        residual: residual.address(),
        weight: weights.address(),
        out: out.address(),
        bias: form.layer.then(|| biases.address()),
        scale: (form.out != form.dtype).then(|| scale.address()),
        norm: form.both.then(|| beside.address()),
    };
    norm.prepare(tokens)?;
    // SAFETY: the tensors have the types and sizes of the form.
    unsafe { norm.run(rank.raw(), tokens, &operands, eps)? };

    let wide = |values: Vec<bf16>| values.into_iter().map(bf16::to_f64).collect::<Vec<_>>();
    let bytes = out.to_vec(stream)?;
    let got = Outputs {
        residual: wide(residual.to_vec(stream)?),
        out: match form.out {
            DType::E4M3 => bytes.into_iter().map(|byte| F8E4M3::from_bits(byte).to_f64()).collect(),
            _ => bytes.chunks(2).map(|two| bf16::from_le_bytes([two[0], two[1]]).to_f64()).collect(),
        },
        scale: {
            let (memory, at) =
                (rank.read(&scale), |i| form.scale_at((i / scales, i % scales), tokens, hidden));
            (0..tokens * scales).map(|i| memory[at(i)].into()).collect()
        },
        norm: if form.both { wide(beside.to_vec(stream)?) } else { Vec::new() },
    };
    let all: Vec<Vec<f32>> = [0, 1, 9].map(|of| data(of, n, round)).to_vec();
    let wanted = Inputs {
        form,
        n_pes: RANKS,
        tokens,
        hidden,
        eps: eps.into(),
        scale: given.into(),
        acc: DType::F32,
        x: &|pe, i| all[pe as usize][i].into(),
        residual: &|i| all[2][i].into(),
        weight: &|c| weight(c).into(),
        bias: &|c| bias(c).into(),
    };
    assert_eq!(wanted.wrong(&got), None, "{tokens} tokens of {form:?}");
    Ok(())
}

fn what_does_not_fit(rank: &Rank) -> Result<(), Error> {
    let x = rank.tensor(&[0.0; 64]);
    let limit = rank.comm.max_bytes() / 4;
    let takes = |n| rank.comm.should_all_reduce(n, DType::F32);
    assert!(takes(limit) && !takes(limit + 1));
    let large = rank.all_reduce(&rank.comm, x.address(), x.address(), limit + 1).unwrap_err();
    assert!(matches!(large, Error::TooLarge { .. }), "{large}");
    let odd = rank.all_reduce(&rank.comm, x.address() + 4, x.address() + 4, 4).unwrap_err();
    assert!(matches!(odd, Error::Unaligned { .. }), "{odd}");
    let groups = AddRmsNorm::with_form(&rank.comm, 1000, NormForm { group: 128, ..E4M3 }, 8).unwrap_err();
    assert!(groups.to_string().contains("R0507"), "{groups}");
    let own = NormForm { per_token: rank.me == 1, ..E4M3 };
    let differs = AddRmsNorm::with_form(&rank.comm, 64, own, 8).unwrap_err();
    assert!(
        differs.to_string().contains("PE 1 RMSNorm of bf16 in e4m3 with a scale for each token"),
        "{differs}"
    );
    let norm = AddRmsNorm::with_form(&rank.comm, 64, E4M3, 8)?;
    let at = x.address();
    let operands = Operands { input: at, residual: at, weight: at, out: at, ..Operands::default() };
    // SAFETY: an operand is missing, so nothing is launched.
    let missing = unsafe { norm.run(rank.raw(), 1, &operands, 1e-5) }.unwrap_err();
    assert!(missing.to_string().contains("`scale` is missing"), "{missing}");
    Ok(())
}

fn a_rank_that_dies(rank: &Rank) -> Result<(), Error> {
    rank.comm.barrier()?;
    if rank.me == 1 {
        std::process::exit(DIED.into());
    }
    let (began, e) = (Instant::now(), rank.comm.barrier().unwrap_err());
    assert!(e.to_string().contains("R0203"), "{e}");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    // The engine continues to run.
    let x = rank.tensor(&[1.0; 4]);
    assert_eq!(rank.read(&x), [1.0; 4]);
    Ok(())
}
