//! Finds LLVM 22: the library inside the Rust toolchain (`rust-llvm`), or the system's shared
//! library (`system-llvm`). The program opens it when it compiles its first kernel, and searches
//! this place first. The feature `static-llvm` links the necessary parts of the system's LLVM
//! instead. Neither llvm-sys nor inkwell link LLVM here (`no-llvm-linking`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const MAJOR: &str = "22";

/// A shared library of LLVM: its folder, and its name for the linker.
struct Llvm {
    directory: PathBuf,
    name: String,
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let has = |feature: &str| env::var_os(format!("CARGO_FEATURE_{feature}")).is_some();
    println!("cargo::rustc-check-cfg=cfg(open_llvm)");
    if has("STATIC_LLVM") {
        return static_llvm().unwrap_or_else(|message| report(&message));
    }
    let found = if has("SYSTEM_LLVM") {
        system_llvm()
    } else if has("RUST_LLVM") {
        rust_llvm()
    } else {
        Err("no LLVM is chosen; enable one of the features `rust-llvm` (default), `system-llvm` and `static-llvm`".into())
    };
    match found {
        Ok(llvm) if is_opened() => {
            println!("cargo::rustc-cfg=open_llvm");
            println!("cargo::rustc-env=WEFT_LLVM_FOLDER={}", llvm.directory.display());
        }
        Ok(Llvm { directory, name }) => {
            let directory = directory.display();
            println!("cargo::rustc-link-search=native={directory}");
            println!("cargo::rustc-link-lib=dylib={name}");
            println!("cargo::rustc-link-arg=-Wl,-rpath,{directory}");
            println!("cargo::metadata=LIBDIR={directory}");
        }
        Err(message) => report(&message),
    }
}

/// Whether programs open the library at run time. `src/raw/open.rs` supports this on the processors
/// named here. On others the library is linked.
fn is_opened() -> bool {
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|v| v == value);
    is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_OS", "linux")
}

/// Makes Cargo stop with a message. Cargo then shows these lines and not the rest of the output.
fn report(message: &str) {
    message.lines().for_each(|line| println!("cargo::error={line}"));
}

/// Finds `libLLVM-22-rust-1.95.0-stable.so` in the library folder of `rustc`.
fn rust_llvm() -> Result<Llvm, String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let sysroot = output(Command::new(&rustc).args(["--print", "sysroot"]))?;
    let directory = Path::new(&sysroot).join("lib");
    let entries = std::fs::read_dir(&directory).map_err(|e| format!("cannot list {directory:?}: {e}"))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|file| Some(file.strip_prefix("lib")?.strip_suffix(".so")?.to_owned()))
        .filter(|name| name.starts_with("LLVM-"))
        .collect();
    names.sort();
    match names.iter().find(|name| name.starts_with(&format!("LLVM-{MAJOR}-rust-"))) {
        Some(name) => Ok(Llvm { directory, name: name.clone() }),
        None => {
            let found = if names.is_empty() { "none".into() } else { names.join(", ") };
            let version = output(Command::new(&rustc).arg("--version")).unwrap_or_default();
            Err(format!(
                "found no libLLVM-{MAJOR}-rust-*.so in {} (found: {found}; {version})\n\
                 Rust's own LLVM must be version {MAJOR} and a shared library, as rustup's toolchain 1.95.0 for Linux has it.\n\
                 Do `rustup toolchain install 1.95.0`, or install LLVM {MAJOR} (Debian: `apt install llvm-{MAJOR}-dev`) and build with \
                 `--no-default-features --features system-llvm`.",
                directory.display()
            ))
        }
    }
}

const PREFIX: &str = "LLVM_SYS_221_PREFIX";

/// The components of LLVM that warpweft, and inkwell within it, use. `llvm-config` knows what these
/// need in turn.
const COMPONENTS: &[&str] = &[
    "nvptx",
    "passes",
    "ipo",
    "linker",
    "bitreader",
    "bitwriter",
    "irreader",
    "analysis",
    "core",
    "executionengine",
];

