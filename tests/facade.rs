//! Checks that the crate warpweft has few public items. A user finds the library's features on one
//! page of its documentation, and each item can be kept stable.
//!
//! An item is a module, type, trait, function, constant, static, type alias or macro whose path
//! begins at the root of the crate and is public all the way. An item with two such paths counts
//! twice. Methods, fields and variants belong to their types and do not count. A re-exported crate,
//! such as `weft::runtime`, counts once: it has documentation and versions of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, Ident, Item, ItemMod, UseTree, Visibility};

const MAX_ITEMS: usize = 150;

/// A module whose items are read. Its files are in `folder`.
struct Module {
    path: String,
    folder: PathBuf,
    items: Vec<Item>,
}

impl Module {
    /// Reads a crate's root or the file of a module.
    fn read(path: String, file: &Path) -> Module {
        let items = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap().items;
        let stem = file.file_stem().unwrap().to_str().unwrap();
        let folder = match ["lib", "mod"].contains(&stem) {
            true => file.parent().unwrap().to_path_buf(),
            false => file.with_extension(""),
        };
        Module { path, folder, items }
    }

    /// The module that `item` declares in this one.
    fn child(&self, item: &ItemMod) -> Module {
        let path = format!("{}::{}", self.path, item.ident);
        let folder = self.folder.join(item.ident.to_string());
        match &item.content {
            Some((_, items)) => Module { path, folder, items: items.clone() },
            None => {
                let files = [folder.with_extension("rs"), folder.join("mod.rs")];
                let file = files.iter().find(|file| file.exists());
                Module::read(path, file.unwrap_or_else(|| panic!("no file of `{}`", item.ident)))
            }
        }
    }

    /// The public paths that begin in this module, those of its public modules included.
    fn public(&self) -> Vec<String> {
        let mut found = Vec::new();
        for item in &self.items {
            let (visibility, name) = match item {
                Item::Const(item) => (&item.vis, &item.ident),
                Item::Enum(item) => (&item.vis, &item.ident),
                Item::Fn(item) => (&item.vis, &item.sig.ident),
                Item::Mod(item) => (&item.vis, &item.ident),
                Item::Static(item) => (&item.vis, &item.ident),
                Item::Struct(item) => (&item.vis, &item.ident),
                Item::Trait(item) => (&item.vis, &item.ident),
                Item::Type(item) => (&item.vis, &item.ident),
                Item::Union(item) => (&item.vis, &item.ident),
                Item::Use(item) => {
                    if is_public(&item.vis) {
                        self.used(Path::new(""), &item.tree, &mut found);
                    }
                    continue;
                }
                // This test does not see the items that a macro makes. Such an item can be in a
                // private module and be re-exported by name.
                Item::Macro(item) => {
                    let makes_public = item.ident.is_none() && item.mac.tokens.to_string().contains("pub ");
                    assert!(!makes_public, "a macro makes public items of `{}`", self.path);
                    if item.attrs.iter().any(|a| a.path().is_ident("macro_export")) {
                        found.push(format!("{}::{}!", self.path, item.ident.as_ref().unwrap()));
                    }
                    continue;
                }
                _ => continue,
            };
            if is_public(visibility) {
                found.push(format!("{}::{name}", self.path));
                if let Item::Mod(item) = item {
                    found.extend(self.child(item).public());
                }
            }
        }
        found
    }

    /// Adds the names that a `pub use` brings into this module. `from` is the path before `tree`.
    fn used(&self, from: &Path, tree: &UseTree, found: &mut Vec<String>) {
        match tree {
            UseTree::Path(path) => self.used(&from.join(path.ident.to_string()), &path.tree, found),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.used(from, tree, found)),
            UseTree::Name(name) => self.add(&from.join(name.ident.to_string()), &name.ident, found),
            UseTree::Rename(rename) => self.add(&from.join(rename.ident.to_string()), &rename.rename, found),
            UseTree::Glob(_) => panic!("`{}` re-exports with `*`: name the items", self.path),
        }
    }

    /// Adds the item at `from` as `name`. If it is a module of this crate, its items have paths through it too.
    fn add(&self, from: &Path, name: &Ident, found: &mut Vec<String>) {
        let path = format!("{}::{name}", self.path);
        found.push(path.clone());
        let files = [self.folder.join(from).with_extension("rs"), self.folder.join(from).join("mod.rs")];
        if let Some(file) = files.iter().find(|file| file.exists()) {
            found.extend(Module::read(path, file).public());
        }
    }
}

