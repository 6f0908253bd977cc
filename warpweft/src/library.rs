//! Where `use` finds files: the built-in library, and the file system.

use std::io::Read;
use std::path::{Path, PathBuf};
use weft_lang::elaborate::Loader;
use weft_runtime::owned::open_regular;
use weft_runtime::visible_line;

/// The built-in library: ordinary `.weft` files, `use weft::NAME;`.
const LIBRARY: &[(&str, &str)] = &[
    ("all_gather", include_str!("library/all_gather.weft")),
    ("all_gather_gemm", include_str!("library/all_gather_gemm.weft")),
    ("all_gather_gemm_uneven", include_str!("library/all_gather_gemm_uneven.weft")),
    ("all_to_all", include_str!("library/all_to_all.weft")),
    ("allreduce", include_str!("library/allreduce.weft")),
    ("allreduce_norm", include_str!("library/allreduce_norm.weft")),
    ("allreduce_rms_norm", include_str!("library/allreduce_rms_norm.weft")),
    ("broadcast", include_str!("library/broadcast.weft")),
    ("collectives", include_str!("library/collectives.weft")),
    ("engine", include_str!("library/engine.weft")),
    ("finish_sums", include_str!("library/finish_sums.weft")),
    ("gemm", include_str!("library/gemm.weft")),
    ("gemm_add", include_str!("library/gemm_add.weft")),
    ("gemm_all_to_all", include_str!("library/gemm_all_to_all.weft")),
    ("gemm_all_to_all_uneven", include_str!("library/gemm_all_to_all_uneven.weft")),
    ("gemm_allreduce", include_str!("library/gemm_allreduce.weft")),
    ("gemm_allreduce_switch", include_str!("library/gemm_allreduce_switch.weft")),
    ("gemm_allreduce_decode", include_str!("library/gemm_allreduce_decode.weft")),
    ("gemm_allreduce_rms_norm", include_str!("library/gemm_allreduce_rms_norm.weft")),
    ("gemm_bands", include_str!("library/gemm_bands.weft")),
    ("gemm_batched", include_str!("library/gemm_batched.weft")),
    ("gemm_comm", include_str!("library/gemm_comm.weft")),
    ("gemm_decode", include_str!("library/gemm_decode.weft")),
    ("gemm_deliver", include_str!("library/gemm_deliver.weft")),
    ("gemm_epilogue", include_str!("library/gemm_epilogue.weft")),
    ("gemm_finish", include_str!("library/gemm_finish.weft")),
    ("gemm_finished", include_str!("library/gemm_finished.weft")),
    ("gemm_grouped", include_str!("library/gemm_grouped.weft")),
    ("gemm_kernel", include_str!("library/gemm_kernel.weft")),
    ("gemm_reduce_scatter", include_str!("library/gemm_reduce_scatter.weft")),
    ("gemm_reduce_scatter_add", include_str!("library/gemm_reduce_scatter_add.weft")),
    ("gemm_reduce_scatter_add_uneven", include_str!("library/gemm_reduce_scatter_add_uneven.weft")),
    ("gemm_reduce_scatter_uneven", include_str!("library/gemm_reduce_scatter_uneven.weft")),
    ("gemm_scaled", include_str!("library/gemm_scaled.weft")),
    ("gemm_split", include_str!("library/gemm_split.weft")),
    ("gemm_stream", include_str!("library/gemm_stream.weft")),
    ("gemm_strips", include_str!("library/gemm_strips.weft")),
    ("gemm_turns", include_str!("library/gemm_turns.weft")),
    ("gemm_uneven", include_str!("library/gemm_uneven.weft")),
    ("gemm_uneven_order", include_str!("library/gemm_uneven_order.weft")),
    ("grid", include_str!("library/grid.weft")),
    ("lamport", include_str!("library/lamport.weft")),
    ("ll", include_str!("library/ll.weft")),
    ("moe", include_str!("library/moe.weft")),
    ("moe_combine", include_str!("library/moe_combine.weft")),
    ("moe_combine_once", include_str!("library/moe_combine_once.weft")),
    ("moe_dispatch", include_str!("library/moe_dispatch.weft")),
    ("moe_dispatch_scaled", include_str!("library/moe_dispatch_scaled.weft")),
    ("moe_experts", include_str!("library/moe_experts.weft")),
    ("moe_layer", include_str!("library/moe_layer.weft")),
    ("moe_ll", include_str!("library/moe_ll.weft")),
    ("moe_ll_combine", include_str!("library/moe_ll_combine.weft")),
    ("moe_ll_dispatch", include_str!("library/moe_ll_dispatch.weft")),
    ("moe_products", include_str!("library/moe_products.weft")),
    ("moe_sum", include_str!("library/moe_sum.weft")),
    ("net", include_str!("library/net.weft")),
    ("norm", include_str!("library/norm.weft")),
    ("quantised", include_str!("library/quantised.weft")),
    ("reduce_scatter", include_str!("library/reduce_scatter.weft")),
    ("rotate", include_str!("library/rotate.weft")),
    ("staged", include_str!("library/staged.weft")),
    ("tile", include_str!("library/tile.weft")),
];

