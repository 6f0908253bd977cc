//! The statistics of a launch.

/// The number of executions of one mnemonic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpcodeCount {
    /// The opcode with all its modifiers.
    pub mnemonic: String,
    /// The number of executions by a warp.
    pub warps: u64,
    /// The number of executions by a lane.
    pub lanes: u64,
}

/// The bytes of multimem instructions, counted once for all members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MulticastBytes {
    /// The bytes returned by `multimem.ld_reduce` (each one reduces a byte of every member).
    pub ld_reduce: u64,
    /// The bytes given to `multimem.st` (each written on every member).
    pub st: u64,
    /// The bytes given to `multimem.red`.
    pub red: u64,
}

/// The bytes that multimem instructions moved through one team's multicast address, counted once
/// for all members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MulticastTraffic {
    /// The PEs of the team.
    pub team: Vec<usize>,
    /// The bytes returned by `multimem.ld_reduce` (each one reduces a byte of every member).
    pub ld_reduce: u64,
    /// The bytes given to `multimem.st` (each written on every member).
    pub st: u64,
    /// The bytes given to `multimem.red`.
    pub red: u64,
    /// The bytes by PE that executed the instructions, for every PE of the machine.
    pub by_pe: Vec<MulticastBytes>,
}

impl MulticastTraffic {
    pub(crate) fn new(team: Vec<usize>, by_pe: Vec<MulticastBytes>) -> MulticastTraffic {
        let sum = |of: fn(&MulticastBytes) -> u64| by_pe.iter().map(of).sum();
        let (ld_reduce, st, red) = (sum(|m| m.ld_reduce), sum(|m| m.st), sum(|m| m.red));
        MulticastTraffic { team, ld_reduce, st, red, by_pe }
    }
}

/// The bytes through the port between a PE and the switch, without requests and headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Port {
    /// The bytes from the PE to the switch.
    pub out: u64,
    /// The bytes from the switch to the PE.
    pub into: u64,
}

/// The NVSHMEM operations of a launch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvshmemStats {
    /// The calls by function, with the most frequent first. A call of a warp or CTA counts once.
    pub calls: Vec<(String, u64)>,
    /// The bytes that the functions moved between PEs, at index `from * n_pes + to`.
    pub links: Vec<u64>,
    /// The number of remote operations that were not complete when the last CTA of the launch
    /// ended: no quiet or barrier had completed them, and they had not completed by themselves. The
    /// host must complete them before it reads their results.
    pub unfinished: u64,
}

impl NvshmemStats {
    /// Returns the number of calls of one function.
    pub fn calls(&self, name: &str) -> u64 {
        self.calls.iter().find(|(n, _)| n == name).map_or(0, |(_, n)| *n)
    }
}

/// Counters of a launch, summed over PEs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of instructions that warps issued.
    pub warp_instructions: u64,
    /// The number of instructions, times the lanes that executed them.
    pub lane_instructions: u64,
    /// The executions by mnemonic, with the most frequent first.
    pub opcodes: Vec<OpcodeCount>,
    /// The warp instructions by PTX line (from 1), in order. It is empty if kernels of several modules ran.
    pub lines: Vec<(u32, u64)>,
    /// The bytes that plain loads, stores and atomics moved between PEs, at index `from * n_pes +
    /// to`.
    pub links: Vec<u64>,
    /// The loads of lanes from memory of other PEs, and the pieces that asynchronous copies read
    /// there.
    pub remote_loads: u64,
    /// The stores and atomics of lanes to memory of other PEs, and the pieces that asynchronous
    /// copies wrote there.
    pub remote_stores: u64,
    /// The multicast traffic by team, for the teams with any.
    pub multicast: Vec<MulticastTraffic>,
    /// The calls and bytes of NVSHMEM functions.
    pub nvshmem: NvshmemStats,
    /// The number of CTA barriers that were completed.
    pub barriers: u64,
    /// The text that the kernels printed, each line prefixed with its PE.
    pub printed: String,
    /// Whether output was dropped because `Config::print_limit` was reached.
    pub printed_truncated: bool,
}

impl Stats {
    /// Returns the warp and lane instructions of all mnemonics that begin with these components,
    /// for example `multimem.ld_reduce`.
    pub fn count(&self, prefix: &str) -> (u64, u64) {
        let is =
            |m: &str| m.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        self.opcodes.iter().filter(|o| is(&o.mnemonic)).fold((0, 0), |(w, l), o| (w + o.warps, l + o.lanes))
    }

    /// Returns the bytes moved from one PE to another by plain accesses.
    pub fn link(&self, n_pes: usize, from: usize, to: usize) -> u64 {
        self.links.get(from * n_pes + to).copied().unwrap_or(0)
    }

    /// Returns the bytes through each PE's port by loads, stores, atomics and NVSHMEM functions:
    /// its own, and those of other PEs on its memory.
    pub fn peer_ports(&self, n_pes: usize) -> Vec<Port> {
        let mut ports = vec![Port::default(); n_pes];
        for links in [&self.links, &self.nvshmem.links] {
            for (link, bytes) in links.iter().enumerate().take(n_pes * n_pes) {
                let (from, to) = (link / n_pes, link % n_pes);
                if from != to {
                    ports[from].out += bytes;
                    ports[to].into += bytes;
                }
            }
        }
        ports
    }

    /// Returns the bytes through each PE's port by multimem instructions. For a
    /// `multimem.ld_reduce`, each member sends its bytes to the switch, and the switch sends one
    /// reduction to the requesting PE. A `multimem.st` or `multimem.red` is sent once to the
    /// switch, which sends it to each member, including the sender.
    pub fn switch_ports(&self, n_pes: usize) -> Vec<Port> {
        let mut ports = vec![Port::default(); n_pes];
        for m in &self.multicast {
            for (port, by) in ports.iter_mut().zip(&m.by_pe) {
                port.out += by.st + by.red;
                port.into += by.ld_reduce;
            }
            for member in &m.team {
                if let Some(port) = ports.get_mut(*member) {
                    port.out += m.ld_reduce;
                    port.into += m.st + m.red;
                }
            }
        }
        ports
    }
}
