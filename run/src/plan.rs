//! The plan of a run: the value or the memory of each parameter, and the grid.

use super::array::{Number, read_number, write_number};
use super::sequence::{Prepared, Sequence};
use super::tensors::Tensor;
use super::{Arg, RunError, RunOptions, TensorInfo, request};
use std::collections::BTreeMap;
use weft::TensorRole;
use weft_ir::abi::describe;
use weft_ir::{Int, Kernel, Layout, Operation, Param, Role, Scalar, Team, Type, Value, Var, View, level};
use weft_lang::elaborate::Define;
use weft_runtime::error::ARGUMENT;
use weft_runtime::launch::BARRIER_LINE;
use weft_sim::{Location, MemorySpace};

/// The largest number of CTAs of a PE.
const MAX_CTAS: u64 = 1 << 16;

/// The argument of a parameter in a run.
pub(super) enum ArgumentSource {
    /// The tensor of this number.
    Tensor(usize),
    /// A barrier with counters for every CTA.
    Barrier,
    Scalar(Arg, Scalar),
    Team,
}

/// A run of compiled kernels on a number of PEs. Nothing is allocated yet.
pub(super) struct Plan {
    pub n_pes: usize,
    /// The kernels in the order of the sequence.
    pub kernels: Vec<KernelPlan>,
    /// The tensors of all kernels, each name once.
    pub tensors: Vec<Tensor>,
}

/// The launches of one kernel.
pub(super) struct KernelPlan {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The parameters of the kernel's text in their order, with their names.
    pub params: Vec<(String, ArgumentSource)>,
}

impl KernelPlan {
    /// The number of CTAs of a PE.
    pub fn ctas(&self) -> u32 {
        self.grid.iter().product()
    }
}

impl Plan {
    /// Plans the launches of a sequence of kernels and the tensors that they share.
    ///
    /// # Errors
    /// Fails if a request does not fit a kernel, or if tensors of equal names differ.
    pub fn new(sequence: &Sequence, options: &RunOptions) -> Result<Plan, RunError> {
        let mut plan = Plan { n_pes: options.n_pes, kernels: Vec::new(), tensors: Vec::new() };
        let args = &sequence.found.args;
        let has = |name: &str, stage: &Prepared| {
            stage
                .compiled
                .high
                .kernels
                .iter()
                .flat_map(|k| &k.head.params)
                .any(|p| *p.name == *name && matches!(p.ty, Type::Scalar(_)))
        };
        if let Some(name) = args.keys().find(|name| !sequence.stages.iter().any(|stage| has(name, stage))) {
            return request(format!("the kernel has no scalar parameter `{name}`"));
        }
        for stage in &sequence.stages {
            plan.add(stage, args, options)?;
        }
        Ok(plan)
    }

    /// Adds a kernel, and the tensors that no kernel before it has.
    fn add(
        &mut self,
        stage: &Prepared,
        args: &BTreeMap<String, Arg>,
        options: &RunOptions,
    ) -> Result<(), RunError> {
        let compiled = &stage.compiled;
        let (Some(high), Some(low)) = (compiled.high.kernels.first(), compiled.low.kernels.first()) else {
            return request("there is no kernel to run");
        };
        let info = describe(low).map_err(|e| RunError::Request(e.to_string()))?;
        let scalars = scalars(high, args, options.launches)?;
        let launch = Launch { high, scalars, n_pes: options.n_pes };
        let roles = compiled.tensor_roles(0);
        let mut params = Vec::new();
        for (i, p) in high.head.params.iter().enumerate() {
            let place = match &p.ty {
                Type::Tensor(t) => {
                    let layout =
                        launch.layout(&t.layout).or_else(|e| request(format!("`{}`: {e}", p.name)))?;
                    let Some(role) = &roles[i] else { continue };
                    ArgumentSource::Tensor(self.share(Tensor::new(&p.name, t, layout, role)?, &stage.kernel)?)
                }
                Type::Barrier => ArgumentSource::Barrier,
                Type::Team => ArgumentSource::Team,
                Type::Scalar(s) => {
                    ArgumentSource::Scalar(launch.scalars[i].unwrap_or(Define::Int(0).into()), *s)
                }
                _ => return request(format!("`{}` has a type that a launch cannot pass", p.name)),
            };
            params.push((p.name.to_string(), place));
        }
        let grid = launch.grid(options.grid, info.planes)?;
        self.kernels.push(KernelPlan { grid, block: info.block, params });
        Ok(())
    }

    /// Returns the number of a kernel's tensor, which is shared with an earlier kernel's tensor of
    /// the same name. The role in the first of these kernels determines its initial contents.
    fn share(&mut self, tensor: Tensor, kernel: &str) -> Result<usize, RunError> {
        let Some(number) = self.tensor(&tensor.info.name) else {
            self.tensors.push(tensor);
            return Ok(self.tensors.len() - 1);
        };
        let known = &mut self.tensors[number];
        if (known.info.dtype, &known.layout) != (tensor.info.dtype, &tensor.layout) {
            return request(format!(
                "`{}` is {} {} in `{kernel}`, but {} {} in an earlier kernel; tensors of the same name must agree",
                tensor.info.name, tensor.info.dtype, tensor.layout, known.info.dtype, known.layout
            ));
        }
        known.symmetric |= tensor.symmetric;
        known.renewed |= tensor.is_result;
        Ok(number)
    }

