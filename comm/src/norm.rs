//! Allreduce, residual add and RMSNorm in one call.
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
use weft::runtime::{DeviceTensor, IntoLayout, SymmetricTensor};
use weft::{Define, KernelFile, Options};

/// The operation after a row-parallel layer: it adds the ranks' partial sums, adds the result to the
/// residual, and normalises the residual. For few tokens it is one kernel, which sends packets and
/// waits for no barrier. For many tokens it is an allreduce followed by a kernel. With
/// [`Sums::Deterministic`], all numbers of tokens use kernels with one order of sums and squares, so
/// a token's results do not depend on the other tokens of its batch.
pub struct AddRmsNorm {
    comm: Arc<Comm>,
    selector: Selector,
    /// The shape on which plans depend, without the number of tokens.
    shape: Shape,
    hidden: usize,
    dtype: DType,
    max_tokens: usize,
    /// The workspaces for packets, by variant.
    workspaces: BTreeMap<Variant, Packets>,
    /// The sums of many tokens.
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

/// The addresses of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operands {
    /// The address of this rank's partial sums, tokens x hidden elements, which are read.
    pub input: u64,
    /// The residual, of tokens x hidden elements. The sum of all ranks is added to it.
    pub residual: u64,
    /// The weights of the norm, of hidden elements, which are read.
    pub weight: u64,
    /// The address to which the normalised rows are written, tokens x hidden elements.
    pub out: u64,
}

/// The maximum number of launches that are kept.
const MAX_READY: usize = 1024;

