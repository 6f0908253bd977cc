//! `weft setup`

use super::write_out;
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use weft_runtime::nvshmem::Version;
use weft_runtime::{cuda, find};

/// Fetches NVIDIA's wheels with pip: NVSHMEM, ptxas, nvdisasm and nvJitLink. They go into your cache folder, need no root,
/// and touch no Python environment; every command finds them there. What is there already is kept.
#[derive(Args)]
pub struct Setup {
    /// NVSHMEM's version, such as 3.4.5 or 3.4; the newest that is supported if not given.
    #[arg(long, value_name = "VERSION")]
    nvshmem: Option<String>,
    /// CUDA's major version, 12 or 13, which NVSHMEM is built for; the driver's if not given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(12..=13))]
    cuda: Option<u32>,
    /// Fetch NCCL too (200 MB), which `weft bench --against nccl` measures beside ours.
    #[arg(long)]
    nccl: bool,
    /// Fetch anew what is there already.
    #[arg(long)]
    force: bool,
    /// Only print the commands.
    #[arg(long)]
    dry_run: bool,
}

/// A wheel, and the folder of its own that it goes to: a new one of the same folder takes the old one's place.
struct Wheel {
    folder: &'static str,
    package: String,
    /// As pip reads it: `==3.4.*`; may be empty.
    which: String,
    /// Whether a version that is there will do.
    fits: Box<dyn Fn(&str) -> bool>,
}

/// The ways to call pip, best first.
const PIPS: &[&[&str]] = &[&["python3", "-m", "pip"], &["python", "-m", "pip"], &["pip3"], &["pip"]];

/// A user's settings for other installs that pip would refuse `--target` with, or warn about.
const PIP_SETTINGS: [(&str, &str); 3] =
    [("PIP_USER", "0"), ("PIP_REQUIRE_VIRTUALENV", "0"), ("PIP_ROOT_USER_ACTION", "ignore")];

impl Setup {
    pub fn run(&self) -> Result<ExitCode> {
        let wheels = self.wheels()?;
        let folder = find::wheels_folder()
            .context("no place to put wheels\n  help: set HOME, or XDG_CACHE_HOME to an absolute path")?;
        let pip = pip();
        if self.dry_run {
            let pip = pip.unwrap_or(PIPS[0]);
            let lines = wheels.iter().map(|w| command(pip, &w.arguments(&folder.join(w.folder))) + "\n");
            write_out(None, lines.collect::<String>().as_bytes())?;
            return Ok(ExitCode::SUCCESS);
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let _lock = lock(&folder)?;
        for wheel in &wheels {
            let there = wheel.there(&folder).filter(|version| !self.force && (wheel.fits)(version));
            let (version, how) = match there {
                Some(version) => (version, "there already"),
                None => (wheel.fetch(&folder, pip.ok_or_else(no_pip)?)?, "fetched"),
            };
            let line = format!("{:10} {} {version}: {how}\n", wheel.folder, wheel.package);
            write_out(None, line.as_bytes())?;
        }
        let line = format!("\nin {}; `weft doctor` says what is used\n", folder.display());
        write_out(None, line.as_bytes())?;
        Ok(ExitCode::SUCCESS)
    }

    fn wheels(&self) -> Result<Vec<Wheel>> {
        let tool = |folder, package: &str| Wheel {
            folder,
            package: package.into(),
            which: String::new(),
            fits: Box::new(|_| true),
        };
        // Without a driver the newest: who has none yet will get a new one.
        let driver = || cuda::driver_version().map_or(13, |(major, _)| major.clamp(12, 13));
        let cuda = self.cuda.unwrap_or_else(driver);
        let (which, fits) = self.nvshmem_version()?;
        let nvshmem = Wheel { folder: "nvshmem", package: format!("nvidia-nvshmem-cu{cuda}"), which, fits };
        let mut wheels = vec![
            nvshmem,
            tool("ptxas", "nvidia-cuda-nvcc"),
            tool("nvdisasm", "nvidia-cuda-nvdisasm"),
            tool("nvjitlink", "nvidia-nvjitlink"),
        ];
        if self.nccl {
            wheels.push(tool("nccl", &format!("nvidia-nccl-cu{cuda}")));
        }
        Ok(wheels)
    }

    /// What pip is to choose from, and what will do that is there.
    #[allow(clippy::type_complexity, reason = "once")]
    fn nvshmem_version(&self) -> Result<(String, Box<dyn Fn(&str) -> bool>)> {
        let ((a, b), (c, d)) = (Version::SUPPORTED.start(), Version::SUPPORTED.end());
        let Some(text) = self.nvshmem.clone() else {
            let fits = |there: &str| there.parse().is_ok_and(Version::is_supported);
            return Ok((format!(">={a}.{b},<{c}.{}", d + 1), Box::new(fits)));
        };
        let version: Version = text.parse().map_err(|e| anyhow!("--nvshmem: {e}"))?;
        if !version.is_supported() {
            bail!("--nvshmem {text}: versions {a}.{b} to {c}.{d} are supported");
        }
        if text.matches('.').count() == 2 {
            return Ok((format!("=={text}"), Box::new(move |there| there.parse() == Ok(version))));
        }
        let minor = (version.major, version.minor);
        let fits = move |there: &str| there.parse().is_ok_and(|v: Version| (v.major, v.minor) == minor);
        Ok((format!("=={text}.*"), Box::new(fits)))
    }
}

impl Wheel {
    fn arguments(&self, target: &Path) -> Vec<String> {
        let fixed =
            ["install", "--no-deps", "--no-compile", "--only-binary", ":all:", "--disable-pip-version-check"];
        let mut out: Vec<String> = fixed.map(String::from).into();
        out.extend([
            "--target".into(),
            target.display().to_string(),
            format!("{}{}", self.package, self.which),
        ]);
        out
    }

