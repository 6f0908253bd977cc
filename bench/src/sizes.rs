//! Sizes in the form of the command line.

/// The greatest number of sizes in one request.
const MAX_SIZES: usize = 1000;

/// Bytes from `64`, `1K`, `1K,4K`, `1K:64M:x4` or `0K:1M:+128K`, and lists of those; K, M and G are powers of 1024.
///
/// # Errors
/// Says what is wrong and what was expected.
pub fn parse_sizes(text: &str) -> Result<Vec<u64>, String> {
    let mut sizes = Vec::new();
    for part in text.split(',') {
        match part.split(':').collect::<Vec<_>>()[..] {
            [one] => sizes.push(bytes(one)?),
            [from, to, step] => range(part, bytes(from)?, bytes(to)?, step, &mut sizes)?,
            _ => return Err(expected(part)),
        }
        if sizes.len() > MAX_SIZES {
            return Err(format!("`{text}` has more than {MAX_SIZES} sizes"));
        }
    }
    Ok(sizes)
}

fn range(part: &str, from: u64, to: u64, step: &str, sizes: &mut Vec<u64>) -> Result<(), String> {
    if from > to {
        return Err(format!("`{part}` goes from {from} down to {to}: sizes must ascend"));
    }
    let next: Box<dyn Fn(u64) -> Option<u64>> = match (step.strip_prefix('x'), step.strip_prefix('+')) {
        (Some(factor), _) => match factor.parse::<u64>() {
            Ok(factor) if factor >= 2 => Box::new(move |n| n.checked_mul(factor)),
            _ => return Err(format!("`{part}`: the factor must be at least x2")),
        },
        (_, Some(summand)) => {
            let summand = bytes(summand)?;
            Box::new(move |n| n.checked_add(summand))
        }
        _ => return Err(expected(part)),
    };
    let all = std::iter::successors(Some(from), |n| next(*n)).take_while(|n| *n <= to);
    sizes.extend(all.take(MAX_SIZES + 1));
    Ok(())
}

fn bytes(text: &str) -> Result<u64, String> {
    let units = [('K', 10), ('M', 20), ('G', 30)];
    let unit = units.iter().find(|(u, _)| text.ends_with([*u, u.to_ascii_lowercase()]));
    let (digits, shift) = unit.map_or((text, 0), |(_, shift)| (&text[..text.len() - 1], *shift));
    // `parse` accepts a sign, which is not allowed here.
    let number = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
    match number {
        Some(0) => Err("a size must be at least 1 byte".into()),
        Some(n) => {
            n.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is too large for a number of bytes"))
        }
        None => Err(expected(text)),
    }
}

fn expected(text: &str) -> String {
    format!(
        "`{text}` is not a size: expected bytes, such as 4096, 64K or 1G, or FROM:TO:xFACTOR, or FROM:TO:+STEP"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lists_and_ranges() {
        let good: [(&str, &[u64]); 7] = [
            ("1", &[1]),
            ("4k", &[4096]),
            ("3G", &[3 << 30]),
            ("1K,4K", &[1024, 4096]),
            ("1K:64K:x4", &[1 << 10, 1 << 12, 1 << 14, 1 << 16]),
            ("1K:5K:x4", &[1 << 10, 1 << 12]),
            ("1K:3K:+1K,7", &[1024, 2048, 3072, 7]),
        ];
        for (text, want) in good {
            assert_eq!(parse_sizes(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_is_none_says_why() {
        let bad = [
            ("", "not a size"),
            ("1K,", "not a size"),
            ("K", "not a size"),
            ("-4", "not a size"),
            ("+4", "not a size"),
            ("1.5K", "not a size"),
            ("1T", "not a size"),
            ("0", "at least 1 byte"),
            ("1K:2K", "FROM:TO"),
            ("1K:2K:4", "FROM:TO"),
            ("1K:2K:x1", "at least x2"),
            ("1K:2K:xx", "at least x2"),
            ("1K:2K:+0", "at least 1 byte"),
            ("2K:1K:x2", "ascend"),
            ("1:2:x2:x2", "FROM:TO"),
            ("1:1G:+1", "more than 1000"),
            ("99999999999999G", "too large"),
            ("99999999999999999999", "not a size"),
        ];
        for (text, why) in bad {
            let said = parse_sizes(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
        // An overflow does not step past the last size.
        assert_eq!(parse_sizes("8G:17179869183G:x4294967296").map(|s| s.len()), Ok(1));
    }
}
