//! A user's kernel from a file, measured in the same run as those of the library.

use super::Placement;
use super::measure::Result;
use weft::collective::{Collective, Counts};
use weft::gpu::{GpuError, Grid, Kernel, target};
use weft::{KernelFile, Options};
use weft_lang::elaborate::Define;
use weft_runtime::launch::{AsArgument, Lowering};
use weft_runtime::{Barrier, Element, Stream, SymmetricTensor, Team, World};

/// A kernel from a file that is measured as a collective. It takes `x`, `out` unless it works in
/// place, and optionally a barrier and a team. Its compile-time parameters are `T`, the element
/// type, and `N`, the number of elements of a PE's part. The larger of `x` and `out` has a row of
/// `N` elements for each PE if the collective divides it.
#[derive(Clone, PartialEq, Debug)]
pub struct Own {
    name: String,
    text: String,
    /// The names and kinds of its parameters.
    parameters: Vec<(String, String)>,
}

impl Own {
    /// Reads the only kernel of a text. `name` is its name in the table.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a kernel file, or if the kernel has other parameters.
    pub fn new(name: &str, text: &str) -> std::result::Result<Own, String> {
        let file = KernelFile::parse(name, text).map_err(|e| e.to_string())?;
        let [head] = &file.heads()[..] else {
            return Err(format!("expected one kernel to measure, but {name} has {}", file.heads().len()));
        };
        let parameters: Vec<_> = head.params.iter().map(|p| (p.name.to_string(), p.ty.to_string())).collect();
        let known = |(name, kind): &(String, String)| match &**kind {
            "barrier" | "team" => true,
            "symm" | "global" => name == "x" || name == "out",
            _ => false,
        };
        if let Some((parameter, kind)) = parameters.iter().find(|p| !known(p)) {
            return Err(format!(
                "{name} has the parameter `{parameter}: {kind}`: expected only tensors x and out, a barrier and a team"
            ));
        }
        match parameters.iter().any(|(name, _)| name == "x") {
            true => Ok(Own { name: name.into(), text: text.into(), parameters }),
            false => Err(format!("{name} has no tensor parameter `x`")),
        }
    }

    /// The name in the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The placements of its results.
    pub fn places(&self) -> &'static [Placement] {
        match self.parameters.iter().any(|(name, _)| name == "out") {
            true => &[Placement::OutOfPlace],
            false => &[Placement::InPlace],
        }
    }
}

/// The kernel compiled for a size, with its operands.
pub(super) struct Compiled<'a, T> {
    own: &'a Own,
    kernel: Kernel,
    ctas: u32,
    operands: [SymmetricTensor<T>; 2],
    sync: &'a Barrier,
    team: &'a Team,
}

impl<'a, T: Element> Compiled<'a, T> {
    /// Compiles the kernel for `ctas` CTAs. By default, each thread handles 16 bytes, and the
    /// barrier limits the number of CTAs.
    pub fn new(
        (world, team, sync): (&World, &'a Team, &'a Barrier),
        (own, lowering, ctas): (&'a Own, Lowering, Option<u32>),
        (collective, counts): (Collective, &Counts),
        (x, out): (SymmetricTensor<T>, SymmetricTensor<T>),
    ) -> Result<Compiled<'a, T>> {
        let mut options = Options::new(target(world.device())?);
        options.lowering = lowering.into();
        options.defines.insert("N".into(), Define::Int(counts.count as i64));
        options.defines.insert("T".into(), T::DTYPE.into());
        let file = KernelFile::parse(&own.name, &own.text).map_err(GpuError::from)?;
        let kernel = Kernel::with(world, file, options)?;
        let threads: u64 = kernel.info()?.block.iter().map(|n| u64::from(*n)).product();
        let wanted = counts.bytes.div_ceil(threads * 16).max(1);
        let max = sync.ctas().min(kernel.max_ctas()?);
        let ctas = ctas.unwrap_or(u32::try_from(wanted).unwrap_or(max)).min(max);
        let [give, get] = collective.shapes(counts, world.n_pes());
        let shaped = |t: SymmetricTensor<T>, shape: &[usize]| {
            SymmetricTensor::view(t.buffer().clone(), t.offset(), shape)
        };
        let operands = [shaped(x, &give)?, shaped(out, &get)?];
        Ok(Compiled { own, kernel, ctas, operands, sync, team })
    }

    /// The number of CTAs of a launch.
    pub fn ctas(&self) -> u32 {
        self.ctas
    }

    /// Puts a call on a stream.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let [x, out] = &self.operands;
        let argument = |(name, kind): &(String, String)| -> &dyn AsArgument {
            match (&**kind, &**name) {
                ("barrier", _) => self.sync,
                ("team", _) => self.team,
                (_, "x") => x,
                _ => out,
            }
        };
        let arguments: Vec<_> = self.own.parameters.iter().map(argument).collect();
        Ok(self.kernel.launch(stream, Grid::of(self.ctas), arguments)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_can_be_measured() {
        let own = |text| Own::new("k.weft", text).unwrap().places();
        assert_eq!(own(include_str!("../../examples/allreduce_one_shot.weft")), [Placement::OutOfPlace]);
        assert_eq!(own(include_str!("../../examples/allreduce_two_shot.weft")), [Placement::InPlace]);
        assert_eq!(own(include_str!("../../examples/all_gather.weft")), [Placement::OutOfPlace]);
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        let why = |text: &str| Own::new("k.weft", text).unwrap_err();
        assert!(why("kernel k(").contains("E00"), "{}", why("kernel k("));
        assert!(why("kernel a() block(1) {} kernel b() block(1) {}").contains("has 2"));
        assert!(why("kernel a(x: symm<f32, (4):(1)>, n: i32) block(1) {}").contains("`n: i32`"));
        assert!(why("kernel a(y: symm<f32, (4):(1)>) block(1) {}").contains("`y: symm`"));
        assert!(why("kernel a(team: team) block(1) {}").contains("no tensor parameter `x`"));
    }
}