/// Files relative to the one that uses them, below one folder.
///
/// A kernel file may come from another person. It can use only regular files whose names end in
/// `.weft` and that are below this folder after links are followed. An error never shows more than
/// the name of any other file.
#[derive(Clone, Debug)]
pub struct Files {
    root: PathBuf,
}

/// The text of a part of the built-in library.
pub fn part(name: &str) -> Option<&'static str> {
    LIBRARY.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

impl Files {
    /// Loads files below this folder.
    pub fn below(root: impl Into<PathBuf>) -> Files {
        Files { root: root.into() }
    }

    /// Loads files below the folder of this file.
    pub fn beside(file: &Path) -> Files {
        Files::below(file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new(".")))
    }

    /// Resolves the real path of a file, and checks that the file may be used.
    fn real(&self, at: &Path) -> Result<PathBuf, String> {
        let (shown, root) = (at.display(), self.root.display());
        let real = std::fs::canonicalize(at).map_err(|e| format!("cannot read {shown}: {e}"))?;
        let below = std::fs::canonicalize(&self.root).is_ok_and(|root| real.starts_with(root));
        if !below {
            return Err(format!(
                "{shown} is outside the folder {root}, where used files must be; --root names another folder"
            ));
        }
        match real.extension().is_some_and(|e| e == "weft") {
            true => Ok(real),
            false => Err(format!("{shown} cannot be used: the names of kernel files end in .weft")),
        }
    }
}

impl Loader for Files {
    fn file(&self, from: &str, path: &str) -> Result<(String, String), String> {
        let at = Path::new(from).parent().unwrap_or(Path::new("")).join(path);
        let text = read_text(&self.real(&at)?)?;
        Ok((name_of(&at), text))
    }

    fn builtin(&self, path: &str) -> Option<&str> {
        part(path)
    }

    fn parts(&self) -> Vec<&str> {
        LIBRARY.iter().map(|(name, _)| *name).collect()
    }
}

/// The name of a file, which does not depend on the spelling of its path. Below the working
/// directory it is relative. Control characters are replaced by visible ones.
pub fn name_of(path: &Path) -> String {
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let here = std::env::current_dir().unwrap_or_default();
    visible_line(&real.strip_prefix(here).unwrap_or(&real).display().to_string()).into_owned()
}

/// The size in bytes of the largest text file that is read as a kernel.
const MAX_BYTES: u64 = weft_lang::source::MAX_FILE_BYTES as u64;

/// Reads a text file. It rejects files that are too large or not UTF-8.
pub fn read_text(path: &Path) -> Result<String, String> {
    read_text_of(path, MAX_BYTES, ".weft")
}

/// Reads a text file of at most `limit` bytes. The error names `kind`, the extension of such files.
pub fn read_text_of(path: &Path, limit: u64, kind: &str) -> Result<String, String> {
    let shown = path.display();
    let bad = |e: std::io::Error| format!("cannot read {shown}: {e}");
    let mut bytes = Vec::new();
    open_regular(path).map_err(bad)?.take(limit + 1).read_to_end(&mut bytes).map_err(bad)?;
    if bytes.len() as u64 > limit {
        return Err(format!("{shown} is larger than {limit} bytes, which is the limit for a {kind} file"));
    }
    String::from_utf8(bytes).map_err(|e| {
        let line = e.as_bytes()[..e.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        format!("{shown} is not a text file: line {line} is not UTF-8")
    })
}
