//! Fields of the messages that the services of a port take or answer, read from their descriptors, for closed tables.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet, MethodDescriptorProto};

/// Message and field.
type FieldName = (String, String);

/// Fields of all messages that calls of these services take, but for single messages, whose own fields count.
pub(crate) fn request_fields(descriptors: &[u8]) -> BTreeSet<FieldName> {
    fields_from(descriptors, MethodDescriptorProto::input_type)
}

/// The same of all messages that calls answer.
pub(crate) fn answer_fields(descriptors: &[u8]) -> BTreeSet<FieldName> {
    fields_from(descriptors, MethodDescriptorProto::output_type)
}

fn fields_from(descriptors: &[u8], type_of: fn(&MethodDescriptorProto) -> &str) -> BTreeSet<FieldName> {
    let set = FileDescriptorSet::decode(descriptors).unwrap();
    let messages: BTreeMap<String, &DescriptorProto> = set
        .file
        .iter()
        .flat_map(|file| file.message_type.iter().map(move |it| (format!(".{}.{}", file.package(), it.name()), it)))
        .collect();
    let methods = set.file.iter().flat_map(|file| &file.service).flat_map(|service| &service.method);
    let mut open: Vec<String> = methods.map(|method| type_of(method).to_owned()).collect();
    let (mut seen, mut fields) = (BTreeSet::new(), BTreeSet::new());
    while let Some(name) = open.pop() {
        // Entries of a map are nested messages.
        let nested = || {
            let (outer, inner) = name.rsplit_once('.')?;
            messages.get(outer)?.nested_type.iter().find(|it| it.name() == inner)
        };
        let is_new = seen.insert(name.clone());
        let Some(message) = messages.get(&name).copied().or_else(nested).filter(|_| is_new) else { continue };
        let is_map_entry = message.options.as_ref().is_some_and(|options| options.map_entry());
        for field in &message.field {
            if field.r#type() == Type::Message {
                open.push(field.type_name().to_owned());
            }
            let is_single_message = field.r#type() == Type::Message && field.label() != Label::Repeated;
            if !is_single_message && !is_map_entry {
                fields.insert((message.name().to_owned(), field.name().to_owned()));
            }
        }
    }
    fields
}

/// Asserts that `fields` and the rows of a table are the same, each once. `advice` says what a new field needs.
#[track_caller]
pub(crate) fn assert_closed<'a>(
    fields: &BTreeSet<FieldName>,
    table: impl IntoIterator<Item = (&'a str, &'a str)>,
    advice: &str,
) {
    let mut rows = BTreeSet::new();
    for (message, field) in table {
        assert!(rows.insert((message.to_owned(), field.to_owned())), "{message}.{field} is in the table twice");
    }
    let missing: Vec<_> = fields.difference(&rows).collect();
    assert!(missing.is_empty(), "new fields: {missing:?}; {advice}");
    assert_eq!(rows.difference(fields).collect::<Vec<_>>(), Vec::<&FieldName>::new(), "no longer in the protocol");
}

/// A message in repeated messages, maps and oneofs is reached, so no path to a field is overlooked.
#[test]
fn message_fields_reach_nested_messages() {
    let descriptors = fireteam::api::pb::CLIENT_PORT_SERVICE_DESCRIPTORS;
    let (requests, answers) = (request_fields(descriptors), answer_fields(descriptors));
    let has = |fields: &BTreeSet<FieldName>, (message, field): (&str, &str)| {
        fields.contains(&(message.to_owned(), field.to_owned()))
    };
    for field in [
        ("MatchStatus", "quality"),
        ("ScoreTerm", "value"),
        ("AttributeValue", "number_value"),
        ("StringList", "values"),
        ("HostedPlayer", "rating"),
        ("GameServerAssignment", "connect_data"),
    ] {
        assert!(has(&answers, field), "{field:?}");
    }
    for field in [
        ("PlayerData", "skill"),
        ("StringList", "values"),
        ("LocalityData", "locality_x"),
        ("HostIdentity", "subject"),
        ("MatchmakingSearchConfigOverrides", "weights"),
    ] {
        assert!(has(&requests, field), "{field:?}");
    }
    assert!(!has(&answers, ("PlayerData", "skill")), "requests are not answers");
    assert!(!has(&requests, ("MatchStatus", "quality")), "answers are not requests");
}
