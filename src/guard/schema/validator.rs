//! One compiled JSON Schema, and what it says of a call's arguments.
//!
//! The draft is the one that `$schema` names, if it is known, else 2020-12. Nothing is fetched,
//! patterns run in linear time, `format` is not asserted, and `120000.0` is an integer in every
//! draft. A problem is told as a path of property names that the schema declares and a keyword in
//! words: never a value, never a name that the model made up.

use super::bounds::{self, Measure};
use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{Draft, PatternOptions, ValidationError, Validator};
use serde_json::Value;
use std::fmt::Write as _;

/// Bound on one compiled pattern, in bytes.
pub const PATTERN_BYTES: usize = 256 << 10;
/// Most problems told of one call.
const MAX_PROBLEMS: usize = 5;
/// Subschemas times bytes of arguments: about a second of work at the very worst.
const MAX_WORK: u64 = 500_000_000;
/// Subschemas that may be open at once: about half a megabyte of stack.
const MAX_OPEN: usize = 512;
/// Up to this cost and length, problems are listed; the list is not cut short while it is made.
const EXPLAIN_COST: u64 = 4096;
const EXPLAIN_BYTES: usize = 64 << 10;

/// Why a schema cannot be used, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable(pub &'static str);

/// A compiled schema.
#[derive(Debug, Default)]
pub struct Schema {
    validator: Option<Validator>,
    measure: Measure,
    draft4: bool,
}

impl Schema {
    /// The schema that takes any object.
    #[must_use]
    pub fn any() -> Self {
        Schema::default()
    }

    /// Compiles a schema's text. A boolean or `{}` takes any object.
    ///
    /// # Errors
    /// When it is no schema, passes a bound, or refers to what is not in it.
    pub fn compile(text: &str) -> Result<Self, Unusable> {
        if text.len() > bounds::MAX_BYTES {
            return Err(Unusable("it is too long"));
        }
        let schema: Value =
            serde_json::from_str(text).map_err(|_| Unusable("it is not readable JSON"))?;
        match &schema {
            Value::Bool(_) => return Ok(Schema::any()),
            Value::Object(members) if members.is_empty() => return Ok(Schema::any()),
            Value::Object(_) => {}
            _ => return Err(Unusable("it is not an object")),
        }
        let measure = bounds::measure(&schema)?;
        let draft = match Draft::default().detect(&schema) {
            Draft::Unknown => Draft::default(),
            known => known,
        };
        let patterns =
            PatternOptions::regex().size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES);
        let validator = jsonschema::options()
            .offline()
            .with_draft(draft)
            .should_validate_formats(false)
            .with_pattern_options(patterns)
            .build(&schema)
            .map_err(|_| Unusable("it is not a valid JSON Schema"))?;
        Ok(Schema { validator: Some(validator), measure, draft4: draft == Draft::Draft4 })
    }

    /// Whether every object satisfies it, so that nothing needs to be read.
    #[must_use]
    pub fn takes_anything(&self) -> bool {
        self.validator.is_none()
    }

    /// Judges arguments; `bytes` is the length of their text. `Err` lists problems in words.
    ///
    /// # Errors
    /// When the arguments do not satisfy the schema, or would take too much work to check.
    pub fn check(&self, arguments: &Value, bytes: usize) -> Result<(), Vec<String>> {
        let Some(validator) = &self.validator else { return Ok(()) };
        let too_deep = self.measure.recursive
            && self.measure.chain.saturating_mul(depth(arguments)) > MAX_OPEN;
        if too_deep || self.measure.cost.saturating_mul(bytes as u64) > MAX_WORK {
            return Err(vec!["they are too large or too deep to be checked".to_owned()]);
        }
        let whole;
        let arguments = if self.draft4 {
            whole = with_whole_numbers(arguments);
            &whole
        } else {
            arguments
        };
        if validator.is_valid(arguments) {
            return Ok(());
        }
        let explain =
            !self.measure.recursive && self.measure.cost <= EXPLAIN_COST && bytes <= EXPLAIN_BYTES;
        if !explain {
            return Err(Vec::new());
        }
        let errors = validator.iter_errors(arguments).take(MAX_PROBLEMS);
        Err(errors.map(|error| self.in_words(&error, arguments)).collect())
    }

    fn in_words(&self, error: &ValidationError<'_>, arguments: &Value) -> String {
        let mut path = self.path(error, arguments);
        let words = match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or("*");
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                "is missing".to_owned()
            }
            kind => keyword(kind),
        };
        if path.is_empty() { format!("the object {words}") } else { format!("`{path}` {words}") }
    }

    /// The place, with every name that the schema does not declare as `*`.
    fn path(&self, error: &ValidationError<'_>, arguments: &Value) -> String {
        let mut path = String::new();
        let mut here = Some(arguments);
        // A pointer spells indices and names alike: only the value tells which it is.
        for step in error.instance_path().as_str().split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            if let Some(Value::Array(items)) = here {
                let _ = write!(path, "[{step}]");
                here = step.parse().ok().and_then(|index: usize| items.get(index));
                continue;
            }
            let name = if self.measure.declared.contains(step.as_str()) { &step } else { "*" };
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(name);
            here = here.and_then(|value| value.get(&step));
        }
        path
    }
}

/// A keyword in words: what was expected, not what was found.
fn keyword(kind: &ValidationErrorKind) -> String {
    use ValidationErrorKind as Kind;
    let words = match kind {
        Kind::Type { kind: TypeKind::Single(wanted) } => {
            return format!("must be of type {wanted}");
        }
        Kind::Type { .. } => "is of a type that is not allowed",
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "holds a property that the schema does not allow"
        }
        Kind::AdditionalItems { .. } | Kind::UnevaluatedItems { .. } => {
            "holds an item that the schema does not allow"
        }
        Kind::FalseSchema => "is not allowed",
        Kind::Enum { .. } => "is not one of the allowed values",
        Kind::Constant { .. } => "is not the one allowed value",
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => "fits none of the allowed forms",
        Kind::OneOfMultipleValid { .. } => "fits more than one of the allowed forms",
        Kind::Not { .. } => "has a form that is excluded",
        Kind::Pattern { .. } => "does not match the pattern",
        Kind::PropertyNames { .. } => "holds a property whose name is not allowed",
        Kind::Minimum { .. } | Kind::ExclusiveMinimum { .. } => "is too small",
        Kind::Maximum { .. } | Kind::ExclusiveMaximum { .. } => "is too large",
        Kind::MinLength { .. } => "is too short",
        Kind::MaxLength { .. } => "is too long",
        Kind::MinItems { .. } => "has too few items",
        Kind::MaxItems { .. } => "has too many items",
        Kind::MinProperties { .. } => "has too few properties",
        Kind::MaxProperties { .. } => "has too many properties",
        Kind::UniqueItems => "has equal items",
        Kind::Contains => "lacks a required kind of item",
        Kind::MultipleOf { .. } => "is not a multiple of the allowed step",
        other => return format!("breaks `{}`", other.keyword()),
    };
    words.to_owned()
}

/// How deep a value is nested. It was read by a parser that bounds this.
fn depth(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// Draft 4 alone says that `1.0` is no integer. Models write it, and later drafts take it.
fn with_whole_numbers(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(with_whole_numbers).collect(),
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), with_whole_numbers(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Number(number) => match number.as_f64() {
            // Whole and below 2⁵³: the conversion is exact.
            Some(float) if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 => {
                format!("{float:.0}").parse::<i64>().map_or_else(|_| value.clone(), Value::from)
            }
            _ => value.clone(),
        },
        _ => value.clone(),
    }
}
