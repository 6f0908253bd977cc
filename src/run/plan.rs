//! What a run gives a kernel: the value or the memory of each parameter, and the grid.

use super::array::{Number, read_number, write_number};
use super::inputs::{Found, show};
use super::tensors::Tensor;
use super::{RunError, RunOptions, TensorInfo, request};
use crate::compile::Compiled;
use crate::roles::{self, Assigned};
use weft_ir::abi::describe;
use weft_ir::{Int, Kernel, Layout, Operation, Role, Scalar, Team, Type, Value, Var, View};
use weft_lang::elaborate::Define;
use weft_layout::LayoutError;
use weft_runtime::launch::BARRIER_LINE;
use weft_sim::{Location, MemorySpace};

/// Most CTAs of a PE.
const MAX_CTAS: u64 = 1 << 16;

/// What a parameter is given.
pub(super) enum Place {
    /// The tensor of this number.
    Tensor(usize),
    /// A barrier's counters, for every CTA.
    Barrier,
    Scalar(Define, Scalar),
    Team,
}

/// A run of a compiled kernel on a number of PEs. Nothing is allocated yet.
pub(super) struct Plan {
    pub n_pes: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The parameters of the kernel's text in their order, with their names.
    pub params: Vec<(String, Place)>,
    pub tensors: Vec<Tensor>,
}

impl Plan {
    /// # Errors
    /// A request that does not fit the kernel.
    pub fn new(compiled: &Compiled, options: &RunOptions, found: &Found) -> Result<Plan, RunError> {
        let (Some(high), Some(low)) = (compiled.high.kernels.first(), compiled.low.kernels.first()) else {
            return request("there is no kernel to run");
        };
        let info = describe(low).map_err(|e| RunError::Request(e.to_string()))?;
        let launch = Launch { high, scalars: scalars(high, found)?, n_pes: options.n_pes };
        let grid = launch.grid(options.grid, info.planes)?;
        let roles = roles::assign(high, compiled.references.first().and_then(Option::as_ref));
        let (mut params, mut tensors) = (Vec::new(), Vec::new());
        for (i, p) in high.head.params.iter().enumerate() {
            let place = match &p.ty {
                Type::Tensor(t) => {
                    let layout = launch.layout(&t.layout);
                    let layout = layout.map_err(|e| RunError::Request(format!("`{}`: {e}", p.name)))?;
                    let Some(role) = &roles[i] else { continue };
                    tensors.push(Tensor::new(&p.name, t, layout, role)?);
                    Place::Tensor(tensors.len() - 1)
                }
                Type::Barrier => Place::Barrier,
                Type::Team => Place::Team,
                Type::Scalar(s) => Place::Scalar(launch.scalars[i].unwrap_or(Define::Int(0)), *s),
                _ => return request(format!("`{}` is of a type that no launch can pass", p.name)),
            };
            params.push((p.name.to_string(), place));
        }
        Ok(Plan { n_pes: options.n_pes, grid, block: info.block, params, tensors })
    }

    /// CTAs of a PE.
    pub fn ctas(&self) -> u32 {
        self.grid.iter().product()
    }

    /// Bytes of all parameters' memory on a PE.
    pub fn bytes(&self) -> u64 {
        let bytes = self.params.iter().map(|(_, place)| match place {
            Place::Tensor(t) => self.tensors[*t].bytes(),
            Place::Barrier => u64::from(self.ctas()) * BARRIER_LINE,
            Place::Scalar(..) | Place::Team => 0,
        });
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

    /// Bytes of a tensor as its coordinates: `x[3, 17]`, `16 bytes from x[3, 16] on`.
    pub fn coordinate(&self, kernel: &Kernel, location: &Location) -> Option<String> {
        let shared;
        let t = if matches!(location.space, MemorySpace::Shared { .. }) {
            shared = shared_tensor(kernel, &location.name)?;
            &shared
        } else {
            &self.tensors[self.tensor(&location.name)?]
        };
        let bytes = u64::from(t.info.dtype.bytes());
        let at = t.places.coordinate(location.offset / bytes)?;
        let at: Vec<_> = at.iter().map(u64::to_string).collect();
        let element = format!("{}[{}]", t.info.name, at.join(", "));
        Some(match location.bytes {
            n if n > bytes => format!("{n} bytes from {element} on"),
            _ => element,
        })
    }
}

/// The tensor in shared memory that a variable of the PTX is: `k$tile3` is `tile`, the kernel's fourth variable.
fn shared_tensor(kernel: &Kernel, variable: &str) -> Option<Tensor> {
    let (_, variable) = variable.rsplit_once('$')?;
    kernel.insts.iter().find_map(|(_, inst)| {
        let (Some(View::Shared { name }), Type::Tensor(t)) = (inst.op.view(), &inst.ty) else {
            return None;
        };
        let number = variable.strip_prefix(&**name).filter(|_| !name.is_empty())?;
        number.parse::<u32>().ok()?;
        let unwritten = Assigned { role: Role::Workspace, guessed: None, is_result: false };
        Tensor::new(name, t, t.layout.clone(), &unwritten).ok()
    })
}

/// What a kernel's head is evaluated with.
struct Launch<'k> {
    high: &'k Kernel,
    /// The value of each scalar parameter, by index.
    scalars: Vec<Option<Define>>,
    n_pes: usize,
}

