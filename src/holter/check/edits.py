"""Edits in terms of nodes."""

from __future__ import annotations

import ast

from holter.check.problem import Edit


def start_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.lineno, node.col_offset


def end_of(node: ast.expr | ast.stmt) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def after(node: ast.expr | ast.stmt, text: str) -> Edit:
    """Insert right after a node."""
    return Edit(end_of(node), end_of(node), text)


def before(node: ast.expr | ast.stmt, text: str) -> Edit:
    """Insert right before a node."""
    return Edit(start_of(node), start_of(node), text)


def instead(node: ast.expr | ast.stmt, text: str) -> Edit:
    """Replace a node."""
    return Edit(start_of(node), end_of(node), text)


def first_argument(call: ast.Call, text: str) -> Edit:
    """Put an argument before all others of a call; the parenthesis is the one right after the function's name."""
    line, column = end_of(call.func)
    return Edit((line, column), (line, column + 1), f"({text}, " if call.args or call.keywords else f"({text}")
