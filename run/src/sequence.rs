//! The compiled kernels of a run, and a PE's work with them.

use super::evaluated::{self, Operand};
use super::inputs::{self, RunData};
use super::pe::Pe;
use super::plan::{self, Plan};
use super::reference::{Checked, Values, check};
use super::{KernelRun, Outcome, Ran, RunError, RunOptions, request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weft::{Compiled, KernelFile, Options};
use weft_ir::{Access, Arith, Hidden, Operation, Scalar, ValueType};
use weft_lang::elaborate::{Define, Head, Reference};

/// A kernel that a run launches.
#[derive(Clone, Copy, Debug)]
pub struct Stage<'f> {
    /// The file that contains it.
    pub file: &'f KernelFile,
    /// The name of the kernel, or `None` for the only kernel of the file.
    pub kernel: Option<&'f str>,
}

impl Stage<'_> {
    /// Returns the head of the kernel, which the file states before it is compiled.
    ///
    /// # Errors
    /// Fails if the file has no kernel of that name, or if the name is missing and the file does
    /// not have exactly one kernel.
    pub fn head(&self) -> Result<Head, RunError> {
        inputs::choose(&self.file.heads(), self.kernel).cloned().or_else(request)
    }
}

/// Compiled kernels that are launched one after another, with the parameters that follow from data
/// and request. Parameters and tensors of equal names are shared.
pub(super) struct Sequence {
    pub stages: Vec<Prepared>,
    pub found: RunData,
    compile_time: Duration,
}

/// A kernel of the sequence, compiled.
pub struct Prepared {
    pub kernel: String,
    /// The options with which it was compiled.
    pub options: Options,
    pub compiled: Compiled,
}

/// The comparisons of a run, which PE 0 makes.
#[derive(Default)]
pub(super) struct Checks {
    /// The number of the kernel in the sequence, and the comparison after one of its launches.
    launches: LaunchChecks,
    /// For each file, the comparison with its numbers after the last launch.
    expected: Vec<(String, Checked)>,
    /// The error that ended the comparisons. PE 0 continues, since the others wait for it.
    failed: Option<RunError>,
}

impl Checks {
    /// The comparisons of launches and those with files.
    ///
    /// # Errors
    /// Fails with the first comparison that could not be made.
    pub fn into_all(shared: Mutex<Checks>) -> Result<(LaunchChecks, Vec<(String, Checked)>), RunError> {
        let checks = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        checks.failed.map_or(Ok((checks.launches, checks.expected)), Err)
    }

    /// Adds the result of a comparison.
    fn add<T>(shared: &Mutex<Checks>, found: Result<T, RunError>, keep: impl FnOnce(&mut Checks, T)) {
        let mut checks = shared.lock().unwrap_or_else(PoisonError::into_inner);
        match found {
            Ok(found) => keep(&mut checks, found),
            Err(e) => drop(checks.failed.get_or_insert(e)),
        }
    }
}

/// The number of each comparison's kernel in the sequence, and its result.
pub(super) type LaunchChecks = Vec<(usize, Checked)>;

