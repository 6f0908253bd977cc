//! PEs of the simulator, all in this process.

use super::backend::{Backend, Memory, Request};
use super::tensors::{Place, Tensor, scalar_bytes};
use super::{RunError, RunOptions, request};
use std::ops::Range;
use std::time::{Duration, Instant};
use weft_ir::Hidden;
use weft_runtime::launch::ParamKind;
use weft_sim::{Arg, Config, Finding, Launch, Machine, Module, Stats, Symmetric, Team, Trace};

/// Most bytes of all tensors of all PEs.
const MAX_BYTES: u64 = 4 << 30;

/// Memory of a parameter.
enum Block {
    Symmetric(Symmetric),
    /// Address by PE.
    Private(Vec<u64>),
}

pub(super) struct Simulated {
    machine: Machine,
    module: Module,
    team: Team,
    n_pes: usize,
    /// PEs of a node.
    node: usize,
    blocks: Vec<Block>,
    /// Launches that run together, each PE's in its own order, and those that wait for the others to be asked for.
    together: usize,
    queued: Vec<Vec<Launch>>,
    /// Bytes of all tensors of all PEs.
    pub bytes: u64,
    /// Counters of the last launch.
    pub stats: Stats,
    /// What all launches printed.
    pub printed: String,
    /// Wall time of all launches.
    pub time: Duration,
}

impl Simulated {
    pub fn new(module: Module, options: &RunOptions) -> Result<Simulated, RunError> {
        let n_pes = options.n_pes;
        let mut config = Config { n_pes, seed: options.seed, ..Config::default() };
        config.step_limit = options.step_limit.unwrap_or(config.step_limit);
        config.check.clone_from(&options.check);
        config.trace.clone_from(&options.trace);
        config.explore = options.check.is_some();
        let mut machine = Machine::new(config)?;
        let team = machine.team(&(0..n_pes).collect::<Vec<_>>())?;
        let (blocks, bytes, stats) = (Vec::new(), 0, Stats::default());
        let (printed, time) = (String::new(), Duration::ZERO);
        let node = options.pes_of_node();
        let together = if options.back_to_back { options.launches as usize } else { 1 };
        let queued = Vec::new();
        Ok(Simulated {
            machine,
            module,
            team,
            n_pes,
            node,
            blocks,
            together,
            queued,
            bytes,
            stats,
            printed,
            time,
        })
    }

    /// What the machine's checks have found since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.machine.take_findings()
    }

    /// The timeline of the launches since the last call.
    pub fn take_trace(&mut self) -> Trace {
        self.machine.take_trace()
    }

    fn base(&self, memory: usize, pe: usize) -> Result<u64, RunError> {
        Ok(match &self.blocks[memory] {
            Block::Symmetric(s) => self.machine.local_addr(pe, *s)?,
            Block::Private(at) => at[pe],
        })
    }

    /// The symmetric memory of a parameter that a hidden one is about.
    fn symmetric(&self, request: &Request<'_>, param: u32) -> Result<Symmetric, RunError> {
        match request.places.get(param as usize) {
            Some(Place::Memory(m)) => match self.blocks[*m] {
                Block::Symmetric(s) => Ok(s),
                Block::Private(_) => super::request(format!("parameter {param} is not symmetric")),
            },
            _ => super::request(format!("parameter {param} is not symmetric")),
        }
    }

    /// A table of the addresses of every PE's copy, in the memory of `pe`, for a launch. Where `or_none`, the addresses
    /// on PEs of other nodes are 0.
    fn peers(&mut self, pe: usize, name: &str, of: Symmetric, or_none: bool) -> Result<u64, RunError> {
        let mut table = Vec::new();
        for q in 0..self.n_pes {
            let address = match pe / self.node == q / self.node || !or_none {
                true => self.machine.peer_addr(pe, of, q)?,
                false => 0,
            };
            table.extend_from_slice(&address.to_le_bytes());
        }
        let at = self.machine.alloc(pe, &format!("{name}.peers"), table.len() as u64, 8)?;
        self.machine.write(pe, at, &table)?;
        Ok(at)
    }
}

impl Backend for Simulated {
    fn fills(&self) -> Range<usize> {
        0..self.n_pes
    }

