//! Evaluation of a parsed expression.

use std::collections::HashMap;

use super::functions::{Call, compose, find, nearest};
use super::parse::{Node, NodeKind, Operator, Program};
use super::{ExprError, Value};
use crate::{ComposedLayout, Coord, Int, Layout, Order, Result as LayoutResult, Swizzle, Var};

type Result<T> = std::result::Result<T, ExprError>;

/// The amount of work that one expression may cause, in squares of the number of modes handled at
/// once.
const FUEL: u64 = 1 << 24;

/// The variables of an expression, with the facts that its text states about them.
pub(crate) struct Symbols {
    declared: HashMap<String, Var>,
    next: u32,
}

impl Symbols {
    /// Collects the facts stated anywhere in the program.
    pub fn declared(program: &Program) -> Result<Self> {
        let mut symbols = Symbols { declared: HashMap::new(), next: 0 };
        for (_, node) in &program.bindings {
            symbols.collect(node)?;
        }
        symbols.collect(&program.result)?;
        Ok(symbols)
    }

    fn collect(&mut self, node: &Node) -> Result<()> {
        match &node.kind {
            NodeKind::Name { name, facts } if !facts.is_empty() => {
                let var = self.var(node.at, name, facts)?;
                match self.declared.get(name) {
                    Some(known) if (known.div, known.min, known.max) != (var.div, var.min, var.max) => {
                        Err(ExprError::new(node.at, format!("{name} is declared twice with different facts")))
                    }
                    Some(_) => Ok(()),
                    None => {
                        self.declared.insert(name.clone(), var);
                        Ok(())
                    }
                }
            }
            NodeKind::Int(_) | NodeKind::All | NodeKind::Name { .. } | NodeKind::Swizzle(_) => Ok(()),
            NodeKind::Tuple(list)
            | NodeKind::Tiler(list)
            | NodeKind::Chain(list)
            | NodeKind::Call { args: list, .. } => list.iter().try_for_each(|n| self.collect(n)),
            NodeKind::Negated(n) => self.collect(n),
            NodeKind::Arithmetic(n, rest) => {
                self.collect(n)?;
                rest.iter().try_for_each(|(_, n)| self.collect(n))
            }
            NodeKind::Layout(a, b) => {
                self.collect(a)?;
                self.collect(b)
            }
            NodeKind::Apply(n, lists) => {
                self.collect(n)?;
                lists.iter().flatten().try_for_each(|n| self.collect(n))
            }
        }
    }

    fn var(&mut self, at: usize, name: &str, facts: &[(String, i64)]) -> Result<Var> {
        let mut var = Var::extent(self.next, name);
        self.next += 1;
        for (fact, v) in facts {
            match fact.as_str() {
                "div" if *v >= 1 => var.div = *v,
                "min" => var.min = *v,
                "max" => var.max = Some(*v),
                _ => {
                    let message = format!("{fact}={v} is not a fact about {name}");
                    let expected = Some("div=, at least 1, min= or max=".into());
                    return Err(ExprError { position: at, message, expected });
                }
            }
        }
        if var.max.is_some_and(|max| max < var.min) {
            return Err(ExprError::new(at, format!("{name} has a max below its min, which is {}", var.min)));
        }
        Ok(var)
    }

    /// The variable called `name`. A name without stated facts is an extent of at least 1.
    pub fn get(&mut self, name: &str) -> Int {
        let next = &mut self.next;
        let var = self.declared.entry(name.to_string()).or_insert_with(|| {
            *next += 1;
            Var::extent(*next - 1, name)
        });
        Int::var(var.clone())
    }
}

pub(crate) struct Evaluator<'a> {
    resolve: &'a mut dyn FnMut(&str) -> Option<Int>,
    /// Whether `N{div=8}` is allowed to state facts about a name.
    facts: bool,
    bindings: HashMap<String, Value>,
    fuel: u64,
}

impl<'a> Evaluator<'a> {
    pub fn new(resolve: &'a mut dyn FnMut(&str) -> Option<Int>) -> Self {
        Evaluator { resolve, facts: true, bindings: HashMap::new(), fuel: FUEL }
    }

    /// An evaluator that looks up all names, and what is known of them, in `resolve`.
    pub fn with_declared_names(resolve: &'a mut dyn FnMut(&str) -> Option<Int>) -> Self {
        Evaluator { facts: false, ..Self::new(resolve) }
    }

