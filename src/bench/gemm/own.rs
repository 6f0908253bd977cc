//! A kernel of a file, beside that of the library.

use super::data::Operands;
use super::measure::Result;
use crate::compile::{KernelFile, Options};
use crate::gemm::Problem;
use crate::gpu::{Grid, Kernel, target};
use std::sync::Arc;
use weft_lang::elaborate::{Defines, Head};
use weft_runtime::launch::{AsArgument, Prepared};
use weft_runtime::{Device, Stream};

/// Parameters that such a kernel may take.
const PARAMETERS: [&str; 6] = ["m", "n", "k", "a", "b", "d"];

/// A kernel of a file that is measured as a product, as `examples/gemm.weft` has one: it takes the extents m, n and k and the
/// tensors a, b and d, in any order. Of the compile-time parameters T, OUT and B_MAJOR it gets those that it has.
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
    /// Whether the table would name both alike.
    fn eq(&self, other: &Own) -> bool {
        (&self.name, &self.defines) == (&other.name, &other.defines)
    }
}

impl Own {
    /// A kernel of a file, with values for compile-time parameters; the name is the table's.
    ///
    /// # Errors
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
            return Err(format!("one kernel is measured, and {name} has {}", names.join(", ")));
        };
        if let Some(other) = head.params.iter().find(|p| !PARAMETERS.contains(&&*p.name)) {
            return Err(format!(
                "{name} takes `{}: {}`: expected the extents m, n, k and the tensors a, b, d",
                other.name, other.ty
            ));
        }
        if let Some(missing) = ["a", "b", "d"].iter().find(|t| head.params.iter().all(|p| *p.name != ***t)) {
            return Err(format!("{name} takes no tensor `{missing}`"));
        }
        let generics: Vec<_> = head.generics.iter().map(|(name, ..)| name.clone()).collect();
        if let Some(unknown) = defines.keys().find(|d| generics.iter().all(|g| **g != ***d)) {
            return Err(format!("{name} has no compile-time parameter `{unknown}`"));
        }
        let parameters = head.params.iter().map(|p| p.name.clone()).collect();
        let kernel = head.name.clone();
        Ok(Own { name: name.into(), file, kernel, parameters, generics, defines })
    }

    /// As the table names it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The values that were given, as text.
    pub fn defines(&self) -> String {
        let each: Vec<_> = self.defines.iter().map(|(name, value)| format!("{name}={value}")).collect();
        each.join(",")
    }

    /// Its launches for a problem on each set of operands.
    ///
    /// # Errors
    /// Fails if the kernel does not compile, or does not take such operands.
    pub(super) fn launches(
        &self,
        problem: &Problem,
        sets: &[Operands],
        (device, stream): (&Device, &Stream),
    ) -> Result<Vec<Prepared>> {
        let mut options = Options::new(target(device)?);
        options.kernel = Some(self.kernel.to_string());
        let own =
            problem.defines().into_iter().filter(|(name, _)| self.generics.iter().any(|g| **g == **name));
        options.defines = own.chain(self.defines.clone()).collect();
        let kernel = Kernel::with(device, self.file.clone(), options)?;
        let extents = [problem.shape.m, problem.shape.n, problem.shape.k];
        let launch = |set: &Operands| {
            let argument = |name: &Arc<str>| -> &dyn AsArgument {
                match &**name {
                    "m" => &extents[0],
                    "n" => &extents[1],
                    "k" => &extents[2],
                    "a" => &set.a,
                    "b" => &set.b,
                    _ => &set.d,
                }
            };
            let arguments: Vec<_> = self.parameters.iter().map(argument).collect();
            Ok(kernel.prepared(stream, Grid::Auto, arguments)?)
        };
        sets.iter().map(launch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_lang::elaborate::Define;

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
        assert!(why("x: global<f32, (4):(1)>").contains("takes `x: global`: expected the extents m, n, k"));
        assert!(why(tensors).contains("takes no tensor `d`"));
        assert!(own("fn f() {}", &[]).unwrap_err().contains("one kernel is measured"));
        let two = kernel(tensors) + "kernel y() block(32) {}";
        assert!(own(&two, &[]).unwrap_err().contains("k.weft has `x`, `y`"));
        let full = kernel(&format!("{tensors}, d: global<f32, (4):(1)>, m: int"));
        assert!(own(&full, &[("BM", 2)]).is_ok());
        assert!(own(&full, &[("BN", 2)]).unwrap_err().contains("no compile-time parameter `BN`"));
    }
}
