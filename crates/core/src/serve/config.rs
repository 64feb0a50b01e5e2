//! `tensorflow.ConfigProto` as text: what `--config FILE` holds and what the flags of `serve` become.
//!
//! ```text
//! intra_op_parallelism_threads: 4
//! device_filters: ["/job:ps", "/job:worker/task:0"]
//! gpu_options { allow_growth: true }
//! ```
//!
//! The text becomes the message's bytes straight away, by the table of fields below. Bytes of two messages one
//! behind the other are the two merged, so flags are written behind a file's settings and win.

use crate::hint;
use crate::hint::{Hint, Hinted, Setting};
use prost::bytes::BufMut;
use prost::encoding::{WireType, encode_key, encode_varint};
use thiserror::Error;

/// What a field may hold.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Int32,
    Int64,
    Bool,
    Double,
    Text,
    Message(&'static [Field]),
}

/// A field of a message, as `proto/server_def.proto` has it.
#[derive(Debug)]
struct Field {
    name: &'static str,
    number: u32,
    kind: Kind,
    repeated: bool,
}

const fn one(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, repeated: false }
}

const fn many(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind, repeated: true }
}

const CONFIG: &[Field] = &[
    many("device_count", 1, Kind::Message(DEVICE_COUNT)),
    one("intra_op_parallelism_threads", 2, Kind::Int32),
    one("placement_period", 3, Kind::Int32),
    many("device_filters", 4, Kind::Text),
    one("inter_op_parallelism_threads", 5, Kind::Int32),
    one("gpu_options", 6, Kind::Message(GPU_OPTIONS)),
    one("allow_soft_placement", 7, Kind::Bool),
    one("log_device_placement", 8, Kind::Bool),
    one("use_per_session_threads", 9, Kind::Bool),
    one("operation_timeout_in_ms", 11, Kind::Int64),
    many("session_inter_op_thread_pool", 12, Kind::Message(THREAD_POOL)),
    one("rpc_options", 13, Kind::Message(RPC_OPTIONS)),
    one("isolate_session_state", 15, Kind::Bool),
    one("share_cluster_devices_in_session", 17, Kind::Bool),
];
/// A map is a list of entries.
const DEVICE_COUNT: &[Field] = &[one("key", 1, Kind::Text), one("value", 2, Kind::Int32)];
const GPU_OPTIONS: &[Field] = &[
    one("per_process_gpu_memory_fraction", 1, Kind::Double),
    one("allocator_type", 2, Kind::Text),
    one("deferred_deletion_bytes", 3, Kind::Int64),
    one("allow_growth", 4, Kind::Bool),
    one("visible_device_list", 5, Kind::Text),
    one("polling_active_delay_usecs", 6, Kind::Int32),
    one("polling_inactive_delay_msecs", 7, Kind::Int32),
    one("force_gpu_compatible", 8, Kind::Bool),
];
const THREAD_POOL: &[Field] = &[one("num_threads", 1, Kind::Int32), one("global_name", 2, Kind::Text)];
const RPC_OPTIONS: &[Field] = &[
    one("use_rpc_for_inprocess_master", 1, Kind::Bool),
    one("compression_algorithm", 2, Kind::Text),
    one("compression_level", 3, Kind::Int32),
    one("cache_rpc_response", 4, Kind::Bool),
    one("disable_session_connection_sharing", 5, Kind::Bool),
    one("num_channels_per_target", 6, Kind::Int32),
];

/// A text that is no ConfigProto.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ConfigTextError {
    /// Something else than the grammar allows here.
    #[error("line {line}: expected {expected}, found {found}")]
    Syntax {
        /// Where in the text, from 1.
        line: usize,
        /// What may stand here: `a colon`.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// A field is not one that is known in this message.
    #[error("line {line}: unknown field {field:?}")]
    UnknownField {
        /// Where in the text, from 1.
        line: usize,
        /// Its name.
        field: String,
        /// The fields that may stand here, with commas between.
        known: String,
        /// True in the ConfigProto itself, false in a message inside it.
        top: bool,
    },
    /// A field that holds one value has two.
    #[error("line {line}: {field} is given twice")]
    Twice {
        /// Where the second one is, from 1.
        line: usize,
        /// Its name.
        field: &'static str,
    },
    /// A value is not of its field's type.
    #[error("line {line}: {field} is {found}, expected {expected}")]
    Value {
        /// Where in the text, from 1.
        line: usize,
        /// The field's name.
        field: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
}

impl Hinted for ConfigTextError {
    fn hint(&self) -> Option<Hint> {
        match self {
            ConfigTextError::UnknownField { known, top: true, .. } => Some(hint!(
                format!("the fields here are {known}; for any other, give "),
                Setting::Config,
                " a serialized tensorflow.ConfigProto"
            )),
            ConfigTextError::UnknownField { known, top: false, .. } => {
                Some(hint!(format!("the fields here are {known}")))
            }
            ConfigTextError::Twice { .. } => Some(hint!("give it once")),
            ConfigTextError::Syntax { .. } | ConfigTextError::Value { .. } => None,
        }
    }
}

/// The serialized message that `text` describes.
pub(super) fn encode(text: &str) -> Result<Vec<u8>, ConfigTextError> {
    let mut parser = Parser { rest: text, line: 1, peeked: None };
    parser.message(CONFIG, None)
}

/// `"` and `\` and what has no sign of its own are escaped.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => quoted.push_str(&format!("\\{byte:03o}")),
        }
    }
    quoted.push('"');
    quoted
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    /// A name, a number or a word such as `true`.
    Word(String),
    Quoted(Vec<u8>),
    Sign(char),
    End,
}

