//! A prepared launch: its files are read and its arguments are checked against the parameters. It
//! can run with any seed.

use super::argument::{Argument, FORMS, Fill, Tile};
use super::{PtxFile, PtxLaunch, PtxOutcome, element};
use crate::array::Array;
use crate::inputs::{of_pe, read};
use crate::{RunError, request};
use std::time::Instant;
use weft_ir::Scalar;
use weft_sim::codes;
use weft_sim::{Arg, Config, Kernel, Launch, Machine, SimError, Symmetric, Team, TensorMap, TensorType};

/// The memory of an argument.
struct Block {
    dtype: Scalar,
    /// The shape on each PE.
    shape: Vec<u64>,
    content: Content,
}

/// The contents of memory.
enum Content {
    Nothing,
    Zeros,
    /// The bytes by PE.
    Data(Vec<Vec<u8>>),
}

impl Block {
    fn bytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * u64::from(self.dtype.bytes())
    }

    /// A tensor map of the memory at an address, which is dense with the last dimension innermost.
    fn map(&self, address: u64, tile: &Tile) -> Result<Vec<u8>, SimError> {
        let element = match (self.dtype, self.dtype.bytes()) {
            (Scalar::F16, _) => TensorType::F16,
            (Scalar::BF16, _) => TensorType::Bf16,
            (Scalar::F32, _) => TensorType::F32,
            (Scalar::F64, _) => TensorType::F64,
            (_, 1) => TensorType::U8,
            (_, 2) => TensorType::U16,
            (_, 4) => TensorType::U32,
            _ => TensorType::U64,
        };
        let dims: Vec<u64> = self.shape.iter().rev().copied().collect();
        let mut bytes = u64::from(self.dtype.bytes());
        let strides = dims.iter().skip(1).zip(&dims).map(|(_, inner)| {
            bytes *= inner;
            bytes
        });
        let map = TensorMap {
            element,
            address,
            strides: strides.collect(),
            tile: tile.extents.iter().rev().copied().collect(),
            element_strides: vec![1; dims.len()],
            dims,
            swizzle: tile.swizzle,
            fill_nan: false,
        };
        map.encode().map(|bytes| bytes.to_vec())
    }
}

/// A checked launch of PTX: its arguments fit the kernel, and their memory is described.
pub struct Setup<'a> {
    file: &'a PtxFile,
    kernel: &'a Kernel,
    launch: PtxLaunch,
    block: [u32; 3],
    /// The memory by argument.
    blocks: Vec<Option<Block>>,
}

/// An argument's memory on a machine.
enum Placed {
    Symmetric(Symmetric),
    /// The address by PE.
    Private(Vec<u64>),
}

