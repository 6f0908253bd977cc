//! The command `weft setup`.

mod wheels;

use super::write_out;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use weft_runtime::nvshmem::Version;
use weft_runtime::owned::{self, Trust};
use weft_runtime::{cuda, find};
use wheels::Pinned;

/// Fetch NVIDIA's wheels with pip: NVSHMEM, ptxas, nvdisasm and nvJitLink. They go into your cache
/// folder, need no root, and change no Python environment. Every command finds them there. Existing
/// wheels are kept. This program contains the versions and hashes of the wheels, and pip rejects
/// any other file.
#[derive(Args)]
pub struct Setup {
    /// The version of NVSHMEM, such as 3.4.5 or 3.4. The default is the newest supported version.
    #[arg(long, value_name = "VERSION")]
    nvshmem: Option<String>,
    /// CUDA's major version, 12 or 13, that NVSHMEM is built for. The default is the driver's.
    #[arg(long, value_parser = clap::value_parser!(u32).range(12..=13))]
    cuda: Option<u32>,
    /// Also fetch NCCL (200 MB), which `weft bench --against nccl` measures.
    #[arg(long)]
    nccl: bool,
    /// Also fetch cuBLAS (600 MB), which `weft bench gemm --against cublas` measures.
    #[arg(long)]
    cublas: bool,
    /// The index that pip fetches from, such as a mirror. pip's own index settings do not apply.
    #[arg(long, value_name = "URL")]
    index_url: Option<String>,
    /// Fetch existing wheels again.
    #[arg(long)]
    force: bool,
    /// Only print the commands.
    #[arg(long)]
    dry_run: bool,
}

/// A wheel and its folder. A new wheel of the same folder replaces the old one.
struct Wheel {
    folder: &'static str,
    /// The version to fetch.
    pinned: &'static Pinned,
    /// Installed versions that are also accepted.
    fits: Vec<&'static str>,
}

/// A command that calls pip, without the arguments.
struct Pip {
    program: PathBuf,
    before: &'static [&'static str],
}

/// A file in a wheel's folder with the requirement that pip has checked the wheel against.
const REQUIREMENT: &str = ".requirement";

/// Settings of pip that choose the source of packages. They do not apply.
const INDEX_SETTINGS: [&str; 4] =
    ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"];

/// Settings of pip for reaching the same index through a network. They are passed on as options.
const NETWORK_SETTINGS: [(&str, &str); 2] = [("PIP_CERT", "--cert"), ("PIP_PROXY", "--proxy")];

