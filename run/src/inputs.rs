//! The inputs of a run: files, and the parameters that follow from them.

use super::array::{Array, ArrayError};
use super::{Arg, RunError, RunOptions, request};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weft::Options;
use weft_ir::Scalar;
use weft_lang::elaborate::{Define, Defines, Head, HeadParam};

/// The parameters and data of a run, from files and from the request.
pub(super) struct RunData {
    /// The values of compile-time parameters.
    pub defines: Defines,
    /// The values of run-time scalars.
    pub args: BTreeMap<String, Arg>,
    /// The array of each PE, by tensor.
    pub arrays: BTreeMap<String, Vec<Array>>,
}

impl RunData {
    /// Returns the options to compile a kernel, of `kernels` in total. If there are several, each
    /// gets the parameters that it has.
    pub fn options_of(&self, head: &Head, kernels: usize, options: &RunOptions) -> Options {
        let mut options = options.compile.clone();
        options.kernel = Some(head.name.to_string());
        options.defines = self.defines.clone();
        if kernels > 1 {
            options.defines.retain(|name, _| head.generics.iter().any(|(g, ..)| **g == **name));
        }
        options
    }
}

/// Finds the kernel to run: the named one, or the only one.
pub(super) fn choose<'h>(heads: &'h [Head], name: Option<&str>) -> Result<&'h Head, String> {
    let names: Vec<_> = heads.iter().map(|h| &*h.name).collect();
    match (heads, name) {
        (_, Some(n)) => heads
            .iter()
            .find(|h| &*h.name == n)
            .ok_or_else(|| format!("there is no kernel `{n}`; there are: {}", names.join(", "))),
        ([one], None) => Ok(one),
        ([], None) => Err("the file has no kernel".into()),
        (_, None) => {
            Err(format!("the file has several kernels; choose one with --kernel: {}", names.join(", ")))
        }
    }
}

fn is_tensor(p: &HeadParam) -> bool {
    matches!(&*p.ty, "symm" | "global")
}

/// The tensor parameters of that name, with their kernels; for an empty name, the first tensor of
/// all.
fn tensors<'h>(heads: &'h [Head], name: &str) -> Result<Vec<(&'h Head, &'h HeadParam)>, RunError> {
    let all = || heads.iter().flat_map(|h| h.params.iter().filter(|p| is_tensor(p)).map(move |p| (h, p)));
    let found: Vec<_> = match name {
        "" => all().take(1).collect(),
        _ => all().filter(|(_, p)| &*p.name == name).collect(),
    };
    if found.is_empty() {
        let kernels: Vec<_> = heads.iter().map(|h| format!("`{}`", h.name)).collect();
        let names: Vec<_> = all().map(|(_, p)| &*p.name).collect();
        return request(format!(
            "kernel {} has no tensor `{name}`; it has {}",
            kernels.join(", "),
            names.join(", ")
        ));
    }
    Ok(found)
}

/// The path of a PE's file.
pub(crate) fn of_pe(path: &Path, pe: usize) -> Option<PathBuf> {
    let text = path.to_str()?;
    text.contains("{pe}").then(|| PathBuf::from(text.replace("{pe}", &pe.to_string())))
}

/// The number of PEs that input files have data for: the first extent of a file with two or more
/// dimensions, or the number of files with `{pe}` in their name. It is `None` if no file says it.
pub fn pes_of(inputs: &[(String, PathBuf)]) -> Option<u32> {
    inputs.iter().find_map(|(_, path)| {
        let of_one_pe = |pe: usize| of_pe(path, pe).filter(|file| file.exists());
        let files = (0..).take_while(|pe| of_one_pe(*pe).is_some()).count() as u64;
        let extent =
            || Some(Array::read(path).ok()?.shape).filter(|shape| shape.len() > 1).map(|shape| shape[0]);
        u32::try_from(if files > 0 { files } else { extent()? }).ok().filter(|pes| *pes > 0)
    })
}

/// Reads the input files, and derives element types and extents that are parameters. Parameters and
/// tensors of equal names are shared by all kernels.
pub(super) fn gather(heads: &[Head], options: &RunOptions) -> Result<RunData, RunError> {
    let mut found = RunData {
        defines: options.compile.defines.clone(),
        args: options.args.clone(),
        arrays: BTreeMap::new(),
    };
    if let Some(name) = unknown(heads, &found.defines) {
        return request(format!("no kernel of the sequence has a compile-time parameter `{name}`"));
    }
    if let Some(dtype) = options.dtype {
        for (head, p) in
            heads.iter().flat_map(|h| h.params.iter().filter(|p| is_tensor(p)).map(move |p| (h, p)))
        {
            if let Some(elem) = element(head, p) {
                settle(&mut found.defines, elem, Define::Dtype(dtype), "--dtype")?;
            }
        }
    }
    for (name, path) in &options.inputs {
        let params = tensors(heads, name)?;
        let param = params[0].1;
        let arrays = read(path, options.n_pes)?;
        let bad = |message: String| RunError::Array(ArrayError { file: path.display().to_string(), message });
        let arrays = arrays
            .into_iter()
            .map(|a| typed(a, param, &found.defines, options.dtype))
            .collect::<Result<Vec<_>, _>>()
            .map_err(bad)?;
        for (head, param) in params {
            found.follow(head, param, &arrays[0], path)?;
        }
        if arrays[0].shape.contains(&0) {
            let message = format!(
                "has shape {:?} for each PE, but a tensor must have at least one element",
                arrays[0].shape
            );
            return Err(bad(message));
        }
        if found.arrays.insert(param.name.to_string(), arrays).is_some() {
            return request(format!("`{}` has two inputs", param.name));
        }
    }
    Ok(found)
}

