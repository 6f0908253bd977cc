//! The text of an [`Int`]: `N*4`, `ceil_div(N,512)`, `(N+1)/2`. The text parses back to an equal
//! value.

use std::fmt::{self, Display, Formatter};

use super::{Int, Node, Poison};

impl Display for Poison {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Poison::Overflow => "overflow",
            Poison::Undefined => "undefined",
            Poison::TooComplex => "too-complex",
        })
    }
}

/// Writes `int` in parentheses if it is a sum, or with `tight` if it is any operator expression.
fn factor(int: &Int, tight: bool, f: &mut Formatter<'_>) -> fmt::Result {
    let grouped = match int.node() {
        Node::Add(_) => true,
        Node::Const(v) => v < 0,
        // After a sum's "+", a leading minus would bind differently.
        Node::Mul(factors) if factors.last().is_some_and(|c| c.as_const().is_some_and(|c| c < 0)) => true,
        Node::Mul(_) | Node::FloorDiv(..) | Node::Rem(..) => tight,
        _ => false,
    };
    if grouped { write!(f, "({int})") } else { write!(f, "{int}") }
}

impl Display for Int {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let infix = |f: &mut Formatter<'_>, a: &Int, op: char, b: &Int| {
            factor(a, false, f)?;
            write!(f, "{op}")?;
            factor(b, true, f)
        };
        match self.node() {
            Node::Const(v) => write!(f, "{v}"),
            Node::Var(v) => f.write_str(&v.name),
            Node::Add(terms) => {
                for (i, term) in terms.iter().enumerate() {
                    let text = term.to_string();
                    let plus = if i > 0 && !text.starts_with('-') { "+" } else { "" };
                    write!(f, "{plus}{text}")?;
                }
                Ok(())
            }
            Node::Mul(factors) => {
                let (atoms, coef) = match factors.split_last() {
                    Some((last, atoms)) if last.as_const().is_some() => (atoms, last.as_const().unwrap_or(1)),
                    _ => (factors, 1),
                };
                // The absolute value of the least coefficient does not fit 64 bits, so the sign
                // stays with it.
                let least = coef == i64::MIN;
                if coef < 0 && !least {
                    f.write_str("-")?;
                }
                for (i, atom) in atoms.iter().enumerate() {
                    f.write_str(if i > 0 { "*" } else { "" })?;
                    factor(atom, true, f)?;
                }
                if least {
                    write!(f, "*({coef})")?;
                } else if coef.unsigned_abs() != 1 {
                    write!(f, "*{}", coef.unsigned_abs())?;
                }
                Ok(())
            }
            Node::FloorDiv(a, b) => infix(f, a, '/', b),
            Node::Rem(a, b) => infix(f, a, '%', b),
            Node::CeilDiv(a, b) => write!(f, "ceil_div({a},{b})"),
            Node::Min(a, b) => write!(f, "min({a},{b})"),
            Node::Max(a, b) => write!(f, "max({a},{b})"),
            Node::And(a, b) => write!(f, "and({a},{b})"),
            Node::Xor(a, b) => write!(f, "xor({a},{b})"),
            Node::Poison(p) => write!(f, "{p}"),
        }
    }
}