impl AddRmsNorm {
    /// Prepares calls with rows of `hidden` elements and at most `max_tokens` tokens. *Collective.*
    ///
    /// # Errors
    /// Fails if there is no memory for the workspaces (R0302), or with a compile error for a type that is neither
    /// bf16 nor f16.
    pub fn new(
        comm: &Arc<Comm>,
        hidden: usize,
        dtype: DType,
        max_tokens: usize,
    ) -> Result<AddRmsNorm, Error> {
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
            form: Form::plain(dtype),
            sums: comm.collectives.sums(),
        };
        for tokens in planned(max_tokens, shape.sums) {
            let plan = selector.plan(&Shape { tokens, ..shape });
            if !plan.kernel.packets() || workspaces.contains_key(&plan.variant()) {
                continue;
            }
            let size = Workspace::of(&plan, row_bytes, comm.size());
            let packets = size.packets.iter().map(|n| world.zeros(*n)).collect::<Result<_, _>>()?;
            let epoch = DeviceTensor::zeros(size.epoch, stream)?;
            workspaces.insert(plan.variant(), Packets { packets, epoch });
        }
        let limit = max_tokens.max(1) * hidden;
        let buffer = world.buffer(limit * dtype.bytes() as usize)?;
        let sums = AnyTensor::new(buffer, dtype, limit.into_layout()?)?;
        let norm = AnyDeviceTensor::alloc(world.device(), dtype, [1, 1].into_layout()?)?;
        let unused = (DeviceTensor::zeros(1, stream)?, norm);
        // No rank sends before all memory is zero.
        world.barrier()?;
        let (comm, kernels, ready) = (comm.clone(), Mutex::default(), Mutex::default());
        Ok(AddRmsNorm {
            comm,
            selector,
            shape,
            hidden,
            dtype,
            max_tokens,
            workspaces,
            sums,
            unused,
            kernels,
            ready,
        })
    }

    /// Computes `residual += sum over ranks of input`, and then `out = residual /
    /// sqrt(mean(residual^2) + eps) * weight`, row by row. Sums are computed in f32 and rounded
    /// once, before the residual is added.
    ///
    /// # Errors
    /// Fails for more tokens than the maximum ([`Error::TooLarge`]), or where [`Comm::all_reduce`]
    /// fails.
    ///
    /// # Safety
    /// `stream` must be a stream of the rank's device, or null for its default stream. The operands
    /// must have this object's type and the sizes that they name, and the device must be able to
    /// access them until the stream has passed the call. Only `input` and `out` can overlap. The
    /// kernel before the call on the stream must not write `weight`, because it is read while that
    /// kernel can still be running.
    pub unsafe fn run(
        &self,
        stream: RawStream,
        tokens: usize,
        operands: &Operands,
        eps: f32,
    ) -> Result<(), Error> {
        let width = self.hidden * self.dtype.bytes() as usize;
        if tokens > self.max_tokens {
            return Err(Error::TooLarge { bytes: tokens * width, limit: self.max_tokens * width });
        }
        if tokens == 0 {
            return Ok(());
        }
        // SAFETY: the caller vouches for the stream.
        let stream = unsafe { self.comm.stream(stream)? };
        let all = tokens * self.hidden;
        // SAFETY: the caller vouches for the addresses.
        let side = |address, n| unsafe { self.comm.side(address, n, self.dtype) };
        let (input, residual) = (side(operands.input, all)?, side(operands.residual, all)?);
        let (weight, out) = (side(operands.weight, self.hidden)?, side(operands.out, all)?);
        let plan = self.packets(tokens)?;
        let sums = match plan {
            Some(_) => None,
            None => {
                let buffer = self.sums.buffer().clone();
                let sums =
                    CallOperand::Symmetric(AnyTensor::view(buffer, 0, self.dtype, all.into_layout()?)?);
                let call = Call::new(Collective::AllReduce, &input, Some(&sums));
                self.comm.collectives.run(&call, &stream)?;
                Some(sums)
            }
        };
        let x = sums.as_ref().unwrap_or(&input);
        // A kernel that distributes rows has a bias before eps.
        let place = if plan.is_some_and(|plan| plan.kernel.spreads()) { 6 } else { 5 };
        let sides = [(1, x), (2, &residual), (3, &weight), (place, &out)];
        let moving = || sides.iter().filter(|(_, side)| !side.is_symmetric());
        let others: Vec<_> = moving().map(|(place, side)| (*place, side.argument(&stream))).collect();
        // A launch that is bound to an address is not kept.
        let bound =
            sides[1..].iter().any(|(_, side)| side.is_symmetric()) || plan.is_some() && input.is_symmetric();
        let (key, kept) = ((tokens, eps.to_bits()), || lock(&self.ready));
        if let Some(ready) = kept().get(&key).cloned().filter(|ready| !bound && ready.is_current()) {
            return Ok(ready.launch(&stream, &others)?);
        }
        let ready =
            Arc::new(self.arranged(plan.as_ref(), tokens, eps, sides.map(|(_, side)| side), &stream)?);
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

    /// The launch for a number of tokens, with operands in the order x, residual, weight, out.
    fn arranged(
        &self,
        plan: Option<&Plan>,
        tokens: usize,
        eps: f32,
        [x, residual, weight, out]: [&CallOperand; 4],
        stream: &Stream,
    ) -> Result<Prepared, Error> {
        let (n, (scale, norm), team) = (tokens as i64, &self.unused, self.comm.world.team());
        let mut arguments: Vec<&dyn AsArgument> = vec![&n, x, residual, weight];
        if plan.is_some_and(|plan| plan.kernel.spreads()) {
            arguments.push(norm);
        }
        let after: [&dyn AsArgument; 4] = [&eps, out, scale, norm];
        arguments.extend(after);
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

/// The numbers of tokens whose plans get workspaces. With ordinary sums, a plan that has none is
/// replaced by an allreduce and a kernel. That would be another order of squares, so with
/// deterministic sums every plan has a workspace.
fn planned(max_tokens: usize, sums: Sums) -> Vec<u32> {
    match sums {
        Sums::Deterministic => (1..=u32::try_from(max_tokens.max(1)).unwrap_or(u32::MAX)).collect(),
        Sums::Ordinary | Sums::Quantised => (0..16).map(|power| 1 << power).collect(),
    }
}

impl fmt::Debug for AddRmsNorm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AddRmsNorm({} x {} of {})", self.max_tokens, self.hidden, self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With deterministic sums, every number of tokens has a plan with a workspace.
    #[test]
    fn deterministic_sums_plan_for_every_number_of_tokens() {
        assert_eq!(planned(5, Sums::Deterministic), [1, 2, 3, 4, 5]);
        assert_eq!(planned(5, Sums::Ordinary).len(), 16);
    }
}
