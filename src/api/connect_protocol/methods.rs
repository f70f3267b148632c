//! Methods of a port with the descriptors of their messages, by path.

use std::collections::HashMap;

use prost_reflect::{DescriptorError, DescriptorPool, MethodDescriptor};

use crate::api::{CLIENT_PORT_REQUEST_BYTES_MAX, OPERATOR_REQUEST_MESSAGE_BYTES_MAX, pb};

/// Bytes of JSON text per byte of the protobuf message that it may become: names, quotes and base64 make it longer.
const JSON_BYTES_PER_MESSAGE_BYTE: usize = 2;

/// Methods of a port, and the messages of error details.
#[derive(Debug)]
pub struct ConnectMethods {
    by_path: HashMap<String, MethodDescriptor>,
    /// Messages of error details.
    pub(super) error_details: DescriptorPool,
    /// Size limit of a request body or of one message in it, bytes. The service limits the protobuf message itself.
    pub(super) request_bytes_max: usize,
}

impl ConnectMethods {
    /// Methods of the client port. Fails if the descriptors cannot be decoded.
    pub fn of_client_port() -> Result<Self, DescriptorError> {
        Self::new(pb::CLIENT_PORT_SERVICE_DESCRIPTORS, CLIENT_PORT_REQUEST_BYTES_MAX)
    }

    /// Methods of the operator port. Fails if the descriptors cannot be decoded.
    pub fn of_operator_port() -> Result<Self, DescriptorError> {
        Self::new(pb::OPERATOR_DESCRIPTORS, OPERATOR_REQUEST_MESSAGE_BYTES_MAX)
    }

    fn new(services: &[u8], message_bytes_max: usize) -> Result<Self, DescriptorError> {
        let mut pool = DescriptorPool::new();
        let of_every_port = [
            tonic_health::pb::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
            tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
        ];
        for descriptors in of_every_port.into_iter().chain([services]) {
            pool.decode_file_descriptor_set(descriptors)?;
        }
        let mut by_path = HashMap::new();
        for method in pool.services().flat_map(|service| service.methods().collect::<Vec<_>>()) {
            by_path.insert(format!("/{}/{}", method.parent_service().full_name(), method.name()), method);
        }
        Ok(Self {
            by_path,
            error_details: DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET)?,
            request_bytes_max: JSON_BYTES_PER_MESSAGE_BYTE * message_bytes_max,
        })
    }

    /// Method of a path; `None` for a path that names no method of the port.
    pub(super) fn of_path(&self, path: &str) -> Option<&MethodDescriptor> {
        self.by_path.get(path)
    }
}
