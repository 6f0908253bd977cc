//! NVIDIA's assembler, disassembler and linker, if the machine has them. Only cubin and SASS output
//! and the tests that check PTX with the real assembler need them.
//!
//! The search has this order: the tool's environment variable (`WEFT_PTXAS`, ...), the files that
//! `weft setup` fetched, `PATH`, `CUDA_HOME`, `CUDA_PATH`, `/usr/local/cuda`, and the PyPI wheels
//! in a virtual environment, in a conda environment, in the user's site-packages, and among the
//! packages of `python3`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;
use weft_abi::Remark;
use weft_isa::Target;
use weft_runtime::find::{Found, LibrarySearch, Machine, Missing, SearchPlace};
use weft_runtime::launch::remarks::{remarks, strict};

pub use crate::remarks::warning;

/// A program or library of the CUDA toolkit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// The assembler of PTX, `ptxas`.
    Ptxas,
    /// The disassembler of cubins, `nvdisasm`.
    Nvdisasm,
    /// The linker of relocatable cubins, `nvlink`.
    Nvlink,
    /// The library that compiles CUDA C++ at run time.
    Nvrtc,
}

/// The places that are searched for tools.
const PLACES: &[SearchPlace] = &[
    SearchPlace::Setup,
    SearchPlace::List("PATH"),
    SearchPlace::Root("CUDA_HOME"),
    SearchPlace::Root("CUDA_PATH"),
    SearchPlace::System("/usr/local/cuda"),
    SearchPlace::Packages,
    SearchPlace::Python,
];

/// The tools that are searched, and the PyPI packages that contain them.
const TOOLS: [(LibrarySearch, &str); 4] = [
    (wanted("ptxas", &["WEFT_PTXAS"], &["bin"]), "nvidia-cuda-nvcc"),
    (wanted("nvdisasm", &["WEFT_NVDISASM"], &["bin"]), "nvidia-cuda-nvdisasm"),
    (wanted("nvlink", &["WEFT_NVLINK"], &["bin"]), "nvidia-cuda-nvcc"),
    (wanted("libnvrtc.so", &["WEFT_NVRTC"], &["lib64", "lib"]), "nvidia-cuda-nvrtc"),
];

const fn wanted(
    name: &'static str,
    vars: &'static [&'static str],
    folders: &'static [&'static str],
) -> LibrarySearch {
    LibrarySearch { name, vars, folders, places: PLACES }
}

impl Tool {
    /// The file name, or the name of a library without its version.
    pub fn name(self) -> &'static str {
        TOOLS[self as usize].0.name
    }

    /// The environment variable that names the tool.
    pub fn variable(self) -> &'static str {
        TOOLS[self as usize].0.vars.first().copied().unwrap_or_default()
    }

    /// The path of the tool. It is searched only once in a process.
    ///
    /// # Errors
    /// Fails where [`Tool::locate`] fails.
    pub fn find(self) -> Result<PathBuf, ToolError> {
        self.locate().map(|found| found.path)
    }

    /// The path of the tool, and how it was found. It is searched only once in a process.
    ///
    /// # Errors
    ///
    /// Fails if the tool is not found ([`ToolError::NotFound`], with every location that was
    /// searched), or if its variable does not name a file ([`ToolError::Variable`]).
    pub fn locate(self) -> Result<Found, ToolError> {
        static FOUND: [OnceLock<Result<Found, Missing>>; 4] = [const { OnceLock::new() }; 4];
        let (wanted, wheel) = &TOOLS[self as usize];
        let found = FOUND[self as usize].get_or_init(|| Machine::here().find(wanted));
        found.clone().map_err(|missing| not_found(wanted, wheel, missing))
    }
}

fn not_found(wanted: &LibrarySearch, wheel: &'static str, missing: Missing) -> ToolError {
    let tool = wanted.name;
    match missing {
        Missing::Named(var, path) => ToolError::Variable { tool, var, path },
        Missing::Everywhere(searched) => {
            let var = wanted.vars.first().copied().unwrap_or_default();
            ToolError::NotFound { tool, var, wheel, searched }
        }
    }
}

