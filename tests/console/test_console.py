"""The console in a real browser, while an application talks to the guard."""

import uuid

import pytest
from playwright.sync_api import expect

from running.process import Gateway
from story import Application, ask_a, ask_b_and_answer

HOSTILE = '"><img/src=x/onerror=document.title="broken">'


def fresh(name):
    return f"{name}-{uuid.uuid4().hex[:8]}"


def row_of(page, name):
    return page.locator("#rows a").filter(has_text=name)


def test_the_story_appears_without_a_reload(visit, guard):
    app = Application(guard.port, fresh("story"))
    page = visit()
    list_a, answer_a = ask_a(app)
    row_of(page, app.conversation).click()
    timeline = page.locator("svg.timeline")
    expect(timeline.locator(".lane-title")).to_have_text(["Generation 41"])
    expect(timeline.locator(".event.wait.going")).to_have_count(1)
    assert ask_b_and_answer(app, list_a, answer_a) == "ORDER-B is delivered."
    expect(timeline.locator(".lane-title")).to_have_text(["Generation 41", "Generation 42"])
    expect(timeline.locator(".lane-state")).to_have_text(["superseded", "answered"])
    stories = page.locator(".stories li")
    expect(stories.nth(0)).to_contain_text("its result came back stale and was refused")
    expect(stories.nth(1)).to_contain_text("Answered while the user waited")
    expect(timeline.locator('.event.verdict[aria-label*="generation 41"]')).to_have_count(1)
    expect(timeline.locator('.event.answer[aria-label*="generation 42"]')).to_have_count(1)
    expect(timeline.locator('.event.answer[aria-label*="generation 41"]')).to_have_count(0)
    expect(timeline.locator(".going")).to_have_count(0)

    refusal = page.locator(".events li.faulty").filter(has_text="stale").first
    refusal.locator("summary").click()
    expect(refusal.locator(".fault code").first).to_have_text("stale")
    expect(refusal.locator(".way-out")).not_to_be_empty()


def test_an_id_is_text(visit, guard):
    app = Application(guard.port, HOSTILE)
    ask_a(app, 1)
    page = visit()
    row_of(page, HOSTILE).click()
    expect(page.locator("#detail h2")).to_have_text(HOSTILE)
    assert page.locator("main img").count() == 0
    assert page.title() == "Tigertally console"


def test_the_keyboard_is_enough(visit, guard):
    app = Application(guard.port, fresh("keys"))
    ask_b_and_answer(app, *ask_a(app))
    page = visit()
    expect(row_of(page, app.conversation)).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(app.conversation)
    expect(page.locator("#rows a")).to_have_count(1)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page.locator("#detail h2")).to_be_focused()
    page.keyboard.press("t")
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("ArrowRight")
    second = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert "Model call" in first and first != second
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator(".events .here details")).to_have_attribute("open", "")
    page.keyboard.press("Escape")
    expect(page.locator(".hint")).to_be_visible()
    expect(row_of(page, app.conversation)).to_be_focused()


def test_filters_pick_by_state_and_code(visit, guard):
    app, other = (Application(guard.port, fresh(name)) for name in ("refused", "open"))
    ask_b_and_answer(app, *ask_a(app))
    ask_a(other, 1)
    page = visit()
    page.locator("#state").select_option("open")
    expect(row_of(page, other.conversation)).to_be_visible()
    expect(row_of(page, app.conversation)).to_have_count(0)
    page.locator("#state").select_option("")
    page.locator("#codes button", has_text="stale_generation").click()
    expect(row_of(page, app.conversation)).to_be_visible()
    expect(row_of(page, other.conversation)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen(visit, guard, scheme, width):
    app = Application(guard.port, fresh("screen"))
    ask_b_and_answer(app, *ask_a(app))
    page = visit(color_scheme=scheme, viewport={"width": width, "height": 844})
    row_of(page, app.conversation).click()
    expect(page.locator("svg.timeline .event.answer")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(20, 22, 26)") == (scheme == "dark")


def test_a_token_is_asked_for_once(chromium):
    with Gateway("http://127.0.0.1:9", {"TIGERTALLY_ADMIN__TOKEN": "operators-only"}) as guard:
        context = chromium.new_context()
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{guard.admin_port}/console")
        expect(page.locator("#token")).to_be_focused()
        for token, opens in (("another", False), ("operators-only", True)):
            page.locator("#token").fill(token)
            page.keyboard.press("Enter")
            if not opens:
                expect(page.locator("#gate-said")).not_to_be_empty()
        expect(page.locator("#live")).to_have_text("live")
        page.reload()
        expect(page.locator("#main")).to_be_visible()
        expect(page.locator("#gate")).to_be_hidden()
        context.close()
