//! JSON form of protobuf messages, by their descriptors. Errors name the field, and what would be right.

use prost::Message as _;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};
use tonic::{Code, Status};

use crate::api::internal_error_status;
use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;
use crate::domain::attribute_values::FieldProblem;

/// Names that an error lists.
const LISTED_NAMES_MAX: usize = 6;

/// Least similarity of a name that an error proposes, in [0, 1] (Jaro-Winkler).
const SIMILARITY_MIN: f64 = 0.8;

/// Start of the error for an unknown field.
const UNKNOWN_FIELD_PREFIX: &str = "unrecognized field name '";

/// Converts JSON text to a protobuf message of this type. Names may be those of JSON or of `proto/`. Unknown fields, values of
/// another type and more than 127 levels are errors.
pub(super) fn to_protobuf(message: &MessageDescriptor, json: &[u8]) -> Result<Vec<u8>, Rejection> {
    if json.is_empty() {
        let text = format!("the body is empty; send {{}} or the JSON form of {}", message.full_name());
        return Err(invalid_body(text));
    }
    let mut source = serde_json::Deserializer::from_slice(json);
    let mut path = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut source, &mut path);
    let parsed = DynamicMessage::deserialize(message.clone(), tracked).and_then(|parsed| source.end().map(|()| parsed));
    parsed.map(|parsed| parsed.encode_to_vec()).map_err(|error| rejection_of_error(message, &path.path(), &error))
}

/// Converts a protobuf message of this type to JSON text: names of JSON, integers of 64 bits as text, defaults left out.
pub(super) fn from_protobuf(message: &MessageDescriptor, protobuf: &[u8]) -> Result<String, Status> {
    let decoded = DynamicMessage::decode(message.clone(), protobuf);
    let json = decoded.map(|decoded| serde_json::to_string(&decoded));
    match json {
        Ok(Ok(json)) => Ok(json),
        Ok(Err(error)) => Err(encoding_failed(message, &error)),
        Err(error) => Err(encoding_failed(message, &error)),
    }
}

/// Status of a response that has no JSON form, which is a bug of the server.
fn encoding_failed(message: &MessageDescriptor, error: &dyn std::fmt::Display) -> Status {
    tracing::error!(message = message.full_name(), %error, "response encoding failed");
    internal_error_status()
}

fn invalid_body(text: String) -> Rejection {
    Rejection::new(Code::InvalidArgument, ErrorReason::InvalidRequest, text)
}

/// Error of JSON text that is no message of this type. `path` is the place of the error.
fn rejection_of_error(message: &MessageDescriptor, path: &Path, error: &serde_json::Error) -> Rejection {
    if error.classify() != Category::Data {
        let name = message.full_name();
        return invalid_body(format!("the body is not valid JSON: {error}; send the JSON form of {name}"));
    }
    let text = error.to_string();
    let (message, field) = message_and_field_at(message, path);
    let is_root = path.iter().next().is_none();
    let unknown = text.strip_prefix(UNKNOWN_FIELD_PREFIX).and_then(|rest| rest.rsplit_once("' at line "));
    let problem = match (unknown, field) {
        (Some((name, _)), _) => {
            let path = if is_root { name.to_owned() } else { format!("{path}.{name}") };
            FieldProblem { path, message: unknown_field_text(&message, name) }
        }
        (None, Some(field)) => {
            let is_element = matches!(path.iter().next_back(), Some(Segment::Seq { .. }));
            let expected = expected_value(&field, is_element);
            FieldProblem { path: path.to_string(), message: format!("send {expected}; {text}") }
        }
        (None, None) => {
            let text = format!("send a JSON object, the form of {}; {text}", message.full_name());
            return invalid_body(text);
        }
    };
    Rejection::invalid_fields(vec![problem])
}

/// The innermost message at a path, and the field there; `None` at the root.
fn message_and_field_at(root: &MessageDescriptor, path: &Path) -> (MessageDescriptor, Option<FieldDescriptor>) {
    let (mut message, mut field) = (root.clone(), None::<FieldDescriptor>);
    for segment in path.iter() {
        let Segment::Map { key } = segment else { continue };
        let entry = field.as_ref().filter(|field| field.is_map()).map(FieldDescriptor::kind);
        field = match entry.as_ref().and_then(Kind::as_message) {
            Some(entry) => Some(entry.map_entry_value_field()),
            None => message.get_field_by_json_name(key).or_else(|| message.get_field_by_name(key)),
        };
        let kind = field.as_ref().filter(|field| !field.is_map()).map(FieldDescriptor::kind);
        if let Some(inner) = kind.as_ref().and_then(Kind::as_message) {
            message = inner.clone();
        }
    }
    (message, field)
}

