//! Plans of products with communication inside: the kernel, and the values of its parameters.

use super::{Epilogue, Form, Scales, part_of};
use crate::gemm::{DecodePlan, Major, Problem};
use weft_lang::elaborate::Define;
use weft_runtime::{Error, error};

/// Bytes of shared memory that a CTA has.
pub(super) const MAX_SHARED: u64 = 227 << 10;
/// Barriers of the pipelines, and what the alignment of tiles leaves unused.
const BARRIERS: u64 = 2048;
/// The most registers of a thread that hold sums.
const MAX_SUMS: u32 = 128;
/// The number of threads of the roles that multiply.
const THREADS: u32 = 256;
/// The rows of B that a CTA loads are a multiple of this number if the columns of B are contiguous.
const COLUMNS: u32 = 64;

/// A kernel of the library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    /// The kernel `all_gather_gemm`.
    Gather,
    /// The kernel `gemm_reduce_scatter`.
    Scatter,
    /// The kernel `gemm_reduce_scatter_add`.
    Add,
    /// The kernel `gemm_allreduce`.
    Reduce,
    /// The kernel `gemm_allreduce_switch`.
    Switch,
    /// The kernel `gemm_all_to_all`.
    Deliver,
}

use Part::{Add, Deliver, Gather, Reduce, Scatter, Switch};

impl Part {
    /// The part of the library that contains it.
    pub fn name(self) -> &'static str {
        match self {
            Gather => "all_gather_gemm",
            Scatter => "gemm_reduce_scatter",
            Add => "gemm_reduce_scatter_add",
            Reduce => "gemm_allreduce",
            Switch => "gemm_allreduce_switch",
            Deliver => "gemm_all_to_all",
        }
    }

    /// Whether PEs send strips to staging memory, where they are added up.
    pub fn stages(self) -> bool {
        matches!(self, Scatter | Reduce)
    }

    /// The part of the library for PEs that have different numbers of rows, if there is one.
    pub fn uneven_name(self) -> Option<&'static str> {
        match self {
            Gather => Some("all_gather_gemm_uneven"),
            Scatter => Some("gemm_reduce_scatter_uneven"),
            Add => Some("gemm_reduce_scatter_add_uneven"),
            Deliver => Some("gemm_all_to_all_uneven"),
            Reduce | Switch => None,
        }
    }

    /// Whether results may have another type than what is sent or added, or than a bias.
    fn rounds(self) -> bool {
        matches!(self, Gather | Scatter | Reduce | Deliver)
    }

    /// Whether products are complete before anything is sent or after everything has come, so that they can have gates.
    pub fn completes(self) -> bool {
        matches!(self, Gather | Deliver)
    }

    /// Whether PEs write to the D of others, so that a launch ends when all PEs have written.
    pub fn writes_to_others(self) -> bool {
        matches!(self, Add | Reduce | Switch | Deliver)
    }
}

/// The transports of plans: the name, the form whose plans can name it, and the kernel that
/// implements it. The order in a form is the order of the values of `SEND`.
const TRANSPORTS: &[(&str, Form, Part)] = &[
    ("vectors", Form::ReduceScatter, Scatter),
    ("tma", Form::ReduceScatter, Scatter),
    ("bulk", Form::ReduceScatter, Scatter),
    ("add", Form::ReduceScatter, Add),
    ("vectors", Form::AllReduce, Reduce),
    ("tma", Form::AllReduce, Reduce),
    ("bulk", Form::AllReduce, Reduce),
    ("switch", Form::AllReduce, Switch),
    ("vectors", Form::AllGather, Gather),
    ("vectors", Form::AllToAll, Deliver),
];

/// The transports of a form, in the order of their numbers.
fn transports(form: Form) -> impl Iterator<Item = (&'static str, Part)> {
    TRANSPORTS.iter().filter(move |(_, of, _)| *of == form).map(|(name, _, part)| (*name, *part))
}

/// The values that a parameter can have.
enum Values {
    /// The value is one of these.
    Of(&'static [u32]),
    /// From the first to the last.
    From(u32, u32),
    /// The number of a transport of the form, which the text names.
    Transport,
}

use Values::{From as Range, Of};

impl Values {
    fn read(&self, text: &str, form: Form) -> Option<u32> {
        let number = || text.parse().ok();
        match self {
            Of(values) => number().filter(|n| values.contains(n)),
            Range(min, max) => number().filter(|n| (*min..=*max).contains(n)),
            Values::Transport => {
                transports(form).position(|(name, _)| name == text).and_then(|n| n.try_into().ok())
            }
        }
    }

