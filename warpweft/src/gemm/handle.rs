//! Compiled products, and their launches.

use super::model::lets_next_begin;
use super::tuning::PART;
use super::tuning::{By, Selector, Tuning};
use super::{Plan, Problem, Shape};
use crate::compile::{KernelFile, Options};
use crate::gpu::{GpuError, Grid, Kernel, On, target};
use std::fmt;
use std::sync::{Arc, OnceLock};
use weft_isa::Target;
use weft_runtime::Stream;
use weft_runtime::launch::{AsArgument, Prepared};

/// A product D = A * transpose(B), compiled for a GPU. The [module](super) describes it.
pub struct Gemm {
    problem: Problem,
    plan: Plan,
    by: By,
    kernel: Kernel,
}

impl Gemm {
    /// Compiles a product for the GPU of a device or a world. The plan is the one that was measured
    /// to be the fastest or, if nothing similar was measured, the one that the model predicts to be
    /// the fastest. Compiled code is cached, so a second product of the same types and plan needs
    /// no compilation.
    ///
    /// # Errors
    /// Fails for a problem that the kernel does not compute (R0505), or where [`Kernel::compile`] fails.
    pub fn new(on: impl Into<On>, problem: Problem) -> Result<Gemm, GpuError> {
        Gemm::with(on, problem, &Tuning::Stored)
    }

    /// Creates a product like [`new`](Gemm::new), with plans from `tuning`.
    ///
    /// # Errors
    /// Fails where [`new`](Gemm::new) fails, or for a plan that does not fit the problem (R0505).
    pub fn with(on: impl Into<On>, problem: Problem, tuning: &Tuning) -> Result<Gemm, GpuError> {
        let on = on.into();
        let selector = Selector::new(on.device(), tuning)?;
        Gemm::chosen(on, problem, &selector)
    }

    /// Creates a product like [`new`](Gemm::new), with a plan that a selector chooses.
    ///
    /// # Errors
    /// Fails where [`new`](Gemm::new) fails, or for a plan that does not fit the problem (R0505).
    pub fn chosen(on: impl Into<On>, problem: Problem, selector: &Selector) -> Result<Gemm, GpuError> {
        Gemm::compiled(on.into(), problem, selector, false)
    }

    /// Creates a product like [`new`](Gemm::new), after which another kernel is launched, which can
    /// begin early whatever the tiles are.
    pub(super) fn before_another(on: impl Into<On>, problem: Problem) -> Result<Gemm, GpuError> {
        let on = on.into();
        let selector = Selector::new(on.device(), &Tuning::Stored)?;
        Gemm::compiled(on, problem, &selector, true)
    }

    fn compiled(on: On, problem: Problem, selector: &Selector, followed: bool) -> Result<Gemm, GpuError> {
        let (plan, by) = selector.plan(&problem)?;
        let mut options = options(&problem, &plan, target(on.device())?);
        let early = lets_next_begin(&problem, &plan, on.device().sm_count()?);
        for (name, value) in [("EARLY", early), ("FOLLOWED", followed)] {
            options.defines.insert(name.into(), u32::from(value).into());
        }
        let kernel = Kernel::with(on, file()?, options)?;
        Ok(Gemm { problem, plan, by, kernel })
    }

    /// The product that the kernel computes.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The plan by which it is computed.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The source of the plan.
    pub fn by(&self) -> By {
        self.by
    }

    /// The compiled kernel that is launched.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Checks the operands and puts the product on a stream. A (m, k) and D (m, n) have contiguous
    /// rows, and B is (n, k). The operands must live until the stream has done the work. A graph
    /// that is being captured keeps them alive.
    ///
    /// # Errors
    /// Fails for operands of other types, shapes or strides, with addresses that are no multiples of 16, or
    /// on another GPU (R0502), or if the CUDA driver refuses a call (R0103).
    pub fn launch(
        &self,
        stream: &Stream,
        a: &dyn AsArgument,
        b: &dyn AsArgument,
        d: &dyn AsArgument,
    ) -> Result<(), GpuError> {
        self.launch_rows(stream, self.problem.shape.m, [a, b, d])
    }

    /// Launches like [`launch`](Gemm::launch), for another number of rows.
    pub(super) fn launch_rows(
        &self,
        stream: &Stream,
        rows: u64,
        [a, b, d]: [&dyn AsArgument; 3],
    ) -> Result<(), GpuError> {
        let [m, n, k] = extents(Shape { m: rows, ..self.problem.shape });
        self.kernel.launch(stream, Grid::Auto, &[&m as &dyn AsArgument, &n, &k, a, b, d][..])
    }

    /// Checks the operands once, for launches that pass the same ones.
    ///
    /// # Errors
    /// Fails where [`launch`](Gemm::launch) fails.
    pub fn prepared(
        &self,
        stream: &Stream,
        a: &dyn AsArgument,
        b: &dyn AsArgument,
        d: &dyn AsArgument,
    ) -> Result<Prepared, GpuError> {
        let [m, n, k] = extents(self.problem.shape);
        self.kernel.prepared(stream, Grid::Auto, &[&m as &dyn AsArgument, &n, &k, a, b, d][..])
    }
}

impl fmt::Debug for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gemm({}, {})", self.problem, self.plan)
    }
}

fn extents(Shape { m, n, k }: Shape) -> [i64; 3] {
    // A checked problem has extents of 31 bits.
    [m, n, k].map(|extent| i64::try_from(extent).unwrap_or(i64::MAX))
}

/// The options that compile the kernel.
pub(super) fn options(problem: &Problem, plan: &Plan, target: Target) -> Options {
    let mut options = Options::new(target);
    options.defines = problem.defines().into_iter().chain(plan.defines()).collect();
    options
}

/// The kernel's file, which is parsed once in a process.
pub(super) fn file() -> Result<Arc<KernelFile>, GpuError> {
    static FILE: OnceLock<Arc<KernelFile>> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file.clone());
    }
    let text = crate::library::part(PART).unwrap_or_default();
    let file = Arc::new(KernelFile::parse(&format!("weft::{PART}"), text)?);
    Ok(FILE.get_or_init(|| file).clone())
}
