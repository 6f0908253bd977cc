//! Reads IR from text.

use super::Field;
use crate::arena::{Arena, Handle};
use crate::diag::Span;
use crate::kernel::{Block, Inst, Kernel, Local, LocalId, Module, Value};
use crate::level::{Head, Level, Machine, Tensor};
use crate::names::{Scalar, Space};
use crate::op::{Debug, FamilyRef, Operation};
use crate::types::{Accumulator, Bound, TensorType, TypeRef, ValueType};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use weft_layout::{Int, Layout, Swizzle, Var, parse_int, parse_layout};

/// The maximum number of instructions, and the maximum nesting, that the reader accepts.
const MAX_INSTS: u32 = 1 << 20;
const MAX_DEPTH: usize = 100;

/// The reason why a text is not IR, and the place.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// A description of what is wrong.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A scanner over the text, and the kernel being read.
pub struct Reader<'t, L: Level> {
    text: &'t str,
    at: usize,
    depth: usize,
    first: bool,
    /// The values that are in a block or are a loop's variable.
    standing: HashSet<Value>,
    pub(crate) kernel: Kernel<L>,
}

/// Reads what [`print_module`](super::print_module) wrote.
pub fn parse_module<L: Level>(text: &str) -> Result<Module<L>, ParseError> {
    let mut r =
        Reader { text, at: 0, depth: 0, first: true, standing: HashSet::new(), kernel: Kernel::new("") };
    let mut module = Module::default();
    r.space();
    while r.at < text.len() {
        module.kernels.push(r.kernel()?);
    }
    Ok(module)
}

/// A module of either level.
#[derive(Clone, PartialEq, Debug)]
pub enum AnyModule {
    /// A module of the tensor level.
    Tensor(Module<Tensor>),
    /// A module of the machine level.
    Machine(Module<Machine>),
}

/// Reads a module of the level that its text names: `kernel @k ..` is of the tensor level, and
/// `machine kernel @k ..` is of the machine level.
///
/// # Errors
/// Fails if the text is not IR of a level.
pub fn parse_any(text: &str) -> Result<AnyModule, ParseError> {
    match text.trim_start().starts_with(Machine::NAME) {
        true => parse_module(text).map(AnyModule::Machine),
        false => parse_module(text).map(AnyModule::Tensor),
    }
}

impl<'t, L: Level> Reader<'t, L> {
    pub(crate) fn error(&self, message: String) -> ParseError {
        let line = self.text[..self.at].matches('\n').count() + 1;
        ParseError { line, message }
    }