    fn text(&self, value: u32, form: Form) -> String {
        let named = || transports(form).nth(value as usize).map(|(name, _)| name.to_owned());
        match self {
            Values::Transport => named().unwrap_or_default(),
            _ => value.to_string(),
        }
    }

    /// Describes the expected values in words.
    fn expected(&self, form: Form) -> String {
        match self {
            Of(values) => values.iter().map(u32::to_string).collect::<Vec<_>>().join(", "),
            Range(min, max) => format!("{min} to {max}"),
            Values::Transport => transports(form).map(|(name, _)| name).collect::<Vec<_>>().join(", "),
        }
    }
}

/// A compile-time parameter of kernels: its name in the text, the kernels that have it, and its
/// values.
struct Parameter {
    name: &'static str,
    parts: &'static [Part],
    values: Values,
}

const ALL: &[Part] = &[Gather, Scatter, Add, Reduce, Switch, Deliver];
const SENT: &[Part] = &[Scatter, Add, Reduce, Switch, Deliver];
const SUMS: &[Part] = &[Scatter, Add, Reduce, Switch];
const STAGED: &[Part] = &[Scatter, Reduce];
const MIXED: &[Part] = &[Scatter, Reduce, Switch];
const PACED: &[Part] = &[Gather, Scatter, Add, Reduce, Deliver];

macro_rules! parameters {
    ($(#[doc = $about:literal] $field:ident = $name:literal, $parts:expr, $value:expr, $values:expr;)*) => {
        /// A value for each compile-time parameter of the kernels. As text it is
        /// `bn=256,stages=3,pace=6000`. Omitted parameters have the form's default.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct FusedPlan { $(#[doc = $about] pub $field: u32,)* }

        const PARAMETERS: &[Parameter] =
            &[$(Parameter { name: $name, parts: $parts, values: $values },)*];

        impl FusedPlan {
            fn values(&self) -> [u32; PARAMETERS.len()] {
                [$(self.$field),*]
            }

            fn fields(&mut self) -> [&mut u32; PARAMETERS.len()] {
                [$(&mut self.$field),*]
            }

            /// The default plan of a form.
            pub fn of(form: Form) -> FusedPlan {
                $(let $field: fn(Form) -> u32 = $value;)*
                FusedPlan { $($field: $field(form)),* }
            }
        }
    };
}

parameters! {
    /// Rows of a tile.
    bm = "BM", ALL, |_| 128, Of(&[128, 256]);
    /// Columns of a tile.
    bn = "BN", ALL, |_| 256, Of(&[64, 128, 192, 256]);
    /// Elements along K of a stage.
    bk = "BK", ALL, |_| 64, Of(&[32, 64, 128]);
    /// Stages of the pipeline that feeds the matrix instructions.
    stages = "STAGES", ALL, |form| if form.adds_up() { 3 } else { 4 }, Range(2, 8);
    /// CTAs of a cluster, whose tiles lie below each other.
    ctas = "CTAS", ALL, |_| 1, Of(&[1, 2]);
    /// Columns of a strip, the part of a tile that is moved at once.
    strip = "STRIP", ALL, |_| 64, Of(&[32, 64, 128]);
    /// Outgoing strips that shared memory holds for each half of a tile.
    outs = "OUTS", SENT, |_| 2, Range(1, 8);
    /// Strips of other PEs that shared memory holds for each half of a tile. With 0, they share `outs`.
    ins = "INS", STAGED, |_| 2, Range(0, 8);
    /// Blocks of tiles for other PEs that are computed before the first own tiles.
    lag = "LAG", MIXED, |_| 4, Range(0, 1024);
    /// Columns of a piece of A that is sent at once.
    piece = "PIECE", &[Gather], |_| 64, Of(&[32, 64, 128, 256, 512]);
    /// Cycles that a role waits after each half of a strip or a piece that it sends.
    pace = "PACE", PACED, |_| 0, Range(0, 1_000_000);
    /// The transport of sums: `vectors`, `tma`, `bulk`, `add` (in the owner's memory) or `switch`.
    send = "SEND", SUMS, |_| 0, Values::Transport;
}

impl FusedPlan {
    /// Parses a plan of a form, such as `bn=128,ctas=2,send=tma`.
    ///
    /// # Errors
    /// Fails for an unknown name or a wrong value.
    pub fn parse(text: &str, form: Form) -> Result<FusedPlan, String> {
        let mut plan = FusedPlan::of(form);
        let mut named = Vec::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=N"))?;
            let at = PARAMETERS.iter().position(|p| p.name.eq_ignore_ascii_case(name));
            let at = at.ok_or_else(|| plan.unknown(name, form))?;
            let values = &PARAMETERS[at].values;
            let expected = || format!("{name} is {}, not `{value}`", values.expected(form));
            *plan.fields()[at] = values.read(value, form).ok_or_else(expected)?;
            named.push((at, name));
        }
        // The transport determines the kernel, and can be the last word.
        match named.into_iter().find(|(at, _)| !PARAMETERS[*at].parts.contains(&plan.part(form))) {
            Some((_, name)) => Err(plan.unknown(name, form)),
            None => Ok(plan),
        }
    }

    fn unknown(&self, name: &str, form: Form) -> String {
        let known: Vec<_> = self.own(form).map(|(p, _)| p.name.to_ascii_lowercase()).collect();
        format!("there is no `{name}`: known are {}", known.join(", "))
    }

    /// The text that names the plan.
    pub fn text(&self, form: Form) -> String {
        let one =
            |(p, n): (&Parameter, u32)| format!("{}={}", p.name.to_ascii_lowercase(), p.values.text(n, form));
        self.own(form).map(one).collect::<Vec<_>>().join(",")
    }

    /// The kernel that the plan launches.
    pub(super) fn part(&self, form: Form) -> Part {
        let number = if form.adds_up() { self.send } else { 0 };
        transports(form).nth(number as usize).map_or(Gather, |(_, part)| part)
    }

    /// The parameters that the kernel has, with their values.
    fn own(&self, form: Form) -> impl Iterator<Item = (&'static Parameter, u32)> + use<> {
        let part = self.part(form);
        PARAMETERS.iter().zip(self.values()).filter(move |(p, _)| p.parts.contains(&part))
    }

    /// The part of the library that contains the kernel, and the values of its compile-time
    /// parameters.
    pub fn kernel(
        &self,
        form: Form,
        problem: &Problem,
        epilogue: &Epilogue,
        pes: u32,
    ) -> (&'static str, Vec<(String, Define)>) {
        let part = self.part(form);
        let mut all = self.defines(form, problem, pes);
        if part.rounds() {
            all.push(("PART".to_owned(), part_of(problem.out).into()));
        }
        all.extend(epilogue.defines(part, problem.out));
        (part.name(), all)
    }

    /// What [`kernel`](FusedPlan::kernel) has, for PEs with different numbers of rows: their order of tiles has the lag.
    pub(super) fn uneven_kernel(
        &self,
        form: Form,
        problem: &Problem,
        epilogue: &Epilogue,
        pes: u32,
    ) -> (&'static str, Vec<(String, Define)>) {
        let (equal, mut all) = self.kernel(form, problem, epilogue, pes);
        all.retain(|(name, _)| name != "LAG");
        (self.part(form).uneven_name().unwrap_or(equal), all)
    }

    /// Values of the kernel's compile-time parameters without an epilogue.
    fn defines(&self, form: Form, problem: &Problem, pes: u32) -> Vec<(String, Define)> {
        let part = self.part(form);
        let mut all: Vec<(String, Define)> = problem.defines().into();
        all.push(("P".to_owned(), Define::Int(pes.into())));
        // If there is only one transport, the kernel has no number for it.
        let own = self.own(form).filter(|(p, _)| part.stages() || !matches!(p.values, Values::Transport));
        all.extend(own.map(|(p, n)| (p.name.to_owned(), Define::Int(n.into()))));
        all
    }

    /// Bytes of shared memory of a CTA.
    pub fn shared_bytes(&self, form: Form, problem: &Problem) -> u64 {
        let [bm, bn, bk, stages, strip, outs, ins] =
            [self.bm, self.bn, self.bk, self.stages, self.strip, self.outs, self.ins].map(u64::from);
        let (out, part) = (u64::from(problem.out.bytes()), u64::from(part_of(problem.out).bytes()));
        let strips = match self.part(form) {
            Gather => 2 * out,
            Add | Switch | Deliver => outs * out,
            Scatter | Reduce => (outs + ins) * part + if out == part { 0 } else { outs * out },
        };
        stages * (bm + bn) * bk * u64::from(problem.dtype.bytes()) + bm * strip * strips + BARRIERS
    }

    /// Bytes of shared memory of a CTA for scales of blocks. Each row of a stage has one for all
    /// columns of a tile, or for each group of columns that lies in one block of each tile.
    pub(super) fn scale_bytes(&self, epilogue: &Epilogue) -> u64 {
        if epilogue.scales != Scales::Blocks {
            return 0;
        }
        let groups = if self.bn <= 128 { 1 } else { self.bn >> self.bn.trailing_zeros().min(7) };
        u64::from(self.bm * self.stages * groups) * 4
    }

    /// Checks that a problem can be computed with the plan.
    ///
    /// # Errors
    /// Fails with the limit that is exceeded (R0505).
    pub fn fits(&self, form: Form, problem: &Problem) -> Result<(), Error> {
        let name = || format!("the plan {}", self.text(form));
        let refused = self.refused(form, problem).map(|(what, help)| (format!("{} {what}", name()), help));
        refused.map_or(Ok(()), |(message, help)| Err(Error::new(error::GEMM, message).help(help)))
    }

    /// What the plan does wrong, and advice.
    fn refused(&self, form: Form, problem: &Problem) -> Option<(String, &'static str)> {
        let FusedPlan { bm, bn, bk, ctas, strip, .. } = *self;
        let (part, sums) = (self.part(form), bm * bn / THREADS);
        let row = bk * problem.dtype.bytes();
        let bytes = self.shared_bytes(form, problem);
        let columns = problem.b == Major::Column && !(bn / ctas).is_multiple_of(COLUMNS);
        let narrow = matches!(part, Add | Switch) && problem.out.bytes() == 1;
        let cases = [
            (
                !bn.is_multiple_of(strip),
                format!("has tiles of {bn} columns and strips of {strip}"),
                "choose a strip that divides bn",
            ),
            (
                row < 128,
                format!("has rows of {row} bytes in a stage"),
                "a row of a stage has 128 bytes or more: choose a larger bk",
            ),
            (
                sums > MAX_SUMS,
                format!("takes {sums} registers of a thread for sums, and {MAX_SUMS} is the most"),
                "choose smaller tiles",
            ),
            (
                columns,
                format!("loads {} rows of B at a time, and columns of B are contiguous", bn / ctas),
                "choose a multiple of 64 rows: a larger bn or fewer ctas",
            ),
            (
                narrow,
                format!("adds up in {}", problem.out),
                "sums of 8 bits are sent by vectors, tma or bulk",
            ),
            (
                bytes > MAX_SHARED,
                format!("takes {bytes} bytes of shared memory, and a CTA has {MAX_SHARED}"),
                "choose fewer stages, smaller tiles or fewer strips",
            ),
        ];
        cases.into_iter().find(|(fails, ..)| *fails).map(|(_, what, help)| (what, help))
    }
}

/// The choice between one launch and a product and a collective that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Choice {
    /// One launch, by a plan.
    Launch(FusedPlan),
    /// One launch of a [`Decode`](crate::gemm::Decode), which exchanges packets for an allreduce of
    /// few rows.
    Decode(DecodePlan),
    /// A [`Gemm`](crate::gemm::Gemm) before or after a collective of this crate.
    Sequence,
}

