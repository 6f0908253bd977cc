//! Finds NVIDIA's programs and libraries on this machine. The assembler, the disassembler,
//! NVSHMEM's host library and its device bitcode have one search, so that all commands find the
//! same files.
//!
//! A variable that names the file itself comes first, and is an error if the file does not exist.
//! Then come the [`SearchPlace`]s of the [`LibrarySearch`], in order.

mod programs;
mod python;
#[cfg(test)]
mod tests;

pub use programs::program;

use std::cmp::Reverse;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::error::{Code, Error, NO_CUBLAS, NO_JITLINK, NO_NCCL, NO_NVSHMEM, Result};
use crate::owned;

/// A file that was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The path of the file.
    pub path: PathBuf,
    /// The place that led to it, such as `NVSHMEM_HOME` or `` `weft setup` ``.
    pub by: String,
}

/// The reasons why a search fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// A variable names a file that does not exist.
    Named(&'static str, PathBuf),
    /// The file is in none of these places.
    Everywhere(Vec<String>),
}

/// The description of a file to search for.
#[derive(Clone, Copy, Debug)]
pub struct LibrarySearch {
    /// The name of the file. The name of a library (`libnvrtc.so`) can be followed by a version.
    pub name: &'static str,
    /// The variables that name the file, or an installation with it.
    pub vars: &'static [&'static str],
    /// The folders below an installation's root (and a wheel's) that can contain it.
    pub folders: &'static [&'static str],
    /// The places to search, in this order.
    pub places: &'static [SearchPlace],
}

/// A place in which a search looks for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SearchPlace {
    /// The folder that `weft setup` fills: [`wheels_folder`].
    Setup,
    /// The folders that a variable such as `PATH` lists. Relative folders are skipped, since they
    /// may belong to another user.
    List(&'static str),
    /// The linker's cache of the system's libraries.
    Linker,
    /// An installation that a variable such as `CUDA_HOME` names.
    Root(&'static str),
    /// The usual place of an installation.
    System(&'static str),
    /// The wheels in a virtual environment, a conda environment, and the user's packages.
    Packages,
    /// The wheels in the package folders that `python3` reports, or has reported before.
    Python,
}

impl fmt::Display for SearchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SearchPlace::Setup => f.write_str("`weft setup`"),
            SearchPlace::List(var) | SearchPlace::Root(var) => f.write_str(var),
            SearchPlace::Linker => f.write_str("the linker's cache"),
            SearchPlace::System(_) => f.write_str("the system"),
            SearchPlace::Packages | SearchPlace::Python => f.write_str("Python's packages"),
        }
    }
}

/// The search for NVSHMEM.
const NVSHMEM: LibrarySearch = LibrarySearch {
    name: "libnvshmem_host.so.3",
    vars: &["WEFT_NVSHMEM", "NVSHMEM_HOME"],
    folders: &["lib", "lib64", ""],
    places: &[
        SearchPlace::Setup,
        SearchPlace::List("LD_LIBRARY_PATH"),
        SearchPlace::Linker,
        SearchPlace::Packages,
        SearchPlace::Python,
        SearchPlace::System("/usr/lib/x86_64-linux-gnu/nvshmem/13"),
        SearchPlace::System("/usr/lib/x86_64-linux-gnu/nvshmem/12"),
        SearchPlace::System("/usr/local/nvshmem"),
        SearchPlace::System("/opt/nvidia/nvshmem"),
        SearchPlace::Root("CUDA_HOME"),
        SearchPlace::System("/usr/local/cuda"),
    ],
};

/// The search for NCCL.
const NCCL: LibrarySearch = LibrarySearch {
    name: "libnccl.so.2",
    vars: &["WEFT_NCCL", "NCCL_HOME"],
    folders: &["lib", "lib64", ""],
    places: &[
        SearchPlace::Setup,
        SearchPlace::List("LD_LIBRARY_PATH"),
        SearchPlace::Linker,
        SearchPlace::Packages,
        SearchPlace::Python,
        SearchPlace::System("/usr/lib/x86_64-linux-gnu"),
        SearchPlace::Root("CUDA_HOME"),
        SearchPlace::System("/usr/local/cuda"),
    ],
};

