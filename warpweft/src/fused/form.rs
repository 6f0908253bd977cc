//! The forms of results that a fused norm can have.

use super::Fused;
use std::fmt;
use weft_ir::Scalar;
use weft_lang::elaborate::Define;
use weft_runtime::{Error, World, error};

/// The numbers of lanes that can share a scale. Each has a vector of 16 bytes of the norm.
const LANES: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// The greatest multiple of tokens that columns of scales can be padded to.
const MAX_COLUMNS: u32 = 128;

/// The element types and the outputs of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// The type of hidden states, residual and weights: bf16 or f16.
    pub dtype: Scalar,
    /// The type of the result: `dtype`, or e4m3.
    pub out: Scalar,
    /// Whether each token of a quantised result has its own scale, max|norm| / 448.
    pub per_token: bool,
    /// Whether the norm is written in addition to a quantised result.
    pub both: bool,
    /// The number of elements of a row that share a scale, written in addition to a quantised
    /// result, or 0 for none. Only kernels that spread rows have such scales.
    pub group: u32,
    /// Whether the norm is LayerNorm, with a bias. Only kernels that spread rows have it.
    pub layer: bool,
    /// The layout of the scales of groups. With 0, the scales of a token are contiguous. Otherwise,
    /// the scales of one group of all tokens are contiguous (column-major), and the next group begins
    /// after the number of tokens rounded up to a multiple of this number. TMA needs a multiple of 4.
    pub columns: u32,
}

impl Form {
    /// RMSNorm with results of the same type as the hidden states.
    pub const fn plain(dtype: Scalar) -> Form {
        Form { dtype, out: dtype, per_token: false, both: false, group: 0, layer: false, columns: 0 }
    }

    /// Checks that the kernels compute it for rows of `hidden` elements.
    ///
    /// # Errors
    /// Fails with what the kernels do not compute, and what they do (R0507).
    pub fn check(&self, hidden: usize) -> Result<(), Error> {
        let Form { dtype, out, per_token, both, group, columns, .. } = *self;
        let quantised = out == Scalar::E4M3;
        let groups: Vec<u32> = LANES.map(|lanes| lanes * 16 / dtype.bytes().max(1)).to_vec();
        let divides = hidden.is_multiple_of(group.max(1) as usize);
        let fits = groups.contains(&group) && divides || group as usize == hidden;
        let cases = [
            (hidden == 0, "rows have no elements".into(), "pass rows of at least one element".into()),
            (
                ![Scalar::BF16, Scalar::F16].contains(&dtype),
                format!("hidden states are {dtype}"),
                "convert them to bf16 or f16".into(),
            ),
            (
                out != dtype && !quantised,
                format!("results of {dtype} hidden states are {out}"),
                format!("choose {dtype} or e4m3"),
            ),
            (
                !quantised && (per_token || group > 0 || both),
                format!("results in {out} have neither scales nor a norm beside them"),
                "choose e4m3 results, or the plain form".into(),
            ),
            (
                per_token && group > 0,
                format!("results have a scale for each token and for each {group} elements"),
                "choose one of both".into(),
            ),
            (
                group > 0 && !fits,
                format!("a row of {hidden} elements is not divided into groups of {group}"),
                format!("choose a group of {hidden} elements, or one of {groups:?} that divides {hidden}"),
            ),
            (
                columns > 0 && group == 0,
                "results without scales of groups have columns of scales".into(),
                "choose a group, or columns of 0".into(),
            ),
            (
                columns > MAX_COLUMNS,
                format!("columns of scales are padded to a multiple of {columns} tokens"),
                format!("choose at most {MAX_COLUMNS}"),
            ),
        ];
        let Some((_, what, help)) = cases.into_iter().find(|(fails, ..)| *fails) else { return Ok(()) };
        Err(Error::new(error::NORM, what).help(help))
    }

    /// Compares the calls that all PEs prepare, because kernels of different forms wait for each
    /// other's packets. This call is *collective*.
    ///
    /// # Errors
    /// Fails on all PEs if they prepare different forms, rows of different sizes, or different
    /// numbers of tokens (R0507).
    pub fn agree(&self, world: &World, hidden: usize, max_tokens: usize) -> Result<(), Error> {
        let own = format!("{self} with rows of {hidden} elements for at most {max_tokens} tokens");
        let all = world.all_gather_host(own.as_bytes())?;
        let Some((first, rest)) = all.split_first() else { return Ok(()) };
        let Some((pe, other)) = (1..).zip(rest).find(|(_, other)| *other != first) else { return Ok(()) };
        let [first, other] = [first, other].map(|text| String::from_utf8_lossy(text));
        let message = format!("PEs prepare different norms: PE 0 {first}, PE {pe} {other}");
        Err(Error::new(error::NORM, message)
            .help("give all PEs the same form, size of a row and number of tokens"))
    }

    /// Whether kernels whose CTAs read whole rows can compute it, and the kernel after an allreduce.
    pub fn reads_whole_rows(&self) -> bool {
        self.group == 0 && !self.layer
    }

    /// Whether a kernel can compute it.
    pub fn fits(&self, kernel: &Fused) -> bool {
        kernel.spreads() || self.reads_whole_rows()
    }

    /// The number of scales of a token that a kernel writes.
    pub fn scales(&self, hidden: usize) -> usize {
        match (self.per_token, self.group) {
            (true, _) => 1,
            (false, group) => hidden.checked_div(group as usize).unwrap_or(0),
        }
    }

