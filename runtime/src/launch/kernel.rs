//! An entry point, and its launches.

use super::argument::{Argument, ArgumentValue, Arguments, Elements, Origin};
use super::check::{Checked, Unfilled};
use super::driver::{Function, NotLaunched, Shape};
use super::grid::{Grid, LaunchOptions, ctas, within_limits};
use super::map::MapRequest;
use super::module::Module;
use super::{Hidden, KernelInfo, ParamKind};
use crate::cuda::{self, Device, Stream, keep};
use crate::error::{ARGUMENT, Error, LAUNCH, Result};
use crate::memory::{SymmetricBuffer, WeakBuffer};
use crate::team::Team;
use crate::watch::Watch;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};
use std::fmt;
use std::sync::{Arc, OnceLock};
use weft_abi::extent::Values;

/// The dynamic shared memory that a function has by default (CUDA C Programming Guide, Compute
/// Capabilities).
const SHARED_UNASKED: u32 = 48 << 10;

/// Whether launches may begin before those in front of them have ended: `WEFT_OVERLAP`, on unless it is 0.
fn overlaps() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| std::env::var("WEFT_OVERLAP").map_or(true, |v| v != "0"))
}

/// An entry point of a loaded module. Clones are cheap.
#[derive(Clone)]
pub struct Kernel(Arc<Entry>);

struct Entry {
    info: KernelInfo,
    function: Function,
    /// The number of CTAs that the device can hold at once, without clusters or dynamic shared
    /// memory.
    at_once: OnceLock<u32>,
    /// The offset of each parameter that is passed.
    offsets: Vec<usize>,
    /// The buffer in which its waits report themselves, if they do.
    watch: Option<Arc<Watch>>,
    module: Arc<Module>,
}

/// Whether the code has the described parameters, given as (offset, size). The launch passes each
/// by its own address, so parameters after a tensor map may have other offsets. The assembler
/// aligns a map to 64 bytes of memory, and the parameters themselves do not begin at a multiple of
/// 64.
fn alike(described: &[(usize, usize)], code: &[(usize, usize)]) -> bool {
    let fixed = described.iter().take_while(|(_, size)| *size < weft_abi::MAP_BYTES as usize).count();
    let sizes = |params: &[(usize, usize)]| params.iter().map(|(_, size)| *size).collect::<Vec<_>>();
    code.get(..fixed) == described.get(..fixed) && sizes(described) == sizes(code)
}

/// Makes the error for code with other parameters than its description, whose launch would read
/// unrelated bytes.
fn unlike(name: &str, described: &[(usize, usize)], code: &[(usize, usize)]) -> Error {
    let shown = |params: &[(usize, usize)]| {
        let each: Vec<_> = params.iter().map(|(offset, size)| format!("{size} bytes at {offset}")).collect();
        if each.is_empty() { "no parameters".to_owned() } else { each.join(", ") }
    };
    let message =
        format!("the description of `{name}` has {}, but its code has {}", shown(described), shown(code));
    Error::new(LAUNCH, message).help("load the code with the description that was compiled with it")
}

impl Kernel {
    pub(super) fn new(module: &Arc<Module>, info: &KernelInfo) -> Result<Kernel> {
        let function = module.loaded.function(&info.name)?.named(&info.roles);
        let max = function.max_threads()?;
        if info.threads() > max {
            let message = format!(
                "`{}` has {} threads per CTA, but the device can run at most {max}",
                info.name,
                info.threads()
            );
            return Err(Error::new(LAUNCH, message).help("write the kernel for a smaller block"));
        }
        let passed = info.params.iter().filter(|p| p.size > 0);
        let described: Vec<_> = passed.map(|p| (p.offset as usize, p.size as usize)).collect();
        if let Some(code) = function.params()?.filter(|code| !alike(&described, code)) {
            return Err(unlike(&info.name, &described, &code));
        }
        let offsets = described.into_iter().map(|(offset, _)| offset).collect();
        let watch = Watch::of(module.device(), info)?;
        let (info, module) = (info.clone(), module.clone());
        Ok(Kernel(Arc::new(Entry { info, function, at_once: OnceLock::new(), offsets, watch, module })))
    }

