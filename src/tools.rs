//! NVIDIA's own assembler, disassembler and linker, where a machine has them. Nothing needs them but cubin and
//! SASS output and the tests that check PTX with the real assembler.
//!
//! Looked for, in this order: the tool's environment variable (`WEFT_PTXAS`, ...), `PATH`, `CUDA_HOME`,
//! `CUDA_PATH`, `/usr/local/cuda`, and the PyPI wheels in a virtual environment, a conda environment, the user's
//! site-packages, and at last wherever `python3` says its packages are.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_isa::Target;

/// A program or library of the CUDA toolkit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tool {
    /// Assembles PTX.
    Ptxas,
    /// Disassembles cubins.
    Nvdisasm,
    /// Links relocatable cubins.
    Nvlink,
    /// The library that compiles CUDA C++ at run time.
    Nvrtc,
}

/// What is known of a tool.
struct Facts {
    name: &'static str,
    /// Environment variable with its path.
    var: &'static str,
    /// Folders below a toolkit's root (and a wheel's) that it is in.
    folders: &'static [&'static str],
    wheel: &'static str,
}

impl Tool {
    const ALL: [Facts; 4] = [
        Facts { name: "ptxas", var: "WEFT_PTXAS", folders: &["bin"], wheel: "nvidia-cuda-nvcc" },
        Facts { name: "nvdisasm", var: "WEFT_NVDISASM", folders: &["bin"], wheel: "nvidia-cuda-nvdisasm" },
        Facts { name: "nvlink", var: "WEFT_NVLINK", folders: &["bin"], wheel: "nvidia-cuda-nvcc" },
        Facts {
            name: "libnvrtc.so",
            var: "WEFT_NVRTC",
            folders: &["lib64", "lib"],
            wheel: "nvidia-cuda-nvrtc",
        },
    ];

    fn facts(self) -> &'static Facts {
        &Tool::ALL[self as usize]
    }

    /// File name, without a library's version.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The path of the tool; looked for once a process.
    ///
    /// # Errors
    /// [`ToolError::NotFound`] with every place searched, [`ToolError::Variable`] where the tool's variable
    /// names no file.
    pub fn find(self) -> Result<PathBuf, ToolError> {
        static FOUND: [OnceLock<Result<PathBuf, Missing>>; 4] = [const { OnceLock::new() }; 4];
        let found = FOUND[self as usize].get_or_init(|| Search::of_process().find(self));
        let Facts { name: tool, var, wheel, .. } = *self.facts();
        found.clone().map_err(|missing| match missing {
            Missing::Named(path) => ToolError::Variable { tool, var, path },
            Missing::Everywhere(searched) => ToolError::NotFound { tool, var, wheel, searched },
        })
    }
}

/// Why a tool gave no result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is nowhere.
    #[error("{tool} not found\n  searched: {}\n  help: `pip install {wheel}`, or install the CUDA toolkit, or set {var} to its path", searched.join("\n            "))]
    NotFound {
        /// File name.
        tool: &'static str,
        /// Environment variable that would name it.
        var: &'static str,
        /// PyPI package that has it.
        wheel: &'static str,
        /// Every place searched.
        searched: Vec<String>,
    },
    /// Its environment variable names something else.
    #[error("{var} is set to {}, which is not a file; unset it to search for {tool}", path.display())]
    Variable {
        /// File name.
        tool: &'static str,
        /// Environment variable.
        var: &'static str,
        /// What it says.
        path: PathBuf,
    },
    /// It ran and refused its input.
    #[error("{tool} failed ({status}): {message}")]
    Failed {
        /// File name.
        tool: &'static str,
        /// Exit status.
        status: String,
        /// Everything it said.
        message: String,
    },
    /// It could not be run, or its files not be written or read.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// How a search failed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Missing {
    /// The tool's variable names what is no file.
    Named(PathBuf),
    /// It is in none of these places.
    Everywhere(Vec<String>),
}

/// Where to look: what the environment says, apart from the process's own so that tests can make one up.
struct Search<'a> {
    var: &'a dyn Fn(&str) -> Option<OsString>,
    /// The toolkit's usual place.
    system: &'a Path,
    /// Asks Python for its package folders, one a line.
    python: &'a dyn Fn() -> Option<String>,
}

