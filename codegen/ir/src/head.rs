//! The heads of kernels: their parameters and the number of CTAs.

use crate::diag::{Diagnostic, Span};
use crate::kernel::{Kernel, Value};
use crate::level::{Head, Level, Machine};
use crate::names::{Dim, Role, Scalar, Space};
use crate::op::Var;
use crate::text::{Field, ParseError, Printer, Reader};
use crate::types::{TypeRef, ValueType, machine};
use std::sync::Arc;
use weft_abi::{EntryKind, Extent, Hidden, MapShape, MapSwizzle};
use weft_layout::Int;

/// A run-time parameter of a kernel that works on tensors.
#[derive(Clone, PartialEq, Debug)]
pub struct Param<L: Level> {
    /// The name of the parameter in the text.
    pub name: Arc<str>,
    /// The type of the parameter.
    pub ty: L::Type,
    /// The source of the argument: the caller or the launch.
    pub kind: ParamKind,
    /// A positive integer that divides an integer parameter, which is then positive too. It is 0 if
    /// nothing is known.
    pub div: i64,
    /// The use of a tensor, if the text declares one.
    pub role: Option<Role>,
    /// The source text of the parameter.
    pub span: Span,
}

/// The source of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ParamKind {
    /// The caller passes the argument.
    User,
    /// The launch computes the argument.
    Hidden(Hidden),
}

/// The head of a kernel at the tensor level, and while passes lower it.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorHead<L: Level> {
    /// The parameters that are known at run time.
    pub params: Vec<Param<L>>,
    /// The number of CTAs in terms of the integer parameters, if the kernel states it. Otherwise
    /// the launcher decides.
    pub grid: Option<[Int; 3]>,
    /// The parameters whose elements the host or other kernels signal while this kernel waits.
    pub signaled: Vec<u32>,
}

impl<L: Level> Default for TensorHead<L> {
    fn default() -> Self {
        TensorHead { params: Vec::new(), grid: None, signaled: Vec::new() }
    }
}

/// The maximum number of parameters that the reader accepts.
const MAX_PARAMS: u32 = 1024;

impl<L: Level<Head = TensorHead<L>>> Head<L> for TensorHead<L> {
    fn param(&self, index: u32) -> Option<&L::Type> {
        self.params.get(index as usize).map(|p| &p.ty)
    }

    fn param_name(&self, index: u32) -> Option<&str> {
        self.params.get(index as usize).map(|p| &*p.name)
    }

    fn range(&self, index: u32) -> (i64, Option<i64>, i64) {
        match self.params.get(index as usize) {
            Some(Param { kind: ParamKind::Hidden(Hidden::MyPe { .. }), .. }) => (0, None, 1),
            Some(Param { div: 0, .. }) => (i64::MIN, None, 1),
            param => (1, None, param.map_or(1, |p| p.div)),
        }
    }

    fn ctas(&self, dim: Dim) -> Option<i64> {
        self.grid.as_ref().and_then(|grid| grid[dim as usize].as_const())
    }

    fn is_team(&self, index: u32) -> bool {
        self.param(index).is_some_and(|ty| ty.view() == TypeRef::Team)
    }

    fn print_attributes(&self, p: &mut Printer<'_, L>) {
        if let Some([x, y, z]) = &self.grid {
            p.put(format_args!(" grid({{{x}}}, {{{y}}}, {{{z}}})"));
        }
        for param in &self.signaled {
            p.put(format_args!(" signaled({param})"));
        }
    }

    fn print_params(&self, p: &mut Printer<'_, L>) {
        // Scalars are defined first, because the layouts of other parameters refer to them.
        let order =
            |scalar| self.params.iter().enumerate().filter(move |(_, p)| (p.ty.lanes() == Some(1)) == scalar);
        for (i, param) in order(true).chain(order(false)) {
            p.mark(param.span);
            p.put(format_args!("  param {i} {} : {}", param.name, param.ty));
            if param.div != 1 {
                p.put(format_args!(" % {}", param.div));
            }
            print_role(p, param.role);
            if let ParamKind::Hidden(hidden) = param.kind {
                p.put(format_args!(" = {}", hidden_text(hidden)));
            }
            p.put(format_args!("\n"));
        }
    }

    fn read_attributes(r: &mut Reader<'_, L>) -> Result<(), ParseError> {
        if r.eat("grid") {
            r.expect("(")?;
            let (x, _, y, _, z) =
                (r.int_expr()?, r.expect(",")?, r.int_expr()?, r.expect(",")?, r.int_expr()?);
            r.expect(")")?;
            r.kernel.head.grid = Some([x, y, z]);
        }
        while r.eat("signaled") {
            r.expect("(")?;
            let param = u32::read(r)?;
            r.expect(")")?;
            r.kernel.head.signaled.push(param);
        }
        Ok(())
    }

