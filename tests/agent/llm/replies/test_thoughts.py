"""Thoughts end where the format begins, whatever a server puts around them; marks in code are code."""

from __future__ import annotations

import pytest

from hillclimb.agent.llm.replies.replies import UnreadableReply, WholeFile, read_reply

ANSWER = "IDEA: smaller blocks stay in the first cache\nFAMILY: tiling\nKNOB: BLOCK=2048\n"
CHANGE = "FILE: kernel.py\n<<<<<<< SEARCH\nBLOCK = 1\n=======\nBLOCK = 2\n>>>>>>> REPLACE\n"
DRAFTS = {
    "prose": "Blocks are too large for the cache.\n",
    "change": f"First draft:\n{CHANGE}No, that line is not there.\n",
    "idea": "IDEA: unroll twice\nKNOB: BLOCK=512\nno, that is wrong\n",
    "half a change": "FILE: kernel.py\n<<<<<<< SEARCH\nfor\nhm, no\n",
    "fence": "FILE: kernel.py\n```python\nBLOCK = 3\n```\nno\n",
}
MARKS = {
    "think": ("<think>\n", "\n</think>\n\n"),
    "attributes": ('<think time="3">\n', "\n</think>\n"),
    "capitals": ("<THINK>\n", "\n</THINK>\n"),
    "reasoning": ("<reasoning>\n", "</reasoning>\n"),
    "thought": ("<thought>", "</thought>"),
    "namespace": ("<seed:think>", "</seed:think>"),
    "another tag": ("<scratch_pad>\n", "\n</scratch_pad>\n"),
    "brackets": ("[THINK]", "[/THINK]"),
    "triangles": ("◁think▷", "◁/think▷"),
    "channels": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "solution": ("<|begin_of_thought|>\n", "\n<|end_of_thought|>\n<|begin_of_solution|>\n"),
    "unused tokens": ("<unused94>thought\n", "<unused95>"),
    "end alone": ("", "\n</think>\n"),
    "end in a line": ("", "</think>"),
    "end of brackets alone": ("", "[/THINK]"),
    "then an answer": ("<think>", "</think>\n<answer>\n"),
    "then an answer at once": ("<reflection>", "</reflection><output>"),
    "halves of a bar": ("<|channel>thought\n", "<channel|>"),
    "words of channels": ("analysis", "assistantfinal"),
    "then prose": ("<reasoning>\n", "\n</reasoning>\nHere is my answer:\n\n"),
}


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("marks", MARKS)
def test_thoughts_are_no_part_of_the_reply(marks: str, draft: str) -> None:
    opening, end = MARKS[marks]
    found = read_reply(opening + DRAFTS[draft] + end + ANSWER)
    assert (found.idea, found.family) == ("smaller blocks stay in the first cache", "tiling")
    assert (found.knobs, found.changes) == ({"BLOCK": "2048"}, ())


@pytest.mark.parametrize("end", ["<|return|>", "</answer>", "<|end_of_solution|>", "[/ANSWER]"])
def test_an_end_mark_below_the_reply_ends_nothing(end: str) -> None:
    assert read_reply(f"{ANSWER}{CHANGE}{end}\n").knobs == {"BLOCK": "2048"}


@pytest.mark.parametrize(
    "mark", ["</think>", "</div>", "<|end|>", "<channel|>", "assistantfinal", "[/INST]", "◁/think▷"]
)
@pytest.mark.parametrize("place", ["text = '{}'", "{}", "# {}"])
def test_a_mark_in_a_files_code_is_code(mark: str, place: str) -> None:
    line = place.format(mark)
    content = f'text = """\n{line}\n"""\n'
    found = read_reply(f"{ANSWER}FILE: a.py\n```python\n{content}```\nFILE: b.py\n```python\nx = 1\n```\n")
    assert found.idea == "smaller blocks stay in the first cache"
    assert found.changes == (WholeFile("a.py", content), WholeFile("b.py", "x = 1\n"))


@pytest.mark.parametrize("mark", ["</think>", "</div>", "<|end|>"])
def test_a_mark_in_a_search_block_is_code(mark: str) -> None:
    block = f"FILE: a.py\n<<<<<<< SEARCH\n{mark}\n=======\n{mark}{mark}\n>>>>>>> REPLACE\n"
    found = read_reply(f"{block}{ANSWER}")
    assert len(found.changes) == 1 and found.idea


@pytest.mark.parametrize(
    "text",
    [
        f"{ANSWER}NOTE: the template ends with </think> or <|end|>\n",
        f"{CHANGE}I chose <b>this</b> one.\n{ANSWER}",
        f"{ANSWER}NOTE: a <code>mark</code> in a sentence\nNEXT: another idea\n{CHANGE}",
    ],
)
def test_marks_in_sentences_take_nothing_away(text: str) -> None:
    found = read_reply(text)
    assert found.idea == "smaller blocks stay in the first cache"
    assert len(found.changes) == text.count("FILE:")


def test_a_draft_is_no_reply_where_nothing_follows_the_thoughts() -> None:
    with pytest.raises(UnreadableReply):
        read_reply(f"<think>\n{ANSWER}{CHANGE}</think>\nI can do nothing here.\n")


def test_lines_are_counted_from_the_top_of_the_whole_reply() -> None:
    with pytest.raises(UnreadableReply, match="line 4"):
        read_reply("<reasoning>\nhm\n</reasoning>\n>>>>>>> REPLACE\nIDEA: x\n")
