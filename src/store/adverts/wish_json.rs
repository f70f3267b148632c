//! JSON encoding of wishes: a list of attribute, whether missing values are accepted, and steps of start and accepted values.
//! Accepted values are `"a"` for any, `{"n":[min,max]}` for numbers, `{"s":[…]}` for strings, or `{"f":true}`.

use serde::de::Error;
use serde::{Deserialize, Serialize};

use crate::domain::wish::{AcceptedValues, Wish, WishStep};

/// A wish, as encoded.
#[derive(Serialize, Deserialize)]
pub(super) struct WishJson(Box<str>, bool, Vec<(u64, AcceptedValuesJson)>);

#[derive(Serialize, Deserialize)]
enum AcceptedValuesJson {
    #[serde(rename = "a")]
    Any,
    #[serde(rename = "n")]
    Numbers(Option<f64>, Option<f64>),
    #[serde(rename = "s")]
    Strings(Vec<Box<str>>),
    #[serde(rename = "f")]
    Flag(bool),
}

pub(super) fn encode_wish(wish: &Wish) -> WishJson {
    let accepted = |accepted: &AcceptedValues| match accepted {
        AcceptedValues::Any => AcceptedValuesJson::Any,
        AcceptedValues::Numbers { min, max } => AcceptedValuesJson::Numbers(*min, *max),
        AcceptedValues::Strings(strings) => AcceptedValuesJson::Strings(strings.to_vec()),
        AcceptedValues::Flag(flag) => AcceptedValuesJson::Flag(*flag),
    };
    let steps = wish.steps().iter().map(|step| (step.start_ms, accepted(&step.accepted)));
    WishJson(wish.subject_name.clone(), wish.accepts_missing, steps.collect())
}

/// Decodes wishes.
pub(super) fn decode_wishes(body: Vec<WishJson>) -> Result<Vec<Wish>, serde_json::Error> {
    body.into_iter().map(decode_wish).collect()
}

fn decode_wish(WishJson(attribute, accepts_missing, steps): WishJson) -> Result<Wish, serde_json::Error> {
    let accepted = |body: AcceptedValuesJson| match body {
        AcceptedValuesJson::Any => AcceptedValues::Any,
        AcceptedValuesJson::Numbers(min, max) => AcceptedValues::Numbers { min, max },
        AcceptedValuesJson::Strings(strings) => AcceptedValues::Strings(strings.into()),
        AcceptedValuesJson::Flag(flag) => AcceptedValues::Flag(flag),
    };
    let steps = steps.into_iter().map(|(start_ms, body)| WishStep { start_ms, accepted: accepted(body) });
    Wish::new(&attribute, accepts_missing, steps.collect())
        .map_err(|step| serde_json::Error::custom(format_args!("step {step} of the wish for {attribute} is invalid")))
}
