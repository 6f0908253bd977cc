//! The meaning of each code of a [`PtxError`](crate::PtxError), a [`SimError`](crate::SimError) or
//! a [`Finding`](crate::Finding).

use std::fmt;

/// The code of an error or a finding, such as `P001` or `S008`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(&'static str);

impl Code {
    /// Returns the code as the text that is shown.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl PartialEq<&str> for Code {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// A code with its explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// The code that is explained.
    pub code: Code,
    /// The title, in one line without a full stop.
    pub title: &'static str,
    /// One paragraph: what is wrong and what to do.
    pub explanation: &'static str,
    /// The body of a kernel that is rejected with this code, to follow [`PRELUDE`]. It is empty if
    /// there is no short example.
    pub example: &'static str,
}

/// The text that precedes an [example](Info::example). PE 0 and PE 1 run it with two CTAs of 64
/// threads each. `own` and `peer` are the addresses of 4096 bytes on the symmetric heap, of the PE
/// and of the other one; the host has written the first 2048. `mc` is their multicast address.
pub const PRELUDE: &str = ".version 8.6 .target sm_90a .address_size 64
.visible .entry k(.param .u64 own, .param .u64 peer, .param .u64 mc, .param .u32 pe) {
.reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .pred %p<4>;
.shared .align 16 .b8 sm[4096];
ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [peer]; ld.param.u64 %rd3, [mc]; ld.param.u32 %r1, [pe];
mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x;
mul.wide.u32 %rd4, %r2, 4; mov.u64 %rd5, sm; add.u64 %rd6, %rd5, %rd4;  // sm, sm + 4 tid
";

macro_rules! codes {
    ($($name:ident = $code:literal, $title:literal, $example:literal, $explanation:literal;)*) => {
        $(
            #[doc = $title]
            pub const $name: Code = Code($code);
        )*

        /// All codes in ascending order: P codes of the PTX reader, then S codes of the simulator.
        pub const CODES: &[Info] = &[$(Info {
            code: $name, title: $title, explanation: $explanation, example: $example,
        },)*];
    };
}

codes! {
    SYNTAX = "P001", "PTX that cannot be read", "mov.u32 %r1 %tid.x;",
        "This part of the text is not PTX: a punctuation mark is missing or superfluous, or a word is not a \
         directive. The reader accepts the PTX of nvcc, NVRTC, Triton and LLVM without changes. It does not \
         accept a cubin or a fatbin, which are not text.";
    TOO_LARGE = "P002", "nesting or size beyond the reader's limits", "",
        "Blocks and initialisers can nest a few levels deep, a function can have some ten thousand \
         registers, and a variable can have some megabytes. Compilers stay far below these limits. A text \
         that exceeds them is damaged or malicious.";
    UNKNOWN_INSTRUCTION = "P003", "an unknown instruction", "frobnicate.u32 %r1, %r2;",
        "The simulator has no instruction of that name. It does not skip unknown instructions, because the \
         program would then compute something else. docs/ptx-instructions.md lists the instructions that it \
         has.";
    UNKNOWN_MODIFIER = "P004", "a modifier that the instruction does not have", "add.rn.s32 %r1, %r2, 1;",
        "No form of the instruction has this modifier, or the modifier is not allowed with the others or at \
         this position. docs/ptx-instructions.md lists the forms, with their modifiers in the order of PTX.";
    BAD_OPERANDS = "P005", "operands that do not fit the instruction", "add.s32 %r1, %r2;",
        "There are too many or too few operands, or one has the wrong kind or width. Examples are a \
         register where an address is expected, a vector of two where four elements are loaded, and an \
         immediate that is out of range.";
    BAD_NAME = "P006", "an unknown or doubled name", "bra nowhere;",
        "A register, label, variable or function is used but not declared, or it is declared twice in one \
         scope. Declare it once, before its use.";
    NOT_SIMULATED = "P007", "PTX that is legal and not simulated", ".reg .v4 .f32 %v;",
        "This is legal PTX that the simulator does not execute. Examples are textures and surfaces, indirect \
         calls, vector registers and 32-bit addresses. Such a kernel can only run on a GPU.";

    BAD_REQUEST = "S001", "a request that cannot be carried out", "",
        "The host's request does not match the machine or the kernel. The cause can be the number or size of \
         arguments, the block, grid or cluster, an alignment, or a PE that does not exist. The message says \
         what is possible.";
    BAD_ADDRESS = "S002", "an invalid address", "mov.u64 %rd7, 8; ld.global.u32 %r4, [%rd7];",
        "Nothing is mapped at this address on this PE. Four causes are usual: a null pointer, an address \
         that another PE mapped, an index taken from memory that nobody has written, and a generic address in \
         an instruction with a state space. Do not send addresses to other PEs: send offsets, or request the \
         peer address.";
    OUT_OF_BOUNDS = "S003", "an access out of bounds", "ld.global.u32 %r4, [%rd1 + 4096];",
        "The access begins in or near an allocation and extends past its end. The usual cause is the tail of \
         a tensor whose size is not a multiple of the tile. Check the bound of the index. On a GPU, such an \
         access can go unnoticed and read or overwrite other data.";
    MISALIGNED = "S004", "a misaligned access", "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd1 + 4];",
        "The address is not a multiple of the access's size. A vector of four 4-byte elements needs 16-byte \
         alignment of the base, of the row pitch and of every offset.";
    MULTICAST = "S005", "misuse of a multicast address", "ld.global.u32 %r4, [%rd3];",
        "Only multimem.ld_reduce, multimem.st, multimem.red and their bulk forms can use a multicast \
         address, and they accept no other address. For plain loads and stores, use the PE's own address, or \
         a peer's.";
    DIVISION_BY_ZERO = "S006", "a division by zero", "mov.u32 %r4, 0; div.u32 %r5, %r2, %r4;",
        "PTX does not define the result of an integer division or remainder by zero, so the program cannot \
         rely on it. Test the divisor before the division, and find out why it is zero.";
    BARRIER = "S007", "misuse of a barrier", "setp.lt.u32 %p1, %r2, 32; @%p1 bar.sync 0, 64; @!%p1 bar.sync 0, 32;",
        "Part of a warp executes a barrier or warp-synchronous instruction that the other lanes never reach, \
         or threads give different thread counts for one barrier. The hardware can then hang or continue too \
         early. Move the instruction to a place that all counted threads reach.";
    DEADLOCK = "S008", "a deadlock", "wait: ld.acquire.sys.u32 %r4, [%rd1]; setp.eq.u32 %p1, %r4, 0; @%p1 bra wait;",
        "Every thread that has not ended waits for memory that no thread can write any more, for other \
         lanes, or at a barrier. The simulator proves this and does not guess it after some time: no warp can \
         change anything. The report says what each thread waits for, and which value it finds there. Usual \
         causes are a signal that was not sent or was sent to another PE, an epoch out of step, a barrier \
         that one thread does not reach, and CTAs that cannot be resident at once.";
    STEP_LIMIT = "S009", "too many instructions", "again: add.u32 %r4, %r4, 1; bra again;",
        "The launch has executed the maximum number of warp instructions. It is either a long computation, \
         or it waits in a loop that counts or reads the clock. Such a loop never returns to the same state, \
         so it is not recognised as a deadlock. The report shows the position of each warp. If the \
         computation is long, use a smaller size.";
    TRAP = "S010", "a trap", "trap;",
        "The program executed the instruction trap, which ends the kernel with an error. Text that it \
         printed before can show the reason.";
    UNDEFINED = "S011", "operands with undefined behaviour", "setp.lt.u32 %p1, %r2, 16; @%p1 vote.sync.all.pred %p2, %p1, 0xffff0000;",
        "PTX does not define the effect of the instruction with these operands. Examples are a member mask \
         without the executing lane, a barrier number beyond 15, and a value that must be the same in all \
         lanes but is not.";
    MEMORY_LIMIT = "S012", "memory beyond a limit", "",
        "The tensors of all PEs, the registers and shared memory of a CTA, or the stack of a thread exceed \
         the limits of the simulated machine. Use smaller tensors or fewer PEs. The limits can be raised, but \
         deep recursion always exceeds them.";
    NVSHMEM = "S013", "misuse of an NVSHMEM function", "",
        "There are four cases. The PE or the team does not exist. The address is not on the symmetric heap, \
         or it belongs to another PE. Threads that call a function together pass different arguments. PEs of \
         a team call different collective functions.";
    ASYNCHRONOUS = "S014", "misuse of an mbarrier or of an asynchronous copy", "setp.ne.u32 %p1, %r2, 0; @%p1 exit;
mbarrier.init.shared.b64 [%rd5], 1; mbarrier.arrive.shared.b64 %rd7, [%rd5], 2;",
        "There are three cases. The mbarrier is not initialised, lies outside shared memory, or gets more \
         arrivals or bytes than its phase expects. A bulk copy has a size or an address that the hardware \
         does not accept, or is in flight when its CTA ends. A warp ends before the wgmma that it has \
         started.";
    RESIDENCY = "S015", "CTAs wait for others that cannot start", "",
        "A grid has more CTAs than can be resident at once, and the resident ones wait for the others. On a \
         GPU, the kernel hangs. Launch no more CTAs than fit (a cooperative launch rejects more), and let \
         each CTA do more of the work. The number that fits follows from the threads, the shared memory and \
         the number of SMs, and the report states it.";
    ASSERTION = "S016", "an assertion that does not hold", "",
        "The program called __assertfail because the condition of an `assert` is false. The message has the \
         text of the assertion, its file and its line.";

    RACE = "S030", "a data race: nothing orders the accesses", "st.shared.u32 [%rd5], %r2;",
        "Two threads access the same bytes, at least one of them writes, and nothing orders the accesses. \
         This holds in every schedule. The value that is read, or that remains, depends on timing and on the \
         compiler. Put a barrier that both threads reach between the accesses, or let one thread release what \
         the other acquires.";
    RELAXED = "S031", "a data race: synchronisation without release or acquire", "setp.ne.u32 %p1, %r2, 0; @%p1 exit; setp.ne.u32 %p1, %r3, 0; @%p1 exit;
add.u64 %rd8, %rd2, 128; st.global.u32 [%rd2], 42;
st.relaxed.sys.global.u32 [%rd8], 1;  // should be st.release
add.u64 %rd8, %rd1, 128;
wait: ld.acquire.sys.global.u32 %r4, [%rd8]; setp.ne.u32 %p1, %r4, 1; @%p1 bra wait;
ld.global.u32 %r5, [%rd1];",
        "One thread signals another by a flag, a counter or a barrier, but the write or the read of the \
         signal is relaxed. Data that was written before the signal is therefore not guaranteed to be visible \
         after it. The writer needs .release (or a fence.acq_rel before the write), and the reader needs \
         .acquire (or a fence after the read).";
    NARROW_SCOPE = "S032", "a data race: a scope is too narrow", "setp.ne.u32 %p1, %r2, 0; @%p1 exit; setp.ne.u32 %p1, %r3, 0; @%p1 exit;
red.relaxed.gpu.global.add.u32 [%rd2], 1;  // should be .sys: the other PE's memory
red.relaxed.sys.global.add.u32 [%rd1], 1;",
        "The threads synchronise, or update the same location atomically, with a scope that does not include \
         the other thread. The scope is .cta between CTAs, or .gpu between PEs. The kernel can still work by \
         chance on one GPU. Give both sides the scope that the message names.";
    PROXY = "S033", "a missing proxy fence", "setp.ne.u32 %p1, %r2, 0; @%p1 exit; setp.ne.u32 %p1, %r3, 0; @%p1 exit;
st.shared.v4.u32 [%rd5], {1, 1, 1, 1};  // and then fence.proxy.async
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%rd5], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
        "A thread has written memory that an asynchronous operation (bulk copy, TMA, wgmma) reads, or the \
         other way round. These operations use the async proxy, which does not see ordinary accesses of \
         threads without a fence. The thread that wrote must execute fence.proxy.async between the two \
         accesses, before it signals other threads.";
    REMOTE = "S034", "a remote operation that is not complete", "",
        "Memory is used while an NVSHMEM operation can still read or write it. There are four cases. The \
         source of put_nbi is written before nvshmem_quiet. The destination of get_nbi is read before \
         nvshmem_quiet. The data of a put is read before a wait for its signal. A signal overtakes data \
         because there is no nvshmem_fence between them.";
    COPY = "S035", "an asynchronous copy that is not complete", "setp.ge.u32 %p1, %r2, 1; @%p1 exit; st.shared.u32 [%rd5], 0;
cp.async.ca.shared.global [%rd5], [%rd1], 4; cp.async.commit_group;  // and then cp.async.wait_group 0
ld.shared.u32 %r4, [%rd5];",
        "A thread uses memory while one of its own copies still reads or writes it. First wait for the copy: \
         use cp.async.wait_group for cp.async, the mbarrier or cp.async.bulk.wait_group for bulk copies, and \
         wgmma.wait_group for matrix operations. If other threads use the memory, a barrier must follow.";
    UNWRITTEN = "S036", "memory that nobody has written is read", "ld.global.u32 %r4, [%rd1 + 2048];",
        "Neither the host nor a kernel has written these bytes, so their contents differ from run to run. \
         Shared memory begins with what an earlier CTA left in it. Memory from cudaMalloc or nvshmem_malloc \
         is also undefined. Write the memory before the read.";
    READ_ONLY = "S037", "the read-only path reads what the launch writes", "setp.ne.u32 %p1, %r2, 0; @%p1 exit; setp.ne.u32 %p1, %r3, 0; @%p1 exit;
st.global.u32 [%rd1], 7; ld.global.nc.u32 %r4, [%rd1];",
        "ld.global.nc reads through a cache that is not kept coherent during a launch, so it can return old \
         data. It is only for memory that nobody writes while the kernel runs. Compilers emit it for __ldg \
         and for const __restrict__ pointers. Use a plain load, or remove __restrict__ or const.";
}
