//! Epilogues of fused products: what a kernel does to elements after it has multiplied and added
//! them up.

use super::plan::{Choice, FusedPlan, MAX_SHARED, Part};
use super::sequence::{self, MIN_STAGES};
use super::{Form, part_of, staging};
use crate::collective::Flat;
use crate::gemm::Problem;
use weft_lang::elaborate::Define;
use weft_runtime::launch::AsArgument;
use weft_runtime::memory::AnyTensor;
use weft_runtime::{DType, Error, World, error};

/// The scales by which elements of a product are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Scales {
    /// No scales at all.
    #[default]
    None,
    /// One for A and one for B.
    Matrices,
    /// One for each row of A and one for each row of B.
    Rows,
    /// One for each 1 x 128 elements of A, and one for each 128 x 128 of B, which change along K.
    Blocks,
}

/// Elements along K that have one scale of a block.
const BLOCK: u64 = 128;

impl Scales {
    /// The number of scales of A, for so many rows of k elements.
    pub fn of_a(self, rows: u64, k: u64) -> u64 {
        match self {
            Scales::None => 0,
            Scales::Matrices => 1,
            Scales::Rows => rows,
            Scales::Blocks => rows.saturating_mul(k.div_ceil(BLOCK)),
        }
    }

    /// The number of scales of B, for n rows of k elements.
    pub fn of_b(self, n: u64, k: u64) -> u64 {
        match self {
            Scales::Blocks => n.div_ceil(BLOCK).saturating_mul(k.div_ceil(BLOCK)),
            _ => self.of_a(n, k),
        }
    }
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
    /// For an all-gather or an all-to-all: the first half of B's rows are gates, and the activation is applied to
    /// the gates only. D has half as many columns as B has rows, and its elements are gates times
    /// the other half.
    pub gated: bool,
    /// A matrix like D is added. For an allreduce all PEs have the same one.
    pub residual: bool,
    /// The result is divided by a number before it is rounded to the type of D.
    pub divide: bool,
    /// For an all-gather and a D of 8 bits: each 128 columns of a row are divided by a scale of their own, so that their
    /// largest magnitude becomes the largest number of the type. The launch writes the scales.
    pub row_scales: bool,
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
    /// Scales of A, f32: one, one for each row, or rows of them, one for each block of 128 elements. For an all-gather they are
    /// symmetric, with modes (row of a PE, PE) or (row of a PE, block, PE) as A has them, and those of the other PEs arrive in
    /// their places; one for the whole matrix is in this PE's place.
    pub scale_a: Option<&'a dyn AsArgument>,
    /// Scales of B, f32: one, one for each row, or rows of them for each 128 rows, one for each block of 128 elements.
    pub scale_b: Option<&'a dyn AsArgument>,
    /// The bias of each column, of the type of D, or bf16 if D has 8 bits.
    pub bias: Option<&'a dyn AsArgument>,
    /// The matrix that is added, of the same type as the bias. For an all-to-all it has the rows of A, since the PE that
    /// multiplies adds it.
    pub residual: Option<&'a dyn AsArgument>,
    /// One f32 by which the result is divided.
    pub scale: Option<&'a dyn AsArgument>,
    /// Scales of D that the launch writes, f32: one for each row and 128 columns, those of a row one after the other.
    pub row_scales: Option<&'a dyn AsArgument>,
}

impl<'a> FusedOperands<'a> {
    /// Creates operands of a product without an epilogue.
    pub fn new(a: &'a dyn AsArgument, b: &'a dyn AsArgument, d: &'a dyn AsArgument) -> FusedOperands<'a> {
        let none = None;
        FusedOperands {
            a,
            b,
            d,
            scale_a: none,
            scale_b: none,
            bias: none,
            residual: none,
            scale: none,
            row_scales: none,
        }
    }

    /// What there is beside the matrices, by its name in the kernels, in their order. Only kernels with whole products have
    /// the last one.
    fn others(&self) -> [(&'static str, Option<&'a dyn AsArgument>); OTHERS + 1] {
        [
            ("scale_a", self.scale_a),
            ("scale_b", self.scale_b),
            ("bias", self.bias),
            ("residual", self.residual),
            ("scale", self.scale),
            ("row_scales", self.row_scales),
        ]
    }
}

/// Operands that all kernels have beside the matrices.
pub(in crate::gemm) const OTHERS: usize = 5;

/// Elements of memory that stands for what is not read: one for each PE of a team, and for two modes.
const UNREAD: usize = 16;

/// What stands for scales, and for a bias and a residual, that a kernel does not read.
pub(in crate::gemm) struct Unread([AnyTensor; 2]);

impl Unread {
    /// Allocates it for a problem. This call is *collective*.
    ///
    /// # Errors
    /// Fails if there is no memory (R0302).
    pub fn new(world: &World, problem: &Problem) -> Result<Unread, Error> {
        Ok(Unread([staging(world, DType::F32, UNREAD)?, staging(world, part_of(problem.out), UNREAD)?]))
    }

