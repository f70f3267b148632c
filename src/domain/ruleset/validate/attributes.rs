//! `<Attributes>`: what sessions may say, and how rules refer to it.

use crate::domain::attribute::{Attribute, Reduction, Source, Trust, ValueKind};
use crate::domain::limit::{ATTRIBUTES_MAX, NUMBER_MAGNITUDE_MAX};
use crate::domain::ruleset::draft::{Element, Mistakes, Written, quoted};
use crate::domain::ruleset::fields::{Bounds, Fields};
use crate::domain::ruleset::suggest::instead;

/// The two measures that nobody declares.
pub(super) const MEASURED: [&str; 2] = ["latency", "distance"];

/// Any number that a session may state.
pub(super) const ANY_NUMBER: Bounds = Bounds::within(-NUMBER_MAGNITUDE_MAX, NUMBER_MAGNITUDE_MAX);

/// How players' values become a party's.
pub(super) const REDUCTIONS: [(&str, Reduction); 5] = [
    ("mean", Reduction::Mean),
    ("median", Reduction::Median),
    ("min", Reduction::Min),
    ("max", Reduction::Max),
    ("sum", Reduction::Sum),
];

const KINDS: [(&str, ValueKind); 4] =
    [("number", ValueKind::Number), ("text", ValueKind::Text), ("flag", ValueKind::Flag), ("texts", ValueKind::Texts)];

const TRUSTS: [(&str, Trust); 3] = [("client", Trust::Client), ("server", Trust::Server), ("token", Trust::Token)];

/// The declared attributes. One whose declaration is broken is kept, so that what refers to it is not wrong as well.
pub(super) struct Declared(Vec<(Attribute, Option<ValueKind>)>);

impl Declared {
    /// The attribute that `written` names: its place, and its kind where its declaration is sound. Notes an unknown name.
    pub(super) fn find(&self, at: &Fields<'_>, written: &Written) -> Option<(usize, Option<ValueKind>)> {
        self.find_or(at, written, &[])
    }

