//! From what the ledger committed to numbers. The task record will be made of the same facts, so the two
//! cannot disagree.

use super::labels::CallVerdict;
use super::metrics::Metrics;
use crate::ledger::event::{Effects, Fact, Millis, TaskOutcome};
use std::time::Duration;

impl Metrics {
    /// Effects were committed: counts each fact once. Whoever applies an event calls this, so the store's
    /// listener is the one place for it.
    pub fn committed(&self, effects: &Effects) {
        self.open_calls(effects.open_calls);
        effects.facts.iter().for_each(|fact| self.fact(fact));
    }

    fn fact(&self, fact: &Fact) {
        match fact {
            Fact::CallRegistered { tool, forced: false } => self.call(tool, CallVerdict::Pass),
            Fact::CallRegistered { tool, forced: true } => self.call(tool, CallVerdict::Forced),
            Fact::ResultForced => self.result_forced(),
            Fact::ResultClosed => self.result_closed(),
            Fact::WriteBecame(outcome) => self.write(*outcome),
            Fact::ResultDecided { tool, code, waited } => {
                self.result(*code);
                // A refused result may be offered again and again: only the accepted one was waited for.
                if let (None, Some(waited)) = (code, waited) {
                    self.tool_waited(tool, duration(*waited));
                }
            }
            // For traces: counted with the decision on its result.
            Fact::CallAnswered { .. } => {}
            Fact::CallTimedOut { tool } => self.call(tool, CallVerdict::TimedOut),
            Fact::TaskEnded { outcome, took, limit, .. } => {
                self.task(*outcome, duration(*took));
                if let Some(limit) = limit.filter(|_| *outcome == TaskOutcome::Incomplete) {
                    self.budget_end(limit);
                }
            }
        }
    }
}

