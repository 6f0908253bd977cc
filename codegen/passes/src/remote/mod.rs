//! Lowers remote memory operations to calls of NVSHMEM's functions, or to code at the other PE's
//! address.
//!
//! If both are compiled ([`Transport::Auto`]), a test of the other PE's address decides between
//! them. The address is 0 if loads and stores do not reach the PE. Operations of a group begin and
//! end with the group's barrier, as NVSHMEM's do. Before the operation the whole source is written,
//! and after it the source can be overwritten and all threads can read the fetched data.

mod amo;
mod copy;
pub(crate) mod library;
mod pair;
mod rma;
mod team;
mod wait;

use crate::codes::NO_ADDRESS;
use crate::edit::{Action, Editor, Emit, Rewrite, nested, param_index, rewrite};
use crate::{Options, Report, Transport, hidden};
use library::{TEAM_WORLD, call};
use rma::Rma;
use rustc_hash::FxHashMap;
use team::{Collective, Exchange};
use wait::Wait;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Builder, Kernel, Type};
use weft_ir::{Address, BinOp, Bridge, CmpOp, Control, Family, Hidden, Memory, Operation, Remote, Scalar};
use weft_ir::{Scope, Sem, Space, TeamRef, Thread, Value, ValueType, Var, View};

/// Runs the pass on a kernel.
pub(crate) fn run(kernel: Kernel, options: &Options, report: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    rewrite(kernel, &mut RemotePass { options, report, given: FxHashMap::default() })
}

struct RemotePass<'a> {
    options: &'a Options,
    report: &'a mut Report,
    /// The hidden parameters that have been read at the kernel's start.
    given: FxHashMap<Hidden, Value>,
}

impl Rewrite for RemotePass<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let Some(op) = e.b.kernel().op(v).remote().cloned() else { return Ok(Action::Keep) };
        let span = e.b.kernel().insts[v].span;
        let name = op.name();
        match op {
            Remote::Put { dst, src, pe, team, nbi, group } => {
                let rma = Rma { name, get: false, dst, src, nbi, group, signal: None, pe, team };
                self.transfer(e, &rma, span)
            }
            Remote::Get { dst, src, pe, team, nbi, group } => {
                let rma = Rma { name, get: true, dst, src, nbi, group, signal: None, pe, team };
                self.transfer(e, &rma, span)
            }
            Remote::PutSignal { dst, src, signal, op, value, pe, team, nbi, group } => {
                let signal = Some((signal, op, value));
                let rma = Rma { name, get: false, dst, src, nbi, group, signal, pe, team };
                self.transfer(e, &rma, span)
            }
            Remote::PutValue { dst, value, pe, team } => self.put_value(e, (dst, team, pe), value),
            Remote::GetValue { src, pe, team } => self.get_value(e, (src, team, pe)),
            Remote::SignalOp { signal, op, value, pe, team } => self.signal(e, (signal, team, pe), op, value),
            Remote::Amo { target, op, operands, pe, team } => {
                self.amo(e, (target, team, pe), op, &operands, span)
            }
            Remote::SignalFetch { signal } => self.signal_fetch(e, signal),
            Remote::SignalWait { signal, cmp, value } => self.signal_wait(e, signal, cmp, value, span),
            Remote::Wait { vars, cmp, value, which, test, status, indices } => {
                let elem = e.b.ty(vars).elem().unwrap_or(Scalar::U64);
                let options = self.options;
                let wait = Wait { vars, elem, cmp, value, which, status, indices, span, options };
                self.wait(e, &wait, test)
            }
            Remote::RmaFence {} => self.fence(e, "nvshmem_fence"),
            Remote::Quiet {} => self.fence(e, "nvshmem_quiet"),
            Remote::TeamSync { team, barrier, group } => {
                self.collective(e, &Collective { name, team, group, what: Exchange::Sync { barrier } }, span)
            }
            Remote::TeamReduce { dst, src, op, scatter, team, group } => {
                let what = Exchange::Reduce { dst, src, op, scatter };
                self.collective(e, &Collective { name, team, group, what }, span)
            }
            Remote::TeamMove { kind, dst, src, root, team, group } => {
                let what = Exchange::Move { kind, dst, src, root };
                self.collective(e, &Collective { name, team, group, what }, span)
            }
            Remote::TranslatePe { pe, from, to } => self.translate(e, pe, (from, to), span),
        }
    }
}

/// The other PE's copy of a tensor.
struct RemoteCopy {
    /// The address of the copy as an `i64`, or 0 if loads and stores do not reach it.
    base: Value,
    /// The address of the tensor's first element there.
    pointer: Value,
}