    /// The version that is there, as its metadata says.
    fn there(&self, wheels: &Path) -> Option<String> {
        self.version_in(&wheels.join(self.folder))
    }

    fn version_in(&self, folder: &Path) -> Option<String> {
        let names = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let package = self.package.replace('-', "_");
        names.into_iter().find_map(|name| {
            Some(name.strip_suffix(".dist-info")?.strip_prefix(&package)?.strip_prefix('-')?.to_owned())
        })
    }

    /// Fetches it beside its place, then moves it there, so that no half of one ever stands there.
    fn fetch(&self, wheels: &Path, pip: &[&str]) -> Result<String> {
        let new = wheels.join(format!(".new-{}", self.folder));
        let old = wheels.join(format!(".old-{}", self.folder));
        let place = wheels.join(self.folder);
        // What an interrupted setup left: nobody else is at work, since we have the lock.
        for left in [&new, &old] {
            remove(left)?;
        }
        let arguments = self.arguments(&new);
        // pip's progress is not this command's answer.
        let status = Command::new(pip[0])
            .args(&pip[1..])
            .args(&arguments)
            .envs(PIP_SETTINGS)
            .stdin(Stdio::null())
            .stdout(Stdio::from(std::io::stderr()))
            .status();
        let status = status.with_context(|| format!("cannot run `{}`", command(pip, &arguments)))?;
        if !status.success() {
            let _ = fs::remove_dir_all(&new);
            bail!(
                "pip failed ({status}): `{}`\n  help: its own message stands above; behind a proxy or a mirror, set \
                 what pip reads (PIP_INDEX_URL, HTTPS_PROXY); what was there is as it was",
                command(pip, &arguments)
            );
        }
        let version = self.version_in(&new);
        let version =
            version.with_context(|| format!("pip put no {} into {}", self.package, new.display()))?;
        if place.exists() {
            rename(&place, &old)?;
        }
        rename(&new, &place)?;
        remove(&old)?;
        Ok(version)
    }
}

/// A command as a shell takes it.
fn command(pip: &[&str], arguments: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+@%,".contains(c);
    let word = |word: &str| match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words = pip.iter().copied().chain(arguments.iter().map(String::as_str));
    words.map(word).collect::<Vec<_>>().join(" ")
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

/// One setup at a time; the lock ends with the process.
fn lock(folder: &Path) -> Result<File> {
    let path: PathBuf = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => {
            bail!("another `weft setup` is at work in {}", folder.display())
        }
        Err(fs::TryLockError::Error(e)) => Err(e).with_context(|| format!("cannot lock {}", path.display())),
    }
}

/// How pip is called here.
fn pip() -> Option<&'static [&'static str]> {
    PIPS.iter().copied().find(|pip| {
        let said = Command::new(pip[0])
            .args(&pip[1..])
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        said.is_ok_and(|status| status.success())
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
