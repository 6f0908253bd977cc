//! Checks that the pages are plain English, as far as a program can tell. The rules are in
//! `docs/style.md`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::ops::Range;
use std::path::Path;

const MAX_WORDS: usize = 45;
const MIN_WORDS: usize = 3;
const MAX_COLUMNS: usize = 100;

/// A sentence of a page: its words, the line on which it begins, and whether it is in a list.
struct Sentence {
    words: Vec<String>,
    line: usize,
    in_list: bool,
}

/// The parts of a page that the rules concern.
#[derive(Default)]
struct Page {
    sentences: Vec<Sentence>,
    /// The byte ranges of links and of everything that is not running text. Lines that begin there
    /// can be wide.
    wide: Vec<Range<usize>>,
    /// Whether a paragraph follows the title.
    opening: bool,
}

/// A word of running text. Code counts as part of a word, and does not end a sentence.
#[derive(Default)]
struct Word {
    text: String,
    offset: usize,
    begins_in_code: bool,
    ends_in_code: bool,
}

impl Word {
    fn ends_sentence(&self) -> bool {
        !self.ends_in_code && self.text.trim_end_matches([')', '"', '\'']).ends_with(['.', '?', '!'])
    }

    fn begins_sentence(&self) -> bool {
        let first = self.text.trim_start_matches(['(', '"']).chars().next();
        self.begins_in_code || first.is_some_and(|c| c.is_uppercase() || c.is_ascii_digit())
    }
}

/// The running text of one paragraph or item, word by word.
#[derive(Default)]
struct Prose {
    words: Vec<Word>,
    open: bool,
    labelled: bool,
}

impl Prose {
    fn text(&mut self, text: &str, offset: usize) {
        let mut at = offset;
        for part in text.split_inclusive(char::is_whitespace) {
            let word = part.trim();
            if !word.is_empty() {
                self.push(word, at, false);
            }
            self.open &= !part.ends_with(char::is_whitespace);
            at += part.len();
        }
    }

    fn push(&mut self, text: &str, offset: usize, code: bool) {
        if !self.open {
            self.words.push(Word { offset, begins_in_code: code, ..Word::default() });
        }
        if let Some(word) = self.words.last_mut() {
            word.text.push_str(text);
            word.ends_in_code = code;
        }
        self.open = true;
    }

    /// Removes the words so far if they are a label: bold text before the first sentence.
    fn end_label(&mut self) {
        if self.labelled && self.words.last().is_some_and(|word| word.text.ends_with(['.', ':', '?'])) {
            self.words.clear();
        }
        self.labelled = false;
    }

    /// The sentences of the text, which is complete.
    fn sentences(&mut self, page: &str, in_list: bool) -> Vec<Sentence> {
        self.open = false;
        let words = std::mem::take(&mut self.words);
        let mut sentences: Vec<Sentence> = Vec::new();
        let mut ended = true;
        for word in words {
            if ended && (sentences.is_empty() || word.begins_sentence()) {
                let line = page[..word.offset].matches('\n').count() + 1;
                sentences.push(Sentence { words: Vec::new(), line, in_list });
            }
            ended = word.ends_sentence();
            if let Some(sentence) = sentences.last_mut() {
                sentence.words.push(word.text);
            }
        }
        sentences
    }
}

/// Reads a page with a Markdown parser.
fn parsed(text: &str) -> Page {
    let mut page = Page::default();
    let mut prose = Prose::default();
    let (mut lists, mut skipped, mut headings) = (0_usize, 0_usize, 0_usize);
    let mut first = true;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Strong) => prose.labelled = prose.words.is_empty(),
            Event::End(TagEnd::Strong) => prose.end_label(),
            Event::Start(tag) => {
                if is_block(&tag) {
                    page.sentences.append(&mut prose.sentences(text, lists > 0));
                    if headings == 1 && first && !matches!(tag, Tag::HtmlBlock) {
                        page.opening = matches!(tag, Tag::Paragraph);
                        first = false;
                    }
                }
                lists += usize::from(matches!(tag, Tag::List(_)));
                headings += usize::from(matches!(tag, Tag::Heading { .. }));
                skipped += usize::from(is_skipped(&tag));
                if is_skipped(&tag) || matches!(tag, Tag::Link { .. }) {
                    page.wide.push(range);
                }
            }
            Event::End(TagEnd::Heading(_) | TagEnd::CodeBlock | TagEnd::Table) => skipped -= 1,
            Event::End(TagEnd::HtmlBlock | TagEnd::Image) => skipped -= 1,
            Event::End(TagEnd::Paragraph | TagEnd::Item) => {
                page.sentences.append(&mut prose.sentences(text, lists > 0));
            }
            Event::End(TagEnd::List(_)) => lists -= 1,
            Event::Text(part) if skipped == 0 => prose.text(&part, range.start),
            Event::Code(part) if skipped == 0 => prose.push(&part.replace(' ', "\u{a0}"), range.start, true),
            Event::SoftBreak | Event::HardBreak => prose.open = false,
            _ => {}
        }
    }
    page
}

