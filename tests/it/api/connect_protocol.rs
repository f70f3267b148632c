//! Connect protocol: each method of both ports answers JSON and protobuf as it answers gRPC, for each credential, and a script can
//! enter a queue and play.

use bytes::Bytes;
use http::StatusCode;
use prost::Message;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, MethodDescriptor, Value,
};
use serde_json::json;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

use fireteam::api::pb;
use fireteam::auth::identity::Role;
use fireteam::config::RateLimitSetting;

use crate::support::grpc_json::DynamicCodec;
use crate::support::http_client::HttpClient;
use crate::support::queue_server::{SET_ID, duel_ruleset, start_queue_server, wait_until};
use crate::support::tokens::start_authenticated_server_with_config;

/// Levels of messages that a filled request has.
const FILLED_LEVELS: u32 = 5;

/// Methods whose answer differs from call to call, by time, random numbers or earlier calls. Only the kind of their outcome is
/// compared.
const ANSWERS_THAT_CHANGE: &[&str] = &[
    "fireteam.v1.MatchmakingService.GrantConsent",
    "fireteam.v1.OperatorService.CheckConsistency",
    "fireteam.v1.OperatorService.Drain",
    "fireteam.v1.OperatorService.GetStatistics",
    "fireteam.v1.OperatorService.ListRulesets",
];

/// Outcome of a call, in the same form for each protocol.
#[derive(Debug, PartialEq)]
enum Outcome {
    Answer(DynamicMessage),
    /// Code, message, and the details as type and JSON: the order of maps differs in protobuf.
    Error(String, String, Vec<(String, serde_json::Value)>),
}

/// Unary methods of a port, by its descriptors.
fn unary_methods(descriptors: &[u8]) -> Vec<MethodDescriptor> {
    let mut pool = DescriptorPool::new();
    for set in [tonic_health::pb::FILE_DESCRIPTOR_SET, descriptors] {
        pool.decode_file_descriptor_set(set).unwrap();
    }
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    methods.filter(|method| !method.is_client_streaming() && !method.is_server_streaming()).collect()
}

fn path(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// A request with a value in each field, down to some levels.
fn filled(message: &MessageDescriptor, levels: u32) -> DynamicMessage {
    let mut filled_message = DynamicMessage::new(message.clone());
    for field in message.fields() {
        let is_set =
            field.containing_oneof().is_some_and(|oneof| oneof.fields().any(|other| filled_message.has_field(&other)));
        if !is_set && let Some(value) = sample_value(&field, levels) {
            filled_message.set_field(&field, value);
        }
    }
    filled_message
}

fn sample_value(field: &FieldDescriptor, levels: u32) -> Option<Value> {
    if let Some(entry) = field.kind().as_message().filter(|_| field.is_map()) {
        let value = sample_single_value(&entry.map_entry_value_field().kind(), levels)?;
        return Some(Value::Map([(MapKey::String("key \"é".to_owned()), value)].into()));
    }
    let value = sample_single_value(&field.kind(), levels)?;
    Some(if field.is_list() { Value::List(vec![value.clone(), value]) } else { value })
}

fn sample_single_value(kind: &Kind, levels: u32) -> Option<Value> {
    Some(match kind {
        Kind::Double => Value::F64(-0.1),
        Kind::Float => Value::F32(1.5),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(-7),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(i64::MIN),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(11),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(u64::MAX),
        Kind::Bool => Value::Bool(true),
        Kind::String => Value::String("a \"é\\\u{1f3ae}\n".to_owned()),
        Kind::Bytes => Value::Bytes(Bytes::from_static(&[0, 255, 62, 63])),
        Kind::Enum(values) => Value::EnumNumber(values.values().last()?.number()),
        Kind::Message(_) if levels == 0 => return None,
        Kind::Message(inner) => Value::Message(filled(inner, levels - 1)),
    })
}

async fn grpc_outcome(
    channel: &Channel,
    method: &MethodDescriptor,
    request: &DynamicMessage,
    authorization: Option<&str>,
) -> Outcome {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(request.clone());
    if let Some(authorization) = authorization {
        request.metadata_mut().insert("authorization", authorization.parse().unwrap());
    }
    match grpc.unary(request, path(method).parse().unwrap(), DynamicCodec(method.output())).await {
        Ok(response) => Outcome::Answer(response.into_inner()),
        Err(status) => {
            Outcome::Error(connect_code(&status).to_owned(), status.message().to_owned(), grpc_details(&status))
        }
    }
}

fn grpc_details(status: &Status) -> Vec<(String, serde_json::Value)> {
    let details = tonic_types::pb::Status::decode(status.details()).unwrap().details;
    let named = |detail: prost_types::Any| {
        let name = detail.type_url.rsplit('/').next().unwrap().to_owned();
        let json = detail_json(&name, &detail.value);
        (name, json)
    };
    details.into_iter().map(named).collect()
}

/// JSON form of an error detail.
fn detail_json(name: &str, protobuf: &[u8]) -> serde_json::Value {
    let pool = DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET).unwrap();
    let message = pool.get_message_by_name(name).expect("a known detail");
    serde_json::to_value(DynamicMessage::decode(message, protobuf).unwrap()).unwrap()
}