impl Search<'_> {
    fn of_process() -> Search<'static> {
        Search {
            var: &|name| std::env::var_os(name),
            system: Path::new("/usr/local/cuda"),
            python: &ask_python,
        }
    }

    fn find(&self, tool: Tool) -> Result<PathBuf, Missing> {
        let facts = tool.facts();
        if let Some(path) = self.path_var(facts.var) {
            return if path.is_file() { Ok(path) } else { Err(Missing::Named(path)) };
        }
        let mut searched = Vec::new();
        let path = (self.var)("PATH").unwrap_or_default();
        searched.push("PATH".into());
        let mut found = std::env::split_paths(&path).find_map(|dir| file_in(&dir, facts.name));

        let toolkits = ["CUDA_HOME", "CUDA_PATH"].iter().filter_map(|name| self.path_var(name));
        for root in toolkits.chain([self.system.to_owned()]) {
            found = found.or_else(|| in_toolkit(&root, facts, &mut searched));
        }
        for packages in self.site_packages() {
            found = found.or_else(|| in_wheels(&packages, facts, &mut searched));
        }
        if found.is_none() {
            // Starting Python takes 20 ms and more, so it is asked last.
            let answer = (self.python)();
            if answer.is_none() {
                searched.push("python3 (not there)".into());
            }
            let folders = answer.iter().flat_map(|text| text.lines()).map(PathBuf::from);
            found = folders.into_iter().find_map(|dir| in_wheels(&dir, facts, &mut searched));
        }
        found.ok_or(Missing::Everywhere(searched))
    }

    fn path_var(&self, name: &str) -> Option<PathBuf> {
        (self.var)(name).filter(|v| !v.is_empty()).map(PathBuf::from)
    }

    /// Package folders that need no Python to know.
    fn site_packages(&self) -> Vec<PathBuf> {
        let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| self.path_var(name));
        let user = self.path_var("HOME").map(|home| home.join(".local"));
        let libs = environments.chain(user).map(|root| root.join("lib"));
        let pythons = libs.flat_map(|lib| children(&lib)).filter(|dir| name_starts(dir, "python"));
        pythons.map(|dir| dir.join("site-packages")).filter(|dir| dir.is_dir()).collect()
    }
}

fn ask_python() -> Option<String> {
    const SCRIPT: &str = "import site, sysconfig; \
        print('\\n'.join([sysconfig.get_path('purelib'), *site.getsitepackages(), site.getusersitepackages()]))";
    let out = Command::new("python3").args(["-c", SCRIPT]).stdin(Stdio::null()).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The file of that name, or, of a library, with a version behind it (the highest).
fn file_in(dir: &Path, name: &str) -> Option<PathBuf> {
    let plain = dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if plain.is_file() {
        return Some(plain);
    }
    let versioned = || children(dir).into_iter().filter(|path| name_starts(path, &format!("{name}."))).max();
    if name.ends_with(".so") { versioned() } else { None }
}

fn in_toolkit(root: &Path, facts: &Facts, searched: &mut Vec<String>) -> Option<PathBuf> {
    facts.folders.iter().find_map(|folder| {
        let dir = root.join(folder);
        searched.push(dir.display().to_string());
        file_in(&dir, facts.name)
    })
}

/// NVIDIA's wheels unpack into `nvidia/cu13/bin`, older ones into `nvidia/cuda_nvcc/bin`: any of them, the newest
/// CUDA first.
fn in_wheels(packages: &Path, facts: &Facts, searched: &mut Vec<String>) -> Option<PathBuf> {
    let nvidia = packages.join("nvidia");
    let place = format!("{}/*/{}", nvidia.display(), facts.folders.join(","));
    if !searched.contains(&place) {
        searched.push(place);
    }
    let mut roots = children(&nvidia);
    roots.sort_by_key(|root| std::cmp::Reverse(root.file_name().map(OsStr::to_owned)));
    let places = roots.iter().flat_map(|root| facts.folders.iter().map(|folder| root.join(folder)));
    places.into_iter().find_map(|dir| file_in(&dir, facts.name))
}

/// The entries of a folder; none where it is not there.
fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name_starts(path: &Path, prefix: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(prefix))
}

/// Assembles PTX to a cubin for `target` with ptxas.
///
/// # Errors
/// Where ptxas is not found, or, in [`ToolError::Failed`], says what is wrong with the PTX (it calls the text
/// `kernel.ptx`).
pub fn assemble_ptx(ptx: &str, target: Target) -> Result<Vec<u8>, ToolError> {
    let folder = Folder::new()?;
    folder.write("kernel.ptx", ptx.as_bytes())?;
    let arch = format!("-arch={target}");
    folder.run(Tool::Ptxas, &[&arch, "-o", "kernel.cubin", "kernel.ptx"])?;
    folder.read("kernel.cubin")
}

/// Disassembles a cubin to SASS with nvdisasm.
///
/// # Errors
/// Where nvdisasm is not found or does not take the cubin.
pub fn disassemble(cubin: &[u8]) -> Result<String, ToolError> {
    let folder = Folder::new()?;
    folder.write("kernel.cubin", cubin)?;
    folder.run(Tool::Nvdisasm, &["kernel.cubin"])
}

