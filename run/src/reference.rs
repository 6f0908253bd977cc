//! The meaning of a kernel's `computes(...)` in float64, with which `weft run` compares results.

use super::array::{Number, read_number, write_number};
use super::matmul::PRODUCTS;
use weft_ir::{RedOp, Scalar};
use weft_lang::elaborate::Reference;
use weft_lang::evaluate::unit_roundoff;

/// One tensor of all PEs, with elements in C order.
#[derive(Clone, Debug)]
pub struct Values {
    /// The type of the elements.
    pub dtype: Scalar,
    /// The extents of the tensor.
    pub shape: Vec<u64>,
    /// The bytes of the elements, by PE.
    pub data: Vec<Vec<u8>>,
}

impl Values {
    pub(super) fn get(&self, pe: usize, i: usize) -> Number {
        let size = self.dtype.bytes() as usize;
        read_number(self.dtype, &self.data[pe][i * size..(i + 1) * size])
    }

    /// Returns the number of elements on each PE.
    pub fn len(&self) -> usize {
        self.data.first().map_or(0, |d| d.len() / self.dtype.bytes() as usize)
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The difference between results and the reference.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// The tensor. If there are several, it is the first wrong one, or all of them.
    pub tensor: String,
    /// The number of compared elements, over all PEs.
    pub elements: u64,
    /// The largest absolute error.
    pub max_abs: f64,
    /// The largest error relative to the exact result (if that is not 0).
    pub max_rel: f64,
    /// The largest error relative to the bound on rounding: at most 1 if all elements are right.
    pub worst: f64,
    /// The number of elements outside the bound.
    pub wrong: u64,
    /// The first wrong element: PE, element, found value, expected value.
    pub first_wrong: Option<(usize, usize, Number, Number)>,
}

/// The data that a reference can depend on.
struct Context<'a> {
    from: &'a Values,
    n_pes: usize,
    root: usize,
    op: RedOp,
}

