//! The lowering of `printf` and `assert`.

use super::{Lower, Lowered};
use crate::codes::{BAD_FORMAT, BAD_NAME};
use crate::raw::{Cast, Func, GENERIC, GLOBAL, Ty, Val};
use weft_ir::names::NumberKind;
use weft_ir::{Scalar, Value};

/// `int vprintf(const char *format, void *arguments)`, which the driver supplies.
pub(super) const VPRINTF: &str = "vprintf";
/// `void __assertfail(const char *text, const char *file, unsigned line, const char *function,
/// size_t of_a_character)`, which the driver supplies. It writes its arguments with the CTA and the
/// thread to standard error, and ends the context.
pub(super) const ASSERTFAIL: &str = "__assertfail";

impl<'c> Lower<'_, 'c> {
    pub(super) fn print(&mut self, format: &str, args: &[Value]) -> Lowered<()> {
        let ir = self.ir;
        let (mut values, mut wide) = (Vec::new(), Vec::new());
        for arg in args {
            let (value, is_wide) = self.promote(self.val(*arg)?, self.elem(*arg))?;
            values.push(value);
            wide.push(is_wide);
        }
        let Some(mut text) = adapt(format, &wide) else {
            return Err(self.error(BAD_FORMAT, format!("cannot print with the format {format:?}")).help(
                "write a conversion as `%`, flags, a width, `.` and a precision in digits, and one of d \
                 i u x c e f g",
            ));
        };
        text.push(0);
        let format = self.text("format", &text);
        let generic = ir.pointer(GENERIC);
        let mut at = ir.zero(generic);
        if !values.is_empty() {
            // The arguments are laid out as in a C struct. The fields have 4 or 8 bytes and natural
            // alignment.
            let types: Vec<_> = values.iter().map(|v| v.ty()).collect();
            at = self.ir.alloca_at_entry(self.f, ir.structure(&types));
            let mut offset = 0i64;
            for (value, wide) in values.iter().zip(&wide) {
                let size = if *wide { 8 } else { 4 };
                offset = (offset + size - 1) / size * size;
                ir.set(*value, ir.offset(at, ir.constant(ir.int(64), offset)));
                offset += size;
            }
        }
        let f = self.drivers(VPRINTF, ir.int(32), &[generic, generic])?;
        ir.call(f, &[format, at]);
        Ok(())
    }

    /// Emits a call that does not return for the case that the condition does not hold.
    pub(super) fn assert(&mut self, cond: Value, text: &str) -> Lowered<()> {
        let ir = self.ir;
        let (failed, end) = (ir.block(self.f, "failed"), ir.block(self.f, "end"));
        ir.branch(self.val(cond)?, end, failed);
        ir.go(failed);
        let at = self.locate.and_then(|locate| locate(self.inst.span));
        let file = at.and_then(|at| self.files.get(at.file as usize)).map_or("", |name| &**name);
        let strings = [("assert", text), ("file", file), ("kernel", &*self.k.name)];
        // Strings in C end at their first 0.
        let [text, file, kernel] = strings
            .map(|(what, text)| self.text(what, &[text.replace('\0', "\\0").as_bytes(), &[0]].concat()));
        let line = ir.constant(ir.int(32), at.map_or(0, |at| at.line.into()));
        let (generic, size) = (ir.pointer(GENERIC), ir.int(64));
        let f = self.drivers(ASSERTFAIL, ir.void(), &[generic, generic, ir.int(32), generic, size])?;
        ir.call(f, &[text, file, line, kernel, ir.constant(size, 1)]);
        // Nothing follows it, even if the driver's function returned.
        self.intrinsic("llvm.trap", &[], &[])?;
        ir.jump(end);
        ir.go(end);
        Ok(())
    }

    /// A function that the driver supplies. Kernels cannot have its name, which is one of
    /// [`super::TAKEN`].
    fn drivers(&self, name: &str, result: Ty<'c>, params: &[Ty<'c>]) -> Lowered<Func<'c>> {
        let f = self.ir.declare(name, result, params);
        f.ok_or_else(|| self.error(BAD_NAME, format!("`{name}` is not the driver's function in this module")))
    }

    /// The generic address of a constant text.
    fn text(&mut self, what: &str, text: &[u8]) -> Val<'c> {
        let bytes = self.ir.bytes(text);
        let name = self.global_name(what);
        let at = self.ir.global(&name, bytes.ty(), GLOBAL, bytes, 1);
        self.ir.cast(Cast::LLVMAddrSpaceCast, at, self.ir.pointer(GENERIC))
    }

    /// The value as C passes it to `printf`, and whether it has 8 bytes.
    fn promote(&self, a: Val<'c>, s: Scalar) -> Lowered<(Val<'c>, bool)> {
        let to = match s.kind() {
            NumberKind::Float => Scalar::F64,
            NumberKind::Signed if s.bits() < 32 => Scalar::I32,
            NumberKind::Unsigned | NumberKind::Bool if s.bits() < 32 => Scalar::U32,
            _ => s,
        };
        Ok((self.convert(a, s, to)?, to.bits() == 64))
    }
}

/// The format for arguments of these widths, in which `%d` of a 64-bit integer becomes `%lld`. It
/// is `None` if the text is not a format.
fn adapt(format: &str, wide: &[bool]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(format.len() + 8);
    let mut wide = wide.iter();
    let mut rest = format;
    while let Some((before, spec)) = rest.split_once('%') {
        out.extend(before.bytes());
        out.push(b'%');
        if let Some(after) = spec.strip_prefix('%') {
            out.push(b'%');
            rest = after;
            continue;
        }
        let modifiers = spec.find(|c: char| !"-+ #0123456789.".contains(c))?;
        out.extend(spec[..modifiers].bytes());
        let spec = spec[modifiers..].trim_start_matches('l');
        let conversion = spec.chars().next()?;
        let is_wide = *wide.next()?;
        match conversion {
            'd' | 'i' | 'u' | 'x' if is_wide => out.extend(b"ll"),
            'd' | 'i' | 'u' | 'x' | 'c' | 'e' | 'f' | 'g' => {}
            _ => return None,
        }
        out.push(conversion as u8);
        rest = &spec[1..];
    }
    out.extend(rest.bytes());
    (wide.next().is_none() && !format.contains('\0')).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::adapt;

    fn adapted(format: &str, wide: &[bool]) -> Option<String> {
        adapt(format, wide).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn widths_follow_the_arguments() {
        assert_eq!(adapted("%d %u", &[true, false]).unwrap(), "%lld %u");
        assert_eq!(adapted("%-08x|%ld|%%", &[true, false]).unwrap(), "%-08llx|%d|%%");
        assert_eq!(adapted("%8.3f\n", &[true]).unwrap(), "%8.3f\n");
        assert_eq!(adapted("π = %f", &[true]).unwrap(), "π = %f");
    }

    #[test]
    fn formats_with_missing_or_wrong_arguments_are_rejected() {
        for (format, wide) in [
            ("%*d", &[false][..]),
            ("%n", &[true]),
            ("%s", &[true]),
            ("%d %d", &[false]),
            ("%", &[]),
            ("x", &[true]),
        ] {
            assert_eq!(adapted(format, wide), None, "{format}");
        }
    }
}
