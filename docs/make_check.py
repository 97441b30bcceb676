"""Writes docs/check.md from the rules' own docstrings: `make docs`."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from holter.check.rule import HEADINGS, Rule, find_rules

PAGE = Path(__file__).with_name("check.md")

TOP = """# What `holter check` looks for

Made from the rules themselves by `make docs`; do not edit. How it is used is in the [README](../README.md), how often
it is right in [check-precision.md](check-precision.md).

    holter check train.py notebooks/          findings with their line and cure; exit code 1 when there are any
    holter check --fix train.py               what is safe to mend is mended; --diff shows it first
    holter check --format sarif . > out.sarif also json, and github for annotations

A line is kept quiet with `# holter: ignore[HLT103]` (a code, the beginning of one, a name, or nothing for all), a file
with `# holter: ignore-file[...]` anywhere in it. In `pyproject.toml`:

```toml
[tool.holter.check]
select = ["ALL"]                    # codes, beginnings of codes such as "HLT1", or names
ignore = ["sync-each-step"]
exclude = ["third_party", "*_old.py"]
per-file-ignores = { "notebooks/*" = ["HLT501"] }
```

Levels: `error` halts the run or spoils its result, `warning` does so with enough data or time, `note` costs time.
HLT1xx is about memory, HLT2xx about the step, HLT3xx about precision, HLT4xx about input, HLT5xx about the device and
compiled functions, HLT6xx about files and processes. Code in tests is not a run: there only `deprecated-amp` speaks.
"""


def parts(rule: Rule) -> dict[str, str]:
    """Split a rule's story by its headings; what is above the first is its title."""
    told = re.split(rf"^({'|'.join(HEADINGS)}):", rule.story.strip("\n"), flags=re.M)
    found = dict(zip(told[1::2], told[2::2], strict=True))
    return {"": told[0].strip(), **found}


def section(rule: Rule) -> str:
    told = parts(rule)
    doctor = (
        f"the doctor's [`{rule.cause}`](rules.md)" if rule.cause else "the run goes on, with a worse result or pace"
    )
    rows = [f"## {rule.code} `{rule.name}`\n\n{told['']}\n"]
    for heading in HEADINGS:
        if heading in ("Example", "Instead"):
            rows.append(f"**{heading}:**\n\n```python\n{textwrap.dedent(told[heading].strip(chr(10))).rstrip()}\n```\n")
        else:
            rows.append(f"**{heading}:** {' '.join(told[heading].split())}\n")
    cures = "; ".join(f"{cure.title} (`{cure.keeps}`)" for cure in rule.cures)
    rows.append(f"**Leads to:** {doctor}. **Cure:** {cures}\n")
    return "\n".join(rows)


def index() -> str:
    rows = [
        f"| [{rule.code}](#{rule.code.lower()}-{rule.name}) | `{rule.name}` | {parts(rule)['']} |"
        for rule in find_rules()
    ]
    return "\n".join(["| code | name | |", "|---|---|---|", *rows, ""])


def page() -> str:
    return "\n".join([TOP, index(), *(section(rule) for rule in find_rules())])


if __name__ == "__main__":
    PAGE.write_text(page())