/// The search for cuBLASLt.
const CUBLAS_LT: LibrarySearch = LibrarySearch {
    name: "libcublasLt.so",
    vars: &["WEFT_CUBLASLT"],
    folders: &["lib", "lib64"],
    places: &[
        SearchPlace::Setup,
        SearchPlace::List("LD_LIBRARY_PATH"),
        SearchPlace::Packages,
        SearchPlace::Python,
        SearchPlace::Linker,
        SearchPlace::Root("CUDA_HOME"),
        SearchPlace::Root("CUDA_PATH"),
        SearchPlace::System("/usr/local/cuda"),
    ],
};

/// The search for nvJitLink.
const NVJITLINK: LibrarySearch = LibrarySearch {
    name: "libnvJitLink.so",
    vars: &["WEFT_NVJITLINK"],
    folders: &["lib64", "lib"],
    places: &[
        SearchPlace::Setup,
        SearchPlace::List("LD_LIBRARY_PATH"),
        SearchPlace::Root("CUDA_HOME"),
        SearchPlace::Root("CUDA_PATH"),
        SearchPlace::System("/usr/local/cuda"),
        SearchPlace::Packages,
        SearchPlace::Python,
    ],
};

/// Finds NVIDIA's linker of device code.
///
/// # Errors
/// Fails if the library is not found (R0107). The message lists every place searched.
pub fn nvjitlink() -> Result<Found> {
    let help = "`weft setup` fetches it into your cache folder; or `pip install nvidia-nvjitlink`";
    Machine::here().find(&NVJITLINK).map_err(|missing| not_found(NO_JITLINK, NVJITLINK.name, missing, help))
}

/// Finds the library of NCCL.
///
/// # Errors
/// Fails if the library is not found (R0109). The message lists every place searched.
pub fn nccl() -> Result<Found> {
    let help = "`weft setup --nccl` fetches it into your cache folder; or `pip install nvidia-nccl-cu13`; or set \
                WEFT_NCCL to a libnccl.so.2; or measure without: leave nccl out of --against";
    Machine::here().find(&NCCL).map_err(|missing| not_found(NO_NCCL, NCCL.name, missing, help))
}

/// Finds the library of cuBLASLt.
///
/// # Errors
/// Fails if the library is not found (R0112). The message lists every place searched.
pub fn cublas_lt() -> Result<Found> {
    let help = "`weft setup --cublas` fetches it into your cache folder; or `pip install nvidia-cublas`, for CUDA 12 \
                `nvidia-cublas-cu12`; or set WEFT_CUBLASLT to a libcublasLt.so; or measure without: leave --against out";
    Machine::here().find(&CUBLAS_LT).map_err(|missing| not_found(NO_CUBLAS, CUBLAS_LT.name, missing, help))
}

fn not_found(code: Code, name: &str, missing: Missing, help: &str) -> Error {
    match missing {
        Missing::Named(var, path) => {
            let message = format!("{var} is set to {}, which has no {name}", path.display());
            Error::new(code, message).help(format!("unset {var} to search for one"))
        }
        Missing::Everywhere(searched) => {
            let message = format!("{name} not found; searched:\n    {}", searched.join("\n    "));
            Error::new(code, message).help(help)
        }
    }
}

/// Finds the host library of NVSHMEM.
///
/// # Errors
/// Fails if the library is not found (R0104). The message lists every place searched.
pub fn nvshmem_host() -> Result<Found> {
    let found = Machine::here().find(&NVSHMEM);
    found.map_err(|missing| no_nvshmem(NVSHMEM.name, missing))
}

/// Finds NVSHMEM's device functions as LLVM bitcode for a GPU of compute capability `sm` (90 for
/// 9.0). If there is one file for each architecture (NVSHMEM 3.7 and later), it is the highest that
/// is not above the GPU's; otherwise it is the single file. The host library's own folder comes
/// first, since the versions must agree.
///
/// # Errors
/// Fails if the library is not found (R0104). The message lists every place searched.
pub fn nvshmem_device(sm: u32) -> Result<Found> {
    device_of(&Machine::here(), sm).map_err(no_device)
}

