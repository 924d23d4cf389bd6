//! What an application sends: model calls, and calls of the control API.

use super::{Application, Retry, name};
use crate::world::Call;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use rand::RngExt;
use serde_json::{Value, json};

impl Application {
    pub(super) fn request(
        &mut self,
        list: &[Value],
        retry: Retry,
        generation: u64,
        late: bool,
    ) -> Request<Full<Bytes>> {
        let parameters = json!({"type": "object", "required": ["order_id"], "properties": {
            "order_id": {"type": "string"}, "nonce": {"type": "integer"}, "note": {"type": "string"},
        }});
        let tool = json!({"type": "function",
            "function": {"name": "get_order", "parameters": parameters}});
        let stream = self.dice.random_bool(0.6);
        let mut body = json!({"model": "m", "messages": list, "tools": [tool], "stream": stream});
        if late {
            body["late"] = true.into();
        }
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}/v1/chat/completions", self.url))
            .header("content-type", "application/json")
            .header("x-conversation-id", name(self.number));
        if self.by_header {
            request = request.header("x-generation", generation.to_string());
        }
        if self.number % 4 == 2 && retry != Retry::Undeclared {
            // A repeated key declares a retry. Its own length tells nothing; that it is the same does.
            let text = serde_json::to_string(list.last().unwrap()).unwrap();
            let key: u64 = text.bytes().fold(7, |sum, byte| {
                sum.wrapping_mul(0x0100_0000_01b3).wrapping_add(u64::from(byte))
            });
            request = request.header("idempotency-key", key.to_string());
        } else if retry == Retry::Declared {
            request = request.header("x-stainless-retry-count", "1");
        }
        request.body(Full::new(Bytes::from(body.to_string()))).unwrap()
    }

    /// Brings a result to the control API, which must answer with this status.
    pub(super) async fn decide(
        &self,
        call: &Call,
        generation: Option<u64>,
        content: &str,
        status: u16,
    ) {
        let body = json!({"generation": generation, "tool_call_id": call.id, "name": "get_order",
            "content": content});
        self.control(Method::POST, "/results", body, status).await;
    }

    pub(super) async fn control(&self, method: Method, path: &str, body: Value, wanted: u16) {
        let url = format!("{}/guard/v1/conversations/{}{path}", self.url, name(self.number));
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
            .unwrap();
        let answer = self.client.request(request).await;
        let Ok(answer) = answer else {
            self.world.violation(format!("the control API does not answer: {answer:?}"));
            return;
        };
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.map(|body| body.to_bytes());
        self.world.holds(status == wanted, || {
            format!("{} {path} {body}: {status} instead of {wanted}: {text:?}", self.number)
        });
    }
}