/// A folder of its own for a run of a tool, gone with its value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, ToolError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let name = format!("weft-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                // Left behind by an earlier process of the same id.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(io_error("cannot make", &path, source)),
            }
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), ToolError> {
        let path = self.0.join(name);
        fs::write(&path, content).map_err(|source| io_error("cannot write", &path, source))
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, ToolError> {
        let path = self.0.join(name);
        fs::read(&path).map_err(|source| io_error("cannot read", &path, source))
    }

    /// Runs a tool here. Returns what it printed.
    fn run(&self, tool: Tool, args: &[&str]) -> Result<String, ToolError> {
        let path = tool.find()?;
        let out = Command::new(&path).args(args).current_dir(&self.0).stdin(Stdio::null()).output();
        let out = out.map_err(|source| io_error("cannot run", &path, source))?;
        let printed = String::from_utf8_lossy(&out.stdout).into_owned();
        if out.status.success() {
            return Ok(printed);
        }
        let message = printed + &String::from_utf8_lossy(&out.stderr);
        let status = out.status.to_string();
        Err(ToolError::Failed { tool: tool.name(), status, message: message.trim_end().into() })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn io_error(doing: &str, path: &Path, source: io::Error) -> ToolError {
    ToolError::Io { what: format!("{doing} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root with `files` in it, and a search that sees only it.
    fn search(
        files: &[&str],
        vars: &[(&str, &str)],
        python: Option<&str>,
        tool: Tool,
    ) -> Result<String, Missing> {
        let root = Folder::new().unwrap();
        for file in files {
            let path = root.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let inside = |rel: &str| root.0.join(rel);
        let var = |name: &str| {
            let found = vars.iter().find(|(var, _)| *var == name)?;
            Some(inside(found.1).into_os_string())
        };
        let search = Search {
            var: &var,
            system: &inside("system"),
            python: &|| python.map(|rel| inside(rel).display().to_string()),
        };
        search.find(tool).map(|path| path.strip_prefix(&root.0).unwrap().display().to_string())
    }

    #[test]
    fn the_order_is_variable_path_toolkit_wheels() {
        let wheel = "home/.local/lib/python3.11/site-packages/nvidia/cu13/bin/ptxas";
        let files = ["mine", "path/ptxas", "cuda/bin/ptxas", "system/bin/ptxas", wheel];
        let vars = [("WEFT_PTXAS", "mine"), ("PATH", "path"), ("CUDA_HOME", "cuda"), ("HOME", "home")];
        for first in 0..files.len() {
            let (files, vars) = (&files[first..], &vars[first.min(3)..]);
            let found = search(files, vars, None, Tool::Ptxas);
            assert_eq!(found.as_deref(), Ok(files[0]));
        }
    }

    #[test]
    fn wheels_of_either_layout_are_found_and_the_newest_cuda_wins() {
        let old = "venv/lib/python3.9/site-packages/nvidia/cuda_nvcc/bin/ptxas";
        assert_eq!(search(&[old], &[("VIRTUAL_ENV", "venv")], None, Tool::Ptxas).as_deref(), Ok(old));
        let files = ["py/nvidia/cu12/bin/nvdisasm", "py/nvidia/cu13/bin/nvdisasm"];
        assert_eq!(search(&files, &[], Some("py"), Tool::Nvdisasm).as_deref(), Ok(files[1]));
        let lib = "py/nvidia/cu13/lib/libnvrtc.so.13";
        assert_eq!(search(&[lib], &[], Some("py"), Tool::Nvrtc).as_deref(), Ok(lib));
    }

    #[test]
    fn absence_lists_the_places_and_what_to_install() {
        let missing = search(&[], &[("CUDA_HOME", "cuda")], Some("py"), Tool::Ptxas);
        let Err(Missing::Everywhere(searched)) = missing else { panic!("{missing:?}") };
        let places = ["PATH", "/cuda/bin", "/system/bin", "/py/nvidia/*/bin"];
        assert_eq!(searched.len(), places.len(), "{searched:?}");
        assert!(searched.iter().zip(places).all(|(place, end)| place.ends_with(end)), "{searched:?}");
        let Facts { var, wheel, .. } = Tool::Ptxas.facts();
        let text = ToolError::NotFound { tool: "ptxas", var, wheel, searched }.to_string();
        assert!(text.contains("pip install nvidia-cuda-nvcc") && text.contains("/py/nvidia/*/bin"), "{text}");
    }

    #[test]
    fn a_variable_that_names_nothing_is_said() {
        let vars = [("WEFT_PTXAS", "no"), ("PATH", "path")];
        let missing = search(&["path/ptxas"], &vars, None, Tool::Ptxas);
        assert!(matches!(&missing, Err(Missing::Named(path)) if path.ends_with("no")), "{missing:?}");
    }
}
