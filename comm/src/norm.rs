//! Allreduce, residual add and a norm in one call.
#![allow(unsafe_code, reason = "callers vouch for streams and addresses")]

use crate::comm::{CallOperand, lock};
use crate::{Comm, DType, Error, RawStream};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use weft::collective::{Call, Collective, Sums};
use weft::fused::tuning::Selector;
use weft::fused::{Form, Fused, Plan, Shape, Variant, Workspace};
use weft::gpu::{GpuError, Grid, Kernel, target};
use weft::runtime::cuda::{AnyDeviceTensor, Stream};
use weft::runtime::launch::{AsArgument, Prepared};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{self, DeviceTensor, IntoLayout, SymmetricTensor, error};
use weft::{Define, KernelFile, Options};

/// The operation after a row-parallel layer: it adds the ranks' partial sums, adds the result to
/// the residual, and normalises the residual. The norm is RMSNorm or LayerNorm, and results can be
/// quantised, as [`with_form`](AddRmsNorm::with_form) describes.
///
/// For few tokens it is one kernel, which sends packets and waits for no barrier. For many tokens it
/// is an allreduce followed by a kernel, except for LayerNorm and for scales of groups, which are one
/// kernel for all numbers of tokens. With [`Sums::Deterministic`], all numbers of tokens use kernels
/// with one order of sums and squares, so a token's results do not depend on the other tokens of its
/// batch. With [`Sums::Quantised`], only the allreduce of many tokens can send elements in 8 bits.
pub struct AddRmsNorm {
    comm: Arc<Comm>,
    selector: Selector,
    /// The shape on which plans depend, without the number of tokens.
    shape: Shape,
    hidden: usize,
    max_tokens: usize,
    /// The workspaces for packets, by variant.
    workspaces: BTreeMap<Variant, Packets>,
    /// The sums of many tokens, for the kernel after an allreduce.
    sums: AnyTensor,
    /// The arguments for a kernel's unused parameters.
    unused: (DeviceTensor<f32>, AnyDeviceTensor),
    /// The kernels, by variant. The kernel after an allreduce has none.
    kernels: Mutex<BTreeMap<Option<Variant>, Arc<Kernel>>>,
    /// The prepared launches, by the number of tokens and the bits of eps.
    ready: Mutex<BTreeMap<(usize, u32), Arc<Prepared>>>,
}

struct Packets {
    packets: Vec<SymmetricTensor<u64>>,
    epoch: DeviceTensor<u32>,
}

/// The addresses of a call. Operands that the form does not have are `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Operands {
    /// The address of this rank's partial sums, tokens x hidden elements, which are read.
    pub input: u64,
    /// The residual, of tokens x hidden elements. The sum of all ranks is added to it.
    pub residual: u64,
    /// The weights of the norm, of hidden elements, which are read.
    pub weight: u64,
    /// The address to which the results are written, tokens x hidden elements of the form's type.
    pub out: u64,
    /// The bias of LayerNorm, of hidden elements, which is read.
    pub bias: Option<u64>,
    /// The scales in f32 of results in e4m3. A single scale for all results is read. Scales of
    /// tokens (one for each) or of groups (tokens x hidden / group) are written, the latter in the
    /// form's `columns` if it has them: [`Form::scale_elements`] has their size.
    pub scale: Option<u64>,
    /// The address to which a form with `both` writes the norm, tokens x hidden elements.
    pub norm: Option<u64>,
}

impl Operands {
    /// Whether a call has all operands of its form, and no others.
    fn check(&self, form: &Form) -> Result<(), runtime::Error> {
        let has = [
            ("bias", self.bias, form.layer, "LayerNorm reads it"),
            ("scale", self.scale, form.out != form.dtype, "results in e4m3 have scales"),
            ("norm", self.norm, form.both, "the form writes the norm beside the results"),
        ];
        let other = has.into_iter().find(|(_, given, wanted, _)| given.is_some() != *wanted);
        let Some((name, given, _, why)) = other else { return Ok(()) };
        let (what, help) = match given {
            None => (format!("`{name}` is missing, but {why}"), "pass its address in Operands"),
            Some(_) => (
                format!("`{name}` is given, but the form does not have it"),
                "pass None, or make the call for a form that has it",
            ),
        };
        Err(runtime::Error::new(error::NORM, what).help(help))
    }
}

