"""The control API does what its OpenAPI document says, for any input.

Two checks of schemathesis are left out, each against a rule of ours:
`unsupported_method` wants 405 where every closed route is 403 `route_closed`, and `allow_header_conformance`
goes with it.
"""

import os

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi import checks

from running.process import ROOT

load_all_checks()
EXAMPLES = int(os.environ.get("TIGERTALLY_API_EXAMPLES", "60"))
bounded = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


# What the document calls valid is decided by the ledger (200 or 422); what it does not, never gets there.
CONFIG = schemathesis.Config.from_dict({"checks": {
    "positive_data_acceptance": {"expected-statuses": [200, 422]},
    "negative_data_rejection": {"expected-statuses": [400, 403]},
}})
schema = schemathesis.openapi.from_path(ROOT / "src/control/openapi.json", config=CONFIG)
LEFT_OUT = [checks.unsupported_method, checks.allow_header_conformance]


@schema.parametrize()
@bounded
def test_any_call(rig, case):
    case.call_and_validate(base_url=rig.url, excluded_checks=LEFT_OUT)


@schema.parametrize()
@bounded
def test_any_call_about_a_conversation_that_is_known(rig, case):
    name, call, key = rig.conversation()
    known = {"id": name, "tool_call_id": call, "operation_key": key}
    for place in case.path_parameters:
        case.path_parameters[place] = known[place]
    if isinstance(case.body, dict) and "generation" in case.body and "tool_call_id" in case.body:
        case.body |= {"generation": 1, "tool_call_id": call}
    case.call_and_validate(base_url=rig.url, excluded_checks=LEFT_OUT)


def conform(rig, method, path, template, body, wanted):
    """One call with a known answer, held against the document."""
    operation = schema[template][method]
    case = operation.Case(path_parameters=path, body=body) if body is not None else \
        operation.Case(path_parameters=path)
    answer = case.call(base_url=rig.url)
    assert answer.status_code == wanted, answer.text
    case.validate_response(answer, excluded_checks=LEFT_OUT)
    return answer.json()


BASE = "/guard/v1/conversations/{id}"


def test_every_answer_of_a_tasks_whole_life_is_described(rig):
    name, call, key = rig.conversation()
    here = {"id": name}
    started = conform(rig, "POST", here | {"tool_call_id": call},
                      BASE + "/calls/{tool_call_id}/start", {"generation": 1}, 200)
    assert started["operation_key"] == key
    content = '{"ok":true,"order_id":"ORDER-A"}'
    result = {"generation": 1, "tool_call_id": call, "content": content}
    accepted = conform(rig, "POST", here, BASE + "/results", result, 200)
    assert accepted["message"]["content"] == content
    again = conform(rig, "POST", here, BASE + "/results", result, 422)
    assert again["error"]["code"] == "duplicate"
    moved = conform(rig, "POST", here, BASE + "/generation", {"generation": 2}, 200)
    assert moved["generation"] == 2
    back = conform(rig, "POST", here, BASE + "/generation", {"generation": 1}, 422)
    assert back["error"]["code"] == "stale_generation"
    record = conform(rig, "GET", here, BASE, None, 200)
    assert [one["state"] for one in record["calls"]] == ["accepted"]
    assert conform(rig, "DELETE", here, BASE, None, 200)["forgotten"]
    assert not conform(rig, "DELETE", here, BASE, None, 200)["forgotten"]


def test_a_write_left_behind_is_settled(rig):
    name, _, key = rig.conversation()
    here = {"id": name}
    moved = conform(rig, "POST", here, BASE + "/generation", {}, 200)
    assert len(moved["superseded_calls"]) == 1
    write = here | {"operation_key": key}
    template = BASE + "/writes/{operation_key}"
    for _ in range(2):
        conform(rig, "POST", write, template, {"outcome": "applied"}, 200)
    other = conform(rig, "POST", write, template, {"outcome": "not_applied"}, 422)
    assert other["error"]["code"] == "conflict"


def test_the_document_that_is_served_is_the_one_that_is_checked(rig):
    status, headers, served = rig.ask("GET", "/guard/v1/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    assert served == schema.raw_schema
