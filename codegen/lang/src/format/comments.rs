//! The tokens of a text with the comments around them.

use crate::lexer::{self, TokenKind};

/// A comment before a token.
#[derive(Clone, Copy)]
pub(super) struct Comment<'a> {
    /// The text of the comment, without spaces at its end.
    pub(super) text: &'a str,
    /// Whether an empty line precedes it.
    pub(super) blank: bool,
    /// Whether nothing follows it on its line.
    pub(super) ends_line: bool,
}

/// A token with its comments.
pub(super) struct Token<'a> {
    pub(super) kind: TokenKind,
    pub(super) text: &'a str,
    /// The comments between the line of the previous token and this token.
    pub(super) before: Vec<Comment<'a>>,
    /// The comment that ends the line of this token, if there is one.
    pub(super) after: Option<&'a str>,
    /// Whether an empty line precedes it, after its comments.
    pub(super) blank: bool,
    /// Whether it begins on a later line than that on which the previous token ends.
    pub(super) begins_line: bool,
    /// The number of spaces before it on its line.
    pub(super) spaces: usize,
}

/// The tokens of a text that the parser has accepted.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens: Vec<Token<'_>> = Vec::new();
    let mut end = 0;
    for token in lexer::lex(0, text, 1).0 {
        let (start, next) = (token.start as usize, token.end as usize);
        let gap = text.get(end..start).unwrap_or_default();
        let gap = gap.strip_prefix('\u{feff}').unwrap_or(gap);
        let (mut before, blank) = comments(gap);
        // If several comments follow each other and one of them ends the line, each of them gets a
        // line of its own.
        let mut ends_line = token.kind == TokenKind::End;
        for comment in before.iter_mut().rev() {
            ends_line |= comment.ends_line;
            comment.ends_line = ends_line;
        }
        let begins_line = gap.contains('\n');
        let first = gap.trim_start_matches([' ', '\t', '\r']);
        if let Some(last) = tokens.last_mut()
            && before.first().is_some_and(|first| first.ends_line)
            && first.starts_with('/')
        {
            last.after = Some(before.remove(0).text);
        }
        let spaces = gap.len() - gap.trim_end_matches(' ').len();
        let text = text.get(start..next).unwrap_or_default();
        let kind = token.kind;
        tokens.push(Token { kind, text, before, after: None, blank, begins_line, spaces });
        end = next;
    }
    tokens
}

/// The comments between two tokens, and whether an empty line follows them.
fn comments(gap: &str) -> (Vec<Comment<'_>>, bool) {
    let mut found = Vec::new();
    let mut rest = gap;
    loop {
        let start = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let blank = rest[..rest.len() - start.len()].matches('\n').count() > 1;
        let after = if start.starts_with("//") {
            start.find('\n').map_or("", |end| &start[end..])
        } else {
            match lexer::block_comment(start) {
                Some(after) if start.starts_with("/*") => after,
                _ => return (found, blank),
            }
        };
        let text = start[..start.len() - after.len()].trim_end();
        let ends_line =
            text.starts_with("//") || after.trim_start_matches([' ', '\t', '\r']).starts_with('\n');
        found.push(Comment { text, blank, ends_line });
        rest = after;
    }
}