impl Launch<'_> {
    /// A symbolic integer of the kernel's head, with the launch's values.
    fn value(&self, n: &Int) -> Result<i64, RunError> {
        let known = n.subst(&mut |v| {
            let op = &self.high.insts.get(Value(v.id))?.op;
            if let Some(Team::NPes { .. }) = op.team() {
                return Some(Int::from(self.n_pes));
            }
            let Some(Var::Param { index }) = op.var() else { return None };
            match self.scalars.get(*index as usize) {
                Some(Some(Define::Int(n))) => Some(Int::from(*n)),
                _ => None,
            }
        });
        known
            .as_const()
            .ok_or_else(|| RunError::Request(format!("the extent {known} is not known at launch")))
    }

    fn layout(&self, layout: &Layout) -> Result<Layout, LayoutError> {
        let mut known = |n: &Int| self.value(n).map_or(Int::from(0), Int::from);
        Layout::new(layout.shape().map(&mut known), layout.stride().map(&mut known))
    }

    /// CTAs in each dimension: the kernel's own number, or the one that is asked for.
    fn grid(&self, asked: Option<[u32; 3]>, planes: bool) -> Result<[u32; 3], RunError> {
        let name = &self.high.name;
        let grid = match (&self.high.head.grid, asked) {
            (Some(_), Some(asked)) => {
                return request(format!("grid {asked:?}: `{name}` says itself how many CTAs it takes"));
            }
            (Some(own), None) => {
                let mut grid = [1; 3];
                for (ctas, own) in grid.iter_mut().zip(own) {
                    let n = self.value(own)?;
                    let fits = u32::try_from(n).ok().filter(|n| *n > 0);
                    *ctas = fits.ok_or_else(|| RunError::Request(format!("grid: {n} CTAs")))?;
                }
                grid
            }
            (None, asked) => asked.unwrap_or([4, 1, 1]),
        };
        if self.high.head.grid.is_none() && grid[1..] != [1, 1] && !planes {
            return request(format!(
                "grid {grid:?}: `{name}` numbers its CTAs in one dimension; declare `grid(x, y)` in it"
            ));
        }
        let ctas = grid.iter().try_fold(1u64, |n, g| n.checked_mul(u64::from(*g)));
        match ctas {
            Some(1..=MAX_CTAS) => Ok(grid),
            _ => request(format!("grid {grid:?}: a run has 1 to {MAX_CTAS} CTAs a PE")),
        }
    }
}

/// The value of each scalar parameter, by index.
fn scalars(k: &Kernel, found: &Found) -> Result<Vec<Option<Define>>, RunError> {
    let mut known = found.args.clone();
    let mut out = Vec::new();
    for p in &k.head.params {
        let Type::Scalar(s) = p.ty else {
            out.push(None);
            continue;
        };
        let value = match (known.remove(&*p.name), s.is_float()) {
            (Some(Define::Int(n)), true) => Define::Float(n as f64),
            (Some(v @ Define::Float(_)), true) | (Some(v @ Define::Int(_)), false) => v,
            (Some(Define::Bool(b)), false) => Define::Int(b.into()),
            (Some(v), _) => {
                return request(format!("`{}` is {}, where {s} is wanted", p.name, show(v)));
            }
            (None, _) => return request(format!("`{}` has no value: give it with --arg {0}=VALUE", p.name)),
        };
        if let Define::Int(n) = value
            && p.div > 0
            && (n < 1 || n % p.div != 0)
        {
            return request(format!("`{}` is {n}, not a positive multiple of {}", p.name, p.div));
        }
        if let Define::Int(n) = value
            && s != Scalar::U64
        {
            let mut bytes = Vec::new();
            write_number(s, Number::Int(n.into()), &mut bytes);
            if read_number(s, &bytes) != Number::Int(n.into()) {
                return request(format!("`{}` is {n}, which does not fit {s}", p.name));
            }
        }
        out.push(Some(value));
    }
    match known.keys().next() {
        Some(name) => request(format!("the kernel has no scalar parameter `{name}`")),
        None => Ok(out),
    }
}
