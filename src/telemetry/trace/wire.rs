//! OTLP's messages, as far as a span needs them (opentelemetry-proto 1.x, `collector/trace/v1`, `trace/v1`,
//! `common/v1`, `resource/v1`), written field by field as facts are told. Nothing is put together first: at thousands of
//! spans a second that would cost more than the exchanges. The numbers are the protocol's; tests read them with
//! OpenTelemetry's own types.

use prost::encoding::{WireType, encode_varint, encoded_len_varint};

/// Fields of a message that has no others: a message is its fields, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Vec<u8>);

/// What an attribute says.
pub(super) enum Value<'a> {
    Text(&'a str),
    Bool(bool),
    Integer(u64),
    Double(f64),
    /// The elements of an `ArrayValue`.
    List(&'a Fields),
}

/// A span's fields.
pub(super) mod span {
    pub(in super::super) const TRACE_ID: u32 = 1;
    pub(in super::super) const SPAN_ID: u32 = 2;
    pub(in super::super) const PARENT_SPAN_ID: u32 = 4;
    pub(in super::super) const NAME: u32 = 5;
    pub(in super::super) const KIND: u32 = 6;
    pub(in super::super) const START: u32 = 7;
    pub(in super::super) const END: u32 = 8;
    pub(in super::super) const ATTRIBUTE: u32 = 9;
    pub(in super::super) const EVENT: u32 = 11;
    pub(in super::super) const DROPPED_EVENTS: u32 = 12;
    pub(in super::super) const LINK: u32 = 13;
    pub(in super::super) const STATUS: u32 = 15;
    pub(in super::super) const FLAGS: u32 = 16;
}

/// An event's fields.
pub(super) mod event {
    pub(in super::super) const TIME: u32 = 1;
    pub(in super::super) const NAME: u32 = 2;
    pub(in super::super) const ATTRIBUTE: u32 = 3;
}

/// A status's fields.
pub(super) mod status {
    pub(in super::super) const MESSAGE: u32 = 2;
    pub(in super::super) const CODE: u32 = 3;
}

/// Where a request's messages have those within them: `resource_spans`, then `resource` or `scope_spans`, then `scope`
/// or `spans`.
pub(super) mod request {
    pub(in super::super) const RESOURCE_SPANS: u32 = 1;
    pub(in super::super) const RESOURCE: u32 = 1;
    pub(in super::super) const RESOURCE_ATTRIBUTE: u32 = 1;
    pub(in super::super) const SCOPE_SPANS: u32 = 2;
    pub(in super::super) const SCOPE: u32 = 1;
    pub(in super::super) const SCOPE_NAME: u32 = 1;
    pub(in super::super) const SCOPE_VERSION: u32 = 2;
    pub(in super::super) const SPAN: u32 = 2;
}

/// An internal operation.
pub(super) const INTERNAL: u64 = 1;
/// A request to somebody else.
pub(super) const CLIENT: u64 = 3;
/// It failed.
pub(super) const ERROR: u64 = 2;

/// How long a field is whose value has so many bytes.
fn length(tag: u32, value: usize) -> usize {
    encoded_len_varint(u64::from(tag) << 3) + encoded_len_varint(value as u64) + value
}

impl Fields {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Fields(Vec::with_capacity(bytes))
    }

    #[cfg(test)]
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// More fields of the same message.
    pub(super) fn append(&mut self, fields: &Fields) {
        self.0.extend_from_slice(&fields.0);
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// A text or bytes.
    pub(super) fn bytes(&mut self, tag: u32, value: &[u8]) {
        self.begin(tag, value.len());
        self.0.extend_from_slice(value);
    }

    /// A message within this one.
    pub(super) fn message(&mut self, tag: u32, fields: &Fields) {
        self.bytes(tag, &fields.0);
    }

    /// Texts that make one.
    pub(super) fn texts(&mut self, tag: u32, texts: [&str; 2]) {
        self.begin(tag, texts.iter().map(|text| text.len()).sum());
        texts.iter().for_each(|text| self.0.extend_from_slice(text.as_bytes()));
    }

    /// The beginning of a field whose bytes follow: so many.
    pub(super) fn begin(&mut self, tag: u32, length: usize) {
        self.key(tag, WireType::LengthDelimited);
        self.varint(length as u64);
    }

    fn key(&mut self, tag: u32, kind: WireType) {
        self.varint(u64::from(tag << 3 | kind as u32));
    }

    fn varint(&mut self, value: u64) {
        match value {
            // Nearly all of them.
            0..0x80 => self.0.push(value.to_le_bytes()[0]),
            _ => encode_varint(value, &mut self.0),
        }
    }

    pub(super) fn number(&mut self, tag: u32, value: u64) {
        self.key(tag, WireType::Varint);
        self.varint(value);
    }

    pub(super) fn fixed64(&mut self, tag: u32, value: u64) {
        self.key(tag, WireType::SixtyFourBit);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, tag: u32, value: u32) {
        self.key(tag, WireType::ThirtyTwoBit);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// An attribute: a `KeyValue`.
    pub(super) fn attribute<'a>(&mut self, tag: u32, key: &str, value: impl Into<Value<'a>>) {
        const KEY: u32 = 1;
        const VALUE: u32 = 2;
        let value = value.into();
        self.begin(tag, length(KEY, key.len()) + length(VALUE, value.length()));
        self.bytes(KEY, key.as_bytes());
        self.begin(VALUE, value.length());
        value.put(self);
    }

    /// One more element of a list.
    pub(super) fn element(&mut self, text: &str) {
        const ELEMENT: u32 = 1;
        let value = Value::Text(text);
        self.begin(ELEMENT, value.length());
        value.put(self);
    }
}

impl Value<'_> {
    const TEXT: u32 = 1;
    const BOOL: u32 = 2;
    const INTEGER: u32 = 3;
    const DOUBLE: u32 = 4;
    const LIST: u32 = 5;

    /// How long its `AnyValue` is.
    fn length(&self) -> usize {
        match self {
            Value::Text(text) => length(Self::TEXT, text.len()),
            Value::Bool(_) => 2,
            Value::Integer(number) => 1 + encoded_len_varint(*number),
            Value::Double(_) => 9,
            Value::List(list) => length(Self::LIST, list.0.len()),
        }
    }

    fn put(&self, fields: &mut Fields) {
        match *self {
            Value::Text(text) => fields.bytes(Self::TEXT, text.as_bytes()),
            Value::Bool(flag) => fields.number(Self::BOOL, flag.into()),
            Value::Integer(number) => fields.number(Self::INTEGER, number),
            Value::Double(number) => fields.fixed64(Self::DOUBLE, number.to_bits()),
            Value::List(list) => fields.message(Self::LIST, list),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        // The protocol's are signed.
        Value::Integer(number.min(i64::MAX.unsigned_abs()))
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Value::Bool(flag)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Value::Double(number)
    }
}

impl<'a> From<&'a Fields> for Value<'a> {
    fn from(list: &'a Fields) -> Self {
        Value::List(list)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use opentelemetry_proto::tonic::common::v1::any_value::Value as Read;
    use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
    use prost::Message as _;

    fn read(value: Value<'_>) -> (String, Option<Read>) {
        let mut fields = Fields::default();
        // A scope has its attributes under 3.
        fields.attribute(3, "a.key", value);
        let scope = InstrumentationScope::decode(fields.as_bytes()).unwrap();
        let [KeyValue { key, value, .. }] = scope.attributes.as_slice() else { unreachable!() };
        (key.clone(), value.clone().unwrap().value)
    }

    #[test]
    fn attributes_are_read_as_they_were_told() {
        let long = "ä".repeat(100_000);
        for text in ["", "text", &long] {
            assert_eq!(read(text.into()).1, Some(Read::StringValue(text.to_owned())));
        }
        for number in [0, 1, 127, 128, u64::MAX] {
            let wanted = i64::try_from(number).unwrap_or(i64::MAX);
            assert_eq!(read(number.into()).1, Some(Read::IntValue(wanted)));
        }
        assert_eq!(read(true.into()).1, Some(Read::BoolValue(true)));
        assert_eq!(read(false.into()).1, Some(Read::BoolValue(false)));
        assert_eq!(read(0.25.into()).1, Some(Read::DoubleValue(0.25)));
        let mut list = Fields::default();
        ["stop", "", &long].iter().for_each(|text| list.element(text));
        let (key, Some(Read::ArrayValue(array))) = read((&list).into()) else { unreachable!() };
        let texts = array.values.into_iter().map(|value| value.value.unwrap());
        let wanted = ["stop", "", &long].map(|text| Read::StringValue(text.to_owned()));
        assert_eq!((key.as_str(), texts.collect::<Vec<_>>()), ("a.key", wanted.to_vec()));
    }
}