    pub fn run(&mut self, program: &Program) -> Result<Value> {
        for (name, node) in &program.bindings {
            let value = self.value(node)?;
            self.bindings.insert(name.clone(), value);
        }
        self.value(&program.result)
    }

    fn value(&mut self, node: &Node) -> Result<Value> {
        match &node.kind {
            NodeKind::Int(v) => Ok(Value::Int(Int::from(i64::try_from(*v).map_err(|_| overflow(node.at))?))),
            NodeKind::All => Ok(Value::Coord(Coord::All)),
            NodeKind::Name { name, facts } => self.name(node.at, name, facts),
            NodeKind::Swizzle(p) => swizzle(p).map(Value::Swizzle).map_err(|m| ExprError::new(node.at, m)),
            NodeKind::Tuple(list) => {
                let mut parts = self.values(list)?;
                let groups = matches!(parts.as_slice(), [only] if only.to_coord().is_none());
                match parts.pop() {
                    // Parentheses around a layout only group it.
                    Some(only) if groups => Ok(only),
                    last => {
                        parts.extend(last);
                        let kinds = || parts.iter().map(Value::kind).collect::<Vec<_>>().join(", ");
                        let message = || format!("a tuple cannot hold {}", kinds());
                        Value::tuple(parts.clone()).ok_or_else(|| ExprError::new(node.at, message()))
                    }
                }
            }
            NodeKind::Tiler(list) => {
                let parts = self.values(list)?;
                let tilers = parts.iter().zip(list).map(|(v, n)| {
                    v.to_tiler().ok_or_else(|| expected(n.at, v, "a layout, a shape or _ in a tiler"))
                });
                Ok(crate::Tiler::Tuple(tilers.collect::<Result<_>>()?).into())
            }
            NodeKind::Negated(n) => match n.kind {
                // The least 64-bit integer has no positive counterpart.
                NodeKind::Int(v) if v == 1 << 63 => Ok(Value::Int(Int::from(i64::MIN))),
                _ => Ok(Value::Int(-self.int(n)?)),
            },
            NodeKind::Arithmetic(first, rest) => {
                let mut result = self.int(first)?;
                for (op, right) in rest {
                    let right = self.int(right)?;
                    result = match op {
                        Operator::Add => result + right,
                        Operator::Sub => result - right,
                        Operator::Mul => result * right,
                        Operator::Div => result.floor_div(&right),
                        Operator::Rem => result.rem(&right),
                    };
                    self.burn(node.at, 1)?;
                }
                match result.poison() {
                    Some(why) => Err(ExprError::new(node.at, format!("the result is {why}"))),
                    None => Ok(Value::Int(result)),
                }
            }
            NodeKind::Layout(shape, stride) => {
                let part = |v: Value, n: &Node| v.to_tuple().ok_or_else(|| expected(n.at, &v, "integers"));
                let (s, d) = (self.value(shape)?, self.value(stride)?);
                let layout = Layout::new(part(s, shape)?, part(d, stride)?);
                layout.map(Value::Layout).map_err(|e| ExprError::of(node.at, e))
            }
            NodeKind::Chain(list) => {
                let mut parts = self.values(list)?;
                if let [Value::Swizzle(swizzle), Value::Int(offset), inner] = parts.as_slice()
                    && let Some(layout) = inner.to_layout()
                {
                    let composed = layout.and_then(|l| ComposedLayout::new(*swizzle, offset.clone(), l));
                    return composed.map(Value::Composed).map_err(|e| ExprError::of(node.at, e));
                }
                let last = parts.pop().ok_or_else(|| ExprError::new(node.at, "nothing to compose"))?;
                parts.into_iter().rev().try_fold(last, |inner, outer| {
                    self.burn(node.at, outer.weight() + inner.weight())?;
                    compose(node.at, &outer, &inner)
                })
            }
            NodeKind::Call { name, template, args } => {
                let Some(function) = find(name) else {
                    return Err(ExprError::new(node.at, format!("there is no function {name}")));
                };
                let values = self.values(args)?;
                self.burn(node.at, values.iter().map(Value::weight).sum::<usize>() + 1)?;
                let at = args.iter().map(|n| n.at).collect();
                function.call(&Call { function, at: node.at, template, args: values, args_at: at })
            }
            NodeKind::Apply(base, lists) => {
                let mut value = self.value(base)?;
                if let (NodeKind::Name { name, .. }, Value::Int(_)) = (&base.kind, &value) {
                    return Err(no_function(node.at, name));
                }
                for list in lists {
                    let args = self.values(list)?;
                    self.burn(node.at, value.weight() + args.iter().map(Value::weight).sum::<usize>())?;
                    value = apply(node.at, &value, args)?;
                }
                Ok(value)
            }
        }
    }

