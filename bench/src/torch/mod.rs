//! Peers that are called from Python, measured in the same run: PyTorch's symmetric memory, and the
//! kernels of inference engines that FlashInfer packs. Each PE has a Python process on its GPU,
//! which makes the calls in alternation with the other contenders and times them in the same way.

mod child;
pub mod norm;
pub mod product;

use super::check::{ROUNDS, agreed};
use super::data::Number;
use super::measure::{Harness, Outcome, Result};
use super::report::{Times, Wrong};
use super::times::{Blocks, Timed, times};
use super::{Bench, BenchError, Collective, Counts, Placement};
use child::Child;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;
use weft_runtime::{DType, Reduce, World, find};

/// The script that each PE's Python process runs.
const PEER: &str = concat!(include_str!("engines.py"), include_str!("peer.py"));

/// The script that reports whether a package is installed, and its version.
const LOOK: &str = "
import importlib.metadata, json, sys
name = sys.argv[1]
try: print(json.dumps({'version': importlib.metadata.version(name)}))
except importlib.metadata.PackageNotFoundError: print(json.dumps({'error': sys.executable + ' has no ' + name}))
";

/// The variable that names the Python interpreter, and the default.
const PYTHON: (&str, &str) = ("WEFT_PYTHON", "python3");
/// The time limit for loading PyTorch and connecting its PEs.
const START: Duration = Duration::from_secs(180);
/// The time limit for every later answer.
const ANSWER: Duration = Duration::from_secs(60);
/// The time limit for the first call of a kernel that FlashInfer compiles when it is first used.
const BUILD: Duration = Duration::from_secs(900);

/// A Python package with contenders.
struct Package {
    /// The name for users.
    title: &'static str,
    /// The name that pip knows.
    name: &'static str,
    /// The oldest supported version (major, minor).
    oldest: (u32, u32),
    /// Why older versions are not supported.
    lacks: &'static str,
    /// The types of which it has sums.
    dtypes: &'static [DType],
}

const TORCH: Package = Package {
    title: "PyTorch",
    name: "torch",
    oldest: (2, 9),
    lacks: "its events cannot be in a CUDA graph",
    dtypes: &[DType::F32, DType::BF16],
};

const FLASHINFER: Package = Package {
    title: "FlashInfer",
    name: "flashinfer-python",
    oldest: (0, 6),
    lacks: "it has no `create_allreduce_fusion_workspace`",
    dtypes: &[DType::F32, DType::BF16, DType::F16],
};

/// A function of `torch.ops.symm_mem`, or of FlashInfer.
pub struct Function {
    /// The contender that it belongs to, besides `torch`, which takes the fastest of PyTorch's
    /// functions.
    contender: &'static str,
    name: &'static str,
    collective: Collective,
    place: Placement,
    /// Whether it needs the switch.
    multicast: bool,
}

const fn function(
    contender: &'static str,
    name: &'static str,
    place: Placement,
    multicast: bool,
) -> Function {
    Function { contender, name, collective: Collective::AllReduce, place, multicast }
}

/// The contenders of PyTorch: the fastest of PyTorch's functions for a size, each algorithm of
/// PyTorch, and the kernels of inference engines.
pub const CONTENDERS: [&str; 6] =
    ["torch", "torch-one-shot", "torch-two-shot", "torch-multimem", "flashinfer", "vllm"];

const FUNCTIONS: [Function; 9] = [
    function("torch-one-shot", "one_shot_all_reduce_out", Placement::OutOfPlace, false),
    function("torch-two-shot", "two_shot_all_reduce_out", Placement::OutOfPlace, false),
    function("torch-two-shot", "two_shot_all_reduce_", Placement::InPlace, false),
    function("torch-multimem", "multimem_one_shot_all_reduce_out", Placement::OutOfPlace, true),
    function("torch-multimem", "multimem_all_reduce_", Placement::InPlace, true),
    Function {
        collective: Collective::ReduceScatter,
        ..function("torch-two-shot", "reduce_scatter_out", Placement::OutOfPlace, false)
    },
    function("flashinfer", "flashinfer_one_shot", Placement::OutOfPlace, false),
    function("flashinfer", "flashinfer_two_shot", Placement::OutOfPlace, false),
    function("vllm", "vllm_all_reduce", Placement::OutOfPlace, false),
];

