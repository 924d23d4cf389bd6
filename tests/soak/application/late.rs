//! What an application does with a call whose user has moved on, and what it tries with the result.

use super::known::{BROUGHT, CLOSED, SUPERSEDED};
use super::{Application, Retry};
use crate::world::Call;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use rand::RngExt;
use serde_json::Value;
use std::sync::atomic::Ordering::Relaxed;

/// The text that stands in place of a superseded call's result.
const NOTICE: &str = r#"{"ok":false,"error":{"code":"superseded"}}"#;

/// A call of the turn before that its application never brought a result of in time.
pub(super) struct Late {
    order: String,
    list: Vec<Value>,
    call: Call,
    generation: Option<u64>,
    /// Its application's generation header.
    header: u64,
}

impl Application {
    /// The user asks something else while the tool runs. What the application makes of the call then: it
    /// drops the turn, closes it, or puts the result in all the same.
    pub(super) fn leave_the_tool(
        &mut self,
        order: &str,
        call: Call,
        generation: Option<u64>,
        list: Vec<Value>,
        mut taken: Vec<Value>,
        result: &dyn Fn(&str) -> Value,
    ) {
        self.world.counts.switches.fetch_add(1, Relaxed);
        // Without the header and an advance by the control API, a result that comes with the next
        // question belongs to the order that asked for it, and counts.
        let counts = !self.by_header && !self.by_control;
        let mut late_list = list;
        late_list.push(taken[1].clone());
        late_list.push(result(&format!("LATE-{order}")));
        let becomes = match self.dice.random_range(0..4) {
            0 => {
                taken.truncate(1);
                SUPERSEDED
            }
            1 => {
                taken.push(result(NOTICE));
                CLOSED
            }
            _ if counts => {
                taken.push(result(&format!("GOOD-{order}")));
                BROUGHT
            }
            _ => {
                taken.push(result(&format!("LATE-{order}")));
                SUPERSEDED
            }
        };
        self.known.is(generation, &call, becomes);
        // What the next question closes or brings has its result then; anything else comes late.
        if !counts || taken.len() == 1 {
            let (order, header) = (order.to_owned(), self.generation);
            self.late = Some(Late { order, list: late_list, call, generation, header });
        }
        self.remember(taken);
    }

    /// Brings what is too late, in one of three ways, and must be refused.
    pub(super) async fn bring_late(&mut self) {
        let Some(late) = self.late.take() else { return };
        match self.dice.random_range(0..3) {
            0 => {
                let content = format!("LATE-{}", late.order);
                self.decide(&late.call, late.generation, &content, 422).await;
                self.world.counts.late_refused.fetch_add(1, Relaxed);
            }
            1 => {
                let request = self.request(&late.list, Retry::First, late.header, true);
                self.refused(&late.order, request).await;
            }
            _ => {
                let opening = &late.list[..late.list.len() - 2];
                let request = self.request(opening, Retry::Declared, late.header, true);
                self.refused(&late.order, request).await;
            }
        }
    }

    async fn refused(&self, order: &str, request: Request<Full<Bytes>>) {
        let Ok(response) = self.client.request(request).await else {
            self.world.violation(format!("{order}: no answer to what is late"));
            return;
        };
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map(|body| body.to_bytes());
        let body: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
        let code = body["error"]["code"].as_str().unwrap_or_default();
        let repeats = self.number % 4 == 3;
        let fine = match code {
            "stale_generation" => self.by_header,
            "stale" => !self.by_header,
            // An id that came again since is the newer call's, which this result does not fit.
            "mismatch" | "conflict" => !self.by_header && repeats,
            _ => false,
        };
        self.world.holds(status == 422 && fine, || {
            format!(
                "{order}: what is late was answered with {status} {code} {:.300}",
                body.to_string()
            )
        });
        self.world.counts.late_refused.fetch_add(1, Relaxed);
    }
}
