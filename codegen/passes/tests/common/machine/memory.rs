//! Accesses to tensors and to addresses.

use super::*;

/// An address and a number of bytes.
pub(super) type At = (u64, u32);

/// An access by tensor or by address.
pub(super) struct ElementAccess {
    place: Value,
    what: What,
}

enum What {
    Load,
    LdReduce(RedOp, Scalar),
    Store(Value),
    Reduce(Value, RedOp),
    Atomic(Value, Option<RedOp>),
    CompareAndSwap(Value, Value),
}

impl From<&Access> for ElementAccess {
    fn from(op: &Access) -> ElementAccess {
        let what = match *op {
            Access::Load { .. } => What::Load,
            Access::LdReduce { op, acc, .. } => What::LdReduce(op, acc),
            Access::Store { value, .. } | Access::McStore { value, .. } => What::Store(value),
            Access::McRed { value, op, .. } | Access::Red { value, op, .. } => What::Reduce(value, op),
            Access::Atomic { value, op, .. } => What::Atomic(value, op),
            Access::AtomicCas { expected, value, .. } => What::CompareAndSwap(expected, value),
        };
        ElementAccess { place: op.place(), what }
    }
}

impl From<&Memory> for ElementAccess {
    fn from(op: &Memory) -> ElementAccess {
        let (place, what) = match *op {
            Memory::Load { ptr, .. } => (ptr, What::Load),
            Memory::LdReduce { ptr, op, acc, .. } => (ptr, What::LdReduce(op, acc)),
            Memory::Store { ptr, value, .. } | Memory::McStore { ptr, value, .. } => {
                (ptr, What::Store(value))
            }
            Memory::McRed { ptr, value, op, .. } | Memory::Red { ptr, value, op, .. } => {
                (ptr, What::Reduce(value, op))
            }
            Memory::Atomic { ptr, value, op, .. } => (ptr, What::Atomic(value, op)),
            Memory::AtomicCas { ptr, expected, value, .. } => (ptr, What::CompareAndSwap(expected, value)),
        };
        ElementAccess { place, what }
    }
}