    /// The size of all parameters' memory on a PE in bytes.
    pub fn bytes(&self) -> u64 {
        let barriers = |k: &KernelPlan| {
            let barriers = k.params.iter().filter(|(_, place)| matches!(place, ArgumentSource::Barrier));
            barriers.count() as u64 * u64::from(k.ctas()) * BARRIER_LINE
        };
        let bytes = self.tensors.iter().map(Tensor::bytes).chain(self.kernels.iter().map(barriers));
        bytes.fold(0, u64::saturating_add)
    }

    /// The tensor of a parameter.
    pub fn tensor(&self, name: &str) -> Option<usize> {
        self.tensors.iter().position(|t| t.info.name == name)
    }

    /// The tensors of the run.
    pub fn infos(&self) -> Vec<TensorInfo> {
        self.tensors.iter().map(|t| t.info.clone()).collect()
    }

    /// Describes bytes of a tensor by their coordinates, such as `x[3, 17]` or `16 bytes from x[3,
    /// 16]`.
    pub fn coordinate<'k>(
        &self,
        kernels: impl Iterator<Item = &'k Kernel>,
        location: &Location,
    ) -> Option<String> {
        let shared;
        let t = if matches!(location.space, MemorySpace::Shared { .. }) {
            shared = shared_tensor(kernels, &location.name)?;
            &shared
        } else {
            &self.tensors[self.tensor(&location.name)?]
        };
        let bytes = u64::from(t.info.dtype.bytes());
        let at = t.layout.coordinate(i64::try_from(location.offset / bytes).ok()?)?;
        let at: Vec<_> = at.iter().map(i64::to_string).collect();
        let element = format!("{}[{}]", t.info.name, at.join(", "));
        Some(match location.bytes {
            n if n > bytes => format!("{n} bytes from {element}"),
            _ => element,
        })
    }
}

/// Finds the tensor in shared memory for a variable of the PTX: `k$tile3` is `tile`, the fourth
/// variable of kernel `k`. The simulator calls it `k.k$tile3` if the PTX declares it inside the
/// kernel.
fn shared_tensor<'k>(mut kernels: impl Iterator<Item = &'k Kernel>, variable: &str) -> Option<Tensor> {
    let (kernel, variable) = variable.rsplit_once('$')?;
    let kernel = kernel.rsplit('.').next()?;
    let kernel = kernels.find(|k| *k.name == *kernel)?;
    kernel.insts.iter().find_map(|(_, inst)| {
        let (Some(View::Shared { name }), Type::Tensor(t)) = (inst.op.view(), &inst.ty) else {
            return None;
        };
        let number = variable.strip_prefix(&**name).filter(|_| !name.is_empty())?;
        number.parse::<u32>().ok()?;
        let unwritten = TensorRole { role: Role::Workspace, guessed: None, is_result: false };
        Tensor::new(name, t, t.layout.clone(), &unwritten).ok()
    })
}

/// Returns the size of a kernel's tensors on all PEs in bytes.
///
/// # Errors
/// Fails if a scalar has no value, or if an extent is not known before the launch.
pub(super) fn tensor_bytes(
    high: &Kernel,
    args: &BTreeMap<String, Arg>,
    options: &RunOptions,
) -> Result<u64, RunError> {
    let launch = Launch { high, scalars: scalars(high, args, options.launches)?, n_pes: options.n_pes };
    high.head.params.iter().try_fold(0u64, |sum, p| {
        let Type::Tensor(t) = &p.ty else { return Ok(sum) };
        let layout = launch.layout(&t.layout).or_else(|e| request(format!("`{}`: {e}", p.name)))?;
        let elements = layout.cosize().as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX);
        let bytes = elements.saturating_mul(t.elem.bytes().into()).saturating_mul(options.n_pes as u64);
        Ok(sum.saturating_add(bytes))
    })
}

/// The values with which a kernel's head is evaluated.
struct Launch<'k> {
    high: &'k Kernel,
    /// The value of each scalar parameter, by index.
    scalars: Vec<Option<Arg>>,
    n_pes: usize,
}

