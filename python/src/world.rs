//! The world of a PE: its number, its teams, and its collective operations.
#![allow(unsafe_code, reason = "streams of other libraries are numbers")]

use crate::error::Fault;
use crate::tensor::{Memory, Tensor, layout};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weft::runtime::cuda::{RawStream, Stream};
use weft::runtime::job::{self, ProcessRank};
use weft::runtime::{self, Config, DType};

/// A PE of a world, on a GPU or simulated.
#[pyclass(frozen, module = "warpweft._native")]
pub struct World {
    pub inner: runtime::World,
    /// A number that is unique among the worlds of this process.
    pub number: u64,
    /// Dropping a team is collective, but Python collects garbage at different times on each PE.
    /// Teams are therefore kept until the end.
    teams: Mutex<Vec<Arc<runtime::Team>>>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl World {
    pub fn of(inner: runtime::World) -> World {
        World { inner, number: NUMBERS.fetch_add(1, Ordering::Relaxed), teams: Mutex::default() }
    }

    /// The stream with this handle; the world's own stream for None.
    pub fn stream(&self, raw: Option<u64>) -> Result<Stream, Fault> {
        match raw {
            None => Ok(self.inner.stream().clone()),
            // SAFETY: Python's stream objects keep the streams alive; the caller keeps the object
            // during the call.
            Some(raw) => Ok(unsafe { self.inner.device().borrow_stream(raw as usize as RawStream)? }),
        }
    }

    /// Makes a tensor from a buffer that is made without the interpreter's lock.
    fn made(
        &self,
        py: Python<'_>,
        code: u8,
        layout_text: &str,
        buffer: impl FnOnce() -> runtime::Result<runtime::SymmetricBuffer> + Send,
    ) -> PyResult<Tensor> {
        let (dtype, layout) = (dtype(code)?, layout(layout_text)?);
        let made = py.detach(|| Tensor::new(&self.inner, buffer()?, dtype, layout));
        Ok(made.map_err(Fault::from)?)
    }

    fn keep(&self, team: runtime::Team) -> Team {
        let team = Arc::new(team);
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).push(team.clone());
        Team { inner: team }
    }
}

/// A duration that a caller gives in seconds.
pub fn seconds(what: &str, seconds: f64) -> Result<Duration, Fault> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|t| !t.is_zero());
    time.ok_or_else(|| Fault::usage(format!("{what} is {seconds}"), "pass a number of seconds above 0"))
}

/// The element type with this code, which is its index in the list of all types.
pub fn dtype(code: u8) -> Result<DType, Fault> {
    let found = DType::ALL.get(usize::from(code)).copied();
    found.ok_or_else(|| Fault::usage(format!("there is no element type {code}"), ""))
}

#[pymethods]
impl World {
    /// Joins a world of PEs. `memory` is `local`, `nvshmem`, or None for the value of
    /// `WEFT_MEMORY`. `place` is (rank, size, id), or None for the launcher's variables.
    /// Collective.
    #[staticmethod]
    fn join(
        py: Python<'_>,
        memory: Option<&str>,
        place: Option<(u32, u32, Vec<u8>)>,
        device: Option<u32>,
        timeout: Option<f64>,
        share_gpu: bool,
    ) -> PyResult<World> {
        let words = [("local", runtime::Memory::Local), ("nvshmem", runtime::Memory::Nvshmem)];
        let memory = memory.map(|m| crate::kernel::word("memory", m, &words)).transpose()?;
        let mut options = job::Options::from_env().map_err(Fault::from)?;
        if let Some(timeout) = timeout {
            options.timeout = seconds("timeout", timeout)?;
        }
        // The death of a PE raises an exception and does not end this process.
        options.grace = None;
        let config = Config::default().device(device).memory(memory).job(Some(options)).share_gpu(share_gpu);
        py.detach(|| {
            let place = match place {
                Some((rank, size, id)) => {
                    let id: [u8; 128] = id.try_into().map_err(|_| {
                        Fault::usage(
                            "the id does not have 128 bytes",
                            "pass the result of random_id() of one PE",
                        )
                    })?;
                    ProcessRank { local_rank: Some(rank), ..ProcessRank::of_id(rank, size, &id) }
                }
                None => ProcessRank::detect()?.unwrap_or_else(ProcessRank::alone),
            };
            Ok(World::of(runtime::World::join(&place, &config)?))
        })
        .map_err(|e: Fault| e.into())
    }

    #[getter]
    fn my_pe(&self) -> u32 {
        self.inner.my_pe()
    }

    #[getter]
    fn n_pes(&self) -> u32 {
        self.inner.n_pes()
    }

    /// The number of the PE's GPU, or of the simulated PE.
    #[getter]
    fn device(&self) -> u32 {
        self.inner.device().ordinal()
    }

    #[getter]
    fn simulated(&self) -> bool {
        self.inner.device().is_simulated()
    }

    /// The version of NVSHMEM; None if it is not used.
    #[getter]
    fn nvshmem_version(&self) -> Option<String> {
        self.inner.nvshmem_version().map(|v| v.to_string())
    }

    /// The number of streaming multiprocessors of its device.
    #[getter]
    fn sms(&self) -> PyResult<u32> {
        Ok(self.inner.device().sm_count().map_err(Fault::from)?)
    }

    /// The first PE that has died, and the reason.
    fn died(&self) -> Option<(u32, String)> {
        self.inner.died()
    }