/// Name of a code in the Connect protocol: that of gRPC in snake case, but for one spelling.
fn connect_code(status: &Status) -> String {
    let code = format!("{:?}", status.code());
    if status.code() == Code::Cancelled {
        return "canceled".to_owned();
    }
    let mut name = String::new();
    for letter in code.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

async fn connect_outcome(
    client: &HttpClient,
    method: &MethodDescriptor,
    request: &DynamicMessage,
    content_type: &str,
) -> Outcome {
    let is_json = content_type == "application/json";
    let body = if is_json { serde_json::to_vec(request).unwrap() } else { request.encode_to_vec() };
    let response = client.clone().with_header("content-type", content_type).send("POST", &path(method), body).await;
    if response.status == StatusCode::OK {
        assert_eq!(response.headers["content-type"], content_type);
        return Outcome::Answer(if is_json {
            let mut json = serde_json::Deserializer::from_slice(&response.body);
            DynamicMessage::deserialize(method.output(), &mut json).expect("the JSON form of the answer")
        } else {
            DynamicMessage::decode(method.output(), response.body).expect("the answer")
        });
    }
    let error = response.json();
    let text = |value: &serde_json::Value| value.as_str().expect("a string").to_owned();
    let details = error["details"].as_array().cloned().unwrap_or_default();
    let details = details.iter().map(|detail| {
        let (name, protobuf) = (text(&detail["type"]), base64_decode(detail["value"].as_str().unwrap()));
        let json = detail_json(&name, &protobuf);
        assert_eq!(detail["debug"], json);
        (name, json)
    });
    Outcome::Error(text(&error["code"]), text(&error["message"]), details.collect())
}

fn base64_decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD_NO_PAD.decode(text).expect("base64 without padding")
}

/// Every unary method of both ports, by every credential: an empty request and one with all fields have the same outcome by
/// gRPC, JSON and protobuf.
#[tokio::test]
async fn connect_protocol_answers_each_method_as_grpc_does() {
    let (server, issuer) =
        start_authenticated_server_with_config(|config| config.rate_limits = RateLimitSetting::Off).await;
    let running = &server.app.server;
    let ports =
        [(running.address, pb::CLIENT_PORT_SERVICE_DESCRIPTORS), (running.operator_address, pb::OPERATOR_DESCRIPTORS)];
    let of_role = |role| Some(issuer.authorization_header(role, "ana"));
    let credentials = [
        None,
        Some("Bearer noise".to_owned()),
        of_role(Role::Client),
        of_role(Role::GameServer),
        of_role(Role::Operator),
    ];
    let (mut errors, mut answers, mut differences) = (0, 0, Vec::new());
    for (address, descriptors) in ports {
        let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        for method in unary_methods(descriptors) {
            for authorization in &credentials {
                let mut client = HttpClient::new(address);
                if let Some(authorization) = authorization {
                    client = client.with_header("authorization", authorization);
                }
                for request in [DynamicMessage::new(method.input()), filled(&method.input(), FILLED_LEVELS)] {
                    let expected = grpc_outcome(&channel, &method, &request, authorization.as_deref()).await;
                    for content_type in ["application/json", "application/proto"] {
                        let outcome = connect_outcome(&client, &method, &request, content_type).await;
                        let case = format!("{} by {authorization:?} with {content_type}", method.full_name());
                        let may_change = ANSWERS_THAT_CHANGE.contains(&method.full_name());
                        let are_answers = [&outcome, &expected].iter().all(|it| matches!(it, Outcome::Answer(_)));
                        if outcome != expected && !(may_change && are_answers) {
                            differences.push(format!("{case}\n  {outcome:?}\n  {expected:?}"));
                        }
                    }
                    *if matches!(expected, Outcome::Answer(_)) { &mut answers } else { &mut errors } += 1;
                }
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(answers > 20 && errors > 200, "{answers} answers and {errors} errors");
}

/// Body of an Enter request.
pub(crate) fn enter_json(user: &str) -> String {
    let players = json!([{ "userId": user, "skill": 25 }]);
    json!({ "matchmakingSetId": SET_ID, "sessionComposition": { "players": players }, "idempotencyKey": format!("0123456789abcdef-{user}") })
        .to_string()
}

/// A script with HTTP/1.1 and JSON enters two players, polls until they are matched, and each accepts.
#[tokio::test]
async fn connect_protocol_plays_a_queue_with_json_alone() {
    let server = start_queue_server(&[&duel_ruleset(r#"<ReadyCheck TimeoutMs="600000"/>"#)]).await;
    let client = HttpClient::new(server.app.server.address);
    let mut tickets = Vec::new();
    for user in ["ana", "ben"] {
        let entered = client.call("/fireteam.v1.QueueService/Enter", &enter_json(user)).await.success();
        // Integers of 64 bits are text, as the JSON form of protobuf has them.
        assert_eq!(entered["expiresInMs"].as_str().map(|ms| ms.parse::<u64>().is_ok()), Some(true), "{entered}");
        tickets.push(json!({ "ticketId": entered["status"]["ticketId"], "ticketToken": entered["ticketToken"] }));
    }
    let heartbeat = json!({ "tickets": tickets }).to_string();
    let mut statuses = Vec::new();
    wait_until("both tickets have a match", async || {
        let answer = client.call("/fireteam.v1.QueueService/Heartbeat", &heartbeat).await.success();
        statuses = answer["statuses"].as_array().cloned().unwrap_or_default();
        statuses.iter().all(|status| status["foundMatch"]["matchId"].is_string())
    })
    .await;
    assert_eq!(statuses[0]["foundMatch"]["matchId"], statuses[1]["foundMatch"]["matchId"]);
    for (ticket, status) in tickets.iter().zip(&statuses) {
        let mut answer = ticket.clone();
        answer["matchId"] = status["foundMatch"]["matchId"].clone();
        answer["accept"] = json!(true);
        client.call("/fireteam.v1.QueueService/Respond", &answer.to_string()).await.success();
    }
    let names = "names of proto/ are read too";
    let request = r#"{"matchmaking_set_id": 11}"#;
    assert!(
        client.call("/fireteam.v1.MatchmakingService/GetConfiguration", request).await.success().is_object(),
        "{names}"
    );
}