/// Finds the file like [`nvshmem_device`], and returns `None` if no place has it.
///
/// # Errors
/// Fails if a variable names an installation that does not have it (R0104).
pub fn nvshmem_device_if_any(sm: u32) -> Result<Option<Found>> {
    match device_of(&Machine::here(), sm) {
        Ok(found) => Ok(Some(found)),
        Err(Missing::Everywhere(_)) => Ok(None),
        Err(named) => Err(no_device(named)),
    }
}

/// Finds the bitcode at a path: a bitcode file, a host library, or an installation.
pub fn nvshmem_device_at(path: &Path, sm: u32) -> Option<PathBuf> {
    if path.is_file() && path.extension().is_some_and(|e| e == "bc") {
        return Some(path.to_owned());
    }
    device_in(path, sm)
        .or_else(|| NVSHMEM.folders.iter().find_map(|folder| device_in(&below(path, folder), sm)))
}

fn device_of(machine: &Machine<'_>, sm: u32) -> std::result::Result<Found, Missing> {
    if let Ok(host) = machine.find(&NVSHMEM)
        && let Some(path) = device_in(&host.path, sm)
    {
        return Ok(Found { path, by: host.by });
    }
    machine.find_by(&NVSHMEM, &|dir| device_in(dir, sm))
}

fn no_device(missing: Missing) -> Error {
    no_nvshmem("libnvshmem_device.bc", missing)
}

/// The bitcode in a folder, or next to a host library.
fn device_in(at: &Path, sm: u32) -> Option<PathBuf> {
    let dir = if at.is_file() { at.parent()? } else { at };
    let arch = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix("libnvshmem_device_sm_")?.strip_suffix(".bc")?.parse::<u32>().ok()
    };
    let family = children(dir).into_iter().filter_map(|path| Some((arch(&path)?, path)));
    let best = family.filter(|(arch, _)| *arch <= sm).max().map(|(_, path)| path);
    best.or_else(|| Some(dir.join("libnvshmem_device.bc")).filter(|path| path.is_file()))
}

fn no_nvshmem(name: &str, missing: Missing) -> Error {
    match missing {
        Missing::Named(var, path) => {
            let message = format!("{var} is set to {}, which has no {name}", path.display());
            Error::new(NO_NVSHMEM, message)
                .help(format!("set {var} to an installation with lib/{name}, or unset it to search for one"))
        }
        Missing::Everywhere(searched) => {
            let message = format!("{name} not found; searched:\n    {}", searched.join("\n    "));
            Error::new(NO_NVSHMEM, message).help(
                "`weft setup` fetches it into your cache folder; or `pip install nvidia-nvshmem-cu13`; or set \
                 NVSHMEM_HOME to an installation",
            )
        }
    }
}

/// The folder for all files of warpweft: `warpweft` in `XDG_CACHE_HOME`, or in `~/.cache`. It is
/// none if neither is known.
pub fn cache_folder() -> Option<PathBuf> {
    Machine::here().cache_folder()
}

/// The folder for results and choices that must not be lost: `warpweft` in `XDG_DATA_HOME`, or in
/// `~/.local/share`. It is none if neither is known.
pub fn data_folder() -> Option<PathBuf> {
    Machine::here().folder("XDG_DATA_HOME", ".local/share")
}

/// The folder in which `weft setup` unpacks wheels. Each wheel has its own folder, as in Python's
/// site-packages.
pub fn wheels_folder() -> Option<PathBuf> {
    Some(cache_folder()?.join("wheels"))
}

