//! Determines which PE this process is, from the variables of launchers.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::secret::{Admission, Secret};
use super::socket::is_loopback;
use crate::error::{Error, LAUNCHER, Result};

/// The place of this process in its job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessRank {
    /// The rank of this PE, from 0.
    pub rank: u32,
    /// The number of PEs of the job.
    pub size: u32,
    /// The rank among the PEs on this host, from 0, which is the number of its GPU by default. It
    /// is none if the launcher does not tell; then the PEs determine it together.
    pub local_rank: Option<u32>,
    /// The number of PEs on this host, if the launcher says so.
    pub local_size: Option<u32>,
    /// The launcher that started this process.
    pub launcher: Launcher,
    /// The address at which PE 0 listens. It is not used if there is only one PE.
    pub hub: Hub,
    /// The job's name, equal on all its PEs. It tells apart jobs that meet by mistake, and is no secret.
    pub job: String,
    /// The rule that says which processes can join the job.
    pub admission: Admission,
}

/// The program that started this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// [`start`](super::start) or [`Job`](super::Job), in a parent process that supervises it.
    Weft,
    /// The user, who set `WEFT_RANK`, `WEFT_SIZE` and `WEFT_ADDR`.
    Variables,
    /// The launcher torchrun, or a user who set `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// The launcher `mpirun` of Open MPI.
    OpenMpi,
    /// The launcher `srun` of Slurm.
    Slurm,
    /// A process manager that sets `PMI_RANK` and `PMI_SIZE`: MPICH's and Intel MPI's.
    Pmi,
    /// The program itself, over an MPI communicator (feature `mpi`).
    Mpi,
    /// The program itself, with an id that its PEs share ([`ProcessRank::of_id`]).
    Program,
    /// No launcher, for a job that has one PE.
    Alone,
}

/// The address at which PE 0 listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hub {
    /// A unix socket of this name in the abstract namespace, so that no file can remain. Only
    /// processes of the same user are admitted.
    Local(String),
    /// A host and port, for PEs on several hosts. Beyond this host, PEs prove to each other that
    /// they know the secret of the job ([`Admission`]).
    Tcp(String, u16),
}

/// Formats the address like `WEFT_ADDR`: `@name` or `host:port`.
impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hub::Local(name) => write!(f, "@{name}"),
            Hub::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Hub::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// The variables of one launcher. Of several names, the first that is set is used.
struct Row {
    launcher: Launcher,
    rank: &'static str,
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
    /// The variables whose values together form the job's name.
    job: &'static [&'static str],
    /// Whether these variables describe this process, and are not left from an outer launcher.
    means: fn(&Vars<'_>) -> bool,
}

