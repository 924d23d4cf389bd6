"""What a model says to call two tools, in the format of each of SGLang's parsers; and to think first.

The tables are keyed by the names that SGLang takes for `--tool-call-parser` and `--reasoning-parser`.
A name that SGLang has and they lack fails `test_every_parser.py`, so a new one cannot be missed.
"""

import json
import re

WEATHER, TIME = {"city": "Paris", "unit": "c"}, {"tz": "Europe/Paris"}
CALLS = [("get_weather", WEATHER), ("get_time", TIME)]
THOUGHT = "Two things."


def each(shape, between=""):
    """The calls one after another, each as `shape(name, arguments)` writes it."""
    return between.join(shape(name, arguments) for name, arguments in CALLS)


def pairs(arguments, shape, between=""):
    return between.join(shape(key, value) for key, value in arguments.items())


def json_call(name, arguments, key="arguments"):
    return json.dumps({"name": name, key: arguments})


def python_call(name, arguments):
    return f"{name}({pairs(arguments, lambda k, v: f'{k}={json.dumps(v)}', ', ')})"


def hermes(name, arguments):
    return f"<tool_call>\n{json_call(name, arguments)}\n</tool_call>"


def xml_function(name, arguments):
    """Qwen3-Coder's, which several models share."""
    inner = pairs(arguments, lambda k, v: f"<parameter={k}>\n{v}\n</parameter>\n")
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def arg_pairs(start, end, after_name="", between=""):
    """GLM's, which several models share."""
    def shape(name, arguments):
        inner = pairs(arguments, lambda k, v: f"<arg_key>{k}</arg_key>{between}<arg_value>{v}</arg_value>{between}")
        return f"{start}{name}{after_name}{inner}{end}"
    return shape


GLM45 = each(arg_pairs("<tool_call>", "</tool_call>", "\n", "\n"), "\n")
GLM47 = each(arg_pairs("<tool_call>", "</tool_call>"))
CODER = each(xml_function, "\n")
MIMO = re.sub(r"(<parameter=\w+>)\n(.*?)\n</", r"\1\2</", CODER)
HERMES = each(hermes, "\n")


def dsml(token, block, invoke, parameter, indent=""):
    """DeepSeek's markup, and GigaChat's after it."""
    def shape(name, arguments):
        inner = pairs(arguments, lambda k, v: f'<{token}{parameter} name="{k}" string="true">{v}</{token}{parameter}>\n')
        return f'<{token}{invoke} name="{name}">\n{inner}</{token}{invoke}>\n'
    return f"<{token}{block}>\n{each(shape)}</{token}{block}>"


def deepseek(shape, between=""):
    calls = each(lambda n, a: f"<｜tool▁call▁begin｜>{shape(n, json.dumps(a))}<｜tool▁call▁end｜>", between)
    return f"<｜tool▁calls▁begin｜>{calls}<｜tool▁calls▁end｜>"


def kimi_k2():
    calls = "".join(
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{json.dumps(arguments)}<|tool_call_end|>"
        for n, (name, arguments) in enumerate(CALLS))
    return f"<|tool_calls_section_begin|>{calls}<|tool_calls_section_end|>"


def kimi_k3():
    def argument(key, value):
        return f'<|open|>argument key="{key}" type="string"<|sep|>{value}<|close|>argument<|sep|>'
    calls = "".join(
        f'<|open|>call tool="{name}" index="{n}"<|sep|>{pairs(arguments, argument)}<|close|>call<|sep|>'
        for n, (name, arguments) in enumerate(CALLS, 1))
    return f"<|open|>tools<|sep|>{calls}<|close|>tools<|sep|>"


def beam():
    def parameter(key, value):
        return f'<rfl:parameter name="{key}">\n{value}\n</rfl:parameter>'
    calls = each(
        lambda n, a: f" to={n}<|channel|>analysis <|constrain|>xml<|message|>{pairs(a, parameter)}",
        "<|end|><|start|>assistant")
    return f"{calls}<|call|>"


def hunyuan():
    inner = arg_pairs("<tool_call>", "</tool_call>\n", "<tool_sep>\n", "\n")
    return f"<tool_calls>\n{each(inner)}</tool_calls>"