/// The facts about a machine that a search needs. Tests can replace them with an invented machine.
pub struct Machine<'a> {
    /// A variable of the environment.
    pub var: &'a dyn Fn(&str) -> Option<OsString>,
    /// The folder that precedes the paths of [`SearchPlace::System`], which is `/` except in tests.
    pub root: &'a Path,
    /// Python's package folders, one on each line; none without Python.
    pub python: &'a dyn Fn() -> Option<String>,
    /// The linker's cache in the format of `ldconfig -p`.
    pub linker: &'a dyn Fn() -> Option<String>,
}

impl Machine<'_> {
    /// The machine that the process runs on.
    pub fn here() -> Machine<'static> {
        Machine {
            var: &|name| std::env::var_os(name),
            root: Path::new("/"),
            python: &|| {
                static ANSWER: OnceLock<Option<String>> = OnceLock::new();
                ANSWER.get_or_init(python::folders).clone()
            },
            linker: &|| ["ldconfig", "/sbin/ldconfig"].iter().find_map(|name| output(name, &["-p"])),
        }
    }

    /// Looks for a file by its name.
    ///
    /// # Errors
    /// Fails if the file is not found. [`Missing`] lists every place searched.
    pub fn find(&self, wanted: &LibrarySearch) -> std::result::Result<Found, Missing> {
        self.find_by(wanted, &|dir| file_in(dir, wanted.name))
    }

    /// Searches with `pick`, which looks in a folder, or at a file that a variable names.
    fn find_by(
        &self,
        wanted: &LibrarySearch,
        pick: &dyn Fn(&Path) -> Option<PathBuf>,
    ) -> std::result::Result<Found, Missing> {
        let mut look = Look { folders: wanted.folders, pick, searched: Vec::new() };
        for var in wanted.vars {
            let Some(named) = self.path_var(var) else {
                look.searched.push(format!("{var} (not set)"));
                continue;
            };
            return match (look.pick)(&named).or_else(|| look.root(&named)) {
                // The program may run it in another folder.
                Some(path) => {
                    Ok(Found { path: std::path::absolute(&path).unwrap_or(path), by: (*var).into() })
                }
                None => Err(Missing::Named(var, named)),
            };
        }
        let found = wanted.places.iter().find_map(|place| {
            let path = self.look_in(*place, wanted.name, &mut look)?;
            Some(Found { path, by: place.to_string() })
        });
        found.ok_or(Missing::Everywhere(look.searched))
    }

    fn look_in(&self, place: SearchPlace, name: &str, look: &mut Look<'_>) -> Option<PathBuf> {
        match place {
            SearchPlace::Setup => {
                let ours = self.cache_folder()?;
                let folder = ours.join("wheels");
                look.searched.push(folder.display().to_string());
                let mut wheels = children(&folder);
                wheels.sort();
                let mut wheels = wheels.iter().filter(|dir| !name_starts(dir, "."));
                let found = wheels.find_map(|dir| look.quietly_in_wheels(dir))?;
                // The file is executed, or loaded into this process.
                owned::below(&ours, &found).ok().map(|()| found)
            }
            SearchPlace::List(var) => {
                look.searched.push(var.into());
                let list = (self.var)(var).unwrap_or_default();
                programs::absolute(&list).find_map(|dir| (look.pick)(&dir))
            }
            SearchPlace::Linker => {
                look.searched.push("the linker's cache".into());
                let cache = (self.linker)()?;
                let paths = cache.lines().filter_map(|line| Some(Path::new(line.split_once("=> ")?.1)));
                let versioned = format!("{name}.");
                let is_named = |path: &&Path| {
                    path.file_name() == Some(OsStr::new(name))
                        || name.ends_with(".so") && name_starts(path, &versioned)
                };
                let named = paths.filter(is_named);
                named.filter_map(Path::parent).find_map(|dir| (look.pick)(dir))
            }
            SearchPlace::Root(var) => look.root(&self.path_var(var)?),
            SearchPlace::System(path) => look.root(&self.root.join(path.trim_start_matches('/'))),
            SearchPlace::Packages => self.site_packages().iter().find_map(|dir| look.in_wheels(dir)),
            SearchPlace::Python => {
                let Some(answer) = (self.python)() else {
                    look.searched.push("python3 (not found)".into());
                    return None;
                };
                answer.lines().find_map(|dir| look.in_wheels(Path::new(dir)))
            }
        }
    }

    fn path_var(&self, name: &str) -> Option<PathBuf> {
        (self.var)(name).filter(|v| !v.is_empty()).map(PathBuf::from)
    }

    fn cache_folder(&self) -> Option<PathBuf> {
        self.folder("XDG_CACHE_HOME", ".cache")
    }

    /// The `warpweft` folder in the folder that a variable names, or in the user's home.
    fn folder(&self, variable: &str, in_home: &str) -> Option<PathBuf> {
        // A relative path must be ignored (XDG Base Directory Specification).
        let xdg = self.path_var(variable).filter(|path| path.is_absolute());
        Some(xdg.or_else(|| Some(self.path_var("HOME")?.join(in_home)))?.join("warpweft"))
    }

    /// The package folders that can be found without Python.
    fn site_packages(&self) -> Vec<PathBuf> {
        let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(|name| self.path_var(name));
        let user = self.path_var("HOME").map(|home| home.join(".local"));
        let libs = environments.chain(user).map(|root| root.join("lib"));
        let pythons = libs.flat_map(|lib| children(&lib)).filter(|dir| name_starts(dir, "python"));
        pythons.map(|dir| dir.join("site-packages")).filter(|dir| dir.is_dir()).collect()
    }
}