impl Choice {
    /// Parses `sequence` or a plan. A plan that begins with `decode=1` is for the kernel for few
    /// rows.
    ///
    /// # Errors
    /// Fails where [`FusedPlan::parse`] and [`DecodePlan::parse`] fail, and if packets are
    /// requested for another form than an allreduce.
    pub fn parse(text: &str, form: Form) -> Result<Choice, String> {
        match (text, text.strip_prefix("decode=1")) {
            ("sequence", _) => Ok(Choice::Sequence),
            (_, Some(_)) if form != Form::AllReduce => {
                Err("decode=1 is a plan of gemm-allreduce alone".to_owned())
            }
            (_, Some(rest)) => DecodePlan::parse(rest).map(Choice::Decode),
            (_, None) => FusedPlan::parse(text, form).map(Choice::Launch),
        }
    }

    /// The text that names the choice.
    pub fn text(&self, form: Form) -> String {
        match self {
            Choice::Launch(plan) => plan.text(form),
            Choice::Decode(plan) => plan.to_string(),
            Choice::Sequence => "sequence".to_owned(),
        }
    }

    /// Whether D must be symmetric, since other PEs write to it.
    pub fn is_result_symmetric(&self, form: Form) -> bool {
        match self {
            Choice::Launch(plan) => plan.part(form).writes_to_others(),
            Choice::Decode(_) => false,
            Choice::Sequence => matches!(form, Form::AllReduce | Form::AllToAll),
        }
    }

    /// Checks that a problem can be computed with the choice.
    ///
    /// # Errors
    /// Fails if it cannot, with the reason (R0505).
    pub fn fits(&self, form: Form, problem: &Problem) -> Result<(), Error> {
        match self {
            Choice::Launch(plan) => plan.fits(form, problem),
            Choice::Decode(_) => DecodePlan::takes(problem),
            Choice::Sequence => Ok(()),
        }
    }
}

impl From<FusedPlan> for Choice {
    fn from(plan: FusedPlan) -> Choice {
        Choice::Launch(plan)
    }
}

impl From<DecodePlan> for Choice {
    fn from(plan: DecodePlan) -> Choice {
        Choice::Decode(plan)
    }
}