/// The maximum number of launches that are kept.
const MAX_READY: usize = 1024;

impl AddRmsNorm {
    /// Prepares calls of RMSNorm whose results have the type of the hidden states, bf16 or f16,
    /// with rows of `hidden` elements and at most `max_tokens` tokens. This call is *collective*.
    ///
    /// # Errors
    /// Fails where [`with_form`](AddRmsNorm::with_form) fails.
    pub fn new(
        comm: &Arc<Comm>,
        hidden: usize,
        dtype: DType,
        max_tokens: usize,
    ) -> Result<AddRmsNorm, Error> {
        AddRmsNorm::with_form(comm, hidden, Form::plain(dtype), max_tokens)
    }

    /// Prepares calls of a form: RMSNorm or LayerNorm, with results in the type of the hidden
    /// states or in e4m3. Quantised results have one scale for all, which the caller gives, or a
    /// scale for each token or each group of elements, which a call computes. All ranks pass the
    /// same form, row and number of tokens. This call is *collective*.
    ///
    /// ```no_run
    /// # use std::sync::Arc;
    /// # use warpweft_comm::{AddRmsNorm, Comm, DType, Error, NormForm, Operands, RawStream};
    /// # fn example(comm: &Arc<Comm>, stream: RawStream, of: fn(&str) -> u64) -> Result<(), Error> {
    /// let form = NormForm { out: DType::E4M3, group: 128, ..NormForm::plain(DType::BF16) };
    /// let norm = AddRmsNorm::with_form(comm, 7168, form, 256)?;
    /// let operands = Operands {
    ///     input: of("input"),
    ///     residual: of("residual"),
    ///     weight: of("weight"),
    ///     out: of("quantised"),
    ///     scale: Some(of("scales")), // tokens x 56 elements of f32
    ///     ..Operands::default()
    /// };
    /// // SAFETY: the tensors have these types and sizes.
    /// unsafe { norm.run(stream, 16, &operands, 1e-6) }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails for a form that the kernels do not compute (R0507), such as groups that do not divide
    /// the row. Fails on all ranks if they pass different forms (R0507), and if there is no memory for
    /// the workspaces (R0302).
    pub fn with_form(
        comm: &Arc<Comm>,
        hidden: usize,
        form: Form,
        max_tokens: usize,
    ) -> Result<AddRmsNorm, Error> {
        // Ranks compare their forms before each checks its own, so that none waits for one that fails.
        form.agree(&comm.world, hidden, max_tokens)?;
        form.check(hidden)?;
        let dtype = form.dtype;
        let (world, row_bytes) = (&comm.world, hidden * dtype.bytes() as usize);
        let stream = world.stream();
        let links = *comm.collectives.selector().links();
        let selector = Selector::new(world.device(), comm.size(), false, links)?;
        // All ranks select plans by the table of the first rank.
        let tables = world.all_gather_host(&selector.to_bytes())?;
        let selector = selector.with_bytes(tables.first().map_or(&[], |t| t));
        let mut workspaces = BTreeMap::new();
        let shape = Shape {
            tokens: 1,
            row_bytes,
            n_pes: comm.size(),
            multicast: false,
            form,
            sums: comm.collectives.sums(),
        };
        for tokens in planned(max_tokens, &shape) {
            let plan = selector.plan(&Shape { tokens, ..shape });
            if !plan.kernel.packets() || workspaces.contains_key(&plan.variant()) {
                continue;
            }
            let size = Workspace::of(&plan, row_bytes, comm.size());
            let packets = size.packets.iter().map(|n| world.zeros(*n)).collect::<Result<_, _>>()?;
            let epoch = DeviceTensor::zeros(size.epoch, stream)?;
            workspaces.insert(plan.variant(), Packets { packets, epoch });
        }
        let limit = if form.reads_whole_rows() { max_tokens.max(1) * hidden } else { hidden };
        let buffer = world.buffer(limit * dtype.bytes() as usize)?;
        let sums = AnyTensor::new(buffer, dtype, limit.into_layout()?)?;
        let norm = AnyDeviceTensor::alloc(world.device(), dtype, [1, 1].into_layout()?)?;
        let unused = (DeviceTensor::zeros(1, stream)?, norm);
        // No rank sends before all memory is zero.
        world.barrier()?;
        let (comm, kernels, ready) = (comm.clone(), Mutex::default(), Mutex::default());
        Ok(AddRmsNorm { comm, selector, shape, hidden, max_tokens, workspaces, sums, unused, kernels, ready })
    }