impl<'a> Setup<'a> {
    /// Checks a launch of PTX before it runs.
    ///
    /// # Errors
    /// Fails if the file lacks the kernel, the number of threads is unknown, or an argument does not fit.
    pub fn new(file: &'a PtxFile, launch: &PtxLaunch) -> Result<Setup<'a>, RunError> {
        if launch.pes == 0 || launch.launches == 0 {
            return request("a run needs at least 1 PE and 1 launch");
        }
        let kernel = file.kernel(launch.entry.as_deref())?;
        let Some(block) = launch.block.or(kernel.reqntid) else {
            return request(format!(
                "`{}` does not state the number of threads of a CTA: give it with --block",
                kernel.name
            ));
        };
        fit(kernel, &launch.args)?;
        let blocks = launch.args.iter().map(|a| memory(a, launch.pes)).collect::<Result<_, _>>()?;
        Ok(Setup { file, kernel, launch: launch.clone(), block, blocks })
    }

    /// The name of the kernel that is launched.
    pub fn kernel(&self) -> &str {
        &self.kernel.name
    }

    /// Returns the requested launch.
    pub fn launch(&self) -> &PtxLaunch {
        &self.launch
    }

    /// Allocates the arguments' memory on a machine.
    fn place(&self, machine: &mut Machine) -> Result<Vec<Option<Placed>>, SimError> {
        let pes = self.launch.pes;
        let mut out = Vec::new();
        for ((argument, block), param) in self.launch.args.iter().zip(&self.blocks).zip(&self.kernel.params) {
            let (Argument::Memory { symmetric, .. }, Some(b)) = (argument, block) else {
                out.push(None);
                continue;
            };
            let placed = if *symmetric {
                Placed::Symmetric(machine.alloc_symmetric(&param.name, b.bytes(), ALIGN)?)
            } else {
                let all = (0..pes).map(|pe| machine.alloc(pe, &param.name, b.bytes(), ALIGN));
                Placed::Private(all.collect::<Result<_, _>>()?)
            };
            for pe in 0..pes {
                let at = address(machine, &placed, pe)?;
                match &b.content {
                    Content::Nothing => {}
                    Content::Zeros => zero(machine, pe, at, b.bytes())?,
                    Content::Data(data) => machine.write(pe, at, &data[pe])?,
                }
            }
            out.push(Some(placed));
        }
        Ok(out)
    }

    /// The arguments of a PE.
    fn arguments(
        &self,
        machine: &mut Machine,
        placed: &[Option<Placed>],
        pe: usize,
    ) -> Result<Vec<Arg>, SimError> {
        let symmetric = |n: usize| match placed.get(n) {
            Some(Some(Placed::Symmetric(s))) => Ok(*s),
            _ => Err(none_symmetric(n)),
        };
        let mut args = Vec::new();
        for (((argument, placed), block), param) in
            self.launch.args.iter().zip(placed).zip(&self.blocks).zip(&self.kernel.params)
        {
            args.push(match argument {
                Argument::Memory { tile, .. } => {
                    let at = placed.as_ref().map_or(Ok(0), |placed| address(machine, placed, pe))?;
                    match (tile, block) {
                        (Some(tile), Some(block)) => Arg::Bytes(block.map(at, tile)?),
                        _ => Arg::U64(at),
                    }
                }
                Argument::Scalar(_, bytes) | Argument::Bytes(bytes) => Arg::Bytes(bytes.clone()),
                Argument::Peers(n) => {
                    let of = symmetric(*n)?;
                    let mut table = Vec::new();
                    for q in 0..self.launch.pes {
                        table.extend_from_slice(&machine.peer_addr(pe, of, q)?.to_le_bytes());
                    }
                    let at = machine.alloc(pe, &param.name, table.len() as u64, 8)?;
                    machine.write(pe, at, &table)?;
                    Arg::U64(at)
                }
                Argument::Multicast(n) => {
                    Arg::U64(machine.multicast_addr(pe, symmetric(*n)?, Team::WORLD)?)
                }
                Argument::Peer(n, distance) => {
                    let to = (pe + distance % self.launch.pes) % self.launch.pes;
                    Arg::U64(machine.peer_addr(pe, symmetric(*n)?, to)?)
                }
                Argument::Pe => Arg::I32(pe as i32),
                Argument::NPes => Arg::I32(self.launch.pes as i32),
            });
        }
        Ok(args)
    }

    /// Runs the launch. If it cannot be launched, the result is an error; if it is stopped, the
    /// outcome has the error.
    pub fn run(&self, seed: u64) -> Result<PtxOutcome, RunError> {
        let PtxLaunch { pes, grid, cluster, dynamic_shared, launches, .. } = self.launch;
        let mut config = Config::default().n_pes(pes).seed(seed).check(self.launch.check.clone());
        config.trace.clone_from(&self.launch.trace);
        config.explore = config.check.is_some();
        config.step_limit = self.launch.step_limit.unwrap_or(config.step_limit);
        config.time_limit = self.launch.time_limit;
        let start = Instant::now();
        let mut machine = Machine::new(config)?;
        let placed = self.place(&mut machine)?;
        let mut grids = Vec::new();
        for pe in 0..pes {
            let args = self.arguments(&mut machine, &placed, pe)?;
            grids.push(
                Launch::default()
                    .pe(pe)
                    .grid(grid)
                    .block(self.block)
                    .cluster(cluster)
                    .dynamic_shared(dynamic_shared)
                    .args(args),
            );
        }
        let mut printed = String::new();
        let mut ended = Ok(weft_sim::Stats::default());
        for _ in 0..launches {
            ended = match machine.launch(&self.file.module, &self.kernel.name, &grids) {
                Err(e) if e.code == codes::BAD_REQUEST => return Err(e.into()),
                other => other,
            };
            printed.push_str(match &ended {
                Ok(stats) => &stats.printed,
                Err(e) => &e.printed,
            });
            if ended.is_err() {
                break;
            }
        }
        let findings = machine.take_findings().into_iter().map(|f| {
            let at = f.location.as_ref().and_then(|l| {
                let n = self.kernel.params.iter().position(|p| p.name == l.name)?;
                let block = self.blocks.get(n)?.as_ref()?;
                element(&block.shape, block.dtype.bytes().into(), l)
            });
            (f, at)
        });
        let findings = findings.collect();
        let mut memory = Vec::new();
        for (placed, block) in placed.iter().zip(&self.blocks) {
            let mut all = Vec::new();
            if let (Some(placed), Some(block)) = (placed, block) {
                for pe in 0..pes {
                    let mut bytes = vec![0; block.bytes() as usize];
                    machine.read(pe, address(&machine, placed, pe)?, &mut bytes)?;
                    all.push(bytes);
                }
            }
            memory.push(all);
        }
        Ok(PtxOutcome {
            ended,
            findings,
            memory,
            printed,
            trace: machine.take_trace(),
            time: start.elapsed(),
        })
    }

    /// Writes the outputs, and returns a line about each.
    pub fn write(&self, outcome: &PtxOutcome) -> Result<Vec<String>, RunError> {
        let mut lines = Vec::new();
        for ((argument, block), data) in self.launch.args.iter().zip(&self.blocks).zip(&outcome.memory) {
            let (Argument::Memory { output: Some(path), .. }, Some(block)) = (argument, block) else {
                continue;
            };
            let mut shape = block.shape.clone();
            if of_pe(path, 0).is_some() {
                for (pe, data) in data.iter().enumerate() {
                    let array = Array { dtype: block.dtype, shape: shape.clone(), data: data.clone() };
                    array.write(&of_pe(path, pe).unwrap_or_default())?;
                }
            } else {
                if self.launch.pes > 1 {
                    shape.insert(0, self.launch.pes as u64);
                }
                Array { dtype: block.dtype, shape: shape.clone(), data: data.concat() }.write(path)?;
            }
            let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
            lines.push(format!("{}: {} ({})", path.display(), block.dtype, extents.join(", ")));
        }
        Ok(lines)
    }
}

/// The alignment of an argument's memory, which is that of `cudaMalloc`.
const ALIGN: u64 = 256;

fn address(machine: &Machine, placed: &Placed, pe: usize) -> Result<u64, SimError> {
    match placed {
        Placed::Symmetric(s) => machine.local_addr(pe, *s),
        Placed::Private(at) => Ok(at.get(pe).copied().unwrap_or(0)),
    }
}

/// Writes zeros in pieces.
fn zero(machine: &mut Machine, pe: usize, at: u64, bytes: u64) -> Result<(), SimError> {
    let zeros = vec![0; bytes.min(1 << 20) as usize];
    for done in (0..bytes).step_by(zeros.len().max(1)) {
        let n = (bytes - done).min(zeros.len() as u64);
        machine.write(pe, at + done, &zeros[..n as usize])?;
    }
    Ok(())
}

fn none_symmetric(n: usize) -> SimError {
    let help = "give it as sym:npy:x.npy or sym:zeros:f32[1000]";
    SimError::request(format!("argument {n} is not in symmetric memory"), help)
}

/// Checks that there are as many arguments as parameters, each of its parameter's size.
fn fit(kernel: &Kernel, args: &[Argument]) -> Result<(), RunError> {
    let size = |a: &Argument| match a {
        Argument::Scalar(_, bytes) | Argument::Bytes(bytes) => bytes.len(),
        Argument::Pe | Argument::NPes => 4,
        Argument::Memory { tile: Some(_), .. } => 128,
        Argument::Memory { .. } | Argument::Peers(_) | Argument::Multicast(_) | Argument::Peer(..) => 8,
    };
    let params = &kernel.params;
    let wrong = args.iter().zip(params).position(|(a, p)| size(a) != p.size);
    let message = match wrong {
        _ if args.len() != params.len() => {
            let (name, n, given) = (&kernel.name, params.len(), args.len());
            format!("`{name}` has {n} parameters, but there are {given} arguments")
        }
        Some(i) => format!(
            "argument {i} has {} bytes, but parameter `{}` of `{}` has {}",
            size(&args[i]),
            params[i].name,
            kernel.name,
            params[i].size
        ),
        None => return Ok(()),
    };
    let list = params.iter().enumerate().map(|(i, p)| {
        let pointer = if p.is_pointer { ", a pointer" } else { "" };
        format!("\n  {i}: {} ({} bytes{pointer})", p.name, p.size)
    });
    request(format!("{message}; the parameters:{}\nan argument is one of {FORMS}", list.collect::<String>()))
}

/// The contents of an argument's memory on each PE.
fn memory(argument: &Argument, pes: usize) -> Result<Option<Block>, RunError> {
    let Argument::Memory { fill, .. } = argument else { return Ok(None) };
    Ok(Some(match fill {
        Fill::Zeros(dtype, shape) => Block { dtype: *dtype, shape: shape.clone(), content: Content::Zeros },
        Fill::Empty(dtype, shape) => Block { dtype: *dtype, shape: shape.clone(), content: Content::Nothing },
        Fill::File(path) => {
            let arrays = if pes == 1 && of_pe(path, 0).is_none() {
                vec![Array::read(path)?]
            } else {
                read(path, pes)?
            };
            let (dtype, shape) = (arrays[0].dtype, arrays[0].shape.clone());
            if arrays[0].is_empty() {
                return request(format!("{} has no elements", path.display()));
            }
            Block { dtype, shape, content: Content::Data(arrays.into_iter().map(|a| a.data).collect()) }
        }
    }))
}