impl<L: Level> Machine<'_, L> {
    pub(super) fn access(&mut self, t: usize, v: Value, ElementAccess { place, what }: ElementAccess) -> Val {
        let ty = self.k.ty(v).clone();
        match what {
            What::Load => self.read(t, place, &ty, &mut |m, at, _| m.load(t, at, ty.elem().unwrap())),
            What::LdReduce(op, acc) => self.read(t, place, &ty, &mut |m, at, everywhere| {
                m.ld_reduce(t, at, everywhere, ty.elem().unwrap(), op, acc)
            }),
            What::Store(value) => self.write(t, place, value, &mut |m, at, x| m.store(t, at, &[x])),
            What::Reduce(value, op) => {
                let s = self.elem(value);
                self.write(t, place, value, &mut |m, at, x| {
                    let old = m.load_one(t, at, s);
                    m.store(t, at, &[num::combine(op, s, old, x)]);
                })
            }
            What::Atomic(value, op) => {
                let (s, new) = (self.elem(value), self.lane(t, value));
                self.read(t, place, &ty, &mut |m, at, _| {
                    let old = m.load_one(t, at, s);
                    m.store(t, at, &[op.map_or(new, |op| num::combine(op, s, old, new))]);
                    vec![old]
                })
            }
            What::CompareAndSwap(expected, value) => {
                let (s, want, new) = (self.elem(value), self.lane(t, expected), self.lane(t, value));
                self.read(t, place, &ty, &mut |m, at, _| {
                    let old = m.load_one(t, at, s);
                    m.store(t, at, &[if old == want { new } else { old }]);
                    vec![old]
                })
            }
        }
    }

    /// Records the width of an access to an address.
    pub(super) fn note(&mut self, v: Value, op: &Memory) {
        let ty = match ElementAccess::from(op).what {
            What::Load | What::LdReduce(..) => self.k.ty(v),
            What::Store(value) | What::Reduce(value, _) => self.k.ty(value),
            What::Atomic(..) | What::CompareAndSwap(..) => return,
        };
        self.w.accesses.push((op.mnemonic(), ty.elem().unwrap().bytes() * ty.lanes().unwrap()));
    }

    /// Reads a tensor element by element, or from a pointer at once.
    fn read(
        &mut self,
        t: usize,
        place: Value,
        ty: &L::Type,
        read: &mut dyn FnMut(&mut Self, At, bool) -> Vec<u64>,
    ) -> Val {
        let bytes = ty.elem().unwrap().bytes();
        let Val::Tensor { address, everywhere, layout, bounds } = self.vals[t][place.0 as usize].clone()
        else {
            let address = self.lane(t, place);
            let all = bytes * ty.lanes().unwrap();
            return Val::Lanes(read(self, (address, all), address >> 60 == EVERYWHERE >> 60));
        };
        let mut lanes = Vec::new();
        for i in 0..i64::from(ty.lanes().unwrap()) {
            let inside = bounds.iter().all(|(limit, offset, l)| offset + at(l, i) < *limit);
            let address = address.wrapping_add((at(&layout, i) * i64::from(bytes)) as u64);
            lanes.push(if inside { read(self, (address, bytes), everywhere)[0] } else { 0 });
        }
        Val::Lanes(lanes)
    }

    fn write(
        &mut self,
        t: usize,
        place: Value,
        value: Value,
        write: &mut dyn FnMut(&mut Self, At, u64),
    ) -> Val {
        let x = self.lanes(t, value).to_vec();
        let bytes = self.elem(value).bytes();
        let mut one = |m: &mut Self, address: u64, everywhere: bool, x: u64| {
            for address in m.copies(address, everywhere) {
                write(m, (address, bytes), x);
            }
        };
        let Val::Tensor { address, everywhere, layout, bounds } = self.vals[t][place.0 as usize].clone()
        else {
            let address = self.lane(t, place);
            // The address must be aligned for the whole access, which then acts on each element.
            self.check(t, address, bytes * x.len() as u32, "write");
            let everywhere = address >> 60 == EVERYWHERE >> 60;
            for (i, x) in x.into_iter().enumerate() {
                one(self, address + i as u64 * u64::from(bytes), everywhere, x);
            }
            return Val::None;
        };
        for (i, x) in (0..).zip(x) {
            if bounds.iter().all(|(limit, offset, l)| offset + at(l, i) < *limit) {
                let address = address.wrapping_add((at(&layout, i) * i64::from(bytes)) as u64);
                one(self, address, everywhere, x);
            }
        }
        Val::None
    }

    /// The addresses to which a store writes.
    fn copies(&self, address: u64, everywhere: bool) -> Vec<u64> {
        if !everywhere {
            return vec![address];
        }
        let offset = address & ((1 << 48) - 1);
        (0..self.w.pes as u64).map(|pe| MEMORY | pe << 48 | offset).collect()
    }

    fn ld_reduce(
        &mut self,
        t: usize,
        (address, width): At,
        everywhere: bool,
        elem: Scalar,
        op: RedOp,
        acc: Scalar,
    ) -> Vec<u64> {
        assert!(everywhere, "{address:x} is no multicast address");
        let acc = if acc.is_fp8() { Scalar::F16 } else { acc };
        self.check(t, self.copies(address, true)[0], width, "ld_reduce");
        let n = width / elem.bytes();
        let one = |m: &mut Self, i: u32| {
            let mut sum = None;
            for address in m.copies(address, true) {
                let x = m.load_one(t, (address + u64::from(i * elem.bytes()), elem.bytes()), elem);
                let x = num::convert(elem, acc, x);
                sum = Some(sum.map_or(x, |sum| num::combine(op, acc, sum, x)));
            }
            num::convert(acc, elem, sum.unwrap())
        };
        (0..n).map(|i| one(self, i)).collect()
    }

    pub(super) fn load_one(&mut self, t: usize, at: At, s: Scalar) -> u64 {
        self.load(t, at, s)[0]
    }

    fn load(&mut self, t: usize, (address, width): At, s: Scalar) -> Vec<u64> {
        if address >> 60 == NOWHERE >> 60 {
            return vec![0];
        }
        if address >> 60 == TABLE >> 60 {
            let (arg, entry) = ((address >> 40 & 0xff) as u32, address & 0xff_ffff_ffff);
            assert!(width == 8 && entry % 8 == 0 && entry / 8 < self.w.pes as u64, "entry {entry} of {arg}");
            return vec![MEMORY | (entry / 8) << 48 | u64::from(arg) << 40 | self.start(arg)];
        }
        let bytes = self.bytes(t, address, width, "load").to_vec();
        bytes.chunks(s.bytes() as usize).map(word).collect()
    }

    pub(super) fn store(&mut self, t: usize, (address, width): At, x: &[u64]) {
        let each = width as usize / x.len();
        let bytes = self.bytes(t, address, width, "store");
        for (to, x) in bytes.chunks_mut(each).zip(x) {
            to.copy_from_slice(&x.to_le_bytes()[..each]);
        }
    }

    fn check(&mut self, t: usize, address: u64, width: u32, what: &'static str) {
        let first = match address >> 60 == EVERYWHERE >> 60 {
            true => self.copies(address, true)[0],
            false => address,
        };
        self.bytes(t, first, width, what);
    }

    /// The bytes at an address, which must be in one allocation and aligned.
    pub(super) fn bytes(&mut self, t: usize, address: u64, width: u32, what: &'static str) -> &mut [u8] {
        assert!(address.is_multiple_of(width.into()), "{what} of {width} bytes at {address:#x}");
        assert!(width <= 16, "{what} of {width} bytes");
        let offset = address & 0xff_ffff_ffff;
        let arg = address >> 40 & 0xff;
        if address >> 60 == SHARED >> 60 {
            let (group, id) = (self.threads[t].group, address >> 40 & 0xf_ffff);
            let memory = self.shared.get_mut(&(group, id)).unwrap();
            return &mut memory[offset as usize..][..width as usize];
        }
        assert_eq!(address >> 60, MEMORY >> 60, "{what} at {address:#x}");
        let pe = (address >> 48 & 0xff) as usize;
        let start = self.start(arg as u32);
        let Arg::Memory(m, _) = &mut self.w.args[arg as usize] else { panic!("no memory at {address:#x}") };
        let size = m[pe].len() as u64;
        let inside = offset >= start && offset - start + u64::from(width) <= size;
        assert!(
            inside,
            "{what} of {width} bytes at {} of {size} of argument {arg} of PE {pe}",
            offset as i64 - start as i64
        );
        &mut m[pe][(offset - start) as usize..][..width as usize]
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b))
}
