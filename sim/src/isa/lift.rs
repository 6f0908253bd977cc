//! Operations that compute each lane's result from that lane's operands: a function on values, lifted to warps.

use crate::codes;
use crate::exec::defer::Footprint;
use crate::exec::{Context, Fault, Flow, Op, Operation, Pred, PredSrc, Reg, Src};
use crate::model::lanes;

/// The footprint of an operation on registers alone.
fn computes(reads: &[Src], writes: &[Reg]) -> Footprint {
    let reads = reads.iter().filter_map(|s| s.register()).collect();
    Footprint { reads, writes: writes.iter().copied().collect(), reach: None }
}

/// Runs `f` for the active lanes, without a mask test in the common case of all lanes.
#[inline(always)]
fn for_each(active: u32, mut f: impl FnMut(usize)) {
    if active == u32::MAX {
        for lane in 0..32 {
            f(lane);
        }
    } else {
        for lane in lanes(active) {
            f(lane);
        }
    }
}

struct Map1<F> {
    d: Reg,
    a: Src,
    f: F,
}

impl<F: Fn(u64) -> u64 + Send + Sync> Operation for Map1<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let a = *cx.src(self.a);
        let active = cx.active;
        let d = cx.reg(self.d);
        for_each(active, |l| d[l] = (self.f)(a[l]));
        Ok(Flow::Next)
    }

    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        Some(computes(&[self.a], &[self.d]))
    }
}

struct Map2<F> {
    d: Reg,
    a: Src,
    b: Src,
    f: F,
}

impl<F: Fn(u64, u64) -> u64 + Send + Sync> Operation for Map2<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (a, b) = (*cx.src(self.a), *cx.src(self.b));
        let active = cx.active;
        let d = cx.reg(self.d);
        for_each(active, |l| d[l] = (self.f)(a[l], b[l]));
        Ok(Flow::Next)
    }

    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        Some(computes(&[self.a, self.b], &[self.d]))
    }
}

struct Map3<F> {
    d: Reg,
    a: [Src; 3],
    f: F,
}

impl<F: Fn(u64, u64, u64) -> u64 + Send + Sync> Operation for Map3<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (a, b, c) = (*cx.src(self.a[0]), *cx.src(self.a[1]), *cx.src(self.a[2]));
        let active = cx.active;
        let d = cx.reg(self.d);
        for_each(active, |l| d[l] = (self.f)(a[l], b[l], c[l]));
        Ok(Flow::Next)
    }

    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        Some(computes(&[self.a[0], self.a[1], self.a[2]], &[self.d]))
    }
}

struct Map4<F> {
    d: Reg,
    a: [Src; 4],
    f: F,
}

impl<F: Fn([u64; 4]) -> u64 + Send + Sync> Operation for Map4<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let v = self.a.map(|s| *cx.src(s));
        let active = cx.active;
        let d = cx.reg(self.d);
        for_each(active, |l| d[l] = (self.f)([v[0][l], v[1][l], v[2][l], v[3][l]]));
        Ok(Flow::Next)
    }

    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        Some(computes(&[self.a[0], self.a[1], self.a[2], self.a[3]], &[self.d]))
    }
}

/// A function that can fail for some operands.
struct Try2<F> {
    d: Reg,
    a: Src,
    b: Src,
    f: F,
}

impl<F: Fn(u64, u64) -> Result<u64, &'static str> + Send + Sync> Operation for Try2<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (a, b) = (*cx.src(self.a), *cx.src(self.b));
        for l in lanes(cx.active) {
            let r = (self.f)(a[l], b[l]);
            let help = "guard the operation: the hardware's result is unspecified";
            cx.reg(self.d)[l] = r.map_err(|m| crate::exec::fault(codes::DIVISION_BY_ZERO, l, m, help))?;
        }
        Ok(Flow::Next)
    }
}

/// The `.BoolOp` of a comparison and its predicate operand.
pub(crate) type Combination = (fn(u32, u32) -> u32, PredSrc);

/// A comparison into one or two predicates: `p = op(t, c)`, `q = op(!t, c)`.
struct Compare<F> {
    p: Pred,
    q: Pred,
    a: Src,
    b: Src,
    f: F,
    combine: Option<Combination>,
}

impl<F: Fn(u64, u64) -> bool + Send + Sync> Operation for Compare<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        let (a, b) = (cx.src(self.a), cx.src(self.b));
        let mut t = 0;
        for_each(cx.active, |l| t |= u32::from((self.f)(a[l], b[l])) << l);
        let (p, q) = match self.combine {
            None => (t, !t),
            Some((op, c)) => {
                let c = cx.pred(c);
                (op(t, c), op(!t, c))
            }
        };
        cx.set_pred(self.p, p);
        if self.q != Pred::SINK {
            cx.set_pred(self.q, q);
        }
        Ok(Flow::Next)
    }

    fn compared(&self) -> Option<[Src; 2]> {
        Some([self.a, self.b])
    }

    fn footprint(&self, _: &Context<'_>) -> Option<Footprint> {
        Some(computes(&[self.a, self.b], &[]))
    }
}

/// Any other operation, as a function on the context.
struct Custom<F>(F);

impl<F: Fn(&mut Context<'_>) -> Result<Flow, Fault> + Send + Sync> Operation for Custom<F> {
    fn execute(&self, cx: &mut Context<'_>) -> Result<Flow, Fault> {
        (self.0)(cx)
    }
}

pub(crate) fn map1(d: Reg, a: Src, f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Op {
    Box::new(Map1 { d, a, f })
}

pub(crate) fn map2(d: Reg, a: Src, b: Src, f: impl Fn(u64, u64) -> u64 + Send + Sync + 'static) -> Op {
    Box::new(Map2 { d, a, b, f })
}

pub(crate) fn map3(d: Reg, a: [Src; 3], f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Op {
    Box::new(Map3 { d, a, f })
}

pub(crate) fn map4(d: Reg, a: [Src; 4], f: impl Fn([u64; 4]) -> u64 + Send + Sync + 'static) -> Op {
    Box::new(Map4 { d, a, f })
}

pub(crate) fn try2(
    d: Reg,
    a: Src,
    b: Src,
    f: impl Fn(u64, u64) -> Result<u64, &'static str> + Send + Sync + 'static,
) -> Op {
    Box::new(Try2 { d, a, b, f })
}

pub(crate) fn compare(
    (p, q): (Pred, Pred),
    a: Src,
    b: Src,
    combine: Option<Combination>,
    f: impl Fn(u64, u64) -> bool + Send + Sync + 'static,
) -> Op {
    Box::new(Compare { p, q, a, b, f, combine })
}

pub(crate) fn custom(f: impl Fn(&mut Context<'_>) -> Result<Flow, Fault> + Send + Sync + 'static) -> Op {
    Box::new(Custom(f))
}
