//! Reads the warnings of the PTX assembler (ptxas, nvJitLink or the driver) about code that it
//! accepts.

use weft_abi::{Remark, RemarkKind};

/// The environment variable that turns warnings into errors if it is 1.
pub const STRICT: &str = "WEFT_STRICT_PTXAS";

/// Whether warnings are errors, as tests request.
pub fn strict() -> bool {
    std::env::var_os(STRICT).is_some_and(|v| v == "1")
}

/// The warnings in the assembler's log of a PTX text, with locations in the kernel's text if the
/// PTX has them.
pub fn remarks(log: &str, ptx: &str) -> Vec<Remark> {
    let mut found: Vec<Remark> = Vec::new();
    // With `-v`, the log names the function that the following lines are about.
    let mut about = None;
    for line in log.lines() {
        if let Some((_, name)) = line.split_once("Function properties for ") {
            about = Some(name.trim().to_owned());
        }
        let Some(kind) = kind(line) else { continue };
        let named = quoted(line, "in function ").or_else(|| quoted(line, "in the function "));
        let above = about.clone().filter(|_| kind == RemarkKind::Spills);
        let kernel = named.or(above).or_else(|| only_kernel(ptx));
        let ptx_line = line.rsplit_once("line ").and_then(|(_, n)| number(n));
        let source = place(ptx, ptx_line, kernel.as_deref());
        let remark = Remark { kind, text: words(line).to_owned(), kernel, ptx_line, source };
        let again =
            |r: &Remark| r.kind == RemarkKind::Spills && (r.kind, &r.kernel) == (kind, &remark.kernel);
        if !found.contains(&remark) && !found.iter().any(again) {
            found.push(remark);
        }
    }
    found
}

/// The kind of warning of a line of the log, if it is one.
fn kind(line: &str) -> Option<RemarkKind> {
    let code = line.split_once("(C7").and_then(|(_, rest)| number(rest));
    match code {
        Some(504 | 508) => Some(RemarkKind::Registers),
        Some(509..=519) => Some(RemarkKind::Serial),
        _ => spills(line).then_some(RemarkKind::Spills),
    }
}

/// Whether a line reports a spill of at least one byte.
fn spills(line: &str) -> bool {
    let bytes = |what: &str| {
        let before = line.split_once(what)?.0.trim_end();
        before.rsplit_once([' ', ',']).map_or(before, |(_, n)| n).parse::<u64>().ok()
    };
    ["bytes spill stores", "bytes spill loads"].iter().any(|what| bytes(what).is_some_and(|n| n > 0))
}

/// The text after the name of the tool and the kind of message.
fn words(line: &str) -> &str {
    let rest = ["ptxas", "nvlink", "info", "warning"]
        .iter()
        .fold(line.trim(), |rest, word| rest.strip_prefix(word).unwrap_or(rest).trim_start());
    rest.strip_prefix(':').unwrap_or(rest).trim()
}

/// The leading number of a text.
fn number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

fn quoted(line: &str, before: &str) -> Option<String> {
    let rest = line.split_once(before)?.1.strip_prefix('\'')?;
    rest.split_once('\'').map(|(name, _)| name.to_owned())
}

/// The location in the kernel's text of a line of the PTX, or else of the first instruction of a
/// kernel.
fn place(ptx: &str, line: Option<u32>, kernel: Option<&str>) -> Option<(String, u32, u32)> {
    let mut loc = None;
    let mut entered = false;
    for (text, n) in ptx.lines().zip(1u32..) {
        if line.is_some_and(|line| n > line) {
            break;
        }
        let text = text.trim_start();
        entered |= line.is_some() || kernel.is_some_and(|name| starts(text, name));
        if let Some(at) = text.strip_prefix(".loc").filter(|_| entered) {
            let mut numbers = at.split_whitespace().map(|n| n.trim_end_matches(',').parse::<u32>().ok());
            let at = (numbers.next()??, numbers.next()??, numbers.next()??);
            // Line 0 means code that does not come from a line of the text.
            loc = Some(at).filter(|at| at.1 > 0).or(loc);
            if line.is_none() && loc.is_some() {
                break;
            }
        }
    }
    let (file, line, column) = loc?;
    let name = ptx.lines().find_map(|text| {
        let (number_of, name) =
            text.trim_start().strip_prefix(".file")?.trim_start().split_once(char::is_whitespace)?;
        (number_of.parse() == Ok(file)).then(|| name.trim().trim_matches('"').to_owned())
    })?;
    Some((name, line, column))
}

/// The name of the kernel, if the text has exactly one.
fn only_kernel(ptx: &str) -> Option<String> {
    let mut names =
        ptx.lines().filter_map(|line| line.split_once(".entry")?.1.trim_start().split('(').next());
    let first = names.next()?.trim().to_owned();
    names.next().is_none().then_some(first)
}

/// Whether a line begins the kernel of that name.
fn starts(line: &str, name: &str) -> bool {
    let mut words = line.split(|c: char| !(c.is_ascii_alphanumeric() || "._$%".contains(c)));
    words.any(|w| w == ".entry") && words.any(|w| w == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.visible .entry other()\n{\n\t.loc\t1 2 1\n\tret;\n}\n.visible .entry k(\n)\n{\n\
                       \t.loc\t1 7 3\n\tmov;\n\t.loc\t2 9 5, function_name $x, inlined_at 1 8 1\n\twgmma;\n\t.loc\t1 0 5\n\
                       \tret;\n}\n\t.file\t1 \"k.weft\"\n\t.file\t2 \"weft::gemm\"\n";

    #[test]
    fn remarks_have_kinds_and_places() {
        let log = "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due \
                   to insufficient register resources for the wgmma pipeline in the function 'k' in line 13\n\
                   ptxas warning : Registers are spilled to local memory in function 'k', 16 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Function properties for k\n    624 bytes stack frame, 16 bytes spill stores, 8 bytes spill loads\n\
                   ptxas info    : Function properties for other\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                   ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to determine register count at entry.\n\
                   ptxas info    : Used 254 registers, used 1 barriers\n";
        let found = remarks(log, PTX);
        let shown: Vec<_> =
            found.iter().map(|r| (r.kind, r.kernel.as_deref(), r.ptx_line, r.source.clone())).collect();
        let at = |file: &str, line, column| Some((file.to_owned(), line, column));
        assert_eq!(
            shown,
            [
                (RemarkKind::Serial, Some("k"), Some(13), at("weft::gemm", 9, 5)),
                (RemarkKind::Spills, Some("k"), None, at("k.weft", 7, 3)),
                (RemarkKind::Registers, None, None, None),
            ]
        );
        assert!(found[0].text.starts_with("(C7511) Potential"), "{}", found[0].text);
        assert!(found[1].text.starts_with("Registers are spilled"), "{}", found[1].text);
        let (_, one) = PTX.split_once("ret;\n}\n").unwrap();
        let ignored = log.lines().find(|line| line.contains("C7508")).unwrap();
        assert_eq!(remarks(ignored, one)[0].source, at("k.weft", 7, 3));
    }

    #[test]
    fn other_lines_are_no_remarks() {
        assert_eq!(remarks("ptxas info : 0 bytes gmem\nptxas fatal : (C7602) in line 1\n\nx", ""), []);
    }
}