/// Crates whose structs of options and enums of errors can grow without a new major version.
const GROWING: &[&str] = &[
    "warpweft",
    "run",
    "check",
    "bench",
    "comm",
    "runtime",
    "sim",
    "codegen/layout",
    "codegen/ir",
    "codegen/isa",
    "codegen/passes",
    "codegen/llvm",
    "report",
];

/// Structs of options and enums of errors in `file` to which a field or a variant cannot be added: other crates can
/// construct them field by field, or match them without a wildcard.
fn closed(file: &syn::File) -> Vec<String> {
    let growing = |attributes: &[Attribute]| {
        attributes.iter().any(|a| a.path().is_ident("non_exhaustive") || a.path().is_ident("repr"))
    };
    let named = |name: &Ident, ends: &[&str]| ends.iter().any(|end| name.to_string().ends_with(end));
    let closed = |item: &Item| match item {
        Item::Struct(item) => {
            let open = item.fields.iter().all(|field| is_public(&field.vis)) && !item.fields.is_empty();
            let options = is_public(&item.vis) && named(&item.ident, &["Options", "Config", "Error"]);
            (options && open && !growing(&item.attrs)).then(|| item.ident.to_string())
        }
        Item::Enum(item) => {
            let error = is_public(&item.vis) && named(&item.ident, &["Error"]);
            (error && !growing(&item.attrs)).then(|| item.ident.to_string())
        }
        _ => None,
    };
    file.items.iter().filter_map(closed).collect()
}

/// The Rust files below a folder.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

#[test]
fn the_facade_has_few_items() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("warpweft/src/lib.rs");
    let items = Module::read("weft".to_owned(), &root).public();
    for expected in ["weft::compile", "weft::gpu::Kernel", "weft::gemm::tuning::Table", "weft::runtime"] {
        assert!(items.iter().any(|item| item == expected), "`{expected}` is missing in {items:#?}");
    }
    println!("{} items", items.len());
    assert!(
        items.len() <= MAX_ITEMS,
        "the crate warpweft has {} public items, and {MAX_ITEMS} are the limit. Make an item private, make a function \
         a method, or put it into the crate that uses it:\n{}",
        items.len(),
        items.join("\n")
    );
}

#[test]
fn items_are_counted_by_their_paths() {
    let source = "
        mod private { pub struct Hidden; }
        pub mod open {
            pub struct Seen { pub field: u32 }
            impl Seen { pub fn method() {} }
            pub(crate) fn inner() {}
            pub mod deeper { pub const C: u32 = 1; }
        }
        pub use private::Hidden;
        pub use other::{A, B as C};
        use other::D;
        pub fn function() {}
        fn own() {}
        macro_rules! local { () => {} }
    ";
    let items = syn::parse_file(source).unwrap().items;
    let module = Module { path: "r".to_owned(), folder: PathBuf::new(), items };
    let expected =
        ["r::open", "r::open::Seen", "r::open::deeper", "r::open::deeper::C", "r::Hidden", "r::A", "r::C"];
    assert_eq!(module.public(), [&expected[..], &["r::function"]].concat());
}

#[test]
fn options_and_errors_can_grow() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    GROWING.iter().for_each(|folder| rust_files(&root.join(folder).join("src"), &mut files));
    assert!(files.len() > 100, "only {} files found", files.len());
    let wrong = files.iter().flat_map(|path| {
        let file = syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap();
        let shown = path.strip_prefix(root).unwrap().display().to_string();
        closed(&file).into_iter().map(move |name| format!("{shown}: {name}"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "mark these with `#[non_exhaustive]`, and give options setters with `weft_sim::setters!`:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn types_that_cannot_grow_are_found() {
    let source = "
        pub struct RunOptions { pub seed: u64 }
        #[non_exhaustive] pub struct Config { pub seed: u64 }
        pub struct KeptConfig { seed: u64 }
        struct OwnOptions { pub seed: u64 }
        pub enum ReadError { Missing }
        #[non_exhaustive] pub enum WriteError { Full }
    ";
    assert_eq!(closed(&syn::parse_file(source).unwrap()), ["RunOptions", "ReadError"]);
}