/// The package that a contender comes from.
fn package(contender: &str) -> &'static Package {
    if contender.starts_with(TORCH.name) { &TORCH } else { &FLASHINFER }
}

/// The functions of a contender for a collective.
fn functions(contender: &str, collective: Collective) -> impl Iterator<Item = &'static Function> {
    let any = contender == CONTENDERS[0];
    let of = move |f: &&Function| {
        let named = contender == f.contender || any && package(f.contender).name == TORCH.name;
        f.collective == collective && named
    };
    FUNCTIONS.iter().filter(of)
}

/// Whether a contender has a collective with that placement of its results.
pub fn has(contender: &str, collective: Collective, place: Placement) -> bool {
    functions(contender, collective).any(|f| f.place == place)
}

/// Whether a contender has a collective for a type.
///
/// # Errors
/// Says why the contender does not have it.
pub fn can(
    contender: &str,
    collective: Collective,
    dtype: DType,
    op: Reduce,
) -> std::result::Result<(), String> {
    let Package { title, dtypes, .. } = package(contender);
    if functions(contender, collective).next().is_none() {
        return Err(format!("{title} does not support {collective} in shared memory: leave {contender} out"));
    }
    if op == Reduce::Sum && dtypes.contains(&dtype) {
        return Ok(());
    }
    let all: Vec<_> = dtypes.iter().map(|d| d.name()).collect();
    Err(format!(
        "{title} has only sums of {} in shared memory, not {} of {dtype}: leave {contender} out",
        all.join(", "),
        op.name()
    ))
}

/// The Python interpreter. It runs in `/`, so that Python does not import modules from the folder
/// in which this command runs, either as its current folder or by relative entries of `PYTHONPATH`.
fn python() -> Command {
    let name = std::env::var(PYTHON.0).unwrap_or_else(|_| PYTHON.1.into());
    let program = find::program(&name).unwrap_or_else(|| name.into());
    let mut command = Command::new(std::path::absolute(&program).unwrap_or(program));
    command.current_dir("/").env("PYTHONSAFEPATH", "1");
    command
}

/// Returns the version of PyTorch. Python is started only once in a process.
///
/// # Errors
///
/// Fails without Python or PyTorch, or if PyTorch is too old. The message says what to do.
pub fn installed() -> std::result::Result<&'static str, BenchError> {
    static VERSION: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    let version = VERSION.get_or_init(|| look(python(), &TORCH));
    version.as_deref().map_err(|why| BenchError::Request(why.clone()))
}

/// The version of FlashInfer, which needs PyTorch.
///
/// # Errors
///
/// Fails without Python, PyTorch or FlashInfer, or if one of them is too old. The message says what
/// to do.
pub fn flashinfer() -> std::result::Result<&'static str, BenchError> {
    static VERSION: OnceLock<std::result::Result<String, String>> = OnceLock::new();
    installed()?;
    let version = VERSION.get_or_init(|| look(python(), &FLASHINFER));
    version.as_deref().map_err(|why| BenchError::Request(why.clone()))
}

/// Checks that the package of a contender is installed.
///
/// # Errors
///
/// Fails where [`installed`] and [`flashinfer`] fail.
pub fn available(contender: &str) -> std::result::Result<(), BenchError> {
    if package(contender).name == TORCH.name { installed() } else { flashinfer() }.map(drop)
}

/// FlashInfer's version, if one of these Python contenders comes from it.
pub fn flashinfer_of<'a>(mut contenders: impl Iterator<Item = &'a str>) -> Option<String> {
    let any = contenders.any(|c| package(c).name == FLASHINFER.name);
    any.then(flashinfer)?.ok().map(str::to_owned)
}

fn look(mut interpreter: Command, package: &Package) -> std::result::Result<String, String> {
    let Package { title, name, oldest: (major, minor), lacks, .. } = package;
    let found = Child::start(title, interpreter.args(["-c", LOOK, name]))
        .and_then(|mut child| child.ask::<Started>(&(), ANSWER));
    let help = format!(
        "`pip install {name}` ({major}.{minor} or later), or name an interpreter that has it: {}=python3; or leave \
         {} out of --against",
        PYTHON.0,
        if *name == TORCH.name { "torch" } else { "flashinfer and vllm" }
    );
    let version = found.map_err(|why| format!("{why}; {help}"))?.version;
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    match (numbers.next(), numbers.next()) >= (Some(*major), Some(*minor)) {
        true => Ok(version),
        false => Err(format!("{title} {version} is too old: {lacks}; {help}")),
    }
}