    /// The form of the calls.
    pub fn form(&self) -> &Form {
        &self.shape.form
    }

    /// Computes `residual += sum over ranks of input`, and then the norm of each row of the
    /// residual: `residual / sqrt(mean(residual^2) + eps) * weight` for RMSNorm. LayerNorm subtracts
    /// the mean of the row first, and adds `bias` at last. Sums are computed in f32 and rounded
    /// once, before the residual is added. The norm is rounded before it is quantised.
    ///
    /// # Errors
    /// Fails for more tokens than the maximum ([`Error::TooLarge`]), for an operand that is missing
    /// or that the form does not have (R0507), or where [`Comm::all_reduce`] fails.
    ///
    /// # Safety
    /// `stream` must be a stream of the rank's device, or null for its default stream. The operands
    /// must have the types of the form and the sizes that they name, and the device must be able to
    /// access them until the stream has passed the call. Only `input` and `out` can overlap, and
    /// only if they have the same type. The kernel before the call on the stream must not write
    /// `weight`, `bias` or a single scale, because they are read while that kernel can still be
    /// running.
    pub unsafe fn run(
        &self,
        stream: RawStream,
        tokens: usize,
        operands: &Operands,
        eps: f32,
    ) -> Result<(), Error> {
        let form = &self.shape.form;
        let width = self.hidden * form.dtype.bytes() as usize;
        if tokens > self.max_tokens {
            return Err(Error::TooLarge { bytes: tokens * width, limit: self.max_tokens * width });
        }
        operands.check(form)?;
        if tokens == 0 {
            return Ok(());
        }
        // SAFETY: the caller vouches for the stream and the addresses.
        let (stream, mut sides) = unsafe { (self.comm.stream(stream)?, self.sides(tokens, operands)?) };
        let plan = self.packets(tokens)?;
        if plan.is_none() {
            sides[0] = Some(self.summed(&sides[0], tokens, &stream)?);
        }
        let placed = places(plan.as_ref()).into_iter().zip(&sides);
        let placed = placed.filter_map(|(place, side)| side.as_ref().map(|side| (place, side)));
        let moving = placed.filter(|(_, side)| !side.is_symmetric());
        let others: Vec<_> = moving.map(|(place, side)| (place, side.argument(&stream))).collect();
        // A launch that is bound to an address is not kept. The sums have the same address each time.
        let given = &sides[usize::from(plan.is_none())..];
        let bound = given.iter().flatten().any(CallOperand::is_symmetric);
        let (key, kept) = ((tokens, eps.to_bits()), || lock(&self.ready));
        if let Some(ready) = kept().get(&key).cloned().filter(|ready| !bound && ready.is_current()) {
            return Ok(ready.launch(&stream, &others)?);
        }
        let ready = Arc::new(self.arranged(plan.as_ref(), tokens, eps, &sides, &stream)?);
        ready.launch(&stream, &others)?;
        if !bound {
            let mut all = kept();
            if all.len() >= MAX_READY {
                all.clear();
            }
            all.insert(key, ready);
        }
        Ok(())
    }

    /// The operands of a call, of which x is the caller's input.
    ///
    /// # Safety
    /// The conditions on operands are those of [`run`](AddRmsNorm::run).
    unsafe fn sides(&self, tokens: usize, operands: &Operands) -> Result<Sides, Error> {
        let (form, hidden) = (&self.shape.form, self.hidden);
        let Operands { input, residual, weight, out, bias, scale, norm } = *operands;
        let (own, all, scales) = (form.dtype, tokens * hidden, form.scale_elements(tokens, hidden).max(1));
        let given = [
            (Some(input), all, own),
            (Some(residual), all, own),
            (Some(weight), hidden, own),
            (bias, hidden, own),
            (Some(out), all, form.out),
            (scale, scales, DType::F32),
            (norm, all, own),
        ];
        let mut sides = Sides::default();
        for (side, (address, n, dtype)) in sides.iter_mut().zip(given) {
            // SAFETY: the caller vouches for the addresses.
            *side = address.map(|address| unsafe { self.comm.side(address, n, dtype) }).transpose()?;
        }
        Ok(sides)
    }

