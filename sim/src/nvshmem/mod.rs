//! NVSHMEM's device functions, built in by name, for PTX that declares `.extern .func nvshmem...`.
//!
//! [`table`] has the names and prototypes, a file for each family has the functions, and [`call`]
//! gathers the threads that make a call together. [`crate::exec::remote`] has the pending
//! operations.

mod amo;
pub(crate) mod call;
mod collective;
mod docs;
mod rma;
mod signal;
pub(crate) mod table;
mod team;
mod watch;

pub(crate) use docs::markdown;

use crate::builder::Issue;
use crate::check::AccessKind;
use crate::codes;
use crate::exec::access::{Space, from_le, put_le};
use crate::exec::remote::notes::Notes;
use crate::exec::remote::{Scope, Waiting};
use crate::exec::{Context, Fault, Op, fault};
use crate::memory::{AccessError, Spot, Window};
use crate::model::lanes;
use table::{FUNCTIONS, Function};

/// The progress of a call.
pub(crate) enum Step {
    /// The call is complete, with this result, or 0 without a result.
    Done(u64),
    Wait(Waiting),
}

/// One execution of a function by one thread, or by a warp or CTA together.
pub(crate) struct Call<'c, 'a> {
    pub cx: &'c mut Context<'a>,
    pub f: &'static Function,
    pub args: [u64; 8],
    /// The lane of the (first) thread.
    pub lane: usize,
    /// The number of the call, if it has to wait.
    pub ticket: u64,
    /// Whether the call has waited before.
    pub waited: bool,
    /// Whether it read the same value as the same instruction before, so that the program waits in
    /// a loop.
    pub repeats: bool,
    pub notes: Notes,
}

impl<'c, 'a> Call<'c, 'a> {
    /// Creates a call that begins now.
    fn new(cx: &'c mut Context<'a>, f: &'static Function, args: [u64; 8], lane: usize, ticket: u64) -> Self {
        Call { cx, f, args, lane, ticket, waited: false, repeats: false, notes: Notes::default() }
    }
}

impl Call<'_, '_> {
    pub(crate) fn my_pe(&self) -> usize {
        self.cx.at.pe
    }

    /// Makes a fault of this call.
    #[cold]
    pub(crate) fn fault(&self, message: impl std::fmt::Display, help: &str) -> Fault {
        fault(codes::NVSHMEM, self.lane, format!("`{}`: {message}", self.f.name), help)
    }

    #[cold]
    fn access_fault(&self, what: &str, e: AccessError) -> Fault {
        fault(e.code, self.lane, format!("`{what}` of `{}`: {}", self.f.name, e.message), e.help)
    }

    /// Returns a PE by its number in the world.
    pub(crate) fn pe(&self, arg: u64) -> Result<usize, Fault> {
        let n = self.cx.memory.n_pes;
        let pe = arg as u32 as i32;
        usize::try_from(pe).ok().filter(|&p| p < n).ok_or_else(|| {
            self.fault(
                format_args!("PE {pe} does not exist: the number of PEs is {n}"),
                "use a number from 0 to one less than the number of PEs",
            )
        })
    }

    /// Returns the size of this number of elements in bytes.
    pub(crate) fn bytes(&self, count: u64) -> Result<u64, Fault> {
        let size = self.f.ty.bytes() as u64;
        count.checked_mul(size).filter(|&b| b < 1 << 48).ok_or_else(|| {
            let message = format_args!("{count} elements of {size} bytes are more than any allocation has");
            self.fault(message, "check the count, which is unsigned: a negative number becomes very large")
        })
    }

    /// Checks that the address is a multiple of the element's size.
    pub(crate) fn aligned(&self, what: &str, addr: u64, size: usize) -> Result<(), Fault> {
        if addr.is_multiple_of(size.max(1) as u64) {
            return Ok(());
        }
        let place = match Space::of_generic(addr) {
            (Space::Global, _) => self.cx.memory.describe(self.my_pe(), addr),
            (space, at) => format!("{} address {at:#x}", space.name()),
        };
        Err(fault(
            codes::MISALIGNED,
            self.lane,
            format!("`{what}` of `{}` is {place}, which is not aligned to {size} bytes", self.f.name),
            "align the buffer, or use the byte form (`putmem`, `getmem`): this function moves elements of this size",
        ))
    }