/// All launchers. The first one whose variables are set is used, so an inner launcher comes before
/// those that may have started it: torchrun runs under srun, and so do mpirun's daemons.
const LAUNCHERS: &[Row] = &[
    Row {
        launcher: Launcher::Variables,
        rank: "WEFT_RANK",
        size: &["WEFT_SIZE"],
        local_rank: &["WEFT_LOCAL_RANK"],
        local_size: &["WEFT_LOCAL_SIZE"],
        job: &["WEFT_ADDR"],
        means: |v| v.any(&["WEFT_RANK", "WEFT_SIZE"]),
    },
    Row {
        launcher: Launcher::Torchrun,
        rank: "RANK",
        size: &["WORLD_SIZE"],
        local_rank: &["LOCAL_RANK"],
        local_size: &["LOCAL_WORLD_SIZE"],
        job: &["TORCHELASTIC_RUN_ID", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"],
        means: |v| v.any(&["RANK", "WORLD_SIZE"]),
    },
    Row {
        launcher: Launcher::OpenMpi,
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
        local_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        means: |v| v.any(&["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"]),
    },
    Row {
        launcher: Launcher::Pmi,
        rank: "PMI_RANK",
        size: &["PMI_SIZE"],
        local_rank: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
        local_size: &["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
        job: &["PMI_JOBID", "SLURM_JOB_ID"],
        // srun also sets these two variables (--mpi=pmi2), and its own say more.
        means: |v| {
            v.any(&["PMI_RANK", "PMI_SIZE"]) && (v.any(&["MPI_LOCALRANKID"]) || !v.any(&["SLURM_PROCID"]))
        },
    },
    Row {
        launcher: Launcher::Slurm,
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local_rank: &["SLURM_LOCALID"],
        local_size: &[TASKS_HERE],
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        means: in_a_step_of_several,
    },
];

/// The largest number of PEs of a job. No machine has more GPUs, and PE 0 can hold this number of
/// connections.
const MAX_PES: u32 = 1 << 16;

/// The name of a computed value, which is not a variable: the entry of `SLURM_NODEID` in
/// `SLURM_STEP_TASKS_PER_NODE`.
const TASKS_HERE: &str = "SLURM_STEP_TASKS_PER_NODE[SLURM_NODEID]";

/// Whether srun started this process as one task of several. The shell of `salloc`, a batch script
/// and `srun --pty bash` have most of the variables too. Their steps are numbered from the top
/// (slurm.h: SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP), have no number, or have one task.
fn in_a_step_of_several(v: &Vars<'_>) -> bool {
    let step = v.get("SLURM_STEP_ID").or_else(|| v.get("SLURM_STEPID")).and_then(|s| s.parse::<u32>().ok());
    let tasks = v.get("SLURM_STEP_NUM_TASKS").or_else(|| v.get("SLURM_NTASKS"));
    v.any(&["SLURM_PROCID"]) && step.is_some_and(|s| s < 0xffff_fff0) && tasks.is_some_and(|n| n != "1")
}

impl ProcessRank {
    /// Determines the rank and the job from a launcher's variables, or returns none if no
    /// launcher's variables are set.
    ///
    /// The variables are, in this order: `WEFT_RANK`, `WEFT_SIZE`, `WEFT_LOCAL_RANK`,
    /// `WEFT_LOCAL_SIZE` (explicit); `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE`
    /// (torchrun); `OMPI_COMM_WORLD_*` (mpirun); `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`,
    /// `MPI_LOCALNRANKS` (MPICH); `SLURM_PROCID` and similar ones in a step of more than one task
    /// (srun). An empty variable counts as unset.
    ///
    /// PE 0 listens at `WEFT_ADDR` (`host:port`, or `@name` on one host). Without it, PE 0 of a job
    /// on one host listens at a local socket named after the job. On several hosts, it listens on
    /// `MASTER_ADDR` or Slurm's first node, at `WEFT_PORT` or a port from 16384 to 32767 that
    /// follows from the job's name (`MASTER_PORT` is torch's own).
    ///
    /// # Errors
    /// Fails if a variable is missing, is not a number, or contradicts another, if no address is
    /// known, or if a secret is too short or not available ([`Admission::from_env`]) (R0201).
    pub fn detect() -> Result<Option<ProcessRank>> {
        detect(&Vars(&|name| std::env::var(name).ok()))
    }

    /// Returns the rank of a job with one PE.
    pub fn alone() -> ProcessRank {
        let job = format!("alone {}", std::process::id());
        ProcessRank {
            rank: 0,
            size: 1,
            local_rank: Some(0),
            local_size: Some(1),
            launcher: Launcher::Alone,
            hub: Hub::Local(local_name(&job)),
            job,
            admission: Admission::SameUser,
        }
    }

    /// Returns the rank of a PE in a job on this host that is identified by 128 random bytes. One
    /// PE generates them and sends them to the others.
    pub fn of_id(rank: u32, size: u32, id: &[u8; 128]) -> ProcessRank {
        let name: String = blake3::derive_key("warpweft 2026-11 name of a job", id)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        ProcessRank {
            rank,
            size,
            local_rank: None,
            local_size: Some(size),
            launcher: Launcher::Program,
            hub: Hub::Local(format!("weft-{name}")),
            job: name,
            admission: Admission::Secret(Secret::new(id)),
        }
    }

    /// Checks that a secret limits who may connect, if PE 0 listens beyond this host.
    ///
    /// # Errors
    /// Fails if PE 0 listens beyond this host without a secret (R0201).
    pub(super) fn check_admission(&self) -> Result<()> {
        if self.size == 1 || self.hub.is_this_host() || self.admission != Admission::SameUser {
            return Ok(());
        }
        let message =
            format!("PE 0 would listen at {}, but there is no secret that limits who may connect", self.hub);
        Err(Error::new(LAUNCHER, message).help(
            "set WEFT_SECRET to the same secret for all PEs (WEFT_SECRET=$(openssl rand -hex 32)), or WEFT_SECRET_FILE \
             to a file that only you can read; WEFT_INSECURE=1 admits everyone who reaches the port and guesses the job's name",
        ))
    }
}

fn detect(v: &Vars<'_>) -> Result<Option<ProcessRank>> {
    let Some(row) = LAUNCHERS.iter().find(|row| (row.means)(v)) else { return Ok(None) };
    let (size_name, size) = v.number(row.size, 1, MAX_PES)?.ok_or_else(|| unset(row.size[0], row.rank))?;
    let (rank_name, rank) = v.number(&[row.rank], 0, size - 1)?.ok_or_else(|| unset(row.rank, &size_name))?;
    let given = given_hub(v)?;

    let one_host = size == 1
        || given.as_ref().is_some_and(Hub::is_this_host)
        || given.is_none() && v.get("MASTER_ADDR").is_some_and(|host| is_loopback(&host));
    let local_size = v.number(row.local_size, 1, size)?.map(|n| n.1).or(one_host.then_some(size));
    let local_rank = v.number(row.local_rank, 0, local_size.unwrap_or(size) - 1)?.map(|n| n.1);
    let local_rank = local_rank.or(one_host.then_some(rank));
    let all_here = local_size == Some(size);

    let mut job = format!("{:?}", row.launcher).to_lowercase();
    let mut named = false;
    for value in row.job.iter().filter_map(|name| v.get(name)) {
        named = true;
        job = format!("{job} {value}");
    }
    if !named && all_here {
        // The launcher's process on this host is the parent of all PEs.
        job = format!("{job} {}", nix::unistd::getppid());
    }
    let hub = match given {
        Some(hub) => hub,
        None if row.launcher == Launcher::Variables && size > 1 => {
            return Err(unset("WEFT_ADDR", &rank_name));
        }
        None if all_here => Hub::Local(local_name(&job)),
        None => {
            // (SLURM_LAUNCH_NODE_IPADDR is the host on which srun was called, which may not be a
            // node of the job.)
            let host = v.get("MASTER_ADDR").or_else(|| {
                let nodes = v.get("SLURM_STEP_NODELIST").or_else(|| v.get("SLURM_JOB_NODELIST"))?;
                (row.launcher == Launcher::Slurm).then(|| first_host(&nodes))
            });
            let host = host.ok_or_else(|| {
                let here = local_size
                    .map_or("on unknown hosts".into(), |n| format!("on several hosts ({n} on this one)"));
                let message = format!("the {size} PEs are {here}, but the host of PE 0 is not known");
                Error::new(LAUNCHER, message).help(
                    "set MASTER_ADDR to the name of PE 0's host, or WEFT_ADDR to host:port, for all PEs; \
                     or use a communicator (cargo feature `mpi`)",
                )
            })?;
            let port = match v.number(&["WEFT_PORT"], 1, 65535)? {
                Some((_, port)) => port as u16,
                None => port(&job),
            };
            Hub::Tcp(host, port)
        }
    };
    let launcher = match row.launcher {
        Launcher::Variables if v.any(&[super::spawn::SUPERVISOR]) => Launcher::Weft,
        other => other,
    };
    let admission = Admission::from_vars(&|name| v.get(name))?;
    Ok(Some(ProcessRank { rank, size, local_rank, local_size, launcher, hub, job, admission }))
}

impl Hub {
    fn is_this_host(&self) -> bool {
        match self {
            Hub::Local(_) => true,
            Hub::Tcp(host, _) => is_loopback(host),
        }
    }
}

fn given_hub(v: &Vars<'_>) -> Result<Option<Hub>> {
    let Some(text) = v.get("WEFT_ADDR") else { return Ok(None) };
    let bad = || {
        Error::new(LAUNCHER, format!("WEFT_ADDR is {text:?}, but it must be host:port")).help(
            "set WEFT_ADDR to the host of PE 0 and a free port, such as node1:29600, or to @name on one host",
        )
    };
    if let Some(name) = text.strip_prefix('@') {
        // A sockaddr_un has 108 bytes, of which the first is 0.
        return if (1..=107).contains(&name.len()) { Ok(Some(Hub::Local(name.into()))) } else { Err(bad()) };
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    match port.parse() {
        Ok(port) if port > 0 && !host.is_empty() => Ok(Some(Hub::Tcp(host.into(), port))),
        _ => Err(bad()),
    }
}

/// A name for a job's local socket, of bounded length.
pub(super) fn local_name(job: &str) -> String {
    format!("weft-{}-{:016x}", nix::unistd::geteuid(), hash(job))
}

/// A port for a job, outside of the range that systems assign (Linux: 32768 and up).
pub(super) fn port(job: &str) -> u16 {
    16384 + (hash(job) % 16384) as u16
}

/// The hash is equal in all PEs, since they run the same program.
fn hash(job: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    hasher.finish()
}

/// The first host of Slurm's compressed list: `n[03-07,9]-a,login` gives `n03-a`.
fn first_host(list: &str) -> String {
    let mut host = String::new();
    let mut inside = None;
    for c in list.chars() {
        inside = match (inside, c) {
            (None, ',') => break,
            (None, '[') => Some(true),
            (Some(_), ']') => None,
            (Some(_), ',' | '-') => Some(false),
            (Some(false), _) => Some(false),
            (state, c) => {
                host.push(c);
                state
            }
        };
    }
    host
}

/// The entry `node` of Slurm's compressed list of numbers: `2(x3),1` is 2, 2, 2, 1.
fn tasks_on(list: &str, node: u32) -> Option<u32> {
    let mut before = 0u32;
    for part in list.split(',') {
        let (tasks, times) = match part.split_once("(x") {
            Some((tasks, times)) => (tasks, times.strip_suffix(')')?.parse().ok()?),
            None => (part, 1u32),
        };
        before = before.checked_add(times)?;
        if node < before {
            return tasks.parse().ok();
        }
    }
    None
}

fn unset(name: &str, other: &str) -> Error {
    Error::new(LAUNCHER, format!("{other} is set, but {name} is not")).help(
        "set both, or neither. These variables take precedence over those of launchers: \
         WEFT_RANK, WEFT_SIZE, WEFT_LOCAL_RANK, WEFT_LOCAL_SIZE, WEFT_ADDR",
    )
}

/// Variables by name.
struct Vars<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Vars<'_> {
    fn get(&self, name: &str) -> Option<String> {
        if name == TASKS_HERE {
            let node = self.get("SLURM_NODEID")?.parse().ok()?;
            let list = self.get("SLURM_STEP_TASKS_PER_NODE").or_else(|| self.get("SLURM_TASKS_PER_NODE"))?;
            return tasks_on(&list, node).map(|tasks| tasks.to_string());
        }
        self.0(name).filter(|value| !value.is_empty())
    }

    fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.get(name).is_some())
    }

    /// The number in the first of these variables that is set, and the name of that variable.
    fn number(&self, names: &[&str], min: u32, max: u32) -> Result<Option<(String, u32)>> {
        let Some((name, text)) = names.iter().find_map(|&name| Some((name, self.get(name)?))) else {
            return Ok(None);
        };
        match text.parse::<u32>() {
            Ok(n) if (min..=max).contains(&n) => Ok(Some((name.to_string(), n))),
            _ => Err(Error::new(
                LAUNCHER,
                format!("{name} is {text:?}, but it must be a number from {min} to {max}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
