//! The command `weft doctor`.

use super::write_out;
use anyhow::Result;
use clap::Args;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use weft::collective::tuning::Tables;
use weft::nvshmem::{Library, NvshmemError};
use weft::tools::{Tool, ToolError};
use weft_runtime::find::Found;
use weft_runtime::jitlink::JitLink;
use weft_runtime::machine::{self, Driver, Gpu, Link};
use weft_runtime::nvshmem::version::{self, Version};
use weft_runtime::owned::{self, Trust};
use weft_runtime::{Error, error, find};
use weft_runtime::{cublas, nccl};

use super::progress::Spinner;

/// Examine this machine and show what each part is good for. The exit status is 1 if something is
/// broken. Missing parts only get a note.
#[derive(Args)]
pub struct Doctor {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The part whose table is always shown.
const LINKS: &str = "links";

/// The state of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    /// The part is missing or restricted, and everything else works.
    Note,
    Broken,
}

/// A part of the machine.
#[derive(Serialize)]
struct Finding {
    part: String,
    state: State,
    /// The text that says what was found.
    found: String,
    /// The path at which it was found.
    path: Option<PathBuf>,
    /// What the finding means to the user.
    means: String,
    /// What the user can do. It is empty if nothing needs to be done.
    todo: String,
    /// More lines, such as a table or the places that were searched.
    details: Vec<String>,
}

fn ok(part: impl Into<String>, found: impl Into<String>, means: &str) -> Finding {
    Finding::new(State::Ok, part.into(), found.into(), means)
}

fn note(part: impl Into<String>, found: impl Into<String>, means: &str) -> Finding {
    Finding::new(State::Note, part.into(), found.into(), means)
}

fn broken(part: impl Into<String>, found: impl Into<String>, means: &str) -> Finding {
    Finding::new(State::Broken, part.into(), found.into(), means)
}

impl Finding {
    fn new(state: State, part: String, found: String, means: &str) -> Finding {
        let means = means.into();
        Finding { part, state, found, path: None, means, todo: String::new(), details: Vec::new() }
    }

    fn at(mut self, path: &Path) -> Finding {
        self.path = Some(path.to_owned());
        self
    }

    fn todo(mut self, todo: impl Into<String>) -> Finding {
        self.todo = todo.into();
        self
    }

    /// Makes a finding of an error: its first line, its help, and its further lines as details.
    fn failed(state: State, part: &str, error: &str, means: &str) -> Finding {
        let (message, help) = error.split_once("\n  help: ").unwrap_or((error, ""));
        let mut lines = message.lines();
        let found = lines.next().unwrap_or_default().trim_end_matches("; searched:");
        let mut finding =
            Finding::new(state, part.into(), found.into(), means).todo(help.replace("\n        ", "\n"));
        finding.details = lines.map(|line| line.trim().to_owned()).collect();
        finding
    }
}

#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// Whether nothing is broken.
    works: bool,
    findings: Vec<Finding>,
    driver: Option<Driver>,
}

