//! A user's kernel from a file, measured in the same run as the library's kernel.

use super::data::Operands;
use super::measure::{Result, Sets};
use super::scales::number;
use crate::BenchError;
use std::sync::Arc;
use weft::collective::Flat;
use weft::gemm::Problem;
use weft::gpu::{Grid, Kernel, target};
use weft::{KernelFile, Options};
use weft_abi::{ParamKind, Role};
use weft_lang::elaborate::{Define, Defines, Head};
use weft_runtime::cuda::AnyDeviceTensor;
use weft_runtime::launch::{AsArgument, Prepared};
use weft_runtime::{Device, Stream};

/// The parameters that such a kernel may take.
const PARAMETERS: [&str; 8] = ["m", "n", "k", "a", "b", "d", "scale_a", "scale_b"];

/// A kernel from a file that is measured as a product, such as the one of `examples/gemm.weft`. It
/// takes the extents m, n and k and the tensors a, b and d, in any order, and scale_a and scale_b if
/// operands have scales. Of the compile-time parameters T, OUT, B_MAJOR and SCALES, those that it
/// declares are set. Tensors that it declares as
/// `workspace` or `zeroed` are allocated for it and filled with zeros.
#[derive(Clone, Debug)]
pub struct Own {
    name: String,
    file: Arc<KernelFile>,
    kernel: Arc<str>,
    parameters: Vec<Arc<str>>,
    generics: Vec<Arc<str>>,
    defines: Defines,
}

impl PartialEq for Own {
    /// Whether both have the same name in the table.
    fn eq(&self, other: &Own) -> bool {
        (&self.name, &self.defines) == (&other.name, &other.defines)
    }
}

impl Own {
    /// Reads a kernel from a file, with values for compile-time parameters. `name` is its name in
    /// the table.
    ///
    /// # Errors
    ///
    /// Fails if there is no such kernel, or if it has other parameters.
    pub fn new(
        name: &str,
        file: impl Into<Arc<KernelFile>>,
        kernel: Option<&str>,
        defines: Defines,
    ) -> std::result::Result<Own, String> {
        let file = file.into();
        let heads = file.heads();
        let all: Vec<&Head> = heads.iter().filter(|h| kernel.is_none_or(|k| *h.name == *k)).collect();
        let [head] = all[..] else {
            let names: Vec<_> = heads.iter().map(|h| format!("`{}`", h.name)).collect();
            return Err(format!(
                "expected one kernel to measure, but {name} has {}: choose one",
                names.join(", ")
            ));
        };
        let mut others = head.params.iter().filter(|p| !PARAMETERS.contains(&&*p.name));
        if let Some(other) = others.find(|p| &*p.ty != "global") {
            return Err(format!(
                "{name} has the parameter `{}: {}`: expected only the extents m, n, k, the tensors a, b, d, scale_a, scale_b, and global memory",
                other.name, other.ty
            ));
        }
        if let Some(missing) = ["a", "b", "d"].iter().find(|t| head.params.iter().all(|p| *p.name != ***t)) {
            return Err(format!("{name} has no tensor parameter `{missing}`"));
        }
        let generics: Vec<_> = head.generics.iter().map(|(name, ..)| name.clone()).collect();
        if let Some(unknown) = defines.keys().find(|d| generics.iter().all(|g| **g != ***d)) {
            return Err(format!("{name} has no compile-time parameter `{unknown}`"));
        }
        let parameters = head.params.iter().map(|p| p.name.clone()).collect();
        let kernel = head.name.clone();
        Ok(Own { name: name.into(), file, kernel, parameters, generics, defines })
    }

    /// The name in the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the kernel multiplies by scales of A and B.
    pub fn takes_scales(&self) -> bool {
        ["scale_a", "scale_b"].iter().all(|scale| self.parameters.iter().any(|p| **p == **scale))
    }

    /// The values that were given for compile-time parameters, as text.
    pub fn defines(&self) -> String {
        let each: Vec<_> = self.defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
        each.join(",")
    }