    /// The sums of all ranks, which an allreduce puts on the stream.
    fn summed(
        &self,
        input: &Option<CallOperand>,
        tokens: usize,
        stream: &Stream,
    ) -> Result<CallOperand, Error> {
        let (n, buffer) = (tokens * self.hidden, self.sums.buffer().clone());
        let sums = AnyTensor::view(buffer, 0, self.shape.form.dtype, n.into_layout()?)?;
        let sums = CallOperand::Symmetric(sums);
        if let Some(input) = input {
            let call = Call::new(Collective::AllReduce, input, Some(&sums));
            self.comm.collectives.run(&call, stream)?;
        }
        Ok(sums)
    }

    /// The launch for a number of tokens.
    fn arranged(
        &self,
        plan: Option<&Plan>,
        tokens: usize,
        eps: f32,
        sides: &Sides,
        stream: &Stream,
    ) -> Result<Prepared, Error> {
        let (n, team) = (tokens as i64, self.comm.world.team());
        let (scale, none): (&dyn AsArgument, &dyn AsArgument) = (&self.unused.0, &self.unused.1);
        let unused = [none, none, none, none, none, scale, none];
        let pairs = sides.iter().zip(unused);
        let given: Vec<_> = pairs.map(|(side, unused)| either(side.as_ref(), unused)).collect();
        let mut arguments: Vec<&dyn AsArgument> = vec![&n];
        arguments.extend(given[..3].iter().copied());
        if spreads(plan) {
            arguments.push(given[3]);
        }
        arguments.push(&eps);
        arguments.extend(given[4..].iter().copied());
        let ctas = match plan {
            Some(plan) => {
                let own = &self.workspaces[&plan.variant()];
                arguments.extend(own.packets.iter().map(|p| p as &dyn AsArgument));
                let last: [&dyn AsArgument; 2] = [&own.epoch, &team];
                arguments.extend(last);
                plan.ctas
            }
            None => (tokens as u32).min(self.comm.collectives.max_ctas()),
        };
        let kernel = self.kernel(plan)?;
        Ok(kernel.prepared(stream, Grid::of(ctas), arguments)?)
    }

    /// Compiles the kernel for a call with `tokens` tokens. Call it before a capture.
    ///
    /// # Errors
    /// Fails where [`run`](AddRmsNorm::run) fails.
    pub fn prepare(&self, tokens: usize) -> Result<(), Error> {
        self.kernel(self.packets(tokens)?.as_ref()).map(drop)
    }

    /// The plan with packets, if they are likely to be the fastest.
    fn packets(&self, tokens: usize) -> Result<Option<Plan>, Error> {
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        let plan = self.selector.plan(&Shape { tokens, ..self.shape });
        Ok(self.workspaces.contains_key(&plan.variant()).then_some(plan))
    }

    fn kernel(&self, plan: Option<&Plan>) -> Result<Arc<Kernel>, Error> {
        let variant = plan.map(Plan::variant);
        if let Some(kernel) = lock(&self.kernels).get(&variant) {
            return Ok(kernel.clone());
        }
        let form = self.shape.form;
        let (name, defines): (_, Vec<(&str, Define)>) = match plan {
            Some(plan) => (plan.kernel.kernel(), plan.defines(form, self.hidden, self.comm.size())),
            None => ("add_rms_norm", form.defines(self.hidden).to_vec()),
        };
        let (file, text) = plan.map_or(("allreduce_rms_norm.weft", Fused::TEXT), |plan| plan.kernel.file());
        let mut options = Options::new(target(self.comm.world.device())?);
        options.kernel = Some(name.into());
        options.defines = defines.into_iter().map(|(n, d)| (n.to_owned(), d)).collect();
        let file = KernelFile::parse(file, text).map_err(GpuError::from)?;
        let kernel = Arc::new(Kernel::with(&self.comm.world, file, options)?);
        Ok(lock(&self.kernels).entry(variant).or_insert(kernel).clone())
    }
}

/// The operands of a launch: x, residual, weight, bias, out, scale and norm. The form does not have
/// those that are `None`.
type Sides = [Option<CallOperand>; 7];

