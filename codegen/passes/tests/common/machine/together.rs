//! Operations that the threads of a group execute together: reductions and shuffles.

use super::*;

impl<L: Level> Machine<'_, L> {
    pub(super) fn reduce(&mut self, v: Value, value: Value, op: RedOp, group: Group, mask: &[bool]) {
        let s = self.elem(value);
        let work = if s.bits() == 16 && s.is_float() { Scalar::F32 } else { s };
        let mut totals: HashMap<(usize, usize), Vec<u64>> = HashMap::new();
        let key = |tid: Tid| (tid.group, if group == Group::Warp { tid.linear / 32 } else { 0 });
        for t in 0..mask.len() {
            assert!(mask[t], "a reduction without all threads");
            let x: Vec<u64> = self.lanes(t, value).iter().map(|x| num::convert(s, work, *x)).collect();
            let total = totals.entry(key(self.threads[t]));
            total
                .and_modify(|sum| {
                    sum.iter_mut().zip(&x).for_each(|(a, b)| *a = num::combine(op, work, *a, *b))
                })
                .or_insert(x.clone());
        }
        for t in 0..mask.len() {
            let total = totals[&key(self.threads[t])].iter().map(|x| num::convert(work, s, *x)).collect();
            self.vals[t][v.0 as usize] = Val::Lanes(total);
        }
    }

    pub(super) fn shuffle(&mut self, v: Value, value: Value, mode: ShuffleMode, lane: Value, mask: &[bool]) {
        let threads = self.k.threads() as usize;
        let mut out = Vec::new();
        for t in 0..mask.len() {
            assert!(mask[t], "a shuffle without all lanes");
            let (own, by) = (self.threads[t].linear % 32, self.i64(t, lane) as usize);
            let from = match mode {
                ShuffleMode::Idx => by,
                ShuffleMode::Xor => own ^ by,
                ShuffleMode::Down => own + by,
                ShuffleMode::Up => own.wrapping_sub(by),
            };
            let warp = self.threads[t].linear / 32 * 32;
            // Lanes outside the warp return the thread's own value. Lanes that do not exist return
            // an arbitrary value.
            out.push(match warp.checked_add(from).filter(|_| from < 32) {
                None => self.lanes(t, value).to_vec(),
                Some(linear) if linear < threads => {
                    self.lanes(self.threads[t].group + linear, value).to_vec()
                }
                Some(_) => vec![0xDEAD_BEEF; self.lanes(t, value).len()],
            });
        }
        for (t, lanes) in out.into_iter().enumerate() {
            self.vals[t][v.0 as usize] = Val::Lanes(lanes);
        }
    }
}
