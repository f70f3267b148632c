//! What grpcurl does, without it: asks a server what it serves, turns JSON into a request, and the answer into JSON.

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

/// Does what `grpcurl ARGUMENTS <STDIN` would, and returns what it would print.
pub(crate) async fn grpcurl(arguments: &[String], stdin: &str) -> String {
    let mut rest = arguments.iter().map(String::as_str);
    let (mut headers, mut words, mut body) = (Vec::new(), Vec::new(), "{}");
    while let Some(word) = rest.next() {
        match word {
            "-plaintext" => {}
            "-H" => headers.push(rest.next().and_then(|it| it.split_once(": ")).expect("name: value")),
            "-d" => match rest.next().expect("what to send") {
                "@" => body = stdin,
                given => body = given,
            },
            word => words.push(word),
        }
    }
    let channel = |address: &str| Endpoint::from_shared(format!("http://{address}")).expect("an address");
    let channel = channel(words[0]).connect().await.expect("a server listens");
    match words[1..] {
        ["list"] => list(channel).await,
        ["describe", symbol] => describe(&method(channel, symbol).await),
        [path] => {
            let method = method(channel.clone(), &path.replace('/', ".")).await;
            call(channel, &method, &headers, body).await
        }
        _ => panic!("the tour's grpcurl does not know {words:?}"),
    }
}

async fn ask(channel: Channel, question: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
    let answers = ServerReflectionClient::new(channel).server_reflection_info(tokio_stream::once(request)).await;
    let answer = answers.expect("reflection").into_inner().next().await.expect("an answer").expect("no error");
    answer.message_response.expect("an answer")
}

async fn list(channel: Channel) -> String {
    let MessageResponse::ListServicesResponse(listed) = ask(channel, MessageRequest::ListServices(String::new())).await
    else {
        panic!("no list")
    };
    let mut names: Vec<String> = listed.service.into_iter().map(|it| it.name + "\n").collect();
    names.sort();
    names.concat()
}

/// The method called `package.Service.Method`, as the server describes it.
async fn method(channel: Channel, symbol: &str) -> MethodDescriptor {
    let mut questions = vec![MessageRequest::FileContainingSymbol(symbol.to_owned())];
    let mut files: Vec<FileDescriptorProto> = Vec::new();
    while let Some(question) = questions.pop() {
        let MessageResponse::FileDescriptorResponse(answer) = ask(channel.clone(), question).await else {
            panic!("the server does not know {symbol}, or what it imports")
        };
        for file in answer.file_descriptor_proto {
            let file = FileDescriptorProto::decode(&file[..]).expect("a file");
            questions.extend(file.dependency.iter().cloned().map(MessageRequest::FileByFilename));
            files.push(file);
        }
    }
    let mut pool = DescriptorPool::new();
    // What is imported was asked for later.
    for file in files.into_iter().rev() {
        if pool.get_file_by_name(file.name()).is_none() {
            pool.add_file_descriptor_proto(file).expect("a file that stands on what it imports");
        }
    }
    let (service, name) = symbol.rsplit_once('.').expect("a dot");
    let service = pool.get_service_by_name(service).expect("a service");
    service.methods().find(|it| it.name() == name).expect("a method")
}

fn describe(method: &MethodDescriptor) -> String {
    let service = method.parent_service();
    let path = [6, service.index() as i32, 2, method.index() as i32];
    let file = service.parent_file();
    let places = file.file_descriptor_proto().source_code_info.iter().flat_map(|it| &it.location);
    let comments: String = places.filter(|it| it.path == path).map(|it| it.leading_comments()).collect();
    let comments: String = comments.lines().map(|line| format!("//{line}\n")).collect();
    let (input, output) = (method.input(), method.output());
    let signature = format!("( .{} ) returns ( .{} );", input.full_name(), output.full_name());
    format!("{} is a method:\n{comments}rpc {} {signature}\n", method.full_name(), method.name())
}

async fn call(channel: Channel, method: &MethodDescriptor, headers: &[(&str, &str)], body: &str) -> String {
    let mut json = serde_json::Deserializer::from_str(body);
    let message = DynamicMessage::deserialize(method.input(), &mut json).expect("JSON of the request");
    let mut request = tonic::Request::new(message);
    for (name, value) in headers {
        request.metadata_mut().insert(name.parse::<AsciiMetadataKey>().unwrap(), value.parse().unwrap());
    }
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("ready");
    let answer = grpc.unary(request, path.parse().unwrap(), Dynamic(method.output())).await;
    let answer = answer.unwrap_or_else(|status| panic!("{path}: {status:?}")).into_inner();
    let printed = serde_json::to_string_pretty(&answer).expect("JSON of the answer");
    // Whole numbers are written without a point there.
    printed.lines().map(|line| line.replace(".0,", ",") + "\n").collect()
}

/// Messages of a kind that is known only now.
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Dynamic;
    type Decoder = Dynamic;

    fn encoder(&mut self) -> Dynamic {
        Dynamic(self.0.clone())
    }

    fn decoder(&mut self) -> Dynamic {
        Dynamic(self.0.clone())
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(into).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        DynamicMessage::decode(self.0.clone(), from).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