/// The exact value of element `i` on PE `pe`, and the sum of magnitudes of its terms.
type Rule = fn(&Context<'_>, usize, usize) -> (Number, f64);

/// A reference: its name, whether it takes a reduction, the number of elements out for elements in,
/// and its rule.
type Row = (&'static str, bool, fn(usize, usize) -> Option<usize>, Rule);

/// References that have one tensor for both sides, with a part for each PE, in which a PE's own
/// part is at its rank: (name, rule). Other parts of the operand are not read, and other parts of
/// the result do not change.
const IN_PLACE: [(&str, Rule); 2] = [
    ("reduce_scatter", |c, pe, i| if i / c.part() == pe { c.reduce(i) } else { (c.from.get(pe, i), 0.0) }),
    ("all_gather", |c, _, i| (c.from.get(i / c.part(), i), 0.0)),
];

const REFERENCES: [Row; 7] = [
    ("allreduce", true, |n, _| Some(n), |c, _, i| c.reduce(i)),
    (
        "reduce_scatter",
        true,
        |n, pes| n.is_multiple_of(pes).then(|| n / pes),
        |c, pe, i| c.reduce(pe * (c.from.len() / c.n_pes) + i),
    ),
    (
        "all_gather",
        false,
        |n, pes| n.checked_mul(pes),
        |c, _, i| (c.from.get(i / c.from.len(), i % c.from.len()), 0.0),
    ),
    ("broadcast", false, |n, _| Some(n), |c, _, i| (c.from.get(c.root, i), 0.0)),
    (
        "alltoall",
        false,
        |n, pes| n.is_multiple_of(pes).then_some(n),
        |c, pe, i| {
            let part = c.from.len() / c.n_pes;
            (c.from.get(i / part, pe * part + i % part), 0.0)
        },
    ),
    ("rotate", false, |n, _| Some(n), |c, pe, i| (c.from.get((pe + c.n_pes - 1) % c.n_pes, i), 0.0)),
    ("copy", false, |n, _| Some(n), |c, pe, i| (c.from.get(pe, i), 0.0)),
];

impl Context<'_> {
    /// The number of elements of a PE's part.
    fn part(&self) -> usize {
        (self.from.len() / self.n_pes).max(1)
    }

    fn reduce(&self, i: usize) -> (Number, f64) {
        let mut acc = self.from.get(0, i);
        let mut scale = acc.as_f64().abs();
        for pe in 1..self.n_pes {
            let x = self.from.get(pe, i);
            scale += x.as_f64().abs();
            acc = combine(self.op, acc, x);
        }
        (acc, scale)
    }
}

/// Compares a tensor after a launch with what its kernel declares to compute.
///
/// `before` returns a tensor before the launch, and `after` after it. `root` is the compile-time
/// parameter `ROOT`, if there is one, and `acc` the accumulator type of sums. A float can be off by
/// half a unit of its own type, and by half a unit of the accumulator's for each addition, relative
/// to the sum of magnitudes (Higham, Accuracy and Stability of Numerical Algorithms, 4.2). Integers
/// are exact, modulo their width.
///
/// # Errors
/// Fails if the reference is unknown, or does not fit the tensors.
pub fn check(
    reference: &Reference,
    before: &dyn Fn(&str) -> Option<Values>,
    after: &dyn Fn(&str) -> Option<Values>,
    root: Option<i64>,
    acc: Scalar,
) -> Result<Checked, String> {
    let what = &reference.name;
    if let Some((_, product)) = PRODUCTS.iter().find(|(n, _)| *n == &**what) {
        return super::matmul::check(reference, *product, before, after);
    }
    let Some(&(_, reduces, mut size, mut rule)) = REFERENCES.iter().find(|(n, ..)| *n == &**what) else {
        let known = REFERENCES.iter().map(|(n, ..)| *n).chain(PRODUCTS.iter().map(|(n, _)| *n));
        let known: Vec<_> = known.collect();
        return Err(format!("computes({what}) is not known: expected one of {}", known.join(", ")));
    };
    if let ([_], Some((_, parts))) = (&reference.args[..], IN_PLACE.iter().find(|(n, _)| *n == &**what)) {
        rule = *parts;
        size = |n, pes| n.is_multiple_of(pes).then_some(n);
    }
    let op = match (reduces, &reference.words[..]) {
        (false, []) => RedOp::Add,
        (true, [word]) => {
            RedOp::parse(word).ok_or_else(|| format!("computes({what}): `{word}` is not a reduction"))?
        }
        (true, _) => return Err(format!("computes({what}): name the reduction, as in `{what}<add>(...)`")),
        (false, _) => return Err(format!("computes({what}) must not name a reduction")),
    };
    let (from, to) = match &reference.args[..] {
        [x] => (x, x),
        [x, out] => (x, out),
        _ => {
            return Err(format!(
                "computes({what}): expected the tensor, and the result if it is another tensor"
            ));
        }
    };
    let missing = |n: &str| format!("computes({what}): `{n}` is not a tensor parameter");
    let from = before(from).ok_or_else(|| missing(from))?;
    let got = after(to).ok_or_else(|| missing(to))?;
    let n_pes = got.data.len();
    if from.dtype != got.dtype || size(from.len(), n_pes) != Some(got.len()) {
        let (n, m) = (from.len(), got.len());
        return Err(format!(
            "computes({what}): {n} elements of {} cannot give {m} elements of {} on {n_pes} PEs",
            from.dtype, got.dtype
        ));
    }
    let root = match root {
        None => 0,
        Some(root) => usize::try_from(root).ok().filter(|root| *root < n_pes).ok_or_else(|| {
            format!("computes({what}): ROOT is {root}, but it must be from 0 to {}", n_pes - 1)
        })?,
    };
    let context = Context { from: &from, n_pes, root, op };
    let mut out = Checked { tensor: to.to_string(), ..Checked::default() };
    let additions = n_pes.saturating_sub(1) as f64;
    let mut bytes = Vec::new();
    for pe in 0..n_pes {
        for i in 0..got.len() {
            let (want, scale) = rule(&context, pe, i);
            let have = got.get(pe, i);
            bytes.clear();
            write_number(got.dtype, want, &mut bytes);
            let error = additions * unit_roundoff(acc) * scale * (1.0 + unit_roundoff(got.dtype));
            if !out.compare(have, want, read_number(got.dtype, &bytes), error, got.dtype) {
                out.add_wrong(to, pe, i, have, want);
            }
        }
    }
    Ok(out)
}

impl Checked {
    /// Adds the comparison of an element, and returns whether it is right. `rounded` is the
    /// expected value as an element of the type, and `error` the allowed error of the arithmetic,
    /// without the last rounding.
    pub(super) fn compare(
        &mut self,
        have: Number,
        want: Number,
        rounded: Number,
        error: f64,
        dtype: Scalar,
    ) -> bool {
        let bound = unit_roundoff(dtype) * want.as_f64().abs() + error + min_step(dtype);
        let exact = have == rounded && (!dtype.is_float() || have.as_f64().is_infinite());
        self.within(have, want, exact, if dtype.is_float() { bound } else { 0.0 })
    }

    /// Adds the comparison of an element, and returns whether it is right: exactly, or within
    /// `bound` of the expected value.
    pub(super) fn within(&mut self, have: Number, want: Number, exact: bool, bound: f64) -> bool {
        self.elements += 1;
        let (h, w) = (have.as_f64(), want.as_f64());
        if exact {
            return true;
        }
        if h.is_nan() || w.is_nan() {
            return h.is_nan() && w.is_nan();
        }
        if h.is_infinite() || w.is_infinite() {
            return h == w;
        }
        let off = (h - w).abs();
        self.max_abs = self.max_abs.max(off);
        if w != 0.0 {
            self.max_rel = self.max_rel.max(off / w.abs());
        }
        self.worst = self.worst.max(if off == 0.0 { 0.0 } else { off / bound });
        off <= bound && bound > 0.0
    }

    /// Counts a wrong element.
    pub(super) fn add_wrong(&mut self, tensor: &str, pe: usize, i: usize, have: Number, want: Number) {
        if self.first_wrong.is_none() {
            self.tensor = tensor.to_owned();
            self.first_wrong = Some((pe, i, have, want));
        }
        self.wrong += 1;
    }
}

fn combine(op: RedOp, a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Number::Int(match op {
            RedOp::Add => a.wrapping_add(b),
            RedOp::Mul => a.wrapping_mul(b),
            RedOp::Min => a.min(b),
            RedOp::Max => a.max(b),
            RedOp::And => a & b,
            RedOp::Or => a | b,
            RedOp::Xor => a ^ b,
        }),
        (a, b) => {
            let (a, b) = (a.as_f64(), b.as_f64());
            Number::Float(match op {
                RedOp::Mul => a * b,
                RedOp::Min => a.min(b),
                RedOp::Max => a.max(b),
                _ => a + b,
            })
        }
    }
}

