//! Epilogues of fused products: what a kernel does to elements after it has multiplied and added
//! them up.

use super::plan::{Choice, Part};
use super::{Form, part_of};
use crate::gemm::Problem;
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::{DType, Error, error};

/// The scales by which elements of a product are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Scales {
    /// No scales at all.
    #[default]
    None,
    /// One for A and one for B.
    Matrices,
    /// One for each row of A and one for each row of B.
    Rows,
}

/// The function that is applied to elements after the bias.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Activation {
    /// Elements stay as they are.
    #[default]
    None,
    /// The larger one of x and 0.
    Relu,
    /// x times the distribution function of the standard normal distribution at x.
    Gelu,
    /// The approximation of GELU by tanh.
    GeluTanh,
    /// x times the logistic function of x.
    Silu,
}

/// The operations on elements of a sum or a product, in the order of the fields. The numbers that
/// they read are fields of [`FusedOperands`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Epilogue {
    /// Each PE's product is multiplied by the scales of its own operands before it is sent.
    pub scales: Scales,
    /// A number is added to each column.
    pub bias: bool,
    /// The function that is applied to each element.
    pub activation: Activation,
    /// For an all-gather: the first half of B's rows are gates, and the activation is applied to
    /// the gates only. D has half as many columns as B has rows, and its elements are gates times
    /// the other half.
    pub gated: bool,
    /// A matrix like D is added. For an allreduce all PEs have the same one.
    pub residual: bool,
    /// The result is divided by a number before it is rounded to the type of D.
    pub divide: bool,
}

/// The tensors that a launch reads and writes. Those that the product's [`Epilogue`] does not name
/// must be `None`.
#[derive(Clone, Copy)]
pub struct FusedOperands<'a> {
    /// The matrix A of the product.
    pub a: &'a dyn AsArgument,
    /// The matrix B of the product.
    pub b: &'a dyn AsArgument,
    /// The result of the product.
    pub d: &'a dyn AsArgument,
    /// Scales of A, f32: one, or one for each row. For an all-gather they are symmetric, with modes
    /// (row of a PE, PE) like A, and those of the other PEs arrive in their places. One scale of
    /// the whole matrix is in this PE's place.
    pub scale_a: Option<&'a dyn AsArgument>,
    /// Scales of B, f32: one, or one for each row.
    pub scale_b: Option<&'a dyn AsArgument>,
    /// The bias of each column, of the type of D, or bf16 if D has 8 bits.
    pub bias: Option<&'a dyn AsArgument>,
    /// The matrix that is added, of the same type as the bias.
    pub residual: Option<&'a dyn AsArgument>,
    /// One f32 by which the result is divided.
    pub scale: Option<&'a dyn AsArgument>,
}

impl<'a> FusedOperands<'a> {
    /// Creates operands of a product without an epilogue.
    pub fn new(a: &'a dyn AsArgument, b: &'a dyn AsArgument, d: &'a dyn AsArgument) -> FusedOperands<'a> {
        FusedOperands { a, b, d, scale_a: None, scale_b: None, bias: None, residual: None, scale: None }
    }

    /// The operands besides the matrices, with their names in the kernels, in the kernels' order.
    pub(super) fn others(&self) -> [(&'static str, Option<&'a dyn AsArgument>); 5] {
        [
            ("scale_a", self.scale_a),
            ("scale_b", self.scale_b),
            ("bias", self.bias),
            ("residual", self.residual),
            ("scale", self.scale),
        ]
    }
}

impl Epilogue {
    /// Whether the epilogue does nothing.
    pub fn is_none(&self) -> bool {
        *self == Epilogue::default()
    }

    /// Whether it reads numbers for each column or element, which need registers besides those of
    /// sums.
    pub(super) fn reads(&self) -> bool {
        self.scales == Scales::Rows || self.bias || self.residual
    }

    /// Whether it needs each of [`FusedOperands::others`].
    fn has(&self) -> [bool; 5] {
        let scales = self.scales != Scales::None;
        [scales, scales, self.bias, self.residual, self.divide]
    }

    /// Columns of D where B has n rows.
    pub fn columns(&self, n: u64) -> u64 {
        if self.gated { n / 2 } else { n }
    }

    /// Values of the kernels' compile-time parameters.
    pub(super) fn defines(&self, part: Part) -> Vec<(String, Define)> {
        let mut all = vec![
            ("SCALES", self.scales as i64),
            ("BIAS", self.bias.into()),
            ("ACT", self.activation as i64),
            ("RESIDUAL", self.residual.into()),
            ("DIVIDE", self.divide.into()),
        ];
        if part == Part::Gather {
            all.push(("GATED", self.gated.into()));
        }
        all.into_iter().map(|(name, n)| (name.to_owned(), Define::Int(n))).collect()
    }

    /// Checks that a choice computes a problem with the epilogue.
    ///
    /// # Errors
    /// Fails for a kernel that does not support the epilogue, or for gates without an all-gather
    /// (R0505).
    pub fn fits(&self, form: Form, problem: &Problem, choice: &Choice) -> Result<(), Error> {
        let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
        if self.is_none() {
            return Ok(());
        }
        let Choice::Launch(plan) = choice else {
            let message = format!("{} has no place for an epilogue", choice.text(form));
            return refuse(message, "choose a plan for one launch that moves tiles");
        };
        if !plan.part(form).finishes() {
            let message = format!("the plan {} adds up where no function can follow", plan.text(form));
            return refuse(message, "send sums by vectors, tma or bulk");
        }
        if !self.gated {
            return Ok(());
        }
        let multiple = 32 / u64::from(problem.out.bytes());
        if form != Form::AllGather {
            return refuse(
                "sums over PEs have no gates".into(),
                "use gates with Form::AllGather, or apply them in a kernel of their own",
            );
        }
        if plan.ctas > 1 || !(plan.bn / 2).is_multiple_of(plan.strip) {
            let message = format!("the plan {} has no tiles of gates and what they are for", plan.text(form));
            return refuse(message, "choose ctas=1, and a strip that divides half of bn");
        }
        if !problem.shape.n.is_multiple_of(multiple) {
            let message = format!("n is {}, of which gates are half, in {}", problem.shape.n, problem.shape);
            return refuse(message, &format!("n is a multiple of {multiple}"));
        }
        Ok(())
    }

    /// Checks that a launch has exactly the operands that the epilogue reads.
    ///
    /// # Errors
    /// Fails with the name of a missing or a superfluous operand (R0505).
    pub(super) fn agrees(&self, operands: &FusedOperands<'_>) -> Result<(), Error> {
        let names = operands.others().into_iter().zip(self.has());
        let other = names.into_iter().find(|((_, argument), has)| argument.is_some() != *has);
        let Some(((name, _), has)) = other else { return Ok(()) };
        let (what, help) = match has {
            true => ("is missing, and the epilogue reads it", "pass it in FusedOperands"),
            false => ("is given, and the epilogue does not read it", "leave it out, or name it in Epilogue"),
        };
        Err(Error::new(error::GEMM, format!("`{name}` {what}")).help(help))
    }

    /// The type of bias and residual.
    pub fn dtype(problem: &Problem) -> DType {
        part_of(problem.out)
    }
}
