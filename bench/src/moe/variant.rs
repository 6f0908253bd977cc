//! How our kernels are called in a measurement.

use std::fmt;
use std::str::FromStr;
use weft::gpu::GpuError;
use weft::moe::{Moe, Plan, Problem};
use weft_runtime::World;

/// The launches that a call consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The whole layer, in the form that the model chooses.
    Auto,
    /// The whole layer, in the form for many tokens, where results go back beside the products.
    Many,
    /// The whole layer, in the form for few tokens.
    Few,
    /// Dispatch and products in one launch, and a combine that brings results back, in the form for many tokens.
    Apart,
    /// The dispatch of tokens alone.
    Dispatch,
    /// A dispatch, and a combine of results that nothing has written.
    Exchange,
    /// The products alone, of rows that are there, and of which experts have unequal numbers.
    Products,
    /// The products alone, of rows that are there, and of which experts have equal numbers.
    Even,
}

/// The forms by their names.
const FORMS: [(&str, Form); 8] = [
    ("auto", Form::Auto),
    ("many", Form::Many),
    ("few", Form::Few),
    ("apart", Form::Apart),
    ("dispatch", Form::Dispatch),
    ("exchange", Form::Exchange),
    ("products", Form::Products),
    ("even", Form::Even),
];

/// A plan, a form, and values of parameters of `moe_layer` that are tried. As text it is a plan with `form=NAME`, `outs=N`
/// and `pace=N` among its words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// The plan of the kernels.
    pub plan: Plan,
    /// The launches of a call.
    pub form: Form,
    /// Strips of results that a row of a tile has room for.
    pub outs: Option<u32>,
    /// Cycles between two strips that go back.
    pub pace: Option<u32>,
}

impl From<Plan> for Variant {
    fn from(plan: Plan) -> Variant {
        Variant { plan, form: Form::Auto, outs: None, pace: None }
    }
}

impl Variant {
    /// Whether only products are timed.
    pub(super) fn is_product(&self) -> bool {
        matches!(self.form, Form::Products | Form::Even)
    }

    /// Whether results are those of the whole layer.
    pub(super) fn is_layer(&self) -> bool {
        !self.is_product() && !self.is_transfer()
    }

    /// Whether only transfers are timed.
    pub(super) fn is_transfer(&self) -> bool {
        matches!(self.form, Form::Dispatch | Form::Exchange)
    }

    /// The bytes that a PE sends if `tokens` tokens go to other PEs, counted once for each of them. In an exchange, a sum
    /// of results comes back for each.
    pub(super) fn bytes(&self, problem: &Problem, tokens: u64) -> f64 {
        let row = problem.hidden * u64::from(problem.dtype.bytes());
        let back = problem.columns * u64::from(problem.out.bytes());
        tokens as f64 * if self.form == Form::Exchange { row + back } else { row } as f64
    }

    /// Compiles the kernels. This call is *collective*.
    pub(super) fn layer(&self, world: &World, problem: Problem) -> Result<Moe, GpuError> {
        let (team, plan) = (world.team(), self.plan);
        let tried = [("OUTS", self.outs), ("PACE", self.pace)];
        let tried: Vec<_> = tried.into_iter().filter_map(|(name, n)| Some((name, i64::from(n?)))).collect();
        match self.form {
            Form::Auto | Form::Dispatch | Form::Exchange if tried.is_empty() => {
                Moe::new(world, team, problem, plan)
            }
            Form::Few => Moe::for_few(world, team, problem, plan),
            Form::Apart => Moe::for_many(world, team, problem, plan),
            _ => Moe::tried(world, team, problem, plan, &tried),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FORMS.iter().find(|(_, form)| *form == self.form).map_or("", |(name, _)| name);
        write!(f, "form={name},{}", self.plan)?;
        let tried = [("outs", self.outs), ("pace", self.pace)];
        tried
            .into_iter()
            .filter_map(|(name, n)| n.map(|n| (name, n)))
            .try_for_each(|(name, n)| write!(f, ",{name}={n}"))
    }
}

impl FromStr for Variant {
    type Err = String;

    fn from_str(text: &str) -> Result<Variant, String> {
        let mut variant = Variant::from(Plan::default());
        let mut of_plan = Vec::new();
        for word in text.split(',') {
            let number = |value: &str| value.parse().map(Some).map_err(|e| format!("`{word}`: {e}"));
            match word.split_once('=') {
                Some(("form", name)) => {
                    let known = || {
                        format!("there is no form `{name}`: known are {}", FORMS.map(|(n, _)| n).join(", "))
                    };
                    variant.form = FORMS.iter().find(|(known, _)| *known == name).ok_or_else(known)?.1;
                }
                Some(("outs", n)) => variant.outs = number(n)?,
                Some(("pace", n)) => variant.pace = number(n)?,
                _ => of_plan.push(word),
            }
        }
        variant.plan = of_plan.join(",").parse()?;
        Ok(variant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_read_as_they_are_written() {
        let variant: Variant = "form=many,bn=128,outs=4,pace=3000".parse().unwrap();
        assert_eq!(
            (variant.form, variant.plan.bn, variant.outs, variant.pace),
            (Form::Many, 128, Some(4), Some(3000))
        );
        assert_eq!(variant.to_string().parse(), Ok(variant));
        assert_eq!("".parse(), Ok(Variant::from(Plan::default())));
        assert!(
            "form=some"
                .parse::<Variant>()
                .unwrap_err()
                .contains("auto, many, few, apart, dispatch, exchange, products, even")
        );
        assert!("pace=x".parse::<Variant>().is_err() && "lag=1".parse::<Variant>().is_err());
    }
}
