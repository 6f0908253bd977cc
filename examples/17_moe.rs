//! A layer of experts: each token goes to the PEs of its experts, is multiplied there, and comes back as the sum of its
//! experts' results times its gates. A reference implementation computes the same on the host.

use half::bf16;
use std::error::Error;
use std::process::ExitCode;
use weft::moe::{Moe, Plan, Problem, Routes};
use weft::runtime::{DType, DeviceTensor, World, on_every_pe};

/// The greatest number of tokens of a PE, the columns of a token and of a result, the experts of a
/// PE, and the experts of a token.
const TOKENS: usize = 40;
const HIDDEN: usize = 64;
const COLUMNS: usize = 72;
const LOCAL: usize = 3;
const CHOICES: usize = 2;

fn main() -> ExitCode {
    on_every_pe(moe)
}

pub(crate) fn moe(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, pes, stream) = (world.my_pe() as usize, world.n_pes() as usize, world.stream());
    let mut problem =
        Problem::new(TOKENS as u64, HIDDEN as u64, (LOCAL * pes) as u32, CHOICES as u32, DType::BF16);
    problem.columns = COLUMNS as u64;
    let layer = Moe::new(world, world.team(), problem, Plan { bn: 64, stages: 2, ..Plan::default() })?;

    // The PEs have different numbers of tokens; the host need not know those of other PEs.
    let mine = Tokens::of(me, pes);
    let x = DeviceTensor::<bf16>::zeros([TOKENS, HIDDEN], stream)?;
    let ids = DeviceTensor::<i32>::zeros([TOKENS, CHOICES], stream)?;
    let gates = DeviceTensor::<f32>::zeros([TOKENS, CHOICES], stream)?;
    let live = DeviceTensor::<i32>::zeros(1, stream)?;
    let b = DeviceTensor::<bf16>::zeros([LOCAL, COLUMNS, HIDDEN], stream)?;
    let out = DeviceTensor::<bf16>::zeros([TOKENS, COLUMNS], stream)?;
    x.copy_from(&mine.x, stream)?;
    ids.copy_from(&mine.ids, stream)?;
    gates.copy_from(&mine.gates, stream)?;
    live.copy_from(&[mine.live as i32], stream)?;
    let own: Vec<bf16> = (0..LOCAL).flat_map(|l| matrix(me * LOCAL + l)).collect();
    b.copy_from(&own, stream)?;

    let routes = Routes { ids: &ids, live: &live };
    for _ in 0..3 {
        layer.layer(stream, &x, &routes, &b, &gates, &out)?;
    }
    layer.check(stream)?;
    mine.compare(me, &out.to_vec(stream)?)?;

    // The same in two steps, between which a program may do something with `layer.results()`.
    out.copy_from(&[bf16::ZERO; TOKENS * COLUMNS], stream)?;
    layer.experts(stream, &x, &routes, &b)?;
    layer.combine(stream, &routes, &gates, &out)?;
    layer.check(stream)?;
    mine.compare(me, &out.to_vec(stream)?)?;
    println!("PE {me}: {} tokens, {} rows received", mine.live, layer.offsets().to_vec(stream)?[LOCAL]);
    Ok(())
}

/// The tokens of a PE and their routes.
struct Tokens {
    live: usize,
    x: Vec<bf16>,
    ids: Vec<i32>,
    gates: Vec<f32>,
}

impl Tokens {
    fn of(pe: usize, pes: usize) -> Tokens {
        Tokens {
            live: TOKENS.saturating_sub(7 * pe),
            x: (0..TOKENS * HIDDEN).map(|i| number(i * 5 + pe * 3)).collect(),
            ids: (0..TOKENS * CHOICES).map(|i| ((i * 7 + i / 3 + pe) % (LOCAL * pes)) as i32).collect(),
            gates: (0..TOKENS * CHOICES).map(|i| 0.25 + (i % 4) as f32 * 0.125).collect(),
        }
    }

    /// Compares the results of this PE with the reference.
    fn compare(&self, me: usize, found: &[bf16]) -> Result<(), Box<dyn Error>> {
        for (token, row) in found.chunks(COLUMNS).enumerate() {
            let want = if token < self.live { self.combined(token) } else { vec![0.0; COLUMNS] };
            if let Some(at) =
                (0..COLUMNS).find(|&j| (row[j].to_f64() - want[j]).abs() > 0.02 + 0.01 * want[j].abs())
            {
                return Err(format!(
                    "PE {me}, token {token}, column {at}: found {}, expected {}",
                    row[at], want[at]
                )
                .into());
            }
        }
        Ok(())
    }

    /// The reference result of a token, with each expert's result rounded to bf16 as the kernel
    /// stores it.
    fn combined(&self, token: usize) -> Vec<f64> {
        let mut sum = vec![0.0; COLUMNS];
        for c in 0..CHOICES {
            let at = token * CHOICES + c;
            let b = matrix(self.ids[at] as usize);
            for (j, row) in b.chunks(HIDDEN).enumerate() {
                let x = &self.x[token * HIDDEN..(token + 1) * HIDDEN];
                let product: f64 = x.iter().zip(row).map(|(x, b)| x.to_f64() * b.to_f64()).sum();
                sum[j] += f64::from(self.gates[at]) * bf16::from_f64(product).to_f64();
            }
        }
        sum
    }
}

/// The matrix (column of a result, column of a token) of an expert.
fn matrix(expert: usize) -> Vec<bf16> {
    (0..COLUMNS * HIDDEN).map(|i| number(i * 3 + expert * 11)).collect()
}

/// Numbers from -1 to 1.
fn number(i: usize) -> bf16 {
    bf16::from_f32((i % 17) as f32 / 8.0 - 1.0)
}