fn duration(millis: Millis) -> Duration {
    Duration::from_millis(millis.0)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::super::labels::{
        AbortOutcome, ExchangeOutcome, FaultVerdict, Label, ModelCall, Route, StoreOp,
    };
    use super::*;
    use crate::guard::fault::Code;
    use crate::ledger::event::WriteOutcome;
    use crate::ledger::lanes::Limit;
    use crate::policy::{Tool, Tools};

    fn metrics() -> Metrics {
        let each = [("refund_order".to_owned(), Tool::default())].into();
        let allow = Some(vec!["get_order_status".to_owned()]);
        Metrics::new(&Tools { allow, each, ..Tools::default() }).unwrap()
    }

    /// The value of a series, without `tigertally_`.
    fn value(metrics: &Metrics, series: &str) -> Option<f64> {
        let text = metrics.encode();
        let line = text.lines().find_map(|line| {
            line.strip_prefix("tigertally_")?.strip_prefix(series)?.strip_prefix(' ')
        });
        line.map(|value| value.parse().unwrap())
    }

    #[test]
    fn facts_become_numbers() {
        let metrics = metrics();
        metrics.committed(&Effects {
            cancel: Vec::new(),
            facts: vec![
                Fact::CallRegistered { tool: "get_order_status".into(), forced: false },
                Fact::CallRegistered { tool: "made_up_by_a_model".into(), forced: false },
                Fact::CallRegistered { tool: "made_up_by_a_model".into(), forced: true },
                Fact::ResultForced,
                Fact::CallTimedOut { tool: "refund_order".into() },
                Fact::ResultDecided {
                    tool: "get_order_status".into(),
                    code: None,
                    waited: Some(Millis(1_500)),
                },
                Fact::ResultDecided {
                    tool: "refund_order".into(),
                    code: Some(Code::Late),
                    waited: Some(Millis(90_000)),
                },
                Fact::TaskEnded {
                    generation: 3,
                    outcome: TaskOutcome::Completed,
                    limit: None,
                    took: Millis(2_000),
                },
                Fact::TaskEnded {
                    generation: 4,
                    outcome: TaskOutcome::Incomplete,
                    limit: Some(Limit::ToolCalls),
                    took: Millis(3_000),
                },
                Fact::ResultClosed,
                Fact::WriteBecame(WriteOutcome::Unknown),
                Fact::WriteBecame(WriteOutcome::NotApplied),
            ],
            open_calls: 2,
            ..Effects::default()
        });
        for (series, expected) in [
            ("calls_total{tool=\"get_order_status\",verdict=\"pass\"}", Some(1.0)),
            ("calls_total{tool=\"other\",verdict=\"pass\"}", Some(1.0)),
            ("calls_total{tool=\"other\",verdict=\"forced\"}", Some(1.0)),
            ("results_total{verdict=\"forced\"}", Some(1.0)),
            ("calls_total{tool=\"made_up_by_a_model\",verdict=\"pass\"}", None),
            ("calls_total{tool=\"refund_order\",verdict=\"timed_out\"}", Some(1.0)),
            ("results_total{verdict=\"accepted\"}", Some(1.0)),
            ("results_total{verdict=\"late\"}", Some(1.0)),
            ("results_total{verdict=\"closed\"}", Some(1.0)),
            ("results_total{verdict=\"stale\"}", Some(0.0)),
            ("write_outcomes_total{outcome=\"unknown\"}", Some(1.0)),
            ("write_outcomes_total{outcome=\"not_applied\"}", Some(1.0)),
            ("write_outcomes_total{outcome=\"applied\"}", Some(0.0)),
            ("budget_ends_total{limit=\"tool_calls\"}", Some(1.0)),
            ("budget_ends_total{limit=\"model_calls\"}", Some(0.0)),
            ("tasks_total{outcome=\"incomplete\"}", Some(1.0)),
            ("tool_wait_seconds_count{tool=\"get_order_status\"}", Some(1.0)),
            ("tool_wait_seconds_sum{tool=\"get_order_status\"}", Some(1.5)),
            ("tool_wait_seconds_count{tool=\"refund_order\"}", Some(0.0)),
            ("tasks_total{outcome=\"completed\"}", Some(1.0)),
            ("tasks_total{outcome=\"superseded\"}", Some(0.0)),
            ("task_seconds_sum{outcome=\"completed\"}", Some(2.0)),
            ("open_calls", Some(2.0)),
        ] {
            assert_eq!(value(&metrics, series), expected, "{series}");
        }
    }

    #[test]
    fn a_gauge_falls_when_its_value_is_dropped() {
        let metrics = metrics();
        let one = metrics.in_flight();
        let two = metrics.in_flight();
        assert_eq!(metrics.in_flight_now(), 2);
        drop(one);
        assert_eq!(value(&metrics, "in_flight_exchanges"), Some(1.0));
        drop(two);
        assert_eq!(metrics.in_flight_now(), 0);

        let mut held = metrics.held();
        let mut other = metrics.held();
        held.add(100);
        held.add(20);
        other.add(3);
        assert_eq!(value(&metrics, "held_bytes"), Some(123.0));
        other.release();
        other.release();
        assert_eq!(value(&metrics, "held_bytes"), Some(120.0));
        drop((held, other));
        assert_eq!(value(&metrics, "held_bytes"), Some(0.0));
    }

    #[test]
    fn every_label_counts_into_its_own_series() {
        let metrics = metrics();
        for route in Route::ALL {
            for outcome in ExchangeOutcome::ALL {
                metrics.exchange(*route, *outcome);
            }
        }
        for code in Code::ALL {
            metrics.fault(code, FaultVerdict::Note);
            metrics.fault(code, FaultVerdict::Refuse);
            metrics.fault(code, FaultVerdict::WouldRefuse);
            metrics.result(Some(code));
        }
        StoreOp::ALL.iter().for_each(|op| metrics.store(*op, Duration::from_micros(20)));
        AbortOutcome::ALL.iter().for_each(|outcome| metrics.abort(*outcome));
        let text = metrics.encode();
        for (family, series) in [
            ("exchanges_total", 25),
            ("faults_total", 3 * Code::ALL.len()),
            // Not counted here: what was accepted, forced and closed.
            ("results_total", Code::ALL.len()),
            ("store_seconds_count", StoreOp::ALL.len()),
            ("aborts_total", AbortOutcome::ALL.len()),
        ] {
            let prefix = format!("tigertally_{family}{{");
            let values: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with(&prefix))
                .filter_map(|line| line.rsplit(' ').next())
                .filter(|value| *value != "0")
                .collect();
            assert_eq!(values, vec!["1"; series], "{family}");
        }
    }

    /// The contract with dashboards.
    #[test]
    fn every_promised_family_is_exported() {
        let metrics = metrics();
        metrics.fault(Code::Late, FaultVerdict::Refuse);
        metrics.result(None);
        metrics.model_call(ModelCall::First, Duration::from_secs(1));
        metrics.first_token(Duration::from_millis(200));
        metrics.overhead(Duration::from_micros(40));
        metrics.conversations(7);
        metrics.runtime_tasks(5);
        metrics.store_error();
        let text = metrics.encode();
        for family in [
            "exchanges_total",
            "faults_total",
            "results_total",
            "calls_total",
            "tasks_total",
            "model_call_seconds",
            "tool_wait_seconds",
            "task_seconds",
            "time_to_first_token_seconds",
            "overhead_seconds",
            "in_flight_exchanges",
            "open_calls",
            "conversations",
            "held_bytes",
            "runtime_tasks",
            "store_seconds",
            "store_errors_total",
            "aborts_total",
            "write_outcomes_total",
            "budget_ends_total",
            "spans_total",
            "build_info",
        ] {
            assert!(text.contains(&format!("# TYPE tigertally_{family} ")), "{family}");
        }
        assert_eq!(value(&metrics, "model_call_seconds_count{call=\"first\"}"), Some(1.0));
        assert_eq!(value(&metrics, "overhead_seconds_bucket{le=\"0.00005\"}"), Some(1.0));
        assert_eq!(value(&metrics, "conversations"), Some(7.0));
        assert_eq!(value(&metrics, "runtime_tasks"), Some(5.0));
        let version = format!("build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        assert_eq!(value(&metrics, &version), Some(1.0));
        #[cfg(target_os = "linux")]
        assert!(text.contains("\nprocess_resident_memory_bytes "));
    }

    #[test]
    fn a_changed_configuration_brings_series_for_its_tools() {
        let metrics = metrics();
        let clone = metrics.clone();
        metrics.call("cancel_order", CallVerdict::Refuse);
        let allow = Some(vec!["cancel_order".to_owned()]);
        metrics.set_tools(&Tools { allow, ..Tools::default() });
        clone.call("cancel_order", CallVerdict::Refuse);
        let series = "calls_total{tool=\"cancel_order\",verdict=\"refuse\"}";
        assert_eq!(value(&metrics, series), Some(1.0));
        assert_eq!(value(&metrics, "calls_total{tool=\"other\",verdict=\"refuse\"}"), Some(1.0));
    }
}
