//! `[telemetry]`: logs and the task record.

use super::findings::Findings;
use super::section::{Section, size, span, text, words};
use super::{LogFormat, Policy, upstream};
use std::path::PathBuf;
use std::time::Duration;

/// The task record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where its lines go.
    pub to: RecordTo,
    /// Size from which on its file is rotated.
    pub max_bytes: usize,
    /// Age from which on its file is rotated.
    pub max_age: Duration,
    /// How long rotated files are kept.
    pub retention: Duration,
}

/// Where the lines of the task record go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordTo {
    /// Nowhere.
    #[default]
    Nothing,
    /// Standard output.
    Stdout,
    /// This file, pipe or device.
    File(PathBuf),
}

impl Default for Record {
    fn default() -> Self {
        Record {
            to: RecordTo::Nothing,
            max_bytes: 128 << 20,
            max_age: Duration::from_secs(24 * 3600),
            retention: Duration::from_secs(30 * 24 * 3600),
        }
    }
}

impl Record {
    /// What `record_file` says, if anything is recorded.
    #[must_use]
    pub fn file(&self) -> Option<String> {
        match &self.to {
            RecordTo::Nothing => None,
            RecordTo::Stdout => Some("-".to_owned()),
            RecordTo::File(path) => Some(path.display().to_string()),
        }
    }
}

pub(super) fn resolve(mut section: Section<'_>, policy: &mut Policy, findings: &Findings) {
    let formats = [("json", LogFormat::Json), ("pretty", LogFormat::Pretty)];
    policy.log_format = section.choice("log_format", &formats).unwrap_or(policy.log_format);
    let record = &mut policy.record;
    if let Some(file) = section.found("record_file", words) {
        record.to = match file.value.as_str() {
            "-" => RecordTo::Stdout,
            path => {
                let path = PathBuf::from(path);
                if path.is_dir() {
                    findings.tell(&file.origin, &file.key, "is a directory; name a file in it");
                }
                RecordTo::File(path)
            }
        };
    }
    section.set("record_max_bytes", &mut record.max_bytes, size);
    section.set("record_max_age", &mut record.max_age, span);
    section.set("record_retention", &mut record.retention, span);
    if let Some(url) = section.found("otlp_endpoint", text) {
        match upstream::collector_url(&url.value) {
            Ok(endpoint) => policy.otlp_endpoint = Some(endpoint),
            // The value is not repeated: it may hold a password.
            Err(message) => findings.tell(&url.origin, &url.key, message),
        }
    }
    section.finish();
}
