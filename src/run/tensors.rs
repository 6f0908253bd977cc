//! The run itself: where each parameter lies on each PE, what fills it, and what comes back.

use super::array::{Array, Number, read_number, write_number};
use super::backend::{Backend, Memory, Request};
use super::inputs::{Found, of_pe};
use super::positions::Positions;
use super::reference::Values;
use super::{RunError, RunOptions, TensorInfo, request};
use crate::compile::Compiled;
use std::path::PathBuf;
use weft_ir::abi::describe;
use weft_ir::ordering::flags;
use weft_ir::{Int, Kernel, Layout, Operation, Scalar, Space, Team, Type, Value, Var, View};
use weft_lang::elaborate::Define;
use weft_runtime::launch::KernelInfo;
use weft_sim::{Location, MemorySpace};

/// What a parameter is given.
pub(super) enum Place {
    /// Memory of the backend's, by its number.
    Memory(usize),
    Scalar(Define),
    Team,
}

/// A tensor: which parameter, its extents, and where each element lies.
pub(super) struct Tensor {
    param: usize,
    /// Its memory, by the backend's number.
    memory: usize,
    pub info: TensorInfo,
    /// Where its elements lie.
    pub places: Positions,
}

/// Everything of a run.
pub(super) struct Plan<'c, B> {
    high: &'c Kernel,
    info: KernelInfo,
    pub backend: B,
    n_pes: usize,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    places: Vec<Place>,
    tensors: Vec<Tensor>,
    /// Tensors that are only written, by parameter: the result of `computes(x, out)`.
    results: Vec<usize>,
    /// Tensors that begin at 0, by parameter: signals and counters that are no operand of `computes`.
    flags: Vec<usize>,
}

impl<'c, B: Backend> Plan<'c, B> {
    /// Allocates every parameter of the compiled kernel.
    pub fn new(
        compiled: &'c Compiled,
        options: &RunOptions,
        found: &Found,
        mut backend: B,
    ) -> Result<Plan<'c, B>, RunError> {
        let (Some(high), Some(low)) = (compiled.high.kernels.first(), compiled.low.kernels.first()) else {
            return request("there is no kernel to run");
        };
        let info = describe(low).map_err(|e| RunError::Request(e.to_string()))?;
        let n_pes = options.n_pes;
        let scalars = scalars(high, found)?;
        let value = |n: &Int| evaluate(high, &scalars, n_pes, n);