    /// What a kernel gets beside the matrices: the first [`OTHERS`], or all.
    pub fn operands<'a>(&'a self, x: &FusedOperands<'a>) -> [Flat<'a>; OTHERS + 1] {
        let [scales, numbers] = &self.0;
        x.others().map(|(name, given)| {
            let unread = if matches!(name, "bias" | "residual") { numbers } else { scales };
            Flat(given.unwrap_or(unread))
        })
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
        matches!(self.scales, Scales::Rows | Scales::Blocks) || self.bias || self.residual
    }

    /// Whether it needs each of [`FusedOperands::others`].
    fn has(&self) -> [bool; OTHERS + 1] {
        let scales = self.scales != Scales::None;
        [scales, scales, self.bias, self.residual, self.divide, self.row_scales]
    }

    /// The number of scales of results, for rows of n columns of B.
    pub fn scales_of_rows(&self, rows: u64, n: u64) -> u64 {
        if self.row_scales { rows.saturating_mul(self.columns(n).div_ceil(BLOCK)) } else { 0 }
    }

    /// Columns of D where B has n rows.
    pub fn columns(&self, n: u64) -> u64 {
        if self.gated { n / 2 } else { n }
    }

    /// Values of the compile-time parameters that all kernels have.
    fn common(&self) -> Vec<(String, Define)> {
        let all = [
            ("SCALES", self.scales as i64),
            ("BIAS", self.bias.into()),
            ("RESIDUAL", self.residual.into()),
            ("DIVIDE", self.divide.into()),
        ];
        all.into_iter().map(|(name, n)| (name.to_owned(), Define::Int(n))).collect()
    }

    fn active(&self) -> (String, Define) {
        ("ACT".to_owned(), Define::Int(self.activation as i64))
    }

    /// Values of the compile-time parameters of a kernel.
    pub(super) fn defines(&self, part: Part, out: DType) -> Vec<(String, Define)> {
        let mut all = self.common();
        all.extend((part != Part::Add).then(|| self.active()));
        all.extend(part.completes().then(|| ("GATED".to_owned(), Define::Int(self.gated.into()))));
        // The largest number of the type, to which rows are scaled.
        let range = match out {
            _ if !self.row_scales => 0,
            DType::E5M2 => 57344,
            _ => 448,
        };
        all.extend((part == Part::Gather).then(|| ("QUANTIZE".to_owned(), Define::Int(range))));
        all
    }

    /// Values of the compile-time parameters of the kernel that exchanges packets.
    pub(in crate::gemm) fn defines_of_packets(&self) -> Vec<(String, Define)> {
        [self.common(), vec![self.active()]].concat()
    }

