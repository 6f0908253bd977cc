//! Checks that public items are documented as `docs/style.md` requires. The lint `missing_docs`
//! finds items without docs. This test finds docs that are too short to explain anything, in all
//! crates of the workspace.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::Command;
use std::{fs, mem};

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, Lit, Meta, Visibility};

/// The least number of words of a first line, and of an `# Errors` section.
const MIN_WORDS: usize = 4;

/// Words with which a first line would be a fragment: "As there.", "Of the result.", "It, with a
/// limit."
const FRAGMENTS: &[&str] = &[
    "As", "By", "From", "It,", "Not", "Of", "So", "That", "There", "Those", "When", "When,", "Which", "With",
    "Without",
];

/// Words with which an `# Errors` section says that something fails.
const FAILS: &[&str] = &["Fails", "Says", "Does"];

/// Folders whose Rust files are not part of a library or command.
const NOT_LIBRARY: &[&str] = &["tests", "benches", "examples", "fuzz"];

/// One item whose docs break a rule.
#[derive(Debug, PartialEq)]
struct Finding {
    line: usize,
    text: String,
}

/// Collects the findings of one file.
#[derive(Default)]
struct Docs {
    findings: Vec<Finding>,
    /// Whether the surrounding enum or trait is public. Its members have no visibility of their
    /// own.
    public: bool,
}

/// Whether a word is an error code: a letter and at least three digits, maybe in quotes or parentheses.
fn is_code(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_alphanumeric());
    let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase());
    digits.is_some_and(|digits| digits.len() >= 3 && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The number of words in `text` that contain a letter or a digit, without error codes.
fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric) && !is_code(word)).count()
}

/// The lines of the doc comments among `attributes`.
fn doc_lines(attributes: &[Attribute]) -> Vec<String> {
    let texts =
        attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).filter_map(|attribute| {
            let Meta::NameValue(pair) = &attribute.meta else { return None };
            match &pair.value {
                Expr::Lit(literal) => match &literal.lit {
                    Lit::Str(text) => Some(text.value()),
                    _ => None,
                },
                // The text is a whole page or a line of a macro: `#[doc = include_str!("...")]` or
                // `#[doc = concat!(...)]`.
                _ => Some("a text that a macro makes".to_owned()),
            }
        });
    texts.flat_map(|text| text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()).collect()
}

/// The rule that the doc comment `lines` violates, if there is one.
fn fault(lines: &[String]) -> Option<String> {
    let first = lines.iter().find(|line| !line.is_empty())?;
    if words(first) < MIN_WORDS {
        return Some(format!("the first line has fewer than {MIN_WORDS} words: `{first}`"));
    }
    if first.split(' ').next().is_some_and(|word| FRAGMENTS.contains(&word)) {
        return Some(format!("the first line is no sentence and no noun with its attributes: `{first}`"));
    }
    let heading = lines.iter().position(|line| line == "# Errors")?;
    let section: Vec<&str> =
        lines[heading + 1..].iter().map(String::as_str).take_while(|line| !line.starts_with("# ")).collect();
    let section = section.join(" ");
    let section = section.trim();
    if words(section) < MIN_WORDS {
        return Some(format!("`# Errors` has fewer than {MIN_WORDS} words: `{section}`"));
    }
    let fails = section.split(' ').next().is_some_and(|word| FAILS.contains(&word));
    (!fails).then(|| format!("`# Errors` does not begin with one of {FAILS:?}: `{section}`"))
}

/// Whether an attribute is `#[cfg(test)]`, `#[doc(hidden)]` or another list `name(word)`.
fn has_list(attributes: &[Attribute], name: &str, word: &str) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident(name)
            && matches!(&attribute.meta, Meta::List(list) if list.tokens.to_string() == word)
    })
}

impl Docs {
    /// Checks one item if it is public.
    fn judge(&mut self, public: bool, attributes: &[Attribute], name: &dyn ToString, span: Span) {
        if public
            && !has_list(attributes, "doc", "hidden")
            && let Some(fault) = fault(&doc_lines(attributes))
        {
            let text = format!("`{}` {fault}", name.to_string());
            self.findings.push(Finding { line: span.start().line, text });
        }
    }

