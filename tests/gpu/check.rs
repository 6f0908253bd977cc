//! Helpers of the cases: data that depends on (PE, index, iteration), and checks that show the
//! values that differ.

use half::{bf16, f16};
use weft::runtime::{Element, World};

/// The result of a case's body.
pub type Checked = Result<(), Box<dyn std::error::Error>>;

/// The end of a job.
pub struct Outcome {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub seconds: f64,
}

impl Outcome {
    /// A text with the reason `why` and the output of the job.
    pub fn told(&self, why: &str) -> String {
        let (code, out, err) = (self.code, &self.out, &self.err);
        format!("{why}\nstatus {code:?}\n--- output\n{out}\n--- errors\n{err}")
    }
}

/// A test: a body that every PE runs, and a function that judges the end of the job.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub min_pes: u32,
    pub env: &'static [(&'static str, &'static str)],
    pub body: fn(&World) -> Checked,
    pub judge: fn(&Outcome) -> Result<(), String>,
}

impl Case {
    /// A case in which all PEs must succeed.
    pub const fn new(name: &'static str, body: fn(&World) -> Checked) -> Case {
        Case { name, min_pes: 1, env: &[], body, judge: ended_well }
    }

    /// The case with the least number of PEs that it needs.
    pub const fn pes(self, min_pes: u32) -> Case {
        Case { min_pes, ..self }
    }

    /// The case with these environment variables.
    pub const fn env(self, env: &'static [(&'static str, &'static str)]) -> Case {
        Case { env, ..self }
    }

    /// The case with another expected end.
    pub const fn judged(self, judge: fn(&Outcome) -> Result<(), String>) -> Case {
        Case { judge, ..self }
    }
}

fn ended_well(o: &Outcome) -> Result<(), String> {
    match o.code {
        Some(0) => Ok(()),
        _ => Err("the job failed".into()),
    }
}

/// Ends the case with a message if a condition does not hold.
#[macro_export]
macro_rules! ensure {
    ($cond:expr, $($message:tt)+) => {
        if !$cond {
            return Err(format!("{}:{}: {}", file!(), line!(), format!($($message)+)).into());
        }
    };
}

/// Ends the case if two values differ.
#[macro_export]
macro_rules! same {
    ($left:expr, $right:expr, $($message:tt)+) => {
        let (left, right) = (&$left, &$right);
        $crate::ensure!(left == right, "{}: {left:?}, expected {right:?}", format!($($message)+));
    };
}

/// An element type that can be converted to numbers.
pub trait Num: Element {
    /// A small integer as an element.
    fn small(n: u32) -> Self;
    /// Whether it is an integer type.
    const INTEGER: bool;
}

macro_rules! nums {
    ($($ty:ty, $integer:literal, |$n:ident| $value:expr;)*) => {
        $(impl Num for $ty {
            const INTEGER: bool = $integer;
            fn small($n: u32) -> $ty { $value }
        })*
    };
}

nums! {
    i8, true, |n| n as i8;
    i16, true, |n| n as i16;
    i32, true, |n| n as i32;
    i64, true, |n| i64::from(n);
    u8, true, |n| n as u8;
    u16, true, |n| n as u16;
    u32, true, |n| n;
    u64, true, |n| u64::from(n);
    f16, false, |n| f16::from_f32(n as f32);
    bf16, false, |n| bf16::from_f32(n as f32);
    f32, false, |n| n as f32;
    f64, false, |n| f64::from(n);
}

/// Calls a generic function for every element type with which NVSHMEM computes.
#[macro_export]
macro_rules! for_numbers {
    ($f:ident($($arg:expr),*)) => {{
        $f::<i8>($($arg),*)?;
        $f::<i16>($($arg),*)?;
        $f::<i32>($($arg),*)?;
        $f::<i64>($($arg),*)?;
        $f::<u8>($($arg),*)?;
        $f::<u16>($($arg),*)?;
        $f::<u32>($($arg),*)?;
        $f::<u64>($($arg),*)?;
        $f::<half::f16>($($arg),*)?;
        $f::<half::bf16>($($arg),*)?;
        $f::<f32>($($arg),*)?;
        $f::<f64>($($arg),*)?;
    }};
}

/// Element `i` of PE `pe` in round `round`. It is below 128, so that every type can represent it
/// (including f16 and bf16).
pub fn datum<T: Num>(pe: u32, i: usize, round: u32) -> T {
    let bits = (u64::from(pe) << 40 | u64::from(round) << 32 | i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    T::small((bits >> 57) as u32)
}

/// All elements of a PE.
pub fn data<T: Num>(pe: u32, n: usize, round: u32) -> Vec<T> {
    (0..n).map(|i| datum(pe, i, round)).collect()
}