def minimax_m3():
    mark = "]<]minimax[>["
    def shape(name, arguments):
        inner = pairs(arguments, lambda k, v: f"{mark}<{k}>{v}{mark}</{k}>")
        return f'{mark}<invoke name="{name}">{inner}{mark}</invoke>'
    return f"{mark}<tool_call>{each(shape)}{mark}</tool_call>"


def invokes(prefix, parameter="parameter"):
    """MiniMax M2's, which others share up to the prefix of the tags."""
    def shape(name, arguments):
        inner = pairs(arguments, lambda k, v: f'<{prefix}{parameter} name="{k}">{v}</{prefix}{parameter}>\n')
        return f'<{prefix}invoke name="{name}">\n{inner}</{prefix}invoke>'
    return shape


def muse():
    shape = invokes("atem:")
    return each(
        lambda n, a: f" to=functions.{n}<|message|><atem:function_calls>\n{shape(n, a)}\n</atem:function_calls>",
        "<|eom|><|start|>assistant") + "<|eot|>"


def step3():
    shape = invokes("steptml:")
    calls = each(lambda n, a: f"<｜tool_call_begin｜>function<｜tool_sep｜>{shape(n, a)}<｜tool_call_end｜>", "\n")
    return f"<｜tool_calls_begin｜>\n{calls}\n<｜tool_calls_end｜>"


def gemma4(name, arguments):
    inner = pairs(arguments, lambda k, v: f'{k}:<|"|>{v}<|"|>', ",")
    return f"<|tool_call>call:{name}{{{inner}}}<tool_call|>"


def harmony(name, arguments):
    return f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(arguments)}<|call|>"


def inkling(name, arguments):
    said = json.dumps({"name": name, "args": arguments})
    return f"<|message_model|>{name}<|content_invoke_tool_json|>{said}<|end_message|>"


# `--tool-call-parser` -> the two calls.
TOOL_FORMATS = {
    "apertus2509": f"<|tools_prefix|>{json.dumps([{n: a} for n, a in CALLS])}<|tools_suffix|>",
    "beam": beam(),
    "cohere_command4": "<|START_ACTION|>" + json.dumps(
        [{"tool_call_id": str(i), "tool_name": n, "parameters": a} for i, (n, a) in enumerate(CALLS)]
    ) + "<|END_ACTION|>",
    "deepseekv3": deepseek(lambda n, a: f"function<｜tool▁sep｜>{n}\n```json\n{a}\n```", "\n"),
    "deepseekv31": deepseek(lambda n, a: f"{n}<｜tool▁sep｜>{a}"),
    "deepseekv32": dsml("｜DSML｜", "function_calls", "invoke", "parameter"),
    "deepseekv4": dsml("｜DSML｜", "tool_calls", "invoke", "parameter"),
    "deepseekv41": dsml("｜DSML｜", " calls", " invoke", " parameter"),
    "dots": f"<dots_function_call>\n{each(invokes(''), chr(10))}\n</dots_function_call>",
    "gemma4": each(gemma4),
    "gigachat3": f"<|function_call|>{json_call(*CALLS[0])}",
    "gigachat35": dsml("｜GCML｜", "tool_calls", "invoke", "parameter"),
    "glm": GLM45,
    "glm45": GLM45,
    "glm47": GLM47,
    "gpt-oss": each(harmony, "<|start|>assistant"),
    "hermes": HERMES,
    "hunyuan": hunyuan(),
    "inkling": each(inkling),
    "interns1": each(lambda n, a: f"<|action_start|> <|plugin|>\n{json_call(n, a, 'parameters')}<|action_end|>"),
    "iquest_q1": each(arg_pairs("<iquest_tool_call>", "</iquest_tool_call>")),
    "k2_horizon": "<ifm|tool_calls>\n" + each(
        lambda n, a: f"<ifm|tool_call>{json_call(n, a)}</ifm|tool_call>\n") + "</ifm|tool_calls>",
    "kimi_k2": kimi_k2(),
    "kimi_k3": kimi_k3(),
    "lfm2": f"<|tool_call_start|>[{each(python_call, ', ')}]<|tool_call_end|>",
    "ling3": GLM45,
    "llama3": "<|python_tag|>" + each(lambda n, a: json_call(n, a, "parameters"), ";"),
    "mimo": MIMO,
    "minicpm5": each(lambda n, a: f'<function name="{n}">' + pairs(
        a, lambda k, v: f'<param name="{k}">{v}</param>') + "</function>", "\n"),
    "minimax-m2": f"<minimax:tool_call>\n{each(invokes(''), chr(10))}\n</minimax:tool_call>",
    "minimax-m3": minimax_m3(),
    "mistral": each(lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a)}"),
    "muse": muse(),
    "nanbeige": CODER,
    "poolside_v1": GLM45,
    "pythonic": f"[{each(python_call, ', ')}]",
    "qwen": HERMES,
    "qwen25": HERMES,
    "qwen3_coder": CODER,
    "response_template": HERMES,
    "spark25": each(arg_pairs("<tool_call>", "</tool_call>", "\n"), "\n"),
    "step3": step3(),
    "step3p5": CODER,
    "trinity": HERMES,
}


