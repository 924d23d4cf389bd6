//! Labels of metrics: closed sets, known before the first request.

use crate::ledger::event::{Event, TaskOutcome, WriteOutcome};
use crate::ledger::lanes::Limit;

/// A closed set of label values.
pub(super) trait Label: Copy + 'static {
    /// Every value, in the order of [`Label::index`].
    const ALL: &'static [Self];

    /// The value as it is exported.
    fn label(self) -> &'static str;

    /// Its place in [`Label::ALL`].
    fn index(self) -> usize;
}

/// Defines an enum whose variants are label values.
macro_rules! labels {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// The value as it is exported.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $($name::$variant => $text,)+
                }
            }
        }

        impl Label for $name {
            const ALL: &'static [Self] = &[$($name::$variant,)+];

            fn label(self) -> &'static str {
                self.as_str()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

labels! {
    /// Which way a request took.
    Route {
        /// `POST /v1/chat/completions`: guarded.
        Chat = "chat",
        /// `GET /v1/models` and below.
        Models = "models",
        /// The control API.
        Control = "control",
        /// A path opened with `routes.pass`: unguarded.
        Pass = "pass",
        /// Any other path.
        Closed = "closed",
    }
}

labels! {
    /// How an exchange ended.
    ExchangeOutcome {
        /// The last byte was handed to the client without an error.
        Delivered = "delivered",
        /// The request, or the model's output, was refused.
        Refused = "refused",
        /// The answer was no longer wanted.
        Withheld = "withheld",
        /// The upstream failed.
        UpstreamError = "upstream_error",
        /// The client went away.
        ClientGone = "client_gone",
    }
}

labels! {
    /// What was made of a fault.
    FaultVerdict {
        /// Let through and recorded.
        Note = "note",
        /// Refused.
        Refuse = "refuse",
        /// Let through because the operator only watches; enforcing would have refused the exchange for it.
        WouldRefuse = "would_refuse",
    }
}

labels! {
    /// What became of a proposed call.
    CallVerdict {
        /// It was registered and let out.
        Pass = "pass",
        /// Its message was refused, by the rules or by the ledger.
        Refuse = "refuse",
        /// It was let out although a rule would have refused it.
        Forced = "forced",
        /// It was let out and no result came in time.
        TimedOut = "timed_out",
    }
}

labels! {
    /// Which model call of a task.
    ModelCall {
        /// The one that opens it.
        First = "first",
        /// One that follows results.
        Later = "later",
    }
}

labels! {
    /// What came of asking the upstream to abort.
    AbortOutcome {
        /// It said yes.
        Accepted = "accepted",
        /// It could not be reached, or said no.
        Failed = "failed",
        /// Too many were under way; it was not asked.
        Dropped = "dropped",
    }
}

labels! {
    /// What became of a span for the collector.
    SpanOutcome {
        /// The collector took it.
        Exported = "exported",
        /// Too many waited to be sent.
        Full = "full",
        /// The collector did not take it.
        Failed = "failed",
    }
}

labels! {
    /// What a store was asked for.
    StoreOp {
        /// A request asks to go up.
        Admit = "admit",
        /// A response asks to go down.
        Settle = "settle",
        /// An exchange ended.
        Close = "close",
        /// Is it still wanted?
        Check = "check",
        /// The user moved on.
        Advance = "advance",
        /// Decide on one result.
        Decide = "decide",
        /// Ask before a tool runs.
        Start = "start",
        /// Settle a write's outcome.
        Resolve = "resolve",
        /// Time passes: all that fell due, in one sweep.
        Tick = "tick",
        /// Forget a conversation.
        Remove = "remove",
        /// Look at a conversation.
        Read = "read",
        /// Is it reachable?
        Ready = "ready",
    }
}

impl StoreOp {
    /// The operation that applies this event.
    #[must_use]
    pub fn of(event: &Event) -> Self {
        match event {
            Event::Admit(_) => StoreOp::Admit,
            Event::Settle(_) => StoreOp::Settle,
            Event::Close(_) => StoreOp::Close,
            Event::Check(_) => StoreOp::Check,
            Event::Advance(_) => StoreOp::Advance,
            Event::Decide(_) => StoreOp::Decide,
            Event::Start(_) => StoreOp::Start,
            Event::Resolve(_) => StoreOp::Resolve,
            Event::Tick => StoreOp::Tick,
        }
    }
}

impl Label for TaskOutcome {
    const ALL: &'static [Self] = &[
        TaskOutcome::Completed,
        TaskOutcome::Superseded,
        TaskOutcome::Incomplete,
        TaskOutcome::Failed,
        TaskOutcome::Expired,
    ];

    fn label(self) -> &'static str {
        self.as_str()
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl Label for WriteOutcome {
    const ALL: &'static [Self] = &[
        WriteOutcome::Unknown,
        WriteOutcome::Reported,
        WriteOutcome::Applied,
        WriteOutcome::NotApplied,
        WriteOutcome::Withdrawn,
        WriteOutcome::Forgotten,
    ];

    fn label(self) -> &'static str {
        self.as_str()
    }

    fn index(self) -> usize {
        self as usize
    }
}

impl Label for Limit {
    const ALL: &'static [Self] =
        &[Limit::ModelCalls, Limit::Attempts, Limit::Time, Limit::ToolCalls];

    fn label(self) -> &'static str {
        self.as_str()
    }

    fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_order<L: Label>() -> bool {
        L::ALL.iter().enumerate().all(|(index, label)| label.index() == index)
    }

    #[test]
    fn every_label_stands_at_its_index() {
        assert!(in_order::<TaskOutcome>());
        assert!(in_order::<WriteOutcome>());
        assert!(in_order::<Limit>());
        assert!(in_order::<Route>());
        assert!(in_order::<StoreOp>());
    }

    #[test]
    fn outcomes_have_the_names_that_dashboards_know() {
        let names: Vec<&str> = ExchangeOutcome::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names, ["delivered", "refused", "withheld", "upstream_error", "client_gone"]);
        let names: Vec<&str> = TaskOutcome::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names, ["completed", "superseded", "incomplete", "failed", "expired"]);
    }
}
