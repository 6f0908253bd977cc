//! Lowers accesses to tensors to accesses to pointers that are as wide as layout, alignment and
//! bounds allow.
//!
//! A fragment (the elements of one access) is split into pieces of equal width, at most 16 bytes.
//! If bounds are not proven, one test checks whether all elements exist. If they do, all pieces are
//! moved back to back. Otherwise each piece is tested. If the bound cuts a piece, its existing
//! elements, which are its first ones, are moved by a loop with the narrowest accesses that exist.
//! Instructions of the switch are branched around and never predicated.

mod bulk;
mod direct;
mod everywhere;
mod exchange;
mod fragment;
mod fresh;
mod held;
mod limits;
mod matrices;
pub(crate) mod matrix;
mod moves;
mod place;
mod switch;
mod tile;
mod warps;

use crate::edit::{Action, Editor, Rewrite, param_index, rewrite};
use crate::pointers::{AddressSource, Peers};
use crate::report::{self, Instr};
use crate::{Lowering, Options, Report};
use fragment::Fragment;
use moves::{Read, Write};
use place::{Route, TensorAddress, found};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use weft_ir::builder::Built;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::mixed::{Kernel, Op};
use weft_ir::{
    Access, Accumulator, Address, Bridge, Operation, Scalar, Scope, Sem, Space, TeamRef, TensorType, Value,
    ValueType, View,
};

/// Runs the pass on a kernel.
pub(crate) fn run(
    mut kernel: Kernel,
    options: &Options,
    report: &mut Report,
) -> Result<Kernel, Vec<Diagnostic>> {
    let held = held::HeldRegisters::new(&kernel)?;
    let (accumulators, variables) = matrix::registers(&mut kernel);
    let fresh = match matrix::has_warpgroups(options.target) {
        true => fresh::AccumulatorStates::new(&mut kernel, &variables),
        false => fresh::AccumulatorStates::default(),
    };
    let mut pass = MemoryPass {
        options,
        accumulators,
        fresh,
        held,
        report,
        places: FxHashMap::default(),
        multicast: FxHashMap::default(),
        peers: FxHashMap::default(),
        fenced: Vec::new(),
    };
    rewrite(kernel, &mut pass)
}

struct MemoryPass<'a> {
    options: &'a Options,
    report: &'a mut Report,
    places: FxHashMap<Value, TensorAddress>,
    /// The tile of each op on accumulators.
    accumulators: FxHashMap<Value, Accumulator>,
    /// The accumulators to which nothing was added.
    fresh: fresh::AccumulatorStates,
    /// The registers that products in flight read.
    held: held::HeldRegisters,
    /// The multicast addresses, by parameter and team.
    multicast: FxHashMap<(u32, TeamRef), Value>,
    peers: FxHashMap<(u32, TeamRef), Peers>,
    /// The hidden parameters that are tables of tensor maps and that a thread of the CTA has
    /// fenced.
    fenced: Vec<(u32, i64)>,
}

impl Rewrite for MemoryPass<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let k = e.b.kernel();
        let span = k.insts[v].span;
        if let Some(root) = TensorAddress::root(k, v) {
            self.places.insert(v, root);
            return Ok(Action::Keep);
        }
        if let (Some(view), Some(ty)) = (k.op(v).view().cloned(), k.ty(v).tensor().cloned()) {
            return self.view(e, v, &view, ty, span);
        }
        if let Op::Bridge(Bridge::AddressOf { base }) = *k.op(v) {
            // A barrier has no layout, and its counters are at the address of its parameter.
            let Some(at) = self.places.get(&base).cloned() else { return Ok(Action::Keep) };
            return if at.root == base { Ok(Action::Keep) } else { self.first(e, &at).map(Action::Become) };
        }
        if let Some(op) = k.op(v).tile().cloned() {
            return self.tile(e, v, &op, span);
        }
        match k.op(v).access().cloned() {
            Some(op) => {
                let at = found(self.places.get(&op.place()), k, op.place(), span)?.clone();
                self.access(e, v, &op, &at)
            }
            None => self.fresh.follow(e, v),
        }
    }

    fn enter(&mut self) {
        self.fresh.enter();
    }

    fn leave(&mut self) {
        self.fresh.leave();
    }
}

impl MemoryPass<'_> {
    /// A view is a known place and needs no code.
    fn view(
        &mut self,
        e: &mut Editor,
        v: Value,
        op: &View,
        ty: Arc<TensorType>,
        span: Span,
    ) -> Built<Action> {
        let k = e.b.kernel();
        let place = match op {
            View::Part { base, offset } => found(self.places.get(base), k, *base, span)?.view(offset, ty),
            View::Distributed { base, offset, over } => {
                let tile = found(self.places.get(base), k, *base, span)?;
                let mut part = tile.view(offset, ty);
                let over = <[u32; 2]>::try_from(&over[..]).ok();
                part.distributed = over.map(|over| Arc::new((tile.clone(), over)));
                part
            }
            View::Multicast { base, team } => {
                found(self.places.get(base), k, *base, span)?.by(Route::Everywhere(*team), ty)
            }
            View::Peer { base, team, pe } => {
                let place = found(self.places.get(base), k, *base, span)?.clone();
                let there = self.peer(e, &place, *team, *pe)?;
                place.by(Route::There(there), ty).on((*team, *pe))
            }
            View::InCta { base, cta } => {
                let place = found(self.places.get(base), k, *base, span)?.clone();
                let here = e.b.emit(Bridge::AddressOf { base: place.root })?;
                let there = e.b.emit(Address::InCta { ptr: here, cta: *cta })?;
                place.by(Route::There(there), ty).in_cta(*cta)
            }
            View::Index { .. } | View::Shared { .. } => return Ok(Action::Keep),
        };
        self.places.insert(v, place);
        Ok(Action::Drop)
    }
}