/// The smallest subnormal of a float type.
pub fn min_step(dtype: Scalar) -> f64 {
    let exponent = match dtype {
        Scalar::F64 => -1074,
        Scalar::F32 => -149,
        Scalar::F16 => -24,
        Scalar::BF16 => -133,
        Scalar::E4M3 => -9,
        Scalar::E5M2 => -16,
        _ => return 0.0,
    };
    2f64.powi(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(dtype: Scalar, xs: &[&[f64]]) -> Values {
        let pack = |xs: &&[f64]| {
            let mut out = Vec::new();
            xs.iter().for_each(|x| write_number(dtype, Number::Float(*x), &mut out));
            out
        };
        Values { dtype, shape: vec![xs[0].len() as u64], data: xs.iter().map(pack).collect() }
    }

    fn run(name: &str, words: &[&str], args: &[&str], x: &Values, out: &Values) -> Result<Checked, String> {
        let list = |s: &[&str]| s.iter().map(|s| (*s).into()).collect();
        let reference = Reference { name: name.into(), words: list(words), args: list(args), function: None };
        let get = |v: &Values| Some(v.clone());
        check(&reference, &|n| if n == "x" { get(x) } else { None }, &|_| get(out), None, Scalar::F32)
    }

    #[test]
    fn each_reference_finds_right_and_wrong() {
        let x = values(Scalar::F32, &[&[1.0, 2.0], &[10.0, 20.0]]);
        let sum = values(Scalar::F32, &[&[11.0, 22.0], &[11.0, 22.0]]);
        assert_eq!(run("allreduce", &["add"], &["x"], &x, &sum).unwrap().wrong, 0);
        let off = values(Scalar::F32, &[&[11.0, 22.0], &[11.0, 22.5]]);
        let found = run("allreduce", &["add"], &["x"], &x, &off).unwrap();
        assert_eq!((found.wrong, found.first_wrong.map(|w| (w.0, w.1))), (1, Some((1, 1))));

        let scattered = values(Scalar::F32, &[&[11.0], &[22.0]]);
        assert_eq!(run("reduce_scatter", &["add"], &["x", "out"], &x, &scattered).unwrap().wrong, 0);
        let gathered = values(Scalar::F32, &[&[1.0, 2.0, 10.0, 20.0], &[1.0, 2.0, 10.0, 20.0]]);
        assert_eq!(run("all_gather", &[], &["x", "out"], &x, &gathered).unwrap().wrong, 0);
        let cast = values(Scalar::F32, &[&[1.0, 2.0], &[1.0, 2.0]]);
        assert_eq!(run("broadcast", &[], &["x"], &x, &cast).unwrap().wrong, 0);
        assert_eq!(run("broadcast", &[], &["x"], &x, &sum).unwrap().wrong, 4);
    }

    #[test]
    fn the_language_knows_these() {
        let names = REFERENCES.iter().map(|(name, ..)| *name);
        let names: Vec<_> = names.chain(PRODUCTS.iter().map(|(name, _)| *name)).collect();
        assert_eq!(names, weft_lang::elaborate::REFERENCES);
    }

    #[test]
    fn a_reference_that_does_not_fit_is_an_error() {
        let x = values(Scalar::F32, &[&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]]);
        assert!(run("scan", &[], &["x"], &x, &x).is_err());
        assert!(run("allreduce", &["plus"], &["x"], &x, &x).is_err());
        assert!(run("reduce_scatter", &["add"], &["x"], &x, &x).is_err());
    }

    #[test]
    fn integers_wrap_and_are_exact() {
        let mut x = values(Scalar::I32, &[&[2147483647.0], &[1.0]]);
        x.dtype = Scalar::I32;
        let out = values(Scalar::I32, &[&[-2147483648.0], &[-2147483648.0]]);
        assert_eq!(run("allreduce", &["add"], &["x"], &x, &out).unwrap().wrong, 0);
        let out = values(Scalar::I32, &[&[-2147483647.0], &[-2147483648.0]]);
        assert_eq!(run("allreduce", &["add"], &["x"], &x, &out).unwrap().wrong, 1);
    }
}
