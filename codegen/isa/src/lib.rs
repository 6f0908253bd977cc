//! The memory and matrix instructions of PTX that LLVM does not print: which forms exist on which
//! targets, and how they are written.
//!
//! The facts are tables in `ptx_templates/`. A row names the words of each modifier that can be
//! combined, the lowest version of PTX, and the targets. They provide
//! - [`check`]: a [`Form`] (an instruction with all its modifiers) is [`Legal`] on a [`Target`], or
//!   [`Illegal`] with the wrong column and the words that it can have;
//! - [`Legal::asm`] and [`Legal::ptx`]: the instruction, for LLVM's inline assembly or as PTX;
//! - [`widths`]: the accesses for an element type, widest first, from which the compiler selects a
//!   width;
//! - [`legal_forms`] and [`markdown`]: all forms, for tests and for docs/multimem.md.
//!
//! ```
//! use weft_isa::{Acc, ElemType, Form, Instr, RedOp, Scope, Sem, check};
//!
//! let target = "sm_90a".parse()?;
//! let form = Form::new(Instr::LdReduce, ElemType::BF16x2)
//!     .op(RedOp::Add).acc(Acc::F32).vec(4).order(Sem::Relaxed, Scope::Sys);
//! let legal = check(&form, target)?;
//! assert_eq!(form.to_string(), "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2");
//! assert_eq!(legal.min_ptx().to_string(), "8.2");
//! assert_eq!(legal.asm().unwrap().constraints, "=r,=r,=r,=r,l,~{memory}");
//!
//! let scalar = check(&Form { ty: ElemType::BF16, vec: 1, ..form }, target).unwrap_err();
//! assert_eq!(scalar.expected, ["v2", "v4", "v8"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Instructions that share few modifiers with others (matrix products, bulk copies) have tables
//! that name their own columns. A form of such an instruction is a [`Choice`] of words.
//! [`Choice::check`] turns it into a [`Spelling`] or rejects it in the same way. [`Product`] makes
//! the forms of matrix products from types.
//!
//! ```
//! use weft_isa::{Choice, Instruction};
//!
//! let copy = Instruction::named("cp.async.bulk").ok_or("not in a table")?;
//! let words = ["global", "shared::cta", "bulk_group", "-", "-"];
//! let copy = Choice::new(copy, &words).check("sm_90a".parse()?)?;
//! assert_eq!(
//!     copy.ptx(|operand| format!("%{}", operand.to_lowercase())),
//!     "cp.async.bulk.global.shared::cta.bulk_group [%g], [%s], %n;"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod choice;
mod docs;
mod form;
mod instruction;
mod pages;
mod product;
mod run;
mod table;
mod target;
mod template;
mod widths;
mod words;

pub use check::{Illegal, Legal, Rule, check, legal_forms};
pub use choice::{Choice, NoForm, Reason, Spelling, choices};
pub use docs::markdown;
pub use form::{Column, Form};
pub use instruction::{Instruction, instructions};
pub use pages::page;
pub use product::{Product, fragments};
pub use run::{bulk_in_switch, bulk_load, bulk_reduction, bulk_store};
pub use table::{Carrier, Family, carriers, families};
pub use target::{BadVersion, PtxVersion, Target, UnknownTarget, Variant};
pub use template::{Asm, Input};
pub use widths::{Width, widths};
pub use words::{Acc, ElemType, Instr, RedOp, Reg, Scope, Sem};

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