    fn values(&mut self, list: &[Node]) -> Result<Vec<Value>> {
        list.iter().map(|n| self.value(n)).collect()
    }

    fn int(&mut self, node: &Node) -> Result<Int> {
        let value = self.value(node)?;
        value.to_int().ok_or_else(|| expected(node.at, &value, "an integer"))
    }

    fn name(&mut self, at: usize, name: &str, facts: &[(String, i64)]) -> Result<Value> {
        if !facts.is_empty() && !self.facts {
            return Err(ExprError::new(at, format!("facts about {name} cannot be stated here")));
        }
        match name {
            "LayoutLeft" | "GenColMajor" => return Ok(Value::Order(Order::LayoutLeft)),
            "LayoutRight" | "GenRowMajor" => return Ok(Value::Order(Order::LayoutRight)),
            _ => {}
        }
        if let Some(value) = self.bindings.get(name) {
            return Ok(value.clone());
        }
        let unknown = || ExprError::new(at, format!("unknown name {name}"));
        (self.resolve)(name).map(Value::Int).ok_or_else(unknown)
    }

    /// Subtracts the square of `weight` from the budget.
    fn burn(&mut self, at: usize, weight: usize) -> Result<()> {
        let cost = (weight as u64).saturating_mul(weight as u64);
        match self.fuel.checked_sub(cost) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(ExprError::new(at, "the expression takes too much work; split it up")),
        }
    }
}

fn overflow(at: usize) -> ExprError {
    let expected = Some("an integer of at most 64 bits".into());
    ExprError { position: at, message: "the integer is too large".into(), expected }
}

pub(crate) fn expected(at: usize, value: &Value, what: &str) -> ExprError {
    ExprError { position: at, message: format!("{value} is {}", value.kind()), expected: Some(what.into()) }
}

fn swizzle(parameters: &[i64]) -> std::result::Result<Swizzle, String> {
    let &[bits, base, shift] = parameters else {
        return Err(format!("a swizzle has 3 parameters, not {}", parameters.len()));
    };
    match (u32::try_from(bits), u32::try_from(base), i32::try_from(shift)) {
        (Ok(bits), Ok(base), Ok(shift)) => Swizzle::new(bits, base, shift).map_err(|e| e.to_string()),
        _ => Err(format!(
            "Sw<{bits},{base},{shift}>: bits and base may not be negative, and none is that large"
        )),
    }
}

fn no_function(at: usize, name: &str) -> ExprError {
    let expected = match nearest(name) {
        Some(nearest) => format!("did you mean {nearest}?"),
        None => "a layout, a swizzle or the name of a function".into(),
    };
    ExprError { position: at, message: format!("there is no function {name}"), expected: Some(expected) }
}

/// Applies a layout or swizzle to a coordinate. The result is an index, or a slice if the
/// coordinate contains a `_`.
fn apply(at: usize, function: &Value, mut args: Vec<Value>) -> Result<Value> {
    if !matches!(function, Value::Swizzle(_) | Value::Composed(_) | Value::Layout(_) | Value::Tiler(_)) {
        return Err(ExprError {
            position: at,
            message: format!("{function} is {}, which cannot be applied", function.kind()),
            expected: Some("a layout or a swizzle".into()),
        });
    }
    let arg = match args.len() {
        1 => args.pop(),
        _ => Value::tuple(args),
    };
    let Some(coord) = arg.as_ref().and_then(Value::to_coord) else {
        return Err(ExprError::new(at, format!("{function} can only be applied to coordinates")));
    };
    let outcome: LayoutResult<Value> = match function {
        Value::Swizzle(s) => match coord {
            Coord::Int(i) => Ok(s.apply(&i).into()),
            _ => return Err(ExprError::new(at, format!("{function} can only be applied to an integer"))),
        },
        Value::Composed(c) if coord.has_all() => c.slice_and_offset(&coord).map(|(slice, _)| slice.into()),
        Value::Composed(c) => c.crd2idx(&coord.origin()).map(Value::Int),
        _ => match function.to_layout() {
            Some(l) if coord.has_all() => l.and_then(|l| l.slice(&coord)).map(Value::Layout),
            Some(l) => l.and_then(|l| l.crd2idx(&coord.origin())).map(Value::Int),
            None => return Err(expected(at, function, "a layout")),
        },
    };
    outcome.map_err(|e| ExprError::of(at, e))
}
