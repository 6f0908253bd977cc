//! The errors of the runtime: a code, a description of what happened and what was expected, and
//! help.

use std::fmt;

/// An error of the runtime. `Display` is meant for people: `error[R0301]: PE 1 …`, then `help: …`
/// on a line of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Error {
    /// The code of the kind of error. [`CODES`] explains it.
    pub code: Code,
    /// A description of what happened, with names and numbers.
    pub message: String,
    /// What the user can do about it. It is empty if the message is sufficient.
    pub help: String,
}

impl Error {
    /// Makes an error with this code.
    pub fn new(code: Code, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), help: String::new() }
    }

    /// Adds the help to the error.
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.help = help.into();
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        match self.help.is_empty() {
            true => Ok(()),
            false => write!(f, "\n  help: {}", self.help.replace('\n', "\n        ")),
        }
    }
}

impl std::error::Error for Error {}

/// The result of most functions of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The code of an error, such as `R0301`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{:04}", self.0)
    }
}

/// The explanation of an error code.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// The code that is explained.
    pub code: Code,
    /// The title, in one line without a full stop.
    pub title: &'static str,
    /// One paragraph that says what is wrong and what to do.
    pub explanation: &'static str,
}

macro_rules! codes {
    ($($name:ident = $number:literal, $title:literal, $explanation:literal;)*) => {
        $(#[doc = $title] pub const $name: Code = Code($number);)*
        /// All codes in ascending order: R01xx for the machine and its libraries, R02xx for
        /// starting PEs, R03xx for symmetric memory and teams, R04xx for operations on streams,
        /// R05xx for kernels.
        pub const CODES: &[Info] = &[$(Info { code: $name, title: $title, explanation: $explanation },)*];
    };
}

codes! {
    NO_CUDA = 101, "no CUDA driver",
        "libcuda was not found, or it could not be started. NVIDIA's driver installs it on a machine with a \
         GPU. Without it, kernels still compile, and they run on the simulator.";
    NO_GPU = 102, "no such GPU",
        "The driver has no GPU for this process. Either the host has fewer GPUs than PEs, or \
         CUDA_VISIBLE_DEVICES hides them. Start fewer PEs on this host, or make more GPUs visible.";
    CUDA = 103, "the CUDA driver rejected a call",
        "A call of a driver function failed. The message has the name of the function, CUDA's name for the \
         error, and the meaning of the error.";
    NO_NVSHMEM = 104, "libnvshmem_host not found",
        "NVSHMEM's host library was in none of the locations that the message lists. `weft setup` fetches \
         it, and NVSHMEM_HOME names an installation.";
    NVSHMEM_VERSION = 105, "an NVSHMEM that is not supported",
        "Versions 3.3 to 3.8 are supported. The host library and the device bitcode must have the same \
         version, because they share structures.";
    NVSHMEM = 106, "an NVSHMEM call failed",
        "A call of an NVSHMEM function returned an error. NVSHMEM_DEBUG=INFO makes NVSHMEM print more about \
         it.";
    NO_JITLINK = 107, "libnvJitLink not found",
        "NVIDIA's linker of device code, libnvJitLink, is in none of the searched locations, or the file is \
         not that library. `weft setup` fetches it, and WEFT_NVJITLINK names a file.";
    JITLINK = 108, "device code that cannot be linked",
        "libnvJitLink rejected its input, and the message contains its log. Objects from a CUDA that is \
         later than the library need a newer library: `weft setup --force` fetches the newest one.";
    NO_NCCL = 109, "libnccl not found",
        "`weft bench --against nccl` compares NCCL with warpweft. The library is in none of the searched \
         locations, or the file is not that library, or it is older than version 2.19. `weft setup --nccl` \
         fetches it, and WEFT_NCCL names a file.";
    NCCL = 110, "an NCCL call failed",
        "A call of an NCCL function returned an error. NCCL_DEBUG=INFO makes NCCL print more about it.";
    TUNING = 111, "tuning tables that cannot be read or written",
        "`weft tune` measures the fastest plans of warpweft's collectives and stores them in a file. The \
         file is damaged, has another version, or cannot be read or written. Run `weft tune` to measure \
         again. WEFT_TUNING names another file, and WEFT_TUNING=off uses none.";
    NO_CUBLAS = 112, "libcublasLt not found",
        "`weft bench gemm --against cublas` compares the library cuBLASLt with warpweft. The library is in \
         none of the searched locations, or the file is not that library. `weft setup --cublas` fetches it, \
         and WEFT_CUBLASLT names a file.";
    CUBLAS = 113, "a cuBLASLt call failed",
        "A call of cuBLASLt returned an error, or the library has no algorithm for the requested product. \
         CUBLASLT_LOG_LEVEL=2 makes it print more. A library from a CUDA that is later than the driver's does \
         not start. Install the library of the driver's CUDA.";
    LAUNCHER = 201, "the launcher's variables are inconsistent",
        "Rank and size come from the environment: WEFT_RANK and WEFT_SIZE, or what torchrun, mpirun or srun \
         set. One of them is missing, is not a number, or contradicts another. PEs on several hosts also \
         need a secret that all of them know, WEFT_SECRET or WEFT_SECRET_FILE.";
    BOOTSTRAP = 202, "the PEs did not find each other",
        "Every PE connects to PE 0 before NVSHMEM starts. One PE did not connect in time, or PE 0 cannot \
         listen at the address, or PE 0 rejected a process that has not shown that it belongs to the job.";
    PEER_DIED = 203, "another PE ended",
        "A PE ended before the others because of an error, a signal, or an early return. All PEs then end, \
         because otherwise they would wait forever for the missing one. The first message states the cause.";
    STARTED_TWICE = 204, "started twice",
        "A process can join a job only once. NVSHMEM has one state per process, and it cannot start again \
         after it has been finalized. Start a new process.";
    COLLECTIVE = 301, "the PEs do not agree",
        "In a collective call, every PE of the team must make the same call with the same sizes, in the same \
         order. The message says what each PE called. Make the calls of all PEs agree.";
    OUT_OF_MEMORY = 302, "not enough memory",
        "The symmetric heap or the device could not provide that many bytes. Free tensors that are no longer needed, \
         or make the heap larger with NVSHMEM_SYMMETRIC_SIZE.";
    NOT_IN_TEAM = 303, "not in this team",
        "The requested PE, or this PE, is not a member of the team. Ranks in a team count from 0 to its size less 1. \
         Only members may call operations of a team.";
    UNREACHABLE = 304, "a peer's memory cannot be addressed",
        "Loads and stores reach a peer's memory only over NVLink or PCIe peer access. Use put and get, \
         which work over any transport.";
    FINALIZED = 305, "used after the end",
        "NVSHMEM has been finalized, or the memory has been freed, before this use of it. Keep the world and \
         its memory alive until the last use.";
    REGISTER = 306, "memory that cannot be registered",
        "NVSHMEM can register only memory that CUDA's virtual memory functions made (cuMemCreate, cuMemMap). \
         The memory must be a whole mapping, exported by file descriptor, and its size must be a multiple of \
         NVSHMEM's granularity (NVSHMEM_CUMEM_GRANULARITY).";
    SHAPE = 307, "shapes or sizes that do not match",
        "Source and destination have different numbers of elements, or a copy goes past the end of one. The message \
         has both sizes. Pass tensors or slices of the same size.";
    DLPACK = 308, "a DLPack tensor that cannot be imported",
        "The tensor's device, element type or strides are not the requested ones. Move or convert the tensor in the \
         library that it comes from, or request what it has.";
    OPERATION = 401, "an operation that does not exist",
        "NVSHMEM (or NCCL, if it is measured) has no such operation for this element type. Use another type, \
         or one of warpweft's own collectives, whose algorithms support more types.";
    NOT_DONE = 402, "the GPU did not finish in time",
        "Something on the GPU did not end in time. It waits for a signal that nobody sends, it waits for a \
         collective that a PE of the team did not call, or it is only a long computation. WEFT_TIMEOUT sets \
         the limit of every wait in seconds (60 by default). With WEFT_WATCH=1, the message lists the waits of \
         the kernels of all PEs. With WEFT_WATCH=report, they are printed and the host goes on waiting.";
    SIMULATED = 403, "the simulator stopped the kernels",
        "A kernel on simulated PEs did something that no GPU allows, or the kernels wait for each other \
         forever. The message is the simulator's report. A program also gets this error if it asks a \
         simulated PE for something that only a GPU has.";
    ASSERTION = 404, "an assertion of a kernel failed",
        "An `assert` of a kernel met a false condition on this PE's GPU. CUDA has written its text, file and \
         line, the CTA (block) and the thread to standard error. Every later call of this process to the GPU \
         fails. On simulated PEs, the error itself contains the report (R0403, S016).";
    INTERRUPTED = 405, "interrupted",
        "The program was told to stop (Ctrl-C) while it waited for a GPU, for other PEs or for the \
         simulator. The work in progress is abandoned. The other PEs get R0203 or R0301 where they wait for \
         this one.";
    PTX = 501, "the driver rejected the PTX",
        "The driver could not load the code, and the message has its log. If the PTX is newer than the \
         driver, use a newer driver, or compile with an older --ptx-version.";
    ARGUMENT = 502, "an argument that does not fit the kernel",
        "Arguments are checked against the kernel's description before the launch: their number, element \
         type, layout and space. The message names the argument, and what the kernel expects. Pass an argument \
         that fits, or change the kernel's parameter.";
    LAUNCH = 503, "a launch that the device cannot execute",
        "The grid, block, cluster or shared memory exceeds what the device, or a cooperative launch on it, \
         allows. Use a smaller grid, block or tile.";
    NO_KERNEL = 504, "no such kernel",
        "The module has no entry point of that name. The message lists the kernels of the module. Pass one of these \
         names.";
    GEMM = 505, "a matrix product that the GEMM kernel does not compute",
        "The library's GEMM takes any number of rows of A. Extents along contiguous modes must be multiples \
         of 16 bytes, because TMA copies the tiles. These requests are rejected before anything is \
         launched: an empty shape, an element type without matrix instructions, a plan whose tiles do not \
         fit the shared memory or the registers, and a GPU without the instructions. The message says which \
         limit is exceeded, and by how much.";
    ROUTES = 506, "tokens that are sent to experts which cannot take them",
        "A PE of the team names an expert that does not exist, names more tokens than it has, or gets more \
         tokens than it has room for. All PEs know the counts of all others before the first token is sent, \
         so every PE of the team reports the same error, and no token was sent.";
    NORM = 507, "a fused norm that the kernels do not compute, or a call without one of its operands",
        "The kernels that fuse an allreduce with a norm take hidden states in bf16 or f16. Their results have \
         the same type, or they are e4m3 with one scale for all, for each token or for each group of a row. \
         Groups divide a row and have 1, 2, 4, 8, 16 or 32 vectors of 16 bytes of the norm, or the whole \
         row. A call passes exactly the operands of the form that it was made for: a bias for LayerNorm, \
         scales for e4m3, and the norm if it is also written. Other forms are rejected when the call is \
         prepared, and other operands before the launch. All PEs prepare the same form, size of a row and \
         number of tokens, because their kernels wait for each other.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_say_something() {
        assert!(CODES.windows(2).all(|w| w[0].code < w[1].code));
        assert!(CODES.iter().all(|c| c.explanation.ends_with('.') && !c.title.ends_with('.')));
    }

    #[test]
    fn help_stands_on_its_own_line() {
        let e = Error::new(NO_GPU, "there is no GPU 3").help("this host has 2 GPUs");
        assert_eq!(e.to_string(), "error[R0102]: there is no GPU 3\n  help: this host has 2 GPUs");
    }
}