def thinks(tool_parser, start="<think>\n", end="\n</think>\n\n"):
    return tool_parser, start + THOUGHT + end


# `--reasoning-parser` -> the tool parser that it is run with, and a thought.
REASONING_FORMATS = {
    "apertus2509": thinks("apertus2509", "<|inner_prefix|>", "<|inner_suffix|>"),
    "beam": thinks("beam", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    "cohere_command4": thinks("cohere_command4", "<|START_THINKING|>", "<|END_THINKING|>"),
    "deepseek-r1": thinks("deepseekv3"),
    "deepseek-v3": thinks("deepseekv31"),
    "deepseek-v4": thinks("deepseekv4", "", "</think>\n\n"),
    "deepseek-v41": thinks("deepseekv41", "", "</think>\n\n"),
    "dots": thinks("dots"),
    "gemma4": thinks("gemma4", "<|channel>thought\n", "<channel|>"),
    "gigachat35": thinks("gigachat35"),
    "glm45": thinks("glm47"),
    "gpt-oss": thinks("gpt-oss", "<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
    "granite_thinking_parser": thinks("hermes"),
    "hunyuan": thinks("hunyuan"),
    "inkling": thinks("inkling", "<|message_model|><|content_thinking|>", "<|end_message|>"),
    "interns1": thinks("interns1"),
    "iquest_q1": thinks("iquest_q1"),
    "k2_horizon": thinks("k2_horizon", "<ifm|think>\n", "\n</ifm|think>\n"),
    "kimi": thinks("kimi_k2", "◁think▷", "◁/think▷"),
    "kimi_k2": thinks("kimi_k2"),
    "kimi_k3": thinks("kimi_k3", "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    "ling3": thinks("ling3"),
    "mimo": thinks("mimo"),
    "minimax": thinks("minimax-m2"),
    "minimax-append-think": thinks("minimax-m2"),
    "minimax-m3": thinks("minimax-m3", "<mm:think>", "</mm:think>"),
    "mistral": thinks("mistral", "[THINK]", "[/THINK]"),
    "muse": thinks("muse", " to=self<|message|>", "<|eom|><|start|>assistant"),
    "nanbeige": thinks("nanbeige"),
    "nemotron_3": thinks("qwen3_coder"),
    "poolside_v1": thinks("poolside_v1"),
    "qwen3": thinks("qwen25"),
    "qwen3-thinking": thinks("qwen3_coder"),
    "response_template": thinks("response_template"),
    "step3": thinks("step3"),
    "step3p5": thinks("step3p5"),
}

# What else a server must be started with.
SERVER_ARGS = {"response_template": ("--tokenizer-path", "{model}/response_template")}

# What a request must ask for beside, by parser: Beam's answer begins in the prompt, DeepSeek V4 thinks when it is told to.
OPTIONS = {
    "beam": {"chat_template_kwargs": {"opening": "<|start|>assistant"}},
    "deepseek-v4": {"chat_template_kwargs": {"thinking": True}},
    "deepseek-v41": {"chat_template_kwargs": {"thinking": True}},
}

# GigaChat 3 has no way to say two calls.
ONE_CALL = {"gigachat3"}

# This one leaves the thought where it is: before the answer.
THOUGHT_IN_CONTENT = {"minimax-append-think"}