/// A question; `peer.py` has a method for each.
#[derive(Serialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
enum Ask {
    Join {
        rank: u32,
        n_pes: u32,
        store: String,
        device: u32,
        dtype: &'static str,
        elements: u64,
        limit: u64,
        graph: bool,
    },
    Prepare {
        function: &'static str,
        send: u64,
        recv: u64,
        apart: bool,
    },
    Time(Blocks),
    Check {
        rounds: u32,
    },
    Multiply {
        function: &'static str,
        rows: u64,
        n: u64,
        k: u64,
        seeds: [u32; 2],
    },
    Arrange {
        calls: u32,
        before: u32,
    },
    Again {},
    Sample {
        whole: bool,
        places: Vec<(u64, u64)>,
    },
    Normalise(norm::Norm),
    Compare {
        rounds: u32,
    },
}

#[derive(Deserialize)]
struct Started {
    version: String,
    #[serde(default)]
    multicast: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Prepared {
    #[serde(rename = "first_us")]
    First(f64),
    Refused(String),
}

#[derive(Deserialize)]
struct Timings {
    us: Vec<f64>,
}

#[derive(Deserialize)]
struct Checked<W> {
    wrong: Option<W>,
}

#[derive(Deserialize)]
struct WrongElement {
    elements: u64,
    round: u32,
    index: u64,
    found: String,
    expected: String,
}

/// The PyTorch process of this PE.
pub struct Torch {
    child: RefCell<Child>,
    /// The version of PyTorch.
    pub version: String,
    multicast: bool,
    /// The folder of the file through which PyTorch's PEs connect, on PE 0. It is removed with the
    /// child.
    _meeting: Option<TempDir>,
}

/// Makes a folder that only this user may enter.
fn meeting_place() -> Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("weft-torch-").tempdir();
    folder.map_err(|e| {
        BenchError::Local(format!("cannot create the folder in which PyTorch's PEs find each other: {e}"))
    })
}

impl Torch {
    /// Starts PyTorch on every PE, with memory for `elements` elements of input and of output, and
    /// data up to `limit`. This call is *collective*.
    pub fn start(world: &World, bench: &Bench, elements: u64, limit: u64) -> Result<Torch> {
        Torch::with(world, (bench.dtype, bench.graph), (elements, limit), python())
    }

    fn with(
        world: &World,
        (dtype, graph): (DType, bool),
        (elements, limit): (u64, u64),
        mut python: Command,
    ) -> Result<Torch> {
        let (rank, n_pes) = (world.my_pe(), world.n_pes());
        let bytes = elements.saturating_mul(2 * dtype.bytes() as u64);
        let (_, memory) = world.device().memory()?;
        if bytes > memory as u64 {
            let message = format!("PyTorch's two tensors need {bytes} bytes, but the GPU has {memory}");
            return Err(BenchError::Request(message));
        }
        let name = format!("PyTorch of PE {rank}");
        let child = Child::start(&name, python.args(["-u", "-c", PEER]));
        let child = RefCell::new(child.map_err(BenchError::Local)?);
        let meeting = if rank == 0 { Some(meeting_place()?) } else { None };
        let path = meeting.as_ref().and_then(|folder| folder.path().to_str()).unwrap_or_default();
        let paths = world.all_gather_host(path.as_bytes())?;
        let store = paths.first().map(|path| format!("{}/store", String::from_utf8_lossy(path)));
        let join = Ask::Join {
            rank,
            n_pes,
            store: store.unwrap_or_default(),
            device: world.device().ordinal(),
            dtype: dtype.name(),
            elements,
            limit,
            graph,
        };
        let Started { version, multicast } = ask(&child, &join, START)?;
        world.wait_for_all()?;
        Ok(Torch { child, version, multicast, _meeting: meeting })
    }

    fn ask<A: DeserializeOwned>(&self, question: &Ask) -> Result<A> {
        ask(&self.child, question, ANSWER)
    }
}

fn ask<A: DeserializeOwned>(child: &RefCell<Child>, question: &Ask, within: Duration) -> Result<A> {
    child.borrow_mut().ask(question, within).map_err(BenchError::Local)
}

