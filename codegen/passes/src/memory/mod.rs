//! Accesses to tensors become accesses to pointers, as wide as layout, alignment and bounds allow.
//!
//! A fragment (the elements of one access) is split into pieces of equal width, at most 16 bytes. Where bounds are not
//! proven, one test asks whether all elements exist: then all pieces are moved, back to back. Otherwise each piece is
//! tested, and of a piece that the bound cuts the existing elements, which are its first ones, are moved by a loop in
//! the narrowest accesses there are. Instructions of the switch are branched around, never predicated.

mod direct;
mod everywhere;
mod fragment;
mod moves;
mod place;
mod switch;

use crate::edit::{Action, Editor, Rewrite, param_index, rewrite};
use crate::pointers::{Peers, Source};
use crate::report::{Access, Instr};
use crate::{Lowering, Options, Report};
use fragment::Fragment;
use moves::{Read, Write};
use place::{Place, Route, found};
use rustc_hash::FxHashMap;
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::{Kernel, Op, Scalar, Scope, Sem, Space, TeamRef, Value};

/// The pass.
pub(crate) fn run(kernel: Kernel, options: &Options, report: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    let mut pass = Memory {
        options,
        report,
        places: FxHashMap::default(),
        multicast: FxHashMap::default(),
        peers: FxHashMap::default(),
    };
    rewrite(kernel, &mut pass)
}

struct Memory<'a> {
    options: &'a Options,
    report: &'a mut Report,
    places: FxHashMap<Value, Place>,
    /// By parameter and team.
    multicast: FxHashMap<(u32, TeamRef), Value>,
    peers: FxHashMap<(u32, TeamRef), Peers>,
}

impl Rewrite for Memory<'_> {
    fn op(&mut self, e: &mut Editor, v: Value) -> Built<Action> {
        let k = e.b.kernel();
        let span = k.insts[v].span;
        let tensor = k.ty(v).tensor().cloned();
        match (k.op(v), tensor) {
            (Op::Param { .. } | Op::SharedAlloc { .. }, _) => {
                if let Some(root) = Place::root(k, v) {
                    self.places.insert(v, root);
                }
                Ok(Action::Keep)
            }
            (Op::View { base, offset }, Some(ty)) => {
                let view = found(self.places.get(base), k, *base, span)?.view(offset, ty);
                self.places.insert(v, view);
                Ok(Action::Drop)
            }
            (Op::Multicast { base, team }, Some(ty)) => {
                let place = found(self.places.get(base), k, *base, span)?.by(Route::Everywhere(*team), ty);
                self.places.insert(v, place);
                Ok(Action::Drop)
            }
            (&Op::Peer { base, team, pe }, Some(ty)) => {
                let place = found(self.places.get(&base), k, base, span)?.clone();
                let there = self.peer(e, &place, team, pe)?;
                self.places.insert(v, place.by(Route::Peer(there), ty));
                Ok(Action::Drop)
            }
            (&Op::PtrAdd { ptr, bytes }, _) if self.places.contains_key(&ptr) => {
                let at = found(self.places.get(&ptr), k, ptr, span)?.clone();
                let first = self.first(e, &at)?;
                e.b.emit(Op::PtrAdd { ptr: first, bytes }).map(Action::Become)
            }
            (op, _) => match memory_place(op) {
                Some(place) if k.ty(place).tensor().is_some() => {
                    let at = found(self.places.get(&place), k, place, span)?.clone();
                    self.access(e, v, &at)
                }
                _ => Ok(Action::Keep),
            },
        }
    }
}

/// The place of a memory op.
fn memory_place(op: &Op) -> Option<Value> {
    match op {
        Op::Load { place, .. }
        | Op::Store { place, .. }
        | Op::LdReduce { place, .. }
        | Op::McStore { place, .. }
        | Op::McRed { place, .. }
        | Op::Red { place, .. }
        | Op::Atomic { place, .. }
        | Op::AtomicCas { place, .. } => Some(*place),
        _ => None,
    }
}

impl Memory<'_> {
    /// The address of the first byte of a place's root on another PE.
    fn peer(&mut self, e: &mut Editor, place: &Place, team: TeamRef, pe: Value) -> Built<Value> {
        let peers = self.peers(e, place, team)?;
        let pe = e.b.convert(pe, Scalar::I64)?;
        let pe = e.b.symbol(pe)?;
        peers.address(&mut e.b, &pe)
    }

    /// A root's addresses on every PE of a team.
    fn peers(&mut self, e: &mut Editor, place: &Place, team: TeamRef) -> Built<Peers> {
        let (base, source) = (base(e, place), Source::of(self.options));
        if let Some(peers) = self.peers.get(&(base, team)) {
            return Ok(*peers);
        }
        let peers = e.prologue(|b| source.peers(b, base, team))?;
        self.peers.insert((base, team), peers);
        Ok(peers)
    }

    /// A root's multicast address in a team.
    fn multicast(&mut self, e: &mut Editor, place: &Place, team: TeamRef) -> Built<Value> {
        let (base, source) = (base(e, place), Source::of(self.options));
        if let Some(mc) = self.multicast.get(&(base, team)) {
            return Ok(*mc);
        }
        let mc = e.prologue(|b| source.multicast(b, base, team))?;
        self.multicast.insert((base, team), mc);
        Ok(mc)
    }

    /// The address of a place's first element.
    fn first(&mut self, e: &mut Editor, at: &Place) -> Built<Value> {
        let root = match at.route {
            Route::Local => at.root,
            Route::Peer(pointer) => pointer,
            Route::Everywhere(team) => self.multicast(e, at, team)?,
        };
        at.pointer(&mut e.b, root)
    }

    fn note(&mut self, e: &Editor, v: Value, fragment: &Fragment, instrs: Vec<Instr>) {
        let k = e.b.kernel();
        let inst = &k.insts[v];
        self.report.accesses.push(Access {
            kernel: k.name.clone(),
            span: inst.span,
            op: inst.op.mnemonic(),
            elements: fragment.lanes,
            instrs,
            narrow: fragment.narrow.clone(),
            cover: fragment.cover,
        });
    }

    fn access(&mut self, e: &mut Editor, v: Value, at: &Place) -> Built<Action> {
        let span = e.b.kernel().insts[v].span;
        let op = e.op(v);
        if let (Route::Everywhere(team), true) = (at.route, op_is_switch(&op)) {
            return match self.options.lowering {
                Lowering::Multimem => self.switch(e, v, &op, at, team, span),
                Lowering::Unicast => self.everywhere(e, v, &op, at, team, span),
            };
        }
        self.direct(e, v, &op, at, span)
    }
}

fn op_is_switch(op: &Op) -> bool {
    matches!(op, Op::LdReduce { .. } | Op::McStore { .. } | Op::McRed { .. })
}

/// The parameter whose memory a place is in.
fn base(e: &Editor, place: &Place) -> u32 {
    param_index(e.b.kernel(), place.root).unwrap_or(u32::MAX)
}

/// `ld.relaxed.sys.global.v4.b32` and the like, for the report.
fn plain_name(verb: &str, sem: Sem, scope: Scope, space: Space, bytes: u32, elem: u32) -> String {
    let order = if sem == Sem::Weak { String::new() } else { format!(".{sem}.{scope}") };
    let space = if space == Space::Shared { "shared" } else { "global" };
    let (vec, bits) = match bytes {
        16 if elem < 8 => (".v4", 32),
        16 => (".v2", 64),
        8 if elem < 8 => (".v2", 32),
        n => ("", n * 8),
    };
    format!("{verb}{order}.{space}{vec}.b{bits}")
}

impl Memory<'_> {
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
