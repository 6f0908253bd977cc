//! Allreduce, residual add and RMSNorm in one kernel, compared with an allreduce followed by a
//! separate kernel.

mod measure;
mod predict;
mod reference;
mod report;
mod tune;

pub use predict::predict;
pub use reference::{Inputs, MIN_SCALE, Outputs, Wrong};
pub use report::{Report, Row};
pub use tune::{candidates, tune};
pub use weft::fused::{Exchange, Form, Fused, Plan, Shape, Workspace};

use super::contender::pick;
use super::torch::{self, norm::Norm};
use super::{BenchError, usable};
use std::fmt;
use weft::Lowering;
use weft_ir::Scalar;
use weft_runtime::World;

/// Receives the rows of each number of tokens when they are measured.
type ProgressSink<'a> = &'a mut dyn FnMut(&Report, &[Row]) -> std::io::Result<()>;

/// An implementation that is measured.
#[derive(Clone, Copy, Debug)]
pub enum Contender {
    /// One kernel that does all of the work.
    Fused(&'static Fused),
    /// A kernel that spreads rows, with a given split.
    Spread(&'static Fused, RowSplit),
    /// The kernel that [`Plan::choose`] expects to be the fastest.
    Auto,
    /// The allreduce of warpweft, and its norm kernel.
    Separate,
    /// NCCL's allreduce, and the norm kernel of warpweft.
    Nccl,
    /// NCCL's allreduce over registered windows, and the norm kernel of warpweft.
    NcclSymm,
    /// FlashInfer's kernel, which comes from TensorRT-LLM.
    FlashInfer,
}

/// How a kernel spreads rows over CTAs and sends them.
#[derive(Clone, Copy, Debug)]
pub struct RowSplit {
    /// The number of CTAs that share a row.
    pub ctas: u32,
    /// The number of threads of a CTA.
    pub threads: u32,
    /// Whether the kernel begins only after the previous launch has ended.
    pub late: bool,
    /// Whether packets carry flags.
    pub flags: bool,
}

impl RowSplit {
    /// The given numbers of CTAs for each row and of threads for each CTA.
    pub fn of(ctas: u32, threads: u32) -> RowSplit {
        RowSplit { ctas, threads, late: false, flags: false }
    }

    /// Reads `8x128`, `8x128:late`, `8x128:flags` and so on.
    fn read(text: &str) -> Option<RowSplit> {
        let mut words = text.split(':');
        let number = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0);
        let (ctas, threads) = words.next()?.split_once('x')?;
        let mut found = RowSplit::of(number(ctas)?, number(threads)?);
        for word in words {
            match word {
                "late" => found.late = true,
                "flags" => found.flags = true,
                _ => return None,
            }
        }
        Some(found)
    }

    /// Whether kernels can be launched with these CTAs and threads.
    fn fits(&self) -> bool {
        let RowSplit { ctas, threads, .. } = *self;
        let all = u64::from(ctas) * u64::from(threads);
        ctas.is_power_of_two() && ctas <= Plan::MAX_SPLIT && threads.is_multiple_of(32) && all <= 1024
    }

    /// The plan of a kernel for `tokens` rows of `row_bytes` bytes on a GPU with `sms`
    /// multiprocessors.
    fn plan(&self, kernel: &'static Fused, tokens: u32, row_bytes: usize, sms: u32) -> Plan {
        let plan = Plan::spread(kernel, tokens, row_bytes, sms, (self.ctas, Some(self.threads)));
        Plan { early: !self.late, flags: self.flags, ..plan }
    }
}

impl fmt::Display for RowSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RowSplit { ctas, threads, late, flags } = self;
        let word = |on: &bool, word: &'static str| if *on { word } else { "" };
        write!(f, "{ctas}x{threads}{}{}", word(late, ":late"), word(flags, ":flags"))
    }
}