impl Launch<'_> {
    /// Evaluates a symbolic integer of the kernel's head with the launch's values.
    fn value(&self, n: &Int) -> Result<i64, String> {
        let known = n.subst(&mut |v| {
            let op = &self.high.insts.get(Value(v.id))?.op;
            if let Some(Team::NPes { .. }) = op.team() {
                return Some(Int::from(self.n_pes));
            }
            let Some(Var::Param { index }) = op.var() else { return None };
            match self.scalars.get(*index as usize) {
                Some(Some(Arg { first: Define::Int(n), step: 0 })) => Some(Int::from(*n)),
                _ => None,
            }
        });
        let unknown = || {
            format!("the extent {known} is not known before the first launch, or differs between launches")
        };
        known.as_const().ok_or_else(unknown)
    }

    fn layout(&self, layout: &Layout) -> Result<Layout, String> {
        let mut unknown = None;
        let mut known = |n: &Int| match self.value(n) {
            Ok(n) => Int::from(n),
            Err(e) => {
                unknown.get_or_insert(e);
                Int::from(0)
            }
        };
        let known = Layout::new(layout.shape().map(&mut known), layout.stride().map(&mut known));
        unknown.map_or_else(|| known.map_err(|e| e.to_string()), Err)
    }

    /// The CTAs in each dimension: the kernel's own grid, or the requested one.
    fn grid(&self, asked: Option<[u32; 3]>, planes: bool) -> Result<[u32; 3], RunError> {
        let name = &self.high.name;
        let grid = match (&self.high.head.grid, asked) {
            (Some(_), Some(asked)) => {
                return request(format!("the grid {asked:?} cannot be set: `{name}` declares its own grid"));
            }
            (Some(own), None) => {
                let mut grid = [1; 3];
                for (ctas, own) in grid.iter_mut().zip(own) {
                    let n = self.value(own).map_err(RunError::Request)?;
                    let fits = u32::try_from(n).ok().filter(|n| *n > 0);
                    *ctas = fits.ok_or_else(|| RunError::Request(format!("grid: {n} CTAs")))?;
                }
                grid
            }
            (None, asked) => asked.unwrap_or([4, 1, 1]),
        };
        if self.high.head.grid.is_none() && grid[1..] != [1, 1] && !planes {
            return request(format!(
                "the grid {grid:?} has several dimensions, but `{name}` uses one; declare `grid(x, y)` in the kernel"
            ));
        }
        let ctas = grid.iter().try_fold(1u64, |n, g| n.checked_mul(u64::from(*g)));
        match ctas {
            Some(1..=MAX_CTAS) => Ok(grid),
            _ => request(format!(
                "the grid {grid:?} is not possible: a run can have 1 to {MAX_CTAS} CTAs on each PE"
            )),
        }
    }
}

/// The value of each scalar parameter, by index.
fn scalars(k: &Kernel, args: &BTreeMap<String, Arg>, launches: u32) -> Result<Vec<Option<Arg>>, RunError> {
    let missing = |p: &&Param<level::Tensor>| matches!(p.ty, Type::Scalar(_)) && !args.contains_key(&*p.name);
    let missing: Vec<_> = k.head.params.iter().filter(missing).map(|p| &*p.name).collect();
    if !missing.is_empty() {
        let options: Vec<_> = missing.iter().map(|name| format!("--arg {name}=VALUE")).collect();
        let has = if missing.len() == 1 { "has" } else { "have" };
        return request(format!("`{}` {has} no value: give {}", missing.join("`, `"), options.join(" ")));
    }
    let value = |p: &Param<level::Tensor>| {
        let Type::Scalar(s) = p.ty else { return Ok(None) };
        let Some(arg) = args.get(&*p.name) else { return Ok(None) };
        let first = match (arg.first, s.is_float()) {
            (Define::Int(n), true) if arg.step == 0 => Define::Float(n as f64),
            (v @ Define::Float(_), true) | (v @ Define::Int(_), false) => v,
            (Define::Bool(b), false) => Define::Int(b.into()),
            _ => return request(format!("`{}` is {arg}, but the kernel expects {s}", p.name)),
        };
        let arg = Arg { first, ..*arg };
        for launch in [0, launches.saturating_sub(1)] {
            fits(p, s, arg.of_launch(launch), launch)?;
        }
        Ok(Some(arg))
    };
    k.head.params.iter().map(value).collect()
}

/// Whether a scalar parameter can have a value in a launch.
fn fits(p: &Param<level::Tensor>, dtype: Scalar, value: Option<Define>, launch: u32) -> Result<(), RunError> {
    let Some(value) = value else {
        return request(format!("`{}` does not fit into {dtype} in launch {}", p.name, launch + 1));
    };
    let Define::Int(n) = value else { return Ok(()) };
    if p.div > 0 && (n < 1 || n % p.div != 0) {
        let what =
            if p.div > 1 { format!("not a positive multiple of {}", p.div) } else { "not positive".into() };
        return Err(weft_runtime::Error::new(ARGUMENT, format!("`{}` is {n}, {what}", p.name)).into());
    }
    // The 64 bits of a `u64` are used unchanged.
    let mut bytes = Vec::new();
    write_number(dtype, Number::Int(n.into()), &mut bytes);
    if dtype != Scalar::U64 && read_number(dtype, &bytes) != Number::Int(n.into()) {
        return request(format!("`{}` is {n}, which does not fit into {dtype}", p.name));
    }
    Ok(())
}