impl RemotePass<'_> {
    /// The value of a hidden parameter.
    fn hidden(&mut self, e: &mut Editor, kind: Hidden) -> Built<Value> {
        if let Some(v) = self.given.get(&kind) {
            return Ok(*v);
        }
        let index = hidden::param(e.b.kernel_mut(), kind);
        let v = e.prologue(|b| b.emit(Var::Param { index }))?;
        self.given.insert(kind, v);
        Ok(v)
    }

    /// NVSHMEM's number of a team.
    fn handle(&mut self, e: &mut Editor, team: TeamRef) -> Built<Value> {
        match team {
            TeamRef::WORLD => e.b.i32(TEAM_WORLD),
            team => self.hidden(e, Hidden::TeamHandle { team: team.0 }),
        }
    }

    /// The number, in NVSHMEM's functions, of the PE that has a rank in a team.
    fn world_pe(&mut self, e: &mut Editor, team: TeamRef, pe: Value) -> Built<Value> {
        if team == TeamRef::WORLD {
            return Ok(pe);
        }
        let (handle, world) = (self.handle(e, team)?, e.b.i32(TEAM_WORLD)?);
        call(&mut e.b, "nvshmem_team_translate_pe", vec![handle, pe, world], Type::Scalar(Scalar::I32))
    }

    /// The address of a symmetric tensor in a PE's memory, from the table of addresses. With
    /// `or_none` entries can be 0. Otherwise a launch fails if an entry would be 0.
    fn near(
        &mut self,
        e: &mut Editor,
        tensor: Value,
        team: TeamRef,
        pe: Value,
        or_none: bool,
    ) -> Built<RemoteCopy> {
        let root = root(e.b.kernel(), tensor)?;
        let base = param_index(e.b.kernel(), root).unwrap_or(u32::MAX);
        let kind = match or_none {
            true => Hidden::Reach { base, team: team.0 },
            false => Hidden::Peers { base, team: team.0 },
        };
        let table = self.hidden(e, kind)?;
        let b = &mut e.b;
        let table = b.address(table, Space::Global)?;
        let pe = b.convert(pe, Scalar::I64)?;
        let entry = b.offset(table, &(b.symbol(pe)? * 8))?;
        let load = Memory::Load { ptr: entry, sem: Sem::Weak, scope: Scope::Sys };
        let base = b.emit_as(load, Type::Scalar(Scalar::I64))?;
        // The offset from the first byte is the same on both PEs.
        let (here, first) = (bits(b, tensor)?, bits(b, root)?);
        let inside = b.binary(BinOp::Sub, here, first)?;
        let there = b.binary(BinOp::Add, base, inside)?;
        Ok(RemoteCopy { base, pointer: b.address(there, Space::Peer)? })
    }

    /// Emits an operation on another PE's copy of `tensor` for each implementation that the
    /// transport permits. One gets the tensor's address there, and the other gets the PE's number
    /// in NVSHMEM. Each returns a `result` unless that is `unit`.
    fn by_transport(
        &mut self,
        e: &mut Editor,
        (tensor, team, pe): (Value, TeamRef, Value),
        result: &Type,
        near: &mut dyn FnMut(&mut Self, &mut Editor, Value) -> Built<Value>,
        far: &mut dyn FnMut(&mut Self, &mut Editor, Value) -> Built<Value>,
    ) -> Built<Value> {
        if self.options.transport == Transport::Nvshmem {
            let pe = self.world_pe(e, team, pe)?;
            return far(self, e, pe);
        }
        let place = self.near(e, tensor, team, pe, self.options.transport == Transport::Auto)?;
        if self.options.transport == Transport::P2p {
            return near(self, e, place.pointer);
        }
        let zero = e.b.i64(0)?;
        let cond = e.b.compare(CmpOp::Ne, place.base, zero)?;
        let found = (*result != Type::Unit).then(|| e.b.local("reached", result.clone()));
        let keep = |e: &mut Editor, v: Value| match found {
            Some(local) => e.b.set(local, v).map(drop),
            None => Ok(()),
        };
        let then = nested(e, |e| near(self, e, place.pointer).and_then(|v| keep(e, v)))?;
        let otherwise = nested(e, |e| {
            let pe = self.world_pe(e, team, pe)?;
            far(self, e, pe).and_then(|v| keep(e, v))
        })?;
        let done = e.b.emit(Control::If { cond, then, otherwise })?;
        found.map_or(Ok(done), |local| e.b.get(local))
    }

    /// Orders everything before it, at every PE, before everything after it.
    fn fence(&mut self, e: &mut Editor, function: &str) -> Built<Action> {
        match self.options.transport {
            Transport::P2p => {
                e.b.emit(Thread::Fence { sem: Sem::AcqRel, scope: Scope::Sys })?;
            }
            _ => drop(call(&mut e.b, function, vec![], Type::Unit)?),
        }
        Ok(Action::Drop)
    }
}

/// The parameter whose memory contains a tensor.
fn root(k: &Kernel, mut v: Value) -> Built<Value> {
    let span = k.insts[v].span;
    while let Some(View::Part { base, .. } | View::Distributed { base, .. }) = k.op(v).view() {
        v = *base;
    }
    let is_param = matches!(k.op(v).var(), Some(Var::Param { .. }));
    if is_param { Ok(v) } else { Err(no_address(span, k.ty(v))) }
}

fn no_address(span: Span, ty: &Type) -> Diagnostic {
    Diagnostic::error(NO_ADDRESS, span, format!("{ty} has no address on other PEs"))
        .help("pass a symmetric parameter or a view of one")
}

/// The address of a tensor's first element.
fn address(b: &mut Builder, tensor: Value) -> Built<Value> {
    b.emit(Bridge::AddressOf { base: tensor })
}

fn bits(b: &mut Builder, tensor: Value) -> Built<Value> {
    let a = address(b, tensor)?;
    b.emit(Address::ToInt { a })
}