impl Sequence {
    pub fn new(stages: &[Stage<'_>], options: &RunOptions) -> Result<Sequence, RunError> {
        if options.n_pes == 0 || options.launches == 0 || stages.is_empty() {
            return request("a run needs at least 1 kernel, 1 PE and 1 launch");
        }
        let heads = stages.iter().map(Stage::head).collect::<Result<Vec<_>, _>>()?;
        let found = inputs::gather(&heads, options)?;
        let start = Instant::now();
        let compile = |(stage, head): (&Stage<'_>, &Head)| {
            let options = found.options_of(head, stages.len(), options);
            let compiled = stage.file.compile(&options)?;
            Ok(Prepared { kernel: head.name.to_string(), options, compiled })
        };
        let stages = stages.iter().zip(&heads).map(compile).collect::<Result<_, RunError>>()?;
        Ok(Sequence { stages, found, compile_time: start.elapsed() })
    }

    /// Returns the size on all PEs, in bytes, of the tensors of the kernel that needs most. The
    /// code is not examined.
    ///
    /// # Errors
    /// Fails where [`new`](Sequence::new) fails, as far as the kernels' heads show it, or if a size
    /// is not known before the launch.
    pub fn bytes_of_largest(stages: &[Stage<'_>], options: &RunOptions) -> Result<u64, RunError> {
        let heads = stages.iter().map(Stage::head).collect::<Result<Vec<_>, _>>()?;
        let found = inputs::gather(&heads, options)?;
        let bytes = |(stage, head): (&Stage<'_>, &Head)| {
            let own = found.options_of(head, stages.len(), options);
            plan::tensor_bytes(&stage.file.without_code(&head.name, &own)?, &found.args, options)
        };
        stages.iter().zip(&heads).map(bytes).try_fold(0, |max, bytes| Ok(bytes?.max(max)))
    }

    /// Checks that the kernels' loads and stores stay within the requested nodes.
    pub fn within_nodes(&self, options: &RunOptions) -> Result<(), RunError> {
        let node = options.pes_of_node();
        if options.node.is_none() || node >= options.n_pes {
            return Ok(());
        }
        let kernels = self.stages.iter().flat_map(|s| &s.compiled.low.kernels);
        let launches = kernels.filter_map(|k| k.head.launch.as_ref());
        let of_all =
            launches.flat_map(|l| l.params.iter().map(move |p| (l, p))).find_map(|(l, p)| match p.kind {
                weft_abi::ParamKind::Hidden(Hidden::Peers { base, .. } | Hidden::PeerMaps { base, .. }) => {
                    l.params.get(base as usize)
                }
                _ => None,
            });
        match of_all {
            None => Ok(()),
            Some(tensor) => request(format!(
                "the kernel accesses `{}` of all PEs, but loads and stores of PE 0 do not reach PE {node}",
                tensor.name
            )),
        }
    }

    /// Whether a kernel tests at run time which PEs it reaches.
    pub fn tests_reach(&self) -> bool {
        self.stages.iter().any(|s| s.compiled.tests_reach())
    }

    /// The work of a PE: it fills tensors, launches, and, as PE 0, adds the check of each launch to
    /// `checks` and writes the requested files. *Collective.*
    pub fn carry_out(
        &self,
        pe: &mut Pe<'_>,
        options: &RunOptions,
        checks: &Mutex<Checks>,
    ) -> Result<(), RunError> {
        pe.fill(options.seed, &self.found)?;
        pe.settle()?;
        for launch in 0..options.launches {
            pe.set_arguments(launch)?;
            if options.back_to_back {
                (0..self.stages.len()).try_for_each(|kernel| pe.enqueue(kernel))?;
            } else {
                self.launch_and_check(launch, pe, options, checks)?;
            }
        }
        pe.settle()?;
        if pe.checks_results() {
            for (tensor, path) in &options.expected {
                let checked = pe.expect(tensor, path, options.tolerance);
                let file = path.display().to_string();
                Checks::add(checks, checked, |checks, found| checks.expected.push((file, found)));
            }
            pe.write(&options.outputs)?;
        }
        pe.settle()
    }

    /// Launches every kernel once. Each begins when PE 0 has compared the results of the one
    /// before, and the first begins with uninitialised results.
    fn launch_and_check(
        &self,
        launch: u32,
        pe: &mut Pe<'_>,
        options: &RunOptions,
        checks: &Mutex<Checks>,
    ) -> Result<(), RunError> {
        let operands = self.stages.iter().filter_map(Prepared::reference).flat_map(|r| &r.args);
        let operands: Vec<_> = operands.filter(|_| pe.checks_results()).collect();
        let values = |pe: &Pe<'_>| {
            let mut all: BTreeMap<String, Values> = BTreeMap::new();
            for name in &operands {
                all.extend(pe.values(name)?.map(|v| (name.to_string(), v)));
            }
            Ok::<_, RunError>(all)
        };
        if launch > 0 {
            pe.settle()?;
            pe.renew(options.seed, &self.found)?;
            pe.settle()?;
        }
        let mut before = values(pe)?;
        for (number, stage) in self.stages.iter().enumerate() {
            pe.settle()?;
            pe.launch(number)?;
            pe.settle()?;
            let after = values(pe)?;
            if let Some(r) = stage.reference().filter(|_| pe.checks_results()) {
                let (old, new) =
                    (|name: &str| before.get(name).cloned(), |name: &str| after.get(name).cloned());
                let scalar = |name: &str| self.found.args.get(name).and_then(|arg| arg.of_launch(launch));
                let checked = stage.check(r, &old, &new, &scalar);
                Checks::add(checks, checked, |checks, found| checks.launches.push((number, found)));
            }
            before = after;
        }
        Ok(())
    }

    /// The outcome of a run that has ended.
    ///
    /// # Errors
    /// Fails if a comparison could not be made.
    pub fn outcome(
        self,
        plan: &Plan,
        checks: Mutex<Checks>,
        printed: String,
        ran: Ran,
    ) -> Result<Outcome, RunError> {
        let (mut checks, expected) = Checks::into_all(checks)?;
        let kernels = self.stages.into_iter().zip(&plan.kernels).enumerate();
        let kernels = kernels.map(|(number, (stage, plan))| KernelRun {
            grid: plan.grid,
            block: plan.block,
            checks: stage
                .reference()
                .map(|_| checks.extract_if(.., |(n, _)| *n == number).map(|(_, c)| c).collect()),
            name: stage.kernel,
            compiled: stage.compiled,
        });
        Ok(Outcome {
            kernels: kernels.collect(),
            expected,
            tensors: plan.infos(),
            printed,
            ran,
            compile_time: self.compile_time,
        })
    }
}

impl Prepared {
    /// The function that the kernel declares to compute.
    pub fn reference(&self) -> Option<&Reference> {
        self.compiled.references.first().and_then(Option::as_ref)
    }

