//! Remote memory operations of the IR, and those of NVSHMEM's functions.

use super::*;

/// The bits of an address that select the PE.
const PE: u64 = 0xff << 48;

impl<L: Level> Machine<'_, L> {
    /// Whether this thread executes an op for its whole group.
    pub(super) fn acts(&self, op: &L::Op, t: usize, mask: &[bool]) -> bool {
        let group = match op.family() {
            FamilyRef::Call(Call::Function { function, .. }) => match function.rsplit('_').next() {
                Some("block") => Group::Block,
                Some("warp") => Group::Warp,
                _ => Group::Thread,
            },
            FamilyRef::Remote(op) => op.group().unwrap_or(Group::Thread),
            _ => Group::Thread,
        };
        let (first, threads) = match group {
            Group::Thread => return true,
            Group::Warp => (self.threads[t].linear / 32 * 32, 32),
            // The kernels here have clusters of one CTA.
            Group::Block | Group::Cluster => (0, self.k.threads() as usize),
        };
        let start = self.threads[t].group + first;
        let all = start..(start + threads).min(self.threads[t].group + self.k.threads() as usize);
        assert!(all.clone().all(|u| mask[u]), "{op:?} without all threads");
        assert!(
            group == Group::Block || all.len() == 32 || op.call().is_none(),
            "{op:?} by a part of a warp"
        );
        op.operands(&mut |v| {
            if let (Val::Lanes(a), Val::Lanes(b)) =
                (&self.vals[start][v.0 as usize], &self.vals[t][v.0 as usize])
            {
                assert_eq!(a, b, "{op:?}: {v} differs");
            }
        });
        t == start
    }

    /// Executes an op of the IR.
    pub(super) fn remote(&mut self, t: usize, op: &Remote) -> Val {
        match *op {
            Remote::Put { dst, src, pe, .. } => self.transfer(t, (dst, Some(pe)), (src, None)),
            Remote::Get { dst, src, pe, .. } => self.transfer(t, (dst, None), (src, Some(pe))),
            Remote::PutSignal { dst, src, signal, op, value, pe, .. } => {
                self.transfer(t, (dst, Some(pe)), (src, None));
                self.raise(t, self.there(t, signal, pe), op == SignalKind::Add, self.lane(t, value));
            }
            Remote::PutValue { dst, value, pe, .. } => {
                let at = (self.there(t, dst, pe), self.elem(dst).bytes());
                let value = self.lane(t, value);
                self.store(t, at, &[value]);
            }
            Remote::GetValue { src, pe, .. } => {
                let at = (self.there(t, src, pe), self.elem(src).bytes());
                return Val::Lanes(vec![self.load_one(t, at, self.elem(src))]);
            }
            Remote::SignalOp { signal, op, value, pe, .. } => {
                self.raise(t, self.there(t, signal, pe), op == SignalKind::Add, self.lane(t, value));
            }
            Remote::SignalFetch { signal } | Remote::SignalWait { signal, .. } => {
                let at = (self.address(t, signal), 8);
                return Val::Lanes(vec![self.load_one(t, at, Scalar::U64)]);
            }
            Remote::Amo { target, op, ref operands, pe, .. } => {
                let (at, s) = (self.there(t, target, pe), self.elem(target));
                let given: Vec<u64> = operands.iter().map(|v| self.lane(t, *v)).collect();
                return Val::Lanes(vec![self.amo(t, at, op.name(), s, &given)]);
            }
            Remote::RmaFence {} | Remote::Quiet {} => {}
            Remote::Wait { vars, cmp, value, which, test, status, indices } => {
                let n = self.size(t, vars);
                let list = |v: Value| self.address(t, v);
                let each = matches!(self.vals[t][value.0 as usize], Val::Tensor { .. });
                let given = if each { list(value) } else { self.lane(t, value) };
                let of = Lists {
                    vars: list(vars),
                    n,
                    status: status.map_or(0, list),
                    indices: indices.map_or(0, list),
                    cmp,
                    value: given,
                    each,
                    elem: self.elem(vars),
                };
                let found = self.look(t, which, &of);
                assert!(test || found != 0, "this machine has nobody to wait for");
                return Val::Lanes(vec![found]);
            }
            Remote::TeamSync { .. }
            | Remote::TeamReduce { .. }
            | Remote::TeamMove { .. }
            | Remote::TranslatePe { .. } => panic!("{op:?} is for NVSHMEM"),
        }
        Val::None
    }

    fn there(&self, t: usize, tensor: Value, pe: Value) -> u64 {
        self.address(t, tensor) & !PE | (self.i64(t, pe) as u64) << 48
    }

    fn size(&self, t: usize, tensor: Value) -> i64 {
        match &self.vals[t][tensor.0 as usize] {
            Val::Tensor { layout, .. } => layout.iter().map(|(e, _)| e).product(),
            other => panic!("{other:?}"),
        }
    }

    /// Copies the elements that exist on both sides, in coordinate order.
    fn transfer(&mut self, t: usize, dst: (Value, Option<Value>), src: (Value, Option<Value>)) {
        let bytes = self.elem(dst.0).bytes();
        for i in 0..self.size(t, dst.0).min(self.size(t, src.0)) {
            let place = |m: &Self, (v, pe): (Value, Option<Value>)| {
                let Val::Tensor { layout, bounds, .. } = &m.vals[t][v.0 as usize] else { panic!("{v}") };
                let base = pe.map_or_else(|| m.address(t, v), |pe| m.there(t, v, pe));
                let exists = bounds.iter().all(|(limit, offset, l)| offset + at(l, i) < *limit);
                exists.then(|| base.wrapping_add((at(layout, i) * i64::from(bytes)) as u64))
            };
            if let (Some(to), Some(from)) = (place(self, dst), place(self, src)) {
                self.copy(t, to, from, bytes.into());
            }
        }
    }

    fn copy(&mut self, t: usize, to: u64, from: u64, bytes: u64) {
        for i in 0..bytes {
            let byte = self.bytes(t, from + i, 1, "copy")[0];
            self.bytes(t, to + i, 1, "copy")[0] = byte;
        }
    }

    fn raise(&mut self, t: usize, place: u64, add: bool, value: u64) {
        let old = self.load_one(t, (place, 8), Scalar::U64);
        self.store(t, (place, 8), &[if add { old.wrapping_add(value) } else { value }]);
    }

    fn amo(&mut self, t: usize, place: u64, op: &str, s: Scalar, given: &[u64]) -> u64 {
        let old = self.load_one(t, (place, s.bytes()), s);
        let one = num::bits(s, 1);
        let new = match op.trim_start_matches("fetch_") {
            "fetch" => old,
            "set" | "swap" => given[0],
            "compare_swap" => {
                if old == given[0] {
                    given[1]
                } else {
                    old
                }
            }
            "inc" => num::combine(RedOp::Add, s, old, one),
            op => num::combine(RedOp::parse(op).unwrap(), s, old, given[0]),
        };
        self.store(t, (place, s.bytes()), &[new]);
        old
    }

    fn look(&mut self, t: usize, which: WaitFor, of: &Lists) -> u64 {
        let bytes = u64::from(of.elem.bytes());
        let mut hits = Vec::new();
        let mut all = true;
        for i in 0..of.n as u64 {
            if of.status != 0 && self.load_one(t, (of.status + i * 4, 4), Scalar::I32) != 0 {
                continue;
            }
            let have = self.load_one(t, (of.vars + i * bytes, bytes as u32), of.elem);
            let want = if of.each {
                self.load_one(t, (of.value + i * bytes, bytes as u32), of.elem)
            } else {
                of.value
            };
            let holds = num::compare(of.cmp, of.elem, have, want) == 1;
            all &= holds;
            if holds {
                hits.push(i);
            }
        }
        match which {
            WaitFor::One | WaitFor::All => u64::from(all),
            // This returns the last one, as the lowered form does. NVSHMEM does not specify which
            // one.
            WaitFor::Any => hits.last().copied().unwrap_or(u64::MAX),
            WaitFor::Some => {
                for (k, i) in hits.iter().enumerate() {
                    self.store(t, (of.indices + k as u64 * 8, 8), &[*i]);
                }
                hits.len() as u64
            }
        }
    }

    /// Executes NVSHMEM's function of that name.
    pub(super) fn call(&mut self, t: usize, function: &str, args: &[Value]) -> Val {
        self.w.calls.push(function.to_owned());
        let a: Vec<u64> = args.iter().map(|v| self.address(t, *v)).collect();
        let name = function.trim_start_matches("nvshmemx_").trim_start_matches("nvshmem_");
        let name = name.trim_end_matches("_block").trim_end_matches("_warp").replace("_nbi", "");
        let at = |address: u64, pe: u64| address & !PE | (pe & 0xff) << 48;
        let me = self.threads[t].pe as u64;
        let result = match name.as_str() {
            "my_pe" | "team_my_pe" => me,
            "n_pes" | "team_n_pes" => self.w.pes as u64,
            "team_translate_pe" => a[1],
            "ptr" => at(a[0], a[1]),
            "mc_ptr" => EVERYWHERE | a[1] & ((1 << 48) - 1),
            "quiet" | "fence" => 0,
            "putmem" => {
                self.copy(t, at(a[0], a[3]), a[1], a[2]);
                0
            }
            "getmem" => {
                self.copy(t, a[0], at(a[1], a[3]), a[2]);
                0
            }
            "putmem_signal" => {
                self.copy(t, at(a[0], a[6]), a[1], a[2]);
                self.raise(t, at(a[3], a[6]), a[5] == 10, a[4]);
                0
            }
            "signal_op" => {
                self.raise(t, at(a[0], a[3]), a[2] == 10, a[1]);
                0
            }
            "signal_fetch" | "signal_wait_until" => self.load_one(t, (a[0], 8), Scalar::U64),
            name => match name.strip_prefix("iput").or_else(|| name.strip_prefix("iget")) {
                Some(bits) => {
                    let bytes: u64 = bits.parse::<u64>().unwrap() / 8;
                    let (to, from) = match name.starts_with("iput") {
                        true => (at(a[0], a[5]), a[1]),
                        false => (a[0], at(a[1], a[5])),
                    };
                    for i in 0..a[4] {
                        self.copy(t, to + i * a[2] * bytes, from + i * a[3] * bytes, bytes);
                    }
                    0
                }
                None => self.typed(t, name, &a),
            },
        };
        Val::Lanes(vec![result])
    }

    /// Executes a typed function such as `int32_atomic_add`, `uint8_p` or `ushort_test_any_vector`.
    fn typed(&mut self, t: usize, name: &str, a: &[u64]) -> u64 {
        let (ty, verb) = name.split_once('_').unwrap();
        let s = match ty {
            "half" => Scalar::F16,
            "float" => Scalar::F32,
            "double" => Scalar::F64,
            "short" => Scalar::I16,
            "ushort" => Scalar::U16,
            "long" => Scalar::I64,
            ty => Scalar::parse(&ty.replace("uint", "u").replace("int", "i")).unwrap(),
        };
        let last = *a.last().unwrap();
        let there = a[0] & !PE | last << 48;
        if let Some(op) = verb.strip_prefix("atomic_") {
            return self.amo(t, there, op, s, &a[1..a.len() - 1]);
        }
        match verb {
            "p" => {
                self.store(t, (there, s.bytes()), &a[1..2]);
                0
            }
            "g" => self.load_one(t, (there, s.bytes()), s),
            verb => {
                let verb = verb.trim_start_matches("wait_until").trim_start_matches("test");
                let (verb, each) = (verb.trim_end_matches("_vector"), verb.ends_with("_vector"));
                let which = WaitFor::parse(verb.trim_start_matches('_')).unwrap_or(WaitFor::One);
                let some = usize::from(which == WaitFor::Some);
                let cmp = [CmpOp::Eq, CmpOp::Ne, CmpOp::Gt, CmpOp::Le, CmpOp::Lt, CmpOp::Ge];
                let one = which == WaitFor::One;
                let of = Lists {
                    vars: a[0],
                    n: if one { 1 } else { a[1] as i64 },
                    status: if one { 0 } else { a[2 + some] },
                    indices: if some == 1 { a[2] } else { 0 },
                    cmp: cmp[a[a.len() - 2] as usize],
                    value: last,
                    each,
                    elem: s,
                };
                self.look(t, which, &of)
            }
        }
    }
}

/// The variables and the values that they are compared with.
struct Lists {
    vars: u64,
    n: i64,
    status: u64,
    indices: u64,
    cmp: CmpOp,
    value: u64,
    each: bool,
    elem: Scalar,
}