    /// Whether a choice computes a problem with it.
    ///
    /// # Errors
    /// Fails for a kernel that does not support the problem or the epilogue, or for gates of sums
    /// over PEs (R0505).
    pub fn fits(&self, form: Form, problem: &Problem, choice: &Choice) -> Result<(), Error> {
        let refuse = |message: String, help: &str| Err(Error::new(error::GEMM, message).help(help));
        if self.is_none() {
            return Ok(());
        }
        if self.gated && form.adds_up() {
            return refuse(
                "sums over PEs have no gates".into(),
                "use gates with Form::AllGather or Form::AllToAll, or apply them in a kernel of their own",
            );
        }
        if self.row_scales {
            self.has_rows(form, problem)?;
        }
        let blocks = self.scales == Scales::Blocks;
        let (form, plan) = match choice {
            Choice::Launch(plan) => (form, *plan),
            Choice::Decode(_) if blocks => {
                let message =
                    "packets are of the transpose of D, whose rows have one scale for 128 of them".into();
                return refuse(message, "choose a plan for one launch that moves tiles");
            }
            Choice::Decode(plan)
                if plan.exchange == 2 && self.scales != Scales::None && problem.dtype.bytes() > 1 =>
            {
                let message = format!("the plan {plan} rounds sums of {} before scales", problem.dtype);
                return refuse(message, "choose exchange = 1, or operands of 8 bits");
            }
            Choice::Decode(_) => return Ok(()),
            // The product has an epilogue like that of an all-gather, and a kernel completes sums.
            Choice::Sequence => (Form::AllGather, sequence::tiles(problem, self, MIN_STAGES)),
        };
        plan.fits(form, problem)?;
        if plan.part(form) == Part::Add && self.activation != Activation::None {
            let message = format!(
                "the plan {} adds up in the memory of D, and no activation can follow where nobody has the sum",
                plan.text(form)
            );
            return refuse(message, "send sums by vectors, tma or bulk");
        }
        if blocks {
            self.has_blocks(form, problem, &plan)?;
        }
        let columns = self.columns(plan.bn.into());
        if self.row_scales && !columns.is_multiple_of(BLOCK) {
            let message = format!(
                "the plan {} has tiles of {columns} columns of D, {BLOCK} of which have a scale of a row",
                plan.text(form)
            );
            return refuse(message, "choose bn=128 or bn=256, or for gates bn=256");
        }
        if !self.gated {
            return Ok(());
        }
        let multiple = 32 / u64::from(problem.out.bytes());
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

    /// Whether rows of results can have scales.
    ///
    /// # Errors
    /// Fails for another form than an all-gather, and for results of more than 8 bits (R0505).
    fn has_rows(&self, form: Form, problem: &Problem) -> Result<(), Error> {
        let (message, help) = match form {
            Form::AllGather if problem.out.bytes() == 1 => return Ok(()),
            Form::AllGather => (
                format!("D is {}, and scales of its rows are for 8 bits", problem.out),
                "choose e4m3 or e5m2",
            ),
            Form::ReduceScatter | Form::AllReduce => (
                format!(
                    "sums over PEs are complete one strip at a time, and a scale of a row is for {BLOCK} columns"
                ),
                "divide by one number (Epilogue::divide), or scale rows in a kernel of their own",
            ),
            Form::AllToAll => (
                "an all-to-all sends rows to other PEs, and does not send scales with them".to_owned(),
                "divide by one number (Epilogue::divide), or scale rows in a kernel of their own",
            ),
        };
        Err(Error::new(error::GEMM, message).help(help))
    }

    /// Whether a plan has tiles whose columns and stages lie in one block of scales, and a role that reads the scales.
    ///
    /// # Errors
    /// Fails for a plan that does not (R0505).
    fn has_blocks(&self, form: Form, problem: &Problem, plan: &FusedPlan) -> Result<(), Error> {
        let shared = plan.shared_bytes(form, problem) + plan.scale_bytes(self);
        let cases = [
            (self.gated, "multiplies gates by the scales of other columns", "use scales of matrices or rows"),
            (
                u64::from(plan.bk) != BLOCK || !BLOCK.is_multiple_of(plan.bn.into()),
                "has stages or columns of several blocks of scales",
                "choose bk=128, and bn=64 or bn=128",
            ),
            (
                plan.part(form).stages() && plan.ins > 0,
                "has a role that fetches strips, and no warp for one that reads scales of blocks",
                "choose ins=0",
            ),
            (
                plan.part(form) == Part::Switch,
                "has a role that adds up by the switch, and no warp for one that reads scales of blocks",
                "send sums by vectors, tma or bulk",
            ),
            (shared > MAX_SHARED, "has no shared memory for scales of blocks", "choose fewer stages"),
        ];
        let Some((_, what, help)) = cases.into_iter().find(|(fails, ..)| *fails) else { return Ok(()) };
        Err(Error::new(error::GEMM, format!("the plan {} {what}", plan.text(form))).help(help))
    }

    /// Whether a launch has all that it reads, and nothing else.
    ///
    /// # Errors
    /// `R0505` with the name of what is missing or too much.
    pub(in crate::gemm) fn agrees(&self, given: &FusedOperands<'_>) -> Result<(), Error> {
        let names = given.others().into_iter().zip(self.has());
        let other = names.into_iter().find(|((_, argument), has)| argument.is_some() != *has);
        let Some(((name, _), has)) = other else { return Ok(()) };
        let (what, help) = match has {
            true => ("is missing, and the epilogue needs it", "pass it in FusedOperands"),
            false => ("is given, and the epilogue does not need it", "leave it out, or name it in Epilogue"),
        };
        Err(Error::new(error::GEMM, format!("`{name}` {what}")).help(help))
    }

    /// The type of bias and residual.
    pub fn dtype(problem: &Problem) -> DType {
        part_of(problem.out)
    }
}