    fn read_params(r: &mut Reader<'_, L>) -> Result<(), ParseError> {
        let mut indices = Vec::new();
        while r.eat("param") {
            let index = u32::read(r)?;
            if index >= MAX_PARAMS {
                return Err(r.error(format!("a kernel has at most {MAX_PARAMS} parameters")));
            }
            let param = read_param(r)?;
            // A scalar can be a symbol in the types of the following parameters.
            let params = &mut r.kernel.head.params;
            while params.len() <= index as usize {
                params.push(param.clone());
            }
            if let Some(slot) = params.get_mut(index as usize) {
                *slot = param.clone();
            }
            r.define(Value(index), Var::Param { index }.into(), param.ty.clone())?;
            indices.push(index);
        }
        in_order(r, indices)
    }

    fn check(_: &Kernel<L>, _: &mut Vec<Diagnostic>) {}
}

/// Checks that the caller passes all parameters, as it does at the tensor level.
pub(crate) fn all_given(k: &Kernel, found: &mut Vec<Diagnostic>) {
    for p in k.head.params.iter().filter(|p| p.kind != ParamKind::User) {
        let message = format!("the launcher fills in parameter `{}`", p.name);
        found.push(
            Diagnostic::error(crate::abi::BAD_PARAM, p.span, message)
                .help("the passes add such parameters; at the tensor level the caller passes all of them"),
        );
    }
}

/// Reads `{expression}` over values of the parameters.
fn extent(r: &mut Reader<'_, Machine>) -> Result<Extent, ParseError> {
    let (_, text) = r.braced()?;
    text.parse().map_err(|e| r.error(e))
}

/// Checks that the parameters are numbered from 0.
fn in_order<L: Level>(r: &Reader<'_, L>, mut indices: Vec<u32>) -> Result<(), ParseError> {
    indices.sort_unstable();
    match indices.iter().enumerate().any(|(i, p)| i != *p as usize) {
        true => Err(r.error("parameters are numbered from 0 without gaps".into())),
        false => Ok(()),
    }
}

fn read_param<L: Level>(r: &mut Reader<'_, L>) -> Result<Param<L>, ParseError> {
    let name = Arc::from(r.word()?);
    r.expect(":")?;
    let ty = r.ty()?;
    // The space matters: `%` without a space begins the name of the first instruction's value.
    let div = if r.rest().starts_with("% ") && r.eat("%") { r.int()? } else { 1 };
    let role = if r.eat(",") { Some(read_role(r)?) } else { None };
    let kind = if r.eat("=") {
        let word = r.word()?;
        ParamKind::Hidden(read_hidden(word, r)?)
    } else {
        ParamKind::User
    };
    Ok(Param { name, ty, kind, div, role, span: Span::NONE })
}

/// Prints the role of a tensor after a comma.
fn print_role<L: Level>(p: &mut Printer<'_, L>, role: Option<Role>) {
    if let Some(role) = role {
        p.put(format_args!(", {role}"));
    }
}

fn read_role<L: Level>(r: &mut Reader<'_, L>) -> Result<Role, ParseError> {
    let word = r.word()?;
    Role::parse(word).ok_or_else(|| r.error(format!("`{word}` is not a role of a parameter")))
}

/// Reads the text that follows the name of a hidden parameter.
fn read_hidden<L: Level>(word: &str, r: &mut Reader<'_, L>) -> Result<Hidden, ParseError> {
    r.expect("(")?;
    let first = u32::read(r)?;
    if word == "tensor_map" {
        return Ok(Hidden::TensorMap { base: first, map: read_map(r)? });
    }
    if word == "peer_maps" {
        r.expect(",")?;
        let team = u32::read(r)?;
        return Ok(Hidden::PeerMaps { base: first, team, map: read_map(r)? });
    }
    let second = if r.eat(",") { Some(u32::read(r)?) } else { None };
    r.expect(")")?;
    let (base, team) = second.map_or((None, first), |team| (Some(first), team));
    Hidden::parse(word, base, team).ok_or_else(|| r.error(format!("unknown parameter kind `{word}`")))
}

/// Reads a tensor map: its swizzle, and then the mode and extent of each dimension.
fn read_map<L: Level>(r: &mut Reader<'_, L>) -> Result<MapShape, ParseError> {
    r.expect(",")?;
    let word = r.word()?;
    let swizzle = MapSwizzle::parse(word).ok_or_else(|| r.error(format!("`{word}` is not a swizzle")))?;
    let mut dims = Vec::new();
    while r.eat(",") {
        let mode = u32::read(r)?;
        r.expect(",")?;
        let dim = u8::try_from(mode).ok().zip(u16::try_from(u32::read(r)?).ok());
        dims.push(dim.ok_or_else(|| r.error("a dimension of a tensor map is too large".into()))?);
    }
    r.expect(")")?;
    MapShape::new(swizzle, &dims).ok_or_else(|| r.error(format!("a tensor map of {} dimensions", dims.len())))
}

