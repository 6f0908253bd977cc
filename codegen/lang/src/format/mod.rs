//! The formatter of `.weft` text.
//!
//! It walks the syntax tree and the tokens side by side. The tree determines the possible line
//! breaks, and every token and comment is copied from the text. The formatter adds and removes only
//! white space and commas at the ends of lists.

mod align;
mod comments;
mod doc;
mod exprs;
mod items;

use crate::lexer::TokenKind;
use crate::print::print;
use comments::Token;
use doc::Doc;
use weft_ir::diag::Diagnostic;

/// The maximum length of a line that could be broken.
pub const MAX_WIDTH: usize = 120;

/// The reason why a text cannot be formatted.
#[derive(Debug)]
pub enum FormatError {
    /// The text has syntax errors.
    Syntax(Vec<Diagnostic>),
    /// The formatted text would have another meaning or lose a comment, which is a fault of the
    /// formatter.
    Changed,
}

/// Formats a text that is file `file_id` in diagnostics.
///
/// # Errors
/// Fails if the text has syntax errors, or if the formatter has a fault and would change the
/// meaning of the text.
pub fn format(file_id: u32, text: &str) -> Result<String, FormatError> {
    let tree = crate::parse(file_id, text).map_err(FormatError::Syntax)?;
    let mut formatter = Formatter { tokens: comments::tokens(text), at: 0 };
    let doc = formatter.file(&tree);
    let formatted = align::align(&doc::print(&doc));
    let same = crate::parse(file_id, &formatted).is_ok_and(|again| print(&again) == print(&tree));
    if same && all_comments(text) == all_comments(&formatted) {
        Ok(formatted)
    } else {
        Err(FormatError::Changed)
    }
}

/// The comments of a text, in order.
fn all_comments(text: &str) -> Vec<&str> {
    let tokens = comments::tokens(text);
    tokens
        .iter()
        .flat_map(|token| token.before.iter().map(|comment| comment.text).chain(token.after))
        .collect()
}

/// The state of the formatter: its tokens, and the next token that is not in a document yet.
struct Formatter<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Formatter<'a> {
    fn next(&self) -> &Token<'a> {
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn is(&self, kind: TokenKind) -> bool {
        self.next().kind == kind
    }

    /// The next token with its comments.
    fn token(&mut self) -> Doc<'a> {
        let at = self.at.min(self.tokens.len() - 1);
        let token = &mut self.tokens[at];
        let mut parts: Vec<Doc<'a>> = std::mem::take(&mut token.before)
            .into_iter()
            .map(
                |comment| {
                    if comment.ends_line { Doc::above(comment.text) } else { Doc::inline(comment.text) }
                },
            )
            .collect();
        parts.push(Doc::text(token.text));
        parts.extend(token.after.map(Doc::trailing));
        self.at += 1;
        if parts.len() == 1 { Doc::text(token.text) } else { Doc::seq(parts) }
    }

    /// The comments of the next token, which is a comma that is left out.
    fn comma_comments(&mut self) -> Doc<'a> {
        let at = self.at.min(self.tokens.len() - 1);
        let token = &mut self.tokens[at];
        let before = std::mem::take(&mut token.before);
        self.at += 1;
        let comments = before.into_iter().map(|comment| comment.text).chain(token.after);
        Doc::seq(comments.map(Doc::trailing).collect())
    }

    /// The comments before the next token that have lines of their own, and the empty lines around
    /// them. The `first` item of a block has no empty lines before it.
    fn leading(&mut self, first: bool) -> Doc<'a> {
        let at = self.at.min(self.tokens.len() - 1);
        let token = &mut self.tokens[at];
        let whole = token.before.iter().take_while(|comment| comment.ends_line).count();
        let mut parts = Vec::new();
        for comment in token.before.drain(..whole) {
            if comment.blank && !(first && parts.is_empty()) {
                parts.push(Doc::BLANK);
            }
            parts.push(Doc::above(comment.text));
        }
        if token.blank && token.before.is_empty() && !(first && parts.is_empty()) {
            parts.push(Doc::BLANK);
        }
        Doc::seq(parts)
    }

    /// The comments before a closing bracket, which are the last lines within the brackets.
    fn closing(&mut self, first: bool) -> Doc<'a> {
        let at = self.at.min(self.tokens.len() - 1);
        let token = &mut self.tokens[at];
        let mut parts = Vec::new();
        for comment in std::mem::take(&mut token.before) {
            if comment.blank && !(first && parts.is_empty()) {
                parts.push(Doc::BLANK);
            }
            parts.push(Doc::above(comment.text));
        }
        Doc::seq(parts)
    }
}