impl MemoryPass<'_> {
    /// The address of the first byte of a place's root on another PE.
    fn peer(&mut self, e: &mut Editor, place: &TensorAddress, team: TeamRef, pe: Value) -> Built<Value> {
        let peers = self.peers(e, place, team)?;
        let pe = e.b.convert(pe, Scalar::I64)?;
        let pe = e.b.symbol(pe)?;
        peers.address(&mut e.b, &pe)
    }

    /// The addresses of a root on every PE of a team.
    fn peers(&mut self, e: &mut Editor, place: &TensorAddress, team: TeamRef) -> Built<Peers> {
        let (base, source) = (base(e, place), AddressSource::of(self.options));
        if let Some(peers) = self.peers.get(&(base, team)) {
            return Ok(*peers);
        }
        let peers = e.prologue(|b| source.peers(b, base, team))?;
        self.peers.insert((base, team), peers);
        Ok(peers)
    }

    /// The multicast address of a root in a team.
    fn multicast(&mut self, e: &mut Editor, place: &TensorAddress, team: TeamRef) -> Built<Value> {
        let (base, source) = (base(e, place), AddressSource::of(self.options));
        if let Some(mc) = self.multicast.get(&(base, team)) {
            return Ok(*mc);
        }
        let mc = e.prologue(|b| source.multicast(b, base, team))?;
        self.multicast.insert((base, team), mc);
        Ok(mc)
    }

    /// The address of a place's first element.
    fn first(&mut self, e: &mut Editor, at: &TensorAddress) -> Built<Value> {
        let root = match at.route {
            Route::Local => e.b.emit(Bridge::AddressOf { base: at.root })?,
            Route::There(pointer) => pointer,
            Route::Everywhere(team) => self.multicast(e, at, team)?,
        };
        at.pointer(&mut e.b, root)
    }

    fn note(&mut self, e: &Editor, v: Value, fragment: &Fragment, instrs: Vec<Instr>) {
        let k = e.b.kernel();
        let inst = &k.insts[v];
        self.report.accesses.push(report::Access {
            kernel: k.name.clone(),
            span: inst.span,
            op: inst.op.mnemonic(),
            elements: fragment.lanes,
            instrs,
            narrow: fragment.narrow.clone(),
            no_matrices: fragment.no_matrices.clone(),
            cover: fragment.cover,
        });
    }

    fn access(&mut self, e: &mut Editor, v: Value, op: &Access, at: &TensorAddress) -> Built<Action> {
        let span = e.b.kernel().insts[v].span;
        match (at.route, self.options.lowering) {
            (Route::Everywhere(team), Lowering::Multimem) if op.in_switch() => {
                self.switch(e, v, op, at, team, span)
            }
            (Route::Everywhere(team), Lowering::Unicast) if op.in_switch() => {
                self.everywhere(e, v, op, at, team, span)
            }
            _ => match self.by_matrices(e, v, op, at)? {
                Ok(done) => Ok(done),
                Err(why) => self.direct(e, v, op, at, why),
            },
        }
    }
}

/// The parameter whose memory contains a place.
fn base(e: &Editor, place: &TensorAddress) -> u32 {
    param_index(e.b.kernel(), place.root).unwrap_or(u32::MAX)
}

/// The name of a memory space in instructions.
pub(super) fn space_name(space: Space) -> &'static str {
    match space {
        Space::Shared => "shared",
        Space::Cluster => "shared::cluster",
        Space::Global | Space::Symmetric | Space::Peer | Space::Multicast | Space::Register => "global",
    }
}

/// The name of an instruction in the report, such as `ld.relaxed.sys.global.v4.b32`.
fn plain_name(verb: &str, sem: Sem, scope: Scope, space: Space, bytes: u32, elem: u32) -> String {
    let order = if sem == Sem::Weak { String::new() } else { format!(".{sem}.{scope}") };
    let space = space_name(space);
    let (vec, bits) = match bytes {
        16 if elem < 8 => (".v4", 32),
        16 => (".v2", 64),
        8 if elem < 8 => (".v2", 32),
        n => ("", n * 8),
    };
    format!("{verb}{order}.{space}{vec}.b{bits}")
}

impl MemoryPass<'_> {
    fn finish_read(
        &mut self,
        e: &mut Editor,
        f: &Fragment,
        wide: &dyn Read,
        single: Option<&dyn Read>,
        narrowest: u32,
    ) -> Built<Action> {
        moves::Gather { fragment: f, wide, single: single.unwrap_or(wide), narrowest }
            .emit(self, e)
            .map(Action::Become)
    }

    fn finish_write(
        &mut self,
        e: &mut Editor,
        f: &Fragment,
        value: Value,
        wide: &dyn Write,
        single: Option<&dyn Write>,
        narrowest: u32,
    ) -> Built<Action> {
        moves::Scatter { fragment: f, value, wide, single: single.unwrap_or(wide), narrowest }
            .emit(self, e)?;
        Ok(Action::Drop)
    }
}