/// Whether the element is a block, which ends the sentence before it.
fn is_block(tag: &Tag<'_>) -> bool {
    is_skipped(tag) && !matches!(tag, Tag::Image { .. })
        || matches!(tag, Tag::Paragraph | Tag::Item | Tag::List(_) | Tag::BlockQuote(_))
}

/// Whether the element is not running text, so that its lines can be wide.
fn is_skipped(tag: &Tag<'_>) -> bool {
    matches!(
        tag,
        Tag::Heading { .. } | Tag::CodeBlock(_) | Tag::Table(_) | Tag::HtmlBlock | Tag::Image { .. }
    )
}

/// The violations of the rules on a page, one per line.
fn findings(name: &str, text: &str) -> Vec<String> {
    let page = parsed(text);
    let mut found = Vec::new();
    if !page.opening {
        found.push(format!("{name}:1: no paragraph after the title says what the page covers"));
    }
    for Sentence { words, line, in_list } in &page.sentences {
        let (count, sentence) = (words.len(), words.join(" "));
        if count > MAX_WORDS {
            found.push(format!("{name}:{line}: a sentence of {count} words: {sentence}"));
        }
        if count < MIN_WORDS && !in_list {
            found.push(format!("{name}:{line}: a sentence of {count} words: {sentence}"));
        }
    }
    let mut offset = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let columns = line.trim_end().chars().count();
        let breakable = line.split_whitespace().count() > 1;
        let exempt = page.wide.iter().any(|range| range.contains(&offset));
        if columns > MAX_COLUMNS && breakable && !exempt {
            found.push(format!("{name}:{}: a line of {columns} columns: {}", number + 1, line.trim()));
        }
        offset += line.len();
    }
    found
}

#[test]
fn pages_follow_the_rules_of_style() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = |folder: &'static str| {
        let entries = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        entries.map(move |name| format!("{folder}/{}", name.to_string_lossy()))
    };
    // The summary is the manual's list of pages.
    let is_page = |name: &String| name.ends_with(".md") && name != "docs/SUMMARY.md";
    let mut names: Vec<String> = pages("docs").chain(pages("docs/tutorial")).filter(is_page).collect();
    names.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md", "python/README.md"].map(String::from));
    names.sort();
    assert!(names.len() > 30, "only {} pages were found", names.len());
    let read = |name: &String| findings(name, &std::fs::read_to_string(root.join(name)).unwrap());
    let found: Vec<String> = names.iter().flat_map(read).collect();
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}

#[test]
fn violations_of_the_rules_are_found() {
    let long = "word ".repeat(MAX_WORDS - 1);
    for (text, finding) in [
        ("# Title\n\n## Section\n\nOne two three.\n", "x:1: no paragraph"),
        (&*format!("# Title\n\nOne two three.\n\nA {long}end.\n"), "x:5: a sentence of 46 words: A word"),
        ("# Title\n\nOne two three. In `b.\nX` bytes. In bytes.\n", "x:4: a sentence of 2 words: In bytes."),
        (&*format!("# Title\n\nOne two {} three.\n", "x".repeat(100)), "x:3: a line of 115 columns"),
    ] {
        let found = findings("x", text);
        assert!(found.iter().any(|f| f.starts_with(finding)), "{text}: {found:?}");
    }
    let wide = "x ".repeat(60);
    let right = format!(
        "# Title\n\nOne two three.\n\n- In bytes.\n\n```text\n{wide}\n```\n\n| a |\n|---|\n| {wide} |\n"
    );
    assert_eq!(findings("x", &right), Vec::<String>::new());
}
