# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the cam-hccl-plugin project
"""Shell text to commands: what a shell would split, and nothing that it would compute."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cam_hccl_plugin.cli.shell_words import split_commands
from cam_hccl_plugin.errors import PlanError

WORDS = st.lists(st.text(st.characters(blacklist_categories=("Cs",)), max_size=20), min_size=1)


@given(st.lists(WORDS, min_size=1, max_size=4))
def test_what_a_shell_quotes_comes_back(commands: list[list[str]]) -> None:
    quoted = [" ".join(map(shlex.quote, words)) for words in commands]
    wanted = [[w.replace("\r\n", "\n") for w in words] for words in commands]
    assert split_commands("\n".join(quoted)) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b\tc", [["a", "b", "c"]]),
        ("a \\\n  b", [["a", "b"]]),
        ("a\\\nb", [["ab"]]),
        ('a "b \\\nc"', [["a", "b c"]]),
        ("a # comment 'b\nc", [["a"], ["c"]]),
        ("a#b", [["a#b"]]),
        ("a; b && c & d", [["a"], ["b"], ["c"], ["d"]]),
        ("'a'\"b\"c ''", [["abc", ""]]),
        ('"a\\"b\\\\c\\d"', [['a"b\\c\\d']]),
        ("'$A `b` | >'", [["$A `b` | >"]]),
        ('"a | b > (c)"', [["a | b > (c)"]]),
        ("\\$A $ a$", [["$A", "$", "a$"]]),
        ("'a\nb'", [["a\nb"]]),
        ("a\r\nb", [["a"], ["b"]]),
        ("\n\n # only\n", []),
        ("\ufeffa b", [["a", "b"]]),
        ("a > log", [["a"]]),
        ("a >>log b", [["a", "b"]]),
        ("a 2>&1 b", [["a", "b"]]),
        ("a &>log & b", [["a"], ["b"]]),
        ("a >'my log' 2>/dev/null; b", [["a"], ["b"]]),
        ("a b2>log", [["a", "b2"]]),
        ("a 2>&1 | tee -a log", [["a"]]),
        ("a |& tee log\nb", [["a"], ["b"]]),
        ("a b~c", [["a", "b~c"]]),
    ],
)
def test_the_rules_of_a_shell(text: str, words: list[list[str]]) -> None:
    assert split_commands(text) == words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("vllm serve $MODEL", "line 1: $MODEL"),
        ('a\nb "$HOST:$PORT"', "line 2: $HOST:$PORT"),
        ("a ${B:-c}", "${B:-c}"),
        ("a $(b)", "$(b)"),
        ("a `b`", "`"),
        ('a "`b`"', "`"),
        ("a || b", "|"),
        ("a < b", "<"),
        ("a <<EOF", "<"),
        ("a > >(b)", ">"),
        ("a >", "> names no file"),
        ("a $'b'", "$'b'"),
        ("a ~/b", "~"),
        ("(a)", "("),
        ("a 'b", "single quote"),
        ('a\nb "c', "line 2: a double quote"),
    ],
)
def test_what_only_a_shell_can_do_is_refused(text: str, found: str) -> None:
    with pytest.raises(PlanError) as caught:
        split_commands(text)
    assert found in str(caught.value)
    assert "DRY_RUN=1" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem", "remedy"),
    [
        (
            "a \\ \n  b",
            "line 1: the backslash at the end has a blank behind it",
            "remove the blank",
        ),
        ("a\nb \\\t", "line 2: the backslash at the end has a blank behind it", "remove"),
        ("a | grep x", "line 1: only tee is understood behind |", "leave | and the rest out"),
        ("a |", "only tee", "leave"),
    ],
)
def test_a_slip_is_named_with_its_own_remedy(text: str, problem: str, remedy: str) -> None:
    with pytest.raises(PlanError) as caught:
        split_commands(text)
    assert problem in str(caught.value)
    assert str(caught.value).partition("; ")[2].startswith(remedy)
