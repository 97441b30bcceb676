"""Writes docs/check.md from the rules' own docstrings: `make docs`."""

from __future__ import annotations

from pathlib import Path

from holter.check.page import CODE, parts
from holter.check.rule import HEADINGS, Rule, find_rules

PAGE = Path(__file__).with_name("check.md")

TOP = """# What `holter check` looks for

Made from the rules themselves by `make docs`; do not edit. How it is used is in the [README](../README.md), how often
it is right in [check-precision.md](check-precision.md).

    holter check train.py notebooks/          findings with their line and cure; exit code 1 when there are any
    holter check --fix train.py               what is safe to mend is mended; --diff shows it first
    holter check --format sarif . > out.sarif also json, and github for annotations
    holter check --watch src/                 again whenever a file changes, until Ctrl-C (exit code 0)
    holter check --explain HLT103             the rule's page, as below; also by name: --explain graph-kept

Exit codes: 0 nothing was found, 1 something was, 2 a path could not be read or the command line is wrong.

A line is kept quiet with `# holter: ignore[HLT103]` (a code, the beginning of one, a name, or nothing for all), a file
with `# holter: ignore-file[...]` anywhere in it. In `pyproject.toml`:

```toml
[tool.holter.check]
select = ["ALL"]                    # codes, beginnings of codes such as "HLT1", or names
ignore = ["sync-each-step"]
exclude = ["third_party", "*_old.py"]
per-file-ignores = { "notebooks/*" = ["HLT501"] }
```

What 64 files or more gave is kept in the user's cache folder (`$XDG_CACHE_HOME/holter`, `~/.cache/holter`, or
`~/Library/Caches/holter` on a Mac), so that the next check reads only what changed since. It knows a file by what the
file system says of it and by its content, and it holds for one version of Holter, of Python and of the settings. It is
32 MB at most, sixteen times. `--no-cache` leaves it out; removing the folder is safe at any time. In CI it is worth
keeping: files with a new date and the same content are known.

Colour is for terminals. `NO_COLOR` turns it off, `FORCE_COLOR` on for a pipe.

## In an editor

`holter check --format json PATH...` prints one document, schema 1: fields may come, none goes.

| field | |
|---|---|
| `schema` | 1 |
| `files` | how many files were checked |
| `fixed` | how many fixes `--fix` made |
| `findings[]` | what was found, in the order of the files and of their lines |
| `findings[].code`, `name` | the rule: `holter check --explain CODE` has its page |
| `findings[].level` | how severe: `error`, `warning` or `note` |
| `findings[].claim` | the message, with no full stop |
| `findings[].cause` | what `holter why` would call it after the run; null where no run shows it |
| `findings[].file`, `cell` | the path as given; the cell of a notebook, from 1, null for a script |
| `findings[].line`, `column` | where it starts, both from 1; in a notebook, within the cell |
| `findings[].end_line`, `end_column` | where it ends: the column is that of the character behind the last |
| `findings[].source` | the line, without its indent, 200 characters of it at most |
| `findings[].cures[]` | `title`, `how` (a diff, or words), `keeps`: `exact`, `equivalent` or `changed` |
| `findings[].fixable` | whether `--fix` mends it |
| `findings[].edits[]` | how: from `line`, `column` to `end_line`, `end_column` stands `text` instead; all or none |
| `unread[]` | `file` and `why`: what could not be checked |

The edits of one finding belong together, and count like the finding: apply the last one first, so that the places of
the others stay. Columns count characters (Unicode code points), so that an editor that counts bytes or UTF-16 has to
convert them; the Language Server Protocol counts from 0. What is being typed can be checked before it is saved:
`holter check - --format json` reads stdin, and its findings have `-` for a file.

## Before each commit

With [pre-commit](https://pre-commit.com), in `.pre-commit-config.yaml`:

```yaml
repos:
  - repo: https://github.com/OWNER/holter     # where you have Holter from
    rev: v0.1.0
    hooks:
      - id: holter-check
        args: [--ignore, sync-each-step]      # any option; [--fix] mends what is safe to mend
```

It checks the scripts and notebooks of the commit, all in one process, and lets it through with exit code 0 alone.

## The rules

Levels: `error` halts the run or spoils its result, `warning` does so with enough data or time, `note` costs time.
HLT1xx is about memory, HLT2xx about the step, HLT3xx about precision, HLT4xx about input, HLT5xx about the device and
compiled functions, HLT6xx about files and processes. Code in tests is not a run: there only `deprecated-amp` speaks.
"""


def section(rule: Rule) -> str:
    told = parts(rule)
    doctor = (
        f"the doctor's [`{rule.cause}`](rules.md)" if rule.cause else "the run goes on, with a worse result or pace"
    )
    rows = [f"## {rule.code} `{rule.name}`\n\n{told['']}\n"]
    for heading in HEADINGS:
        if heading in CODE:
            rows.append(f"**{heading}:**\n\n```python\n{told[heading]}\n```\n")
        else:
            rows.append(f"**{heading}:** {told[heading]}\n")
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