    /// Returns the heap offset of `bytes` bytes at a symmetric address.
    pub(crate) fn symmetric(&self, what: &str, addr: u64, bytes: u64) -> Result<u64, Fault> {
        self.aligned(what, addr, self.f.ty.bytes())?;
        if bytes == 0 {
            return Ok(0);
        }
        self.cx.memory.symmetric(self.my_pe(), addr, bytes).map_err(|e| self.access_fault(what, e))
    }

    /// Returns the location of a local buffer in global memory, or `None` if it is in shared or
    /// local memory.
    pub(crate) fn global(
        &self,
        what: &str,
        addr: u64,
        bytes: u64,
        write: bool,
    ) -> Result<Option<Spot>, Fault> {
        match Space::of_generic(addr) {
            (Space::Global, _) => {
                let spot = self.cx.memory.spot(self.my_pe(), addr, bytes, write);
                spot.map(Some).map_err(|e| self.access_fault(what, e))
            }
            (Space::Local, _) if self.f.scope != Scope::Thread => Err(self.fault(
                format_args!("`{what}` is in one thread's local memory"),
                "use a buffer that all calling threads can access",
            )),
            _ => Ok(None),
        }
    }

    /// Returns the bytes of shared or local memory at a generic address.
    fn narrow(&mut self, what: &str, addr: u64, bytes: u64, write: bool) -> Result<&mut [u8], Fault> {
        let (space, at) = Space::of_generic(addr);
        let memory: &mut [u8] = match space {
            Space::Shared => self.cx.memory.buffers[self.cx.shared].as_mut_slice(),
            Space::Local => self.cx.locals.lanes[self.lane].as_mut_slice(),
            Space::Cluster => {
                let message = format!("`{what}` of `{}` is in another CTA's shared memory", self.f.name);
                return Err(fault(
                    codes::BAD_ADDRESS,
                    self.lane,
                    message,
                    "use the shared memory of the calling CTA",
                ));
            }
            _ => {
                let message = format!("`{what}` of `{}` is in the kernel's parameters", self.f.name);
                let help = if write {
                    "copy the parameter to global memory first: parameters are constant"
                } else {
                    "copy the parameter to global memory"
                };
                return Err(fault(codes::BAD_ADDRESS, self.lane, message, help));
            }
        };
        let size = memory.len();
        let range = usize::try_from(at).ok().zip(usize::try_from(bytes).ok());
        match range.filter(|(at, bytes)| at.checked_add(*bytes).is_some_and(|end| end <= size)) {
            Some((at, bytes)) => Ok(&mut memory[at..at + bytes]),
            None => {
                let message = format!(
                    "`{what}` of `{}`: {bytes} bytes at {} offset {at:#x} are out of bounds (size {size})",
                    self.f.name,
                    space.name()
                );
                Err(fault(
                    codes::OUT_OF_BOUNDS,
                    self.lane,
                    message,
                    "check the address and the element count",
                ))
            }
        }
    }

    /// Reads a local buffer.
    pub(crate) fn load(&mut self, what: &str, addr: u64, bytes: u64) -> Result<Vec<u8>, Fault> {
        if bytes == 0 {
            return Ok(Vec::new());
        }
        match self.global(what, addr, bytes, false)? {
            Some(spot) => {
                self.watch(AccessKind::Read, spot, bytes as usize);
                Ok(self.cx.memory.at(spot, bytes as usize).to_vec())
            }
            None => Ok(self.narrow(what, addr, bytes, false)?.to_vec()),
        }
    }

    /// Writes a local buffer.
    pub(crate) fn store(&mut self, what: &str, addr: u64, data: &[u8]) -> Result<(), Fault> {
        if data.is_empty() {
            return Ok(());
        }
        if let Some(spot) = self.global(what, addr, data.len() as u64, true)? {
            self.watch(AccessKind::Write, spot, data.len());
            self.cx.memory.store_at(spot, data);
            return Ok(());
        }
        let place = self.narrow(what, addr, data.len() as u64, true)?;
        if place != data {
            place.copy_from_slice(data);
            self.cx.memory.changes += 1;
        }
        Ok(())
    }
}

