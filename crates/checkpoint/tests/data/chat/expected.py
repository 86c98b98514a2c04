"""Makes expected.json and expressions.json anew from the messages and sources in them.

python expected.py TOKENIZER.JSON, with transformers 5.24 and jinja2 3.1.6; the tokenizer is that of
the fixture llama_gqa.
"""

import datetime
import json
import pathlib
import re
import sys

import jinja2
import transformers.utils.chat_template_utils as utils
from transformers import PreTrainedTokenizerFast

HERE = pathlib.Path(__file__).parent


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


utils.datetime = Clock
tokenizer = PreTrainedTokenizerFast(
    tokenizer_file=sys.argv[1], bos_token="<s>", eos_token="</s>", unk_token="<unk>"
)


def render(source, messages, prompt=False, mask=False):
    """The text and the indices of its generation blocks."""
    (text,), indices = utils.render_jinja_template(
        [utils._normalize_chat_messages(messages)],
        chat_template=source,
        add_generation_prompt=prompt,
        return_assistant_tokens_mask=mask,
        **tokenizer.special_tokens_map,
    )
    return text, indices


def outcome(source, messages):
    try:
        return {"text": render(source, messages)[0]}
    except Exception as error:
        return {"raised": str(error)} if type(error) is jinja2.TemplateError else {}


def by_prefixes(source, messages, text):
    ranges = []
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            try:
                prompt = render(source, messages[:index], prompt=True)[0]
                full = render(source, messages[: index + 1])[0]
            except Exception:
                return "refused"
            if not (full.startswith(prompt) and text.startswith(full)):
                return "unstable"
            ranges.append([len(prompt.encode()), len(full.encode())])
    return ranges


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, indent=0))


lists = json.loads((HERE / "expected.json").read_text())["lists"]
cases = []
for path in sorted(HERE.glob("*.jinja")):
    source = path.read_text()
    for name, messages in lists.items():
        case = {"template": path.stem, "messages": name, **outcome(source, messages)}
        if "text" in case and re.search(r"{%-?\s*generation", source):
            (indices,) = render(source, messages, mask=True)[1]
            bytes_to = lambda end: len(case["text"][:end].encode())
            case["assistant"] = [[bytes_to(start), bytes_to(end)] for start, end in indices]
        elif "text" in case:
            case["assistant"] = by_prefixes(source, messages, case["text"])
        cases.append(case)
write("expected.json", {"lists": lists, "cases": cases})

old = json.loads((HERE / "expressions.json").read_text())
messages = old["messages"]
sources = [case["source"] for case in old["cases"]]
cases = [{"source": source, **outcome(source, messages)} for source in sources]
write("expressions.json", {"messages": messages, "cases": cases})