    /// What is known of it.
    pub fn info(&self) -> &KernelInfo {
        &self.0.info
    }

    /// The code it is in.
    pub fn module(&self) -> &Arc<Module> {
        &self.0.module
    }

    /// The GPU it is on.
    pub fn device(&self) -> &Device {
        self.0.module.device()
    }

    /// Returns the number of CTAs that the device can hold at once, without other kernels. It is
    /// the limit of a cooperative launch, and the grid of [`Grid::fill`].
    ///
    /// # Errors
    /// Fails for more shared memory than a CTA has or an impossible cluster (R0503), or if the CUDA
    /// driver rejects a call (R0103).
    pub fn max_ctas(&self, options: &LaunchOptions) -> Result<u32> {
        self.at_once(self.device(), options)
    }

    /// Checks the arguments and launches the kernel.
    ///
    /// The memory of the arguments must live until `stream` has done the work. A graph that is
    /// being captured keeps it alive itself.
    ///
    /// # Errors
    /// Fails for arguments that do not fit ([`Checked::new`]) or that are on another GPU (R0502),
    /// for a launch that the device cannot execute (R0503), for symmetric memory of a world that
    /// has ended (R0305), or if the CUDA driver rejects a call (R0103).
    pub fn launch(&self, stream: &Stream, grid: Grid, arguments: impl Arguments) -> Result<()> {
        self.launch_with(stream, grid, &LaunchOptions::default(), arguments)
    }

    /// Launches the kernel like [`launch`](Kernel::launch), cooperative or not, in clusters, with dynamic
    /// shared memory.
    ///
    /// # Errors
    /// Fails where [`launch`](Kernel::launch) fails.
    pub fn launch_with(
        &self,
        stream: &Stream,
        grid: Grid,
        options: &LaunchOptions,
        arguments: impl Arguments,
    ) -> Result<()> {
        self.launch_arguments(stream, grid, options, arguments.arguments(stream))
    }

    /// Launches the kernel like [`launch_with`](Kernel::launch_with), with arguments that were examined
    /// before.
    ///
    /// # Errors
    /// Fails where [`launch_with`](Kernel::launch_with) fails.
    pub fn launch_arguments(
        &self,
        stream: &Stream,
        grid: Grid,
        options: &LaunchOptions,
        arguments: Vec<Argument<'_>>,
    ) -> Result<()> {
        let prepared = self.prepare(stream, grid, options, &arguments)?;
        prepared.launch_block(stream, prepared.block.clone())?;
        arguments.into_iter().filter_map(|a| a.keep).for_each(keep);
        Ok(())
    }

