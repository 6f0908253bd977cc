//! The compile-time parameters of the library's GEMM kernel, and plans that give them values.

use std::fmt;
use std::str::FromStr;
use weft_lang::elaborate::Define;

/// A compile-time parameter of the kernel that a plan chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name in the kernel, such as `BM`. The text of a plan has it in small letters.
    pub name: &'static str,
    /// The values that the kernel supports. The first one is the default.
    pub values: &'static [u32],
    /// A sentence that says what it sets.
    pub about: &'static str,
}

/// Declares the parameters, one in each row.
macro_rules! parameters {
    ($(#[doc = $about:literal] $param:ident = $name:literal: [$($value:literal),*];)*) => {
        /// Names a parameter of the kernel.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Param {
            $(#[doc = $about] $param,)*
        }

        impl Param {
            /// Every parameter, in the order of [`Plan::PARAMETERS`].
            pub const ALL: &[Param] = &[$(Param::$param),*];
        }

        /// Every parameter of the kernel with the values that it supports.
        pub(super) const PARAMETERS: &[Parameter] =
            &[$(Parameter { name: $name, values: &[$($value),*], about: $about.trim_ascii() }),*];
    };
}

// To add a parameter of the kernel, add a row. Its first value must keep the previous behaviour,
// because stored plans do not name it. Its memory and time belong into fit.rs and model.rs.
parameters! {
    /// Rows of an output tile.
    Bm = "BM": [128, 256, 64];
    /// Columns of an output tile.
    Bn = "BN": [256, 248, 240, 232, 224, 216, 208, 200, 192, 184, 176, 168, 160, 152, 144, 136, 128, 120, 112, 104, 96, 88, 80, 72, 64, 56, 48, 40, 32, 24, 16];
    /// Elements along K of a stage.
    Bk = "BK": [64, 128, 32];
    /// Stages of the pipeline that feeds the matrix instructions.
    Stages = "STAGES": [4, 8, 7, 6, 5, 3, 2];
    /// CTAs of a cluster with tiles below each other, each of which loads its part of B for all.
    Ctas = "CTAS": [1, 2, 4];
    /// CTAs of a cluster that share a tile, each of which adds up the products of a part of K.
    Split = "SPLIT": [1, 2, 4, 8];
    /// 1 exchanges A and B and computes tiles of the transpose of D, which suits an A with few rows.
    Swap = "SWAP": [0, 1];
    /// 1 for two roles with own tiles, of which one multiplies while the other writes its tile.
    Turns = "TURNS": [0, 1];
}

const N: usize = PARAMETERS.len();

/// A value for each of [`Plan::PARAMETERS`].
///
/// As text it is `bm=128,bn=256,bk=64,stages=4,ctas=1,split=1,swap=0,turns=0`. Parameters that the
/// text omits have their first value.
///
/// ```
/// use weft::gemm::{Param, Plan};
///
/// let plan: Plan = "bn=128,stages=6".parse()?;
/// assert_eq!((plan.get(Param::Bm), plan.get(Param::Bn)), (128, 128));
/// assert_eq!(plan.to_string(), "bm=128,bn=128,bk=64,stages=6,ctas=1,split=1,swap=0,turns=0");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan([u32; N]);

impl Plan {
    /// Every parameter of the kernel with the values that it supports.
    pub const PARAMETERS: &[Parameter] = PARAMETERS;

    /// The value of a parameter.
    pub fn get(&self, param: Param) -> u32 {
        self.0[param as usize]
    }

    /// The plan with another value of a parameter.
    ///
    /// # Errors
    /// Fails for a value that the kernel does not support. The message lists those that it supports.
    pub fn with(mut self, param: Param, value: u32) -> Result<Plan, String> {
        let Parameter { name, values, .. } = PARAMETERS[param as usize];
        if !values.contains(&value) {
            let mut known = values.to_vec();
            known.sort_unstable();
            let known: Vec<_> = known.iter().map(u32::to_string).collect();
            let name = name.to_ascii_lowercase();
            return Err(format!("{name}={value} is not supported: expected {}", known.join(", ")));
        }
        self.0[param as usize] = value;
        Ok(self)
    }

    /// Every plan whose parameters have values that the kernel supports, whether or not it fits.
    pub fn all() -> impl Iterator<Item = Plan> {
        Plan::of_widths(PARAMETERS[Param::Bn as usize].values)
    }

    /// The same, for tiles of these numbers of columns.
    pub(super) fn of_widths(widths: impl AsRef<[u32]>) -> impl Iterator<Item = Plan> {
        let is_width = |i: usize| i == Param::Bn as usize;
        let others: usize = (0..N).filter(|i| !is_width(*i)).map(|i| PARAMETERS[i].values.len()).product();
        (0..others * widths.as_ref().len()).map(move |index| {
            let mut rest = index;
            Plan(std::array::from_fn(|i| {
                let values = if is_width(i) { widths.as_ref() } else { PARAMETERS[i].values };
                let value = values[rest % values.len()];
                rest /= values.len();
                value
            }))
        })
    }

    /// The values as the kernel's compile-time parameters.
    pub fn defines(&self) -> impl Iterator<Item = (String, Define)> {
        PARAMETERS.iter().zip(self.0).map(|(p, value)| (p.name.to_owned(), value.into()))
    }
}

impl Default for Plan {
    /// The first value of each parameter.
    fn default() -> Plan {
        Plan(std::array::from_fn(|i| PARAMETERS[i].values[0]))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (p, value)) in PARAMETERS.iter().zip(self.0).enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}={value}", p.name.to_ascii_lowercase())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan({self})")
    }
}

weft_abi::stored_as_text!(Plan);

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        let mut plan = Plan::default();
        let mut named = Vec::new();
        for part in text.split(',') {
            let (name, value) =
                part.split_once('=').ok_or_else(|| format!("`{part}` in a plan: expected NAME=VALUE"))?;
            let param = Param::ALL.iter().find(|p| PARAMETERS[**p as usize].name.eq_ignore_ascii_case(name));
            let Some(param) = param.copied() else {
                let known: Vec<_> = PARAMETERS.iter().map(|p| p.name.to_ascii_lowercase()).collect();
                return Err(format!(
                    "`{name}` is not a parameter of the kernel: expected {}",
                    known.join(", ")
                ));
            };
            if named.contains(&param) {
                return Err(format!("`{name}` is given twice"));
            }
            named.push(param);
            let number = value.parse().map_err(|_| format!("`{part}`: the value must be a whole number"))?;
            plan = plan.with(param, number)?;
        }
        Ok(plan)
    }
}