/// A value of a compile-time parameter that none of several kernels has. For a single kernel, the
/// compiler reports it.
fn unknown<'d>(heads: &[Head], defines: &'d Defines) -> Option<&'d String> {
    let known = |name: &&String| heads.iter().flat_map(|h| &h.generics).any(|(g, ..)| **g == ***name);
    defines.keys().find(|name| heads.len() > 1 && !known(name))
}

/// The compile-time parameter that is a tensor's element type.
fn element<'p>(head: &Head, param: &'p HeadParam) -> Option<&'p str> {
    param.elem.as_deref().filter(|elem| head.generics.iter().any(|(g, ..)| **g == **elem))
}

impl RunData {
    /// Derives a kernel's parameters from the array of a PE's tensor.
    fn follow(&mut self, head: &Head, param: &HeadParam, array: &Array, path: &Path) -> Result<(), RunError> {
        let (shape, source) = (&array.shape, path.display().to_string());
        if let Some(elem) = element(head, param) {
            let is_float =
                |(name, bound, _): &(Arc<str>, Arc<str>, bool)| **name == *elem && **bound == *"float";
            if !array.dtype.is_float() && head.generics.iter().any(is_float) {
                let message = format!(
                    "holds {}, and `{elem}` is a type of floating-point numbers. If these are the bits of such numbers, name \
                     their type, as `--dtype bf16` does",
                    array.dtype
                );
                return Err(RunError::Array(ArrayError { file: source, message }));
            }
            settle(&mut self.defines, elem, Define::Dtype(array.dtype), &source)?;
        }
        if !param.extents.is_empty() && param.extents.len() != shape.len() {
            let modes = param.extents.len();
            let message = format!("has shape {shape:?} for each PE, but `{}` has {modes} modes", param.name);
            return Err(RunError::Array(ArrayError { file: source, message }));
        }
        for (extent, n) in param.extents.iter().zip(shape) {
            let (Some(name), Ok(n)) = (extent, i64::try_from(*n)) else { continue };
            if head.generics.iter().any(|(g, ..)| g == name) {
                settle(&mut self.defines, name, Define::Int(n), &source)?;
            } else if head.params.iter().any(|p| p.name == *name) {
                settle(&mut self.args, name, Arg::from(Define::Int(n)), &source)?;
            }
        }
        Ok(())
    }
}

/// Sets a value, which must agree with an existing one.
fn settle<V: Copy + PartialEq + Into<Arg>>(
    map: &mut BTreeMap<String, V>,
    name: &str,
    value: V,
    source: &str,
) -> Result<(), RunError> {
    match map.insert(name.to_owned(), value) {
        Some(old) if old != value => {
            request(format!("`{name}` is {}, but {} according to {source}", old.into(), value.into()))
        }
        _ => Ok(()),
    }
}

/// Formats a value for the command line.
pub fn show(d: Define) -> String {
    match d {
        Define::Int(n) => n.to_string(),
        Define::Float(x) => x.to_string(),
        Define::Bool(b) => b.to_string(),
        Define::Dtype(s) => s.to_string(),
        Define::Reduction(op) => op.to_string(),
    }
}

/// Converts the array to the requested element type, if there is one.
fn typed(array: Array, param: &HeadParam, defines: &Defines, dtype: Option<Scalar>) -> Result<Array, String> {
    let want = match param.elem.as_deref() {
        Some(name) => match (defines.get(name), Scalar::parse(name)) {
            (Some(Define::Dtype(s)), _) => Some(*s),
            (_, Some(s)) => Some(s),
            _ => dtype,
        },
        None => dtype,
    };
    match want {
        Some(s) => array.reinterpret(s),
        None => Ok(array),
    }
}

/// Reads one array for each PE, from one file with a leading PE dimension or from one file for each
/// PE.
pub(crate) fn read(path: &Path, n_pes: usize) -> Result<Vec<Array>, RunError> {
    let bad = |message: String| RunError::Array(ArrayError { file: path.display().to_string(), message });
    if of_pe(path, 0).is_some() {
        let arrays = (0..n_pes)
            .filter_map(|pe| of_pe(path, pe))
            .map(|p| Array::read(&p))
            .collect::<Result<Vec<_>, _>>()?;
        let first = &arrays[0];
        if let Some((pe, other)) =
            arrays.iter().enumerate().find(|(_, a)| a.shape != first.shape || a.dtype != first.dtype)
        {
            return Err(bad(format!("PE {pe} has {other:?}, but PE 0 has {first:?}")));
        }
        return Ok(arrays);
    }
    let all = Array::read(path)?;
    if all.shape.first() != Some(&(n_pes as u64)) {
        return Err(bad(format!(
            "has shape {:?}, but its first extent must be the number of PEs, {n_pes} (choose the number with `--pes`, or give one file for each PE: `x_{{pe}}.npy`)",
            all.shape
        )));
    }
    let part = all.data.len() / n_pes;
    let split = |pe: usize| Array {
        dtype: all.dtype,
        shape: all.shape[1..].to_vec(),
        data: all.data[pe * part..(pe + 1) * part].to_vec(),
    };
    Ok((0..n_pes).map(split).collect())
}