    /// Checks arguments like a launch, and lays them out, for launches that pass the same ones.
    ///
    /// # Errors
    /// Fails where [`launch`](Kernel::launch) fails.
    pub fn prepare(
        &self,
        stream: &Stream,
        grid: Grid,
        options: &LaunchOptions,
        arguments: &[Argument<'_>],
    ) -> Result<Prepared> {
        let entry = &*self.0;
        if !self.device().has(stream) {
            return Err(self.elsewhere("the stream", stream.ordinal()));
        }
        self.device().bind()?;
        let given: Vec<ArgumentValue<'_>> = arguments.iter().map(Argument::given).collect();
        let world = self.world(arguments);
        let n_pes = world.as_ref().ok().map(Team::n_pes);
        let mut checked = Checked::new(&entry.info, n_pes, &given)?;
        self.reachable(arguments)?;
        let shape = self.shape(&checked, grid, options)?;
        self.fill_in(&mut checked, arguments, &world)?;
        let buffers = arguments.iter().filter_map(|a| match a.origin {
            Origin::Symmetric(buffer, _) => Some(buffer.downgrade()),
            _ => None,
        });
        let buffers = buffers.collect();
        let elements = given.iter().map(elements).collect();
        let values = checked.values.into();
        Ok(Prepared { kernel: self.clone(), shape, block: checked.block, values, buffers, elements })
    }

    /// Checks that all memory belongs to this GPU and still exists.
    fn reachable(&self, arguments: &[Argument<'_>]) -> Result<()> {
        for a in arguments {
            if let Some(other) = a.device.filter(|d| *d != self.device().ordinal()) {
                return Err(self.elsewhere(&a.given.to_string(), other));
            }
            if let Origin::Symmetric(buffer, _) = a.origin {
                buffer.world().enter()?;
            }
        }
        Ok(())
    }

    /// Determines the requested grid, and checks it against kernel and device.
    fn shape(&self, checked: &Checked<'_>, grid: Grid, options: &LaunchOptions) -> Result<Shape> {
        let info = self.info();
        let own = checked.own_grid()?;
        let refuse = |message: String, help: &str| Err(Error::new(LAUNCH, message).help(help));
        let fill = |device: &Device| {
            let ctas = self.at_once(device, options)?;
            Ok::<_, Error>([checked.barrier_ctas().map_or(ctas, |has| has.min(ctas)).max(1), 1, 1])
        };
        let grid = match (own, grid) {
            (Some(own), Grid::Auto | Grid::Kernel) => own,
            (Some(own), Grid::Of(asked)) if asked == own => own,
            (Some(own), _) => {
                let message = format!("`{}` declares its own grid, which is {own:?} here", info.name);
                return refuse(message, "launch it with Grid::kernel()");
            }
            (None, Grid::Kernel) => {
                let message = format!("`{}` does not declare a grid", info.name);
                return refuse(message, "launch it with Grid::of(x) or Grid::fill(&device)");
            }
            (None, Grid::Auto) => fill(self.device())?,
            (None, Grid::Fill(device)) => fill(&device)?,
            (None, Grid::Of(asked)) => asked,
        };
        let cluster = options.cluster.or(info.cluster);
        within_limits(info, grid, cluster)?;
        checked.fits(grid)?;
        let cooperative = options.cooperative.unwrap_or_else(|| info.has_barrier());
        let shape = Shape {
            grid,
            block: info.block,
            // If the code declares a cluster, the launch needs no attribute.
            cluster: options.cluster.filter(|_| info.cluster.is_none()),
            cooperative,
            dependent: info.dependent && !cooperative && overlaps(),
            shared: self.dynamic(options),
        };
        self.shared(self.device(), self.dynamic(options))?;
        if cooperative {
            let (max, asked) = (self.at_once(self.device(), options)?, ctas(grid));
            if asked > u64::from(max) {
                let message = format!(
                    "{asked} CTAs of `{}` wait for each other, but only {max} of them fit on GPU {} at once",
                    info.name,
                    self.device().ordinal()
                );
                return refuse(message, "launch at most this number of CTAs, and loop over the work");
            }
        }
        Ok(shape)
    }

    fn at_once(&self, device: &Device, options: &LaunchOptions) -> Result<u32> {
        let (info, function) = (self.info(), &self.0.function);
        let cluster = options.cluster.or(info.cluster);
        self.device().bind()?;
        self.shared(device, self.dynamic(options))?;
        let Some(cluster) = cluster else {
            let count = || {
                let a_sm = function.ctas_per_sm(info.threads(), self.dynamic(options))?;
                Ok(a_sm.saturating_mul(device.sm_count()?))
            };
            if self.dynamic(options) > 0 || device.ordinal() != self.device().ordinal() {
                return count();
            }
            if let Some(n) = self.0.at_once.get() {
                return Ok(*n);
            }
            let n = count()?;
            return Ok(*self.0.at_once.get_or_init(|| n));
        };
        let shape = Shape {
            grid: cluster,
            block: info.block,
            cluster: Some(cluster),
            cooperative: false,
            dependent: false,
            shared: self.dynamic(options),
        };
        Ok(function.clusters(&shape)?.saturating_mul(cluster.iter().product()))
    }

    /// The dynamic shared memory of a CTA: that of the code and that of the caller.
    fn dynamic(&self, options: &LaunchOptions) -> u32 {
        self.info().shared.saturating_add(options.shared_bytes)
    }

    /// Allows the function this amount of dynamic shared memory.
    fn shared(&self, device: &Device, bytes: u32) -> Result<()> {
        if bytes <= SHARED_UNASKED {
            return Ok(());
        }
        let max =
            device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let own = self.0.function.shared_bytes()?;
        if bytes > max.saturating_sub(own) {
            let message = format!(
                "`{}` needs {bytes} bytes of dynamic and {own} bytes of static shared memory, but a CTA can have at most {max}",
                self.info().name
            );
            return Err(Error::new(LAUNCH, message));
        }
        self.0.function.allow_shared(bytes)
    }

    /// The team of all PEs, from a symmetric argument, a team or the module.
    fn world(&self, arguments: &[Argument<'_>]) -> Result<Team> {
        let of = |a: &Argument<'_>| match a.origin {
            Origin::Symmetric(buffer, _) => Some(buffer.world().clone()),
            Origin::Team(team) => Some(team.world.clone()),
            Origin::Nothing => None,
        };
        let world = arguments.iter().find_map(of).or_else(|| self.0.module.world());
        world.map(Team::world).ok_or_else(|| {
            let message = format!(
                "`{}` uses the number of its PE, but none of its arguments is symmetric",
                self.info().name
            );
            Error::new(ARGUMENT, message).help("load it with Module::load_in(&world, ..)")
        })
    }

    /// Writes the hidden parameters that do not follow from the arguments.
    fn fill_in(
        &self,
        checked: &mut Checked<'_>,
        arguments: &[Argument<'_>],
        world: &Result<Team>,
    ) -> Result<()> {
        let encode = |map: &MapRequest| match &self.0.function {
            Function::Gpu(_) => map.encoded(),
            Function::Simulated(_) => map.simulated(),
        };
        for map in std::mem::take(&mut checked.maps) {
            checked.put_at(map.offset, &encode(&map)?);
        }
        let team_of = |h: &Unfilled| match h.team.and_then(|t| arguments.get(t)).map(|t| t.origin) {
            Some(Origin::Team(team)) => Ok(team),
            _ => world.as_ref().map_err(Clone::clone),
        };
        for (map, h) in std::mem::take(&mut checked.peer_maps) {
            let Some(base) = h.base.and_then(|b| arguments.get(b)) else { continue };
            let (buffer, _) = self.symmetric(base)?;
            let table = buffer.map_table(team_of(&h)?, map.address, |address| {
                encode(&MapRequest { address, ..map.clone() })
            })?;
            checked.put_at(h.offset, &table.address().to_le_bytes());
            keep(table);
        }
        for h in std::mem::take(&mut checked.unfilled) {
            if let (Hidden::Watch {}, Some(watch)) = (h.what, &self.0.watch) {
                checked.put_at(h.offset, &watch.address().to_le_bytes());
                continue;
            }
            let team = team_of(&h)?;
            match h.what {
                Hidden::MyPe { .. } => checked.put_at(h.offset, &team.my_pe().to_le_bytes()),
                Hidden::NPes { .. } => checked.put_at(h.offset, &team.n_pes().to_le_bytes()),
                Hidden::TeamHandle { .. } => checked.put_at(h.offset, &team.handle.to_le_bytes()),
                // These follow from the arguments alone.
                Hidden::TensorMap { .. } | Hidden::PeerMaps { .. } | Hidden::Watch {} => {}
                Hidden::Multicast { .. } | Hidden::Peers { .. } | Hidden::Reach { .. } => {
                    let Some(base) = h.base.and_then(|b| arguments.get(b)) else { continue };
                    let address = self.address(h.what, base, team)?;
                    checked.put_at(h.offset, &address.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    /// The address for a hidden parameter of an argument: the team's multicast address, or that of
    /// a table.
    fn address(&self, what: Hidden, base: &Argument<'_>, team: &Team) -> Result<u64> {
        let name = &self.info().name;
        let (buffer, offset) = self.symmetric(base)?;
        if !matches!(what, Hidden::Multicast { .. }) {
            let all_reached = matches!(what, Hidden::Peers { .. });
            let table = buffer.table(team, offset, all_reached)?;
            let address = table.address();
            keep(table);
            return Ok(address);
        }
        buffer.multicast_address(team).map(|mc| mc + offset).ok_or_else(|| {
            let why = buffer.why_no_multicast(team).unwrap_or_default();
            let message = format!("`{name}` is compiled for multicast, but {team:?} has no multicast: {why}");
            Error::new(ARGUMENT, message)
                .help("compile it with Lowering::Auto or Lowering::Unicast for this team")
        })
    }

    /// The symmetric memory of an argument, and the offset of the argument's first byte in it.
    fn symmetric<'a>(&self, argument: &Argument<'a>) -> Result<(&'a SymmetricBuffer, u64)> {
        let Origin::Symmetric(buffer, offset) = argument.origin else {
            let name = &self.info().name;
            let message =
                format!("`{name}` needs the addresses of other PEs, but {} has none", argument.given);
            return Err(Error::new(ARGUMENT, message));
        };
        Ok((buffer, offset))
    }

    fn elsewhere(&self, what: &str, gpu: u32) -> Error {
        let message = format!(
            "`{}` is on GPU {}, but {what} is on GPU {gpu}",
            self.info().name,
            self.device().ordinal()
        );
        Error::new(ARGUMENT, message).help("load the kernel on each GPU that runs it")
    }

    /// Makes the error of a launch that the driver rejected.
    fn refused(&self, shape: &Shape, e: NotLaunched) -> Error {
        let e = match e {
            NotLaunched::Driver(e) => e,
            NotLaunched::Other(e) => return e,
        };
        let error = cuda::error("cuLaunchKernelEx", e);
        if !NOT_LAUNCHED.contains(&e.0) {
            return error;
        }
        let Shape { grid, block, cluster, cooperative, shared, .. } = shape;
        let message = format!(
            "`{}` with grid {grid:?}, block {block:?}, {}{}{shared} bytes of dynamic shared memory: {}",
            self.info().name,
            cluster.map_or(String::new(), |c| format!("clusters of {c:?}, ")),
            if *cooperative { "cooperative, " } else { "" },
            error.message
        );
        Error::new(LAUNCH, message).help(error.help)
    }
}

/// A launch whose arguments are checked and laid out, for later launches. It keeps no memory: once
/// a symmetric buffer among the arguments is dropped, it is [no longer
/// current](Prepared::is_current).
#[derive(Clone, Debug)]
pub struct Prepared {
    kernel: Kernel,
    shape: Shape,
    block: Vec<u8>,
    /// The numbers on which layouts depend.
    values: Arc<Values>,
    /// The symmetric buffers among the arguments.
    buffers: Vec<WeakBuffer>,
    /// The number of elements of each argument that is a tensor of one mode and not symmetric.
    elements: Vec<Option<usize>>,
}

impl Prepared {
    /// Whether every symmetric buffer among the arguments still exists.
    pub fn is_current(&self) -> bool {
        self.buffers.iter().all(WeakBuffer::is_there)
    }

    /// Launches the kernel, with other tensors of one mode for some arguments, given by their
    /// position. These must have the type and size of the original ones, and must not be symmetric.
    /// All other arguments must still exist.
    ///
    /// # Errors
    /// Fails if a buffer was dropped or its world has ended (R0305), for a tensor that does not fit
    /// the parameter (R0502), or where [`Kernel::launch`] fails.
    pub fn launch(&self, stream: &Stream, others: &[(usize, Argument<'_>)]) -> Result<()> {
        let mut block = self.block.clone();
        for (position, other) in others {
            self.exchange(&mut block, *position, other)?;
        }
        for buffer in &self.buffers {
            keep(Arc::new(buffer.upgrade()?));
        }
        if !self.kernel.device().has(stream) {
            return Err(self.kernel.elsewhere("the stream", stream.ordinal()));
        }
        self.kernel.device().bind()?;
        self.launch_block(stream, block)?;
        others.iter().filter_map(|(_, other)| other.keep.clone()).for_each(keep);
        Ok(())
    }

    /// Replaces the address of a tensor with that of another.
    fn exchange(&self, block: &mut [u8], position: usize, other: &Argument<'_>) -> Result<()> {
        let info = self.kernel.info();
        let at = info.arguments().nth(position);
        let mapped = |h: &weft_abi::ParamInfo| matches!(h.kind, ParamKind::Hidden(Hidden::TensorMap { base, .. }) if at.is_some_and(|(i, _)| i == base as usize));
        if info.params.iter().any(mapped) {
            let message = format!(
                "`{}` copies tiles of argument {position}: prepare a launch for each tensor",
                info.name
            );
            return Err(Error::new(ARGUMENT, message));
        }
        let param = at.map(|(_, param)| param);
        let wanted = param.and_then(|p| match p.kind {
            ParamKind::Tensor { dtype, align, .. } => Some((p.offset as usize, dtype, align)),
            _ => None,
        });
        let same = elements(&other.given).is_some_and(|n| self.elements.get(position) == Some(&Some(n)));
        let (Some((offset, dtype, align)), ArgumentValue::Tensor { address, dtype: given, .. }, true) =
            (wanted, other.given, same)
        else {
            let message = format!("{} cannot replace argument {position} of `{}`", other.given, info.name);
            return Err(Error::new(ARGUMENT, message));
        };
        let here = other.device.is_none_or(|device| device == self.kernel.device().ordinal());
        if given != dtype || !address.is_multiple_of(align.into()) || !here {
            let message = format!(
                "argument {position} of `{}` must have elements of {dtype} and an address that is a multiple of {align}, but {} at {address:#x} was given",
                info.name, other.given
            );
            return Err(Error::new(ARGUMENT, message));
        }
        if let Some(place) = block.get_mut(offset..offset + size_of::<u64>()) {
            place.copy_from_slice(&address.to_le_bytes());
        }
        Ok(())
    }

    fn launch_block(&self, stream: &Stream, mut block: Vec<u8>) -> Result<()> {
        let entry = &*self.kernel.0;
        let launched = entry.function.launch(stream, &self.shape, &mut block, &entry.offsets);
        launched.map_err(|e| self.kernel.refused(&self.shape, e))?;
        keep(entry.module.clone());
        if let Some(watch) = &entry.watch {
            watch.launched(self.shape.grid, &block, &self.values);
            keep(watch.clone());
        }
        Ok(())
    }
}

/// The number of elements of a tensor of one mode that is not symmetric.
fn elements(given: &ArgumentValue<'_>) -> Option<usize> {
    match given {
        ArgumentValue::Tensor { extent: Elements::Flat(n), symmetric: false, .. } => Some(*n),
        _ => None,
    }
}

/// Errors of the driver about a launch's shape.
const NOT_LAUNCHED: [CUresult; 5] = [
    CUresult::CUDA_ERROR_INVALID_VALUE,
    CUresult::CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
    CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
    CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
];

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({} on {:?})", self.info().name, self.device())
    }
}

#[cfg(test)]
mod tests {
    use super::alike;

    #[test]
    fn parameters_are_held_against_the_code() {
        let described = [(0, 8), (8, 4), (64, 128), (192, 8)];
        assert!(alike(&described, &described));
        assert!(alike(&described, &[(0, 8), (8, 4), (48, 128), (176, 8)]), "maps are aligned elsewhere");
        assert!(!alike(&described, &[(0, 8), (12, 4), (48, 128), (176, 8)]));
        assert!(!alike(&described, &[(0, 8), (8, 4), (48, 128), (176, 4)]));
        assert!(!alike(&described, &described[..3]));
        assert!(!alike(&[(0, 8)], &[(0, 8), (8, 128)]));
    }
}