    /// The launches for a problem, one for each set of operands, and the memory that they share.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not compile, or does not take such operands.
    pub(super) fn launches(
        &self,
        sets: &Sets,
        (device, stream): (&Device, &Stream),
    ) -> Result<(Vec<Prepared>, Vec<AnyDeviceTensor>)> {
        let mut options = Options::new(target(device)?);
        options.kernel = Some(self.kernel.to_string());
        let problem = &sets.problem;
        let scales = ("SCALES".to_owned(), Define::Int(number(sets.scales)));
        let all = problem.defines().into_iter().chain([scales]);
        let own = all.filter(|(name, _)| self.generics.iter().any(|g| **g == **name));
        options.defines = own.chain(self.defines.clone()).collect();
        let kernel = Kernel::with(device, self.file.clone(), options)?;
        let extents = [problem.shape.m, problem.shape.n, problem.shape.k];
        let memory = self.memory(&kernel, problem, (device, stream))?;
        let launch = |set: &Operands| {
            let mut own = memory.iter();
            let scales = set.scaling.as_ref().map(|scaling| scaling.own.each_ref().map(|t| Flat(t)));
            let scale = |i: usize| -> &dyn AsArgument { scales.as_ref().map_or(&set.d, |both| &both[i]) };
            let argument = |name: &Arc<str>| -> &dyn AsArgument {
                match &**name {
                    "m" => &extents[0],
                    "n" => &extents[1],
                    "k" => &extents[2],
                    "a" => &set.a,
                    "b" => &set.b,
                    "d" => &set.d,
                    "scale_a" => scale(0),
                    "scale_b" => scale(1),
                    _ => own.next().map_or(&set.d, |tensor| tensor),
                }
            };
            let arguments: Vec<_> = self.parameters.iter().map(argument).collect();
            Ok(kernel.prepared(stream, Grid::Auto, arguments)?)
        };
        let launches = sets.all.iter().map(launch).collect::<Result<_>>()?;
        Ok((launches, memory))
    }

    /// The memory that a kernel takes besides the operands, filled with zeros, in the order of its
    /// parameters.
    fn memory(
        &self,
        kernel: &Kernel,
        problem: &Problem,
        (device, stream): (&Device, &Stream),
    ) -> Result<Vec<AnyDeviceTensor>> {
        let params = &kernel.info()?.params;
        let values: Vec<Option<i64>> = params.iter().map(|p| extent(problem, &p.name)).collect();
        let mut memory = Vec::new();
        for param in params.iter().filter(|p| self.parameters.iter().any(|own| **own == p.name)) {
            let ParamKind::Tensor { dtype, layout, role, .. } = &param.kind else { continue };
            if PARAMETERS.contains(&&*param.name) {
                continue;
            }
            if !matches!(role, Some(Role::Workspace | Role::Zeroed)) {
                return Err(BenchError::Request(format!(
                    "{} has the tensor parameter `{}`: expected only a, b, d, and tensors declared as `workspace` or `zeroed`",
                    self.name, param.name
                )));
            }
            let layout = layout.layout(&values).map_err(|e| {
                BenchError::Request(format!(
                    "the parameter `{}` of {} cannot be allocated: {e}",
                    param.name, self.name
                ))
            })?;
            let tensor = AnyDeviceTensor::alloc(device, *dtype, layout)?;
            tensor.fill(0, stream)?;
            memory.push(tensor);
        }
        Ok(memory)
    }
}

/// The value of a parameter that is an extent of a problem.
fn extent(problem: &Problem, name: &str) -> Option<i64> {
    let value = match name {
        "m" => problem.shape.m,
        "n" => problem.shape.n,
        "k" => problem.shape.k,
        _ => return None,
    };
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str, defines: &[(&str, i64)]) -> std::result::Result<Own, String> {
        let file = KernelFile::parse("k.weft", text).map_err(|e| e.to_string())?;
        Own::new("k.weft", file, None, defines.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect())
    }

    #[test]
    fn the_example_can_be_measured() {
        let gemm = own(include_str!("../../../examples/gemm.weft"), &[("BN", 128), ("STAGES", 6)]).unwrap();
        assert_eq!((gemm.name(), gemm.defines()), ("k.weft", "BN=128,STAGES=6".to_owned()));
    }

    #[test]
    fn kernels_may_take_scales() {
        let fp8 = own(include_str!("../../../examples/gemm_fp8.weft"), &[("STAGES", 4)]).unwrap();
        assert!(fp8.takes_scales());
        assert!(!own(include_str!("../../../examples/gemm.weft"), &[]).unwrap().takes_scales());
    }

    #[test]
    fn values_read_back() {
        for text in ["128", "-1", "1e-5", "2.0", "true", "bf16", "min"] {
            let value = Define::parse(text).unwrap();
            assert_eq!(Define::parse(&value.to_string()), Some(value), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        let tensors = "a: global<f32, (4):(1)>, b: global<f32, (4):(1)>";
        let kernel = |params: &str| format!("kernel x<BM: int = 1>({params}) block(32) {{}}");
        let why = |params: &str| own(&kernel(params), &[]).unwrap_err();
        assert!(
            why("x: symm<f32, (4):(1)>")
                .contains("the parameter `x: symm`: expected only the extents m, n, k")
        );
        assert!(why(tensors).contains("has no tensor parameter `d`"));
        assert!(own("fn f() {}", &[]).unwrap_err().contains("expected one kernel to measure"));
        let two = kernel(tensors) + "kernel y() block(32) {}";
        assert!(own(&two, &[]).unwrap_err().contains("k.weft has `x`, `y`"));
        let full = kernel(&format!("{tensors}, d: global<f32, (4):(1)>, m: int"));
        assert!(own(&full, &[("BM", 2)]).is_ok());
        assert!(own(&full, &[("BN", 2)]).unwrap_err().contains("no compile-time parameter `BN`"));
    }
}
