//! The part of the Python package `warpweft` that is written in Rust: the module
//! `warpweft._native`.
//!
//! Its classes are few and plain; the Python code in `python/warpweft` builds the public interface
//! on them. Every function that waits for a GPU, other processes or the simulator releases the
//! interpreter's lock.

mod check;
mod comm;
mod dlpack;
mod error;
mod gemm;
mod kernel;
mod launch;
mod layout;
mod moe;
mod pool;
mod rma;
mod simulated;
mod tensor;
mod world;

use pyo3::prelude::*;
use std::ffi::OsString;
use std::process::ExitCode;

/// The compiler, the runtime and the simulator of warpweft.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::check::check;
    #[pymodule_export]
    use super::comm::{AddRmsNorm, Buffer, Comm, random_id};
    #[pymodule_export]
    use super::gemm::Matmul;
    #[pymodule_export]
    use super::kernel::{Compiled, compile, explain_code};
    #[pymodule_export]
    use super::launch::{Borrowed, Gpu, Launcher};
    #[pymodule_export]
    use super::layout::{draw_layout, evaluate, layout_functions};
    #[pymodule_export]
    use super::moe::Experts;
    #[pymodule_export]
    use super::pool::set_pool;
    #[pymodule_export]
    use super::rma::{collective, get, put, quiet, signal_op, signal_wait, team_barrier};
    #[pymodule_export]
    use super::simulated::Simulated;
    #[pymodule_export]
    use super::tensor::Tensor;
    #[pymodule_export]
    use super::world::{Barrier, Team, World};
    #[pymodule_export]
    use super::{command, dtypes, gpu_count, version};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // Waits end when Python has a signal to handle. The exception of its handler is stored
        // until the wait returns.
        weft::runtime::on_interrupt(super::error::interrupted);
        Ok(())
    }
}

/// Runs the `weft` command with these words, of which the first is the command's name, and returns
/// its exit status. `again` are the words that start this program again, because `weft bench`
/// starts a process for each GPU.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<OsString>, again: Vec<OsString>) -> u8 {
    weft::runtime::job::set_command(again);
    let code = py.detach(|| weft_cli::run(words));
    (0..=u8::MAX).find(|n| ExitCode::from(*n) == code).unwrap_or(1)
}

/// The version of the package.
#[pyfunction]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The name and the size in bytes of every element type, in the order of their codes.
#[pyfunction]
fn dtypes() -> Vec<(String, u32)> {
    weft::runtime::DType::ALL.iter().map(|d| (d.to_string(), d.bytes())).collect()
}

/// The number of GPUs that this process can see; 0 without a driver.
#[pyfunction]
fn gpu_count(py: Python<'_>) -> u32 {
    py.detach(|| weft::runtime::cuda::device_count().unwrap_or(0))
}