impl Setup {
    pub fn run(&self) -> Result<ExitCode> {
        let wheels = self.wheels()?;
        let ours = find::cache_folder().zip(find::wheels_folder());
        let (ours, folder) = ours.context(
            "there is no folder for the wheels\n  help: set HOME, or set XDG_CACHE_HOME to an absolute path",
        )?;
        let pip = pip();
        if self.dry_run {
            let pip = pip.as_ref();
            let lines = wheels.iter().map(|w| {
                let arguments = self.arguments(&folder.join(w.folder));
                format!("echo '{}' | {}\n", w.pinned.requirement(), command(pip, &arguments))
            });
            write_out(None, lines.collect::<String>().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        for place in [&ours, &folder] {
            owned::make_folder(place, Trust::Owner)
                .with_context(|| format!("cannot use {}", place.display()))?;
        }
        self.say_what_does_not_apply();
        let _lock = lock(&folder)?;
        for wheel in &wheels {
            let there =
                wheel.there(&folder).filter(|version| !self.force && wheel.fits.contains(&&**version));
            let (version, how) = match there {
                Some(version) => (version, "there already"),
                None => {
                    self.fetch(wheel, &folder, pip.as_ref().ok_or_else(no_pip)?)?;
                    (wheel.pinned.version.to_owned(), "fetched")
                }
            };
            let line = format!("{:10} {} {version}: {how}\n", wheel.folder, wheel.pinned.package);
            write_out(None, line.as_bytes())?;
        }
        let line = format!("\nThe wheels are in {}; `weft doctor` shows what is used.\n", folder.display());
        write_out(None, line.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    fn say_what_does_not_apply(&self) {
        let set = INDEX_SETTINGS.iter().filter(|var| std::env::var_os(var).is_some());
        if self.index_url.is_none() {
            set.for_each(|var| {
                eprintln!(
                    "note: {var} is set, but `weft setup` does not use it; name an index with --index-url"
                )
            });
        }
    }

    fn wheels(&self) -> Result<Vec<Wheel>> {
        // Without a driver the newest version is chosen, since a new machine gets a new driver.
        let driver = || cuda::driver_version().map_or(13, |(major, _)| major.clamp(12, 13));
        let cuda = self.cuda.unwrap_or_else(driver);
        let mut wheels = vec![
            self.nvshmem_wheel(&format!("nvidia-nvshmem-cu{cuda}"))?,
            newest("ptxas", "nvidia-cuda-nvcc")?,
            newest("nvdisasm", "nvidia-cuda-nvdisasm")?,
            newest("nvjitlink", "nvidia-nvjitlink")?,
        ];
        if self.nccl {
            wheels.push(newest("nccl", &format!("nvidia-nccl-cu{cuda}"))?);
        }
        if self.cublas {
            // Only the wheel of CUDA 12 has the CUDA version in its name.
            let package = if cuda == 12 { "nvidia-cublas-cu12" } else { "nvidia-cublas" };
            wheels.push(newest("cublas", package)?);
        }
        Ok(wheels)
    }

    /// The newest NVSHMEM, or the newest release of the requested version.
    fn nvshmem_wheel(&self, package: &str) -> Result<Wheel> {
        let Some(text) = &self.nvshmem else { return newest("nvshmem", package) };
        let version: Version = text.parse().map_err(|e| anyhow!("--nvshmem: {e}"))?;
        let ((a, b), (c, d)) = (Version::SUPPORTED.start(), Version::SUPPORTED.end());
        if !version.is_supported() {
            bail!("--nvshmem {text}: versions {a}.{b} to {c}.{d} are supported");
        }
        let whole = text.matches('.').count() == 2;
        let asked = |there: &&Pinned| {
            let parsed = there.version.parse::<Version>();
            parsed.is_ok_and(|v| {
                if whole { v == version } else { (v.major, v.minor) == (version.major, version.minor) }
            })
        };
        let mut known = wheels::versions(package).filter(asked).peekable();
        let Some(pinned) = known.peek().copied() else {
            let known: Vec<_> = wheels::versions(package).map(|wheel| wheel.version).collect();
            bail!(
                "--nvshmem {text}: this version of weft knows the hashes of {} alone\n  help: take one of them, or \
                 install that version yourself and set NVSHMEM_HOME to it",
                known.join(", ")
            );
        };
        Ok(Wheel { folder: "nvshmem", pinned, fits: known.map(|wheel| wheel.version).collect() })
    }

    fn arguments(&self, target: &Path) -> Vec<String> {
        let fixed = [
            "--isolated",
            "install",
            "--require-hashes",
            "--no-deps",
            "--no-compile",
            "--only-binary",
            ":all:",
            "--disable-pip-version-check",
            "--root-user-action",
            "ignore",
            "--target",
        ];
        let mut out: Vec<String> = fixed.map(String::from).into();
        out.push(target.display().to_string());
        if let Some(url) = &self.index_url {
            out.extend(["--index-url".into(), url.clone()]);
        }
        let network =
            NETWORK_SETTINGS.iter().filter_map(|(var, option)| Some((option, std::env::var(var).ok()?)));
        network.for_each(|(option, value)| out.extend([(*option).into(), value]));
        out.extend(["-r".into(), "/dev/stdin".into()]);
        out
    }

    /// Fetches a wheel into a temporary folder and then moves it, so that the folder never contains
    /// half a wheel.
    fn fetch(&self, wheel: &Wheel, wheels: &Path, pip: &Pip) -> Result<()> {
        let new = wheels.join(format!(".new-{}", wheel.folder));
        let old = wheels.join(format!(".old-{}", wheel.folder));
        let place = wheels.join(wheel.folder);
        // These are left from an interrupted setup: no other setup runs, since this one has the
        // lock.
        for left in [&new, &old] {
            remove(left)?;
        }
        let arguments = self.arguments(&new);
        let requirement = wheel.pinned.requirement();
        let status = install(pip, &arguments, &requirement);
        let status = status.with_context(|| format!("cannot run `{}`", command(Some(pip), &arguments)))?;
        if !status.success() {
            let _ = fs::remove_dir_all(&new);
            bail!(
                "pip failed ({status}): `{}`\n  with the requirement {requirement}\n  help: its own message stands \
                 above; behind a proxy set HTTPS_PROXY, for a mirror give --index-url; what was there is as it was",
                command(Some(pip), &arguments)
            );
        }
        let found = version_in(&new, wheel.pinned.package);
        found.with_context(|| {
            format!("pip did not install {} into {}", wheel.pinned.package, new.display())
        })?;
        let keep = || {
            owned::close_to_others(&new)?;
            owned::write(&new.join(REQUIREMENT), &[requirement.as_bytes()], Trust::Owner)
        };
        keep().with_context(|| format!("cannot write {}", new.display()))?;
        if place.exists() {
            rename(&place, &old)?;
        }
        rename(&new, &place)?;
        remove(&old)
    }
}

/// The newest version of a package.
fn newest(folder: &'static str, package: &str) -> Result<Wheel> {
    let mut known = wheels::versions(package).peekable();
    let pinned = *known.peek().with_context(|| format!("there is no known version of {package}"))?;
    Ok(Wheel { folder, pinned, fits: known.map(|wheel| wheel.version).collect() })
}

impl Wheel {
    /// The installed version, if pip has checked its hash.
    fn there(&self, wheels: &Path) -> Option<String> {
        let folder = wheels.join(self.folder);
        let version = version_in(&folder, self.pinned.package)?;
        let checked = owned::read(&folder.join(REQUIREMENT), 4096, Trust::Owner).ok()?;
        let known = wheels::versions(self.pinned.package).find(|wheel| wheel.version == version)?;
        (known.requirement().as_bytes() == checked).then_some(version)
    }
}

/// The version of a package in a folder, according to its metadata.
fn version_in(folder: &Path, package: &str) -> Option<String> {
    let names = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let package = package.replace('-', "_");
    names.into_iter().find_map(|name| {
        Some(name.strip_suffix(".dist-info")?.strip_prefix(&package)?.strip_prefix('-')?.to_owned())
    })
}

/// Runs pip with a requirement on its standard input.
fn install(pip: &Pip, arguments: &[String], requirement: &str) -> std::io::Result<ExitStatus> {
    // The progress of pip is not part of this command's output.
    let quiet = super::verbosity::quiet().then_some("--quiet");
    let child = pip
        .command()
        .args(arguments)
        .args(quiet)
        .stdin(Stdio::piped())
        .stdout(Stdio::from(std::io::stderr()))
        .spawn();
    let mut child = child?;
    if let Some(mut input) = child.stdin.take() {
        // If pip ends without reading, its status says why.
        let _ = writeln!(input, "{requirement}");
    }
    child.wait()
}

/// Formats a command for a shell.
fn command(pip: Option<&Pip>, arguments: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+@%,".contains(c);
    let word = |word: &str| match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let pip = pip.map_or_else(|| PIPS[0].join(" "), Pip::shown);
    let words = arguments.iter().map(|argument| word(argument));
    [pip].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(e).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Allows one setup at a time. The lock ends with the process.
fn lock(folder: &Path) -> Result<File> {
    let path: PathBuf = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another `weft setup` is running in {}", folder.display())
        }
        Err(fs::TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// The ways to call pip, best first. Python runs isolated, so it imports nothing from the current
/// folder.
const PIPS: &[&[&str]] =
    &[&["python3", "-I", "-m", "pip"], &["python", "-I", "-m", "pip"], &["pip3"], &["pip"]];

impl Pip {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Python must not import or read files from the current folder or from a folder with a
        // relative path.
        command.args(self.before).current_dir("/").env_remove("PYTHONPATH").env("PYTHONSAFEPATH", "1");
        command.env("PIP_CONFIG_FILE", "/dev/null");
        command
    }

    fn shown(&self) -> String {
        let program = self.program.display().to_string();
        let words = [program.as_str()].into_iter().chain(self.before.iter().copied());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Finds the way to call pip on this machine.
fn pip() -> Option<Pip> {
    let known = |words: &&'static [&'static str]| {
        Some(Pip { program: find::program(words[0])?, before: &words[1..] })
    };
    PIPS.iter().filter_map(known).find(|pip| {
        let mut command = pip.command();
        command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

fn no_pip() -> anyhow::Error {
    let tried: Vec<_> = PIPS.iter().map(|pip| pip.join(" ")).collect();
    anyhow!(
        "no pip here; tried {}\n  help: install Python with pip (Debian: apt install python3-pip; without root: \
         `python3 -m ensurepip --user`), or unpack NVSHMEM yourself and set NVSHMEM_HOME to it",
        tried.join(", ")
    )
}
