//! Makes control characters in foreign text visible, so that the text cannot move the cursor or
//! hide anything.

use std::borrow::Cow;

/// Returns the text with visible control characters. Those below U+0020 and U+007F become the
/// Unicode symbols for them (U+2400 to U+2421). Others, and characters that change the writing
/// direction, become `U+` and their number.
///
/// Line feeds and tabs stay.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if !is_hidden(c) => out.push(c),
            '\0'..'\u{20}' => out.extend(char::from_u32(0x2400 + u32::from(c))),
            '\u{7f}' => out.push('\u{2421}'),
            c => out.push_str(&format!("U+{:04X}", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// Makes a text visible like [`visible`], in one line: line feeds and tabs also become visible.
pub fn visible_line(text: &str) -> Cow<'_, str> {
    match text.contains(['\n', '\t']) {
        false => visible(text),
        true => Cow::Owned(visible(text).replace('\n', "\u{240a}").replace('\t', "\u{2409}")),
    }
}

fn is_hidden(c: char) -> bool {
    let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || c.is_control() && c != '\n' && c != '\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_seen() {
        for (text, shown) in [
            ("plain, ünïcode 漢字\n\tand lines", "plain, ünïcode 漢字\n\tand lines"),
            ("\x1b[31mred\x1b]0;title\x07", "␛[31mred␛]0;title␇"),
            ("a\rb\x08\x7f\0", "a␍b␈␡␀"),
            ("\u{9b}31m", "U+009B31m"),
            ("left\u{202e}right", "leftU+202Eright"),
        ] {
            assert_eq!(visible(text), shown);
        }
        assert_eq!(visible_line("a\nb\tc"), "a␊b␉c");
    }
}