impl Doctor {
    pub fn run(&self) -> Result<ExitCode> {
        let examining = Spinner::new("examining this machine");
        let report = examine();
        drop(examining);
        let text = match self.json {
            true => serde_json::to_string_pretty(&report)? + "\n",
            false => report.text(super::verbosity::verbose(), std::io::stdout().is_terminal()),
        };
        write_out(None, text.as_bytes())?;
        Ok(if report.works { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn examine() -> Report {
    let mut findings = vec![
        compiler(),
        tool(Tool::Ptxas, "`--emit cubin`"),
        tool(Tool::Nvdisasm, "`--emit sass`"),
        linker(),
    ];
    let driver = machine::driver();
    findings.extend(gpus(&driver));
    let driver = driver.ok();
    let capability = driver.iter().flat_map(|d| &d.gpus).map(|gpu| gpu.compute_capability).next();
    findings.extend(libraries(capability.map_or(90, |(major, minor)| major * 10 + minor)));
    findings.extend([nccl(), cublas_lt(), launcher(), cache()]);
    findings.push(tuning(driver.as_ref()));
    let works = findings.iter().all(|finding| finding.state != State::Broken);
    Report { version: env!("CARGO_PKG_VERSION"), works, findings, driver }
}

/// Tests LLVM by compiling a kernel to PTX.
fn compiler() -> Finding {
    const KERNEL: &str = "kernel probe(x: global<f32, (1000):(1)>) block(128) {
        let mine = partition(x, threads());
        for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * 2; }
    }";
    let (major, minor, patch) = match weft_llvm::version() {
        Ok(version) => version,
        Err(e) => {
            let finding = Finding::failed(State::Broken, "LLVM", &e.message, "kernels do not compile");
            return finding.todo(e.help.as_deref().unwrap_or("set WEFT_LLVM to the path of a libLLVM"));
        }
    };
    let place = weft_llvm::library().map_or("built in".into(), |path| path.display().to_string());
    let found = format!("{major}.{minor}.{patch}, {place}");
    let compiled = "sm_90a"
        .parse()
        .map_err(|e| format!("{e}"))
        .and_then(|target| weft::compile(KERNEL, &[], target).map_err(|e| e.to_string()));
    match compiled {
        Ok(_) => ok("LLVM", found, "kernels compile to PTX; `weft run` simulates any number of PEs"),
        Err(e) => Finding::failed(State::Broken, "LLVM", &format!("{found}: {e}"), "kernels do not compile")
            .todo("report it, with the output of `weft doctor --json`"),
    }
}

fn tool(tool: Tool, what_for: &str) -> Finding {
    let located = match tool.locate() {
        Ok(located) => located,
        Err(e) => {
            let state = if matches!(e, ToolError::NotFound { .. }) { State::Note } else { State::Broken };
            return Finding::failed(
                state,
                tool.name(),
                &e.to_string(),
                &format!("{what_for} is not possible; everything else works without it"),
            );
        }
    };
    let said = Command::new(&located.path).arg("--version").output();
    let said = said.ok().filter(|out| out.status.success());
    let version = said.and_then(|out| {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.split_whitespace().rev().find_map(|word| Some(word.strip_prefix('V')?.to_owned()))
    });
    let finding = match version {
        Some(version) => {
            ok(tool.name(), format!("{version}, from {}", located.by), &format!("{what_for} works"))
        }
        None => {
            let found = format!("from {}: it does not run, or does not print its version", located.by);
            let todo =
                format!("`weft setup --force` fetches a working one, if {} is not set", tool.variable());
            broken(
                tool.name(),
                found,
                &format!("{what_for} is not possible; everything else works without it"),
            )
            .todo(todo)
        }
    };
    finding.at(&located.path)
}

/// Looks for the library that links kernels with NVSHMEM functions.
fn linker() -> Finding {
    match JitLink::get() {
        Ok(linker) => {
            let (major, minor) = linker.version();
            let found = format!("{major}.{minor}, from {}", linker.found().by);
            ok("nvJitLink", found, "kernels that call NVSHMEM functions are linked with them in the process")
                .at(&linker.found().path)
        }
        Err(e) => {
            let state =
                if std::env::var_os("WEFT_NVJITLINK").is_some() { State::Broken } else { State::Note };
            const MEANS: &str =
                "kernels that call NVSHMEM functions are linked with ptxas and nvlink, which takes longer";
            Finding::failed(state, "nvJitLink", &plain(&e), MEANS)
        }
    }
}

fn nccl() -> Finding {
    match nccl::installed() {
        Ok((version, path)) => {
            ok("NCCL", version.to_string(), "`weft bench --against nccl` compares with it").at(path)
        }
        Err(e) => {
            const MEANS: &str = "`weft bench` cannot compare with it; everything else works without it";
            Finding::failed(State::Note, "NCCL", &plain(&e), MEANS)
        }
    }
}

fn cublas_lt() -> Finding {
    match cublas::installed() {
        Ok((version, path)) => {
            const MEANS: &str = "`weft bench gemm --against cublas` compares with it";
            ok("cuBLASLt", version.to_string(), MEANS).at(path)
        }
        Err(e) => {
            const MEANS: &str = "`weft bench gemm` cannot compare with it; everything else works without it";
            Finding::failed(State::Note, "cuBLASLt", &plain(&e), MEANS)
        }
    }
}

fn gpus(driver: &weft_runtime::Result<Driver>) -> Vec<Finding> {
    let driver = match driver {
        Ok(driver) => driver,
        Err(e) => {
            const NONE: &str = "kernels cannot run on a GPU on this machine, but the simulator runs them all";
            let there = machine::has_libcuda();
            let state = if there { State::Broken } else { State::Note };
            let mut finding = Finding::failed(state, "CUDA driver", &plain(e), NONE);
            if !there {
                let searched = std::mem::replace(&mut finding.found, "not found".into());
                finding.details.push(searched);
            }
            return vec![finding];
        }
    };
    let (major, minor) = driver.cuda;
    let version = driver.version.as_deref().map(|v| format!("{v}, ")).unwrap_or_default();
    let means = match driver.gpus.len() {
        0 => "the driver is installed, but no GPU is visible to this process",
        _ => "kernels are loaded as PTX, which the driver compiles for its GPUs",
    };
    let state = if driver.gpus.is_empty() { State::Note } else { State::Ok };
    let mut first =
        Finding::new(state, "CUDA driver".into(), format!("{version}CUDA {major}.{minor}"), means);
    if driver.gpus.is_empty() {
        first.todo = match std::env::var("CUDA_VISIBLE_DEVICES") {
            Ok(which) => format!("CUDA_VISIBLE_DEVICES is `{which}`: unset it, or name GPUs that exist"),
            Err(_) => {
                "check the output of `nvidia-smi`; in a container, make the GPUs available (docker run --gpus all)".into()
            }
        };
        return vec![first];
    }
    let mut out = vec![first];
    out.extend(driver.gpus.iter().enumerate().map(gpu));
    out.push(links(&driver.gpus));
    out.push(multicast(&driver.gpus));
    out
}

fn gpu((ordinal, gpu): (usize, &Gpu)) -> Finding {
    let ((major, minor), gib) = (gpu.compute_capability, gpu.memory >> 30);
    let found = format!(
        "{}, compute capability {major}.{minor}, {gib} GiB, {} SMs, PCI {}",
        gpu.name, gpu.multiprocessors, gpu.pci
    );
    match gpu.compute_capability >= (9, 0) {
        true => ok(format!("GPU {ordinal}"), found, "a PE can run on this GPU"),
        false => {
            note(format!("GPU {ordinal}"), found, "warpweft compiles for compute capability 9.0 and later")
                .todo("hide it with CUDA_VISIBLE_DEVICES, so that no PE gets it")
        }
    }
}

/// The peer access matrix.
fn links(gpus: &[Gpu]) -> Finding {
    let pairs = gpus.iter().flat_map(|gpu| gpu.links.iter().copied().filter(|link| *link != Link::Own));
    let kinds: Vec<Link> = pairs.collect();
    let all = |link| kinds.iter().all(|kind| *kind == link);
    let mut finding = match () {
        () if gpus.len() == 1 => {
            return ok(LINKS, "one GPU", "this machine has one GPU, so there are no peers");
        }
        () if all(Link::NvLink) => ok(LINKS, "NVLink between all GPUs", "every PE's loads, stores and atomics reach every peer's memory"),
        () if !kinds.contains(&Link::None) => note(LINKS, "peer access between all GPUs, partly over PCIe", "loads and stores reach every peer, but over PCIe they are slow, and atomics are emulated"),
        () => note(LINKS, "some GPUs cannot access each other", "kernels that address a peer's memory cannot use these GPUs in one team; put and get still work")
            .todo("with CUDA_VISIBLE_DEVICES, choose GPUs that can access each other; IOMMU and ACS settings can block peer access"),
    };
    let label = |n: usize| format!("GPU {n}");
    let heads: String = (0..gpus.len()).map(|n| format!("{:>8}", label(n))).collect();
    finding.details.push(format!("{:8}{heads}  NVLinks up", ""));
    for (n, gpu) in gpus.iter().enumerate() {
        let cells: String = gpu.links.iter().map(|link| format!("{:>8}", link.name())).collect();
        let up = gpu.nvlinks.map_or("unknown: NVML was not found".into(), |n| n.to_string());
        finding.details.push(format!("{:8}{cells}  {up}", label(n)));
    }
    finding
}

/// Reports the multicast support that the devices state. It does not try multicast.
fn multicast(gpus: &[Gpu]) -> Finding {
    let able = gpus.iter().filter(|gpu| gpu.multicast).count();
    let unicast = "in-switch operations become loads and stores on each peer (unicast)";
    match (able == gpus.len(), machine::nvls_disabled()) {
        (true, false) => ok(
            "multicast",
            "supported by every GPU",
            "teams of PEs on this machine get multicast addresses, and kernels use the switch",
        ),
        (true, true) => {
            note("multicast", "supported by every GPU, but disabled by NVSHMEM_DISABLE_NVLS", unicast)
                .todo("unset NVSHMEM_DISABLE_NVLS to use the switch, unless it was set for a reason")
        }
        (false, _) => note("multicast", format!("supported by {able} of {} GPUs", gpus.len()), unicast),
    }
}

/// A half of NVSHMEM that was found: the host library, or the device bitcode.
struct Half {
    found: Found,
    version: Version,
}

/// Finds the host library of NVSHMEM and reads its version.
fn host() -> Result<Half, NvshmemError> {
    let found = find::nvshmem_host()?;
    let version = version::host_version(&found.path)?;
    Ok(Half { found, version })
}

/// Looks for the two halves of NVSHMEM and compares their versions.
fn libraries(sm: u32) -> Vec<Finding> {
    const HOST: &str = "NVSHMEM host";
    const DEVICE: &str = "NVSHMEM device";
    const MISMATCH: &str = "kernels that call NVSHMEM would misread structures of another version";
    const NONE: &str = "PEs on GPUs cannot share memory; the simulator works without NVSHMEM";
    let host = host();
    let device = Library::find(sm).map(|library| Half { found: library.found, version: library.version });
    let first = match &host {
        Ok(half) => match version::check_supported(half.version, &half.found.path) {
            Ok(()) => is_there(State::Ok, HOST, half, "PEs share symmetric memory on GPUs"),
            Err(e) => Finding::failed(State::Broken, HOST, &plain(&e), NONE).at(&half.found.path),
        },
        Err(e) => Finding::failed(state_of(e), HOST, &plain_nvshmem(e), NONE),
    };
    let second = match (&host, &device) {
        (Ok(host), Ok(half)) => {
            match version::check((host.version, &host.found.path), (half.version, &half.found.path)) {
                Ok(()) => is_there(State::Ok, DEVICE, half, "the version matches the host library"),
                // The first finding already reports this error.
                Err(_) if first.state == State::Broken => return vec![first],
                Err(e) => Finding::failed(State::Broken, DEVICE, &plain(&e), MISMATCH),
            }
        }
        (Err(_), Ok(half)) => {
            is_there(State::Note, DEVICE, half, "it cannot be used without the host library")
        }
        // The first finding already reports this error.
        (Err(NvshmemError::Runtime(a)), Err(NvshmemError::Runtime(b))) if a.code == b.code => {
            return vec![first];
        }
        (_, Err(e)) => Finding::failed(
            state_of(e),
            DEVICE,
            &plain_nvshmem(e),
            "kernels that call NVSHMEM functions cannot be linked; other kernels run",
        ),
    };
    vec![first, second]
}

fn is_there(state: State, part: &str, half: &Half, means: &str) -> Finding {
    Finding::new(state, part.into(), format!("{}, from {}", half.version, half.found.by), means)
        .at(&half.found.path)
}

/// The state for an error: a missing part is not a fault, unless a variable names it.
fn state_of(e: &NvshmemError) -> State {
    let missing = matches!(e, NvshmemError::Runtime(e) if e.code == error::NO_NVSHMEM);
    let named = ["WEFT_NVSHMEM", "NVSHMEM_HOME"]
        .iter()
        .any(|var| std::env::var_os(var).is_some_and(|v| !v.is_empty()));
    if missing && !named { State::Note } else { State::Broken }
}

/// An error without its code's prefix, for a table.
fn plain(e: &Error) -> String {
    match e.help.is_empty() {
        true => e.message.clone(),
        false => format!("{}\n  help: {}", e.message, e.help),
    }
}

fn plain_nvshmem(e: &NvshmemError) -> String {
    match e {
        NvshmemError::Runtime(e) => plain(e),
        _ => e.to_string(),
    }
}

fn launcher() -> Finding {
    let built = if machine::MPI { "built with the feature `mpi`" } else { "built without the feature `mpi`" };
    match machine::mpi() {
        Some(said) => ok(
            "MPI",
            format!("{said}; {built}"),
            "`mpirun -n 8 weft run ...` also starts PEs, with or without that feature",
        ),
        None => note(
            "MPI",
            format!("no mpirun on PATH; {built}"),
            "it is not needed: `weft run --pes 8` starts its own PEs",
        ),
    }
}

/// The folder that `WEFT_CACHE` names instead of the cache folder.
fn named_cache() -> Option<(PathBuf, Trust)> {
    let named = std::env::var("WEFT_CACHE").ok().filter(|named| !named.is_empty())?;
    Some(match named.strip_prefix("shared:") {
        Some(folder) => (folder.into(), Trust::Anybody),
        None => (named.into(), Trust::Owner),
    })
}

fn cache() -> Finding {
    let named = named_cache();
    if named.as_ref().is_some_and(|(named, _)| named == Path::new("off") || named == Path::new("0")) {
        return note("cache", "disabled by WEFT_CACHE", "no compiled kernels are kept between runs");
    }
    let kept = if named.is_some() {
        "compiled kernels are kept here; you can delete them at any time"
    } else {
        "files that `weft setup` fetches are kept here; you can delete them at any time"
    };
    let Some((folder, trust)) = named.or_else(|| Some((find::cache_folder()?, Trust::Owner))) else {
        return note(
            "cache",
            "neither XDG_CACHE_HOME nor HOME is set",
            "nothing is kept between runs, and `weft setup` has no folder to write to",
        )
        .todo("set HOME");
    };
    match owned::folder(&folder, trust) {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            let why = e.to_string();
            let (found, todo) = why
                .split_once("; help: ")
                .unwrap_or((&why, "change the folder's owner to yourself, or choose another folder"));
            note(
                "cache",
                found,
                "nothing is kept between runs, and files that `weft setup` fetched are not used",
            )
            .todo(todo)
        }
        // The folder is created when the first file is kept.
        Err(_) if std::fs::symlink_metadata(&folder).is_err() => ok("cache", "", kept).at(&folder),
        Err(e) => {
            note("cache", format!("it cannot be used: {e}"), "nothing is kept between runs").at(&folder)
        }
        Ok(_) => ok("cache", "", kept).at(&folder),
    }
}

/// Reports the tables that `weft tune` has stored for GPUs like the first one of this machine.
fn tuning(driver: Option<&Driver>) -> Finding {
    const PART: &str = "tuning";
    const MODEL: &str = "collectives choose their algorithms with a model of the links";
    let Some(file) = Tables::path() else {
        return note(PART, "disabled by WEFT_TUNING, or HOME is not set", MODEL);
    };
    let tables = match Tables::read(&file) {
        Ok(tables) => tables,
        Err(e) => return Finding::failed(State::Broken, PART, &plain(&e), MODEL).at(&file),
    };
    let Some((driver, gpu)) = driver.and_then(|d| Some((d, d.gpus.first()?))) else {
        let found = match tables.tables.len() {
            0 => "there is no stored table".into(),
            n => format!("tables of {n} settings, which apply to machines with GPUs"),
        };
        return note(PART, found, "`weft tune` measures the fastest plans of the collectives on GPUs")
            .at(&file);
    };
    let (mut holds, mut void) = (Vec::new(), Vec::new());
    for table in tables.tables.into_iter().filter(|t| t.setting.gpu == gpu.name) {
        let (pes, date) = (table.setting.n_pes, table.date.clone());
        if driver.version.as_ref().is_some_and(|v| *v != table.setting.driver) {
            void.push(format!("{pes} PEs: the table was measured with driver {}", table.setting.driver));
            continue;
        }
        let (table, why) = table.usable();
        void.extend(why.iter().map(|why| format!("{pes} PEs: {why}")));
        if !table.entries.is_empty() {
            holds.push(format!("{pes} PEs: {} plans of {date}", table.entries.len()));
        }
    }
    let mut finding = match holds.is_empty() {
        false => ok(
            PART,
            holds.join(", "),
            "collectives of this number of PEs use the measured table, others a model",
        ),
        true => note(PART, format!("no table applies to {}", gpu.name), MODEL),
    };
    if holds.is_empty() || !void.is_empty() {
        finding.todo = "`weft tune` measures the fastest plans on this machine and stores them".into();
    }
    finding.details = void;
    finding.at(&file)
}

impl Report {
    fn text(&self, verbose: bool, terminal: bool) -> String {
        let color = terminal && std::env::var_os("NO_COLOR").is_none();
        let mut out = format!("warpweft {}\n\n", self.version);
        for finding in &self.findings {
            let (word, style) = match finding.state {
                State::Ok => ("ok", "32"),
                State::Note => ("note", "33"),
                State::Broken => ("BROKEN", "1;31"),
            };
            let word = format!("{word:6}");
            let word = if color { format!("\x1b[{style}m{word}\x1b[0m") } else { word };
            let head = format!("{word}  {:16}", finding.part);
            let path = finding.path.iter().map(|path| path.display().to_string());
            let mut lines: Vec<_> = wrap(&finding.found).into_iter().chain(path).collect();
            lines.extend(wrap(&finding.means));
            // The searched locations are many and seldom needed; tables and faults are always
            // shown.
            if verbose || finding.state == State::Broken || finding.part == LINKS {
                lines.extend(finding.details.iter().map(|detail| format!("  {detail}")));
            }
            lines.extend(
                finding
                    .todo
                    .lines()
                    .flat_map(wrap)
                    .enumerate()
                    .map(|(n, todo)| format!("{} {todo}", if n == 0 { "->" } else { "  " })),
            );
            for (n, line) in lines.iter().enumerate() {
                let head = if n == 0 { &*head } else { "                        " };
                out.push_str(&format!("{head}{line}\n"));
            }
        }
        out.push_str(match (self.works, &self.driver) {
            (false, _) => "\nSomething is broken: see the lines above marked BROKEN.\n",
            (true, Some(driver)) if !driver.gpus.is_empty() => {
                "\nThe compiler works, and this machine has GPUs.\n"
            }
            (true, _) => "\nThe compiler and the simulator work; kernels do not run on a GPU here.\n",
        });
        out
    }
}

/// Splits text at spaces into lines of at most 90 characters.
fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= 90 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}