/// A parameter of a kernel at the machine level: an address or a number of the entry point.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineParam {
    /// The name of the parameter.
    pub name: Arc<str>,
    /// A pointer or a scalar.
    pub ty: machine::Type,
    /// The alignment of the address in bytes, a power of two. It is 1 for a number.
    pub align: u32,
    /// The index among the launch's parameters, which include teams. The entry point has no parameter for a
    /// team.
    pub source: u32,
    /// The source text of the parameter.
    pub span: Span,
}

/// The head of a kernel at the machine level.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MachineHead {
    /// The parameters of the entry point, in order.
    pub params: Vec<MachineParam>,
    /// The way in which the kernel is launched. It is `None` for a kernel that something else launches.
    pub launch: Option<Launch>,
}

/// The facts that a launcher needs about a kernel besides its name, block and entry point.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Launch {
    /// The number of CTAs, if the kernel states it. Otherwise the launcher decides.
    pub grid: Option<[Extent; 3]>,
    /// Whether the kernel distinguishes CTAs by y and z. Otherwise the grid has only x.
    pub planes: bool,
    /// The caller's parameters in the order of the text, followed by those that the launch fills
    /// in.
    pub params: Vec<LaunchParam>,
}

/// A parameter of a launch.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchParam {
    /// The name of the parameter.
    pub name: Arc<str>,
    /// The kind of the parameter.
    pub kind: weft_abi::ParamKind,
}

impl LaunchParam {
    /// The type with which the entry point gets the parameter. It is `None` for a team, which is
    /// not passed.
    pub fn passed(&self) -> Option<machine::Type> {
        use weft_abi::ParamKind as Kind;
        match &self.kind {
            Kind::Tensor { space, .. } => Some(machine::Type::Pointer(*space)),
            Kind::Scalar { dtype, .. } => Some(machine::Type::Scalar(*dtype)),
            Kind::Barrier => Some(machine::Type::Pointer(Space::Symmetric)),
            Kind::Hidden(hidden) => Some(match hidden.entry() {
                EntryKind::Number(s) => machine::Type::Scalar(s),
                EntryKind::Address { .. } | EntryKind::Map => machine::Type::Pointer(Space::Global),
            }),
            Kind::Team => None,
        }
    }

    fn print(&self, p: &mut Printer<'_, Machine>) {
        use weft_abi::ParamKind as Kind;
        match &self.kind {
            Kind::Tensor { dtype, layout, space, align, role } => {
                p.put(format_args!("{space}<{dtype}, {{{layout}}}>, align {align}"));
                print_role(p, *role);
            }
            Kind::Scalar { dtype, multiple_of } => p.put(format_args!("{dtype} % {multiple_of}")),
            Kind::Barrier => p.put(format_args!("barrier")),
            Kind::Team => p.put(format_args!("team")),
            Kind::Hidden(hidden) => p.put(format_args!("{}", hidden_text(*hidden))),
        }
    }

    fn read(r: &mut Reader<'_, Machine>) -> Result<LaunchParam, ParseError> {
        use weft_abi::ParamKind as Kind;
        let name = Arc::from(r.word()?);
        r.expect(":")?;
        let word = r.word()?;
        let kind = match (word, Space::parse(word), Scalar::parse(word)) {
            ("barrier", ..) => Kind::Barrier,
            ("team", ..) if !r.rest().starts_with('(') => Kind::Team,
            (_, Some(space @ (Space::Global | Space::Symmetric)), _) => {
                r.expect("<")?;
                let elem = r.word()?;
                let dtype = Scalar::parse(elem);
                let dtype = dtype.ok_or_else(|| r.error(format!("`{elem}` is not an element type")))?;
                r.expect(",")?;
                let (_, text) = r.braced()?;
                let layout = text.parse().map_err(|e| r.error(e))?;
                r.expect(">")?;
                r.expect(",")?;
                r.expect("align")?;
                let align = u32::read(r)?;
                let role = if r.eat(",") { Some(read_role(r)?) } else { None };
                Kind::Tensor { dtype, layout, space, align, role }
            }
            (_, _, Some(dtype)) => {
                r.expect("%")?;
                Kind::Scalar { dtype, multiple_of: r.int()? }
            }
            _ => Kind::Hidden(read_hidden(word, r)?),
        };
        Ok(LaunchParam { name, kind })
    }
}