impl Contender {
    /// The peers that a list of names means.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &PEERS, "peer", "")
    }

    /// The contenders of warpweft that a list of names means: a kernel; `one_flight:8x128` for 8
    /// CTAs of 128 threads for each row; `one_flight:8x128:late` for a kernel that starts only
    /// after the previous launch has ended; `one_flight:8x128:flags` for packets with flags; `auto`;
    /// and `separate` for an allreduce followed by a norm kernel.
    ///
    /// # Errors
    ///
    /// Fails for an unknown name. The message lists the known names.
    pub fn ours(names: &str) -> Result<Vec<Contender>, String> {
        names.split(',').map(Contender::of).collect()
    }

    fn of(name: &str) -> Result<Contender, String> {
        let (kernel, shape) = name.split_once(':').map_or((name, None), |(k, s)| (k, Some(s)));
        let found = Fused::ALL.iter().find(|k| k.name == kernel);
        match (found, kernel, shape) {
            (Some(kernel), _, None) => Ok(Contender::Fused(kernel)),
            (None, "auto", None) => Ok(Contender::Auto),
            (None, "separate", None) => Ok(Contender::Separate),
            (Some(kernel), _, Some(shape)) if kernel.spreads() => match RowSplit::read(shape) {
                Some(split) if split.fits() => Ok(Contender::Spread(kernel, split)),
                Some(_) => Err(format!(
                    "`{name}` cannot run: a row has 1, 2, 4 or {} CTAs of whole warps, with at most 1024 threads in all",
                    Plan::MAX_SPLIT
                )),
                None => Err(format!(
                    "`{name}` is not a variant: expected CTAs and threads, as in {}:8x128",
                    kernel.name
                )),
            },
            _ => {
                let known: Vec<_> = Fused::ALL.iter().map(|k| k.name).chain(["auto", "separate"]).collect();
                Err(format!("`{name}` is not a known variant: expected {}", known.join(", ")))
            }
        }
    }

    /// Whether the contender computes a form. The separate norm kernel supports neither LayerNorm
    /// nor scales for groups.
    pub fn computes(self, form: &Form) -> bool {
        match self {
            Contender::Fused(kernel) | Contender::Spread(kernel, ..) => form.fits(kernel),
            Contender::FlashInfer => Norm::form(form).is_some(),
            Contender::Auto => true,
            _ => form.reads_whole_rows(),
        }
    }

    /// Whether the contender is one kernel of warpweft.
    pub fn is_kernel(&self) -> bool {
        matches!(self, Contender::Fused(_) | Contender::Spread(..) | Contender::Auto)
    }

    /// The launch plan of a kernel on a GPU with `sms` multiprocessors, where `split` CTAs share a row
    /// in `low_latency` and `chosen` plans for `auto`. Other contenders have none.
    fn plan(
        self,
        shape: &Shape,
        sms: u32,
        split: Option<u32>,
        chosen: impl Fn(&Shape) -> Plan,
    ) -> Option<Plan> {
        let Shape { tokens, row_bytes, multicast, .. } = *shape;
        let plan = match (self, split) {
            (Contender::Fused(kernel), Some(split)) => Plan::with(kernel, tokens, row_bytes, sms, split),
            (Contender::Spread(kernel, split), _) => split.plan(kernel, tokens, row_bytes, sms),
            (Contender::Fused(kernel), None) => Plan::of(kernel, tokens, row_bytes, sms),
            (Contender::Auto, _) => chosen(shape),
            _ => return None,
        };
        Some(Plan { switch: plan.kernel.packets() && multicast, ..plan })
    }

    /// The contender's name in the table.
    pub fn name(self) -> String {
        match self {
            Contender::Fused(kernel) => kernel.name.into(),
            Contender::Spread(kernel, split) => format!("{}:{split}", kernel.name),
            Contender::Auto => "auto".into(),
            Contender::Separate => "allreduce+norm".into(),
            Contender::Nccl => "nccl+norm".into(),
            Contender::NcclSymm => "nccl-symm+norm".into(),
            Contender::FlashInfer => "flashinfer".into(),
        }
    }
}

/// The peers, with their names on the command line.
const PEERS: [(&str, Contender); 3] =
    [("nccl", Contender::Nccl), ("nccl-symm", Contender::NcclSymm), ("flashinfer", Contender::FlashInfer)];

/// A form of the result, with its name on the command line.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// The name that the option takes for a form of results.
    pub name: &'static str,
    /// Whether the result is in e4m3.
    pub quantised: bool,
    /// Whether each token has its own scale.
    pub per_token: bool,
    /// The number of elements that share a scale, or 0.
    pub group: u32,
}

