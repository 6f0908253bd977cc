//! A file together with everything that it uses, by name.

use super::words::nearest;
use super::{Result, fail};
use crate::ast::{self, Item, UsePath};
use crate::codes::meaning::{DUPLICATE, NO_FILE};
use crate::evaluate::Library;
use crate::parser::parse;
use crate::source::SourceMap;
use std::collections::HashMap;
use std::sync::Arc;
use weft_ir::diag::{Diagnostic, Span};

/// Provides the text of files that are used.
pub trait Loader {
    /// The file that `path` names in the file called `from`. Returns its own name and its text.
    fn file(&self, from: &str, path: &str) -> Result<(String, String), String>;
    /// The text of a part of the built-in library. The path is `collectives` for
    /// `weft::collectives`.
    fn builtin(&self, path: &str) -> Option<&str>;
    /// The names of the built-in library's parts.
    fn parts(&self) -> Vec<&str> {
        Vec::new()
    }
}

/// A loader for texts that use no files.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl Loader for NoFiles {
    fn file(&self, _from: &str, path: &str) -> Result<(String, String), String> {
        Err(format!("files such as `{path}` cannot be read here"))
    }
    fn builtin(&self, _path: &str) -> Option<&str> {
        None
    }
}

/// The functions, constants and kernels of a file and of all files that it uses.
#[derive(Debug, Default)]
pub struct Program {
    /// The kernels of the root file, in order.
    pub kernels: Vec<ast::Kernel>,
    pub(super) library: Arc<Library>,
    pub(super) spans: HashMap<Arc<str>, Span>,
    /// The names of all files, indexed by [`Span::file`].
    pub(super) files: Vec<Arc<str>>,
}

/// The maximum number of files that one compilation reads.
const MAX_FILES: usize = 256;

impl Program {
    /// Parses file `root` of `sources` and the files that it uses, which are added to `sources`.
    pub fn load(sources: &mut SourceMap, root: u32, loader: &dyn Loader) -> Result<Program, Vec<Diagnostic>> {
        let mut program = Program::default();
        let mut library = Library::default();
        let mut errors = Vec::new();
        let mut seen: HashMap<String, u32> = HashMap::new();
        seen.insert(sources.name(root).unwrap_or_default().to_owned(), root);
        let mut todo = vec![root];
        while let Some(file) = todo.pop() {
            let text = sources.text(file).unwrap_or_default().to_owned();
            let parsed = match parse(file, &text) {
                Ok(parsed) => parsed,
                Err(mut e) => {
                    errors.append(&mut e);
                    continue;
                }
            };
            for item in parsed.items {
                let result = match item {
                    Item::Use(u) => {
                        load_use(sources, file, &u, loader, &mut seen).map(|new| todo.extend(new))
                    }
                    Item::Const(c) => program.name(&c.name).map(|()| {
                        library.consts.insert(c.name.name.clone(), c);
                    }),
                    Item::Function(f) => program.name(&f.name).map(|()| {
                        library.functions.insert(f.name.name.clone(), Arc::new(f));
                    }),
                    Item::Reference(f) => program.name(&f.name).map(|()| {
                        library.references.insert(f.name.name.clone(), Arc::new(f));
                    }),
                    Item::Kernel(k) if file == root => {
                        program.name(&k.name).map(|()| program.kernels.push(k))
                    }
                    Item::Kernel(_) => Ok(()),
                };
                errors.extend(result.err());
            }
        }
        program.library = Arc::new(library);
        program.files = (0u32..).map_while(|f| sources.name(f)).map(Arc::from).collect();
        if errors.is_empty() { Ok(program) } else { Err(errors) }
    }

    fn name(&mut self, name: &ast::Ident) -> Result<()> {
        match self.spans.insert(name.name.clone(), name.span) {
            None => Ok(()),
            Some(first) => {
                Err(Diagnostic::error(DUPLICATE, name.span, format!("`{}` is defined twice", name.name))
                    .related(first, "first here")
                    .help("rename one of them"))
            }
        }
    }
}

/// The file of a `use` as a new source to parse, or `None` if it was loaded before.
fn load_use(
    sources: &mut SourceMap,
    from: u32,
    u: &ast::Use,
    loader: &dyn Loader,
    seen: &mut HashMap<String, u32>,
) -> Result<Option<u32>> {
    let (name, text) = match &u.path {
        UsePath::File(path) => {
            let from = sources.name(from).unwrap_or_default().to_owned();
            loader.file(&from, path).map_err(|e| {
                Diagnostic::error(NO_FILE, u.span, e)
                    .help("the path is relative to the file that contains the `use`")
            })?
        }
        UsePath::Builtin(segments) => {
            let path: Vec<&str> = segments.iter().map(|s| &*s.name).collect();
            let found = match path.split_first() {
                Some((&"weft", rest)) => loader.builtin(&rest.join("/")),
                _ => None,
            };
            let Some(text) = found else {
                let missing =
                    Diagnostic::error(NO_FILE, u.span, format!("the library has no `{}`", path.join("::")));
                let name = path.last().copied().unwrap_or_default();
                return Err(match nearest(loader.parts().into_iter(), name) {
                    Some(part) => missing.help(format!("did you mean `weft::{part}`?")),
                    None => missing,
                });
            };
            (path.join("::"), text.to_owned())
        }
    };
    if seen.contains_key(&name) {
        return Ok(None);
    }
    if seen.len() >= MAX_FILES {
        return fail(NO_FILE, u.span, format!("more than {MAX_FILES} files are used"));
    }
    let file = sources.add(name.clone(), text);
    seen.insert(name, file);
    Ok(Some(file))
}