/// Error text for a field that the message does not have.
fn unknown_field_text(message: &MessageDescriptor, name: &str) -> String {
    let names: Vec<String> = message.fields().map(|field| field.json_name().to_owned()).collect();
    let of_message = message.name();
    let similarity =
        |known: &String| strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase().replace('_', ""));
    let closest = names.iter().map(|known| (similarity(known), known)).max_by(|one, other| one.0.total_cmp(&other.0));
    match closest {
        Some((similarity, known)) if similarity >= SIMILARITY_MIN => {
            format!("{of_message} has no such field; did you mean `{known}`?")
        }
        Some(_) => format!("{of_message} has no such field; send {}", list_names(&names)),
        None => format!("{of_message} has no fields; send {{}}"),
    }
}

/// `a, b, c`, shortened.
fn list_names(names: &[String]) -> String {
    let listed = names.iter().take(LISTED_NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > LISTED_NAMES_MAX { listed + ", …" } else { listed }
}

/// Value that a field takes, as a phrase. `is_element`: of an element of a list.
fn expected_value(field: &FieldDescriptor, is_element: bool) -> String {
    if field.is_list() && !is_element {
        return "an array".to_owned();
    }
    if field.is_map() {
        return "an object".to_owned();
    }
    match field.kind() {
        Kind::Double | Kind::Float => "a number".to_owned(),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => "a whole number from -2147483648 to 2147483647".to_owned(),
        Kind::Uint32 | Kind::Fixed32 => "a whole number from 0 to 4294967295".to_owned(),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => "a whole number of 64 bits".to_owned(),
        Kind::Uint64 | Kind::Fixed64 => "a whole number of 64 bits, not negative".to_owned(),
        Kind::Bool => "true or false".to_owned(),
        Kind::String => "a string".to_owned(),
        Kind::Bytes => "bytes as base64".to_owned(),
        Kind::Message(inner) => format!("an object, the JSON form of {}", inner.name()),
        Kind::Enum(values) => {
            let names: Vec<String> = values.values().map(|value| value.name().to_owned()).collect();
            format!("one of {}", list_names(&names))
        }
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;
    use crate::api::pb;

    fn message(name: &str) -> MessageDescriptor {
        let pool = DescriptorPool::decode(pb::CLIENT_PORT_SERVICE_DESCRIPTORS).unwrap();
        pool.get_message_by_name(&format!("fireteam.v1.{name}")).unwrap()
    }

    fn error(name: &str, json: &str) -> String {
        let rejection = to_protobuf(&message(name), json.as_bytes()).unwrap_err();
        assert_eq!(rejection.code, Code::InvalidArgument);
        rejection.message
    }

    #[test]
    fn json_error_names_the_place_in_lists_and_maps() {
        let search = "MatchmakingSearchRequest";
        let of_map = error(search, r#"{"sessionComposition":{"attributes":{"a":[3]}}}"#);
        assert!(
            of_map.starts_with("sessionComposition.attributes.a: send an object, the JSON form of AttributeValue; "),
            "{of_map}"
        );
        let of_element = error(search, r#"{"session_composition":{"party_size_composition":[1,"x"]}}"#);
        assert!(
            of_element.starts_with("session_composition.party_size_composition[1]: send a whole number from "),
            "{of_element}"
        );
        let of_nested = error(search, r#"{"sessionComposition":{"players":[{},{"userid":3}]}}"#);
        assert!(
            of_nested.ends_with("players[1].userid: PlayerData has no such field; did you mean `userId`?"),
            "{of_nested}"
        );
    }

    #[test]
    fn json_of_a_message_is_read_back() {
        let search = message("MatchmakingSearchRequest");
        let json = r#"{"sessionComposition":{"siloId":"18446744073709551615","players":[{"userId":"é","skill":-0.5}]},"searchToken":"AP8="}"#;
        let protobuf = to_protobuf(&search, json.as_bytes()).unwrap();
        assert_eq!(from_protobuf(&search, &protobuf).unwrap(), json);
        assert_eq!(to_protobuf(&search, b"{}").unwrap(), b"");
        assert_eq!(from_protobuf(&search, b"").unwrap(), "{}");
        assert_eq!(from_protobuf(&search, b"\xff").unwrap_err().code(), Code::Internal);
    }
}