impl Output {
    const fn new(name: &'static str, quantised: bool, per_token: bool, group: u32) -> Output {
        Output { name, quantised, per_token, group }
    }
}

/// The forms of the result.
pub const OUTPUTS: [Output; 5] = [
    Output::new("bf16", false, false, 0),
    Output::new("f16", false, false, 0),
    Output::new("e4m3", true, false, 0),
    Output::new("e4m3-per-token", true, true, 0),
    Output::new("e4m3-groups", true, false, 128),
];

/// The measurements to make, with their options.
#[derive(Clone, Debug)]
pub struct Request {
    /// The numbers of tokens, one for each row.
    pub tokens: Vec<u32>,
    /// The number of elements of a row.
    pub hidden: u32,
    /// The element types and the outputs.
    pub form: Form,
    /// The contenders for each number of tokens.
    pub contenders: Vec<Contender>,
    /// The number of back-to-back calls in a timed block.
    pub iters: u32,
    /// The number of calls before the first block.
    pub warmup: u32,
    /// The number of blocks of calls.
    pub repeats: u32,
    /// The number of CTAs that share a row in `low_latency`; chosen by the number of tokens if not
    /// given.
    pub split: Option<u32>,
    /// How warpweft's kernels lower in-switch operations.
    pub lowering: Lowering,
    /// Whether a block is captured into a CUDA graph and replayed.
    pub graph: bool,
    /// Whether results are compared with the reference.
    pub check: bool,
}

impl Request {
    /// A request for all of warpweft's kernels, with bf16 results.
    pub fn new(tokens: Vec<u32>, hidden: u32) -> Request {
        let fused = Fused::ALL.iter().map(Contender::Fused);
        Request {
            tokens,
            hidden,
            form: Form::plain(Scalar::BF16),
            contenders: fused.chain([Contender::Auto, Contender::Separate]).collect(),
            iters: 20,
            warmup: 5,
            repeats: 10,
            split: None,
            lowering: Lowering::Auto,
            graph: false,
            check: false,
        }
    }

    /// Checks everything that can be checked before a GPU is used.
    ///
    /// # Errors
    ///
    /// Says what is wrong and what was expected.
    pub fn examine(&self) -> Result<(), BenchError> {
        let wrong = if self.tokens.is_empty() || self.tokens.contains(&0) || self.hidden == 0 {
            "tokens and the hidden size must be at least 1".to_owned()
        } else if let Err(e) = self.form.check(self.hidden as usize) {
            return Err(e.into());
        } else if let Some(other) = self.contenders.iter().find(|c| !c.computes(&self.form)) {
            format!("{} supports neither LayerNorm nor group scales", other.name())
        } else if self.iters == 0 || self.warmup == 0 || self.repeats == 0 {
            "iterations, warm-up and repeats must be at least 1".to_owned()
        } else if self.split.is_some_and(|n| !n.is_power_of_two() || n > Plan::MAX_SPLIT) {
            format!("the number of CTAs that share a row must be 1, 2, 4 or {}", Plan::MAX_SPLIT)
        } else if self.split.is_some_and(|n| n > 1) && self.hidden as usize * 2 > Plan::MAX_SHARED {
            format!(
                "CTAs can share only rows of at most {} bytes: expected 1 CTA for each row",
                Plan::MAX_SHARED
            )
        } else if self.contenders.iter().any(|c| matches!(c, Contender::FlashInfer)) {
            return usable(torch::flashinfer());
        } else {
            return Ok(());
        };
        Err(BenchError::Request(wrong))
    }
}

/// Measures on every PE of the world, all of which call it with the same request. `done` gets the
/// rows of each number of tokens when they are measured, on every PE. This call is *collective*.
///
/// # Errors
///
/// Fails where [`Request::examine`] fails, if a kernel does not compile, if NCCL is not found, or
/// if there is not enough memory (R0302). Wrong results are not errors: the rows report them.
pub fn run(world: &World, request: &Request, done: ProgressSink<'_>) -> Result<Report, BenchError> {
    measure::run(world, request, done)
}
