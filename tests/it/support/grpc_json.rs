//! A small grpcurl: reads service descriptions by reflection, converts JSON to a request and the response to JSON.

use std::path::Path;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use prost_types::FileDescriptorProto;
use tokio_stream::StreamExt;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::AsciiMetadataKey;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_types::StatusExt;

/// Runs `grpcurl ARGUMENTS <STDIN` in `folder` and returns its output.
pub(crate) async fn grpcurl(folder: &Path, arguments: &[String], stdin: &str) -> String {
    let mut rest = arguments.iter().map(String::as_str);
    let (mut headers, mut words, mut body) = (Vec::new(), Vec::new(), "{}");
    let mut authority = None;
    while let Some(word) = rest.next() {
        match word {
            "-plaintext" => {}
            "-cacert" => authority = Some(std::fs::read(folder.join(rest.next().expect("a file"))).expect("a file")),
            "-H" => headers.push(rest.next().and_then(|header| header.split_once(": ")).expect("name: value")),
            "-d" => match rest.next().expect("request body") {
                "@" => body = stdin,
                json => body = json,
            },
            word => words.push(word),
        }
    }
    let scheme = if authority.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", words[0])).expect("valid address");
    if let Some(authority) = authority {
        let trust = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority));
        endpoint = endpoint.tls_config(trust).expect("valid certificate");
    }
    let caller = Caller { channel: endpoint.connect().await.expect("connect to the server"), headers: &headers };
    match words[1..] {
        ["list"] => caller.list_services().await.unwrap_or_else(|status| {
            let code = format!("{:?}", status.code());
            format!("Failed to list services: rpc error: code = {code} desc = {}\n", status.message())
        }),
        ["describe", symbol] => describe_method(&caller.resolve_method(symbol).await),
        [path] => {
            let method = caller.resolve_method(&path.replace('/', ".")).await;
            caller.call_method(&method, body).await.unwrap_or_else(|status| print_error(&status))
        }
        _ => panic!("unsupported grpcurl arguments {words:?}"),
    }
}

/// A connection, and the headers of each call.
struct Caller<'a> {
    channel: Channel,
    headers: &'a [(&'a str, &'a str)],
}

impl Caller<'_> {
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        for (name, value) in self.headers {
            request.metadata_mut().insert(name.parse::<AsciiMetadataKey>().unwrap(), value.parse().unwrap());
        }
        request
    }

    async fn send_reflection_request(&self, question: MessageRequest) -> Result<MessageResponse, Status> {
        let request = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let mut client = ServerReflectionClient::new(self.channel.clone());
        let answers = client.server_reflection_info(self.request(tokio_stream::once(request))).await?;
        let answer = answers.into_inner().next().await.expect("a response")?;
        Ok(answer.message_response.expect("a response"))
    }

    async fn list_services(&self) -> Result<String, Status> {
        let question = MessageRequest::ListServices(String::new());
        let MessageResponse::ListServicesResponse(listed) = self.send_reflection_request(question).await? else {
            panic!("expected a list of services")
        };
        let mut names: Vec<String> = listed.service.into_iter().map(|service| service.name + "\n").collect();
        names.sort();
        Ok(names.concat())
    }

    /// Descriptor of the method `package.Service.Method`, read from the server by reflection.
    async fn resolve_method(&self, symbol: &str) -> MethodDescriptor {
        let mut questions = vec![MessageRequest::FileContainingSymbol(symbol.to_owned())];
        let mut files: Vec<FileDescriptorProto> = Vec::new();
        while let Some(question) = questions.pop() {
            let answer = self.send_reflection_request(question).await.expect("reflection response");
            let MessageResponse::FileDescriptorResponse(answer) = answer else {
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

    async fn call_method(&self, method: &MethodDescriptor, body: &str) -> Result<String, Status> {
        let mut json = serde_json::Deserializer::from_str(body);
        let message = DynamicMessage::deserialize(method.input(), &mut json).expect("valid request JSON");
        let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.expect("ready");
        let codec = DynamicCodec(method.output());
        let response = grpc.unary(self.request(message), path.parse().unwrap(), codec).await?.into_inner();
        let printed = serde_json::to_string_pretty(&response).expect("response as JSON");
        // grpcurl prints whole numbers without a decimal point.
        let whole = |line: &str| {
            if line.ends_with(".0") { line.trim_end_matches(".0").to_owned() } else { line.replace(".0,", ",") }
        };
        Ok(printed.lines().map(|line| whole(line) + "\n").collect())
    }
}

/// A status as grpcurl prints it. Of its details, only `ErrorInfo` without metadata is supported in full.
fn print_error(status: &Status) -> String {
    let mut text = format!("ERROR:\n  Code: {:?}\n  Message: {}\n", status.code(), status.message());
    let details = status.get_error_details();
    if let Some(info) = details.error_info() {
        let (domain, reason) = (&info.domain, &info.reason);
        text += "  Details:\n  1)\t{\n    \t  \"@type\": \"type.googleapis.com/google.rpc.ErrorInfo\",\n";
        text += &format!("    \t  \"domain\": \"{domain}\",\n    \t  \"reason\": \"{reason}\"\n    \t}}\n");
    }
    text
}

fn describe_method(method: &MethodDescriptor) -> String {
    let service = method.parent_service();
    let file = service.parent_file();
    // Within its file: the index of a service counts those of imported files too.
    let service_index = file.services().position(|other| other == *service).expect("a service of its file");
    let path = [6, service_index as i32, 2, method.index() as i32];
    let locations = file.file_descriptor_proto().source_code_info.iter().flat_map(|info| &info.location);
    let comments: String =
        locations.filter(|location| location.path == path).map(|location| location.leading_comments()).collect();
    let comments: String = comments.lines().map(|line| format!("//{line}\n")).collect();
    let (input, output) = (method.input(), method.output());
    let signature = format!("( .{} ) returns ( .{} );", input.full_name(), output.full_name());
    format!("{} is a method:\n{comments}rpc {} {signature}\n", method.full_name(), method.name())
}

/// Codec for message types that are known only at run time.
pub(crate) struct DynamicCodec(pub(crate) MessageDescriptor);

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