/// Why a tool gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool is in none of the searched places.
    #[error("{tool} not found\n  searched: {}\n  help: `weft setup` fetches it; or `pip install {wheel}`, or install the CUDA toolkit, or set {var} to its path", searched.join("\n            "))]
    NotFound {
        /// The file name of the tool.
        tool: &'static str,
        /// The environment variable that can name it.
        var: &'static str,
        /// The PyPI package that contains it.
        wheel: &'static str,
        /// Every place that was searched.
        searched: Vec<String>,
    },
    /// The tool's environment variable does not name a file.
    #[error("{var} is set to {}, but {tool} is not there; unset it to search for {tool}", path.display())]
    Variable {
        /// The file name of the tool.
        tool: &'static str,
        /// The name of the environment variable.
        var: &'static str,
        /// The value of the environment variable.
        path: PathBuf,
    },
    /// The tool ran and rejected its input.
    #[error("{tool} failed ({status}): {message}")]
    Failed {
        /// The file name of the tool.
        tool: &'static str,
        /// The exit status of the tool.
        status: String,
        /// Everything that the tool printed.
        message: String,
    },
    /// The tool accepted the code with remarks, which count as errors (`WEFT_STRICT_PTXAS`).
    #[error("ptxas accepted the code, with remarks: {}", .0.iter().map(Remark::to_string).collect::<Vec<_>>().join("\n"))]
    Remarks(Vec<Remark>),
    /// The tool could not be run, or its files could not be written or read.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The reason that the system gives.
        source: io::Error,
    },
}

/// Code that a tool made, with the tool's remarks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assembled {
    /// The bytes of the cubin.
    pub cubin: Vec<u8>,
    /// ptxas's reasons why the code is slow, if it gives any.
    pub remarks: Vec<Remark>,
}

impl Assembled {
    /// Returns the cubin if there are no remarks or if remarks do not count as errors.
    ///
    /// # Errors
    /// Fails with [`ToolError::Remarks`] if remarks count as errors.
    pub fn accepted(self) -> Result<Vec<u8>, ToolError> {
        if strict() && !self.remarks.is_empty() {
            Err(ToolError::Remarks(self.remarks))
        } else {
            Ok(self.cubin)
        }
    }
}

/// Assembles PTX to a cubin for `target` with ptxas.
///
/// # Errors
/// Fails if ptxas is not found, or if it rejects the PTX ([`ToolError::Failed`], which calls the
/// text `kernel.ptx`).
pub fn assemble(ptx: &str, target: Target) -> Result<Assembled, ToolError> {
    ptxas(ptx, target, &[])
}

/// Assembles PTX like [`assemble`], and returns the cubin without remarks.
///
/// # Errors
/// Fails where [`assemble`] fails, or if there are remarks and `WEFT_STRICT_PTXAS` is 1
/// ([`ToolError::Remarks`]).
pub fn assemble_ptx(ptx: &str, target: Target) -> Result<Vec<u8>, ToolError> {
    assemble(ptx, target)?.accepted()
}

fn ptxas(ptx: &str, target: Target, options: &[&str]) -> Result<Assembled, ToolError> {
    let folder = Folder::new()?;
    let output = folder.assemble(ptx, target, options)?;
    Ok(Assembled { cubin: folder.read("kernel.cubin")?, remarks: remarks(&output, ptx) })
}

/// Machine code as text, with the resources that it uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Listing {
    /// The code as nvdisasm prints it. A comment before an instruction names the line of the PTX that it is from.
    pub sass: String,
    /// Registers and spilled bytes of each kernel.
    pub usage: Vec<Usage>,
    /// ptxas's reasons why the code is slow, if it gives any.
    pub remarks: Vec<Remark>,
}

/// The resources that a thread of a kernel uses, as ptxas reports them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// The name of the kernel.
    pub kernel: String,
    /// The number of registers.
    pub registers: u32,
    /// Bytes that are spilled to local memory because registers are missing.
    pub spilled: u32,
}

/// Assembles PTX for `target` and disassembles the code, with the line of the PTX of each
/// instruction. If `external` is true, the PTX can call functions that it does not define, and
/// these calls stay unresolved.
///
/// # Errors
/// Fails where [`assemble`] or [`disassemble`] fails.
pub fn list(ptx: &str, target: Target, external: bool) -> Result<Listing, ToolError> {
    Tool::Nvdisasm.find()?;
    let folder = Folder::new()?;
    let options: &[&str] = if external { &["-v", "--compile-only"] } else { &["-v"] };
    let output = folder.assemble(ptx, target, options)?;
    let sass = folder.run(Tool::Nvdisasm, &["-c", "-gp", "kernel.cubin"])?;
    Ok(Listing { sass, usage: usage(&output), remarks: remarks(&output, ptx) })
}

/// Parses the resources of each kernel from the output of `ptxas -v`.
fn usage(output: &str) -> Vec<Usage> {
    let mut found: Vec<Usage> = Vec::new();
    // The number before these words.
    let before = |line: &str, words: &str| {
        let (head, _) = line.split_once(words)?;
        head.trim_end().rsplit(' ').next()?.parse().ok()
    };
    for line in output.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            found.push(Usage { kernel, ..Usage::default() });
        } else if let Some(last) = found.last_mut() {
            last.registers = before(line, " registers").unwrap_or(last.registers);
            last.spilled = before(line, " bytes spill stores").unwrap_or(last.spilled);
        }
    }
    found
}

