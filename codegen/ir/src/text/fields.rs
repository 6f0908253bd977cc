//! The printing and parsing of each kind of op field.

use super::{Field, ParseError, Printer, Reader};
use crate::arena::Handle;
use crate::kernel::{Block, Induction, LocalId, TeamRef, Value};
use crate::level::Level;
use crate::names::{
    AmoOp, BinOp, CmpOp, Dim, Group, MoveKind, RedOp, Scalar, Scope, Sem, ShuffleMode, SignalKind,
};
use crate::names::{Sreg, UnOp, WaitFor};
use crate::op::{Constant, Var};
use crate::types::ValueType;
use std::sync::Arc;
use weft_layout::Int;

macro_rules! word_fields {
    ($($name:ident),*) => {$(
        impl Field for $name {
            fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
                p.put(format_args!("{self}"));
            }
            fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
                let word = r.word()?;
                $name::parse(word).ok_or_else(|| {
                    let all: Vec<_> = $name::ALL.iter().map(|n| n.name()).collect();
                    r.error(format!("`{word}` is not one of {}", all.join(", ")))
                })
            }
        }
    )*};
}
word_fields!(Scalar, Sem, Scope, RedOp, BinOp, UnOp, CmpOp, Group, Dim, Sreg, ShuffleMode);
word_fields!(SignalKind, AmoOp, WaitFor, MoveKind);

impl Field for Value {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{self}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.value()
    }
    fn operands(&self, visit: &mut dyn FnMut(Value)) {
        visit(*self);
    }
    fn map(&mut self, map: &mut dyn FnMut(Value) -> Value) {
        *self = map(*self);
    }
}

impl Field for Vec<u32> {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        let parts: Vec<_> = self.iter().map(u32::to_string).collect();
        p.put(format_args!("[{}]", parts.join(" ")));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.expect("[")?;
        let mut out = Vec::new();
        while !r.eat("]") {
            out.push(u32::read(r)?);
        }
        Ok(out)
    }
}

impl Field for Vec<Value> {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        let parts: Vec<_> = self.iter().map(Value::to_string).collect();
        p.put(format_args!("[{}]", parts.join(" ")));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.expect("[")?;
        let mut out = Vec::new();
        while !r.eat("]") {
            out.push(r.value()?);
        }
        Ok(out)
    }
    fn operands(&self, visit: &mut dyn FnMut(Value)) {
        self.iter().copied().for_each(visit);
    }
    fn map(&mut self, map: &mut dyn FnMut(Value) -> Value) {
        self.iter_mut().for_each(|v| *v = map(*v));
    }
}

impl Field for Option<Value> {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        self.iter().copied().collect::<Vec<_>>().print(p);
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        match Vec::<Value>::read(r)?[..] {
            [] => Ok(None),
            [v] => Ok(Some(v)),
            _ => Err(r.error("expected one value at most".into())),
        }
    }
    fn operands(&self, visit: &mut dyn FnMut(Value)) {
        self.iter().copied().for_each(visit);
    }
    fn map(&mut self, map: &mut dyn FnMut(Value) -> Value) {
        self.iter_mut().for_each(|v| *v = map(*v));
    }
}

impl Field for Option<RedOp> {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{}", self.map_or("exch", RedOp::name)));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        if r.eat("exch") { Ok(None) } else { RedOp::read(r).map(Some) }
    }
}

impl Field for Induction {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        let (min, max, div) = p.loop_var(self.0);
        p.put(format_args!("{} ({min} {max} {div})", self.0));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        let v = r.value()?;
        r.expect("(")?;
        let (min, max, div) = (r.int()?, r.int()?, r.int()?);
        r.expect(")")?;
        r.place(v, Var::LoopVar { min, max, div }.into(), L::Type::scalar(Scalar::I64))?;
        Ok(Induction(v))
    }
}

impl Field for u32 {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{self}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        let n = r.int()?;
        u32::try_from(n).map_err(|_| r.error(format!("{n} does not fit 32 bits")))
    }
}

impl Field for u64 {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{self}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        let n = r.int()?;
        u64::try_from(n).map_err(|_| r.error(format!("{n} is negative")))
    }
}

impl Field for i64 {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{self}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.int()
    }
}

impl Field for bool {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{self}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        if r.eat("true") { Ok(true) } else { r.expect("false").map(|()| false) }
    }
}

impl Field for TeamRef {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        match *self {
            TeamRef::WORLD => p.put(format_args!("world")),
            TeamRef(index) => p.put(format_args!("team {index}")),
        }
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        if r.eat("world") {
            return Ok(TeamRef::WORLD);
        }
        r.expect("team")?;
        u32::read(r).map(TeamRef)
    }
}

impl Field for LocalId {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{self}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.expect("$")?;
        let n = u32::read(r)?;
        Ok(LocalId::from_index(n as usize))
    }
}

impl Field for Int {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{{{self}}}"));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.int_expr()
    }
    fn operands(&self, visit: &mut dyn FnMut(Value)) {
        self.vars(&mut |v| visit(Value(v.id)));
    }
    fn map(&mut self, map: &mut dyn FnMut(Value) -> Value) {
        *self = self.subst(&mut |v| {
            let to = map(Value(v.id));
            (to.0 != v.id)
                .then(|| Int::var(weft_layout::Var { id: to.0, name: to.to_string().into(), ..v.clone() }))
        });
    }
}

impl Field for Constant {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        match self {
            Constant::Bool(b) => p.put(format_args!("{b}")),
            Constant::Int(n) => p.put(format_args!("{n}")),
            // The bits guarantee that the value reads back exactly. The number is for human
            // readers.
            Constant::Float(x) => p.put(format_args!("float {:#018x} \"{x}\"", x.to_bits())),
        }
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        if r.eat("true") {
            Ok(Constant::Bool(true))
        } else if r.eat("false") {
            Ok(Constant::Bool(false))
        } else if r.eat("float") {
            let bits = r.hex()?;
            r.string()?;
            Ok(Constant::Float(f64::from_bits(bits)))
        } else {
            r.int().map(Constant::Int)
        }
    }
}

impl Field for Arc<str> {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.put(format_args!("{:?}", &**self));
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.string().map(Arc::from)
    }
}

impl Field for Block {
    fn print<L: Level>(&self, p: &mut Printer<'_, L>) {
        p.block(self);
    }
    fn read<L: Level>(r: &mut Reader<'_, L>) -> Result<Self, ParseError> {
        r.block()
    }
    fn blocks<'a>(&'a self, out: &mut Vec<&'a Block>) {
        out.push(self);
    }
    fn blocks_mut<'a>(&'a mut self, out: &mut Vec<&'a mut Block>) {
        out.push(self);
    }
}