/// A search in progress.
struct Look<'a> {
    folders: &'a [&'a str],
    pick: &'a dyn Fn(&Path) -> Option<PathBuf>,
    searched: Vec<String>,
}

impl Look<'_> {
    /// An installation's folders.
    fn root(&mut self, root: &Path) -> Option<PathBuf> {
        self.folders.iter().find_map(|folder| {
            let dir = below(root, folder);
            self.searched.push(dir.display().to_string());
            (self.pick)(&dir)
        })
    }

    fn in_wheels(&mut self, packages: &Path) -> Option<PathBuf> {
        let place = format!("{}/nvidia/*/{}", packages.display(), self.folders.first().unwrap_or(&""));
        if self.searched.contains(&place) {
            return None;
        }
        self.searched.push(place);
        self.quietly_in_wheels(packages)
    }

    /// Searches NVIDIA's wheels, which unpack into `nvidia/cu13/bin`, or older ones into
    /// `nvidia/cuda_nvcc/bin`. The newest CUDA comes first.
    fn quietly_in_wheels(&self, packages: &Path) -> Option<PathBuf> {
        let mut roots = children(&packages.join("nvidia"));
        // `cu13` is a toolkit's folder, and `cublas` that of one older wheel.
        let is_toolkit = |root: &PathBuf| {
            let name = root.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix("cu"));
            name.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        roots.sort_by_key(|root| Reverse((is_toolkit(root), root.clone())));
        let mut places = roots.iter().flat_map(|root| self.folders.iter().map(|folder| below(root, folder)));
        places.find_map(|dir| (self.pick)(&dir))
    }
}

/// The output of a [`program`]; none if it is missing or fails.
pub(crate) fn output(name: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program(name)?);
    command.args(arguments);
    programs::output(command)
}

/// The file of that name, or the file of a library with the highest version after its name. A file
/// path is returned unchanged.
fn file_in(dir: &Path, name: &str) -> Option<PathBuf> {
    if dir.is_file() {
        return Some(dir.to_owned());
    }
    let plain = dir.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if plain.is_file() {
        return Some(plain);
    }
    let versioned = || children(dir).into_iter().filter(|path| name_starts(path, &format!("{name}."))).max();
    if name.ends_with(".so") { versioned() } else { None }
}

/// The entries of a folder; none if it does not exist.
fn children(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn name_starts(path: &Path, prefix: &str) -> bool {
    path.file_name().and_then(OsStr::to_str).is_some_and(|name| name.starts_with(prefix))
}

/// `root.join("")` would end in a slash.
fn below(root: &Path, folder: &str) -> PathBuf {
    if folder.is_empty() { root.to_owned() } else { root.join(folder) }
}