    /// The same, where `others` would be right too.
    pub(super) fn find_or(
        &self,
        at: &Fields<'_>,
        written: &Written,
        others: &[&'static str],
    ) -> Option<(usize, Option<ValueKind>)> {
        let found = self.0.iter().position(|(attribute, _)| attribute.name == written.value);
        let Some(index) = found else {
            if MEASURED.contains(&&*written.value) {
                let right = "limit it with <Within>, or wish for it with <SoftFilter>";
                at.wrong(written.value_span, format!("{} is measured, not declared", quoted(&written.value)), right);
            } else {
                let known = self.0.iter().map(|(attribute, _)| &*attribute.name).chain(others.iter().copied());
                let what = format!("no attribute is called {}", quoted(&written.value));
                at.wrong(written.value_span, what, instead(&written.value, known));
            }
            return None;
        };
        Some((index, self.0[index].1))
    }

    /// The attribute that `written` names, which must be of `kind`.
    pub(super) fn expect_kind(&self, at: &Fields<'_>, written: &Written, kind: ValueKind) -> Option<usize> {
        let (index, found) = self.find(at, written)?;
        let found = found?;
        if found != kind {
            let what = format!("{} is a {}", quoted(&written.value), found.as_str());
            let right = format!("<{}> needs a {} attribute", at.element.name, kind.as_str());
            at.wrong(written.value_span, what, right);
            return None;
        }
        Some(index)
    }

    /// The range that the attribute at `index` declares.
    pub(super) fn range(&self, index: usize) -> Option<(f64, f64)> {
        self.0[index].0.range
    }

    /// The name of the attribute at `index`.
    pub(super) fn name(&self, index: usize) -> &str {
        &self.0[index].0.name
    }

    pub(super) fn into_attributes(self) -> Box<[Attribute]> {
        self.0.into_iter().map(|(attribute, _)| attribute).collect()
    }
}

/// Reads `<Attributes>`; without one, nothing is declared.
pub(super) fn read(element: Option<&Element>, mistakes: &Mistakes) -> Declared {
    let mut declared = Declared(Vec::new());
    let Some(element) = element else { return declared };
    let mut at = Fields::of(element, mistakes);
    let children = at.children(&["Attribute"]);
    if let Some(excess) = children.get(ATTRIBUTES_MAX) {
        at.wrong(excess.span, format!("{} attributes are declared", children.len()), format!("keep {ATTRIBUTES_MAX}"));
    }
    for child in children {
        read_one(child, &mut declared, mistakes);
    }
    at.finish();
    declared
}

fn read_one(element: &Element, declared: &mut Declared, mistakes: &Mistakes) {
    let mut at = Fields::of(element, mistakes);
    let name = at.handle("Name");
    let kind = at.required_word("Type", &KINDS);
    let range = range(&mut at, kind);
    let unit = at.text("Unit");
    let source = name.map_or(Source::Map, |name| Source::of(&name.value));
    let reduce = at.written("Reduce");
    if let Some(reduce) = reduce.filter(|_| name.is_some() && source != Source::Skill) {
        let what = format!("<Attribute> {} has `Reduce`", quoted(&element_name(name)));
        at.wrong(reduce.name_span, what, "leave it out: only `skill` is given for each player");
    }
    let reduction = at.word("Reduce", &REDUCTIONS).unwrap_or_default();
    let trust = at.word("Trust", &TRUSTS).unwrap_or_default();
    if let Some(name) = name {
        check_name(&at, name, source, kind, declared);
        let attribute = Attribute {
            name: name.value.clone(),
            kind: kind.unwrap_or(ValueKind::Number),
            source,
            range,
            unit,
            reduction,
            trust,
        };
        declared.0.push((attribute, kind));
    }
    at.finish();
}

fn element_name(name: Option<&Written>) -> String {
    name.map(|name| name.value.to_string()).unwrap_or_default()
}

fn check_name(at: &Fields<'_>, name: &Written, source: Source, kind: Option<ValueKind>, declared: &Declared) {
    if MEASURED.contains(&&*name.value) {
        let right = "choose another name: it is measured by the server and needs no declaration";
        at.wrong(name.value_span, format!("{} is reserved", quoted(&name.value)), right);
    }
    if declared.0.iter().any(|(known, _)| known.name == name.value) {
        at.wrong(name.value_span, format!("{} is declared a second time", quoted(&name.value)), "keep one of them");
    }
    if let (Some(required), Some(kind)) = (source.required_kind(), kind)
        && required != kind
    {
        let what = format!("{} is built in and a {}, not a {}", quoted(&name.value), required.as_str(), kind.as_str());
        at.wrong(name.value_span, what, format!("write Type=\"{}\", or choose another name", required.as_str()));
    }
}

/// `Min` and `Max`: both or neither, on numbers alone.
fn range(at: &mut Fields<'_>, kind: Option<ValueKind>) -> Option<(f64, f64)> {
    let written = at.written("Min").or(at.written("Max"));
    if let (Some(written), Some(ValueKind::Text | ValueKind::Flag | ValueKind::Texts)) = (written, kind) {
        let what = format!("`{}` stands at an attribute that is no number", written.name);
        at.wrong(written.name_span, what, "leave it out, or write Type=\"number\"");
    }
    min_and_max(at)
}

/// `Min` and `Max` of the element at hand: both or neither, `Min` the lesser.
pub(super) fn min_and_max(at: &mut Fields<'_>) -> Option<(f64, f64)> {
    let (min_written, max_written) = (at.written("Min"), at.written("Max"));
    let (min, max) = (at.number("Min", ANY_NUMBER), at.number("Max", ANY_NUMBER));
    match (min_written, max_written) {
        (Some(alone), None) => at.wrong(alone.name_span, "`Min` has no `Max`", "give both, or neither"),
        (None, Some(alone)) => at.wrong(alone.name_span, "`Max` has no `Min`", "give both, or neither"),
        _ => {}
    }
    let (min, max) = (min?, max?);
    if max <= min {
        let what = format!("`Min` is {min} and `Max` is {max}");
        at.wrong(min_written?.value_span, what, "`Min` must be less than `Max`");
        return None;
    }
    Some((min, max))
}