/// The text form of a hidden parameter, such as `peers(0, 2)`.
fn hidden_text(hidden: Hidden) -> String {
    if let Hidden::TensorMap { base, map } = hidden {
        return format!("tensor_map({base}, {map})");
    }
    let base = hidden.base().map(|base| format!("{base}, ")).unwrap_or_default();
    let map = hidden.map().map(|map| format!(", {map}")).unwrap_or_default();
    format!("{}({base}{}{map})", hidden.name(), hidden.team())
}

impl Head<Machine> for MachineHead {
    fn param(&self, index: u32) -> Option<&machine::Type> {
        self.params.get(index as usize).map(|p| &p.ty)
    }

    fn param_name(&self, index: u32) -> Option<&str> {
        self.params.get(index as usize).map(|p| &*p.name)
    }

    fn range(&self, _: u32) -> (i64, Option<i64>, i64) {
        (i64::MIN, None, 1)
    }

    fn ctas(&self, _: Dim) -> Option<i64> {
        None
    }

    fn is_team(&self, _: u32) -> bool {
        false
    }

    fn print_attributes(&self, p: &mut Printer<'_, Machine>) {
        let Some(launch) = &self.launch else { return };
        p.put(format_args!(" launch"));
        if let Some([x, y, z]) = &launch.grid {
            p.put(format_args!(" grid({{{x}}}, {{{y}}}, {{{z}}})"));
        }
        if launch.planes {
            p.put(format_args!(" planes"));
        }
    }

    fn print_params(&self, p: &mut Printer<'_, Machine>) {
        for (i, param) in self.launch.iter().flat_map(|l| &l.params).enumerate() {
            p.put(format_args!("  launch {i} {} : ", param.name));
            param.print(p);
            p.put(format_args!("\n"));
        }
        for (i, param) in self.params.iter().enumerate() {
            p.put(format_args!("  param {i} {} : {}", param.name, param.ty));
            if param.align != 1 {
                p.put(format_args!(", align {}", param.align));
            }
            if param.source as usize != i {
                p.put(format_args!(", source {}", param.source));
            }
            p.put(format_args!("\n"));
        }
    }

    fn read_attributes(r: &mut Reader<'_, Machine>) -> Result<(), ParseError> {
        if !r.eat("launch") {
            return Ok(());
        }
        let mut launch = Launch::default();
        if r.eat("grid") {
            r.expect("(")?;
            let (x, _, y, _, z) = (extent(r)?, r.expect(",")?, extent(r)?, r.expect(",")?, extent(r)?);
            r.expect(")")?;
            launch.grid = Some([x, y, z]);
        }
        launch.planes = r.eat("planes");
        r.kernel.head.launch = Some(launch);
        Ok(())
    }

    fn read_params(r: &mut Reader<'_, Machine>) -> Result<(), ParseError> {
        let mut indices = Vec::new();
        while r.eat("launch") {
            let index = u32::read(r)?;
            let param = LaunchParam::read(r)?;
            match &mut r.kernel.head.launch {
                Some(launch) if launch.params.len() == index as usize && index < MAX_PARAMS => {
                    launch.params.push(param);
                }
                _ => return Err(r.error("parameters of a launch are numbered from 0 without gaps".into())),
            }
        }
        while r.eat("param") {
            let index = u32::read(r)?;
            if index as usize != indices.len() {
                return Err(r.error("parameters are numbered from 0 without gaps".into()));
            }
            let name = Arc::from(r.word()?);
            r.expect(":")?;
            let ty = r.ty()?;
            let (mut align, mut source) = (1, index);
            while r.eat(",") {
                if r.eat("align") {
                    align = u32::read(r)?;
                } else {
                    r.expect("source")?;
                    source = u32::read(r)?;
                }
            }
            r.kernel.head.params.push(MachineParam { name, ty, align, source, span: Span::NONE });
            indices.push(index);
        }
        in_order(r, indices)
    }

    fn check(k: &Kernel<Machine>, found: &mut Vec<Diagnostic>) {
        if let Err(d) = crate::abi::signature(k) {
            found.push(d);
        }
        let Some(launch) = &k.head.launch else { return };
        for p in &k.head.params {
            let source = launch.params.get(p.source as usize);
            if source.and_then(LaunchParam::passed).as_ref() != Some(&p.ty) {
                let message =
                    format!("parameter `{}` is {}, which is not a parameter of the launch", p.name, p.ty);
                found.push(
                    Diagnostic::error(crate::abi::BAD_PARAM, p.span, message)
                        .help("each parameter names a parameter of the launch as its `source`"),
                );
            }
        }
    }
}