    pub(crate) fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    /// Consumes `text` (and the space after it) if it comes next. A word matches only as a whole.
    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let Some(rest) = self.rest().strip_prefix(text) else { return false };
        let word = |c: char| c.is_alphanumeric() || c == '_';
        if text.ends_with(word) && rest.starts_with(word) && !text.starts_with(['%', '$']) {
            return false;
        }
        self.at += text.len();
        self.space();
        true
    }

    pub(crate) fn expect(&mut self, text: &str) -> Result<(), ParseError> {
        if self.eat(text) {
            return Ok(());
        }
        let found: String = self.rest().chars().take(20).collect();
        Err(self.error(format!("expected `{text}`, found `{}`", found.escape_debug())))
    }

    fn take(&mut self, ok: impl Fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !ok(c)).unwrap_or(rest.len());
        self.at += end;
        self.space();
        &rest[..end]
    }

    /// Reads a name.
    pub(crate) fn word(&mut self) -> Result<&'t str, ParseError> {
        let word = self.take(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
        if word.is_empty() { Err(self.error("expected a name".into())) } else { Ok(word) }
    }

    /// Reads a signed number.
    pub(crate) fn int(&mut self) -> Result<i64, ParseError> {
        let text = self.take(|c| c.is_ascii_digit() || c == '-');
        text.parse().map_err(|_| self.error(format!("expected an integer, found `{text}`")))
    }

    /// Reads 64 bits in hexadecimal.
    pub(super) fn hex(&mut self) -> Result<u64, ParseError> {
        self.expect("0x").or_else(|e| if self.rest().starts_with("0x") { Ok(()) } else { Err(e) })?;
        let text = self.take(|c| c.is_ascii_hexdigit() || c == 'x');
        u64::from_str_radix(text.trim_start_matches("0x"), 16)
            .map_err(|_| self.error(format!("expected hexadecimal bits, found `{text}`")))
    }

    /// Reads a quoted string with Rust's escapes.
    pub(super) fn string(&mut self) -> Result<String, ParseError> {
        self.text[self.at..]
            .starts_with('"')
            .then_some(())
            .ok_or_else(|| self.error("expected a string".into()))?;
        let mut out = String::new();
        let body = &self.text[self.at + 1..];
        let mut chars = body.char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 2;
                    self.space();
                    return Ok(out);
                }
                '\\' => out.push(self.escape(&mut chars)?),
                c => out.push(c),
            }
        }
        Err(self.error("the string does not end".into()))
    }

    fn escape(&self, chars: &mut std::str::CharIndices<'_>) -> Result<char, ParseError> {
        const SIMPLE: [(char, char); 7] =
            [('n', '\n'), ('t', '\t'), ('r', '\r'), ('0', '\0'), ('"', '"'), ('\'', '\''), ('\\', '\\')];
        let bad = || self.error("unknown escape in a string".into());
        let (_, c) = chars.next().ok_or_else(bad)?;
        if c == 'u' {
            let hex: String =
                chars.by_ref().skip(1).map(|(_, c)| c).take_while(|c| *c != '}').take(6).collect();
            return u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32).ok_or_else(bad);
        }
        SIMPLE.iter().find(|(from, _)| *from == c).map(|(_, to)| *to).ok_or_else(bad)
    }

    /// Reads a value such as `%12`.
    pub(super) fn value(&mut self) -> Result<Value, ParseError> {
        self.expect("%")?;
        let n = self.int()?;
        match u32::try_from(n) {
            Ok(n) if n < MAX_INSTS => Ok(Value(n)),
            _ => Err(self.error(format!("%{n} is out of range"))),
        }
    }

    /// Stores an instruction at the index that its number gives. Holes are filled with traps that
    /// are in no block.
    pub(crate) fn define(&mut self, v: Value, op: L::Op, ty: L::Type) -> Result<(), ParseError> {
        while self.kernel.insts.len() <= v.index() {
            self.kernel.insts.push(Inst { op: Debug::Trap {}.into(), ty: L::Type::unit(), span: Span::NONE });
        }
        self.kernel.insts[v] = Inst { op, ty, span: Span::NONE };
        Ok(())
    }

    /// Defines an instruction in a block, or a loop's variable. Each is defined once.
    pub(super) fn place(&mut self, v: Value, op: L::Op, ty: L::Type) -> Result<(), ParseError> {
        if !self.standing.insert(v) {
            return Err(self.error(format!("{v} is defined twice")));
        }
        self.define(v, op, ty)
    }

    /// Reads a field, after a comma unless it is the first.
    pub(crate) fn field<F: Field>(&mut self) -> Result<F, ParseError> {
        if !std::mem::take(&mut self.first) {
            self.expect(",")?;
        }
        let field = F::read(self)?;
        self.first = false;
        Ok(field)
    }

    /// Reads `{expression}`.
    pub(crate) fn int_expr(&mut self) -> Result<Int, ParseError> {
        let (at, text) = self.braced()?;
        let kernel = &self.kernel;
        parse_int(text, &mut |name| resolve(kernel, name)).map_err(|e| self.error_at(at, e.to_string()))
    }

    fn layout(&mut self) -> Result<Layout, ParseError> {
        let (at, text) = self.braced()?;
        let kernel = &self.kernel;
        parse_layout(text, &mut |name| resolve(kernel, name)).map_err(|e| self.error_at(at, e.to_string()))
    }

    fn error_at(&self, at: usize, message: String) -> ParseError {
        ParseError { line: self.text[..at].matches('\n').count() + 1, message }
    }

    pub(crate) fn braced(&mut self) -> Result<(usize, &'t str), ParseError> {
        self.expect("{")?;
        let at = self.at;
        let end = self.rest().find('}').ok_or_else(|| self.error("expected `}`".into()))?;
        self.at += end + 1;
        self.space();
        Ok((at, &self.text[at..at + end]))
    }

    pub(super) fn block(&mut self) -> Result<Block, ParseError> {
        self.expect("{")?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("blocks nest deeper than {MAX_DEPTH}")));
        }
        let mut block = Block::default();
        while !self.eat("}") {
            block.0.push(self.inst()?);
        }
        self.depth -= 1;
        Ok(block)
    }

    fn inst(&mut self) -> Result<Value, ParseError> {
        let v = self.value()?;
        self.expect("=")?;
        let mnemonic = self.word()?;
        self.first = true;
        let op = L::Op::read_fields(mnemonic, self).unwrap_or_else(|| {
            Err(self.error(format!("there is no op `{mnemonic}` at the {} level", L::NAME)))
        })?;
        let ty = if self.eat(":") { self.ty()? } else { L::Type::unit() };
        self.place(v, op, ty)?;
        Ok(v)
    }

    fn named<T>(&mut self, what: &str, parse: fn(&str) -> Option<T>) -> Result<T, ParseError> {
        let word = self.word()?;
        parse(word).ok_or_else(|| self.error(format!("`{word}` is not a known {what}")))
    }

    pub(crate) fn ty(&mut self) -> Result<L::Type, ParseError> {
        let word = self.word()?;
        let tensor;
        let ty = match word {
            "unit" => TypeRef::Unit,
            "team" => TypeRef::Team,
            "barrier" => TypeRef::Barrier,
            "pipeline" => {
                self.expect("<")?;
                let stages = u32::read(self)?;
                self.expect(">")?;
                TypeRef::Pipeline(stages)
            }
            "accumulator" => {
                self.expect("<")?;
                let elem = self.named("element type", Scalar::parse)?;
                let mut n = [0; 4];
                for n in &mut n {
                    self.expect(",")?;
                    *n = u32::read(self)?;
                }
                self.expect(">")?;
                let [rows, cols, m, n] = n;
                TypeRef::Accumulator(Accumulator { elem, rows, cols, over: [m, n] })
            }
            "ptr" => {
                self.expect("<")?;
                let space = self.named("memory space", Space::parse)?;
                self.expect(">")?;
                TypeRef::Pointer(space)
            }
            "vector" => {
                self.expect("<")?;
                let elem = self.named("element type", Scalar::parse)?;
                self.expect(",")?;
                let n = u32::read(self)?;
                self.expect(">")?;
                TypeRef::Vector(elem, n)
            }
            "tensor" => {
                tensor = Arc::new(self.tensor()?);
                TypeRef::Tensor(&tensor)
            }
            other => match Scalar::parse(other) {
                Some(s) => TypeRef::Scalar(s),
                None => return Err(self.error(format!("`{other}` is not a type"))),
            },
        };
        L::Type::of(ty).ok_or_else(|| self.error(format!("there is no {ty} at the {} level", L::NAME)))
    }

    fn tensor(&mut self) -> Result<TensorType, ParseError> {
        self.expect("<")?;
        let elem = self.named("element type", Scalar::parse)?;
        self.expect(",")?;
        let space = self.named("memory space", Space::parse)?;
        self.expect(",")?;
        let layout = self.layout()?;
        self.expect(",")?;
        self.expect("align")?;
        let align = u32::read(self)?;
        let mut bounds = Vec::new();
        let mut swizzle = None;
        while self.eat(",") {
            if swizzle.is_none() && bounds.is_empty() && self.eat("swizzle") {
                swizzle = Some(self.swizzle()?);
                continue;
            }
            self.expect("bound")?;
            self.expect("(")?;
            let limit = self.int_expr()?;
            self.expect(",")?;
            let offset = self.int_expr()?;
            self.expect(",")?;
            let layout = self.layout()?;
            self.expect(")")?;
            bounds.push(Bound { limit, offset, layout });
        }
        self.expect(">")?;
        Ok(TensorType { elem, layout, swizzle, space, align, bounds })
    }

    fn swizzle(&mut self) -> Result<Swizzle, ParseError> {
        self.expect("(")?;
        let bits = u32::read(self)?;
        self.expect(",")?;
        let base = u32::read(self)?;
        self.expect(",")?;
        let shift = u32::read(self)?;
        self.expect(")")?;
        let shift =
            i32::try_from(shift).map_err(|_| self.error("the shift of a swizzle is too large".into()))?;
        Swizzle::new(bits, base, shift).map_err(|e| self.error(e.to_string()))
    }

    /// Reads `(x, y, z)`.
    fn extents(&mut self) -> Result<[u32; 3], ParseError> {
        self.expect("(")?;
        let (x, _, y, _, z) =
            (u32::read(self)?, self.expect(",")?, u32::read(self)?, self.expect(",")?, u32::read(self)?);
        self.expect(")")?;
        Ok([x, y, z])
    }

    fn kernel(&mut self) -> Result<Kernel<L>, ParseError> {
        if L::NAME != Tensor::NAME {
            self.expect(L::NAME)?;
        }
        self.expect("kernel")?;
        self.expect("@")?;
        self.kernel = Kernel::new(self.word()?);
        self.standing.clear();
        self.expect("block")?;
        self.kernel.block = self.extents()?;
        if self.eat("cluster") {
            self.kernel.cluster = self.extents()?;
        }
        L::Head::read_attributes(self)?;
        self.expect("{")?;
        L::Head::read_params(self)?;
        let mut locals = Arena::default();
        while self.eat("local") {
            LocalId::read(self)?;
            let name = Arc::from(self.word()?);
            self.expect(":")?;
            locals.push(Local { name, ty: self.ty()? });
        }
        self.kernel.locals = locals;
        let mut block = Block::default();
        while !self.eat("}") {
            block.0.push(self.inst()?);
        }
        self.kernel.body = block;
        Ok(std::mem::replace(&mut self.kernel, Kernel::new("")))
    }
}

/// Resolves `%12` as a symbol. Its definition precedes the use, so its facts are known.
fn resolve<L: Level>(kernel: &Kernel<L>, name: &str) -> Option<Int> {
    let id = name.strip_prefix('%')?.parse().ok()?;
    let known = kernel.insts.get(Value(id)).map(|i| i.op.family());
    if known.is_some_and(|op| op != FamilyRef::Debug(&Debug::Trap {})) {
        return kernel.symbol(Value(id));
    }
    // A parameter's layout can name a team size, which is defined later.
    let max = Some(i32::MAX.into());
    Some(Int::var(Var { id, name: name.into(), div: 1, min: 1, max }))
}
