//! Checks images of code before a driver that does not know their length reads them.

use object::read::elf::ElfFile64;
use object::{Architecture, LittleEndian, Object, ObjectSection, ObjectSegment};

/// The first bytes of ELF files.
const ELF: &[u8] = b"\x7fELF";

/// Checks that an image is PTX, or a cubin whose tables, sections and segments lie within it.
///
/// # Errors
/// Fails for any other image. The text continues "the image ...", and begins with "is" or "has".
pub fn check(image: &[u8]) -> Result<(), String> {
    if image.starts_with(ELF) { cubin(image) } else { ptx(image) }
}

fn ptx(image: &[u8]) -> Result<(), String> {
    let text = image.strip_suffix(&[0]).unwrap_or(image);
    match std::str::from_utf8(text) {
        Ok(text) if text.contains('\0') => {
            Err("is text that contains a 0 byte, at which the driver would stop".into())
        }
        Ok(text) if text.contains(".version") => Ok(()),
        _ => Err("is neither PTX (text with a line `.version`) nor a cubin (an ELF file)".into()),
    }
}

fn cubin(image: &[u8]) -> Result<(), String> {
    let damaged = |e: object::Error| format!("is a damaged cubin: {e}");
    let file = ElfFile64::<LittleEndian>::parse(image).map_err(damaged)?;
    // The crate has no name for CUDA's machine number.
    if file.architecture() != Architecture::Unknown
        || file.elf_header().e_machine.get(LittleEndian) != EM_CUDA
    {
        return Err("is an ELF file that is not for a GPU".into());
    }
    if file.sections().next().is_none() {
        return Err("is a cubin without sections".into());
    }
    for section in file.sections() {
        section.name_bytes().map_err(damaged)?;
        section.data().map_err(damaged)?;
    }
    for segment in file.segments() {
        segment.data().map_err(damaged)?;
    }
    for symbol in file.symbols() {
        object::ObjectSymbol::name_bytes(&symbol).map_err(damaged)?;
    }
    Ok(())
}

/// The machine of a cubin (`EM_CUDA`, elf.h).
const EM_CUDA: u16 = 190;

#[cfg(test)]
mod tests {
    use super::*;

    /// A cubin of an empty kernel for sm_90, as ptxas wrote it.
    const CUBIN: &[u8] = include_bytes!("../../tests/data/empty.cubin");

    #[test]
    fn text_and_cubins_are_told_from_others() {
        assert_eq!(check(CUBIN), Ok(()));
        assert_eq!(check(b".version 8.6\n.target sm_90a\n"), Ok(()));
        assert_eq!(check(b"// made by\n.version 8.6\n\0"), Ok(()));
        for (image, why) in [
            (&b""[..], "neither PTX"),
            (b"MZ", "neither PTX"),
            (&[0x50, 0xed, 0x55, 0xba, 1, 0], "neither PTX"),
            (b".version 8.6\n\0.entry hidden() {}", "contains a 0 byte"),
            (b"\x7fELF", "damaged cubin"),
        ] {
            assert!(check(image).unwrap_err().contains(why), "{image:?}");
        }
        let mut other = CUBIN.to_vec();
        other[18] = 62;
        assert!(check(&other).unwrap_err().contains("not for a GPU"));
    }

    /// A part of a cubin is not accepted as a whole one.
    #[test]
    fn a_cut_cubin_is_refused() {
        for length in 0..CUBIN.len() {
            assert!(check(&CUBIN[..length]).is_err(), "{length} of {} bytes", CUBIN.len());
        }
    }

    /// Each byte of the tables with other values is rejected or accepted without a panic;
    /// references beyond the end are rejected.
    #[test]
    fn forged_tables() {
        let at = |from: usize| u64::from_le_bytes(CUBIN[from..from + 8].try_into().unwrap()) as usize;
        let (segments, sections) = (at(0x20), at(0x28));
        let places = (0..64).chain(segments..segments + 56).chain(sections..CUBIN.len().min(sections + 4096));
        for place in places {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut forged = CUBIN.to_vec();
                forged[place] = value;
                let _ = check(&forged);
            }
        }
        // The offset of the table of sections, and the offset and size of the second section.
        for field in [0x28, sections + 64 + 0x18, sections + 64 + 0x20] {
            for value in [CUBIN.len() as u64 + 1, u64::MAX, u64::MAX - 63] {
                let mut forged = CUBIN.to_vec();
                forged[field..field + 8].copy_from_slice(&value.to_le_bytes());
                assert!(check(&forged).is_err(), "{value:#x} at {field:#x}");
            }
        }
    }
}