    /// A symmetric tensor of zeros. Collective.
    fn tensor(&self, py: Python<'_>, code: u8, layout_text: &str) -> PyResult<Tensor> {
        let bytes = Memory::bytes_of(dtype(code)?, &layout(layout_text)?)?;
        self.made(py, code, layout_text, || {
            let buffer = self.inner.buffer(bytes)?;
            buffer.fill(0)?;
            self.inner.barrier()?;
            Ok(buffer)
        })
    }

    /// Registers memory of this PE's GPU as symmetric. The caller still owns it. Collective.
    fn register(
        &self,
        py: Python<'_>,
        address: u64,
        bytes: usize,
        code: u8,
        layout_text: &str,
    ) -> PyResult<Tensor> {
        // SAFETY: the caller keeps the memory until it is unregistered on all PEs.
        self.made(py, code, layout_text, || unsafe { self.inner.register_raw(address, bytes) })
    }

    /// Adopts memory that another library has mapped into all PEs, given the address of each copy
    /// on this PE. Collective.
    fn adopt(
        &self,
        py: Python<'_>,
        bytes: usize,
        copies: Vec<u64>,
        multicast: Option<u64>,
        code: u8,
        layout_text: &str,
    ) -> PyResult<Tensor> {
        let mapping = runtime::Mapping { bytes, copies, multicast };
        // SAFETY: the caller keeps the mapping until the tensor is dropped on all PEs.
        self.made(py, code, layout_text, || unsafe { self.inner.adopt(mapping) })
    }

    /// The memory of a kernel's barrier for grids of `ctas` CTAs. Collective.
    fn kernel_barrier(&self, py: Python<'_>, ctas: u32) -> PyResult<Barrier> {
        let made = py.detach(|| self.inner.kernel_barrier(ctas)).map_err(Fault::from)?;
        made.buffer().free_later();
        Ok(Barrier { inner: made, ctas })
    }

    /// A predefined team: `world`, `node`, `shared`, `same_mype_node`.
    fn team(&self, name: &str) -> PyResult<Team> {
        let made = match crate::kernel::word("the team", name, &TEAMS)? {
            0 => Ok(self.inner.team()),
            1 => self.inner.team_node(),
            2 => self.inner.team_shared(),
            _ => self.inner.team_same_place(),
        };
        Ok(self.keep(made.map_err(Fault::from)?))
    }

    /// A team of `size` PEs of a team: every `stride`-th from `start` on; None on other PEs.
    /// Collective.
    fn split_strided(
        &self,
        py: Python<'_>,
        team: &Team,
        start: u32,
        stride: u32,
        size: u32,
    ) -> PyResult<Option<Team>> {
        let made = py.detach(|| team.inner.split_strided(start, stride, size)).map_err(Fault::from)?;
        Ok(made.map(|team| self.keep(team)))
    }

    /// Splits a team into rows of `x_range` PEs, and into columns. Collective.
    fn split_2d(&self, py: Python<'_>, team: &Team, x_range: u32) -> PyResult<(Team, Team)> {
        let (x, y) = py.detach(|| team.inner.split_2d(x_range)).map_err(Fault::from)?;
        Ok((self.keep(x), self.keep(y)))
    }

    /// A team of these ranks of a team, in this order. Collective over the listed ranks.
    fn team_of(&self, py: Python<'_>, team: &Team, pes: Vec<u32>) -> PyResult<Option<Team>> {
        let made = py.detach(|| team.inner.list(&pes)).map_err(Fault::from)?;
        Ok(made.map(|team| self.keep(team)))
    }

    /// Waits on the host until all PEs have arrived. Collective.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.inner.barrier()).map_err(Fault::from)?)
    }

    /// Gathers the bytes of all PEs, in their order. Collective.
    fn all_gather_host(&self, py: Python<'_>, bytes: Vec<u8>) -> PyResult<Vec<Vec<u8>>> {
        Ok(py.detach(|| self.inner.all_gather_host(&bytes)).map_err(Fault::from)?)
    }

    /// Waits until a stream is done.
    fn synchronize(&self, py: Python<'_>, stream: Option<u64>) -> PyResult<()> {
        let stream = self.stream(stream)?;
        Ok(py.detach(|| stream.synchronize()).map_err(Fault::from)?)
    }

    /// Frees memory that no PE uses any more. Collective.
    fn collect(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.inner.collect()).map_err(Fault::from)?)
    }

    /// Tells the other PEs that this one has failed.
    fn fail(&self, py: Python<'_>, why: &str) {
        py.detach(|| self.inner.fail(why));
    }

    /// Finalizes the world. Collective.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        Ok(py.detach(|| self.inner.clone().finalize()).map(drop).map_err(Fault::from)?)
    }
}

const TEAMS: [(&str, u8); 4] = [("world", 0), ("node", 1), ("shared", 2), ("same_mype_node", 3)];

/// A set of PEs, numbered from 0 within the set.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Team {
    pub inner: Arc<runtime::Team>,
}

#[pymethods]
impl Team {
    #[getter]
    fn my_pe(&self) -> u32 {
        self.inner.my_pe()
    }

    #[getter]
    fn n_pes(&self) -> u32 {
        self.inner.n_pes()
    }

    /// The PEs of the world that are members, by rank in the team.
    #[getter]
    fn members(&self) -> Vec<u32> {
        self.inner.members().to_vec()
    }
}

/// The memory of a kernel's barrier.
#[pyclass(frozen, module = "warpweft._native")]
pub struct Barrier {
    pub inner: runtime::Barrier,
    #[pyo3(get)]
    ctas: u32,
}
