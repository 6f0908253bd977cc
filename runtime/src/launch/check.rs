//! Arguments against a kernel's description, before anything is launched.

use super::argument::{Elements, Given};
use super::extent::Extents;
use super::info::{KernelInfo, ParamInfo, ParamKind, Space, WORLD};
use crate::error::{ARGUMENT, Error, LAUNCH, Result};
use crate::nvshmem::sys::TEAM_WORLD;
use weft_layout::Layout;

/// Arguments that fit a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked<'k> {
    kernel: &'k KernelInfo,
    /// The parameters as the code reads them, addresses that only the launcher knows still 0.
    pub block: Vec<u8>,
    /// Those addresses, and what is asked of all PEs.
    pub hidden: Vec<Hidden>,
    /// What the parameters bring, by index.
    pub values: Vec<Option<i64>>,
    /// CTAs for which each barrier has counters, with its name.
    barriers: Vec<(&'k str, u32)>,
}

/// An address that the launcher finds out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hidden {
    /// Byte of the parameter block.
    pub offset: usize,
    /// Which.
    pub what: Address,
    /// The argument whose address it is, by position; none for those of no argument.
    pub base: Option<usize>,
    /// The argument that is the team; none for all PEs.
    pub team: Option<usize>,
}

/// Which address of a symmetric tensor or barrier, or what of all PEs, which no argument brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// The team's multicast address.
    Multicast,
    /// A table of the address on each PE of the team.
    Peers,
    /// Such a table, with 0 for a PE whose memory loads and stores do not reach.
    Reach,
    /// This PE.
    MyPe,
    /// The number of PEs.
    NPes,
}

/// Most bytes of parameters of any kernel (CUDA C++ Programming Guide, Compute Capabilities: 32,764).
const MAX_PARAM_BYTES: usize = 32_764;