/// Links the archives of the system's LLVM, together with the C++ library and the compression
/// libraries that they call, so that the program or shared object does not need these where it
/// runs.
fn static_llvm() -> Result<(), String> {
    let llvm = Config::find()?;
    let mut args = vec!["--link-static", "--libnames"];
    args.extend(COMPONENTS);
    let names =
        llvm.ask(&args).map_err(|e| format!("LLVM {MAJOR} has no archives: {e}\n{}", Config::help()))?;
    println!("cargo::rustc-link-search=native={}", llvm.ask(&["--libdir"])?);
    for name in names.split_whitespace() {
        let name = name.strip_prefix("lib").and_then(|n| n.strip_suffix(".a"));
        println!(
            "cargo::rustc-link-lib=static={}",
            name.ok_or_else(|| format!("strange archives: {names}"))?
        );
    }
    let cxx = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    for archive in ["libzstd.a", "libz.a", "libstdc++.a"] {
        let path = output(Command::new(&cxx).arg(format!("-print-file-name={archive}")))?;
        // For a name that it does not find, the compiler prints the name itself.
        let Some(folder) = Path::new(&path).parent().filter(|folder| folder.is_absolute()) else {
            return Err(format!(
                "found no {archive}: do `apt install g++ libzstd-dev zlib1g-dev`, or your system's like"
            ));
        };
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static={}", archive.trim_start_matches("lib").trim_end_matches(".a"));
    }
    Ok(())
}

/// Finds the shared library of the system's LLVM.
fn system_llvm() -> Result<Llvm, String> {
    let llvm = Config::find()?;
    let libs = llvm
        .ask(&["--link-shared", "--libs"])
        .map_err(|e| format!("LLVM {MAJOR} has no shared library: {e}\n{}", Config::help()))?;
    let directory = llvm.ask(&["--libdir"])?.into();
    let name = libs.split_whitespace().find_map(|word| word.strip_prefix("-l"));
    let name = name.ok_or_else(|| format!("llvm-config names no library: {libs}\n{}", Config::help()))?;
    Ok(Llvm { directory, name: name.to_owned() })
}

/// The program `llvm-config` of an LLVM 22.
struct Config(PathBuf);

impl Config {
    /// Finds that of `LLVM_SYS_221_PREFIX`, `llvm-config-22` or `llvm-config`, whichever exists
    /// first.
    fn find() -> Result<Config, String> {
        println!("cargo::rerun-if-env-changed=PATH");
        println!("cargo::rerun-if-env-changed={PREFIX}");
        let candidates: Vec<PathBuf> = match env::var_os(PREFIX) {
            Some(prefix) => vec![Path::new(&prefix).join("bin/llvm-config")],
            None => vec![format!("llvm-config-{MAJOR}").into(), "llvm-config".into()],
        };
        let mut found = Vec::new();
        for path in &candidates {
            let Ok(version) = output(Command::new(path).arg("--version")) else { continue };
            if version.split('.').next() == Some(MAJOR) {
                return Ok(Config(path.clone()));
            }
            found.push(format!("{} is of LLVM {version}", path.display()));
        }
        if found.is_empty() {
            let tried: Vec<_> = candidates.iter().map(|c| c.display().to_string()).collect();
            found.push(format!("tried {}", tried.join(", ")));
        }
        Err(format!("found no LLVM {MAJOR}: {}\n{}", found.join(", "), Config::help()))
    }

    fn ask(&self, args: &[&str]) -> Result<String, String> {
        output(Command::new(&self.0).args(args))
    }

    fn help() -> String {
        format!(
            "Do `apt install llvm-{MAJOR}-dev` (or your system's like), or set {PREFIX} to the folder of an LLVM {MAJOR}, \
             or build with the feature `rust-llvm` instead, which needs no LLVM installed."
        )
    }
}

/// The output of a command.
fn output(command: &mut Command) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if out.status.success() {
        Ok(text(&out.stdout))
    } else {
        Err(format!("{command:?} failed: {}", text(&out.stderr)))
    }
}