/// Assembles PTX to a relocatable object for `target` with ptxas. The object can call or define
/// external functions, and has at most `registers` registers for each thread.
///
/// # Errors
/// Fails where [`assemble_ptx`] fails.
pub fn assemble_object(ptx: &str, target: Target, registers: Option<u32>) -> Result<Vec<u8>, ToolError> {
    let limit = registers.map(|n| format!("--maxrregcount={n}"));
    let options: Vec<_> = ["--compile-only"].into_iter().chain(limit.as_deref()).collect();
    ptxas(ptx, target, &options).map(|made| made.cubin)
}

/// Links PTX and a relocatable object to a cubin for `target`, with ptxas and nvlink.
///
/// # Errors
/// Fails where [`assemble_ptx`] fails, for either of the tools.
pub fn link_object(ptx: &str, object: &[u8], target: Target) -> Result<Assembled, ToolError> {
    Tool::Nvlink.find()?;
    let kernel = ptxas(ptx, target, &["--compile-only"])?;
    let folder = Folder::new()?;
    folder.write("kernel.cubin", &kernel.cubin)?;
    folder.write("object.cubin", object)?;
    let arch = format!("-arch={target}");
    folder.run(Tool::Nvlink, &[&arch, "-o", "linked.cubin", "kernel.cubin", "object.cubin"])?;
    Ok(Assembled { cubin: folder.read("linked.cubin")?, remarks: kernel.remarks })
}

/// Disassembles a cubin to SASS with nvdisasm.
///
/// # Errors
/// Fails if nvdisasm is not found or rejects the cubin.
pub fn disassemble(cubin: &[u8]) -> Result<String, ToolError> {
    let folder = Folder::new()?;
    folder.write("kernel.cubin", cubin)?;
    folder.run(Tool::Nvdisasm, &["kernel.cubin"])
}

/// A private folder for a run of a tool, removed when the value is dropped.
struct Folder(TempDir);

impl Folder {
    fn new() -> Result<Folder, ToolError> {
        let made = tempfile::Builder::new().prefix("weft-").tempdir();
        Ok(Folder(made.map_err(|source| io_error("cannot make a folder in", &std::env::temp_dir(), source))?))
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), ToolError> {
        let path = self.0.path().join(name);
        fs::write(&path, content).map_err(|source| io_error("cannot write", &path, source))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ToolError> {
        let path = self.0.path().join(name);
        fs::read(&path).map_err(|source| io_error("cannot read", &path, source))
    }

    /// Assembles PTX to `kernel.cubin`, and returns the output of ptxas.
    fn assemble(&self, ptx: &str, target: Target, options: &[&str]) -> Result<String, ToolError> {
        self.write("kernel.ptx", ptx.as_bytes())?;
        let arch = format!("-arch={target}");
        let fixed = [&*arch, "-warn-spills", "-o", "kernel.cubin", "kernel.ptx"];
        self.run(Tool::Ptxas, &[&fixed[..], options].concat())
    }

    /// Runs a tool in this folder, and returns its output.
    fn run(&self, tool: Tool, args: &[&str]) -> Result<String, ToolError> {
        let path = tool.find()?;
        let out = Command::new(&path).args(args).current_dir(self.0.path()).stdin(Stdio::null()).output();
        let out = out.map_err(|source| io_error("cannot run", &path, source))?;
        let printed = String::from_utf8_lossy(&out.stdout).into_owned();
        let errors = String::from_utf8_lossy(&out.stderr);
        if out.status.success() {
            return Ok(if tool == Tool::Ptxas { printed + &errors } else { printed });
        }
        let message = printed + &errors;
        let status = out.status.to_string();
        Err(ToolError::Failed { tool: tool.name(), status, message: message.trim_end().into() })
    }
}

fn io_error(doing: &str, path: &Path, source: io::Error) -> ToolError {
    ToolError::Io { what: format!("{doing} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_that_of_each_kernel() {
        let said = "ptxas info    : 0 bytes gmem\n\
                    ptxas info    : Compiling entry function 'one' for 'sm_90a'\n\
                    ptxas info    : Function properties for one\n    \
                    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n\
                    ptxas info    : Used 32 registers, used 1 barriers\n\
                    ptxas info    : Compiling entry function 'two' for 'sm_90a'\n\
                    ptxas info    : Used 168 registers\n";
        let of = |kernel: &str, registers, spilled| Usage { kernel: kernel.into(), registers, spilled };
        assert_eq!(usage(said), [of("one", 32, 8), of("two", 168, 0)]);
    }

    #[test]
    fn absence_says_what_to_install() {
        for (wanted, wheel) in &TOOLS {
            let searched = vec!["PATH".into(), "somewhere/bin".into()];
            let text = not_found(wanted, wheel, Missing::Everywhere(searched)).to_string();
            for part in [wanted.name, wanted.vars[0], "pip install", wheel, "weft setup", "somewhere/bin"] {
                assert!(text.contains(part), "no `{part}` in {text}");
            }
        }
    }
}