    /// Compares values after a launch with the results for those before, and for run-time scalars.
    pub fn check(
        &self,
        reference: &Reference,
        before: &dyn Fn(&str) -> Option<Values>,
        after: &dyn Fn(&str) -> Option<Values>,
        scalar: &dyn Fn(&str) -> Option<Define>,
    ) -> Result<Checked, RunError> {
        if let Some(f) = &reference.function {
            let defines = self.compiled.defines.first();
            let operand = |name: &Arc<str>| match (before(name), after(name)) {
                (Some(before), Some(after)) => Ok(Operand::Tensor { name: name.to_string(), before, after }),
                _ => match scalar(name).or_else(|| defines?.get(&**name).copied()) {
                    Some(value) => Ok(Operand::Value(value)),
                    None => request(format!("computes({reference}): `{name}` has no value")),
                },
            };
            let operands = reference.args.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
            let checked = evaluated::check(f, &operands, accumulator(&self.compiled));
            return checked.map_err(|d| self.compiled.error(d).into());
        }
        check(reference, before, after, self.root(), accumulator(&self.compiled)).or_else(request)
    }

    /// The compile-time parameter with the root of `computes(broadcast(x))`.
    fn root(&self) -> Option<i64> {
        match self.compiled.defines.first().and_then(|d| d.get("ROOT")) {
            Some(Define::Int(n)) => Some(*n),
            _ => None,
        }
    }
}

/// The least precise accumulator type of the kernel's reductions.
fn accumulator(compiled: &Compiled) -> Scalar {
    let mut narrowest: Option<Scalar> = None;
    for k in &compiled.high.kernels {
        k.walk(&mut |_, inst| {
            let combines = matches!(inst.op.arith(), Some(Arith::Binary { .. } | Arith::Fma { .. }));
            let acc = if let Some(Access::LdReduce { acc, .. }) = inst.op.access() {
                Some(*acc)
            } else if let Some(Access::McRed { value, .. } | Access::Red { value, .. }) = inst.op.access() {
                k.insts[*value].ty.elem()
            } else {
                inst.ty.elem().filter(|_| combines)
            };
            if let Some(acc) = acc.filter(|a| a.is_float())
                && narrowest.is_none_or(|l| acc.bits() < l.bits())
            {
                narrowest = Some(acc);
            }
        });
    }
    narrowest.unwrap_or(Scalar::F32)
}