    /// Visits the members of an item, which are as public as the item.
    fn members(&mut self, public: bool, visit: impl FnOnce(&mut Self)) {
        let outer = mem::replace(&mut self.public, public);
        visit(self);
        self.public = outer;
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Declares the visits of items that have a visibility of their own and no members to visit.
macro_rules! leaves {
    ($($method:ident: $node:ident $($name:ident).+;)*) => { $(
        fn $method(&mut self, node: &'ast syn::$node) {
            self.judge(is_public(&node.vis), &node.attrs, &node.$($name).+, node.$($name).+.span());
        }
    )* };
}

impl<'ast> Visit<'ast> for Docs {
    leaves! {
        visit_item_fn: ItemFn sig.ident;
        visit_item_const: ItemConst ident;
        visit_item_static: ItemStatic ident;
        visit_item_type: ItemType ident;
        visit_impl_item_fn: ImplItemFn sig.ident;
        visit_impl_item_const: ImplItemConst ident;
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if !has_list(&node.attrs, "cfg", "test") {
            visit::visit_item_mod(self, node);
        }
    }

    fn visit_item_struct(&mut self, node: &'ast syn::ItemStruct) {
        self.judge(is_public(&node.vis), &node.attrs, &node.ident, node.ident.span());
        self.members(false, |docs| visit::visit_item_struct(docs, node));
    }

    fn visit_item_enum(&mut self, node: &'ast syn::ItemEnum) {
        self.judge(is_public(&node.vis), &node.attrs, &node.ident, node.ident.span());
        self.members(is_public(&node.vis), |docs| visit::visit_item_enum(docs, node));
    }

    fn visit_item_trait(&mut self, node: &'ast syn::ItemTrait) {
        self.judge(is_public(&node.vis), &node.attrs, &node.ident, node.ident.span());
        self.members(is_public(&node.vis), |docs| visit::visit_item_trait(docs, node));
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        self.judge(self.public, &node.attrs, &node.sig.ident, node.sig.ident.span());
    }

    fn visit_variant(&mut self, node: &'ast syn::Variant) {
        self.judge(self.public, &node.attrs, &node.ident, node.ident.span());
        visit::visit_variant(self, node);
    }

    fn visit_field(&mut self, node: &'ast syn::Field) {
        if let Some(name) = &node.ident {
            self.judge(self.public || is_public(&node.vis), &node.attrs, name, name.span());
        }
    }
}

/// The findings of one Rust file.
fn findings(source: &str) -> Vec<Finding> {
    let mut docs = Docs::default();
    docs.visit_file(&syn::parse_file(source).unwrap());
    docs.findings
}

/// The Rust files of the workspace's libraries and commands.
fn library_files(root: &Path) -> Vec<String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"];
    let out = Command::new("git").args(arguments).current_dir(root).output().unwrap();
    assert!(out.status.success(), "git: {}", String::from_utf8_lossy(&out.stderr));
    let names = String::from_utf8(out.stdout).unwrap();
    let library = |name: &&str| !name.split('/').any(|folder| NOT_LIBRARY.contains(&folder));
    names.lines().filter(library).filter(|name| root.join(name).exists()).map(str::to_owned).collect()
}

#[test]
fn public_items_are_documented() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = library_files(root);
    assert!(files.len() > 100, "only {} files found", files.len());
    let mut report = String::new();
    for file in &files {
        for Finding { line, text } in findings(&fs::read_to_string(root.join(file)).unwrap()) {
            report.push_str(&format!("{file}:{line}: {text}\n"));
        }
    }
    assert!(report.is_empty(), "docs/style.md says how doc comments are written:\n{report}");
}

#[test]
fn violations_of_the_rules_are_found() {
    let source = r#"
        /// Its name.
        pub fn short() {}
        /// The size of the allocation in bytes.
        pub fn sufficient() {}
        /// One line.
        pub const CONSTANT: usize = 1;
        fn private() {}
        /// Opens the library at `path`.
        ///
        /// # Errors
        ///
        /// `R0103`, R0104, [`E0212`], `S001`.
        pub fn bare_code() {}
        /// Opens the library at `path`.
        ///
        /// # Errors
        ///
        /// Fails if no file is there (R0103).
        pub fn explained_code() {}
        /// Opens the library at `path`.
        ///
        /// # Errors
        ///
        /// A file that is not there.
        pub fn fragment_of_error() {}
        /// As the table has its name.
        pub fn fragment() {}
        /// The kinds of a thing.
        pub enum Kind {
            /// Which.
            Variant {
                /// Its length.
                field: usize,
            },
        }
        /// The places of a thing.
        pub struct Place {
            /// Private.
            private: usize,
            /// Where.
            pub field: usize,
        }
        impl Place {
            /// New.
            pub fn new() -> Self {}
        }
        impl Clone for Place {
            fn clone(&self) -> Self {}
        }
        /// A behaviour of many things.
        pub trait Behaviour {
            /// Acts.
            fn act(&self);
        }
        #[cfg(test)]
        mod tests {
            pub fn undocumented() {}
        }
    "#;
    let lines: Vec<usize> = findings(source).iter().map(|finding| finding.line).collect();
    let expected = [
        "fn short",
        "CONSTANT",
        "fn bare_code",
        "fn fragment_of_error",
        "fn fragment()",
        "Variant {",
        "field: usize,\n            },\n",
    ];
    let expected: Vec<usize> = expected
        .into_iter()
        .chain(["pub field", "fn new", "fn act"])
        .map(|text| source[..source.find(text).unwrap()].lines().count())
        .collect();
    assert_eq!(lines, expected);
}
