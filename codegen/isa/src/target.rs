//! Targets of compilation, their families, and versions of PTX.

use std::fmt;
use std::str::FromStr;

use crate::table::{TableError, tables};

/// A version of PTX, as in `.version 8.1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PtxVersion {
    /// The number before the point.
    pub major: u8,
    /// The digit after the point.
    pub minor: u8,
}

impl PtxVersion {
    /// Creates the version number `major.minor`.
    pub const fn new(major: u8, minor: u8) -> PtxVersion {
        PtxVersion { major, minor }
    }

    /// The highest version that LLVM 22 prints. A kernel that needs a higher version is printed
    /// with this one, and its `.version` line is replaced.
    pub fn llvm_highest() -> PtxVersion {
        tables().targets.llvm_ptx
    }

    /// The subtarget feature that makes LLVM print this version: `+ptx81`.
    pub fn llvm_feature(self) -> String {
        format!("+ptx{}{}", self.major, self.minor)
    }
}

impl fmt::Display for PtxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

impl FromStr for PtxVersion {
    type Err = BadVersion;

    fn from_str(text: &str) -> Result<PtxVersion, BadVersion> {
        let parts = text.split_once('.').and_then(|(a, b)| Some((digit(a)?, digit(b)?)));
        parts.map(|(major, minor)| PtxVersion { major, minor }).ok_or_else(|| BadVersion(text.into()))
    }
}

fn digit(text: &str) -> Option<u8> {
    match text.as_bytes() {
        [d @ b'0'..=b'9'] => Some(d - b'0'),
        _ => None,
    }
}

/// A text that is not a version of PTX.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a version of PTX: expected two digits with a point between, such as 8.6")]
pub struct BadVersion(pub String);

/// The later architectures on which a target's code can run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Variant {
    /// `sm_90`: code runs on this and every later architecture.
    Plain,
    /// `sm_100f`: code runs on this and the later architectures of its family.
    Family,
    /// `sm_90a`: code runs on this architecture alone.
    Arch,
}

/// A row of `targets.table`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct TargetRow {
    pub name: &'static str,
    pub number: u16,
    pub variant: Variant,
    pub family: u16,
    pub ptx: PtxVersion,
    pub llvm: &'static str,
    pub shared: u32,
}

/// The contents of `targets.table`.
pub(crate) struct Targets {
    pub llvm_ptx: PtxVersion,
    pub rows: Vec<TargetRow>,
}

impl Targets {
    pub(crate) fn parse(text: &'static str) -> Result<Targets, TableError> {
        let mut llvm_ptx = None;
        let mut rows = Vec::new();
        for line in crate::table::lines(text) {
            if let Some(version) = line.text.strip_prefix("llvm-ptx ") {
                llvm_ptx = version.trim().parse().ok();
                continue;
            }
            let [name, family, ptx, llvm, shared] = line.cells()?;
            let (number, variant) = split_name(name).ok_or_else(|| line.error("a name such as sm_100a"))?;
            let family = family.parse().map_err(|_| line.error("a family number"))?;
            let ptx = ptx.parse().map_err(|_| line.error("a PTX version"))?;
            let shared = shared.parse().map_err(|_| line.error("KiB of shared memory"))?;
            rows.push(TargetRow { name, number, variant, family, ptx, llvm, shared });
        }
        let end = TableError { line: 0, expected: "a line `llvm-ptx` with a version" };
        Ok(Targets { llvm_ptx: llvm_ptx.ok_or(end)?, rows })
    }
}

/// Splits a name: `sm_100f` gives 100 and [`Variant::Family`].
fn split_name(name: &str) -> Option<(u16, Variant)> {
    let rest = name.strip_prefix("sm_")?;
    let (digits, variant) = match rest.as_bytes().last()? {
        b'a' => (&rest[..rest.len() - 1], Variant::Arch),
        b'f' => (&rest[..rest.len() - 1], Variant::Family),
        _ => (rest, Variant::Plain),
    };
    digits.parse().ok().map(|number| (number, variant))
}

/// A target that kernels can be compiled for. `Display` and [`FromStr`] use its name, such as
/// `sm_90a`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Target(&'static TargetRow);

impl Target {
    /// Every target, oldest first.
    pub fn all() -> impl Iterator<Item = Target> {
        tables().targets.rows.iter().map(Target)
    }

    /// The name of the target, as in `.target`.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The number of the architecture, such as 100 for `sm_100a`.
    pub fn number(self) -> u16 {
        self.0.number
    }

    /// The kind of target that the suffix stands for.
    pub fn variant(self) -> Variant {
        self.0.variant
    }

    /// The number of the oldest target of its family, such as 100 for `sm_103a`.
    pub fn family(self) -> u16 {
        self.0.family
    }

    /// The lowest version of PTX that has the target.
    pub fn min_ptx(self) -> PtxVersion {
        self.0.ptx
    }

    /// The maximum number of bytes of shared memory of a CTA.
    pub fn shared_limit(self) -> u32 {
        self.0.shared * 1024
    }

    /// The CPU for LLVM: the target's own name, or the nearest older target of its family if LLVM
    /// 22 does not know it. In the second case the `.target` line that LLVM prints must be
    /// replaced.
    pub fn llvm_cpu(self) -> &'static str {
        self.0.llvm
    }

    /// Whether LLVM 22 prints its `.target` line itself.
    pub fn llvm_knows(self) -> bool {
        self.0.llvm == self.0.name
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0.name)
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(text: &str) -> Result<Target, UnknownTarget> {
        Target::all().find(|t| t.name() == text).ok_or_else(|| UnknownTarget { name: text.into() })
    }
}

/// The error for a text that names no target.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown target `{name}`; known: {}", known())]
pub struct UnknownTarget {
    /// The text that was given.
    pub name: String,
}

fn known() -> String {
    Target::all().map(Target::name).collect::<Vec<_>>().join(", ")
}

/// The targets that have a form, as a word in a row's last column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TargetSpec {
    /// `sm_90+`.
    From(u16),
    /// `sm_100f+`.
    FamilyFrom { number: u16, family: u16 },
    /// `sm_120a`.
    Only(u16, Variant),
}

impl TargetSpec {
    pub(crate) fn parse(word: &str, targets: &Targets) -> Option<TargetSpec> {
        let Some(least) = word.strip_suffix('+') else {
            return split_name(word).map(|(number, variant)| TargetSpec::Only(number, variant));
        };
        let (number, variant) = split_name(least)?;
        match variant {
            Variant::Plain => Some(TargetSpec::From(number)),
            Variant::Arch => None,
            Variant::Family => {
                let row = targets.rows.iter().find(|row| row.name == least)?;
                Some(TargetSpec::FamilyFrom { number, family: row.family })
            }
        }
    }

    pub(crate) fn has(self, target: Target) -> bool {
        let t = target.0;
        match self {
            TargetSpec::From(number) => t.number >= number,
            TargetSpec::FamilyFrom { number, family } => {
                t.variant != Variant::Plain && t.family == family && t.number >= number
            }
            TargetSpec::Only(number, variant) => (t.number, t.variant) == (number, variant),
        }
    }
}