        let grid = match (&high.head.grid, options.grid) {
            (Some(_), Some(asked)) => {
                return request(format!(
                    "grid {asked:?}: `{}` says itself how many CTAs it takes",
                    high.name
                ));
            }
            (Some(g), None) => {
                let mut out = [1u32; 3];
                for (o, g) in out.iter_mut().zip(g) {
                    let n = value(g)?;
                    *o = u32::try_from(n)
                        .ok()
                        .filter(|n| *n > 0)
                        .ok_or_else(|| RunError::Request(format!("grid: {n} CTAs")))?;
                }
                out
            }
            (None, asked) => asked.unwrap_or([4, 1, 1]),
        };
        if high.head.grid.is_none() && grid[1..] != [1, 1] && !info.planes {
            return request(format!(
                "grid {grid:?}: `{}` numbers its CTAs in one dimension; declare `grid(x, y)` in it",
                high.name
            ));
        }
        let ctas = grid.iter().try_fold(1u64, |n, g| n.checked_mul(u64::from(*g))).unwrap_or(u64::MAX);
        if ctas == 0 || ctas > 1 << 16 {
            return request(format!("grid {grid:?}: 1 to 65536 CTAs can be simulated"));
        }
        let (mut places, mut tensors) = (Vec::new(), Vec::new());
        for (i, p) in high.head.params.iter().enumerate() {
            let place = match &p.ty {
                Type::Tensor(t) => {
                    let shape = t.layout.shape().map(&mut |n| value(n).map_or(Int::from(0), Int::from));
                    let stride = t.layout.stride().map(&mut |n| value(n).map_or(Int::from(0), Int::from));
                    let layout = Layout::new(shape, stride)
                        .map_err(|e| RunError::Request(format!("`{}`: {e}", p.name)))?;
                    let mut tensor = Tensor::new(i, &p.name, t.elem, &layout)?;
                    tensor.memory = backend.alloc(&Memory {
                        name: &p.name,
                        bytes: tensor.places.span() * u64::from(t.elem.bytes()),
                        align: u64::from(t.align.max(16)),
                        symmetric: t.space == Space::Symmetric,
                        tensor: Some((t.elem, &layout)),
                    })?;
                    tensors.push(tensor);
                    Place::Memory(tensors.last().map_or(0, |t| t.memory))
                }
                Type::Barrier => Place::Memory(backend.alloc(&Memory {
                    name: &p.name,
                    bytes: ctas * BARRIER_LINE,
                    align: BARRIER_LINE,
                    symmetric: true,
                    tensor: None,
                })?),
                Type::Team => Place::Team,
                _ => Place::Scalar(scalars[i].unwrap_or(Define::Int(0))),
            };
            places.push(place);
        }
        let reference = compiled.references.first().and_then(Option::as_ref);
        // In place, named once or twice, the result is the operand.
        let result = reference.and_then(|r| match &r.args[..] {
            [from, to] if from != to => Some(to),
            _ => None,
        });
        let results = high
            .head
            .params
            .iter()
            .enumerate()
            .filter(|(_, p)| Some(&p.name) == result)
            .map(|(i, _)| i)
            .collect();
        let is_operand = |i: u32| {
            let name = high.head.params.get(i as usize).map(|p| &p.name);
            reference.is_some_and(|r| r.args.iter().any(|arg| Some(arg) == name))
        };
        let flags = flags(high).into_iter().filter(|i| !is_operand(*i)).map(|i| i as usize).collect();
        Ok(Plan { high, backend, n_pes, grid, block: info.block, info, places, tensors, results, flags })
    }

    /// Puts the input files into their tensors, 0 into signals and counters, and seeded data into the others but
    /// results.
    pub fn fill(&mut self, seed: u64, found: &Found) -> Result<(), RunError> {
        for t in 0..self.tensors.len() {
            let Tensor { param, info, .. } = &self.tensors[t];
            let (param, info) = (*param, info.clone());
            for pe in self.backend.fills() {
                let data = match found.arrays.get(&info.name) {
                    Some(arrays) => {
                        let a = &arrays[pe];
                        if a.shape != info.shape || a.dtype != info.dtype {
                            let message = format!(
                                "`{}` is {}{:?}, and its file has {a:?} for each PE",
                                info.name, info.dtype, info.shape
                            );
                            return request(message);
                        }
                        a.data.clone()
                    }
                    None if self.results.contains(&param) => continue,
                    None if self.flags.contains(&param) => zeros(&info),
                    None => seeded(&info, seed, pe),
                };
                self.backend.put(pe, self.tensors[t].memory, &self.tensors[t], &data)?;
            }
        }
        Ok(())
    }

    /// A tensor's elements on every PE, in C order.
    ///
    /// # Errors
    /// What the backend meets.
    pub fn values(&self, name: &str) -> Result<Option<Values>, RunError> {
        let Some(t) = self.tensors.iter().find(|t| t.info.name == name) else { return Ok(None) };
        let data = (0..self.n_pes).map(|pe| self.backend.get(pe, t.memory, t)).collect::<Result<_, _>>()?;
        Ok(Some(Values { dtype: t.info.dtype, data }))
    }

    /// Launches the kernel on every PE at once.
    pub fn launch(&mut self) -> Result<(), RunError> {
        let (grid, block) = (self.grid, self.block);
        self.backend.launch(&Request { kernel: &self.info, grid, block, places: &self.places })
    }

    /// The tensors of the run.
    pub fn infos(&self) -> Vec<TensorInfo> {
        self.tensors.iter().map(|t| t.info.clone()).collect()
    }

    /// Bytes of a tensor as its coordinates: `x[3, 17]`, `16 bytes from x[3, 16] on`.
    pub fn coordinate(&self, location: &Location) -> Option<String> {
        let shared;
        let t = if matches!(location.space, MemorySpace::Shared { .. }) {
            shared = self.shared(&location.name)?;
            &shared
        } else {
            self.tensors.iter().find(|t| t.info.name == location.name)?
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

    /// The tensor in shared memory that a variable of the PTX is: `k$tile3` is `tile`, the kernel's fourth variable.
    fn shared(&self, variable: &str) -> Option<Tensor> {
        let (_, variable) = variable.rsplit_once('$')?;
        self.high.insts.iter().find_map(|(_, inst)| {
            let (Some(View::Shared { name }), Type::Tensor(t)) = (inst.op.view(), &inst.ty) else {
                return None;
            };
            let number = variable.strip_prefix(&**name).filter(|_| !name.is_empty())?;
            number.parse::<u32>().ok()?;
            Tensor::new(0, name, t.elem, &t.layout).ok()
        })
    }

    /// Writes the tensors that are asked for.
    pub fn write(&self, outputs: &[(String, PathBuf)]) -> Result<(), RunError> {
        for (name, path) in outputs {
            let first = self.tensors.first().map_or(String::new(), |t| t.info.name.clone());
            let name = if name.is_empty() { &first } else { name };
            let Some((t, values)) =
                self.tensors.iter().find(|t| t.info.name == *name).zip(self.values(name)?)
            else {
                return request(format!("there is no tensor `{name}` to write to {}", path.display()));
            };
            if of_pe(path, 0).is_some() {
                for (pe, data) in values.data.into_iter().enumerate() {
                    let array = Array { dtype: t.info.dtype, shape: t.info.shape.clone(), data };
                    array.write(&of_pe(path, pe).unwrap_or_default())?;
                }
            } else {
                let mut shape = vec![self.n_pes as u64];
                shape.extend(&t.info.shape);
                Array { dtype: t.info.dtype, shape, data: values.data.concat() }.write(path)?;
            }
        }
        Ok(())
    }
}

impl Tensor {
    fn new(param: usize, name: &str, dtype: Scalar, layout: &Layout) -> Result<Tensor, RunError> {
        let places = Positions::new(layout).map_err(|why| RunError::Request(format!("`{name}` {why}")))?;
        let info = TensorInfo { name: name.to_owned(), dtype, shape: places.shape() };
        Ok(Tensor { param, memory: 0, info, places })
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
                return request(format!("`{}` is {}, where {s} is wanted", p.name, super::inputs::show(v)));
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

/// A symbolic integer of the kernel's head, with the launch's values.
fn evaluate(k: &Kernel, scalars: &[Option<Define>], n_pes: usize, n: &Int) -> Result<i64, RunError> {
    let known = n.subst(&mut |v| {
        let op = &k.insts.get(Value(v.id))?.op;
        if let Some(Team::NPes { .. }) = op.team() {
            return Some(Int::from(n_pes));
        }
        let Some(Var::Param { index }) = op.var() else { return None };
        match scalars.get(*index as usize) {
            Some(Some(Define::Int(n))) => Some(Int::from(*n)),
            _ => None,
        }
    });
    known.as_const().ok_or_else(|| RunError::Request(format!("the extent {known} is not known at launch")))
}

/// A scalar as its bytes.
pub(super) fn scalar_bytes(d: Define, ty: Scalar) -> Vec<u8> {
    let number = match d {
        Define::Int(n) => Number::Int(n.into()),
        Define::Float(x) => Number::Float(x),
        Define::Bool(b) => Number::Int(b.into()),
        Define::Dtype(_) | Define::Reduction(_) => Number::Int(0),
    };
    let mut bytes = Vec::new();
    write_number(ty, number, &mut bytes);
    bytes
}

/// Bytes of a CTA's counters in a barrier.
const BARRIER_LINE: u64 = weft_runtime::launch::BARRIER_LINE;

fn zeros(info: &TensorInfo) -> Vec<u8> {
    vec![0; info.shape.iter().product::<u64>() as usize * info.dtype.bytes() as usize]
}

/// Data that depends on PE and index: floats in [-1, 1), integers in [-100, 100) or [0, 200).
fn seeded(info: &TensorInfo, seed: u64, pe: usize) -> Vec<u8> {
    let n = info.shape.iter().product::<u64>();
    let mut out = Vec::with_capacity(n as usize * info.dtype.bytes() as usize);
    let name = info.name.bytes().fold(seed, |h, b| mix(h ^ u64::from(b)));
    for i in 0..n {
        let bits = mix(name ^ mix((pe as u64) << 40 | i));
        let x = if info.dtype.is_float() {
            Number::Float((bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
        } else {
            let least = if info.dtype.kind() == weft_ir::Kind::Signed { 100 } else { 0 };
            Number::Int(i128::from(bits % 200) - least)
        };
        write_number(info.dtype, x, &mut out);
    }
    out
}

/// One step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
