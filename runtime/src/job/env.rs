//! Which PE this process is: the variables that launchers set.

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
    /// The rank among the PEs on this host, from 0, which is the number of its GPU by default. It is none if
    /// the launcher does not say; the PEs then find it out from each other.
    pub local_rank: Option<u32>,
    /// The number of PEs on this host, if the launcher says so.
    pub local_size: Option<u32>,
    /// The launcher that started this process.
    pub launcher: Launcher,
    /// The address at which PE 0 listens. It is of no use if there is one PE.
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
    /// Somebody who set `WEFT_RANK`, `WEFT_SIZE` and `WEFT_ADDR`.
    Variables,
    /// torchrun, or somebody who set `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// The launcher `mpirun` of Open MPI.
    OpenMpi,
    /// The launcher `srun` of Slurm.
    Slurm,
    /// A process manager that sets `PMI_RANK` and `PMI_SIZE`: MPICH's and Intel MPI's.
    Pmi,
    /// The program itself, over an MPI communicator (feature `mpi`).
    Mpi,
    /// The program itself, with a number that its PEs have ([`ProcessRank::of_id`]).
    Program,
    /// No launcher: the job has one PE.
    Alone,
}

/// The address at which PE 0 listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hub {
    /// A unix socket of this name in the abstract namespace, so that no file can be left behind. Only processes of
    /// the same user are let in.
    Local(String),
    /// Host and port, where the PEs are on several hosts. Beyond this host, PEs show each other that they know the
    /// secret of the job ([`Admission`]).
    Tcp(String, u16),
}

/// As `WEFT_ADDR` has it: `@name` or `host:port`.
impl fmt::Display for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hub::Local(name) => write!(f, "@{name}"),
            Hub::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Hub::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

/// The variables of one launcher. Of several names the first that is set counts.
struct Row {
    launcher: Launcher,
    rank: &'static str,
    size: &'static [&'static str],
    local_rank: &'static [&'static str],
    local_size: &'static [&'static str],
    /// Their values together are the job's name.
    job: &'static [&'static str],
    /// Whether these variables mean this process, and are not left from an outer launcher.
    means: fn(&Vars<'_>) -> bool,
}

/// Every launcher. The first whose variables are there counts, so an inner launcher comes before those that may
/// have started it: torchrun runs under srun, mpirun's daemons do too.
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
        // srun sets these two as well (--mpi=pmi2), and knows more.
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

/// PEs of a job: more than any machine has GPUs, and no more than PE 0 can hold connections to.
const MOST_PES: u32 = 1 << 16;

/// Not a variable: the entry of `SLURM_NODEID` in `SLURM_STEP_TASKS_PER_NODE`.
const TASKS_HERE: &str = "SLURM_STEP_TASKS_PER_NODE[SLURM_NODEID]";

/// Whether srun started this process as one task of several. The shell of `salloc`, a batch script and
/// `srun --pty bash` have most of the variables too: their steps are numbered from the top (slurm.h:
/// SLURM_BATCH_SCRIPT, SLURM_INTERACTIVE_STEP), not at all, or have one task.
fn in_a_step_of_several(v: &Vars<'_>) -> bool {
    let step = v.get("SLURM_STEP_ID").or_else(|| v.get("SLURM_STEPID")).and_then(|s| s.parse::<u32>().ok());
    let tasks = v.get("SLURM_STEP_NUM_TASKS").or_else(|| v.get("SLURM_NTASKS"));
    v.any(&["SLURM_PROCID"]) && step.is_some_and(|s| s < 0xffff_fff0) && tasks.is_some_and(|n| n != "1")
}

impl ProcessRank {
    /// The place that a launcher's variables give; none where no launcher's are set.
    ///
    /// In this order: `WEFT_RANK`, `WEFT_SIZE`, `WEFT_LOCAL_RANK`, `WEFT_LOCAL_SIZE` (explicit);
    /// `RANK`, `WORLD_SIZE`, `LOCAL_RANK`, `LOCAL_WORLD_SIZE` (torchrun); `OMPI_COMM_WORLD_*` (mpirun);
    /// `PMI_RANK`, `PMI_SIZE`, `MPI_LOCALRANKID`, `MPI_LOCALNRANKS` (MPICH); `SLURM_PROCID` and its kin in a step
    /// of more than one task (srun). An empty variable counts as unset.
    ///
    /// PE 0 listens at `WEFT_ADDR` (`host:port`, or `@name` on one host). Without it: on one host, at a local socket
    /// named after the job; on several, on `MASTER_ADDR` or Slurm's first node, at `WEFT_PORT` or a port from 16384
    /// to 32767 that follows from the job's name (`MASTER_PORT` is torch's own).
    ///
    /// # Errors
    /// Fails if a variable is missing, is no number, or contradicts another, no address is known, or a secret
    /// is too short or not available ([`Admission::from_env`]) (R0201).
    pub fn detect() -> Result<Option<ProcessRank>> {
        detect(&Vars(&|name| std::env::var(name).ok()))
    }