/// The microseconds of a first call, or why PyTorch rejects it on some PE. This call is
/// *collective*.
fn agreed_first(world: &World, answer: Prepared) -> Result<std::result::Result<f64, String>> {
    let (first_us, refused) = match answer {
        Prepared::First(us) => (us, String::new()),
        Prepared::Refused(why) => (0.0, why),
    };
    let all = world.all_gather_host(refused.as_bytes())?;
    let why = all.into_iter().find(|why| !why.is_empty());
    Ok(why.map_or(Ok(first_us), |why| Err(String::from_utf8_lossy(&why).into_owned())))
}

/// A function whose first call has been made.
struct PreparedCall<'a> {
    torch: &'a Torch,
    first_us: f64,
}

impl Timed for PreparedCall<'_> {
    fn first(&self) -> Result<f64> {
        Ok(self.first_us)
    }

    fn blocks(&self, blocks: Blocks) -> Result<Vec<f64>> {
        Ok(self.torch.ask::<Timings>(&Ask::Time(blocks))?.us)
    }
}

impl<T: Number> Harness<'_, T> {
    /// The fastest of the contender's functions, or why there is none. This call is *collective*.
    pub(super) fn by_torch(
        &self,
        contender: &str,
        (collective, place): (Collective, Placement),
        counts: &Counts,
    ) -> Result<std::result::Result<Outcome, String>> {
        let missing = || BenchError::Local("PyTorch was not started".into());
        let torch = self.torch.as_ref().ok_or_else(missing)?;
        let title = package(contender).title;
        let mut why =
            format!("{contender}: {title} does not support {collective} with results in this place");
        let mut best: Option<(Times, &Function)> = None;
        let mut last = None;
        for function in functions(contender, collective).filter(|f| f.place == place) {
            if function.multicast && !torch.multicast {
                why = format!("{contender}: PyTorch has no multicast address on this machine");
                continue;
            }
            last = Some(function.name);
            let called = match self.first_call(torch, function, counts)? {
                Ok(called) => called,
                Err(refused) => {
                    why = format!("{contender}: {refused}");
                    continue;
                }
            };
            let times = times(self.world, self.bench, &called)?;
            if best.as_ref().is_none_or(|(b, _)| times.warm.median < b.warm.median) {
                best = Some((times, function));
            }
        }
        let Some((times, function)) = best else { return Ok(Err(why)) };
        let mut checked = None;
        if self.bench.check {
            if last != Some(function.name)
                && let Err(refused) = self.first_call(torch, function, counts)?
            {
                return Err(BenchError::Local(refused));
            }
            let rounds = *ROUNDS.end();
            let Checked::<WrongElement> { wrong } = torch.ask(&Ask::Check { rounds })?;
            let wrong = wrong.map(|found| {
                let WrongElement { elements, round, index, found, expected } = found;
                let of = counts.recv * u64::from(self.world.n_pes()) * u64::from(rounds);
                Wrong { elements, of, pe: self.world.my_pe(), round, index, found, expected }
            });
            checked = Some(agreed(self.world, wrong)?);
        }
        Ok(Ok(Outcome { ctas: None, plan: Some(function.name.into()), times, checked }))
    }

    /// Makes the first call of a function, or says why PyTorch rejects it.
    fn first_call<'t>(
        &self,
        torch: &'t Torch,
        function: &Function,
        counts: &Counts,
    ) -> Result<std::result::Result<PreparedCall<'t>, String>> {
        let Counts { send, recv, .. } = *counts;
        let apart = function.place == Placement::OutOfPlace;
        let question = Ask::Prepare { function: function.name, send, recv, apart };
        let within = if package(function.contender).name == TORCH.name { ANSWER } else { BUILD };
        let answer = ask(&torch.child, &question, within)?;
        Ok(agreed_first(self.world, answer)?.map(|first_us| PreparedCall { torch, first_us }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_str, to_value};

    #[test]
    fn pytorch_is_looked_for_before_anything_is_measured() {
        let of = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            look(shell, &TORCH)
        };
        assert_eq!(of(r#"echo '{"version": "2.11.0+cu130"}'"#).unwrap(), "2.11.0+cu130");
        for (script, what) in [
            (r#"echo '{"version": "2.8.1"}'"#, "PyTorch 2.8.1 is too old"),
            (r#"echo '{"version": "dev"}'"#, "PyTorch dev is too old"),
            (
                r#"echo '{"error": "/usr/bin/python3 has no torch"}'"#,
                "PyTorch: /usr/bin/python3 has no torch",
            ),
            ("echo broken >&2; exit 2", "PyTorch ended (exit status: 2); its last output:\nbroken"),
        ] {
            let why = of(script).unwrap_err();
            assert!(why.starts_with(what), "{why}");
            assert!(why.contains("WEFT_PYTHON=python3") && why.contains("leave torch out"), "{why}");
        }
        let why = look(Command::new("/nowhere/python3"), &TORCH).unwrap_err();
        assert!(why.starts_with("PyTorch: cannot start /nowhere/python3: No such file"), "{why}");
        let mut shell = Command::new("sh");
        shell.args(["-c", r#"echo '{"version": "0.5.3"}'"#]);
        let why = look(shell, &FLASHINFER).unwrap_err();
        assert!(
            why.starts_with("FlashInfer 0.5.3 is too old") && why.contains("leave flashinfer and vllm out")
        );
    }

    #[test]
    fn the_fastest_is_of_all_functions_that_fit() {
        let names = |contender, collective, place| -> Vec<&str> {
            functions(contender, collective).filter(|f| f.place == place).map(|f| f.name).collect()
        };
        use Collective::{AllGather, AllReduce, ReduceScatter};
        assert_eq!(
            names("torch", AllReduce, Placement::InPlace),
            ["two_shot_all_reduce_", "multimem_all_reduce_"]
        );
        assert_eq!(names("torch-one-shot", AllReduce, Placement::OutOfPlace), ["one_shot_all_reduce_out"]);
        assert_eq!(names("torch", ReduceScatter, Placement::OutOfPlace), ["reduce_scatter_out"]);
        assert_eq!(names("torch", AllReduce, Placement::OutOfPlace).len(), 3);
        assert_eq!(
            names("flashinfer", AllReduce, Placement::OutOfPlace),
            ["flashinfer_one_shot", "flashinfer_two_shot"]
        );
        assert_eq!(names("vllm", AllReduce, Placement::OutOfPlace), ["vllm_all_reduce"]);
        assert!(
            !has("torch-one-shot", AllReduce, Placement::InPlace)
                && has("torch", AllReduce, Placement::InPlace)
        );
        let why = |name, collective, dtype, op| can(name, collective, dtype, op).unwrap_err();
        assert!(why("torch", AllGather, DType::F32, Reduce::Sum).contains("does not support allgather"));
        assert!(
            why("torch", AllReduce, DType::F16, Reduce::Sum).ends_with("not sum of f16: leave torch out")
        );
        assert!(why("torch", AllReduce, DType::F32, Reduce::Max).contains("not max of f32"));
        assert_eq!(can("torch-two-shot", ReduceScatter, DType::BF16, Reduce::Sum), Ok(()));
        assert_eq!(can("vllm", AllReduce, DType::F16, Reduce::Sum), Ok(()));
        let whole = why("flashinfer", AllReduce, DType::I32, Reduce::Sum);
        assert!(whole.contains("FlashInfer has only sums of f32, bf16, f16"), "{whole}");
    }

    /// The questions and answers in the form that `peer.py` reads and writes.
    #[test]
    fn questions_and_answers() {
        let blocks = Blocks { calls: 3, before: 1, blocks: 2, cold: true };
        let time = serde_json::json!({"ask": "time", "calls": 3, "before": 1, "blocks": 2, "cold": true});
        assert_eq!(to_value(Ask::Time(blocks)).unwrap(), time);
        assert!(matches!(from_str(r#"{"first_us": 2.5}"#), Ok(Prepared::First(2.5))));
        assert!(matches!(from_str(r#"{"refused": "no"}"#), Ok(Prepared::Refused(why)) if why == "no"));
        let none: Checked<WrongElement> = from_str(r#"{"wrong": null}"#).unwrap();
        assert!(none.wrong.is_none());
        let methods = ["join", "prepare", "time", "check", "multiply", "arrange", "again", "sample"];
        for method in methods.into_iter().chain(["normalise", "compare"]) {
            assert!(PEER.contains(&format!("def {method}(self, ask):")), "{method}");
        }
        for f in &FUNCTIONS {
            let call = if package(f.contender).name == TORCH.name { "lambda" } else { f.contender };
            assert!(PEER.contains(&format!("\"{}\": {call}", f.name)), "{}", f.name);
        }
    }
}
