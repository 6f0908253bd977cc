//! Words of error messages: names that were perhaps meant, articles, and numbers with their nouns.

use weft_ir::Type;

/// The known name that is nearest to an unknown one, if it is near. Names of one letter are
/// ignored, since they are near to every other one.
pub(super) fn nearest<'n>(names: impl Iterator<Item = &'n str>, unknown: &str) -> Option<&'n str> {
    let max = 1 + unknown.len() / 4;
    let near = names.map(|name| (distance(name, unknown), name)).filter(|(edits, _)| *edits <= max);
    near.min().filter(|_| unknown.len() > 1).map(|(_, name)| name)
}

/// The number of edits that turn one name into the other, for suggestions. Long names are cut.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(32).collect(), b.chars().take(32).collect());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let up = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(up + 1).min(row[j] + 1);
            diagonal = up;
        }
    }
    row[b.len()]
}

/// A type with its article, such as `an f32` or `a bf16`.
pub(super) fn with_article(ty: &Type) -> String {
    let name = ty.to_string();
    let has_vowel = ["f16", "f32", "f64", "i", "e"].iter().any(|start| name.starts_with(start));
    format!("{} {name}", if has_vowel { "an" } else { "a" })
}

/// The message for a number of indices that differs from the number of modes.
pub(super) fn indices_for_modes(indices: usize, modes: usize) -> String {
    let verb = if modes == 1 { "takes" } else { "take" };
    format!(
        "{} {verb} {}, not {indices}",
        counted(modes, "mode", "modes"),
        counted(modes, "index", "indices")
    )
}

/// A number with its noun, such as `1 mode` or `2 modes`.
pub(crate) fn counted(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