    /// One PE, by itself.
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

    /// A PE of a job on this host that is known by a number which only its PEs have: 128 bytes that one of them made at
    /// random and told the others.
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

    /// # Errors
    /// Fails if PE 0 listens beyond this host and nothing says who may come (R0201).
    pub(super) fn check_admission(&self) -> Result<()> {
        if self.size == 1 || self.hub.is_this_host() || self.admission != Admission::SameUser {
            return Ok(());
        }
        let message = format!("PE 0 is to listen at {}, and nothing says who may come", self.hub);
        Err(Error::new(LAUNCHER, message).help(
            "set WEFT_SECRET to the same secret for all PEs (WEFT_SECRET=$(openssl rand -hex 32)), or WEFT_SECRET_FILE \
             to a file that only you may read; WEFT_INSECURE=1 lets in whoever reaches the port and guesses the job's name",
        ))
    }
}

fn detect(v: &Vars<'_>) -> Result<Option<ProcessRank>> {
    let Some(row) = LAUNCHERS.iter().find(|row| (row.means)(v)) else { return Ok(None) };
    let (size_name, size) = v.number(row.size, 1, MOST_PES)?.ok_or_else(|| unset(row.size[0], row.rank))?;
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
        // The launcher's process on this host has started all of them.
        job = format!("{job} {}", nix::unistd::getppid());
    }
    let hub = match given {
        Some(hub) => hub,
        None if row.launcher == Launcher::Variables && size > 1 => {
            return Err(unset("WEFT_ADDR", &rank_name));
        }
        None if all_here => Hub::Local(local_name(&job)),
        None => {
            // (SLURM_LAUNCH_NODE_IPADDR is where srun was typed, which may be no node of the job.)
            let host = v.get("MASTER_ADDR").or_else(|| {
                let nodes = v.get("SLURM_STEP_NODELIST").or_else(|| v.get("SLURM_JOB_NODELIST"))?;
                (row.launcher == Launcher::Slurm).then(|| first_host(&nodes))
            });
            let host = host.ok_or_else(|| {
                let here = local_size.map_or("on hosts that are not known".into(), |n| {
                    format!("on several hosts ({n} on this one)")
                });
                let message = format!("the {size} PEs are {here}, and nothing says where PE 0 is");
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
        Error::new(LAUNCHER, format!("WEFT_ADDR is {text:?}; expected host:port")).help(
            "set WEFT_ADDR to the host of PE 0 and a free port, such as node1:29600, or to @name on one host",
        )
    };
    if let Some(name) = text.strip_prefix('@') {
        // sockaddr_un holds 108 bytes, the first of them 0.
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

/// A port for a job, outside of those that systems hand out (Linux: 32768 and up).
pub(super) fn port(job: &str) -> u16 {
    16384 + (hash(job) % 16384) as u16
}

/// Equal in all PEs, since they run the same program.
fn hash(job: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    job.hash(&mut hasher);
    hasher.finish()
}

/// The first of Slurm's compressed list of hosts: `n[03-07,9]-a,login` gives `n03-a`.
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

/// Entry `node` of Slurm's compressed list of numbers: `2(x3),1` is 2, 2, 2, 1.
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
    Error::new(LAUNCHER, format!("{name} is not set, and {other} is")).help(
        "set both, or neither. Variables that go before all others: \
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

    /// The number in the first of these variables that is set, and that variable's name.
    fn number(&self, names: &[&str], least: u32, most: u32) -> Result<Option<(String, u32)>> {
        let Some((name, text)) = names.iter().find_map(|&name| Some((name, self.get(name)?))) else {
            return Ok(None);
        };
        match text.parse::<u32>() {
            Ok(n) if (least..=most).contains(&n) => Ok(Some((name.to_string(), n))),
            _ => Err(Error::new(
                LAUNCHER,
                format!("{name} is {text:?}; expected a number from {least} to {most}"),
            )),
        }
    }
}

#[cfg(test)]
mod tests;
