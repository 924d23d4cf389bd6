"""What stands for a model's tokens: a marker (`<tool_call>`, `[TOOL_CALLS]`, …) is one, other text is some characters."""

import re

MARKER = re.compile(
    r"(</?[\w|=:▁｜]+>|<[|｜][^|｜>]+[|｜]>|\[/?(?:TOOL_CALLS|ARGS|THINK)\]|◁/?think▷|｜\w+｜"
    r"|\]<\]minimax\[>\[)")


def tokens(text, characters=4):
    out = []
    for n, part in enumerate(MARKER.split(text)):
        out += [part] if n % 2 else [part[at:at + characters] for at in range(0, len(part), characters)]
    return [token for token in out if token]
