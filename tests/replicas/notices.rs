//! What goes up in place of a result that came too late: every setting, every place in the list, both ways to be
//! too late, every shape of content. Outside the replaced content the upstream gets the client's bytes.

use super::TOOLS;
use super::model::{Model, assistant, call, proposes, request, user};
use super::process::Process;
use serde_json::json;

const TIMEOUT: &str = r#""too \"late\"""#;
const SUPERSEDED: &str = r#""moved on""#;

/// How a call came to be without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    TimedOut,
    Superseded,
    /// It was accepted: what is in history then is carried.
    Accepted,
}

/// Where its result stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    End,
    History,
    /// In one run with a call that waits for its result.
    MergedEnd,
    /// The same, followed by a user's message.
    MergedHistory,
}

const PLACES: [Place; 4] = [Place::End, Place::History, Place::MergedEnd, Place::MergedHistory];

const SHAPES: [&str; 7] = [
    r#"{"role":"tool","tool_call_id":"call_1","content":"SECRET"}"#,
    "{ \"content\" : \"a\\n\\\"SECRET\\\" \\u00e9\", \"role\":\"tool\",\t\"tool_call_id\":\"c\\u0061ll_1\" }",
    r#"{"role":"tool","tool_call_id":"call_1","content":[{"type":"text","text":"SECRET"}]}"#,
    r#"{"role":"tool","tool_call_id":"call_1","content":null}"#,
    r#"{"role":"tool","tool_call_id":"call_1"}"#,
    r#"{"role":"tool","tool_call_id":"call_1","content":""}"#,
    r#"{"artifact":"SECRET","role":"tool","name":"get_order","content":"SECRET","tool_call_id":"call_1"}"#,
];

