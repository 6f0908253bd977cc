//! Checks arguments against a kernel's description, before anything is launched.

use super::Number;
use super::argument::{ArgumentValue, Elements};
use super::map::{MapRequest, bad};
use crate::DType;
use crate::error::{ARGUMENT, Error, LAUNCH, Result};
use crate::nvshmem::sys::TEAM_WORLD;
use weft_abi::{Extents, Hidden, KernelInfo, MAP_BYTES, ParamInfo, ParamKind, Space, WORLD};
use weft_layout::Layout;

/// Arguments that fit a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked<'k> {
    kernel: &'k KernelInfo,
    /// The parameters in the layout of the code. Those that only the launcher knows are still 0.
    pub block: Vec<u8>,
    /// The hidden parameters that do not follow from the arguments, and that the launcher writes.
    pub unfilled: Vec<Unfilled>,
    /// The tensor maps that the launcher encodes.
    pub maps: Vec<MapRequest>,
    /// The tables of peers' tensor maps that the launcher creates: the map of this PE's own tensor,
    /// and the parameter.
    pub peer_maps: Vec<(MapRequest, Unfilled)>,
    /// The numbers that parameters define, by index, and at the end the number of all PEs.
    pub values: Vec<Option<i64>>,
    /// The name of each barrier, and the number of CTAs for which it has counters.
    barriers: Vec<(&'k str, u32)>,
}

/// A hidden parameter whose value the launcher determines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unfilled {
    /// The offset in the parameter block in bytes.
    pub offset: usize,
    /// The parameter that is filled in.
    pub what: Hidden,
    /// The position of the argument whose address it is; none for a number.
    pub base: Option<usize>,
    /// The position of the argument that is the team; none for all PEs.
    pub team: Option<usize>,
}

/// A team argument, for hidden parameters.
#[derive(Clone, Copy)]
struct Member {
    /// The position of the argument.
    argument: usize,
    my_pe: u32,
    n_pes: u32,
    handle: i32,
}

/// The largest size of any kernel's parameters in bytes (CUDA C++ Programming Guide, Compute
/// Capabilities: 32,764).
const MAX_PARAM_BYTES: usize = 32_764;

impl<'k> Checked<'k> {
    /// Checks arguments, in the order of the kernel's text, and lays them out. Layouts can depend
    /// on the number of all PEs; without it such a layout is an error.
    ///
    /// # Errors
    /// Fails for another number of arguments, or another kind, element type, shape, stride, space,
    /// alignment or range (R0502). The message has the parameter, the expected value and the given
    /// one.
    pub fn new(
        kernel: &'k KernelInfo,
        n_pes: Option<u32>,
        given: &[ArgumentValue<'_>],
    ) -> Result<Checked<'k>> {
        let mut out = Checked::empty(kernel, n_pes, given.len())?;
        let pairs = || kernel.arguments().zip(given);
        // Layouts can depend on any of the numbers, so numbers come first.
        let mut passed = Vec::with_capacity(given.len());
        for ((i, p), g) in pairs() {
            let (bytes, brings) = out.accept(p, g)?;
            out.values[i] = brings;
            passed.push(bytes);
        }
        for (((_, p), g), bytes) in pairs().zip(&passed) {
            out.check_tensor(p, g)?;
            out.put(p, bytes)?;
            if let ArgumentValue::Barrier { ctas, .. } = g {
                out.barriers.push((&p.name, *ctas));
            }
        }
        for p in &kernel.params {
            if let ParamKind::Hidden(what) = p.kind {
                out.hide(p, what, given)?;
            }
        }
        Ok(out)
    }