/// The places of the operands among the arguments of the plan's kernel. Only a kernel that spreads
/// rows has a bias, which comes before eps.
fn places(plan: Option<&Plan>) -> [usize; 7] {
    let out = if spreads(plan) { 6 } else { 5 };
    [1, 2, 3, 4, out, out + 1, out + 2]
}

/// An operand, or the argument for the parameter that the kernel does not use.
fn either<'a>(side: Option<&'a CallOperand>, unused: &'a dyn AsArgument) -> &'a dyn AsArgument {
    side.map_or(unused, |side| side)
}

fn spreads(plan: Option<&Plan>) -> bool {
    plan.is_some_and(|plan| plan.kernel.spreads())
}

/// The numbers of tokens whose plans get workspaces. With ordinary sums, a plan that has none is
/// replaced by an allreduce and a kernel. That kernel computes only forms of whole rows. It would
/// also be another order of squares. So for other forms and for deterministic sums, every plan has
/// a workspace.
fn planned(max_tokens: usize, shape: &Shape) -> Vec<u32> {
    let all = shape.sums == Sums::Deterministic || !shape.form.reads_whole_rows();
    match all {
        true => (1..=u32::try_from(max_tokens.max(1)).unwrap_or(u32::MAX)).collect(),
        false => (0..16).map(|power| 1 << power).collect(),
    }
}

impl fmt::Debug for AddRmsNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Form { dtype, out, .. } = self.shape.form;
        write!(f, "AddRmsNorm({} x {} of {dtype} to {out})", self.max_tokens, self.hidden)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Form = Form::plain(DType::BF16);
    const E4M3: Form = Form { out: DType::E4M3, ..PLAIN };

    /// With deterministic sums, and for forms without a kernel after the allreduce, every number of
    /// tokens has a plan with a workspace.
    #[test]
    fn plans_cover_every_number_of_tokens() {
        let of = |form, sums| {
            let shape = Shape { tokens: 1, row_bytes: 1024, n_pes: 2, multicast: false, form, sums };
            planned(5, &shape)
        };
        assert_eq!(of(PLAIN, Sums::Deterministic), [1, 2, 3, 4, 5]);
        assert_eq!(of(PLAIN, Sums::Ordinary).len(), 16);
        assert_eq!(of(Form { per_token: true, ..E4M3 }, Sums::Quantised).len(), 16);
        for sums in [Sums::Deterministic, Sums::Ordinary, Sums::Quantised] {
            assert_eq!(of(Form { layer: true, ..PLAIN }, sums), [1, 2, 3, 4, 5]);
            assert_eq!(of(Form { group: 128, ..E4M3 }, sums), [1, 2, 3, 4, 5]);
        }
    }

    /// A call has exactly the operands of its form.
    #[test]
    fn operands_are_those_of_the_form() {
        let given = Operands { input: 16, residual: 32, weight: 48, out: 64, ..Operands::default() };
        let said = |form: Form, given: Operands| given.check(&form).map_err(|e| e.to_string());
        let (bias, scale, norm) = (Some(80), Some(96), Some(112));
        let layer = Form { layer: true, ..PLAIN };
        let both = Form { per_token: true, both: true, ..E4M3 };
        assert_eq!(said(PLAIN, given), Ok(()));
        assert_eq!(said(layer, Operands { bias, ..given }), Ok(()));
        assert_eq!(said(E4M3, Operands { scale, ..given }), Ok(()));
        assert_eq!(said(both, Operands { scale, norm, ..given }), Ok(()));
        assert_eq!(said(Form { layer: true, ..both }, Operands { bias, scale, norm, ..given }), Ok(()));
        let wrong = [
            (layer, given, "`bias` is missing, but LayerNorm reads it"),
            (E4M3, given, "`scale` is missing"),
            (both, Operands { scale, ..given }, "`norm` is missing"),
            (PLAIN, Operands { bias, ..given }, "`bias` is given, but the form does not have it"),
            (layer, Operands { bias, scale, ..given }, "`scale` is given"),
            (E4M3, Operands { scale, norm, ..given }, "`norm` is given"),
        ];
        for (form, given, why) in wrong {
            let e = said(form, given).unwrap_err();
            assert!(e.contains("R0507") && e.contains(why) && e.contains("help: pass"), "{e}");
        }
    }
}