impl KernelInfo {
    /// Checks arguments, in the order of the kernel's text, and lays them out.
    ///
    /// # Errors
    /// `R0502`, with the parameter, what it takes and what it was given: another number of arguments, kind, element
    /// type, shape, stride, space, alignment or range.
    pub fn check<'k>(&'k self, given: &[Given<'_>]) -> Result<Checked<'k>> {
        self.check_among(None, given)
    }

    /// As [`check`](KernelInfo::check), among so many PEs in all, which layouts may depend on.
    ///
    /// # Errors
    /// As there.
    pub fn check_among<'k>(&'k self, n_pes: Option<u32>, given: &[Given<'_>]) -> Result<Checked<'k>> {
        let params: Vec<_> = self.arguments().collect();
        if params.len() != given.len() {
            let takes: Vec<_> = params.iter().map(|(_, p)| format!("{}: {}", p.name, p.kind)).collect();
            let message =
                format!("`{}` takes {}, and {} were given", self.name, count(params.len()), given.len());
            return Err(Error::new(ARGUMENT, message).help(format!("it takes ({})", takes.join(", "))));
        }
        if self.param_bytes() > MAX_PARAM_BYTES {
            let message =
                format!("`{}` is said to take {} bytes of parameters", self.name, self.param_bytes());
            return Err(Error::new(ARGUMENT, message)
                .help(format!("a kernel has at most {MAX_PARAM_BYTES}: its description is damaged")));
        }
        let mut out = Checked {
            kernel: self,
            block: vec![0; self.param_bytes()],
            hidden: Vec::new(),
            values: vec![None; self.params.len()].into_iter().chain([n_pes.map(i64::from)]).collect(),
            barriers: Vec::new(),
        };
        // Layouts may depend on any of the numbers: these come first.
        for ((i, p), g) in params.iter().zip(given) {
            out.values[*i] = self.value(p, g)?;
        }
        for ((_, p), g) in params.iter().zip(given) {
            let bytes = self.bytes(p, g, &out.values)?;
            out.put(p, &bytes)?;
            if let Given::Barrier { ctas, .. } = g {
                out.barriers.push((&p.name, *ctas));
            }
        }
        let argument = |param: u32| params.iter().position(|(i, _)| *i == param as usize);
        for p in self.params.iter().filter(|p| p.kind.is_hidden()) {
            let team = |team: u32| match argument(team).and_then(|a| Some((a, given.get(a)?))) {
                Some((a, Given::Team { my_pe, n_pes, handle })) => Ok((a, *my_pe, *n_pes, *handle)),
                _ => Err(self.malformed(p)),
            };
            let (what, base, t) = match p.kind {
                ParamKind::TeamHandle { team: WORLD } => {
                    out.put(p, &TEAM_WORLD.to_le_bytes())?;
                    continue;
                }
                ParamKind::MyPe { team: WORLD } => (Address::MyPe, None, WORLD),
                ParamKind::NPes { team: WORLD } => (Address::NPes, None, WORLD),
                ParamKind::MyPe { team: t }
                | ParamKind::NPes { team: t }
                | ParamKind::TeamHandle { team: t } => {
                    let (_, my_pe, n_pes, handle) = team(t)?;
                    match p.kind {
                        ParamKind::MyPe { .. } => out.put(p, &my_pe.to_le_bytes())?,
                        ParamKind::NPes { .. } => out.put(p, &n_pes.to_le_bytes())?,
                        _ => out.put(p, &handle.to_le_bytes())?,
                    }
                    continue;
                }
                ParamKind::Multicast { base, team } => (Address::Multicast, Some(base), team),
                ParamKind::Peers { base, team } => (Address::Peers, Some(base), team),
                ParamKind::Reach { base, team } => (Address::Reach, Some(base), team),
                _ => continue,
            };
            out.put(p, if base.is_some() { &[0; 8] } else { &[0; 4] })?;
            out.hidden.push(Hidden {
                offset: p.offset as usize,
                what,
                base: base.map(|b| argument(b).ok_or_else(|| self.malformed(p))).transpose()?,
                team: if t == WORLD { None } else { Some(team(t)?.0) },
            });
        }
        Ok(out)
    }

    /// The kind fits; what the parameter brings to layouts.
    fn value(&self, p: &ParamInfo, g: &Given<'_>) -> Result<Option<i64>> {
        match (&p.kind, g) {
            (ParamKind::Scalar { dtype, multiple_of }, Given::Scalar { value, .. }) => {
                value.encode(*dtype).map_err(|why| self.mismatch(p, g, &why))?;
                let super::Number::Int(n) = value else { return Ok(None) };
                if *multiple_of > 0 && (*n < 1 || n % i128::from(*multiple_of) != 0) {
                    return Err(self.mismatch(p, g, &format!("not a positive multiple of {multiple_of}")));
                }
                Ok(i64::try_from(*n).ok())
            }
            (ParamKind::Team, Given::Team { n_pes, .. }) => Ok(Some(i64::from(*n_pes))),
            (ParamKind::Tensor { .. }, Given::Tensor { .. })
            | (ParamKind::Barrier, Given::Barrier { .. }) => Ok(None),
            _ => Err(self.mismatch(p, g, "")),
        }
    }

    /// The parameter as the code reads it.
    fn bytes(&self, p: &ParamInfo, g: &Given<'_>, values: &[Option<i64>]) -> Result<Vec<u8>> {
        match (&p.kind, *g) {
            (ParamKind::Scalar { dtype, .. }, Given::Scalar { value, .. }) => {
                value.encode(*dtype).map_err(|why| self.mismatch(p, g, &why))
            }
            (ParamKind::Tensor { .. }, Given::Tensor { address, .. }) => {
                self.tensor(p, g, values)?;
                Ok(address.to_le_bytes().into())
            }
            (ParamKind::Barrier, Given::Barrier { address, .. }) => Ok(address.to_le_bytes().into()),
            _ => Ok(Vec::new()),
        }
    }

    fn tensor(&self, p: &ParamInfo, g: &Given<'_>, values: &[Option<i64>]) -> Result<()> {
        let ParamKind::Tensor { dtype: wants, layout, space, align } = &p.kind else { return Ok(()) };
        let Given::Tensor { address, dtype, extent, symmetric } = *g else { return Ok(()) };
        let bad = |why: &str| Err(self.mismatch(p, g, why));
        if dtype != *wants {
            return bad(&format!("elements of {dtype}, not {wants}"));
        }
        if *space == Space::Symm && !symmetric {
            return Err(self
                .mismatch(p, g, "not symmetric memory")
                .help("allocate it with World::tensor, on every PE, or copy it into one that is"));
        }
        let layout = self.layout(p, layout, values)?;
        match extent {
            Elements::Layout(has) => {
                if let Some(why) = difference(&layout, has) {
                    return bad(&why);
                }
            }
            Elements::Flat(n) => {
                let needs = crate::shape::memory_elements(&layout)?;
                if n < needs {
                    return bad(&format!("{layout} reaches over {needs} elements"));
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
    fn layout(&self, p: &ParamInfo, layout: &Extents, values: &[Option<i64>]) -> Result<Layout> {
        let bad = |why: String| {
            let message = format!("`{}`: `{}: {}`: {why}", self.name, p.name, p.kind);
            Err(Error::new(ARGUMENT, message).help(self.brought(values)))
        };
        match layout.layout(values) {
            Ok(l) if l.size().is(0) => bad(format!("{l} has no elements")),
            Ok(l) => Ok(l),
            Err(why) => bad(why),
        }
    }

    /// `%0 is `n`, 17`: what a layout's text refers to.
    fn brought(&self, values: &[Option<i64>]) -> String {
        let known = self.params.iter().zip(values).enumerate();
        let shown = known.filter_map(|(i, (p, v))| match p.kind {
            ParamKind::Team => Some(format!("%{i} is the PEs of `{}`, {}", p.name, (*v)?)),
            _ => Some(format!("%{i} is `{}`, {}", p.name, (*v)?)),
        });
        shown.collect::<Vec<_>>().join("; ")
    }

    fn mismatch(&self, p: &ParamInfo, g: &Given<'_>, why: &str) -> Error {
        let colon = if why.is_empty() { "" } else { ": " };
        let message =
            format!("`{}` takes `{}: {}`, and {g} was given{colon}{why}", self.name, p.name, p.kind);
        Error::new(ARGUMENT, message)
    }

    /// A description that no compiler of ours writes.
    fn malformed(&self, p: &ParamInfo) -> Error {
        let message = format!("the description of `{}` is wrong: `{}: {}`", self.name, p.name, p.kind);
        Error::new(ARGUMENT, message).help("compile the kernel anew: its description is not its compiler's")
    }
}

impl Checked<'_> {
    /// The grid that the kernel asks for itself, if it does.
    ///
    /// # Errors
    /// `R0503` for a number of CTAs that no grid has.
    pub fn own_grid(&self) -> Result<Option<[u32; 3]>> {
        let Some(grid) = &self.kernel.grid else { return Ok(None) };
        let mut out = [1; 3];
        for (o, extent) in out.iter_mut().zip(grid) {
            let n = extent.value(&self.values);
            *o = n.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).ok_or_else(|| {
                let n = n.map_or("an unknown number of".to_owned(), |n| n.to_string());
                let message = format!("`{}` asks for {extent} CTAs, which is {n}", self.kernel.name);
                Error::new(LAUNCH, message).help(self.kernel.brought(&self.values))
            })?;
        }
        Ok(Some(out))
    }

    /// Most CTAs that all its barriers have counters for; none without a barrier.
    pub fn barrier_ctas(&self) -> Option<u32> {
        self.barriers.iter().map(|(_, ctas)| *ctas).min()
    }

    /// Whether a grid fits the kernel and its barriers.
    ///
    /// # Errors
    /// `R0502` where a barrier has too few counters, `R0503` where the kernel tells CTAs apart by x alone.
    pub fn fits(&self, grid: [u32; 3]) -> Result<()> {
        let name = &self.kernel.name;
        if !self.kernel.planes && self.kernel.grid.is_none() && grid[1..] != [1, 1] {
            let message = format!("`{name}` numbers its CTAs in one dimension, and the grid is {grid:?}");
            return Err(
                Error::new(LAUNCH, message).help("declare `grid(x, y)` in it, or launch a grid of x alone")
            );
        }
        let ctas = grid.iter().fold(1u64, |n, g| n.saturating_mul(u64::from(*g)));
        match self.barriers.iter().find(|(_, has)| u64::from(*has) < ctas) {
            None => Ok(()),
            Some((barrier, has)) => {
                let message = format!(
                    "`{name}`: barrier `{barrier}` has counters for {has} CTAs, and {ctas} are launched"
                );
                Err(Error::new(ARGUMENT, message)
                    .help("make the barrier for as many CTAs as any of its launches has"))
            }
        }
    }

    /// Writes what the launcher found out.
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
            None => return Err(self.kernel.malformed(p)),
        }
        Ok(())
    }
}

/// How two layouts differ as functions of an index; none where they do not.
fn difference(wants: &Layout, has: &Layout) -> Option<String> {
    if wants == has {
        return None;
    }
    let (w, h) = (wants.size(), has.size());
    if w != h {
        return Some(format!("{h} elements, not the {w} of {wants}"));
    }
    match (wants.coalesce(), has.coalesce()) {
        (Ok(w), Ok(h)) if w == h => None,
        _ => Some(format!("its elements do not lie as {wants} has them")),
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
    use super::super::Number;
    use super::*;
    use crate::DType;
    use weft_layout::parse_layout;

    /// scale(x: symm<f32, (n, 4):(4, 1)>, w: global<bf16, 4:1>, n: i64 (multiple of 8), eps: f32, sync: barrier,
    /// team: team), and what its unicast lowering adds.
    fn kernel() -> KernelInfo {
        use ParamKind::{Barrier, MyPe, NPes, Peers, Scalar, Team, Tensor};
        let tensor = |dtype, layout: &str, space, align| Tensor {
            dtype,
            layout: layout.parse().unwrap(),
            space,
            align,
        };
        let params = [
            ("x", 0, 8, tensor(DType::F32, "(%2,4):(4,1)", Space::Symm, 16)),
            ("w", 8, 8, tensor(DType::BF16, "4:1", Space::Global, 2)),
            ("n", 16, 8, Scalar { dtype: DType::I64, multiple_of: 8 }),
            ("eps", 24, 4, Scalar { dtype: DType::F32, multiple_of: 0 }),
            ("sync", 32, 8, Barrier),
            ("team", 40, 0, Team),
            ("x_peers", 40, 8, Peers { base: 0, team: 5 }),
            ("team_my_pe", 48, 4, MyPe { team: 5 }),
            ("team_n_pes", 52, 4, NPes { team: 5 }),
        ];
        KernelInfo {
            name: "scale".into(),
            block: [128, 1, 1],
            cluster: None,
            grid: Some(["ceil_div(%2,8)", "1", "%5"].map(|e| e.parse().unwrap())),
            planes: true,
            params: params
                .map(|(name, offset, size, kind)| ParamInfo { name: name.into(), offset, size, kind })
                .into(),
        }
    }

    fn layout(text: &str) -> Layout {
        parse_layout(text, &mut |_| None).unwrap()
    }

    fn tensor(address: u64, dtype: DType, layout: &Layout, symmetric: bool) -> Given<'_> {
        Given::Tensor { address, dtype, extent: Elements::Layout(layout), symmetric }
    }

    fn int(n: i128) -> Given<'static> {
        Given::Scalar { dtype: DType::I32, value: Number::Int(n) }
    }

    const EPS: Given<'static> = Given::Scalar { dtype: DType::F64, value: Number::Float(0.5) };
    const SYNC: Given<'static> = Given::Barrier { address: 0x300, ctas: 8 };
    const TEAM: Given<'static> = Given::Team { my_pe: 1, n_pes: 2, handle: 7 };

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
        assert!(k.check(&given).unwrap_err().help.contains("damaged"));
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
        let checked = k.check_among(Some(2), &given).unwrap();
        let word = |at: usize| u64::from_le_bytes(checked.block[at..at + 8].try_into().unwrap());
        assert_eq!([word(0), word(8), word(16), word(32), word(40)], [0x100, 0x200, 16, 0x300, 0]);
        assert_eq!(checked.block[24..28], 0.5f32.to_le_bytes());
        assert_eq!(word(48), 1 | 2 << 32);
        assert_eq!(checked.block.len(), 56);
        assert_eq!(
            checked.hidden,
            [Hidden { offset: 40, what: Address::Peers, base: Some(0), team: Some(5) }]
        );
        assert_eq!(checked.own_grid(), Ok(Some([2, 1, 2])));
        assert!(checked.fits([2, 1, 2]).is_ok());
        let e = checked.fits([2, 1, 8]).unwrap_err();
        assert_eq!((e.code, e.message.contains("8 CTAs, and 16")), (ARGUMENT, true), "{e}");
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
        let flat = |n| Given::Tensor {
            address: 0x200,
            dtype: DType::BF16,
            extent: Elements::Flat(n),
            symmetric: false,
        };
        for (at, instead, says) in [
            (0, tensor(0x100, DType::F16, &x, true), "elements of f16, not f32"),
            (0, tensor(0x100, DType::F32, &x, false), "not symmetric"),
            (0, tensor(0x108, DType::F32, &x, true), "8 bytes past a multiple of 16"),
            (0, tensor(0x100, DType::F32, &wrong, true), "32 elements, not the 64"),
            (0, tensor(0x100, DType::F32, &column, true), "do not lie as (16,4):(4,1)"),
            (0, tensor(0x100, DType::F32, &folded, true), "do not lie as"),
            (0, int(1), "1: i32 was given"),
            (1, flat(3), "reaches over 4 elements"),
            (1, SYNC, "barrier for 8 CTAs was given"),
            (2, int(12), "not a positive multiple of 8"),
            (2, int(-8), "not a positive multiple of 8"),
            (2, int(1 << 70), "does not fit i64"),
            (2, EPS, "a floating-point number"),
            (3, int(1), "an integer"),
            (4, tensor(0x100, DType::F32, &x, true), "sync: barrier"),
            (5, int(0), "team: team"),
        ] {
            let mut given = good;
            given[at] = instead;
            let e = k.check(&given).unwrap_err();
            assert_eq!(e.code, ARGUMENT);
            let name = &k.params[at].name;
            assert!(e.message.contains(&format!("`{name}: ")), "{e}");
            assert!(e.message.contains("`scale`") && e.message.contains(says), "{e}\nlacks: {says}");
        }
        let e = k.check(&good[..5]).unwrap_err();
        assert!(e.message.contains("takes 6 arguments, and 5"), "{e}");
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
        assert!(k.check(&given).is_ok());
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
            &|k| k.params[6].kind = ParamKind::Peers { base: 0, team: 77 },
            &|k| k.params[7].kind = ParamKind::MyPe { team: 0 },
            &|k| k.params[3].size = 8,
        ];
        for change in change {
            let mut k = kernel();
            change(&mut k);
            assert!(k.check(&given).unwrap_err().message.contains("description"));
        }
    }
}
