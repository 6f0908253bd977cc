//! Replaces products of a 32-bit number and a constant by the machine's instruction with a 64-bit
//! result.
//!
//! LLVM's instruction selection works on one block. If a number is extended in one block and
//! multiplied in another, it prints a shift or a product of 64 bits. Each of these is two or more
//! machine instructions, wherever ptxas repeats it at its uses. `mul.wide` becomes a part of the
//! addition that uses it. The extents of the grid are read again at each use, because otherwise a
//! value that is uniform in the CTA would be copied to each thread in every round.

use inkwell::InlineAsmDialect;
use inkwell::module::Module;
use inkwell::types::BasicMetadataTypeEnum;
use inkwell::values::{BasicValue, BasicValueEnum, InstructionOpcode, InstructionValue, IntValue};
use weft_ir::diag::Diagnostic;

/// The extents of the grid, by LLVM's name and PTX's name.
const EXTENTS: [(&str, &str); 3] = [
    ("llvm.nvvm.read.ptx.sreg.nctaid.x", "%nctaid.x"),
    ("llvm.nvvm.read.ptx.sreg.nctaid.y", "%nctaid.y"),
    ("llvm.nvvm.read.ptx.sreg.nctaid.z", "%nctaid.z"),
];

/// Rewrites all functions of a module.
pub(crate) fn widen(module: &Module<'_>) -> Result<(), Diagnostic> {
    for function in module.get_functions() {
        for block in function.get_basic_block_iter() {
            let mut next = block.get_first_instruction();
            while let Some(inst) = next {
                next = inst.get_next_instruction();
                if let Some((number, factor)) = product(inst) {
                    replace(module, inst, number, factor).map_err(crate::failed)?;
                }
            }
        }
    }
    Ok(())
}

/// The 32-bit number and the constant that an instruction multiplies.
fn product(inst: InstructionValue<'_>) -> Option<(IntValue<'_>, u64)> {
    let int = |i| match inst.get_operand(i)?.value()? {
        BasicValueEnum::IntValue(v) => Some(v),
        _ => None,
    };
    let (opcode, a, b) = match inst.get_opcode() {
        opcode @ (InstructionOpcode::Shl | InstructionOpcode::Mul) => (opcode, int(0)?, int(1)?),
        _ => return None,
    };
    let constant = b.get_zero_extended_constant()?;
    let factor = match opcode {
        InstructionOpcode::Shl => 1u64.checked_shl(u32::try_from(constant).ok()?)?,
        _ => constant,
    };
    let extended = a.as_instruction_value()?;
    let BasicValueEnum::IntValue(number) = extended.get_operand(0)?.value()? else { return None };
    let wide = a.get_type().get_bit_width() == 64 && number.get_type().get_bit_width() == 32;
    let apart = extended.get_parent() != inst.get_parent();
    let fits = extended.get_opcode() == InstructionOpcode::ZExt && wide && factor <= u32::MAX.into();
    (fits && (apart || extent(number).is_some())).then_some((number, factor))
}

/// The special register from which a number is read, if it is an extent of the grid.
fn extent(number: IntValue<'_>) -> Option<&'static str> {
    let call = number.as_instruction_value().filter(|i| i.get_opcode() == InstructionOpcode::Call)?;
    let callee = call.get_operand(call.get_num_operands().checked_sub(1)?)?.value()?;
    let BasicValueEnum::PointerValue(callee) = callee else { return None };
    let name = callee.get_name().to_str().ok()?;
    EXTENTS.iter().find(|(llvm, _)| *llvm == name).map(|(_, ptx)| *ptx)
}

fn replace(
    module: &Module<'_>,
    inst: InstructionValue<'_>,
    number: IntValue<'_>,
    factor: u64,
) -> Result<(), inkwell::builder::BuilderError> {
    let context = module.get_context();
    let wide = context.i64_type();
    let builder = context.create_builder();
    builder.position_before(&inst);
    let (text, constraints, arguments): (_, _, Vec<IntValue<'_>>) = match extent(number) {
        Some(register) => (
            format!("{{ .reg .b32 n; mov.u32 n, {register}; mul.wide.u32 $0, n, {factor}; }}"),
            "=l",
            Vec::new(),
        ),
        None => (format!("mul.wide.u32 $0, $1, {factor};"), "=l,r", vec![number]),
    };
    let types: Vec<BasicMetadataTypeEnum<'_>> = arguments.iter().map(|a| a.get_type().into()).collect();
    let ty = wide.fn_type(&types, false);
    let dialect = Some(InlineAsmDialect::ATT);
    let asm = context.create_inline_asm(ty, text, constraints.into(), false, false, dialect, false);
    let arguments: Vec<_> = arguments.into_iter().map(Into::into).collect();
    let call = builder.build_indirect_call(ty, asm, &arguments, "")?;
    if let Some(call) = call.try_as_basic_value().basic().and_then(|v| v.as_instruction_value()) {
        inst.replace_all_uses_with(&call);
        inst.erase_from_basic_block();
    }
    Ok(())
}