impl Token {
    fn show(&self) -> String {
        match self {
            Token::Word(word) => format!("{:?}", word.chars().take(60).collect::<String>()),
            Token::Quoted(bytes) => {
                format!("the text {:?}", String::from_utf8_lossy(bytes).chars().take(60).collect::<String>())
            }
            Token::Sign(sign) => format!("{sign:?}"),
            Token::End => "the end".to_owned(),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    line: usize,
    peeked: Option<Token>,
}

impl Parser<'_> {
    /// Fields up to `end`. Messages nest no deeper than the table does.
    fn message(&mut self, fields: &'static [Field], end: Option<char>) -> Result<Vec<u8>, ConfigTextError> {
        let mut bytes = Vec::new();
        let mut seen: Vec<u32> = Vec::new();
        loop {
            let name = match (self.next()?, end) {
                (Token::End, None) => return Ok(bytes),
                (Token::Sign(sign), Some(end)) if sign == end => return Ok(bytes),
                (Token::Sign(',' | ';'), _) if !seen.is_empty() => continue,
                (Token::Word(name), _) => name,
                (token, _) => return Err(self.unexpected("a field's name", &token)),
            };
            let field = fields.iter().find(|field| field.name == name).ok_or_else(|| {
                let known = fields.iter().map(|field| field.name).collect::<Vec<_>>().join(", ");
                ConfigTextError::UnknownField { line: self.line, field: name, known, top: end.is_none() }
            })?;
            if seen.contains(&field.number) && !field.repeated {
                return Err(ConfigTextError::Twice { line: self.line, field: field.name });
            }
            seen.push(field.number);
            self.values(field, &mut bytes)?;
        }
    }

    /// `: 4`, `{ ... }`, `: [4, 5]`
    fn values(&mut self, field: &'static Field, bytes: &mut Vec<u8>) -> Result<(), ConfigTextError> {
        let colon = self.peek()? == Token::Sign(':');
        if colon {
            self.next()?;
        } else if !matches!(field.kind, Kind::Message(_)) {
            let token = self.next()?;
            return Err(self.unexpected("a colon", &token));
        }
        if !(field.repeated && self.peek()? == Token::Sign('[')) {
            return self.value(field, bytes);
        }
        self.next()?;
        if self.peek()? == Token::Sign(']') {
            self.next()?;
            return Ok(());
        }
        loop {
            self.value(field, bytes)?;
            match self.next()? {
                Token::Sign(',') => {}
                Token::Sign(']') => return Ok(()),
                token => return Err(self.unexpected("a comma or ]", &token)),
            }
        }
    }

    fn value(&mut self, field: &'static Field, bytes: &mut Vec<u8>) -> Result<(), ConfigTextError> {
        let token = self.next()?;
        if let Kind::Message(fields) = field.kind {
            let end = match token {
                Token::Sign('{') => '}',
                Token::Sign('<') => '>',
                token => return Err(self.unexpected("{", &token)),
            };
            let inner = self.message(fields, Some(end))?;
            put_bytes(bytes, field.number, &inner);
            return Ok(());
        }
        let bad = |expected, token: &Token| ConfigTextError::Value {
            line: self.line,
            field: field.name,
            expected,
            found: token.show(),
        };
        match (field.kind, &token) {
            (Kind::Text, Token::Quoted(text)) => {
                let mut text = text.clone();
                // Neighbours are one text, as in C.
                while let Token::Quoted(more) = self.peek()? {
                    self.next()?;
                    text.extend(more);
                }
                put_bytes(bytes, field.number, &text);
            }
            (Kind::Text, _) => return Err(bad("a text in quotes", &token)),
            (Kind::Bool, Token::Word(word)) => {
                let value = match word.as_str() {
                    "true" | "True" | "t" | "1" => 1,
                    "false" | "False" | "f" | "0" => 0,
                    _ => return Err(bad("true or false", &token)),
                };
                put_varint(bytes, field.number, value);
            }
            (Kind::Bool, _) => return Err(bad("true or false", &token)),
            (Kind::Int32, Token::Word(word)) => {
                let value = integer(word).and_then(|value| i32::try_from(value).ok());
                let value = value.ok_or_else(|| bad("a whole number of 32 bits", &token))?;
                put_varint(bytes, field.number, i64::from(value) as u64);
            }
            (Kind::Int64, Token::Word(word)) => {
                let value = integer(word).ok_or_else(|| bad("a whole number of 64 bits", &token))?;
                put_varint(bytes, field.number, value as u64);
            }
            (Kind::Double, Token::Word(word)) => {
                let value: f64 = word.parse().map_err(|_| bad("a number", &token))?;
                encode_key(field.number, WireType::SixtyFourBit, bytes);
                bytes.put_f64_le(value);
            }
            (_, token) => return Err(bad("a number", token)),
        }
        Ok(())
    }

    fn unexpected(&self, expected: &'static str, token: &Token) -> ConfigTextError {
        ConfigTextError::Syntax { line: self.line, expected, found: token.show() }
    }

    fn peek(&mut self) -> Result<Token, ConfigTextError> {
        let token = self.next()?;
        self.peeked = Some(token.clone());
        Ok(token)
    }

    fn next(&mut self) -> Result<Token, ConfigTextError> {
        if let Some(token) = self.peeked.take() {
            return Ok(token);
        }
        loop {
            let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
            match first {
                '#' => self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]),
                '\n' => {
                    self.line += 1;
                    self.rest = &self.rest[1..];
                }
                _ if first.is_whitespace() => self.rest = &self.rest[first.len_utf8()..],
                '"' | '\'' => return self.quoted(first),
                _ if is_word(first) => {
                    let end = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                    let (word, rest) = self.rest.split_at(end);
                    self.rest = rest;
                    return Ok(Token::Word(word.to_owned()));
                }
                _ => {
                    self.rest = &self.rest[first.len_utf8()..];
                    return Ok(Token::Sign(first));
                }
            }
        }
    }

    fn quoted(&mut self, mark: char) -> Result<Token, ConfigTextError> {
        let mut bytes = Vec::new();
        let text = &self.rest[1..];
        let mut chars = text.char_indices();
        let open = |line| ConfigTextError::Syntax {
            line,
            expected: "a closing quote",
            found: "the end of the line".to_owned(),
        };
        while let Some((at, c)) = chars.next() {
            match c {
                _ if c == mark => {
                    self.rest = &text[at + 1..];
                    return Ok(Token::Quoted(bytes));
                }
                '\n' => return Err(open(self.line)),
                '\\' => {
                    let (length, byte) = escape(&text[at + 1..]).ok_or_else(|| ConfigTextError::Syntax {
                        line: self.line,
                        expected: r#"\n, \t, \", \\, \x41 or \101"#,
                        found: format!("{:?}", text[at..].chars().take(2).collect::<String>()),
                    })?;
                    bytes.push(byte);
                    for _ in 0..length {
                        chars.next();
                    }
                }
                _ => bytes.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        Err(open(self.line))
    }
}

/// How many signs behind the backslash belong to the escape, and its byte.
fn escape(text: &str) -> Option<(usize, u8)> {
    let first = *text.as_bytes().first()?;
    let number = |digits: &str, radix, most: usize| {
        let length = digits.bytes().take(most).take_while(|byte| char::from(*byte).is_digit(radix)).count();
        Some((length, u8::from_str_radix(&digits[..length], radix).ok()?))
    };
    match first {
        b'n' => Some((1, b'\n')),
        b't' => Some((1, b'\t')),
        b'r' => Some((1, b'\r')),
        b'"' | b'\'' | b'\\' | b'?' => Some((1, first)),
        b'x' => number(&text[1..], 16, 2).map(|(length, byte)| (length + 1, byte)),
        b'0'..=b'7' => number(text, 8, 3),
        _ => None,
    }
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.+-".contains(c)
}

/// `12`, `-3`, `0x1f`, `017`
fn integer(word: &str) -> Option<i64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, word),
    };
    let (digits, radix) = match (digits.strip_prefix("0x"), digits.strip_prefix('0')) {
        (Some(hex), _) => (hex, 16),
        (None, Some(octal)) if !octal.is_empty() => (octal, 8),
        _ => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    i128::from_str_radix(digits, radix).ok().and_then(|value| i64::try_from(sign * value).ok())
}

fn put_varint(bytes: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::Varint, bytes);
    encode_varint(value, bytes);
}

fn put_bytes(bytes: &mut Vec<u8>, number: u32, value: &[u8]) {
    encode_key(number, WireType::LengthDelimited, bytes);
    encode_varint(value.len() as u64, bytes);
    bytes.extend(value);
}

#[cfg(test)]
mod tests;