    fn alloc(&mut self, memory: &Memory<'_>) -> Result<usize, RunError> {
        let Memory { name, bytes, align, symmetric, tensor } = *memory;
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(self.n_pes as u64));
        if self.bytes > MAX_BYTES {
            let all = self.bytes >> 20;
            return request(format!(
                "the tensors of {} PEs take {all} MiB; the simulator has {} MiB",
                self.n_pes,
                MAX_BYTES >> 20
            ));
        }
        let block = match symmetric {
            true => Block::Symmetric(self.machine.alloc_symmetric(name, bytes, align)?),
            false => {
                let all = (0..self.n_pes).map(|pe| self.machine.alloc(pe, name, bytes, align));
                Block::Private(all.collect::<Result<_, _>>()?)
            }
        };
        self.blocks.push(block);
        let number = self.blocks.len() - 1;
        if tensor.is_none() {
            for pe in 0..self.n_pes {
                let at = self.base(number, pe)?;
                self.machine.write(pe, at, &vec![0; bytes as usize])?;
            }
        }
        Ok(number)
    }

    fn put(&mut self, pe: usize, memory: usize, tensor: &Tensor, data: &[u8]) -> Result<(), RunError> {
        let base = self.base(memory, pe)?;
        let size = tensor.info.dtype.bytes() as usize;
        let mut result = Ok(());
        tensor.places.runs(&mut |first, offset, n| {
            if result.is_ok() {
                let part = &data[first * size..(first + n) * size];
                result = self.machine.write(pe, base + offset * size as u64, part);
            }
        });
        Ok(result?)
    }

    fn get(&self, pe: usize, memory: usize, tensor: &Tensor) -> Result<Vec<u8>, RunError> {
        let base = self.base(memory, pe)?;
        let size = tensor.info.dtype.bytes() as usize;
        let mut out = vec![0; tensor.places.len() * size];
        let mut result = Ok(());
        tensor.places.runs(&mut |first, offset, n| {
            if result.is_ok() {
                let part = &mut out[first * size..(first + n) * size];
                result = self.machine.read(pe, base + offset * size as u64, part);
            }
        });
        result?;
        Ok(out)
    }

    fn launch(&mut self, request: &Request<'_>) -> Result<(), RunError> {
        let start = Instant::now();
        let kernel = request.kernel;
        let mut launches = Vec::new();
        for pe in 0..self.n_pes {
            let mut args = Vec::new();
            for (index, param) in kernel.params.iter().enumerate() {
                let place = request.places.get(index);
                args.push(match (&param.kind, place) {
                    (ParamKind::Scalar { dtype, .. }, Some(Place::Scalar(d))) => {
                        Arg::Bytes(scalar_bytes(*d, *dtype))
                    }
                    (_, Some(Place::Memory(m))) => Arg::U64(self.base(*m, pe)?),
                    (ParamKind::Hidden(hidden), _) => match *hidden {
                        Hidden::Multicast { base, .. } => {
                            let of = self.symmetric(request, base)?;
                            Arg::U64(self.machine.multicast_addr(pe, of, self.team)?)
                        }
                        Hidden::Peers { base, .. } | Hidden::Reach { base, .. } => {
                            let of = self.symmetric(request, base)?;
                            let or_none = matches!(hidden, Hidden::Reach { .. });
                            Arg::U64(self.peers(pe, &kernel.params[base as usize].name, of, or_none)?)
                        }
                        // The team of all PEs, NVSHMEM_TEAM_WORLD.
                        Hidden::TeamHandle { .. } => Arg::I32(0),
                        Hidden::MyPe { .. } => Arg::I32(pe as i32),
                        Hidden::NPes { .. } => Arg::I32(self.n_pes as i32),
                    },
                    _ => continue,
                });
            }
            let (grid, block) = (request.grid, request.block);
            launches.push(Launch { pe, grid, block, args, ..Launch::default() });
        }
        self.queued.push(launches);
        if self.queued.len() < self.together {
            return Ok(());
        }
        let queued = std::mem::take(&mut self.queued);
        let queued: Vec<&[Launch]> = queued.iter().map(Vec::as_slice).collect();
        self.stats = self.machine.launch_in_order(&self.module, &kernel.name, &queued)?;
        self.printed.push_str(&self.stats.printed);
        self.time += start.elapsed();
        Ok(())
    }
}