/// Returns the operation for a call of a built-in function.
pub(crate) fn builtin(name: &str, args: &[(u64, u64)], returns: &[(u64, u64)]) -> Option<Result<Op, Issue>> {
    let f = FUNCTIONS.get(name)?;
    let sizes = |list: &[(u64, u64)]| list.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>();
    if let Err(issue) = check(f, &sizes(args), &sizes(returns)) {
        return Some(Err(issue));
    }
    let args = args.to_vec();
    Some(Ok(Box::new(call::Builtin { f, args, result: returns.first().map(|(at, _)| *at) })))
}

/// Checks a declaration or call of a function against its prototype. Unknown names pass.
pub(crate) fn check_prototype(name: &str, params: &[u64], returns: &[u64]) -> Result<(), Issue> {
    FUNCTIONS.get(name).map_or(Ok(()), |f| check(f, params, returns))
}

fn check(f: &Function, params: &[u64], returns: &[u64]) -> Result<(), Issue> {
    if params == f.params && returns == f.result.as_slice() {
        return Ok(());
    }
    let list = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let message = format!(
        "`{}` has parameters of ({}) bytes and returns ({}), not ({}) and ({})",
        f.name,
        list(&f.params),
        list(f.result.as_slice()),
        list(params),
        list(returns)
    );
    let names: Vec<&str> = f.row.params.iter().map(|(name, _)| *name).collect();
    Err(Issue {
        code: codes::BAD_OPERANDS,
        message,
        help: format!("declare the function with the parameters ({})", names.join(", ")),
    })
}

/// An NVSHMEM function that kernels can call in the simulator.
#[derive(Clone, Copy)]
pub struct NvshmemFunction(&'static Function);

impl std::fmt::Debug for NvshmemFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NvshmemFunction").field(&self.0.name).finish()
    }
}

impl NvshmemFunction {
    /// The C name, as in NVSHMEM's device library.
    pub fn name(self) -> &'static str {
        &self.0.name
    }

    /// The sizes of the parameters in PTX, in bytes.
    pub fn params(self) -> &'static [u64] {
        &self.0.params
    }

    /// The size of the result in bytes, if it has one.
    pub fn result(self) -> Option<u64> {
        self.0.result
    }

    /// The first NVSHMEM version whose device library has it; versions before 3.3 were not
    /// examined.
    pub fn since(self) -> (u32, u32) {
        self.0.since
    }
}

/// Returns the NVSHMEM functions that are built into the simulator.
pub fn nvshmem_functions() -> impl Iterator<Item = NvshmemFunction> {
    FUNCTIONS.list.iter().map(NvshmemFunction)
}

/// The built-in function of this name.
pub fn nvshmem_function(name: &str) -> Option<NvshmemFunction> {
    FUNCTIONS.get(name).map(NvshmemFunction)
}

/// Reads a call's argument from the frame.
fn argument(cx: &mut Context<'_>, (offset, bytes): (u64, u64), lane: usize) -> Result<u64, Fault> {
    let mut data = [0; 8];
    let data = &mut data[..bytes.min(8) as usize];
    let at = cx.frame_base + offset;
    cx.read(Space::Local, at, data, lane, &mut Window::empty())?;
    Ok(from_le(data))
}

/// Writes a call's result to the frame. Narrow integers are extended as in C.
fn answer(cx: &mut Context<'_>, f: &Function, at: Option<u64>, value: u64, mask: u32) -> Result<(), Fault> {
    let (Some(at), Some(bytes)) = (at, f.result) else { return Ok(()) };
    let value = if f.ty.width() < 32 && bytes == 4 { f.ty.extend(value) as u64 } else { value };
    let mut data = [0; 8];
    let data = &mut data[..bytes.min(8) as usize];
    put_le(data, value);
    let at = cx.frame_base + at;
    for lane in lanes(mask) {
        cx.write(Space::Local, at, data, lane, &mut Window::empty())?;
    }
    Ok(())
}