    /// Creates the state before any argument is laid out.
    fn empty(kernel: &'k KernelInfo, n_pes: Option<u32>, given: usize) -> Result<Checked<'k>> {
        let name = &kernel.name;
        let takes = kernel.arguments().count();
        if takes != given {
            let takes_all: Vec<_> =
                kernel.arguments().map(|(_, p)| format!("{}: {}", p.name, p.kind)).collect();
            let message = format!("`{name}` takes {}, but {given} were given", count(takes));
            return Err(Error::new(ARGUMENT, message).help(format!("pass ({})", takes_all.join(", "))));
        }
        let bytes = kernel.param_bytes();
        if bytes > MAX_PARAM_BYTES {
            return Err(Error::new(
                ARGUMENT,
                format!("the description of `{name}` has {bytes} bytes of parameters"),
            )
            .help(format!("compile the kernel again: its description is damaged, since a kernel can have at most {MAX_PARAM_BYTES} bytes")));
        }
        let mut values = vec![None; kernel.params.len() + 1];
        values[kernel.params.len()] = n_pes.map(i64::from);
        let block = vec![0; bytes];
        Ok(Checked {
            kernel,
            block,
            unfilled: Vec::new(),
            maps: Vec::new(),
            peer_maps: Vec::new(),
            values,
            barriers: Vec::new(),
        })
    }

    /// Converts an argument for its kind of parameter: the bytes that the code reads, and the
    /// number that layouts can use.
    fn accept(&self, p: &ParamInfo, g: &ArgumentValue<'_>) -> Result<(Vec<u8>, Option<i64>)> {
        match (&p.kind, *g) {
            (ParamKind::Tensor { .. }, ArgumentValue::Tensor { address, .. })
            | (ParamKind::Barrier, ArgumentValue::Barrier { address, .. }) => {
                Ok((address.to_le_bytes().into(), None))
            }
            (ParamKind::Scalar { dtype, multiple_of }, ArgumentValue::Scalar { value, .. }) => {
                number(value, *dtype, *multiple_of).map_err(|why| self.mismatch(p, g, &why))
            }
            (ParamKind::Team, ArgumentValue::Team { n_pes, .. }) => Ok((Vec::new(), Some(n_pes.into()))),
            _ => Err(self.mismatch(p, g, "")),
        }
    }

    /// Writes a hidden parameter if it follows from the arguments, and otherwise records it for the
    /// launcher.
    fn hide(&mut self, p: &ParamInfo, what: Hidden, given: &[ArgumentValue<'_>]) -> Result<()> {
        let team = self.member(p, what.team(), given)?;
        let base = what.base().map(|b| self.argument(b).ok_or_else(|| self.malformed(p))).transpose()?;
        if let Some(bytes) = hidden_bytes(what, team) {
            return self.put(p, &bytes);
        }
        self.put(p, &[0; MAP_BYTES as usize][..what.entry().bytes() as usize])?;
        if let Hidden::TensorMap { base: param, map } = what {
            let map = self.map(p, (param, base), &map, given)?;
            self.maps.push(map);
            return Ok(());
        }
        let team = team.map(|t| t.argument);
        let unfilled = Unfilled { offset: p.offset as usize, what, base, team };
        if let Hidden::PeerMaps { base: param, map, .. } = what {
            let map = self.map(p, (param, base), &map, given)?;
            self.peer_maps.push((map, unfilled));
            return Ok(());
        }
        self.unfilled.push(unfilled);
        Ok(())
    }

    /// The tensor map of an argument.
    fn map(
        &self,
        p: &ParamInfo,
        (param, argument): (u32, Option<usize>),
        shape: &weft_abi::MapShape,
        given: &[ArgumentValue<'_>],
    ) -> Result<MapRequest> {
        let described = self.kernel.params.get(param as usize);
        let (Some(of), Some(&ArgumentValue::Tensor { address, dtype, .. })) =
            (described, argument.and_then(|a| given.get(a)))
        else {
            return Err(self.malformed(p));
        };
        let ParamKind::Tensor { layout, .. } = &of.kind else { return Err(self.malformed(p)) };
        let layout = self.layout(of, layout)?;
        MapRequest::new(p.offset as usize, (dtype, address, &layout), shape)
            .map_err(|why| bad(&self.kernel.name, &of.name, &why))
    }

    /// The team of a hidden parameter; none for all PEs.
    fn member(&self, p: &ParamInfo, team: u32, given: &[ArgumentValue<'_>]) -> Result<Option<Member>> {
        if team == WORLD {
            return Ok(None);
        }
        match self.argument(team).and_then(|argument| Some((argument, given.get(argument)?))) {
            Some((argument, &ArgumentValue::Team { my_pe, n_pes, handle })) => {
                Ok(Some(Member { argument, my_pe, n_pes, handle }))
            }
            _ => Err(self.malformed(p)),
        }
    }

    /// The position of that parameter among the arguments.
    fn argument(&self, param: u32) -> Option<usize> {
        self.kernel.arguments().position(|(i, _)| i == param as usize)
    }

    fn check_tensor(&self, p: &ParamInfo, g: &ArgumentValue<'_>) -> Result<()> {
        let ParamKind::Tensor { dtype: wants, layout, space, align, .. } = &p.kind else { return Ok(()) };
        let ArgumentValue::Tensor { address, dtype, extent, symmetric } = *g else { return Ok(()) };
        let bad = |why: &str| Err(self.mismatch(p, g, why));
        if dtype != *wants {
            return bad(&format!("its elements are {dtype}, not {wants}"));
        }
        if *space == Space::Symmetric && !symmetric {
            return Err(self
                .mismatch(p, g, "it is not in symmetric memory")
                .help("allocate it with World::tensor on every PE, or copy it into a symmetric tensor"));
        }
        let layout = self.layout(p, layout)?;
        match extent {
            Elements::Layout(has) => {
                if let Some(why) = difference(&layout, has) {
                    return bad(&why);
                }
            }
            Elements::Flat(n) => {
                let needs = crate::shape::memory_elements(&layout)?;
                if n < needs {
                    return bad(&format!("{layout} needs {needs} elements"));
                }
            }
        }
        let align = u64::from((*align).max(1));
        match address % align {
            0 => Ok(()),
            off => bad(&format!("its address {address:#x} is {off} bytes past a multiple of {align}")),
        }
    }

    /// A tensor's layout in this launch.
    fn layout(&self, p: &ParamInfo, layout: &Extents) -> Result<Layout> {
        let bad = |why: String| {
            let message = format!("`{}`: `{}: {}`: {why}", self.kernel.name, p.name, p.kind);
            Err(Error::new(ARGUMENT, message).help(self.brought()))
        };
        match layout.layout(&self.values) {
            Ok(l) if l.size().is(0) => bad(format!("{l} has no elements")),
            Ok(l) => Ok(l),
            Err(why) => bad(why),
        }
    }

    /// Describes the values that a layout's text refers to, such as `%0 is `n`, 17`.
    fn brought(&self) -> String {
        let known = self.kernel.params.iter().zip(&self.values).enumerate();
        let shown = known.filter_map(|(i, (p, v))| match p.kind {
            ParamKind::Team => Some(format!("%{i} is the PEs of `{}`, {}", p.name, (*v)?)),
            _ => Some(format!("%{i} is `{}`, {}", p.name, (*v)?)),
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    fn mismatch(&self, p: &ParamInfo, g: &ArgumentValue<'_>, why: &str) -> Error {
        let colon = if why.is_empty() { "" } else { ": " };
        let message =
            format!("`{}` takes `{}: {}`, but {g} was given{colon}{why}", self.kernel.name, p.name, p.kind);
        Error::new(ARGUMENT, message)
    }

    /// Makes the error for a description that the compiler does not write.
    fn malformed(&self, p: &ParamInfo) -> Error {
        let message = format!("the description of `{}` is wrong: `{}: {}`", self.kernel.name, p.name, p.kind);
        Error::new(ARGUMENT, message)
            .help("compile the kernel again: its description comes from another compiler")
    }

    /// Returns the grid that the kernel declares, if it does.
    ///
    /// # Errors
    /// Fails for a number of CTAs that a grid cannot have (R0503).
    pub fn own_grid(&self) -> Result<Option<[u32; 3]>> {
        let Some(grid) = &self.kernel.grid else { return Ok(None) };
        let mut out = [1; 3];
        for (o, extent) in out.iter_mut().zip(grid) {
            let n = extent.value(&self.values);
            *o = n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| {
                let n = n.map_or("an unknown number of".to_owned(), |n| n.to_string());
                let message = format!("`{}` asks for {extent} CTAs, which is {n}", self.kernel.name);
                Error::new(LAUNCH, message).help(self.brought())
            })?;
        }
        Ok(Some(out))
    }

    /// The largest number of CTAs for which all its barriers have counters; none without a barrier.
    pub fn barrier_ctas(&self) -> Option<u32> {
        self.barriers.iter().map(|(_, ctas)| *ctas).min()
    }

    /// Checks that a grid fits the kernel and its barriers.
    ///
    /// # Errors
    /// Fails if a barrier has too few counters (R0502), or if the kernel distinguishes CTAs only by
    /// x (R0503).
    pub fn fits(&self, grid: [u32; 3]) -> Result<()> {
        let name = &self.kernel.name;
        if !self.kernel.planes && self.kernel.grid.is_none() && grid[1..] != [1, 1] {
            let message = format!("`{name}` numbers its CTAs in one dimension, but the grid is {grid:?}");
            return Err(Error::new(LAUNCH, message)
                .help("declare `grid(x, y)` in the kernel, or launch a grid of one dimension"));
        }
        let ctas = grid.iter().fold(1u64, |n, g| n.saturating_mul(u64::from(*g)));
        match self.barriers.iter().find(|(_, has)| u64::from(*has) < ctas) {
            None => Ok(()),
            Some((barrier, has)) => {
                let message = format!(
                    "`{name}`: barrier `{barrier}` has counters for {has} CTAs, but {ctas} are launched"
                );
                Err(Error::new(ARGUMENT, message)
                    .help("create the barrier for the number of CTAs of its largest launch"))
            }
        }
    }

    /// Writes a value that the launcher has determined.
    pub(super) fn put_at(&mut self, offset: usize, bytes: &[u8]) {
        if let Some(place) = self.block.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    }

    fn put(&mut self, p: &ParamInfo, bytes: &[u8]) -> Result<()> {
        let offset = p.offset as usize;
        if bytes.is_empty() {
            return Ok(());
        }
        let place = self.block.get_mut(offset..offset.saturating_add(bytes.len()));
        match place.filter(|_| bytes.len() == p.size as usize) {
            Some(place) => place.copy_from_slice(bytes),
            None => return Err(self.malformed(p)),
        }
        Ok(())
    }
}

/// The bytes of a hidden parameter that follows from the arguments. For the team of all PEs, which
/// is not an argument, only NVSHMEM's number is known.
fn hidden_bytes(what: Hidden, team: Option<Member>) -> Option<[u8; 4]> {
    match (what, team) {
        (Hidden::TeamHandle { .. }, None) => Some(TEAM_WORLD.to_le_bytes()),
        (Hidden::TeamHandle { .. }, Some(team)) => Some(team.handle.to_le_bytes()),
        (Hidden::MyPe { .. }, Some(team)) => Some(team.my_pe.to_le_bytes()),
        (Hidden::NPes { .. }, Some(team)) => Some(team.n_pes.to_le_bytes()),
        (Hidden::MyPe { .. } | Hidden::NPes { .. }, None) => None,
        (
            Hidden::Multicast { .. }
            | Hidden::Peers { .. }
            | Hidden::Reach { .. }
            | Hidden::TensorMap { .. }
            | Hidden::PeerMaps { .. }
            | Hidden::Watch {},
            _,
        ) => None,
    }
}

/// Returns a number's bytes, and its value if it is an integer.
fn number(
    value: Number,
    dtype: DType,
    multiple_of: i64,
) -> std::result::Result<(Vec<u8>, Option<i64>), String> {
    let bytes = value.encode(dtype)?;
    let Number::Int(n) = value else { return Ok((bytes, None)) };
    if multiple_of > 0 && (n < 1 || n % i128::from(multiple_of) != 0) {
        return Err(format!("it is not a positive multiple of {multiple_of}"));
    }
    Ok((bytes, i64::try_from(n).ok()))
}

/// Describes how two layouts differ as functions of an index; none if they are equal.
fn difference(wants: &Layout, has: &Layout) -> Option<String> {
    if wants == has {
        return None;
    }
    let (w, h) = (wants.size(), has.size());
    if w != h {
        return Some(format!("it has {h} elements, not the {w} of {wants}"));
    }
    match (wants.coalesce(), has.coalesce()) {
        (Ok(w), Ok(h)) if w == h => None,
        _ => Some(format!("its layout differs from {wants}")),
    }
}

fn count(n: usize) -> String {
    match n {
        0 => "no arguments".into(),
        1 => "1 argument".into(),
        n => format!("{n} arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_layout::parse_layout;

    /// The kernel scale(x: symm<f32, (n, 4):(4, 1)>, w: global<bf16, 4:1>, n: i64 (multiple of 8),
    /// eps: f32, sync: barrier, team: team), with the parameters of its unicast lowering.
    fn kernel() -> KernelInfo {
        use ParamKind::{Barrier, Scalar, Team, Tensor};
        let tensor = |dtype, layout: &str, space, align| Tensor {
            dtype,
            layout: layout.parse().unwrap(),
            space,
            align,
            role: None,
        };
        let params = [
            ("x", 0, 8, tensor(DType::F32, "(%2,4):(4,1)", Space::Symmetric, 16)),
            ("w", 8, 8, tensor(DType::BF16, "4:1", Space::Global, 2)),
            ("n", 16, 8, Scalar { dtype: DType::I64, multiple_of: 8 }),
            ("eps", 24, 4, Scalar { dtype: DType::F32, multiple_of: 0 }),
            ("sync", 32, 8, Barrier),
            ("team", 40, 0, Team),
            ("x_peers", 40, 8, ParamKind::Hidden(Hidden::Peers { base: 0, team: 5 })),
            ("team_my_pe", 48, 4, ParamKind::Hidden(Hidden::MyPe { team: 5 })),
            ("team_n_pes", 52, 4, ParamKind::Hidden(Hidden::NPes { team: 5 })),
        ];
        KernelInfo {
            shared: 0,
            name: "scale".into(),
            block: [128, 1, 1],
            cluster: None,
            grid: Some(["ceil_div(%2,8)", "1", "%5"].map(|e| e.parse().unwrap())),
            planes: true,
            dependent: false,
            roles: Vec::new(),
            waits: Vec::new(),
            params: params
                .map(|(name, offset, size, kind)| ParamInfo { name: name.into(), offset, size, kind })
                .into(),
        }
    }

    fn layout(text: &str) -> Layout {
        parse_layout(text, &mut |_| None).unwrap()
    }

    fn tensor(address: u64, dtype: DType, layout: &Layout, symmetric: bool) -> ArgumentValue<'_> {
        ArgumentValue::Tensor { address, dtype, extent: Elements::Layout(layout), symmetric }
    }

    fn int(n: i128) -> ArgumentValue<'static> {
        ArgumentValue::Scalar { dtype: DType::I32, value: Number::Int(n) }
    }

    const EPS: ArgumentValue<'static> =
        ArgumentValue::Scalar { dtype: DType::F64, value: Number::Float(0.5) };
    const SYNC: ArgumentValue<'static> = ArgumentValue::Barrier { address: 0x300, ctas: 8 };
    const TEAM: ArgumentValue<'static> = ArgumentValue::Team { my_pe: 1, n_pes: 2, handle: 7 };

    #[test]
    fn a_damaged_description_takes_no_memory() {
        let mut k = kernel();
        k.params[8].offset = u32::MAX;
        let (x, w) = (layout("(16,4):(4,1)"), layout("4:1"));
        let given = [
            tensor(0x100, DType::F32, &x, true),
            tensor(0x200, DType::BF16, &w, false),
            int(16),
            EPS,
            SYNC,
            TEAM,
        ];
        assert!(Checked::new(&k, None, &given).unwrap_err().help.contains("damaged"));
    }

    #[test]
    fn arguments_that_fit_lie_where_the_code_reads_them() {
        let (k, x, w) = (kernel(), layout("(16,4):(4,1)"), layout("4:1"));
        let given = [
            tensor(0x100, DType::F32, &x, true),
            tensor(0x200, DType::BF16, &w, false),
            int(16),
            EPS,
            SYNC,
            TEAM,
        ];
        let checked = Checked::new(&k, Some(2), &given).unwrap();
        let word = |at: usize| u64::from_le_bytes(checked.block[at..at + 8].try_into().unwrap());
        assert_eq!([word(0), word(8), word(16), word(32), word(40)], [0x100, 0x200, 16, 0x300, 0]);
        assert_eq!(checked.block[24..28], 0.5f32.to_le_bytes());
        assert_eq!(word(48), 1 | 2 << 32);
        assert_eq!(checked.block.len(), 56);
        assert_eq!(
            checked.unfilled,
            [Unfilled { offset: 40, what: Hidden::Peers { base: 0, team: 5 }, base: Some(0), team: Some(5) }]
        );
        assert_eq!(checked.own_grid(), Ok(Some([2, 1, 2])));
        assert!(checked.fits([2, 1, 2]).is_ok());
        let e = checked.fits([2, 1, 8]).unwrap_err();
        assert_eq!((e.code, e.message.contains("8 CTAs, but 16")), (ARGUMENT, true), "{e}");
    }

    #[test]
    fn each_fault_names_the_parameter_what_it_takes_and_what_it_got() {
        let k = kernel();
        let (x, w) = (layout("(16,4):(4,1)"), layout("4:1"));
        let (wrong, column, folded) =
            (layout("(8,4):(4,1)"), layout("(16,4):(1,16)"), layout("(16,(2,2)):(4,(2,1))"));
        let good = [
            tensor(0x100, DType::F32, &x, true),
            tensor(0x200, DType::BF16, &w, false),
            int(16),
            EPS,
            SYNC,
            TEAM,
        ];
        let flat = |n| ArgumentValue::Tensor {
            address: 0x200,
            dtype: DType::BF16,
            extent: Elements::Flat(n),
            symmetric: false,
        };
        for (at, instead, says) in [
            (0, tensor(0x100, DType::F16, &x, true), "its elements are f16, not f32"),
            (0, tensor(0x100, DType::F32, &x, false), "not in symmetric memory"),
            (0, tensor(0x108, DType::F32, &x, true), "8 bytes past a multiple of 16"),
            (0, tensor(0x100, DType::F32, &wrong, true), "it has 32 elements, not the 64"),
            (0, tensor(0x100, DType::F32, &column, true), "its layout differs from (16,4):(4,1)"),
            (0, tensor(0x100, DType::F32, &folded, true), "its layout differs from"),
            (0, int(1), "1: i32 was given"),
            (1, flat(3), "needs 4 elements"),
            (1, SYNC, "barrier for 8 CTAs was given"),
            (2, int(12), "not a positive multiple of 8"),
            (2, int(-8), "not a positive multiple of 8"),
            (2, int(1 << 70), "does not fit into i64"),
            (2, EPS, "a floating-point number"),
            (3, int(1), "an integer"),
            (4, tensor(0x100, DType::F32, &x, true), "sync: barrier"),
            (5, int(0), "team: team"),
        ] {
            let mut given = good;
            given[at] = instead;
            let e = Checked::new(&k, None, &given).unwrap_err();
            assert_eq!(e.code, ARGUMENT);
            let name = &k.params[at].name;
            assert!(e.message.contains(&format!("`{name}: ")), "{e}");
            assert!(e.message.contains("`scale`") && e.message.contains(says), "{e}\nlacks: {says}");
        }
        let e = Checked::new(&k, None, &good[..5]).unwrap_err();
        assert!(e.message.contains("takes 6 arguments, but 5"), "{e}");
        assert!(e.help.contains("eps: f32"), "{e}");
    }

    #[test]
    fn the_same_function_of_an_index_is_the_same_layout() {
        let k = kernel();
        let (x, w) = (layout("((4,4),4):((4,16),1)"), layout("(2,2):(1,2)"));
        let given = [
            tensor(0x100, DType::F32, &x, true),
            tensor(0x200, DType::BF16, &w, true),
            int(16),
            EPS,
            SYNC,
            TEAM,
        ];
        assert!(Checked::new(&k, None, &given).is_ok());
    }

    #[test]
    fn a_description_that_contradicts_itself_is_an_error() {
        let (x, w) = (layout("(16,4):(4,1)"), layout("4:1"));
        let given = [
            tensor(0x100, DType::F32, &x, true),
            tensor(0x200, DType::BF16, &w, false),
            int(16),
            EPS,
            SYNC,
            TEAM,
        ];
        let change: [&dyn Fn(&mut KernelInfo); 3] = [
            &|k| k.params[6].kind = ParamKind::Hidden(Hidden::Peers { base: 0, team: 77 }),
            &|k| k.params[7].kind = ParamKind::Hidden(Hidden::MyPe { team: 0 }),
            &|k| k.params[3].size = 8,
        ];
        for change in change {
            let mut k = kernel();
            change(&mut k);
            assert!(Checked::new(&k, None, &given).unwrap_err().message.contains("description"));
        }
    }
}