/// Each shape with the notice in it.
fn with_notice(shape: usize, notice: &str) -> String {
    match shape {
        0 | 3 | 5 => format!(r#"{{"role":"tool","tool_call_id":"call_1","content":{notice}}}"#),
        1 => format!(
            "{{ \"content\" : {notice}, \"role\":\"tool\",\t\"tool_call_id\":\"c\\u0061ll_1\" }}"
        ),
        2 => format!(r#"{{"role":"tool","tool_call_id":"call_1","content":{notice}}}"#),
        4 => format!(r#"{{"content":{notice},"role":"tool","tool_call_id":"call_1"}}"#),
        _ => format!(
            r#"{{"role":"tool","name":"get_order","tool_call_id":"call_1","content":{notice}}}"#
        ),
    }
}

struct Case {
    name: String,
    ended: Ended,
    place: Place,
    shape: usize,
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for ended in [Ended::TimedOut, Ended::Superseded, Ended::Accepted] {
        for place in PLACES {
            for shape in 0..SHAPES.len() {
                let merged = matches!(place, Place::MergedEnd | Place::MergedHistory);
                // A result that was accepted is not fed again, and its shapes are all one.
                let carried = place == Place::History && shape == 0;
                if (ended == Ended::Accepted && !carried) || (merged && shape > 1) {
                    continue;
                }
                let name = format!("c{}", cases.len());
                cases.push(Case { name, ended, place, shape });
            }
        }
    }
    cases
}

impl Case {
    fn generation(&self) -> &'static str {
        if self.ended == Ended::Superseded { "2" } else { "1" }
    }

    async fn chat(
        &self,
        of: &Process,
        generation: &'static str,
        body: &str,
    ) -> super::process::Got {
        of.chat(&[("x-conversation-id", &self.name), ("x-generation", generation)], body).await
    }

    /// The call goes out.
    async fn open(&self, of: &Process, model: &Model) {
        model.will(proposes(&[call("call_1", "get_order", "A")]));
        let got = self.chat(of, "1", &request(&user("A?"), false)).await;
        assert_eq!(got.status, 200, "{got:?}");
        match self.ended {
            Ended::TimedOut => {}
            Ended::Superseded => {
                let moved = of.control(&format!("{}/generation", self.name), Some(json!({}))).await;
                assert_eq!(moved.0, 200);
            }
            Ended::Accepted => {
                let got = self.chat(of, "1", &self.list(SHAPES[0], Place::End)).await;
                assert_eq!(got.status, 200, "{got:?}");
            }
        }
    }

    /// A second call, whose result is awaited.
    async fn open_another(&self, of: &Process, model: &Model) {
        model.will(proposes(&[call("call_2", "refund_order", "B")]));
        let got = self.chat(of, self.generation(), &request(&user("B, too!"), false)).await;
        assert_eq!(got.status, 200, "{got:?}");
    }

    fn list(&self, result: &str, place: Place) -> String {
        let one = call("call_1", "get_order", "A");
        let two = call("call_2", "refund_order", "B");
        let other = r#"{"role":"tool","tool_call_id":"call_2","content":"refunded"}"#;
        let next = user("And?");
        let messages = match place {
            Place::End => vec![user("A?"), assistant(&[one]), result.to_owned()],
            Place::History => vec![user("A?"), assistant(&[one]), result.to_owned(), next],
            Place::MergedEnd => {
                vec![user("A?"), assistant(&[one, two]), result.to_owned(), other.to_owned()]
            }
            Place::MergedHistory => {
                vec![user("A?"), assistant(&[one, two]), other.to_owned(), result.to_owned(), next]
            }
        };
        request(&messages.join(" ,\n"), false)
    }

    /// What must come of it: the body that goes up, or the code.
    fn expected(&self, at_end: &str, history: &str) -> Result<String, &'static str> {
        let (notice, code) = match self.ended {
            Ended::Accepted => return Ok(self.list(SHAPES[self.shape], self.place)),
            Ended::TimedOut => (TIMEOUT, "late"),
            Ended::Superseded => (SUPERSEDED, "stale"),
        };
        let setting = match self.place {
            Place::End | Place::MergedEnd => at_end,
            Place::History | Place::MergedHistory => history,
        };
        if setting == "refuse" {
            return Err(code);
        }
        Ok(self.list(&with_notice(self.shape, notice), self.place))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_works_in_every_place() {
    let settings = [
        ("refuse", "substitute"),
        ("substitute", "refuse"),
        ("refuse", "refuse"),
        ("substitute", "substitute"),
    ];
    let mut all = tokio::task::JoinSet::new();
    for (at_end, history) in settings {
        all.spawn(one_setting(at_end, history));
    }
    all.join_all().await;
}

async fn one_setting(at_end: &str, history: &str) {
    let model = Model::start().await;
    let config = format!(
        "[upstream]\nrid = false\n[results]\nlate = \"{at_end}\"\nsuperseded = \"{at_end}\"\nhistory = \"{history}\"\n\
         [notices]\ntimeout = 'too \"late\"'\nsuperseded = \"moved on\"\n{TOOLS}deadline = \"4s\"\n"
    );
    let process = Process::start(&model.url, "memory:", &config).await;
    let cases = cases();
    for case in &cases {
        case.open(&process, &model).await;
    }
    let late = cases.iter().filter(|case| case.ended == Ended::TimedOut).count();
    let timed_out = r#"calls_total{tool="get_order",verdict="timed_out"}"#;
    super::process::until(&[&process], timed_out, late as f64).await;
    for case in &cases {
        if matches!(case.place, Place::MergedEnd | Place::MergedHistory) {
            case.open_another(&process, &model).await;
        }
        let (place, ended, shape) = (case.place, case.ended, SHAPES[case.shape]);
        let what =
            format!("{ended:?}, {place:?}, {at_end} at the end, {history} in history: {shape}");
        model.take();
        let got = case.chat(&process, case.generation(), &case.list(shape, place)).await;
        let asked = model.take();
        match case.expected(at_end, history) {
            Ok(wanted) => {
                assert_eq!(got.status, 200, "{what}: {got:?}");
                assert_eq!(asked.len(), 1, "{what}");
                assert_eq!(std::str::from_utf8(&asked[0]).unwrap(), wanted, "{what}");
                let secret = ended != Ended::Accepted && wanted.contains("SECRET");
                assert!(!secret, "{what}");
            }
            Err(code) => {
                assert_eq!((got.status, got.code().as_str()), (422, code), "{what}: {got:?}");
                assert_eq!(asked.len(), 0, "{what}");
            }
        }
    }
}