    /// The number of elements from the first scale that a kernel writes to the last one, for rows of
    /// `hidden` elements. Padding between columns counts, and is not written.
    pub fn scale_elements(&self, tokens: usize, hidden: usize) -> usize {
        match (tokens, self.scales(hidden)) {
            (0, _) | (_, 0) => 0,
            (tokens, scales) => self.scale_at((tokens - 1, scales - 1), tokens, hidden) + 1,
        }
    }

    /// The place in memory of the scale of a token's group.
    pub fn scale_at(&self, (token, group): (usize, usize), tokens: usize, hidden: usize) -> usize {
        match self.columns as usize {
            0 => token * self.scales(hidden) + group,
            columns => group * tokens.next_multiple_of(columns) + token,
        }
    }

    /// Values of compile-time parameters that all kernels of `weft::allreduce_rms_norm` have.
    pub fn defines(&self, hidden: usize) -> [(&'static str, Define); 5] {
        [
            ("T", self.dtype.into()),
            ("OUT", self.out.into()),
            ("PER_TOKEN", self.per_token.into()),
            ("BOTH", self.both.into()),
            ("H", (hidden as i64).into()),
        ]
    }

    /// Values of compile-time parameters of the kernels of `weft::allreduce_norm`.
    pub(super) fn spread_defines(&self, hidden: usize) -> [(&'static str, Define); 7] {
        let group = match (self.out == self.dtype, self.per_token) {
            (true, _) => -1,
            (false, true) => hidden as i64,
            (false, false) => self.group.into(),
        };
        let [dtype, out, _, both, h] = self.defines(hidden);
        let own = [("GROUP", group.into()), ("LAYER", self.layer.into()), ("COLUMNS", self.columns.into())];
        let [group, layer, columns] = own;
        [dtype, out, group, layer, columns, both, h]
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Form { dtype, out, per_token, both, group, layer, columns } = *self;
        write!(f, "{} of {dtype}", if layer { "LayerNorm" } else { "RMSNorm" })?;
        match (out == dtype, per_token, group) {
            (true, false, 0) => {}
            (_, false, 0) => write!(f, " in {out} with one scale")?,
            (_, true, 0) => write!(f, " in {out} with a scale for each token")?,
            (_, _, group) => write!(f, " in {out} with a scale for each {group} elements")?,
        }
        if columns > 0 {
            write!(f, " in columns of a multiple of {columns}")?;
        }
        f.write_str(if both { " and the norm" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups are those that `allreduce_norm` compiles (tests/fused.rs compiles the same), and
    /// results in the type of the hidden states have no scales.
    #[test]
    fn forms_are_checked() {
        let plain = Form::plain(Scalar::BF16);
        let e4m3 = Form { out: Scalar::E4M3, ..plain };
        let said = |form: Form, hidden| form.check(hidden).map_err(|e| e.to_string());
        let layer = Form { layer: true, ..plain };
        let token = Form { per_token: true, both: true, ..e4m3 };
        for form in [plain, e4m3, layer, token, Form { layer: true, ..token }] {
            assert_eq!(said(form, 100), Ok(()), "{form:?}");
        }
        for (hidden, group) in [(256, 8), (256, 128), (256, 256), (100, 100), (7168, 128)] {
            assert_eq!(said(Form { group, ..e4m3 }, hidden), Ok(()), "{hidden}, {group}");
        }
        for (hidden, group) in
            [(192, 96), (64, 4), (520, 260), (1024, 512), (192, 24), (256, 192), (200, 128)]
        {
            let e = said(Form { group, ..e4m3 }, hidden).unwrap_err();
            assert!(
                e.contains("R0507") && e.contains("is not divided into groups"),
                "{hidden}, {group}: {e}"
            );
        }
        let i32s = Form::plain(Scalar::I32);
        let wrong = [
            (plain, 0, "no elements"),
            (i32s, 64, "hidden states are i32"),
            (Form { out: Scalar::F16, ..plain }, 64, "results of bf16 hidden states are f16"),
            (Form { per_token: true, ..plain }, 64, "choose e4m3 results"),
            (Form { both: true, ..plain }, 64, "choose e4m3 results"),
            (Form { group: 8, ..token }, 64, "choose one of both"),
            (Form { columns: 4, ..token }, 64, "without scales of groups"),
            (Form { group: 8, columns: 129, ..e4m3 }, 64, "choose at most 128"),
        ];
        for (form, hidden, why) in wrong {
            let e = said(form, hidden).unwrap_err();
            assert!(e.contains("R0507") && e.contains(why), "{form:?}: {e}");
        }
    }

    /// Columns of scales begin at multiples of the padded number of tokens.
    #[test]
    fn scales_have_places() {
        let rows = Form { out: Scalar::E4M3, group: 128, ..Form::plain(Scalar::BF16) };
        let form = |columns| Form { columns, ..rows };
        let places = |columns, tokens| {
            let form = form(columns);
            [(0, 0), (0, 1), (tokens - 1, 3)].map(|at| form.scale_at(at, tokens, 512))
        };
        assert_eq!([places(0, 5), places(1, 5), places(4, 5)], [[0, 1, 19], [0, 5, 19], [0, 8, 28]]);
        assert_eq!(places(4, 8), [0, 8, 31]);
        assert_eq!([0, 1, 4].map(|columns| form(columns).scale_elements(5, 512)), [20, 20, 29]);
        assert_eq!(form(4).scale_elements(0, 512), 0);
        assert_eq!(Form { group: 0, ..rows }.scale_elements(5, 512), 0);
        assert_eq!(Form { group: 0, per_token: true, ..rows }.scale_elements(5, 512), 5);
    }
}
