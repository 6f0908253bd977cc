//! Numbers and vectors.

use super::{Builder, Built};
use crate::diag::Diagnostic;
use crate::kernel::Value;
use crate::level::Level;
use crate::names::{BinOp, CmpOp, NumberKind, Scalar, UnOp};
use crate::op::{Arith, Constant};
use crate::types::{TypeRef, ValueType};
use crate::typing;
use weft_layout::Int;

impl<L: Level> Builder<L> {
    /// Appends an integer literal of type `ty`.
    pub fn int(&mut self, ty: Scalar, n: i64) -> Built<Value> {
        self.emit_as(Arith::Const { value: Constant::Int(n) }, L::Type::scalar(ty))
    }

    /// Appends the literal `true` or `false`.
    pub fn bool(&mut self, value: bool) -> Built<Value> {
        self.emit_as(Arith::Const { value: Constant::Bool(value) }, L::Type::scalar(Scalar::Bool))
    }

    /// Appends a floating-point literal of type `ty`.
    pub fn float(&mut self, ty: Scalar, x: f64) -> Built<Value> {
        self.emit_as(Arith::Const { value: Constant::Float(x) }, L::Type::scalar(ty))
    }

    /// Appends the number 0 (or `false`) of a scalar or vector type.
    pub fn zero(&mut self, ty: &L::Type) -> Built<Value> {
        let elem = ty.elem().unwrap_or(Scalar::I32);
        let value = match elem.kind() {
            NumberKind::Bool => Constant::Bool(false),
            NumberKind::Float => Constant::Float(0.0),
            _ => Constant::Int(0),
        };
        let scalar = self.emit_as(Arith::Const { value }, L::Type::scalar(elem))?;
        self.splat(scalar, ty)
    }

    /// Appends a vector of type `ty` with `a` in all lanes. If `ty` is a scalar, the result is `a`.
    pub fn splat(&mut self, a: Value, ty: &L::Type) -> Built<Value> {
        match ty.view() {
            TypeRef::Vector(..) => self.emit_as(Arith::Splat { a }, ty.clone()),
            _ => Ok(a),
        }
    }

    /// An `i32` or `i64` as a symbol for layouts and offsets.
    pub fn symbol(&self, v: Value) -> Built<Int> {
        self.kernel.symbol(v).ok_or_else(|| {
            let message = format!("expected an i32 or i64, found {}", self.kernel.ty(v));
            Diagnostic::error(typing::MISMATCH, self.span, message)
        })
    }

    /// Appends an elementwise operation with one operand.
    pub fn unary(&mut self, op: UnOp, a: Value) -> Built<Value> {
        self.emit(Arith::Unary { op, a })
    }

    /// Appends an elementwise operation with two operands.
    pub fn binary(&mut self, op: BinOp, a: Value, b: Value) -> Built<Value> {
        self.emit(Arith::Binary { op, a, b })
    }

    /// Appends an elementwise comparison of `a` and `b`.
    pub fn compare(&mut self, op: CmpOp, a: Value, b: Value) -> Built<Value> {
        self.emit(Arith::Compare { op, a, b })
    }

    /// Appends a selection, written `c ? a : b` in C.
    pub fn select(&mut self, c: Value, a: Value, b: Value) -> Built<Value> {
        self.emit(Arith::Select { c, a, b })
    }

    /// Appends a conversion of each lane to `to`, unless `a` already has that type.
    pub fn convert(&mut self, a: Value, to: Scalar) -> Built<Value> {
        if self.ty(a).elem() == Some(to) {
            return Ok(a);
        }
        let ty = self.ty(a).with_elem(to);
        self.emit_as(Arith::Convert { a }, ty)
    }

    /// Appends `a * b + c`, rounded once.
    ///
    /// # Errors
    /// Fails if the operands are not floats of one type (E0200, E0201).
    pub fn fma(&mut self, a: Value, b: Value, c: Value) -> Built<Value> {
        self.emit(Arith::Fma { a, b, c })
    }

    /// Appends a value of type `ty` with the same bits as `a`.
    ///
    /// # Errors
    /// Fails if `ty` does not have the same number of bits (E0200).
    pub fn bitcast(&mut self, a: Value, ty: &L::Type) -> Built<Value> {
        self.emit_as(Arith::Bitcast { a }, ty.clone())
    }

    /// Appends a vector of the lanes of `parts`, which are scalars and vectors of one element type.
    /// The result of a single part is the part.
    ///
    /// # Errors
    /// Fails if the element types differ, or if there are 0 or more than
    /// [`MAX_LANES`](typing::MAX_LANES) lanes (E0200).
    pub fn concat(&mut self, parts: Vec<Value>) -> Built<Value> {
        if let [one] = parts[..] {
            return Ok(one);
        }
        let elem = parts.first().and_then(|v| self.ty(*v).elem()).unwrap_or(Scalar::I32);
        let lanes = parts.iter().filter_map(|v| self.ty(*v).lanes()).fold(0, u32::saturating_add);
        self.emit_as(Arith::Concat { parts }, L::Type::lanes_of(elem, lanes))
    }

    /// Appends `lanes` consecutive lanes of `a` from lane `first`. One lane is a scalar. The result
    /// of all lanes is `a`.
    ///
    /// # Errors
    /// Fails if `a` does not have these lanes (E0200).
    pub fn slice(&mut self, a: Value, first: u32, lanes: u32) -> Built<Value> {
        let ty = self.ty(a);
        if ty.lanes() == Some(lanes) {
            return Ok(a);
        }
        let part = L::Type::lanes_of(ty.elem().unwrap_or(Scalar::I32), lanes);
        self.emit_as(Arith::Slice { a, first }, part)
    }

    /// Appends the lane of a vector at an index that is computed at run time (`i32` or `i64`).
    ///
    /// # Errors
    /// Fails if `a` is not a vector, or if `lane` is not an integer (E0200).
    pub fn extract(&mut self, a: Value, lane: Value) -> Built<Value> {
        self.emit(Arith::Extract { a, lane })
    }

    /// Appends the vector `a` with another element at an index that is computed at run time (`i32`
    /// or `i64`).
    ///
    /// # Errors
    /// Fails if `a` is not a vector of such elements, or if `lane` is not an integer (E0200).
    pub fn insert(&mut self, a: Value, lane: Value, elem: Value) -> Built<Value> {
        self.emit(Arith::Insert { a, lane, elem })
    }
}
