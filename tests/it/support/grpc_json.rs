//! A small grpcurl: reads service descriptions by reflection, converts JSON to a request and the response to JSON.

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use prost_types::FileDescriptorProto;
use tokio_stream::StreamExt;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::AsciiMetadataKey;
use tonic::transport::{Channel, Endpoint};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

/// Runs `grpcurl ARGUMENTS <STDIN` and returns its output.
pub(crate) async fn grpcurl(arguments: &[String], stdin: &str) -> String {
    let mut rest = arguments.iter().map(String::as_str);
    let (mut headers, mut words, mut body) = (Vec::new(), Vec::new(), "{}");
    while let Some(word) = rest.next() {
        match word {
            "-plaintext" => {}
            "-H" => headers.push(rest.next().and_then(|header| header.split_once(": ")).expect("name: value")),
            "-d" => match rest.next().expect("request body") {
                "@" => body = stdin,
                json => body = json,
            },
            word => words.push(word),
        }
    }
    let channel = |address: &str| Endpoint::from_shared(format!("http://{address}")).expect("valid address");
    let channel = channel(words[0]).connect().await.expect("connect to the server");
    match words[1..] {
        ["list"] => list_services(channel).await,
        ["describe", symbol] => describe_method(&resolve_method(channel, symbol).await),
        [path] => {
            let method = resolve_method(channel.clone(), &path.replace('/', ".")).await;
            call_method(channel, &method, &headers, body).await
        }
        _ => panic!("unsupported grpcurl arguments {words:?}"),
    }
}

async fn send_reflection_request(channel: Channel, question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let answers = ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(request)).await;
    let answer =
        answers.expect("reflection response").into_inner().next().await.expect("a response").expect("no error");
    answer.message_response.expect("a response")
}

async fn list_services(channel: Channel) -> String {
    let MessageResponse::ListServicesResponse(listed) =
        send_reflection_request(channel, MessageRequest::ListServices(String::new())).await
    else {
        panic!("expected a list of services")
    };
    let mut names: Vec<String> = listed.service.into_iter().map(|service| service.name + "\n").collect();
    names.sort();
    names.concat()
}

/// Descriptor of the method `package.Service.Method`, read from the server by reflection.
async fn resolve_method(channel: Channel, symbol: &str) -> MethodDescriptor {
    let mut questions = vec![MessageRequest::FileContainingSymbol(symbol.to_owned())];
    let mut files: Vec<FileDescriptorProto> = Vec::new();
    while let Some(question) = questions.pop() {
        let MessageResponse::FileDescriptorResponse(answer) = send_reflection_request(channel.clone(), question).await
        else {
            panic!("reflection does not describe {symbol} or one of its imports")
        };
        for file in answer.file_descriptor_proto {
            let file = FileDescriptorProto::decode(&file[..]).expect("valid file descriptor");
            questions.extend(file.dependency.iter().cloned().map(MessageRequest::FileByFilename));
            files.push(file);
        }
    }
    let mut pool = DescriptorPool::new();
    // Imported files were requested later, so they come last.
    for file in files.into_iter().rev() {
        if pool.get_file_by_name(file.name()).is_none() {
            pool.add_file_descriptor_proto(file).expect("imports are in the pool");
        }
    }
    let (service, name) = symbol.rsplit_once('.').expect("a dot in the symbol");
    let service = pool.get_service_by_name(service).expect("a service");
    service.methods().find(|method| method.name() == name).expect("a method")
}

fn describe_method(method: &MethodDescriptor) -> String {
    let service = method.parent_service();
    let path = [6, service.index() as i32, 2, method.index() as i32];
    let file = service.parent_file();
    let locations = file.file_descriptor_proto().source_code_info.iter().flat_map(|info| &info.location);
    let comments: String =
        locations.filter(|location| location.path == path).map(|location| location.leading_comments()).collect();
    let comments: String = comments.lines().map(|line| format!("//{line}\n")).collect();
    let (input, output) = (method.input(), method.output());
    let signature = format!("( .{} ) returns ( .{} );", input.full_name(), output.full_name());
    format!("{} is a method:\n{comments}rpc {} {signature}\n", method.full_name(), method.name())
}

async fn call_method(channel: Channel, method: &MethodDescriptor, headers: &[(&str, &str)], body: &str) -> String {
    let mut json = serde_json::Deserializer::from_str(body);
    let message = DynamicMessage::deserialize(method.input(), &mut json).expect("valid request JSON");
    let mut request = tonic::Request::new(message);
    for (name, value) in headers {
        request.metadata_mut().insert(name.parse::<AsciiMetadataKey>().unwrap(), value.parse().unwrap());
    }
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("ready");
    let response = grpc.unary(request, path.parse().unwrap(), DynamicCodec(method.output())).await;
    let response = response.unwrap_or_else(|status| panic!("{path}: {status:?}")).into_inner();
    let printed = serde_json::to_string_pretty(&response).expect("response as JSON");
    // grpcurl prints whole numbers without a decimal point.
    printed.lines().map(|line| line.replace(".0,", ",") + "\n").collect()
}

/// Codec for message types that are known only at run time.
struct DynamicCodec(MessageDescriptor);

impl Codec for DynamicCodec {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = DynamicCodec;
    type Decoder = DynamicCodec;

    fn encoder(&mut self) -> DynamicCodec {
        DynamicCodec(self.0.clone())
    }

    fn decoder(&mut self) -> DynamicCodec {
        DynamicCodec(self.0.clone())
    }
}

impl Encoder for DynamicCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(into).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for DynamicCodec {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        DynamicMessage::decode(self.0.clone(), from).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
